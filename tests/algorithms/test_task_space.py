"""Λ, μ, J̄ and N as functions of the catalogue: every formulation, their kernels, exports, and what they say where the rows
of the task depend on each other."""

import warnings

import numpy as np
import pytest
from hypothesis import given

import qddot
from qddot.dynamics.catalogue import OF_WHOLE_LINKS
from qddot.dynamics.task_functions import TASK_FUNCTIONS
from qddot.errors import NotRollableError
from tests.support.mechanisms import State, trees
from tests.support.profiles import examples
from tests.support.tolerances import COMPLEX_STEP, solve

SETTINGS = examples(30)
FORMULATIONS = [(name, method) for name, f in TASK_FUNCTIONS.items() for method in f.methods]
LINEAR = (3, 4, 5)


def close(x, y, tolerance):
    scale = max(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(np.asarray(x) - y), initial=0.0) <= tolerance * scale


def defined(robot, q, v, frame, rows):
    """What the functions are, by NumPy from M, J and the bias, and the condition that rounding is multiplied by."""
    rows = list(rows)
    J, J_dot, M = robot.jacobian(q, frame)[rows], robot.jacobian_derivative(q, v, frame)[rows], robot.mass_matrix(q)
    W = np.linalg.solve(M, J.T)
    Lambda = np.linalg.inv(J @ W)
    mu = Lambda @ (W.T @ robot.bias_force(q, v) - J_dot @ v)
    values = (Lambda, mu, W @ Lambda, np.eye(robot.nv) - W @ Lambda @ J)
    return dict(zip(TASK_FUNCTIONS, values, strict=True)), np.linalg.cond(M) * np.linalg.cond(J @ W)


def independent_rows(robot, q, frame):
    """The first rows of the Jacobian that do not depend on those before them."""
    J, rows = robot.jacobian(q, frame), []
    for r in range(6):
        if np.linalg.matrix_rank(J[[*rows, r]], tol=1e-3) > len(rows):
            rows.append(r)
    return tuple(rows)


@SETTINGS
@given(trees())
def test_every_formulation_is_the_definition(robot):
    s = State(robot)
    frame = robot.frame_names[-1]
    rows = independent_rows(robot, s.q, frame)
    if not rows:
        return
    expected, condition = defined(robot, s.q, s.v, frame, rows)
    if condition > 1e8:
        return
    for name, method in FORMULATIONS:
        function = TASK_FUNCTIONS[name]
        found = function.methods[method](robot.model, *(s.q, s.v)[: len(function.inputs)], frame=frame, rows=rows)
        assert found.shape == function.shape(robot.model, {"rows": rows}) == expected[name].shape
        close(found, expected[name], solve(condition))
        close(getattr(robot, name)(*(s.q, s.v)[: len(function.inputs)], frame, rows), found, solve(condition))


@SETTINGS
@given(trees())
def test_lambda_can_be_differentiated(robot):
    """dΛ = -Λ d(Λ⁻¹) Λ along a motion, by complex steps through either."""
    s = State(robot)
    frame = robot.link_names[-1]
    rows = independent_rows(robot, s.q, frame)
    if not rows or defined(robot, s.q, s.v, frame, rows)[1] > 1e6:
        return
    Lambda = robot.operational_space_inertia(s.q, frame, rows)
    rate = s.slope(s.v, lambda q: robot.operational_space_inverse_inertia(q, frame))[np.ix_(rows, rows)]
    found = s.slope(s.v, lambda q: robot.operational_space_inertia(q, frame, rows))
    close(found, -Lambda @ rate @ Lambda, COMPLEX_STEP * np.linalg.cond(Lambda) * max(1.0, np.max(np.abs(Lambda))))


ROBOTS = {"puma560": range(6), "quadruped": LINEAR, "stanford": (5, 0, 1), "scara": (2, 3, 4, 5), "pendulum": (0,)}


def states(robot, count):
    """Configurations a little off the neutral one, and velocities."""
    rng = np.random.default_rng(5)
    pairs = [robot.random_state(rng) for _ in range(count)]
    return np.stack([q for q, _ in pairs]), np.stack([v for _, v in pairs])


def rows_for(robot):
    rows = ROBOTS[robot.name]
    return independent_rows(robot, states(robot, 1)[0][0], robot.frame_names[-1]) if robot.nv == 1 else tuple(rows)


@pytest.mark.parametrize(("name", "method"), FORMULATIONS)
@pytest.mark.parametrize("robot", ROBOTS)
def test_kernels_of_every_formulation(robot, name, method):
    """A batch in lanes and each state alone have the same bits, and are the definition."""
    robot, function = qddot.load(robot), TASK_FUNCTIONS[name]
    (q, v), frame, rows = states(robot, 11), robot.frame_names[-1], rows_for(robot)
    kernel = robot.kernel(name, frame=frame, rows=rows, method=method)
    arrays = (q, v)[: len(function.inputs)]
    batch = kernel(*arrays)
    assert kernel.info.method == method
    assert batch.shape == (11, *kernel.output) == (11, *function.shape(robot.model, {"rows": rows}))
    for k in range(11):
        expected, condition = defined(robot, q[k], v[k], frame, rows)
        close(batch[k], expected[name], min(1e-9, solve(condition)))
        assert kernel(*(x[k] for x in arrays)).tobytes() == batch[k].tobytes()


