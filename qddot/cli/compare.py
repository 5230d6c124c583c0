"""The command `qddot compare`: formulations of a function side by side, on a robot or on arms of growing length."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from qddot.cli.robot_file import load_robot, robot_arguments
from qddot.dynamics.catalogue import FUNCTIONS, lookup
from qddot.dynamics.compare import Formulation, compare
from qddot.errors import InputError, extra, printable
from qddot.robot import Robot
from qddot.robot.load import from_dh

HELP = "Prints every formulation of a robot's dynamics: operations and measured time."
DEFAULT = ("inverse_dynamics", "bias_force", "mass_matrix", "forward_dynamics", "mass_matrix_inverse")
_MAX_TIMED_RATIO = 3.0  # times the fewest instructions: what has more is not measured


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    robot_arguments(parser, optional="as for the other commands; none with --arms")
    parser.add_argument("--function", action="append", metavar="NAME", help="compare this function; may be given again")
    parser.add_argument("--no-times", action="store_true", help="trace and count only, compile and measure nothing")
    parser.add_argument("--arms", type=int, metavar="N", help="general revolute arms of 2 to N joints instead of a file")
    parser.add_argument("--plot", metavar="FILE", help="draw it into a picture (.svg or .png; needs matplotlib)")


def run(options: argparse.Namespace) -> int:
    """Prints a table for each function, or for each length of arm."""
    robot = None if options.file is None else load_robot(options)
    functions = options.function or DEFAULT
    for name in functions:
        if lookup(name, "auto")[0].needs or name not in FUNCTIONS:
            raise InputError(
                f"function {name!r} cannot be compared: it needs more than a state; choose from {', '.join(DEFAULT)}"
            )
    if options.arms is not None and not 2 <= options.arms <= 60:
        raise InputError(f"--arms is {options.arms}; give a number of joints from 2 to 60")
    if options.arms is not None:
        robots = [(str(n), general_arm(n)) for n in range(2, options.arms + 1)]
    elif robot is not None:
        robots = [(robot.name, robot)]
    else:
        raise InputError("nothing to compare: give a file or --arms N")
    found: dict[str, dict[str, list[Formulation]]] = {}
    for label, one in robots:
        found[label] = {}
        for name in functions:
            found[label][name] = compare(one, name, measure=not options.no_times, most=_MAX_TIMED_RATIO)
            if not options.json:
                _print(f"{label} joints" if options.arms else label, name, found[label][name])
    if options.json:
        table = {label: {f: [asdict(r) for r in rows] for f, rows in of.items()} for label, of in found.items()}
        print(json.dumps(table, indent=1))
    if options.plot:
        _plot(options.plot, found, functions, growing=options.arms is not None)
        print(f"drawn into {options.plot}")
    return 0


def general_arm(n: int, seed: int = 0) -> Robot:
    """An arm of n revolute joints with modified DH parameters and inertias that are all arbitrary."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        A = rng.standard_normal((3, 3))
        alpha, a, d = rng.uniform(0.2, 1.2, 3)
        moments = 0.1 * (A @ A.T) + 0.1 * np.eye(3)  # second moments of mass
        inertia = np.trace(moments) * np.eye(3) - moments
        mass, com = rng.uniform(0.5, 3.0), rng.uniform(-0.3, 0.3, 3)
        rows.append({"alpha": alpha, "a": a, "d": d, "mass": mass, "com": com, "inertia": inertia})
    return from_dh(rows, convention="modified")


def _print(label: str, function: str, rows: Sequence[Formulation]) -> None:
    print(f"{printable(label)}: {function}")
    print(f"  {'method':<30}{'mul':>8}{'add':>8}{'div':>6}{'sincos':>8}{'instructions':>14}{'cost':>8}{'ns a state':>12}")
    for r in rows:
        if r.refused:
            print(f"   {r.method:<29}{r.refused}")
            continue
        time = "" if r.nanoseconds is None else f"{r.nanoseconds:.0f}"
        counts = f"{r.ops['mul']:>8,}{r.ops['add']:>8,}{r.ops['div']:>6,}{r.ops['sincos']:>8,}"
        print(f"  {'*' if r.auto else ' '}{r.method:<29}{counts}{r.instructions:>14,}{r.cost:>8,}{time:>12}")
    why = next((r.why for r in rows if r.auto), "")
    print(f"  * what method='auto' takes; {why}\n" if why else "  * what method='auto' takes\n")


def _plot(path: str, found: dict[str, dict[str, list[Formulation]]], functions: Sequence[str], growing: bool) -> None:
    extra("matplotlib", "view", "a picture").use("Agg")
    pyplot: Any = extra("matplotlib.pyplot", "view", "a picture")
    if Path(path).suffix not in (".svg", ".png", ".pdf"):
        raise InputError(f"--plot {path}: the picture's name must end with .svg, .png or .pdf")
    timed = any(r.nanoseconds for of in found.values() for rows in of.values() for r in rows)
    shape = (len(functions), 2 if timed else 1)
    figure, axes = pyplot.subplots(*shape, figsize=(7 * shape[1], 3.2 * shape[0]), squeeze=False, layout="constrained")
    for row, name in zip(axes, functions, strict=True):
        for axis, (attribute, unit) in zip(row, (("operations", "mul + add"), ("nanoseconds", "ns a state")), strict=False):
            (_lines if growing else _bars)(axis, found, name, attribute)
            axis.set_title(f"{name}: {unit}")
    figure.savefig(path)


def _bars(axis: Any, found: dict[str, dict[str, list[Formulation]]], name: str, attribute: str) -> None:
    rows = [r for r in next(iter(found.values()))[name] if getattr(r, attribute)]
    rows.sort(key=lambda r: getattr(r, attribute), reverse=True)
    colours = ["tab:orange" if r.auto else "tab:blue" for r in rows]
    axis.barh([r.method for r in rows], [getattr(r, attribute) for r in rows], color=colours)


def _lines(axis: Any, found: dict[str, dict[str, list[Formulation]]], name: str, attribute: str) -> None:
    for method in FUNCTIONS[name].methods:
        points = [
            (int(n), getattr(r, attribute))
            for n, of in found.items()
            for r in of[name]
            if r.method == method and getattr(r, attribute)
        ]
        if points:
            axis.plot(*zip(*points, strict=True), marker=".", label=method)
    axis.set_xlabel("joints")
    axis.set_yscale("log")
    axis.legend(fontsize="x-small")
