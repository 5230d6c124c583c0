"""float32 against float64: `python -m benchmarks.precision [--target cpu:x86-64-v3] [--robots ur5 …]`.

Inverse and forward dynamics by kernels with `out=`, batches of 4096, one thread, the two interleaved in short rounds, of
which the fastest counts. Both have the same width of registers, so float32 has twice the lanes. `moves` is what moving the
data alone takes, between rows in memory and columns of lanes, with two additions a number (on this machine's processor).
"""

import argparse
import time

import numpy as np

import qddot
from benchmarks.cases import ROBOTS, case
from qddot.compiler.targets import registry
from qddot.dynamics.pipeline import kernel_of, unknowns

STATES = 4096
DTYPES = ("float64", "float32")
FUNCTIONS = ("inverse_dynamics", "forward_dynamics")
DEFAULT = ("ur5", "panda7", "solo12-floating", "anymal-floating", "g1-fixed", "g1-floating", "talos-floating")


def fastest(kernels, arrays, seconds):
    """Nanoseconds a state of each kernel, called in turn with the same arrays in its own type."""
    given = [[x.astype(k.info.dtype) for x in arrays] for k in kernels]
    results = [np.empty((len(arrays[0]), *k.output), k.info.dtype) for k in kernels]
    best, end = [np.inf] * len(kernels), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, kernel in enumerate(kernels):
            begin = time.perf_counter()
            kernel(*given[i], out=results[i])
            best[i] = min(best[i], time.perf_counter() - begin)
    return [1e9 * x / len(arrays[0]) for x in best]


def moves(robot, dtype):
    """A kernel that reads q, v and a, and writes as much as v."""
    shapes = [(robot.nq,), (robot.nv,), (robot.nv,)]
    graph, (q, v, a) = unknowns([robot.nq, robot.nv, robot.nv])
    return kernel_of("moves", graph, q[: robot.nv] + v + a, ("q", "v", "a"), shapes, (robot.nv,), dtype)


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    parser.add_argument("--robots", nargs="+", default=DEFAULT, choices=ROBOTS)
    parser.add_argument("--target", default="cpu", help="such as cpu:x86-64-v3")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each comparison")
    chosen = parser.parse_args(words)
    target, before = registry.named(chosen.target), qddot.get_num_threads()
    print(
        f"{chosen.target}: {' and '.join(f'{target.lanes(t)} lanes of {t}' for t in DTYPES)}; ns a state, and the ratio\n"
    )
    print("| robot | function | float64 | float32 | ratio |\n|---|---|---|---|---|")
    qddot.set_num_threads(1)
    try:
        for name in chosen.robots:
            found = case(name, STATES)
            arrays = [found.q, found.v, found.a]
            jobs = {f: [found.robot.kernel(f, dtype=t, target=chosen.target) for t in DTYPES] for f in FUNCTIONS}
            if chosen.target == "cpu":
                jobs["moves"] = [moves(found.robot, t) for t in DTYPES]
            for function, kernels in jobs.items():
                wide, narrow = fastest(kernels, arrays, chosen.seconds)
                print(f"| {name} | {function} | {wide:.1f} | {narrow:.1f} | {wide / narrow:.2f} |", flush=True)
    finally:
        qddot.set_num_threads(before)


if __name__ == "__main__":
    main()
