"""Tracing and the IR: rules, constants, programs, the interpreter, derivatives."""

import ast
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qddot
from qddot import scalars
from qddot.algorithms import newton_euler
from qddot.compiler.ir import differentiate, interpreter, loop_program
from qddot.compiler.ir.expr import Graph, trace
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.loop_program import AncestorWalk, Columns, Place, Rolled, Segment, Sweep
from qddot.compiler.ir.ops import COMPARISONS, OPS
from qddot.compiler.ir.ops import fused as exact_fma
from qddot.compiler.ir.program import straight_line
from qddot.compiler.ir.rules import RULES
from qddot.dynamics import explain
from qddot.dynamics import trace as tracing
from qddot.robots.generators import random_tree
from tests.support.mechanisms import MOVING
from tests.support.profiles import examples

NUMBERS = st.floats(-10.0, 10.0).filter(lambda x: abs(x) > 1e-3)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.pattern)
@given(values=st.fixed_dictionaries(dict.fromkeys("bcdxy", NUMBERS)))
@examples(30)
def test_both_sides_of_a_rule_are_equal(rule, values):
    values = {n: abs(x) if "sqrt" in rule.pattern else x for n, x in values.items()}
    environment = {**values, "sin": math.sin, "cos": math.cos, "sqrt": math.sqrt, "select": lambda c, x, y: x if c else y}
    if rule.condition and "later" not in rule.condition and not eval(rule.condition, environment):
        return
    left = eval(rule.pattern, environment)
    right = eval(rule.replacement.replace("{", "(").replace("}", ")"), environment)
    # the two sides round differently, in proportion to the largest number on the way
    assert left == pytest.approx(right, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.pattern)
def test_every_rule_applies(rule):
    """Building the left side gives the node of the right side."""
    values = {"c": -3.0 if rule.condition == "c < 0" else 3.0, "d": 5.0}

    def build(graph, text):
        text = text.replace("{", "(").replace("}", ")")
        names = {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)}
        y, x = graph.inputs(2) if "later" in rule.condition else graph.inputs(2)[::-1]
        environment = {"x": x, "y": y, "b": x < y, **values, "sin": scalars.sin, "cos": scalars.cos, "sqrt": scalars.sqrt}
        environment["select"] = scalars.where
        assert names <= environment.keys() | {"select"}
        return graph.node_of(eval(text, environment))

    graph = Graph()
    assert build(graph, rule.pattern) == build(graph, rule.replacement)


def test_expr_refuses_what_would_go_silently_wrong():
    (x,) = Graph().inputs(1)
    for wrong in (bool, float, int, iter, lambda x: x == 0, lambda x: x != 0, lambda x: [1][x]):
        with pytest.raises(TypeError, match="a traced value cannot"):
            wrong(x)
    for compared in (x < 1.0, x <= 1.0, x > 1.0, x >= 1.0):
        with pytest.raises(TypeError, match="where"):
            bool(compared)
    with pytest.raises(TypeError, match="another trace"):
        Graph().node_of(x)
    with pytest.raises(TypeError):
        math.sin(x)


def test_numbers_are_one_to_thirteen_digits():
    graph = Graph()
    assert graph.const(0.1 + 0.2) == graph.const(0.3)
    assert graph.const(0.3) != graph.const(0.3000000001)
    assert graph.const(-0.0) == graph.const(0.0)
    s, c, d = 0.7071067811865475, 0.7071067811865476, 0.1234567
    (x,) = graph.inputs(1)
    assert graph.node_of(x * ((s * d) * c - (c * d) * s)) == graph.const(0.0)


def test_counts_do_not_depend_on_the_last_bits_of_parameters():
    """ERRATA section 6: arms of one shape have one operation count, whatever their numbers."""

    def count(seed):
        rng = np.random.default_rng(seed)
        rows = [
            {
                "alpha": rng.uniform(0.1, 1.4),
                "a": rng.uniform(0.1, 1),
                "d": rng.uniform(0.1, 1),
                "mass": rng.uniform(1, 2),
                "com": rng.uniform(0.1, 1, 3),
                "inertia": np.diag(rng.uniform(1, 1.5, 3)) + 0.1,
            }
            for _ in range(6)
        ]
        model = qddot.from_dh(rows).model
        return [tracing.traced(model, f, "auto").count() for f in ("inverse_dynamics", "mass_matrix", "forward_dynamics")]

    counts = [count(seed) for seed in range(5)]
    assert all(c == counts[0] for c in counts)


def test_fused_multiply_add_rounds_once():
    a, b, c = 1.0 + 2.0**-30, 1.0 - 2.0**-30, -1.0
    assert exact_fma(a, b, c) == -(2.0**-60)
    assert a * b + c == 0.0
    assert exact_fma(1e308, 10.0, 0.0) == math.inf
    assert math.isnan(exact_fma(math.inf, 0.0, 1.0))
    assert exact_fma(0.1, 0.1, 0.7) == float(Fraction(0.1) * Fraction(0.1) + Fraction(0.7))


