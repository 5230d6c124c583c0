"""Compiled kernels: the same numbers as the interpreter and the algorithms, in every way NumPy can call them."""

import ctypes
import gc
import os
import re
import subprocess
import sys
import textwrap
import threading

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qddot
from qddot import scalars
from qddot.compiler.codegen.abi import gufunc, output_plan
from qddot.compiler.codegen.abi import operands as scratch_memory
from qddot.compiler.codegen.llvm import straight_line as function_body
from qddot.compiler.ir import interpreter, schedule
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.packed_output import layout_of, with_layout
from qddot.compiler.ir.program import straight_line
from qddot.compiler.ir.schedule import best_order, side_by_side
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.targets.host import host
from qddot.dynamics import choose, pipeline
from qddot.dynamics import trace as tracing
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.errors import KernelTooLargeError
from qddot.joints import Prismatic
from qddot.robots.generators import random_tree
from tests.support.kernels import (
    OTHER_ORDER,
    SAME_ORDER,
    as_computed,
    assert_two_ulp,
    close,
    compiled,
    hard_angles,
    robot_of,
    ulps,
)
from tests.support.mechanisms import MOVING, built, needs_of
from tests.support.profiles import examples
from tests.support.real_robots import REAL, URDFS, WHY, load, short

# ---- the same numbers everywhere


def agree(model, name, extra=None, states=19):
    """Eager, interpreter, one lane and all lanes agree on one function of a model."""
    robot, extra = qddot.Robot(model, compiled=False), extra or {}
    rng = np.random.default_rng(0)
    pairs = [robot.random_state(rng) for _ in range(states)]
    q, v = (np.stack(x) for x in zip(*pairs, strict=True))
    known = {"q": q, "v": v, "a": v[::-1], "tau": v[::-1], "f_ext": rng.standard_normal((states, model.n_links, 6))}
    arrays = [known[x] for x in FUNCTIONS[name].inputs]
    kernel = built(model, name, **extra)
    lanes = kernel(*arrays)
    one = np.stack([kernel(*(x[k] for x in arrays)) for k in range(states)])  # a state alone runs the one-lane code
    assert np.array_equal(lanes, one)
    program = as_computed(tracing.traced(model, name, "auto", **extra))
    solves = name.startswith(("forward_dynamics", "hybrid_dynamics", "mass_matrix_inverse", "operational_space"))
    worse = np.max(np.linalg.cond(robot.mass_matrix(q))) if solves else 1.0
    for k in (0, states - 1):
        inputs = np.concatenate([np.ravel(x[k]) for x in arrays])
        close(lanes[k].ravel(), interpreter.run(program, inputs), SAME_ORDER * worse)
    eager = FUNCTIONS[name].methods[next(iter(FUNCTIONS[name].methods))](model, *arrays, **extra)
    close(lanes, eager, OTHER_ORDER * worse)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_compiled(name):
    """The smallest tree that has a branch: `pytest -m quick` has it of all tests here."""
    model = random_tree(2, rng=5, kinds=("revolute",)).model()
    agree(model, name, needs_of(name, model), states=9)


# Every function on a few kinds of joints and a few functions on every kind; the rest is slow.
FEW_KINDS = ("revolute", "free", "spherical_exponential", "own")
FEW_FUNCTIONS = ("inverse_dynamics", "forward_dynamics_with_forces", "mass_matrix", "forward_kinematics", "coriolis_matrix")
PAIRS = [
    pytest.param(name, kind, marks=() if name in FEW_FUNCTIONS or kind in FEW_KINDS else pytest.mark.slow)
    for name in FUNCTIONS
    for kind in MOVING
]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_function_on_every_kind_of_joint(name, kind):
    model = random_tree(3, rng=5, kinds=(kind, "revolute"), mimic=kind == "revolute").model()
    agree(model, name, needs_of(name, model))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_method(name):
    model = qddot.load("stanford").model
    robot = qddot.load("stanford")
    extra = needs_of(name, robot)
    rng = np.random.default_rng(1)
    q, v = robot.random_state(rng)
    known = {"q": q, "v": v, "a": v, "tau": v, "f_ext": rng.standard_normal((6, 6))}
    arrays = [known[x] for x in FUNCTIONS[name].inputs]
    results = [built(model, name, method=m, **extra)(*arrays) for m in FUNCTIONS[name].methods]
    for other in results[1:]:
        close(other, results[0], 1e-10)  # formulations differ in rounding by the condition of M, here below 1e3


def test_one_state_is_not_divided_among_threads(monkeypatch):
    """Of a kernel so long that a state alone would be worth several threads, as those of very long chains are."""
    monkeypatch.setattr("qddot.compiler.runtime.threads._threads", 2)
    robot = qddot.load("double_pendulum")
    q, v = robot.random_state(0)
    expected = robot.inverse_dynamics(q, v, v)
    k = built(robot.model, "inverse_dynamics")
    k._batches.one_thread, k._batches.operations = 0, 10**9
    assert np.array_equal(k._batches(q, v, v), expected)
    assert np.array_equal(k(q[None], v[None], v[None]), expected[None])


# Each robot with one of three functions; the other two are slow.
THREE = ("inverse_dynamics", "mass_matrix", "forward_dynamics")
REAL_PAIRS = [
    pytest.param(source, name, marks=() if j == k % 3 else pytest.mark.slow, id=f"{short(source)}-{name}")
    for k, source in enumerate(REAL)
    for j, name in enumerate(THREE)
]


