"""Simulations on a card whose states stay there: recorded into its memory, and brought to the host when they are read.

Starts, held controls and parameters may be arrays on the device, of any framework: controls are read where they are,
starts and parameters are copied within the device to where the loop reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime.cuda import arrays, operands
from qddot.compiler.runtime.cuda import context as contexts
from qddot.compiler.runtime.cuda.context import DEFAULT_STREAM, Context
from qddot.compiler.runtime.cuda.frameworks import View
from qddot.compiler.runtime.cuda.host_arrays import upload
from qddot.compiler.runtime.cuda.memory import Block
from qddot.compiler.runtime.cuda.operands import Rows
from qddot.compiler.runtime.cuda.time_stepping import GridTimeLoop
from qddot.errors import DeviceError, InputError
from qddot.mechanism import parameters
from qddot.mechanism.model import Model
from qddot.progress import Loop
from qddot.simulation import arguments, stiffness
from qddot.simulation.device_trajectory import DeviceTrajectory
from qddot.simulation.integrators import INTEGRATORS
from qddot.simulation.rollout import Rollout

Array = NDArray[Any]
Shape = tuple[int, ...]
CHECKED_STARTS = 4096  # the most configurations on the device whose quaternions are looked at


class Away(NamedTuple):
    """What was given on the device: held inputs, and by name what stays the same in a sample (`constant_shapes`)."""

    held: View | None
    constants: Mapping[str, View]


def taken(model: Model, controls: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any], Away]:
    """Controls and options with zeros of one sample in place of arrays on the device, and those arrays."""
    held, given = None, options.get("inputs")
    for what, x in (("controls", controls), ("inputs", given)):
        if x is not None and not callable(x) and (v := operands.on_device(x, what)) is not None:
            if len(v.shape) < 2:
                raise InputError(f"{what} has shape {v.shape}; it must be (..., steps, n), a row a step")
            held, zeros = v, np.zeros(v.shape[-2:])
            controls, given = (zeros, given) if what == "controls" else (controls, zeros)
    options = {**options, "inputs": given} if given is not None else options
    there: dict[str, View] = {}
    if (weights := options.get("parameters")) is not None and (v := operands.on_device(weights, "parameters")) is not None:
        if not v.shape:
            raise InputError("parameters have shape (); give an array (..., n) of at least one number")
        there["parameters"], options = v, {**options, "parameters": np.zeros(v.shape[-1:])}
    if isinstance(names := options.get("free"), Mapping):
        values = dict(names)
        for p in parameters.parameters(model, tuple(values)):
            if (v := operands.on_device(values[p.name], p.name)) is not None:
                there[p.name] = v
                if v.shape[len(v.shape) - len(p.shape) :] != p.shape:
                    raise InputError(f"{p.name} has shape {v.shape}; its last axes must be {p.shape}")
                values[p.name] = np.zeros(p.shape)
        options = {**options, "free": values}
    return controls, options, Away(held, there)


def run(
    rollout: Rollout, q0: Any, v0: Any, away: Away, numbers: tuple[int, int], info: Mapping[str, Any], has_limits: bool
) -> DeviceTrajectory:
    """The states of all samples on the device; `numbers` are the steps, and how many from one record to the next."""
    starts = [operands.on_device(x, name) for x, name in ((q0, "q0"), (v0, "v0"))]
    first = next((v for v in (*starts, away.held, *away.constants.values()) if v is not None), None)
    context, is_current = contexts.find(None if first is None else first.device)
    with nullcontext() if is_current else context:
        return _Run(rollout, context, away).trajectory([q0, v0], starts, *numbers, info, has_limits)


class _Run:
    """One run in a context that is current."""

    def __init__(self, rollout: Rollout, context: Context, away: Away) -> None:
        self.rollout, self.context, self.away, self.dtype = rollout, context, away, np.dtype(rollout.dtype)
        self.stream = context.streams()[0]
        self.blocks: list[Block] = []
        self.sizes = rollout.model.nq, rollout.model.nv
        self.n_state = sum(self.sizes) + sum(INTEGRATORS[rollout.integrator].past(*self.sizes))

    def trajectory(
        self,
        given: list[Any],
        starts: list[View | None],
        steps: int,
        every: int,
        info: Mapping[str, Any],
        has_limits: bool,
    ) -> DeviceTrajectory:
        rollout, context, stream, away = self.rollout, self.context, self.stream, self.away
        given, starts, batch = self._checked(given, starts)
        held = away.held.shape[-2] if away.held else rollout.held.shape[-2]
        if rollout.held.shape[-1] and steps > held:
            raise InputError(f"controls are given for {held} steps; {steps} are needed")
        n, rows = sum(self.sizes), steps // every + 1
        self._fits(prod(batch), rows, n)
        records = arrays.empty((*batch, rows, n), self.dtype, context)
        try:
            context.order(DEFAULT_STREAM, stream)
            if prod(batch):
                state = self._state(given, starts, batch)
                whole = Rows(records.pointer, (rows * n, n))
                operands.copy_rows(context, stream, state, whole, n, prod(batch), self.dtype.itemsize)
                self._advance(state, whole, batch, steps, every)
        except BaseException:
            with suppress(DeviceError):  # what is under way may still write to memory that goes now
                context.driver.cuStreamSynchronize(stream)
            raise
        finally:
            for block in self.blocks:
                context.pool.give(block, stream)
        known = away.held is None and not away.constants
        numbers = np.arange(0, steps + 1, every)
        return DeviceTrajectory(rollout, records, numbers, info, knows_tau=known, has_limits=has_limits)

    # ---- what is given

    def _checked(self, given: list[Any], starts: list[View | None]) -> tuple[list[Any], list[View | None], Shape]:
        """Starts, of which the host has all where they have to fit to something, and the batch axes of all inputs."""
        rollout, context = self.rollout, self.context
        if starts != [None, None] and (rollout.plan.rows or rollout.plan.motion):
            given = [x if v is None else operands.to_host(v, context) for x, v in zip(given, starts, strict=True)]
            starts = [None, None]
        axes = []
        if starts == [None, None]:
            start = rollout.start(*given)
            flat = start.state.reshape(-1, self.n_state)
            axes.append(start.state.shape[:-1])
            given = [flat[:, : self.sizes[0]], flat[:, self.sizes[0] : sum(self.sizes)]]
            if not self.away.constants:
                stiffness.warn(rollout, start)
        else:
            for k, (x, v) in enumerate(zip(given, starts, strict=True)):
                given[k] = self._host_start(k, x) if v is None else self._device_start(k, v)
                axes.append(np.shape(x)[:-1] if v is None else v.shape[:-1])
        axes.append(rollout.held.shape[:-2])
        axes += [x.shape[: len(x.shape) - n] for x, _, n in self._constants()]
        axes += [self.away.held.shape[:-2]] if self.away.held else []
        try:
            return given, starts, np.broadcast_shapes(*axes)
        except ValueError:
            raise InputError(
                f"the batch axes of q0, v0, controls, parameters and free do not fit together: {axes}"
            ) from None

    def _host_start(self, k: int, x: Any) -> Array:
        checks = self.rollout.engine.checks
        found = checks.v(x, "v0") if k else checks.q(x, "q0")
        if found.dtype.kind != "f":
            raise InputError("simulate: q0 and v0 must hold real numbers")
        return found.astype(self.dtype)

    def _device_start(self, k: int, v: View) -> View:
        name, n = ("q0", "v0")[k], self.sizes[k]
        checks = self.rollout.engine.checks
        checks.shaped(np.broadcast_to(0.0, v.shape), n, name, ("nq", "nv")[k])
        operands.check(v, name, self.rollout.dtype, self.context)
        if k == 0 and checks.with_quaternions and 0 not in v.shape:
            some = max(1, CHECKED_STARTS // max(1, prod(v.shape[1:-1])))
            first = v if len(v.shape) == 1 else v._replace(shape=(min(some, v.shape[0]), *v.shape[1:]))
            checks.q(operands.to_host(first, self.context), name)
        return v

    def _constants(self) -> list[tuple[Array | View, str, int]]:
        """What stays the same in a sample, where it was given: values, name, and how many axes a sample has of them."""
        shapes = self.rollout.constant_shapes
        given = zip(self.rollout.constants, shapes.items(), strict=True)
        return [(self.away.constants.get(name, x), name, len(shape)) for x, (name, shape) in given]

    def _fits(self, samples: int, rows: int, n: int) -> None:
        """Refuses to begin a run whose states do not fit into the card's memory."""
        needed = self.dtype.itemsize * samples * (rows * n + 2 * self.n_state)
        there = self.context.free_bytes()
        if needed > there:
            raise InputError(
                f"{rows:,} states of {samples:,} samples take {needed / 1e9:,.1f} GB on {self.context.device.name}, and "
                f"{there / 1e9:,.1f} GB are free there; keep fewer states (record=…), run fewer samples at a time, or run "
                "it in pieces (Rollout) or into a folder (simulation.recorded), whose states come to the host"
            )

    # ---- what the loop reads

    def _state(self, given: list[Any], starts: list[View | None], batch: Shape) -> Rows:
        """The states that it starts from, side by side."""
        samples, size = prod(batch), self.dtype.itemsize
        out = Rows(self._room(samples * self.n_state), (self.n_state,))
        parts = [*given, np.zeros((1, self.n_state - sum(self.sizes)), self.dtype)]
        place = 0
        for k, (x, name) in enumerate(zip(parts, ("q0", "v0", ""), strict=True)):
            width = x.shape[-1]
            source = self._rows(x, name, 1, batch) if k < 2 and starts != [None, None] else self._sent(x, samples)
            operands.copy_rows(
                self.context, self.stream, source, Rows(out.address + place * size, out.strides), width, samples, size
            )
            place += width
        return out

    def _rows(self, x: Any, what: str, axes: int, batch: Shape, apart: int = 0) -> Rows:
        """Rows of an array on the device or on the host, one for each sample at least where they are copied."""
        if not isinstance(x, View):
            return self._sent(arguments.flat(x, axes, batch).reshape(prod(batch), -1), prod(batch))
        operands.follow(x, self.context, self.stream)
        found = operands.rows_of(x, what, axes, batch, apart)
        if found.strides[0] == 0 and not apart:  # copies of rows want each to be there
            one = operands.to_host(x, self.context)
            return self._sent(arguments.flat(one, axes, batch).reshape(prod(batch), -1), prod(batch))
        return found

    def _sent(self, x: Array, samples: int) -> Rows:
        """A copy on the device of rows on the host, one for each sample."""
        host = np.ascontiguousarray(np.broadcast_to(x, (samples, x.shape[-1])), self.dtype)
        self.blocks.append(upload(host, self.context, self.stream))
        return Rows(self.blocks[-1].address, (x.shape[-1],))

    def _room(self, numbers: int) -> int:
        self.blocks.append(self.context.pool.take(numbers * self.dtype.itemsize, self.stream))
        return self.blocks[-1].address

    def _values(self, batch: Shape) -> Rows:
        """Parameters of the law and of the model, side by side; those of one name where they are."""
        samples, size, place, given = prod(batch), self.dtype.itemsize, 0, self._constants()
        if not given:
            return Rows(self._room(1), (0,))
        for x, name, _ in given:
            if isinstance(x, View):
                operands.check(x, name, self.rollout.dtype, self.context)
        widths = list(map(prod, self.rollout.constant_shapes.values()))
        rows = [self._rows(x, name, axes, batch) for x, name, axes in given]
        if len(rows) == 1:
            return rows[0]
        out = Rows(self._room(samples * sum(widths)), (sum(widths),))
        for source, width in zip(rows, widths, strict=True):
            target = Rows(out.address + place * size, out.strides)
            operands.copy_rows(self.context, self.stream, source, target, width, samples, size)
            place += width
        return out

    # ---- the loop

    def _advance(self, state: Rows, records: Rows, batch: Shape, steps: int, every: int) -> None:
        """All steps; `records` begins with the states at the start."""
        rollout, samples, at = self.rollout, prod(batch), 0
        states, values = (state, Rows(self._room(samples * self.n_state), (self.n_state,))), self._values(batch)
        held: Array | Rows = arguments.flat(rollout.held, 2, batch)
        if self.away.held is not None:
            operands.check(self.away.held, "controls", rollout.dtype, self.context)
            held = self._rows(self.away.held, "controls", 2, batch, apart=1)
        first = min(steps, INTEGRATORS[rollout.integrator].start_steps)
        row = records.strides[1] * self.dtype.itemsize
        with Loop(f"simulating {samples:,} of {rollout.model.name!r}", steps, samples=samples) as progress:
            for starting, several in ((True, first), (False, steps - first)):
                for count in progress.pieces(several):
                    loop = rollout._loop(starting, rollout.lanes(samples))
                    assert isinstance(loop, GridTimeLoop)
                    states = loop.on_device(
                        (self.context, self.stream),
                        states,
                        held.later(at, self.dtype.itemsize) if isinstance(held, Rows) else held[:, at : at + count],
                        values,
                        Rows(records.address + (1 + at // every) * row, records.strides),
                        samples=samples,
                        times=(rollout.dt, rollout.t0),
                        numbers=(at, count, every),
                    )
                    at += count
