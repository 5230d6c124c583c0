"""Gradients of every function against differences (gradcheck, gradgradcheck), and of real robots against complex steps."""

import itertools

import numpy as np
import pytest

import qddot
from qddot.errors import InputError
from tests.support import torch_cases as cases
from tests.support.peers import peer

torch = peer("torch")

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, jacfwd, jacrev, vmap  # noqa: E402

from qddot.torch.methods import METHODS  # noqa: E402

OF_TREES = [x for x in METHODS if x not in (*cases.SKIPPED, *cases.LOOPS_ONLY)]
CORE = ("inverse_dynamics", "forward_dynamics", "hybrid_dynamics", "mass_matrix", "kinetic_energy", "pose", "jacobian")


def tensors(arrays):
    return [torch.from_numpy(np.array(x)).requires_grad_() for x in arrays]


def flat(x):
    """The tensors in nested tuples."""
    return (x,) if isinstance(x, torch.Tensor) else tuple(z for y in x for z in flat(y))


def checked(robot, name, seed=0, batch=(), twice=False, **forward):
    """The gradients of a method, of the second order if so."""
    dynamics = robot.torch()
    arrays, others = cases.arguments(robot, name, batch, seed)

    def run(q, *rest):
        return flat(getattr(dynamics, name)(dynamics.normalize(q), *rest, **others))

    given = tensors(arrays)
    assert gradcheck(run, given, **forward)
    if twice:
        assert gradgradcheck(run, given)


@pytest.mark.parametrize("name", OF_TREES)
def test_gradients_of_every_function(name):
    checked(cases.hand(), name, twice=name in CORE)


@pytest.mark.parametrize("kind", cases.JOINTS)
def test_gradients_of_every_joint(kind):
    robot = cases.tree(2, seed=5, kinds=(kind,))
    for name in ("forward_dynamics", "pose"):
        checked(robot, name, batch=(2,), check_forward_ad=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", cases.JOINTS)
def test_gradients_of_every_function_and_joint_twice(kind):
    robot = cases.pair(kind)
    for name in OF_TREES:
        checked(robot, name, twice=True, check_forward_ad=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_TREES)
@pytest.mark.parametrize("which", ["floating", "mimic"])
def test_gradients_of_trees_twice(name, which):
    robot = cases.floating() if which == "floating" else cases.tree(4, 7, ("revolute", "prismatic"), True)
    assert which != "mimic" or robot.model.is_coupled
    checked(robot, name, twice=True, check_forward_ad=True)


def test_gradients_with_mimic_joints():
    robot = cases.tree(3, 7, ("revolute", "prismatic"), True)
    assert robot.model.is_coupled
    for name in ("forward_dynamics", "inverse_dynamics"):
        checked(robot, name, twice=True)


@pytest.mark.parametrize("name", cases.SKIPPED)
def test_gradients_of_second_derivatives(name):
    checked(qddot.load("double_pendulum"), name)


# ---- loops -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("forward_dynamics", "inverse_dynamics", "constrained_forward_dynamics", "constrained_inverse_dynamics"),
        *("constrained_hybrid_dynamics", *cases.LOOPS_ONLY),
    ],
)
def test_gradients_with_loops(name):
    robot, rng = cases.fourbar(), np.random.default_rng(1)
    dynamics = robot.torch()
    q, v = cases.states(robot, (), rng)
    a = robot.forward_dynamics(q, v, rng.standard_normal(robot.nv))
    given = tensors({"constraint_bias": (q, v), "constraint_residual": (q,)}.get(name, (q, v, a)))
    if name.startswith("constraint_jacobian"):
        given = given[:1]
    others = {}
    if "hybrid" in name:
        given, others = [*given, given[1].detach().clone().requires_grad_()], {"prescribed": robot.joint_names[:1]}
    run = getattr(dynamics, name)
    forward = "inverse" not in name  # where accelerations are off by more than rounding there is no answer
    if forward:
        assert gradcheck(lambda *x: flat(run(*x, **others)), given)
        assert gradgradcheck(lambda *x: flat(run(*x, **others)), given)
    else:
        along_loops(robot, run, [x.detach() for x in given])


