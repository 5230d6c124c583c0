"""How accurate each formulation is: `python -m benchmarks.accuracy [--plot docs/accuracy.svg]`; and how accurate kernels of
float32 are, `--single`.

Every formulation of `qddot.dynamics.catalogue` runs as it is written, in float32 and float64, and once more on numbers of
60 digits, which is the reference. A model's numbers and the states are rounded to float32 first, and joints and placements
stand along coordinate axes: so all precisions begin with the same numbers, and errors are the formulation's own. They are
given in units of rounding: the largest error of a state's result over its largest entry, over eps; medians over states.

`--single` compiles functions of real robots in float32 and float64, and compares the results at random states, which are
rounded to float32 beforehand: the error is that of float32's arithmetic, the model's rounded numbers included.
"""

import argparse
import dataclasses
import statistics
import sys
import sysconfig
import warnings
from pathlib import Path

import mpmath
import numpy as np

import qddot
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.errors import QddotError
from qddot.mechanism.link_classes import FIELDS, map_numbers, rebuild, row_of

DIGITS = 60
STATES = 9
REAL_ROBOTS = 30
REAL_STATES = 200
FLOATING_FROM_DOF = 12  # of a real robot's file: quadrupeds and humanoids stand on nothing
EMBEDDED = ("scara", "stanford", "puma560", "quadruped")
KERNELS = {  # of real robots: inputs, and up to how many degrees of freedom
    "inverse_dynamics": ("qva", 60),
    "forward_dynamics": ("qva", 60),
    "mass_matrix": ("q", 60),
    "inverse_dynamics_derivatives": ("qva", 60),
    "forward_dynamics_derivatives": ("qva", 20),
}
QUANTITIES = ("inverse_dynamics", "mass_matrix", "forward_dynamics", "mass_matrix_inverse")
PRECISIONS = {"float32": (np.float32, float(np.finfo(np.float32).eps)), "float64": (float, float(np.finfo(float).eps))}


# ---- mechanisms --------------------------------------------------------------------------------------------------------


def arm(n, masses, length=0.5, base=(0.0, 0.0, 0.0)):
    """Bars in a row on hinges about y and z in turn, the first at `base`."""
    b = qddot.Builder(f"arm{n}")
    for k, m in enumerate(masses):
        bar = m * length**2 / 12
        b.link(f"l{k}", m, (length / 2, 0.0, 0.0), (0.01 * bar, 0.0, 0.0, bar, 0.0, bar))
        axis = (0.0, 1.0, 0.0) if k % 2 else (0.0, 0.0, 1.0)
        at = qddot.pose((length, 0.0, 0.0) if k else base)
        b.joint(f"j{k}", f"l{k - 1}" if k else "world", f"l{k}", qddot.joints.Revolute(axis), at)
    return b.robot().model


def families():
    """Mechanisms that become worse in one way each: title, what grows, and a model for each value of it."""
    return {
        "links of one weight": ("links", {n: arm(n, [1.0] * n) for n in (2, 4, 8, 16, 32)}),
        "six links, each lighter than the one before": (
            "ratio of neighbours",
            {r: arm(6, [float(r) ** -k for k in range(6)]) for r in (1, 3, 10, 30, 100)},
        ),
        "six links, each heavier than the one before": (
            "ratio of neighbours",
            {r: arm(6, [float(r) ** k for k in range(6)]) for r in (1, 3, 10, 30, 100)},
        ),
        "six links, the base far from the origin": (
            "metres",
            {d: arm(6, [1.0] * 6, base=(d, d, 0.0)) for d in (0.0, 10.0, 1e2, 1e3, 1e4)},
        ),
    }


def robots():
    names = ("puma560", "stanford", "scara", "quadruped")
    return {name: qddot.load(name).spanning_tree().model.without_passive_forces() for name in names}


# ---- numbers -----------------------------------------------------------------------------------------------------------


