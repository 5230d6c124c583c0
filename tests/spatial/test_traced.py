"""Traced values: NumPy's functions on scalars and arrays of them, their values and their derivatives."""

import math
import threading

import numpy as np
import pytest

from qddot import scalars
from qddot.compiler.ir import interpreter
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.program import straight_line
from qddot.errors import NotTraceableError
from qddot.spatial.dual import Dual
from qddot.spatial.tape import record

AT = np.array([0.3, -1.2, 2.5])  # away from the kinks of every law below
ALONG = np.array([1.0, 0.5, -0.25])


def assigned(v):
    out = np.zeros(3)
    out[0] = v[0] * 2.0
    out[1:] = v[:2]
    out *= 3.0
    out[2] -= 1.0
    return out


def started_from(array):
    def law(v):
        out = array(v)
        out[1] = np.tanh(v[1])
        return np.maximum(out + 0.5 * v, 0.1)

    return law


def masked(v):
    out = v.copy()
    out[out > 1.0] = 1.0
    out[(v < -1.0) | (v == 0.0)] = -3.0
    return out


def turned(v):
    R = np.eye(3)
    R[0, 0] = R[1, 1] = np.cos(v[0])
    R[0, 1] = np.sin(v[0])
    return R @ v


LAWS = {
    "abs()": lambda v: abs(v) + abs(v[1]),
    "np.abs": lambda v: np.abs(v) + np.fabs(v[1]),
    "np.sign": lambda v: v * np.sign(v) + np.sign(v[1]),
    "np.clip": lambda v: np.clip(v, -1.0, 1.0) + np.clip(v[2], None, 0.5),
    "clip by a traced limit": lambda v: np.clip(np.ones(3), v[1], v),
    "v.clip": lambda v: v.clip(-1.0, 1.0),
    "np.minimum": lambda v: np.minimum(v, 0.5) + np.minimum(0.5, v) + np.minimum(v, v[::-1]),
    "np.maximum": lambda v: np.maximum(v, 0.5) + np.maximum(0.5, v[0]) + np.maximum(v, v[::-1]),
    "max and min": lambda v: [v.max(), np.min(v), np.max(np.outer(v, v), axis=0)[1]],
    "np.exp": lambda v: np.exp(v) + np.exp(v[0]),
    "np.log": lambda v: np.log(v * v) + np.log(v[0]),
    "np.tanh": lambda v: np.tanh(v) + np.tanh(v[0]),
    "np.arctan": lambda v: np.arctan(v) + np.arctan(v[0]),
    "np.arctan2": lambda v: np.arctan2(v, 1.5) + np.arctan2(1.0, v[0]),
    "np.hypot": lambda v: np.hypot(v, 1.0) + np.hypot(v[0], v[1]),
    "np.sqrt": lambda v: np.sqrt(v * v + 1.0),
    "np.sin": lambda v: np.sin(v) * np.cos(v) + np.tan(v / 4.0),
    "np.arcsin": lambda v: np.arcsin(v / 4.0) + 2.0 * np.arccos(v / 4.0),
    "np.deg2rad": lambda v: np.deg2rad(v) + np.degrees(v) + np.radians(v) + np.rad2deg(v),
    "whole powers": lambda v: v**2 + v**3.0 + v**-1 + v[0] ** 7 + v**0 + np.power(v, 2),
    "halves": lambda v: abs(v) ** 1.5 + np.power(np.abs(v), -0.5),
    "other powers": lambda v: abs(v) ** 1.3 + abs(v[0]) ** v,
    "powers of a number": lambda v: 2.0**v + np.power(3.0, v),
    "np.where": lambda v: np.where(v < 0.0, -v, v * v) + np.where(v[0] < 1.0, v, 0.0),
    "scalars.where": lambda v: scalars.where(scalars.less(v, 0.0), -v, [1.0, 2.0, 3.0]),
    "comparisons": lambda v: np.where(v <= 0.35, v, 0.0) + np.where(v >= 0.4, v, 1.0) + np.where(v != 0.4, v, 7.0),
    "and, or, not": lambda v: np.where((v > 0.0) & (v < 1.0), v, 2.0) + np.where((v < 0.0) | ~(v < 1.0), v, 0.0),
    "np.logical_and": lambda v: (
        np.where(np.logical_and(v > 0.0, [True, True, False]), v, 0.0) + np.logical_or(v < 0.0, False)
    ),
    "np.any": lambda v: [np.where(np.any(v > 2.0), v[0], 0.0), np.where(np.all(v > 2.0), v[0], 0.0), v[1]],
    "a condition is 1 or 0": lambda v: (v > 0.0) * v + (1.0 - (v > 1.0)),
    "np.interp": lambda v: (
        np.interp(v, [-1.0, 0.0, 1.0, 4.0], [2.0, 3.0, 5.0, 1.0]) + np.interp(v[0], [0, 1], [0, 1], left=7, right=8)
    ),
    "np.interp of traced values": lambda v: np.interp(v, [-2.0, 3.0], [v[0], v[1]]),
    "sums and products": lambda v: np.sum(v) * v + np.prod(v) + np.mean(v) + np.cumsum(v) + v.sum(),
    "np.linalg.norm": lambda v: np.linalg.norm(v) * v + np.linalg.norm(np.outer(v, v), axis=1),
    "np.dot": lambda v: (
        np.dot(np.arange(9.0).reshape(3, 3), v) + np.ones((3, 3)) @ v + v.dot(v) + np.cross(v, [1.0, 2.0, 3.0])
    ),
    "np.stack": lambda v: np.stack([v[0], v[1], v[2]]) + np.concatenate([[v[1]], v[1:]]) + np.hstack([v[0], v[:2]]),
    "np.array": lambda v: np.clip(np.array([v[0], v[1], 2.0]), -1.0, 1.0) + np.exp(np.array([v[0], 0.0, 1.0])),
    "np.polyval": lambda v: np.polyval([1.0, 2.0, 3.0], v) + np.square(v) + np.reciprocal(v),
    "np.float64": lambda v: np.float64(2.0) * v[0] + v * np.float32(1.5) - np.float64(1.0) / v,
    "np.zeros": assigned,
    "np.zeros_like": started_from(np.zeros_like),
    "np.ones": started_from(lambda v: np.ones(3)),
    "np.full": started_from(lambda v: np.full(3, 0.25) + 1.0),
    "np.empty": started_from(lambda v: np.array([*np.empty(0), 1.0, v[1], 2.0])),
    "np.eye": turned,
    "a mask": masked,
}


