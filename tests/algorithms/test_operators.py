"""Featherstone & Orin 3.5: the stacked system, its matrices one by one, and the formulations that come of it."""

import numpy as np
import pytest
from hypothesis import given

import qddot
from qddot.algorithms import kinematics, newton_euler
from qddot.algorithms.papers import augmented, divide_and_conquer, operators
from qddot.algorithms.papers.operators import System
from qddot.compiler.ir import interpreter
from qddot.dynamics import trace
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.errors import InputError, NotRollableError
from qddot.robot import Robot
from qddot.robot.identities import brute_force_mass_matrix
from qddot.robots.generators import random_tree
from qddot.spatial import Ad, Ad_inv_T, motion
from qddot.spatial.joint_blocks import Motions, complement
from tests.support.mechanisms import MOVING, State, built, trees
from tests.support.profiles import examples
from tests.support.tolerances import COMPLEX_STEP, ROUNDING, solve

SETTINGS = examples(20)
FORWARD = {
    "operators": operators.forward_dynamics,
    "augmented": augmented.forward_dynamics,
    "constraint_forces": augmented.forward_dynamics_constraint_forces,
    "divide_and_conquer": divide_and_conquer.forward_dynamics,
}


def close(x, y, tolerance=ROUNDING):
    scale = max(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(np.asarray(x) - y), initial=0.0) <= tolerance * scale


class Stacked:
    """A tree without mimic joints, its stacked system, and a motion that inverse dynamics knows the forces of."""

    def __init__(self, seed, n=6, kinds=MOVING):
        self.robot = Robot(random_tree(n, rng=seed, kinds=kinds).model(), compiled=False)
        s = self.state = State(self.robot, seed)
        self.tau = newton_euler.inverse_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
        self.system = System(s.model, s.q, s.v, self.tau, s.f_ext)
        self.a = self.system.accelerations(s.a)
        self.condition = np.linalg.cond(self.robot.mass_matrix(s.q))
        self.is_rotor = np.arange(self.system.T.shape[1]) >= self.system.T.shape[1] - np.sum(self.system.rotors > 0)


SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_unconnected_bodies(seed):
    """(23): f = I a + v × I v is the rate of every body's momentum, by a complex step along the motion."""
    x = Stacked(seed)
    s, n = x.state, x.state.model.n_links
    f = x.system.net_force(x.a - np.tile(s.model.base_acceleration.components, n))
    q, v = x.robot.integrate(s.q, 1e-20j * s.v), s.v + 1e-20j * s.a
    T, V = kinematics.link_poses(s.model, q), kinematics.link_velocities(s.model, q, v)
    momenta = [Ad_inv_T(T[i], s.model.inertia[i] @ V[i]).components for i, _ in s.model.outward()]
    close(f, np.array(momenta).imag.ravel() / 1e-20, COMPLEX_STEP)


@pytest.mark.parametrize("seed", SEEDS)
def test_accelerations_that_joints_allow(seed):
    """(24) and (29): a = a_0 + S q̈ and P a = H q̈ + Ḣ q̇ + a_base, against the recursion (4) in absolute coordinates."""
    x = Stacked(seed)
    s, system = x.state, x.system
    q, v = x.robot.integrate(s.q, 1e-20j * s.v), s.v + 1e-20j * s.a
    T, V = kinematics.link_poses(s.model, q), kinematics.link_velocities(s.model, q, v)
    spatial = np.array([Ad(T[i], V[i]).components for i, _ in s.model.outward()]).imag / 1e-20
    close(x.a, (spatial + s.model.base_acceleration.components).ravel(), COMPLEX_STEP)
    close(system.P @ x.a, system.H @ s.a + system.Hdot_qd + system.base)
    assert np.any(system.base)  # without it gravity would be missing (F3)


