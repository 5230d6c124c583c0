"""Every function on JAX arrays: the bits of NumPy's kernels, shapes, types, and errors."""

import functools

import numpy as np
import pytest

import qddot
from qddot.dynamics.catalogue import ALL, CUBIC
from qddot.errors import InputError, UnknownNameError
from tests.support.linkages import closed_states, motion
from tests.support.peers import peer

jax = peer("jax")
jnp = jax.numpy

from qddot.jax.functions import TABLE  # noqa: E402  needs JAX

TREES = [name for name in TABLE if not name.startswith("constraint_")]


@functools.cache
def case(name):
    robots = {
        "tree": lambda: qddot.random_tree(4, rng=3, kinds=("free", "planar", "helical", "spherical")),
        "mimic": lambda: qddot.random_tree(5, rng=1, kinds=("revolute", "prismatic"), mimic=True),
    }
    robot = robots[name]() if name in robots else qddot.load(name)
    return robot, robot.jax()


def inputs_of(robot, names, batch=(5,), seed=0):
    rng = np.random.default_rng(seed)
    q, v = robot.random_state(rng, batch)
    a, tau = rng.normal(size=(2, *batch, robot.nv))
    known = {"q": q, "v": v, "a": a, "tau": tau, "f_ext": rng.normal(size=(*batch, robot.model.n_links, 6))}
    return [known[x] for x in names]


@functools.cache
def moving_link(robot):
    """One that can be moved along the most axes of space."""
    q = robot.random_state(np.random.default_rng(0))[0]
    return max(robot.link_names, key=lambda x: np.linalg.matrix_rank(robot.jacobian(q, x)[3:]))


def needs_of(robot, name):
    """What else a function takes; of a frame a row along which the robot moves it."""
    link, q = moving_link(robot), robot.random_state(np.random.default_rng(0))[0]
    row = 3 + int(np.argmax(np.abs(robot.jacobian(q, link)[3:]).max(axis=-1)))
    joint = next(robot.joint_names[i] for i, _ in robot.model.outward() if robot.model.mimic[i] is None)
    known = {"frame": link, "prescribed": (0,), "rows": (row,), "by": ("v", (joint, 0))}
    return {x: known[x] for x in ALL[name].needs}


def assert_same(found, expected):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("robot_name", ["tree", "mimic"])
def test_results_have_the_bits_of_numpys(robot_name, name):
    robot, dynamics = case(robot_name)
    if name in CUBIC and robot_name == "tree":
        pytest.skip("second derivatives of nine degrees of freedom take long to compile")
    arrays, needs = inputs_of(robot, ALL[name].inputs), needs_of(robot, name)
    assert_same(getattr(dynamics, name)(*arrays, **needs), getattr(robot, name)(*arrays, **needs))


@pytest.mark.parametrize("form", ["links", "names", "world"])
@pytest.mark.parametrize(
    "name", ["inverse_dynamics", "forward_dynamics", "hybrid_dynamics", "inverse_dynamics_derivatives"]
)
def test_external_forces(name, form):
    robot, dynamics = case("tree")
    inputs = {"hybrid_dynamics": ("q", "v", "a", "tau"), "forward_dynamics": ("q", "v", "tau")}.get(name, ("q", "v", "a"))
    *arrays, f_ext = inputs_of(robot, (*inputs, "f_ext"))
    options = {"prescribed": ["joint2"]} if name == "hybrid_dynamics" else {}
    if form != "links":
        f_ext = {"link1": f_ext[..., 0, :], "link4": f_ext[0, 1, :]}
    if form == "world":
        options["expressed_in"] = "world"
        if name.endswith("derivatives"):
            with pytest.raises(InputError, match="forces in the world's axes change with q"):
                dynamics.inverse_dynamics_derivatives(*arrays, f_ext, **options)
            return
    found, expected = (getattr(x, name)(*arrays, f_ext, **options) for x in (dynamics, robot))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12 * np.abs(y).max())  # rotations are XLA's, not NumPy's


def test_dynamics_of_trees_have_the_bits_of_numpys():
    robot, dynamics = case("tree")
    q, v, a, tau, f_ext = inputs_of(robot, ("q", "v", "a", "tau", "f_ext"))
    assert_same(dynamics.inverse_dynamics(q, v, a), robot.inverse_dynamics(q, v, a))
    assert_same(dynamics.forward_dynamics(q, v, tau), robot.forward_dynamics(q, v, tau))
    assert_same(dynamics.forward_dynamics(q, v, tau, f_ext), robot.forward_dynamics(q, v, tau, f_ext))
    given = {"prescribed": ["joint2", 0]}
    assert_same(dynamics.hybrid_dynamics(q, v, a, tau, **given), robot.hybrid_dynamics(q, v, a, tau, **given))


@pytest.mark.parametrize("reference", ["body", "world", "aligned"])
def test_jacobians(reference):
    robot, dynamics = case("tree")
    (q,) = inputs_of(robot, ("q",))
    found, expected = (x.jacobian(q, "link4", reference) for x in (dynamics, robot))
    np.testing.assert_allclose(found, expected, atol=1e-14 * np.abs(expected).max())


