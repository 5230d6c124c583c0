"""Dynamics and gradients in PyTorch and JAX beside the NumPy kernel, frax and adam: `python -m benchmarks.frameworks`.

One thread, float64, the same file, states and batch for all, on the processor; turns of some milliseconds are interleaved
in one process, and the least time of a call counts: let nothing else run. Results are compared before anything is timed: a
contestant with another result is left out, and said to be. `gradient` is that of the sum of squares of forward dynamics
with respect to q, v and tau, the forward call included. `small` is one state: what a call costs by itself. frax and adam
are optional: pip install frax adam-robotics.
"""

import argparse
import importlib
import os
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import numpy as np

import qddot
from benchmarks import cases

TASKS = ("rnea", "aba", "gradient")
FRAX_FILES = {"panda7": ("franka_panda", "panda.urdf"), "g1-fixed": ("unitree_g1", "g1_29dof_rev_1_0.urdf")}
TOLERANCE = 1e-8  # of the largest entry: sums in another order, through an ill-conditioned mass matrix


class Contestant(NamedTuple):
    """What computes, and its functions of one batch by task; they return NumPy's arrays, but for `gradient`."""

    name: str
    tasks: dict[str, Callable[[], Any]]


class Robot(NamedTuple):
    """One robot for all, with states."""

    robot: qddot.Robot
    path: str
    q: np.ndarray
    v: np.ndarray
    tau: np.ndarray


def robot(name: str, states: int) -> Robot:
    """From frax's own file where it is there, so that frax has it too."""
    if name in FRAX_FILES and find_spec("frax") is not None:
        assets = importlib.import_module("frax.assets")
        path = os.path.join(os.path.dirname(assets.__file__), *FRAX_FILES[name])
        found = qddot.load(path, passive_forces=False)
        without_rotors = found.with_parameters({"armature": np.zeros(found.nv)})
    else:
        path, without_rotors = "", cases.case(name, 1).robot
    rng = np.random.default_rng(0)
    q, v = without_rotors.random_state(rng, states)
    return Robot(without_rotors, path, q, v, rng.standard_normal((states, without_rotors.nv)))


# ---- contestants -------------------------------------------------------------------------------------------------------


def numpy_kernels(x: Robot) -> Contestant:
    rnea, aba = (x.robot.kernel(f"{which}_dynamics") for which in ("inverse", "forward"))
    return Contestant("NumPy kernel", {"rnea": lambda: rnea(x.q, x.v, x.tau), "aba": lambda: aba(x.q, x.v, x.tau)})


def torch_operation(x: Robot) -> Contestant:
    import torch

    torch.set_num_threads(1)
    dynamics = x.robot.torch()
    q, v, tau = (torch.from_numpy(y) for y in (x.q, x.v, x.tau))
    leaves = [y.clone().requires_grad_() for y in (q, v, tau)]

    def gradient() -> Any:
        loss = dynamics.forward_dynamics(*leaves).square().sum()
        return torch.autograd.grad(loss, leaves)

    return Contestant(
        "qddot.torch",
        {
            "rnea": lambda: dynamics.inverse_dynamics(q, v, tau).numpy(),
            "aba": lambda: dynamics.forward_dynamics(q, v, tau).numpy(),
            "gradient": gradient,
        },
    )


def jax_operation(x: Robot) -> Contestant:
    import jax

    jax.config.update("jax_enable_x64", True)
    dynamics = x.robot.jax()
    q, v, tau = (jax.numpy.asarray(y) for y in (x.q, x.v, x.tau))
    rnea, aba = jax.jit(dynamics.inverse_dynamics), jax.jit(dynamics.forward_dynamics)
    slope = jax.jit(jax.grad(lambda *given: (dynamics.forward_dynamics(*given) ** 2).sum(), (0, 1, 2)))
    return Contestant(
        "qddot.jax",
        {
            "rnea": lambda: np.asarray(rnea(q, v, tau)),
            "aba": lambda: np.asarray(aba(q, v, tau)),
            "gradient": lambda: jax.block_until_ready(slope(q, v, tau)),
        },
    )


def frax(x: Robot) -> Contestant:
    if not x.path:
        raise ImportError("no robot of frax's own")
    import jax

    jax.config.update("jax_enable_x64", True)
    gravity = jax.numpy.asarray([0.0, 0.0, 9.81, 0.0, 0.0, 0.0])  # upward, of the base, as its own functions have it
    core = importlib.import_module("frax.core.robot")
    theirs = core.Robot(x.path, joint_ordering=list(x.robot.joint_names))
    q, v, tau = (jax.numpy.asarray(y) for y in (x.q, x.v, x.tau))

    def forward(q: Any, v: Any, tau: Any) -> Any:
        return theirs.forward_dynamics(q, v, tau, None)

    def loss(q: Any, v: Any, tau: Any) -> Any:
        return (jax.vmap(forward)(q, v, tau) ** 2).sum()

    def inverse(q: Any, v: Any, a: Any) -> Any:
        return theirs.rnea(q, v, a, gravity, None)

    rnea, aba = (jax.jit(jax.vmap(f)) for f in (inverse, forward))
    slope = jax.jit(jax.grad(loss, (0, 1, 2)))
    return Contestant(
        "frax (JAX, jit)",
        {
            "rnea": lambda: np.asarray(rnea(q, v, tau)),
            "aba": lambda: np.asarray(aba(q, v, tau)),
            "gradient": lambda: jax.block_until_ready(slope(q, v, tau)),
        },
    )