@pytest.mark.parametrize(("source", "name"), REAL_PAIRS)
def test_real_robots(source, name):
    robot = load(source, floating_base=len(short(source)) % 2 == 1)  # the ending of a file has five letters
    if robot.nv == 0 or (name == "forward_dynamics" and robot.massless_joints):
        pytest.skip("nothing moves, or something moves without mass")
    agree(robot.model, name)


@pytest.mark.skipif(not URDFS, reason=WHY)
def test_thirty_real_robots_are_compared():
    assert len(REAL) == 30


OPERATIONS = st.lists(
    st.tuples(st.sampled_from("+-*/nfw"), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=40
)


@given(OPERATIONS, st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=3, max_size=3))
@examples(10)
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_arithmetic_is_the_interpreters_to_the_last_bit(lanes, operations, values):
    def function(x):
        pool = list(x)
        for op, i, j in operations:
            a, b = pool[i % len(pool)], pool[j % len(pool)]
            if op == "w":
                new = scalars.where(scalars.less(a, b), a, b)
            else:
                new = {"+": a + b, "-": a - b, "*": a * b, "/": a / (b * b + 1.0), "n": -a, "f": a * b + pool[0]}[op]
            pool.append(new)
        return np.array(pool[-3:], dtype=object)

    kernel, program = compiled(function, [3], (3,), lanes)
    batch = np.tile(np.array(values), (11, 1))
    expected = np.array(interpreter.run(program, values))
    assert np.array_equal(kernel(batch), np.tile(expected, (11, 1)), equal_nan=True)


# ---- sine and cosine


@pytest.fixture
def sincos(way):
    return compiled(lambda x: np.array([scalars.sin(x[0]), scalars.cos(x[0])], dtype=object), [1], (2,))[0]


def test_sine_and_cosine_are_within_two_ulp(sincos):
    assert_two_ulp(sincos(hard_angles()[:, None]))


def test_large_angles_and_what_is_no_number(sincos):
    with mpmath.workdps(400):
        x = np.array([1.0000001e5, -3e7, 1e22, 1.7e308, 2.0**60, 1e5, np.nextafter(1e5, 2e5)])
        values = sincos(x[:, None])
        assert ulps(values[:, 0], [mpmath.sin(mpmath.mpf(float(a))) for a in x]) < 2.0
        assert ulps(values[:, 1], [mpmath.cos(mpmath.mpf(float(a))) for a in x]) < 2.0
    bad = sincos(np.array([[np.inf], [-np.inf], [np.nan], [0.0], [-0.0], [1.0]]))
    assert np.isnan(bad[:3]).all()
    assert np.array_equal(bad[3:5], [[0.0, 1.0], [-0.0, 1.0]])
    assert bad[5, 0] == pytest.approx(np.sin(1.0), rel=1e-15)


def test_one_far_angle_does_not_disturb_its_neighbours(sincos):
    x = np.linspace(-3, 3, 64)
    quiet = sincos(x[:, None])
    x[13] = 1e9
    loud = sincos(x[:, None])
    assert np.array_equal(np.delete(loud, 13, axis=0), np.delete(quiet, 13, axis=0))


# ---- as NumPy sees it


@pytest.fixture
def robot(way):
    return robot_of(way)


@pytest.fixture(scope="module")
def states():
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal((100, 6)) for _ in range(3))


def test_batches_broadcast(robot, states):
    k = robot.kernel("inverse_dynamics")
    q, v, a = states
    flat = k(q, v, a)
    assert k(q[0], v[0], a[0]).shape == (6,)
    assert np.array_equal(k(q.reshape(5, 20, 6), v.reshape(5, 20, 6), a.reshape(5, 20, 6)).reshape(100, 6), flat)
    assert np.array_equal(k(q, v[3], a[3])[3], flat[3])
    assert np.array_equal(k(q[:, None], v[None], a[None])[7, 7], flat[7])
    assert k(q[:0], v[:0], a[:0]).shape == (0, 6)
    assert np.array_equal(k(q.tolist(), v.tolist(), a.tolist()), flat)


def test_place_size_and_threads_do_not_change_bits(robot, states):
    k = robot.kernel("forward_dynamics")
    q, v, tau = (np.tile(x, (50, 1)) for x in states)
    whole = k(q, v, tau)
    for n in (1, 2, 7, 8, 9, 100):
        assert np.array_equal(k(q[:n], v[:n], tau[:n]), whole[:n])
        assert np.array_equal(k(q[3 : 3 + n], v[3 : 3 + n], tau[3 : 3 + n]), whole[3 : 3 + n])
    try:
        for threads in (1, 2, 5):
            qddot.set_num_threads(threads)
            assert np.array_equal(k(q, v, tau), whole)
            assert np.array_equal(k(q.reshape(50, 100, 6), v.reshape(50, 100, 6), tau[0]).reshape(-1, 6), k(q, v, tau[0]))
    finally:
        qddot.set_num_threads(None)


