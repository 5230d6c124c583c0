"""What is kept of a simulation: a channel or a function of (t, q, v), reduced over time to a number or an array a sample.

Sums over time are made one after the other, so that the bits do not depend on how many samples are computed together.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.dynamics.pipeline import kernel_of, unknowns
from qddot.errors import InputError, shown, unknown
from qddot.robot import Robot
from qddot.simulation.trajectory import DERIVED, Trajectory
from qddot.spatial.tape import Tape, record

Array = NDArray[Any]
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # of a measure: it is a column of tables and the name of a file
POSITION = ".position"


def _summed(x: Array) -> Array:
    return np.cumsum(x, axis=1)[:, -1]  # in order, where np.sum would choose one by the shape


def _integral(t: Array, x: Array) -> Array:
    if len(t) < 2:
        return np.zeros(x[:, -1].shape)
    steps = np.diff(t).reshape(-1, *(1,) * (x.ndim - 2))
    return _summed(0.5 * (x[:, 1:] + x[:, :-1]) * steps)


def _first_time(t: Array, x: Array) -> Array:
    """When it is first greater than zero, on the straight line from the time before; NaN if never."""
    above = x > 0.0
    k = np.argmax(above, axis=1)
    x1, x0 = (np.take_along_axis(x, j[:, None], axis=1)[:, 0] for j in (k, np.maximum(k - 1, 0)))
    rise = x1 - x0
    part = np.where(rise > 0.0, x1 / np.where(rise > 0.0, rise, 1.0), 0.0)
    begin = t[np.maximum(k - 1, 0)]
    return np.where(above.any(axis=1), np.where(k > 0, t[k] - part * (t[k] - begin), t[0]), np.nan)


def _at(k: Array, x: Array, values: Array) -> Array:
    """Zeros of the shape of x, with values at the times k (n, ...)."""
    out = np.zeros(x.shape)
    np.put_along_axis(out, k[:, None], values[:, None], axis=1)
    return out


def _ends(t: Array, x: Array) -> Array:
    return _at(np.full(x[:, 0].shape, x.shape[1] - 1), x, np.ones(x[:, 0].shape))


def _largest(t: Array, x: Array) -> Array:
    return _at(np.argmax(x, axis=1), x, np.ones(x[:, 0].shape))


def _largest_abs(t: Array, x: Array) -> Array:
    k = np.argmax(np.abs(x), axis=1)
    return _at(k, x, np.sign(np.take_along_axis(x, k[:, None], axis=1)[:, 0]))


def _rms_slopes(t: Array, x: Array) -> Array:
    rms = REDUCTIONS["rms"].of(t, x)[:, None]
    return np.where(rms > 0.0, x / np.where(rms > 0.0, rms * x.shape[1], 1.0), 0.0)


def _integral_slopes(t: Array, x: Array) -> Array:
    steps = np.zeros(len(t) + 1)
    steps[1:-1] = np.diff(t)
    weights = 0.5 * (steps[1:] + steps[:-1])
    return np.broadcast_to(weights.reshape(-1, *(1,) * (x.ndim - 2)), x.shape)


def _first_time_slopes(t: Array, x: Array) -> Array:
    """Of the straight line that crosses zero; none where it is there from the start, NaN where it never is."""
    above: Array = np.asarray(x > 0.0)
    k = np.argmax(above, axis=1)
    before = np.maximum(k - 1, 0)
    x1, x0 = (np.take_along_axis(x, j[:, None], axis=1)[:, 0] for j in (k, before))
    share = np.where(x1 > x0, (t[k] - t[before]) / np.where(x1 > x0, x1 - x0, 1.0) ** 2, 0.0)
    slopes = _at(k, x, share * x0) + _at(before, x, -share * x1)
    return np.where(np.max(above, axis=1, keepdims=True), np.where(k[:, None] > 0, slopes, 0.0), np.nan)


class Reduction(NamedTuple):
    """Of times (T,) and values (n, T, ...): the result (n, ...), and its slopes with respect to the values."""

    of: Callable[[Array, Array], Array]
    slopes: Callable[[Array, Array], Array]


REDUCTIONS: dict[str, Reduction] = {
    "last": Reduction(lambda t, x: x[:, -1], _ends),
    "min": Reduction(lambda t, x: np.min(x, axis=1), lambda t, x: _largest(t, -x)),
    "max": Reduction(lambda t, x: np.max(x, axis=1), _largest),
    "max_abs": Reduction(lambda t, x: np.max(np.abs(x), axis=1), _largest_abs),
    "mean": Reduction(lambda t, x: _summed(x) / x.shape[1], lambda t, x: np.full(x.shape, 1.0 / x.shape[1])),
    "rms": Reduction(lambda t, x: np.sqrt(_summed(x * x) / x.shape[1]), _rms_slopes),
    "integral": Reduction(_integral, _integral_slopes),
    "first_time": Reduction(_first_time, _first_time_slopes),
}


@dataclass(frozen=True)
class Traced:
    """A function of (t, q, v), or of (t, q, v, tau), as its operations."""

    name: str
    tape: Tape
    shape: tuple[int, ...]

    def over(self, states: States) -> Array:
        """(n, T, *shape)."""
        out = np.asarray(self._kernel(*_inputs(states)))
        return out.reshape(*out.shape[:-1], *self.shape)

    def slopes(self, states: States, weights: Array) -> tuple[Array, Array, Array]:
        """The gradients of the sum of weights (n, T, *shape) times values, with respect to q, v and tau."""
        flat = weights.reshape(*states.q.shape[:-1], -1)
        row = np.asarray(self._slopes_kernel(*_inputs(states), np.ascontiguousarray(flat)))
        nq, nv = states.q.shape[-1], states.v.shape[-1]
        return row[..., :nq], row[..., nq : nq + nv], row[..., nq + nv :]

    @cached_property
    def _kernel(self) -> Any:
        graph, _, out, names, shapes = self._traced()
        return kernel_of(f"measure {self.name}", graph, out, names, shapes, (len(out),))

    @cached_property
    def _slopes_kernel(self) -> Any:
        from qddot.compiler.ir.differentiate import vjp
        from qddot.compiler.ir.expr import Expr

        graph, (x, u, _, force, weights), out, names, shapes = self._traced(weights=True)
        nodes = [n for vector in (x, u, force) for n in graph.nodes_of(vector)]
        found = vjp(graph, graph.nodes_of(out), nodes, graph.nodes_of(weights))
        row = np.array([Expr(graph, n) for n in found], dtype=object)
        return kernel_of(f"slopes of measure {self.name}", graph, row, names, shapes, (len(row),))

    def _traced(self, weights: bool = False) -> tuple[Any, Any, Array, tuple[str, ...], list[tuple[int, ...]]]:
        t, q, v, tau = self.tape.sizes
        sizes = [q, v, t, tau, *([prod(self.shape)] if weights else [])]
        graph, vectors = unknowns(sizes)
        x, u, clock, force = vectors[:4]
        out = np.array(self.tape(clock, x, u, force), dtype=object)
        return graph, vectors, out, ("q", "v", "t", "tau", "weights")[: len(sizes)], [(n,) for n in sizes]

    def __getstate__(self) -> dict[str, Any]:
        return {k: x for k, x in self.__dict__.items() if not k.endswith("_kernel")}


@dataclass(frozen=True)
class Measure:
    """A channel by its name, or a traced function, and what is made of it over time."""

    name: str
    source: str | Traced
    reduction: str

    def of(self, states: States) -> Array:
        """A number or an array for each sample, in float64."""
        return np.asarray(REDUCTIONS[self.reduction].of(states.t, self.over(states)), dtype=float)

    def over(self, states: States) -> Array:
        """What is reduced, (n, T, ...)."""
        return states.channel(self.source) if isinstance(self.source, str) else self.source.over(states)

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that it depends on."""
        source = self.source if isinstance(self.source, str) else {"function": self.source.tape.digest}
        return {"of": source, "reduced": self.reduction}