@pytest.mark.parametrize("name", TASK_FUNCTIONS)
def test_single_precision(name):
    robot, rows = qddot.load("puma560"), LINEAR
    (q, v), frame = states(robot, 7), "link6"
    arrays = [x.astype(np.float32) for x in (q, v)][: len(TASK_FUNCTIONS[name].inputs)]
    double = robot.kernel(name, frame=frame, rows=rows)(*(x.astype(float) for x in arrays))
    single = robot.kernel(name, frame=frame, rows=rows, dtype="float32")(*arrays)
    assert single.dtype == np.float32
    close(single, double, 1e-3)  # 6e-8 times a condition below 1e4


@pytest.mark.parametrize("name", TASK_FUNCTIONS)
def test_methods_are_the_kernels(name):
    """One state, batches of q and v that are broadcast, and rows counted from the end."""
    robot, function = qddot.load("puma560"), TASK_FUNCTIONS[name]
    q, v = states(robot, 3)
    arrays = (q[:, None], v[None, :2])[: len(function.inputs)]
    found = getattr(robot, name)(*arrays, "link6", [-3, -2, -1])
    assert found.tobytes() == robot.kernel(name, frame="link6", rows=LINEAR)(*arrays).tobytes()
    one = getattr(robot, name)(*(x[0] for x in (q, v)[: len(function.inputs)]), "link6", np.array(LINEAR))
    assert one.tobytes() == found[0, 0].tobytes()


@pytest.mark.parametrize("name", TASK_FUNCTIONS)
def test_free_parameters(name):
    """A payload of the frame is an input of the kernel."""
    robot, function = qddot.load("puma560"), TASK_FUNCTIONS[name]
    (q, v), mass = states(robot, 4), np.array([0.0, 0.5, 1.0, 2.0])
    arrays = (q, v)[: len(function.inputs)]
    found = robot.kernel(name, frame="link6", rows=LINEAR, free=("link6.payload_mass",))(*arrays, mass)
    for k, m in enumerate(mass):
        heavier = robot.with_parameters({"link6.payload_mass": m})
        close(found[k], getattr(heavier, name)(*(x[k] for x in arrays), "link6", LINEAR), 1e-9)  # condition below 1e4


# ---- where rows depend on each other


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "method"), FORMULATIONS)
def test_kernels_give_nan_where_rows_depend(name, method, dtype):
    """A stretched PUMA's wrist, a sample alone among others; and four joints that are to move six rows."""
    robot, function = qddot.load("puma560"), TASK_FUNCTIONS[name]
    q, v = states(robot, 3)
    q[1, 4] = 0.0
    arrays = [x.astype(dtype) for x in (q, v)][: len(function.inputs)]
    found = robot.kernel(name, frame="link6", method=method, dtype=dtype)(*arrays)
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()
    scara = qddot.load("scara")
    kernel = scara.kernel(name, frame="tip", method=method, dtype=dtype)
    for q, v in zip(*states(scara, 5), strict=True):
        state = (q, v)[: len(function.inputs)]
        assert np.isnan(kernel(*state)).all()
        with np.errstate(all="ignore"):
            eager = function.methods[method](scara.model, *(x[None] for x in state), frame="tip")
        assert np.isnan(eager).all()


@pytest.mark.parametrize("name", TASK_FUNCTIONS)
@pytest.mark.parametrize("compiled", [True, False])
def test_methods_refuse_rows_that_depend(name, compiled):
    robot = qddot.Robot(qddot.load("puma560").model, compiled)
    q, v = states(robot, 3)
    q[1, 4] = 0.0
    arrays = (q, v)[: len(TASK_FUNCTIONS[name].inputs)]
    for state in (arrays, [x[1] for x in arrays]):
        with pytest.raises(qddot.InputError, match="the motion of 'link6' has only 5 independent rows of the 6 requested"):
            getattr(robot, name)(*state, "link6")


@pytest.mark.parametrize("name", TASK_FUNCTIONS)
@pytest.mark.parametrize("compiled", [True, False])
def test_rows_that_depend_to_rounding(name, compiled):
    """The Jacobian of a wrist that is bent by 1e-8 has six singular values, but Λ⁻¹, which has their squares, has five."""
    robot = qddot.Robot(qddot.load("puma560").model, compiled)
    q, v = states(robot, 3)
    q[1, 4] = 1e-8
    arrays = (q, v)[: len(TASK_FUNCTIONS[name].inputs)]
    with pytest.warns(qddot.QddotWarning, match=rf"{name}: 1 of 3 samples are NaN; in sample 1 .*'link6'") as caught:
        found = getattr(robot, name)(*arrays, "link6")
    assert [w.filename for w in caught] == [__file__]
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()
    with pytest.raises(qddot.InputError, match=f"{name}: the chosen rows of the motion of 'link6' depend on each other"):
        getattr(robot, name)(*(x[1] for x in arrays), "link6")
    q[1, 4], v[0] = 1e-4, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = getattr(robot, name)(*((q, v)[: len(arrays)]), "link6")  # NaN that came in is nobody's singularity
    assert np.isfinite(found[[1, 2]]).all()


