"""A controller in plain Python: `robot.simulator` beside a loop around other calls: python -m benchmarks.stepping

One sample, classical Runge-Kutta steps with held joint forces, on one thread. `step` is q, v = sim.step(tau); `simulate` is
`robot.simulate` of one step at a time; `calls` is the same step written in Python around four calls of forward dynamics;
`compiled` is the whole loop in one call, the time that a step itself takes. All run interleaved.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import qddot
from benchmarks import native

DT, TURN = 1e-4, 400  # s, and steps of a turn: short ones, between which other processes run
SLOW = 40  # of the ways that take long, one turn has so many times fewer steps
LONG = 20  # of the compiled loop, so many times more: what one call takes is not the question


def ways(robot: qddot.Robot) -> dict[str, tuple[Callable[[], None], int]]:
    """What is measured by name: a turn, and how many steps it has."""
    q0, v0, tau = robot.random_state(0)[0], np.zeros(robot.nv), 0.1 * np.ones(robot.nv)
    sim, rows = robot.simulator(dt=DT), np.tile(tau, (LONG * TURN, 1))
    sim.reset(q0, v0)

    def step() -> None:
        sim.reset(q0, v0)
        for _ in range(TURN):
            sim.step(tau)

    def simulate() -> None:
        q, v = q0, v0
        for _ in range(TURN // SLOW):
            run = robot.simulate(q, v, tau[None], dt=DT, steps=1)
            q, v = run.q[-1], run.v[-1]

    def calls() -> None:
        q, v, h, run = q0, v0, DT, robot.forward_dynamics
        for _ in range(TURN // SLOW):
            a1 = run(q, v, tau)
            v2 = v + 0.5 * h * a1
            a2 = run(robot.integrate(q, v, 0.5 * h), v2, tau)
            v3 = v + 0.5 * h * a2
            a3 = run(robot.integrate(q, v2, 0.5 * h), v3, tau)
            v4 = v + h * a3
            a4 = run(robot.integrate(q, v3, h), v4, tau)
            q, v = robot.integrate(q, v + 2.0 * (v2 + v3) + v4, h / 6.0), v + h / 6.0 * (a1 + 2.0 * (a2 + a3) + a4)

    def compiled() -> None:
        robot.simulate(q0, v0, rows, dt=DT, steps=LONG * TURN, record="end")

    return {
        "step": (step, TURN),
        "simulate": (simulate, TURN // SLOW),
        "calls": (calls, TURN // SLOW),
        "compiled": (compiled, LONG * TURN),
    }


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--robots", nargs="+", default=["puma560", "quadruped"])
    options = parser.parse_args(arguments)
    print(f"{native.cpu().get('model name', '')}; rk4, one sample, µs a step, least (median) of {options.rounds} rounds")
    out = {}
    for name in options.robots:
        found = ways(qddot.load(name, passive_forces=False))
        times: dict[str, list[float]] = {way: [] for way in found}
        for _ in range(options.rounds):
            for way, (turn, steps) in found.items():
                begin = time.perf_counter()
                turn()
                times[way].append((time.perf_counter() - begin) / steps)
        out[name] = {way: min(x) for way, x in times.items()}
        shown = (f"{way} {1e6 * min(x):.2f} ({1e6 * statistics.median(x):.2f})" for way, x in times.items())
        print(f"{name:10}", "  ".join(shown))
    return out


if __name__ == "__main__":
    main()
