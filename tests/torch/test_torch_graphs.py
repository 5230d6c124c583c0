"""What PyTorch makes of the operation: compiled and exported graphs, maps, training loops."""

import copy
import shutil
import subprocess
import sys

import numpy as np
import pytest

from qddot.errors import InputError
from tests.support import torch_cases as cases
from tests.support.memory import resident
from tests.support.paths import ROOT
from tests.support.peers import peer

torch = peer("torch")

from torch.func import grad, jacrev, vmap  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()


def state(robot, *batch, seed=0):
    q, v = robot.random_state(seed, int(np.prod(batch, dtype=int)))
    return torch.from_numpy(q.reshape(*batch, -1)), torch.from_numpy(v.reshape(*batch, -1))


class Policy(torch.nn.Module):
    """A spring and the robot under it."""

    def __init__(self, dynamics):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(3.0, dtype=torch.float64))
        self.dynamics = dynamics

    def forward(self, q, v):
        return self.dynamics.forward_dynamics(q, v, -self.gain * q) + self.dynamics.center_of_mass(q).sum(-1, keepdim=True)


def compiled(f, backend="aot_eager", **options):
    return torch.compile(f, fullgraph=True, backend=backend, **options)


def test_compiled_forward_has_the_same_bits():
    robot = cases.hand()
    dynamics = robot.torch(free=("damping",))
    q, v = state(robot, 3)
    frame = robot.link_names[-1]

    def f(q, v, damping):
        a, tau = dynamics.hybrid_dynamics(q, v, v, v, prescribed=["knuckle"], damping=damping)
        return a + tau + dynamics.inverse_dynamics(q, v, a, {frame: a[..., :1].expand(*a.shape[:-1], 6)}), dynamics.pose(
            dynamics.normalize(q), frame
        )

    damping = torch.ones(robot.nv, dtype=torch.float64)
    for ours, theirs in zip(compiled(f)(q, v, damping), f(q, v, damping), strict=True):
        assert torch.equal(ours, theirs)


def test_compiled_gradients_have_the_same_bits():
    robot = cases.arm()
    q, v = state(robot, 4)
    eager, traced = (Policy(robot.torch()) for _ in range(2))
    eager(q, v).square().sum().backward()
    compiled(traced)(q, v).square().sum().backward()
    torch.testing.assert_close(traced.gain.grad, eager.gain.grad, rtol=1e-14, atol=0.0)
    x, y = (q.clone().requires_grad_() for _ in range(2))
    eager(x, v).sum().backward()
    compiled(traced)(y, v).sum().backward()
    torch.testing.assert_close(y.grad, x.grad, rtol=1e-14, atol=1e-14)


def test_compiled_for_any_batch():
    robot = cases.arm()
    dynamics = robot.torch()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    f = compiled(lambda q, v: 2.0 * dynamics.inverse_dynamics(q, v, v), counter, dynamic=True)
    for n in (2, 3, 5, 8):
        q, v = state(robot, n)
        assert torch.equal(f(q, v), 2.0 * dynamics.inverse_dynamics(q, v, v))
    assert counter.frame_count == 1


def test_compiled_maps():
    robot = cases.arm()
    dynamics = robot.torch()
    q, v = state(robot, 3)
    f = vmap(vmap(dynamics.inverse_dynamics, (None, 0, 0)), (0, None, None))
    assert torch.equal(compiled(f)(q, v, v), f(q, v, v))


def test_compiled_with_loops():
    robot = cases.fourbar()
    dynamics = robot.torch()
    q, v = (torch.from_numpy(x) for x in cases.states(robot, (3,), np.random.default_rng(0)))
    a = dynamics.forward_dynamics(q, v, v)
    for name, given in (("constrained_forward_dynamics", (q, v, v)), ("inverse_dynamics", (q, v, a))):
        f = getattr(dynamics, name)
        for x, y in zip(compiled(lambda *args, f=f: f(*args))(*given), f(*given), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-12)  # sums of several kinds of kernels


def test_a_wrong_call_is_an_error_while_compiling():
    dynamics = cases.arm().torch()
    with pytest.raises(Exception, match="q has shape"):
        compiled(lambda q: dynamics.gravity_force(q) + 1.0)(torch.zeros(5))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile's own backend needs a C++ compiler")
