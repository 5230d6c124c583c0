"""What a robot can compute, by name: the algorithm of each method, its inputs and the shape of its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from qddot.algorithms import (
    articulated_body,
    composite_body,
    constrained_derivatives,
    constrained_dynamics,
    constrained_hybrid,
    coriolis,
    derivatives,
    dual_derivatives,
    energy,
    hybrid,
    kinematics,
    loop_constraints,
    newton_euler,
    newton_euler_classical,
    recursive_derivatives,
    sparse_factors,
)
from qddot.algorithms.papers import (
    augmented,
    balafoutis_patel,
    cyclic_reduction,
    denoc,
    divide_and_conquer,
    khalil_kleinfinger,
    lin,
    lin_1988,
    operators,
    renaud,
)
from qddot.algorithms.passive_forces import passive_forces
from qddot.compiler.runtime.kernel import Shape
from qddot.dynamics import adapters
from qddot.dynamics.function import Algorithm, Function
from qddot.dynamics.task_functions import TASK_FUNCTIONS
from qddot.errors import one_name, unknown
from qddot.mechanism import parameters
from qddot.mechanism.array_axes import Axes
from qddot.mechanism.model import Model
from qddot.mechanism.simplify import regrouped, simplified

_nv = Axes("v")
_square = Axes("v", "v")
_three_squares = Axes(3, "v", "v")
_four_cubes = Axes(4, "v", "v", "v")
_parameters = Axes("v", "inertias")
_columns = Axes(6, "v")
_two_rows = Axes(2, "v")
_six = Axes(6)


_INVERSE = {
    "newton_euler": newton_euler.inverse_dynamics,
    "newton_euler_classical": newton_euler_classical.inverse_dynamics,
    "newton_euler_absolute": newton_euler.inverse_dynamics_absolute,
    "denoc": denoc.inverse_dynamics,
    "khalil_kleinfinger": khalil_kleinfinger.inverse_dynamics,
    "balafoutis_patel": balafoutis_patel.inverse_dynamics,
}
_AUTO_INVERSE = ("newton_euler_classical", "newton_euler")
_AUTO_FORWARD = ("articulated_body_classical", "composite_body_factored")
_FORWARD = {
    "articulated_body": articulated_body.forward_dynamics,
    "articulated_body_classical": newton_euler_classical.forward_dynamics,
    "articulated_body_absolute": articulated_body.forward_dynamics_absolute,
    "composite_body_factored": sparse_factors.forward_dynamics,
    "denoc": denoc.forward_dynamics,
    "lin": lin.forward_dynamics,
    "operators": operators.forward_dynamics,
    "augmented": augmented.forward_dynamics,
    "constraint_forces": augmented.forward_dynamics_constraint_forces,
    "cyclic_reduction": cyclic_reduction.forward_dynamics,
    "divide_and_conquer": divide_and_conquer.forward_dynamics,
}
# Formulations that look at links one by one, and not only at what they carry: inertias are not moved from link to link.
OF_WHOLE_LINKS = frozenset({"constraint_forces", "cyclic_reduction", "denoc", "divide_and_conquer"})
ASKS_FOR_MASS = frozenset(
    {"constraint_forces", "cyclic_reduction", "divide_and_conquer"}
)  # whether a link has any: inertias stay numbers

_HYBRID = {
    "articulated_body": hybrid.hybrid_dynamics,
    "articulated_body_classical": hybrid.hybrid_dynamics_classical,
    "composite_body_factored": hybrid.hybrid_dynamics_partitioned,
}

FUNCTIONS: dict[str, Function] = {
    "inverse_dynamics": Function(("q", "v", "a"), _nv, _INVERSE, (), _AUTO_INVERSE, simplified),
    "inverse_dynamics_with_forces": Function(("q", "v", "a", "f_ext"), _nv, _INVERSE, (), _AUTO_INVERSE, regrouped),
    "forward_dynamics": Function(("q", "v", "tau"), _nv, _FORWARD, (), _AUTO_FORWARD, simplified),
    "forward_dynamics_with_forces": Function(("q", "v", "tau", "f_ext"), _nv, _FORWARD, (), _AUTO_FORWARD, regrouped),
    "hybrid_dynamics": Function(("q", "v", "a", "tau"), _two_rows, _HYBRID, ("prescribed",), _AUTO_FORWARD, simplified),
    "hybrid_dynamics_with_forces": Function(
        ("q", "v", "a", "tau", "f_ext"), _two_rows, _HYBRID, ("prescribed",), _AUTO_FORWARD, regrouped
    ),
    "mass_matrix": Function(
        ("q",),
        _square,
        {
            "composite_body": composite_body.mass_matrix,
            "composite_body_absolute": composite_body.mass_matrix_absolute,
            "newton_euler_columns": composite_body.mass_matrix_by_columns,
            "newton_euler_half_columns": composite_body.mass_matrix_by_half_columns,
            "denoc": denoc.mass_matrix,
            "lin": lin.mass_matrix,
            "lin_planar": lin.mass_matrix_planar,
            "lin_1988": lin_1988.mass_matrix,
            "renaud": renaud.mass_matrix,
            "fijany_bejczy": renaud.mass_matrix_recursive,
            "operators": operators.mass_matrix,
            "operators_factored": operators.mass_matrix_factored,
        },
        simplify=simplified,
    ),
    "mass_matrix_inverse": Function(
        ("q",),
        _square,
        {
            "articulated_body": articulated_body.mass_matrix_inverse,
            "composite_body_factored": sparse_factors.mass_matrix_inverse,
            "operators": operators.mass_matrix_inverse,
        },
        auto=("composite_body_factored",),
        simplify=simplified,
    ),
    "bias_force": Function(
        ("q", "v"),
        _nv,
        {
            "newton_euler": newton_euler.bias_force,
            "newton_euler_classical": newton_euler_classical.bias_force,
            "denoc": denoc.bias_force,
            "lin": lin.bias_force,
            "lin_planar": lin.bias_force_planar,
            "khalil_kleinfinger": khalil_kleinfinger.bias_force,
            "balafoutis_patel": balafoutis_patel.bias_force,
        },
        auto=("newton_euler_classical", "newton_euler"),
        simplify=simplified,
    ),
    "gravity_force": Function(("q",), _nv, {"newton_euler": newton_euler.gravity_force}, simplify=simplified),
    "passive_force": Function(("q", "v"), _nv, {"joints": passive_forces}),
    "coriolis_matrix": Function(("q", "v"), _square, {"composite_body": coriolis.coriolis_matrix}),
    "convective_inertia_matrix": Function(("q", "v"), _square, {"denoc": denoc.convective_inertia_matrix}),
    "inverse_dynamics_derivatives": Function(
        ("q", "v", "a"),
        _three_squares,
        {
            "composite_body": derivatives.inverse_dynamics_derivatives,
            "newton_euler": recursive_derivatives.inverse_dynamics_derivatives,
            "differentiated": dual_derivatives.inverse_dynamics_derivatives,
        },
        simplify=simplified,
    ),
    "forward_dynamics_derivatives": Function(
        ("q", "v", "tau"),
        _three_squares,
        {
            "composite_body_factored": derivatives.forward_dynamics_derivatives,
            "articulated_body": recursive_derivatives.forward_dynamics_derivatives,
            "differentiated": dual_derivatives.forward_dynamics_derivatives,
        },
        simplify=simplified,
    ),
    "hybrid_dynamics_derivatives": Function(
        ("q", "v", "a", "tau"),
        Axes(2, 4, "v", "v"),
        {
            "composite_body_factored": derivatives.hybrid_dynamics_derivatives,
            "articulated_body": recursive_derivatives.hybrid_dynamics_derivatives,
        },
        ("prescribed",),
        simplify=simplified,
    ),
    "regressor": Function(("q", "v", "a"), _parameters, {"newton_euler": adapters.torque_regressor}),
    "forward_dynamics_inertia_derivatives": Function(
        ("q", "v", "tau"),
        _parameters,
        {
            "composite_body_factored": adapters.inertia_derivatives,
            "articulated_body": adapters.inertia_derivatives_by_columns,
        },
    ),
    "forward_kinematics": Function(("q",), Axes("links", 4, 4), {"kinematics": adapters.poses}),
    "pose": Function(("q",), Axes(4, 4), {"kinematics": adapters.pose}, ("frame",)),
    "velocity": Function(("q", "v"), _six, {"kinematics": adapters.velocity}, ("frame",)),
    "acceleration": Function(("q", "v", "a"), _six, {"kinematics": adapters.acceleration}, ("frame",)),
    "jacobian": Function(("q",), _columns, {"kinematics": adapters.jacobian}, ("frame",)),
    "jacobian_derivative": Function(("q", "v"), _columns, {"kinematics": adapters.jacobian_derivative}, ("frame",)),
    "operational_space_inverse_inertia": Function(
        ("q",),
        Axes(6, 6),
        {"force_propagation": adapters.inverse_inertia, "jacobian": adapters.inverse_inertia_by_jacobian},
        ("frame",),
    ),
    "acceleration_by_force": Function(("q",), Axes("v", 6), {"jacobian": adapters.acceleration_by_force}, ("frame",)),
    "kinetic_energy": Function(("q", "v"), Axes(), {"energy": energy.kinetic_energy}, simplify=simplified),
    "potential_energy": Function(("q",), Axes(), {"energy": energy.potential_energy}),
    "center_of_mass": Function(("q",), Axes(3), {"energy": adapters.center_of_mass}),
    "momentum": Function(("q", "v"), _six, {"energy": adapters.momentum}),
    "centroidal_momentum_matrix": Function(("q",), _columns, {"composite_body": energy.centroidal_momentum_matrix}),
    "centroidal_momentum_matrix_derivative": Function(
        ("q", "v"), _columns, {"composite_body": energy.centroidal_momentum_matrix_derivative}
    ),
    "center_of_mass_jacobian": Function(("q",), Axes(3, "v"), {"composite_body": energy.center_of_mass_jacobian}),
    "center_of_mass_jacobian_derivative": Function(
        ("q", "v"), Axes(3, "v"), {"composite_body": energy.center_of_mass_jacobian_derivative}
    ),
    "external_force_jacobian": Function(("q",), Axes("v", "forces"), {"kinematics": kinematics.external_force_jacobian}),
}


def _with_forces(table: Mapping[str, Function], *names: str) -> dict[str, Function]:
    """Functions with external forces as their last input: the links' frames stay where they are."""
    chosen = {name: table[name] for name in names}
    return {
        f"{name}_with_forces": f._replace(inputs=(*f.inputs, "f_ext"), simplify=regrouped) for name, f in chosen.items()
    }


