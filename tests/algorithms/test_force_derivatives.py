"""Derivatives under external forces with respect to q, v, a, tau and the forces, and forces that depend on q and v.

Closed forms, Kim's Tables 5, 6 and 7, dual numbers, complex steps through `integrate`, Pinocchio; eager and compiled.
"""

import copy
import dataclasses
import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qddot
from qddot import conventions
from qddot.algorithms import (
    articulated_body,
    constrained_dynamics,
    derivatives,
    dual_derivatives,
    hybrid,
    kinematics,
    newton_euler,
    perturbation,
    recursive_derivatives,
)
from qddot.dynamics import catalogue
from qddot.dynamics.constrained_solver import solver_of
from qddot.mechanism.parameters import inertia_of
from qddot.robot import Robot, identities
from qddot.robots.generators import random_tree
from tests.support.c_code import call, library, needs_compiler
from tests.support.derivative_cases import MARKED, TOLERANCE
from tests.support.linkages import DIFFERENCES, MECHANISMS, closed_states, state_along
from tests.support.mechanisms import MOVING, State, trees
from tests.support.paths import ROOT
from tests.support.peers import peer
from tests.support.pinocchio_case import Case, in_our_order
from tests.support.profiles import examples
from tests.support.real_robots import or_skipped
from tests.support.rolled import agree as rolled_agrees
from tests.support.tolerances import COMPLEX_STEP, PER_CONDITION

SETTINGS = examples(15)
STEP = 1e-20
MODULES = (derivatives, recursive_derivatives, dual_derivatives)


def close(x, y, tolerance=COMPLEX_STEP):
    x, scale = np.asarray(x), max(1.0, np.max(np.abs(y), initial=0.0))
    assert x.shape == np.shape(y)
    assert np.max(np.abs(x - y), initial=0.0) <= tolerance * scale


class Pushed(State):
    """A state with joint forces and prescribed degrees of freedom; derivatives of what runs there by complex steps."""

    def __init__(self, robot, prescribed=(), seed=0):
        super().__init__(robot, seed)
        self.tau, self.u = self.a[::-1].copy(), tuple(prescribed)

    def tolerance(self):
        """What rounding leaves of the inverse of M, or of its block that yields, twice."""
        w = [k for k in range(self.robot.nv) if k not in self.u]
        condition = np.linalg.cond(self.robot.mass_matrix(self.q)[np.ix_(w, w)]) if w else 1.0
        return COMPLEX_STEP + PER_CONDITION * condition

    def inverse(self, q, v, f_ext, a=None):
        return newton_euler.inverse_dynamics(self.model, q, v, self.a if a is None else a, f_ext)

    def forward(self, q, v, f_ext, tau=None):
        return articulated_body.forward_dynamics(self.model, q, v, self.tau if tau is None else tau, f_ext)

    def hybrid(self, q, v, f_ext):
        return hybrid.hybrid_dynamics(self.model, q, v, self.a, self.tau, f_ext, prescribed=self.u)

    def slopes(self, run, law=None):
        """By q and by v of run(q, v, f_ext); with a law, forces are f_ext = law(q, v)."""

        def at(q, v):
            return run(q, v, self.f_ext if law is None else law(q, v)).imag / STEP

        steps = 1j * STEP * np.eye(self.robot.nv)
        by_q = [at(self.robot.integrate(self.q, e), self.v.astype(complex)) for e in steps]
        by_v = [at(self.q.astype(complex), self.v + e) for e in steps]
        return np.stack(by_q, axis=-1), np.stack(by_v, axis=-1)

    def by_forces(self, run):
        """(..., n_links, 6)."""
        units = np.eye(self.f_ext.size).reshape(-1, *self.f_ext.shape)
        found = [run(self.q, self.v, self.f_ext + 1j * STEP * e).imag / STEP for e in units]
        return np.stack(found, axis=-1).reshape(*found[0].shape, *self.f_ext.shape)

    def law(self, q, v):
        """A spring from each link's origin to a point of the world, and drag: forces in body frames."""
        T_W, V = kinematics.link_poses(self.model, q), kinematics.link_velocities(self.model, q, v)
        rows = []
        for i in range(1, self.model.n_links + 1):
            R, p, twist = np.array(T_W[i].R.rows), np.array(T_W[i].p), np.array(V[i].components)
            pull = np.concatenate([np.zeros(3), -(3.0 + i) * R.T @ (p - [0.3, -0.2, 0.5])])
            rows.append(pull - 0.1 * i * twist - 0.05 * np.sum(twist**2) * twist)
        return np.array(rows)

    def slopes_of_law(self):
        """(n_links, 6, nv) with respect to q, and to v."""
        return self.slopes(lambda q, v, f: f, self.law)


