"""How few operations there are, and what that is worth: `python -m benchmarks.counts`.

First the general arm of n revolute joints, every DH constant and every inertial parameter arbitrary, next to what has been
published for it: multiplications + additions, sines, cosines and divisions apart. Then what regrouping and frames are worth
on real robots, each alone and both together. Then kernels with both against kernels of the model as the file has it: one
thread, contestants interleaved, the ratio formed within each round; before the clock runs their results are compared.
"""

import argparse
import statistics
import time

import numpy as np

import qddot
from benchmarks.cases import case
from qddot.cli.compare import general_arm
from qddot.dynamics import catalogue, choose, trace
from qddot.mechanism import simplify

JOINTS = range(2, 9)
CASES = ("ur5", "panda7", "solo12-floating", "g1-floating", "talos-fixed")
FUNCTIONS = {"inverse_dynamics": "rnea", "mass_matrix": "crba", "forward_dynamics": "aba"}
STATES, ROUNDS = 4096, 51

# Lin 1991, Table I: inertia matrix, in its order.
TABLE_I = {
    "Walker & Orin": lambda n: (11 * n**2 + 53 * n - 74, 8 * n**2 + 52 * n - 62),
    "Renaud": lambda n: (13.5 * n**2 + 22.5 * n - 68, 9 * n**2 + 26 * n - 64),
    "Lin 1988": lambda n: ((7 * n**3 + 99 * n**2 - 214 * n) / 6 + 19, n**3 + 13.5 * n**2 - 28.5 * n + 14),
    "Fijany & Bejczy": lambda n: (4.5 * n**2 + 115.5 * n - 175, 4 * n**2 + 88 * n - 134),
    "Lin 1991": lambda n: (10.5 * n**2 + 38.5 * n - 85, 6 * n**2 + 39 * n - 70),
}
# Table II: bias vector alone. Lin's own, below, is what it costs once the inertia matrix is there.
TABLE_II = {
    "Khalil & Kleinfinger": lambda n: (101 * n - 129, 90 * n - 118),
    "Balafoutis et al.": lambda n: (93 * n - 69, 81 * n - 66),
}
INERTIA_MATRIX = {**TABLE_I, "Featherstone 2005": lambda n: (10 * n**2 + 22 * n - 32, 6 * n**2 + 37 * n - 43)}
BOTH = {"Lin 1991": lambda n: np.add(TABLE_I["Lin 1991"](n), (12.5 * n**2 + 5.5 * n + 3, 9 * n**2 + n))}
INVERSE = {"Balafoutis & Patel 1991": lambda n: (93 * n - 108, 81 * n - 100)}
FORWARD = {"McMillan, Orin & McGhee 1995": lambda n: (224 * n - 259, 205 * n - 248)}


def arm(n, seed=0):
    """The general arm in modified Denavit-Hartenberg parameters."""
    return general_arm(n, seed).model


def count(model, function, method):
    """Multiplications and additions."""
    ops = trace.traced(model, function, method).count()
    return ops["mul"], ops["add"]


H = ("mass_matrix", "composite_body")
B = ("bias_force", "newton_euler_classical")
# heading, our formulations by column (several are added), the published ones
TABLES = (
    ("Inertia matrix H", {"qddot": [H]}, INERTIA_MATRIX),
    ("Bias vector b", {"qddot": [B]}, TABLE_II),
    ("H and b", {"qddot": [H, B]}, BOTH),
    ("Inverse dynamics", {"qddot": [("inverse_dynamics", "newton_euler_classical")]}, INVERSE),
    (
        "Forward dynamics",
        {
            "qddot, ABA": [("forward_dynamics", "articulated_body_classical")],
            "qddot, factored M": [("forward_dynamics", "composite_body_factored")],
        },
        FORWARD,
    ),
)


def print_counts():
    for heading, own, published in TABLES:
        print(f"{heading}\n\n| n | {' | '.join([*own, *published])} |\n|{'---|' * (1 + len(own) + len(published))}")
        for n in JOINTS:
            model = arm(n)
            cells = [np.sum([count(model, *x) for x in parts], axis=0) for parts in own.values()]
            cells += [formula(n) for formula in published.values()]
            print(f"| {n} | {' | '.join(f'{m:.0f} + {a:.0f}' for m, a in cells)} |")
        print()


def print_shares():
    """Operations after each rewriting, in the formulation that `auto` takes in the end."""
    ways = {"as is": lambda m: m, "regrouped": simplify.regrouped, "frames": simplify.reframed, "both": simplify.simplified}
    print(f"| robot, function | {' | '.join(ways)} |\n|{'---|' * (1 + len(ways))}")
    for name in CASES:
        model = case(name, 1).robot.model
        for function in FUNCTIONS:
            method = choose.cheapest(model, function, "auto").method
            programs = [trace.traced(rewrite(model), function, method, regroup=False) for rewrite in ways.values()]
            cells = ((x := p.count())["mul"] + x["add"] for p in programs)
            print(f"| {name} {function} | {' | '.join(map(str, cells))} |", flush=True)
    print()


def print_times():
    print(f"{STATES} states, {ROUNDS} rounds, one thread, float64: median and (quartiles) of the ratios within a round\n")
    print("| robot, function | instructions: as is, regrouped | ns a state: as is, regrouped | as is / regrouped |")
    print("|---|---|---|---|")
    for name in CASES:
        c = case(name, 64)
        arrays = {x: np.resize(getattr(c, x), (STATES, getattr(c, x).shape[1])) for x in ("q", "v", "a", "tau")}
        for function, judge in FUNCTIONS.items():
            inputs = [arrays[x] for x in catalogue.FUNCTIONS[function].inputs]
            kernels = [c.robot.kernel(function, regroup=x) for x in (False, True)]
            out, expected = kernels[1](*inputs), kernels[0](*inputs)
            assert np.max(np.abs(out - expected)) <= c.tolerance(judge) * np.max(np.abs(expected))
            times = [[], []]
            for r in range(ROUNDS):
                for k in (0, 1) if r % 2 else (1, 0):
                    begin = time.perf_counter()
                    kernels[k](*inputs, out=out)
                    times[k].append((time.perf_counter() - begin) / STATES * 1e9)
            low, middle, high = statistics.quantiles((x / y for x, y in zip(*times, strict=True)), n=4)
            sizes = ", ".join(str(k.info.instructions) for k in kernels)
            medians = ", ".join(f"{statistics.median(t):.0f}" for t in times)
            print(f"| {name} {function} | {sizes} | {medians} | {middle:.2f} ({low:.2f}–{high:.2f}) |", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counts", description=__doc__.splitlines()[0])
    parser.add_argument("--no-times", action="store_true", help="counts only: nothing is compiled")
    options = parser.parse_args(arguments)
    print_counts()
    print_shares()
    if not options.no_times:
        qddot.set_num_threads(1)
        print_times()


if __name__ == "__main__":
    main()
