"""A loop over time on a card: all samples through many steps in one launch, long runs in pieces that can be interrupted."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.ir.step_program import Layout
from qddot.compiler.runtime.cuda import context as contexts
from qddot.compiler.runtime.cuda.context import Context
from qddot.compiler.runtime.cuda.host_arrays import upload
from qddot.compiler.runtime.cuda.memory import Block
from qddot.compiler.runtime.cuda.modules import GridCode
from qddot.compiler.runtime.cuda.operands import Rows

Array = NDArray[Any]

_MAX_OPS_PER_LAUNCH = 50_000_000_000  # some 10 to 100 ms: displays do not time out, and an interruption is noticed
_MAX_OPS_PER_THREAD = 20_000_000  # of one launch: one thread alone does some 200 a microsecond
_MAX_RECORD_BYTES = 1 << 30  # of records that wait on the device for the end of a launch


class GridTimeLoop:
    """A compiled rollout on a card, called as `runtime.time_stepping.TimeLoop` is: arrays of the host in and out."""

    def __init__(self, code: GridCode, layout: Layout, instructions: int) -> None:
        self.layout, self.code = layout, code
        self._operations = max(1, instructions)

    def __call__(
        self,
        state: Array,
        held: Array,
        parameters: Array,
        *,
        times: tuple[float, float],
        first: int,
        steps: int,
        every: int,
        records: Array,
    ) -> Array:
        """The states after `steps` steps from number `first` on; `records` is filled. `times` are dt and that of step zero.

        `state` is (samples, n_state), `held` (samples, steps, n_held), `parameters` (samples, n_parameters); the latter two
        may be broadcast views.
        """
        context, is_current = contexts.find()
        if is_current:
            return self._run(context, state, held, parameters, times, (first, steps, every), records)
        with context:
            return self._run(context, state, held, parameters, times, (first, steps, every), records)

    def _run(
        self,
        context: Context,
        state: Array,
        held: Array,
        parameters: Array,
        times: tuple[float, float],
        numbers: tuple[int, int, int],
        records: Array,
    ) -> Array:
        """The same in a context that is current."""
        first, steps, every = numbers
        stream, done, rows = context.streams()[0], 0, 0
        blocks: list[Block] = []
        try:
            states = [self._uploaded(state, context, stream, blocks) for _ in range(2)]  # a piece begins where one ended
            own = self._uploaded(parameters, context, stream, blocks)
            room = context.pool.take(self._record_bytes(len(state), steps, every), stream)
            blocks.append(room)
            while done < steps:
                count = min(self._piece(len(state), every), steps - done)
                made = (first + done + count) // every - (first + done) // every
                window: list[Block] = []
                u = self._uploaded(held[:, done : done + count], context, stream, window)
                row = self.layout.n_recorded
                given = [len(state), *states[0], *u, *own, room.address, made * row, row, *states[1]]
                self._launch(context, stream, [*given, *_as_words(times[1], times[0]), count, first + done, every])
                if made:
                    found = np.empty((len(state), made, row), records.dtype)
                    records[:, rows : rows + made] = _downloaded(context, room.address, found)
                for block in window:
                    context.pool.give(block, stream)
                states.reverse()
                done, rows = done + count, rows + made
            return _downloaded(context, states[0][0], np.empty_like(state, order="C"))
        finally:
            for block in blocks:
                context.pool.give(block, stream)

    def on_device(
        self,
        place: tuple[Context, int],
        states: tuple[Rows, Rows],
        held: Array | Rows,
        parameters: Rows,
        records: Rows,
        *,
        samples: int,
        times: tuple[float, float],
        numbers: tuple[int, int, int],
    ) -> tuple[Rows, Rows]:
        """The same with arrays on the device, in a context that is current, on a stream that is waited for.

        The first of `states` is where it begins; both are written, and returned first is that of the end. `held` may lie on
        the host. `numbers` are the first step, how many steps, and how many between records.
        """
        context, stream = place
        first, steps, every = numbers
        begin, end = states
        done, rows = 0, 0
        while done < steps:
            count = min(self._work_piece(samples), steps - done)
            window: list[Block] = []
            try:
                if isinstance(held, Rows):
                    u = [held.later(done, self._size).address, *held.strides]
                else:
                    u = self._uploaded(held[:, done : done + count], context, stream, window)
                at = records.address + rows * records.strides[1] * self._size
                given = [samples, begin.address, *begin.strides, *u, parameters.address, *parameters.strides, at]
                given += [*records.strides, end.address, *end.strides, *_as_words(times[1], times[0])]
                self._launch(context, stream, [*given, count, first + done, every])
            finally:
                for block in window:
                    context.pool.give(block, stream)
            rows += (first + done + count) // every - (first + done) // every
            begin, end, done = end, begin, done + count
        return begin, end

    def _work_piece(self, samples: int) -> int:
        """Steps of one launch, by the time that it takes."""
        by_work = _MAX_OPS_PER_LAUNCH // (self._operations * samples)
        return max(1, min(by_work, _MAX_OPS_PER_THREAD // self._operations))

    def _piece(self, samples: int, every: int) -> int:
        """The same, if records are to wait on the device."""
        by_records = every * (_MAX_RECORD_BYTES // (samples * self.layout.n_recorded * self._size))
        return max(1, min(self._work_piece(samples), max(every, by_records)))

    def _record_bytes(self, samples: int, steps: int, every: int) -> int:
        rows = 1 + min(self._piece(samples, every), steps) // every
        return max(1, samples * rows * self.layout.n_recorded) * self._size

    @property
    def _size(self) -> int:
        return np.dtype(self.layout.dtype).itemsize

    def _uploaded(self, x: Array, context: Context, stream: int, blocks: list[Block]) -> list[int]:
        """An array on the device: its address, and the strides of all axes but the last, in numbers.

        An axis along which nothing changes is copied once, and has no stride.
        """
        repeated = [n > 1 and s == 0 for n, s in zip(x.shape, x.strides, strict=True)]
        once = np.ascontiguousarray(x[tuple(slice(0, 1) if r else slice(None) for r in repeated)], self.layout.dtype)
        blocks.append(upload(once, context, stream))
        strides = [0 if r else prod(once.shape[k + 1 :]) for k, r in enumerate(repeated[:-1])]
        return [blocks[-1].address, *strides]

    def _launch(self, context: Context, stream: int, words: Sequence[int]) -> None:
        grid, (function,) = self.code.grid, self.code.loaded(context).rows
        values = (ctypes.c_int64 * len(words))(*words)
        begin = ctypes.addressof(values)
        addresses = (ctypes.c_void_p * len(words))(*(begin + 8 * k for k in range(len(words))))
        blocks = -(-words[0] // grid.threads)
        context.driver.cuLaunchKernel(
            *(function.handle, blocks, 1, 1, grid.threads, 1, 1), *(grid.shared_bytes, stream, addresses, None)
        )
        context.driver.cuStreamSynchronize(stream)


def _downloaded(context: Context, address: int, host: Array) -> Array:
    """An array filled from the device, where all work on it is done."""
    if host.nbytes:
        context.driver.cuMemcpyDtoH_v2(host.ctypes.data, address, host.nbytes)
    return host


def _as_words(*numbers: float) -> list[int]:
    """Doubles as the 64-bit words that a launch copies."""
    return [struct.unpack("<q", struct.pack("<d", x))[0] for x in numbers]
