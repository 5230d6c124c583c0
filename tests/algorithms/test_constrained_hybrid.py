"""Kim (70)-(80): constrained hybrid dynamics by reduced recursive calls, against dense matrices and its two ends."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

import qddot
from qddot.algorithms import composite_body, constrained_dynamics, constrained_hybrid, hybrid, loop_constraints
from qddot.algorithms.kinematics import link_poses
from qddot.dynamics.constrained_solver import solver_of
from qddot.joints import KINDS, Fixed, Revolute
from qddot.mechanism.model import Loop
from qddot.robots.generators import _random_joint as joint_of
from qddot.spatial import Transform, constant_transform
from qddot.spatial.joint_blocks import Vector
from tests.support.linkages import COUNTS, MECHANISMS, closed_states, motion
from tests.support.mechanisms import trees
from tests.support.profiles import examples

SETTINGS = examples(12, suppress=list(HealthCheck))
# Two ways through M_vv and A_v M_vv⁻¹A_vᵀ, of condition 4e3 at most in the configurations tried; as in test_loops.
AGREEMENT = 1e-9


def close(x, y, tolerance=AGREEMENT):
    scale = max(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(np.asarray(x) - y), initial=0.0) <= tolerance * scale


def independent(robot, q, u):
    """Whether the constraints stay independent, by a margin, in the degrees of freedom that are not prescribed."""
    w = [k for k in range(robot.nv) if k not in u]
    rank = robot.nv - robot.mobility
    if len(w) < rank:
        return False
    A = robot.constraint_jacobian(q)[..., list(solver_of(robot.engine).rows), :][..., w]
    return np.linalg.svd(A, compute_uv=False)[..., -1].min() > 1e-2


def subsets(robot, q, count=5):
    """Random prescribed degrees of freedom that can be, the empty set first."""
    rng, found = np.random.default_rng(4), [[]]
    for _ in range(50):
        u = sorted(rng.choice(robot.nv, rng.integers(1, robot.mobility + 1), replace=False).tolist())
        if len(found) < count and u not in found and independent(robot, q, u):
            found.append(u)
    return found


@pytest.mark.parametrize("repeated", [False, True])
def test_multipliers_of_dense_matrices(repeated):
    """Kim (73)-(76) against all unknowns in one linear system, also with a row twice."""
    rng, chosen = np.random.default_rng(1), np.isin(np.arange(7), (1, 4))
    X, A, free, drift = (rng.standard_normal(shape) for shape in ((7, 7), (3, 7), (7,), (3,)))
    M, v = X @ X.T + np.eye(7), ~chosen
    A_v, M_vv = A[:, v], M[np.ix_(v, v)]
    whole = np.block([[M_vv, -A_v.T], [A_v, np.zeros((3, 3))]])
    expected = free.copy()
    expected[v] = np.linalg.solve(whole, np.concatenate([M_vv @ free[v], -drift - A[:, chosen] @ free[chosen]]))[:5]
    if repeated:
        A, drift = np.vstack([A, A[0]]), np.append(drift, drift[0])
    close(constrained_dynamics.hybrid_accelerations(M, free, A, drift, chosen), expected)


def check(robot, dense, q, v, a, u, *forces):
    """Kim's way against the dense one; what is prescribed and what is given come back as they are."""
    w, tau = [k for k in range(robot.nv) if k not in u], np.random.default_rng(5).standard_normal(robot.nv)
    expected = dense.constrained_hybrid_dynamics(q, v, a, tau, *forces, prescribed=u)
    found = robot.constrained_hybrid_dynamics(q, v, a, tau, *forces, prescribed=u, method="multipliers")
    for x, y in zip(found, expected, strict=True):
        close(x, y)
    close(found[0][:, u], a[:, u], 1e-14)
    close(found[1][:, w], np.broadcast_to(tau[w], (len(q), len(w))), 1e-14)


@pytest.mark.parametrize("name", MECHANISMS)
def test_agrees_with_dense_matrices(name):
    """Eager on every mechanism, with external forces and without."""
    robot = qddot.Robot(MECHANISMS[name]().model, compiled=False)
    q, v, a = motion(robot, 2)
    chosen = subsets(robot, q, 3)
    assert len(chosen) > 1
    for u in chosen:
        check(robot, robot, q, v, a, u)
    check(robot, robot, q, v, a, u, np.random.default_rng(4).standard_normal((robot.model.n_links, 6)))


