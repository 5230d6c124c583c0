"""Every function on tensors is NumPy's kernel, to the bit; what is given and what is refused."""

import inspect
import pickle

import numpy as np
import pytest

import qddot
from qddot.errors import QddotError
from tests.support import torch_cases as cases
from tests.support.peers import peer

torch = peer("torch")

from qddot.torch import Dynamics  # noqa: E402
from qddot.torch.methods import METHODS  # noqa: E402

ROBOTS = {"tree": cases.tree, "hand": cases.hand, "floating": cases.floating, "fourbar": cases.fourbar}


def flat(x):
    """The arrays in nested tuples."""
    return [x] if isinstance(x, (np.ndarray, torch.Tensor)) or np.isscalar(x) else [z for y in x for z in flat(y)]


def same(ours, theirs):
    ours, theirs = flat(ours), flat(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


def tensors(arrays):
    return [torch.from_numpy(np.asarray(x)) for x in arrays]


def names(robot):
    return [
        name
        for name in METHODS
        if name not in cases.SKIPPED and (name not in cases.LOOPS_ONLY or robot.model.is_constrained)
    ]


@pytest.mark.parametrize("which", ["tree", "hand", pytest.param("floating", marks=pytest.mark.slow)])
def test_every_function_has_the_bits_of_numpy(which):
    robot = ROBOTS[which]()
    dynamics = robot.torch()
    for name in names(robot):
        for batch in ((), (3,), (2, 1)):
            arrays, others = cases.arguments(robot, name, batch)
            theirs = getattr(robot, name, None) or robot.kernel(name)
            same(getattr(dynamics, name)(*tensors(arrays), **others), theirs(*arrays, **others))


def test_loops_have_the_bits_of_numpy():
    robot, rng = cases.fourbar(), np.random.default_rng(0)
    dynamics = robot.torch()
    (q, v), tau = cases.states(robot, (5,), rng), rng.standard_normal((5, robot.nv))
    same(dynamics.forward_dynamics(*tensors((q, v, tau))), robot.forward_dynamics(q, v, tau))
    (a, lam), theirs = (
        dynamics.constrained_forward_dynamics(*tensors((q, v, tau))),
        robot.constrained_forward_dynamics(q, v, tau),
    )
    same(a, theirs[0])
    np.testing.assert_allclose(lam, theirs[1], rtol=0.0, atol=1e-12)  # the least of redundant rows: by another SVD
    pushed = rng.standard_normal((robot.model.n_links, 6))
    same(dynamics.forward_dynamics(*tensors((q, v, tau, pushed))), robot.forward_dynamics(q, v, tau, pushed))
    gains = {"gains": (10.0, 3.0)}
    same(dynamics.forward_dynamics(*tensors((q, v, tau)), **gains), robot.forward_dynamics(q, v, tau, **gains))
    for name in cases.LOOPS_ONLY:
        arrays, _ = cases.arguments(robot, name, (5,))
        same(getattr(dynamics, name)(*tensors(arrays)), getattr(robot, name)(*arrays))
    d = robot.forward_dynamics_derivatives(q, v, tau)
    same(dynamics.forward_dynamics_derivatives(*tensors((q, v, tau))), (d.dq, d.dv, d.dtau))


@pytest.mark.parametrize("choices", [{}, {"choice": "constraint_force"}, {"actuated": ["crank"]}])
def test_inverse_dynamics_with_loops(choices):
    """By other factorisations than NumPy's: the last digits differ."""
    robot, rng = cases.fourbar(), np.random.default_rng(0)
    if "actuated" in choices:
        choices = {"actuated": robot.joint_names[:1]}
    q, v = cases.states(robot, (4,), rng)
    a = robot.forward_dynamics(q, v, rng.standard_normal((4, robot.nv)))
    ours = robot.torch().constrained_inverse_dynamics(*tensors((q, v, a)), **choices)
    for x, y in zip(ours, robot.constrained_inverse_dynamics(q, v, a, **choices), strict=True):
        np.testing.assert_allclose(x.numpy(), y, rtol=1e-9, atol=1e-9)
    opened = robot.torch().inverse_dynamics(*tensors((q + 0.1 * rng.standard_normal(q.shape), v, a)))
    assert opened.isnan().all()


def test_hybrid_dynamics_with_loops():
    robot, rng = cases.fourbar(), np.random.default_rng(0)
    q, v = cases.states(robot, (4,), rng)
    a, tau = rng.standard_normal((2, 4, robot.nv))
    chosen = {"prescribed": robot.joint_names[:1]}
    ours = robot.torch().constrained_hybrid_dynamics(*tensors((q, v, a, tau)), **chosen)
    theirs = robot.constrained_hybrid_dynamics(q, v, a, tau, method="multipliers", **chosen)
    same(ours[:2], theirs[:2])
    np.testing.assert_allclose(ours[2], theirs[2], rtol=0.0, atol=1e-12)


def test_open_loops_are_nan():
    robot, rng = cases.fourbar(), np.random.default_rng(0)
    q, v = cases.states(robot, (3,), rng)
    q[1] += 0.1 * rng.standard_normal(robot.nq)
    a = robot.torch().forward_dynamics(*tensors((q, v, v)))
    assert a.isnan().any(-1).tolist() == [False, True, False]


@pytest.mark.parametrize("name", [x for x in METHODS if hasattr(qddot.Robot, x)])
def test_arguments_are_those_of_robot(name):
    """Names, order and defaults; derivatives of forces by q and v are the framework's affair."""
    theirs = inspect.signature(getattr(qddot.Robot, name)).parameters
    ours = inspect.signature(getattr(Dynamics, name)).parameters
    gone = ("self", "choices", "forces", "free")
    left = {k: p for k, p in theirs.items() if k not in gone}
    own = {k: p for k, p in ours.items() if k not in gone}
    added = {"expressed_in"} if "forces" in theirs else set()
    assert [*left] == [k for k in own if k not in added]
    for k, p in left.items():
        assert (p.default, p.kind) == (own[k].default, own[k].kind), k


def test_every_method_of_the_table_is_one_of_robot():
    """But for one that `Robot` has as a kernel alone."""
    assert {x for x in METHODS if not hasattr(qddot.Robot, x)} == {"convective_inertia_matrix"}


# ---- layouts -----------------------------------------------------------------------------------------------------------


def test_layouts():
    """Strides, broadcasting, and no states at all."""
    robot, rng = cases.arm(), np.random.default_rng(1)
    dynamics = robot.torch()
    q, v = robot.random_state(rng, 6)
    a = rng.standard_normal(6)
    expected = robot.inverse_dynamics(q, v, a)
    Q, V, A = tensors((q, v, a))
    for Q2 in (Q.t().contiguous().t(), torch.cat([Q, Q], -1)[:, :6], Q.repeat_interleave(2, 0)[::2], torch._neg_view(-Q)):
        assert not Q2.is_contiguous() or Q2.is_neg()
        same(dynamics.inverse_dynamics(Q2, V, A), expected)
        same(dynamics.inverse_dynamics(Q2, V, A.expand(6, 6)), expected)
    same(dynamics.inverse_dynamics(Q[:, None], V, A), robot.inverse_dynamics(q[:, None], v, a))
    assert dynamics.inverse_dynamics(Q[:0], V[:0], A).shape == (0, 6)
    assert dynamics.kinetic_energy(Q[:0], V[:0]).shape == (0,)
    assert dynamics.kinetic_energy(Q[0], V[0]).shape == ()


def test_results_are_of_the_tensors_type():
    robot = cases.arm()
    q, v = robot.random_state(0, 4)
    ours = robot.torch().forward_dynamics(*(x.float() for x in tensors((q, v, v))))
    assert ours.dtype == torch.float32
    single = robot.kernel("forward_dynamics", dtype="float32")(*(x.astype(np.float32) for x in (q, v, v)))
    same(ours, single)


def test_what_is_no_tensor_becomes_one():
    robot = cases.arm()
    q, v = robot.random_state(0)
    same(robot.torch().bias_force(q, v.tolist()), robot.bias_force(q, v))
    single = robot.torch(dtype=torch.float32).bias_force(q, [0.0] * 6)
    assert single.dtype == torch.float32
    assert robot.torch().mass_matrix([0] * 6).dtype == torch.get_default_dtype()


def test_one_bad_sample_spoils_no_other():
    robot = cases.arm()
    q, v = robot.random_state(0, 5)
    good = robot.torch().forward_dynamics(*tensors((q, v, v))).numpy().copy()
    q[2, 1] = np.nan
    ours = robot.torch().forward_dynamics(*tensors((q, v, v)))
    assert ours[2].isnan().any()
    np.testing.assert_array_equal(np.delete(ours.numpy(), 2, 0), np.delete(good, 2, 0))


# ---- what is refused ----------------------------------------------------------------------------------------------------


def refused(match, call):
    with pytest.raises((QddotError, TypeError), match=match):
        call()


def test_what_is_refused():
    robot = cases.arm()
    dynamics = robot.torch()
    q, v = tensors(robot.random_state(0, 3))
    refused("q float64 on cpu, v float32", lambda: dynamics.bias_force(q, v.float()))
    refused("float16 are not computed", lambda: dynamics.bias_force(q.half(), v.half()))
    refused("int64 are not computed", lambda: dynamics.bias_force(q.long(), v.long()))
    refused("complex128 are not computed", lambda: dynamics.bias_force(q + 0j, v + 0j))
    refused(r"q has shape \(3, 5\)", lambda: dynamics.bias_force(q[:, :5], v))
    refused("do not fit together", lambda: dynamics.bias_force(q, v[:2]))
    refused("needs v", lambda: dynamics.bias_force(q))
    refused("3 arguments", lambda: dynamics.bias_force(q, v, v))
    refused("unexpected keyword argument 'w'", lambda: dynamics.bias_force(q, w=v))
    refused("got v twice", lambda: dynamics.bias_force(q, v, v=v))
    refused("frame 'tol0'", lambda: dynamics.pose(q, "tol0"))
    refused("neither loops", lambda: dynamics.constraint_residual(q))
    refused("no parameter 'masss'", lambda: robot.torch(free=("masss",)))
    refused("take torch.float32", lambda: robot.torch(dtype=torch.float16))
    refused("computes with torch.float32", lambda: robot.torch(dtype=torch.float32).bias_force(q, v))
    refused("computes on meta", lambda: robot.torch(device="meta").bias_force(q, v))
    refused("frame=\\['a'\\]|frame is", lambda: dynamics.pose(q, ["a"]))


def test_a_robot_without_mass_is_refused():
    b = qddot.Builder("ghost")
    b.link("link")
    b.joint("joint", "world", "link", qddot.joints.Revolute())
    dynamics = b.robot().torch()
    refused("singular mass matrix", lambda: dynamics.mass_matrix_inverse(torch.zeros(1)))
    refused("no mass", lambda: dynamics.center_of_mass(torch.zeros(1)))


def test_autocast_computes_in_single_precision():
    robot = cases.arm()
    dynamics = robot.torch()
    q, v = (x.bfloat16() for x in tensors(robot.random_state(0, 3)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = dynamics.bias_force(q, v)
    assert found.dtype == torch.float32
    assert torch.equal(found, dynamics.bias_force(q.float(), v.float()))


# ---- forces and parameters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", ["frame", "link", "world"])
def test_forces_by_name(axes):
    robot, rng = cases.tree(), np.random.default_rng(0)
    q, v = robot.random_state(rng, 3)
    tau, wrench = rng.standard_normal((3, robot.nv)), rng.standard_normal((3, 6))
    names = robot.link_names[1], robot.link_names[-1]
    theirs = robot.forward_dynamics(q, v, tau, {names[0]: wrench, names[1]: wrench[0]}, expressed_in=axes)
    Q, V, T, W = tensors((q, v, tau, wrench))
    ours = robot.torch().forward_dynamics(Q, V, T, {names[0]: W, names[1]: W[0]}, expressed_in=axes)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12, atol=1e-12)
    refused("must be \\(..., 6\\)", lambda: robot.torch().forward_dynamics(Q, V, T, {names[0]: W[:, :5]}))


@pytest.mark.parametrize("reference", ["body", "aligned", "world"])
def test_jacobians_in_other_axes(reference):
    robot = cases.tree()
    q, _ = robot.random_state(0, 3)
    frame = robot.link_names[-1]
    ours = robot.torch().jacobian(torch.from_numpy(q), frame, reference)
    np.testing.assert_allclose(ours.numpy(), robot.jacobian(q, frame, reference), rtol=1e-13, atol=1e-13)
    refused("not known", lambda: robot.torch().jacobian(torch.from_numpy(q), frame, "local"))


def test_free_parameters():
    robot = cases.arm()
    last = robot.link_names[-1]
    dynamics = robot.torch(free=("damping", f"{last}.mass"))
    q, v = robot.random_state(0, 4)
    Q, V = tensors((q, v))
    same(dynamics.inverse_dynamics(Q, V, V), robot.inverse_dynamics(q, v, v))
    mass, damping = np.array([1.0, 2.0, 3.0, 4.0]), np.arange(6.0)
    ours = dynamics.inverse_dynamics(Q, V, V, damping=torch.from_numpy(damping), **{f"{last}.mass": torch.from_numpy(mass)})
    for k in range(4):
        other = robot.with_parameters({"damping": damping, f"{last}.mass": mass[k]})
        np.testing.assert_allclose(ours[k].numpy(), other.inverse_dynamics(q[k], v[k], v[k]), rtol=1e-12, atol=1e-12)
    refused("unexpected", lambda: dynamics.inverse_dynamics(Q, V, V, mass=1.0))


def test_normalize():
    robot = cases.floating()
    q = np.random.default_rng(0).standard_normal((4, robot.nq))
    np.testing.assert_allclose(robot.torch().normalize(torch.from_numpy(q)).numpy(), robot.normalize(q), rtol=1e-15)


def test_steps_and_differences():
    robot = cases.floating()
    dynamics = robot.torch()
    q, v = robot.random_state(0, 4)
    Q, V = tensors((q, v))
    moved = robot.integrate(q, v, 0.1)
    np.testing.assert_allclose(dynamics.integrate(Q, V, 0.1), moved, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(dynamics.difference(Q, torch.from_numpy(moved)), 0.1 * v, rtol=1e-11, atol=1e-12)
    assert dynamics.integrate(Q.float(), V.float(), 0.1).dtype == torch.float32
    refused(f"its last axis must have {robot.nv}", lambda: dynamics.integrate(Q, Q))


def test_dynamics_can_be_pickled():
    robot = cases.arm()
    again = pickle.loads(pickle.dumps(robot.torch(free=("damping",))))
    q = torch.from_numpy(robot.random_state(0)[0])
    assert again.free == ("damping",)
    assert torch.equal(again.gravity_force(q), robot.torch().gravity_force(q))