def test_one_state_is_never_split(robot, states, monkeypatch):
    """A kernel so long that one state is worth several threads has no batch to split."""
    k = robot.kernel("forward_dynamics", method="articulated_body_absolute")
    expected = k(*(x[0] for x in states))
    monkeypatch.setattr(k._batches, "operations", 10**8)
    monkeypatch.setattr(k._batches, "one_thread", 0)
    try:
        qddot.set_num_threads(2)
        assert np.array_equal(k._batches(*(x[0] for x in states)), expected)
        assert np.array_equal(k(*(x[:1] for x in states))[0], expected)
    finally:
        qddot.set_num_threads(None)


def test_strange_memory(robot, states):
    k, M = robot.kernel("inverse_dynamics"), robot.kernel("mass_matrix")
    q, v, a = states
    flat = k(q, v, a)
    wide = np.zeros((100, 13))
    wide[:, 1:13:2] = q
    assert np.array_equal(k(wide[:, 1:13:2], v, a), flat)  # every other column
    assert np.array_equal(k(q[::-1], v[::-1], a[::-1]), flat[::-1])  # backwards
    assert np.array_equal(k(np.asfortranarray(q), v, a), flat)
    shifted = np.frombuffer(np.zeros(100 * 48 + 1, dtype=np.uint8).data, float, 600, 1).reshape(100, 6)
    assert np.array_equal(k(shifted, v, a), k(np.zeros((100, 6)), v, a))  # not aligned
    q_read = q.copy()
    q_read.flags.writeable = False
    assert np.array_equal(k(q_read, v, a), flat)
    out = np.full((100, 6, 6, 2), 7.0)
    M(q, out=out[..., 0])  # results written with gaps
    assert np.array_equal(out[..., 0], M(q))
    assert (out[..., 1] == 7.0).all()


@pytest.fixture
def streaming():
    """Sets from how many bytes on results are written with streaming stores."""
    environment = llvm_compile.library_functions()
    before = environment[output_plan.STREAMING_MIN_BYTES_AT]

    def set_from(least):
        environment[output_plan.STREAMING_MIN_BYTES_AT] = least

    yield set_from
    set_from(before)


@pytest.mark.parametrize(("dtype", "lanes"), [("float64", n) for n in (1, 2, 4, 8)] + [("float32", n) for n in (4, 8, 16)])
@pytest.mark.parametrize("size", [*range(33, 42), 70, 131, 260])
def test_long_results_are_written_with_streaming_stores(streaming, size, dtype, lanes):
    """Rows of any length, that begin anywhere in a cache line, with gaps between them, and what is around them."""
    streaming(0)
    where = [k * k % 7 if k < 16 or k > 31 else -1 for k in range(size)]  # some numbers twice, a tile and more of zeros

    def numbers(x):
        return np.array([x[0] * (k + 0.5) if k >= 0 else 0.0 * x[0] for k in where], dtype=object)

    texts = []
    stream, _ = compiled(numbers, [1], (size,), lanes, dtype, change=lambda text: texts.append(text) or text)
    assert ("!nontemporal" in texts[0]) == (lanes > 1)
    x = (np.random.default_rng(0).standard_normal((100, 1)).astype(dtype),)
    expected = np.stack([stream(*(a[k] for a in x)) for k in range(100)])  # a state alone is written as usual
    for gap in (0, 1, 5):
        for first in (*range(9), 15):
            memory = np.full(first + 100 * (size + gap) + 3, 7.0, dtype)
            rows = memory[first : first + 100 * (size + gap)].reshape(100, size + gap)
            out = rows[:, :size].reshape(expected.shape) if gap == 0 else _strided(rows, expected.shape)
            stream(*x, out=out)
            assert np.array_equal(out, expected)
            assert (memory[:first] == 7.0).all()
            assert (rows[:, size:] == 7.0).all()
            assert (memory[-3:] == 7.0).all()


@pytest.mark.skipif(not host().avx512, reason="other processors write results when all is computed")
@pytest.mark.parametrize("past", [True, False])
@pytest.mark.parametrize("size", [40, 48, 72, 104, 152])
def test_packed_results_are_written_between_the_operations(streaming, size, past):
    """Rows that begin anywhere in a cache line, batches of any size, gaps between rows, and what is around them.

    Up to twice as many numbers as there are columns in rotation.
    """
    streaming(0 if past else 10**12)

    def numbers(x):
        on_the_way = [x[0] * (k + 0.5) + x[1] for k in range(size - 5)]
        return np.array([*on_the_way, x[1], scalars.sin(x[0]), scalars.cos(x[0]), 0.0 * x[0], 0.0 * x[0]], dtype=object)

    kernel, program = compiled(numbers, [2], (size,), lanes=8)
    assert "@next_tile" in gufunc.render(program, [(2,)], [(size,)], 8, "float64", host())
    x = np.random.default_rng(0).standard_normal((43, 2))
    alone = np.stack([kernel(one) for one in x])  # by the code for one state
    for n in (1, 7, 8, 9, 16, 43):
        for gap in (0, 1, 4):
            for first in range(9):
                memory = np.full(first + n * (size + gap) + 17, 7.0)
                rows = memory[first : first + n * (size + gap)].reshape(n, size + gap)
                kernel(x[:n], out=rows[:, :size])
                assert np.array_equal(rows[:, :size], alone[:n])
                assert (memory[:first] == 7.0).all()
                assert (rows[:, size:] == 7.0).all()
                assert (memory[-17:] == 7.0).all()
    wide = np.full((43, size, 2), 7.0)
    kernel(x, out=wide[..., 1])
    assert np.array_equal(wide[..., 1], alone)
    assert (wide[..., 0] == 7.0).all()


