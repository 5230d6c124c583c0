"""A simulation that is recorded while it runs: long ones show how far they are, and can be killed and called again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.errors import InputError
from qddot.simulation import drift, given
from qddot.simulation.recording import State, record
from qddot.simulation.rollout import Progress, Rollout
from qddot.simulation.trajectory import Trajectory

Array = NDArray[Any]


def record_simulation(
    robot: Any,
    directory: str | os.PathLike[str],
    q0: ArrayLike,
    v0: ArrayLike,
    controls: Any = None,
    *,
    dt: float,
    steps: int,
    integrator: str = "rk4",
    every: int = 1,
    chunk: int = 10_000,
    progress: bool | None = None,
    **options: Any,
) -> Trajectory:
    """`robot.simulate` into a folder, `chunk` steps at a time, keeping every `every`-th state; the arguments are the same.

    The same call goes on with a run that was interrupted or killed, and gives the bits of one that was not. Arrays, numbers
    and the robot are compared with what the folder was begun with; functions cannot be, and must be the same.
    """
    steps, every, chunk = (given.count(n, what) for n, what in ((steps, "steps"), (every, "every"), (chunk, "chunk")))
    if steps % every:
        raise InputError(f"every={every} does not divide the {steps} steps, so the end would not be recorded")
    rollout = Rollout(robot, controls, dt=dt, integrator=integrator, **options)
    start = rollout.start(q0, v0)

    def step_chunk(state: dict[str, Array]) -> tuple[State, Mapping[str, Any]]:
        begin = int(state["step"])
        count = min(chunk, steps - begin)
        after, q, v = rollout.run(Progress(begin, state["state"]), count, every, with_start=begin == 0)
        numbers = np.arange(-(-(begin + 1) // every) * every if begin else 0, begin + count + 1, every)
        rows = {"t": rollout.t0 + rollout.dt * numbers, "q": q, "v": v, "tau": rollout.forces_at(numbers, q, v)}
        return {**state, "step": after.step, "state": after.state}, {**rows, **drift(robot, q, v)}

    first = {
        "step": 0,
        "state": start.state,
        "held": rollout.held,
        **{f"free {k}": x for k, x in enumerate(rollout.values)},
    }
    info = {"integrator": integrator, "dt": rollout.dt, "steps": steps, "record": every, "chunk": chunk}
    batch = start.state.ndim - 1
    chunks = -(-steps // chunk)
    found = record(step_chunk, first, chunks, directory, robot=robot, info=info, batch_axes=batch, progress=progress)
    return found.trajectory(robot)
