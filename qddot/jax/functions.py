"""What `Dynamics` computes by one kernel each, as a table over the catalogue.

A row is the method's name, which is that of `Robot`. The function has that name in the catalogue too, so inputs, shapes and
the arguments that are no arrays (`frame`, `rows`, …) are known there. What a row says is what the catalogue does not: which
functions divide by the mass matrix, which need some mass, which take external forces, and how a result is taken apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from qddot.dynamics import derivative_results as results
from qddot.mechanism.model import Model


class Row(NamedTuple):
    """A method of `Dynamics`."""

    divides: bool = False  # by the mass matrix: motions without mass are an error
    needs_mass: bool = False  # of the robot
    of_trees: bool = False  # loops would be ignored: an error
    takes_forces: bool = False  # f_ext as the last input
    result: Callable[[Model, Any], Any] | None = None  # what is made of the kernel's array


def _parts(kind: Callable[..., Any], axes: int) -> Callable[[Model, Any], Any]:
    """The arrays stacked on the first axis of one state's result of so many axes."""

    def result(model: Model, stacked: Any) -> Any:
        place = stacked.ndim - axes
        return kind(*(stacked[(slice(None),) * place + (k,)] for k in range(stacked.shape[place])))

    return result


def _hybrid(model: Model, both: Any) -> Any:
    of_a, of_tau = (both[..., k, :, :, :] for k in range(2))
    kinds = (results.ByAllInputs(*(x[..., j, :, :] for j in range(4))) for x in (of_a, of_tau))
    return results.HybridDynamicsDerivatives(*kinds)


def _two(model: Model, x: Any) -> Any:
    return x[..., 0, :], x[..., 1, :]


def _of_links(model: Model, x: Any) -> Any:
    return x.reshape(*x.shape[:-1], model.n_links, 6)


_MASS, _SOLVES = Row(needs_mass=True), Row(divides=True)

TABLE: dict[str, Row] = {
    "mass_matrix": Row(),
    "mass_matrix_inverse": _SOLVES,
    "bias_force": Row(),
    "gravity_force": Row(),
    "passive_force": Row(),
    "coriolis_matrix": Row(),
    "inverse_dynamics_derivatives": Row(
        of_trees=True, takes_forces=True, result=_parts(results.InverseDynamicsDerivatives, 3)
    ),
    "forward_dynamics_derivatives": Row(
        divides=True, of_trees=True, takes_forces=True, result=_parts(results.ForwardDynamicsDerivatives, 3)
    ),
    "hybrid_dynamics_derivatives": Row(divides=True, of_trees=True, takes_forces=True, result=_hybrid),
    "inverse_dynamics_second_derivatives": Row(
        of_trees=True, takes_forces=True, result=_parts(results.SecondDerivatives, 4)
    ),
    "forward_dynamics_second_derivatives": Row(
        divides=True, of_trees=True, takes_forces=True, result=_parts(results.SecondDerivatives, 4)
    ),
    "forward_dynamics_inertia_derivatives": Row(divides=True, of_trees=True, takes_forces=True),
    "inverse_dynamics_derivative": Row(of_trees=True),
    "forward_dynamics_derivative": Row(divides=True, of_trees=True),
    "hybrid_dynamics_derivative": Row(divides=True, of_trees=True, result=_two),
    "regressor": Row(),
    "forward_kinematics": Row(),
    "pose": Row(),
    "velocity": Row(),
    "acceleration": Row(),
    "jacobian_derivative": Row(),
    "kinetic_energy": Row(),
    "potential_energy": Row(),
    "center_of_mass": _MASS,
    "momentum": _MASS,
    "centroidal_momentum_matrix": _MASS,
    "centroidal_momentum_matrix_derivative": _MASS,
    "center_of_mass_jacobian": _MASS,
    "center_of_mass_jacobian_derivative": _MASS,
    "external_force_jacobian": Row(result=_of_links),
    "operational_space_inverse_inertia": _SOLVES,
    "operational_space_inertia": _SOLVES,
    "operational_space_bias_force": _SOLVES,
    "acceleration_by_force": _SOLVES,
    "dynamically_consistent_inverse": _SOLVES,
    "null_space_projector": _SOLVES,
    "constraint_residual": Row(),
    "constraint_jacobian": Row(),
    "constraint_bias": Row(),
    "constraint_jacobian_derivatives": Row(),
}