@dataclass
class States:
    """Simulated states of n samples, (n, T, ...), with the values of their free parameters."""

    robot: Robot
    t: Array
    q: Array
    v: Array
    tau: Array
    free: Mapping[str, Array] = field(default_factory=dict)

    def channel(self, name: str) -> Array:
        """As `Trajectory` has it, but of each sample's own robot; and "FRAME.position" in the world."""
        if name == "energy":
            return self.channel("kinetic_energy") + self.channel("potential_energy")
        if name.endswith(POSITION):
            return self._evaluated("pose", self.q, frame=name.removesuffix(POSITION))[..., :3, 3]
        if name in DERIVED:
            arrays = (self.q, self.v) if name in ("kinetic_energy", "momentum") else (self.q,)
            x = self._evaluated("constraint_residual" if name == "constraint_drift" else name, *arrays)
            return np.max(np.abs(x), axis=-1) if name == "constraint_drift" else x
        return Trajectory(self.robot, self.t, self.q, self.v, tau=self.tau)[name]

    def _evaluated(self, function: str, *arrays: Array, **static: Any) -> Array:
        if not self.free:
            return np.asarray(self.robot.engine.evaluate(function, *arrays, **static))
        kernel = self.robot.kernel(function, free=tuple(self.free), **static)
        return np.asarray(kernel(*arrays, *[x[:, None] for x in self.free.values()]))