@pytest.mark.parametrize("name", ["fivebar", "slider_crank"])
def test_compiled(name):
    robot = MECHANISMS[name]()
    eager = qddot.Robot(robot.model, compiled=False)
    q, v, a = motion(eager, 3)
    check(robot, eager, q, v, a, subsets(eager, q, 3)[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_compiled_on_every_mechanism(name):
    robot = MECHANISMS[name]()
    q, v, a = motion(robot, 3)
    f_ext = np.random.default_rng(4).standard_normal((robot.model.n_links, 6))
    for u in subsets(robot, q, 5):
        for forces in ((), (f_ext,)):
            check(robot, robot, q, v, a, u, *forces)


@pytest.mark.parametrize("name", MECHANISMS)
def test_nothing_prescribed_is_forward_dynamics(name):
    """After (80): "when q_v = q, the solution is that of section 3.2"."""
    robot = qddot.Robot(MECHANISMS[name]().model, compiled=False)
    q, v, tau = closed_states(robot, 2)
    a, lam = robot.constrained_forward_dynamics(q, v, tau, method="multipliers")
    found = robot.constrained_hybrid_dynamics(q, v, np.zeros(robot.nv), tau, prescribed=(), method="multipliers")
    close(found[0], a)
    close(found[1], tau, 1e-14)
    close(found[2], lam)


@SETTINGS
@given(trees(max_links=5), st.integers(0, 1000), st.sampled_from([k for k in KINDS if k not in ("free", "own")]), st.data())
def test_loops_on_random_trees(tree, seed, kind, data):
    """Any tree, mimic joints included, any joint that closes a loop, any degrees of freedom that can be prescribed."""
    rng = np.random.default_rng(seed)
    model, q = tree.model, tree.random_state(rng)[0]
    one, other = rng.choice(len(model.parent), 2, replace=False)
    joint, T = Fixed() if kind == "fixed" else joint_of(kind, rng), link_poses(model, q)
    at = T[other].inverse() @ T[one] @ joint.transform(joint.neutral())
    loop = Loop("closing", joint, int(one), Transform(), int(other), constant_transform(at.R.rows, at.p))
    robot = qddot.Robot(dataclasses.replace(model, loops=(loop,)), compiled=False)
    v = robot.project_velocity(q, rng.standard_normal(robot.nv))
    assume(0 < robot.mobility < robot.nv)
    u = sorted(data.draw(st.sets(st.integers(0, robot.nv - 1), max_size=robot.mobility)))
    assume(independent(robot, q, u))
    a, tau = rng.standard_normal((2, robot.nv))
    A, M = robot.constraint_jacobian(q), robot.mass_matrix(q)
    w = [k for k in range(robot.nv) if k not in u]
    W = A[list(solver_of(robot.engine).rows)][:, w] @ np.linalg.solve(
        M[np.ix_(w, w)], A[list(solver_of(robot.engine).rows)][:, w].T
    )
    tolerance = 1e-9 + 1e-14 * np.linalg.cond(M) * np.linalg.cond(W)
    assume(tolerance < 1e-4)
    found = robot.constrained_hybrid_dynamics(q, v, a, tau, prescribed=u, method="multipliers")
    close(A @ found[0], -robot.constraint_bias(q, v), tolerance)  # (71)
    close(robot.spanning_tree().inverse_dynamics(q, v, found[0]), found[1] + A.T @ found[2], tolerance)  # (70)
    close(found[0][u], a[u], 1e-14)
    close(found[1][w], tau[w], 1e-14)
    for x, y in zip(found[:2], robot.constrained_hybrid_dynamics(q, v, a, tau, prescribed=u)[:2], strict=True):
        close(x, y, tolerance)


@SETTINGS
@given(trees(max_links=5), st.data())
def test_reduced_calls(robot, data):
    """After (77): the input (q̈_u = 0, τ_v) at rest without gravity gives M_vv⁻¹τ_v, and τ_u = M_uv M_vv⁻¹τ_v by (72)."""
    q, _ = robot.random_state(0)
    u = sorted(data.draw(st.sets(st.integers(0, robot.nv - 1))))
    w = [k for k in range(robot.nv) if k not in u]
    tau = np.random.default_rng(1).standard_normal(robot.nv)
    tau[u] = 0.0
    M = composite_body.mass_matrix(robot.model, q)
    expected = np.zeros(robot.nv)
    expected[w] = np.linalg.solve(M[np.ix_(w, w)], tau[w])
    tolerance = 1e-11 + 1e-13 * np.linalg.cond(M)
    for reduced in (constrained_hybrid._reduced, constrained_hybrid._reduced_by_blocks):
        qdd, force = reduced(robot.model, q, u)(Vector(tau.tolist()))
        close(np.array(list(qdd), dtype=float), expected, tolerance)
        close(np.array(list(force), dtype=float), M @ expected, tolerance)


def test_one_full_call_and_reduced_calls(monkeypatch):
    """Kim 3.3: one call of Table 4, and m + 1 of its reduced version."""
    robot, calls = MECHANISMS["fivebar_weld"](), []
    q, v, a = motion(robot, 1)
    own_full, own_reduced = hybrid.hybrid_dynamics, constrained_hybrid._reduced

    def full(*args, **needs):
        calls.append("full")
        return own_full(*args, **needs)

    def reduced(*args):
        call = own_reduced(*args)
        return lambda tau: (calls.append("reduced"), call(tau))[1]

    monkeypatch.setattr(constrained_hybrid, "hybrid_dynamics", full)
    monkeypatch.setattr(constrained_hybrid, "_reduced", reduced)
    rows = solver_of(robot.engine).rows
    constrained_hybrid.constrained_hybrid_dynamics(robot.model, q[0], v[0], a[0], a[0], prescribed=[0], rows=rows)
    assert len(rows) == robot.nv - COUNTS["fivebar_weld"][1] < loop_constraints.count(robot.model)
    assert calls == ["full", *(["reduced"] * (len(rows) + 1))]


def test_what_has_no_unique_forces_is_said():
    robot = MECHANISMS["fivebar_weld"]()
    q, v, a = motion(robot, 2)
    many = ["left_shoulder", "left_elbow", "tip_hinge"]
    with pytest.raises(
        qddot.InputError, match=r"3 degrees of freedom prescribed the 3 constraints .* in the 2 that are left.*'dense'"
    ):
        robot.constrained_hybrid_dynamics(q[0], v[0], a[0], a[0], prescribed=many, method="multipliers")
    batch = robot.constrained_hybrid_dynamics(q, v, a, a, prescribed=many, method="multipliers")
    assert all(np.isnan(x).all() for x in batch)
    with pytest.raises(qddot.InputError, match="take 'dense' or 'multipliers'"):
        robot.constrained_hybrid_dynamics(q[0], v[0], a[0], a[0], prescribed=[0], method="kim")
    with pytest.raises(qddot.InputError, match="are not closed in this configuration"):
        robot.constrained_hybrid_dynamics(q[0] + 0.1, v[0], a[0], a[0], prescribed=[0], method="multipliers")


def test_prescribed_degrees_of_freedom_that_a_loop_couples():
    """Two cranks of a parallelogram cannot be prescribed both, though m ≤ n_v: A_v has lost a rank."""
    b = qddot.Builder("coupled", gravity=(0.0, -9.81, 0.0))
    body = np.diag([0.1, 0.12, 0.14])
    for k, x in ((1, 0.0), (2, 0.5)):
        b.link(f"crank{k}", 1.0, (0.1, 0, 0), body).joint(f"j{k}", "world", f"crank{k}", Revolute(), qddot.pose((x, 0, 0)))
    b.link("bar", 1.0, (0.25, 0, 0), body).joint("j3", "crank1", "bar", Revolute(), qddot.pose((0.2, 0, 0)))
    b.link("pendulum", 1.0, (0.1, 0, 0), body).joint("j4", "world", "pendulum", Revolute())
    b.link("second", 1.0, (0.1, 0, 0), body).joint("j5", "pendulum", "second", Revolute(), qddot.pose((0.2, 0, 0)))
    robot = b.loop("pin", "bar", "crank2", Revolute(), qddot.pose((0.5, 0, 0)), qddot.pose((0.2, 0, 0))).robot()
    q, _ = robot.close_loops([0.7, 0.7, -0.7, 0.1, 0.2])
    z = np.zeros(robot.nv)
    assert (robot.nv, robot.mobility) == (5, 3)
    with pytest.raises(qddot.InputError, match="depend on each other in the 3 that are left"):
        robot.constrained_hybrid_dynamics(q, z, z, z, prescribed=["j1", "j2"], method="multipliers")
    both = robot.constrained_hybrid_dynamics(q, z, z, z, prescribed=["j1", "j4"], method="multipliers")
    for x, y in zip(both, robot.constrained_hybrid_dynamics(q, z, z, z, prescribed=["j1", "j4"]), strict=True):
        close(x, y)


def test_a_negative_pivot_is_a_dependent_row(monkeypatch):
    """W is positive semidefinite: where rounding gives it a negative pivot, rows depend on each other."""
    robot = qddot.load("fourbar")
    q, v, tau = (x[0] for x in closed_states(robot, 1))
    expected, run = robot.forward_dynamics(q, v, tau), robot.engine.evaluate

    def rounded(name, *inputs, **needs):
        out = run(name, *inputs, **needs)
        if name.startswith("constrained"):
            out = np.array(out)
            out[..., : robot.nv], out[..., -3] = 1e6, -1e16
        return out

    monkeypatch.setattr(robot.engine, "evaluate", rounded)
    close(robot.forward_dynamics(q, v, tau), expected)  # by the null space
    close(robot.forward_dynamics(q[None], v, tau), expected[None])
    with pytest.raises(qddot.InputError, match="depend on each other"):
        robot.constrained_hybrid_dynamics(q, v, tau, tau, prescribed=[0], method="multipliers")


def test_kernel_of_the_catalogue():
    robot = qddot.load("fourbar")
    q, v, a = (x[0] for x in motion(robot, 1))
    kernel = robot.kernel("constrained_hybrid_dynamics", method="multipliers", prescribed=["crank_pivot"])
    assert (kernel.info.function, kernel.info.method) == ("constrained_hybrid_dynamics", "multipliers")
    found = kernel(q, v, a, np.zeros(robot.nv))
    expected = robot.constrained_hybrid_dynamics(q, v, a, np.zeros(robot.nv), prescribed=["crank_pivot"])
    close(found[: robot.nv], expected[0])
    close(found[robot.nv : 2 * robot.nv], expected[1])
