"""Other engines' orders of q, v, forces and matrices, to and from qddot's.

| joint      | qddot                              | MuJoCo                               | Pinocchio            |
|------------|------------------------------------|--------------------------------------|----------------------|
| free       | q = (p, qx qy qz qw)               | q = (p, qw qx qy qz)                 | q same               |
|            | v = (ω, v), both in body axes      | v = (ṗ in world axes, ω in body axes)| v = (v, ω)           |
| spherical  | q = (qx qy qz qw), v = ω in child  | q = (qw qx qy qz), v same            | same                 |
| continuous | q = angle                          | same                                 | q = (cos, sin)       |
| planar     | q = (x, y, angle)                  | none                                 | q = (x, y, cos, sin) |
| translation| q = (x, y, z)                      | three slides; of a free joint with   | same                 |
|            |                                    | armature the first half              |                      |

Velocities follow v' = E(q) v, so that forces follow τ = Eᵀτ', mass matrices M = EᵀM'E and accelerations a' = E a + Ė v.
Where the other engine takes mimic joints for independent ones, E has a row for each of them: it is also the expansion G
of qddot's reduced velocity, and forces and matrices come back reduced. Every array may have leading batch axes. The
joints of a MuJoCo model stand in the order of the qddot model that `formats.mjcf` reads; those of a Pinocchio model are
matched by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.errors import InputError
from qddot.mechanism.model import Model

Array = NDArray[np.float64]


class _Part(NamedTuple):
    """One joint's place in the other engine, and how its coordinates are written there and read back."""

    link: int
    q: slice
    v: slice
    write_q: Callable[[Array], Array]
    read_q: Callable[[Array], Array]
    E: Callable[[Array], Array]
    E_dot_v: Callable[[Array, Array], Array]


class _Layout(NamedTuple):
    """All joints of a model in the other engine; `nq` and `nv` are the other engine's."""

    model: Model
    parts: list[_Part]
    nq: int
    nv: int

    def to_q(self, q: Any) -> Array:
        x = _sized(q, self.model.nq, "q")
        out = np.zeros((*x.shape[:-1], self.nq))
        for part in self.parts:
            out[..., part.q] = part.write_q(self._own_q(part, x))
        return out

    def from_q(self, q: Any) -> Array:
        y = _sized(q, self.nq, "the other engine's q")
        out = np.zeros((*y.shape[:-1], self.model.nq))
        for part in self.parts:
            if self.model.mimic[part.link] is None:
                out[..., self.model.slots[part.link].q] = part.read_q(y[..., part.q])
        return out

    def _own_q(self, part: _Part, q: Array) -> Array:
        slot = self.model.slots[part.link]
        own = q[..., slot.q]
        return own if slot.factor is None else slot.factor * own + slot.offset

    def _blocks(self, q: Any, leaders_only: bool = False) -> Iterator[tuple[slice, slice, Array]]:
        """E(q) joint by joint: its rows, columns and entries.

        With `leaders_only` without the rows of mimic joints, which makes its transpose E's left inverse.
        """
        x = _sized(q, self.model.nq, "q")
        for part in self.parts:
            slot = self.model.slots[part.link]
            if slot.factor is None:
                yield part.v, slot.v, part.E(x[..., slot.q])
            elif not leaders_only:
                yield part.v, slot.v, np.array([[slot.factor]])

    def _map(self, q: Any) -> Array:
        """E(q)."""
        E = np.zeros((*np.shape(q)[:-1], self.nv, self.model.nv))
        for rows, columns, block in self._blocks(q):
            E[..., rows, columns] = block
        return E

    def _times(self, q: Any, v: Array, leaders_only: bool = False) -> Array:
        """E v, without a matrix for each state of a batch."""
        out = np.zeros((*np.broadcast_shapes(np.shape(q)[:-1], v.shape[:-1]), self.nv))
        for rows, columns, block in self._blocks(q, leaders_only):
            out[..., rows] = _apply(block, v[..., columns])
        return out

    def _transposed_times(self, q: Any, v: Array, leaders_only: bool = False) -> Array:
        """Eᵀv, the same way."""
        out = np.zeros((*np.broadcast_shapes(np.shape(q)[:-1], v.shape[:-1]), self.model.nv))
        for rows, columns, block in self._blocks(q, leaders_only):
            out[..., columns] += _apply(_transpose(block), v[..., rows])
        return out

    def drift(self, q: Any, v: Any) -> Array:
        """Ė v."""
        x, u = _sized(q, self.model.nq, "q"), _sized(v, self.model.nv, "v")
        out = np.zeros((*np.broadcast_shapes(x.shape[:-1], u.shape[:-1]), self.nv))
        for part in self.parts:
            slot = self.model.slots[part.link]
            out[..., part.v] = part.E_dot_v(x[..., slot.q], u[..., slot.v])
        return out

    def to_v(self, q: Any, v: Any) -> Array:
        return self._times(q, _sized(v, self.model.nv, "v"))

    def from_v(self, q: Any, v: Any) -> Array:
        return self._transposed_times(q, _sized(v, self.nv, "the other engine's v"), leaders_only=True)

    def to_a(self, q: Any, v: Any, a: Any) -> Array:
        return self.to_v(q, a) + self.drift(q, v)

    def from_a(self, q: Any, v: Any, a: Any) -> Array:
        return self.from_v(q, _sized(a, self.nv, "the other engine's a") - self.drift(q, v))

    def to_tau(self, q: Any, tau: Any) -> Array:
        return self._times(q, _sized(tau, self.model.nv, "tau"), leaders_only=True)

    def from_tau(self, q: Any, tau: Any) -> Array:
        return self._transposed_times(q, _sized(tau, self.nv, "the other engine's tau"))

    def to_matrix(self, q: Any, M: Any) -> Array:
        if self.nv != self.model.nv:
            raise InputError(
                f"robot {self.model.name!r}: a matrix over {self.model.nv} degrees of freedom has no equal over {self.nv}, "
                "because mimic joints share a degree of freedom; convert the other engine's matrix instead"
            )
        E = self._map(q)
        return np.asarray(E @ _square(M, self.model.nv, "M") @ _transpose(E))

    def from_matrix(self, q: Any, M: Any) -> Array:
        E = self._map(q)
        return np.asarray(_transpose(E) @ _square(M, self.nv, "the other engine's M") @ E)