def check_all(s: Pushed) -> None:
    """Every formulation, eager, against complex steps; what the robot adds is df_ext."""
    by_q, by_v = s.slopes(s.inverse)
    M = s.robot.mass_matrix(s.q)
    for module in MODULES:
        close(module.inverse_dynamics_derivatives(s.model, s.q, s.v, s.a, s.f_ext), np.stack([by_q, by_v, M]))
    d = s.robot.inverse_dynamics_derivatives(s.q, s.v, s.a, s.f_ext)
    close(np.stack(d), np.stack([by_q, by_v, M]))
    close(d.df_ext, s.by_forces(s.inverse))
    by_q, by_v = s.slopes(s.forward)
    expected = np.stack([by_q, by_v, s.robot.mass_matrix_inverse(s.q)])
    for module in MODULES:
        close(module.forward_dynamics_derivatives(s.model, s.q, s.v, s.tau, s.f_ext), expected, s.tolerance())
    d = s.robot.forward_dynamics_derivatives(s.q, s.v, s.tau, s.f_ext)
    close(np.stack(d), expected, s.tolerance())
    close(d.df_ext, s.by_forces(s.forward), s.tolerance())


@pytest.mark.parametrize("kind", MOVING)
def test_every_kind_of_joint(kind):
    check_all(Pushed(Robot(random_tree(3, rng=1, kinds=(kind, "revolute")).model(), compiled=False)))


@SETTINGS
@given(trees(max_links=5))
def test_any_tree(robot):
    check_all(Pushed(robot))


@SETTINGS
@given(trees(max_links=4), st.data())
def test_hybrid_dynamics(robot, data):
    s = Pushed(robot, sorted(data.draw(st.sets(st.integers(0, robot.nv - 1)))))
    by_q, by_v = s.slopes(s.hybrid)
    args = s.q, s.v, s.a, s.tau, s.f_ext
    for module in (derivatives, recursive_derivatives):
        found = module.hybrid_dynamics_derivatives(s.model, *args, prescribed=s.u)
        close(found[:, 0], by_q, s.tolerance())
        close(found[:, 1], by_v, s.tolerance())
    d = robot.hybrid_dynamics_derivatives(*args, prescribed=s.u)
    close(np.stack([d.a.dq, d.tau.dq]), by_q, s.tolerance())
    close(np.stack([d.a.df_ext, d.tau.df_ext]), s.by_forces(s.hybrid), s.tolerance())
    w = [k for k in range(robot.nv) if k not in s.u]
    assert not np.any(d.tau.df_ext[w])  # these forces are given
    assert not np.any(d.a.df_ext[list(s.u)])
    without = robot.hybrid_dynamics_derivatives(*args[:4], prescribed=s.u)
    for k in (2, 3):  # by a and tau nothing changes
        close(d.a[k], without.a[k], s.tolerance())


# ---- forces that depend on q and v --------------------------------------------------------------------------------------


@SETTINGS
@given(trees(max_links=4), st.data())
def test_springs_and_drag_by_the_chain_rule(robot, data):
    """Total slopes against complex steps through forces and dynamics together, and against ∂F_ext/∂p in Table 5."""
    s = Pushed(robot, sorted(data.draw(st.sets(st.integers(0, robot.nv - 1)))))
    s.f_ext = s.law(s.q, s.v)
    by_q, by_v = s.slopes_of_law()
    slopes = {"df_ext_dq": by_q, "df_ext_dv": by_v}
    d = robot.inverse_dynamics_derivatives(s.q, s.v, s.a, s.f_ext, **slopes)
    for found, expected in zip(d[:2], s.slopes(s.inverse, s.law), strict=True):
        close(found, expected)
    d = robot.forward_dynamics_derivatives(s.q, s.v, s.tau, s.f_ext, **slopes)
    for found, expected in zip(d[:2], s.slopes(s.forward, s.law), strict=True):
        close(found, expected, s.tolerance())
    d = robot.hybrid_dynamics_derivatives(s.q, s.v, s.a, s.tau, s.f_ext, prescribed=s.u, **slopes)
    for k, expected in enumerate(s.slopes(s.hybrid, s.law)):
        close(np.stack([d.a[k], d.tau[k]]), expected, s.tolerance())
    total = s.slopes(s.inverse, s.law)[0]
    for k in range(robot.nv):
        found = robot.inverse_dynamics_derivative(s.q, s.v, s.a, s.f_ext, by=("q", k), df_ext_dp=by_q[..., k])
        close(found, total[:, k])


