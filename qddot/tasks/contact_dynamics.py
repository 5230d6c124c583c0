"""Inverse dynamics of a robot that stands on contacts, as a quadratic program.

    min  Σ |w (A a - b)|² + ε² (|a|² + |f|²)    over accelerations a and contact forces f
    with M a + bias - passive - Σ Jᵀf = tau,  tau = 0 where a joint is not actuated,  |tau| ≤ effort limits,
         J a + J̇ v = acceleration of the surface,  at each contact,
         0 ≤ f·n,  |f·t| ≤ friction · f·n / √2 along two directions t across the normal n: a pyramid inside the cone.

Matrices come from compiled kernels, for the whole batch at once; tau is eliminated. The program itself, one a sample, is
solved by DAQP (D. Arnström, A. Bemporad, D. Axehill 2022), a dual active-set method for small dense programs, exact up to
rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.dynamics.engine import Engine
from qddot.dynamics.input_checks import finite, positive
from qddot.dynamics.request import ignores_loops
from qddot.errors import InputError, extra
from qddot.progress import Loop
from qddot.spatial.rotation import as_vec, plane_basis, unit
from qddot.tasks import target_arrays

Array = NDArray[Any]

_EQUALITY = 5  # DAQP's sense of a row that holds with equality
_LARGE = 1e30  # DAQP's infinity
_STEPS_OF_A_PROGRAM = 200  # of a simulation: they take as long as one program


@dataclass(frozen=True, eq=False)
class Contact:
    """A point of the robot, the origin of a frame, on a surface.

    `normal` points out of the surface, `friction` is Coulomb's coefficient, and `acceleration`, (..., 3), that of the
    surface at the point, in the world's axes.
    """

    holds_arrays: ClassVar = True
    frame: str
    normal: Sequence[float] = (0.0, 0.0, 1.0)
    friction: float = 0.7
    acceleration: ArrayLike = (0.0, 0.0, 0.0)

    def axes(self) -> Array:
        """The normal and two directions across it, as rows."""
        normal = target_arrays.points(self.normal, f"the normal at {self.frame!r}")
        if normal.shape != (3,) or not np.isfinite(normal).all() or not np.any(normal):
            raise InputError(f"the normal at {self.frame!r} is {self.normal!r}; give three numbers that are not all zero")
        n = unit(as_vec(normal.tolist()))
        return np.array([n, *plane_basis(n)], dtype=float)

    def cone(self) -> Array:
        """Rows C with C f ≥ 0 for the forces that the contact can bear."""
        n, *across = self.axes()
        slope = finite(self.friction, f"the friction at {self.frame!r}")
        if slope < 0.0:
            raise InputError(f"the friction at {self.frame!r} is {slope}; it must not be negative")
        bound = slope / np.sqrt(2.0) * n
        return np.array([n, *(bound + sign * t for t in across for sign in (1.0, -1.0))])


@dataclass(frozen=True, eq=False)
class FrameAcceleration:
    """A wanted acceleration of a frame's origin, and of its rotation, in the world's axes: (..., 3) each, or None."""

    holds_arrays: ClassVar = True
    frame: str
    linear: ArrayLike | None = None
    angular: ArrayLike | None = None
    weight: float = 1.0

    def rows(self, motion: _Motion) -> tuple[Array, Array]:
        J, drift = motion.of_frame(self.frame)
        parts = [(self.angular, slice(0, 3)), (self.linear, slice(3, 6))]
        wanted = [(x, k) for x, k in parts if x is not None]
        if not wanted:
            raise InputError(f"FrameAcceleration({self.frame!r}) needs linear= or angular=")
        b = [target_arrays.points(x, f"the acceleration of {self.frame!r}") - drift[..., k] for x, k in wanted]
        return np.concatenate([J[..., k, :] for _, k in wanted], axis=-2), target_arrays.joined(*b)


@dataclass(frozen=True, eq=False)
class CenterOfMassAcceleration:
    """A wanted acceleration of the centre of mass, (..., 3) in the world's axes."""

    holds_arrays: ClassVar = True
    target: ArrayLike
    weight: float = 1.0

    def rows(self, motion: _Motion) -> tuple[Array, Array]:
        J = motion.run("center_of_mass_jacobian", motion.q)
        drift = motion.on(motion.run("center_of_mass_jacobian_derivative", motion.q, motion.v), motion.v)
        return J, target_arrays.points(self.target, "the acceleration of the centre of mass") - drift


