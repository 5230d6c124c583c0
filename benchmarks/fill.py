"""What writing a batch of mass matrices costs by itself: `python -m benchmarks.fill`.

Filling the result with a constant, and computing it, take turns on one thread; medians in µs a state. A kernel cannot be
faster than the filling of its result, and Pinocchio's C++ loop writes every matrix into the same small workspace.
"""

import statistics
import time

import numpy as np

import qddot
from benchmarks.cases import case

CASES = ("ur5", "panda7", "solo12-floating", "g1-fixed", "talos-fixed", "g1-floating")
STATES, ROUNDS = 4096, 31


def main() -> None:
    qddot.set_num_threads(1)
    print("| robot (freedoms) | megabytes | filling | computing | GB/s of filling |\n|---|---|---|---|---|")
    for name in CASES:
        c = case(name, 64)
        q = np.resize(c.q, (STATES, c.q.shape[1]))
        kernel = c.robot.kernel("mass_matrix")
        out = kernel(q)
        times: dict[str, list[float]] = {"fill": [], "compute": []}
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            out.fill(1.0)
            middle = time.perf_counter()
            kernel(q, out=out)
            times["fill"].append(middle - begin)
            times["compute"].append(time.perf_counter() - middle)
        fill, compute = (statistics.median(times[k]) for k in ("fill", "compute"))
        print(
            f"| {name} ({c.robot.nv}) | {out.nbytes / 1e6:.1f} | {fill / STATES * 1e6:.3f} | {compute / STATES * 1e6:.3f} "
            f"| {out.nbytes / fill / 1e9:.1f} |"
        )


if __name__ == "__main__":
    main()
