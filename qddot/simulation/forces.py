"""External forces f(t, q, v) -> (n_links, 6), to be traced with the dynamics: the papers' f^x, F^ext.

A force is any function of the time, the coordinates and the velocities of one state that gives the force (m, f) on each
moving link in its own frame, as `forward_dynamics` takes them. These here act at points and frames by name; a user's own
can be put together from `at_point`. All of them are zero on the world, which does not move. Their methods `forces` and
`slopes` give what they are at given states, for the functions of `Robot`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.algorithms import dual_derivatives
from qddot.algorithms.kinematics import link_poses, link_velocities
from qddot.compiler.runtime.kernel import Kernel, Shape
from qddot.dynamics.engine import HasEngine
from qddot.dynamics.input_checks import finite, real_numbers
from qddot.dynamics.named_forces import check_axes, moving_frame
from qddot.dynamics.pipeline import kernel_of, unknowns
from qddot.errors import InputError, shown
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, less, sqrt, stack, where
from qddot.spatial import Ad_inv_T, Force, Transform, force
from qddot.spatial.rotation import Vec, add, cross, dot, scale, sub

Array = NDArray[Any]
_TINY = 1e-30  # m²/s²: keeps the slope of a root finite where nothing moves


@dataclass(frozen=True)
class ExternalForce:
    """A force that knows its robot: f(t, q, v), and with numbers of the model as they are in a sample, `at`."""

    model: Model
    at: Callable[[Model, Scalar, Array, Array], Array]

    def __call__(self, t: Scalar, q: Array, v: Array) -> Array:
        """(n_links, 6), in body frames."""
        return self.at(self.model, t, q, v)

    def forces(self, robot: HasEngine, q: ArrayLike, v: ArrayLike, t: float = 0.0) -> Array:
        """What acts at given states, (..., n_links, 6): the `f_ext` of all functions of `Robot`."""
        return self._evaluated(robot, "forces", (6,), q, v, t)

    def slopes(self, robot: HasEngine, q: ArrayLike, v: ArrayLike, t: float = 0.0) -> tuple[Array, Array]:
        """How that changes with q and v, each (..., n_links, 6, nv): the `df_ext_dq` and `df_ext_dv` of derivatives."""
        both = self._evaluated(robot, "slopes", (6, 2 * robot.engine.model.nv), q, v, t)
        return both[..., : robot.engine.model.nv], both[..., robot.engine.model.nv :]

    def _evaluated(self, robot: HasEngine, what: str, own: Shape, q: ArrayLike, v: ArrayLike, t: float) -> Array:
        """For the links of a robot, which may have other numbers than the one that the force was made for."""
        model, checks = robot.engine.model, robot.engine.checks
        if model.link_names != self.model.link_names or model.joint_names != self.model.joint_names:
            raise InputError(
                f"this force is of robot {self.model.name!r}, whose links and joints are not those of {model.name!r}; "
                f"make it again for that robot"
            )
        x, u, now = *checks.all(what, ("q", "v"), (q, v)), np.array([finite(t, "t")])
        function = _forces_at if what == "forces" else _slopes_at
        if not robot.engine.compiled:
            batch = np.broadcast_shapes(x.shape[:-1], u.shape[:-1])
            x, u = (np.broadcast_to(y, (*batch, y.shape[-1])) for y in (x, u))
            out = np.empty((*batch, model.n_links, *own), np.result_type(x, u))
            for k in np.ndindex(batch):
                out[k] = function(self, model, now, x[k], u[k])
            return out
        if (model, what) not in self._kernels:
            sizes = [(model.nq,), (model.nv,), (1,)]
            graph, (a, b, c) = unknowns([n for (n,) in sizes])
            traced = function(self, model, c, a, b)
            name, shape = f"the {what} of an external force on {model.name!r}", (model.n_links, *own)
            self._kernels[model, what] = kernel_of(name, graph, traced, ("q", "v", "t"), sizes, shape)
        return np.asarray(self._kernels[model, what](x, u, now))

    @cached_property
    def _kernels(self) -> dict[Any, Kernel]:
        return {}


def _forces_at(own: ExternalForce, model: Model, t: Array, q: Array, v: Array) -> Array:
    return own.at(model, t[0], q, v)


def _slopes_at(own: ExternalForce, model: Model, t: Array, q: Array, v: Array) -> Array:
    """(n_links, 6, 2 nv): with respect to q, in the tangent space, and v."""

    def run(model: Model, q: Array, v: Array) -> Array:
        return own.at(model, t[0], q, v)

    return np.concatenate([dual_derivatives.by(run, model, (q, v), which) for which in (0, 1)], axis=-1)


class Point(NamedTuple):
    """A point fixed to a link: the link, and where it is in the link's frame."""

    link: int
    r: Vec