DERIVATIVES_WITH_FORCES: dict[str, Function] = _with_forces(
    FUNCTIONS,
    "inverse_dynamics_derivatives",
    "forward_dynamics_derivatives",
    "hybrid_dynamics_derivatives",
    "forward_dynamics_inertia_derivatives",
)

_CONSTRAINED = {"direct": constrained_dynamics.direct, "multipliers": constrained_dynamics.multipliers_first}
_CONSTRAINED_HYBRID = {"multipliers": constrained_hybrid.constrained_hybrid_dynamics}


def _closed(m: Model) -> Shape:
    """Accelerations, multipliers, how nearly rows depend, and the squares of what positions and velocities are off by."""
    return (m.nv + loop_constraints.count(m) + 3,)


def _closed_hybrid(m: Model) -> Shape:
    """Accelerations, forces, multipliers and the same three numbers."""
    return (2 * m.nv + loop_constraints.count(m) + 3,)


def _rows(m: Model) -> Shape:
    return (loop_constraints.count(m),)


def _closed_slopes(m: Model) -> Shape:
    """Those of accelerations and multipliers by q, v and tau, and the same three numbers."""
    return (3 * (m.nv + loop_constraints.count(m)) * m.nv + 3,)


LOOP_FUNCTIONS: dict[str, Function] = {
    "constraint_residual": Function(("q",), _rows, {"loops": loop_constraints.residual}),
    "constraint_jacobian": Function(
        ("q",), lambda m: (loop_constraints.count(m), m.nv), {"loops": loop_constraints.jacobian}
    ),
    "constraint_jacobian_derivatives": Function(
        ("q",),
        lambda m: (loop_constraints.count(m), m.nv, m.nv),
        {"differentiated": constrained_derivatives.jacobian_derivatives},
    ),
    "constraint_bias": Function(("q", "v"), _rows, {"loops": loop_constraints.bias}),
    "loop_joint_forces": Function(("q", "tau_loops"), _nv, {"loops": loop_constraints.joint_forces}),
    "constrained_forward_dynamics": Function(
        ("q", "v", "tau"), _closed, _CONSTRAINED, ("rows",), tuple(_CONSTRAINED), simplified
    ),
    "constrained_forward_dynamics_derivatives": Function(
        ("q", "v", "tau"),
        _closed_slopes,
        {"differentiated": constrained_derivatives.forward_dynamics_derivatives},
        ("rows",),
        simplify=simplified,
    ),
    "constrained_forward_dynamics_with_forces": Function(
        ("q", "v", "tau", "f_ext", "gains"), _closed, _CONSTRAINED, ("rows",), tuple(_CONSTRAINED), regrouped
    ),
    "constrained_hybrid_dynamics": Function(
        ("q", "v", "a", "tau"), _closed_hybrid, _CONSTRAINED_HYBRID, ("prescribed", "rows"), simplify=simplified
    ),
    "constrained_hybrid_dynamics_with_forces": Function(
        ("q", "v", "a", "tau", "f_ext"), _closed_hybrid, _CONSTRAINED_HYBRID, ("prescribed", "rows"), simplify=regrouped
    ),
}