@pytest.mark.parametrize("seed", SEEDS)
def test_incidence(seed):
    """After (29): P is 1 and -1, lower triangular; P⁻¹ sums along the links that carry a link; S = P⁻¹H is the Jacobian."""
    x = Stacked(seed)
    model, P = x.state.model, x.system.P
    assert np.array_equal(P, np.tril(P))
    assert set(np.unique(P)) <= {-1.0, 0.0, 1.0}
    carrying = np.linalg.inv(P)
    for i, _ in model.outward():
        links = {int(c) // 6 + 1 for c in np.nonzero(carrying[6 * i - 6])[0]}
        assert links == set(model.ancestors(i))
        J = x.robot.jacobian(x.state.q, model.link_names[i], reference="world")
        close(x.system.S[6 * i - 6 : 6 * i], J)


@pytest.mark.parametrize("seed", SEEDS)
def test_constraint_forces(seed):
    """(25) and after (26): I a + v × I v - f_a is a force T β, does no work on what joints allow, and is none but for T."""
    x = Stacked(seed)
    system, rigid = x.system, ~x.is_rotor
    f_c = system.net_force(x.a) - system.active_force()
    close(system.T[:, rigid].T @ system.S, 0.0)
    assert np.linalg.matrix_rank(np.hstack([system.S, system.T[:, rigid]])) == len(system.I)
    beta = np.linalg.lstsq(system.T, f_c, rcond=None)[0]
    close(system.T @ beta, f_c)
    close(beta[x.is_rotor], -(system.rotors * x.state.a)[system.rotors > 0], 1e-9)  # lstsq squares the condition
    close(system.S.T @ f_c, -system.rotors * x.state.a)  # virtual work: what rotors take


@pytest.mark.parametrize("seed", SEEDS)
def test_projection(seed):
    """(26), and M = HᵀP⁻ᵀIP⁻¹H after (29)."""
    x = Stacked(seed)
    M, right = x.system.projected()
    close(M, brute_force_mass_matrix(x.robot, x.state.q))
    close(np.linalg.solve(M, right), x.state.a, solve(x.condition))
    P_inv = np.linalg.inv(x.system.P)
    close(x.system.H.T @ P_inv.T @ x.system.I @ P_inv @ x.system.H + np.diag(x.system.rotors), M)


@pytest.mark.parametrize("seed", SEEDS)
def test_bodies_and_constraint_forces_in_one_system(seed):
    """(27) gives the accelerations and the constraint forces, (28) the same constraint forces."""
    x = Stacked(seed)
    matrix, right = x.system.augmented()
    n = len(x.system.I)
    close(matrix, matrix.T)
    unknown = np.linalg.solve(matrix, right)
    close(unknown[:n], x.a, solve(np.linalg.cond(matrix)))
    f_c = x.system.net_force(x.a) - x.system.active_force()
    close(x.system.T @ -unknown[n:], f_c, solve(np.linalg.cond(matrix)))
    smaller, right = x.system.constraint_forces()
    close(x.system.T @ np.linalg.solve(smaller, right), f_c, solve(np.linalg.cond(smaller)))
    assert np.min(np.linalg.eigvalsh(smaller)) > 0.0


def test_constraint_forces_of_a_chain_are_block_tridiagonal():
    """(28) with the joint-wise basis (F5): five rows a revolute joint, and joints meet their neighbours only."""
    robot = qddot.chain(7, rng=0)
    q, v = robot.random_state(1)
    matrix, _ = System(robot.model, q, v, np.zeros(7)).constraint_forces()
    for i in range(7):
        for j in range(7):
            block = matrix[5 * i : 5 * i + 5, 5 * j : 5 * j + 5]
            assert (np.max(np.abs(block)) > 1e-6) == (abs(i - j) <= 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_elimination_fills_in_nothing(seed):
    """(27), pairs (a_i, β_i) from the leaves inward: what is zero stays zero."""
    x = Stacked(seed, n=9, kinds=("revolute", "prismatic"))
    model, n = x.state.model, x.state.model.n_links
    matrix, _ = x.system.augmented()
    rigid = np.nonzero(~x.is_rotor)[0]
    pairs = [[*range(6 * i, 6 * i + 6), *(6 * n + rigid[5 * i : 5 * i + 5])] for i in range(n)]
    order = np.concatenate(pairs).astype(int)
    A = matrix[np.ix_(order, order)]
    for i in reversed(range(n)):
        own, rest = slice(11 * i, 11 * i + 11), slice(0, 11 * i)
        below = np.abs(A[own, rest]).reshape(11, i, 11).max(axis=(0, 2))
        assert set(np.nonzero(below > 1e-12)[0] + 1) == {model.parent[i + 1]} - {0}
        A[rest, rest] -= A[rest, own] @ np.linalg.solve(A[own, own], A[own, rest])


def test_complements_are_orthonormal():
    rng = np.random.default_rng(0)
    for d in range(7):
        S = rng.standard_normal((d, 6))
        T = np.array([F.components for F in complement(Motions(motion(row) for row in S.tolist()))]).reshape(-1, 6)
        assert T.shape == (6 - d, 6)
        close(T @ T.T, np.eye(6 - d))
        close(T @ S.T, 0.0)


# ---- formulations


@SETTINGS
@given(trees())
def test_mass_matrices(robot):
    s = State(robot)
    M = brute_force_mass_matrix(robot, s.q)
    close(operators.mass_matrix(s.model, s.q), M)
    close(operators.mass_matrix_factored(s.model, s.q), M)
    close(operators.mass_matrix_inverse(s.model, s.q) @ M, np.eye(robot.nv), solve(np.linalg.cond(M)))


@pytest.mark.parametrize("method", FORWARD)
@SETTINGS
@given(robot=trees(max_links=10))
def test_forward_dynamics(method, robot):
    """All kinds of joints, branches, any numbering, mimic joints, rotors, external forces."""
    s = State(robot)
    tau = newton_euler.inverse_dynamics(s.model, s.q, s.v, s.a, s.f_ext)
    M = robot.mass_matrix(s.q)
    tolerance = 10 * solve(np.linalg.cond(M))  # multipliers and inverses of single inertias have conditions of their own
    close(FORWARD[method](s.model, s.q, s.v, tau, s.f_ext), s.a, tolerance)


COMPILED = ("revolute", "free", "universal")  # the others by the definition of traced code, which takes less time


def traced(model, name, method, *arrays):
    """A batch by compiled code where the joints are of few kinds, else state by state by the interpreter."""
    if {joint.kind for joint in model.joint[1:]} <= set(COMPILED):
        return built(model, name, method)(*arrays)
    program = trace.traced(model, name, method)
    rows = [interpreter.run(program, np.concatenate([x[k].ravel() for x in arrays])) for k in range(len(arrays[0]))]
    return np.array(rows).reshape(len(rows), *FUNCTIONS[name].output(model))


@pytest.mark.parametrize("method", FORWARD)
@pytest.mark.parametrize("kind", MOVING)
def test_traced(method, kind):
    """Every kind of joint, and mimic joints."""
    small = method == "divide_and_conquer" or kind == "free"
    model = random_tree(2 if small else 3, rng=5, kinds=(kind, "revolute"), mimic=kind == "revolute").model()
    robot = Robot(model, compiled=False)
    states = [State(robot, k) for k in range(3)]
    q, v, a, f = (np.stack([getattr(s, x) for s in states]) for x in ("q", "v", "a", "f_ext"))
    condition = np.max(np.linalg.cond(robot.mass_matrix(q)))
    tau = robot.inverse_dynamics(q, v, a, f)
    close(traced(model, "forward_dynamics_with_forces", method, q, v, tau, f), a, 10 * solve(condition))


@pytest.mark.parametrize("method", ["operators", "operators_factored"])
@pytest.mark.parametrize("kind", MOVING)
def test_traced_mass_matrices(method, kind):
    model = random_tree(3, rng=5, kinds=(kind, "revolute"), mimic=kind == "revolute").model()
    q = np.stack([State(Robot(model, compiled=False), k).q for k in range(3)])
    M = Robot(model, compiled=False).mass_matrix(q)
    close(traced(model, "mass_matrix", method, q), M)
    if method == "operators":
        inverse = traced(model, "mass_matrix_inverse", method, q)
        close(inverse @ M, np.broadcast_to(np.eye(model.nv), M.shape), solve(np.max(np.linalg.cond(M))))


@pytest.mark.parametrize("method", ["operators", "augmented"])
def test_rolled(method):
    """Long chains and trees keep their loops."""
    robot = Robot(random_tree(9, rng=2, kinds=("revolute",)).model(), compiled=False)
    s = State(robot)
    kernel = robot.kernel("forward_dynamics", method=method, form="rolled")
    expected = FORWARD[method](s.model, s.q, s.v, s.a)
    close(kernel(s.q, s.v, s.a), expected, solve(np.linalg.cond(robot.mass_matrix(s.q))))


@pytest.mark.parametrize("method", ["constraint_forces", "divide_and_conquer"])
def test_what_looks_at_more_than_parents_is_not_rolled(method):
    with pytest.raises(NotRollableError, match="more of the tree"):
        qddot.chain(5).kernel("forward_dynamics", method=method, form="rolled")


def test_a_link_without_inertia():
    """(28) divides by it, and says so; what looks at what a joint carries does not."""
    b = qddot.Builder("cross").link("a", 1.0, (0.1, 0, 0), np.eye(3) * 0.1).link("b", 0.0)
    b.link("c", 1.0, (0.1, 0.2, 0), np.eye(3) * 0.1).link("d", 1.0, (0.1, 0.2, 0), np.eye(3) * 0.1)
    b.joint("j1", "world", "a", qddot.joints.Revolute((0, 0, 1))).joint("j2", "a", "b", qddot.joints.Revolute((1, 0, 0)))
    b.joint("j3", "b", "c", qddot.joints.Revolute((0, 1, 0)), qddot.pose((0.1, 0.2, 0.3)))
    b.joint("j4", "b", "d", qddot.joints.Revolute((0, 1, 0)), qddot.pose((-0.1, 0.2, 0.3)))
    robot = b.robot()
    s = State(robot)
    expected = robot.forward_dynamics(s.q, s.v, s.a)
    for method, forward in FORWARD.items():
        if method != "constraint_forces":
            close(forward(robot.model, s.q, s.v, s.a), expected, 1e-10)
            close(robot.kernel("forward_dynamics", method=method)(s.q, s.v, s.a), expected, 1e-10)
    with pytest.raises(InputError, match=r"link 'b' has no mass .* 'constraint_forces'"):
        FORWARD["constraint_forces"](robot.model, s.q, s.v, s.a)
    with pytest.raises(InputError, match="link 'b' has no mass"):
        trace.traced(robot.model, "forward_dynamics", "constraint_forces")


def test_the_stacked_system_wants_coordinates_of_their_own():
    model = random_tree(4, rng=2, kinds=("revolute",), mimic=True).model()
    with pytest.raises(InputError, match="has no coordinate of its own"):
        System(model, np.zeros(model.nq), np.zeros(model.nv), np.zeros(model.nv))
