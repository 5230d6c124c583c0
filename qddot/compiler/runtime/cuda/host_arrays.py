"""Arrays of NumPy through a card: copied there and back in chunks, on two streams, so that copies and work overlap.

Each chunk goes through page-locked memory of bounded size. Every state is computed as it would be on the device, so a
result does not depend on the chunks. The host waits for the result; Ctrl-C stops between two chunks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime import result_pool
from qddot.compiler.runtime.arguments import check_numpy_out
from qddot.compiler.runtime.cuda import context as contexts
from qddot.compiler.runtime.cuda.arrays import contiguous_strides
from qddot.compiler.runtime.cuda.context import Context
from qddot.compiler.runtime.cuda.grid import WARP
from qddot.compiler.runtime.cuda.memory import Block

if TYPE_CHECKING:
    from qddot.compiler.runtime.cuda.kernel import Calls

Shape = tuple[int, ...]

CHUNK_BYTES = 16 << 20  # of inputs and results together
_ALIGNMENT = 256  # bytes of each operand in a chunk


class _Operand(NamedTuple):
    """Shape and strides of an operand in a chunk, as plans want them."""

    shape: Shape
    strides: Shape


class _Chunks:
    """How operands lie in chunks: each begins at `offsets`, inputs first; shared inputs are in every chunk."""

    def __init__(self, calls: Calls, inputs: list[NDArray[Any]], states: int) -> None:
        own, size = calls.signature, calls.dtype.itemsize
        self.inputs, self.shapes = inputs, (*own.inputs, own.output)
        self.batched = [*(a.ndim > len(s) for a, s in zip(inputs, own.inputs, strict=True)), True]
        row = size * sum(prod(s) for s, b in zip(self.shapes, self.batched, strict=True) if b)
        most = max(WARP, CHUNK_BYTES // max(1, row) // WARP * WARP)
        self.states, self.most = states, min(states, most)
        self.dtype, self.offsets, end = calls.dtype, list[int](), 0
        for shape, batched in zip(self.shapes, self.batched, strict=True):
            self.offsets.append(end)
            length = size * prod(shape) * (self.most if batched else 1)
            end += -(-length // _ALIGNMENT) * _ALIGNMENT
        self.bytes = end

    def operands(self, count: int) -> list[_Operand]:
        """The inputs of a chunk of so many states."""
        shapes = [(count, *s) if b else s for s, b in zip(self.shapes[:-1], self.batched, strict=False)]
        return [_Operand(s, contiguous_strides(s)) for s in shapes]

    def on_host(self, k: int, address: int, count: int) -> NDArray[Any]:
        """The numbers of an operand in page-locked memory."""
        shape = (count, *self.shapes[k]) if self.batched[k] else self.shapes[k]
        length = prod(shape) * self.dtype.itemsize
        buffer = (ctypes.c_char * length).from_address(address + self.offsets[k])
        return np.ndarray(shape, self.dtype, memoryview(buffer).cast("B"))


class _Slot:
    """A stream with memory for one chunk at a time."""

    def __init__(self, context: Context, stream: int, size: int) -> None:
        self.context, self.stream = context, stream
        self.device: Block | None = None
        self.host = context.staging.take(size, stream)
        try:
            self.device = context.pool.take(size, stream)
        except BaseException:
            self.close()
            raise
        self.pending: tuple[int, int] | None = None  # states whose results are on their way

    def close(self) -> None:
        self.context.staging.give(self.host, self.stream)
        if self.device is not None:
            self.context.pool.give(self.device, self.stream)


def call(calls: Calls, args: Sequence[Any], out: Any) -> Any:
    """The result, as a NumPy array, for arguments on the host."""
    own, dtype = calls.signature, calls.dtype
    shapes = [own.host_shape(k, x) for k, x in enumerate(args)]
    for k, shape in enumerate(shapes):
        own.check_shape(k, shape)
    batch = own.batch(shapes)
    if out is not None:
        check_numpy_out(own, out, (*batch, *own.output), dtype)
    states = prod(batch)
    inputs = [_rows(np.asarray(x), dtype, batch, own.inputs[k]) for k, x in enumerate(args)]
    result = _result(out, inputs, (states, *own.output), dtype)
    if result.size:
        context, is_current = contexts.find()
        if is_current:
            _through(calls, context, _Chunks(calls, inputs, states), result)
        else:
            with context:
                _through(calls, context, _Chunks(calls, inputs, states), result)
    shaped = result.reshape(*batch, *own.output)
    if out is None:
        return shaped
    if not np.may_share_memory(out, shaped):
        np.copyto(out, shaped, casting="same_kind")
    return out


def _result(out: Any, inputs: list[NDArray[Any]], shape: Shape, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Memory for the result: that of `out` if it is as results are, and no input that is yet to be read is in it."""
    if out is None or out.dtype != dtype or not out.flags.c_contiguous or any(np.may_share_memory(out, a) for a in inputs):
        return result_pool.empty(shape, dtype)
    return np.asarray(out).reshape(shape)