def test_the_page_of_the_docs():
    """Its example runs, and its closed form of the spring's Jacobian is right."""
    text = (ROOT / "docs" / "derivatives.md").read_text()
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "def law" in b)
    page = {"np": np, "qddot": qddot, "robot": qddot.load("puma560")}
    exec(compile(block, "derivatives.md", "exec"), page)
    s = Pushed(page["eager"])
    s.q, s.v, s.tau, s.f_ext, d = (page[x] for x in ("q", "v", "tau", "f_ext", "d"))
    for found, expected in zip(d[:2], s.slopes(s.forward, page["law"]), strict=True):
        close(found, expected, s.tolerance())
    T, J = s.robot.pose(s.q, page["link"]), s.robot.jacobian(s.q, page["link"])
    x = T[:3, :3].T @ (T[:3, 3] - page["point"])
    spring = -200.0 * (J[3:] + np.cross(x, J[:3].T).T)
    drag = -5.0 * s.slopes(lambda q, v, f: s.robot.velocity(q, v, page["link"]))[0]
    close(page["df_ext_dq"][-1, 3:], spring + drag[3:])


def test_without_slopes_forces_are_constant_in_their_frames():
    """What is easily forgotten: a spring of the world is not."""
    s = Pushed(Robot(qddot.load("puma560").model, compiled=False))
    s.f_ext = s.law(s.q, s.v)
    constant = s.robot.inverse_dynamics_derivatives(s.q, s.v, s.a, s.f_ext)
    close(constant.dq, s.slopes(s.inverse)[0])
    assert np.max(np.abs(constant.dq - s.slopes(s.inverse, s.law)[0])) > 1.0
    assert np.max(np.abs(constant.dq - s.robot.inverse_dynamics_derivatives(s.q, s.v, s.a).dq)) > 1.0


# ---- by one scalar: Tables 5, 6 and 7 -----------------------------------------------------------------------------------


@SETTINGS
@given(trees(max_links=4), st.data())
def test_by_a_component_of_a_force(robot, data):
    """p = F_ext^k of a link; with and without forces that act."""
    s = Pushed(robot, sorted(data.draw(st.sets(st.integers(0, robot.nv - 1)))))
    i, k = data.draw(st.integers(1, s.model.n_links)), data.draw(st.integers(0, 5))
    p = "f_ext", s.model.link_names[i], k
    for given_forces in ((), (s.f_ext,)):
        found = robot.inverse_dynamics_derivative(s.q, s.v, s.a, *given_forces, by=p)
        close(found, s.by_forces(s.inverse)[:, i - 1, k])
        found = robot.forward_dynamics_derivative(s.q, s.v, s.tau, *given_forces, by=p)
        close(found, s.by_forces(s.forward)[:, i - 1, k], s.tolerance())
        both = robot.hybrid_dynamics_derivative(s.q, s.v, s.a, s.tau, *given_forces, prescribed=s.u, by=p)
        close(np.stack(both), s.by_forces(s.hybrid)[..., i - 1, k], s.tolerance())


