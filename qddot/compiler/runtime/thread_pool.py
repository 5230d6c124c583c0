"""Large batches on several threads: the threads of `abi.thread_pool`, which need no Python and no GIL.

There is one pool for all kernels of a process, used by one call at a time; whoever finds it busy uses threads of Python.
Its threads are made at the first large batch, sleep when there is nothing to do, and end with the process. A forked child
makes its own.
Where the system has no POSIX threads, `available` says so, and batches are split over threads of Python.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import signal
from collections.abc import Sequence
from typing import Any

from qddot.compiler.runtime import pool_layout as layout
from qddot.compiler.runtime import stored
from qddot.compiler.runtime.forks import guarded_lock
from qddot.compiler.runtime.llvm_compile import ENVIRONMENT_WORDS, Code, compile_object, library_functions
from qddot.compiler.targets.host import host

_SYSTEM = {
    layout.LOCK: "pthread_mutex_lock",
    layout.UNLOCK: "pthread_mutex_unlock",
    layout.WAIT: "pthread_cond_wait",
    layout.WAKE: "pthread_cond_broadcast",
    layout.YIELD: "sched_yield",
}
_CHUNKS_PER_THREAD = 8  # a thread that begins late, or is interrupted, leaves the others more to do
_MIN_CHUNK_BLOCKS = 4
_PYTHON, _STREAMING, _NO_MEMORY = 5, 9, 10  # words of an environment

_lock = guarded_lock()
_pool: _Pool | None = None
_owner = 0
_all: list[_Pool] = []  # of two callers that are the first at the same time, each makes one


class _Pool:
    """Memory that all threads of the pool know, and their code. It is never freed: threads are asleep in it."""

    def __init__(self) -> None:
        self.code = _code()
        memory = ctypes.create_string_buffer(8 * layout.POOL_WORDS + 64)
        self.memory, self.address = memory, -(-ctypes.addressof(memory) // 64) * 64
        system = ctypes.CDLL(None)
        words = (ctypes.c_void_p * layout.POOL_WORDS).from_address(self.address)
        for word, name in _SYSTEM.items():
            words[word] = ctypes.cast(getattr(system, name), ctypes.c_void_p).value
        system.pthread_mutex_init(ctypes.c_void_p(self.address + 8 * layout.MUTEX), None)
        system.pthread_cond_init(ctypes.c_void_p(self.address + 8 * layout.CONDITION), None)
        self._limit = ctypes.c_int64.from_address(self.address + 8 * layout.LIMIT)
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(self.code.address or 0)
        self._system, self._workers = system, 0
        self.environment = (ctypes.c_void_p * ENVIRONMENT_WORDS)()
        _all.append(self)

    def run(self, job: Any, threads: int) -> None:
        """All chunks of a job, on so many threads at most."""
        while self._workers < threads - 1 and self._start():
            self._workers += 1
        self._limit.value = threads - 1
        self._run(self.address, ctypes.addressof(job))

    def _start(self) -> bool:
        """Whether there is one more thread. Signals are for threads of Python."""
        thread = ctypes.c_void_p()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            start, pool = ctypes.c_void_p(self.code.call), ctypes.c_void_p(self.address)
            failed = self._system.pthread_create(ctypes.byref(thread), None, start, pool)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if not failed:
            self._system.pthread_detach(thread)
        return not failed


def _code() -> Code:
    """The code of the pool, from the cache if it is there."""
    from qddot.compiler.codegen.abi.thread_pool import render

    target = host()
    text = render(target)
    key = hashlib.sha256(repr(("threads", target.identity, text)).encode()).hexdigest()
    found = stored.find(key, {})
    return (found or stored.store(key, {}, compile_object(text, target, "threads"), {})).code


@functools.cache
def available() -> bool:
    """Whether this system has what the threads need."""
    return os.name == "posix" and all(hasattr(ctypes.CDLL(None), name) for name in (*_SYSTEM.values(), "pthread_create"))


def run(function: int, states: int, lanes: int, operands: Sequence[Any], threads: int) -> bool:
    """Calls a kernel's loop for all states, parts of them on other threads; False if the pool is busy.

    An operand is an address, the bytes from state to state, and the strides of its own axes; the last one is the result.
    Raises MemoryError.
    """
    pool, common = _made(), library_functions()  # before the lock, which a fork waits for while it holds all others
    if not _lock.acquire(blocking=False):
        return False
    try:
        _prepare(pool.environment, common, states * operands[-1][1])
        pool.run(_job(function, states, lanes, operands, threads, pool.environment), threads)
        if pool.environment[_NO_MEMORY]:
            raise MemoryError
    finally:
        _lock.release()
    return True


def _made() -> _Pool:
    global _pool, _owner
    if _pool is None or _owner != os.getpid():
        _pool, _owner = _Pool(), os.getpid()
    return _pool


def _prepare(environment: Any, common: Any, result_bytes: int) -> None:
    """That of kernels, for a job: its chunks do not see how long the whole result is, and have no state of Python."""
    ctypes.memmove(environment, common, ctypes.sizeof(common))
    environment[_PYTHON] = None
    environment[_STREAMING] = 0 if result_bytes > (common[_STREAMING] or 0) else 1 << 62
    environment[_NO_MEMORY] = 0


def _job(function: int, states: int, lanes: int, operands: Sequence[Any], threads: int, environment: Any) -> Any:
    block = max(lanes, 8)  # rows of eight states begin at the same place in a cache line
    blocks = -(-states // block)
    chunk = block * min(max(_MIN_CHUNK_BLOCKS, -(-blocks // (_CHUNKS_PER_THREAD * threads))), blocks)
    chunk = max(chunk, block * -(-blocks // layout.MAX_CHUNKS))
    bases = [base for base, _, _ in operands]
    steps = [step for _, step, _ in operands]
    inner = [stride for _, _, strides in operands for stride in strides]
    head = [function, states, chunk, -(-states // chunk), len(operands), ctypes.addressof(environment)]
    words = [*head, *bases, *steps, *inner]
    return (ctypes.c_int64 * len(words))(*words)
