"""Kernels on a card: called with arrays of any framework on the device, or of NumPy on the host.

Work goes on the caller's stream and is not waited for, except where the host or JAX gets the result. Arrays on the device
are neither copied nor cast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from qddot.compiler.ir.packed_output import Layout
from qddot.compiler.runtime import array_kinds
from qddot.compiler.runtime.arguments import OutFacts, Signature
from qddot.compiler.runtime.cuda import context as contexts
from qddot.compiler.runtime.cuda import host_arrays
from qddot.compiler.runtime.cuda.arrays import contiguous_strides, extent
from qddot.compiler.runtime.cuda.context import Context
from qddot.compiler.runtime.cuda.frameworks import OWN, TORCH, Framework, View, facts_of, view
from qddot.compiler.runtime.cuda.known_calls import KnownCall
from qddot.compiler.runtime.cuda.memory import Block
from qddot.compiler.runtime.cuda.modules import GridCode
from qddot.compiler.runtime.cuda.plan import Operands, Plan
from qddot.compiler.runtime.kernel import Entry, Info, Kernel, Source
from qddot.errors import DeviceError, InputError, QddotError

Shape = tuple[int, ...]
_MOST_PLANS = 256
# What reading another package's array may raise.
_UNREADABLE = (QddotError, TypeError, ValueError, RuntimeError, AttributeError, KeyError, BufferError)


def kernel(
    code: GridCode,
    names: Sequence[str],
    inputs: Sequence[Shape],
    output: Shape,
    info: Info,
    explain: Callable[[], str],
    layout: Layout | None = None,
    source: Source | None = None,
) -> Kernel:
    """The kernel of code for a grid. No card is needed before the first call."""
    calls = Calls(code, Signature(info.function, tuple(names), tuple(inputs), output), info.dtype)
    return Kernel(Entry(calls, calls, code=code), names, inputs, output, info, explain, layout, source)


def code_of(kernel: Kernel) -> GridCode:
    """The code of a kernel for a card: facts about its machine code, and how long assembling took."""
    if not isinstance(kernel.code, GridCode):
        raise InputError(f"{kernel.info.function}: this kernel is not for a card; make it with target='cuda'")
    return kernel.code


class Calls:
    """What is called: finds where the arguments lie, and launches what was planned for their shapes."""

    def __init__(self, code: GridCode, signature: Signature, dtype: str) -> None:
        self.code, self.signature = code, signature
        self.dtype = np.dtype(dtype)
        self._count = len(signature.inputs)
        self._plans: dict[Any, Plan] = {}
        self._known: dict[Any, KnownCall] = {}

    def __call__(self, *args: Any, out: Any = None, **others: Any) -> Any:
        """The result for one state or a batch."""
        try:
            if not others and len(args) == self._count and args and (facts := facts_of(type(args[0]))) is not None:
                try:
                    pointers, key = facts(args if out is None else (*args, out))
                    known = self._known.get(key if out is None else (key,))
                except _UNREADABLE:  # the long way says why
                    known = None
                if known is not None and (result := known(args, pointers, out)) is not None:
                    return result
            return self._looked_at(args, out, others)
        except MemoryError as error:
            raise MemoryError(f"{self.signature.function}: {error}") from None
        except QddotError as error:
            raise self._named(error) from None

    def _looked_at(self, args: Sequence[Any], out: Any, others: dict[str, Any]) -> Any:
        """The same, where nothing is known of such arrays yet, or something about them is unusual."""
        if others or len(args) != self._count:
            self.signature.check_call(len(args), others)
        views = self._views(args)
        if out is not None or None in views or not self._is_plain(views):
            return self._general(args, views, out)
        first: View = views[0]  # type: ignore[assignment]
        framework, stream = first.framework, first.framework.stream(first.device)
        context, is_current = contexts.find(first.device)
        plan = self.plan(context, is_current, views)
        result, pointer = framework.empty(plan.shape, self.dtype, context)
        pointers = [v.pointer for v in views]  # type: ignore[union-attr]
        pointers.append(pointer)
        with nullcontext() if is_current else context:
            self.launch(plan, context, pointers, stream)
        self._remember(args, None, plan, context, framework)
        return framework.finish(result, context, stream)

    def _remember(self, args: Sequence[Any], out: Any, plan: Plan, context: Context, framework: Framework) -> None:
        """Keeps what was found out about plain arrays for the next ones with the same facts."""
        facts = facts_of(type(args[0]))
        if facts is None or plan.scratch_bytes:
            return
        try:
            _, key = facts(args if out is None else (*args, out))
            make = framework.maker(plan.shape, self.dtype, context, args)
        except _UNREADABLE:  # of several types, perhaps
            return
        if len(self._known) >= _MOST_PLANS:
            self._known.clear()
        streams, current = framework.streams(context.device.ordinal), contexts.current_handle()
        self._known[key if out is None else (key,)] = KnownCall(plan, context, current, make, streams)

    def _views(self, args: Sequence[Any]) -> list[View | None]:
        """Where arguments lie."""
        try:
            return [view(x) for x in args]
        except _UNREADABLE:
            return [self._view_of(name, x) for name, x in zip(self.signature.names, args, strict=True)]

    def _view_of(self, name: str, x: Any) -> View | None:
        """The same of one argument, with errors that name it."""
        try:
            return view(x)
        except InputError as error:
            raise InputError(f"{self.signature.function}: {name} {error}") from None
        except _UNREADABLE as error:
            raise InputError(
                f"{self.signature.function}: {name} of type {type(x).__name__} cannot be read: {error}"
            ) from None

    def _is_plain(self, views: Sequence[View | None]) -> bool:
        """Whether arrays are of one framework, on one device, in order with its stream, and of the kernel's type."""
        first = views[0]
        for v in views:
            if (
                v is None
                or v.dtype is not self.dtype
                or v.framework is not first.framework  # type: ignore[union-attr]
                or v.device != first.device  # type: ignore[union-attr]
                or v.stream
                or v.borrowed
                or v.pointer % v.dtype.itemsize
            ):
                return False
        return True

    def plan(self, context: Context, is_current: bool, views: Sequence[Any], out: View | None = None) -> Plan:
        """For arrays of these shapes and strides, in a context."""
        key: list[Any] = [context, out and (out.shape, out.strides)]
        for v in views:
            key += v.shape, v.strides
        found = self._plans.get(place := tuple(key))
        if found is None:
            batch = self.check_shapes(views)
            both = (*views, out) if out is not None else tuple(views)
            shapes, strides = tuple(tuple(v.shape) for v in both), tuple(tuple(v.strides) for v in both)
            with nullcontext() if is_current else context:
                found = Plan(self.code, self.signature, context, Operands(batch, shapes, strides, self.dtype.itemsize))
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[place] = found
        return found

    def check_shapes(self, views: Sequence[Any]) -> Shape:
        """The batch axes of arguments whose shapes fit."""
        for k, v in enumerate(views):
            self.signature.check_shape(k, v.shape)
        return self.signature.batch([v.shape for v in views])

    def launch(self, plan: Plan, context: Context, pointers: Sequence[int], stream: int) -> None:
        """Launches with scratch memory, where there is need of it; the context is current."""
        if not plan.scratch_bytes:
            plan.launch([*pointers, 0], stream)
            return
        if context.is_capturing(stream):
            plan = Plan(self.code, self.signature, context, plan.operands, is_captured=True)
            if plan.scratch_bytes:
                raise InputError("this kernel takes scratch memory for each call, and cannot be captured in a CUDA graph")
            plan.launch([*pointers, 0], stream)
            return
        block = context.pool.take(plan.scratch_bytes, stream)
        try:
            plan.launch([*pointers, block.address], stream)
        finally:
            context.pool.give(block, stream)

    # ---- everything but the plain case

    def _general(self, args: Sequence[Any], views: list[View | None], out: Any) -> Any:
        if type(out) is tuple and len(out) == 1:  # as NumPy's ufuncs take it
            out = out[0]
        target = None if out is None else self._view_of("out", out)
        own = self.signature
        if target is None and all(v is None for v in views):
            return self._on_host(args, out)
        if out is not None and target is None:
            raise InputError(
                f"{own.function}: out lies on the host, and {self._name_of_first(views)} on the device; "
                "leave it out, or give an array on the device"
            )
        if target is not None and target.framework is TORCH and target.keep is not out:
            raise InputError(f"{own.function}: out is a view that PyTorch negates when it is read; give out.resolve_neg()")
        first: View = next(v for v in (target, *views) if v is not None)
        for k, v in enumerate(views):
            if v is not None:
                self._check(own.names[k], v, first.device)
        context, is_current = contexts.find(first.device)
        framework = first.framework
        stream = framework.stream(first.device)
        uploads: list[Block] = []
        with nullcontext() if is_current else context:
            try:
                operands = [
                    self._uploaded(k, x, context, stream, uploads) if v is None else v
                    for k, (x, v) in enumerate(zip(args, views, strict=True))
                ]
                result = self._run(operands, out, target, framework, (context, stream, uploads))
            finally:
                for block in uploads:
                    context.pool.give(block, stream)
        if target is not None and not uploads and self._is_plain([target, *views]):
            self._remember(args, out, self.plan(context, is_current, operands, target), context, framework)
        return result

    def _on_host(self, args: Sequence[Any], out: Any) -> Any:
        """The result for arrays on the host, as an array of the package of the inputs."""
        names = self.signature.names
        found = array_kinds.given(dict(zip(names, args, strict=True)))
        if found.keeps_gradients:
            raise array_kinds.no_gradients(found.kind, found.keeps_gradients, "a kernel")
        hosted = [array_kinds.mapped(array_kinds.on_host, x, name) for name, x in zip(names, args, strict=True)]
        result = host_arrays.call(self, hosted, None if out is None else array_kinds.on_host(out, "out"))
        return array_kinds.handed_back(found._replace(dtype=None), result) if out is None else out

    def _run(
        self,
        operands: list[View],
        out: Any,
        target: View | None,
        framework: Framework,
        place: tuple[Context, int, list[Block]],
    ) -> Any:
        """Launches in a context that is current."""
        context, stream, uploads = place
        batch = self.check_shapes(operands)
        if target is not None:
            self._check_out(target, (*batch, *self.signature.output), context.device.ordinal)
        others = {_stream_of(v) for v in (*operands, *([target] if target is not None else []))} - {stream}
        for other in others:
            context.order(other, stream)
        if target is not None:
            operands = [self._apart(v, target, context, stream, uploads) for v in operands]
        plan = self.plan(context, True, operands, target)
        if target is None:
            result, pointer = framework.empty(plan.shape, self.dtype, context)
        else:
            result, pointer = out, target.pointer
        self.launch(plan, context, [*(v.pointer for v in operands), pointer], stream)
        for other in others:
            context.order(stream, other)
        if any(v.borrowed for v in operands):
            context.driver.cuStreamSynchronize(stream)
        return framework.finish(result, context, stream) if target is None else out

    def _uploaded(self, k: int, x: Any, context: Context, stream: int, uploads: list[Block]) -> View:
        """An argument on the host beside others on the device: numbers that all states share."""
        own = self.signature
        shape = own.host_shape(k, x)
        own.check_shape(k, shape)
        if shape != own.inputs[k]:
            raise InputError(
                f"{own.function}: {own.names[k]} is a batch on the host, and other arguments lie on the device; "
                f"copy {own.names[k]} to the device first"
            )
        host = np.ascontiguousarray(x, self.dtype)
        block = host_arrays.upload(host, context, stream)
        uploads.append(block)
        ordinal, strides = context.device.ordinal, contiguous_strides(shape)
        return View(block.address, shape, strides, self.dtype, ordinal, stream, True, OWN, host)

    def _apart(self, v: View, target: View, context: Context, stream: int, uploads: list[Block]) -> View:
        """An input that does not share memory with the output: the memory it spans is copied where it does."""
        size = self.dtype.itemsize
        (low, high), (first, last) = extent(v.shape, v.strides), extent(target.shape, target.strides)
        begin, end = v.pointer + low * size, v.pointer + high * size
        if begin >= target.pointer + last * size or target.pointer + first * size >= end or begin == end:
            return v
        block = context.pool.take(end - begin, stream)
        uploads.append(block)
        context.driver.cuMemcpyDtoDAsync_v2(block.address, begin, end - begin, stream)
        return v._replace(pointer=block.address - low * size)

    # ---- checks and errors

    def _check(self, name: str, v: View, device: int) -> None:
        function, wanted = self.signature.function, self.dtype.name
        if not (isinstance(v.dtype, np.dtype) and v.dtype == self.dtype):
            raise InputError(
                f"{function}: {name} holds {v.dtype}, and this kernel computes in {wanted}; arrays on the device are not "
                f"cast: give {v.framework.cast(name, wanted)}, or make the kernel with the other dtype"
            )
        if v.device != device and 0 not in v.shape:
            raise InputError(f"{function}: {name} lies on device {v.device}, and other arguments on device {device}")
        if v.pointer % self.dtype.itemsize:
            raise InputError(
                f"{function}: {name} is not aligned to its numbers of {self.dtype.itemsize} bytes; copy it first"
            )

    def _check_out(self, target: View, shape: Shape, device: int) -> None:
        self._check("out", target, device)
        facts = OutFacts(tuple(target.shape), tuple(target.strides), 1, target.dtype, self.dtype, True, not target.readonly)
        self.signature.check_out(facts, shape)

    def _name_of_first(self, views: Sequence[View | None]) -> str:
        return next(n for n, v in zip(self.signature.names, views, strict=True) if v is not None)

    def _named(self, error: QddotError) -> QddotError:
        """The same error, with the function in it."""
        text, function = str(error), self.signature.function
        if text.startswith(function):
            return error
        if isinstance(error, DeviceError):
            return DeviceError(f"{function}: {text}", error.code)
        return InputError(f"{function}: {text}") if type(error) is InputError else error


def _stream_of(v: View) -> int:
    return v.framework.stream(v.device) if v.stream is None else v.stream
