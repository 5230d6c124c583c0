"""A function of a model as a program: the algorithm run on expressions instead of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from qddot.compiler.runtime.kernel import Shape
from qddot.dynamics import conditioning, known_results, products
from qddot.dynamics.catalogue import (
    ASKS_FOR_MASS,
    INPUT_AXES,
    OF_PATH_TO_BASE,
    OF_WHOLE_LINKS,
    lookup,
)
from qddot.dynamics.function import Function
from qddot.dynamics.input_checks import UNIT_QUATERNION_TOLERANCE
from qddot.errors import NotRollableError
from qddot.mechanism import parameters
from qddot.mechanism.array_axes import Axes
from qddot.mechanism.model import Model
from qddot.mechanism.simplify import regrouped, simplified, with_sums_of_angles
from qddot.scalars import less, where
from qddot.spatial import Inertia

if TYPE_CHECKING:  # the compiler is loaded when something is to be compiled
    from qddot.compiler.ir.expr import Graph
    from qddot.compiler.ir.loop_program import Rolled
    from qddot.compiler.ir.program import Program


class Part(NamedTuple):
    """A function that a program computes: its formulation, whether sums of angles turn its links, and the arguments that
    are no arrays."""

    function: str
    method: str
    sums: bool
    needs: Mapping[str, Any]


def traced(
    model: Model,
    name: str,
    method: str,
    *,
    regroup: bool = True,
    free: Sequence[str] = (),
    sums: bool = False,
    most: int | None = None,
    dtype: str = "float64",
    **needs: Any,
) -> Program:
    """The program of a function of a model; after the function's own inputs come the parameters that are free.

    A `product` among the needs is computed in place of the function; its cotangent or tangents are the last inputs.

    The model is rewritten first unless `regroup` is False or the links it has are not known yet; with `sums`, links on
    parallel axes are turned by sums of angles. `dtype` says from where on a pivot is nothing but rounding. A trace of more
    than `most` operations is given up.
    """
    from qddot.compiler.ir.expr import MAX_NODES, Graph
    from qddot.compiler.ir.program import straight_line

    function, formulation, _ = lookup(name, method)
    product: products.Product | None = needs.pop("product", None)
    chosen = parameters.parameters(model, free)
    fill = filling(model, function, formulation, chosen, regroup, dtype)
    shapes = products.signature(model, function, free, needs, product).inputs
    graph = Graph(MAX_NODES if most is None else most)
    vectors = graph.vectors([prod(s) for s in shapes.values()])
    arrays = {name: x.reshape(s) for (name, s), x in zip(shapes.items(), vectors, strict=True)}
    if function.inputs[0] == "q":
        guard_quaternions(model, arrays["q"])
    filled = fill([arrays[x] for x in free])

    def evaluated(function: str, method: str) -> known_results.Evaluate:
        part, names = Part(function, method, sums, needs), lookup(function, method)[0].inputs
        return lambda model, given: _evaluated(graph, model, part, [_copied(given[x]) for x in names])

    forward = evaluated(name, method)
    if product is None:
        result = forward(filled, arrays)
    elif product.known_result:
        inverse = known_results.INVERSE[name]
        first = lookup(inverse, "auto")[0].auto[0]
        result = known_results.traced_product(graph, filled, product, arrays, forward, evaluated(inverse, first))
    else:
        result = products.traced(graph, model, product, arrays, forward(filled, arrays))
    return straight_line(graph, graph.nodes_of(result), sum(prod(s) for s in shapes.values()))


def _copied(x: Any) -> Any:
    return None if x is None else x.copy()


def traced_together(
    model: Model, parts: Sequence[Part], inputs: Mapping[str, Shape], *, free: Sequence[str], keep_frames: bool, dtype: str
) -> Program:
    """The program of several functions of a model, in one graph: what they have in common is computed once.

    `inputs` are the shapes of all inputs by name, free parameters last. With `keep_frames` the frames of links are left
    where they are in every function, so that transforms are common to dynamics and kinematics.
    """
    from qddot.compiler.ir.expr import Graph
    from qddot.compiler.ir.program import straight_line

    graph, chosen, outputs = Graph(), parameters.parameters(model, free), list[int]()
    vectors = graph.vectors([prod(s) for s in inputs.values()])
    arrays = {name: x.reshape(s) for (name, s), x in zip(inputs.items(), vectors, strict=True)}
    for part in parts:
        function, formulation, _ = lookup(part.function, part.method)
        if keep_frames and function.simplify is simplified:
            function = function._replace(simplify=regrouped)
        own = [arrays[x].copy() for x in function.inputs]
        if function.inputs[0] == "q":
            guard_quaternions(model, own[0])
        filled = filling(model, function, formulation, chosen, True, dtype)([arrays[p.name] for p in chosen])
        outputs += graph.nodes_of(_evaluated(graph, filled, part, own))
        graph.marks.append((len(graph), "rest", 0))
    return straight_line(graph, outputs, sum(prod(s) for s in inputs.values()))


def _evaluated(graph: Graph, model: Model, part: Part, arrays: Sequence[Any]) -> Any:
    """The result of a formulation on traced arrays."""
    _, formulation, algorithm = lookup(part.function, part.method)
    if formulation not in ASKS_FOR_MASS:
        model = with_traced_inertias(model, graph)
    return algorithm(with_sums_of_angles(model, arrays[0]) if part.sums else model, *arrays, **part.needs)


def rolled(model: Model, name: str, method: str, *, regroup: bool = True, dtype: str = "float64", **needs: Any) -> Rolled:
    """The program of a function of a model that keeps its loops over the links."""
    from qddot.dynamics.loop_tracing import roll

    function, formulation, algorithm = lookup(name, method)
    inputs, output = _arrays_of_links(function, needs)
    model = _rewritten(model, function, formulation, regroup, dtype)

    def run(small: Model, *arrays: Any, **needs: Any) -> Any:
        if function.inputs[0] == "q":
            guard_quaternions(small, arrays[0])
        return algorithm(small, *arrays, **needs)

    return roll(model, run, inputs, output, needs, of_carriers=name in OF_PATH_TO_BASE)


def kinds_of_links(
    model: Model, name: str, method: str, *, regroup: bool = True, dtype: str = "float64", **needs: Any
) -> int:
    """How many kinds of links `rolled` would find, before anything is traced."""
    from qddot.dynamics.loop_tracing import links_by_kind

    function, formulation, _ = lookup(name, method)
    _arrays_of_links(function, needs)
    model = _rewritten(model, function, formulation, regroup, dtype)
    return len(links_by_kind(model, needs, of_carriers=name in OF_PATH_TO_BASE))


def _arrays_of_links(function: Function, needs: Mapping[str, Any]) -> tuple[list[Axes], Axes]:
    """The axes of inputs and output, all by links; an error where a function cannot be rolled for what it takes."""
    inputs, output = [INPUT_AXES[x] for x in function.inputs], function.output
    if needs.get("free"):
        raise NotRollableError("parameters are free")
    if function.is_task:
        raise NotRollableError("it inverts a matrix of the rows of a twist, which is not done link by link")
    if "rows" in function.needs:
        raise NotRollableError("it has constraints")
    if not (isinstance(output, Axes) and all(isinstance(x, Axes) for x in inputs)):
        raise NotRollableError("its arrays do not stand link by link")
    return cast("list[Axes]", inputs), output


def _rewritten(model: Model, function: Function, method: str, regroup: bool, dtype: str) -> Model:
    """The model that a formulation is traced on, its pivots watched."""
    watched = conditioning.guarded(model, dtype=dtype)
    if not regroup or method in OF_WHOLE_LINKS:
        return watched
    # rewritten models are kept by what they compute, which floors are no part of
    return replace(rewriting(model, function)(model), pivot_floor=watched.pivot_floor)


def rewriting(model: Model, function: Function) -> Callable[[Model], Model]:
    """The rewriting of the model that a function's result does not notice, so far as it costs this robot no digits."""
    if conditioning.is_graded(model):
        return lambda model: model
    return regrouped if function.simplify is simplified and conditioning.felt(model).is_thin else function.simplify