LOOP_FUNCTIONS |= _with_forces(LOOP_FUNCTIONS, "constrained_forward_dynamics_derivatives")

# Code that grows with the cube of the degrees of freedom: for arms, not for humanoids (docs/derivatives.md).
CUBIC: dict[str, Function] = {
    "inverse_dynamics_second_derivatives": Function(
        ("q", "v", "a"),
        _four_cubes,
        {"differentiated": dual_derivatives.inverse_dynamics_second_derivatives},
        simplify=simplified,
    ),
    "forward_dynamics_second_derivatives": Function(
        ("q", "v", "tau"),
        _four_cubes,
        {"differentiated": dual_derivatives.forward_dynamics_second_derivatives},
        simplify=simplified,
    ),
}

CUBIC |= _with_forces(CUBIC, *CUBIC)

# Methods of Walker & Orin 1982 for the mass matrix, by the numbers that the papers cite.
ALIASES = {
    "walker_orin_1": "newton_euler_columns",
    "walker_orin_2": "newton_euler_half_columns",
    "walker_orin_3": "composite_body",
}


# A kernel for each scalar p. The model is left as it is: p may be one of its numbers.
BY_SCALAR: dict[str, Function] = {
    "inverse_dynamics_derivative": Function(
        ("q", "v", "a"),
        _nv,
        {"newton_euler": adapters.by_scalar(recursive_derivatives.inverse_dynamics_derivative, 1)},
        ("by",),
    ),
    "forward_dynamics_derivative": Function(
        ("q", "v", "tau"),
        _nv,
        {"articulated_body": adapters.by_scalar(recursive_derivatives.forward_dynamics_derivative, 1)},
        ("by",),
    ),
    "hybrid_dynamics_derivative": Function(
        ("q", "v", "a", "tau"),
        _two_rows,
        {"articulated_body": adapters.by_scalar(recursive_derivatives.hybrid_dynamics_derivative, 2)},
        ("prescribed", "by"),
    ),
}
BY_SCALAR |= {f"{name}_with_forces": f._replace(inputs=(*f.inputs, "f_ext", "df_ext_dp")) for name, f in BY_SCALAR.items()}

