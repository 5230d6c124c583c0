"""exp, log, tanh and arctan: right to a unit or two in the last place, and the same bits in every back end."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest

import qddot
from qddot import scalars
from qddot.compiler.codegen import c99
from qddot.compiler.codegen.abi import c_function
from qddot.compiler.codegen.printer import Function
from qddot.compiler.ir import differentiate, elementary, interpreter
from qddot.compiler.ir.expr import Graph, trace
from qddot.compiler.ir.program import straight_line
from qddot.compiler.targets import host as processors
from qddot.compiler.targets import registry as targets
from qddot.compiler.targets.host import native
from tests.support.c_code import COMPILERS, call, library, needs_compiler
from tests.support.kernels import compiled, ulps
from tests.support.mechanisms import bent_chain

NAMES = tuple(elementary.FUNCTIONS)
EXACT = {"exp": mpmath.exp, "log": mpmath.log, "tanh": mpmath.tanh, "arctan": mpmath.atan}
MOST_ULPS = {"exp": 1.0, "log": 1.0, "tanh": 2.0, "arctan": 1.0}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 710.0, -745.2, -745.0, -746.5, 5e-324, 1e308, -1.0, 1.0, 2.0**-1022]


def points(name, count=400):
    """Numbers of all sizes, and those about the places where a function's method changes."""
    rng = np.random.default_rng(0)
    sizes = 2.0 ** rng.uniform(-1020, 1020, count)
    near = {
        "exp": np.concatenate(
            [rng.uniform(-745, 709.7, 3 * count), rng.uniform(-1, 1, count), (np.arange(-9, 9) + 0.5) * np.log(2)]
        ),
        "log": np.concatenate([sizes, rng.uniform(0.5, 2.0, 3 * count), 1.0 + rng.uniform(-1e-3, 1e-3, count)]),
        "tanh": np.concatenate(
            [rng.uniform(-1, 1, 3 * count), rng.uniform(-20, 20, count), 0.625 + rng.uniform(-1e-3, 1e-3, 20)]
        ),
        "arctan": np.concatenate([sizes, rng.uniform(-4, 4, 3 * count), 0.66 + rng.uniform(-1e-3, 1e-3, 20)]),
    }[name]
    return near if name in ("exp", "log") else np.concatenate([near, -near, 1.0 / sizes])


def every(x):
    """All of them, in arithmetic, and both comparisons."""
    a, b = x[0], x[1]
    chosen = scalars.where(scalars.less_equal(a, b), a, -b)
    values = [getattr(scalars, name)(a) for name in NAMES]
    return np.array([*values, scalars.exp(scalars.log(b * b + 1.0) - chosen), scalars.tanh(a * b) + chosen], dtype=object)


