"""What a robot can compute, by name: the algorithm of each method, its inputs and the shape of its result.

This is where algorithms meet the compiler: a function of a model and arrays becomes a kernel of that model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

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
    operational_space,
    perturbation,
    recursive_derivatives,
    regressor,
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
from qddot.dynamics import pivots
from qddot.dynamics.conditioning import felt, is_graded, is_ill_conditioned
from qddot.errors import KernelTooLargeError, NotRollableError, printable, unknown
from qddot.mechanism import parameters
from qddot.mechanism.array_shape import Axes
from qddot.mechanism.model import Model
from qddot.mechanism.simplify import has_parallel_axes, regrouped, simplified, with_sums_of_angles
from qddot.scalars import less, stack, where
from qddot.spatial import Inertia, Transform

if TYPE_CHECKING:  # tracing and rendering are loaded when something is to be compiled
    from qddot.compiler.ir.expr import Graph
    from qddot.compiler.ir.loop_program import Rolled, Segment
    from qddot.compiler.ir.program import Program

Algorithm = Callable[..., Any]

_MANY = 30_000  # instructions: where there are more, sums of angles save less than a hundredth and cost a second trace
_MOVES_Q = "differentiated"  # by itself, on dual numbers: frames taken at one instant, as sums of angles need, stay behind
_NO_HOPE = 2  # times the trace of another formulation: one that is longer will not be the cheapest
UNIT_QUATERNION_TOLERANCE = 2e-6  # of the square: looser than rounding of float32 states, tighter than any real mistake


class Function(NamedTuple):
    """Inputs by name, the shape of the result, and the formulations that compute it, the paper's own first.

    `needs` names what else its kernel is made for ("frame", "prescribed", "by"); `auto` lists the formulations of which
    the cheapest is compiled. `simplify` is the rewriting of the model that its result does not notice.
    """

    inputs: tuple[str, ...]
    output: Callable[[Model], Shape]
    methods: Mapping[str, Algorithm]
    needs: tuple[str, ...] = ()
    auto: tuple[str, ...] = ()
    simplify: Callable[[Model], Model] = lambda model: model


def homogeneous(T: Transform) -> list[Any]:
    """Kim (3), row by row."""
    return [x for row, p in zip(T.R.rows, T.p, strict=True) for x in (*row, p)] + [0.0, 0.0, 0.0, 1.0]


def _poses(model: Model, q: Any) -> Any:
    poses = kinematics.link_poses(model, q)[1:]
    return stack([x for T in poses for x in homogeneous(T)], (len(poses), 4, 4))


def _pose(model: Model, q: Any, frame: str) -> Any:
    return stack(homogeneous(kinematics.pose(model, q, model.frame(frame))), (4, 4))


def _velocity(model: Model, q: Any, v: Any, frame: str) -> Any:
    return stack(kinematics.velocity(model, q, v, model.frame(frame)).components)


def _acceleration(model: Model, q: Any, v: Any, a: Any, frame: str) -> Any:
    return stack(kinematics.acceleration(model, q, v, a, model.frame(frame)).components)


def _jacobian(model: Model, q: Any, frame: str) -> Any:
    return kinematics.jacobian(model, q, model.frame(frame))


def _jacobian_derivative(model: Model, q: Any, v: Any, frame: str) -> Any:
    return kinematics.jacobian_derivative(model, q, v, model.frame(frame))


def _inverse_inertia(model: Model, q: Any, frame: str) -> Any:
    return operational_space.inverse_inertia(model, q, model.frame(frame))


def _inverse_inertia_by_jacobian(model: Model, q: Any, frame: str) -> Any:
    return operational_space.inverse_inertia_by_jacobian(model, q, model.frame(frame))


def _units() -> list[Inertia]:
    """The ten numbers of docs/parameters.md, one at a time."""
    return [parameters.inertia_of([float(j == k) for j in range(10)]) for k in range(10)]


def _regressor(model: Model, q: Any, v: Any, a: Any) -> Any:
    return regressor.torque_regressor(model, q, v, a, _units())


def _inertia_derivatives(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> Any:
    return regressor.forward_dynamics_inertia_derivatives(model, q, v, tau, _units(), f_ext)


def _inertia_derivatives_by_columns(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> Any:
    return regressor.forward_dynamics_inertia_derivatives_by_columns(model, q, v, tau, _units(), f_ext)


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
_OF_WHOLE_LINKS = frozenset({"constraint_forces", "cyclic_reduction", "denoc", "divide_and_conquer"})
_ASKS_FOR_MASS = frozenset(
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
    "regressor": Function(("q", "v", "a"), _parameters, {"newton_euler": _regressor}),
    "forward_dynamics_inertia_derivatives": Function(
        ("q", "v", "tau"),
        _parameters,
        {"composite_body_factored": _inertia_derivatives, "articulated_body": _inertia_derivatives_by_columns},
    ),
    "forward_kinematics": Function(("q",), Axes("links", 4, 4), {"kinematics": _poses}),
    "pose": Function(("q",), Axes(4, 4), {"kinematics": _pose}, ("frame",)),
    "velocity": Function(("q", "v"), _six, {"kinematics": _velocity}, ("frame",)),
    "acceleration": Function(("q", "v", "a"), _six, {"kinematics": _acceleration}, ("frame",)),
    "jacobian": Function(("q",), _columns, {"kinematics": _jacobian}, ("frame",)),
    "jacobian_derivative": Function(("q", "v"), _columns, {"kinematics": _jacobian_derivative}, ("frame",)),
    "operational_space_inverse_inertia": Function(
        ("q",),
        Axes(6, 6),
        {"force_propagation": _inverse_inertia, "jacobian": _inverse_inertia_by_jacobian},
        ("frame",),
    ),
    "kinetic_energy": Function(("q", "v"), Axes(), {"energy": energy.kinetic_energy}, simplify=simplified),
    "potential_energy": Function(("q",), Axes(), {"energy": energy.potential_energy}),
    "center_of_mass": Function(("q",), Axes(3), {"energy": lambda m, q: stack(energy.center_of_mass(m, q))}),
    "momentum": Function(("q", "v"), _six, {"energy": lambda m, q, v: stack(energy.momentum(m, q, v).components)}),
    "centroidal_momentum_matrix": Function(("q",), _columns, {"composite_body": energy.centroidal_momentum_matrix}),
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

# Code that grows with the cube of the freedoms: for arms, not for humanoids (docs/derivatives.md).
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


def _by_scalar(algorithm: Algorithm, own: int) -> Algorithm:
    """One of Kim's tables as a function of arrays: q, v, `own` more, and where forces act, f_ext and ∂f_ext/∂p."""

    def run(model: Model, q: Any, v: Any, *rest: Any, by: tuple[Any, ...], **needs: Any) -> Any:
        f_ext, df_ext_dp = rest[own:] or (None, None)
        change = perturbation.with_external(model, perturbation.change_of(model, q, v, by), df_ext_dp)
        return algorithm(model, q, v, *rest[:own], change, f_ext, **needs)

    return run


