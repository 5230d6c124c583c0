"""A recorded run is gone on with only by the same call: every argument that changes a result is compared, and named."""

import dataclasses
import inspect
import json
import warnings

import numpy as np
import pytest

import qddot
from qddot.scalars import sin
from qddot.simulation.recorded import RecordedOptions, record_simulation
from qddot.simulation.run_folder import Recording

LINK = "left_crank"


def push(t, q, v):
    return [0.1 * sin(t), 0.0, 0.0, 0.0]


def other_push(t, q, v):
    return [0.1 * sin(t) + 1e-15, 0.0, 0.0, 0.0]


def pull(t, q, v):
    return np.zeros((4, 6))


def other_pull(t, q, v):
    return np.full((4, 6), 1e-12)


def fivebar(gravity=-9.81):
    model = qddot.load("fivebar").model
    return qddot.Robot(dataclasses.replace(model, gravity=(0.0, gravity, 0.0)))


def start(robot):
    return robot.close_loops(robot.neutral())[0]


def call(folder, **changes):
    robot = changes.pop("robot", None) or fivebar()
    given = {
        "q0": start(robot),
        "v0": np.zeros(4),
        "controls": push,
        "dt": 1e-3,
        "steps": 12,
        "integrator": "rk4",
        "every": 2,
        "chunk": 4,
        "progress": False,
        "forces": (pull,),
        "free": {f"{LINK}.mass": 1.0},
        "t0": 0.5,
        "constraints": "baumgarte",
        "gains": (100.0, 20.0),
        **changes,
    }
    return record_simulation(robot, folder, **given)


# of each argument another value, and what the error says of it
LOOPED = {
    "robot": (lambda: fivebar(-9.8100001), "another robot"),
    "q0": (lambda: start(fivebar()) + 1e-16 * np.array([1.0, 0, 0, 0]) + 1e-9, "another state0 .*another state"),
    "v0": (lambda: np.array([1e-9, 0.0, 0.0, 0.0]), "another state"),
    "controls": (lambda: other_push, "another controls"),
    "dt": (lambda: 1.1e-3, r"dt was 0\.001 and is 0\.0011"),
    "steps": (lambda: 16, "steps was 12 and is 16"),
    "integrator": (lambda: "rkmk4", 'integrator was "rk4" and is "rkmk4"'),
    "every": (lambda: 4, "record was 2 and is 4"),
    "chunk": (lambda: 6, "chunk was 4 and is 6"),
    "forces": (lambda: (other_pull,), "another forces"),
    "free": (lambda: {"right_crank.mass": 1.0}, "free was .*left_crank.* and is .*right_crank"),
    "dtype": (lambda: "float32", 'dtype was "float64" and is "float32"'),
    "target": (lambda: "cuda", 'target was "cpu" and is "cuda"'),
    "t0": (lambda: 0.25, r"t0 was 0\.5 and is 0\.25"),
    "constraints": (lambda: "projection", 'constraints was "baumgarte" and is "projection"'),
    "limits": (lambda: ("stops", "saturate"), 'limits was "ignore" and is "stops and saturate"'),
    "gains": (lambda: (100.0, 20.5), r"gains was \[100\.0, 20\.0\] and is \[100\.0, 20\.5\]"),
}
TREE = {
    "inputs": (lambda: 2.0 * np.ones((12, 2)), "another state0 .*another held"),
    "prescribed": (lambda: {"hinge1": lambda t: 0.3 * t + 1e-9 * t * t * t}, "another prescribed .*another hinge1"),
}
LAW = {"parameters": (lambda: [2.0, 0.1 + 1e-9], "another parameters")}
NOT_OF_THE_RESULT = {"directory", "progress", "options"}


def test_no_argument_is_forgotten():
    """A new argument of a simulation must be looked at here."""
    known = {*inspect.signature(record_simulation).parameters, *RecordedOptions.__annotations__}
    assert known == {*LOOPED, *TREE, *LAW, *NOT_OF_THE_RESULT}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("looped") / "run"
    call(folder)
    return folder


