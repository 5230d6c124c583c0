"""Other packages' arrays: what lies where, on which stream, and results of the caller's own kind. None is imported here.

A type of array is looked at once; from then on its reader is found by the type. Arrays on the host have no view.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from qddot.compiler.runtime import array_kinds
from qddot.compiler.runtime.cuda import dlpack
from qddot.compiler.runtime.cuda.arrays import DeviceArray, allocated, contiguous_strides
from qddot.compiler.runtime.cuda.context import DEFAULT_STREAM, Context, find
from qddot.errors import InputError

Shape = tuple[int, ...]
Facts = tuple[list[int], tuple[Any, ...]]  # addresses of arrays, and all else that a launch depends on
Maker = Callable[[Sequence[Any]], tuple[Any, int]]  # a new array for the result of these arguments, and its address
_DEVICE_ORDINAL = 9  # CUpointer_attribute
_LEGACY = 1  # the default stream in both protocols


class View(NamedTuple):
    """Where an array lies."""

    pointer: int
    shape: Shape
    strides: Shape  # in numbers
    dtype: Any  # NumPy's float32 or float64; something else for what kernels do not take
    device: int
    stream: int | None  # its numbers are there after what is on this stream; None: the framework's current one
    readonly: bool
    framework: Framework
    keep: Any  # holds the memory
    borrowed: bool = False  # the memory may be used again as soon as `keep` goes


class Framework:
    """A package with arrays on devices: qddot itself, and what gets its arrays."""

    name = "qddot"
    has_facts = True  # whether `facts` can be asked

    def stream(self, device: int) -> int:
        """The stream that work on a device is put on."""
        return DEFAULT_STREAM

    def streams(self, device: int) -> Callable[[], int]:
        """What gives that stream, as cheaply as can be."""
        return partial(self.stream, device)

    def empty(self, shape: Shape, dtype: np.dtype[Any], context: Context) -> tuple[Any, int]:
        """A new contiguous array and its address."""
        array = allocated(shape, contiguous_strides(shape), dtype, context, prod(shape) * dtype.itemsize)
        return array, array.pointer

    def facts(self, arrays: Sequence[Any]) -> Facts:
        """Of arrays of this framework, as cheaply as can be. Where facts are equal, so are shapes, strides, types and
        places. Arrays that it cannot read make it fail.
        """
        pointers, key = [], list[Any]()
        for x in arrays:
            pointers.append(x.pointer)
            key += type(x), x.shape, x.strides, x.dtype, x.context
        return pointers, tuple(key)

    def maker(self, shape: Shape, dtype: np.dtype[Any], context: Context, arguments: Sequence[Any]) -> Maker:
        """What gives results of a shape, for arguments with the facts of these, wherever the thread's context is."""
        strides, size = contiguous_strides(shape), prod(shape) * dtype.itemsize

        def make(arguments: Sequence[Any]) -> tuple[Any, int]:
            array = allocated(shape, strides, dtype, context, size)
            return array, array.pointer

        return make

    def finish(self, array: Any, context: Context, stream: int) -> Any:
        """What the caller gets: the array of `empty`, when the work that fills it is on its stream."""
        return array

    def cast(self, name: str, dtype: str) -> str:
        """How an argument of this name is cast, as a line of Python."""
        return f"{name}.astype('{dtype}')"