@dataclass(frozen=True, eq=False)
class JointAcceleration:
    """Wanted accelerations of the joints, (..., nv)."""

    holds_arrays: ClassVar = True
    target: ArrayLike
    weight: float = 1.0

    def rows(self, motion: _Motion) -> tuple[Array, Array]:
        nv = motion.engine.model.nv
        return np.eye(nv), target_arrays.points(self.target, "the acceleration of the joints", nv)


Wanted = FrameAcceleration | CenterOfMassAcceleration | JointAcceleration


@dataclass(frozen=True, repr=False)
class ContactSolution:
    """Accelerations `a`, joint forces `tau` and `forces`, (..., contacts, 3), that the surfaces exert, in the world's axes.

    `success` says of each sample whether there is a solution; where there is none, all are NaN.
    """

    a: Array
    tau: Array
    forces: Array
    success: Any

    def with_arrays(self, f: Callable[[Any], Any]) -> ContactSolution:
        """The same with f of its arrays of numbers."""
        return replace(self, a=f(self.a), tau=f(self.tau), forces=f(self.forces))

    def __repr__(self) -> str:
        solved, contacts = f"{np.count_nonzero(self.success)} of {np.size(self.success)} solved", self.forces.shape[-2]
        return f"<ContactSolution: {solved}, {self.a.shape[-1]} accelerations, {contacts} contacts>"


class _Motion:
    """The states of a batch, and how frames move in them."""

    def __init__(self, engine: Engine, q: ArrayLike, v: ArrayLike) -> None:
        self.engine, self.run = engine, engine.evaluate
        self.q, self.v = engine.checks.all("contact_inverse_dynamics", ("q", "v"), (q, v))

    @staticmethod
    def on(A: Array, x: Array) -> Array:
        return np.asarray((A @ x[..., None])[..., 0])

    def of_frame(self, frame: str) -> tuple[Array, Array]:
        """J and J̇ v of a frame's rotation and of its origin, in the world's axes."""
        q, v = self.q, self.v
        R = self.run("pose", q, frame=frame)[..., :3, :3]
        J = self.run("jacobian", q, frame=frame)
        V = self.on(J, v)
        drift = self.run("acceleration", q, v, np.zeros(self.engine.model.nv), frame=frame)
        linear = drift[..., 3:] + np.cross(V[..., :3], V[..., 3:])
        J = np.concatenate([R @ J[..., :3, :], R @ J[..., 3:, :]], axis=-2)
        return J, np.concatenate([self.on(R, drift[..., :3]), self.on(R, linear)], axis=-1)


def contact_inverse_dynamics(
    engine: Engine,
    q: ArrayLike,
    v: ArrayLike,
    wanted: Wanted | Iterable[Wanted],
    contacts: Iterable[Contact],
    limits: bool,
    regularization: float,
) -> ContactSolution:
    """What robot.contact_inverse_dynamics returns."""
    model = engine.model
    if model.is_constrained:
        raise ignores_loops(model, "contact_inverse_dynamics")
    daqp = extra("daqp", "qp", "inverse dynamics with contacts")
    motion, several = _Motion(engine, q, v), list(contacts)
    tasks = [wanted] if isinstance(wanted, Wanted) else list(wanted)
    M, tau_0 = motion.run("mass_matrix", motion.q), motion.run("inverse_dynamics", motion.q, motion.v, np.zeros(model.nv))
    found = [motion.of_frame(c.frame) for c in several]
    J = np.concatenate([np.zeros((*motion.q.shape[:-1], 0, model.nv)), *(x[..., 3:, :] for x, _ in found)], axis=-2)
    rise = [target_arrays.points(c.acceleration, f"the acceleration at {c.frame!r}") for c in several]
    held = [a - drift[..., 3:] for a, (_, drift) in zip(rise, found, strict=True)]
    forces = np.concatenate([M, -np.swapaxes(J, -1, -2)], axis=-1)  # tau = forces (a, f) + tau_0
    cost, slope = _cost(motion, tasks, J.shape[-2], positive(regularization, "regularization"))
    rows, lower, upper, sense = _constraints(engine, several, forces, tau_0, (J, held), limits)
    batch = np.broadcast_shapes(*(x.shape[:-1] for x in (slope, lower, upper)))
    shared = [
        np.broadcast_to(x, (*batch, *x.shape[-k:])) for x, k in ((cost, 2), (slope, 1), (rows, 2), (lower, 1), (upper, 1))
    ]
    x, success = np.full((*batch, slope.shape[-1]), np.nan), np.zeros(batch, bool)
    samples, n = np.ndindex(batch), prod(batch)
    with Loop(f"contacts of {n:,} of {model.name!r}", n, samples=_STEPS_OF_A_PROGRAM) as loop:
        for k in (k for size in loop.pieces(n) for k in islice(samples, size)):
            H, g, C, low, high = (np.array(part[k], dtype=float, order="C") for part in shared)  # DAQP's own
            if all(np.isfinite(part).all() for part in (H, g, C)) and not np.isnan(low + high).any():
                best, _, flag, _ = daqp.solve(H, g, C, high, low, sense.copy())
                success[k] = flag > 0
                x[k] = best if flag > 0 else np.nan
    tau = motion.on(forces, x) + tau_0
    return ContactSolution(x[..., : model.nv], tau, x[..., model.nv :].reshape(*batch, len(several), 3), success[()])