# A kernel for each scalar p. The model is left as it is: p may be one of its numbers.
BY_SCALAR: dict[str, Function] = {
    "inverse_dynamics_derivative": Function(
        ("q", "v", "a"), _nv, {"newton_euler": _by_scalar(recursive_derivatives.inverse_dynamics_derivative, 1)}, ("by",)
    ),
    "forward_dynamics_derivative": Function(
        ("q", "v", "tau"),
        _nv,
        {"articulated_body": _by_scalar(recursive_derivatives.forward_dynamics_derivative, 1)},
        ("by",),
    ),
    "hybrid_dynamics_derivative": Function(
        ("q", "v", "a", "tau"),
        _two_rows,
        {"articulated_body": _by_scalar(recursive_derivatives.hybrid_dynamics_derivative, 2)},
        ("prescribed", "by"),
    ),
}
BY_SCALAR |= {f"{name}_with_forces": f._replace(inputs=(*f.inputs, "f_ext", "df_ext_dp")) for name, f in BY_SCALAR.items()}

# What is known of a frame from the links that carry it alone.
_OF_CARRIERS = frozenset({"pose", "velocity", "acceleration", "jacobian", "jacobian_derivative"})

_SIZES: dict[str, Callable[[Model], Shape]] = {
    "gains": Axes(2),
    "tau_loops": lambda m: (sum(loop.joint.nv for loop in m.loops),),
    "q": Axes("q"),
    "v": _nv,
    "a": _nv,
    "tau": _nv,
    "f_ext": Axes("links", 6),
    "df_ext_dp": Axes("links", 6),
}


