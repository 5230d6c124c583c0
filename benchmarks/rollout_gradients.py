"""A rollout of 200 steps and its gradient, beside the rollout alone: python -m benchmarks.rollout_gradients [--robot NAME]

One thread, interleaved in one process; the least processor time of the rounds, of the thread, so that what others do on the
machine matters little. `gradient` is `run.vjp` with respect to start and controls, or the weights of a policy; `ratio` is
(run that keeps checkpoints + gradient) / (the same rollout by `Rollout.run`). With `record=1` every state is recorded.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import qddot
from qddot.simulation import Rollout

STEPS, DT, HIDDEN = 200, 1e-3, 32
CASES = (
    ("puma560", "semi_implicit_euler", 2048),
    ("puma560", "rk4", 256),
    ("double_pendulum", "rk4", 512),
    ("quadruped", "semi_implicit_euler", 1024),
    ("quadruped", "rk4", 512),
    ("policy", "rk4", 128),
)


def policy(t: Any, q: Any, v: Any, p: Any) -> Any:
    x = np.concatenate([np.sin(q), np.cos(q), v])
    n = 6 * HIDDEN
    return p[n + HIDDEN :].reshape(2, HIDDEN) @ np.tanh(p[:n].reshape(HIDDEN, 6) @ x + p[n : n + HIDDEN])


def ways(name: str, integrator: str, samples: int, record: int) -> tuple[list[Callable[[], Any]], float]:
    """The rollout, the same that can be differentiated, its gradient; and operations of a step backwards over a step's."""
    robot, rng = qddot.load("double_pendulum" if name == "policy" else name, passive_forces=False), np.random.default_rng(0)
    q0, v0 = robot.random_state(rng, samples)
    given: dict[str, Any] = {"dt": DT, "integrator": integrator}
    controls: Any = np.zeros((STEPS, robot.nv))
    if name == "policy":
        controls, given["parameters"] = policy, 0.1 * rng.standard_normal(9 * HIDDEN)
    rollout = robot.differentiable_rollout(controls, steps=STEPS, record=record, **given)
    plain = Rollout(robot, controls, **given)
    start, run = plain.start(q0, 0.1 * v0), rollout(q0, 0.1 * v0)
    bar = rng.standard_normal(run.q.shape)
    ratio = rollout.instructions_backwards / rollout.instructions
    return [lambda: plain.run(start, STEPS, record), lambda: rollout(q0, 0.1 * v0), lambda: run.vjp(bar)], ratio


def measured(turns: list[Callable[[], Any]], rounds: int) -> list[float]:
    least = [np.inf] * len(turns)
    for turn in turns:
        turn()  # compiles
    for _ in range(rounds):
        for k, turn in enumerate(turns):
            begin = time.thread_time()
            turn()
            least[k] = min(least[k], time.thread_time() - begin)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", help="only this one")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    qddot.set_num_threads(1)
    print("robot            integrator           samples  record  rollout  with checkpoints  gradient    ratio  operations")
    for name, integrator, samples in CASES:
        if options.robot not in (None, name):
            continue
        for record in (1, STEPS):
            turns, operations = ways(name, integrator, samples, record)
            plain, forward, back = (1e3 * x for x in measured(turns, options.rounds))
            print(
                f"{name:<16} {integrator:<20} {samples:>7} {record:>7} {plain:>6.2f}ms {forward:>15.2f}ms {back:>7.2f}ms"
                f" {(forward + back) / plain:>8.2f} {operations:>11.2f}"
            )


if __name__ == "__main__":
    main()