def _rows(a: NDArray[Any], dtype: np.dtype[Any], batch: Shape, shape: Shape) -> NDArray[Any]:
    """An input with one batch axis of all states, or none where all states share it."""
    own = a.shape[: a.ndim - len(shape)]
    if prod(own) == 1 and a.size:
        return np.asarray(a, dtype).reshape(shape)
    return np.asarray(np.broadcast_to(a, (*batch, *shape)).reshape(prod(batch), *shape))


def _through(calls: Calls, context: Context, chunks: _Chunks, result: NDArray[Any]) -> None:
    """All chunks through the card; the context is current."""
    edges = [*range(0, chunks.states, chunks.most), chunks.states]
    slots: list[_Slot] = []
    try:
        for stream in context.streams()[: len(edges) - 1]:
            slots.append(_Slot(context, stream, chunks.bytes))
        for k, (low, high) in enumerate(pairwise(edges)):
            slot = slots[k % len(slots)]
            _collect(slot, chunks, result)
            _begin(calls, slot, chunks, low, high)
        for slot in slots:
            _collect(slot, chunks, result)
    finally:
        for slot in slots:
            slot.close()


def _begin(calls: Calls, slot: _Slot, chunks: _Chunks, low: int, high: int) -> None:
    """Puts a chunk on the stream of a slot, which is idle: inputs there, launch, results back."""
    own, count = slot.context.driver, high - low
    assert slot.device is not None
    for k, a in enumerate(chunks.inputs):
        np.copyto(chunks.on_host(k, slot.host.address, count), a[low:high] if chunks.batched[k] else a, casting="unsafe")
    there, inputs_end = slot.device.address, chunks.offsets[-1]
    if inputs_end:
        own.cuMemcpyHtoDAsync_v2(there, slot.host.address, inputs_end, slot.stream)
    plan = calls.plan(slot.context, True, chunks.operands(count))
    calls.launch(plan, slot.context, [there + offset for offset in chunks.offsets], slot.stream)
    size = chunks.dtype.itemsize * count * prod(chunks.shapes[-1])
    own.cuMemcpyDtoHAsync_v2(slot.host.address + inputs_end, there + inputs_end, size, slot.stream)
    slot.pending = low, high


def _collect(slot: _Slot, chunks: _Chunks, result: NDArray[Any]) -> None:
    """Waits for the results of a slot, if there are any."""
    if slot.pending is not None:
        low, high = slot.pending
        slot.context.driver.cuStreamSynchronize(slot.stream)
        slot.pending = None
        result[low:high] = chunks.on_host(len(chunks.shapes) - 1, slot.host.address, high - low)


def upload(host: NDArray[Any], context: Context, stream: int) -> Block:
    """A copy on the device of a few numbers, on a stream; the context is current, and the block is the caller's to give."""
    staged = context.staging.take(host.nbytes, stream)
    try:
        ctypes.memmove(staged.address, host.ctypes.data, host.nbytes)
        block = context.pool.take(host.nbytes, stream)
        if host.nbytes:
            context.driver.cuMemcpyHtoDAsync_v2(block.address, staged.address, host.nbytes, stream)
    finally:
        context.staging.give(staged, stream)
    return block
