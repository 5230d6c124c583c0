"""Rollouts and steps on tensors: NumPy's bits, gradients, graphs, torch.func, what is refused."""

import gc
import itertools
import tracemalloc

import numpy as np
import pytest

import qddot
from qddot.errors import InputError
from tests.support.peers import peer

torch = peer("torch")


@pytest.fixture(scope="module")
def robot():
    return qddot.load("double_pendulum", passive_forces=False)


@pytest.fixture
def state():
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(n, generator=generator, dtype=torch.float64) for n in ((3, 2), (3, 2), (5, 2))]
    return [x.requires_grad_() for x in made]


def law(t, q, v, p):
    return -p[0] * q - p[1] * v


def spent(t, q, v, tau):
    return q @ q + 0.1 * tau @ tau


@pytest.mark.parametrize("integrator", ["rk4", "semi_implicit_euler"])
@pytest.mark.parametrize("record", [1, "end"])
def test_held_controls(robot, state, integrator, record):
    dyn, options = robot.torch(), {"dt": 5e-3, "integrator": integrator, "record": record}
    assert torch.autograd.gradcheck(lambda q, v, u: dyn.rollout(q, v, u, **options), state)
    q, v = dyn.rollout(*state, **options)
    q0, v0, u = (x.detach().numpy() for x in state)
    run = robot.simulate(q0, v0, u, steps=5, **options)
    assert np.array_equal(q.detach().numpy(), run.q)
    assert np.array_equal(v.detach().numpy(), run.v)


def test_a_law_its_parameters_and_cost(robot, state):
    dyn = robot.torch()
    p = torch.tensor([1.0, 0.2], dtype=torch.float64, requires_grad=True)
    given = {"dt": 5e-3, "steps": 6, "cost": spent, "record": "end"}
    assert torch.autograd.gradcheck(lambda q, v, p: dyn.rollout(q, v, law, parameters=p, **given), (*state[:2], p))
    assert dyn.rollout(*state[:2], law, parameters=p, **given)[2].shape == (3,)


def test_free_parameters(robot, state):
    dyn = robot.torch(free=("gravity",))
    g = torch.tensor([0.0, 0.0, -9.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q, v, g: dyn.rollout(q, v, dt=5e-3, steps=4, gravity=g), (*state[:2], g))


def test_a_step(robot, state):
    dyn = robot.torch()
    q, v, u = state
    assert torch.autograd.gradcheck(lambda q, v, u: dyn.step(q, v, u[0], dt=5e-3), (q, v, u))
    one, all_of = dyn.step(q, v, u[0], dt=5e-3), dyn.rollout(q, v, u, dt=5e-3)
    assert torch.equal(one[0], all_of[0][:, 1])
    assert torch.equal(one[1], all_of[1][:, 1])


def test_quaternions():
    """Gradients of q have its shape, and nothing along quaternions."""
    robot = qddot.load("quadruped", passive_forces=False)
    dyn = robot.torch()
    q, v = map(torch.from_numpy, robot.random_state(np.random.default_rng(0), 2))
    q.requires_grad_()
    ends, _ = dyn.rollout(q, v, dt=1e-3, steps=3, record="end")
    (g,) = torch.autograd.grad(ends.sum(), q)
    assert g.shape == q.shape
    assert torch.all((g[:, 3:7] * q[:, 3:7]).sum(-1).abs() <= 1e-14 * g.abs().max())


def test_graphs_and_transforms(robot, state):
    rollout = robot.torch().differentiable_rollout(state[2], dt=5e-3)

    def loss(q, v, u):
        a, b = rollout(q, v, controls=u)
        return (a * a).sum() + b[..., -1, :].sum()

    wanted = torch.autograd.grad(loss(*state), state)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for a, b in zip(torch.autograd.grad(compiled(*state), state), wanted, strict=True):
        assert torch.equal(a, b)
    plain = [x.detach() for x in state]
    for a, b in zip(torch.func.grad(loss, argnums=(0, 1, 2))(*plain), wanted, strict=True):
        assert torch.equal(a, b)
    each = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)), (0, 0, None))(*plain)
    assert torch.equal(each[0], wanted[0])
    assert torch.allclose(each[2].sum(0), wanted[2], rtol=1e-13, atol=1e-15)  # sums in another order
    rows = torch.func.jacrev(lambda q: rollout(q, plain[1])[0][:, -1].sum(0))(plain[0])
    assert rows.shape == (2, 3, 2)


