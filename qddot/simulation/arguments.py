"""What a user gives to a simulation, looked over: functions, controls, parameters, motion, constraints."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import update_wrapper
from math import prod
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from qddot.dynamics.constrained_solver import solver_of
from qddot.dynamics.engine import Engine
from qddot.dynamics.input_checks import finite, real_numbers
from qddot.errors import InputError, shown
from qddot.mechanism import parameters
from qddot.mechanism.array_axes import JointIndex
from qddot.mechanism.model import Model
from qddot.simulation.forces import ExternalForce
from qddot.simulation.limits import Stops
from qddot.simulation.system import BAUMGARTE, Law, System
from qddot.spatial.tape import Tape, record

Array = NDArray[Any]
KEEPING = ("projection", "baumgarte", "none")
_USUAL_MEMORY = 64 * 2**30  # where a system does not say


class RolloutOptions(TypedDict, total=False):
    """The options of `Rollout` and `Robot.simulate` (docs/simulation.md)."""

    integrator: str
    inputs: ArrayLike | None
    parameters: ArrayLike | None
    forces: Law | Sequence[Law]
    prescribed: Mapping[str, Law] | None
    free: Mapping[str, ArrayLike] | None
    t0: float
    constraints: str
    gains: tuple[float, float] | None
    dtype: DTypeLike
    limits: str | Stops | Sequence[str | Stops]
    target: str


def as_given(t: Any, q: Array, v: Array, u: Array) -> Array:
    """The law of controls that are arrays in time."""
    return u


def memory() -> int:
    """Bytes that this process may hope for: those of the machine, or of the container that it runs in."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        machine = _USUAL_MEMORY
    try:
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):
        return machine


def recorded(role: str, function: Law, shape: tuple[int, ...], sizes: Sequence[int]) -> Tape:
    """A user's function of (t, …), which gives an array of this shape, as the tape that stands for it from now on."""
    name = getattr(function, "__name__", type(function).__name__)
    what = f"{role}: the function {name!r}"

    def run(t: Array, *vectors: Array) -> Array:
        rows = function(t[0], *vectors)
        try:
            result = np.asarray(rows)
        except ValueError:
            raise InputError(f"{what} gives a ragged list; it must be an array of shape {shape}") from None
        if result.shape != shape:
            raise InputError(f"{what} gives an array of shape {result.shape}; it must be {shape}")
        if result.dtype.kind not in "fiuO":
            raise InputError(f"{what} gives {result.dtype}; it must give real numbers")
        return result.reshape(-1)

    return record(what, run, (1, *sizes))


def forces(model: Model, given: Any, free: Sequence[parameters.Parameter]) -> tuple[Tape, ...]:
    """External forces by (t, q, v) and the parameters that are free, which those of `simulation.forces` see."""
    functions = (given,) if callable(given) else given
    if isinstance(given, Mapping):
        raise InputError("forces: for constant wrenches by name give qddot.simulation.forces.wrench(robot, {name: wrench})")
    if isinstance(functions, str) or not isinstance(functions, Iterable):
        raise InputError(f"forces: {given!r} is no function of (t, q, v), nor a list of such functions")
    sizes = [model.nq, model.nv, *(prod(p.shape) for p in free)]
    out = []
    for f in functions:
        if not callable(f):
            raise InputError(f"forces: {f!r} is no function of (t, q, v)")
        out.append(recorded("forces", _of_parameters(f, model, free), (model.n_links, 6), sizes))
    return tuple(out)


def _of_parameters(f: Law, model: Model, free: Sequence[parameters.Parameter]) -> Law:
    def run(t: Any, q: Array, v: Array, *values: Array) -> Any:
        return f.at(parameters.substitute(model, free, values), t, q, v) if isinstance(f, ExternalForce) else f(t, q, v)

    return update_wrapper(run, f) if hasattr(f, "__name__") else run


