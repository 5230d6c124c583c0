"""The identities that dynamics must satisfy, evaluated on one robot: what `qddot check` runs.

Each is computed along two independent ways. Derivatives are complex steps through `integrate`, exact to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import articulated_body, composite_body, derivatives, kinematics, newton_euler
from qddot.algorithms.passive_forces import passive_forces
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.robot.robot import Robot
from qddot.spatial import Inertia
from qddot.spatial.rotation import skew

Array = NDArray[Any]

_STEP = 1e-20
_ROUNDING = 1e-11  # sums of some thousand terms of size one, in double precision
_SOLVE = 1e3 * np.finfo(float).eps  # times the condition number of M, where M is solved with


@dataclass(frozen=True)
class Identity:
    """One identity on one robot: the largest error over the states, relative, and what rounding allows."""

    name: str
    error: float
    allowed: float

    @property
    def holds(self) -> bool:
        """Whether the error is within what rounding allows; an error that is not a number is not."""
        return bool(self.error <= self.allowed)


def identities(robot: Robot, states: int = 3, seed: int = 0, kernels: bool = False) -> Iterator[Identity]:
    """The identities on random states of a robot; of its spanning tree if it has loops.

    With `kernels`, also that compiled code computes what the algorithms compute.
    """
    tree = Robot(robot.spanning_tree().model, compiled=False)
    if tree.nv == 0:
        return
    rng = np.random.default_rng(seed)
    samples = [_Sample(tree, rng) for _ in range(states)]
    for name, error, solves in _IDENTITIES:
        if solves and tree.massless_joints:
            continue
        allowed = max(_ROUNDING, _SOLVE * max(s.condition for s in samples)) if solves else _ROUNDING
        yield Identity(name, max(error(s) for s in samples), allowed)
    if kernels:
        yield from _kernels(tree, rng)


def identity_count(kernels: bool) -> int:
    """How many identities there are for a robot whose every motion moves mass."""
    return len(_IDENTITIES) + (len(_KERNELS) if kernels else 0)


_KERNELS = (
    "inverse_dynamics",
    "forward_dynamics",
    "mass_matrix",
    "mass_matrix_inverse",
    "coriolis_matrix",
    "forward_kinematics",
)


def _kernels(tree: Robot, rng: np.random.Generator) -> Iterator[Identity]:
    """Compiled code against the algorithm it was compiled from, on a batch that fills all lanes and leaves some over."""
    compiled = Robot(tree.model)
    states = [tree.random_state(rng) for _ in range(19)]
    q, v = (np.stack(x) for x in zip(*states, strict=True))
    inputs = {"q": q, "v": v, "a": v[::-1], "tau": v[::-1]}
    condition = float(np.max(np.linalg.cond(tree.mass_matrix(q))))
    for name in _KERNELS:
        solves = name in ("forward_dynamics", "mass_matrix_inverse")
        if solves and tree.massless_joints:
            continue
        arrays = [inputs[x] for x in FUNCTIONS[name].inputs]
        error = _relative(getattr(compiled, name)(*arrays), getattr(tree, name)(*arrays))
        yield Identity(f"kernel of {name} = algorithm", error, max(_ROUNDING, _SOLVE * condition) if solves else _ROUNDING)


class _Sample:
    """A robot in a state, with what several identities need."""

    def __init__(self, robot: Robot, rng: np.random.Generator) -> None:
        self.robot, self.model = robot, robot.model
        self.q, self.v = robot.random_state(rng)
        self.a = rng.standard_normal(robot.nv)
        self.f_ext = rng.standard_normal((robot.model.n_links, 6))
        self.tau = robot.inverse_dynamics(self.q, self.v, self.a, self.f_ext)
        self.M = robot.mass_matrix(self.q)
        self.condition = float(np.linalg.cond(self.M))

    def along(self, direction: Array, function: Callable[[Array], Any]) -> Array:
        """The derivative of a function of q along a velocity."""
        moved = self.robot.integrate(self.q, _STEP * 1j * direction)
        return np.asarray(function(moved)).imag / _STEP


def _relative(x: Any, y: Any) -> float:
    return float(np.max(np.abs(np.asarray(x) - np.asarray(y)), initial=0.0) / max(1.0, np.max(np.abs(y), initial=0.0)))


def _rnea_then_aba(s: _Sample) -> float:
    return _relative(s.robot.forward_dynamics(s.q, s.v, s.tau, s.f_ext), s.a)


def _inverse(s: _Sample) -> float:
    return _relative(s.robot.mass_matrix_inverse(s.q) @ s.M, np.eye(s.robot.nv))


def _absolute_forward(s: _Sample) -> float:
    return _relative(articulated_body.forward_dynamics_absolute(s.model, s.q, s.v, s.tau, s.f_ext), s.a)


def _absolute_inverse(s: _Sample) -> float:
    return _relative(newton_euler.inverse_dynamics_absolute(s.model, s.q, s.v, s.a, s.f_ext), s.tau)


def _columns(s: _Sample) -> float:
    return _relative(composite_body.mass_matrix_by_columns(s.model, s.q), s.M)


def _absolute_mass(s: _Sample) -> float:
    return _relative(composite_body.mass_matrix_absolute(s.model, s.q), s.M)


def _brute_force(s: _Sample) -> float:
    return _relative(brute_force_mass_matrix(s.robot, s.q), s.M)


def brute_force_mass_matrix(robot: Robot, q: Array) -> Array:
    """Σ Jᵀ𝓘J over the links, with dense matrices, and the rotors: the definition, and nothing clever."""
    model = robot.model
    M = np.zeros((robot.nv, robot.nv))
    for i, _ in model.outward():
        J = kinematics.jacobian(model, q, model.frame(model.link_names[i]))
        M += J.T @ dense(model.inertia[i]) @ J
        slot = model.slots[i]
        factor = 1.0 if slot.factor is None else slot.factor
        for k, rotor in zip(range(slot.v.start, slot.v.stop), model.armature[i], strict=True):
            M[k, k] += factor**2 * rotor
    return M


def dense(G: Inertia) -> Array:
    """The 6×6 matrix of Kim (20)."""
    h: Array = np.array(skew(G.h))
    return np.block([[np.array(G.I), h], [h.T, G.m * np.eye(3)]])


def _skew(s: _Sample) -> float:
    C = s.robot.coriolis_matrix(s.q, s.v)
    M_dot = s.along(s.v, s.robot.mass_matrix)
    bias = s.robot.bias_force(s.q, s.v) - s.robot.gravity_force(s.q)
    return max(_relative(C + C.T, M_dot), _relative(C @ s.v, bias))


def _gravity(s: _Sample) -> float:
    slope = [s.along(e, s.robot.potential_energy) for e in np.eye(s.robot.nv)]
    still = passive_forces(s.model, s.q, np.zeros(s.robot.nv))
    return _relative(slope, s.robot.gravity_force(s.q) - still)


def _power(s: _Sample) -> float:
    """The change of energy is the power of the joint forces, of the external forces and of what is not conservative."""
    change = s.along(s.v, lambda q: s.robot.kinetic_energy(q, s.v)) + s.v @ s.M @ s.a
    change = change + s.along(s.v, s.robot.potential_energy)
    V = kinematics.link_velocities(s.model, s.q, s.v)
    external = sum(np.dot(V[i].components, s.f_ext[i - 1]) for i, _ in s.model.outward())
    at_rest = passive_forces(s.model, s.q, np.zeros(s.robot.nv))
    lost = passive_forces(s.model, s.q, s.v) - at_rest
    return _relative(change, s.tau @ s.v + external + lost @ s.v)


def _energy(s: _Sample) -> float:
    return _relative(s.robot.kinetic_energy(s.q, s.v), 0.5 * s.v @ s.M @ s.v)


def _momentum(s: _Sample) -> float:
    if s.model.mass == 0.0:
        return 0.0
    c_dot = s.along(s.v, s.robot.center_of_mass)
    h = s.robot.momentum(s.q, s.v)
    return max(
        _relative(s.robot.centroidal_momentum_matrix(s.q) @ s.v, h),
        _relative(h[3:], s.model.mass * c_dot),
    )


def _slopes(s: _Sample, run: Callable[..., Any], found: Array, third: Array) -> float:
    """Derivatives of run(model, q, v, third, f_ext) against complex steps, all directions in one batch."""
    steps = 1j * _STEP * np.eye(s.robot.nv)
    by_q = run(s.model, s.robot.integrate(s.q, steps), s.v, third, s.f_ext)
    by_v = run(s.model, s.q, s.v + steps, third, s.f_ext)
    return max(_relative(found[k].T, np.imag(x) / _STEP) for k, x in enumerate((by_q, by_v)))


def _inverse_slopes(s: _Sample) -> float:
    found = derivatives.inverse_dynamics_derivatives(s.model, s.q, s.v, s.a, s.f_ext)
    return _slopes(s, newton_euler.inverse_dynamics, found, s.a)


def _forward_slopes(s: _Sample) -> float:
    found = derivatives.forward_dynamics_derivatives(s.model, s.q, s.v, s.tau, s.f_ext)
    return _slopes(s, articulated_body.forward_dynamics, found, s.tau)


_IDENTITIES: tuple[tuple[str, Callable[[_Sample], float], bool], ...] = (
    ("forward dynamics undoes inverse dynamics", _rnea_then_aba, True),
    ("forward dynamics in absolute coordinates", _absolute_forward, True),
    ("inverse dynamics in absolute coordinates", _absolute_inverse, False),
    ("mass matrix = columns of inverse dynamics", _columns, False),
    ("mass matrix in absolute coordinates", _absolute_mass, False),
    ("mass matrix = Σ JᵀIJ", _brute_force, False),
    ("mass matrix times its inverse", _inverse, True),
    ("Ṁ - 2C is skew, and C v is the bias", _skew, False),
    ("gravity and springs = slope of potential energy", _gravity, False),
    ("power balance", _power, False),
    ("kinetic energy = ½ vᵀM v", _energy, False),
    ("momentum, and velocity of the centre of mass", _momentum, False),
    ("slopes of inverse dynamics, external forces in it", _inverse_slopes, False),
    ("slopes of forward dynamics, external forces in it", _forward_slopes, True),
)
