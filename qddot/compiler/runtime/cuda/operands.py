"""Arrays of a loop over time on a card: where their rows lie, and copies of rows from one place to another."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, NamedTuple

import numpy as np

from qddot.compiler.runtime.cuda.arrays import DeviceArray, is_contiguous
from qddot.compiler.runtime.cuda.context import DEFAULT_STREAM, Context
from qddot.compiler.runtime.cuda.frameworks import View, view
from qddot.compiler.runtime.cuda.layout import batch, broadcast
from qddot.errors import InputError

Shape = tuple[int, ...]
_ON_DEVICE = 2  # CUmemorytype


class Rows(NamedTuple):
    """Rows of numbers on the device: the address of the first, and the strides of all axes but the last, in numbers."""

    address: int
    strides: tuple[int, ...]

    def later(self, steps: int, size: int) -> Rows:
        """The same from a later step on, whose axis is the second; numbers have `size` bytes."""
        return Rows(self.address + steps * self.strides[1] * size, self.strides)


def on_device(x: Any, what: str) -> View | None:
    """Where an array lies, if it is on the device; `what` names it in errors."""
    try:
        return view(x)
    except InputError as error:
        raise InputError(f"{what} {error}") from None
    except (TypeError, ValueError, RuntimeError, AttributeError, BufferError) as error:
        raise InputError(f"{what} of type {type(x).__name__} cannot be read: {error}") from None


def check(v: View, what: str, dtype: str, context: Context) -> None:
    """An array must hold numbers of the type that is computed in, on the device of this context."""
    if not (isinstance(v.dtype, np.dtype) and v.dtype == np.dtype(dtype)):
        raise InputError(
            f"{what} holds {v.dtype}, and this simulation computes in {dtype}; arrays on the device are not cast: give "
            f"{v.framework.cast(what, dtype)}, or another dtype="
        )
    if v.device != context.device.ordinal:
        raise InputError(f"{what} lies on device {v.device}, and the simulation runs on device {context.device.ordinal}")
    if v.pointer % v.dtype.itemsize:
        raise InputError(f"{what} is not aligned to its numbers of {v.dtype.itemsize} bytes; copy it first")


def follow(v: View, context: Context, stream: int) -> None:
    """What is put on a stream from now on finds the numbers of an array there; the context is current."""
    own = v.framework.stream(v.device) if v.stream is None else v.stream
    if own != stream:
        context.order(own, stream)


def rows_of(v: View, what: str, axes: int, samples: Shape, apart: int = 0) -> Rows:
    """The rows of an array for all samples of a batch, where they are. Of the last `axes`, which are a sample's own, the
    first `apart` may have any stride.
    """
    cut = len(v.shape) - axes
    if not is_contiguous(v.shape[cut + apart :], v.strides[cut + apart :]):
        raise InputError(f"{what}: the numbers of a row are not contiguous in memory; copy it first")
    inner = v.strides[cut : cut + apart]
    if 0 in samples:
        return Rows(v.pointer, (0, *inner))
    covered = batch(samples, [broadcast(samples, v.shape[:cut], v.strides[:cut])])
    if covered.outer:
        raise InputError(
            f"{what} has batch axes {v.shape[:cut]} where the samples have {samples}, and its rows are not at one distance "
            f"from each other; give an array with all of these axes, contiguous"
        )
    return Rows(v.pointer, (covered.steps[0], *inner))


class _Borrowed:
    """Memory that others hold, where arrays of qddot have a lease."""

    def __init__(self, context: Context, keep: Any) -> None:
        self.context, self.keep, self.exported = context, keep, True


def to_host(v: View, context: Context) -> Any:
    """A NumPy array with the numbers of an array on the device; the context is current."""
    follow(v, context, DEFAULT_STREAM)
    return DeviceArray(_Borrowed(context, v.keep), v.pointer, v.shape, v.strides, v.dtype).copy_to_host()


class _Copy(ctypes.Structure):
    """CUDA_MEMCPY2D; x, pitch and width in bytes."""

    _fields_ = [
        *(("source_x", c_size_t), ("source_y", c_size_t), ("source_type", c_uint), ("source_host", c_void_p)),
        *(("source", c_uint64), ("source_array", c_void_p), ("source_pitch", c_size_t)),
        *(("target_x", c_size_t), ("target_y", c_size_t), ("target_type", c_uint), ("target_host", c_void_p)),
        *(("target", c_uint64), ("target_array", c_void_p), ("target_pitch", c_size_t)),
        *(("width", c_size_t), ("height", c_size_t)),
    ]


def copy_rows(context: Context, stream: int, source: Rows, target: Rows, width: int, rows: int, size: int) -> None:
    """Copies rows of so many numbers of `size` bytes within the device; the context is current."""
    if not width or not rows:
        return
    own = _Copy(source_type=_ON_DEVICE, target_type=_ON_DEVICE, width=size * width, height=rows)
    own.source, own.source_pitch = source.address, size * source.strides[0]
    own.target, own.target_pitch = target.address, size * target.strides[0]
    if rows == 1:  # one row has no next one
        own.source_pitch = own.target_pitch = own.width
    context.driver.cuMemcpy2DAsync_v2(byref(own), stream)
