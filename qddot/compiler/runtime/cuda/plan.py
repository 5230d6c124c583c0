"""Launches of one kernel for operands of given shapes and strides: everything but their addresses is prepared once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from typing import NamedTuple

from qddot.compiler.runtime.arguments import Signature
from qddot.compiler.runtime.cuda.arrays import contiguous_strides, is_contiguous
from qddot.compiler.runtime.cuda.context import Context
from qddot.compiler.runtime.cuda.layout import Batch, batch, broadcast
from qddot.compiler.runtime.cuda.modules import Function, GridCode
from qddot.errors import DeviceError, InputError

Shape = tuple[int, ...]

MOST_SCRATCH_BYTES = 1 << 30  # of the scratch memory of a launch, where one block needs less
_SCRATCH_SHARE = 8  # and at most this part of the device's memory
_MAX_BLOCKS = 2**31 - 1  # gridDim.x


class _Arguments:
    """Values of a launch's parameters, and the addresses of them that the driver reads."""

    __slots__ = ("addresses", "values")

    def __init__(self, values: Sequence[int]) -> None:
        self.values = (c_int64 * len(values))(*values)
        first = ctypes.addressof(self.values)
        self.addresses = (c_void_p * len(values))(*(first + 8 * k for k in range(len(values))))


class _Launch(NamedTuple):
    handles: tuple[int, ...]  # functions
    blocks: int
    offsets: tuple[tuple[int, ...], ...]  # in bytes, of each launch and operand


class Plan:
    """How operands of these shapes and strides are handed to a kernel. Threads may share it."""

    def __init__(self, code: GridCode, own: Signature, context: Context, operands: Operands) -> None:
        """The context is current. The last operand is the output; None: it is new and contiguous."""
        size, grid = operands.itemsize, code.grid
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
        functions = self._functions(code, own, context, [is_contiguous(i, e) for i, e in zip(inner, ends, strict=True)])
        values, self._places = [covered.states], []
        for step, end in zip(covered.steps, ends, strict=True):
            self._places.append(len(values))
            values += [0, step, *end]
        self._values = [*values, 0]
        self.scratch_bytes, blocks = _scratch(code, context, functions, -(-covered.states // grid.states), size)
        offsets = tuple(tuple(size * x for x in offset) for offset in covered.offsets()) if 0 not in self.shape else ()
        self._launch = _Launch(tuple(f.handle for f in functions), blocks, offsets)
        self._function, self._driver = own.function, context.driver
        self._grid, self._free = grid, list[_Arguments]()

    @staticmethod
    def _functions(code: GridCode, own: Signature, context: Context, contiguous: list[bool]) -> list[Function]:
        loaded = code.loaded(context)
        if all(contiguous):
            return loaded.rows
        if not code.grid.has_strided:
            name = (*own.names, "out")[contiguous.index(False)]
            raise InputError(
                f"{own.function}: the numbers of one state of {name} are not contiguous in memory; "
                f"this kernel takes contiguous ones only: copy {name} first"
            )
        return loaded.strided

    def launch(self, pointers: Sequence[int], stream: int, scratch: int) -> None:
        """Puts the work on a stream; the context is current."""
        # Not shared while it is filled and read, by threads or by handlers of signals.
        try:
            own = self._free.pop()
        except IndexError:
            own = _Arguments(self._values)
        values, grid = own.values, self._grid
        values[-1] = scratch
        handles, blocks, all_offsets = self._launch
        try:
            for offsets in all_offsets:
                for place, pointer, offset in zip(self._places, pointers, offsets, strict=True):
                    values[place] = pointer + offset
                for handle in handles:
                    self._driver.cuLaunchKernel(
                        *(handle, blocks, grid.groups, 1, grid.threads, 1, 1),
                        *(grid.shared_bytes, stream, own.addresses, None),
                    )
        except DeviceError as error:
            raise DeviceError(f"{self._function}: {error}", error.code) from None
        self._free.append(own)


class Operands(NamedTuple):
    """Shapes and strides, in numbers, of inputs and perhaps the output, and the batch axes."""

    batch: Shape
    shapes: tuple[Shape, ...]
    strides: tuple[Shape, ...]
    itemsize: int


def _scratch(code: GridCode, context: Context, functions: list[Function], blocks: int, size: int) -> tuple[int, int]:
    """Bytes of scratch memory and the blocks along x: no more than fit in the budget, and than run at a time."""
    grid, device = code.grid, context.device
    blocks = max(1, min(blocks, _MAX_BLOCKS))
    block_bytes = grid.scratch_numbers * grid.threads * grid.groups * size
    if block_bytes:
        budget = min(MOST_SCRATCH_BYTES, device.memory_bytes // _SCRATCH_SHARE)
        at_a_time = -(-max(f.blocks for f in functions) * device.processors // grid.groups)
        blocks = max(1, min(blocks, budget // block_bytes, at_a_time))
    return block_bytes * blocks, blocks
