"""Simulation with a fixed step: the whole loop over time compiled, batched over states, controls and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.compiler.ir.step_program import Layout, Step
from qddot.compiler.runtime.kernel import Kernel
from qddot.compiler.runtime.time_stepping import OfSamples
from qddot.compiler.targets import registry as targets
from qddot.compiler.targets.target import Target
from qddot.dynamics.catalogue import lookup
from qddot.dynamics.choose import cheapest
from qddot.dynamics.conditioning import guarded
from qddot.dynamics.engine import HasEngine
from qddot.dynamics.input_checks import count, finite, positive
from qddot.dynamics.pipeline import program_of, time_loop_of, unknowns
from qddot.dynamics.request import dtype_name
from qddot.dynamics.trace import filling, with_traced_inertias
from qddot.errors import InputError, KernelTooLargeError, one_name, unexpected, unknown
from qddot.mechanism import parameters
from qddot.mechanism.array_axes import JointIndex
from qddot.progress import Loop
from qddot.scalars import split, stack
from qddot.simulation import arguments, joint_forces
from qddot.simulation.arguments import RolloutOptions
from qddot.simulation.calls import Calls
from qddot.simulation.integrators import INTEGRATORS, State
from qddot.simulation.limits import limit_law
from qddot.simulation.system import Law, Plan, System

Array = NDArray[Any]
MAX_INLINE_OPS = 6000  # of a step: above, its derivative is a function of its own that every stage calls


class Progress(NamedTuple):
    """How far a rollout has come: the number of steps done, and of each sample (q, v) and what its integrator remembers."""

    step: int
    state: Array


class Rollout:
    """A simulation that is set up once and run in as many pieces as one likes: pieces give the bits of an unbroken run.

    A user's functions (`controls`, `forces`, `prescribed`) are recorded now; what they refer to is read now, and changes
    afterwards are not seen.
    """

    def __init__(
        self,
        robot: HasEngine,
        controls: ArrayLike | Law | None = None,
        *,
        dt: float,
        **options: Unpack[RolloutOptions],
    ) -> None:
        for name in options:
            if name not in RolloutOptions.__annotations__:
                raise unexpected("Rollout", name, ("dt", *RolloutOptions.__annotations__))
        engine, model = robot.engine, robot.engine.model
        if model.nv == 0:
            raise InputError(f"robot {model.name!r} has no degrees of freedom, so there is nothing to simulate")
        integrator = options.get("integrator", "rk4")
        if not isinstance(integrator, str) or integrator not in INTEGRATORS:
            raise unknown("integrator", integrator, INTEGRATORS, "qddot")
        self.robot, self.engine, self.model, self.integrator = robot, engine, model, integrator
        self.dt, self.t0 = positive(dt, "dt"), finite(options.get("t0", 0.0), "t0")
        self.dtype = dtype_name(options.get("dtype", "float64"))  # of states, controls and parameters; time is float64
        self.target = one_name(options.get("target", "cpu"), "target")
        self.is_on_host = self._made_for.kind == "cpu"
        law, held = arguments.controls(model, controls, options.get("inputs"))
        self.free, values = arguments.free(model, options.get("free"))
        self.held, self.values = held.astype(self.dtype, copy=False), [x.astype(self.dtype, copy=False) for x in values]
        weights = arguments.law_parameters(law, options.get("parameters"))
        self.weights = weights.astype(self.dtype, copy=False)  # (..., n): the parameters of the law, none where n is zero
        motion = arguments.motion(model, options.get("prescribed"))
        keep = arguments.keeping(engine, options.get("constraints", "projection"), options.get("gains"))
        n_held, self._is_array = self.held.shape[-1], law is arguments.as_given
        sizes = (model.nq, model.nv, *(n for n in (n_held, self.weights.shape[-1]) if n))
        tape = None if law is None else arguments.recorded("controls", law, (model.nv,), sizes)
        extra = arguments.forces(model, options.get("forces", ()), self._parameters)
        self.plan = Plan(tape, n_held, extra, motion, *keep, limit_law(model, options.get("limits", "ignore")))
        self._supported()

    def _supported(self) -> None:
        implicit = INTEGRATORS[self.integrator].implicit
        special = "loops and constraints" if self.plan.rows else "prescribed motion" if self.plan.motion else ""
        if implicit and special:
            raise InputError(f"integrator {self.integrator!r} does not do {special}; take 'rk4'")
        if self.dtype != "float64" and (implicit or not self.engine.compiled):
            what = f"integrator {self.integrator!r} solves equations" if implicit else "a robot that is not compiled steps"
            raise InputError(f"{what} in float64 only; take dtype='float64'{', or rk4' if implicit else ''}")
        if not self.is_on_host and not self.engine.compiled:
            raise InputError(f"target={self.target!r} is for compiled robots; Robot(model) is one")
        arguments.fitting_mobility(self.model, len(self.plan.rows), len(self.plan.motion or ()))
        self.engine.solvability.require_mass(tuple(self.plan.motion or ()))

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that results depend on, beside the robot, the start and the arrays that are given."""
        from qddot.version import __version__

        plan = self.plan
        places = JointIndex(self.model, "v").items()
        motion: Mapping[Any, Any] = plan.motion or {}
        joints = {name: motion[k].digest for name, k in places if not isinstance(k, slice) and k in motion}
        return {
            "integrator": self.integrator,
            "dt": self.dt,
            "t0": self.t0,
            "controls": plan.law.digest if plan.law else None,
            "forces": [f.digest for f in plan.forces],
            "prescribed": joints,
            "free": list(self.free),
            "constraints": "projection" if plan.project else "baumgarte" if plan.gains else "none",
            "gains": plan.gains,
            "rows": plan.rows,  # of the constraints that are kept
            **plan.limits.facts,
            "dtype": self.dtype,
            "arithmetic": ("fused" if self._made_for.fma else "not fused") if self.engine.compiled else "python",
            "target": self._made_for.kind,  # on a card, angles beyond 1e5 rad have other last bits
            "qddot": __version__,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Functions are tapes by now, and travel; machine code does not, and is compiled again where it is used."""
        stays = ("engine", "_loops", "_steps", "_forces_kernel")
        return {name: x for name, x in self.__dict__.items() if name not in stays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.engine = self.robot.engine

    # ---- running

    def start(self, q0: ArrayLike, v0: ArrayLike) -> Progress:
        """The state before the first step, with the batch axes of all inputs."""
        q, v = self.engine.checks.all("simulate", ("q", "v"), (q0, v0))
        if q.dtype.kind != "f" or v.dtype.kind != "f":
            raise InputError("simulate: q0 and v0 must hold real numbers")
        values = [(x, len(shape)) for x, shape in zip(self.constants, self.constant_shapes.values(), strict=True)]
        axes = [q.shape[:-1], v.shape[:-1], self.held.shape[:-2], *(x.shape[: x.ndim - n] for x, n in values)]
        try:
            batch = np.broadcast_shapes(*axes)
        except ValueError:
            what = "q0, v0, controls, parameters and free"
            raise InputError(f"the batch axes of {what} do not fit together: {axes}") from None
        arguments.fitting_start(self.engine, self._system(()), self.t0, q, v)
        past = [np.zeros((*batch, n)) for n in (*self._past, self._n_costs)]
        parts = [np.broadcast_to(x, (*batch, x.shape[-1])) for x in (q, v)]
        return Progress(0, np.concatenate([*parts, *past], axis=-1, dtype=self.dtype))

    def fits_in_memory(self, rows: int, start: Progress, way_out: str) -> None:
        """Refuses to begin a run whose states, forces and times would not fit into memory."""
        numbers = prod(start.state.shape[:-1]) * (self.model.nq + 2 * self.model.nv) + 1
        needed, there = np.dtype(self.dtype).itemsize * rows * numbers, arguments.memory()
        if needed > there:
            raise InputError(
                f"{rows:,} states of {prod(start.state.shape[:-1]):,} samples take {needed / 1e9:,.0f} GB, and there are "
                f"{there / 1e9:,.0f} GB of memory; {way_out}"
            )

    def run(
        self, progress: Progress, steps: int, record: int = 1, *, with_start: bool = False
    ) -> tuple[Progress, Array, Array]:
        """So many steps further: the new progress, and q and v after every `record`-th step, counted from the very first.

        `with_start` puts the states that it starts from in front of them.
        """
        steps, record = count(steps, "steps"), count(record, "record")
        begin, state = progress
        batch = state.shape[:-1]
        if self.held.shape[-1] and begin + steps > self.held.shape[-2]:
            raise InputError(f"controls are given for {self.held.shape[-2]} steps; {begin + steps} are needed")
        rows = (begin + steps) // record - begin // record
        self.fits_in_memory(rows + with_start, progress, "record fewer steps, or run fewer at a time")
        n = self.model.nq + self.model.nv
        flat = np.ascontiguousarray(state.reshape(-1, state.shape[-1]), dtype=self.dtype)
        records = np.empty((len(flat), rows + with_start, n), self.dtype)
        records[:, :with_start] = flat[:, None, :n]
        if len(flat):
            flat = self._advance(flat, *self.arrays(batch), begin, steps, record, records[:, with_start:])
        records = records.reshape(*batch, rows + with_start, n)
        q, v = records[..., : self.model.nq], records[..., self.model.nq :]
        return Progress(begin + steps, flat.reshape(state.shape)), q, v

    def _advance(
        self, state: Array, held: Array, values: Array, begin: int, steps: int, record: int, records: Array
    ) -> Array:
        run = self._eagerly if not self.engine.compiled else self._compiled
        first = min(steps, max(0, INTEGRATORS[self.integrator].start_steps - begin))
        at, what = begin, f"simulating {len(state):,} of {self.model.name!r}"
        slow = 1 if self.engine.compiled else 1000  # a step in Python counts as so many
        with Loop(what, steps, samples=len(state) * slow) as loop:
            for starting, several in ((True, first), (False, steps - first)):
                for n in loop.pieces(several):
                    rows = slice(at // record - begin // record, (at + n) // record - begin // record)
                    window = held[:, at : at + n]
                    state = run(starting, state, window, values, at, n, record, records[:, rows])
                    at += n
        return state

    @property
    def _made_for(self) -> Target:
        return targets.named(self.target)

    def lanes(self, samples: int) -> int:
        """SIMD lanes of the loop for so many samples."""
        return 1 if samples == 1 else self._made_for.lanes(self.dtype)

    def _compiled(
        self, starting: bool, state: Array, held: Array, values: Array, first: int, steps: int, every: int, records: Array
    ) -> Array:
        loop, times = self._loop(starting, self.lanes(len(state))), (self.dt, self.t0)
        return loop(state, held, values, times=times, first=first, steps=steps, every=every, records=records)

    # ---- tracing

    @cached_property
    def _parameters(self) -> tuple[parameters.Parameter, ...]:
        return parameters.parameters(self.model, self.free)

    @property
    def constant_shapes(self) -> dict[str, tuple[int, ...]]:
        """What stays the same in a sample, by name: the parameters of the law, and those of the model that are free."""
        law = {"parameters": self.weights.shape[-1:]} if self.weights.shape[-1] else {}
        return {**law, **{p.name: p.shape for p in self._parameters}}

    @property
    def constants(self) -> list[Array]:
        """The values of these, with batch axes of their own."""
        return [*([self.weights] if self.weights.shape[-1] else []), *self.values]

    @cached_property
    def _past(self) -> tuple[int, ...]:
        return INTEGRATORS[self.integrator].past(self.model.nq, self.model.nv)

    @property
    def _n_costs(self) -> int:
        return int(self.plan.cost is not None)

    @property
    def _chosen(self) -> tuple[str, bool, int]:
        """The formulation of the dynamics that makes for the fewest operations, and how many."""
        needs = {**self.plan.needs, **({"free": self.free} if self.free else {}), "dtype": self.dtype}
        key = ("formulation", self.plan.function, *needs.items())
        if key not in self.engine.kept:
            choice = cheapest(self.model, self.plan.function, "auto", **needs)
            self.engine.kept[key] = choice.method, choice.sums, len(choice.program.body)
        return self.engine.kept[key]

    @property
    def _sizes(self) -> list[int]:
        """Of the step's inputs: state, (t, dt), held inputs, parameters."""
        n = self.model.nq + self.model.nv + sum(self._past) + self._n_costs
        return [n, 2, self.held.shape[-1], *map(prod, self.constant_shapes.values())]

    def _loop(self, starting: bool, lanes: int) -> OfSamples:
        if self._has_functions:
            return self._own_loop(starting, lanes)
        plan = self.plan
        key: tuple[Any, ...] = ("rollout", self.integrator, starting, lanes, self.dtype, self.target, self.free)
        key = (*key, plan.n_held, plan.rows, plan.gains, plan.project, plan.limits)
        found = self.engine.kept.get(key)
        if found is None:
            found = self.engine.kept[key] = self._own_loop(starting, lanes)
        return found

    @property
    def _has_functions(self) -> bool:
        """Whether a user's functions are traced with it, which may depend on anything."""
        own_law = self.plan.law is not None and not self._is_array
        return own_law or bool(self.plan.forces) or bool(self.plan.motion)

    @cached_property
    def _loops(self) -> dict[Any, OfSamples]:
        return {}

    def _own_loop(self, starting: bool, lanes: int) -> OfSamples:
        if (starting, lanes) not in self._loops:
            what = f"{self.integrator} of {self.model.name!r}"
            self._loops[starting, lanes] = time_loop_of(what, *self.traced(starting, lanes), self.target)
        return self._loops[starting, lanes]

    def traced(self, starting: bool = False, lanes: int = 1) -> tuple[Step, Layout]:
        """One step as a program, or one of the first steps of a method that has others, and what its inputs are."""
        n, _, held, *values = self._sizes
        try:
            step = self._traced_step(starting)
        except KernelTooLargeError as error:
            raise KernelTooLargeError(f"{error}; Robot(model, compiled=False) steps in Python") from None
        return step, Layout(n, held, sum(values), self.model.nq + self.model.nv, lanes, dtype=self.dtype)

    def arrays(self, batch: tuple[int, ...]) -> tuple[Array, Array]:
        """Held inputs and parameters of all samples of a batch, with one batch axis."""
        return arguments.flat(self.held, 2, batch), arguments.joined(
            self.constants, list(self.constant_shapes.values()), batch, self.dtype
        )

    def _traced_step(self, starting: bool) -> Step:
        """One program, or for large robots one that calls its derivative, whose code then is there once for all stages."""
        if starting not in self._steps:
            what, sizes = f"a step of {self.integrator} of {self.model.name!r}", self._sizes
            graph, (x, clock, u, *values) = unknowns(sizes)
            is_large = self._is_large(starting)
            calls = Calls(what, graph, sum(sizes), sizes[2:], self._traced_system) if is_large else None
            system = replace(self._traced_system(graph, u, *values), calls=calls)
            after = self._step(starting, system, x, *clock)
            self._steps[starting] = (
                Step(program_of(what, graph, graph.nodes_of(after), sum(sizes))) if calls is None else calls.step(after)
            )
        return self._steps[starting]

    @cached_property
    def _steps(self) -> dict[bool, Step]:
        return {}

    def _is_large(self, starting: bool) -> bool:
        found = INTEGRATORS[self.integrator]
        times = found.start_evaluations if starting and found.start is not None else found.evaluations
        return times > 1 and times * self._chosen[2] > MAX_INLINE_OPS

    def _traced_system(self, graph: Any, u: Array, *values: Array) -> System:
        method, sums, _ = self._chosen
        model, (weights, values) = self.model, self._law_and_model(values)
        own = parameters.substitute(model, self._parameters, values)
        fill = filling(model, lookup(self.plan.function, method)[0], method, self._parameters, dtype=self.dtype)
        filled = with_traced_inertias(fill(values), graph)
        return System(self.plan, own, filled, method, sums, u if len(u) else None, weights, values)

    def _system(self, values: Sequence[Array]) -> System:
        """On floats, by the first formulation there is."""
        weights, values = self._law_and_model(values)
        model = guarded(parameters.substitute(self.model, self._parameters, values) if values else self.model)
        return System(self.plan, model, model, weights=weights, values=values)

    def _law_and_model(self, values: Sequence[Array]) -> tuple[Array | None, tuple[Array, ...]]:
        """The parameters of the law, and the values of the model's that are free."""
        has_law = bool(self.weights.shape[-1]) and len(values) > 0
        return (values[0] if has_law else None), tuple(values[1:] if has_law else values)

    def _step(self, starting: bool, system: System, x: Array, t: Any, h: Any) -> Array:
        """One step of one sample; x is q, v, what the integrator remembers, and the cost so far where there is one."""
        q, v, *past, spent = np.split(x, np.cumsum([self.model.nq, self.model.nv, *self._past]))
        spent = spent + system.cost(t, q, v) if self._n_costs else spent
        found = INTEGRATORS[self.integrator]
        step = found.start if starting and found.start is not None else found.step
        made = step(system, t, State(q, v, tuple(past)), h)
        q, v = system.settle(t + h, made.q, made.v)
        return stack([y for part in (q, v, *made.past, spent) for y in split(part)])

    def _eagerly(
        self, starting: bool, state: Array, held: Array, values: Array, first: int, steps: int, every: int, records: Array
    ) -> Array:
        """The same steps in Python, sample by sample: to read, to debug, and for robots that cannot be compiled."""
        out = state.copy()
        for k, x in enumerate(out):
            own, row = self._system(self._apart(values[k])), 0
            for j in range(first, first + steps):
                u = held[k, j - first] if self.held.shape[-1] else None
                try:
                    with np.errstate(all="ignore"):
                        x = self._step(starting, replace(own, held=u), x, self.t0 + j * self.dt, self.dt)
                except ZeroDivisionError:
                    x = np.full_like(x, np.nan)
                if (j + 1) % every == 0:
                    records[k, row] = x[: records.shape[-1]]
                    row += 1
            out[k] = x
        return out

    def _apart(self, values: Array) -> list[Array]:
        """The parameters of one sample, one by one."""
        sizes = list(map(prod, self.constant_shapes.values()))
        return np.split(values, np.cumsum(sizes)[:-1]) if sizes else []

    # ---- joint forces

    def forces_at(self, steps: Array, q: Array, v: Array) -> Array:
        """The joint forces that act at these steps, (..., T, nv), for states (..., T, nq) and (..., T, nv)."""
        width = self.held.shape[-1]
        u = self.held[..., np.minimum(steps, self.held.shape[-2] - 1), :] if width else np.zeros((1, 0))
        return self.forces_of(u, steps, q, v)

    def forces_of(self, u: Array, steps: Array, q: Array, v: Array) -> Array:
        """The same for other held inputs, (..., T, n)."""
        return joint_forces.evaluated(self, u, (self.t0 + self.dt * steps)[:, None], q, v)

    @cached_property
    def _forces_kernel(self) -> Kernel:
        return joint_forces.kernel(self)