def along_loops(robot, run, given):
    """Inverse dynamics has an answer for motions that keep loops closed alone: q̈ is moved along such a motion."""
    q, v, a = given
    M, A = robot.mass_matrix(q.numpy()), robot.constraint_jacobian(q.numpy())
    assert M.shape == (robot.nv, robot.nv)
    free = np.linalg.svd(A)[2][np.linalg.matrix_rank(A) :]
    for row in torch.from_numpy(free):
        step = torch.zeros((), dtype=torch.float64, requires_grad=True)
        assert gradcheck(lambda s, row=row: flat(run(q, v, a + s * row)), (step,))
        assert gradgradcheck(lambda s, row=row: flat(run(q, v, a + s**2 * row)), (step + 0.3,))


# ---- forces, parameters, gravity -------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", ["frame", "link", "world"])
def test_gradients_of_forces(axes):
    robot, rng = cases.hand(), np.random.default_rng(0)
    dynamics = robot.torch()
    q, v = robot.random_state(rng)
    q, v, wrench = tensors((q, v, rng.standard_normal(6)))
    name = robot.link_names[-1]

    def run(q, v, w):
        return dynamics.forward_dynamics(dynamics.normalize(q), v, v, {name: w}, expressed_in=axes)

    assert gradcheck(run, (q, v, wrench))
    f_ext = torch.randn(robot.model.n_links, 6, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda f: dynamics.inverse_dynamics(q, v, v, f), (f_ext,))


@pytest.mark.parametrize("free", [("inertia",), ("mass", "damping"), ("gravity",), ("friction", "armature", "last.com")])
def test_gradients_of_free_parameters(free):
    robot = cases.hand()
    free = tuple(x.replace("last", robot.link_names[-1]) for x in free)
    dynamics = robot.torch(free=free)
    q, v = robot.random_state(0)
    given = tensors((q, v, *(robot.parameters(x) for x in free)))
    for name in ("inverse_dynamics", "forward_dynamics"):

        def run(q, v, *values, name=name):
            return getattr(dynamics, name)(dynamics.normalize(q), v, v, **dict(zip(free, values, strict=True)))

        assert gradcheck(run, given)
        assert gradgradcheck(run, given)


def test_gradients_of_placements():
    """Along rigid motions, so that rotations stay some."""
    robot = cases.hand()
    dynamics = robot.torch(free=("placement",))
    q, v, given = (torch.from_numpy(x) for x in (*robot.random_state(0), robot.parameters("placement")))
    twist = torch.randn(robot.model.n_links, 6, dtype=torch.float64, requires_grad=True)

    def run(xi):
        w, u = xi[:, :3], xi[:, 3:]
        rows = torch.linalg.cross(torch.eye(3, dtype=xi.dtype)[None], w[:, None, :].expand(-1, 3, 3))
        motion = torch.cat([torch.cat([rows, u[..., None]], -1), xi.new_zeros(len(xi), 1, 4)], -2)
        return dynamics.inverse_dynamics(q, v, v, placement=given @ torch.linalg.matrix_exp(motion))

    assert gradcheck(run, (1e-3 * twist,))


def test_gravity_is_the_models_own():
    robot = cases.hand()
    q, v = (torch.from_numpy(x) for x in robot.random_state(0))
    gravity = torch.tensor(robot.model.gravity, dtype=torch.float64)
    ours = robot.torch(free=("gravity",)).inverse_dynamics(q, v, v, gravity=gravity)
    np.testing.assert_allclose(ours, robot.torch().inverse_dynamics(q, v, v), rtol=1e-13, atol=1e-13)


# ---- batches and transforms ------------------------------------------------------------------------------------------


def test_gradients_are_summed_over_broadcast_axes():
    robot, rng = cases.hand(), np.random.default_rng(0)
    dynamics = robot.torch(free=("mass",))
    q, v = robot.random_state(rng, 3)
    a, mass = rng.standard_normal((4, 1, robot.nv)), robot.parameters("mass")
    q, v, a, mass = given = tensors((q, v[0], a, mass))
    weights = torch.randn(4, 3, robot.nv, dtype=torch.float64)
    (dynamics.inverse_dynamics(q, v, a, mass=mass) * weights).sum().backward()
    whole = [x.detach().expand(4, 3, *x.shape[-1:]).clone().requires_grad_() for x in given]
    (dynamics.inverse_dynamics(*whole[:3], mass=whole[3]) * weights).sum().backward()
    for x, y in zip(given, whole, strict=True):
        assert x.grad.shape == x.shape
        torch.testing.assert_close(x.grad, y.grad.sum_to_size(x.shape), rtol=1e-13, atol=1e-13)