def controls(model: Model, controls: Any, inputs: Any) -> tuple[Law | None, Array]:
    """The law and the held inputs, (..., steps, n)."""
    nothing = np.empty((1, 0))
    if controls is None or callable(controls):
        if inputs is None:
            return controls, nothing
        if controls is None:
            raise InputError("inputs are what a function controls(t, q, v, u) is given, and there is none")
        return controls, _rows(inputs, None, "inputs")
    if inputs is not None:
        raise InputError("controls are an array already; inputs are for a function controls(t, q, v, u)")
    return as_given, _rows(controls, model.nv, "controls")


def law_parameters(law: Law | None, given: Any) -> Array:
    """The parameters of a law, (..., n), with n = 0 where it has none."""
    if given is None:
        return np.empty(0)
    if law is None or law is as_given:
        raise InputError("parameters are what a function controls(t, q, v, p) is given, and there is none")
    if isinstance(given, str | bytes | Mapping):
        raise InputError("parameters must be one array (..., n); take apart in the law what stands side by side in it")
    array = real_numbers(given, "parameters")
    if array.ndim == 0 or array.shape[-1] == 0:
        raise InputError(f"parameters have shape {array.shape}; give an array (..., n) of at least one number")
    return np.ascontiguousarray(array)


def _rows(x: Any, width: int | None, what: str) -> Array:
    if isinstance(x, str | bytes):
        raise InputError(f"{what} must be None, an array (..., steps, nv) or a function of (t, q, v)")
    array = real_numbers(x, what)
    if array.ndim < 2 or (width is not None and array.shape[-1] != width):
        wanted = f"(..., steps, {'n' if width is None else width})"
        raise InputError(f"{what} has shape {array.shape}; it must be {wanted}, a row a step")
    return np.ascontiguousarray(array)


def free(model: Model, free: Mapping[str, ArrayLike] | None) -> tuple[tuple[str, ...], list[Array]]:
    """Names and values of free parameters."""
    if free is not None and not isinstance(free, Mapping):
        raise InputError("free= takes names and values, such as {'link3.mass': [1.0, 1.2]}")
    names = tuple(free or ())
    values = [real_numbers((free or {})[name], name) for name in names]
    for p, x in zip(parameters.parameters(model, names), values, strict=True):
        if x.shape[x.ndim - len(p.shape) :] != p.shape:
            raise InputError(f"{p.name} has shape {x.shape}; its last axes must be {p.shape}")
    return names, values


def motion(model: Model, prescribed: Mapping[str, Law] | None) -> dict[int, Tape] | None:
    """The place in v of each prescribed joint, and its q(t)."""
    if prescribed is None:
        return None
    if not isinstance(prescribed, Mapping):
        raise InputError("prescribed= takes joints and their motion, such as {'joint1': lambda t: 0.5 * sin(t)}")
    out = {}
    for name, law in prescribed.items():
        places = model.dof_indices([name])
        if len(places) != 1 or model.joint[model.joint_index(name)].nq != 1:
            raise InputError(
                f"joint {name!r} has {len(places)} degrees of freedom; a motion q(t) can be prescribed to joints of one"
            )
        if not callable(law):
            raise InputError(f"the motion of joint {name!r} is {law!r}; it must be a function of t")
        out[places[0]] = recorded("prescribed", law, (), ())
    return dict(sorted(out.items())) or None


def fitting_mobility(model: Model, rows: int, driven: int) -> None:
    """Of a mechanism with loops no more joints can be driven than move independently."""
    left = model.nv - rows
    if rows and driven > left:
        raise InputError(
            f"robot {model.name!r} has a mobility of {left}, and the motion of {driven} joints is prescribed; "
            f"prescribe that of {left} at most, the others follow"
        )