def _sized(x: Any, n: int, what: str) -> Array:
    array = np.asarray(x, dtype=float)
    if array.shape[-1:] != (n,):
        raise InputError(f"{what} has shape {array.shape}; give (..., {n})")
    return array


def _square(x: Any, n: int, what: str) -> Array:
    array = np.asarray(x, dtype=float)
    if array.shape[-2:] != (n, n):
        raise InputError(f"{what} has shape {array.shape}; give (..., {n}, {n})")
    return array


def _apply(A: Array, x: Array) -> Array:
    return np.asarray((A @ x[..., None])[..., 0])


def _transpose(A: Array) -> Array:
    return np.swapaxes(A, -1, -2)


# ---- single joints -------------------------------------------------------------------------------------------------


def _same(q: Array) -> Array:
    return q


def _identity(n: int) -> Callable[[Array], Array]:
    return lambda q: np.eye(n)


def _no_drift(q: Array, v: Array) -> Array:
    return np.zeros(v.shape[-1:])


def _scalar_first(q: Array) -> Array:
    """The last four numbers are a quaternion: its scalar part comes first among them."""
    return np.concatenate([q[..., :-4], q[..., -1:], q[..., -4:-1]], axis=-1)


def _scalar_last(q: Array) -> Array:
    return np.concatenate([q[..., :-4], q[..., -3:], q[..., -4:-3]], axis=-1)


def _angle_to_circle(q: Array) -> Array:
    """The last number is an angle: its cosine and sine take its place."""
    return np.concatenate([q[..., :-1], np.cos(q[..., -1:]), np.sin(q[..., -1:])], axis=-1)


def _circle_to_angle(q: Array) -> Array:
    return np.concatenate([q[..., :-2], np.arctan2(q[..., -1:], q[..., -2:-1])], axis=-1)


