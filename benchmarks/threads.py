"""What threads bring a batch: `python -m benchmarks.threads`.

Kernels with `out=` on one thread, and on 2, 4, … threads without Python (`qddot.compiler.runtime.thread_pool`) and of
Python, interleaved; the least of several rounds. Close other programs before.
"""

import argparse
import time

import numpy as np

import qddot
from benchmarks.cases import case
from qddot.compiler.runtime import thread_pool

CASES = [(robot, f) for robot in ("panda7", "g1-fixed") for f in ("inverse_dynamics", "forward_dynamics", "mass_matrix")]
STATES = (4096, 8192, 16384, 65536)
ROUNDS, SECONDS = 7, 0.004  # of a turn


def seconds(kernel, arrays, out):
    begin, passes = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS or not passes:
        kernel(*arrays, out=out)
        passes += 1
    return (time.perf_counter() - begin) / passes


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threads", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--states", default=",".join(map(str, STATES)))
    options = parser.parse_args(arguments)
    most, available = qddot.get_num_threads(), thread_pool.available
    counts = [n for n in (2, 4, 8, 16, 32, 64) if n < most] + [most]
    print("| robot | function | states | one thread, µs |" + "".join(f" {n} threads (of Python) |" for n in counts))
    print("|---|---|---|---|" + "---|" * len(counts))
    for name, function in CASES:
        robot, rng = case(name, 8).robot, np.random.default_rng(0)
        kernel = robot.kernel(function)
        for states in map(int, options.states.split(",")):
            v = rng.standard_normal((states, robot.nv))
            q = np.resize(np.stack([robot.random_state(rng)[0] for _ in range(64)]), (states, robot.nq))
            arrays, out = [{"q": q}.get(x, v) for x in kernel.names], np.empty((states, *kernel.output))
            times = {}
            for _ in range(options.rounds):
                for n, native in [(1, True), *((n, x) for n in counts for x in (True, False))]:
                    qddot.set_num_threads(n)
                    thread_pool.available = available if native else lambda: False
                    kernel(*arrays, out=out)
                    times.setdefault((n, native), []).append(seconds(kernel, arrays, out))
            least = {key: min(x) for key, x in times.items()}
            one = least[1, True]
            cells = (f"{one / least[n, True]:.2f}× ({one / least[n, False]:.2f}×)" for n in counts)
            print(f"| {name} | {function} | {states} | {one * 1e6:.0f} | {' | '.join(cells)} |", flush=True)
    thread_pool.available = available
    qddot.set_num_threads(None)


if __name__ == "__main__":
    main()