def lookup(name: str, method: str) -> tuple[Function, str, Algorithm]:
    """A function by name and the formulation that is to compute it."""
    known = FUNCTIONS | DERIVATIVES_WITH_FORCES | LOOP_FUNCTIONS | CUBIC | BY_SCALAR
    if name not in known:
        raise unknown("function", name, known, "a robot")
    function = known[name]
    if method == "auto":
        method = next(iter(function.methods))
    method = ALIASES.get(method, method) if name == "mass_matrix" else method
    if method not in function.methods:
        raise unknown("method", method, function.methods, f"function {name!r}")
    return function, method, function.methods[method]


def traced(
    model: Model,
    name: str,
    method: str,
    *,
    regroup: bool = True,
    free: Sequence[str] = (),
    sums: bool = False,
    most: int | None = None,
    **needs: Any,
) -> Program:
    """The program of a function of a model; after the function's own inputs come the parameters that are free.

    The model is rewritten first unless `regroup` is False or the links it has are not known yet; with `sums`, links on
    parallel axes are turned by sums of angles. A trace of more than `most` operations is given up.
    """
    from qddot.compiler.ir.expr import MOST_NODES, trace
    from qddot.compiler.ir.program import straight_line

    function, formulation, algorithm = lookup(name, method)
    chosen, own = parameters.parameters(model, free), len(function.inputs)
    fill = filling(model, function, formulation, chosen, regroup)
    shapes = input_shapes(model, function, free)
    sizes = [prod(s) for s in shapes]

    def run(*vectors: Any) -> Any:
        arrays = [x.reshape(s) for x, s in zip(vectors, shapes, strict=True)]
        if function.inputs[0] == "q":
            _guard_quaternions(model, arrays[0])
        filled = fill(arrays[own:])
        if formulation not in _ASKS_FOR_MASS:
            filled = _with_traced_inertias(filled, vectors[0][0].graph)
        return algorithm(with_sums_of_angles(filled, arrays[0]) if sums else filled, *arrays[:own], **needs)

    graph, outputs, _ = trace(run, sizes, MOST_NODES if most is None else most)
    return straight_line(graph, outputs, sum(sizes))


def rolled(model: Model, name: str, method: str, *, regroup: bool = True, **needs: Any) -> Rolled:
    """The program of a function of a model that keeps its loops over the links."""
    from qddot.dynamics.loop_tracing import roll

    function, formulation, algorithm = lookup(name, method)
    inputs, output = [_SIZES[x] for x in function.inputs], function.output
    if needs.get("free"):
        raise NotRollableError("parameters are free")
    if "rows" in function.needs:
        raise NotRollableError("it has constraints")
    if not all(isinstance(x, Axes) for x in (*inputs, output)):
        raise NotRollableError("its arrays do not stand link by link")
    model = _rewritten(model, function, formulation, regroup)

    def run(small: Model, *arrays: Any, **needs: Any) -> Any:
        if function.inputs[0] == "q":
            _guard_quaternions(small, arrays[0])
        return algorithm(small, *arrays, **needs)

    return roll(model, run, inputs, output, needs, of_carriers=name in _OF_CARRIERS)  # type: ignore[arg-type]