def test_operational_space():
    robot, dynamics = case("tree")
    q, v = inputs_of(robot, ("q", "v"))
    found, expected = (x.operational_space(q, v, moving_link(robot), [3, 5]) for x in (dynamics, robot))
    assert_same(found, expected)


@pytest.mark.parametrize("name", ["fourbar", "fivebar"])
def test_robots_with_loops(name):
    robot, dynamics = case(name)
    q, v, tau = closed_states(robot, 4)
    a, lam = dynamics.constrained_forward_dynamics(q, v, tau)
    expected, expected_lam = robot.constrained_forward_dynamics(q, v, tau)
    np.testing.assert_array_equal(a, expected)
    np.testing.assert_array_equal(dynamics.forward_dynamics(q, v, tau), expected)
    np.testing.assert_allclose(lam, expected_lam, atol=1e-11 * np.abs(expected_lam).max())
    for function in ("constraint_residual", "constraint_jacobian", "constraint_jacobian_derivatives"):
        assert_same(getattr(dynamics, function)(q), getattr(robot, function)(q))
    assert_same(dynamics.constraint_bias(q, v), robot.constraint_bias(q, v))
    rest = np.zeros_like(tau)
    with_gains = dynamics.constrained_forward_dynamics(q, v, tau, gains=(20.0, 9.0))[0]
    np.testing.assert_array_equal(with_gains, robot.constrained_forward_dynamics(q, v, rest + tau, gains=(20.0, 9.0))[0])


@pytest.mark.parametrize("choice", ["torque", "constraint_force"])
@pytest.mark.parametrize("name", ["fourbar", "fivebar"])
@pytest.mark.filterwarnings("ignore::qddot.errors.QddotWarning")
def test_inverse_dynamics_with_loops(name, choice):
    robot, dynamics = case(name)
    q, v, a = motion(robot)
    found = dynamics.constrained_inverse_dynamics(q, v, a, choice=choice)
    for x, y in zip(found, robot.constrained_inverse_dynamics(q, v, a, choice=choice), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-10 * np.abs(y).max())


def test_hybrid_dynamics_with_loops():
    robot, dynamics = case("fourbar")
    q, v, tau = closed_states(robot, 4)
    a = np.ones_like(tau)
    given = {"prescribed": [robot.joint_names[0]]}
    found = dynamics.constrained_hybrid_dynamics(q, v, a, tau, **given)
    for x, y in zip(found, robot.constrained_hybrid_dynamics(q, v, a, tau, method="multipliers", **given), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-10 * np.abs(y).max())


def test_open_loops_are_nan():
    robot, dynamics = case("fourbar")
    q, v, tau = closed_states(robot, 3)
    q[1] += 0.1
    a = dynamics.forward_dynamics(q, v, tau)
    assert np.isnan(a[1]).all()
    assert np.isfinite(np.delete(a, 1, axis=0)).all()


# ---- configurations


def test_steps_and_differences_of_configurations():
    robot, dynamics = case("tree")
    q, v = inputs_of(robot, ("q", "v"))
    np.testing.assert_allclose(dynamics.integrate(q, v, 0.1), robot.integrate(q, v, 0.1), atol=1e-14)
    q1 = robot.integrate(q, 0.3 * v)
    np.testing.assert_allclose(dynamics.difference(q, q1), robot.difference(q, q1), atol=1e-13)
    np.testing.assert_allclose(dynamics.normalize(2.0 * q), robot.normalize(2.0 * q), atol=1e-15)


def test_a_step_of_length_zero_has_a_derivative():
    robot = qddot.random_tree(2, rng=3, kinds=("spherical", "planar"))
    dynamics = robot.jax()
    (q,) = inputs_of(robot, ("q",), ())
    slopes = jax.jacfwd(lambda v: dynamics.difference(q, dynamics.integrate(q, v)))(jnp.zeros(robot.nv))
    np.testing.assert_allclose(slopes, np.eye(robot.nv), atol=1e-12)


# ---- types and free parameters


def test_single_precision():
    robot, dynamics = case("mimic")
    q, v, tau = (x.astype(np.float32) for x in inputs_of(robot, ("q", "v", "tau")))
    jax.config.update("jax_enable_x64", False)
    expected = robot.kernel("forward_dynamics", dtype="float32")(q, v, tau)
    assert_same(dynamics.forward_dynamics(q, v, tau), expected)
    assert dynamics.integrate(q, v, 0.1).dtype == np.float32
    jax.config.update("jax_enable_x64", True)
    assert_same(dynamics.forward_dynamics(q, v, tau), expected)  # what is given decides
    assert dynamics.forward_dynamics(q, v.astype(float), tau).dtype == np.float64
    zeros = jnp.zeros(robot.nv, int)
    assert dynamics.mass_matrix(zeros).dtype == np.float64


