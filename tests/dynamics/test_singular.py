"""Configurations in which some motion moves no mass: an error for one state, NaN and a warning in a batch, by name."""

import re
import warnings

import mpmath
import numpy as np
import pytest

import qddot
from benchmarks import pivots as benchmark
from qddot.compiler.runtime.llvm_compile import invalid_calls
from qddot.dynamics import catalogue, conditioning
from qddot.joints import Own, Prismatic, Revolute, SphericalEuler, SphericalExponential
from qddot.robots import NAMES
from qddot.scalars import cos, sin
from qddot.spatial import Transform
from qddot.spatial.rotation import AxisRotation
from tests.random_trees import DIGITS, exact

X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
SINGULAR = {
    SphericalEuler("xyz"): ([0.3, np.pi / 2, 0.2], 1),
    SphericalEuler("zxz"): ([0.3, 0.0, 0.2], 1),
    SphericalExponential(): ([0.0, 0.0, 2.0 * np.pi], 2),
}
LEFT = 1e-3  # of the accelerations: FLOOR leaves three digits to a pivot


def spherical_angles(q):
    """A user's ball joint, in angles about z, y and z."""
    T = Transform()
    for axis, angle in zip((2, 1, 2), q, strict=True):
        T = T @ Transform(AxisRotation(axis, cos(angle), sin(angle)))
    return T


def arm(joint, links=3):
    """A body on the joint and a few hinges on it."""
    b = qddot.Builder("arm").link("body", 2.0, (0.1, 0.2, 0.3), np.diag([0.3, 0.4, 0.5]))
    b.joint("ball", "world", "body", joint)
    for k in range(1, links):
        b.link(f"link{k}", 1.0, (0.1, 0.0, 0.1), np.diag([0.03, 0.04, 0.05]))
        b.joint(f"hinge{k}", "body" if k == 1 else f"link{k - 1}", f"link{k}", Revolute(Y), qddot.pose((0.3, 0.0, 0.0)))
    return b.robot()


def hinges(*axes, armature=0.0):
    """Hinges at one point; only the last link has mass."""
    b, parent = qddot.Builder("hinges"), "world"
    for k, axis in enumerate(axes):
        body = (1.0, (0.1, 0.2, 0.3), np.diag([0.1, 0.2, 0.3])) if k == len(axes) - 1 else ()
        b.link(f"l{k}", *body).joint(f"h{k}", parent, f"l{k}", Revolute(axis), armature=armature if k == 0 else 0.0)
        parent = f"l{k}"
    return b.robot()


def at(robot, joint, distance):
    base, k = SINGULAR[joint]
    q = np.full(robot.nq, 0.1)
    q[:3] = base
    q[k] += distance
    return q


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
@pytest.mark.parametrize("joint", SINGULAR, ids=repr)
def test_near_a_singular_configuration_a_result_is_right_or_refused(joint, compiled):
    """At 1e-1 … 1e-17 from gimbal lock and from a full turn."""
    robot = qddot.Robot(arm(joint).model, compiled)
    v, tau = np.zeros(robot.nv), np.ones(robot.nv)
    refused = []
    for power in range(1, 18):
        q = at(robot, joint, 10.0**-power)
        try:
            a = robot.forward_dynamics(q, v, tau)
        except qddot.SingularMassMatrixError as error:
            refused.append((power, "'ball'" in str(error)))
            continue
        with mpmath.workdps(DIGITS):
            right = exact(robot.model, "forward_dynamics", (q, v, tau)).astype(float)
        assert np.abs(a - right).max() <= LEFT * np.abs(right).max(), power
    assert refused == [(power, True) for power in range(refused[0][0], 18)]
    assert refused[0][0] >= 4  # four digits away nothing is refused


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
def test_in_a_batch_a_singular_sample_is_lost_alone(compiled):
    joint = SphericalEuler("xyz")
    robot = qddot.Robot(arm(joint).model, compiled)
    good = at(robot, joint, 0.4)
    q = np.stack([good, at(robot, joint, 0.0), good, at(robot, joint, 1e-10)])
    v, tau = np.ones((2, 4, robot.nv))
    v[2, 0] = np.nan  # what comes in as NaN is nobody's singular configuration
    calls = {
        "forward_dynamics": lambda: robot.forward_dynamics(q, v, tau),
        "mass_matrix_inverse": lambda: robot.mass_matrix_inverse(q),
        "hybrid_dynamics": lambda: robot.hybrid_dynamics(q, v, v, tau, prescribed=["hinge1"])[0],
        "forward_dynamics_derivatives": lambda: robot.forward_dynamics_derivatives(q, v, tau).dq,
        "forward_dynamics_inertia_derivatives": lambda: robot.forward_dynamics_inertia_derivatives(q, v, tau),
        "forward_dynamics_derivative": lambda: robot.forward_dynamics_derivative(q, v, tau, by=("tau", ("ball", 0))),
        "operational_space_inverse_inertia": lambda: robot.operational_space_inverse_inertia(q, "link2"),
    }
    for name, call in calls.items():
        with pytest.warns(qddot.QddotWarning, match=rf"{name}: 2 of 4 samples are NaN; in sample 1 .*'ball'") as caught:
            result = call()
        assert len(caught) == 1
        assert caught[0].filename == __file__
        finite = np.isfinite(result).reshape(4, -1)
        assert finite[0].all(), name
        assert not finite[[1, 3]].any(), name
        for _ in range(2):  # the second call takes the short way for one state
            with pytest.raises(qddot.SingularMassMatrixError, match="the motion 'ball'"):
                robot.forward_dynamics(q[1], tau[1], tau[1])


