"""Arrays in device memory that qddot owns: what kernels return to callers whose arrays belong to no framework.

They speak `__cuda_array_interface__` and DLPack, so that CuPy, PyTorch, JAX and Numba take them without a copy. All work on
them is in order with the default stream of their context.
"""

from __future__ import annotations

import ctypes
import sys
from math import prod
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime.cuda.context import DEFAULT_STREAM, Context, find
from qddot.compiler.runtime.cuda.dlpack import CPU, CUDA, capsule
from qddot.compiler.runtime.cuda.memory import Block
from qddot.errors import InputError

Shape = tuple[int, ...]
_LEGACY = 1  # the default stream, in the words of both protocols
_TYPES = ("float32", "float64")


class Lease:
    """Memory of arrays that share it: goes back to the pool when the last of them goes."""

    __slots__ = ("block", "context", "exported")

    def __init__(self, context: Context, block: Block) -> None:
        self.context, self.block = context, block
        self.exported = False  # others may use it on streams of theirs until they drop it

    def __del__(self, finalizing: Any = sys.is_finalizing) -> None:
        if not finalizing():
            if self.exported:
                self.context.pool.discard(self.block)
            else:
                self.context.pool.give(self.block, DEFAULT_STREAM)


def contiguous_strides(shape: Shape) -> Shape:
    """From one entry to the next along each axis, in numbers, of an array in C order."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(1, n)
    return tuple(reversed(strides))


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    """Whether an array with these strides, in numbers, is in C order without gaps."""
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n > 1 and stride != step:
            return False
        step *= n
    return True


def extent(shape: Shape, strides: Shape) -> tuple[int, int]:
    """The lowest and the highest number that an array reaches, from its pointer, plus one; (0, 0) if it is empty."""
    if 0 in shape:
        return 0, 0
    reaches = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
    return sum(min(0, x) for x in reaches), sum(max(0, x) for x in reaches) + 1


class DeviceArray:
    """An array in device memory. `copy_to_host()`, or `numpy.asarray`, brings it to the host."""

    __slots__ = ("__weakref__", "_lease", "context", "dtype", "pointer", "shape", "strides")

    def __init__(self, lease: Any, pointer: int, shape: Shape, strides: Shape, dtype: np.dtype[Any]) -> None:
        self._lease, self.pointer, self.context = lease, pointer, lease.context
        self.shape, self.strides, self.dtype = shape, strides, dtype  # strides in numbers

    # ---- shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The count of numbers."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Of the numbers."""
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> int:
        """The ordinal of the device that it lies on."""
        return self.context.device.ordinal

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __getitem__(self, index: int | slice | EllipsisType | tuple[Any, ...]) -> DeviceArray:
        """A view, by numbers and slices, and one ellipsis for the axes that are not named."""
        keys = index if isinstance(index, tuple) else (index,)
        if (at := next((k for k, key in enumerate(keys) if key is Ellipsis), None)) is not None:
            rest = keys[at + 1 :]
            keys = (*keys[:at], *(slice(None),) * (self.ndim - at - len(rest)), *rest)
        if len(keys) > self.ndim:
            raise IndexError(f"{len(keys)} indices for an array of {self.ndim} axes")
        start, shape, strides = 0, [], []
        for k, key in enumerate(keys):
            n, step = self.shape[k], self.strides[k]
            if isinstance(key, slice):
                first, last, stride = key.indices(n)
                count = len(range(first, last, stride))
                start += first * step if count else 0
                shape.append(count)
                strides.append(stride * step)
            elif isinstance(key, (int, np.integer)) and not isinstance(key, bool):
                if not -n <= key < n:
                    raise IndexError(f"index {key} is out of range: axis {k} has length {n}")
                start += (int(key) % n) * step
            else:
                raise InputError(
                    f"{key!r} is no index of an array on the device; give numbers and slices, or copy_to_host()"
                )
        shape, strides = [*shape, *self.shape[len(keys) :]], [*strides, *self.strides[len(keys) :]]
        pointer = self.pointer + start * self.dtype.itemsize
        return DeviceArray(self._lease, pointer, tuple(shape), tuple(strides), self.dtype)

    @property
    def T(self) -> DeviceArray:
        """A view with the axes in reverse: of an array in rows, one in columns."""
        return DeviceArray(self._lease, self.pointer, self.shape[::-1], self.strides[::-1], self.dtype)

    def reshape(self, *shape: Any) -> DeviceArray:
        """A view of another shape; one length may be -1."""
        wanted = [int(n) for n in (shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)]
        if not is_contiguous(self.shape, self.strides):
            raise InputError("this view is not contiguous: reshape the array that it is a view of, or copy_to_host()")
        if wanted.count(-1) == 1 and (rest := prod(n for n in wanted if n != -1)) and self.size % rest == 0:
            wanted[wanted.index(-1)] = self.size // rest
        if min(wanted, default=0) < 0 or prod(wanted) != self.size:
            raise InputError(f"an array of shape {self.shape} cannot be reshaped to {tuple(wanted)}")
        new = tuple(wanted)
        return DeviceArray(self._lease, self.pointer, new, contiguous_strides(new), self.dtype)

    # ---- to and from the host

    def copy_to_host(self) -> NDArray[Any]:
        """A NumPy array with the same numbers; waits for them."""
        low, high = extent(self.shape, self.strides)
        whole = np.empty(high - low, self.dtype)
        with self.context as context:
            if whole.size:
                address = self.pointer + low * self.dtype.itemsize
                context.driver.cuMemcpyDtoH_v2(whole.ctypes.data, address, whole.nbytes)
        if is_contiguous(self.shape, self.strides):
            return whole.reshape(self.shape)
        steps = tuple(s * self.dtype.itemsize for s in self.strides)
        view = np.ndarray(self.shape, self.dtype, whole, offset=-low * self.dtype.itemsize, strides=steps)
        return np.ascontiguousarray(view)

    def copy(self) -> DeviceArray:
        """A copy on the device, contiguous."""
        if not is_contiguous(self.shape, self.strides):
            return to_device(self.copy_to_host(), self.context)
        new = empty(self.shape, self.dtype, self.context)
        with self.context as context:
            if self.size:
                context.driver.cuMemcpyDtoDAsync_v2(new.pointer, self.pointer, self.nbytes, DEFAULT_STREAM)
        return new

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array on the device is copied to the host to be a NumPy array; copy=False cannot be")
        host = self.copy_to_host()
        return host if dtype is None else host.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype} on device {self.device}>"

    # ---- what others take without a copy

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._lease.exported = True
        size = self.dtype.itemsize
        steps = None if is_contiguous(self.shape, self.strides) else tuple(s * size for s in self.strides)
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer if self.size else 0, False),
            "strides": steps,
            "stream": _LEGACY,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule for a consumer, whose stream waits for what is under way."""
        if dl_device is not None and tuple(dl_device) != (CUDA, self.device):
            if tuple(dl_device) == (CPU, 0) and copy is not False:
                return self.copy_to_host().__dlpack__()
            raise BufferError(f"an array on device {self.device} cannot be exported to {dl_device}")
        if copy:
            return self.copy().__dlpack__(stream=stream, max_version=max_version)
        if stream is not None and stream not in (-1, DEFAULT_STREAM, _LEGACY):
            with self.context as context:
                context.order(DEFAULT_STREAM, int(stream))
        self._lease.exported = True
        return capsule(self, max_version)


def empty(shape: Any, dtype: Any = "float64", context: Context | None = None) -> DeviceArray:
    """An array on the device whose numbers are not set; no context: the current one."""
    shape = tuple(int(n) for n in (shape if hasattr(shape, "__iter__") else (shape,)))
    kind = np.dtype(dtype)
    if kind.name not in _TYPES or min(shape, default=0) < 0:
        raise InputError(f"an array of shape {shape} of {kind}: kernels know {', '.join(_TYPES)}, and lengths of 0 or more")
    context = find()[0] if context is None else context
    return allocated(shape, contiguous_strides(shape), kind, context, prod(shape) * kind.itemsize)


def allocated(shape: Shape, strides: Shape, dtype: np.dtype[Any], context: Context, size: int) -> DeviceArray:
    """The same, of a shape and a type that need no check, in so many bytes."""
    block = context.pool.take_last(size)
    if block is None:
        with context:
            block = context.pool.take(size, DEFAULT_STREAM)
    return DeviceArray(Lease(context, block), block.address, shape, strides, dtype)


def to_device(x: Any, context: Context | None = None) -> DeviceArray:
    """A copy on the device of an array on the host."""
    host = np.ascontiguousarray(x)
    new = empty(np.shape(x), host.dtype, context)
    with new.context as own:
        if new.size:
            own.driver.cuMemcpyHtoD_v2(new.pointer, ctypes.c_void_p(host.ctypes.data), host.nbytes)
    return new