@SETTINGS
@given(trees(max_links=4), st.data())
def test_tables_5_6_and_7_with_a_slope_of_the_forces(robot, data):
    """∂F_ext/∂p of Kim's (92) for p = q, v and an inertia that also changes the forces."""
    s = Pushed(robot, sorted(data.draw(st.sets(st.integers(0, robot.nv - 1)))))
    dF = np.random.default_rng(1).standard_normal(s.f_ext.shape)
    k, i = data.draw(st.integers(0, robot.nv - 1)), data.draw(st.integers(1, s.model.n_links))
    e, ten = 1j * STEP * np.eye(robot.nv)[k], np.linspace(0.1, 1.0, 10)
    inertia = list(s.model.inertia)
    inertia[i] = inertia[i] + inertia_of((1j * STEP * ten).tolist())
    heavier = dataclasses.replace(s.model, inertia=tuple(inertia))
    moved = s.f_ext + 1j * STEP * dF
    for p, model, q, v in (
        (("q", k), s.model, robot.integrate(s.q, e), s.v),
        (("v", k), s.model, s.q, s.v + e),
        (("inertia", i, tuple(ten.tolist())), heavier, s.q, s.v),
    ):
        change = perturbation.with_external(s.model, perturbation.change_of(s.model, s.q, s.v, p), dF)
        expected = newton_euler.inverse_dynamics(model, q, v, s.a, moved).imag / STEP
        close(recursive_derivatives.inverse_dynamics_derivative(s.model, s.q, s.v, s.a, change, s.f_ext), expected)
        close(robot.inverse_dynamics_derivative(s.q, s.v, s.a, s.f_ext, by=p, df_ext_dp=dF), expected)
        expected = articulated_body.forward_dynamics(model, q, v, s.tau, moved).imag / STEP
        found = robot.forward_dynamics_derivative(s.q, s.v, s.tau, s.f_ext, by=p, df_ext_dp=dF)
        close(found, expected, s.tolerance())
        expected = hybrid.hybrid_dynamics(model, q, v, s.a, s.tau, moved, prescribed=s.u).imag / STEP
        found = robot.hybrid_dynamics_derivative(s.q, s.v, s.a, s.tau, s.f_ext, prescribed=s.u, by=p, df_ext_dp=dF)
        close(np.stack(found), expected, s.tolerance())


@SETTINGS
@given(trees(max_links=5))
def test_by_inertias_under_forces(robot):
    """∂a/∂π is taken at the accelerations that forces give too."""
    s = Pushed(robot)
    found = robot.forward_dynamics_inertia_derivatives(s.q, s.v, s.tau, s.f_ext)
    i = s.model.n_links
    for k in (0, 4, 9):
        change = perturbation.by_inertia(s.model, i, inertia_of(np.eye(10)[k].tolist()))
        expected = recursive_derivatives.forward_dynamics_derivative(s.model, s.q, s.v, s.tau, change, s.f_ext)
        close(found[:, 10 * (i - 1) + k], expected, s.tolerance())


@pytest.mark.parametrize("kind", ["revolute", "spherical", "free", "own"])
def test_second_derivatives(kind):
    """Against complex steps of the first."""
    robot = Robot(random_tree(3, rng=24, kinds=(kind, "revolute")).model(), compiled=False)
    s = Pushed(robot)
    for name, third in (("inverse_dynamics", s.a), ("forward_dynamics", s.tau)):
        first = getattr(derivatives, f"{name}_derivatives")
        second = getattr(robot, f"{name}_second_derivatives")(s.q, s.v, third, s.f_ext)
        by_q, by_v = s.slopes(lambda q, v, f, first=first, third=third: first(s.model, q, v, third, f))
        for found, expected in zip(second, (by_q[0], by_v[0], by_v[1], by_q[2]), strict=True):
            close(found, expected, 10.0 * s.tolerance())


# ---- loops --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["fourbar", "fivebar", "slider_crank", "bennett", pytest.param("delta", marks=pytest.mark.slow)]
)
def test_constrained_dynamics(name):
    """Accelerations and forces of the kept rows; forces act on links inside of the loops."""
    robot = Robot(MECHANISMS[name]().model, compiled=False)
    s, rows, n = Pushed(robot), solver_of(robot.engine).rows, robot.nv
    s.q, s.v, s.tau = (x[0] for x in closed_states(robot, 1))

    def run(q, v, f_ext):
        return constrained_dynamics.direct(s.model, q, v, s.tau, f_ext, rows=rows)[:-3]

    by_q, by_v = s.slopes(run)
    d = robot.constrained_forward_dynamics_derivatives(s.q, s.v, s.tau, s.f_ext)
    close(d.a.dq, by_q[:n], TOLERANCE)
    close(d.a.dv, by_v[:n], TOLERANCE)
    close(d.a.df_ext, s.by_forces(run)[:n], TOLERANCE)
    if len(rows) == len(solver_of(robot.engine).names):
        close(d.lam.dq, by_q[n:], TOLERANCE)
        close(d.lam.df_ext, s.by_forces(run)[n:], TOLERANCE)
    s.f_ext = s.law(s.q, s.v)
    of_q, of_v = s.slopes_of_law()
    d = robot.forward_dynamics_derivatives(s.q, s.v, s.tau, s.f_ext, df_ext_dq=of_q, df_ext_dv=of_v)
    for found, expected in zip(d[:2], s.slopes(run, s.law), strict=True):
        close(found, expected[:n], TOLERANCE)