class _Torch(Framework):
    name = "torch"

    def __init__(self) -> None:
        self._types: dict[Any, np.dtype[Any]] = {}  # NumPy's of torch's
        self._made: dict[Any, tuple[Any, Any]] = {}  # torch's type and device of results

    def stream(self, device: int) -> int:
        return int(sys.modules["torch"].cuda.current_stream(device).cuda_stream)

    def streams(self, device: int) -> Callable[[], int]:
        # What PyTorch's own compiler calls takes a tenth of the time.
        raw = getattr(getattr(sys.modules["torch"], "_C", None), "_cuda_getCurrentRawStream", None)
        return partial(raw, device) if raw is not None else partial(self.stream, device)

    def empty(self, shape: Shape, dtype: np.dtype[Any], context: Context) -> tuple[Any, int]:
        torch: Any = sys.modules["torch"]
        place = dtype, context.device.ordinal
        if place not in self._made:
            self._made[place] = getattr(torch, dtype.name), torch.device("cuda", context.device.ordinal)
        kind, device = self._made[place]
        array = torch.empty(shape, dtype=kind, device=device)
        return array, array.data_ptr()

    def facts(self, arrays: Sequence[Any]) -> Facts:
        pointers, key = [], list[Any]()
        for x in arrays:
            pointers.append(x.data_ptr())
            key += type(x), x.shape, x.stride(), x.dtype, x.device
            if x.is_neg() or x.requires_grad:  # `view` resolves numbers that are those in memory, negated
                raise ValueError
        return pointers, tuple(key)

    def maker(self, shape: Shape, dtype: np.dtype[Any], context: Context, arguments: Sequence[Any]) -> Maker:
        torch: Any = sys.modules["torch"]
        for k, x in enumerate(arguments):
            if type(x) is torch.Tensor and tuple(x.shape) == shape and x.is_contiguous():
                # Half the time of torch.empty.
                def make_like(arguments: Sequence[Any], k: int = k, like: Any = torch.empty_like) -> tuple[Any, int]:
                    array = like(arguments[k])
                    return array, array.data_ptr()

                return make_like
        empty, kind, device = torch.empty, getattr(torch, dtype.name), torch.device("cuda", context.device.ordinal)

        def make(arguments: Sequence[Any]) -> tuple[Any, int]:
            array = empty(shape, dtype=kind, device=device)
            return array, array.data_ptr()

        return make

    def cast(self, name: str, dtype: str) -> str:
        return f"{name}.to(torch.{dtype})"

    def view(self, x: Any) -> View | None:
        if not x.is_cuda:
            return None
        if array_kinds.TORCH.keeps_gradients(x):
            raise InputError("keeps gradients, and kernels have none: use robot.torch(), or give it detached, .detach()")
        if x.is_neg():
            x = x.resolve_neg()
        dtype = self._types.get(x.dtype)
        if dtype is None:
            torch: Any = sys.modules["torch"]
            self._types |= {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}
            dtype = self._types.get(x.dtype, x.dtype)
        return View(x.data_ptr(), tuple(x.shape), x.stride(), dtype, x.get_device(), None, False, self, x)


