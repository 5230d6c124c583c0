"""Hybrid dynamics: its two ends, its agreement with the blocks of M, single degrees of freedom, wrong use."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qddot
from qddot.algorithms import hybrid
from qddot.joints import Free, Revolute, Spherical
from tests.support.mechanisms import State, trees
from tests.support.profiles import examples
from tests.support.real_robots import EMBEDDED, GOOD, URDFS, WHY, load, short
from tests.support.tolerances import solve

SETTINGS = examples(40)
METHODS = (hybrid.hybrid_dynamics, hybrid.hybrid_dynamics_classical, hybrid.hybrid_dynamics_partitioned)

# Of the largest entry, as the issue asks; M of these robots has conditions up to 1e6, and 1e-16 each is left of them.
AGREEMENT = 1e-10
BALL = np.diag([0.1, 0.12, 0.14])


def close(x, y, tolerance):
    scale = max(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(np.asarray(x) - y), initial=0.0) <= tolerance * scale


def by_partition(robot, q, v, a, tau, u, f_ext=None):
    """Kim (33) (34) with errata K2, by NumPy on the whole matrix."""
    w = [k for k in range(robot.nv) if k not in u]
    u = list(u)
    M = robot.mass_matrix(q)
    b = robot.inverse_dynamics(q, v, np.zeros_like(v), f_ext)
    a, tau = a.copy(), tau.copy()
    a[w] = np.linalg.solve(M[np.ix_(w, w)], tau[w] - b[w] - M[np.ix_(w, u)] @ a[u])
    tau[u] = (M @ a + b)[u]
    return a, tau


@SETTINGS
@given(trees(), st.data())
def test_agrees_with_the_blocks_of_the_mass_matrix(robot, data):
    s = State(robot)
    tau = s.a[::-1].copy()
    u = tuple(sorted(data.draw(st.sets(st.integers(0, robot.nv - 1)))))
    w = [k for k in range(robot.nv) if k not in u]
    a, force = by_partition(robot, s.q, s.v, s.a, tau, u, s.f_ext)
    tolerance = solve(np.linalg.cond(robot.mass_matrix(s.q)[np.ix_(w, w)]) if w else 1.0)
    for method in METHODS:
        found = method(robot.model, s.q, s.v, s.a, tau, s.f_ext, prescribed=u)
        close(found[0], a, tolerance)
        close(found[1], force, tolerance)
        assert np.array_equal(found[0][list(u)], s.a[list(u)])


@SETTINGS
@given(trees())
def test_inverse_and_forward_dynamics_are_its_two_ends(robot):
    """Kim's Table 1, and Table 4 with one of its two branches only."""
    s = State(robot)
    tau = robot.inverse_dynamics(s.q, s.v, s.a, s.f_ext)
    nothing = np.full(robot.nv, np.nan)  # what is not given is not read
    a, force = robot.hybrid_dynamics(s.q, s.v, s.a, nothing, s.f_ext, prescribed=range(robot.nv))
    close(force, tau, solve(1.0))
    assert np.array_equal(a, s.a)
    a, force = robot.hybrid_dynamics(s.q, s.v, nothing, tau, s.f_ext, prescribed=())
    close(a, robot.forward_dynamics(s.q, s.v, tau, s.f_ext), solve(np.linalg.cond(robot.mass_matrix(s.q))))
    close(force, tau, solve(1.0))


@pytest.fixture(scope="module")
def kite():
    b = qddot.Builder("kite").link("body", 2.0, (0.1, 0.0, 0.2), BALL).joint("base", "world", "body", Free())
    b.link("tail", 1.0, (0.0, 0.3, 0.1), BALL).joint("swivel", "body", "tail", Spherical(), armature=0.02, damping=0.1)
    return b.link("tip", 0.5, (0.1, 0.1, 0.1), BALL).joint("hinge", "tail", "tip", Revolute()).robot()


@pytest.mark.parametrize(
    "prescribed", [[("base", 2)], [("swivel", 1)], [("base", 5), ("swivel", 0), "hinge"], [3, "hinge"]]
)
def test_single_degrees_of_freedom_of_a_joint(kite, prescribed):
    s, tau = State(kite), np.linspace(-1, 1, kite.nv)
    chosen = kite.model.dof_indices(prescribed)
    a, force = kite.hybrid_dynamics(s.q, s.v, s.a, tau, prescribed=prescribed)
    expected = by_partition(kite, s.q, s.v, s.a, tau, chosen)
    close(a, expected[0], AGREEMENT)
    close(force, expected[1], AGREEMENT)
    close(kite.inverse_dynamics(s.q, s.v, a), force, AGREEMENT)


