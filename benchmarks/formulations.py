"""What the papers' formulations cost, and Saha's examples: `python -m benchmarks.formulations [--chains] [--plots FOLDER]`.

Counts are multiplications + additions of the general arm of n revolute joints (`benchmarks.counts.arm`), traced; sines and
cosines are not among them, all else is. "Regrouped" has base parameters and frames on common normals, which
docs/decisions/0006-fewer-operations.md is about; the other columns have the arm as it is. The plots need matplotlib.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import qddot
from benchmarks.counts import BOTH, INVERSE, JOINTS, TABLE_I, TABLE_II, arm
from qddot.algorithms.papers import denoc, lin, lin_frames
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.program import straight_line
from qddot.dynamics import pipeline
from qddot.dynamics import trace as tracing
from qddot.dynamics.request import Request
from qddot.mechanism.simplify import simplified

# Lin's Fig. 3 as traced for docs/errata.md: H with R given, H and b with everything.
ERRATA_H = (lambda n: 10.5 * n**2 + 38.5 * n - 82, lambda n: 6 * n**2 + 45 * n - 82)
ERRATA_BOTH = (lambda n: 23 * n**2 + 47 * n - 103, lambda n: 15 * n**2 + 45 * n - 90)
# the same, traced here
FIGURE_3 = (lambda n: 10.5 * n**2 + 29.5 * n - 67, lambda n: 6 * n**2 + 38 * n - 72)
FIGURE_3_BOTH = (lambda n: 23 * n**2 + 34 * n - 86, lambda n: 15 * n**2 + 38 * n - 82)
# Table II and, of 1991, inverse dynamics: slopes and constants that are traced here, n > 2
KHALIL_KLEINFINGER = (lambda n: 96 * n - 125, lambda n: 83 * n - 116)
BALAFOUTIS_PATEL = (lambda n: 93 * n - 122, lambda n: 80 * n - 113)
BALAFOUTIS_PATEL_INVERSE = (lambda n: 93 * n - 112, lambda n: 81 * n - 104)
FIGURE_A1 = (lambda n: 13.5 * n**2 + 11.5 * n - 56, lambda n: 9 * n**2 + 23 * n - 66)

METHODS = ("newton_euler_columns", "newton_euler_half_columns", "composite_body", "denoc")
LENGTHS = (100, 1000, 10_000)
T = 10.0  # seconds that a motion of Saha's examples takes


def count(model, method, regroup, function="mass_matrix"):
    """Multiplications and additions of a function by one formulation."""
    ops = tracing.traced(model, function, method, regroup=regroup).count()
    return ops["mul"], ops["add"]


def count_both(model, similarity):
    """Of Lin's H and b in one program."""

    def run(q, v):
        known = tracing.with_traced_inertias(model, q[0].graph)
        return np.concatenate([np.ravel(x) for x in lin.inertia_and_bias(known, q, v, similarity)])

    graph, outputs, _ = trace(run, [model.nq, model.nv])
    ops = straight_line(graph, outputs, model.nq + model.nv).count()
    return ops["mul"], ops["add"]


def _line(*cells):
    return f"| {' | '.join(cells)} |"


def _row(n, cells):
    return _line(str(n), *(f"{m:.0f} + {a:.0f}" for m, a in cells))


def _head(title, columns):
    return f"{title}\n\n{_line('n', *columns)}\n|{'---|' * (1 + len(columns))}"


def print_counts():
    listed, planar = lin_frames.listed_similarity, lin_frames.planar_similarity
    print(_head("Lin: inertia matrix H", ["paper", "Fig. 3", "planar", "planar, regrouped"]))
    for n in JOINTS:
        m = arm(n)
        ways = (("lin", False), ("lin_planar", False), ("lin_planar", True))
        print(_row(n, [TABLE_I["Lin 1991"](n), *(count(m, *way) for way in ways)]))
    print(_head("\nLin: H and b together", ["paper", "Fig. 3", "planar", "planar, regrouped"]))
    for n in JOINTS:
        m = arm(n)
        print(
            _row(n, [BOTH["Lin 1991"](n), count_both(m, listed), count_both(m, planar), count_both(simplified(m), planar)])
        )
    columns = ["Renaud, paper", "Fig. A1", "regrouped", "Fijany & Bejczy, paper", "as is", "regrouped"]
    print(_head("\nRenaud, Fijany & Bejczy: inertia matrix H", columns))
    for n in JOINTS:
        m = arm(n)
        pairs = (("Renaud", "renaud"), ("Fijany & Bejczy", "fijany_bejczy"))
        print(_row(n, [c for who, x in pairs for c in (TABLE_I[who](n), count(m, x, False), count(m, x, True))]))
    columns = ["Walker & Orin 1", "2", "3", "Saha's (24)"]
    print(_head("\nWalker & Orin's three methods and Saha's entries: inertia matrix H, as is", columns))
    for n in JOINTS:
        print(_row(n, [count(arm(n), method, False) for method in METHODS]))
    print(_head("\nLin 1988: inertia matrix H in O(n³)", ["paper", "as is", "regrouped"]))
    for n in JOINTS:
        print(_row(n, [TABLE_I["Lin 1988"](n), *(count(arm(n), "lin_1988", way) for way in (False, True))]))
    columns = [x for who in TABLE_II for x in (f"{who}, paper", "as is", "regrouped")]
    print(_head("\nTable II: bias vector b", columns))
    for n in JOINTS:
        cells = []
        for who, method in (("Khalil & Kleinfinger", "khalil_kleinfinger"), ("Balafoutis et al.", "balafoutis_patel")):
            cells += [TABLE_II[who](n), *(count(arm(n), method, way, "bias_force") for way in (False, True))]
        print(_row(n, cells))
    print(_head("\nInverse dynamics", ["Balafoutis & Patel 1991, paper", "as is", "regrouped"]))
    for n in JOINTS:
        ways = (count(arm(n), "balafoutis_patel", way, "inverse_dynamics") for way in (False, True))
        print(_row(n, [INVERSE["Balafoutis & Patel 1991"](n), *ways]))
    print()