def point(robot: HasEngine, frame: str, position: Sequence[float] = (0.0, 0.0, 0.0)) -> Point:
    """A point given in the coordinates of a link or frame."""
    found = robot.engine.model.frame(frame)
    if len(position) != 3 or not np.all(np.isfinite(np.asarray(position, dtype=float))):
        raise InputError(f"the position {position!r} in frame {frame!r} must be three finite numbers")
    x, y, z = (float(c) for c in position)
    T = found.placement
    return Point(found.link, add(T.R @ (x, y, z), T.p))


class _Moving:
    """Where points are in the world, and how fast, at one state."""

    def __init__(self, model: Model, q: Array, v: Array) -> None:
        self.T, self.V = link_poses(model, q), link_velocities(model, q, v)

    def position(self, p: Point) -> Vec:
        T = self.T[p.link]
        return add(T.R @ p.r, T.p)

    def velocity(self, p: Point) -> Vec:
        V = self.V[p.link]
        return self.T[p.link].R @ add(V.v, cross(V.w, p.r))

    def push(self, p: Point, f: Vec) -> Force:
        """A force in the world's axes at a point, in the frame of its link."""
        own = self.T[p.link].R.T @ f
        return Force(cross(p.r, own), own)


def at_point(
    robot: HasEngine, frame: str, law: Callable[[Scalar, Vec, Vec], Vec], position: Sequence[float] = (0.0, 0.0, 0.0)
) -> ExternalForce:
    """The force law(t, x, ẋ) at a point, by where it is in the world and how fast it moves, all in the world's axes."""
    p = point(robot, frame, position)

    def pushed(model: Model, t: Scalar, q: Array, v: Array) -> Array:
        here = _Moving(model, q, v)
        x, y, z = law(t, here.position(p), here.velocity(p))
        return _gathered(model, [(p.link, here.push(p, (x, y, z)))])

    return ExternalForce(robot.engine.model, pushed)


def wrench(robot: HasEngine, wrenches: Mapping[str, ArrayLike], expressed_in: str = "frame") -> ExternalForce:
    """Constant wrenches (moment, force) on frames and links by name; `expressed_in` as in `Robot.link_forces`."""
    check_axes(expressed_in)
    chosen = []
    for name, given in wrenches.items():
        found, numbers = moving_frame(robot.engine.model, name), real_numbers(given, f"the wrench on {name!r}")
        if numbers.shape != (6,) or not np.isfinite(numbers).all():
            raise InputError(f"the wrench on {name!r} is {shown(given)}; give six finite numbers, moment and force")
        chosen.append((found, force(numbers.tolist())))

    def pushed(model: Model, t: Scalar, q: Array, v: Array) -> Array:
        if expressed_in == "link":
            return _gathered(model, [(found.link, F) for found, F in chosen])
        if expressed_in == "frame":
            return _gathered(model, [(found.link, Ad_inv_T(found.placement, F)) for found, F in chosen])
        T = link_poses(model, q)
        aligned = [Transform(T[found.link].R.T, found.placement.p) for found, _ in chosen]
        return _gathered(model, [(found.link, Ad_inv_T(X, F)) for X, (found, F) in zip(aligned, chosen, strict=True)])

    return ExternalForce(robot.engine.model, pushed)


def spring(
    robot: HasEngine,
    frame_a: str,
    frame_b: str,
    stiffness: float,
    *,
    length: float = 0.0,
    damping: float = 0.0,
    position_a: Sequence[float] = (0.0, 0.0, 0.0),
    position_b: Sequence[float] = (0.0, 0.0, 0.0),
) -> ExternalForce:
    """A spring and damper between two points: k (|d| - length) along d, and c times the rate of |d|.

    With length zero it is k d + c ḋ, which is smooth also where the points meet.
    """
    a, b = point(robot, frame_a, position_a), point(robot, frame_b, position_b)
    for what, number in (("stiffness", stiffness), ("damping", damping), ("length", length)):
        _at_least_zero(what, number)

    def pulled(model: Model, t: Scalar, q: Array, v: Array) -> Array:
        here = _Moving(model, q, v)
        d, rate = sub(here.position(b), here.position(a)), sub(here.velocity(b), here.velocity(a))
        if length == 0.0:
            f = add(scale(stiffness, d), scale(damping, rate))
        else:
            far = sqrt(dot(d, d))
            f = scale((stiffness * (far - length) + damping * dot(d, rate) / far) / far, d)
        return _gathered(model, [(a.link, here.push(a, f)), (b.link, here.push(b, scale(-1.0, f)))])

    return ExternalForce(robot.engine.model, pulled)


