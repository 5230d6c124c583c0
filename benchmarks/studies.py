"""Overheads of studies: python -m benchmarks.studies [--quick] [--engines local,ray] [--markdown FILE]

What a piece costs the driver, how long a worker waits for the next one, what rows cost, how far the model of costs agrees
with 1 to 64 real workers that sleep, what it says of 1000 workers, what 10⁹ rollouts cost, and the efficiency of one and
two workers against a plain loop. Run it on an idle machine.
"""

import argparse
import datetime
import importlib.util
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import qddot
from qddot.compiler.runtime.threads import set_num_threads
from qddot.study import Study, Uniform, engines
from qddot.study.cost_model import Costs, piece_seconds, simulate
from qddot.study.outcome import host_kind

DT, STEPS, BLOCK = 1e-3, 500, 250
CORE_STEPS, ROLLOUTS, ROLLOUT_STEPS = 50_000, 1e9, 1000
CARDS = {"Panda, RK4": 6.76e9, "G1, semi-implicit Euler": 1.43e9}  # steps a second of an H200 in float32: docs/gpu.md
MEASURES = 9
SLEEP = 0.1  # seconds of a sample that does nothing


def nothing(robot, values):
    return {"x": values["x"]}


def rows(robot, values):
    return {f"x{k}": values["x"] for k in range(MEASURES)}


def sleeping(robot, values):
    time.sleep(SLEEP * len(values["x"]))
    return {"pid": np.full(len(values["x"]), float(os.getpid()))}