def slopes(tape, at, along):
    return [y.slope if isinstance(y, Dual) else 0.0 for y in tape([Dual(a, b) for a, b in zip(at, along, strict=True)])]


@pytest.mark.parametrize("name", LAWS)
def test_values_and_derivatives(name):
    law, h = LAWS[name], 1e-6
    tape = record(name, law, (3,))
    np.testing.assert_allclose(np.array(tape(AT.tolist()), dtype=float), np.asarray(law(AT), dtype=float), rtol=1e-14)
    up, down = (np.asarray(law(AT + s * h * ALONG), dtype=float) for s in (1.0, -1.0))
    np.testing.assert_allclose(slopes(tape, AT.tolist(), ALONG.tolist()), (up - down) / (2.0 * h), atol=1e-8)


def test_all_laws_compiled():
    """One program of all of them: the interpreter's results are NumPy's, NaN and infinity included."""
    tapes = [record(name, law, (3,)) for name, law in LAWS.items()]
    graph, outputs, shape = trace(lambda x: np.array([tape(x) for tape in tapes], dtype=object), [3])
    program = straight_line(graph, outputs, 3)
    found = np.reshape(interpreter.run(program, AT), shape)
    np.testing.assert_allclose(found, [np.asarray(law(AT), dtype=float) for law in LAWS.values()], rtol=1e-13)


@pytest.mark.parametrize("x", [[math.nan, 1.0, 0.0], [0.0, -0.0, math.inf], [-math.inf, math.nan, 2.0]])
def test_nan_and_infinity_are_numpys(x):
    laws = {
        "maximum": lambda v: np.maximum(v, v[::-1]),
        "minimum": lambda v: np.minimum(v, 0.5),
        "other way": lambda v: np.maximum(0.5, v),
        "clip": lambda v: np.clip(v, -1.0, 1.0),
        "sign": np.sign,
        "abs": abs,
        "where": lambda v: np.where(v <= 0.0, 1.0, 2.0),
        "not": lambda v: np.where(~(v <= 0.0), 1.0, 2.0),
        "equal": lambda v: np.where(v == v[::-1], 1.0, 2.0) + np.where(v != 0.0, 1.0, 2.0),
        "interp": lambda v: np.interp(v, [-1.0, 1.0], [2.0, 3.0]),
        "tanh": np.tanh,
        "exp": np.exp,
        "log": np.log,
        "powers": lambda v: abs(v) ** 1.5 + v**-2 + abs(v) ** 0.3,
    }
    for name, law in laws.items():
        tape = record(name, law, (3,))
        graph, outputs, _ = trace(tape, [3])
        with np.errstate(all="ignore"):
            expected = np.asarray(law(np.array(x)), dtype=float)
        for found in (tape([np.float64(k) for k in x]), interpreter.run(straight_line(graph, outputs, 3), x)):
            np.testing.assert_allclose(np.array(found, dtype=float), expected, rtol=1e-14, err_msg=name)


