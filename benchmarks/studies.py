"""Overheads of studies: python -m benchmarks.studies

Efficiency of one and two workers against a plain loop, what a piece costs the driver and how long a worker waits for the
next one, and what the model of costs says of a thousand workers. Run it on an idle machine.
"""

import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import qddot
from qddot.compiler.runtime.threads import set_num_threads
from qddot.study import Study, Uniform
from qddot.study.cost_model import Costs, piece_seconds, simulate

SAMPLES, STEPS, BLOCK, ROUNDS = 20_000, 500, 250, 3
PIECES = 400


def nothing(robot, values):
    return {"x": values["x"]}


def seconds(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def efficiency(folder):
    """Seconds of a loop around `simulate`, and of studies with 0 (this process), 1 and 2 workers, interleaved."""
    robot = qddot.chain(6, rng=0)
    q0 = robot.random_state(0, SAMPLES)[0]
    numbers = iter(range(10**6))

    def loop():
        for k in range(0, SAMPLES, BLOCK):
            part = q0[k : k + BLOCK]
            _ = robot.simulate(part, np.zeros((len(part), 6)), dt=1e-3, steps=STEPS).energy.max(axis=1)

    def study(engine, **options):
        where = Path(folder) / str(next(numbers))
        own = Study(robot, {"q0": q0}, {"e": "max:energy"}, dt=1e-3, steps=STEPS, directory=where)
        return lambda: own.run(engine, **options)

    runs = {
        "loop": lambda: loop,
        "serial": lambda: study("serial"),
        "one": lambda: study("local", workers=1),
        "two": lambda: study("local", workers=2),
    }
    if "--ray" in sys.argv:
        runs["ray"] = lambda: study("ray", workers=2)
    taken = {name: [] for name in runs}
    for make in runs.values():
        make()()
    for _ in range(ROUNDS):
        for name, make in runs.items():
            taken[name].append(seconds(make()))
    return {name: statistics.median(x) for name, x in taken.items()}


def costs(folder):
    """Of pieces without work: what the driver spends on one, and how many a second go through one worker."""

    def run(k, pieces):
        study = Study(
            None, {"x": Uniform(0, 1)}, nothing, samples=pieces, batch=1, directory=Path(folder) / f"c{k}-{pieces}"
        )
        busy = time.process_time()
        taken = seconds(lambda: study.run(workers=1, chunk=1))
        return taken, time.process_time() - busy

    (short, busy_short), (long, busy_long) = run(0, PIECES), run(1, 5 * PIECES)
    each, busy = max(0.0, long - short) / (4 * PIECES), (busy_long - busy_short) / (4 * PIECES)
    return Costs(driver=busy, latency=each, startup=max(0.0, short - PIECES * each))


if __name__ == "__main__":
    warnings.simplefilter("ignore", qddot.QddotWarning)
    set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = costs(folder)
        print(f"a piece takes {1e3 * found.driver:.2f} ms of the driver, {1e3 * found.latency:.2f} ms through one worker;")
        print(f"a worker starts in {found.startup:.1f} s")
        for workers in (2, 64, 1000):
            size = piece_seconds(workers, found)
            calm = simulate(workers, 50 * workers, size, found)
            rough = simulate(workers, 50 * workers, size, found, deaths_per_hour=1.0)
            print(
                f"{workers} workers, pieces of {size:.1f} s: efficiency {calm.efficiency:.3f}, "
                f"with a death of each an hour {rough.efficiency:.3f} ({rough.lost} of {50 * workers} pieces lost)"
            )
        taken = efficiency(folder)
        print(", ".join(f"{name} {x:.2f} s" for name, x in taken.items()))
        print(f"a study in this process by a plain loop: {taken['loop'] / taken['serial']:.2f}× its throughput")
        one, two = taken["one"], taken["two"]
        print(f"one worker by a plain loop: {taken['loop'] / one:.2f}×; two by one: {one / two:.2f}×")
        if "ray" in taken:
            print(f"Ray by local, two workers: {taken['two'] / taken['ray']:.2f}×")