def test_compiled_by_inductor(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    robot = cases.arm()
    q, v = state(robot, 4)
    policy = Policy(robot.torch())
    expected = policy(q, v)
    ours = compiled(policy, "inductor")(q, v)
    torch.testing.assert_close(ours, expected, rtol=1e-13, atol=1e-13)  # its own products and sums are fused
    ours.sum().backward()
    assert policy.gain.grad.isfinite()


# ---- export ----------------------------------------------------------------------------------------------------------


LOADED = """
import sys, numpy, torch, qddot
qddot.load(sys.argv[3]).torch()
program = torch.export.load(sys.argv[1]).module()
data = numpy.load(sys.argv[2])
q, v = torch.from_numpy(data["q"]), torch.from_numpy(data["v"])
result = program(q, v)
assert numpy.array_equal(result.detach().numpy(), data["a"]), "other bits"
result.sum().backward()
numpy.testing.assert_allclose(program.gain.grad, data["slope"], rtol=1e-14)
print("the same")
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """An exported program of the arm, its inputs and results."""
    folder, robot = tmp_path_factory.mktemp("exported"), cases.arm()
    policy, (q, v) = Policy(robot.torch()), state(robot, 4)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(policy, (q, v), dynamic_shapes=({0: batch}, {0: batch}))
    torch.export.save(program, folder / "policy.pt2")
    q, v = state(robot, 7, seed=1)
    a = policy(q, v)
    a.sum().backward()
    np.savez(folder / "state.npz", q=q, v=v, a=a.detach().numpy(), slope=policy.gain.grad)
    return folder / "policy.pt2", folder / "state.npz"


def loaded(files, robot):
    command = [sys.executable, "-c", LOADED, *map(str, files), robot]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_exported_programs_run_in_another_process(exported):
    """With the batch that they are given, and with gradients."""
    done = loaded(exported, "puma560")
    assert done.stdout.strip() == "the same", done.stderr


def test_exported_programs_name_the_robot_that_is_missing(exported):
    done = loaded(exported, "scara")
    for part in ("of a robot that this process does not know", "make qddot.torch.Dynamics(robot)", "it knows 'scara'"):
        assert part in done.stderr


# ---- maps ------------------------------------------------------------------------------------------------------------


def test_maps_move_axes():
    """Any axis, of any of the inputs, and maps of maps: one call of the kernel, with the bits of NumPy."""
    robot = cases.arm()
    dynamics = robot.torch()
    q, v = state(robot, 3)
    a = torch.randn(4, 6, 2, dtype=torch.float64)
    ours = vmap(lambda q, v: vmap(lambda a: dynamics.inverse_dynamics(q, v, a), 1)(a[0]))(q, v)
    expected = robot.inverse_dynamics(q[:, None].numpy(), v[:, None].numpy(), a[0].T.numpy())
    np.testing.assert_array_equal(ours, expected)
    ours = vmap(dynamics.inverse_dynamics, (0, 0, None), 1)(q, v, a.movedim(1, -1))
    expected = robot.inverse_dynamics(q.numpy(), v.numpy(), a.movedim(1, -1).numpy()[:, :, None])
    np.testing.assert_array_equal(ours, np.moveaxis(expected, 2, 1))


def test_jacobians_are_those_of_numpy():
    robot = cases.arm()
    dynamics = robot.torch()
    q, v = state(robot, 5)
    ours = vmap(jacrev(dynamics.inverse_dynamics, (0, 1, 2)))(q, v, v)
    d = robot.inverse_dynamics_derivatives(q.numpy(), v.numpy(), v.numpy())
    for x, y in zip(ours, (d.dq, d.dv, d.da), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10)
    whole = grad(lambda v: dynamics.kinetic_energy(q, v).sum())(v)
    np.testing.assert_allclose(whole, (robot.mass_matrix(q.numpy()) @ v.numpy()[..., None])[..., 0], rtol=1e-12, atol=1e-12)


def test_old_maps_are_refused_by_name():
    dynamics = cases.arm().torch()
    q = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    y = dynamics.gravity_force(q)
    with pytest.raises(InputError, match=r"torch\.func"):
        torch.autograd.grad(y, q, torch.eye(6, dtype=torch.float64), is_grads_batched=True)


# ---- training --------------------------------------------------------------------------------------------------------


def grown(count):
    """By how many bytes the process grows in so many steps of training."""
    robot = cases.arm()
    dynamics = robot.torch(free=("mass",))
    q, v = state(robot, 4)
    mass = torch.from_numpy(robot.parameters("mass")).requires_grad_()
    optimiser = torch.optim.Adam([mass], lr=1e-3)

    def train(steps):
        for _ in range(steps):
            optimiser.zero_grad()
            dynamics.inverse_dynamics(q, v, v, mass=mass).square().mean().backward()
            optimiser.step()

    train(200)
    before = resident()
    train(count)
    return resident() - before


def test_training_leaks_nothing():
    """A tenth of the long version: less than 2 MB, of which 1,000 steps of 4 tensors of 200 bytes would be 0.8."""
    assert grown(1000) < 2 << 20


@pytest.mark.slow
def test_training_leaks_nothing_in_10_000_steps():
    assert grown(10_000) < 20 << 20


def test_a_copy_of_a_module_works():
    robot = cases.arm()
    q, v = state(robot, 2)
    policy = Policy(robot.torch())
    assert torch.equal(copy.deepcopy(policy)(q, v), policy(q, v))


def test_threads_share_programs():
    from concurrent.futures import ThreadPoolExecutor

    robot = cases.tree(3, 11)
    dynamics = robot.torch()
    q, v = state(robot, 50)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: dynamics.forward_dynamics(q + 0.0 * k, v, v), range(8)))
    assert all(torch.equal(x, found[0]) for x in found)