def in_scalars(model, number):
    """The model with its numbers as scalars of another kind; 0, 1 and -1 stay, which every kind has."""

    def one(x):
        return x if x in (0.0, 1.0, -1.0) else number(x)

    rows = [map_numbers(row_of(model, i), one, rebuild) for i in range(len(model.parent))]
    tables = {name: tuple(row[k] for row in rows) for k, name in enumerate(FIELDS)}
    return dataclasses.replace(model, **tables, gravity=tuple(one(x) for x in model.gravity))


def single(x):
    return float(np.float32(x))


def states(model, count=STATES):
    """q, v and a third vector, for accelerations and forces: numbers that float32 has; quaternions at rest."""
    rng, robot = np.random.default_rng(0), qddot.Robot(model, compiled=False)
    for _ in range(count):
        q, v = robot.random_state(rng)
        for i, _ in model.outward():
            if model.joint[i].nq > model.joint[i].nv:
                q[model.slots[i].q] = model.joint[i].neutral()
        yield [np.array([single(x) for x in vector]) for vector in (q, v, rng.standard_normal(model.nv))]


def run(model, quantity, method, state, number):
    """One state by one formulation in one kind of scalars, as an object array."""
    function = FUNCTIONS[quantity]
    known = dict(zip(("q", "v", "a"), state, strict=True)) | {"tau": state[2]}
    arrays = [np.array([number(x) for x in known[name].tolist()], dtype=object) for name in function.inputs]
    with np.errstate(all="ignore"):
        return np.asarray(function.methods[method](in_scalars(model, number), *arrays), dtype=object)


def errors(model, quantity, count=STATES, precisions=PRECISIONS):
    """{method: {precision: median error in units of rounding}}, and what is wrong with formulations that do not run."""
    model, found, refused = in_scalars(model, single), {}, {}
    with mpmath.workdps(DIGITS):
        for state in states(model, count):
            methods = [m for m in FUNCTIONS[quantity].methods if m not in refused]
            exact = run(model, quantity, methods[0], state, mpmath.mpf)
            size = max(abs(x) for x in exact.ravel())
            for method in methods:
                for name, (number, eps) in precisions.items():
                    try:
                        result = run(model, quantity, method, state, number)
                    except (QddotError, ArithmeticError) as error:
                        refused[method] = f"{type(error).__name__}: {error}"
                        break
                    off = max(abs(mpmath.mpf(float(x)) - y) for x, y in zip(result.ravel(), exact.ravel(), strict=True))
                    found.setdefault(method, {}).setdefault(name, []).append(float(off / size) / eps)
    median = {m: {p: statistics.median(x) for p, x in row.items()} for m, row in found.items() if m not in refused}
    return median, refused


def condition(model):
    """The largest condition number of M over the states."""
    robot = qddot.Robot(model, compiled=False)
    return max(float(np.linalg.cond(robot.mass_matrix(q))) for q, _, _ in states(model))


# ---- kernels of float32 ------------------------------------------------------------------------------------------------


def real_robots(count=REAL_ROBOTS):
    """So many folders of example-robot-data, of each the first robot with mass at every joint; without it embedded ones."""
    root = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix/share/example-robot-data/robots"
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qddot.QddotWarning)
        for folder in sorted(p for p in root.glob("*") if p.is_dir()):
            for path in sorted(folder.rglob("*.urdf")):
                try:
                    robot = qddot.load(path)
                except QddotError:
                    continue
                if 2 <= robot.nv <= 50 and not robot.massless_joints:
                    floating = robot.nv >= FLOATING_FROM_DOF
                    found[path.stem] = qddot.load(path, floating_base=True) if floating else robot
                    break
            if len(found) == count:
                break
    return found or {name: qddot.load(name) for name in EMBEDDED}


