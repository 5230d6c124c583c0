"""Compiled code as a NumPy generalized ufunc: batching, casting, `out=` and the release of the GIL are NumPy's own.

Large batches are split over threads. A result does not depend on the batch it came in, on the number of threads, or on
the place in the batch.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.ir.packed_output import Layout
from qddot.compiler.runtime import result_pool, thread_pool
from qddot.compiler.runtime.arguments import REAL, Signature, check_numpy_out
from qddot.compiler.runtime.array_kinds import (
    Given,
    given,
    handed_back,
    is_list_of_numbers,
    kind_of,
    mapped,
    no_gradients,
    on_host,
)
from qddot.compiler.runtime.fastcall import one_state
from qddot.compiler.runtime.kernel import Entry, Info, Kernel, Shape, Source
from qddot.compiler.runtime.llvm_compile import Code, library_functions
from qddot.compiler.runtime.threads import get_num_threads, in_parallel, split
from qddot.errors import InputError

_MIN_OPS_PER_THREAD = 1_000_000  # some 50 µs, several times the cost of handing work to a thread
_TYPES = {"float64": 12, "float32": 11}  # NPY_DOUBLE, NPY_FLOAT
_OBJECT = 88  # offset of PyUFuncObject.obj, which a ufunc owns
_FROM_SIGNATURE = 31  # PyUFunc_FromFuncAndDataAndSignature in NumPy's table of C functions


def kernel(
    code: Code,
    names: Sequence[str],
    inputs: Sequence[Shape],
    output: Shape,
    info: Info,
    explain: Callable[[], str],
    layout: Layout | None = None,
    source: Source | None = None,
) -> Kernel:
    """The kernel of code for this machine; one of code for another machine explains that when it is called."""
    entry = _entry(code, tuple(names), tuple(inputs), output, info)
    return Kernel(entry, names, inputs, output, info, explain, layout, source)


def _entry(code: Code, names: Sequence[str], inputs: Sequence[Shape], output: Shape, info: Info) -> Entry:
    if (obstacle := code.obstacle) is not None:

        def refuse(*_: Any, **__: Any) -> Any:
            raise InputError(f"{info.function}: {obstacle}")

        return Entry(refuse, refuse)
    label = f"qddot.{info.function}"
    ufunc, keep = _ufunc(code, inputs, output, info.dtype, label)
    batches = Batches(ufunc, info, names, inputs, output)
    batches.keep, batches.address = keep, code.address or 0
    call = one_state(code, label, info.dtype, batches) or batches
    return Entry(call, batches, one_state(code, label, info.dtype), ufunc)


def loop_of(kernel: Kernel) -> int:
    """The address of a kernel's inner loop, `void loop(char **args, intptr_t *dimensions, intptr_t *steps, void *env)`."""
    batches = kernel._batches
    if not isinstance(batches, Batches):
        raise InputError(f"{kernel.info.function}: this kernel's code cannot run on this machine")
    return batches.address