def adam(x: Robot) -> Contestant:
    if not x.path:
        raise ImportError("no file for it")
    import torch

    batch = importlib.import_module("adam.pytorch.computation_batch")
    gravity = torch.tensor([*x.robot.model.gravity, 0.0, 0.0, 0.0], dtype=torch.float64)
    theirs = batch.KinDynComputationsBatch(
        x.path, list(x.robot.joint_names), torch.device("cpu"), torch.float64, gravity=gravity
    )
    q, v, tau = (torch.from_numpy(y) for y in (x.q, x.v, x.tau))
    base = torch.eye(4, dtype=torch.float64).expand(len(q), 4, 4)
    still = torch.zeros(len(q), 6, dtype=torch.float64)
    leaves = [y.clone().requires_grad_() for y in (q, v, tau)]

    def parts(q: Any, v: Any) -> tuple[Any, Any]:
        n = 6 + q.shape[-1]  # a batch of one comes back without its axis
        M, bias = theirs.mass_matrix(base, q).reshape(-1, n, n), theirs.bias_force(base, q, still, v).reshape(-1, n)
        return M[:, 6:, 6:], bias[:, 6:]

    def inverse() -> Any:
        M, bias = parts(q, v)
        return (M @ tau[..., None])[..., 0] + bias

    def forward(q: Any, v: Any, tau: Any) -> Any:
        M, bias = parts(q, v)
        return torch.linalg.solve(M, tau - bias)

    return Contestant(
        "adam (PyTorch)",
        {
            "rnea": lambda: inverse().numpy(),
            "aba": lambda: forward(q, v, tau).numpy(),
            "gradient": lambda: torch.autograd.grad(forward(*leaves).square().sum(), leaves),
        },
    )


CONTESTANTS = (numpy_kernels, torch_operation, jax_operation, frax, adam)
TURN_SECONDS = 5e-3


# ---- measuring -----------------------------------------------------------------------------------------------------------


def entered(x: Robot) -> Iterator[Contestant]:
    """Those that are installed and right."""
    expected: dict[str, np.ndarray] = {}
    for make in CONTESTANTS:
        try:
            found = make(x)
        except Exception as error:  # one that is not there, or that cannot read the file
            print(f"  {make.__name__} is left out: {type(error).__name__}: {error}")
            continue
        wrong = [task for task, run in found.tasks.items() if task != "gradient" and not _agrees(run(), task, expected)]
        slopes = found.tasks["gradient"]() if "gradient" in found.tasks else None
        if slopes is not None:
            flat = np.concatenate([np.asarray(y).reshape(len(x.q), -1) for y in slopes], axis=-1)
            wrong += [] if _agrees(flat, "gradient", expected) else ["gradient"]
        if wrong:
            print(f"  {found.name} is left out of {', '.join(wrong)}: its results differ")
        yield found._replace(tasks={task: run for task, run in found.tasks.items() if task not in wrong})


def _agrees(result: np.ndarray, task: str, expected: dict[str, np.ndarray]) -> bool:
    """With the first contestant that has this task."""
    other = expected.setdefault(task, result)
    return bool(np.abs(result - other).max() <= TOLERANCE * np.abs(other).max())


def measured(turns: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Seconds of a call of each, in interleaved turns."""
    least, counts = [np.inf] * len(turns), []
    for turn in turns:
        turn()
        begin = time.perf_counter()
        turn()
        counts.append(max(1, int(TURN_SECONDS / (time.perf_counter() - begin))))
    for _ in range(rounds):
        for k, turn in enumerate(turns):
            turn()  # its arrays are in the caches again
            begin = time.perf_counter()
            for _ in range(counts[k]):
                turn()
            least[k] = min(least[k], (time.perf_counter() - begin) / counts[k])
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", default="panda7", help="panda7, g1-fixed, ur5, …")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    qddot.set_num_threads(1)
    for batch, unit in ((options.batch, 1e9 / options.batch), (1, 1e6)):
        print(f"{options.robot}, batch {batch}: {'ns a state' if batch > 1 else 'µs a call'}, and times the NumPy kernel's")
        contestants = list(entered(robot(options.robot, batch)))
        for task in TASKS:
            own = [(c.name, c.tasks[task]) for c in contestants if task in c.tasks]
            times = measured([run for _, run in own], options.rounds)
            shown = [f"{name} {unit * t:.1f} ({t / times[0]:.2f})" for (name, _), t in zip(own, times, strict=True)]
            print(f"  {task:<10} {'   '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
