"""What a study computes of a block of samples: rollouts with their measures, or a user's function of arrays."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.dynamics.input_checks import count
from qddot.errors import InputError, QddotError, shown
from qddot.mechanism import parameters
from qddot.robot import Robot
from qddot.simulation import arguments, stiffness
from qddot.simulation.rollout import Rollout
from qddot.study.measures import NAME, Measure, States
from qddot.study.outcome import Failure

Array = NDArray[Any]
Factory = Callable[..., Any]

_BLOCK_BYTES = 32_000_000  # of the states of samples that are computed together
_BLOCK_BYTES_OF_CARDS = 1_000_000_000  # a card is full with a million of samples
MOST_REASON = 500  # characters of what an exception says
ROBOT, STARTS, HELD = "robot", ("q0", "v0"), ("inputs", "controls")


@dataclass(frozen=True)
class Setups:
    """The robots of a study: one, one of a list by number, or what a factory makes of some of the values."""

    given: Robot | tuple[Robot, ...] | Factory | None
    names: tuple[str, ...] = ()  # of the values that choose it

    def robot(self, values: Mapping[str, Array]) -> tuple[Robot, dict[str, Any]]:
        """The robot for one sample's values, and options of its simulation."""
        if isinstance(self.given, tuple):
            k = float(values[ROBOT])
            if not (k.is_integer() and 0 <= k < len(self.given)):
                raise InputError(f"the space has robot {k:g}; there are {len(self.given)}, counted from 0")
            return self.given[int(k)], {}
        if isinstance(self.given, Robot) or self.given is None:
            return self.given, {}  # type: ignore[return-value]
        chosen = {name: values[name].item() if values[name].ndim == 0 else values[name] for name in self.names}
        made = self.given(**chosen)
        robot, options = made if isinstance(made, tuple) and len(made) == 2 else (made, {})
        if not isinstance(robot, Robot) or not isinstance(options, Mapping):
            raise InputError(f"the factory gives {shown(made)}; it must give a Robot, or a Robot and a dict of options")
        return robot, dict(options)

    def groups(self, values: Mapping[str, Array]) -> Iterator[Array]:
        """The samples that have a robot in common, group by group."""
        n = len(next(iter(values.values())))
        if not self.names:
            yield np.arange(n)
            return
        keys = np.column_stack([values[name].reshape(n, -1) for name in self.names])
        _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        for k in np.argsort(first):
            yield np.flatnonzero(which.reshape(-1) == k)

    @property
    def facts(self) -> Any:
        """Everything that they depend on; a factory by its name and code."""
        if isinstance(self.given, Robot):
            return self.given.model.digest
        if isinstance(self.given, tuple):
            return [robot.model.digest for robot in self.given]
        return None if self.given is None else code_facts(self.given)


def setups(given: Any, names: Sequence[str]) -> Setups:
    """Robot, list of robots or factory as a user gives them, for a space of these names."""
    if isinstance(given, Robot) or given is None:
        return Setups(given)
    if isinstance(given, Sequence) and given and all(isinstance(r, Robot) for r in given):
        if ROBOT not in names:
            raise InputError("a study of several robots needs their numbers in its space, such as {'robot': Grid([0, 1])}")
        return Setups(tuple(given), (ROBOT,))
    if not callable(given):
        raise InputError(f"the robot of a study is {shown(given)}; give a Robot, a list of them, or a function of values")
    takes = inspect.signature(given).parameters.values()
    chosen = tuple(p.name for p in takes if p.name in names)
    if missing := [p.name for p in takes if p.name not in names and p.default is p.empty and p.kind not in (2, 4)]:
        raise InputError(f"the factory {given!r} takes {', '.join(missing)}, which the space does not have")
    return Setups(given, chosen)


def code_facts(function: Any) -> dict[str, Any]:
    """What a function is, as far as its code says; what it refers to cannot be seen."""
    code = getattr(function, "__code__", None) or getattr(type(function).__dict__.get("__call__"), "__code__", None)
    parts = [] if code is None else _code_parts(code)
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    return {"function": name.removeprefix("__main__."), "code": hashlib.sha256(repr(parts).encode()).hexdigest()}


def _code_parts(code: Any) -> list[Any]:
    constants = [_code_parts(x) if inspect.iscode(x) else _constant(x) for x in code.co_consts]
    return [code.co_code.hex(), constants, code.co_names, code.co_varnames]


def _constant(x: Any) -> str:
    return repr(sorted(map(repr, x))) if isinstance(x, frozenset) else repr(x)  # the order of a set is another every time


