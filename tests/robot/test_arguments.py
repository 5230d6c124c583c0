"""Wrong arguments of simulations and of a robot's methods: a clear error that names them, before anything is computed."""

import re

import numpy as np
import pytest

import qddot
from qddot.joints import Revolute
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
    with pytest.raises(TypeError, match="did you mean 'gains'"):
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


# ---- names and options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["double_pendulum", "fivebar"])
@pytest.mark.parametrize("method", ["inverse_dynamics", "forward_dynamics"])
def test_a_misspelt_argument_is_named(name, method):
    """It is not taken for an option of robots with loops, and the method is the one that was called."""
    robot = qddot.load(name)
    zero = np.zeros(robot.nv)
    with pytest.raises(TypeError, match=rf"^{method}\(\) got .* argument 'fext'; did you mean 'f_ext'\? It takes f_ext, "):
        getattr(robot, method)(robot.neutral(), zero, zero, fext=zero)


def test_options_of_loops_stay_those(robot):
    zero = np.zeros(2)
    with pytest.raises(qddot.InputError, match="actuated= is for robots with loops, and robot 'double_pendulum' has none"):
        robot.inverse_dynamics(zero, zero, zero, actuated=["hinge1"])
    with pytest.raises(qddot.InputError, match="gains= is for robots with loops"):
        robot.forward_dynamics(zero, zero, zero, gains=(1.0, 1.0))


MISSPELT = {
    "export_c": (
        lambda r: r.export_c("inverse_dynamics", sincso="own"),
        r"^export_c\(\) .*'sincso'; did you mean 'sincos'\?",
    ),
    "export_c, of kernels": (
        lambda r: r.export_c("inverse_dynamics", lanes=4),
        r"^export_c\(\) .*'lanes'; it takes method,",
    ),
    "kernel": (lambda r: r.kernel("inverse_dynamics", dtpe="float32"), r"^kernel\(\) .*'dtpe'; did you mean 'dtype'\?"),
    "from_dh": (lambda r: qddot.from_dh([{"mass": 1.0}], nme="x"), r"^from_dh\(\) .*'nme'; did you mean 'name'\?"),
    "Rollout": (lambda r: Rollout(r, dt=1e-3, integratr="rk4"), r"^Rollout\(\) .*'integratr'; did you mean 'integrator'\?"),
    "Builder.joint": (
        lambda r: qddot.Builder("b").link("a").joint("j", "world", "a", Revolute(), dampng=1.0),
        r"^Builder.joint\(\) .*'dampng'; did you mean 'damping'\?",
    ),
}


@pytest.mark.parametrize("case", MISSPELT)
def test_misspelt_options_are_those_of_what_was_called(robot, case):
    call, text = MISSPELT[case]
    with pytest.raises(TypeError, match=text):
        call(robot)


Q = [0.1, 0.2]
NO_NAMES = {
    "pose": (lambda r: r.pose(Q, ["link1", "link2"]), "frame is ['link1', 'link2']; give one name"),
    "jacobian": (lambda r: r.jacobian(Q, None), "frame is None"),
    "operational space": (lambda r: r.operational_space(Q, Q, ["link1"]), "frame is ['link1']"),
    "its inertia": (lambda r: r.operational_space_inverse_inertia(Q, ["link1"]), "frame is ['link1']"),
    "kernel of lists": (lambda r: r.kernel(["mass_matrix"]), "function is ['mass_matrix']"),
    "frame of a kernel": (lambda r: r.kernel("jacobian", frame=["link1"]), "frame is ['link1']"),
    "method": (lambda r: r.kernel("mass_matrix", method=["auto"]), "method is ['auto']"),
    "target": (lambda r: r.kernel("mass_matrix", target=["cpu"]), "target is ['cpu']"),
    "free": (lambda r: r.kernel("mass_matrix", free=[["mass"]]), "free= is ['mass']"),
    "packed": (lambda r: r.kernel("mass_matrix", packed=[True]), "packed=[True] is not known; take True or False"),
    "regroup": (lambda r: r.kernel("mass_matrix", regroup="no"), "regroup='no' is not known"),
    "exported": (lambda r: r.export_source(["mass_matrix"]), "function is ['mass_matrix']"),
    "exported, a number": (lambda r: r.export_c(3), "functions are 3; give a list"),
    "exported, a table": (lambda r: r.export_c({"jacobian": {}}), "functions are {'jacobian': {}}; give a list"),
    "frame of C": (lambda r: r.export_c("jacobian", frame=["link1"]), "frame is ['link1']"),
    "parameters": (lambda r: r.parameters(["mass"]), "parameter is ['mass']"),
    "with_parameters": (lambda r: r.with_parameters(["mass"]), "give names and values"),
    "a number": (lambda r: r.with_parameters({3: 1.0}), "parameter is 3; give one name"),
    "place of a joint": (lambda r: r.v_index[["hinge1"]], "joint is ['hinge1']"),
    "prescribed": (lambda r: r.hybrid_dynamics(Q, Q, Q, Q, prescribed=None), "degrees of freedom are None"),
    "prescribed, one number": (lambda r: r.hybrid_dynamics(Q, Q, Q, Q, prescribed=1), "degrees of freedom are 1"),
}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("case", NO_NAMES)
def test_lists_in_the_place_of_names(robot, case, compiled):
    call, text = NO_NAMES[case]
    with pytest.raises(qddot.InputError, match=re.escape(text)):
        call(qddot.Robot(robot.model, compiled))


def test_lists_in_the_place_of_names_of_links():
    def built():
        return qddot.Builder("b").link("a", 1.0).link("c", 1.0).joint("j", "world", "a", Revolute())

    for call in (
        lambda: built().joint("k", ["a"], "c", Revolute()),
        lambda: built().joint("k", "a", ["c"], Revolute()),
        lambda: built().frame("f", ["a"]),
        lambda: built().loop("l", "a", ["c"], Revolute()),
    ):
        with pytest.raises(qddot.ModelError, match=r"it names a link by \['[ac]'\]; give the name of one link"):
            call()
    for mimic in (["j"], "j", (["j"], 1.0, 0.0), ("j", 1.0)):
        with pytest.raises(
            qddot.ModelError, match=r"joint 'k': mimic is .*; give \(name of the other joint, factor, offset\)"
        ):
            built().joint("k", "a", "c", Revolute(), mimic=mimic)


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("float32"), "f4", "float32", np.single])
def test_types_of_numpy_are_taken(robot, dtype):
    assert robot.kernel("inverse_dynamics", dtype=dtype).info.dtype == "float32"
    assert robot.kernel("inverse_dynamics", dtype=dtype) is robot.kernel("inverse_dynamics", dtype="float32")
    assert "float " in robot.export_c("inverse_dynamics", dtype=dtype, cc="").header


def test_types_that_are_not_computed_with(robot):
    assert robot.kernel("inverse_dynamics", dtype=float).info.dtype == "float64"
    for dtype in (None, int, np.float16, complex, ">f4", ["float64"], 3, "double precision"):
        for call in (robot.kernel, robot.export_c):
            with pytest.raises(qddot.InputError, match=r"dtype=.* is not known; take 'float64' or 'float32'"):
                call("inverse_dynamics", dtype=dtype)