class Batches:
    """A ufunc with what batches need around it: threads, and errors in terms of the kernel's arguments."""

    keep: Any = None  # what the ufunc points into, where it cannot keep it alive itself
    address: int = 0  # of the loop

    def __init__(self, ufunc: Any, info: Info, names: Sequence[str], inputs: Sequence[Shape], output: Shape) -> None:
        self.ufunc, self.info = ufunc, info
        self.names, self.inputs, self.output = names, inputs, output
        self.signature = Signature(info.function, tuple(names), tuple(inputs), output)
        self.operations = max(1, info.instructions)
        # most numbers of the first input for one thread
        self.one_thread = 2 * _MIN_OPS_PER_THREAD // self.operations * prod(inputs[0])
        self.dtype = np.dtype(info.dtype)
        self._single = info.dtype == "float32"
        self._count, self._axes = len(inputs), len(output) - len(inputs[0])
        self._sizes = prod(inputs[0]), prod(output)
        row = self.dtype.itemsize * max(1, prod(output))
        self._pooled = -(-result_pool.MIN_BYTES // row) * max(1, prod(inputs[0]))  # numbers of the first input

    def __call__(self, *args: Any, out: Any = None, **others: Any) -> NDArray[Any]:
        """The result for one state or a batch."""
        for x in args:
            if x.__class__ is not np.ndarray and not is_list_of_numbers(x):
                found = given(dict(zip(self.names, args, strict=False)))
                if found.kind is not None or kind_of(out) is not None:
                    return self._of_package(found, args, out, others)
                break
        try:
            if others or len(args) != self._count:
                raise TypeError
            if self._single:
                args = tuple(map(_real, args))
            first = args[0]
            if out is not None and not self._is_usual(out, first):
                out = self._checked(out, args)
            if out is None and type(first) is np.ndarray and first.size >= self._pooled:
                out = self._fresh(args)
            if type(first) is np.ndarray and first.size > self.one_thread and get_num_threads() > 1:
                result = self._by_native_threads(args, out)
                return self._threaded(args, out) if result is None else result
            return self.ufunc(*args) if out is None else self.ufunc(*args, out=out)
        except (TypeError, ValueError, IndexError) as error:
            self._explain(args, out, others)
            raise InputError(f"{self.info.function}: {error}") from None
        except MemoryError as error:
            if error.args:
                raise
            raise MemoryError(f"{self.info.function}: no memory is left for the kernel's scratch space") from None

    def _of_package(self, found: Given, args: tuple[Any, ...], out: Any, others: Mapping[str, Any]) -> Any:
        """The result for arrays of another package on the host, as an array of that package; numbers are not copied."""
        function = self.info.function
        self.signature.check_call(len(args), others)
        if found.keeps_gradients:
            raise no_gradients(found.kind, f"{function}: {found.keeps_gradients}", "a kernel")
        if found.on_device:
            raise InputError(
                f"{function}: an input lies on a card, and this kernel runs on the CPU; make it with target='cuda', or "
                f"copy inputs to the host"
            )
        hosted = [mapped(on_host, x, name) for name, x in zip(self.names, args, strict=True)]
        if out is None:
            return handed_back(found._replace(dtype=None), self(*hosted))
        self(*hosted, out=on_host(out, "out"))
        return out

    def _fresh(self, args: tuple[Any, ...]) -> NDArray[Any] | None:
        """Memory for the result of a plain batch: one batch axis, in the first input and as long in all that have it."""
        states = len(args[0])
        for a, shape in zip(args, self.inputs, strict=True):
            if type(a) is not np.ndarray or (a.shape != (states, *shape) and (a is args[0] or a.shape != shape)):
                return None
        return result_pool.empty((states, *self.output), self.dtype)

    def _is_usual(self, out: Any, first: Any) -> bool:
        """Whether an array to write results into is what almost all are. A ufunc makes sure of the rest of its shape."""
        return (
            type(out) is type(first) is np.ndarray
            and out.dtype is self.dtype
            and out.ndim == first.ndim + self._axes
            and out.size * self._sizes[0] == first.size * self._sizes[1]
            and out.flags.c_contiguous
        )

    def _checked(self, out: Any, args: tuple[Any, ...]) -> Any:
        """The array to write results into, if it has one place for each result; NumPy would broadcast to other shapes."""
        if type(out) is tuple and len(out) == 1:  # as NumPy's ufuncs take it
            out = out[0]
        self._explain(args, out, {})
        return out

    def _threaded(self, args: tuple[Any, ...], out: Any) -> NDArray[Any]:
        arrays = [np.asarray(x) for x in args]
        batches = [a.shape[: a.ndim - len(s)] for a, s in zip(arrays, self.inputs, strict=True)]
        batch = np.broadcast_shapes(*batches)
        if out is not None and out.shape != (*batch, *self.output):
            raise ValueError(f"out has shape {out.shape}")
        axis = max(range(len(batch)), key=lambda k: batch[k], default=0)
        edges = split(batch[axis], prod(batch) * self.operations // _MIN_OPS_PER_THREAD) if batch else []
        if len(edges) < 3 or not all(_is_plain(x) for x in (*args, out)):  # one state is not divided
            return self.ufunc(*args) if out is None else self.ufunc(*args, out=out)
        result = out
        # A part would see no more than its own rows of both, and not that it writes what another has yet to read.
        if out is None or any(_overlap(out, a) for a in arrays):
            result = np.empty((*batch, *self.output), self.dtype)

        def part(low: int, high: int) -> None:
            pieces = [_piece(a, own, len(batch), axis, low, high) for a, own in zip(arrays, batches, strict=True)]
            self.ufunc(*pieces, out=_piece(result, batch, len(batch), axis, low, high))

        in_parallel(part, edges)
        if out is not None and result is not out:
            np.copyto(out, result, casting="same_kind")
            return out
        return result

    def _by_native_threads(self, args: tuple[Any, ...], out: Any) -> NDArray[Any] | None:
        """The result by threads without Python; None where arrays are not as kernels take them, or the threads are busy."""
        states = len(args[0])
        if not thread_pool.available() or args[0].ndim != 1 + len(self.inputs[0]):
            return None
        if out is not None and (not out.flags.writeable or any(_overlap(out, a) for a in args if type(a) is np.ndarray)):
            return None
        result = np.empty((states, *self.output), self.dtype) if out is None else out
        operands = []
        for a, shape in zip((*args, result), (*self.inputs, self.output), strict=True):
            if type(a) is not np.ndarray or a.dtype is not self.dtype or not a.flags.aligned:
                return None
            if a.shape == shape:
                step = 0
            elif a.shape[1:] == shape and a.shape[0] == states:
                step = a.strides[0]
            else:
                return None
            operands.append((a.__array_interface__["data"][0], step, a.strides[a.ndim - len(shape) :]))
        threads = min(get_num_threads(), max(2, states * self.operations // _MIN_OPS_PER_THREAD))
        return result if thread_pool.run(self.address, states, self.info.lanes, operands, threads) else None

    def _explain(self, args: tuple[Any, ...], out: Any, others: Mapping[str, Any]) -> None:
        """Says in our words what NumPy would say in its own."""
        own = self.signature
        own.check_call(len(args), others)
        shapes = [own.host_shape(k, x) for k, x in enumerate(args)]
        for k, shape in enumerate(shapes):
            own.check_shape(k, shape)
        batch = own.batch(shapes)
        if out is not None:
            check_numpy_out(own, out, (*batch, *self.output), self.dtype)


def _overlap(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays have memory in common, judged as NumPy's ufuncs do: where it is hard to tell, they have."""
    return np.may_share_memory(a, b, max_work=1)  # type: ignore[arg-type]


def _real(x: Any) -> NDArray[np.float32]:
    """An argument of a kernel in single precision, which NumPy's ufuncs would not make of doubles."""
    array = np.asarray(x)
    if array.dtype.kind not in REAL:
        raise TypeError(f"{array.dtype} instead of real numbers")
    return np.asarray(array, dtype=np.float32)


def _is_plain(x: Any) -> bool:
    """Whether NumPy takes this as an array, and asks it for nothing: subclasses have their own ideas of ufuncs."""
    return x is None or type(x) is np.ndarray or isinstance(x, (list, tuple, int, float, np.generic))


def _piece(a: NDArray[Any], own: Shape, n_batch: int, axis: int, low: int, high: int) -> NDArray[Any]:
    """The part of an array along a batch axis, where it has that axis and does not broadcast along it."""
    k = axis - (n_batch - len(own))
    if k < 0 or own[k] == 1:
        return a
    return a[(slice(None),) * k + (slice(low, high),)]


def _ufunc(code: Code, inputs: Sequence[Shape], output: Shape, dtype: str, name: str) -> tuple[Any, Any]:
    """The ufunc object, and what it points into and must not outlive."""
    count = len(inputs) + 1
    loops = (ctypes.c_void_p * 1)(code.address)
    data = (ctypes.c_void_p * 1)(ctypes.addressof(library_functions()))
    types = ctypes.create_string_buffer(bytes([_TYPES[dtype]] * count))
    label = ctypes.create_string_buffer(name.encode())
    doc = ctypes.create_string_buffer(b"A compiled kernel of qddot.")
    text = ",".join(_core(s) for s in inputs) + "->" + _core(output)
    signature = ctypes.create_string_buffer(text.encode())
    ufunc = _make()(loops, data, types, 1, len(inputs), 1, -1, label, doc, 0, signature)
    keep = code, loops, data, types, label, doc, signature
    if _ufuncs_keep_objects():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(keep))
        ctypes.c_void_p.from_address(id(ufunc) + _OBJECT).value = id(keep)
    return ufunc, keep


@functools.cache
def _ufuncs_keep_objects() -> bool:
    """Whether a ufunc has the place where `numpy.frompyfunc` lets it keep an object: what is put there lives with it."""

    def probe(x: Any) -> Any:
        return x

    return ctypes.c_void_p.from_address(id(np.frompyfunc(probe, 1, 1)) + _OBJECT).value == id(probe)


def _core(shape: Shape) -> str:
    return "(" + ",".join(map(str, shape)) + ")"


_maker: Any = None


def _make() -> Any:
    """NumPy's C function that makes a generalized ufunc."""
    global _maker
    if _maker is None:
        from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        table = get(_multiarray_umath._UFUNC_API, None)
        address = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_FROM_SIGNATURE]
        pointer, integer = ctypes.c_void_p, ctypes.c_int
        kind = ctypes.PYFUNCTYPE(
            *(ctypes.py_object, pointer, pointer, pointer, integer, integer, integer, integer),
            *(pointer, pointer, integer, pointer),
        )
        _maker = kind(address)
    return _maker
