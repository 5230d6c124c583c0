"""Code with loops over links against unrolled code, on chains of 10 to 10,000 links: `python -m benchmarks.chains`.

Random revolute chains, one thread, float64. For each length and form: seconds to compile, bytes of code and tables, time a
state and a link in lanes and in one lane. Forms run interleaved; times are medians.
"""

import argparse
import resource
import statistics
import time
from math import prod

import numpy as np

import qddot
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.dynamics.pipeline import build
from qddot.dynamics.request import Request

LENGTHS = (10, 30, 60, 100, 200, 300, 1000, 3000, 10_000)
MOST_UNROLLED = 300
MOST_UNROLLED_MATRIX = 30  # one of 100 takes a minute and a half to compile
NUMBERS = 2**19  # in the results of a batch: every length has as many, but for a few states of many numbers
ROUNDS = 7


def kernel(model, function, form, lanes):
    needs = {"frame": model.link_names[-1]} if "frame" in FUNCTIONS[function].needs else {}
    begin = time.perf_counter()
    made = build(model, Request(function, lanes=lanes, form=form, static=tuple(needs.items())))
    return made, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chains", description=__doc__)
    parser.add_argument("--lengths", type=lambda text: [int(x) for x in text.split(",")], default=LENGTHS)
    parser.add_argument("--functions", type=lambda text: text.split(","), default=("inverse_dynamics", "forward_dynamics"))
    chosen = parser.parse_args()
    qddot.set_num_threads(1)
    print(
        "| links | function | form | instructions a link | compile, s | bytes | lanes: µs a state, ns a link | one lane |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for n in chosen.lengths:
        model, rng = qddot.chain(n, rng=0).model, np.random.default_rng(0)
        for function in chosen.functions:
            shape = FUNCTIONS[function].output(model)
            count = max(16, min(4096, NUMBERS // max(n, prod(shape)) // 8 * 8))
            q = rng.uniform(-1.0, 1.0, (count, n))
            v, x = rng.standard_normal((2, count, n))
            arrays = [{"q": q, "v": v}.get(name, x) for name in FUNCTIONS[function].inputs]
            most = MOST_UNROLLED if len(shape) < 2 or shape[-2] < n else MOST_UNROLLED_MATRIX
            forms = ("rolled", "unrolled") if n <= most else ("rolled",)
            kernels = {(form, lanes): kernel(model, function, form, lanes) for form in forms for lanes in (None, 1)}
            times, out = {key: [] for key in kernels}, np.empty((count, *shape))
            for _ in range(ROUNDS):
                for key, (k, _) in kernels.items():
                    begin = time.perf_counter()
                    k(*arrays, out=out)
                    times[key].append((time.perf_counter() - begin) / count)
            for form in forms:
                k, seconds = kernels[form, None]
                wide, narrow = (statistics.median(times[form, lanes]) for lanes in (None, 1))
                print(
                    f"| {n} | {function} | {form} | {k.info.instructions / n:.0f} | {seconds:.2f} | {k.info.code_bytes} "
                    f"| {wide * 1e6:.2f}, {wide / n * 1e9:.1f} | {narrow * 1e6:.2f}, {narrow / n * 1e9:.1f} |",
                    flush=True,
                )
    print(f"\nmost memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