@dataclass
class Rollouts:
    """Simulations of a block of samples, and their measures."""

    setups: Setups
    measures: tuple[Measure, ...]
    steps: int
    every: int
    options: Mapping[str, Any]  # of `Rollout`, with "controls" and "dt"
    prepared: Rollout | None = None  # of the one robot there is, its functions recorded: it travels
    example: Mapping[str, Any] = field(default_factory=dict)  # the identity of the first sample's rollout
    block = 8  # samples that chunks are multiples of: SIMD lanes

    def __post_init__(self) -> None:
        self._kept: dict[Any, Rollout] = {}

    def __getstate__(self) -> dict[str, Any]:
        own: dict[str, Any] = {} if self.prepared is None else {"options": {}}  # its functions need not travel
        return {**self.__dict__, "_kept": {}, **own}

    def together(self, samples: int) -> int:
        """How many samples are computed at a time, for their states are all in memory."""
        nq_nv = 64 if self.prepared is None else self.prepared.model.nq + 2 * self.prepared.model.nv
        rows = self.steps // self.every + 1
        most = _BLOCK_BYTES_OF_CARDS if self.is_for_cuda else _BLOCK_BYTES
        return min(samples, max(self.block, most // (8 * rows * nq_nv) // self.block * self.block))

    @property
    def is_for_cuda(self) -> bool:
        """Whether kernels run on a card: an engine gives each worker one of its own."""
        return str(self.options.get("target", getattr(self.prepared, "target", "cpu"))).startswith("cuda")

    def __call__(self, values: Mapping[str, Array], first: int) -> tuple[dict[str, Array], list[Failure]]:
        """The measures, and the samples that diverged."""
        out: dict[str, Array] = {}
        failures: list[Failure] = []
        n = len(next(iter(values.values())))
        for group in self.setups.groups(values):
            part = {name: x[group] for name, x in values.items()}
            rollout = self.rollout(part)
            arrays, lost = self._measured(rollout, part)
            failures += [Failure(first + int(group[k]), "diverged", why) for k, why in lost]
            for name, x in arrays.items():
                if out.setdefault(name, np.full((n, *x.shape[1:]), np.nan)).shape[1:] != x.shape[1:]:
                    raise InputError(f"measure {name!r} has another shape for another robot: {x.shape[1:]}")
                out[name][group] = x
        return out, sorted(failures)

    def rollout(self, values: Mapping[str, Array]) -> Rollout:
        """That of the samples' common robot, with their inputs and free parameters."""
        chosen = tuple(values[name][0].tobytes() for name in self.setups.names)
        found = self.prepared if self.prepared is not None else self._kept.get(chosen)
        if found is None:
            robot, more = self.setups.robot({name: values[name][0] for name in self.setups.names})
            found = self._kept[chosen] = self.made(robot, more, values)
        given = self._free(values)
        found.values = [np.asarray(x, dtype=found.dtype) for x in arguments.free(found.model, given)[1]]
        if held := [name for name in HELD if name in values]:
            found.held = np.asarray(self.held(values[held[0]]), dtype=found.dtype)
        return found

    def made(self, robot: Robot, more: Mapping[str, Any], values: Mapping[str, Array]) -> Rollout:
        """A new one, for one robot."""
        options = {**self.options, **more, **({"free": self._free(values)} if self._free(values) else {})}
        if "controls" in values:
            options["controls"] = self.held(values["controls"])
        elif "inputs" in values:
            options["inputs"] = self.held(values["inputs"])
        return Rollout(robot, options.pop("controls", None), dt=options.pop("dt"), **options)

    def _free(self, values: Mapping[str, Array]) -> dict[str, Array]:
        return {name: x for name, x in values.items() if name not in (*STARTS, *HELD, *self.setups.names)}

    def held(self, x: Array) -> Array:
        """Inputs of every step; those of a sample that are one row hold for all steps."""
        return np.broadcast_to(x[:, None], (len(x), self.steps, x.shape[-1])) if x.ndim == 2 else x

    def _measured(self, rollout: Rollout, values: Mapping[str, Array]) -> tuple[dict[str, Array], list[tuple[int, str]]]:
        start = rollout.start(*starts(rollout.robot, values))  # type: ignore[arg-type]
        after, q, v = rollout.run(start, self.steps, self.every, with_start=True)
        numbers = np.arange(0, self.steps + 1, self.every)
        free = {name: np.asarray(x, float) for name, x in zip(rollout.free, rollout.values, strict=True)}
        t = rollout.t0 + rollout.dt * numbers
        with np.errstate(all="ignore"):  # samples that diverged
            states = States(rollout.robot, t, q, v, rollout.forces_at(numbers, q, v), free)  # type: ignore[arg-type]
            arrays = {m.name: m.of(states) for m in self.measures}
        lost = []
        for k in np.flatnonzero(~np.isfinite(after.state).all(axis=-1)):
            fine = np.isfinite(q[k]).all(axis=-1) & np.isfinite(v[k]).all(axis=-1)
            when = t[int(np.argmin(fine))]
            lost.append((int(k), f"its state is not finite any more at t = {when:g} s"))
            for x in arrays.values():
                x[k] = np.nan
        return arrays, lost

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that results depend on, beside the values."""
        held = {} if self.prepared is None else _held_facts(self.prepared)
        own = {**self.example, **held}
        measures = {m.name: m.facts for m in self.measures}
        return {"robot": self.setups.facts, "steps": self.steps, "record": self.every, "measures": measures, **own}


def _held_facts(rollout: Rollout) -> dict[str, Any]:
    return {"held": hashlib.sha256(np.ascontiguousarray(rollout.held).tobytes()).hexdigest()} if rollout.held.size else {}


def starts(robot: Robot, values: Mapping[str, Array]) -> tuple[Array, Array]:
    """q0 and v0 of the samples; where they are not varied, neutral and at rest."""
    n = len(next(iter(values.values())))
    q = values["q0"] if "q0" in values else np.broadcast_to(robot.neutral(), (n, robot.nq))
    v = values["v0"] if "v0" in values else np.zeros((n, robot.nv))
    for name, x, width in (("q0", q, robot.nq), ("v0", v, robot.nv)):
        if x.shape[1:] != (width,):
            raise InputError(f"{name!r} of the space gives a sample {x.shape[1:]}; robot {robot.name!r} needs ({width},)")
    return q, v


@dataclass
class Calls:
    """A user's function of (robot, values) instead of a rollout; it gives a dictionary of arrays with a row a sample.

    It is given the same blocks of samples whatever the chunks are, so that its results may depend on what they are
    computed with.
    """

    setups: Setups
    function: Callable[..., Any]
    block: int
    is_for_cuda = False  # as far as can be seen

    def together(self, samples: int) -> int:
        """One block at a time."""
        return self.block

    def __call__(self, values: Mapping[str, Array], first: int) -> tuple[dict[str, Array], list[Failure]]:
        """What it gives, as float64."""
        n = len(next(iter(values.values())))
        out: dict[str, Array] = {}
        for group in self.setups.groups(values):
            part = {name: x[group] for name, x in values.items()}
            robot, _ = self.setups.robot({name: part[name][0] for name in self.setups.names})
            for name, x in self._checked(self.function(robot, part), len(group)).items():
                whole = out.setdefault(name, np.full((n, *x.shape[1:]), np.nan))
                whole[group] = x
        return out, []

    def _checked(self, given: Any, n: int) -> dict[str, Array]:
        if not isinstance(given, Mapping) or not given:
            raise InputError(f"the function gives {shown(given)}; it must give a dictionary of arrays with a row a sample")
        out = {}
        for name, x in given.items():
            array = np.asarray(x)
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise InputError(f"the function names a result {shown(name)}; take letters, digits, '_', '.' and '-'")
            if array.dtype.kind not in "fiub" or array.shape[:1] != (n,):
                raise InputError(f"result {name!r} is {array.dtype} {array.shape}; it must be real numbers, ({n}, ...)")
            out[name] = array.astype(float)
        return out

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that results depend on, as far as can be seen."""
        from qddot.version import __version__

        return {
            "robot": self.setups.facts,
            "function": code_facts(self.function),
            "batch": self.block,
            "qddot": __version__,
        }


Work = Rollouts | Calls


def rollouts(
    found: Setups,
    measures: tuple[Measure, ...],
    steps: Any,
    every: Any,
    options: Mapping[str, Any],
    values: Mapping[str, Array],
) -> Rollouts:
    """The work of a study of simulations; `values` are those of its first samples, which are checked."""
    steps, every = count(steps, "steps"), count(every, "record")
    if steps % every:
        raise InputError(f"record={every} does not divide the {steps} steps, so the end would not be recorded")
    if all(m.reduction == "last" for m in measures):
        every = steps  # nothing else is looked at
    if all(name in values for name in HELD):
        raise InputError("the space has both inputs and controls; inputs are for a law controls(t, q, v, u)")
    work = Rollouts(found, measures, steps, every, options)
    if not found.names:
        robot, _ = found.robot({})
        own = work._free(values)
        for p in parameters.parameters(robot.model, tuple(own)):  # a name that there is not is an error that lists them
            if own[p.name].shape[1:] != p.shape:
                raise InputError(f"{p.name!r} gives each sample {own[p.name].shape[1:]}; it must be {p.shape}")
        start = starts(robot, values)
        work.prepared = work.made(robot, {}, values)
        work.example = work.prepared.identity
        with suppress(InputError):  # of a sample that cannot be simulated: it is listed when its turn comes
            stiffness.warn(work.prepared, work.prepared.start(*start))
    else:
        with suppress(QddotError):  # of a first sample that cannot be: it is listed when its turn comes
            work.example = work.rollout({name: x[:1] for name, x in values.items()}).identity
    return work


def failed(error: Exception) -> str:
    """What an exception says, in one line."""
    text = (str(error).strip() or repr(error))[:MOST_REASON]
    return text if isinstance(error, QddotError) else f"{type(error).__name__}: {text}"