BLOCKS = [(4, 30, 6), (8, 6, 6), (8, 30, 6), (8, 6, 48), (8, 6, 160)]


@pytest.mark.parametrize(("lanes", "size", "output"), BLOCKS)
def test_the_next_block_is_prefetched_and_nothing_else(lanes, size, output):
    """Results do not depend on prefetches: each one in the code becomes a call that notes its address."""
    if lanes == 8 and not host().avx512:
        pytest.skip("kernels of eight lanes are written for AVX-512, which this processor does not have")
    found: list[int] = []
    note = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(found.append)
    call = f"call void inttoptr (i64 {ctypes.cast(note, ctypes.c_void_p).value} to ptr)"

    def numbers(x):
        return np.array([x[k % size] * (k + 0.5) + x[(k + 1) % size] for k in range(output)], dtype=object)

    def noted(text):
        return re.sub(r"call void @llvm\.prefetch\.p0\(ptr ([^,]+),[^)]*\)", rf"{call}(ptr \1)", text)

    kernel, _ = compiled(numbers, [size], (output,), lanes, change=noted)
    x, out = (_from_a_cache_line(50, n) for n in (size, output))
    kernel(x, out=out)
    of_x, of_out = ([a - array.ctypes.data for a in found if _is_near(a, array, lanes)] for array in (x, out))
    assert len(of_x) + len(of_out) == len(found)
    assert _lines(of_x) >= _lines(range(8 * lanes * size, 8 * size * (50 // lanes) * lanes))  # all but the first block
    if lanes == 8:
        assert len(_lines(of_out)) >= 0.8 * len(_lines(range(8 * lanes * output, out.nbytes)))


def _from_a_cache_line(n, size):
    memory = np.zeros(n * size + 8)
    first = -memory.ctypes.data % 64 // 8
    return memory[first : first + n * size].reshape(n, size)


def _is_near(address, array, lanes):
    """Within an array, or no more than a block behind it."""
    return 0 <= address - array.ctypes.data < array.nbytes + lanes * array.strides[0]


def _lines(addresses):
    return {a // 64 for a in addresses}


def _strided(rows, shape):
    inner = np.empty(shape[1:], rows.dtype).strides
    return np.lib.stride_tricks.as_strided(rows, shape, (rows.strides[0], *inner))


@pytest.mark.parametrize("lanes", [2, 4, 8])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["forward_dynamics", "mass_matrix", "forward_dynamics_derivatives"])
def test_long_code_has_no_copy_for_one_lane(monkeypatch, tmp_path, states, name, packed, lanes):
    """One state fills a block then, and what is left of a batch a last one; the bits are the same."""
    robot = robot_of(None)
    expected = robot.kernel(name, packed=packed)(*states[: len(robot.kernel(name).inputs)])
    monkeypatch.setattr(gufunc, "SCALAR_CODE_MAX_OPS", 1)
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path))
    long = built(robot.model, name, packed=packed, lanes=lanes)
    assert long.one_state is None
    x = states[: len(long.inputs)]
    for n in (1, 3, 8, 11, 100):
        assert np.array_equal(long(*(a[:n] for a in x)), expected[:n])
        assert np.array_equal(long(*(a[n - 1 :: -1] for a in x)), expected[n - 1 :: -1])
    assert np.array_equal(long(*(a[5] for a in x)), expected[5])
    gaps = long(*(np.repeat(a[:11], 2, axis=1)[:, ::2] for a in x))  # entries that do not lie side by side
    assert np.array_equal(gaps, expected[:11])
    shared = long(x[0][:11], *(a[5] for a in x[1:]))
    assert np.array_equal(shared[5], expected[5])
    assert long(*(a[:0] for a in x)).shape == (0, *long.output)


def test_out(robot, states):
    k = robot.kernel("inverse_dynamics")
    q, v, a = states
    out = np.zeros((100, 6))
    assert k(q, v, a, out=out) is out
    assert np.array_equal(out, k(q, v, a))
    k(out, v, a, out=out)  # input and output may be one array
    assert np.array_equal(out, k(k(q, v, a), v, a))


def test_single_precision(robot, states):
    k = robot.kernel("inverse_dynamics", dtype="float32")
    q, v, a = states
    result = k(q, v, a)
    assert result.dtype == np.float32
    close(result, robot.inverse_dynamics(q, v, a), 2e-5)  # some hundred roundings of 6e-8
    assert np.array_equal(k(q[5], v[5], a[5]), result[5])


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_every_number_of_lanes_gives_the_same_bits(states, lanes):
    robot, (q, v, tau) = robot_of(None), states
    expected = robot.kernel("forward_dynamics")(q, v, tau)
    assert np.array_equal(robot.kernel("forward_dynamics", lanes=lanes)(q, v, tau), expected)


def test_errors_are_ours(robot, states):
    k = robot.kernel("inverse_dynamics")
    q, v, a = states
    for arguments, text in (
        ((q, v), "takes q, v, a; 2 arrays were given"),
        ((q[:, :5], v, a), r"q has shape \(100, 5\); its last axes must be \(6\)"),
        ((q, v[:7], a), "batch axes of .* do not fit together"),
        ((q.astype(complex), v, a), "q must hold real numbers, not complex128"),
        ((0.0, v, a), r"q has shape \(\)"),
    ):
        with pytest.raises(qddot.InputError, match=text):
            k(*arguments)
    with pytest.raises(qddot.InputError, match=r"out has shape \(99, 6\)"):
        k(q, v, a, out=np.zeros((99, 6)))
    for options, text in (
        ({"dtype": "float16"}, "float64"),
        ({"lanes": 3}, "1, 2, 4, 8, 16"),
        ({"frame": "link6"}, "takes no frame"),
        ({"method": "newton"}, "newton_euler"),
    ):
        with pytest.raises((qddot.InputError, qddot.UnknownNameError), match=text):
            robot.kernel("inverse_dynamics", **options)
    with pytest.raises(qddot.UnknownNameError, match="inverse_dynamics"):
        robot.kernel("inverse_dynamic")
    with pytest.raises(qddot.InputError, match="needs frame"):
        robot.kernel("pose")
    with pytest.raises(qddot.InputError, match="one or more"):
        qddot.set_num_threads(0)


def test_what_is_not_finite_stays_in_its_sample(robot, states):
    k = robot.kernel("forward_dynamics")
    q, v, tau = (x.copy() for x in states)
    expected = k(q, v, tau)
    q[17, 2], v[40, 0], tau[99, 5] = np.nan, np.inf, -np.inf
    result = k(q, v, tau)
    bad = ~k.finite(q, v, tau)
    assert np.flatnonzero(bad).tolist() == [17, 40, 99]
    assert np.array_equal(result[~bad], expected[~bad])
    assert not np.isfinite(result[17]).all()


def test_info(robot):
    info = robot.kernel("inverse_dynamics").info
    assert info.method == "newton_euler_classical"  # the cheapest
    assert robot.kernel("inverse_dynamics", method="newton_euler").info.instructions > info.instructions
    assert info.form == "unrolled"
    assert info.ops["mul"] > 100
    assert info.ops["sincos"] == 2 * 5  # of the first joint, about gravity's direction, none is needed
    assert info.code_bytes > 1000
    assert robot.kernel("inverse_dynamics") is robot.kernel("inverse_dynamics")
    assert info.lanes == host().lanes("float64")
    assert info.fused == host().fma


# ---- threads, processes, memory


def test_sixteen_threads_at_once(robot, states):
    k = robot.kernel("forward_dynamics")
    q, v, tau = (np.tile(x, (20, 1)) for x in states)
    expected = k(q, v, tau)
    wrong = []

    def work():
        for _ in range(20):
            if not np.array_equal(k(q, v, tau), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_threads_compile_at_once():
    """Eight threads that ask for new kernels at the same time."""
    models = [random_tree(3, rng=100 + k, kinds=("revolute",)).model() for k in range(8)]
    results: dict[int, np.ndarray] = {}

    def work(k):
        r = qddot.Robot(models[k])
        q, v = r.random_state(0)
        results[k] = r.inverse_dynamics(q, v, v)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, model in enumerate(models):
        r = qddot.Robot(model, compiled=False)
        q, v = r.random_state(0)
        close(results[k], r.inverse_dynamics(q, v, v), OTHER_ORDER)


def run_python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SECOND = """
    import sys, qddot
    r = qddot.load("puma560")
    k = r.kernel("forward_dynamics")
    q, v = r.random_state(0)
    print(k.info.cached, "llvmlite.binding" in sys.modules, repr(k(q, v, v).tolist()))
"""


def test_a_second_process_finds_its_kernels_and_loads_no_llvm(tmp_path):
    first = run_python(SECOND, QDDOT_CACHE_DIR=str(tmp_path))
    second = run_python(SECOND, QDDOT_CACHE_DIR=str(tmp_path))
    assert first.split(" ", 2)[:2] == ["False", "True"]
    if llvm_compile.loader() == "own":
        assert second.split(" ", 2)[:2] == ["True", "False"]
    assert first.split(" ", 2)[2] == second.split(" ", 2)[2]


def test_a_damaged_cache_is_compiled_anew(tmp_path):
    first = run_python(SECOND, QDDOT_CACHE_DIR=str(tmp_path))
    for file in tmp_path.rglob("*"):
        if file.is_file():
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 255
            file.write_bytes(bytes(data))
    again = run_python(SECOND, QDDOT_CACHE_DIR=str(tmp_path))
    assert again.split(" ", 2)[0] == "False"
    assert again.split(" ", 2)[2] == first.split(" ", 2)[2]


def test_without_a_cache(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for place in ("", str(tmp_path / "file")):
        assert run_python(
            "import warnings; warnings.simplefilter('ignore')\n" + textwrap.dedent(SECOND), QDDOT_CACHE_DIR=place
        )


def test_eight_processes_share_a_cache(tmp_path):
    environment = {**os.environ, "QDDOT_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(SECOND)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(8)]
    answers = {p.communicate()[0].strip().split(" ", 2)[2] for p in running}
    assert len(answers) == 1
    assert all(p.returncode == 0 for p in running)


def test_code_and_kernels_are_freed(way):
    """Memory does not grow with kernels that are gone."""
    data = llvm_compile.compile_object(_small())

    def pages():
        gc.collect()
        with open("/proc/self/maps") as f:
            return sum(1 for _ in f)

    if not os.path.exists("/proc/self/maps"):
        pytest.skip("the system does not show its memory map")
    for _ in range(10):
        llvm_compile.Code(data)
    before = pages()
    for _ in range(300):
        llvm_compile.Code(data)
    assert pages() <= before + 5


def _small():
    graph, nodes, _ = trace(lambda x: np.array([x[0] * x[1] + 2.0], dtype=object), [2])
    return gufunc.render(fused(straight_line(graph, nodes, 2)), [(2,)], [(1,)], host().lanes("float64"), "float64", host())


@pytest.mark.slow
def test_memory_stays_flat_over_ten_thousand_compilations():
    """10,000 kernels compiled and dropped; then 1e8 evaluations of one."""
    resource = pytest.importorskip("resource")
    for k in range(200):
        compiled(lambda x, k=k: np.array([x[0] * (1.5 + k)], dtype=object), [1], (1,), lanes=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for k in range(10_000):
        kernel, _ = compiled(lambda x, k=k: np.array([x[0] * (1.5 + k)], dtype=object), [1], (1,), lanes=1)
    x = np.ones((1_000_000, 1))
    out = np.empty_like(x)
    for _ in range(100):
        kernel(x, out=out)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KB, of which the arrays are 16,000


# ---- large kernels


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_large_kernels_take_scratch_memory_from_the_heap(monkeypatch, tmp_path, lanes):
    """Eight lanes of a hundred links need more scratch memory than a thread's stack should give, fewer lanes of some more;
    and the heap may have none.
    """
    robot = qddot.chain(100, rng=0)
    if lanes < 8:
        monkeypatch.setattr(scratch_memory, "STACK_MAX_BYTES", scratch_memory.STACK_MAX_BYTES * lanes // 8)
        monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path))
    kernel = robot.kernel("inverse_dynamics", lanes=lanes)
    q = np.random.default_rng(0).standard_normal((21, 100))
    expected = qddot.Robot(robot.model, compiled=False).inverse_dynamics(q, q, q)
    close(kernel(q, q, q), expected, OTHER_ORDER)
    environment = llvm_compile.library_functions()
    nothing = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(lambda size: None)
    heap = environment[3]
    try:
        environment[3] = ctypes.cast(nothing, ctypes.c_void_p).value
        with pytest.raises(MemoryError, match="scratch space"):
            kernel(q, q, q)
    finally:
        environment[3] = heap
    close(kernel(q, q, q), expected, OTHER_ORDER)


def test_what_is_too_large_keeps_its_loops(monkeypatch):
    monkeypatch.setattr(pipeline, "MOST_INSTRUCTIONS", 10)
    monkeypatch.setenv("QDDOT_CACHE_DIR", "")
    robot = qddot.Robot(random_tree(4, rng=77, kinds=("revolute",)).model())
    q, v = robot.random_state(0)
    kernel = robot.kernel("forward_dynamics_derivatives")
    assert kernel.info.form == "rolled"
    assert "straight-line code stops at 10" in kernel.info.why
    expected = qddot.Robot(robot.model, compiled=False).forward_dynamics_derivatives(q, v, v)
    close(kernel(q, v, v), np.stack(expected), OTHER_ORDER)
    unrolled = robot.kernel("forward_dynamics_derivatives", form="unrolled")
    assert unrolled.info.form == "unrolled"
    close(unrolled(q, v, v), np.stack(expected), OTHER_ORDER)
    monkeypatch.setattr(pipeline, "MOST_WHEN_ASKED", 20)
    with pytest.raises(KernelTooLargeError, match="stops at 20; Robot"):
        built(robot.model, "forward_dynamics_derivatives", form="unrolled")


def test_what_is_too_large_and_has_no_loops_to_keep_runs_as_it_is(monkeypatch):
    monkeypatch.setattr(pipeline, "MOST_INSTRUCTIONS", 10)
    monkeypatch.setenv("QDDOT_CACHE_DIR", "")
    robot = qddot.Robot(random_tree(6, rng=2, kinds=("revolute",), mimic=True).model())
    q, v = robot.random_state(0)
    with pytest.warns(qddot.QddotWarning, match="straight-line code stops at 10 unless .*, and .* cannot be rolled"):
        a = robot.forward_dynamics(q, v, v)
    assert np.array_equal(a, qddot.Robot(robot.model, compiled=False).forward_dynamics(q, v, v))


# ---- the order of operations


@pytest.mark.parametrize("name", ["inverse_dynamics", "mass_matrix", "inverse_dynamics_derivatives"])
def test_limbs_come_one_after_another(name):
    """Of a robot with four legs: fewer values have to come from memory, and each is there before it is used."""
    line = choose.cheapest(qddot.load("quadruped").model, name, "auto").line
    ordered = best_order(line)
    assert ordered.cost < line.cost
    assert sorted(ordered.body) == sorted(line.body)
    place = {n: k for k, n in enumerate(ordered.body)}
    assert all(place[x] < place[n] for n in ordered.body for x in line.graph.args[n] if x in place)


def test_matrices_are_computed_from_the_limbs_inward():
    model = qddot.load("quadruped").model
    line = choose.cheapest(model, "mass_matrix", "auto").line
    assert best_order(line, (model.nv, model.nv)).cost < best_order(line).cost


def columns(*functions_of_xy):
    """A program of one section for each function, of two numbers of its own and forty that all have."""

    def run(x):
        out = []
        for k, f in enumerate(functions_of_xy):
            out.append(f(x[2 * k], x[2 * k + 1], [*x[8:]]))
            scalars.mark(out[-1], "column", k)
        return np.array(out)

    graph, outputs, _ = trace(run, [48])
    return straight_line(graph, outputs, 48)


def weighted(x, y, weights):
    return sum((x + k * y) * w for k, w in enumerate(weights))


def test_columns_are_paired_where_there_are_registers_for_two():
    """Of processors with 16 none: values of two columns would be spilled (decision 20)."""
    model = qddot.load("quadruped").model
    request = pipeline.Request("forward_dynamics_derivatives")
    few, many = (pipeline.program_for(model, request, (3, model.nv, model.nv), n)[1].body for n in (16, 32))
    assert sorted(few) == sorted(many)
    assert few != many


def test_sections_that_take_the_same_are_computed_side_by_side():
    """Each number that both take serves two operations that follow each other."""
    line = columns(weighted, weighted)
    paired = side_by_side(line)
    first, second = (set(nodes) for _, _, nodes in line.sections())
    place = {n: k for k, n in enumerate(paired.body)}
    for x in range(len(line.graph)):
        if line.graph.ops[x] == "input" and line.graph.args[x][0] >= 8:
            own, other = (next(n for n in nodes if x in line.graph.args[n]) for nodes in (first, second))
            assert abs(place[own] - place[other]) < 4
    assert [n for n in paired.body if n in first] == [n for n in line.body if n in first]
    assert [n for n in paired.body if n in second] == [n for n in line.body if n in second]


def other_weights(x, y, weights):
    return weighted(x, y, [w * w for w in weights[:10]]) + x


@pytest.mark.parametrize("second", [other_weights, lambda x, y, weights: x * y])
def test_sections_that_take_other_things_stay_apart(second):
    line = columns(weighted, second)
    assert side_by_side(line).body == line.body


def test_sections_that_need_each_other_stay_apart():
    before = []

    def next_one(x, y, weights):
        before.append(weighted(x + (before[-1] if before else 0.0), y, weights))
        return before[-1]

    line = columns(next_one, next_one, next_one)
    assert side_by_side(line).body == line.body


@pytest.mark.parametrize("lanes", [None, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("source", ["chain", "quadruped"])
def test_columns_side_by_side_have_the_same_bits(monkeypatch, tmp_path, source, lanes):
    robot, name = qddot.chain(9, rng=0) if source == "chain" else qddot.load(source), "forward_dynamics_derivatives"
    line = choose.cheapest(robot.model, name, "auto").line
    paired = side_by_side(line)
    assert paired.body != line.body
    place = {n: k for k, n in enumerate(paired.body)}
    assert sorted(paired.body) == sorted(line.body)
    assert all(place[x] < place[n] for n in paired.body for x in line.graph.args[n] if x in place)
    q, v = (np.stack(x) for x in zip(*(robot.random_state(k) for k in range(11)), strict=True))
    result = robot.kernel(name, lanes=lanes)(q, v, v)
    monkeypatch.setattr(schedule, "PAIRED_SECTION_MIN_OPS", 10**9)
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path))
    assert np.array_equal(qddot.Robot(robot.model).kernel(name, lanes=lanes)(q, v, v), result)


@pytest.mark.parametrize("source", ["quadruped", "puma560"])
def test_columns_are_explained_by_the_link_that_their_freedom_moves(source):
    """A free joint has six degrees of freedom and one link: columns outnumber links."""
    model = qddot.load(source).model
    rows = [line.split() for line in qddot.Robot(model).kernel("forward_dynamics_derivatives").explain().splitlines()]
    explained = {row[0] for row in rows if row[1:4] == ["a", "by", "v"]}
    assert explained == {model.link_names[i] for i, _ in model.outward()}


def test_values_that_come_again_have_the_same_bits(monkeypatch, tmp_path):
    robot, rng = qddot.load("quadruped"), np.random.default_rng(1)
    q, v = (np.array(x) for x in zip(*(robot.random_state(rng) for _ in range(9)), strict=True))
    results = []
    for k, again in enumerate((1, 10**9)):
        monkeypatch.setattr(function_body, "RELOAD_AFTER_OPS", again)
        monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path / str(k)))
        results.append(qddot.Robot(robot.model).kernel("forward_dynamics")(q, v, v))
    np.testing.assert_array_equal(*results)


# ---- packed results ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["mass_matrix", "mass_matrix_inverse", "forward_kinematics", "inverse_dynamics_derivatives"]
)
@pytest.mark.parametrize("source", ["puma560", "quadruped", "scara"])
def test_packed_results_have_the_bits_of_full_ones(source, name):
    robot = qddot.load(source)
    s = [robot.random_state(k) for k in range(21)]
    q, v = np.stack([x for x, _ in s]), np.stack([x for _, x in s])
    arrays = (q, v, v)[: len(FUNCTIONS[name].inputs)]
    full, packed = robot.kernel(name), robot.kernel(name, packed=True)
    result = packed(*arrays)
    assert result.shape == (21, packed.layout.size)
    assert np.array_equal(packed.unpack(result), full(*arrays))
    assert np.array_equal(packed.unpack(packed(*(x[3] for x in arrays))), full(*arrays)[3])
    assert packed.unpack(result.reshape(3, 7, -1)).shape == (3, 7, *full.output)


def test_a_packed_mass_matrix_has_no_zeros_and_nothing_twice():
    """Legs of a quadruped do not feel each other: what is left are 6 + 4·3 DoF with those that carry them."""
    k = qddot.load("quadruped").kernel("mass_matrix", packed=True)
    places = k.layout.places
    assert np.array_equal(places, places.T)
    legs = [slice(6 + 3 * leg, 9 + 3 * leg) for leg in range(4)]
    assert all((places[a, b] == -1).all() for a in legs for b in legs if a != b)
    varying = {places[i, j] for i in range(18) for j in range(i, 18) if places[i, j] >= 0}
    assert varying == set(range(len(varying)))
    assert len(varying) <= 21 + 4 * (18 + 6)
    assert k.layout.size == -(-len(varying) // 8) * 8  # rows of so many numbers begin in the same place of a line
    m = qddot.load("quadruped").mass_matrix(qddot.load("quadruped").neutral())
    assert k.layout.constants[3, 3] == pytest.approx(m[3, 3], rel=1e-12)  # the mass, which is the same for all states


@pytest.mark.parametrize(("source", "name"), [("quadruped", "mass_matrix"), ("scara", "forward_kinematics")])
def test_packed_numbers_are_in_the_order_in_which_they_are_computed(source, name):
    """Inputs, and sines and cosines of inputs, come last."""
    model = qddot.load(source).model
    program = best_order(choose.cheapest(model, name, "auto").line)
    layout = layout_of(program, FUNCTIONS[name].output(model))
    numbers = with_layout(program, layout).outputs
    graph, varying = program.graph, 1 + layout.places.max()
    ready = [graph.ops[n] == "input" or (graph.ops[n], graph.ops[graph.args[n][0]]) in SINCOS for n in numbers[:varying]]
    assert ready == sorted(ready)
    when = [program.body.index(n) for n, r in zip(numbers, ready, strict=False) if not r]
    assert when == sorted(when)
    assert len(set(numbers[:varying])) == varying
    assert all(graph.args[n] == (0.0,) for n in numbers[varying:])
    if source == "scara":
        assert any(ready)
        assert not all(ready)


SINCOS = [("sin", "input"), ("cos", "input")]


@pytest.mark.parametrize("options", [{"lanes": 1}, {"lanes": 4}, {"lanes": 8}, {"dtype": "float32"}])
@pytest.mark.parametrize("name", ["mass_matrix", "inverse_dynamics_derivatives"])
def test_packed_results_of_any_lanes_and_type(name, options):
    robot = qddot.load("quadruped")
    q, v = (np.stack(x) for x in zip(*(robot.random_state(k) for k in range(21)), strict=True))
    x = (q, v, v)[: len(FUNCTIONS[name].inputs)]
    packed = robot.kernel(name, packed=True, **options)
    result = packed(*x)
    assert np.array_equal(packed.unpack(result), robot.kernel(name, **options)(*x))
    assert packed.layout.size % 8 == 0
    assert (result[:, 1 + packed.layout.places.max() :] == 0.0).all()


def test_long_packed_results_by_threads_and_from_the_cache(monkeypatch, streaming, tmp_path):
    """Around the length above which results are written with streaming stores, for one thread and for two."""
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path))
    robot = qddot.load("quadruped")
    packed = built(robot.model, "mass_matrix", packed=True)
    most = 3_000_000 // (8 * packed.layout.size)
    streaming(3_000_000)
    q = np.stack([robot.random_state(k)[0] for k in range(50)])[np.arange(2 * most + 11) % 50]
    full = robot.kernel("mass_matrix")(q[:50])
    before = qddot.get_num_threads()
    try:
        for threads in (1, 2):
            qddot.set_num_threads(threads)
            for n in (most, most + 1, most + 8, len(q)):
                assert np.array_equal(packed.unpack(packed(q[:n])), full[np.arange(n) % 50])
    finally:
        qddot.set_num_threads(before)
    again = built(robot.model, "mass_matrix", packed=True)
    assert again.info.cached
    assert again.layout.size == packed.layout.size
    assert np.array_equal(again.layout.places, packed.layout.places)
    assert np.array_equal(again.layout.constants, packed.layout.constants)
    assert np.array_equal(again(q[:50]), packed(q[:50]))


def test_wrong_use_of_packed_results_is_explained():
    robot = qddot.load("scara")
    with pytest.raises(qddot.InputError, match="not packed"):
        robot.kernel("mass_matrix").unpack(np.zeros(3))
    packed = robot.kernel("mass_matrix", packed=True)
    with pytest.raises(qddot.InputError, match="last axis"):
        packed.unpack(np.zeros(packed.layout.size + 1))
    with pytest.raises(qddot.InputError, match="keeps its loops"):
        qddot.chain(12, rng=0).kernel("mass_matrix", form="rolled", packed=True)
    b = qddot.Builder("slides").link("first", mass=2.0).link("second", mass=3.0)
    b.joint("along", "world", "first", Prismatic((0.0, 0.0, 1.0)))
    b.joint("across", "first", "second", Prismatic((1.0, 0.0, 0.0)))
    with pytest.raises(qddot.InputError, match="nothing to pack"):
        qddot.Robot(b.model()).kernel("mass_matrix", packed=True)