@pytest.mark.parametrize("name", ["fourbar", "bennett"])
def test_the_least_forces_of_redundant_rows(name, monkeypatch):
    """Along motions that keep the loops closed, by differences, and by the forces, in which they are linear."""
    robot = Robot(MECHANISMS[name]().model, compiled=False)
    s = Pushed(robot)
    q, v, tau = (x[0] for x in closed_states(robot, 1))
    v = 0.0 * v  # so that any closed configuration is a state
    forward = robot.constrained_forward_dynamics
    d = robot.constrained_forward_dynamics_derivatives(q, v, tau, s.f_ext)
    monkeypatch.setattr(robot, "constrained_forward_dynamics", lambda q, v, tau, **how: forward(q, v, tau, s.f_ext, **how))
    _, sizes, Vt = np.linalg.svd(robot.constraint_jacobian(q))
    for direction in Vt[int(np.sum(sizes > 1e-7 * sizes[0])) :]:
        steps = [state_along(robot, q, v, tau, direction, h) for h in 4e-3 * np.array([-3, -2, -1, 1, 2, 3])]
        slope = np.array([-1, 9, -45, 45, -9, 1]) @ np.array(steps) / (60 * 4e-3)
        close(np.concatenate([d.a.dq @ direction, d.lam.dq @ direction]), slope, DIFFERENCES)
    for i, k in ((0, 2), (s.model.n_links - 1, 4)):
        more = s.f_ext.copy()
        more[i, k] += 1.0
        for found, x, y in zip((d.a, d.lam), forward(q, v, tau, more), forward(q, v, tau, s.f_ext), strict=True):
            close(found.df_ext[:, i, k], x - y, 1e-9)  # of differences of numbers of size 100


# ---- real robots, and Pinocchio -----------------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("floating", [False, True], ids=["fixed", "floating"])
@pytest.mark.parametrize("path", or_skipped(MARKED))
def test_real_robots(path, floating):
    """Pinocchio takes forces in the frames of its joints, which are those of our links, linear part first."""
    pin = peer("pinocchio")
    c = Case(path, floating)
    robot, model = c.robot, c.robot.model
    if robot.nv == 0 or model.is_coupled:
        return
    q, v, a = c.q[0], c.v[0], c.a[0]
    f_ext = 10.0 * np.random.default_rng(2).standard_normal((model.n_links, 6))
    pushes = [pin.Force.Zero() for _ in range(c.pin.njoints)]
    for name, f in zip(robot.joint_names, f_ext, strict=True):
        pushes[c.pin.getJointId(name)] = pin.Force(np.roll(f, 3))
    theirs = pin.computeRNEADerivatives(c.pin, c.data, c.pq[0], c.pv[0], c.pa[0], pushes)
    ours = robot.inverse_dynamics_derivatives(q, v, a, f_ext)
    for x, y in zip(ours[:2], theirs[:2], strict=True):
        close(x, in_our_order(c, y), TOLERANCE)
    if robot.massless_joints:
        return
    tolerance = TOLERANCE + 1e-16 * np.linalg.cond(ours.da)
    p_tau = conventions.to_pinocchio_tau(*c.layout, c.q, c.a)[0]
    theirs = pin.computeABADerivatives(c.pin, c.data, c.pq[0], c.pv[0], p_tau, pushes)
    for x, y in zip(robot.forward_dynamics_derivatives(q, v, a, f_ext)[:2], theirs[:2], strict=True):
        close(x, in_our_order(c, y), tolerance)


# ---- kernels ------------------------------------------------------------------------------------------------------------

MATRICES = tuple(catalogue.DERIVATIVES_WITH_FORCES)


def batch(robot, count=11):
    states = [robot.random_state(k) for k in range(count)]
    q, v = (np.stack(x) for x in zip(*states, strict=True))
    f_ext = np.random.default_rng(0).standard_normal((count, robot.model.n_links, 6))
    known = {"q": q, "v": v, "a": v[::-1].copy(), "tau": v[::-1].copy(), "f_ext": f_ext, "df_ext_dp": f_ext[::-1].copy()}
    return lambda name: [known[x] for x in catalogue.lookup(name, "auto")[0].inputs]


def needs_of(name, robot):
    return {"prescribed": (1, robot.nv - 1)} if name.startswith("hybrid") else {}


