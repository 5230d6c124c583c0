"""Derivatives of hybrid dynamics, and derivatives by one scalar as robots give them: Kim's Tables 5, 6 and 7."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qddot
from qddot.algorithms import derivatives, hybrid, perturbation, recursive_derivatives
from qddot.dynamics import catalogue, trace
from qddot.mechanism import derivative_variable
from qddot.mechanism.parameters import inertia_of
from qddot.robot import Robot
from qddot.robots.generators import random_tree
from qddot.spatial import Motion, exp, motion
from tests.support.derivative_cases import MARKED
from tests.support.mechanisms import MOVING, State, trees
from tests.support.profiles import examples
from tests.support.real_robots import EMBEDDED, load, short
from tests.support.tolerances import COMPLEX_STEP, PER_CONDITION

SETTINGS = examples(30)
STEP = 1e-20
INPUTS = ("q", "v", "a", "tau")
AGREEMENT = 1e-10  # of the largest entry, as the issue asks; real robots have conditions of M up to 1e5 here


def close(x, y, tolerance=AGREEMENT):
    scale = max(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(np.asarray(x) - y), initial=0.0) <= tolerance * scale


class Hybrid(State):
    """A state with forces, and which degrees of freedom are prescribed."""

    def __init__(self, robot, prescribed, seed=0):
        super().__init__(robot, seed)
        self.tau = self.a[::-1].copy()
        self.u = tuple(prescribed)
        self.args = self.model, self.q, self.v, self.a, self.tau

    def tolerance(self):
        """What rounding leaves of M_ww⁻¹ twice."""
        w = [k for k in range(self.robot.nv) if k not in self.u]
        condition = np.linalg.cond(self.robot.mass_matrix(self.q)[np.ix_(w, w)]) if w else 1.0
        return COMPLEX_STEP + PER_CONDITION * condition

    def run(self, model=None, **moved):
        values = {"q": self.q, "v": self.v, "a": self.a, "tau": self.tau, **moved}
        return hybrid.hybrid_dynamics(model or self.model, *values.values(), prescribed=self.u)

    def complex_steps(self):
        """(2, 4, nv, nv), a column at a time, q moved through `integrate`."""
        out = np.zeros((2, 4, self.robot.nv, self.robot.nv))
        for k, step in enumerate(1j * STEP * np.eye(self.robot.nv)):
            out[:, 0, :, k] = self.run(q=self.robot.integrate(self.q, step)).imag / STEP
            out[:, 1, :, k] = self.run(v=self.v + step).imag / STEP
            out[:, 2, :, k] = self.run(a=self.a + step).imag / STEP
            out[:, 3, :, k] = self.run(tau=self.tau + step).imag / STEP
        return out


def check(s):
    expected = s.complex_steps()
    for algorithm in (derivatives.hybrid_dynamics_derivatives, recursive_derivatives.hybrid_dynamics_derivatives):
        close(algorithm(*s.args, prescribed=s.u), expected, s.tolerance())


@pytest.mark.parametrize("kind", MOVING)
def test_every_kind_of_joint(kind):
    """Single degrees of freedom of a joint prescribed: every other one, then only the first, then all but the first."""
    robot = Robot(random_tree(3, rng=1, kinds=(kind, "revolute")).model(), compiled=False)
    for u in (range(0, robot.nv, 2), (0,), range(1, robot.nv)):
        check(Hybrid(robot, u))


@SETTINGS
@given(trees(max_links=5), st.data())
def test_closed_form_and_table_7_and_complex_steps(robot, data):
    check(Hybrid(robot, sorted(data.draw(st.sets(st.integers(0, robot.nv - 1))))))


@SETTINGS
@given(trees(max_links=5))
def test_its_two_ends(robot):
    """Everything prescribed: Table 5. Nothing: Table 6."""
    s = Hybrid(robot, range(robot.nv))
    d = robot.hybrid_dynamics_derivatives(s.q, s.v, s.a, s.tau, prescribed=s.u)
    for x, y in zip(d.tau[:3], robot.inverse_dynamics_derivatives(s.q, s.v, s.a), strict=True):
        close(x, y)
    assert np.array_equal(d.a.da, np.eye(robot.nv))
    assert not np.any([d.a.dq, d.a.dv, d.a.dtau, d.tau.dtau])
    s = Hybrid(robot, ())
    d = robot.hybrid_dynamics_derivatives(s.q, s.v, s.a, s.tau, prescribed=s.u)
    for x, y in zip((d.a.dq, d.a.dv, d.a.dtau), robot.forward_dynamics_derivatives(s.q, s.v, s.tau), strict=True):
        close(x, y, s.tolerance())
    assert np.array_equal(d.tau.dtau, np.eye(robot.nv))
    assert not np.any([d.tau.dq, d.tau.dv, d.tau.da, d.a.da])


@pytest.mark.parametrize("floating", [False, True], ids=["fixed", "floating"])
@pytest.mark.parametrize("source", MARKED or EMBEDDED, ids=short)
def test_real_robots(source, floating):
    robot = Robot(load(source, floating_base=floating).model, compiled=False)
    if robot.nv == 0 or robot.massless_joints:
        return
    u = np.flatnonzero(np.random.default_rng(len(short(source)) + 5).random(robot.nv) < 0.4).tolist()
    s = Hybrid(robot, u)
    w = [k for k in range(robot.nv) if k not in s.u]
    condition = np.linalg.cond(robot.mass_matrix(s.q)[np.ix_(w, w)]) if w else 1.0
    d = robot.hybrid_dynamics_derivatives(s.q, s.v, s.a, s.tau, prescribed=s.u)
    close(np.array([d.a, d.tau]), s.complex_steps(), max(AGREEMENT, 1e-16 * condition))


@pytest.mark.parametrize("name", ["puma560", pytest.param("quadruped", marks=pytest.mark.slow), "tree"])
def test_kernels_and_batches(name):
    """The tree has a free joint, as the quadruped has, and fewer others."""
    tree = random_tree(3, rng=24, kinds=("free", "revolute")).model()
    robot = Robot(tree) if name == "tree" else qddot.load(name)
    states = [robot.random_state(k) for k in range(11)]
    q, v = (np.stack(x) for x in zip(*states, strict=True))
    u = (1, robot.nv - 1)
    found = robot.hybrid_dynamics_derivatives(q, v, v, v[::-1], prescribed=u)
    eager = derivatives.hybrid_dynamics_derivatives(robot.model, q, v, v, v[::-1], prescribed=u)
    assert found.a.dq.shape == (11, robot.nv, robot.nv)
    close(np.moveaxis(np.array([found.a, found.tau]), 2, 0), eager, 1e-9)  # through M⁻¹ of condition 1e4
    one = robot.hybrid_dynamics_derivatives(q[7], v[7], v[7], v[::-1][7], prescribed=u)
    assert np.array_equal(np.array([one.a, one.tau]), np.array([found.a, found.tau])[:, :, 7])


def test_the_closed_form_counts_less_than_table_7():
    model = qddot.load("puma560").model
    methods = catalogue.FUNCTIONS["hybrid_dynamics_derivatives"].methods
    closed, table = (len(trace.traced(model, "hybrid_dynamics_derivatives", m, prescribed=(1, 5)).body) for m in methods)
    assert closed < 0.5 * table


# ---- by one scalar ------------------------------------------------------------------------------------------------------


@SETTINGS
@given(trees(max_links=5), st.data())
def test_table_7_by_inertia_placement_and_gravity(robot, data):
    s = Hybrid(robot, sorted(data.draw(st.sets(st.integers(0, robot.nv - 1)))))
    i, k = data.draw(st.integers(1, s.model.n_links)), data.draw(st.integers(0, 9))
    ten, X, g = np.eye(10)[k].tolist(), motion(np.eye(6)[k % 6].tolist()), np.eye(3)[k % 3].tolist()
    placement, inertia = list(s.model.placement), list(s.model.inertia)
    placement[i] = placement[i] @ exp(Motion(*(tuple(1j * STEP * x for x in part) for part in X)))
    inertia[i] = inertia[i] + inertia_of([1j * STEP * x for x in ten])
    pulled = tuple(x + 1j * STEP * y for x, y in zip(s.model.gravity, g, strict=True))
    for change, fields in (
        (perturbation.by_inertia(s.model, i, inertia_of(ten)), {"inertia": tuple(inertia)}),
        (perturbation.by_placement(s.model, s.q, i, X), {"placement": tuple(placement)}),
        (perturbation.by_gravity(s.model, g), {"gravity": pulled}),
    ):
        found = recursive_derivatives.hybrid_dynamics_derivative(*s.args, change, prescribed=s.u)
        close(found, s.run(dataclasses.replace(s.model, **fields)).imag / STEP, s.tolerance())


def test_robots_differentiate_by_any_scalar():
    """Compiled for one p: the column of the whole matrix, or the complex step of the robot with p moved."""
    robot = qddot.load("puma560")
    s = Hybrid(robot, (1, 3))
    joint, link = robot.joint_names[2], robot.link_names[4]
    by_q, by_v, by_a = robot.inverse_dynamics_derivatives(s.q, s.v, s.a)
    close(robot.inverse_dynamics_derivative(s.q, s.v, s.a, by=("q", joint)), by_q[:, 2])
    close(robot.inverse_dynamics_derivative(s.q, s.v, s.a, by=("v", (joint, 0))), by_v[:, 2])
    close(robot.inverse_dynamics_derivative(s.q, s.v, s.a, by=("a", 2)), by_a[:, 2])
    close(
        robot.forward_dynamics_derivative(s.q, s.v, s.tau, by=("tau", 4)), robot.mass_matrix_inverse(s.q)[:, 4], 1e-9
    )  # M⁻¹ of condition 1e4
    ten = np.linspace(1, 2, 10)
    Y = robot.regressor(s.q, s.v, s.a)
    close(robot.inverse_dynamics_derivative(s.q, s.v, s.a, by=("inertia", link, ten)), Y[:, 40:50] @ ten)
    g = (0.1, 0.2, 0.3)
    moved = dataclasses.replace(robot.model, gravity=tuple(np.array(robot.model.gravity) + 1j * STEP * np.array(g)))
    for x, y in zip(
        robot.hybrid_dynamics_derivative(s.q, s.v, s.a, s.tau, prescribed=s.u, by=("gravity", g)),
        s.run(moved).imag / STEP,
        strict=True,
    ):
        close(x, y)
    twist = np.linspace(-1, 1, 6)
    step = exp(motion((1j * STEP * twist).tolist()))
    placement = tuple(T @ step if i == 5 else T for i, T in enumerate(robot.model.placement))
    moved = dataclasses.replace(robot.model, placement=placement)
    found = robot.hybrid_dynamics_derivative(s.q, s.v, s.a, s.tau, prescribed=s.u, by=("placement", link, twist))
    close(np.stack(found), s.run(moved).imag / STEP)
    q, v = (np.stack([x, 0.5 * x]) for x in (s.q, s.v))
    assert robot.inverse_dynamics_derivative(q, v, s.a, by=("q", joint)).shape == (2, 6)


def test_known_zeros_vanish_from_the_code():
    """Kim after Table 7: a kernel for one p holds what depends on it, and nothing else."""
    robot = qddot.load("puma560")

    def count(function, p, **needs):
        return len(
            trace.traced(robot.model, function, "auto", by=derivative_variable.resolve(robot.model, p), **needs).body
        )

    first, last = robot.joint_names[0], robot.joint_names[-1]
    for function in ("inverse_dynamics_derivative", "forward_dynamics_derivative"):
        table = "newton_euler" if "inverse" in function else "articulated_body"
        whole = len(trace.traced(robot.model, f"{function}s", table).body)
        coordinate, velocity = count(function, ("q", last)), count(function, ("v", last))
        assert velocity < coordinate < whole / 3
        assert count(function, ("gravity", (0, 0, 1))) < coordinate
    # accelerations enter linearly: nothing of velocity or gravity is left
    assert count("inverse_dynamics_derivative", ("a", last)) < count("inverse_dynamics_derivative", ("q", last)) / 2
    # turning about the vertical changes nothing at all
    assert count("inverse_dynamics_derivative", ("q", first)) == count("forward_dynamics_derivative", ("q", first)) == 0
    # where all is prescribed no articulated inertia is needed, and what is not read has no slope
    everything = {"prescribed": tuple(range(robot.nv))}
    prescribed = count("hybrid_dynamics_derivative", ("q", last), **everything)
    assert prescribed < count("forward_dynamics_derivative", ("q", last))
    assert count("hybrid_dynamics_derivative", ("tau", last), **everything) == 0


def test_wrong_use_is_explained():
    robot = qddot.load("quadruped")
    z, q = np.zeros(robot.nv), robot.neutral()

    def call(by):
        return robot.inverse_dynamics_derivative(q, z, z, by=by)

    with pytest.raises(qddot.UnknownNameError, match="no kind of scalar 'x'"):
        call(("x", 1))
    with pytest.raises(qddot.InputError, match="names 6 degrees of freedom; take one of them, as"):
        call(("q", robot.joint_names[0]))
    with pytest.raises(qddot.UnknownNameError, match="no joint 'nose'"):
        call(("q", "nose"))
    with pytest.raises(qddot.UnknownNameError, match="no moving link 'nose'"):
        call(("inertia", "nose", np.ones(10)))
    with pytest.raises(qddot.InputError, match="needs 10 finite numbers"):
        call(("inertia", robot.link_names[0], [1.0]))
    with pytest.raises(qddot.InputError, match="must be 'gravity' and a direction"):
        call(("gravity",))
    with pytest.raises(qddot.InputError, match="needs by="):
        robot.kernel("inverse_dynamics_derivative")
    with pytest.raises(qddot.InputError, match="takes no by="):
        robot.kernel("mass_matrix", by=("q", 0))
    with pytest.raises(qddot.InputError, match="needs prescribed="):
        robot.kernel("hybrid_dynamics_derivative", by=("q", 0))