def folding():
    """A ball of three angles whose middle one folds at π/2, on an arm of two hinges."""
    ball = qddot.joints.SphericalEuler("xyz")
    b = qddot.Builder("folding").link("link1", 1.0, inertia=(0.1, 0.0, 0.0, 0.2, 0.0, 0.3))
    b.link("link2", 1.0, inertia=(0.1, 0.0, 0.0, 0.2, 0.0, 0.3), com=(0.1, 0.0, 0.3))
    b.joint("hinge", "world", "link1", qddot.joints.Revolute("z"))
    return b.joint("ball", "link1", "link2", ball, (0.5, 0.0, 0.0)).robot()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_singular_mass_matrix_is_not_the_rows_fault(compiled):
    robot = qddot.Robot(folding().model, compiled)
    q = np.array([[0.1, 0.2, 0.3, 0.4], [0.1, 0.2, np.pi / 2, 0.4]])
    with pytest.warns(qddot.QddotWarning, match=r"1 of 2 samples are NaN; in sample 1 the mass matrix .*'ball'") as caught:
        found = robot.operational_space_inertia(q, "link2", [3])
    assert [w.filename for w in caught] == [__file__]
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1]).all()
    with pytest.raises(qddot.SingularMassMatrixError, match="'ball'"):
        robot.operational_space_inertia(q[1], "link2", [3])


# ---- choices


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "no rows of a twist"),
        ([6], "no rows of a twist"),
        ([1.5], "no rows of a twist"),
        ("345", "no rows of a twist"),
        (3, "no rows of a twist"),
        ([True, False], "no rows of a twist"),
        ([3, 3], "names a row twice"),
        ([5, -1], "names a row twice"),
    ],
)
def test_rows_that_are_none(rows, why):
    robot = qddot.load("puma560")
    q = np.full(6, 0.3)
    with pytest.raises(qddot.InputError, match=why):
        robot.kernel("null_space_projector", frame="link6", rows=rows)
    with pytest.raises(qddot.InputError, match=why):
        robot.null_space_projector(q, "link6", rows)
    with pytest.raises(qddot.InputError, match=why):
        robot.export_c("null_space_projector", frame="link6", rows=rows, cc="")


def test_what_needs_a_frame_and_what_takes_rows():
    robot = qddot.load("puma560")
    with pytest.raises(qddot.InputError, match="'null_space_projector' needs frame="):
        robot.kernel("null_space_projector")
    for name, needs in (("jacobian", {"frame": "link6"}), ("mass_matrix", {})):
        with pytest.raises(qddot.InputError, match=f"'{name}' takes no rows="):
            robot.kernel(name, rows=[3], **needs)
    with pytest.raises(qddot.InputError, match="takes no rows="):
        qddot.load("fourbar").kernel("constrained_forward_dynamics", rows=[0])
    with pytest.raises(qddot.SingularMassMatrixError):
        qddot.Builder("ghost").link("body", 0.0).joint(
            "turn", "world", "body", qddot.joints.Revolute("z")
        ).robot().export_c("operational_space_inertia", frame="body", rows=[2], cc="")


@pytest.mark.parametrize("name", TASK_FUNCTIONS)
def test_they_are_not_rolled(name):
    robot = qddot.chain(5)
    for method in ("auto", *TASK_FUNCTIONS[name].methods):
        with pytest.raises(NotRollableError, match=f"{name} of 'chain5' cannot be rolled: it inverts .*form='unrolled'"):
            robot.kernel(name, form="rolled", frame="link2", rows=[3], method=method)


def test_long_chains_are_unrolled():
    """More links than code keeps its loops from."""
    robot = qddot.chain(90, rng=0)
    q, v = states(robot, 1)
    frame = robot.link_names[9]
    kernel = robot.kernel("operational_space_inertia", frame=frame, rows=LINEAR)
    assert kernel.info.form == "unrolled"
    expected, condition = defined(robot, q[0], v[0], frame, LINEAR)
    close(kernel(q[0]), expected["operational_space_inertia"], solve(condition))


def test_formulations_look_at_what_links_carry():
    """Inertias are moved from link to link before these functions are compiled, which none of them notices."""
    assert not OF_WHOLE_LINKS & {method for _, method in FORMULATIONS}
    robot = qddot.load("puma560")
    (q, v), fewer = states(robot, 1), 0
    for name, function in TASK_FUNCTIONS.items():
        kernels = [robot.kernel(name, frame="link6", rows=LINEAR, regroup=x) for x in (True, False)]
        arrays = (q[0], v[0])[: len(function.inputs)]
        close(kernels[0](*arrays), kernels[1](*arrays), 1e-9)  # condition below 1e4
        fewer += kernels[1].info.instructions - kernels[0].info.instructions
    assert fewer > 0
