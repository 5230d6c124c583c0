"""Users' own functions are known by what they compute, wherever that comes from; what is no function is refused."""

import dataclasses
import functools
import itertools
import math
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qddot
from qddot import scalars
from qddot.joints import Own, Revolute
from qddot.mechanism.model import Constraint
from qddot.spatial import Slide, Transform
from qddot.spatial.tape import record

PACKAGE = Path(qddot.__file__).parent

RATIO = 2.0
HELPED = 2.0
TABLE = {"ratio": 2.0}


def slide(q, ratio):
    return Transform(p=(ratio * q[0], 0.0, 0.0))


def by_global(q):
    return slide(q, RATIO)


def helper(x):
    return HELPED * x


def by_array(q, k):
    return slide(q, k[0])


def by_helper(q):
    return slide([helper(q[0])], 1.0)


def by_keyword(ratio):
    def function(q, *, k=ratio):
        return slide(q, k)

    return function


class Slots:
    __slots__ = ("ratio",)

    def __init__(self, ratio):
        self.ratio = ratio

    def __call__(self, q):
        return slide(q, self.ratio)

    def method(self, q):
        return slide(q, self.ratio)


class Unhashable:
    """A callable that compares equal to everything and has no hash."""

    __hash__ = None

    def __init__(self, ratio):
        self.ratio = ratio

    def __eq__(self, other):
        return True

    def __call__(self, q):
        return slide(q, self.ratio)


def in_an_array(ratio):
    """In the middle of an array whose repr leaves it out."""
    many = np.zeros(2001)
    many[1000] = ratio
    return lambda q: slide(q, many[1000])


def set_global(name, make):
    def with_ratio(ratio, monkeypatch):
        monkeypatch.setitem(globals(), name, ratio)
        return make

    return with_ratio


def plainly(make):
    return lambda ratio, monkeypatch: make(ratio)


def in_a_dictionary(ratio, monkeypatch):
    monkeypatch.setitem(TABLE, "ratio", ratio)
    return lambda q: slide(q, TABLE["ratio"])


# how a function can depend on a number that its code does not show
HIDDEN = {
    "a global": set_global("RATIO", by_global),
    "a global of a helper": set_global("HELPED", by_helper),
    "a dictionary": in_a_dictionary,
    "a keyword's default": plainly(by_keyword),
    "functools.partial": plainly(lambda ratio: functools.partial(slide, ratio=ratio)),
    "the self of a method": plainly(lambda ratio: Slots(ratio).method),
    "__slots__": plainly(Slots),
    "a callable without a hash": plainly(Unhashable),
    "a closure": plainly(lambda ratio: lambda q: slide(q, ratio)),
    "the ninth digit of an array": plainly(lambda ratio: functools.partial(by_array, k=np.array([1.0 + 1e-9 * ratio]))),
    "the last bit of a number": plainly(lambda ratio: lambda q, k=1.0 + (ratio - 2.0) * 2.0**-52: slide(q, k)),
    "the middle of a long array": plainly(in_an_array),
}


def robot_of(function):
    b = qddot.Builder("x").link("a", 1.0, (0.1, 0.0, 0.0), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
    return b.joint("j", "world", "a", Own(function, 1, "slide")).robot()


def constrained_by(function):
    """Two hinges, tied by the first number of a slide."""
    b = qddot.Builder("x")
    for k in range(2):
        b.link(f"l{k}", 1.0, (0.1, 0.0, 0.0), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1)).joint(f"j{k}", "world", f"l{k}", Revolute())
    return b.robot().with_constraint("tie", position=lambda q: [function(q).p[0] - q[1]])


@pytest.mark.parametrize("made", [robot_of, constrained_by])
@pytest.mark.parametrize("how", HIDDEN)
def test_two_functions_two_robots(how, made, monkeypatch):
    robots = []
    for ratio in (2.0, 3.0, 2.0):
        robots.append(made(HIDDEN[how](ratio, monkeypatch)))
        assert robots[-1].model.digest  # taken while the function is what it is
    one, other, again = robots
    assert one.model.digest == again.model.digest
    assert one == again
    assert one.model.digest != other.model.digest
    assert one != other


@pytest.mark.parametrize("how", ["a global", "a dictionary", "a callable without a hash", "functools.partial"])
def test_two_functions_two_kernels(how, monkeypatch):
    """Compiled one after the other, out of one cache."""
    for ratio in (2.0, 5.0, 2.0):
        robot = robot_of(HIDDEN[how](ratio, monkeypatch))
        assert robot.jacobian([0.3], "a")[3, 0] == ratio


def test_what_changes_afterwards_is_not_seen(monkeypatch):
    """A robot is what it was when it was built: read, compiled later, pickled, and next to one that was built later."""
    robot = robot_of(by_global)
    tied = constrained_by(by_global)
    monkeypatch.setitem(globals(), "RATIO", 7.0)
    copies = [robot, pickle.loads(pickle.dumps(robot)), qddot.Robot(robot.model, compiled=False)]
    for copy in copies:
        assert copy == robot
        assert copy.jacobian([0.3], "a")[3, 0] == 2.0
    later = robot_of(by_global)
    assert later != robot
    assert later.jacobian([0.3], "a")[3, 0] == 7.0
    assert tied.constraint_jacobian([0.1, 0.2]).tolist() == [[2.0, -1.0]]
    assert pickle.loads(pickle.dumps(tied)) == tied


