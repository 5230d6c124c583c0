"""Memory of large results that are gone, for the next ones: fresh memory costs a page fault for every page.

A result that a kernel makes itself and that is large lies in a block of this pool. When the last view of it goes, the block
is kept for the next result of about that size. At most `QDDOT_RESULT_POOL_MB` megabytes are kept (512 unless said; 0 turns
the pool off); what is in use does not count.
"""

from __future__ import annotations

import os
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime.forks import guarded_lock
from qddot.errors import InputError

MIN_BYTES = 1 << 24  # smaller results come from the heap, which keeps memory itself
_MAX_KEPT_BYTES = 512 << 20
_MAX_WASTE = 1.25  # a block may be larger than its result by this factor

_free: list[NDArray[np.uint8]] = []  # the block that was freed last is the last
_lock = guarded_lock()  # reentrant: the garbage collector may free a result while another one is taken


class _Lease:
    """The base of an array: gives its block back when nothing refers to the array any more."""

    def __init__(self, block: NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.block = block
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (block.__array_interface__["data"][0], False),
        }

    def __del__(self) -> None:
        _give_back(self.block)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """As `numpy.empty`, perhaps in the memory of an array that is gone."""
    size = prod(shape) * dtype.itemsize
    if size < MIN_BYTES or _most() == 0:
        return np.empty(shape, dtype)
    return np.asarray(_Lease(_block(size), shape, dtype))


def _block(size: int) -> NDArray[np.uint8]:
    with _lock:
        for k in range(len(_free) - 1, -1, -1):
            if size <= _free[k].nbytes <= _MAX_WASTE * size:
                return _free.pop(k)
    return np.empty(size, np.uint8)


def _give_back(block: NDArray[np.uint8], lock: Any = _lock, free: list[Any] = _free) -> None:  # at exit globals are gone
    with lock:
        free.append(block)
        kept, most = sum(x.nbytes for x in free), _most()
        while kept > most:
            kept -= free.pop(0).nbytes


def _most() -> int:
    text = os.environ.get("QDDOT_RESULT_POOL_MB")
    if text is None:
        return _MAX_KEPT_BYTES
    if not text.isdecimal():
        raise InputError(f"QDDOT_RESULT_POOL_MB={text!r} is not known; give a whole number of megabytes, or 0")
    return int(text) << 20
