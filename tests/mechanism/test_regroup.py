"""Regrouped inertias and frames of our own: the same joint forces from fewer numbers, in fewer operations."""

import pickle
import re

import numpy as np
import pytest
from hypothesis import given

import qddot
from benchmarks import counts
from benchmarks.counts import arm, count
from qddot.algorithms import composite_body, energy, newton_euler_classical
from qddot.dynamics import catalogue, choose, trace
from qddot.joints import KINDS, Cylindrical, Helical, Own, Planar, Prismatic, Revolute, Universal
from qddot.mechanism import simplify
from qddot.spatial import Inertia, Transform, transform_inertia
from qddot.spatial.rotation import Rotation
from tests.support.mechanisms import MOVING, State, trees
from tests.support.paths import ROOT
from tests.support.profiles import examples
from tests.support.real_robots import REAL, load, short

TOLERANCE = 1e-12  # relative to the largest entry


def close(x, y, tolerance=TOLERANCE):
    assert np.max(np.abs(x - y), initial=0.0) <= tolerance * max(1e-300, np.max(np.abs(y), initial=0.0))


def unchanged(robot, rewrite, f_ext=False):
    s = State(robot, 3)
    other = rewrite(s.model)
    extra = (s.f_ext,) if f_ext else ()
    close(
        newton_euler_classical.inverse_dynamics(other, s.q, s.v, s.a, *extra),
        newton_euler_classical.inverse_dynamics(s.model, s.q, s.v, s.a, *extra),
    )
    close(composite_body.mass_matrix(other, s.q), composite_body.mass_matrix(s.model, s.q))
    close(energy.kinetic_energy(other, s.q, s.v), energy.kinetic_energy(s.model, s.q, s.v))


@given(trees())
@examples(100)  # 120 digits, on machines that have other work
def test_joint_forces_are_unchanged_by_regrouping(robot):
    unchanged(robot, simplify.regrouped, f_ext=True)


@given(trees())
@examples(100)  # 120 digits, on machines that have other work
def test_joint_forces_are_unchanged_in_other_frames(robot):
    unchanged(robot, simplify.reframed)
    unchanged(robot, simplify.simplified)
    unchanged(robot, lambda model: simplify.simplified(simplify.simplified(model)))


@pytest.mark.parametrize("source", REAL, ids=short)
def test_real_robots_are_unchanged(source):
    robot = load(source, floating_base=len(short(source)) % 2 == 0)
    if robot.nv:
        unchanged(robot, simplify.regrouped, f_ext=True)
        unchanged(robot, simplify.simplified)


# ---- the rule of each joint kind


def screw(q):
    c, s = qddot.scalars.cos(q[0]), qddot.scalars.sin(q[0])
    return Transform(Rotation(((c, -s, 0.0), (s, c, 0.0), (0.0, 0.0, 1.0))), (0.0, 0.0, 0.3 * q[0]))


AXIS = (0.6, 0.0, 0.8)
JOINTS = [
    *(KINDS[kind]() for kind in MOVING if kind != "own"),
    *(
        Revolute(AXIS),
        Prismatic(AXIS),
        Helical(AXIS, 0.2),
        Cylindrical(AXIS),
        Planar(AXIS),
        Universal(AXIS, (0.0, 1.0, 0.0)),
    ),
]


def from_numbers(x):
    m, hx, hy, hz, xx, xy, xz, yy, yz, zz = x
    return Inertia(m, (hx, hy, hz), ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz)))


def to_numbers(G):
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = G.I
    return np.array([G.m, *G.h, xx, xy, xz, yy, yz, zz], dtype=float)


def left_to_the_parent(joint):
    """The space of inertias K with K S = 0 that T(q) does not change, by linear algebra over random q."""
    rng, rows = np.random.default_rng(0), []
    at_rest = joint.transform(joint.neutral())
    for _ in range(8):
        q = joint.random(rng)
        S, T = joint.S(q), joint.transform(q)
        columns = []
        for unit in np.eye(10):
            K = from_numbers(unit)
            moved = to_numbers(transform_inertia(T, K)) - to_numbers(transform_inertia(at_rest, K))
            columns.append(np.concatenate([moved, *((K @ s).components for s in S)]))
        rows.append(np.stack(columns, axis=-1))
    _, sizes, V = np.linalg.svd(np.concatenate(rows))
    return V[np.sum(sizes > 1e-9) :]


@pytest.mark.parametrize("joint", JOINTS, ids=repr)
def test_a_joint_leaves_to_its_parent_all_that_it_cannot_move(joint):
    space = left_to_the_parent(joint)
    rng = np.random.default_rng(1)
    left = np.stack([to_numbers(joint.transferable_inertia(from_numbers(rng.standard_normal(10)))) for _ in range(20)])
    assert np.linalg.matrix_rank(left, tol=1e-9) == len(space)
    close(left @ space.T @ space, left)


def test_own_joints_leave_nothing():
    assert not to_numbers(Own(screw, 1).transferable_inertia(from_numbers(np.ones(10)))).any()


def test_a_revolute_arm_has_no_masses_left():
    model = simplify.simplified(qddot.load("puma560").model)
    for I in model.inertia[1:]:
        assert I.m == 0.0
        assert I.h[2] == 0.0


def test_kernels_with_and_without_regrouping_agree():
    robot = qddot.load("quadruped")
    s = State(robot)
    plain, rewritten = (robot.kernel("forward_dynamics", regroup=x) for x in (False, True))
    close(rewritten(s.q, s.v, s.a), plain(s.q, s.v, s.a), 1e-11)
    assert rewritten.info.instructions < plain.info.instructions