@pytest.mark.parametrize("method", catalogue.FUNCTIONS["forward_dynamics"].methods)
def test_every_formulation_gives_nan(method):
    joint = SphericalEuler("xyz")
    robot = arm(joint)
    q, tau = at(robot, joint, 1e-9), np.ones(robot.nv)
    algorithm = catalogue.lookup("forward_dynamics", method)[2]
    if method == "lin":  # which has no such joints: three hinges in their place
        robot, joint = hinges(X, Y, Z), None
        q, tau = np.array([0.1, np.pi / 2 + 1e-9, 0.2]), np.ones(3)
    regular = np.full(robot.nv, 0.5)
    with np.errstate(all="ignore"):
        assert np.isnan(algorithm(conditioning.guarded(robot.model), q, tau, tau)).all()
        assert np.isfinite(algorithm(conditioning.guarded(robot.model), regular, tau, tau)).all()
    kernel = robot.kernel("forward_dynamics", method=method)
    assert np.isnan(kernel(q, tau, tau)).all()
    assert np.isfinite(kernel(regular, tau, tau)).all()


SOLVES = [(f, m) for f in ("forward_dynamics", "mass_matrix_inverse") for m in catalogue.FUNCTIONS[f].methods]


@pytest.mark.parametrize(("function", "method"), SOLVES)
def test_kernels_count_the_calls_that_lose_a_sample(function, method):
    """Of 37 states one, in a full block of lanes or in the rest; only then a result is searched for NaN."""
    joint = SphericalEuler("xyz")
    robot = hinges(X, Y, Z) if method == "lin" else arm(joint)  # lin has no such joints
    regular = np.full(robot.nv, 0.5)
    lost = np.array([0.1, np.pi / 2, 0.2]) if method == "lin" else at(robot, joint, 0.0)
    for dtype, lanes in (("float64", None), ("float64", 1), ("float32", None)):
        kernel = robot.kernel(function, method=method, dtype=dtype, **({} if lanes is None else {"lanes": lanes}))
        inputs = [np.tile(regular, (37, 1)) for _ in kernel.inputs]
        before = invalid_calls().value
        kernel(*inputs)
        assert invalid_calls().value == before
        for sample in (3, 36):
            inputs[0][:] = regular
            inputs[0][sample] = lost
            count = invalid_calls().value
            assert np.isnan(kernel(*inputs)[sample]).any()
            assert invalid_calls().value == count + 1


@pytest.mark.parametrize("lanes", [None, 1])
def test_what_is_lost_is_quiet(lanes):
    """Also where a reciprocal is a result itself: a signalling NaN would have the user's next operation warn."""
    joint = SphericalEuler("xyz")
    robot = arm(joint, links=1)
    q = np.tile(at(robot, joint, 0.0), (9, 1))
    for function in ("mass_matrix_inverse", "forward_dynamics"):
        kernel = robot.kernel(function, **({} if lanes is None else {"lanes": lanes}))
        count = invalid_calls().value
        lost = kernel(*(q, 0.0 * q, 0.0 * q)[: len(kernel.inputs)]).ravel()
        assert invalid_calls().value == count + 1
        assert np.isnan(lost).any()
        assert (lost[np.isnan(lost)].view(np.uint64) >> np.uint64(51) & np.uint64(1)).all()


def test_no_division_waits_for_the_comparison_of_its_pivot():
    """LLVM makes a division and a choice between its result and NaN one masked division, if it is let."""
    text = arm(SphericalEuler("xyz"), links=1).kernel("forward_dynamics", target="cpu:x86-64-v4").assembly
    divisions = re.findall(r"vdiv[sp]d.*", text)
    assert divisions
    assert not [x for x in divisions if "{%k" in x]


