"""A policy that swings a cart-pole up and balances it, trained through the simulation: python examples/swing_up.py

The policy, 385 weights, is a control law, so it is compiled into the time loop with the dynamics; `run.vjp` gives the exact
gradient of the cost with respect to its weights. A minute or two on two cores. `--picture FILE` draws what it does.
"""

import argparse
import itertools
import time

import numpy as np

import qddot
from qddot.joints import Prismatic, Revolute

DT, FORCE = 0.02, 10.0  # s, N
SIZES = (5, 16, 16, 1)  # of the layers
WEIGHTS = sum(m * (n + 1) for n, m in itertools.pairwise(SIZES))
STAGES = ((50, 200), (100, 300), (200, 500))  # steps of a rollout, updates: long ones when the short ones are learnt
INTEGRATOR = "semi_implicit_euler"


def cart_pole():
    """A cart of 1 kg on a rail, and a pole of 0.1 kg and 1 m that hangs from it at q = 0."""
    b = qddot.Builder("cart_pole")
    b.link("cart", mass=1.0)
    b.link("pole", mass=0.1, com=(0.0, 0.0, -0.5), inertia=np.diag([0.1 / 12.0, 0.1 / 12.0, 1e-5]))
    b.joint("slider", "world", "cart", Prismatic((1.0, 0.0, 0.0)), damping=0.1)
    b.joint("hinge", "cart", "pole", Revolute((0.0, 1.0, 0.0)), damping=0.002)
    return b.robot()


def policy(t, q, v, p):
    """The force on the cart; a network of tanh, its weights side by side in p."""
    x, at = np.stack([q[0], np.sin(q[1]), -np.cos(q[1]), 0.5 * v[0], 0.2 * v[1]]), 0
    for n, m in itertools.pairwise(SIZES):
        W, b = p[at : at + m * n].reshape(m, n), p[at + m * n : at + m * (n + 1)]
        x, at = np.tanh(W @ x + b), at + m * (n + 1)
    return [FORCE * x[0], 0.0]


def cost(t, q, v, tau):
    """Of a step: the pole upright, the cart in the middle, both at rest up there, and little force."""
    up = 0.5 * (1.0 - np.cos(q[1]))  # 0 where it hangs, 1 upright
    return DT * (2.0 * (1.0 - up) + 0.2 * q[0] ** 2 + 0.02 * v[0] ** 2 + 0.01 * up * v[1] ** 2 + 5e-4 * tau[0] ** 2)


def initial_weights(rng):
    """Random, the last layer small, so that the cart begins gently."""
    parts = []
    for n, m in itertools.pairwise(SIZES):
        parts += [rng.standard_normal(m * n) / np.sqrt(n) * (0.3 if m == 1 else 1.0), np.zeros(m)]
    return np.concatenate(parts)


def starts(rng, count):
    """From anywhere, moving; a quarter of them nearly hanging still."""
    q = np.stack([rng.uniform(-1.0, 1.0, count), rng.uniform(-np.pi, np.pi, count)], axis=-1)
    v = rng.standard_normal((count, 2)) * [0.5, 3.0]
    few = count // 4
    q[:few, 1], v[:few] = 0.2 * rng.standard_normal(few), 0.1 * v[:few]
    return q, v


def train(robot, stages=STAGES, samples=128, seed=0, rate=0.01, clip=5.0):
    """The weights after all stages, by Adam, and the mean cost a second at each update."""
    rng = np.random.default_rng(seed)
    p, history, done, updates = initial_weights(rng), [], 0, sum(n for _, n in stages)
    mean, square = np.zeros(WEIGHTS), np.zeros(WEIGHTS)
    for steps, count in stages:
        given = {"dt": DT, "steps": steps, "integrator": INTEGRATOR, "record": "end", "cost": cost}
        rollout = robot.differentiable_rollout(policy, parameters=p, **given)
        for _ in range(count):
            run = rollout(*starts(rng, samples), parameters=np.broadcast_to(p, (samples, WEIGHTS)))
            each = run.vjp(cost_bar=np.ones(samples)).parameters  # one gradient a sample: none may outweigh the others
            size = np.linalg.norm(each, axis=-1, keepdims=True)
            gradient = np.mean(each * np.minimum(1.0, clip / size), axis=0)
            done += 1
            mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
            step = mean / (1.0 - 0.9**done) / (np.sqrt(square / (1.0 - 0.99**done)) + 1e-8)
            p = p - rate * (1.0 - 0.9 * done / updates) * step
            history.append(run.cost.mean() / (steps * DT))
        print(f"{done:>5} updates, rollouts of {steps * DT:g} s: cost {np.mean(history[-20:]):.3f} a second", flush=True)
    return p, np.array(history)


def tried(robot, p, count=256, seconds=8.0):
    """Simulations from rest, half of them hanging, half at any angle, with all states."""
    rng = np.random.default_rng(9)
    q = np.stack([rng.uniform(-0.5, 0.5, count), rng.uniform(-np.pi, np.pi, count)], axis=-1)
    q[: count // 2, 1] = 0.1 * rng.standard_normal(count // 2)
    steps = round(seconds / DT)
    return robot.simulate(q, np.zeros((count, 2)), policy, parameters=p, dt=DT, steps=steps, integrator=INTEGRATOR)


def balanced(run):
    """Of each sample, whether the pole was upright and the cart near the middle in the last second."""
    last = run.q[:, -round(1.0 / DT) :]
    return np.all((np.cos(last[..., 1]) < -0.95) & (np.abs(last[..., 0]) < 0.5), axis=-1)


def draw(robot, history, run, file):
    """The cost while it learns, and what the pole and the cart do from hanging."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "qddot"
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    left.plot(history, lw=0.6)
    left.set(xlabel="update", ylabel="cost a second", title="training", ylim=(0.0, 2.5))
    for x in run.q[:12]:
        middle.plot(run.t, np.degrees(np.sign(x[-1, 1]) * x[:, 1]), lw=0.8)
        right.plot(run.t, x[:, 0], lw=0.8)
    middle.axhline(180.0, color="gray", lw=0.5)
    middle.set(xlabel="t, s", ylabel="pole, degrees (180 is upright)", title="from hanging")
    right.set(xlabel="t, s", ylabel="cart, m", title="from hanging")
    figure.savefig(file, metadata={"Date": None} if str(file).endswith("svg") else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    robot, begin = cart_pole(), time.perf_counter()
    p, history = train(robot, seed=options.seed)
    run = tried(robot, p)
    good = balanced(run).mean()
    print(f"{WEIGHTS} weights, {time.perf_counter() - begin:.0f} s; {good:.0%} of {len(run.q)} starts end upright")
    if options.picture:
        draw(robot, history, run, options.picture)
    assert good > 0.9


if __name__ == "__main__":
    main()
