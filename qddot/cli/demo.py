"""The command `qddot demo`: three robots in time, how well and how fast they are computed, and where to see them."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot import robots
from qddot.compiler.runtime.threads import get_num_threads
from qddot.errors import QddotError
from qddot.robot import Robot
from qddot.robot.identities import Identity, identities
from qddot.robot.load import load
from qddot.scalars import sin
from qddot.simulation import Rollout, Trajectory, controls, forces
from qddot.simulation.after_run import drift
from qddot.simulation.run_folder import Recording

Array = NDArray[Any]

HELP = "Simulates three robots, says how well and how fast, saves them."
BATCH = 256  # simulations at a time
_MADE_BY = "qddot demo"


@dataclass(frozen=True)
class Scene:
    """A robot, what drives it, where it begins, and what shows that the result is right."""

    name: str
    title: str
    robot: Robot
    rollout: Callable[[Robot], Rollout]
    q: Array
    v: Array
    steps: int
    every: int
    verdict: Callable[[Trajectory], str]
    force: Callable[..., Array] | None = None


@dataclass(frozen=True)
class Row:
    """One scene, computed: what it shows, and how fast it was."""

    name: str
    title: str
    dof: int
    simulated_seconds: float
    steps: int
    verdict: str
    ready_seconds: float
    steps_a_second: float
    batch_steps_a_second: float
    times_eager: float


# ---- the scenes ------------------------------------------------------------------------------------------------------


def arm() -> Scene:
    """A PUMA 560 with friction and rotors that follows sines by computed torque."""
    robot = load("puma560")

    def reference(t: Any) -> list[Any]:
        return [
            0.9 * sin(1.5 * t),
            0.5 * sin(2.0 * t) - 0.8,
            0.6 * sin(2.5 * t),
            sin(3.0 * t),
            0.8 * sin(2.0 * t),
            sin(4.0 * t),
        ]

    q = np.array([float(x) for x in reference(0.0)])
    v = np.array([1.35, 1.0, 1.5, 3.0, 1.6, 4.0])
    law = controls.computed_torque(robot, reference, kp=400.0, kd=40.0)

    def verdict(x: Trajectory) -> str:
        wanted = np.array([reference(t) for t in x.t])
        error = np.max(np.abs(x.q - wanted))
        return f"follows its sines to {error:.0e} rad; energy drifts from the work done by {_unbalanced(x):.0e}"

    title = "PUMA 560 under computed torque"
    return Scene("arm", title, robot, lambda r: Rollout(r, law, dt=1e-3), q, v, 4000, 4, verdict)


def _unbalanced(x: Trajectory) -> float:
    """What energy and work (Simpson's rule over the recorded states) leave unexplained, by the work done to and fro."""
    power = np.sum((x["tau"] + x.robot.passive_force(x.q, x.v)) * x.v, axis=-1)
    h = x.t[1] - x.t[0]
    work = np.concatenate([[0.0], np.cumsum(h / 3.0 * (power[:-2:2] + 4.0 * power[1:-1:2] + power[2::2]))])
    change = x.energy[::2] - x.energy[0]
    return float(np.max(np.abs(change - work)) / (h * np.sum(np.abs(power))))


def fivebar() -> Scene:
    """A five-bar let go: it swings, and its loop stays closed."""
    robot = load("fivebar")
    q, _ = robot.close_loops(robot.neutral())

    def verdict(x: Trajectory) -> str:
        return f"energy drifts by {x.energy_drift:.0e}; the loop stays closed to {np.max(x.constraint_drift):.0e} m"

    title, still = "a five-bar swings, its loop closed", np.zeros(robot.nv)
    return Scene("fivebar", title, robot, lambda r: Rollout(r, dt=5e-4), q, still, 8000, 8, verdict)


def quadruped() -> Scene:
    """A Mini Cheetah that falls, tilted, onto compliant ground and is caught by springy legs."""
    robot = load("quadruped")
    feet = [name for name in robot.frame_names if name.endswith("_foot")]
    bent = robot.neutral()
    for leg in (name.removesuffix("_foot") for name in feet):
        bent[robot.q_index[f"{leg}_hip"]], bent[robot.q_index[f"{leg}_knee"]] = -0.8, 1.6
    q = bent.copy()
    q[2], q[3:7] = 0.55, np.array([0.1, 0.15, 0.0, 1.0]) / np.sqrt(1.0325)
    kp, kd = (np.r_[np.zeros(6), np.full(12, gain)] for gain in (40.0, 1.0))
    ground = forces.ground(robot, feet, stiffness=2e4)

    def verdict(x: Trajectory) -> str:
        flying = x.t < 0.1
        fall = x.momentum[flying, 5] + 9.81 * robot.mass * x.t[flying]
        flight = f"in flight its momentum is what gravity gives, to {np.max(np.abs(fall)):.0e} N s"
        return f"{flight}; then it lands, and stands {x.q[-1, 2]:.2f} m high"

    def rollout(r: Robot) -> Rollout:
        return Rollout(r, controls.pd(robot, bent, kp, kd), dt=2e-4, forces=ground)

    title = "Mini Cheetah falls and lands on its feet"
    return Scene("quadruped", title, robot, rollout, q, np.zeros(robot.nv), 10_000, 40, verdict, ground)


SCENES: tuple[Callable[[], Scene], ...] = (arm, fivebar, quadruped)


# ---- computing them --------------------------------------------------------------------------------------------------


def compute(scene: Scene) -> tuple[Trajectory, Row]:
    """The trajectory, and how fast it and a batch of its like are computed."""
    robot, rollout = scene.robot, scene.rollout(scene.robot)
    start = rollout.start(scene.q, scene.v)
    begin = time.perf_counter()
    _, q, v = rollout.run(start, scene.steps, scene.every, with_start=True)  # the first run traces and compiles
    first = time.perf_counter() - begin
    alone = _seconds(lambda: rollout.run(start, scene.steps, scene.steps))
    some = scene.steps // 40
    many = rollout.start(np.broadcast_to(scene.q, (BATCH, robot.nq)), scene.v)
    rollout.run(many, some, some)
    batch = _seconds(lambda: rollout.run(many, some, some)) / (BATCH * some)
    eager = scene.rollout(Robot(robot.model, compiled=False))
    slow = _seconds(lambda: eager.run(start, 4, 4)) / 4
    trajectory = _trajectory(scene, rollout, q, v)
    row = Row(
        name=scene.name,
        title=scene.title,
        dof=robot.mobility,
        simulated_seconds=rollout.dt * scene.steps,
        steps=scene.steps,
        verdict=scene.verdict(trajectory),
        ready_seconds=first - alone,
        steps_a_second=scene.steps / alone,
        batch_steps_a_second=1.0 / batch,
        times_eager=slow / batch,
    )
    return trajectory, row


def _trajectory(scene: Scene, rollout: Rollout, q: Array, v: Array) -> Trajectory:
    numbers = np.arange(0, scene.steps + 1, scene.every)
    t, channels = rollout.dt * numbers, drift(scene.robot.engine, q, v)
    if scene.force is not None:
        channels["f_ext"] = np.array([scene.force(*state) for state in zip(t, q, v, strict=True)], dtype=float)
    info = {"integrator": "rk4", "dt": rollout.dt, "steps": scene.steps, "record": scene.every, "made by": _MADE_BY}
    return Trajectory(scene.robot, t, q, v, tau=rollout.forces_at(numbers, q, v), channels=channels, info=info)


def _seconds(function: Callable[[], Any]) -> float:
    """The shorter of two runs."""

    def once() -> float:
        begin = time.perf_counter()
        function()
        return time.perf_counter() - begin

    return min(once(), once())


# ---- the command -----------------------------------------------------------------------------------------------------


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("-o", "--output", default="qddot-demo", metavar="DIR", help="where runs and plots go (qddot-demo)")


def run(options: argparse.Namespace) -> int:
    """Computes, prints, saves. The exit code says whether every identity of dynamics holds."""
    begin = time.perf_counter()
    say = (lambda *_: None) if options.json else print
    say("Three robots in time (Runge-Kutta of fourth order, the whole loop over time compiled):\n")
    rows, saved = [], []
    for make in SCENES:
        scene = make()
        trajectory, row = compute(scene)
        rows.append(row)
        saved += _save(trajectory, Path(options.output) / scene.name)
        say(f"  {row.title}, {row.simulated_seconds:g} s\n    {row.verdict}")
    say("\n" + "\n".join(_speeds(rows)))
    results = {name: list(identities(load(name), states=2, kernels=name == "puma560")) for name in robots.NAMES}
    every = [r for found in results.values() for r in found]
    failed = [r for r in every if not r.holds]
    say(f"\n{len(every) - len(failed)} of {len(every)} identities of dynamics hold on the {len(results)} embedded robots")
    for r in failed:
        say(f"  FAIL {r.name}: {r.error:.1e} where {r.allowed:.1e} is allowed")
    say("\n".join(_next(options.output, saved)))
    say(f"\n{time.perf_counter() - begin:.1f} s in all")
    if options.json:
        print(json.dumps(_report(rows, results, saved, not failed), indent=1))
    return int(bool(failed))


def _report(rows: Sequence[Row], results: dict[str, list[Identity]], saved: list[Path], ok: bool) -> dict[str, Any]:
    checked = {name: [{**vars(r), "holds": r.holds} for r in found] for name, found in results.items()}
    return {"scenes": [vars(r) for r in rows], "identities": checked, "saved": [str(p) for p in saved], "ok": ok}


def _speeds(rows: Sequence[Row]) -> Iterator[str]:
    threads = get_num_threads()
    batch = f"batch of {BATCH}, {threads} thread{'s' * (threads > 1)}"
    yield f"  {'':<10} {'DoF':>8} {'steps':>7} {'ready in':>9} {'steps/s alone':>15} {batch:>26} {'times eager':>12}"
    for r in rows:
        fast = f"{r.steps_a_second:>15,.0f} {r.batch_steps_a_second:>26,.0f} {r.times_eager:>11,.0f}×"
        yield f"  {r.name:<10} {r.dof:>8} {r.steps:>7} {r.ready_seconds:>7.1f} s {fast}"


def _save(trajectory: Trajectory, folder: Path) -> list[Path]:
    """The run and, where matplotlib is, its plot. A demo that cannot write goes on."""
    try:
        saved = [trajectory.save(folder, overwrite=Recording(folder).info.get("made by") == _MADE_BY)]
        if importlib.util.find_spec("matplotlib"):
            trajectory.plot(path=folder.with_suffix(".png"))
            saved.append(folder.with_suffix(".png"))
        return saved
    except (QddotError, OSError) as error:
        print(f"note: {folder} is not saved: {error}", file=sys.stderr)
        return []


def _next(output: str, saved: list[Path]) -> Iterator[str]:
    plots = [str(p) for p in saved if p.suffix == ".png"]
    if saved:
        yield f"\nSaved in {output}: {', '.join(p.name for p in saved)}"
    if saved and not plots:
        yield "  for plots of them: pip install 'qddot[view]'"
    needs = "" if importlib.util.find_spec("viser") else "pip install 'qddot[view]' && "
    if saved:
        yield f"See it move:    {needs}qddot view {Path(output) / 'quadruped'}"
    yield f"Your own robot: {needs}qddot view FILE.urdf; qddot info, check, bench FILE.urdf"