def _rotation(q: Array) -> Array:
    """The rotation matrix of (…, qx, qy, qz, qw)."""
    u, w = q[..., -4:-1], q[..., -1, None, None]
    x, y, z = np.moveaxis(u, -1, 0)
    o = np.zeros_like(x)
    skew = np.stack([o, -z, y, z, o, -x, -y, x, o], axis=-1).reshape(*x.shape, 3, 3)
    return np.asarray(np.eye(3) + 2.0 * (w * skew + skew @ skew))


def _world_linear_first(q: Array) -> Array:
    """(ω, v) in body axes -> (R v, ω)."""
    E = np.zeros((*q.shape[:-1], 6, 6))
    E[..., :3, 3:] = _rotation(q)
    E[..., 3:, :3] = np.eye(3)
    return E


def _world_linear_drift(q: Array, v: Array) -> Array:
    """d(R)/dt v = R (ω × v), for the linear rows."""
    turned = _apply(_rotation(q), np.cross(v[..., :3], v[..., 3:]))
    return np.concatenate([turned, np.zeros_like(turned)], axis=-1)


def _linear_first(q: Array) -> Array:
    """(ω, v) -> (v, ω)."""
    return np.roll(np.eye(6), 3, axis=0)


# ---- MuJoCo --------------------------------------------------------------------------------------------------------


def _mujoco(model: Model) -> _Layout:
    parts, nq, nv = [], 0, 0
    for i, _ in model.outward():
        joint = model.joint[i]
        write, read, E, drift = _same, _same, _identity(joint.nv), _no_drift
        if not joint.mujoco_name:
            raise InputError(
                f"joint {model.joint_names[i]!r} is {joint.kind}; MuJoCo has hinges, slides, balls and free joints only"
            )
        if joint.has_unit_quaternion:
            write, read = _scalar_first, _scalar_last
        if joint.is_floating:
            E, drift = _world_linear_first, _world_linear_drift
        parts.append(_Part(i, slice(nq, nq + joint.nq), slice(nv, nv + joint.nv), write, read, E, drift))
        nq, nv = nq + joint.nq, nv + joint.nv
    return _Layout(model, parts, nq, nv)


def to_mujoco_q(model: Model, q: Any) -> Array:
    """qpos of qddot's q."""
    return _mujoco(model).to_q(q)


def from_mujoco_q(model: Model, qpos: Any) -> Array:
    """qddot's q of qpos."""
    return _mujoco(model).from_q(qpos)


def to_mujoco_v(model: Model, q: Any, v: Any) -> Array:
    """qvel of qddot's v, at qddot's q."""
    return _mujoco(model).to_v(q, v)


def from_mujoco_v(model: Model, q: Any, qvel: Any) -> Array:
    """qddot's v of qvel, at qddot's q."""
    return _mujoco(model).from_v(q, qvel)


def to_mujoco_a(model: Model, q: Any, v: Any, a: Any) -> Array:
    """qacc of qddot's a, at qddot's q and v."""
    return _mujoco(model).to_a(q, v, a)


def from_mujoco_a(model: Model, q: Any, v: Any, qacc: Any) -> Array:
    """qddot's a of qacc, at qddot's q and v."""
    return _mujoco(model).from_a(q, v, qacc)


def to_mujoco_tau(model: Model, q: Any, tau: Any) -> Array:
    """Joint forces in MuJoCo's order, such as qfrc_applied. Mimic joints get none: the joint they follow bears all."""
    return _mujoco(model).to_tau(q, tau)


def from_mujoco_tau(model: Model, q: Any, qfrc: Any) -> Array:
    """Joint forces in qddot's order of any of MuJoCo's qfrc; those of mimic joints are reduced."""
    return _mujoco(model).from_tau(q, qfrc)


def to_mujoco_matrix(model: Model, q: Any, M: Any) -> Array:
    """A mass matrix as mj_fullM gives it."""
    return _mujoco(model).to_matrix(q, M)


def from_mujoco_matrix(model: Model, q: Any, M: Any) -> Array:
    """The mass matrix over qddot's degrees of freedom of one from mj_fullM."""
    return _mujoco(model).from_matrix(q, M)


# ---- Pinocchio -----------------------------------------------------------------------------------------------------


