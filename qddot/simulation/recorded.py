"""Folders of runs: simulations that are recorded while they run, and trajectories that are saved as a whole."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.dynamics.engine import HasEngine
from qddot.dynamics.input_checks import count
from qddot.errors import InputError, RecordingError
from qddot.simulation import limits, stiffness
from qddot.simulation.after_run import drift
from qddot.simulation.archive import packed
from qddot.simulation.arguments import RolloutOptions
from qddot.simulation.rollout import Progress
from qddot.simulation.run_folder import CHANNEL, Recording, RecordOptions, State, record
from qddot.simulation.simulate import made
from qddot.simulation.trajectory import Trajectory

Array = NDArray[Any]

_ROWS = 20_000  # times in one chunk of a saved trajectory


class RecordedOptions(RolloutOptions, total=False):
    """The options of `record_simulation`: those of a rollout, and three more."""

    every: int
    chunk: int
    progress: bool | None


def record_simulation(
    robot: HasEngine,
    directory: str | os.PathLike[str],
    q0: ArrayLike,
    v0: ArrayLike,
    controls: Any = None,
    *,
    dt: float,
    steps: int,
    **options: Unpack[RecordedOptions],
) -> Trajectory:
    """`robot.simulate` into a folder; the arguments are the same, and three more.

    `chunk` steps (10,000) are computed at a time; every `every`-th state is kept (1); `progress` says how far it is (None:
    as `qddot.set_progress` has it).

    The same call goes on with a run that was interrupted or killed, and gives the bits of one that was not. Everything that
    a result depends on is compared with what the folder was begun with, functions by their operations.
    """
    progress, integrator = options.pop("progress", None), options.pop("integrator", "rk4")
    steps = count(steps, "steps")
    every, chunk = count(options.pop("every", 1), "every"), count(options.pop("chunk", 10_000), "chunk")
    if steps % every:
        raise InputError(f"every={every} does not divide the {steps} steps, so the end would not be recorded")
    rollout = made(robot, controls, dt=dt, integrator=integrator, **options)
    driven = tuple(rollout.plan.motion or ())
    start = rollout.start(q0, v0)
    stiffness.warn(rollout, start)
    rollout.fits_in_memory(steps // every + 1, start, "keep fewer states, every=…")

    def step_chunk(state: dict[str, Array]) -> tuple[State, Mapping[str, Any]]:
        step, last = state["step"], state["state"]
        fits = step.shape == () and step.dtype.kind == "i" and 0 <= int(step) < steps
        if not fits or (last.shape, last.dtype) != (start.state.shape, start.state.dtype):  # a stranger's file
            raise RecordingError(f"{directory}: its last state is not one of this run; give another folder")
        begin = int(step)
        count = min(chunk, steps - begin)
        after, q, v = rollout.run(Progress(begin, last), count, every, with_start=begin == 0)
        numbers = np.arange(-(-(begin + 1) // every) * every if begin else 0, begin + count + 1, every)
        rows = {"t": rollout.t0 + rollout.dt * numbers, "q": q, "v": v, "tau": rollout.forces_at(numbers, q, v)}
        if "limits" not in options:
            limits.warn_outside(robot.engine, q, rows["tau"])
        return {**state, "step": after.step, "state": after.state}, {**rows, **drift(robot.engine, q, v, driven)}

    first = {
        "step": 0,
        "state": start.state,
        "held": rollout.held,
        **({"parameters": rollout.weights} if rollout.weights.shape[-1] else {}),
        **{f"free {k}": x for k, x in enumerate(rollout.values)},
    }
    info = {"integrator": integrator, "dt": rollout.dt, "steps": steps, "record": every, "chunk": chunk}
    info |= rollout.plan.limits.facts
    batch = start.state.ndim - 1
    chunks = -(-steps // chunk)
    given_as: RecordOptions = {"robot": robot, "info": info, "run_of": rollout.identity, "batch_axes": batch}
    given_as["progress"] = progress
    found = record(step_chunk, first, chunks, directory, **given_as)
    return found.trajectory(robot)


def save(trajectory: Trajectory, directory: Path, overwrite: bool = False) -> Path:
    """Writes a trajectory as a recorded run. Called again after a crash it goes on.

    Another run in the folder is refused, or with `overwrite` replaced, once the new one is complete.
    """
    if not (overwrite and Recording(directory).exists):
        return _save(trajectory, directory)
    fresh, old = (directory.with_name(f".{directory.name}.{uuid.uuid4().hex}.{what}") for what in ("new", "old"))
    try:
        _save(trajectory, fresh)
        directory.rename(old)
        fresh.rename(directory)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    return directory


def _save(trajectory: Trajectory, directory: Path) -> Path:
    axis = len(trajectory.batch)
    arrays = {n: getattr(trajectory, n) for n in ("t", "q", "v", "a", "tau") if getattr(trajectory, n) is not None}
    arrays |= {CHANNEL + n: x for n, x in trajectory.channels.items()}
    content = np.frombuffer(hashlib.sha256(packed(arrays)).digest(), dtype=np.uint8)

    def rows(state: dict[str, Array]) -> tuple[State, dict[str, Array]]:
        k = int(state["row"])
        part = {n: x[(slice(None),) * (0 if n == "t" else axis) + (slice(k, k + _ROWS),)] for n, x in arrays.items()}
        return {"row": k + _ROWS, "content": content}, part

    chunks = -(-len(trajectory) // _ROWS)
    first = {"row": 0, "content": content}
    record(rows, first, chunks, directory, robot=trajectory.robot, info=trajectory.info, batch_axes=axis, progress=False)
    return directory