def test_free_parameters_and_gravity():
    robot, _ = case("tree")
    dynamics = robot.jax(free=("inertia", "gravity", "link2.placement"))
    q, v, tau = inputs_of(robot, ("q", "v", "tau"))
    inertia, gravity = 1.1 * robot.parameters("inertia"), np.random.default_rng(0).normal(size=(5, 3))
    kernel = robot.kernel("forward_dynamics", free=("gravity", "inertia"))
    found = dynamics.forward_dynamics(q, v, tau, inertia=inertia, gravity=gravity)
    assert_same(found, kernel(q, v, tau, gravity, inertia))
    assert_same(dynamics.forward_dynamics(q, v, tau), robot.forward_dynamics(q, v, tau))
    placed = {"link2.placement": robot.parameters("link2.placement")}
    expected = robot.kernel("pose", frame="link4", free=("link2.placement",))(q, placed["link2.placement"])
    assert_same(dynamics.pose(q, "link4", **placed), expected)


# ---- batches and errors


@pytest.mark.parametrize(
    "batches",
    [
        [(4,), (), ()],
        [(3, 1), (200,), ()],
        [(2, 1, 70), (3, 1), (2, 3, 70)],
        [(2, 1, 3), (5, 1), ()],
        [(0,), (), ()],
        [(2, 0), (1,), ()],
    ],
)
def test_batch_axes_broadcast(batches):
    robot, dynamics = case("mimic")
    arrays = [inputs_of(robot, (name,), b)[0] for name, b in zip(("q", "v", "tau"), batches, strict=True)]
    assert_same(dynamics.forward_dynamics(*arrays), robot.forward_dynamics(*arrays))


def test_nan_stays_in_its_sample():
    robot, dynamics = case("mimic")
    q, v, tau = inputs_of(robot, ("q", "v", "tau"), (20,))
    v[7] = np.nan
    a = dynamics.forward_dynamics(q, v, tau)
    assert np.isnan(a[7]).all()
    np.testing.assert_array_equal(np.delete(a, 7, axis=0), np.delete(robot.forward_dynamics(q, v, tau), 7, axis=0))


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda d, q: d.forward_dynamics(q[:, :2], q, q), InputError, r"q has shape \(4, 2\); its last axes must be"),
        (lambda d, q: d.forward_dynamics(q, q[:3], q), InputError, r"the batch axes of q .* do not fit together"),
        (lambda d, q: d.forward_dynamics(q.astype(np.float16), q, q), InputError, "q holds float16, .* cast it"),
        (lambda d, q: d.forward_dynamics(q, 1j * q, q), InputError, "v holds complex128"),
        (lambda d, q: d.forward_dynamics("q", q, q), InputError, "q is no array of numbers"),
        (lambda d, q: d.forward_dynamics(q, q, q, mass=1.0), TypeError, "unexpected keyword argument 'mass'"),
        (lambda d, q: d.mass_matrix(q, q), InputError, "mass_matrix takes q; 2 arguments were given"),
        (lambda d, q: d.mass_matrix(), InputError, "mass_matrix needs q"),
        (lambda d, q: d.mass_matrix(q, frame="link1"), TypeError, "unexpected keyword argument 'frame'"),
        (lambda d, q: d.pose(q), InputError, "pose needs frame"),
        (lambda d, q: d.pose(q, "link77"), UnknownNameError, "no link or frame 'link77'"),
        (lambda d, q: d.pose(q, ["link1"]), InputError, "give one name"),
        (lambda d, q: d.jacobian(q, "link1", "nobody"), InputError, "reference='nobody' is not known"),
        (lambda d, q: d.constraint_jacobian(q), InputError, "neither loops nor other constraints"),
        (lambda d, q: d.integrate(q, q[:, :2]), InputError, r"v has shape \(4, 2\)"),
        (lambda d, q: d.forward_dynamics(q, q, q, {"link1": q[:, :2]}), InputError, r"wrench on 'link1' has shape"),
        (lambda d, q: d.hybrid_dynamics(q, q, q, q, prescribed=["elbow"]), UnknownNameError, "elbow"),
    ],
)
def test_errors_name_what_is_wrong(call, kind, words):
    robot, dynamics = case("mimic")
    q = np.zeros((4, robot.nq))
    with pytest.raises(kind, match=words):
        call(dynamics, q)


def test_robots_that_cannot_be_computed_with():
    b = qddot.Builder("point")
    b.link("tip")
    b.joint("slide", "world", "tip", qddot.joints.Prismatic((0.0, 0.0, 1.0)))
    dynamics = b.robot().jax()
    with pytest.raises(qddot.SingularMassMatrixError, match="slide"):
        dynamics.forward_dynamics(np.zeros(1), np.zeros(1), np.zeros(1))
    with pytest.raises(InputError, match="has no mass"):
        dynamics.center_of_mass(np.zeros(1))
    still = qddot.Builder("still")
    still.link("stone", mass=1.0, com=(0, 0, 0), inertia=np.eye(3))
    still.joint("fixed", "world", "stone", qddot.joints.Fixed())
    with pytest.raises(InputError, match="has no degrees of freedom"):
        still.robot().jax()
    with pytest.raises(InputError, match="has loops or constraints"):
        case("fourbar")[1].inverse_dynamics_derivatives(*[np.zeros(case("fourbar")[0].nv)] * 3)
    with pytest.raises(UnknownNameError, match="inerta"):
        case("mimic")[0].jax(free=("inerta",))
