"""A compiled loop over time, ready to be called: batches over threads, long runs in pieces that can be interrupted."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.ir.step_program import Layout
from qddot.compiler.runtime.llvm_compile import Code, library_functions
from qddot.compiler.runtime.threads import in_parallel, split
from qddot.errors import InputError

Array = NDArray[Any]
Sizes = tuple[int, int, int]  # steps, the number of the first, how many between records

_MIN_OPS_PER_THREAD = 2_000_000  # some 100 µs, twenty times the cost of handing work to a thread
_MAX_OPS_PER_CALL = 1_000_000_000  # about a tenth of a second, after which an interruption is noticed


class TimeLoop:
    """A compiled rollout: many samples through many steps in one call, on as many threads as kernels may use."""

    def __init__(self, code: Code, layout: Layout, instructions: int) -> None:
        self.layout, self._code = layout, code
        self._operations = max(1, instructions)
        if code.address is None:
            raise InputError(f"time stepping: {code.obstacle}")
        self._function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(code.address)
        self._env = ctypes.addressof(library_functions())

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
        may be broadcast views. Every array is contiguous in its last axis.
        """
        state, done, rows = np.ascontiguousarray(state), 0, 0
        most = max(1, _MAX_OPS_PER_CALL // (self._operations * len(state)))
        while done < steps:
            count = min(most, steps - done)
            made = (first + done + count) // every - (first + done) // every
            piece = held[:, done : done + count], parameters, records[:, rows : rows + made]
            state = self._all_samples(state, *piece, times, (count, first + done, every))
            done, rows = done + count, rows + made
        return state

    def _all_samples(
        self, state: Array, held: Array, parameters: Array, records: Array, times: tuple[float, float], sizes: Sizes
    ) -> Array:
        out = np.empty_like(state)
        operations = len(state) * sizes[0] * self._operations
        edges = split(len(state), operations // _MIN_OPS_PER_THREAD, multiple=self.layout.lanes)

        def part(low: int, high: int) -> None:
            some = slice(low, high)
            self._some(state[some], held[some], parameters[some], records[some], out[some], times, sizes)

        if len(edges) == 2:
            part(*edges)
        else:
            in_parallel(part, edges)
        return out

    def _some(
        self,
        state: Array,
        held: Array,
        parameters: Array,
        records: Array,
        out: Array,
        times: tuple[float, float],
        sizes: Sizes,
    ) -> None:
        clock = np.array([0.0, 0.0, *times])
        scratch = np.empty(self.layout.scratch + 64, np.uint8)
        aligned = -(-scratch.ctypes.data // 64) * 64
        arrays = [state, held, parameters, records, out, clock]
        pointers = (ctypes.c_void_p * 7)(*(a.ctypes.data for a in arrays), aligned)
        numbers = (ctypes.c_int64 * 4)(len(state), *sizes)
        strides = [a.strides[0] for a in arrays[:5]] + [held.strides[1], records.strides[1]]
        self._function(pointers, numbers, (ctypes.c_int64 * 7)(*strides), self._env)