@pytest.mark.parametrize("form", ["unrolled", "rolled"])
@pytest.mark.parametrize("joint", SINGULAR, ids=repr)
def test_in_single_precision_a_result_is_right_or_nan(joint, form):
    """Whose rounding is larger: what is left of a pivot is lost further away."""
    robot = arm(joint)
    kernel, wide = (robot.kernel("forward_dynamics", dtype=t, form=form) for t in ("float32", "float64"))
    u = np.ones(robot.nv)
    refused = []
    for power in np.arange(1.0, 8.0, 0.25):
        q = np.float32(at(robot, joint, 10.0**-power))
        a = kernel(q, u, u)
        refused.append(bool(np.isnan(a).all()))
        if not refused[-1]:
            right = wide(q.astype(float), u, u)
            assert np.abs(a - right).max() <= 10 * LEFT * np.abs(right).max(), power
    assert not any(refused[:3])
    assert all(refused[-8:])


def test_a_sample_lost_in_another_thread_is_reported():
    robot, states = hinges(X, Y, Z), 200_000
    q, u = np.full((states, 3), 0.5), np.ones((states, 3))
    q[states - 10] = [0.1, np.pi / 2, 0.2]
    threads = qddot.get_num_threads()
    qddot.set_num_threads(2)
    try:
        with pytest.warns(qddot.QddotWarning, match=r"1 of 200000 samples are NaN; in sample 199990"):
            robot.forward_dynamics(q, u, u)
    finally:
        qddot.set_num_threads(threads)


@pytest.mark.parametrize("form", ["unrolled", "rolled"])
def test_hinges_without_mass_between_them_can_lock(form):
    """Three hinges for a ball, as other formats have it: the middle link has no mass, and the axes may align."""
    robot = hinges(X, Y, Z)
    assert robot.massless_joints == ()
    kernel = robot.kernel("forward_dynamics", form=form)
    locked, free = np.array([0.1, np.pi / 2, 0.2]), np.array([0.1, 0.5, 0.2])
    assert np.isnan(kernel(locked, free, free)).all()
    assert np.isfinite(kernel(free, free, free)).all()
    with pytest.raises(qddot.SingularMassMatrixError, match=r"the motion 'h0' - 'h2' moves nothing .*armature"):
        robot.forward_dynamics(locked, free, free)
    assert np.isfinite(hinges(X, Y, Z, armature=0.1).forward_dynamics(locked, free, free)).all()


def test_a_point_mass_may_lie_on_the_axis():
    """M vanishes at q = 0 alone, where the mass has been pulled in."""
    b = qddot.Builder("crank").link("arm").joint("turn", "world", "arm", Revolute(Z))
    robot = b.link("bob", 1.0, (0.0, 0.0, 0.0)).joint("pull", "arm", "bob", Prismatic(X)).robot()
    assert robot.massless_joints == ()
    assert robot.forward_dynamics([0.3, 0.5], [0, 0], [1, 0])[0] == pytest.approx(4.0)
    with pytest.raises(qddot.SingularMassMatrixError, match="joint 'turn' moves nothing"):
        robot.forward_dynamics([0.3, 1e-9], [0, 0], [1, 0])


def test_joints_that_share_a_coordinate_can_lock():
    """Two sliders, one driven by the other's coordinate: with a factor of -1 the mass stands still."""
    b = qddot.Builder("pair").link("a").joint("first", "world", "a", Prismatic(X))
    b.link("b").joint("turn", "a", "b", Revolute(Z))
    b.link("c", 1.0, inertia=np.eye(3)).joint("last", "b", "c", Prismatic(X), mimic=("first", -1.0, 0.0))
    robot = b.robot()
    for compiled in (True, False):
        robot = qddot.Robot(robot.model, compiled)
        assert np.isfinite(robot.forward_dynamics([0.0, 1.0], [0, 0], [1, 1])).all()
        with pytest.raises(qddot.SingularMassMatrixError, match="joint 'first' moves nothing"):
            robot.forward_dynamics([0.0, 1e-9], [0, 0], [1, 1])


def test_own_joints_are_watched():
    robot = arm(Own(spherical_angles, 3, "angles"))
    with pytest.raises(qddot.SingularMassMatrixError, match="'ball'"):
        robot.forward_dynamics([0.3, 1e-9, 0.2, 0.1, 0.1], np.zeros(5), np.ones(5))
    assert np.isfinite(robot.forward_dynamics([0.3, 0.5, 0.2, 0.1, 0.1], np.zeros(5), np.ones(5))).all()