def test_batches_and_kernels(kite):
    states = [State(kite, k) for k in range(11)]
    q, v, a = (np.stack([getattr(s, x) for s in states]) for x in "qva")
    together = kite.hybrid_dynamics(q, v, a, a[0], prescribed=["swivel"])
    assert together[0].shape == together[1].shape == (11, kite.nv)
    for k in (0, 10):
        one = kite.hybrid_dynamics(q[k], v[k], a[k], a[0], prescribed="swivel")
        assert np.array_equal(np.stack(one), np.stack([x[k] for x in together]))
    eager = qddot.Robot(kite.model, compiled=False).hybrid_dynamics(q, v, a, a[0], prescribed=["swivel"])
    close(np.stack(together), np.stack(eager), AGREEMENT)
    kernel = kite.kernel("hybrid_dynamics", prescribed=[("base", 0)])
    assert kernel(q, v, a, a).shape == (11, 2, kite.nv)


def test_all_prescribed_costs_what_inverse_dynamics_costs():
    robot = qddot.load("puma560")
    everything = robot.kernel("hybrid_dynamics", prescribed=robot.joint_names).info.ops
    plain = robot.kernel("inverse_dynamics").info.ops
    assert everything["mul"] + everything["add"] <= plain["mul"] + plain["add"]


def test_wrong_use_is_explained(kite):
    s = State(kite)

    def call(prescribed):
        return kite.hybrid_dynamics(s.q, s.v, s.a, s.a, prescribed=prescribed)

    with pytest.raises(qddot.UnknownNameError, match="no joint 'swivle': did you mean 'swivel'"):
        call(["swivle"])
    with pytest.raises(qddot.InputError, match="joint 'swivel' has no degree of freedom 3: it has 3, counted from 0"):
        call([("swivel", 3)])
    with pytest.raises(qddot.InputError, match="robot 'kite' has no degree of freedom 10: it has 10"):
        call([10])
    with pytest.raises(qddot.InputError, match="needs prescribed="):
        kite.kernel("hybrid_dynamics")
    with pytest.raises(qddot.InputError, match="takes no prescribed="):
        kite.kernel("mass_matrix", prescribed=[0])


def test_mimic_joints_are_reduced():
    b = qddot.Builder("pair").link("a", 1.0, (0.2, 0, 0), BALL).joint("j1", "world", "a", Revolute())
    b.link("b", 1.0, (0.2, 0, 0), BALL).joint("j2", "a", "b", Revolute((1.0, 0, 0)), qddot.pose((0.5, 0, 0)))
    b.link("c", 1.0, (0.2, 0, 0), BALL)
    robot = b.joint("j3", "b", "c", Revolute(), qddot.pose((0.5, 0, 0)), mimic=("j1", 2.0, 0.1)).robot()
    s = State(robot)
    a, tau = robot.hybrid_dynamics(s.q, s.v, s.a, s.a, prescribed=["j1"])
    close(robot.inverse_dynamics(s.q, s.v, a), tau, AGREEMENT)
    with pytest.raises(qddot.InputError, match="'j3' has no degree of freedom of its own: it follows 'j1'"):
        robot.hybrid_dynamics(s.q, s.v, s.a, s.a, prescribed=["j3"])


def test_a_massless_joint_may_be_prescribed():
    b = qddot.Builder("x").link("a", 1.0, (0.1, 0.2, 0), BALL).joint("j", "world", "a", Revolute())
    robot = b.link("ghost").joint("spin", "a", "ghost", Revolute()).robot()
    z = np.zeros(2)
    a, tau = robot.hybrid_dynamics(z, z, z, z, prescribed=["spin"])
    assert np.isfinite([a, tau]).all()
    with pytest.raises(qddot.SingularMassMatrixError, match="'spin' moves nothing"):
        robot.hybrid_dynamics(z, z, z, z, prescribed=["j"])


FILES = [p for p in GOOD if p.stat().st_size < 60_000][:45]


@pytest.mark.skipif(not URDFS, reason=WHY)
def test_real_robots_are_many():
    assert len(FILES) == 45  # some of them have joints without mass


@pytest.mark.parametrize("source", FILES or EMBEDDED, ids=short)
def test_real_robots_and_random_subsets(source):
    robot = qddot.Robot(load(source).model, compiled=False)
    if robot.nv == 0 or robot.massless_joints:
        pytest.skip("no mass matrix to compare with")
    rng = np.random.default_rng(len(short(source)) + 5)
    for _ in range(3):
        q, v = robot.random_state(rng)
        a, tau = rng.standard_normal((2, robot.nv))
        u = tuple(np.flatnonzero(rng.random(robot.nv) < rng.random()))
        w = [k for k in range(robot.nv) if k not in u]
        expected = by_partition(robot, q, v, a, tau, u)
        condition = np.linalg.cond(robot.mass_matrix(q)[np.ix_(w, w)]) if w else 1.0
        found = robot.hybrid_dynamics(q, v, a, tau, prescribed=u)
        for x, y in zip(found, expected, strict=True):
            close(x, y, max(AGREEMENT, 1e-16 * condition))