def _pinocchio(model: Model, pin_model: Any) -> _Layout:
    theirs = {str(name): k for k, name in enumerate(pin_model.names) if k > 0}
    ours = {model.joint_names[i]: i for i, _ in model.outward()}
    pairs = {ours[name]: theirs[name] for name in ours if name in theirs}
    alone = [i for name, i in ours.items() if name not in theirs]
    unclaimed = [k for name, k in theirs.items() if name not in ours]
    roots = [i for i in alone if model.joint[i].is_floating], [k for k in unclaimed if pin_model.nqs[k] == 7]
    if len(roots[0]) == len(roots[1]) == 1:  # the floating base goes by different names
        pairs[roots[0][0]] = roots[1][0]
        alone, unclaimed = [i for i in alone if i not in roots[0]], [k for k in unclaimed if k not in roots[1]]
    if alone or unclaimed:
        only = [model.joint_names[i] for i in alone], [str(pin_model.names[k]) for k in unclaimed]
        raise InputError(
            f"robot {model.name!r} and the Pinocchio model have different joints: {only[0]} only here, {only[1]} only "
            "there; load both from one file, with or without a floating base"
        )
    parts = [
        _pinocchio_part(model, i, pin_model, k)
        for i, k in sorted(pairs.items())
        if model.mimic[i] is None or pin_model.nvs[k] > 0  # else Pinocchio has reduced the mimic joint, too
    ]
    return _Layout(model, parts, int(pin_model.nq), int(pin_model.nv))


def _pinocchio_part(model: Model, i: int, pin_model: Any, k: int) -> _Part:
    joint, nq = model.joint[i], int(pin_model.nqs[k])
    start_q, start_v = int(pin_model.idx_qs[k]), int(pin_model.idx_vs[k])
    write, read = _same, _same
    if joint.ends_in_angle and nq == joint.nq + 1:
        write, read = _angle_to_circle, _circle_to_angle
    elif nq != joint.nq:
        raise InputError(
            f"joint {model.joint_names[i]!r} is {joint.kind} with {joint.nq} coordinates, and has {nq} in the "
            "Pinocchio model; load both from one file"
        )
    E = _linear_first if joint.is_floating else _identity(joint.nv)
    return _Part(i, slice(start_q, start_q + nq), slice(start_v, start_v + joint.nv), write, read, E, _no_drift)


def to_pinocchio_q(model: Model, pin_model: Any, q: Any) -> Array:
    """Pinocchio's q of qddot's."""
    return _pinocchio(model, pin_model).to_q(q)


def from_pinocchio_q(model: Model, pin_model: Any, q: Any) -> Array:
    """qddot's q of Pinocchio's; the angle of a continuous joint lies within ±π."""
    return _pinocchio(model, pin_model).from_q(q)


def to_pinocchio_v(model: Model, pin_model: Any, q: Any, v: Any) -> Array:
    """Pinocchio's v, or its a, of qddot's, at qddot's q."""
    return _pinocchio(model, pin_model).to_v(q, v)


def from_pinocchio_v(model: Model, pin_model: Any, q: Any, v: Any) -> Array:
    """qddot's v, or its a, of Pinocchio's, at qddot's q."""
    return _pinocchio(model, pin_model).from_v(q, v)


def to_pinocchio_tau(model: Model, pin_model: Any, q: Any, tau: Any) -> Array:
    """Joint forces in Pinocchio's order. Mimic joints get none: the joint they follow bears all."""
    return _pinocchio(model, pin_model).to_tau(q, tau)


def from_pinocchio_tau(model: Model, pin_model: Any, q: Any, tau: Any) -> Array:
    """Joint forces in qddot's order; those of mimic joints are reduced."""
    return _pinocchio(model, pin_model).from_tau(q, tau)


def to_pinocchio_matrix(model: Model, pin_model: Any, q: Any, M: Any) -> Array:
    """A mass matrix in Pinocchio's order."""
    return _pinocchio(model, pin_model).to_matrix(q, M)


def from_pinocchio_matrix(model: Model, pin_model: Any, q: Any, M: Any) -> Array:
    """A mass matrix in qddot's order, reduced where joints mimic."""
    return _pinocchio(model, pin_model).from_matrix(q, M)