def keeping(engine: Engine, constraints: str, gains: Any) -> tuple[tuple[int, ...], tuple[float, float] | None, bool]:
    """The rows of the constraints, Baumgarte's gains, whether to project."""
    if not isinstance(constraints, str) or constraints not in KEEPING:
        raise InputError(f"constraints={constraints!r} is not known; take {', '.join(map(repr, KEEPING))}")
    if not engine.model.is_constrained:
        if gains is not None:
            raise InputError(f"gains= are for robots with loops, and robot {engine.model.name!r} has none")
        return (), None, False
    if gains is not None and constraints != "baumgarte":
        raise InputError("gains= are those of constraints='baumgarte'")
    chosen = None
    if constraints == "baumgarte":
        pair = real_numbers(BAUMGARTE if gains is None else gains, "gains")
        if pair.shape != (2,):
            raise InputError(f"gains={shown(gains)}; give two numbers, (k_p, k_d)")
        chosen = (finite(pair[0], "k_p of gains"), finite(pair[1], "k_d of gains"))
    return solver_of(engine).rows, chosen, constraints == "projection"


def fitting_start(engine: Engine, system: System, t0: float, q: Array, v: Array) -> None:
    """Loops must be closed at the start, and prescribed joints where their motion begins."""
    driven = tuple(system.plan.motion or ())
    if system.plan.rows:
        run, solver = engine.evaluate, solver_of(engine)
        off = np.max(np.abs(run("constraint_residual", q)), initial=0.0)
        rate = np.max(np.abs((run("constraint_jacobian", q) @ v[..., None])[..., 0]), initial=0.0)
        if max(off, rate) > solver.open_limit:
            names = [n for n, at in JointIndex(engine.model, "v").items() if at in driven]
            holding = f", hold={names}" if driven else ""
            raise InputError(
                f"the loops of robot {engine.model.name!r} are open at the start by {off:.3g} and open with {rate:.3g} "
                f"a second, and {solver.open_limit:g} is allowed; take q0, _ = robot.close_loops(q0{holding}) and "
                f"v0 = robot.project_velocity(q0, v0{holding})"
            )
        if np.any(solver.needs_more_rows(q)):
            raise solver.more_rows_error("start from the neutral configuration's way of assembly")
        if driven and np.any(solver.hybrid_dependence(q, v, driven) > 1.0):
            raise InputError(
                f"the prescribed motion does not say how the other joints of robot {engine.model.name!r} move from this "
                f"start: its constraints depend on each other in them; prescribe other joints, or start elsewhere"
            )
    for k in system.plan.motion or {}:
        x, rate, _ = system._motion(k, t0)
        here = q[..., system._place(k)], v[..., k]
        if max(float(np.max(np.abs(here[0] - x))), float(np.max(np.abs(here[1] - rate)))) > 1e-9:
            joint = next(n for n, at in JointIndex(engine.model, "v").items() if at == k)
            raise InputError(
                f"the prescribed motion of joint {joint!r} begins at q = {x}, v = {rate}; let q0 and v0 do so too"
            )


def flat(x: Array, axes: int, batch: tuple[int, ...]) -> Array:
    """An array whose last axes are a sample's own, over all samples of a batch; where all share it, a view."""
    own = x.shape[x.ndim - axes :]
    if prod(x.shape[: x.ndim - axes]) == 1:
        return np.broadcast_to(x.reshape(1, *own), (prod(batch), *own))
    return np.ascontiguousarray(np.broadcast_to(x, (*batch, *own))).reshape(-1, *own)


def joined(values: Sequence[Array], shapes: Sequence[tuple[int, ...]], batch: tuple[int, ...], dtype: str) -> Array:
    """Parameters of all samples of a batch, side by side."""
    parts = [flat(x, len(shape), batch) for x, shape in zip(values, shapes, strict=True)]
    out = np.empty((prod(batch), sum(map(prod, shapes))), dtype)
    # `concatenate` would take over the strides of views, and time loops want rows that are contiguous
    return np.concatenate([x.reshape(len(x), -1) for x in parts], axis=1, out=out) if parts else out