@pytest.mark.parametrize("name", MATRICES)
def test_kernels_and_batches(name):
    """Every formulation, compiled: the numbers of the algorithm, and a state's bits do not depend on its batch."""
    robot = qddot.Robot(random_tree(3, rng=2, kinds=("revolute", "prismatic", "universal")).model())
    arrays, needs = batch(robot)(name), needs_of(name, robot)
    worse = 1e-12 * np.max(np.linalg.cond(robot.mass_matrix(arrays[0])))
    function = catalogue.lookup(name, "auto")[0]
    for method, algorithm in function.methods.items():
        kernel = robot.kernel(name, method=method, **needs)
        found = kernel(*arrays)
        assert found.shape == (11, *function.output(robot.model))
        close(found, algorithm(robot.model, *arrays, **needs), worse)
        assert np.array_equal(kernel(*(x[7] for x in arrays)), found[7])


@pytest.mark.parametrize("name", ["inverse_dynamics_derivatives_with_forces", "forward_dynamics_derivatives_with_forces"])
def test_single_precision_packed_and_regrouped(name):
    robot = qddot.load("scara")
    arrays = batch(robot)(name)
    full = robot.kernel(name)(*arrays)
    packed = robot.kernel(name, packed=True)
    assert np.array_equal(packed.unpack(packed(*arrays)), full)
    close(robot.kernel(name, regroup=False)(*arrays), full, 1e-9)  # through M⁻¹ of condition 1e4
    single = robot.kernel(name, dtype="float32")(*(x.astype(np.float32) for x in arrays))
    assert single.dtype == np.float32
    close(single, full, 1e-3 if name.startswith("forward") else 1e-5)  # 6e-8 times that condition


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("inverse_dynamics_derivatives_with_forces", "composite_body"),
        ("inverse_dynamics_derivatives_with_forces", "newton_euler"),
        ("forward_dynamics_inertia_derivatives_with_forces", "articulated_body"),
        pytest.param("forward_dynamics_derivatives_with_forces", "articulated_body", marks=pytest.mark.slow),
        pytest.param("hybrid_dynamics_derivatives_with_forces", "articulated_body", marks=pytest.mark.slow),
    ],
)
def test_rolled_code(name, method):
    rolled_agrees(random_tree(3, rng=4, kinds=("universal", "revolute")).model(), name, method)
    if method == "composite_body":
        rolled_agrees(random_tree(5, rng=1, kinds=("revolute", "free"), mimic=True).model(), name, method)


@pytest.mark.parametrize("name", ["inverse_dynamics_derivative_with_forces", "forward_dynamics_derivative_with_forces"])
def test_rolled_code_by_one_scalar(name):
    model = random_tree(3, rng=6, kinds=("universal", "revolute")).model()
    for p in (("q", 1), ("f_ext", 2, 4)):
        rolled_agrees(model, name, "auto", by=p)
    rolled_agrees(model, name.removesuffix("_with_forces"), "auto", by=("f_ext", 3, 0))
    rolled_agrees(qddot.chain(8).model, name, "auto", by=("f_ext", 3, 5))  # its links are of one kind but for the one meant


@needs_compiler
def test_c_code_has_the_kernels_bits(tmp_path):
    robot = qddot.load("scara")
    jobs = [(name, needs_of(name, robot)) for name in MATRICES]
    jobs += [(name, {**needs_of(name, robot), "by": ("q", 1)}) for name in catalogue.BY_SCALAR if "forces" in name]
    made = [robot.export_c(name, **needs, name=name, cc="").source for name, needs in jobs]
    lib, inputs = library(tmp_path, made), batch(robot, 2)
    for name, needs in jobs:
        kernel = robot.kernel(name, **needs)
        arrays = [x[1] for x in inputs(name)]
        expected = kernel(*arrays)
        assert call(lib, name, arrays, expected.size, "float64").tobytes() == expected.tobytes()