def seconds(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


class Bench:
    """Studies in a temporary folder, each in one of its own, and what is printed."""

    def __init__(self, folder, quick, markdown):
        self.folder, self.quick, self.markdown = Path(folder), quick, markdown
        self.lines, self.count = [], 0

    def say(self, text=""):
        print(text, flush=True)
        self.lines.append(text)
        if self.markdown:
            self.markdown.write_text("\n".join(self.lines) + "\n", encoding="utf-8")

    def study(self, function, samples, batch=1):
        self.count += 1
        space = {"x": Uniform(0, 1)}
        return Study(None, space, function, samples=samples, batch=batch, directory=self.folder / str(self.count))

    def rollouts(self, robot, samples):
        self.count += 1
        where, q0 = self.folder / str(self.count), robot.random_state(0, samples)[0]
        return Study(robot, {"q0": q0}, {"e": "max:energy"}, dt=DT, steps=STEPS, directory=where)


# ---- what pieces and rows cost


def costs(bench, engine):
    """Of pieces without work: what the driver spends on one, and how many a second go through one worker."""
    pieces = 100 if bench.quick else 400

    def run(count):
        study = bench.study(nothing, count)
        busy = time.process_time()
        taken = seconds(lambda: study.run(engine, workers=1, chunk=1))
        return taken, time.process_time() - busy

    (short, busy_short), (long, busy_long) = run(pieces), run(5 * pieces)
    each, busy = max(0.0, long - short) / (4 * pieces), (busy_long - busy_short) / (4 * pieces)
    return Costs(driver=busy, latency=each, startup=max(0.0, short - pieces * each))


def row_costs(bench):
    """Seconds of the driver for a row of one more measure, and of a worker for a drawn number (of seven a sample)."""
    count = 200_000 if bench.quick else 2_000_000

    def busy(function):
        study = bench.study(function, count, batch=count // 4)
        begin = time.process_time()
        study.run("local", workers=1, chunk=count // 4)
        return time.process_time() - begin

    one, many = busy(nothing), busy(rows)
    space = Study(None, {"q": Uniform(np.zeros(7), 1.0)}, nothing, samples=count, directory=bench.folder / "drawn").space
    begin = time.process_time()
    for k in range(0, count // 10, 10_000):
        space.values(k, 10_000)
    return max(0.0, many - one) / (MEASURES - 1) / count, (time.process_time() - begin) / (count // 10) / 7


class Watched:
    """An engine, with the times at which answers came and the process that each is of."""

    def __init__(self, engine):
        self.engine, self.arrivals = engine, []
        self.submit, self.close = engine.submit, engine.close

    @property
    def slots(self):
        return self.engine.slots

    def wait(self):
        answers = self.engine.wait()
        now = time.perf_counter()
        self.arrivals += [(now, float(outcome.arrays["pid"][0]), outcome.seconds) for _, outcome in answers]
        return answers

    def efficiency(self, workers):
        """From when every worker has answered once until the last pieces are handed out."""
        times, processes, work = np.array(self.arrivals).T
        begin = max(times[processes == own].min() for own in set(processes))
        end = times[-2 * workers]
        return work[(times > begin) & (times <= end)].sum() / (workers * (end - begin))


def trust(bench, found):
    """Real workers that sleep: efficiency without start and end, measured and by the model."""
    still = Costs(found.driver, found.latency, 0.0)
    for workers in (1, 4, 16) if bench.quick else (1, 4, 16, 64):
        pieces = workers * (8 if bench.quick else 32)
        seen = []
        named = engines.named
        engines.named = lambda *given, named=named, seen=seen: seen.append(Watched(named(*given))) or seen[0]
        try:
            bench.study(sleeping, 10 * pieces).run("local", workers=workers, chunk=10)
        finally:
            engines.named = named
        model = simulate(workers, pieces, 10 * SLEEP, still, spread=0.0).efficiency
        yield workers, pieces, seen[0].efficiency(workers), model


# ---- what the model says


def model_table(bench, found_of):
    bench.say("| engine | workers | a piece | efficiency | a death of each worker an hour | pieces lost |")
    bench.say("|---|---|---|---|---|---|")
    for engine, found in found_of.items():
        for workers in (2, 64, 1000):
            size, pieces = piece_seconds(workers, found), 600 * workers
            calm = simulate(workers, pieces, size, found)
            rough = simulate(workers, pieces, size, found, deaths_per_hour=1.0)
            bench.say(
                f"| {engine} | {workers} | {size:.1f} s | {calm.efficiency:.3f} | {rough.efficiency:.3f} | "
                f"{rough.lost:,} of {pieces:,} |"
            )


def core_speed(bench):
    """RK4 steps of a Panda a second on one thread, in float64; of a chain of seven where its file is not installed."""
    from benchmarks import cases

    try:
        name, robot = "Panda", cases.case("panda7", 1).robot
    except Exception:
        name, robot = "chain of 7", qddot.chain(7, rng=0)
    q0 = robot.random_state(0, 1024)[0]
    steps = CORE_STEPS // 20 if bench.quick else CORE_STEPS // 5
    run = lambda: robot.simulate(q0, 0.0 * q0[:, : robot.nv], dt=1e-4, steps=steps // 100, record="end")  # noqa: E731
    run()
    return name, max(1024 * (steps // 100) / seconds(run) for _ in range(5))


def cost_table(bench, found, row, drawn):
    """10⁹ rollouts of 1000 steps, one measure and a start of nq numbers each."""
    name, speed = core_speed(bench)
    bench.say(f"one core: {speed / 1e6:.2f} million RK4 steps a second of a {name} (float64, {host_kind()})\n")
    bench.say("| | steps a second of each | rollouts | drawing | driver | whole | hours of one | limited by |")
    bench.say("|---|---|---|---|---|---|---|---|")
    places = [(f"64 cores, {name}, RK4, float64", 64, speed, 7)]
    places += [(f"8 H200, {what}, float32", 8, rate, 7 if "Panda" in what else 36) for what, rate in CARDS.items()]
    for what, workers, rate, numbers in places:
        work = ROLLOUTS * ROLLOUT_STEPS / rate / workers
        draws = ROLLOUTS * numbers * drawn / workers  # by the worker, before the rollout
        each = ROLLOUTS * ROLLOUT_STEPS / rate + ROLLOUTS * numbers * drawn
        size = piece_seconds(workers, found)
        pieces = max(workers, round(each / size))
        by_rows = Costs(found.driver + ROLLOUTS / pieces * row, found.latency, found.startup)
        run = simulate(workers, pieces, each / pieces, by_rows, deaths_per_hour=0.01)
        driver = pieces * by_rows.driver
        limit = "the driver" if driver > 0.5 * run.seconds else "drawing" if draws > work else "the rollouts"
        times = " | ".join(map(_time, (work, draws, driver, run.seconds)))
        bench.say(f"| {what} | {rate:.2g} | {times} | {workers * run.seconds / 3600:.2g} | {limit} |")


def _time(x):
    return f"{x:.0f} s" if x < 600 else f"{x / 60:.0f} min" if x < 7200 else f"{x / 3600:.1f} h"


# ---- efficiency


def efficiency(bench, with_ray):
    """Seconds of a loop around `simulate` and of studies, whole and of the pieces alone, interleaved.

    The pieces alone are the difference of two runs, one with three times the samples: without the start of workers.
    """
    robot, samples = qddot.chain(6, rng=0), 8_000 if bench.quick else 40_000
    bench.rollouts(robot, 512).run("local", workers=1)  # compiles

    def loop(n):
        q0 = robot.random_state(0, n)[0]
        for k in range(0, n, BLOCK):
            part = q0[k : k + BLOCK]
            _ = robot.simulate(part, np.zeros((len(part), 6)), dt=DT, steps=STEPS).energy.max(axis=1)

    runs = {"loop": loop, "serial": lambda n: bench.rollouts(robot, n).run("serial")}
    runs["one"] = lambda n: bench.rollouts(robot, n).run("local", workers=1)
    runs["two"] = lambda n: bench.rollouts(robot, n).run("local", workers=2)
    if with_ray:
        runs["ray"] = lambda n: bench.rollouts(robot, n).run("ray", workers=2)
    taken = {name: [] for name in runs}
    for _ in range(1 if bench.quick else 3):
        for name, run in runs.items():
            short, long = seconds(lambda run=run: run(samples)), seconds(lambda run=run: run(3 * samples))
            taken[name].append((long, 1.5 * (long - short)))
    return {name: [statistics.median(x) for x in zip(*pairs, strict=True)] for name, pairs in taken.items()}


def ray_cluster():
    """One for all rounds, as a user of a cluster has: the start of it is no part of its efficiency."""
    import ray

    from qddot.study.engine_ray import on_loopback

    with on_loopback():
        ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", num_cpus=2, log_to_driver=False)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="smaller, to see that everything runs: about a minute")
    parser.add_argument("--engines", default="local,ray", help="whose overheads are measured; ray only if it is installed")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="writes what is printed to a file as well")
    given = parser.parse_args()
    warnings.simplefilter("ignore", qddot.QddotWarning)
    set_num_threads(1)
    names = [x for x in given.engines.split(",") if x != "ray" or importlib.util.find_spec("ray")]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder, given.quick, given.markdown)
        versions = f"Python {platform.python_version()}, NumPy {np.__version__}, qddot {qddot.__version__}"
        bench.say(f"{datetime.date.today()}, {host_kind()}, {versions}{', quick' if given.quick else ''}\n")
        if "ray" in names:
            ray_cluster()
        report(bench, names)
        if "ray" in names:
            sys.modules["ray"].shutdown()


def report(bench, names):
    bench.say("| engine | driver, a piece | wait between pieces | first piece after |\n|---|---|---|---|")
    found = {engine: costs(bench, engine) for engine in names}
    for engine, x in found.items():
        bench.say(f"| {engine} | {1e3 * x.driver:.2f} ms | {1e3 * x.latency:.2f} ms | {x.startup:.1f} s |")
    row, drawn = row_costs(bench)
    bench.say(f"\na row of a measure: {1e9 * row:.0f} ns of the driver; a drawn number: {1e9 * drawn:.0f} ns of a worker\n")
    bench.say("| workers that sleep | pieces of 1 s | efficiency, measured | by the model |\n|---|---|---|---|")
    for workers, pieces, real, said in trust(bench, found["local"]):
        bench.say(f"| {workers} | {pieces} | {real:.3f} | {said:.3f} |")
    bench.say()
    model_table(bench, found)
    bench.say()
    cost_table(bench, found["local"], row, drawn)
    taken = efficiency(bench, "ray" in names)
    bench.say("\n" + "; ".join(f"{name} {x:.2f} s, {y:.2f} s of it pieces" for name, (x, y) in taken.items()) + "\n")
    bench.say("| efficiency | whole | without the start | wanted |\n|---|---|---|---|")
    compared = [
        ("one worker, by a plain loop", "loop", "one", "0.95"),
        ("in this process, by a plain loop", "loop", "serial", ""),
        ("two local workers, by one", "one", "two", "1.85"),
        ("Ray on two cores, by two local workers", "two", "ray", "0.93"),
    ]
    for what, before, after, wanted in compared:
        if after in taken:
            whole, steady = (x / y for x, y in zip(taken[before], taken[after], strict=True))
            bench.say(f"| {what} | {whole:.2f} | {steady:.2f} | {wanted} |")


if __name__ == "__main__":
    main()