def _rewritten(model: Model, function: Function, method: str, regroup: bool) -> Model:
    """The model that a formulation is traced on, its pivots watched."""
    watched = pivots.guarded(model)
    if not regroup or method in _OF_WHOLE_LINKS:
        return watched
    # rewritten models are kept by what they compute, which floors are no part of
    return replace(_rewriting(model, function)(model), pivot_floor=watched.pivot_floor)


def _rewriting(model: Model, function: Function) -> Callable[[Model], Model]:
    """The rewriting of the model that a function's result does not notice, so far as it costs this robot no digits."""
    if is_graded(model):
        return lambda model: model
    return regrouped if function.simplify is simplified and felt(model).is_thin else function.simplify


def filling(
    model: Model, function: Function, method: str, free: Sequence[parameters.Parameter], regroup: bool = True
) -> Callable[[Sequence[Any]], Model]:
    """What puts the values of free parameters into the model that a formulation is traced on."""
    if not any(p.of_links for p in free):
        rewritten = _rewritten(model, function, method, regroup)
        return lambda values: parameters.substitute(rewritten, free, values)
    return lambda values: pivots.guarded(parameters.substitute(model, free, values), model)


def input_shapes(model: Model, function: Function, free: Sequence[str] = ()) -> list[Shape]:
    """The shape of each input of a function, free parameters last."""
    own = [_SIZES[x](model) for x in function.inputs]
    return own + [p.shape for p in parameters.parameters(model, free)]


class Choice(NamedTuple):
    """A program, the same with products and sums fused, its formulation, whether sums of angles turn its links, and why."""

    program: Program
    line: Program
    method: str
    sums: bool
    why: str = ""


def cheapest(model: Model, name: str, method: str, **needs: Any) -> Choice:
    """The program of a function by the formulation asked for, or by that of the least `Program.cost`; sums of angles where
    they make it shorter.

    `auto` tries those of the function's formulations that win on some robot; `qddot compare` shows them all.
    """
    from qddot.compiler.ir.fuse import fused

    function = lookup(name, method)[0]
    first, *others = _likely(model, function, method) or (lookup(name, method)[1],)
    program = traced(model, name, first, **needs)
    found = [Choice(program, fused(program), first, False)]
    tried = {first: found[0].line}
    can_sum = first not in _OF_WHOLE_LINKS and _rewriting(model, function) is simplified
    ways = [(m, False) for m in others]
    if can_sum and needs.get("regroup", True) and not needs.get("free"):
        worth_trying = len(found[0].line.nodes()) < _MANY and has_parallel_axes(simplified(model))
        ways += [(m, True) for m in (first, *others) if m != _MOVES_Q] if worth_trying else []
    for m, sums in ways:
        try:
            other = traced(model, name, m, sums=sums, most=_NO_HOPE * len(program.graph), **needs)
        except KernelTooLargeError:
            continue
        found.append(Choice(other, fused(other), m, sums))
        tried[f"{m} with sums of angles" if sums else m] = found[-1].line
    shortest: dict[str, Choice] = {}
    for c in sorted(found, key=lambda c: len(c.line.nodes())):
        shortest.setdefault(c.method, c)
    costs = ", ".join(f"{label} {line.cost()} ({len(line.nodes())} instructions)" for label, line in tried.items())
    return min(shortest.values(), key=lambda c: c.line.cost())._replace(why=f"cost: {costs}")


def _likely(model: Model, function: Function, method: str) -> tuple[str, ...]:
    """The formulations that `auto` tries: none that loses digits on this robot."""
    found = function.auto if method == "auto" else ()
    if "composite_body_factored" in found and is_ill_conditioned(model):
        return tuple(m for m in found if m != "composite_body_factored") or ("articulated_body",)
    return found


