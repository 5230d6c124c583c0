"""The call for one state: the same bits as the ufunc, and None for everything that is not one state."""

import gc
import sys
import threading
import weakref
from math import prod

import numpy as np
import pytest

import qddot
from qddot.compiler.codegen.abi.fastcall import FASTCALL_MAX_NUMBERS
from qddot.dynamics.catalogue import FUNCTIONS
from tests.support.kernels import robot_of
from tests.support.mechanisms import State, built


@pytest.fixture
def arm(way):
    return robot_of(way)


def inputs_of(robot, function, dtype):
    s = State(robot)
    known = {"q": s.q, "v": s.v, "a": s.a, "tau": s.a, "f_ext": s.f_ext}
    return [known[x].astype(dtype) for x in FUNCTIONS[function].inputs]


SOURCES = [("puma560", "float64"), ("puma560", "float32"), ("quadruped", "float64")]
SOURCES.append(pytest.param("quadruped", "float32", marks=pytest.mark.slow))


@pytest.mark.parametrize(("name", "dtype"), SOURCES)
@pytest.mark.parametrize("function", [f for f in FUNCTIONS if not FUNCTIONS[f].needs])
def test_same_bits_as_the_ufunc(name, function, dtype):
    robot = qddot.load(name)
    kernel = robot.kernel(function, dtype=dtype)
    arrays = inputs_of(robot, function, dtype)
    numbers = sum(x.size for x in arrays) + prod(kernel.output)
    if not kernel.output or numbers > FASTCALL_MAX_NUMBERS:
        assert kernel.one_state is None  # NumPy gives a number, not an array; much work hides what a call costs
        return
    if kernel.one_state is None:
        pytest.skip("its scratch does not fit on the stack")
    result = kernel.one_state(*arrays)
    assert result.dtype == dtype
    assert result.flags.c_contiguous
    assert np.array_equal(result, kernel.ufunc(*arrays))


def test_everything_else_is_left_to_the_ufunc(arm):
    call, s = arm.kernel("inverse_dynamics").one_state, State(arm)
    q, v, a = s.q, s.v, s.a
    others = [
        (),
        (q, v),
        (q, v, a, a),
        (q.tolist(), v, a),
        (None, v, a),
        (3.0, v, a),
        (q[None], v, a),
        (q[:5], v, a),
        (np.append(q, 0.0), v, a),
        (q.astype(np.float32), v, a),
        (q.astype(int), v, a),
        (q.astype(complex), v, a),
        (q.astype(object), v, a),
        (q.astype(">f8"), v, a),
        (np.repeat(q, 2)[::2], v, a),
        (np.frombuffer(b"x" + q.tobytes(), dtype=np.uint8)[1:].view(float), v, a),
        (q.view(np.matrix), v, a),
        (np.ma.array(q), v, a),
        (np.full(6, np.nan), v, a),
        (q, v, np.full(6, np.inf)),
    ]
    for arguments in others:
        assert call(*arguments) is None
    assert call(q, v, a=a) is None
    read_only = np.empty(6)
    read_only.flags.writeable = False
    for out in (read_only, np.empty(7), np.empty((1, 6)), np.empty(12)[::2], np.empty(6, np.float32), [0.0] * 6, None):
        assert call(q, v, a, out=out) is None
    assert call(q, v, a, into=np.empty(6)) is None
    assert call(q, v, a, out=np.empty(6), where=True) is None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["inverse_dynamics", "mass_matrix"])
def test_out_of_one_state(arm, name, dtype):
    kernel = arm.kernel(name, dtype=dtype)
    x = inputs_of(arm, name, dtype)
    expected, out = kernel.ufunc(*x), np.full(kernel.output, 7.0, dtype)
    count = sys.getrefcount(out)
    for call in (kernel.one_state, kernel):
        out[...] = 7.0
        assert call(*x, out=out) is out
        assert np.array_equal(out, expected)
    assert sys.getrefcount(out) == count
    bad = [np.full_like(x[0], np.nan), *x[1:]]
    out[...] = 7.0
    assert kernel.one_state(*bad, out=out) is None
    assert (out == 7.0).all()  # whoever takes over begins from what was there
    assert kernel(*bad, out=out) is out
    assert np.isnan(out).any()


def test_out_of_one_state_may_be_an_input(arm):
    kernel, s = arm.kernel("inverse_dynamics"), State(arm)
    expected = kernel.ufunc(s.q, s.v, s.a)
    memory = np.zeros(9)
    q = memory[3:]
    q[...] = s.q
    assert np.array_equal(kernel.one_state(q, s.v, s.a, out=memory[:6]), expected)
    assert np.array_equal(kernel.one_state(s.q, s.v, s.a, out=s.a), expected)


def test_read_only_arrays_are_read(arm):
    s = State(arm)
    s.q.flags.writeable = False
    kernel = arm.kernel("inverse_dynamics")
    assert np.array_equal(kernel.one_state(s.q, s.v, s.a), kernel.ufunc(s.q, s.v, s.a))


def test_no_reference_is_lost_or_kept(arm):
    kernel, s = arm.kernel("mass_matrix"), State(arm)
    arrays = [s.q, np.full(6, np.nan), s.q.tolist()]
    counts = [sys.getrefcount(x) for x in arrays]
    results = [kernel.one_state(arrays[0]) for _ in range(1000)]
    assert all(sys.getrefcount(M) == 3 for M in results)  # the list, the loop, the argument
    for _ in range(1000):
        assert kernel.one_state(arrays[1]) is None
        assert kernel.one_state(arrays[2]) is None
        assert np.array_equal(kernel(arrays[2]), results[0])  # handed on to the ufunc
    assert [sys.getrefcount(x) for x in arrays] == counts


def test_it_stays_callable_when_only_it_is_kept(way):
    call = qddot.load("scara").kernel("mass_matrix").one_state
    ufunc = qddot.load("scara").kernel("bias_force").ufunc
    gc.collect()
    assert call(np.zeros(4)).shape == (4, 4)
    assert ufunc(np.zeros((3, 4)), np.zeros(4)).shape == (3, 4)


def test_a_kernel_goes_with_its_last_reference_and_its_call_stays(way):
    kernel = built(qddot.load("scara").model, "mass_matrix")
    call, gone = kernel.__call__, weakref.ref(kernel)
    del kernel
    assert gone() is None
    assert call(np.zeros(4)).shape == (4, 4)
    assert call(np.zeros((3, 4))).shape == (3, 4, 4)
    with pytest.raises(qddot.InputError, match="shape"):
        call(np.zeros(5))


def test_many_threads_at_once():
    arm = qddot.load("puma560")
    kernel, s = arm.kernel("forward_dynamics"), State(arm)
    expected, wrong = kernel.ufunc(s.q, s.v, s.a), []

    def work():
        for _ in range(2000):
            if not np.array_equal(kernel.one_state(s.q, s.v, s.a), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_errors_of_one_state_are_explained():
    robot = qddot.load("quadruped")
    s = State(robot)
    robot.inverse_dynamics(s.q, s.v, s.a)
    s.q[3:7] *= 2.0
    with pytest.raises(qddot.InputError, match="unit"):
        robot.inverse_dynamics(s.q, s.v, s.a)
    with pytest.raises(qddot.InputError, match="shape"):
        robot.inverse_dynamics(s.q[:5], s.v, s.a)
