"""Steps as long as the motion allows: SciPy's DOP853, Radau and LSODA on compiled derivatives, with events.

y = (q, v), ẏ = (q̇, v̇). The right-hand side and its exact Jacobian ∂ẏ/∂y, found by differentiating the traced
operations, are kernels. Quaternions leave the unit sphere by no more than the tolerance, and what is returned is made unit.
Samples of a batch are integrated one after another, each with its own steps. Needs the extra [sim].
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qddot.dynamics.engine import HasEngine
from qddot.errors import InputError, QddotWarning, outside
from qddot.mechanism.configurations import normalize
from qddot.progress import Progress
from qddot.scalars import stack

if TYPE_CHECKING:
    from qddot.compiler.ir.expr import Graph
    from qddot.compiler.runtime.kernel import Kernel
    from qddot.simulation.rollout import Rollout

Array = NDArray[Any]
METHODS = ("DOP853", "Radau", "LSODA")
_IMPLICIT = ("Radau", "LSODA")


@dataclass(frozen=True)
class Event:
    """A number that changes its sign: function(t, q, v). `direction` as in SciPy: +1 rising, -1 falling, 0 both."""

    name: str
    function: Callable[[float, Array, Array], float]
    terminal: bool = False
    direction: float = 0.0


def joint_limits(robot: HasEngine, terminal: bool = True) -> list[Event]:
    """An event for each end of each joint of one degree of freedom that has one: positive inside."""
    out, model = [], robot.engine.model
    for i, _ in model.outward():
        if model.mimic[i] is not None or model.joint[i].nq != 1:
            continue
        k = model.slots[i].q.start
        for end, bound, sign in (("lower", model.limits[i].lower[0], 1.0), ("upper", model.limits[i].upper[0], -1.0)):
            if np.isfinite(bound):
                out.append(Event(f"{model.joint_names[i]} {end}", _distance(k, float(bound), sign), terminal, -1.0))
    return out


def _distance(k: int, bound: float, sign: float) -> Callable[[float, Array, Array], float]:
    return lambda t, q, v: sign * (q[k] - bound)


def solve(
    rollout: Rollout,
    method: str,
    start: Array,
    times: Array,
    *,
    rtol: float,
    atol: float,
    events: Sequence[Event],
) -> tuple[Array, Array, dict[str, Any]]:
    """q and v at these times, NaN after a terminal event or where a sample got stuck, and facts of the run."""
    try:
        from scipy.integrate import solve_ivp
    except ImportError as missing:
        raise InputError(f"integrator {method!r} is SciPy's: pip install 'qddot[sim]'") from missing
    batch, nq = start.shape[:-1], rollout.model.nq
    out = np.full((*batch, len(times), start.shape[-1]), np.nan)
    found: list[dict[str, Any]] = []
    evaluations = 0
    kernels = _kernels(rollout, method) if rollout.engine.compiled else None
    samples = prod(batch)
    for n, k in enumerate(np.ndindex(batch)):
        if not np.isfinite(start[k]).all():
            found.append({})
            continue
        flow, jacobian = _functions(rollout, kernels, k)
        more = {"jac": jacobian} if method in _IMPLICIT and jacobian is not None else {}
        hooks = [_hook(e, nq) for e in events]
        span = (float(times[0]), float(times[-1]))
        with Progress(f"simulating {n + 1} of {samples} of {rollout.model.name!r} by {method}") as line:
            watched = _watched(flow, line, span, n, samples)
            done = solve_ivp(watched, span, start[k], method, times, events=hooks, rtol=rtol, atol=atol, **more)
        if done.status < 0:
            why = (
                f"integrator {method!r} stopped after t = {done.t[-1] if len(done.t) else span[0]:g}: {done.message} "
                f"Is the motion finite? Otherwise take a larger rtol, or an implicit method"
            )
            if not batch:
                raise InputError(why)
            warnings.warn(f"sample {k}: {why}", QddotWarning, stacklevel=outside())
        out[(*k, slice(len(done.t)))] = done.y.T
        evaluations += int(done.nfev)
        found.append(_found(events, done, nq))
    q, v = normalize(rollout.model, out[..., :nq]), out[..., nq:]
    return q, v, {"evaluations": evaluations, "events": found if batch else found[0]}


def _watched(
    flow: Callable[..., Array], line: Progress, span: tuple[float, float], sample: int, samples: int
) -> Callable[..., Array]:
    """The derivative that says, each time it is asked, how far in time the integrator has come."""
    begin, length = span[0], max(span[1] - span[0], 1e-300)

    def function(t: float, y: Array) -> Array:
        line.done = (sample + (t - begin) / length) / samples
        return flow(t, y)

    return function


def _hook(event: Event, nq: int) -> Any:
    def function(t: float, y: Array) -> float:
        return float(event.function(t, y[:nq], y[nq:]))

    function.terminal, function.direction = event.terminal, event.direction  # type: ignore[attr-defined]
    return function


def _found(events: Sequence[Event], done: Any, nq: int) -> dict[str, list[dict[str, Any]]]:
    """By name, the times and states at which an event happened."""
    out: dict[str, list[dict[str, Any]]] = {}
    for event, times, states in zip(events, done.t_events or [], done.y_events or [], strict=True):
        rows = [{"t": float(t), "q": y[:nq], "v": y[nq:]} for t, y in zip(times, states, strict=True)]
        out.setdefault(event.name, []).extend(rows)
    return out


# ---- kernels -----------------------------------------------------------------------------------------------------------


def _functions(rollout: Rollout, kernels: Any, k: tuple[int, ...]) -> tuple[Callable[..., Array], Any]:
    """ẏ(t, y) and ∂ẏ/∂y of one sample."""
    values = [
        x[tuple(0 if n == 1 else j for j, n in zip(k[len(k) - (x.ndim - len(shape)) :], x.shape, strict=False))]
        for x, shape in zip(rollout.constants, rollout.constant_shapes.values(), strict=True)
    ]
    if kernels is None:
        return _in_python(rollout, values)
    flow, slopes = kernels
    return lambda t, y: flow(y, np.array([t]), *values), lambda t, y: slopes(y, np.array([t]), *values)


def _in_python(rollout: Rollout, values: Sequence[Array]) -> tuple[Callable[..., Array], Any]:
    """SciPy then finds the Jacobian by differences."""
    system = rollout._system([x.reshape(-1) for x in values])
    return (lambda t, y: system.flow(t, y)), None


def _kernels(rollout: Rollout, method: str) -> tuple[Kernel, Any]:
    from qddot.compiler.ir.differentiate import forward
    from qddot.compiler.ir.expr import Expr
    from qddot.dynamics.pipeline import kernel_of, unknowns

    n = rollout.model.nq + rollout.model.nv
    shapes = [(n,), (1,), *rollout.constant_shapes.values()]
    names = ("y", "t", *rollout.constant_shapes)

    def traced() -> tuple[Graph, Array]:
        graph, (y, t, *values) = unknowns([prod(s) for s in shapes])
        return graph, rollout._traced_system(graph, np.empty(0), *values).flow(t[0], y)

    what = f"the derivative of {rollout.model.name!r}"
    own = kernel_of(what, *traced(), names, shapes, (n,))
    if method not in _IMPLICIT:
        return own, None
    graph, flow = traced()
    rows = forward(graph, graph.nodes_of(flow), list(range(n)))
    slopes = stack([Expr(graph, x) for row in rows for x in row], (n, n))
    return own, kernel_of(f"the Jacobian of {what}", graph, slopes, names, shapes, (n, n))


def checked(events: Any) -> tuple[Event, ...]:
    """The events, or what is wrong with them."""
    given = (events,) if isinstance(events, Event) else events
    if not isinstance(given, Sequence):
        raise InputError(f"events: {events!r} is no list of qddot.simulation.Event")
    for e in given:
        if not isinstance(e, Event) or not callable(e.function):
            raise InputError(f"events: {e!r} is no qddot.simulation.Event; give Event(name, function(t, q, v))")
    return tuple(given)