def test_nearly_parallel_axes_keep_their_frames():
    """The common normal of these axes is two hundred metres away, and a frame there would cost digits."""
    tilt, b = 1e-3, qddot.Builder("tilted")
    for k in range(3):
        b.link(f"link{k}", 1.0, (0.1, 0.2, 0.3), (0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
        axis = (0.0, np.sin(k * tilt), np.cos(k * tilt))
        b.joint(f"j{k}", f"link{k - 1}" if k else "world", f"link{k}", Revolute(axis), qddot.pose((0.3, 0.2, 0.1)))
    unchanged(b.robot(), simplify.simplified)


def test_parallel_axes_are_turned_by_sums_of_angles():
    for name in ("ur5_like", "planar3", "scara", "quadruped", "puma560"):
        if name == "ur5_like":
            rows = [
                {"alpha": x, "a": 0.3, "d": 0.1, "mass": 1.0, "com": [0.1, 0.2, 0.3], "inertia": 0.1 * np.eye(3)}
                for x in (0.0, 0.5 * np.pi, 0.0, 0.0, 0.7, 0.0)
            ]
            robot = qddot.from_dh(rows, convention="modified", snap=1e-5)
        else:
            robot = qddot.load(name)
        s = State(robot, 2)
        model = simplify.simplified(s.model)
        assert simplify.has_parallel_axes(model)
        other = simplify.with_sums_of_angles(model, s.q)
        close(
            newton_euler_classical.inverse_dynamics(other, s.q, s.v, s.a),
            newton_euler_classical.inverse_dynamics(s.model, s.q, s.v, s.a),
        )
        close(composite_body.mass_matrix(other, s.q), composite_body.mass_matrix(s.model, s.q))
        close(
            newton_euler_classical.forward_dynamics(other, s.q, s.v, s.a),
            newton_euler_classical.forward_dynamics(s.model, s.q, s.v, s.a),
            1e-10,
        )


def test_sums_of_angles_are_taken_where_they_pay():
    puma = qddot.load("puma560").model  # its second and third axis are parallel
    taken = choose.cheapest(puma, "mass_matrix", "auto")
    assert taken.sums
    assert len(taken.program.body) < len(trace.traced(puma, "mass_matrix", "composite_body").body)
    assert not choose.cheapest(arm(4), "mass_matrix", "auto").sums


def test_a_used_robot_can_be_pickled():
    robot = qddot.load("pendulum")
    s = State(robot)
    tau = robot.inverse_dynamics(s.q, s.v, s.a)
    assert np.array_equal(pickle.loads(pickle.dumps(robot)).inverse_dynamics(s.q, s.v, s.a), tau)


# ---- operation counts of the general arm: n revolute joints, every DH constant and inertial parameter arbitrary


@pytest.mark.parametrize("n", range(2, 9))
def test_fewer_operations_than_published(n):
    model = arm(n)
    H = sum(count(model, "mass_matrix", "composite_body"))
    b = sum(count(model, "bias_force", "newton_euler_classical"))
    inverse = sum(count(model, "inverse_dynamics", "newton_euler_classical"))
    aba = sum(count(model, "forward_dynamics", "articulated_body_classical"))
    for own, published in (
        (H, counts.INERTIA_MATRIX),
        (b, counts.TABLE_II),
        (H + b, counts.BOTH),
        (inverse, counts.INVERSE),
        (aba, counts.FORWARD),
    ):
        for who, formula in published.items():
            assert own < sum(formula(n)), who


def test_counts_of_six_joints():
    model = arm(6)
    H, b = count(model, "mass_matrix", "composite_body"), count(model, "bias_force", "newton_euler_classical")
    aba = count(model, "forward_dynamics", "articulated_body_classical")
    for counted, known in ((H, (377, 327)), (b, (446, 344)), (np.add(H, b), (823, 671)), (aba, (1103, 950))):
        assert counted[0] < known[0]
        assert counted[1] < known[1]


@pytest.mark.parametrize("function", ["mass_matrix", "bias_force", "forward_dynamics"])
def test_counts_depend_on_the_shape_of_an_arm_and_not_on_its_numbers(function):
    method = catalogue.FUNCTIONS[function].auto[:1] or ("composite_body",)
    found = np.array([count(arm(5, seed), function, *method) for seed in range(6)])
    assert np.ptp(found, axis=0).max() <= 1  # signs decide whether a sum and a difference are one operation


# ---- what is printed


def tables(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def test_the_decision_has_the_counts_that_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(counts, "CASES", ("ur5", "panda7"))
    counts.main(["--no-times"])
    page = (ROOT / "docs/decisions/0006-fewer-operations.md").read_text()
    missing = [line for line in tables(capsys.readouterr().out) if line not in tables(page)]
    assert not missing


def test_the_benchmark_runs(monkeypatch, capsys):
    for name, value in (("JOINTS", (2,)), ("CASES", ("ur5",)), ("STATES", 16), ("ROUNDS", 3)):
        monkeypatch.setattr(counts, name, value)
    try:
        counts.main([])
    finally:
        qddot.set_num_threads(None)
    rows = re.findall(r"\| ur5 (\w+) \| \d+, \d+ \|", capsys.readouterr().out)
    assert rows == list(counts.FUNCTIONS)