def test_free_inertias_move_the_floor():
    """A kernel that takes inertias as inputs judges pivots by those it is given."""
    joint = SphericalEuler("xyz")
    robot = arm(joint)
    kernel, inertia = robot.kernel("forward_dynamics", free=["inertia"]), robot.parameters("inertia")
    q, tau = at(robot, joint, 0.3), np.ones(robot.nv)
    light = kernel(q, 0.0 * tau, 1e-14 * tau, 1e-14 * inertia)
    assert np.allclose(light, kernel(q, 0.0 * tau, tau, inertia), rtol=1e-9)
    assert np.isnan(kernel(at(robot, joint, 1e-9), tau, tau, inertia)).all()


@pytest.mark.parametrize("name", NAMES)
def test_robots_whose_links_have_mass_pay_nothing(name):
    assert not conditioning.guarded(qddot.load(name).spanning_tree().model).is_guarded


def test_a_simulation_that_meets_a_singular_configuration_says_which():
    joint = SphericalEuler("xyz")
    robot = arm(joint, links=1)
    q0 = np.array([0.3, np.pi / 2 - 0.5e-3, 0.2])  # the middle of the first step is at gimbal lock
    model = robot.with_parameters({"gravity": np.zeros(3)})
    for compiled in (True, False):
        with pytest.warns(qddot.QddotWarning, match=r"near a singular configuration, where the motion 'ball'"):
            t = qddot.Robot(model.model, compiled).simulate(q0, [0.0, 1.0, 0.0], dt=1e-3, steps=3)
        assert np.isnan(t.q[-1]).all()


# ---- names -------------------------------------------------------------------------------------------------------------


def test_the_motion_is_named_and_not_one_joint():
    b = qddot.Builder("x").link("ghost").joint("j1", "world", "ghost", Revolute((0.6, 0.0, 0.8)))
    b.link("a", 1.0, (0.1, 0.2, 0.3), np.eye(3)).joint("j2", "ghost", "a", Revolute((0.6, 0.0, 0.8)))
    robot = b.link("b", 1.0, (0.1, 0.2, 0.3), np.eye(3)).joint("j3", "a", "b", Revolute(X)).robot()
    assert robot.massless_joints == ("j1", "j2")
    with pytest.raises(qddot.SingularMassMatrixError, match=r"the motion 'j1' - 'j2' moves nothing .*armature"):
        robot.forward_dynamics(np.zeros(3), np.zeros(3), np.zeros(3))
    both = robot.hybrid_dynamics(np.zeros(3), np.zeros(3), np.zeros(3), np.ones(3), prescribed=["j1"])
    assert np.isfinite(both).all()


def test_factors_are_named():
    b = qddot.Builder("x").link("ghost").joint("lift", "world", "ghost", Prismatic(Z))
    robot = b.link("nut", 1.0, inertia=np.eye(3)).joint("slide", "ghost", "nut", Prismatic((0.0, 0.6, 0.8))).robot()
    assert robot.massless_joints == ()  # the lift moves the mass where the slide cannot follow
    b = qddot.Builder("y").link("a", 2.0).joint("one", "world", "a", Prismatic(Z))
    b.link("b").joint("two", "world", "b", Prismatic(Z), mimic=("one", 2.0, 0.0)).link("c")
    robot = b.joint("three", "b", "c", Prismatic(Z)).robot()
    with pytest.raises(qddot.SingularMassMatrixError, match="joint 'three' moves nothing"):
        robot.forward_dynamics([0, 0], [0, 0], [0, 0])


@pytest.mark.parametrize(("mass", "length"), [(1e308, 1.0), (1e200, 1e54)])
def test_overflow_is_called_overflow(mass, length):
    """Each link by itself is in range, and what the first joint feels of both is not."""
    b = qddot.Builder("x")
    for name, parent in (("a", "world"), ("b", "a")):
        b.link(name, mass, (length, 0.0, 0.0), np.eye(3))
        b.joint(f"j{name}", parent, name, Revolute(Z), qddot.pose((length, 0.0, 0.0)))
    with pytest.raises(qddot.NumericalOverflowError, match=r"joint 'ja' is beyond the range") as caught:
        b.robot().forward_dynamics([0.0, 0.0], [0.0, 0.0], [0.0, 0.0])
    assert not isinstance(caught.value, qddot.SingularMassMatrixError)


def test_the_benchmark_runs(monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "ROBOTS", benchmark.ROBOTS[:1])
    try:
        benchmark.main(["--states", "16", "--rounds", "3"])
    finally:
        qddot.set_num_threads(None)
    assert capsys.readouterr().out.count("| spherical_euler and 0 hinges |") == 2


def test_regular_states_warn_of_nothing():
    joint = SphericalEuler("xyz")
    robot = arm(joint)
    q = np.stack([at(robot, joint, x) for x in np.linspace(0.01, 1.5, 40)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(robot.forward_dynamics(q, 0.0 * q, 0.0 * q)).all()
