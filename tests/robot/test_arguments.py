"""Wrong arguments of simulations and of a robot's methods: a clear error that names them, before anything is computed."""

import numpy as np
import pytest

import qddot
from qddot.simulation import Event, Rollout
from qddot.simulation.recorded import record_simulation

RAGGED = [[0.0, 0.0], [0.0]]
NO_NUMBERS = [True, np.True_, "1", None, [1e-3], np.nan, np.inf, 1j, 10**400, np.array([1e-3, 2e-3])]
NO_COUNTS = [*NO_NUMBERS, 0, -1, 1.0, 2.5, 2**60]


@pytest.fixture(scope="module")
def robot():
    return qddot.load("double_pendulum")


def simulate(robot, **changes):
    given = {"q0": [0.1, 0.2], "v0": [0.0, 0.0], "dt": 1e-3, "steps": 4, **changes}
    return robot.simulate(given.pop("q0"), given.pop("v0"), given.pop("controls", None), **given)


WRONG = {
    "dt": [*NO_NUMBERS, 0.0, -1e-3],
    "t0": NO_NUMBERS,
    "steps": NO_COUNTS,
    "record": [x for x in NO_COUNTS if not (isinstance(x, str) and x == "end")],
    "integrator": [None, 4, ["rk4"], "rk5", np.array(["rk4", "rk4"])],
    "q0": [RAGGED, "ab", None, [1j, 0.0], [None, None], 0.1, [0.1, 0.2, 0.3], object()],
    "v0": [RAGGED, "ab", None, [1j, 0.0], [None, None], 0.1, [0.1, 0.2, 0.3], object()],
    "controls": [RAGGED, "up", 3.0, [[1j, 0.0]] * 4, np.zeros((4, 3)), np.zeros((3, 2)), [[None, None]] * 4, object()],
    "forces": [3.0, "up", [3.0], [None], RAGGED, lambda t, q, v: RAGGED, lambda t, q, v: [0.0]],
    "prescribed": [3.0, "hinge1", {"hinge1": 2.0}, ["hinge1"], np.zeros(2), {"hinge1": lambda t: [t, t]}],
    "free": [3.0, "x", ["link1.mass"], np.zeros(2)],
    "constraints": [None, 3, ["none"], "some", np.array(["none", "none"])],
    "gains": [(1.0, 2.0), True],
}


@pytest.mark.filterwarnings("error")  # nor a deprecated conversion on the way
@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_of_a_simulation(robot, name):
    for value in WRONG[name]:
        with pytest.raises(qddot.QddotError) as caught:
            simulate(robot, **{name: value})
        assert len(str(caught.value)) > 20, value


@pytest.mark.parametrize("value", [True, 3.0, (1.0,), (1.0, 2.0, 3.0), (1.0, np.nan), "ab", ("a", "b"), RAGGED, (1j, 2.0)])
def test_wrong_gains_of_a_loop(value):
    fivebar = qddot.load("fivebar")
    with pytest.raises(qddot.InputError, match="gains"):
        Rollout(fivebar, dt=1e-3, constraints="baumgarte", gains=value)


def test_wrong_values_of_free_parameters(robot):
    name = f"{robot.link_names[0]}.mass"
    for value in ([[1.0], [1.0, 2.0]], "heavy", [None], 1j, object()):
        with pytest.raises(qddot.InputError, match=name):
            simulate(robot, free={name: value})


@pytest.mark.parametrize(("name", "values"), [("rtol", NO_NUMBERS), ("atol", NO_NUMBERS), ("events", [3.0, [3.0], "x"])])
def test_wrong_tolerances_and_events(robot, name, values):
    for value in values:
        with pytest.raises(qddot.InputError, match=name):
            simulate(robot, integrator="DOP853", **{name: value})
    with pytest.raises(qddot.InputError, match="events"):
        simulate(robot, integrator="DOP853", events=[Event("no function", 3.0)])


@pytest.mark.parametrize("name", ["steps", "every", "chunk"])
def test_wrong_arguments_of_a_recording(robot, tmp_path, name):
    for value in NO_COUNTS:
        given = {"dt": 1e-3, "steps": 4, name: value}
        with pytest.raises(qddot.InputError, match=name):
            record_simulation(robot, tmp_path / "run", [0.1, 0.2], [0.0, 0.0], **given)
    with pytest.raises(qddot.InputError, match="no option 'gain'"):
        record_simulation(robot, tmp_path / "run", [0.1, 0.2], [0.0, 0.0], dt=1e-3, steps=4, gain=3.0)
    assert not (tmp_path / "run").exists()


def test_runs_that_do_not_fit_into_memory(robot, tmp_path, monkeypatch):
    """They are refused before they begin, with their size and a way out."""
    text = r"take [\d,]+ GB, and there are [\d,]+ GB of memory; "
    for integrator in ("rk4", "DOP853"):
        with pytest.raises(qddot.InputError, match=rf"2,147,483,649 states .*{text}keep fewer states \(record="):
            simulate(robot, steps=2**31, q0=np.zeros((64, 2)), integrator=integrator)
    with pytest.raises(qddot.InputError, match=rf"{text}.*every="):
        record_simulation(robot, tmp_path / "run", np.zeros((64, 2)), [0.0, 0.0], dt=1e-3, steps=2**31)
    rollout = Rollout(robot, dt=1e-3)
    with pytest.raises(qddot.InputError, match=text):
        rollout.run(rollout.start(np.zeros((64, 2)), [0.0, 0.0]), 2**31)
    monkeypatch.setattr("qddot.simulation.arguments.memory", lambda: 8 * 5 * 7)  # five states: t, q, v, tau
    assert len(simulate(robot)) == 5
    with pytest.raises(qddot.InputError, match="memory"):
        simulate(robot, steps=5)
    assert len(simulate(robot, steps=10**6, record="end")) == 2


METHODS = {
    "inverse_dynamics": "qvv",
    "forward_dynamics": "qvv",
    "mass_matrix": "q",
    "mass_matrix_inverse": "q",
    "bias_force": "qv",
    "gravity_force": "q",
    "coriolis_matrix": "qv",
    "passive_force": "qv",
    "forward_kinematics": "q",
    "kinetic_energy": "qv",
    "potential_energy": "q",
    "center_of_mass": "q",
    "integrate": "qv",
    "difference": "qq",
    "normalize": "q",
    "inverse_dynamics_derivatives": "qvv",
    "forward_dynamics_derivatives": "qvv",
}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_wrong_arrays_of_a_method(robot, method, compiled):
    """Twice: a method's second call takes a shorter way."""
    run = getattr(qddot.Robot(robot.model, compiled), method)
    good = [[0.1, 0.2]] * len(METHODS[method])
    for _ in range(2):
        for k in range(len(good)):
            for value in (RAGGED, [[0.1], "x"], [0.1, [0.2]], "ab", None, [None, None], ["a", "b"], object(), {"q": 1.0}):
                with pytest.raises(qddot.InputError):
                    run(*good[:k], value, *good[k + 1 :])
        run(*good)


def test_ragged_lists_are_called_so(robot):
    kernel = robot.kernel("inverse_dynamics")
    for run in (kernel, robot.inverse_dynamics, qddot.Robot(robot.model, compiled=False).inverse_dynamics):
        with pytest.raises(qddot.InputError, match="v is a ragged list"):
            run([0.1, 0.2], RAGGED, [0.0, 0.0])
