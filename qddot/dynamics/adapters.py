"""Algorithms as functions of arrays: frames by name, poses as matrices, inertias as ten numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qddot.algorithms import energy, kinematics, operational_space, perturbation, regressor
from qddot.dynamics.function import Algorithm
from qddot.mechanism import parameters
from qddot.mechanism.model import Model
from qddot.scalars import stack
from qddot.spatial import Inertia, Transform


def homogeneous(T: Transform) -> list[Any]:
    """Kim (3), row by row."""
    return [x for row, p in zip(T.R.rows, T.p, strict=True) for x in (*row, p)] + [0.0, 0.0, 0.0, 1.0]


def poses(model: Model, q: Any) -> Any:
    poses = kinematics.link_poses(model, q)[1:]
    return stack([x for T in poses for x in homogeneous(T)], (len(poses), 4, 4))


def pose(model: Model, q: Any, frame: str) -> Any:
    return stack(homogeneous(kinematics.pose(model, q, model.frame(frame))), (4, 4))


def velocity(model: Model, q: Any, v: Any, frame: str) -> Any:
    return stack(kinematics.velocity(model, q, v, model.frame(frame)).components)


def acceleration(model: Model, q: Any, v: Any, a: Any, frame: str) -> Any:
    return stack(kinematics.acceleration(model, q, v, a, model.frame(frame)).components)


def jacobian(model: Model, q: Any, frame: str) -> Any:
    return kinematics.jacobian(model, q, model.frame(frame))


def jacobian_derivative(model: Model, q: Any, v: Any, frame: str) -> Any:
    return kinematics.jacobian_derivative(model, q, v, model.frame(frame))


def inverse_inertia(model: Model, q: Any, frame: str) -> Any:
    return operational_space.inverse_inertia(model, q, model.frame(frame))


def inverse_inertia_by_jacobian(model: Model, q: Any, frame: str) -> Any:
    return operational_space.inverse_inertia_by_jacobian(model, q, model.frame(frame))


def acceleration_by_force(model: Model, q: Any, frame: str) -> Any:
    return operational_space.acceleration_by_force(model, q, model.frame(frame))


def of_task(algorithm: Algorithm, *more: Algorithm) -> Algorithm:
    """A function of the chosen rows of a frame's twist, all six if nothing is said."""

    def run(model: Model, *arrays: Any, frame: str, rows: Sequence[int] = range(6)) -> Any:
        return algorithm(*more, model, *arrays, model.frame(frame), rows)

    return run


def center_of_mass(model: Model, q: Any) -> Any:
    return stack(energy.center_of_mass(model, q))


def momentum(model: Model, q: Any, v: Any) -> Any:
    return stack(energy.momentum(model, q, v).components)


def units() -> list[Inertia]:
    """The ten numbers of docs/parameters.md, one at a time."""
    return [parameters.inertia_of([float(j == k) for j in range(10)]) for k in range(10)]


def torque_regressor(model: Model, q: Any, v: Any, a: Any) -> Any:
    return regressor.torque_regressor(model, q, v, a, units())


def inertia_derivatives(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> Any:
    return regressor.forward_dynamics_inertia_derivatives(model, q, v, tau, units(), f_ext)


def inertia_derivatives_by_columns(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> Any:
    return regressor.forward_dynamics_inertia_derivatives_by_columns(model, q, v, tau, units(), f_ext)


def by_scalar(algorithm: Algorithm, own: int) -> Algorithm:
    """One of Kim's tables as a function of arrays: q, v, `own` more, and where forces act, f_ext and ∂f_ext/∂p."""

    def run(model: Model, q: Any, v: Any, *rest: Any, by: tuple[Any, ...], **needs: Any) -> Any:
        f_ext, df_ext_dp = rest[own:] or (None, None)
        change = perturbation.with_external(model, perturbation.change_of(model, q, v, by), df_ext_dp)
        return algorithm(model, q, v, *rest[:own], change, f_ext, **needs)

    return run
