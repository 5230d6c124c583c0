"""PTX text into machine code of the present card, by the driver's own assembler, and kept in the cache on disk.

Modules of one kernel are assembled in threads of their own: the driver runs without Python's lock. Its messages become
part of the error where it refuses a text.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_int, c_size_t, c_void_p
from typing import NamedTuple

from qddot.compiler.runtime.cache import default_cache
from qddot.compiler.runtime.cuda.context import Context
from qddot.compiler.runtime.cuda.driver import UNSUPPORTED_PTX
from qddot.errors import DeviceError, InputError

# CUjit_option, CUjitInputType
_INFO_LOG, _INFO_BYTES, _ERROR_LOG, _ERROR_BYTES = 3, 4, 5, 6
_PTX = 1
_LOG_BYTES = 16 << 10
_SHOWN_LINES = 8  # of the assembler's messages


class Assembled(NamedTuple):
    """Machine code of modules, and how long it took to have it."""

    cubins: tuple[bytes, ...]
    cached: bool  # all of it came from the cache
    seconds: float


def assemble(texts: Sequence[str], context: Context, what: str) -> Assembled:
    """Machine code of each PTX module for the card of a context, from the cache where it is there."""
    begin = time.perf_counter()
    keys = [cache_key(text, context) for text in texts]
    found = [default_cache().get(key) for key in keys]
    missing = [k for k, cubin in enumerate(found) if cubin is None]

    def made(k: int) -> bytes:
        cubin = _assembled(texts[k], context, what)
        default_cache().put(keys[k], cubin)
        return cubin

    if len(missing) > 1:
        with ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1)) as threads:
            new = list(threads.map(made, missing))
    else:
        new = [made(k) for k in missing]
    for k, cubin in zip(missing, new, strict=True):
        found[k] = cubin
    cubins = tuple(x for x in found if x is not None)
    return Assembled(cubins, not missing, time.perf_counter() - begin)


def cache_key(text: str, context: Context) -> str:
    """Of the machine code of a PTX module for the card and the driver of a context."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    parts = "cubin", digest, context.driver.version, context.device.capability
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def forget(texts: Sequence[str], context: Context) -> None:
    """Removes what is in the cache for these modules: the driver does not load it."""
    for text in texts:
        default_cache().reject(cache_key(text, context))


def _assembled(text: str, context: Context, what: str) -> bytes:
    own = context.driver
    data = text.encode() + b"\0"
    info, errors = ctypes.create_string_buffer(_LOG_BYTES), ctypes.create_string_buffer(_LOG_BYTES)
    # The driver writes to values and buffers until the link is destroyed.
    options = (c_int * 4)(_INFO_LOG, _INFO_BYTES, _ERROR_LOG, _ERROR_BYTES)
    values = (c_void_p * 4)(ctypes.addressof(info), _LOG_BYTES, ctypes.addressof(errors), _LOG_BYTES)
    with context:
        link = own.handle(lambda result: own.cuLinkCreate_v2(4, options, values, result))
        try:
            own.cuLinkAddData_v2(link, _PTX, data, len(data), what.encode(), 0, None, None)
            cubin, size = c_void_p(), c_size_t()
            own.cuLinkComplete(link, byref(cubin), byref(size))
            return ctypes.string_at(cubin.value or 0, size.value)  # it goes with the link
        except DeviceError as error:
            said = "\n".join(errors.value.decode(errors="replace").strip().splitlines()[:_SHOWN_LINES])
            advice = ""
            if error.code == UNSUPPORTED_PTX:
                advice = "; the driver is older than this version of PTX: update the driver, or take target='cpu'"
            on = f"{context.device.name} ({context.device.arch})"
            raise InputError(f"{what}: the assembler for {on} says {error}{advice}\n{said}".rstrip()) from None
        finally:
            own.cuLinkDestroy(link)
