"""The Python function of a kernel's `@call`, for one state: METH_FASTCALL, without NumPy's dispatch.

It is made only where a probe finds NumPy's array structure as expected (CPython with its lock, 64 bits). The environment
variable QDDOT_FASTCALL=0 turns it off.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from qddot.compiler.runtime.array_layout import (
    AXES,
    BYTES,
    DATA,
    DESCR,
    DIMENSIONS,
    FLAGS,
    TUPLE_ITEMS,
    TUPLE_LENGTH,
    USABLE,
)
from qddot.compiler.runtime.llvm_compile import Code, library_functions
from qddot.errors import InputError

_NEW = 93  # PyArray_New in NumPy's table of C functions
_FASTCALL = 0x80 | 0x2  # METH_FASTCALL, METH_KEYWORDS
_OUT = sys.intern("out")  # the object that calls with this keyword have in their names


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class _Self(bytes):
    """What `@call` gets as its `self`, and keeps alive as long as the function lives."""

    keep: Any


def one_state(code: Code, name: str, dtype: str, general: Callable[..., Any] | None = None) -> Callable[..., Any] | None:
    """The Python function of a kernel's `@call`, if it has one; `general` gets the calls that are not for it."""
    if code.call is None or not _is_wanted() or (environment := _environment(dtype)) is None:
        return None
    definition = _MethodDef(name.encode(), code.call, _FASTCALL, b"A compiled kernel of qddot.")
    own = _Self(environment + struct.pack("Q", 0 if general is None else id(general)))
    own.keep = code, definition, general
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    function: Callable[..., Any] = make(ctypes.addressof(definition), own, None)
    return function


def _is_wanted() -> bool:
    """Whether the environment variable QDDOT_FASTCALL leaves it on."""
    value = os.environ.get("QDDOT_FASTCALL", "") or "1"
    if value not in ("0", "1"):
        raise InputError(f"QDDOT_FASTCALL={value!r} is not known; take 0 or 1")
    return value == "1"


@functools.cache
def _environment(dtype: str) -> bytes | None:
    """What `@call` is given: the array type, the number type, PyArray_New, None, Py_IncRef, Py_DecRef, the library,
    PyObject_Vectorcall, the word "out"; the function that gets the other calls comes after it.
    """
    if not _as_expected():
        return None
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(get(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    take, drop, hand = (
        ctypes.cast(getattr(ctypes.pythonapi, f), ctypes.c_void_p).value
        for f in ("Py_IncRef", "Py_DecRef", "PyObject_Vectorcall")
    )
    library = ctypes.addressof(library_functions())
    own = id(np.ndarray), id(np.dtype(dtype)), table[_NEW], id(None)
    return struct.pack("9Q", *own, take, drop, library, hand, id(_OUT))


def _as_expected() -> bool:
    """Whether arrays and bytes lie in memory as `@call` reads them."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8 or not locked:
        return False
    probe = np.zeros((3, 5))

    def read(kind: Any, offset: int) -> Any:
        return kind.from_address(id(probe) + offset).value

    word, half = ctypes.c_size_t, ctypes.c_int
    return (
        ctypes.c_size_t.from_address(id(names := (_OUT,)) + TUPLE_LENGTH).value == 1
        and ctypes.c_size_t.from_address(id(names) + TUPLE_ITEMS).value == id(_OUT)
        and ctypes.string_at(id(text := _Self(b"qddot")) + BYTES, len(text)) == text
        and read(word, 8) == id(np.ndarray)
        and read(word, DATA) == probe.ctypes.data
        and read(half, AXES) == 2
        and list((word * 2).from_address(read(word, DIMENSIONS))) == [3, 5]
        and read(word, DESCR) == id(np.dtype(float))
        and read(half, FLAGS) & USABLE == USABLE
        and read(half, FLAGS) == probe.flags.num
    )
