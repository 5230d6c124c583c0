"""Launches of one kernel for operands of given shapes and strides: everything but their addresses is prepared once."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from ctypes import byref, c_int64, c_uint, c_void_p
from operator import add
from typing import NamedTuple

from qddot.compiler.runtime.arguments import Signature
from qddot.compiler.runtime.cuda.arrays import contiguous_strides, extent, is_contiguous
from qddot.compiler.runtime.cuda.context import Context
from qddot.compiler.runtime.cuda.grid import WARP
from qddot.compiler.runtime.cuda.layout import Batch, batch, broadcast
from qddot.compiler.runtime.cuda.modules import Function, GridCode, Loaded
from qddot.errors import InputError

Shape = tuple[int, ...]

MOST_SCRATCH_BYTES = 1 << 30  # of the scratch memory of a launch, where one block needs less
MOST_KEPT_BYTES = 512 << 20  # of what modules leave for the next ones: batches with more go in chunks
_SCRATCH_SHARE = 8  # and at most this part of the device's memory
MAX_BLOCKS = 2**31 - 1  # gridDim.x


class Arguments:
    """What the driver is called with, as objects of ctypes that are made once: converting numbers takes longer than a call.

    The values that change from call to call lie side by side: the count of states, addresses of the operands and of scratch
    memory, which are `changing` in the order of the kernel's parameters.
    """

    __slots__ = ("calls", "current", "current_at", "stream", "values")

    def __init__(
        self, values: Sequence[int], changing: Sequence[int], handles: Sequence[int], shapes: Sequence[Sequence[int]]
    ) -> None:
        """`shapes` are of each function the blocks along x and y, the threads, and the bytes of shared memory."""
        count = len(values)
        order = [*changing, *sorted(set(range(count)) - set(changing))]
        self.values = (c_int64 * count)(*(values[k] for k in order))
        first = ctypes.addressof(self.values)
        addresses = (c_void_p * count)()
        for place, k in enumerate(order):
            addresses[k] = first + 8 * place
        one, none = c_uint(1), c_void_p()
        self.stream, self.calls = c_void_p(), []
        for handle, shape in zip(handles, shapes, strict=True):
            x, y, threads, shared = map(c_uint, shape)
            self.calls.append((c_void_p(handle), x, y, one, threads, one, one, shared, self.stream, addresses, none))
        self.current = c_void_p()  # for the answer to which context is current
        self.current_at = byref(self.current)


class Plan:
    """How operands of these shapes and strides are handed to a kernel. Threads may share it."""

    def __init__(
        self, code: GridCode, own: Signature, context: Context, operands: Operands, is_captured: bool = False
    ) -> None:
        """The context is current. The last operand is the output; None: it is new and contiguous.

        Where launches are captured in a graph, code that takes scratch memory is not chosen if there is other code, and
        nothing waits for the card.
        """
        self.operands = operands
        self.itemsize = size = operands.itemsize
        self.shape = (*operands.batch, *own.output)
        shapes, strides = list(operands.shapes), list(operands.strides)
        if len(shapes) == len(own.inputs):
            shapes.append(self.shape)
            strides.append(contiguous_strides(self.shape))
        inner = [*own.inputs, own.output]
        cuts = [len(s) - len(i) for s, i in zip(shapes, inner, strict=True)]
        covered: Batch = batch(
            operands.batch,
            [broadcast(operands.batch, s[:c], t[:c]) for s, t, c in zip(shapes, strides, cuts, strict=True)],
        )
        ends = [tuple(t[c:]) for t, c in zip(strides, cuts, strict=True)]
        contiguous = [is_contiguous(i, e) for i, e in zip(inner, ends, strict=True)]
        if all(contiguous):
            code = code.suited(covered.states, context, has_scratch=not is_captured)
        loaded = code.loaded(context, may_wait=not is_captured)
        functions, grid = self._functions(code, own, loaded, contiguous), code.grid
        values, places = [covered.states], [0]
        for step, end in zip(covered.steps, ends, strict=True):
            places.append(len(values))
            values += [0, step, *end]
        places.append(len(values))
        chunk = covered.states
        if grid.kept_numbers:
            budget = min(MOST_KEPT_BYTES, context.device.memory_bytes // _SCRATCH_SHARE)
            chunk = min(chunk, max(1, budget // (grid.kept_numbers * size * WARP)) * WARP)
        self.scratch_bytes, blocks = scratch_of(code, context, functions, -(-chunk // grid.states), size)
        self.scratch_bytes += -(-chunk // WARP) * WARP * grid.kept_numbers * size
        facts = [grid.of_module(k) for k in range(len(functions))]
        grids = [(blocks, x.groups, x.threads, x.shared_bytes) for x in facts]
        self._made_of = [*values, 0], places, [f.handle for f in functions], grids
        self._pack = struct.Struct(f"{len(places)}Q").pack_into
        # Of each launch: its states; in bytes, where each operand and scratch memory begin.
        self._launches = [
            (min(chunk, covered.states - k), *(size * (x + k * s) for x, s in zip(offset, covered.steps, strict=True)), 0)
            for offset in (covered.offsets() if 0 not in self.shape else ())
            for k in range(0, covered.states, chunk)
        ]
        self._has_offsets = len(self._launches) > 1
        self._driver, self._free = context.driver, list[Arguments]()
        reaches = [extent(s, t) for s, t in zip(shapes, strides, strict=True)]
        *self._inputs_reach, self._output_reach = [(size * low, size * high) for low, high in reaches]

    @staticmethod
    def _functions(code: GridCode, own: Signature, loaded: Loaded, contiguous: list[bool]) -> list[Function]:
        if all(contiguous):
            return loaded.rows
        if not code.grid.has_strided:
            name = (*own.names, "out")[contiguous.index(False)]
            raise InputError(
                f"{own.function}: the numbers of one state of {name} are not contiguous in memory; "
                f"this kernel takes contiguous ones only: copy {name} first"
            )
        return loaded.strided

    def borrow(self) -> Arguments:
        """Arguments that nobody else has, neither a thread nor a handler of a signal; `launch` gives them back."""
        try:
            return self._free.pop()
        except IndexError:
            return Arguments(*self._made_of)

    def give(self, own: Arguments) -> None:
        """Takes back what was borrowed."""
        self._free.append(own)

    def launch(self, pointers: Sequence[int], stream: int, own: Arguments | None = None) -> None:
        """Puts the work on a stream; the context is current. The last pointer is to scratch memory, or 0."""
        own = self.borrow() if own is None else own
        launch, values = self._driver.launch, own.values
        own.stream.value = stream
        for count, *offsets in self._launches:
            self._pack(values, 0, count, *(map(add, pointers, offsets) if self._has_offsets else pointers))
            for call in own.calls:
                if code := launch(*call):
                    raise self._driver.failure(code, launch)
        self._free.append(own)

    def overlaps(self, pointers: Sequence[int]) -> bool:
        """Whether memory that an input spans may be that of the output, for arrays at these addresses."""
        low, high = self._output_reach
        begin, end = pointers[-1] + low, pointers[-1] + high
        for pointer, (first, last) in zip(pointers, self._inputs_reach, strict=False):
            if pointer + first < end and begin < pointer + last:
                return True
        return False


class Operands(NamedTuple):
    """Shapes and strides, in numbers, of inputs and perhaps the output, and the batch axes."""

    batch: Shape
    shapes: tuple[Shape, ...]
    strides: tuple[Shape, ...]
    itemsize: int


def scratch_of(code: GridCode, context: Context, functions: list[Function], blocks: int, size: int) -> tuple[int, int]:
    """Bytes of scratch memory and the blocks along x: no more than fit in the budget, and than run at a time."""
    grid, device = code.grid, context.device
    blocks = max(1, min(blocks, MAX_BLOCKS))
    block_bytes = grid.scratch_numbers * grid.threads * grid.groups * size
    if block_bytes:
        budget = min(MOST_SCRATCH_BYTES, device.memory_bytes // _SCRATCH_SHARE)
        at_a_time = -(-max(f.blocks for f in functions) * device.processors // grid.groups)
        blocks = max(1, min(blocks, budget // block_bytes, at_a_time))
    return block_bytes * blocks, blocks