# What is known of a frame from the links that carry it alone.
OF_PATH_TO_BASE = frozenset({"pose", "velocity", "acceleration", "jacobian", "jacobian_derivative"})

INPUT_AXES: dict[str, Callable[[Model], Shape]] = {
    "gains": Axes(2),
    "tau_loops": lambda m: (sum(loop.joint.nv for loop in m.loops),),
    "q": Axes("q"),
    "v": _nv,
    "a": _nv,
    "tau": _nv,
    "f_ext": Axes("links", 6),
    "df_ext_dp": Axes("links", 6),
}


ALL = FUNCTIONS | TASK_FUNCTIONS | DERIVATIVES_WITH_FORCES | LOOP_FUNCTIONS | CUBIC | BY_SCALAR


def lookup(name: str, method: str) -> tuple[Function, str, Algorithm]:
    """A function by name and the formulation that is to compute it."""
    if not isinstance(name, str) or not isinstance(method, str):
        name, method = one_name(name, "function"), one_name(method, "method")
    function = ALL.get(name)
    if function is None:
        raise unknown("function", name, ALL, "a robot")
    if method == "auto":
        method = next(iter(function.methods))
    method = ALIASES.get(method, method) if name == "mass_matrix" else method
    if method not in function.methods:
        raise unknown("method", method, function.methods, f"function {name!r}")
    return function, method, function.methods[method]


def input_shapes(model: Model, function: Function, free: Sequence[str] = ()) -> list[Shape]:
    """The shape of each input of a function, free parameters last."""
    own = [INPUT_AXES[x](model) for x in function.inputs]
    return own + [p.shape for p in parameters.parameters(model, free)]