def _inputs(states: States) -> list[Array]:
    clock = np.broadcast_to(states.t[:, None], (*states.q.shape[:-1], 1))
    return [np.ascontiguousarray(x, dtype=float) for x in (states.q, states.v, clock, states.tau)]


def made(given: Any, robot: Robot) -> tuple[Measure, ...]:
    """Measures as a user names them: "energy", "max:tau", ("integral", function), or a function."""
    if not isinstance(given, Mapping) or not given:
        raise InputError(
            f"the measures are {shown(given)}; give names and what is measured, such as {{'energy': 'energy'}}"
        )
    lowered = [str(name).lower() for name in given]
    out = []
    for name, what in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or lowered.count(name.lower()) > 1:
            raise InputError(f"a measure is called {shown(name)}; take letters, digits, '_', '.' and '-', each name once")
        out.append(_measure(name, what, robot))
    return tuple(out)


def _measure(name: str, what: Any, robot: Robot) -> Measure:
    reduction, source = "last", what
    if isinstance(what, str):
        head, sign, tail = what.partition(":")
        reduction, source = (head, tail) if sign and head in REDUCTIONS else ("last", what)
    elif isinstance(what, Sequence) and len(what) == 2:
        reduction, source = what
    if reduction not in REDUCTIONS:
        raise unknown("reduction over time", str(reduction), REDUCTIONS, f"measure {name!r}")
    if isinstance(source, str):
        _must_know(robot, source)
        return Measure(name, source, reduction)
    if callable(source):
        return Measure(name, _traced(name, source, robot), reduction)
    raise InputError(f"measure {name!r} is {shown(what)}; give a channel, a function of (t, q, v), or (reduction, either)")


def _must_know(robot: Robot, channel: str) -> None:
    if channel.endswith(POSITION) and channel.removesuffix(POSITION) in (*robot.frame_names, *robot.link_names):
        return
    q, zero = robot.neutral()[None], np.zeros((1, robot.nv))
    nothing = Trajectory(robot, np.zeros(1), q, zero, tau=zero)
    if channel not in nothing.names:
        _ = nothing[channel]  # raises with the names that come near


def _traced(name: str, function: Callable[..., Any], robot: Robot) -> Traced:
    try:
        takes = len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        takes = 3
    if takes not in (3, 4):
        raise InputError(
            f"measure {name!r}: its function takes {takes} arguments; it must take (t, q, v) or (t, q, v, tau)"
        )
    shapes: list[tuple[int, ...]] = []

    def run(t: Array, q: Array, v: Array, tau: Array) -> Array:
        x = np.asarray(function(t[0], q, v, tau) if takes == 4 else function(t[0], q, v))
        shapes.append(x.shape)
        return x.reshape(-1)

    tape = record(f"measure {name!r}", run, (1, robot.nq, robot.nv, robot.nv))
    if not prod(shapes[-1]):
        raise InputError(f"measure {name!r}: its function gives nothing")
    return Traced(name, tape, shapes[-1])
