"""Inverse kinematics against loops around Pinocchio, mink and pink: python -m benchmarks.inverse_kinematics

Targets are the poses of random configurations within the limits; everybody starts in the middle of the limits, and again
from up to 8 random configurations within them where that fails, stops at 1e-6 m and rad, and keeps the limits. Each answer
is judged by qddot's forward kinematics: solved is what lies within 1e-6 m and rad and the limits. qddot solves the batch
in one call on one thread; the others solve fewer targets, one after another: they gain nothing from more. All run in one
process, interleaved in rounds, and the median of the rounds counts.

| contestant | one iteration                                                                             |
|------------|-------------------------------------------------------------------------------------------|
| pin        | Levenberg-Marquardt in Python: `pin.log6`, `computeFrameJacobian`, NumPy's solve, clipping |
| pink       | `pink.solve_ik` of a `FrameTask` (DAQP), and its integration                               |
| mink       | `mink.solve_ik` of a `FrameTask` with a `ConfigurationLimit` (DAQP), on MuJoCo              |
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import qddot
from benchmarks import cases, mujoco_peer
from qddot.tasks.inverse_kinematics import bounds, random_starts

ROBOTS = ("panda7", "ur5")
WITHIN, RESTARTS, ITERATIONS = 1e-6, 8, 100

Solve = Callable[[np.ndarray], np.ndarray]  # a target, 4×4, to a configuration
Try = Callable[[np.ndarray], bool]  # a start; True if the target is reached, and `q` of the peer is the answer


class Problem:
    """A robot, the poses that it is to reach, and the starts that everybody has."""

    def __init__(self, name: str, targets: int) -> None:
        self.case = cases.case(name, targets)
        self.robot, self.frame = self.case.robot, self.case.robot.model.link_names[self.case.tip]
        self.lower, self.upper = bounds(self.robot.model)
        self.q0 = 0.5 * (self.lower + self.upper)
        self.starts = random_starts(self.robot.model, self.lower, self.upper, RESTARTS, 0)
        self.targets = self.robot.pose(self.case.q, self.frame)

    def solved(self, q: np.ndarray) -> np.ndarray:
        """Which answers are right."""
        T = self.robot.pose(q, self.frame)
        wanted = self.targets[: len(q)]
        off = np.linalg.norm(T[:, :3, 3] - wanted[:, :3, 3], axis=-1)
        turn = np.linalg.norm(T[:, :3, :3] - wanted[:, :3, :3], axis=(-2, -1)) / np.sqrt(2.0)  # 2 sin θ/2
        inside = np.all((q >= self.lower - 1e-9) & (q <= self.upper + 1e-9), axis=-1)
        return (off <= WITHIN) & (turn <= WITHIN) & inside

    def from_starts(self, attempt: Callable[[np.ndarray], tuple[bool, np.ndarray]]) -> np.ndarray:
        """The first answer of q0 and the restarts that counts as reached."""
        for start in (self.q0, *self.starts):
            reached, q = attempt(start)
            if reached:
                break
        return q


def pin_loop(problem: Problem) -> Solve:
    import pinocchio as pin

    model = problem.case.pinocchio
    data, frame = model.createData(), model.getFrameId(problem.frame)

    def solve(T: np.ndarray) -> np.ndarray:
        target = pin.SE3(T)

        def attempt(q: np.ndarray) -> tuple[bool, np.ndarray]:
            damping, cost, step = 1.0, np.inf, np.zeros(model.nv)
            for _ in range(ITERATIONS):
                trial = np.clip(pin.integrate(model, q, step), problem.lower, problem.upper)
                pin.forwardKinematics(model, data, trial)
                error = pin.log6(pin.updateFramePlacement(model, data, frame).actInv(target)).vector
                if error @ error < cost:
                    q, cost, damping = trial, error @ error, max(0.5 * damping, 1e-6)
                    if max(np.linalg.norm(error[:3]), np.linalg.norm(error[3:])) < WITHIN / 2:
                        return True, q
                    J = pin.computeFrameJacobian(model, data, q, frame, pin.LOCAL)
                    step = J.T @ np.linalg.solve(J @ J.T + (damping * cost + 1e-10) * np.eye(6), error)
                else:
                    step, damping = 0.25 * step, 4.0 * damping
                    if step @ step < 1e-18:
                        break
            return False, q

        return problem.from_starts(attempt)

    return solve


def pink_loop(problem: Problem) -> Solve:
    import pink
    import pinocchio as pin

    model = problem.case.pinocchio
    data = model.createData()

    def solve(T: np.ndarray) -> np.ndarray:
        task = pink.tasks.FrameTask(problem.frame, position_cost=1.0, orientation_cost=1.0, lm_damping=1.0)
        task.set_target(pin.SE3(T))

        def attempt(q: np.ndarray) -> tuple[bool, np.ndarray]:
            configuration = pink.Configuration(model, data, q)
            for _ in range(ITERATIONS):
                error = task.compute_error(configuration)
                if max(np.linalg.norm(error[:3]), np.linalg.norm(error[3:])) < WITHIN / 2:
                    return True, configuration.q
                velocity = pink.solve_ik(configuration, [task], 1.0, solver="daqp", safety_break=False)
                configuration.integrate_inplace(velocity, 1.0)
            return False, configuration.q

        return problem.from_starts(attempt)

    return solve


def mink_loop(problem: Problem) -> Solve:
    import mink

    model = mujoco_peer.to_mujoco(problem.robot.model)
    model.jnt_limited[:], model.jnt_range[:] = True, np.stack([problem.lower, problem.upper], axis=-1)
    limits = [mink.ConfigurationLimit(model)]

    def solve(T: np.ndarray) -> np.ndarray:
        task = mink.FrameTask(f"body{problem.case.tip}", "body", position_cost=1.0, orientation_cost=1.0, lm_damping=1.0)
        task.set_target(mink.SE3.from_matrix(T))

        def attempt(q: np.ndarray) -> tuple[bool, np.ndarray]:
            configuration = mink.Configuration(model, q)
            for _ in range(ITERATIONS):
                error = task.compute_error(configuration)
                if max(np.linalg.norm(error[:3]), np.linalg.norm(error[3:])) < WITHIN / 2:
                    return True, configuration.q.copy()
                try:
                    velocity = mink.solve_ik(configuration, [task], 1.0, solver="daqp", limits=limits)
                except mink.MinkError:
                    break
                configuration.integrate_inplace(velocity, 1.0)
            return False, configuration.q.copy()

        return problem.from_starts(attempt)

    return solve


def contestants(problem: Problem, few: int) -> Iterator[tuple[str, int, Callable[[], np.ndarray]]]:
    robot, n = problem.robot, len(problem.targets)
    tasks = {problem.frame: problem.targets}
    yield "qddot", n, lambda: robot.inverse_kinematics(tasks, problem.q0, restarts=RESTARTS, iterations=ITERATIONS).q
    one = [{problem.frame: T} for T in problem.targets[:few]]
    yield "qddot, one call a target", few, lambda: np.stack([robot.inverse_kinematics(t, problem.q0).q for t in one])
    for name, make in (("pin", pin_loop), ("pink", pink_loop), ("mink", mink_loop)):
        try:
            solve = make(problem)
            solve(problem.targets[0])
        except ImportError as missing:
            print(f"  {name}: left out, {missing}")
            continue

        def run(solve: Solve = solve) -> np.ndarray:
            return np.stack([solve(T) for T in problem.targets[:few]])

        yield name, few, run


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--robots", default=",".join(ROBOTS))
    parser.add_argument("--targets", type=int, default=10_000)
    parser.add_argument("--few", type=int, default=50, help="targets of contestants that solve one after another")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)
    qddot.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, one thread, {options.targets:,} targets, {RESTARTS} restarts")
    for name in options.robots.split(","):
        problem, rows = Problem(name, options.targets), []
        for label, n, run in contestants(problem, options.few):
            run()  # what is compiled is compiled
            rows.append((label, n, run, []))
        times: dict[str, list[float]] = {label: [] for label, *_ in rows}
        found: dict[str, Any] = {}
        for _ in range(options.rounds):
            for label, n, run, _ in rows:
                begin = time.perf_counter()
                found[label] = run()
                times[label].append((time.perf_counter() - begin) / n)
        print(f"{name} ({problem.robot.nv})")
        ours = statistics.median(times["qddot"])
        for label, n, *_ in rows:
            each, good = statistics.median(times[label]), problem.solved(found[label])
            print(
                f"  {label:26} {100 * good.mean():7.2f} % of {n:6}   {1e6 * each:10.2f} µs a target   {each / ours:8.1f}×"
            )


if __name__ == "__main__":
    main()