def expression(x, y, z):
    """Something of everything."""
    r = scalars.sqrt(x * x + y * y + 1.0)
    s, c = scalars.sin(z), scalars.cos(x * y)
    t = scalars.where(scalars.less(x, y), x / r - z * s, y * c + 3.0 * z)
    return np.array([t, -(r - t * t), scalars.arctan2(s, r), x * y - z * x + 2.5 - t], dtype=object)


@given(x=NUMBERS, y=NUMBERS, z=NUMBERS)
@examples(100)
def test_the_interpreter_computes_what_python_computes(x, y, z):
    graph, outputs, _ = trace(lambda v: expression(*v), [3])
    program = straight_line(graph, outputs, 3)
    expected = expression(x, y, z).astype(float)
    assert interpreter.run(program, [x, y, z]) == pytest.approx(
        expected, rel=1e-12, abs=1e-12
    )  # terms may come in another order
    assert interpreter.run(fused(program), [x, y, z]) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_fusing_takes_products_into_sums():
    graph, outputs, _ = trace(lambda v: np.array([v[0] * v[1] + v[2], v[0] * v[2] - v[1], v[1] - v[0] * v[0]]), [3])
    program = fused(straight_line(graph, outputs, 3))
    assert sorted(program.graph.ops[n] for n in program.body) == ["fma", "fms", "fnma"]
    # a product that is needed itself stays, and is not computed twice
    graph, outputs, _ = trace(lambda v: np.array([v[0] * v[1] + v[2], v[0] * v[1]]), [3])
    assert len(fused(straight_line(graph, outputs, 3)).body) == 2


def test_signs_are_turned_where_the_number_is_computed():
    def run(v):
        y = [v[k] * v[k] + v[k] for k in range(3)]
        return np.array([v[0] - v[1], -y[0], y[1], -y[1], -(v[0] * v[2]), -y[2]])

    graph, outputs, _ = trace(run, [3])
    program = straight_line(graph, outputs, 3)
    turned = fused(program)
    # the signs of y0 and y2 and their products are in the fused operations, in the order in which the y are computed
    assert [turned.graph.ops[n] for n in turned.body] == ["fnms", "fma", "fnms", "sub", "neg", "mul", "neg"]
    x = [0.3, -1.7, 2.9]
    assert interpreter.run(turned, x) == pytest.approx(interpreter.run(program, x), rel=1e-15)


def test_pivots_are_compared_beside_the_division():
    """And what is lost is NaN as before; an output has zero added, by which a signalling NaN becomes a quiet one."""

    def run(v):
        pivot = scalars.pivot(v[0] - v[1], 1e-3)
        return np.array([1.0 / pivot, v[2] * (1.0 / pivot)])

    graph, outputs, _ = trace(run, [3])
    program = straight_line(graph, outputs, 3)
    assert [graph.ops[n] for n in program.body] == ["sub", "less", "select", "div", "mul"]
    moved = fused(program)
    assert [moved.graph.ops[n] for n in moved.body] == ["sub", "less", "div", "select", "mul", "add"]
    for x in ([0.3, -1.7, 2.9], [0.3, 0.3, 2.9], [0.3, 0.2995, 2.9], [math.nan, 0.3, 2.9]):
        assert interpreter.run(moved, x) == pytest.approx(interpreter.run(program, x), abs=0, rel=0, nan_ok=True)


@pytest.mark.parametrize(
    "uses",
    [
        lambda pivot, y: [y / pivot, pivot],  # the pivot itself is needed
        lambda pivot, y: [y / pivot, pivot * y],
        lambda pivot, y: [-(y / pivot)],  # what is not arithmetic would hand a signalling NaN on
        lambda pivot, y: [scalars.where(y < 0.0, y / pivot, 1.0)],
    ],
    ids=["output", "operand", "sign", "choice"],
)
def test_pivots_with_other_uses_stay_before_the_division(uses):
    graph, outputs, _ = trace(lambda v: np.array(uses(scalars.pivot(v[0], 1e-3), v[1])), [2])
    program = straight_line(graph, outputs, 2)
    assert [fused(program).graph.ops[n] for n in fused(program).body] == [graph.ops[n] for n in program.body]


def segment(function, sources, targets):
    graph, outputs, _ = trace(function, [len(sources)])
    return Segment(straight_line(graph, outputs, len(sources)), tuple(sources), tuple(targets))


def test_loops_loads_and_stores():
    """A rolled weighted sum, each row adding its own term to what its parent has: what rolled code is made of."""

    zero = segment(lambda x: np.array([0.0 * x[0]]), [Place("input", 0)], [Place("own", 0)])
    term = segment(
        lambda x: np.array([x[2] + x[0] * x[1], x[2] + x[0] * x[1]]),
        [Place("constant", 0), Place("input", 0), Place("parent", 0)],
        [Place("own", 0), Place("output", 0)],
    )
    program = Rolled(
        names=["world", "a", "b", "c"],
        n_inputs=3,
        n_outputs=3,
        slots=[1],
        frame=[range(4)],
        kind=[0] * 4,
        parent=[0, 0, 1, 2],
        starts=[[0, 0, 1, 2]],
        constants=[(), (1.0,), (2.0,), (3.0,)],
        steps=(zero, Sweep(False, (term,))),
    )
    assert loop_program.run(program, [0.5, 1.0, 2.0]) == [0.5, 2.5, 8.5]
    assert loop_program.run(loop_program.fused(program), [0.5, 1.0, 2.0]) == [0.5, 2.5, 8.5]
    assert program.count()["mul"] == 3