@pytest.mark.parametrize("name", LOOPED)
def test_a_run_is_not_gone_on_with_as_another(begun, name):
    value, text = LOOPED[name]
    options = {"gains": None} if name == "constraints" else {}
    before = (begun / "manifest.json").read_bytes()
    with pytest.raises(qddot.InputError, match=rf"holds another run, of .*{text}"):
        call(begun, **{**options, name: value()})
    assert (begun / "manifest.json").read_bytes() == before
    call(begun)  # the same call, with functions that are made anew, goes on


def test_the_same_for_trees(tmp_path):
    robot = qddot.load("double_pendulum")
    given = {"dt": 1e-3, "steps": 12, "inputs": np.ones((12, 2)), "progress": False, "chunk": 5}

    def law(t, q, v, u):
        return u

    def go(**changes):
        moved = {"prescribed": {"hinge1": lambda t: 0.3 * t}}
        return record_simulation(robot, tmp_path / "run", [0.0, 0.1], [0.3, 0.0], law, **{**given, **moved, **changes})

    go()
    go()
    for name, (value, text) in TREE.items():
        with pytest.raises(qddot.InputError, match=text):
            go(**{name: value()})
    with pytest.raises(qddot.InputError, match=r"prescribed was|another prescribed|hinge1 is missing now"):
        go(prescribed=None)


def test_the_same_for_parameters_of_a_law(tmp_path):
    robot = qddot.load("double_pendulum")

    def law(t, q, v, p):
        return -p[0] * q - p[1] * v

    def go(parameters):
        options = {"dt": 1e-3, "steps": 12, "progress": False, "chunk": 5, "parameters": parameters}
        return record_simulation(robot, tmp_path / "run", [0.0, 0.1], [0.3, 0.0], law, **options)

    first = go([2.0, 0.1])
    assert np.array_equal(go([2.0, 0.1]).q, first.q)
    value, text = LAW["parameters"]
    with pytest.raises(qddot.InputError, match=text):
        go(value())


def test_compiled_or_not_and_by_which_version(tmp_path, monkeypatch):
    """Python's sums and the compiled ones differ in their last bits, and so may those of another version."""
    call(tmp_path / "run")
    with pytest.raises(qddot.InputError, match=r'arithmetic was "(not )?fused" and is "python"'):
        call(tmp_path / "run", robot=qddot.Robot(fivebar().model, compiled=False))
    monkeypatch.setattr(qddot.version, "__version__", "99.0")
    with pytest.raises(qddot.InputError, match=r'qddot was "0\.\d+\.\d+" and is "99\.0"'):
        call(tmp_path / "run")


def test_a_run_that_an_older_qddot_began(tmp_path):
    """It noted less: it can be read, and is not gone on with."""
    call(tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    content = json.loads(path.read_text())
    del content["run_of"]
    content["state0"] = "0" * 64
    path.write_text(json.dumps(content))
    assert len(Recording(tmp_path / "run").trajectory(fivebar())) == 7
    with pytest.raises(qddot.InputError, match=r"another state0 and run_of \(not noted"):
        call(tmp_path / "run")


def test_a_robot_of_the_users_own(tmp_path):
    """A recording's identity uses the robot's digest, which sees what a constraint's function refers to."""
    tree, ratio = qddot.load("double_pendulum"), [1.0]

    def go():
        robot = tree.with_constraint("tied", position=lambda q: [q[0] - ratio[0] * q[1]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record_simulation(robot, tmp_path / "run", [0.0, 0.0], [0.0, 0.0], dt=1e-3, steps=4, progress=False)

    go()
    go()
    ratio[0] = 1.0 + 1e-9
    with pytest.raises(qddot.InputError, match="another robot"):
        go()