def test_only_what_is_needed_is_computed():
    robot = cases.hand()
    q, v = (torch.from_numpy(x) for x in robot.random_state(0))
    v.requires_grad_()
    found = robot.torch().forward_dynamics(q, v, q.new_zeros(robot.nv))
    called = []
    from qddot.torch import operation

    original, operation.program = operation.program, lambda key: called.append(key) or original(key)
    try:
        found.sum().backward()
    finally:
        operation.program = original
    assert [original(key).call.wrt for key in called] == [("v",)]
    assert q.grad is None


def test_transforms_agree():
    """Jacobians forward and in reverse, second derivatives in all four orders, with maps around them."""
    robot, rng = cases.hand(), np.random.default_rng(0)
    dynamics = robot.torch()
    q, v = robot.random_state(rng, 2)
    q, v, tau = (torch.from_numpy(x) for x in (q, v, rng.standard_normal((2, robot.nv))))

    def f(q, v, tau):
        return dynamics.forward_dynamics(dynamics.normalize(q), v, tau)

    first = [vmap(jac(f, (0, 1, 2)))(q, v, tau) for jac in (jacrev, jacfwd)]
    for a, b in zip(*first, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    second = [
        [x for row in vmap(outer(inner(f, (0, 1)), (0, 1)))(q, v, tau) for x in row]
        for inner, outer in itertools.product((jacrev, jacfwd), repeat=2)
    ]
    for other in second[1:]:
        for a, b in zip(second[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    d = robot.forward_dynamics_derivatives(q.numpy(), v.numpy(), tau.numpy())
    np.testing.assert_allclose(first[0][1], d.dv, rtol=1e-9, atol=1e-9)


def test_maps_of_maps_of_gradients():
    robot = cases.hand()
    dynamics = robot.torch()
    q, v = (torch.from_numpy(x) for x in robot.random_state(0, 3))
    energy = grad(lambda q, v: dynamics.kinetic_energy(q, v) + dynamics.potential_energy(q), (0, 1))
    ours = vmap(vmap(energy, (None, 0)), (0, None))(q, v)
    for k, j in itertools.product(range(3), range(3)):
        for x, y in zip(ours, energy(q[k], v[j]), strict=True):
            assert torch.equal(x[k, j], y)


def test_gradients_of_quaternions_are_orthogonal_to_them():
    robot = cases.floating()
    dynamics = robot.torch()
    q, v = tensors(robot.random_state(0, 3))
    dynamics.forward_dynamics(q, v, v).square().sum().backward()
    along = (q.grad[:, 3:7] * q[:, 3:7]).sum(-1)
    assert along.abs().max() < 1e-12 * q.grad.abs().max()


def test_gradients_in_the_tangent_space():
    """Both are the slope along `integrate`."""
    robot = cases.floating()
    dynamics = robot.torch()
    q, v = tensors(robot.random_state(0, 3))
    still = torch.zeros(3, robot.nv, dtype=torch.float64, requires_grad=True)
    dynamics.kinetic_energy(q, v).sum().backward()
    dynamics.kinetic_energy(dynamics.integrate(q.detach(), still), v).sum().backward()
    ours = dynamics.tangent_gradient(q.detach(), q.grad)
    torch.testing.assert_close(ours, still.grad, rtol=1e-11, atol=1e-11)
    assert gradcheck(dynamics.integrate, (q.detach().requires_grad_(), v))


def test_a_third_derivative_is_an_error():
    dynamics = cases.arm().torch()
    q = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    value = dynamics.potential_energy(q)
    (first,) = torch.autograd.grad(value, q, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), q, create_graph=True)
    with pytest.raises(InputError, match="first and second derivatives, and no third"):
        second.sum().backward()


def test_single_precision_gradients():
    robot = cases.arm()
    dynamics = robot.torch()
    q, v = (torch.from_numpy(x) for x in robot.random_state(0, 5))
    found = []
    for kind in (torch.float32, torch.float64):
        x, y = (z.to(kind).requires_grad_() for z in (q, v))
        dynamics.inverse_dynamics(x, y, y).square().sum().backward()
        assert x.grad.dtype == kind
        found.append(x.grad.double())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4 * found[1].abs().max().item())  # some 1e3 roundings


def test_empty_batches_have_gradients():
    robot = cases.arm()
    q = torch.zeros(0, 6, dtype=torch.float64, requires_grad=True)
    v = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    robot.torch().inverse_dynamics(q, v, v).sum().backward()
    assert q.grad.shape == (0, 6)
    assert torch.equal(v.grad, torch.zeros(6))
