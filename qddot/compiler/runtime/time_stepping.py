"""A compiled loop over time, ready to be called: batches over threads, long runs in pieces that can be interrupted."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.ir.step_program import Layout
from qddot.compiler.runtime.llvm_compile import Code, library_functions
from qddot.compiler.runtime.threads import in_parallel, split
from qddot.errors import InputError

Array = NDArray[Any]
Sizes = tuple[int, int, int]  # steps, the number of the first, how many between records

_MIN_OPS_PER_THREAD = 2_000_000  # some 100 µs, twenty times the cost of handing work to a thread
_NEVER = 2**62  # steps between records
_MAX_OPS_PER_CALL = 1_000_000_000  # about a tenth of a second, after which an interruption is noticed


class OfSamples(Protocol):
    """A loop over time, wherever it runs (`TimeLoop.__call__` says what it is given)."""

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
    ) -> Array: ...


class _Arguments(NamedTuple):
    """Those of the compiled function, and what they point to."""

    pointers: Any
    numbers: Any
    strides: Any
    keep: tuple[Array, ...]


class TimeLoop:
    """A compiled rollout: many samples through many steps in one call, on as many threads as kernels may use."""

    def __init__(self, code: Code, layout: Layout, instructions: int) -> None:
        self.layout, self._code = layout, code
        self._operations = max(1, instructions)
        if code.address is None:
            raise InputError(f"time stepping: {code.obstacle}")
        self._address = code.address
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
            piece = [held[:, done : done + count], parameters, records[:, rows : rows + made]]
            state = self._all_samples([state, *piece], times, (count, first + done, every))
            done, rows = done + count, rows + made
        return state

    def backwards(
        self,
        state: Array,
        held: Sequence[Array],
        parameters: Array,
        *,
        times: tuple[float, float],
        first: int,
        records: Array,
    ) -> Array:
        """The same for a loop backwards in time (`Layout.backwards`), through as many steps as `records` has rows.

        `first` is the highest number of them. All rows are in the order of time, and every step is recorded.
        """
        state, left = np.ascontiguousarray(state), records.shape[1]
        most = max(1, _MAX_OPS_PER_CALL // (self._operations * len(state)))
        while left:
            count = min(most, left)
            rows = slice(left - count, left)
            own, *further, made = (x[:, rows][:, ::-1] for x in (*held, records))
            state = self._all_samples([state, own, parameters, made], times, (count, first, 1), further)
            left, first = left - count, first - count
        return state

    def _all_samples(
        self, arrays: list[Array], times: tuple[float, float], sizes: Sizes, further: Sequence[Array] = ()
    ) -> Array:
        """For states, held inputs, parameters and records, and more held inputs: states at the end."""
        state = arrays[0]
        out = np.empty_like(state)
        operations = len(state) * sizes[0] * self._operations
        edges = split(len(state), operations // _MIN_OPS_PER_THREAD, multiple=self.layout.lanes)

        def part(low: int, high: int) -> None:
            own = [x[low:high] for x in (*arrays, out, *further)]
            self._run(self._arguments(own, times, sizes))

        if len(edges) == 2:
            part(*edges)
        else:
            in_parallel(part, edges)
        return out

    def _run(self, given: _Arguments) -> None:
        self._function(given.pointers, given.numbers, given.strides, self._env)

    def _arguments(self, arrays: list[Array], times: tuple[float, float], sizes: Sizes) -> _Arguments:
        """For states, held inputs, parameters, records, states at the end, and more held inputs."""
        arrays, further = arrays[:5], arrays[5:]
        clock = np.array([0.0, 0.0, *times])
        scratch = np.empty(self.layout.scratch + 64, np.uint8)
        aligned = -(-scratch.ctypes.data // 64) * 64
        addresses = *(a.ctypes.data for a in (*arrays, clock)), aligned, *(a.ctypes.data for a in further)
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        numbers = (ctypes.c_int64 * 4)(len(arrays[0]), *sizes)
        strides = [a.strides[0] for a in arrays] + [arrays[1].strides[1], arrays[3].strides[1]]
        strides += [n for a in further for n in a.strides[:2]]
        keep = (*arrays, clock, scratch, *further)
        return _Arguments(pointers, numbers, (ctypes.c_int64 * len(strides))(*strides), keep)

    def stepper(self, state: Array, held: Array, parameters: Array, times: tuple[float, float]) -> Callable[[int], None]:
        """A function that makes step number k of all samples in these arrays, in place, with nothing to look up.

        The arrays are as in a call, contiguous, with one row of `held` for each sample; their content may change from step
        to step. One sample keeps the interpreter's lock: to give it away takes as long as a step.
        """
        operations = len(state) * self._operations
        edges = split(len(state), operations // _MIN_OPS_PER_THREAD, multiple=self.layout.lanes)
        parts = {}
        for low, high in pairwise(edges):
            arrays = [x[low:high] for x in (state, held, parameters)]
            nowhere = np.empty((high - low, 0, self.layout.n_recorded), state.dtype)
            parts[low] = self._arguments([*arrays, nowhere, arrays[0]], times, (1, 0, _NEVER))
        if len(parts) == 1:
            return self._alone(parts[0], len(state) == 1)

        def step(k: int) -> None:
            for given in parts.values():
                given.numbers[2] = k
            in_parallel(lambda low, high: self._run(parts[low]), edges)

        return step

    def _alone(self, given: _Arguments, locked: bool) -> Callable[[int], None]:
        """The step of samples that one thread computes."""
        kind = ctypes.PYFUNCTYPE if locked else ctypes.CFUNCTYPE
        function, numbers = kind(None)(self._address), given.numbers
        addresses = [ctypes.c_void_p(ctypes.addressof(x)) for x in given[:3]]
        pointers, sizes, strides, env = *addresses, ctypes.c_void_p(self._env)

        def step(k: int) -> None:
            numbers[2] = k
            function(pointers, sizes, strides, env)

        step.keep = given, self._code  # type: ignore[attr-defined]  # as long as the function lives
        return step