def test_a_rollout_is_made_before_a_function_is_compiled(robot):
    dyn, q = robot.torch(), torch.zeros(2, dtype=torch.float64)

    def moved(q):
        return 2.0 * dyn.step(q, q + 1.0, dt=5e-3)[0]

    with pytest.raises(Exception, match="rollouts are made before a function is compiled"):
        torch.compile(moved, fullgraph=True, backend="aot_eager")(q)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(moved, backend="aot_eager")(q), moved(q))  # in two graphs, and a call between them


def test_float32_and_what_needs_no_gradient(robot, state):
    q, v, u = (x.detach().float() for x in state)
    a, b = robot.torch().rollout(q, v, u, dt=5e-3)
    assert (a.dtype, b.dtype, a.requires_grad) == (torch.float32, torch.float32, False)
    u.requires_grad_()
    (g,) = torch.autograd.grad(robot.torch().rollout(q, v, u, dt=5e-3)[0].sum(), u)
    assert g.dtype == torch.float32


def test_second_derivatives_are_refused(robot, state):
    q, v, u = state
    a, _ = robot.torch().rollout(q, v, u, dt=5e-3)
    (g,) = torch.autograd.grad((a * a).sum(), q, create_graph=True)
    with pytest.raises(InputError, match="no second ones"):
        torch.autograd.grad(g.sum(), q)


def test_errors(robot, state):
    dyn, (q, v, u) = robot.torch(), state
    with pytest.raises(InputError, match="give steps="):
        dyn.rollout(q, v, dt=5e-3)
    with pytest.raises(InputError, match=r"q0 has shape \(3, 3\)"):
        dyn.rollout(torch.zeros(3, 3, dtype=torch.float64), v, u, dt=5e-3)
    with pytest.raises(InputError, match="computes in float64"):
        dyn.differentiable_rollout(u, dt=5e-3)(q.float(), v.float(), controls=u.float())
    with pytest.raises(InputError, match="none of them"):
        dyn.differentiable_rollout(u, dt=5e-3)(q, v, parameters=u)
    with pytest.raises(InputError, match="float16"):
        dyn.rollout(q.half(), v.half(), u.half(), dt=5e-3)
    with pytest.raises(InputError, match="do not fit together"):
        dyn.rollout(q, v[:2], u, dt=5e-3)


def test_a_change_in_place_is_noticed(robot, state):
    q, v, u = state
    held = u * 1.0
    a, _ = robot.torch().rollout(q, v, held, dt=5e-3)
    held += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        a.sum().backward()


def test_memory_grows_as_the_square_root_of_the_steps(robot):
    dyn, p = robot.torch(), torch.tensor([1.0, 0.2], dtype=torch.float64, requires_grad=True)
    q, peaks = torch.full((64, 2), 0.1, dtype=torch.float64), []
    for steps in (400, 1600, 6400):
        run = dyn.differentiable_rollout(law, parameters=p.detach(), dt=1e-4, steps=steps, record="end")
        run(q, q, parameters=p)[0].sum().backward()  # compiles
        gc.collect()
        tracemalloc.start()
        run(q, q, parameters=p)[0].sum().backward()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert all(y <= 2.1 * x for x, y in itertools.pairwise(peaks)), peaks  # four times the steps, twice the memory


def test_many_calls_keep_nothing(robot, state):
    dyn, u = robot.torch(), state[2]
    q, v = torch.zeros(64, 2, dtype=torch.float64), torch.ones(64, 2, dtype=torch.float64)

    def turn():
        dyn.rollout(q, v, u, dt=5e-3)[0].sum().backward()

    for _ in range(20):
        turn()
    gc.collect()
    tracemalloc.start()
    for _ in range(300):
        turn()
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 500_000  # bytes; the states of 300 runs are 3,700,000
