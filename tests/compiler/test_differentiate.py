"""Derivatives of traces: products with the Jacobian from both sides, once and twice, at choices and infinite slopes."""

import math

import numpy as np
import pytest

from qddot import scalars
from qddot.compiler.ir import interpreter
from qddot.compiler.ir.differentiate import jvp, vjp
from qddot.compiler.ir.expr import Graph, trace
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.program import straight_line
from qddot.scalars import less, where

STEP = 1e-30
FLOOR = 1e-3


def _mixed(x):
    """All operations, on numbers of any kind."""
    y, z = x[0] * x[1] - x[2], x[1] / (2.0 + x[0] * x[0])
    branch = where(less(x[2], 0.5), scalars.exp(y * z), scalars.log(3.0 + y))
    return np.array(
        [
            scalars.sin(y) * scalars.cos(z) - -branch,
            scalars.sqrt(4.0 + y) + scalars.tanh(z * y) * scalars.arctan(branch),
            scalars.arctan2(y, 1.5 + z) / (x[0] + 3.0),
        ]
    )


def _inputs(graph, count):
    return [graph.leaf("input", k) for k in range(count)]


def _run(graph, nodes, values):
    return np.array(interpreter.run(fused(straight_line(graph, list(nodes), len(values))), list(values)))


def _jacobian(function, x):
    columns = [function(x + 1j * STEP * e).imag / STEP for e in np.eye(len(x))]
    return np.array(columns).T


@pytest.mark.parametrize("x", [(0.3, 0.7, 0.2), (0.3, -0.7, 0.8)])
def test_products_with_the_jacobian(x):
    """Against complex steps, on both sides of a choice."""
    graph, outputs, _ = trace(_mixed, [3])
    w, d = np.random.default_rng(0).standard_normal((2, 3))
    weights = [graph.leaf("input", 3 + k) for k in range(3)]
    rows = vjp(graph, outputs, _inputs(graph, 3), weights)
    rates = jvp(graph, outputs, _inputs(graph, 3), weights)
    J = _jacobian(_mixed, np.array(x))
    assert _run(graph, rows, [*x, *w]) == pytest.approx(w @ J, rel=1e-13)
    assert _run(graph, rates, [*x, *d]) == pytest.approx(J @ d, rel=1e-13)


@pytest.mark.parametrize("x", [(0.3, 0.7, 0.2), (0.3, -0.7, 0.8)])
@pytest.mark.parametrize("way", ["reverse of reverse", "forward of reverse", "reverse of forward", "forward of forward"])
def test_second_derivatives(x, way):
    """Hessians of one weighted sum, four ways, against complex steps of the first derivatives."""
    graph, outputs, _ = trace(_mixed, [3])
    w, d = np.random.default_rng(1).standard_normal((2, 3))
    inputs = _inputs(graph, 3)
    weights, direction = ([graph.leaf("input", first + k) for k in range(3)] for first in (3, 6))
    if way.endswith("of reverse"):
        first = vjp(graph, outputs, inputs, weights)
        nodes = (vjp if way.startswith("reverse") else jvp)(graph, first, inputs, direction)
    else:
        first = jvp(graph, outputs, inputs, direction)
        second = weights if way.startswith("reverse") else direction
        nodes = (vjp if way.startswith("reverse") else jvp)(graph, first, inputs, second)
    found = _run(graph, nodes, [*x, *w, *d])

    def along(x):
        """J(x) d: complex steps of a complex function are not to be had, so by differences of first order steps."""
        return _jacobian(_mixed, x) @ d

    h = 1e-5
    slope = np.array([(along(np.array(x) + h * e) - along(np.array(x) - h * e)) / (2 * h) for e in np.eye(3)]).T
    expected = slope @ d if way == "forward of forward" else w @ slope
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)  # differences: h² and rounding over h


def test_computed_nodes_stand_for_themselves():
    graph = Graph()
    (x,) = graph.vectors([1])
    y = x[0] * x[0]
    result = y * x[0]
    rows = vjp(graph, [result.node], [x[0].node, y.node], [graph.const(1.0)])
    assert _run(graph, rows, [3.0]) == pytest.approx([9.0, 3.0])
    assert _run(graph, jvp(graph, [result.node], [y.node], [graph.const(1.0)]), [3.0]) == pytest.approx([3.0])


