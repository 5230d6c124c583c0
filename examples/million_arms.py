"""A million arms under random gains, simulated at once: python examples/million_arms.py [N] [--target cuda]

Every PUMA 560 goes to the same pose by a law with gains of its own, in float32. Drawn over both gains: how far the arms are
from the pose at the end. Soft ones are late, ones with little damping swing, and more damping than the step of time can
follow makes the simulation unstable.

    python examples/million_arms.py 1000000 --target cuda --table arms.npz     on a machine with a card
    python examples/million_arms.py 0 --table arms.npz --picture arms.png      draws it, anywhere
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

import qddot

GOAL = np.array([0.6, -0.9, 0.7, 0.3, 0.5, -0.4])
DT, STEPS, CELLS = 1e-4, 10_000, 64
GAINS = {"stiffness": (1.0, 1e6), "damping": (1.0, 1e5)}  # 1/s² and 1/s, of the error in units of inertia


def law(arm):
    """Torques of a joint in proportion to the inertia that it moves, and what holds the arm at the goal."""
    inertia = np.diag(arm.mass_matrix(GOAL))
    holding = arm.gravity_force(GOAL)

    def torque(t, q, v, p):
        return holding + inertia * (p[0] * (GOAL - q) - p[1] * v)

    return torque


def drawn(n, rng):
    """Gains of so many arms: equally likely in the logarithm."""
    return np.stack([np.exp(rng.uniform(*np.log(own), n)) for own in GAINS.values()], axis=-1)


def simulated(n, target):
    """The gains, and the largest error of a joint at the end, in radians; NaN or more than a turn: unstable."""
    arm, gains = qddot.load("puma560"), drawn(n, np.random.default_rng(0))
    options = {"dt": DT, "integrator": "semi_implicit_euler", "dtype": "float32", "target": target, "parameters": gains}
    options["limits"] = "ignore"  # of joints: soft arms swing beyond them
    start, rest, torque = arm.neutral(), np.zeros(arm.nv), law(arm)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qddot.QddotWarning)  # of steps that are too long: they are meant to be seen
        arm.simulate(start, rest, torque, steps=1, record="end", **(options | {"parameters": gains[:1]}))  # compiles
        begin = time.perf_counter()
        run = arm.simulate(start, rest, torque, steps=STEPS, record="end", **options)
        error = np.abs(run.q[:, -1] - GOAL).max(axis=-1)
        seconds = time.perf_counter() - begin
    print(f"{n:,} arms, {STEPS} steps each: {seconds:.2f} s, {n * STEPS / seconds / 1e6:,.0f} million steps a second")
    return gains, error


def table(gains, error):
    """The median of the errors in each cell of a grid of gains; unstable ones count as infinite."""
    error = np.where(np.isfinite(error) & (error < 2.0 * np.pi), error, np.inf)
    place = np.zeros(len(gains), int)
    for k, (low, high) in enumerate(GAINS.values()):
        cell = np.log(gains[:, k] / low) / np.log(high / low) * CELLS
        place = CELLS * place + np.clip(cell.astype(int), 0, CELLS - 1)
    order = np.lexsort((error, place))
    first = np.searchsorted(place[order], np.arange(CELLS * CELLS))
    count = np.diff(np.append(first, len(order)))
    middle = np.minimum(first + count // 2, len(order) - 1)
    return np.where(count > 0, error[order][middle], np.nan).reshape(CELLS, CELLS)


def draw(cells, path):
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.colors import LogNorm

    figure, axes = pyplot.subplots(figsize=(7.0, 5.0), layout="constrained")
    edges = [np.geomspace(*own, CELLS + 1) for own in GAINS.values()]
    stable = np.ma.masked_invalid(np.maximum(cells, 1e-6))
    colours = mpl.colormaps["viridis_r"].with_extremes(bad="0.85")
    drawing = axes.pcolormesh(*edges, stable.T, norm=LogNorm(1e-6, 3.0), cmap=colours, rasterized=True)
    axes.loglog(edges[0], 2.0 * np.sqrt(edges[0]), "k--", linewidth=1.0, label="critical damping")
    axes.set(xlabel="stiffness, 1/s²", ylabel="damping, 1/s", xlim=GAINS["stiffness"], ylim=GAINS["damping"])
    axes.legend(loc="lower right")
    axes.set_title(f"Error after {DT * STEPS:g} s, median; grey: unstable steps")
    figure.colorbar(drawing, label="largest error of a joint, rad")
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("arms", nargs="?", type=int, default=20_000)
    parser.add_argument("--target", default="cpu", help="cpu, or cuda for an NVIDIA card")
    parser.add_argument("--table", type=Path, help="a file for the grid of errors; read if there are to be 0 arms")
    parser.add_argument("--picture", type=Path, help="a file for the picture (needs matplotlib, extra [view])")
    given = parser.parse_args()
    if given.arms:
        gains, error = simulated(given.arms, given.target)
        cells = table(gains, error)
        close = np.mean(error < 0.01)
        print(f"{100 * close:.0f} % are within 0.01 rad of the pose, {100 * np.mean(~(error < 2 * np.pi)):.0f} % unstable")
        assert 0.05 < close < 0.9
        if given.table:
            np.savez_compressed(given.table, cells=cells.astype(np.float32))
    else:
        cells = np.load(given.table)["cells"]
    if given.picture:
        draw(cells, given.picture)


if __name__ == "__main__":
    main()
