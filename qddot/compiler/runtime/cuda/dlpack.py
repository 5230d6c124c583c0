"""DLPack capsules of device memory, made and read.

A capsule is made by NumPy of an array object that has the device's address, and its device is then written into it. So
its deleter is NumPy's: written in C, called without Python's lock, by any thread, with an exception under way and after
the interpreter has ended. A deleter in Python can do none of this.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from qddot.compiler.runtime.cuda.arrays import DeviceArray

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
_FLOAT = 2  # DLDataTypeCode
_READ_ONLY = 1  # a flag of versioned capsules
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_MAJOR = 1  # of versioned capsules that we know


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _VersionedTensor(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


class Content(NamedTuple):
    """What a capsule says; strides in numbers."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any  # NumPy's, or a text if it has none
    device: int
    readonly: bool


class _Host:
    """What NumPy takes for an array on the host. Nothing reads its memory."""

    def __init__(self, array: DeviceArray) -> None:
        self.keep = array
        size = array.dtype.itemsize
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.pointer, False),
            "strides": tuple(s * size for s in array.strides),
        }


def capsule(array: DeviceArray, max_version: tuple[int, int] | None) -> Any:
    """A capsule that keeps the array until its consumer drops it."""
    host: Any = np.asarray(_Host(array))
    made = None
    if max_version is not None and tuple(max_version) >= (_MAJOR, 0):
        try:
            made = host.__dlpack__(max_version=(_MAJOR, 0))
        except TypeError:  # NumPy before 2.1
            made = None
    made = host.__dlpack__() if made is None else made
    tensor, _ = _tensor(made)
    if tensor.data != array.pointer or tensor.device_type != CPU:
        raise BufferError("NumPy's DLPack capsules are not as expected")
    tensor.device_type, tensor.device_id = CUDA, array.device
    return made


def content(own: Any) -> Content:
    """What a capsule holds that nobody has taken: valid as long as the capsule is kept, which frees it."""
    tensor, readonly = _tensor(own)
    axes = tensor.ndim
    shape = tuple(tensor.shape[:axes]) if axes else ()
    if tensor.strides:
        strides = tuple(tensor.strides[:axes])
    else:
        from qddot.compiler.runtime.cuda.arrays import contiguous_strides

        strides = contiguous_strides(shape)
    known = {(_FLOAT, 32, 1): np.dtype(np.float32), (_FLOAT, 64, 1): np.dtype(np.float64)}
    kind = tensor.code, tensor.bits, tensor.lanes
    dtype = known.get(kind) or "DLPack's type ({}, {} bits, {} lanes)".format(*kind)
    pointer = (tensor.data or 0) + tensor.byte_offset
    return Content(pointer, shape, strides, dtype, tensor.device_id, readonly)


def _tensor(own: Any) -> tuple[_Tensor, bool]:
    """The structure in a capsule, and whether it is read-only."""
    valid, pointer = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
    valid.argtypes, valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], c_void_p
    if valid(own, _VERSIONED):
        whole = _VersionedTensor.from_address(pointer(own, _VERSIONED))
        if whole.major != _MAJOR:
            raise BufferError(f"DLPack {whole.major}.{whole.minor} is not known")
        return whole.tensor, bool(whole.flags & _READ_ONLY)
    if valid(own, _PLAIN):
        return _Tensor.from_address(pointer(own, _PLAIN)), False
    raise BufferError("this is no DLPack capsule")
