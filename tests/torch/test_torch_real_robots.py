"""Gradients of real robots against complex steps, with loops and free parameters; tensors that `Robot` is given."""

import numpy as np
import pytest

from tests.support import torch_cases as cases
from tests.support.derivative_cases import MOSTLY_SLOW, dynamics_of
from tests.support.peers import peer
from tests.support.products import at_random
from tests.support.real_robots import load, or_skipped

torch = peer("torch")

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402


@pytest.mark.parametrize("path", or_skipped(MOSTLY_SLOW))
def test_real_robots(path):
    """Along random directions of the tangent space."""
    robot, rng = load(path), np.random.default_rng(0)
    names, dynamics = dynamics_of(robot), robot.torch()
    for name in names:
        point = at_random(robot, name, rng=1)
        tangents = {x: rng.standard_normal(s) for x, s in point.sizes(point.given).items()}
        given = {x: torch.from_numpy(y).requires_grad_() for x, y in point.given.items()}
        cotangent = rng.standard_normal(robot.nv)
        getattr(dynamics, name)(*given.values()).backward(torch.from_numpy(cotangent))
        gradients = {x: y.grad for x, y in given.items()}
        gradients["q"] = dynamics.tangent_gradient(given["q"].detach(), gradients["q"])
        found, size = (
            sum(np.sum(f(gradients[x].numpy()) * f(d)) for x, d in tangents.items()) for f in (np.asarray, np.abs)
        )
        assert abs(found - cotangent @ point.first(tangents)) <= 1e-8 * size


def test_gradients_have_the_bits_of_numpys_kernel():
    robot, rng = cases.arm(), np.random.default_rng(0)
    q, v = robot.random_state(rng, 5)
    tau, weights = rng.standard_normal((2, 5, robot.nv))
    given = [torch.from_numpy(x).requires_grad_() for x in (q, v, tau)]
    robot.torch().forward_dynamics(*given).backward(torch.from_numpy(weights))
    kernel = robot.kernel("forward_dynamics", vjp=True, coordinates="ambient", known_result=True)
    row = kernel(q, v, tau, robot.forward_dynamics(q, v, tau), weights)
    np.testing.assert_array_equal(np.concatenate([x.grad for x in given], axis=-1), row)


def test_loops_with_forces_gains_and_free_parameters():
    robot, rng = cases.fourbar(), np.random.default_rng(1)
    dynamics = robot.torch(free=("gravity", "damping"))
    q, v = cases.states(robot, (), rng)
    arrays = q, v, rng.standard_normal(robot.nv), rng.standard_normal((robot.model.n_links, 6))
    q, v, tau, f_ext = (torch.from_numpy(x).requires_grad_() for x in arrays)
    gravity = torch.tensor(robot.model.gravity, dtype=torch.float64, requires_grad=True)
    damping = torch.full((robot.nv,), 0.1, dtype=torch.float64, requires_grad=True)

    def run(q, v, tau, f, g, d):
        return dynamics.forward_dynamics(q, v, tau, f, gravity=g, damping=d)

    given = (q, v, tau, f_ext, gravity, damping)
    assert gradcheck(run, given)
    assert gradgradcheck(run, given)
    assert gradcheck(lambda q, v: dynamics.constrained_forward_dynamics(q, v, tau, gains=(10.0, 3.0))[0], (q, v))


def test_a_tensor_that_keeps_gradients_is_enough():
    """`Robot` hands it to its operations of PyTorch."""
    robot = cases.arm()
    q, v = (torch.from_numpy(x) for x in robot.random_state(0, 3))
    v.requires_grad_()
    robot.kinetic_energy(q, v).sum().backward()
    momentum = (robot.mass_matrix(q) @ v.detach()[..., None])[..., 0]
    torch.testing.assert_close(v.grad, momentum, rtol=1e-12, atol=1e-12)