def test_robots_call_kernels():
    """The methods, compiled, against the same eager; batches of forces and of slopes broadcast."""
    robot = qddot.Robot(random_tree(6, rng=5, kinds=("revolute", "free"), order="depth").model())
    eager = Robot(robot.model, compiled=False)
    q, v, a, f_ext = batch(robot, 3)("inverse_dynamics_derivatives_with_forces")
    of_q = np.random.default_rng(3).standard_normal((robot.model.n_links, 6, robot.nv))
    for name in ("inverse_dynamics_derivatives", "forward_dynamics_derivatives"):
        d, e = (getattr(r, name)(q, v, a, f_ext, df_ext_dq=of_q) for r in (robot, eager))
        for x, y in zip((*d, d.df_ext), (*e, e.df_ext), strict=True):
            close(x, y, 1e-9)  # through M⁻¹ of condition 1e4
        one = getattr(robot, name)(q[0], v[0], a[0], f_ext, df_ext_dv=np.stack([of_q] * 3))
        assert [x.shape for x in one] == [(3, robot.nv, robot.nv)] * 3
        assert d.df_ext.shape == (3, robot.nv, robot.model.n_links, 6)
    close(robot.external_force_jacobian(q), -robot.inverse_dynamics_derivatives(q, v, a, f_ext).df_ext)
    J = robot.external_force_jacobian(q[0])
    close(J[:, 4], robot.jacobian(q[0], robot.link_names[4]).T)


def test_derivatives_without_forces_are_as_they_were():
    """A force of zero changes nothing but the code that runs, and tuples have as many entries as before."""
    robot = Robot(random_tree(4, rng=5).model(), compiled=False)
    s = Pushed(robot)
    none = np.zeros_like(s.f_ext)
    for name, third in (("inverse_dynamics_derivatives", s.a), ("forward_dynamics_derivatives", s.tau)):
        plain, pushed = (getattr(robot, name)(s.q, s.v, third, *f) for f in ((), (none,)))
        assert len(plain) == len(pushed) == 3
        assert np.array_equal(np.stack(plain), np.stack(pushed))


# ---- wrong use ----------------------------------------------------------------------------------------------------------


def test_wrong_forces_are_explained():
    robot = qddot.load("puma560")
    q, v = robot.random_state(0)
    f, slope = np.zeros((6, 6)), np.zeros((6, 6, 6))

    def fails(match, *args, **given):
        for r in (robot, Robot(robot.model, compiled=False)):
            for name in ("inverse_dynamics_derivatives", "forward_dynamics_derivatives"):
                with pytest.raises(qddot.InputError, match=match):
                    getattr(r, name)(q, v, v, *args, **given)

    fails(r"f_ext has shape \(5, 6\), but must be \(\.\.\., 6, 6\)", f[:5])
    fails(r"f_ext has shape \(6,\)", f[0])
    fails(r"f_ext has shape \(6, 5\)", f[:, :5])
    fails(r"the wrench on 'link1' has shape \(3,\)", {"link1": f[0, :3]})
    fails("f_ext must hold numbers", np.full((6, 6), "x"))
    fails("df_ext_dq= is a slope of f_ext, which is not given", df_ext_dq=slope)
    fails(r"df_ext_dv has shape \(6, 6\), but must be \(\.\.\., 6, 6, 6\)", f, df_ext_dv=f)
    fails(r"df_ext_dq has shape \(6, 6, 5\), but must be \(\.\.\., 6, 6, 6\)", f, df_ext_dq=slope[..., :5])
    fails("f_ext is (no array of numbers|a ragged list)", [*f[:5].tolist(), [0.0]])
    fails("df_ext_dv is (no array of numbers|a ragged list)", f, df_ext_dv=[[1.0], 2.0])
    fails(r"df_ext_dq has the batch axes \(2,\), which do not fit the \(3,\)", np.zeros((3, 6, 6)), df_ext_dq=[slope] * 2)
    with pytest.raises(qddot.InputError, match="df_ext needs f_ext in the call"):
        _ = robot.inverse_dynamics_derivatives(q, v, v).df_ext
    with pytest.raises(qddot.InputError, match="df_ext_dp= is a slope of f_ext"):
        robot.forward_dynamics_derivative(q, v, v, by=("q", 0), df_ext_dp=f)
    with pytest.raises(qddot.InputError, match=r"df_ext_dp has shape \(5, 6\)"):
        robot.inverse_dynamics_derivative(q, v, v, f, by=("q", 0), df_ext_dp=f[:5])
    for by, match in (
        (("f_ext", "link9", 0), "no moving link 'link9'"),
        (("f_ext", robot.link_names[0], 6), "has no component 6: moment x, y, z are 0, 1, 2, force x, y, z are 3, 4, 5"),
        (("f_ext", robot.link_names[0], -1), "has no component -1"),
        (("f_ext", robot.link_names[0], True), "has no component True"),
        (("f_ext", robot.link_names[0]), "must be 'f_ext' and a link and one of its force's six components"),
    ):
        with pytest.raises(qddot.QddotError, match=match):
            robot.inverse_dynamics_derivative(q, v, v, by=by)


