"""The facade: a model with the algorithms as methods.

Every method takes one state, `(nq,)` and `(nv,)`, or any leading batch axes, which broadcast. Names and shapes are
checked here; the mathematics is in `qddot.algorithms`, which anybody may call directly.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.algorithms import articulated_body, composite_body, coriolis, energy, kinematics, newton_euler
from qddot.algorithms.operational_space import operational_space
from qddot.algorithms.passive import passive_forces
from qddot.errors import Finding, InputError, SingularMassMatrixError
from qddot.joints import Free, Spherical
from qddot.model import Model
from qddot.scalars import stack
from qddot.spatial import Transform

Array = NDArray[Any]

_UNIT_QUATERNION_TOLERANCE = 1e-6  # looser than rounding in float32 states, tighter than any real mistake
_SINGULAR_PIVOT = 1e-12  # of a diagonal entry of M: a thousand times the rounding of its elimination


class Robot:
    """A mechanism and what can be computed of it."""

    def __init__(self, model: Model) -> None:
        self.model = model

    # ---- what it is

    @property
    def name(self) -> str:
        """The robot's name."""
        return self.model.name

    @property
    def nq(self) -> int:
        """How many coordinates a configuration has."""
        return self.model.nq

    @property
    def nv(self) -> int:
        """How many freedoms the robot has."""
        return self.model.nv

    @property
    def link_names(self) -> tuple[str, ...]:
        """The moving links, in order; link k is moved by joint k."""
        return self.model.link_names[1:]

    @property
    def joint_names(self) -> tuple[str, ...]:
        """The joints, in order."""
        return self.model.joint_names[1:]

    @property
    def frame_names(self) -> tuple[str, ...]:
        """Everything that has a pose: the world, links, bodies merged into them, frames."""
        return self.model.frame_names

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found doubtful when the model was read."""
        return self.model.findings

    @cached_property
    def q_index(self) -> Mapping[str, int | slice]:
        """Where a joint's coordinates stand in q, by its name: an index, or a slice if there are several."""
        return _Index(self.model, "q")

    @cached_property
    def v_index(self) -> Mapping[str, int | slice]:
        """Where a joint's freedoms stand in v, a and tau, by its name."""
        return _Index(self.model, "v")

    def __repr__(self) -> str:
        loops = f", {len(self.model.loops)} loops" if self.model.loops else ""
        return f"<Robot {self.name!r}: {self.model.n_links} links, nq={self.nq}, nv={self.nv}{loops}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Robot) and self.model == other.model

    def __hash__(self) -> int:
        return hash(self.model)

    def spanning_tree(self) -> Robot:
        """The same robot with its loops cut open."""
        return Robot(dataclasses.replace(self.model, loops=()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes qddot's own file, from which `load` gives an equal robot."""
        from qddot.formats import native

        native.write(self.model, Path(path))

    # ---- configurations

    def neutral(self) -> Array:
        """All coordinates zero, quaternions at rest."""
        return self._gather(lambda i: self.model.joint[i].neutral())

    def random_state(self, rng: np.random.Generator | int | None = None) -> tuple[Array, Array]:
        """A configuration, within the limits where a joint has them, and a velocity."""
        rng = np.random.default_rng(rng)

        def coordinates(i: int) -> Sequence[float]:
            limits, joint = self.model.limits[i], self.model.joint[i]
            if joint.nq == 1 and math.isfinite(limits.lower[0]) and math.isfinite(limits.upper[0]):
                return (float(rng.uniform(limits.lower[0], limits.upper[0])),)
            return joint.random(rng)

        return self._gather(coordinates), rng.standard_normal(self.nv)

    def integrate(self, q: ArrayLike, v: ArrayLike, dt: float = 1.0) -> Array:
        """The configuration reached from q with the constant velocity v after a time dt."""
        inputs = self._q(q), self._v(v, "v") * dt
        x, u = self.model.coordinates(inputs[0]), self.model.velocities(inputs[1])
        return _batched(1, self._gather(lambda i: self.model.joint[i].integrate(x[i], u[i])), *inputs)

    def difference(self, q0: ArrayLike, q1: ArrayLike) -> Array:
        """The velocity that leads from q0 to q1 in a unit of time."""
        inputs = self._q(q0, "q0"), self._q(q1, "q1")
        x, y = (self.model.coordinates(q) for q in inputs)
        return _batched(1, self._gather(lambda i: self.model.joint[i].difference(x[i], y[i])), *inputs)

    def normalize(self, q: ArrayLike) -> Array:
        """The nearest valid configuration: quaternions made unit."""
        x = self.model.coordinates(self._shaped(q, self.nq, "q", "nq"))
        return self._gather(lambda i: self.model.joint[i].normalize(x[i]))

    # ---- dynamics

    def inverse_dynamics(self, q: ArrayLike, v: ArrayLike, a: ArrayLike, f_ext: ArrayLike | None = None) -> Array:
        """The joint forces that give the accelerations a. `f_ext`: (..., n_links, 6) in body frames."""
        self._needs_tree("inverse dynamics")
        inputs = self._q(q), self._v(v, "v"), self._v(a, "a"), self._forces(f_ext)
        return _batched(1, newton_euler.inverse_dynamics(self.model, *inputs), *inputs)

    def forward_dynamics(self, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None = None) -> Array:
        """The accelerations that the joint forces tau give. `f_ext`: (..., n_links, 6) in body frames."""
        self._needs_tree("forward dynamics")
        inputs = self._q(q), self._v(v, "v"), self._v(tau, "tau"), self._forces(f_ext)
        return _batched(1, self._solved(lambda: articulated_body.forward_dynamics(self.model, *inputs)), *inputs)

    def mass_matrix(self, q: ArrayLike) -> Array:
        """M(q), (..., nv, nv); of the spanning tree if there are loops."""
        x = self._q(q)
        return _batched(2, composite_body.mass_matrix(self.model, x), x)

    def mass_matrix_inverse(self, q: ArrayLike) -> Array:
        """M(q)⁻¹, (..., nv, nv); of the spanning tree if there are loops."""
        x = self._q(q)
        return _batched(2, self._solved(lambda: articulated_body.mass_matrix_inverse(self.model, x)), x)

    def bias_force(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Coriolis, centrifugal and gravity forces."""
        inputs = self._q(q), self._v(v, "v")
        return _batched(1, newton_euler.bias_force(self.model, *inputs), *inputs)

    def gravity_force(self, q: ArrayLike) -> Array:
        """The joint forces that balance gravity."""
        x = self._q(q)
        return _batched(1, newton_euler.gravity_force(self.model, x), x)

    def coriolis_matrix(self, q: ArrayLike, v: ArrayLike) -> Array:
        """C(q, v) with C v + gravity = bias and Ṁ - 2C skew."""
        inputs = self._q(q), self._v(v, "v")
        return _batched(2, coriolis.coriolis_matrix(self.model, *inputs), *inputs)

    def passive_force(self, q: ArrayLike, v: ArrayLike) -> Array:
        """What joint damping, friction and springs exert."""
        inputs = self._q(q), self._v(v, "v")
        return _batched(1, passive_forces(self.model, *inputs), *inputs)

    def operational_space(
        self, q: ArrayLike, v: ArrayLike, frame: str, rows: Sequence[int] = range(6)
    ) -> tuple[Array, Array]:
        """Λ and μ with Λ V̇ + μ = F for the chosen rows of the frame's twist, in its own coordinates (Khatib)."""
        x, u, rows = self._q(q), self._v(v, "v"), list(rows)
        J = self.jacobian(q, frame)[..., rows, :]
        rank = int(np.min(np.linalg.matrix_rank(J))) if J.size else 0
        if rank < len(rows):
            raise InputError(
                f"the motion of {frame!r} has only {rank} independent rows of the {len(rows)} asked for; "
                f"choose fewer rows, or a configuration that is not singular"
            )
        Lambda, mu = self._solved(lambda: operational_space(self.model, x, u, self.model.frame(frame), rows))
        return _batched(2, Lambda, x, u), _batched(1, mu, x, u)

    # ---- kinematics

    def forward_kinematics(self, q: ArrayLike) -> Array:
        """The poses of all moving links in the world: (..., n_links, 4, 4)."""
        x = self._q(q)
        poses = [_homogeneous(T) for T in kinematics.link_poses(self.model, x)[1:]]
        return _batched(3, stack([e for entries in poses for e in entries], (len(poses), 4, 4)), x)

    def pose(self, q: ArrayLike, frame: str) -> Array:
        """The pose of a link or frame in the world: (..., 4, 4)."""
        x = self._q(q)
        T = kinematics.pose(self.model, x, self.model.frame(frame))
        return _batched(2, stack(_homogeneous(T), (4, 4)), x)

    def velocity(self, q: ArrayLike, v: ArrayLike, frame: str) -> Array:
        """The twist of a frame in its own coordinates, angular first: (..., 6)."""
        inputs = self._q(q), self._v(v, "v")
        V = kinematics.velocity(self.model, *inputs, self.model.frame(frame))
        return _batched(1, stack(V.components), *inputs)

    def acceleration(self, q: ArrayLike, v: ArrayLike, a: ArrayLike, frame: str) -> Array:
        """The componentwise derivative of the frame's twist: (..., 6). Gravity is not in it."""
        inputs = self._q(q), self._v(v, "v"), self._v(a, "a")
        V_dot = kinematics.acceleration(self.model, *inputs, self.model.frame(frame))
        return _batched(1, stack(V_dot.components), *inputs)

    def jacobian(self, q: ArrayLike, frame: str, reference: str = "body") -> Array:
        """J with twist = J v: (..., 6, nv), angular first.

        `reference` says in whose coordinates: "body" the frame's own, "world" the world's axes and origin, "aligned"
        the world's axes at the frame's origin.
        """
        x, f = self._q(q), self.model.frame(frame)
        J = _batched(2, kinematics.jacobian(self.model, x, f), x)
        if reference == "body":
            return J
        if reference not in ("world", "aligned"):
            raise InputError(f"reference={reference!r} is not known; take 'body', 'world' or 'aligned'")
        T = self.pose(q, frame)
        R, p = T[..., :3, :3], T[..., :3, 3]
        w, u = R @ J[..., :3, :], R @ J[..., 3:, :]
        if reference == "world":
            u = u + np.cross(p[..., None, :], np.swapaxes(w, -1, -2)).swapaxes(-1, -2)
        return np.concatenate([w, u], axis=-2)

    def jacobian_derivative(self, q: ArrayLike, v: ArrayLike, frame: str) -> Array:
        """J̇ of the body Jacobian, so that acceleration = J a + J̇ v: (..., 6, nv)."""
        inputs = self._q(q), self._v(v, "v")
        return _batched(2, kinematics.jacobian_derivative(self.model, *inputs, self.model.frame(frame)), *inputs)

    # ---- energy and momentum

    def kinetic_energy(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Kinetic energy, rotors included."""
        inputs = self._q(q), self._v(v, "v")
        return _batched(0, energy.kinetic_energy(self.model, *inputs), *inputs)

    def potential_energy(self, q: ArrayLike) -> Array:
        """Potential energy of gravity and springs; zero where the links' masses lie in the world's origin."""
        x = self._q(q)
        return _batched(0, energy.potential_energy(self.model, x), x)

    def center_of_mass(self, q: ArrayLike) -> Array:
        """Of the moving links, in the world: (..., 3)."""
        x = self._q(q)
        if energy.total_mass(self.model) == 0.0:
            raise InputError(f"robot {self.name!r} has no mass, so it has no centre of mass")
        return _batched(1, stack(energy.center_of_mass(self.model, x)), x)

    def momentum(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Angular momentum about the centre of mass and linear momentum, in the world's axes: (..., 6)."""
        self.center_of_mass(q)
        inputs = self._q(q), self._v(v, "v")
        return _batched(1, stack(energy.momentum(self.model, *inputs).components), *inputs)

    def centroidal_momentum_matrix(self, q: ArrayLike) -> Array:
        """A_G with momentum = A_G v: (..., 6, nv)."""
        self.center_of_mass(q)
        x = self._q(q)
        return _batched(2, energy.centroidal_momentum_matrix(self.model, x), x)

    @property
    def mass(self) -> float:
        """The mass of the moving links."""
        return float(energy.total_mass(self.model))

    # ---- checks

    def _gather(self, values: Callable[[int], Sequence[Any]]) -> Array:
        own = [i for i, _ in self.model.outward() if self.model.mimic[i] is None]
        return stack([x for i in own for x in values(i)])

    def _shaped(self, x: ArrayLike, n: int, what: str, size: str) -> Array:
        array = np.asarray(x)
        if array.dtype.kind in "iub" or array.dtype == np.float32:
            array = array.astype(float)
        if array.dtype.kind not in "fcO":
            raise InputError(f"{what} must hold numbers, not {array.dtype}")
        if array.ndim == 0 or array.shape[-1] != n:
            raise InputError(
                f"{what} has shape {array.shape}, but its last axis must have {n} entries: "
                f"robot {self.name!r} has {size} = {n}"
            )
        return array

    def _q(self, q: ArrayLike, what: str = "q") -> Array:
        array = self._shaped(q, self.nq, what, "nq")
        for i, _ in self.model.outward():
            joint = self.model.joint[i]
            if isinstance(joint, Free | Spherical) and array.dtype != object:
                quaternion = array[..., self.model.slots[i].q][..., -4:]
                off = np.max(np.abs(np.sum(quaternion * quaternion, axis=-1).real - 1.0), initial=0.0)
                if off > 2 * _UNIT_QUATERNION_TOLERANCE:
                    raise InputError(
                        f"the quaternion of joint {self.model.joint_names[i]!r} in {what} is not of unit length "
                        f"(its square is off by {off:.3g}); use robot.normalize(q)"
                    )
        return array

    def _v(self, v: ArrayLike, what: str) -> Array:
        return self._shaped(v, self.nv, what, "nv")

    def _forces(self, f_ext: ArrayLike | None) -> Array | None:
        if f_ext is None:
            return None
        array = self._shaped(f_ext, 6, "f_ext", "six components a force, so it")
        if array.ndim < 2 or array.shape[-2] != self.model.n_links:
            raise InputError(
                f"f_ext has shape {array.shape}, but must be (..., {self.model.n_links}, 6): "
                f"a force (moment, force) in its own frame for each of robot {self.name!r}'s moving links"
            )
        return array

    def _needs_tree(self, what: str) -> None:
        if self.model.loops:
            names = ", ".join(loop.name for loop in self.model.loops[:4])
            raise InputError(
                f"robot {self.name!r} has loops ({names}), and {what} with loops is not available yet; "
                f"robot.spanning_tree() gives the robot with its loops cut open"
            )

    def _solved(self, compute: Callable[[], Any]) -> Any:
        """Runs what divides by the mass matrix, and names the joint that moves no mass if there is one."""
        if self.massless_joints:
            names = ", ".join(repr(n) for n in self.massless_joints)
            raise SingularMassMatrixError(
                f"robot {self.name!r} has a singular mass matrix: "
                f"joint {names} moves nothing that has mass or inertia; "
                f"give the links it carries an inertial, give the joint a rotor inertia (armature), or fix it"
            )
        try:
            with np.errstate(all="ignore"):
                return compute()
        except ZeroDivisionError:
            raise SingularMassMatrixError(
                f"the mass matrix of robot {self.name!r} is singular in this configuration; "
                f"is a joint with three angles (Euler, exponential) at its singularity?"
            ) from None

    @cached_property
    def massless_joints(self) -> tuple[str, ...]:
        """The joints that make the mass matrix singular in every configuration."""
        rng = np.random.default_rng(0)
        states = np.stack([self.random_state(rng)[0] for _ in range(3)])
        M = self.mass_matrix(states)
        guilty: set[int] = set(range(self.nv))
        for sample in M:
            guilty &= _vanishing_pivots(sample)
        slots = self.model.slots
        owners = [i for i, _ in self.model.outward() if self.model.mimic[i] is None]
        return tuple(
            self.model.joint_names[i] for i in owners if guilty & set(range(slots[i].v.start, slots[i].v.stop))
        )


def _batched(core: int, result: Any, *inputs: Array | None) -> Array:
    """The result with the batch axes of the inputs, which it lacks where it does not depend on them."""
    axes = [x.shape[: x.ndim - 1] for x in inputs[:3] if x is not None]
    axes += [x.shape[:-2] for x in inputs[3:] if x is not None]  # external forces have one axis more
    out = np.asarray(result)
    shape = (*np.broadcast_shapes(*axes), *out.shape[out.ndim - core :])
    return out if out.shape == shape else np.broadcast_to(out, shape).copy()


def _vanishing_pivots(M: Array) -> set[int]:
    """The coordinates whose inertia vanishes once those after them have been let go: M = U D Uᵀ, leaves first."""
    A, out = M.copy(), set()
    for k in reversed(range(len(A))):
        if not A[k, k] > _SINGULAR_PIVOT * M[k, k]:
            out.add(k)
            continue
        A[:k, :k] -= np.outer(A[:k, k], A[k, :k]) / A[k, k]
    return out


class _Index(Mapping[str, int | slice]):
    """Joint name -> place in q or v."""

    def __init__(self, model: Model, which: str) -> None:
        self._model, self._which = model, which

    def __getitem__(self, name: str) -> int | slice:
        i = self._model.joint_index(name)
        mimic = self._model.mimic[i]
        if mimic is not None:
            master = self._model.joint_names[mimic.link]
            raise InputError(
                f"joint {name!r} has no coordinate of its own: it follows {master!r} by "
                f"q = {mimic.factor:g} q + {mimic.offset:g}; ask for {master!r}"
            )
        where: slice = getattr(self._model.slots[i], self._which)
        return where.start if where.stop - where.start == 1 else where

    def __iter__(self) -> Iterator[str]:
        return (n for i, n in enumerate(self._model.joint_names) if i and self._model.mimic[i] is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _homogeneous(T: Transform) -> list[Any]:
    """Kim (3), row by row."""
    return [x for row, p in zip(T.R.rows, T.p, strict=True) for x in (*row, p)] + [0.0, 0.0, 0.0, 1.0]