def filling(
    model: Model,
    function: Function,
    method: str,
    free: Sequence[parameters.Parameter],
    regroup: bool = True,
    dtype: str = "float64",
) -> Callable[[Sequence[Any]], Model]:
    """What puts the values of free parameters into the model that a formulation is traced on."""
    if not any(p.of_links for p in free):
        rewritten = _rewritten(model, function, method, regroup, dtype)
        return lambda values: parameters.substitute(rewritten, free, values)
    return lambda values: conditioning.guarded(parameters.substitute(model, free, values), model, dtype)


def with_traced_inertias(model: Model, graph: Graph) -> Model:
    """The model with its inertias as numbers of the graph, whose arithmetic knows rounding from nothing."""
    from qddot.compiler.ir.expr import Expr

    def traced(x: Any) -> Any:
        return tuple(map(traced, x)) if isinstance(x, tuple) else Expr(graph, graph.node_of(x))

    return replace(model, inertia=tuple(Inertia(*traced(tuple(I))) for I in model.inertia))


def guard_quaternions(model: Model, q: Any) -> None:
    """A quaternion that is not of unit length gives NaN, not a wrong number."""
    for i, _ in model.outward():
        if model.joint[i].has_unit_quaternion:
            last = model.slots[i].q.stop - 1
            x, y, z, w = q[last - 3 : last + 1]
            off = x * x + y * y + z * z + w * w - 1.0
            q[last] = where(less(off * off, UNIT_QUATERNION_TOLERANCE**2), w, math.nan)
