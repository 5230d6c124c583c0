"""A compiled program as a NumPy generalized ufunc: batching, casting, `out=` and the release of the GIL are NumPy's own.

Large batches are split over threads. A result does not depend on the batch it came in, on the number of threads, or on
the place in the batch.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.call import one_state
from qddot.compiler.machine import Code, library_functions
from qddot.compiler.packing import Layout
from qddot.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Shape = tuple[int, ...]

_WORTH_A_THREAD = 1_000_000  # operations: some 50 µs, ten times what handing work to a thread costs
_TYPES = {"float64": 12, "float32": 11}  # NPY_DOUBLE, NPY_FLOAT
_OBJECT = 88  # offset of PyUFuncObject.obj, which a ufunc owns
_FROM_SIGNATURE = 31  # PyUFunc_FromFuncAndDataAndSignature in NumPy's table of C functions


@dataclass(frozen=True)
class Info:
    """What a kernel is: its operations by kind, how it was made and why so, how large it is, which parameters it takes."""

    function: str
    method: str
    form: str
    dtype: str
    lanes: int
    ops: dict[str, int]
    instructions: int
    code_bytes: int
    compile_seconds: float
    cached: bool
    free: tuple[str, ...] = ()
    why: str = ""


class Kernel:
    """Call it like a function of arrays: one state or any leading batch axes, `out=` if you like."""

    # What Python calls lies in each kernel: a compiled function, which is reached without any code in between.
    __slots__ = ("__call__", "__dict__", "__weakref__")

    if TYPE_CHECKING:

        def __call__(self, *args: Any, out: NDArray[Any] | None = None) -> NDArray[Any]: ...

    def __init__(
        self,
        code: Code,
        names: Sequence[str],
        inputs: Sequence[Shape],
        output: Shape,
        info: Info,
        explain: Callable[[], str],
        layout: Layout | None = None,
    ) -> None:
        self.info, self.explain, self.layout = info, explain, layout
        self.names, self.inputs, self.output = tuple(names), tuple(inputs), output
        label = f"qddot.{info.function}"
        self.ufunc, self._keep = _ufunc(code, self.inputs, output, info.dtype, label)
        self._batches = _Batches(self.ufunc, info, self.names, self.inputs, output)
        self.one_state = one_state(
            code, label, info.dtype
        )  # answers None to anything but one state in the kernel's own type
        call = one_state(code, label, info.dtype, self._batches) or self._batches
        object.__setattr__(self, "__call__", call)

    def unpack(self, result: Any) -> NDArray[Any]:
        """The full array of what a packed kernel gave; `layout` says where its numbers belong."""
        if self.layout is None:
            raise InputError(f"{self.info.function}: this kernel's results are not packed; kernel(..., packed=True) is")
        return self.layout.unpack(result)

    def finite(self, *args: Any) -> NDArray[np.bool_]:
        """Which samples have finite inputs. The others give results that mean nothing, and spoil no other sample."""
        ok: Any = True
        for x, shape in zip(args, self.inputs, strict=True):
            axes = tuple(range(-len(shape), 0))
            ok = ok & np.isfinite(np.asarray(x)).all(axis=axes)
        return np.asarray(ok)

    def __repr__(self) -> str:
        i = self.info
        free = f", free {', '.join(i.free)}" if i.free else ""
        return (
            f"<Kernel {i.function}: {i.method}, {i.form}, {i.dtype} × {i.lanes} lanes, {i.instructions} instructions{free}>"
        )


class _Batches:
    """A kernel's ufunc with what batches need around it: threads, and errors in our words."""

    def __init__(self, ufunc: Any, info: Info, names: Sequence[str], inputs: Sequence[Shape], output: Shape) -> None:
        self.ufunc, self.info = ufunc, info
        self.names, self.inputs, self.output = names, inputs, output
        self.operations = max(1, info.instructions)
        self.one_thread = _WORTH_A_THREAD // self.operations  # numbers in the first input that are not worth a second one
        self._single = info.dtype == "float32"
        self._environment = library_functions()

    def __call__(self, *args: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The result for one state or a batch."""
        try:
            if self._single:
                args = tuple(np.asarray(x, dtype=np.float32) for x in args)
            first = args[0]
            if type(first) is np.ndarray and first.size > self.one_thread and _threads > 1:
                result = self._threaded(args, out)
            else:
                result = self.ufunc(*args) if out is None else self.ufunc(*args, out=out)
            if self._environment[5]:
                self._environment[5] = 0
                raise MemoryError(f"{self.info.function}: no memory is left for the kernel's scratch space")
            return result
        except (TypeError, ValueError, IndexError) as error:
            self._explain(args, out)
            raise InputError(f"{self.info.function}: {error}") from None

    def _threaded(self, args: tuple[Any, ...], out: NDArray[Any] | None) -> NDArray[Any]:
        arrays = [np.asarray(x) for x in args]
        batches = [a.shape[: a.ndim - len(s)] for a, s in zip(arrays, self.inputs, strict=True)]
        batch = np.broadcast_shapes(*batches)
        count = prod(batch)
        parts = min(_threads, count, count * self.operations // _WORTH_A_THREAD)  # one state is not divided
        if parts < 2:
            return self.ufunc(*arrays) if out is None else self.ufunc(*arrays, out=out)
        result = np.empty((*batch, *self.output), self.info.dtype) if out is None else out
        axis = max(range(len(batch)), key=lambda k: batch[k])
        edges = np.linspace(0, batch[axis], parts + 1).astype(int).tolist()

        def part(low: int, high: int) -> None:
            pieces = [_piece(a, own, len(batch), axis, low, high) for a, own in zip(arrays, batches, strict=True)]
            self.ufunc(*pieces, out=_piece(result, batch, len(batch), axis, low, high))

        jobs = [_pool().submit(part, a, b) for a, b in pairwise(edges[1:])]
        part(edges[0], edges[1])
        for job in jobs:
            job.result()
        return result

    def _explain(self, args: tuple[Any, ...], out: Any) -> None:
        """Says in our words what NumPy would say in its own."""
        if len(args) != len(self.inputs):
            raise InputError(f"{self.info.function} takes {', '.join(self.names)}; {len(args)} arrays were given")
        for x, name, shape in zip(args, self.names, self.inputs, strict=True):
            try:
                array = np.asarray(x)
            except ValueError:
                raise InputError(f"{self.info.function}: {name} is a ragged list; give an array") from None
            if array.dtype.kind not in "fiub":
                raise InputError(f"{self.info.function}: {name} must hold real numbers, not {array.dtype}")
            if array.shape[array.ndim - len(shape) :] != shape or array.ndim < len(shape):
                wanted = ", ".join(map(str, shape))
                raise InputError(f"{self.info.function}: {name} has shape {array.shape}; its last axes must be ({wanted})")
        try:
            batch = np.broadcast_shapes(
                *(np.shape(x)[: np.ndim(x) - len(s)] for x, s in zip(args, self.inputs, strict=True))
            )
        except ValueError:
            shapes = ", ".join(f"{n} {np.shape(x)}" for n, x in zip(self.names, args, strict=True))
            raise InputError(f"{self.info.function}: the batch axes of {shapes} do not fit together") from None
        if out is not None and np.shape(out) != (*batch, *self.output):
            raise InputError(f"{self.info.function}: out has shape {np.shape(out)}; it must be {(*batch, *self.output)}")


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


# ---- threads -----------------------------------------------------------------------------------------------------------


def _affinity() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_threads = _affinity()
_executor: ThreadPoolExecutor | None = None
_executor_owner = (0, 0)
_executor_lock = threading.Lock()


def set_num_threads(count: int | None) -> None:
    """How many threads a large batch may use; None for as many as there are processors for this process."""
    global _threads
    if count is not None and (not isinstance(count, int) or count < 1):
        raise InputError(f"the number of threads is {count!r}; give a whole number of one or more, or None")
    _threads = _affinity() if count is None else count


def get_num_threads() -> int:
    """How many threads a large batch may use."""
    return _threads


def _pool() -> ThreadPoolExecutor:
    """One pool for all kernels of a process; a forked child makes its own."""
    from concurrent.futures import ThreadPoolExecutor

    global _executor, _executor_owner
    with _executor_lock:
        wanted = (os.getpid(), _threads)
        if _executor is None or _executor_owner != wanted:
            _executor, _executor_owner = ThreadPoolExecutor(max_workers=_threads), wanted
        return _executor
