"""Kernels that XLA programs call: the table of them, and the machine code of the handlers that find them there.

A program holds the key of a kernel, not an address, so that it may be kept, exported and loaded by another process; there
it finds the same kernel once that was made. Kernels in the table stay: nobody knows when the last program goes.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from math import prod
from typing import Any, NamedTuple

from qddot.compiler.runtime import xla_layout as layout
from qddot.compiler.runtime.forks import guarded_lock
from qddot.compiler.runtime.gufunc import loop_of
from qddot.compiler.runtime.kernel import Kernel
from qddot.compiler.runtime.llvm_compile import ENVIRONMENT_WORDS, Code, compile_object, library_functions
from qddot.compiler.targets.host import host
from qddot.errors import InputError

_lock = guarded_lock()
_entries: dict[int, _Entry] = {}
_table: Any = None
_handlers: Code | None = None


class _Entry(NamedTuple):
    """What a key stands for, and all that its words point to."""

    identity: str
    words: Any
    card: Any
    kernel: Kernel


class Handlers(NamedTuple):
    """Addresses of functions that XLA calls."""

    cpu: int
    cuda: int


def handlers() -> Handlers:
    """The handlers of this process, compiled at their first use: they contain the address of its table."""
    global _table, _handlers
    with _lock:
        if _handlers is None:
            from qddot.compiler.codegen.abi import xla_ffi, xla_grid

            _table = (ctypes.c_uint64 * (2 * layout.TABLE_PLACES))()
            target = host()
            texts = xla_ffi.render(target, ctypes.addressof(_table), ENVIRONMENT_WORDS), xla_grid.render()
            _handlers = Code(compile_object("\n".join(texts), target, "xla_ffi"))
        return Handlers(_handlers.address or 0, _handlers.call or 0)


def enter(kernel: Kernel, identity: str) -> int:
    """The key by which programs of XLA call a kernel; `identity` says all that its results depend on."""
    key = key_of(identity)
    with _lock:
        found = _entries.get(key)
        if found is None:
            handlers()
            _write(key, _Entry(identity, *_words(kernel), kernel))
        elif found.identity != identity:
            both = f"{identity} and {found.identity}"
            raise InputError(f"two kernels have the same key {key}, {both}; take other options for one of them")
    return key


def scratch_bytes(kernel: Kernel, states: int) -> int:
    """Memory that a call for so many states takes as a second result; kernels on the processor take theirs themselves."""
    if kernel.code is None:
        return 0
    from qddot.compiler.runtime.cuda import xla

    return xla.scratch_bytes(kernel, states)


def key_of(identity: str) -> int:
    """A number of 63 bits, never 0: attributes of programs have a sign."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "little") >> 1 or 1


def _write(key: int, entry: _Entry) -> None:
    if len(_entries) >= layout.TABLE_PLACES // 2:
        raise InputError(f"programs of XLA can call {layout.TABLE_PLACES // 2:,} kernels of qddot, and all are taken")
    place = key % layout.TABLE_PLACES
    while _table[2 * place]:
        place = (place + 1) % layout.TABLE_PLACES
    _entries[key] = entry
    _table[2 * place + 1] = ctypes.addressof(entry.words)
    with threading.Lock():  # whose release orders the two stores
        pass
    _table[2 * place] = key


def _words(kernel: Kernel) -> tuple[Any, Any]:
    """What the handlers read of a kernel, and what they point to beside it."""
    shapes = (*kernel.inputs, kernel.output)
    size = 4 if kernel.info.dtype == "float32" else 8
    card, axes = None, list[int]()
    if kernel.code is None:
        function, unit = loop_of(kernel), size
    else:
        from qddot.compiler.runtime.cuda.xla import card_words, launch_address

        card, axes = card_words(kernel), [len(shape) for shape in shapes]
        function, unit = launch_address(), 1
    strides = [unit * prod(shape[k + 1 :]) for shape in shapes for k in range(len(shape))]
    head = {
        layout.FUNCTION: function,
        layout.ENVIRONMENT: ctypes.addressof(library_functions()),
        layout.COUNT: len(shapes),
        layout.DTYPE: layout.DATA_TYPES[kernel.info.dtype],
        layout.ITEM_BYTES: size,
        layout.STRIDES: len(strides),
        layout.CARD: 0 if card is None else ctypes.addressof(card),
    }
    words = [*(head[k] for k in range(layout.NUMBERS)), *map(prod, shapes), *strides, *axes]
    return (ctypes.c_int64 * len(words))(*words), card