def print_chains():
    """Saha's two recursions in O(n), compiled with their loops kept: one state, the least of 30 calls."""
    print(_line("µs for one state", *(f"n = {n}" for n in LENGTHS)), "|---|---|---|---|", sep="\n")
    for function in ("inverse_dynamics", "forward_dynamics"):
        times = []
        for n in LENGTHS:
            model, rng = qddot.chain(n).model, np.random.default_rng(0)
            kernel = pipeline.build(model, Request(function, "denoc", form="rolled"))
            arrays = [rng.uniform(-0.1, 0.1, n) for _ in range(3)]
            times.append(min(_seconds(kernel, arrays) for _ in range(30)))
        print(_line(function, *(f"{t * 1e6:.0f}" for t in times)))


def _seconds(kernel, arrays):
    begin = time.perf_counter()
    kernel(*arrays)
    return time.perf_counter() - begin


# ---- Saha's examples ---------------------------------------------------------------------------------------------------


def cycloid(t, start, end):
    """Position, velocity and acceleration from rest to rest in T seconds."""
    w, way = 2 * np.pi / T, np.subtract(end, start)
    t = np.asarray(t)[:, None]
    position = start + way / T * (t - np.sin(w * t) / w)
    return position, way / T * (1 - np.cos(w * t)), way / T * w * np.sin(w * t)


EXAMPLES = {
    "planar3": (np.zeros(3), np.full(3, np.pi)),
    "stanford": (
        np.array([0, np.pi / 2, 0.1, 0, 0, 0]),
        np.array([np.pi / 3, 5 * np.pi / 6, 0.3, np.pi / 3, np.pi / 3, np.pi / 3]),
    ),
}


def example(name, samples=101):
    """The robot, times, motion and joint forces of an example, forces by Saha's recursion."""
    robot = qddot.Robot(qddot.load(name).model.without_passive_forces(), compiled=False)
    t = np.linspace(0.0, T, samples)
    q, v, a = cycloid(t, *EXAMPLES[name])
    return robot, t, (q, v, a), denoc.inverse_dynamics(robot.model, q, v, a)


def plot(name, folder):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": name, "svg.fonttype": "none"})  # small, and the same from run to run
    from matplotlib import pyplot

    robot, t, (q, v, a), tau = example(name)
    back = denoc.forward_dynamics(robot.model, q, v, tau)
    units = ["m" if joint.kind == "prismatic" else "rad" for joint in robot.model.joint[1:]]
    groups = [range(k, min(k + 3, robot.nv)) for k in range(0, robot.nv, 3)]
    figure, (first, *others) = pyplot.subplots(
        1, 1 + len(groups), figsize=(4.2 * (1 + len(groups)), 3.2), layout="constrained"
    )
    for k, joint in enumerate(robot.joint_names):
        first.plot(t, q[:, k], label=f"{joint} ({units[k]})", dashes=(4, k))
    for group, axis in zip(groups, others, strict=True):
        for k in group:
            axis.plot(t, tau[:, k], label=f"{robot.joint_names[k]} ({'N' if units[k] == 'm' else 'N m'})")
        axis.set(title="joint forces", xlabel="time (s)")
    first.set(title=f"{name}: motion", xlabel="time (s)")
    for axis in (first, *others):
        axis.legend(fontsize="small")
        axis.grid(alpha=0.3)
    figure.savefig(Path(folder) / f"saha_{name}.svg", metadata={"Date": None})
    pyplot.close(figure)
    print(f"{name}: forward dynamics gives the accelerations back to {np.max(np.abs(back - a)):.0e}")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formulations", description=__doc__.splitlines()[0])
    parser.add_argument("--plots", metavar="FOLDER", help="draw Saha's examples into this folder")
    parser.add_argument("--chains", action="store_true", help="and time Saha's recursions on long chains")
    options = parser.parse_args(arguments)
    print_counts()
    if options.chains:
        print_chains()
    for name in EXAMPLES if options.plots else ():
        plot(name, options.plots)


if __name__ == "__main__":
    main()
