"""The threads of large batches: how many, and how work is split over them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from qddot.compiler.runtime.forks import guarded_lock
from qddot.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


def _affinity() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_threads = _affinity()
_executor: ThreadPoolExecutor | None = None
_executor_owner = (0, 0)
_executor_lock = guarded_lock()


def set_num_threads(count: int | None) -> None:
    """How many threads a large batch may use; None for as many as there are processors for this process."""
    global _threads
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise InputError(f"the number of threads is {count!r}; give a whole number of one or more, or None")
    _threads = _affinity() if count is None else count


def get_num_threads() -> int:
    """How many threads a large batch may use."""
    return _threads


class _Piece:
    """A part of a call that any thread may do, and one does. The lock belongs to whoever is at it.

    It is reentrant, so that the caller of it all, who may be interrupted anywhere, never waits for itself.
    """

    def __init__(self, part: Callable[[int, int], None], low: int, high: int) -> None:
        self._part, self._edges = part, (low, high)
        self._lock, self._over = threading.RLock(), False
        self._error: BaseException | None = None

    def offer(self) -> None:
        """Runs it on a thread of the pool, unless another thread does."""
        if self._lock.acquire(blocking=False):
            try:
                if not self._over:
                    self._over = True
                    self._part(*self._edges)
            except BaseException as error:  # the caller raises it
                self._error = error
            finally:
                self._lock.release()

    def finish(self) -> None:
        """Returns when it is done: waits for the thread that is at it, or does it here. Raises what went wrong."""
        with self._lock:
            if not self._over:
                self._over = True
                self._part(*self._edges)
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Returns when no thread runs it, nor will."""
        with self._lock:
            self._over = True


def split(length: int, most: int, multiple: int = 1) -> list[int]:
    """Edges of at most `most` parts of `length` items, one for each thread, in multiples of `multiple`."""
    blocks = -(-length // multiple)
    parts = max(1, min(_threads, blocks, most))
    return [*(multiple * (k * blocks // parts) for k in range(parts)), length]


def in_parallel(part: Callable[[int, int], None], edges: Sequence[int]) -> None:
    """Does part(low, high) between all neighbours in `edges`, each on a thread of its own if there are enough.

    When it returns, or raises what went wrong in one of them, nothing of it is running any more: arrays are the caller's.
    """
    pieces = [_Piece(part, low, high) for low, high in pairwise(edges[1:])]
    try:
        with suppress(RuntimeError):  # there can be no more threads, or the interpreter ends: then the caller does it all
            for piece in pieces:
                _pool().submit(piece.offer)
        part(edges[0], edges[1])
        for piece in pieces:
            piece.finish()
    except BaseException:
        for piece in pieces:
            piece.cancel()
        raise


def _pool() -> ThreadPoolExecutor:
    """One pool for all kernels of a process; a forked child makes its own."""
    global _executor, _executor_owner
    with _executor_lock:
        from concurrent.futures import ThreadPoolExecutor

        wanted = (os.getpid(), _threads)
        if _executor is None or _executor_owner != wanted:
            _executor, _executor_owner = ThreadPoolExecutor(max_workers=_threads), wanted
        return _executor