def single_errors(robot, function, count=REAL_STATES):
    """The errors of a kernel of float32 at random states: the largest over the largest entry of the state's result.

    NaN where the kernel of float32 refuses a state whose pivot has too few digits left.
    """
    rng = np.random.default_rng(0)
    q, v = (np.float32(x) for x in zip(*(robot.random_state(rng) for _ in range(count)), strict=True))
    known = {"q": q, "v": v, "a": np.float32(rng.standard_normal(v.shape))}
    arrays = [known[x] for x in KERNELS[function][0]]
    found, exact = (
        np.asarray(robot.kernel(function, dtype=t)(*(x.astype(t) for x in arrays)), dtype=float).reshape(count, -1)
        for t in ("float32", "float64")
    )
    return np.max(np.abs(found - exact), axis=1) / np.max(np.abs(exact), axis=1)


def single_table(robots):
    """Prints median and largest error of every function of every robot, and gives all errors back."""
    results = {}
    print(f"| robot | DoF | {' | '.join(KERNELS)} |\n|---|---|{'---|' * len(KERNELS)}")
    for name, robot in robots.items():
        errors_ = {f: single_errors(robot, f) for f, (_, most) in KERNELS.items() if robot.nv <= most}
        cells = [shown(errors_[f]) if f in errors_ else "–" for f in KERNELS]
        print(f"| {name} | {robot.nv} | {' | '.join(cells)} |", flush=True)
        results[name] = errors_
    return results


def shown(errors_):
    """Median and largest, and how many are refused."""
    refused = int(np.isnan(errors_).sum())
    return f"{np.nanmedian(errors_):.0e} ({np.nanmax(errors_):.0e}){f', {refused} refused' if refused else ''}"


# ---- the report --------------------------------------------------------------------------------------------------------


def table(title, models, quantity, precision):
    """Prints the errors of one quantity in one precision, and gives them back by formulation."""
    only = {precision: PRECISIONS[precision]}
    columns = {name: errors(model, quantity, precisions=only) for name, model in models.items()}
    conditions = [condition(in_scalars(model, single)) for model in models.values()]
    print(f"\n{quantity}, {precision}: {title}\n")
    print(f"| formulation | {' | '.join(str(name) for name in models)} |\n|---|{'---|' * len(models)}")
    print(f"| condition of M | {' | '.join(f'{c:.0e}' for c in conditions)} |")
    for method in FUNCTIONS[quantity].methods:
        cells = [f"{found[method][precision]:.3g}" if method in found else "–" for found, _ in columns.values()]
        print(f"| {method} | {' | '.join(cells)} |", flush=True)
    for method, why in {m: w for _, refused in columns.values() for m, w in refused.items()}.items():
        print(f"\n{method} is not for all of these: {why}")
    nothing = {precision: float("nan")}
    return {m: [found.get(m, nothing)[precision] for found, _ in columns.values()] for m in FUNCTIONS[quantity].methods}


def plot(path, results):
    """A panel for each family: forward dynamics, error in units of rounding against what grows."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "qddot"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for axis, (title, grows, values, lines) in zip(axes.ravel(), results, strict=True):
        for k, (method, errors_) in enumerate(lines.items()):
            style = "-" if k < 10 else "--"  # there are ten colours
            axis.plot([max(x, 1.0) for x in values], errors_, style, marker="o", markersize=3, label=method)
        axis.set(xscale="log", yscale="log", title=title, xlabel=grows, ylabel="error / eps")
        axis.grid(alpha=0.3)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--plot", metavar="FILE", help="draw the errors of forward dynamics, float64; needs matplotlib")
    parser.add_argument("--quantity", action="append", choices=QUANTITIES, help="these only")
    parser.add_argument("--single", action="store_true", help="kernels of float32 against float64, on real robots")
    chosen = parser.parse_args(words)
    if chosen.single:
        single_table(real_robots())
        return
    results = []
    for quantity in chosen.quantity or QUANTITIES:
        for precision in PRECISIONS:
            table("robots", robots(), quantity, precision)
            for title, (grows, models) in families().items():
                lines = table(f"{title}; {grows}", models, quantity, precision)
                if (quantity, precision) == ("forward_dynamics", "float64"):
                    results.append((title, grows, list(models), lines))
    if chosen.plot and results:
        plot(chosen.plot, results)
        print(f"drawn: {chosen.plot}", file=sys.stderr)


if __name__ == "__main__":
    main()