def _cost(motion: _Motion, tasks: Sequence[Wanted], n_forces: int, regularization: float) -> tuple[Array, Array]:
    """H and g of ½ xᵀH x + gᵀx, x = (a, f)."""
    nv = motion.engine.model.nv
    H, g = regularization**2 * np.eye(nv + n_forces), np.zeros(nv + n_forces)
    for task in tasks:
        A, b = task.rows(motion)
        weight = float(target_arrays.weights(task.weight, f"the weight of {type(task).__name__}")) ** 2
        A = np.concatenate([A, np.zeros((*A.shape[:-1], n_forces))], axis=-1)
        turned = weight * np.swapaxes(A, -1, -2)
        H, g = H + turned @ A, g - motion.on(turned, b)
    return H, np.broadcast_to(g, (*np.broadcast_shapes(motion.q.shape[:-1], g.shape[:-1]), g.shape[-1]))


def _constraints(
    engine: Engine, contacts: Sequence[Contact], forces: Array, tau_0: Array, held: tuple[Array, list[Array]], limits: bool
) -> tuple[Array, Array, Array, NDArray[np.int32]]:
    """lower ≤ C x ≤ upper, and DAQP's sense of each row."""
    model, (J, rises) = engine.model, held
    nv, n = model.nv, 3 * len(contacts)
    moving = np.concatenate([J, np.zeros((*J.shape[:-1], n))], axis=-1)
    effort = _efforts(engine, limits)
    driven = effort > 0.0
    some = np.isfinite(effort)  # rows that bound something
    cone = np.zeros((5 * len(contacts), nv + n))
    for k, contact in enumerate(contacts):
        cone[5 * k : 5 * k + 5, nv + 3 * k : nv + 3 * k + 3] = contact.cone()
    batch = np.broadcast_shapes(tau_0.shape[:-1], *(x.shape[:-1] for x in rises))
    parts = [moving, forces[..., some, :], cone]
    rows = np.concatenate([np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in parts], axis=-2)
    rise = target_arrays.joined(np.zeros((*batch, 0)), *rises)
    low = target_arrays.joined(rise, -effort[some] - tau_0[..., some], np.zeros(len(cone)))
    high = target_arrays.joined(rise, effort[some] - tau_0[..., some], np.full(len(cone), _LARGE))
    sense = [_EQUALITY] * n + [0 if is_driven else _EQUALITY for is_driven in driven[some]] + [0] * len(cone)
    return rows, low, high, np.array(sense, dtype=np.int32)


def _efforts(engine: Engine, limits: bool) -> Array:
    """The largest force of each degree of freedom: zero where it is not actuated, infinite where nothing bounds it."""
    model = engine.model
    out = np.zeros(model.nv)
    for i, _ in model.outward():
        if model.mimic[i] is None and model.actuated[i]:
            out[model.slots[i].v] = model.limits[i].effort if limits else np.inf
    return out
