"""Tensors on a card: the same functions, on the current stream, without copies."""

import pytest

from qddot.errors import InputError
from tests.support import torch_cases as cases
from tests.support.peers import peer

torch = peer("torch")

if not torch.cuda.is_available():
    pytest.skip("needs an NVIDIA card that PyTorch can use", allow_module_level=True)


def states(robot, count, dtype=torch.float64):
    q, v = (torch.from_numpy(x).to(dtype) for x in robot.random_state(0, count))
    return q, v, torch.randn(count, robot.nv, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ["inverse_dynamics", "forward_dynamics"])
def test_a_card_gives_what_the_processor_gives(name, dtype):
    robot = cases.arm()
    run = getattr(robot.torch(), name)
    host = [x.requires_grad_() for x in states(robot, 300, dtype)]
    card = [x.detach().cuda().requires_grad_() for x in host]
    ours, theirs = run(*card), run(*host)
    assert ours.is_cuda
    assert ours.dtype == dtype
    size = 1e-10 if dtype == torch.float64 else 2e-3  # of the largest: sums of some 1e3 terms that cancel
    torch.testing.assert_close(ours.cpu(), theirs, rtol=0.0, atol=size * theirs.abs().max().item())
    ours.square().sum().backward()
    theirs.square().sum().backward()
    for x, y in zip(card, host, strict=True):
        torch.testing.assert_close(x.grad.cpu(), y.grad, rtol=0.0, atol=size * y.grad.abs().max().item())


def test_the_current_stream_is_used():
    """A result that is made before its inputs are there would be wrong."""
    robot = cases.arm()
    dynamics = robot.torch()
    q, v, a = (x.cuda() for x in states(robot, 4096))
    expected = dynamics.inverse_dynamics(q, v, a)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late = (q + 1.0) - 1.0
        found = dynamics.inverse_dynamics(late, v, a)
    stream.synchronize()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_devices_are_not_mixed():
    robot = cases.arm()
    q, v, _ = states(robot, 4)
    with pytest.raises(InputError, match="nothing is cast or copied between devices"):
        robot.torch().bias_force(q.cuda(), v)
    with pytest.raises(InputError, match="computes on cuda"):
        robot.torch(device="cuda").bias_force(q, v)


def test_layouts_maps_and_graphs_on_a_card():
    robot = cases.arm()
    dynamics = robot.torch()
    q, v, _ = (x.cuda() for x in states(robot, 6))
    expected = dynamics.bias_force(q, v)
    for q2 in (q.t().contiguous().t(), torch.cat([q, q], -1)[:, :6], torch._neg_view(-q)):
        assert torch.equal(dynamics.bias_force(q2, v), expected)
    assert dynamics.bias_force(q[:0], v[:0]).shape == (0, 6)
    assert torch.equal(torch.vmap(dynamics.bias_force)(q, v), expected)
    traced = torch.compile(lambda q, v: dynamics.bias_force(q, v) * 2.0, fullgraph=True, backend="aot_eager")
    assert torch.equal(traced(q, v), 2.0 * expected)
    slope = torch.func.vmap(torch.func.jacrev(dynamics.bias_force, 1))(q, v)
    assert slope.shape == (6, 6, 6)
    assert slope.is_cuda


def test_loops_on_a_card():
    import numpy as np

    robot = cases.fourbar()
    q, v = (torch.from_numpy(x) for x in cases.states(robot, (5,), np.random.default_rng(0)))
    theirs = robot.torch().forward_dynamics(q, v, v)
    ours = robot.torch().forward_dynamics(q.cuda(), v.cuda(), v.cuda())
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-9, atol=1e-9)