@pytest.mark.parametrize("name", ["inverse_dynamics_derivatives", "forward_dynamics_derivatives"])
def test_one_bad_sample_stays_alone(name):
    robot = qddot.load("puma560")
    q, v, a, f_ext = batch(robot)("inverse_dynamics_derivatives_with_forces")
    slopes = np.random.default_rng(4).standard_normal((11, 6, 6, 6))
    good = getattr(robot, name)(q, v, a, f_ext, df_ext_dq=slopes)
    f_ext[4, 5, 2], slopes[6, 3, 1, 0] = np.nan, np.inf
    bad = getattr(robot, name)(q, v, a, f_ext, df_ext_dq=slopes)
    others = [k for k in range(11) if k not in (4, 6)]
    for x, y in zip(bad, good, strict=True):
        assert np.array_equal(x[others], y[others])
    assert np.isnan(bad.dq[4]).any()
    assert not np.isfinite(bad.dq[6, :, 0]).all()
    assert np.array_equal(bad.df_ext[others], good.df_ext[others])


@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
def test_a_singular_sample_stays_alone():
    """Three angles at gimbal lock in one sample of three; by one scalar, whose kernels have two inputs that are forces."""
    b = qddot.Builder("wrists")
    for parent, name in (("world", "one"), ("one", "two")):
        b.link(name, 1.0, (0.1, 0.2, 0.3), np.diag([0.1, 0.2, 0.25]))
        b.joint(f"to_{name}", parent, name, qddot.joints.SphericalEuler())
    robot = b.robot()
    good = 0.3 * np.arange(6.0)
    q = np.stack([good] * 3)  # as many as there are neither links nor degrees of freedom
    q[0, 1] = np.pi / 2
    z, f = np.ones(robot.nv), np.ones((2, 6))
    both = robot.forward_dynamics_derivative(q, z, z, f, by=("q", 0))
    assert np.array_equal(both[1], robot.forward_dynamics_derivative(good, z, z, f, by=("q", 0)))
    both = robot.forward_dynamics_derivatives(q, z, z, f, df_ext_dq=np.ones((2, 6, robot.nv)))
    assert np.array_equal(both.dq[1], robot.forward_dynamics_derivatives(good, z, z, f, df_ext_dq=np.ones((2, 6, 6))).dq)


def test_df_ext_is_of_the_configuration_of_the_call():
    """It is computed later, from a copy; copies and pickles have it."""
    robot = Robot(qddot.load("scara").model, compiled=False)
    s = Pushed(robot)
    d = robot.forward_dynamics_derivatives(s.q, s.v, s.tau, s.f_ext)
    expected = robot.forward_dynamics_derivatives(s.q.copy(), s.v, s.tau, s.f_ext).df_ext
    s.q[:] = 0.5
    copies = pickle.loads(pickle.dumps(d)), copy.deepcopy(d)
    for x in (d, *copies):
        assert np.array_equal(x.df_ext, expected)
        assert np.array_equal(np.stack(x), np.stack(d))
        assert type(x) is type(d)
    plain = robot.forward_dynamics_derivatives(s.q, s.v, s.tau)
    assert np.array_equal(np.stack(pickle.loads(pickle.dumps(plain))), np.stack(plain))


def test_a_robot_without_degrees_of_freedom():
    b = qddot.Builder("still").link("base", 1.0).joint("j", "world", "base", qddot.joints.Fixed())
    robot = b.robot()
    d = robot.inverse_dynamics_derivatives([], [], [], np.zeros((robot.model.n_links, 6)))
    assert d.dq.shape == (0, 0)
    assert d.df_ext.shape == (0, robot.model.n_links, 6)


# ---- qddot check --------------------------------------------------------------------------------------------------------


def test_check_would_notice(monkeypatch):
    """`qddot check` compares slopes under forces with complex steps: forces that are ignored show."""
    robot = qddot.load("puma560")
    names = {i.name: i for i in identities.identities(robot)}
    mine = [n for n in names if n.startswith("slopes of")]
    assert len(mine) == 2
    assert all(names[n].holds for n in mine)
    plain = derivatives.inverse_dynamics_derivatives
    monkeypatch.setattr(identities.derivatives, "inverse_dynamics_derivatives", lambda m, q, v, a, f: plain(m, q, v, a))
    found = {i.name: i.holds for i in identities.identities(robot)}
    assert not found["slopes of inverse dynamics, external forces in it"]
