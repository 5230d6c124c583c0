"""Steps of time a second on a card: simulations of different length, so that what is copied and compiled drops out."""

import time
from typing import Any

import numpy as np

import qddot
from qddot.simulation import Rollout

SAMPLES = {"cuda": 1 << 20, "cpu": 1 << 10}
STEPS = {"cuda": (200, 1200), "cpu": (20, 120)}
CHECKED = 64  # samples that are compared with the CPU, after so many steps:
CHECK_STEPS = 100
_ROUNDS = 3


def row(robot: qddot.Robot, integrator: str, target: str, dtype: str = "float32") -> dict[str, Any]:
    """Steps a second of all samples together, and how far a hundred steps are from the CPU's."""
    options = {"dt": 1e-3, "integrator": integrator, "dtype": dtype}
    rollout, here = Rollout(robot, target=target, **options), Rollout(robot, **options)
    q, v = robot.random_state(np.random.default_rng(0), CHECKED)
    begin = time.perf_counter()
    ends = [x.run(x.start(q, 0.1 * v), CHECK_STEPS, CHECK_STEPS)[0].state for x in (rollout, here)]
    first = time.perf_counter() - begin
    count = SAMPLES[target]
    start = rollout.start(*(np.resize(x, (count, x.shape[1])) for x in (q, 0.1 * v)))
    short, long = STEPS[target]
    seconds = min(_seconds(rollout, start, long) - _seconds(rollout, start, short) for _ in range(_ROUNDS))
    error = float(np.nanmax(np.abs(ends[0] - ends[1])))
    return {
        "integrator": integrator,
        "dtype": dtype,
        "samples": count,
        "seconds": seconds,
        "steps_per_second": count * (long - short) / seconds,
        "first_seconds": first,
        "deviation": error,
        "same_bits": bool(np.array_equal(*ends, equal_nan=True)),
    }


def _seconds(rollout: Rollout, start: Any, steps: int) -> float:
    begin = time.perf_counter()
    rollout.run(start, steps, steps)
    return time.perf_counter() - begin


def line(x: dict[str, Any]) -> str:
    """A row as text."""
    bits = "the CPU's bits" if x["same_bits"] else f"deviation {x['deviation']:.1e}"
    what = f"{x['robot']} steps of {x['integrator']}, {x['dtype']}, {x['samples']:,} samples"
    return f"{what}: {x['steps_per_second'] / 1e9:.3f} e9/s, {bits}, first run {x['first_seconds']:.1f} s"