def test_loops_over_links_tell_functions_apart(monkeypatch):
    """Rolled code has one piece for links that are alike; joints of one function, recorded at different times, are not."""
    b, parent = qddot.Builder("chain"), "world"
    for k in range(12):
        monkeypatch.setitem(globals(), "RATIO", float(1 + k % 2))
        b.link(f"l{k}", 1.0, (0.1, 0.0, 0.0), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
        b.joint(f"j{k}", parent, f"l{k}", Own(by_global, 1, "slide"))
        parent = f"l{k}"
    robot = b.robot()
    q, v = robot.random_state(0)
    expected = qddot.Robot(robot.model, compiled=False).inverse_dynamics(q, v, v)
    found = robot.kernel("inverse_dynamics", form="rolled")(q, v, v)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)  # a few hundred roundings of numbers near ten


SCRIPT = """
import qddot
from qddot.joints import Own
from qddot.spatial import Transform

RATIO = 2.0


def T(q):
    return Transform(p=(RATIO * q[0], 0.0, 0.0))


b = qddot.Builder("x").link("a", 1.0, (0.1, 0.0, 0.0), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
robot = b.joint("j", "world", "a", Own(T, 1, "slide")).robot()
print(robot.jacobian([0.3], "a")[3, 0], robot.kernel("jacobian", frame="a").info.cached)
"""


def test_an_edited_script_gets_new_code(tmp_path):
    """Two processes, one cache folder: the edited one must not get the other's machine code, the same one must."""
    script, out = tmp_path / "script.py", []
    for text in (SCRIPT, SCRIPT, SCRIPT.replace("RATIO = 2.0", "RATIO = 5.0")):
        script.write_text(text)
        environment = {**os.environ, "QDDOT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(PACKAGE.parent)}
        done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
        out.append(done.stdout.split())
    assert out == [["2.0", "False"], ["2.0", "True"], ["5.0", "False"]]


# ---- what is refused ---------------------------------------------------------------------------------------------------

counter = itertools.count()


def shift(p):
    return Transform(p=p)


REFUSED = {
    "branches": (lambda q: slide(q, 1.0 if q[0] > 0 else 2.0), "decide an if.*where"),
    "the math module": (lambda q: slide(q, math.cos(q[0])), "not the math module"),
    "random numbers": (lambda q: slide(q, random.random()), r"does not do the same.*a number in it was 0\.\d+ and then"),
    "NumPy's random numbers": (lambda q: slide(q, np.random.default_rng().uniform()), "does not do the same"),
    "a counter": (lambda q: slide(q, next(counter)), "does not do the same"),
    "another form each time": (lambda q: (Slide if next(counter) % 2 else shift)((q[0], 0.0, 0.0)), "does not do"),
    "complex numbers": (lambda q: slide(q, 1j), "cannot be traced"),
    "nothing": (lambda q: None, "must give a Transform"),
    "a matrix too small": (lambda q: (((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0, 0.0)), "must give a Transform"),
    "too few coordinates": (lambda q: slide([q[1]], 1.0), "IndexError"),
    "memory of the last run": (lambda q, seen=[]: slide([seen.append(q[0]) or seen[0]], 1.0), "keeps values"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_no_function_no_robot(why):
    function, text = REFUSED[why]
    with pytest.raises(qddot.ModelError, match=rf"joint 'j': .*{text}"):
        robot_of(function)


@pytest.mark.parametrize("why", ["branches", "the math module", "random numbers", "a counter"])
def test_no_function_no_constraint(why):
    function, text = REFUSED[why]
    with pytest.raises(qddot.InputError, match=rf"constraint 'tie'.*{text}"):
        constrained_by(function)


def test_other_things_that_are_no_joints():
    class Mine(Revolute):
        def transform(self, q):
            return Transform(p=(q[0], 0.0, 0.0))

    b = qddot.Builder("x").link("a", 1.0)
    with pytest.raises(qddot.ModelError, match=r"'j': it is of the class Mine.*Own"):
        b.joint("j", "world", "a", Mine())
    for nv in (0, 7, 1.5, True, None):
        with pytest.raises(qddot.ModelError, match=r"'j': it has .* degrees of freedom"):
            b.joint("j", "world", "a", Own(by_global, nv))
    model = robot_of(by_global).model
    with pytest.raises(qddot.InputError, match=r"constraint 'c' of 3 rows.*\[1\]"):
        dataclasses.replace(model, constraints=(Constraint("c", 3, lambda q: [q[0]]),))


# ---- tapes -------------------------------------------------------------------------------------------------------------


def everything(q):
    """Every operation that a tape knows, with Python's operators and with NumPy's functions."""
    x, y = q
    z = np.array([0.25, np.float64(0.5)]) * x - y / 3 + 2 * (1 - x) ** 3
    w = np.sin(z[0]) + np.arctan2(1.0, np.sqrt(x * x + 2.0)) - np.float64(0.3) / (2.0 + np.cos(y))
    return [w, -z[1], scalars.where(x < y, w, +y), scalars.where(scalars.less(0.2, x), 1.5, x), 7]


def test_a_tape_replays_to_the_last_bit():
    tape = record("a function", lambda q: everything(q.tolist()), (2,))
    for x, y in np.random.default_rng(0).standard_normal((20, 2)).tolist():
        assert tape([x, y]) == everything([x, y])
    again = pickle.loads(pickle.dumps(tape))
    assert again == tape
    assert again.digest == tape.digest
    with pytest.raises(ValueError, match=r"sizes \(2,\)"):
        tape([1.0])