BRANCHES = {
    "sqrt": lambda x: where(less(0.0, x), scalars.sqrt(x), 2.0 * x),
    "quotient": lambda x: where(less(0.0, x), scalars.sin(x) / x, 2.0 * x),
    "two choices of one condition": lambda x: (
        where(less(0.0, x), scalars.log(x), x) + where(less(0.0, x), scalars.log(x) * x, x)
    ),
    "a choice within another": lambda x: where(less(-1.0, x), where(less(0.0, x), scalars.sqrt(x) / x, 2.0 * x), 1.0),
    "infinite product": lambda x: where(less(0.0, x), (1.0 / x) * scalars.cos(1.0 / x), 2.0 * x),
    "NaN of itself": lambda x: where(less(x, 0.5), 2.0 * x, x * scalars.log(x - 1.0)),
}


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("order", [1, 2])
def test_the_branch_that_is_not_chosen_leaves_no_trace(name, order):
    """At zero the chosen branches are 2 x or x, and the others infinite or NaN; forward and reverse."""
    graph, outputs, _ = trace(lambda x: np.array([BRANCHES[name](x[0])], dtype=object), [1])
    one, x = [graph.const(1.0)], _inputs(graph, 1)
    for sweeps in ((vjp, vjp), (jvp, jvp), (jvp, vjp), (vjp, jvp)):
        nodes = sweeps[0](graph, outputs, x, one)
        nodes = sweeps[1](graph, nodes, x, one) if order == 2 else nodes
        assert _run(graph, nodes, [0.0]).tolist() == [2.0 if order == 1 else 0.0]


def test_a_branch_that_is_nan_stays_nan():
    """As pivots have it: not a slope of zero where there is no result."""
    graph, outputs, _ = trace(lambda x: np.array([x[1] / scalars.pivot(x[0], FLOOR)], dtype=object), [2])
    for nodes in (
        vjp(graph, outputs, _inputs(graph, 2), [graph.const(1.0)]),
        jvp(graph, outputs, _inputs(graph, 2), [graph.const(1.0)] * 2),
    ):
        assert np.isnan(_run(graph, nodes, [0.0, 1.0])).all()
        assert np.isfinite(_run(graph, nodes, [1.0, 1.0])).all()


def test_infinite_slopes_are_infinite():
    graph, outputs, _ = trace(lambda x: np.array([scalars.sqrt(x[0]), scalars.arctan2(x[0], x[1])], dtype=object), [2])
    rows = [vjp(graph, [y], _inputs(graph, 2), [graph.const(1.0)]) for y in outputs]
    assert _run(graph, rows[0], [0.0, 0.0]).tolist() == [math.inf, 0.0]
    assert np.isnan(_run(graph, rows[1], [0.0, 0.0])).all()


def test_what_leads_nowhere_makes_no_nodes():
    graph = Graph()
    (x,) = graph.vectors([3])
    y = scalars.sin(x[0]) * x[1]
    scalars.exp(x[2])
    (zero,) = vjp(graph, [y.node], [x[2].node], [graph.const(1.0)])
    assert (graph.ops[zero], graph.args[zero]) == ("const", (0.0,))
    before = len(graph)
    vjp(graph, [y.node], [x[2].node], [x[2].node])
    assert len(graph) == before


def test_sections_of_the_trace_have_sections_of_derivatives():
    def function(x):
        y = [scalars.sin(x[0]) * x[1]]
        scalars.mark(tuple(y), "V", 1)
        y.append(y[0] * x[1])
        scalars.mark(tuple(y), "F", 2)
        return np.array([y[1]], dtype=object)

    graph, outputs, _ = trace(function, [2])
    rows = vjp(graph, outputs, _inputs(graph, 2), [graph.leaf("input", 2)])
    sections = [(symbol, link) for symbol, link, _ in straight_line(graph, rows, 3).sections()]
    assert sections == [("V", 1), ("F adjoint", 2), ("V adjoint", 1)]