class _Cupy(Framework):
    name = "cupy"

    def __init__(self) -> None:
        self._takes_device = True

    def stream(self, device: int) -> int:
        cupy: Any = sys.modules["cupy"]
        if self._takes_device:
            try:
                return int(cupy.cuda.get_current_stream(device).ptr)
            except TypeError:  # CuPy before 12
                self._takes_device = False
        with cupy.cuda.Device(device):
            return int(cupy.cuda.get_current_stream().ptr)

    def streams(self, device: int) -> Callable[[], int]:
        if not self._takes_device:
            return partial(self.stream, device)
        current = sys.modules["cupy"].cuda.get_current_stream
        return lambda: int(current(device).ptr)

    def empty(self, shape: Shape, dtype: np.dtype[Any], context: Context) -> tuple[Any, int]:
        cupy: Any = sys.modules["cupy"]
        with cupy.cuda.Device(context.device.ordinal):
            array = cupy.ndarray(shape, dtype)
        return array, array.data.ptr

    def facts(self, arrays: Sequence[Any]) -> Facts:
        pointers, key = [], list[Any]()
        for x in arrays:
            data = x.data
            pointers.append(data.ptr)
            key += type(x), x.shape, x.strides, x.dtype, data.device_id
        return pointers, tuple(key)

    def maker(self, shape: Shape, dtype: np.dtype[Any], context: Context, arguments: Sequence[Any]) -> Maker:
        cupy: Any = sys.modules["cupy"]
        ndarray, current, ordinal = cupy.ndarray, cupy.cuda.runtime.getDevice, context.device.ordinal

        def make(arguments: Sequence[Any]) -> tuple[Any, int]:
            if current() != ordinal:
                return self.empty(shape, dtype, context)
            array = ndarray(shape, dtype)
            return array, array.data.ptr

        return make

    def view(self, x: Any) -> View | None:
        data, size = x.data, x.dtype.itemsize
        strides = tuple([s // size for s in x.strides])
        return View(data.ptr, x.shape, strides, x.dtype, data.device_id, None, False, self, x)


class _Jax(Framework):
    name = "jax"
    has_facts = False

    def finish(self, array: Any, context: Context, stream: int) -> Any:
        # The work is done: JAX's own arrays are borrowed, and given back after the stream has been waited for.
        return sys.modules["jax"].dlpack.from_dlpack(array)

    def view(self, x: Any) -> View | None:
        jax: Any = sys.modules["jax"]
        if isinstance(x, jax.core.Tracer):
            raise InputError(
                "is being traced by JAX; kernels are called outside jit, vmap and grad: robot.jax() has functions for those"
            )
        x.block_until_ready()
        found = _of_dlpack(x, self)
        return found and found._replace(readonly=True)  # JAX takes its arrays for constant


OWN, TORCH, CUPY, JAX = Framework(), _Torch(), _Cupy(), _Jax()


def _of_own(x: DeviceArray) -> View | None:
    return View(x.pointer, x.shape, x.strides, x.dtype, x.device, DEFAULT_STREAM, False, OWN, x)


def _of_host(x: Any) -> View | None:
    return None


def _of_any(x: Any) -> View | None:
    """An object of a type that we do not know: whether it lies on the device is not a matter of its type."""
    facts = getattr(x, "__cuda_array_interface__", None)
    if facts is not None:
        return _of_interface(x, facts)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _of_dlpack(x)
    return None


def _of_interface(x: Any, facts: dict[str, Any]) -> View | None:
    """An object whose `__cuda_array_interface__` says this."""
    if facts.get("mask") is not None:
        raise InputError("has a mask; fill the masked entries in first")
    shape = tuple(int(n) for n in facts["shape"])
    dtype = np.dtype(facts["typestr"])
    steps, size = facts.get("strides"), dtype.itemsize
    if steps is None:
        strides = contiguous_strides(shape)
    elif any(s % size for s, n in zip(steps, shape, strict=True) if n > 1):
        raise InputError(f"has strides of {tuple(steps)} bytes, no multiples of {size}; copy it first")
    else:
        strides = tuple(s // size for s in steps)
    pointer, readonly = facts["data"]
    stream = facts.get("stream")
    if stream == 0:
        raise InputError("names stream 0 in __cuda_array_interface__, which is ambiguous there")
    empty = 0 in shape
    device = 0 if empty else _device_of(int(pointer))
    waits_for = DEFAULT_STREAM if stream in (None, _LEGACY) else int(stream)
    return View(0 if empty else int(pointer), shape, strides, dtype, device, waits_for, bool(readonly), OWN, x)


def _device_of(pointer: int) -> int:
    context, is_current = find()
    with nullcontext() if is_current else context:
        return context.driver.number(context.driver.cuPointerGetAttribute, _DEVICE_ORDINAL, pointer)


def _of_dlpack(x: Any, framework: Framework = OWN) -> View | None:
    """An object with `__dlpack__`, whose memory is held by a capsule that is not taken."""
    kind, _ = x.__dlpack_device__()
    if int(kind) in (dlpack.CPU, dlpack.CUDA_HOST):
        return None
    if int(kind) not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        raise InputError(f"lies on a device that is no NVIDIA card (DLPack's kind {int(kind)})")
    capsule = x.__dlpack__(stream=_LEGACY)
    c = dlpack.content(capsule)
    keep = capsule, x
    return View(c.pointer, c.shape, c.strides, c.dtype, c.device, DEFAULT_STREAM, c.readonly, framework, keep, True)


_Reader = Callable[[Any], View | None]
_readers: dict[type, _Reader] = {np.ndarray: _of_host, DeviceArray: _of_own}
_readers |= dict.fromkeys((list, tuple, float, int), _of_host)
_facts: dict[type, Callable[[Sequence[Any]], Facts]] = {DeviceArray: OWN.facts}  # of those types that have them
_MOST_READERS = 256  # types; a program that makes types all the time does not fill the memory


def view(x: Any) -> View | None:
    """Where an array lies, without a copy; None: on the host, as far as we can tell."""
    reader = _readers.get(type(x))
    return reader(x) if reader is not None else _found(x)(x)


def _found(x: Any) -> _Reader:
    """What reads arrays of this type, the first of which this is."""
    if len(_readers) >= _MOST_READERS:
        for old in list(_readers)[len(_readers) // 2 :]:
            _readers.pop(old, None)
            _facts.pop(old, None)
    return _readers.setdefault(type(x), _reader(x))


def facts_of(kind: type) -> Callable[[Sequence[Any]], Facts] | None:
    """`Framework.facts` for arrays of a type that has been looked at, if its framework has them."""
    return _facts.get(kind)


def _reader(x: Any) -> _Reader:
    for title, framework in (("Tensor", TORCH), ("ndarray", CUPY), ("Array", JAX)):
        kind = getattr(sys.modules.get(framework.name), title, None)
        if isinstance(kind, type) and isinstance(x, kind):
            if framework.has_facts:
                _facts[type(x)] = framework.facts
            return framework.view
    return _of_host if isinstance(x, (np.ndarray, np.generic)) else _of_any
