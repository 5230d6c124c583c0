"""Environments a second on one machine, beside MuJoCo's: python -m benchmarks.gym_env

The same robot, states, actions, step, integrator and number of steps, without contacts and limits:

- `qddot`: `qddot.gym.VectorEnv`, a whole step: actions, states, rewards, ends of episodes, observations.
- `mujoco.rollout`: MuJoCo's thread pool in C++, states and observations only: no rewards, no resets, each step from
  the same states. Contacts and all constraints are switched off.
- `Sync`, `Async`: Gymnasium's vector environments of its own InvertedDoublePendulum-v5, contacts as they come.

Before it measures, it compares the states of qddot and MuJoCo after a step. Contestants are interleaved; ratios are formed
within a round.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import qddot
from benchmarks import native
from benchmarks.mujoco_peer import to_mujoco
from qddot.gym import VectorEnv, traced

ROBOTS = {"cartpole2": ("rk4", 0.01, 5), "stanford": ("semi_implicit_euler", 0.002, 5)}  # integrator, time step, substeps
SEVERAL = 16  # environments of Gymnasium's own vectorisation, whose steps a second hardly depend on it


def loaded(name: str) -> tuple[qddot.Robot, object]:
    """The robot, and MuJoCo's model of it."""
    import gymnasium
    import mujoco

    if name == "cartpole2":
        path = Path(gymnasium.__file__).parent / "envs/mujoco/assets/inverted_double_pendulum.xml"
        robot, model = qddot.load(path), mujoco.MjModel.from_xml_path(str(path))
    else:
        robot = qddot.load(name)
        model = to_mujoco(robot.model)
    integrator, dt, _ = ROBOTS[name]
    kinds = {"rk4": mujoco.mjtIntegrator.mjINT_RK4, "semi_implicit_euler": mujoco.mjtIntegrator.mjINT_EULER}
    model.opt.integrator, model.opt.timestep = kinds[integrator], dt
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_CONTACT
    return robot, model


def environment(name: str, robot: qddot.Robot, envs: int) -> VectorEnv:
    integrator, dt, substeps = ROBOTS[name]
    return VectorEnv(
        robot,
        envs,
        dt=dt,
        substeps=substeps,
        integrator=integrator,
        actions=dict.fromkeys(robot.joint_names, (-5.0, 5.0)),
        reward=traced(lambda q, v, u: 1.0 - 0.01 * q[0] ** 2 - 1e-4 * v[0] ** 2),
        terminated=traced(lambda q, v: np.abs(q[0]) > 1e3),
        max_episode_steps=50,
        limits="ignore",
    )


def in_mujoco(name: str, model: object, envs: int, threads: int) -> Callable[..., np.ndarray]:
    """A step of many states by MuJoCo's rollout: (state, forces) -> state."""
    import mujoco
    from mujoco import rollout

    _, _, substeps = ROBOTS[name]
    pool, data = rollout.Rollout(nthread=threads), [mujoco.MjData(model) for _ in range(max(1, threads))]
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    out, sensors = np.empty((envs, substeps, size)), np.empty((envs, substeps, model.nsensordata))
    spec = mujoco.mjtState.mjSTATE_QFRC_APPLIED.value

    def step(state: np.ndarray, forces: np.ndarray) -> np.ndarray:
        control = np.ascontiguousarray(np.broadcast_to(forces[:, None], (envs, substeps, forces.shape[-1])))
        given = {"nstep": substeps, "state": out, "sensordata": sensors, "control_spec": spec}
        pool.rollout(model, data, state, control, **given)
        return out[:, -1].copy()

    return step


def agree(name: str, env: VectorEnv, step: Callable[..., np.ndarray], actions: np.ndarray) -> float:
    """The largest difference of states after a step from the same states."""
    n = env.robot.nq
    state = np.concatenate([np.zeros((env.num_envs, 1)), env.q, env.v], axis=-1)
    after = step(state, actions)
    env.step(actions)
    return float(max(np.max(np.abs(after[:, 1 : 1 + n] - env.q)), np.max(np.abs(after[:, 1 + n :] - env.v))))


def contestants(name: str, options: argparse.Namespace) -> dict[str, tuple[Callable[[], object], int]]:
    """A step of each by name, and how many environments it is of."""
    robot, model = loaded(name)
    env = environment(name, robot, options.envs)
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = env.action_space.sample()
    step = in_mujoco(name, model, options.envs, options.threads)
    off = agree(name, env, step, actions)
    assert off < 1e-9, f"{name}: states differ by {off}"
    state = np.concatenate([np.zeros((options.envs, 1)), env.q, env.v], axis=-1)
    print(f"{name}: states of qddot and MuJoCo differ by {off:.1g} after a step")

    out = {
        "qddot": (lambda: env.step(actions) is None, options.envs),
        "mujoco.rollout": (lambda: step(state, actions) is None, options.envs),
    }
    if name == "cartpole2" and not options.no_gymnasium:
        out |= gymnasiums()
    return out


def gymnasiums() -> dict[str, tuple[Callable[[], object], int]]:
    import gymnasium

    out = {}
    for kind in ("sync", "async"):
        env = gymnasium.make_vec("InvertedDoublePendulum-v5", SEVERAL, vectorization_mode=kind)
        env.reset(seed=0)
        actions = env.action_space.sample()
        out[kind] = (lambda env=env, actions=actions: env.step(actions) is None, SEVERAL)
    return out


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--envs", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--no-gymnasium", action="store_true", help="leave out Gymnasium's own environments")
    options = parser.parse_args(arguments)
    before = qddot.get_num_threads()
    qddot.set_num_threads(options.threads)
    print(f"{native.cpu().get('model name', '')}; {options.envs} environments, {options.threads} threads")
    found = {}
    try:
        for name in options.robots:
            found[name] = measured(contestants(name, options), options.rounds)
            rows = (f"{who} {rate:,.0f} steps/s ({found[name]['qddot'] / rate:.1f})" for who, rate in found[name].items())
            print(f"{name}: {'; '.join(rows)}")
    finally:
        qddot.set_num_threads(before)
    return found


def measured(turns: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, float]:
    """Environment steps a second: qddot's median, and the others by the median ratio of a round."""
    rates: dict[str, list[float]] = {who: [] for who in turns}
    for turn, _ in turns.values():
        turn()
    for _ in range(rounds):
        for who, (turn, envs) in turns.items():
            count, begin = 0, time.perf_counter()
            while (spent := time.perf_counter() - begin) < 0.1:
                turn()
                count += 1
            rates[who].append(count * envs / spent)
    own = statistics.median(rates["qddot"])
    pairs = {who: [a / b for a, b in zip(rates["qddot"], x, strict=True)] for who, x in rates.items()}
    return {who: own / statistics.median(x) for who, x in pairs.items()}


if __name__ == "__main__":
    main()