def test_derivatives_at_kinks_are_those_of_the_first():
    for law, slope in [
        (lambda v: [abs(v[0])], 1.0),
        (lambda v: [np.maximum(v[0], 0.0)], 1.0),
        (lambda v: [np.maximum(0.0, v[0])], 0.0),
        (lambda v: [np.sign(v[0])], 0.0),
        (lambda v: [v[0] ** 1.5], 0.0),
        (lambda v: [v[0] ** 2.3], 0.0),
        (lambda v: [v[0] ** 0], 0.0),
    ]:
        assert slopes(record("law", law, (1,)), [0.0], [1.0]) == [slope]


def branches(v):
    return v if v[0] > 0.0 else -v


WRONG = {
    "if": (branches, r"cannot decide an if.*np\.where"),
    "min()": (lambda v: [min(v[0], 1.0)], r"np\.minimum"),
    "and": (lambda v: [1.0 if v[0] > 0.0 and v[1] > 0.0 else 0.0], "cannot decide an if"),
    "math": (lambda v: [math.exp(v[0])], "not the math module"),
    "np.floor": (np.floor, "np.floor is not known of traced values. These are: absolute, add, arccos"),
    "an index": (lambda v: [v[v > 0.0]], "cannot pick elements"),
    "a comparison as a result": (lambda v: [v[0] > 0.0], "a comparison is no number"),
    "an array of floats from outside": (lambda v: OUTSIDE.__iadd__(v), "array of floats"),
    "np.interp of traced places": (lambda v: np.interp(v, v, v), "places xp that are plain numbers"),
    "np.interp of falling places": (lambda v: np.interp(v, [1.0, 0.0], [1.0, 0.0]), "places that increase"),
    "np.where of a condition alone": (lambda v: np.where(v > 0.0), "what holds then"),
    "np.sort": (lambda v: np.sort(v), "cannot decide an if"),
}
OUTSIDE = np.zeros(3)


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_traced_says_what_to_do(name):
    law, message = WRONG[name]
    with pytest.raises(NotTraceableError, match=message):
        record("the law", law, (3,))
    assert OUTSIDE.tolist() == [0.0, 0.0, 0.0]


def test_numpy_is_left_as_it_was():
    before = {name: getattr(np, name) for name in ("zeros", "array", "asarray", "eye")}
    record("the law", assigned, (3,))
    with pytest.raises(NotTraceableError):
        record("the law", branches, (3,))
    assert {name: getattr(np, name) for name in before} == before
    assert type(np.zeros(3)) is np.ndarray


def test_other_threads_make_their_own_arrays():
    kinds, inside, done = [], threading.Event(), threading.Event()

    def other():
        inside.wait(10)
        kinds.append(type(np.zeros(3)))
        done.set()

    def law(v):
        out = np.zeros(3)
        out[0] = v[0]
        inside.set()
        done.wait(10)
        return out

    thread = threading.Thread(target=other)
    thread.start()
    record("the law", law, (3,))
    thread.join()
    assert kinds == [np.ndarray]


def test_laws_that_need_no_such_arrays_are_run_twice():
    runs = []

    def law(v):
        runs.append(type(np.zeros(1)))
        return np.tanh(v)

    record("the law", law, (3,))
    assert runs == [np.ndarray] * 2


def test_whole_numbers_stay_indices():
    def law(v):
        out = np.zeros(3)
        order = np.array([2, 0, 1])
        out[order] = v
        out[np.zeros(1, dtype=int)] += 1.0
        return out[order]

    assert record("the law", law, (3,))([1.0, 2.0, 3.0]) == [1.0, 3.0, 3.0]


def test_the_digest_tells_functions_apart():
    laws = [
        np.exp,
        np.log,
        np.tanh,
        np.arctan,
        lambda v: v**2,
        lambda v: v**3,
        lambda v: np.where(v < 0, v, 0),
        lambda v: np.where(v <= 0, v, 0),
    ]
    assert len({record("the law", law, (2,)).digest for law in laws}) == len(laws)