def test_climbs_and_columns():
    """What columns pass through on the way to the base, and steps that are repeated for each of them."""

    factor, own, passed, out = Place("constant", 0), Place("own", 0), Place("parent", 0), Place("output", 0, 0, 4)
    start = segment(lambda x: np.array([x[0], x[0]]), [factor], [passed, out])
    way = segment(
        lambda x: np.array([x[0] * x[1], x[0] * x[1]]), [Place("constant", 0), own], [passed, Place("output", 0, 0, 4)]
    )
    unit = segment(lambda x: x * 1.0, [Place("unit", -1)], [Place("output", 16, 0, 4)])
    program = Rolled(
        names=["world", "a", "b", "c"],
        n_inputs=0,
        n_outputs=32,
        slots=[1],
        frame=[range(4)],
        kind=[0] * 4,
        parent=[0, 0, 1, 1],
        starts=[[0, 1, 2, 3]],
        constants=[(), (2.0,), (3.0,), (5.0,)],
        steps=(AncestorWalk([1, 2, 3], [0, 0, 0], [0, 1, 2], (start,), (way,)), Columns(3, (Sweep(True, (unit,)),))),
        clears=True,
    )
    found = np.reshape(loop_program.run(loop_program.fused(program), []), (2, 4, 4))
    assert found[0, :3, 1:].tolist() == [[2.0, 0.0, 0.0], [6.0, 3.0, 0.0], [10.0, 0.0, 5.0]]
    assert found[1, :3, 1:].tolist() == np.eye(3).tolist()
    assert program.count()["mul"] == 2
    climb = replace(program.steps[0], columns=[0, 1, 1])  # the last two share one, which is then added up
    shared = np.reshape(loop_program.run(replace(program, steps=(climb,), adds=True), []), (2, 4, 4))
    assert shared[0, :3, 1:].tolist() == [[2.0, 0.0, 0.0], [6.0 + 10.0, 3.0, 5.0], [0.0, 0.0, 0.0]]


def test_every_operation_has_a_slope_that_is_right():
    h = 1e-6
    points = {"arctan2": (0.3, 0.7), "sqrt": (2.0,), "div": (0.3, 0.7), "select": (1.0, 0.3, 0.7)}
    for name, op in OPS.items():
        if op.slopes is None or name in COMPARISONS:
            continue
        x = points.get(name, (0.3, 0.7, 0.2)[: op.arity])
        slopes = op.slopes(*x, op.value(*x)) if name != "select" else (0.0, 1.0, 0.0)
        for k in range(op.arity):
            up = op.value(*(v + h * (j == k) for j, v in enumerate(x)))
            down = op.value(*(v - h * (j == k) for j, v in enumerate(x)))
            assert slopes[k] == pytest.approx((up - down) / (2 * h), abs=1e-8), name


@pytest.mark.parametrize("kind", MOVING)
def test_derivatives_of_inverse_dynamics(kind):
    """Forward, reverse and complex step agree, for every kind of joint."""
    model = random_tree(3, rng=2, kinds=(kind, "revolute")).model()
    robot = qddot.Robot(model, compiled=False)
    (q, v), a = robot.random_state(1), np.ones(model.nv)
    sizes = [model.nq, model.nv, model.nv]
    graph, outputs, _ = trace(lambda *x: newton_euler.inverse_dynamics(model, *x), sizes)
    wanted = range(model.nq, model.nq + model.nv)  # by the velocities, which are plain numbers for all joints
    rows = differentiate.forward(graph, outputs, list(wanted))
    flat = [n for row in rows for n in row]
    inputs = np.concatenate([q, v, a])
    jacobian = np.array(interpreter.run(straight_line(graph, flat, sum(sizes)), inputs)).reshape(model.nv, model.nv)
    step = [newton_euler.inverse_dynamics(model, q, v + 1e-20j * e, a).imag / 1e-20 for e in np.eye(model.nv)]
    assert np.allclose(jacobian, np.array(step).T, rtol=1e-10, atol=1e-10)
    gradient = differentiate.reverse(graph, outputs[0], sum(sizes))
    by_reverse = np.array(interpreter.run(straight_line(graph, gradient, sum(sizes)), inputs))[list(wanted)]
    assert np.allclose(by_reverse, jacobian[0], rtol=1e-10, atol=1e-10)


def test_nodes_know_their_link_and_symbol():
    text = explain.explain(qddot.load("scara").model, "inverse_dynamics")
    assert "outer_arm  Vdot" in text
    total = text.splitlines()[-1].split()
    counts = tracing.traced(qddot.load("scara").model, "inverse_dynamics", "auto").count()
    assert [int(x) for x in total[1:]] == [n for n in counts.values() if n]