def cheapest_rolled(model: Model, name: str, method: str, **needs: Any) -> tuple[Rolled, str]:
    """The same for rolled code; formulations that cannot be rolled are passed over, where none is left for all others."""
    function, own, _ = lookup(name, method)
    likely = _likely(model, function, method) or (own,)
    others = [m for m in function.methods if m not in likely] if method == "auto" else []
    found: list[tuple[Rolled, str]] = []
    error = NotRollableError("there is no formulation")
    for m in (*likely, *others):
        if found and m in others:
            break
        try:
            found.append((rolled(model, name, m, **needs), m))
        except NotRollableError as e:
            error = e
    if not found:
        raise error
    return min(found, key=lambda c: c[0].instructions())


def _with_traced_inertias(model: Model, graph: Graph) -> Model:
    """The model with its inertias as numbers of the graph, whose arithmetic knows rounding from nothing."""
    from qddot.compiler.ir.expr import Expr

    def traced(x: Any) -> Any:
        return tuple(map(traced, x)) if isinstance(x, tuple) else Expr(graph, graph.node_of(x))

    return replace(model, inertia=tuple(Inertia(*traced(tuple(I))) for I in model.inertia))


def _guard_quaternions(model: Model, q: Any) -> None:
    """A quaternion that is not of unit length gives NaN, not a wrong number."""
    for i, _ in model.outward():
        if model.joint[i].has_unit_quaternion:
            last = model.slots[i].q.stop - 1
            x, y, z, w = q[last - 3 : last + 1]
            off = x * x + y * y + z * z + w * w - 1.0
            q[last] = where(less(off * off, UNIT_QUATERNION_TOLERANCE**2), w, math.nan)


def explain(model: Model, name: str, method: str = "auto", **needs: Any) -> str:
    """Where a kernel's operations come from: how many compute which symbol of which link, in the order of the code."""
    from qddot.compiler.ir.ops import OPS

    program = traced(model, name, method, **needs)
    rows: dict[str, Counter[str]] = {}
    for symbol, link, nodes in program.sections():
        row = rows.setdefault(f"{model.link_names[link]}  {symbol}", Counter())
        for node in nodes:
            row.update(OPS[program.graph.ops[node]].counts)
    return _table("link and symbol", rows, program.count())


def explain_rolled(model: Model, name: str, method: str = "auto", **needs: Any) -> str:
    """The same for rolled code: the operations of each loop for one link of each kind, and those of all links together."""
    from qddot.compiler.ir.loop_program import Climb

    program = rolled(model, name, method, **needs)
    rows: dict[str, Counter[str]] = {}

    def tell(loop: str, members: Sequence[int], segment: Segment) -> None:
        first, more = program.names[members[0]], f" and {len(members) - 1} more" if len(members) > 1 else ""
        rows[f"{loop}  {first}{more}"] = Counter(segment.program.count())

    of_kind = [[i for i in range(1, len(program.kind)) if program.kind[i] == k] for k in range(max(program.kind) + 1)]
    for k, step in enumerate(program.loops, 1):
        if isinstance(step, Climb):
            for n, segment in enumerate(step.starts):
                tell(f"loop {k} columns", [i for i, kind in zip(step.rows, step.kinds, strict=True) if kind == n], segment)
        way = "through" if isinstance(step, Climb) else "inward" if step.backward else "outward"
        for links, segment in zip(of_kind, step.segments, strict=True):
            tell(f"loop {k} {way}", links, segment)
    return _table("loop and links", rows, program.count(), "total of all links")


def _table(head: str, rows: Mapping[str, Counter[str]], total: Mapping[str, int], last: str = "total") -> str:
    columns = [c for c in total if total[c]]
    rows = {printable(label): row for label, row in rows.items()}
    width = max([len(head), len(last), *map(len, rows)])
    lines = [f"{head:<{width}} " + "".join(f"{c:>9}" for c in columns)]
    for label, row in rows.items():
        if row:
            lines.append(f"{label:<{width}} " + "".join(f"{row[c] or '':>9}" for c in columns))
    return "\n".join([*lines, f"{last:<{width}} " + "".join(f"{total[c]:>9}" for c in columns)])
