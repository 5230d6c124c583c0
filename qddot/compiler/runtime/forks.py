"""fork() while other threads compile: the child finds every lock of qddot free, and LLVM between two compilations.

A forked child has one thread. A lock that another thread held stays locked in it for ever, and what that thread was doing,
inside LLVM too, stays half done. So a fork waits until no thread is compiling (half a minute for the largest kernels),
takes all locks, and gives them back in the parent and in the child. Subprocesses and spawned processes do not wait.
"""

from __future__ import annotations

import _frozen_importlib
import _imp
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

# Packages of which parts are imported when they are first used. Others are not waited for: a module may run for ever.
_IMPORTED_LATE = {"qddot", "llvmlite", "numpy", "scipy", "mujoco", *sys.stdlib_module_names}

_guarded: list[Any] = []
_held: list[Callable[[], Any]] = []  # what gives back the locks that the fork has; used by the thread that has them all


def guarded_lock() -> Any:
    """A lock that no forked child finds locked. Reentrant: whoever holds it may fork, in a signal handler for example."""
    lock = threading.RLock()
    guard(lock)
    return lock


def guard(lock: Any) -> None:
    """Forks wait for a reentrant lock that another room has."""
    _guarded.append(lock)


def _before() -> None:
    for lock in _guarded:
        _hold(lock)
    seen: set[str] = set()
    while True:
        ffi = sys.modules.get("llvmlite.binding.ffi")
        lock = getattr(getattr(ffi, "lib", None), "_lock", None)
        if lock is not None:  # others use LLVM too, Numba for example; and objects of LLVM are freed by any thread
            _hold(lock)
        _imp.acquire_lock()  # no import begins between this look and the fork
        names = _imports_under_way() - seen
        if not names:
            _held.append(_imp.release_lock)
            break
        _imp.release_lock()
        if lock is not None:  # a module that is being imported may need it
            _held.pop()()
        for name in names:
            with suppress(ImportError, RuntimeError):
                importlib.import_module(name)  # waits for the thread that does so
        seen |= names


def _hold(lock: Any) -> None:
    lock.__enter__()
    _held.append(lambda: lock.__exit__(None, None, None))


def _imports_under_way() -> set[str]:
    """Modules that a thread is importing: in the child, importing them would wait for that thread for ever."""
    locked = list(getattr(_frozen_importlib, "_module_locks", ()))
    return {name for name in locked if name.split(".", 1)[0] in _IMPORTED_LATE}


def _after() -> None:
    while _held:
        _held.pop()()


def _after_in_child() -> None:
    _after()
    if sys.version_info < (3, 12):  # cached properties have a lock there, for all objects of a class
        for name, module in list(sys.modules.items()):
            if name.split(".", 1)[0] == "qddot":
                _unlock_cached_properties(module)


def _unlock_cached_properties(module: Any) -> None:
    for found in list(vars(module).values()):
        if isinstance(found, type) and found.__module__ == module.__name__:
            for attribute in vars(found).values():
                if isinstance(attribute, functools.cached_property):
                    attribute.lock = threading.RLock()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