def wind(
    robot: HasEngine, velocity: Sequence[float] | Callable[[Scalar], Sequence[Scalar]], drag: dict[str, float]
) -> ExternalForce:
    """Quadratic drag at the centres of mass of links: f = k |w - c'| (w - c'), by name k = ½ ρ c_w A in kg/m.

    `velocity` is that of the wind in the world, a vector or a function of t. The centres are those that the file says.
    """
    chosen = []
    for name, number in drag.items():
        i, k = robot.engine.model.frame(name).link, _at_least_zero(f"the drag of {name!r}", number)
        if i == 0:
            raise InputError(f"{name!r} does not move, so it has no drag; name moving links")
        m, h, _ = robot.engine.model.inertia[i]
        chosen.append((Point(i, scale(1.0 / m, h) if m else (0.0, 0.0, 0.0)), k))

    def blown(model: Model, t: Scalar, q: Array, v: Array) -> Array:
        here = _Moving(model, q, v)
        w: Any = velocity(t) if callable(velocity) else velocity
        out = []
        for p, k in chosen:
            rel = sub((w[0], w[1], w[2]), here.velocity(p))
            out.append((p.link, here.push(p, scale(k * sqrt(dot(rel, rel) + _TINY), rel))))
        return _gathered(model, out)

    return ExternalForce(robot.engine.model, blown)


def ground(
    robot: HasEngine,
    points: Sequence[str | tuple[str, Sequence[float]]],
    *,
    height: float = 0.0,
    stiffness: float = 1e5,
    damping: float = 1.0,
    exponent: float = 1.5,
    friction: float = 0.8,
    slip: float = 0.01,
) -> ExternalForce:
    """A compliant ground under points: Hunt & Crossley 1975, with Coulomb friction made smooth.

    Where a point is δ below `height`, the normal force is k δⁿ (1 + 3/2 c δ̇), never pulling; n is 1, 1.5 or 2. Friction is
    -μ N u/√(u² + slip²) against the sliding velocity u: at the velocity `slip` (m/s) it has 71 % of its value, so a foot
    on a slope creeps. `points` are frames, or (frame, position in it).
    """
    chosen = [point(robot, p) if isinstance(p, str) else point(robot, *p) for p in points]
    if not chosen:
        raise InputError("ground: no points are named; give frames, or (frame, position in it)")
    if exponent not in (1.0, 1.5, 2.0):
        raise InputError(f"ground: exponent={exponent!r} is not known; take 1, 1.5 or 2")
    for what, number in (("stiffness", stiffness), ("damping", damping), ("friction", friction)):
        _at_least_zero(what, number)
    if not slip > 0.0:
        raise InputError(f"ground: slip is {slip!r}; it must be greater than zero")

    def touched(model: Model, t: Scalar, q: Array, v: Array) -> Array:
        here = _Moving(model, q, v)
        out = []
        for p in chosen:
            depth, (x, y, z) = height - here.position(p)[2], here.velocity(p)
            inside = less(0.0, depth)
            deep = where(inside, depth, 1.0)
            power = deep if exponent == 1.0 else deep * (sqrt(deep) if exponent == 1.5 else deep)
            normal = stiffness * power * (1.0 - 1.5 * damping * z)
            normal = where(inside, where(less(0.0, normal), normal, 0.0), 0.0)
            grip = -friction * normal / sqrt(x * x + y * y + slip * slip)
            out.append((p.link, here.push(p, (grip * x, grip * y, normal))))
        return _gathered(model, out)

    return ExternalForce(robot.engine.model, touched)


def _gathered(model: Model, pushes: Sequence[tuple[int, Force]]) -> Array:
    """(n_links, 6): forces on one link added, those on the world left out."""
    rows: list[Scalar] = [0.0] * (6 * model.n_links)
    for i, F in pushes:
        for k, x in enumerate(F.components if i else ()):
            rows[6 * (i - 1) + k] = rows[6 * (i - 1) + k] + x
    return stack(rows, (model.n_links, 6))


def _at_least_zero(what: str, x: Any) -> float:
    if not isinstance(x, float | int | np.floating | np.integer) or not np.isfinite(x) or x < 0.0:
        raise InputError(f"{what} is {x!r}; give a finite number of zero or more")
    return float(x)