def inputs(dtype="float64", count=75):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((count, 2)) * 10.0 ** rng.uniform(-3, 2, (count, 1))
    x[: len(SPECIAL), 0] = SPECIAL
    x[30:40, 1] = x[30:40, 0]  # x <= y where they are equal
    with np.errstate(over="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("name", NAMES)
def test_accuracy(name):
    x = points(name)
    with mpmath.workdps(50):
        exact = [EXACT[name](mpmath.mpf(float(v))) for v in x]
        assert ulps([elementary.evaluate(name, v) for v in x], exact) < MOST_ULPS[name]


@pytest.mark.parametrize("name", NAMES)
def test_special_values_are_numpys(name):
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(np.array(SPECIAL))
    found = np.array([elementary.evaluate(name, x) for x in SPECIAL])
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    sign = np.signbit(expected) | np.isnan(expected)
    assert np.array_equal(np.signbit(found) | np.isnan(found), sign)


def test_small_results_of_exp_are_rounded_once():
    for x in np.linspace(-745.1, -708.0, 200):
        with mpmath.workdps(50):
            assert abs(elementary.evaluate("exp", x) - mpmath.exp(mpmath.mpf(x))) <= 1.0 * math.ulp(
                elementary.evaluate("exp", x)
            )


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_kernels_have_the_interpreters_bits(lanes):
    kernel, program = compiled(every, [2], (6,), lanes)
    x = inputs()
    expected = np.array([interpreter.run(program, row) for row in x])
    assert np.array_equal(kernel(x), expected, equal_nan=True)
    assert np.array_equal(kernel(x[5]), expected[5], equal_nan=True)
    zeros = kernel(np.array([[0.0, 1.0], [-0.0, 1.0]]))[:, 2:4]
    assert np.signbit(zeros).tolist() == [[False, False], [True, True]]


@pytest.mark.parametrize("lanes", [1, 8])
def test_comparisons_are_used_far_from_where_they_were_made(lanes):
    """In another function of the generated code, which has some hundred operations."""

    def function(x):
        conditions = [scalars.less_equal(x[0], x[1]), scalars.less_equal(scalars.tanh(x[0]), 0.5)]
        value = x[0]
        for k in range(800):
            value = value * x[1] + float(k)
        return np.array([scalars.where(c, value, scalars.exp(x[1])) for c in conditions], dtype=object)

    kernel, program = compiled(function, [2], (2,), lanes)
    x = np.array([[0.3, 0.3], [0.4, 0.3], [0.7, 0.5], [-0.2, 0.9], [0.1, np.nan]])
    expected = np.array([interpreter.run(program, row) for row in x])
    assert np.array_equal(kernel(x), expected, equal_nan=True)


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_kernels_of_floats_round_the_function_of_doubles(lanes):
    kernel, _ = compiled(
        lambda x: np.array([getattr(scalars, n)(x[0]) for n in NAMES], dtype=object), [1], (4,), lanes, "float32"
    )
    x = inputs("float32")[:, :1]
    with np.errstate(over="ignore"):
        expected = np.array([[elementary.evaluate(n, float(v)) for n in NAMES] for (v,) in x]).astype(np.float32)
    assert np.array_equal(kernel(x), expected, equal_nan=True)


def test_processors_without_fused_multiply_adds_have_the_same_bits(monkeypatch):
    def function(x):
        return np.array([getattr(scalars, n)(x[0]) for n in NAMES], dtype=object)

    x = inputs()[:, :1]
    here = compiled(function, [1], (4,))[0](x)
    monkeypatch.setattr(processors, "native", lambda: dataclasses.replace(native(), fma=not native().fma))
    assert np.array_equal(compiled(function, [1], (4,))[0](x), here, equal_nan=True)


@needs_compiler
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_exported_c_has_the_kernels_bits(compiler, dtype, tmp_path):
    kernel, program = compiled(every, [2], (6,), dtype=dtype)
    fma = native().fma
    sources = [
        c99.render([Function(program, f"f{k}", [("x", 2)], [("out", 6)], dtype, fma=fma, own_sincos=k == 0)])
        for k in (0, 1)
    ]
    lib = library(tmp_path, sources, compiler, "-O2")
    for row in inputs(dtype):
        expected = kernel(row)
        assert np.array_equal(call(lib, "f0", [row], 6, dtype), expected, equal_nan=True)
        if np.all(np.isfinite(expected)) and np.max(np.abs(row)) < 10.0:
            np.testing.assert_allclose(
                call(lib, "f1", [row], 6, dtype), expected, rtol=1e-12 if dtype == "float64" else 1e-4
            )
    assert "f0_tanh(" in sources[0]
    assert "f1_tanh" not in sources[1]


def test_libraries_need_no_functions_of_c():
    program = straight_line(*_traced(every, 2))
    made = c_function.render(program, "f", [(2,)], (6,), "float64", targets.exported("cpu").target)
    assert made.library == ()
    assert "@tanh_1(" in made.text


def _traced(function, size):
    graph, nodes, _ = trace(function, [size])
    return graph, nodes, size


def test_numbers_are_folded_to_the_same_bits():
    graph = Graph()
    (x,) = graph.inputs(1)
    for name in NAMES:
        known = getattr(scalars, name)(x * 0.0 + 0.7).known
        assert known == elementary.evaluate(name, 0.7)
    assert scalars.exp(x * 0.0 + 800.0).known == math.inf


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name):
    """Forward and reverse, against a complex step."""
    graph, outputs, _ = trace(lambda x: np.array([getattr(scalars, name)(x[0] * x[1])], dtype=object), [2])
    forward = differentiate.forward(graph, outputs, [0, 1])[0]
    reverse = differentiate.reverse(graph, outputs[0], 2)
    found = interpreter.run(straight_line(graph, [*forward, *reverse], 2), [0.7, 1.3])
    step = getattr(scalars, name)(complex(0.7 * 1.3, 1e-20)).imag / 1e-20
    assert found == pytest.approx([1.3 * step, 0.7 * step] * 2, rel=1e-14)


def test_programs_with_loops():
    """A robot of joints of the user's own: with loops over links and without, in all widths."""
    robot = bent_chain(3)
    q, v = np.random.default_rng(0).standard_normal((2, 11, 3))
    arrays = (q, v, v)
    plain = robot.kernel("inverse_dynamics", form="unrolled")(*arrays)
    rolled = [robot.kernel("inverse_dynamics", form="rolled", lanes=n)(*arrays) for n in (1, 4, 8)]
    assert all(np.array_equal(rolled[0], other) for other in rolled[1:])
    np.testing.assert_allclose(rolled[0], plain, rtol=1e-12, atol=1e-12)
    eager = qddot.Robot(robot.model, compiled=False).inverse_dynamics(*arrays)
    np.testing.assert_allclose(plain, eager, rtol=1e-12, atol=1e-12)
    single = [robot.kernel("inverse_dynamics", dtype="float32", form=f)(*arrays) for f in ("rolled", "unrolled")]
    np.testing.assert_allclose(single, [plain] * 2, rtol=1e-4, atol=1e-4)


@needs_compiler
def test_exported_robots(tmp_path):
    robot = bent_chain(2)
    q, v = np.random.default_rng(0).standard_normal((2, 2))
    exported = robot.export_c("inverse_dynamics", name="f", fma=native().fma)
    lib = library(tmp_path, [exported.source])
    assert call(lib, "f", [q, v, v], 2, "float64").tolist() == robot.kernel("inverse_dynamics")(q, v, v).tolist()
    assert "in its own functions" in exported.source
