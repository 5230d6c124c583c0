"""Calls of XLA's foreign functions made by hand: frames with buffers, and an interface that remembers errors."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p

import numpy as np

from qddot.compiler.runtime import xla_layout as layout

POINTERS = {"struct_size": c_size_t, "extension_start": c_void_p}
FUNCTION = CFUNCTYPE(c_void_p, c_void_p)


def structure(name, *fields):
    """A structure of XLA's, with the head that all have."""
    return type(name, (Structure,), {"_fields_": [*POINTERS.items(), *fields]})


Buffer = structure("Buffer", ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64)))
List = structure("List", ("size", c_int64), ("types", c_void_p), ("items", POINTER(c_void_p)))
Attributes = structure(
    "Attributes", ("size", c_int64), ("types", c_void_p), ("names", c_void_p), ("attrs", POINTER(c_void_p))
)
Version = structure("Version", ("major", c_int), ("minor", c_int))
Frame = structure(
    "Frame",
    ("api", c_void_p),
    ("ctx", c_void_p),
    ("stage", c_int),
    ("args", List),
    ("rets", List),
    ("attrs", Attributes),
    ("future", c_void_p),
)
Error = structure("Error", ("message", c_char_p), ("errc", c_int))
Stream = structure("Stream", ("ctx", c_void_p), ("stream", c_void_p))
Ordinal = structure("Ordinal", ("ctx", c_void_p), ("ordinal", c_int))


class Scalar(Structure):
    _fields_ = (("dtype", c_int), ("value", c_void_p))


class Metadata(Structure):
    _fields_ = (("struct_size", c_size_t), ("version", Version), ("traits", c_uint32), ("type_id", c_int64))


class Extended(Structure):
    _fields_ = (("struct_size", c_size_t), ("type", c_int), ("next", c_void_p), ("metadata", c_void_p))


class Interface:
    """XLA's functions: what a handler asks and reports."""

    def __init__(self, stream=0, ordinal=0, words=24):
        self.errors, self.stream, self.ordinal = [], stream, ordinal
        self._keep = [FUNCTION(f) for f in (self._error, self._stream, self._ordinal)]
        self.table = (c_void_p * 24)()
        self.table[0] = 8 * words
        places = ("XLA_FFI_Error_Create", "XLA_FFI_Stream_Get", "XLA_FFI_DeviceOrdinal_Get")
        for name, function in zip(places, self._keep, strict=True):
            self.table[layout.API[name] // 8] = ctypes.cast(function, c_void_p).value

    def _error(self, at):
        found = Error.from_address(at)
        assert found.struct_size == layout.SIZES["ERROR_CREATE"]
        self.errors.append((found.errc, found.message.decode()))
        return 0xBAD

    def _stream(self, at):
        Stream.from_address(at).stream = self.stream
        return None

    def _ordinal(self, at):
        Ordinal.from_address(at).ordinal = self.ordinal
        return None


def call(handler, key, arrays, results, interface, change=None):
    """What a handler returns for these arrays; `change` spoils the frame before."""
    keep = []

    def buffers(found):
        made = []
        for x in found:
            rank, at = len(x.shape), x.ctypes.data if isinstance(x, np.ndarray) else x.pointer
            dims = (c_int64 * rank)(*x.shape)
            kind = layout.DATA_TYPES.get(x.dtype.name, 1)
            made.append(Buffer(48, None, kind, at, rank, dims))
            keep.append((dims, x))
        keep.append(made)
        items = (c_void_p * len(made))(*map(ctypes.addressof, made))
        return List(40, None, len(made), None, items)

    value = np.array([key], np.int64)
    scalar = Scalar(5, value.ctypes.data)
    attrs = Attributes(48, None, 1, None, None, (c_void_p * 1)(ctypes.addressof(scalar)))
    frame = Frame(*(176, None, ctypes.addressof(interface.table), None, 3), buffers(arrays), buffers(results), attrs, None)
    if change is not None:
        change(frame)
    return FUNCTION(handler)(ctypes.addressof(frame))


def asked(handler):
    """What a handler says of itself."""
    metadata = Metadata(struct_size=48)
    extension = Extended(32, layout.METADATA_EXTENSION, None, ctypes.addressof(metadata))
    frame = Frame(struct_size=176, extension_start=ctypes.addressof(extension))
    assert FUNCTION(handler)(ctypes.addressof(frame)) is None
    return metadata
