"""The command `qddot count`: the operations of each function of a robot, by formulation, before and after regrouping.

Algorithms are traced and counted, and nothing is compiled.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from qddot.cli.robot_file import load_robot, robot_arguments
from qddot.dynamics.catalogue import ALIASES, lookup
from qddot.dynamics.choose import cheapest
from qddot.dynamics.trace import traced
from qddot.errors import FormulationError, InputError, printable, unknown
from qddot.robot import Robot

HELP = "Prints the operations of a robot's dynamics by function and formulation, regrouped or not."
DEFAULT = (
    "inverse_dynamics",
    "bias_force",
    "mass_matrix",
    "forward_dynamics",
    "mass_matrix_inverse",
    "forward_kinematics",
)
_COLUMNS = ("mul", "add", "div", "sqrt", "sincos")
_SOLVE = ("forward_dynamics", "forward_dynamics_with_forces", "mass_matrix_inverse")


@dataclass(frozen=True)
class Row:
    """One function in one formulation: operations by kind, and whether `auto` takes it."""

    function: str
    method: str
    auto: bool
    original: Mapping[str, int]
    regrouped: Mapping[str, int]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    robot_arguments(parser)
    parser.add_argument("--function", action="append", metavar="NAME", help="count this function; may be given again")
    parser.add_argument("--method", action="append", metavar="NAME", help="count this formulation; may be given again")
    parser.add_argument("--no-passive-forces", action="store_true", help="leave out joint damping, friction and springs")


def run(options: argparse.Namespace) -> int:
    """Prints the table, row by row; of the spanning tree if there are loops."""
    robot = load_robot(options, passive_forces=not options.no_passive_forces)
    left_out: dict[str, str] = {}
    rows = count(robot, options.function or (), options.method or (), left_out)
    if options.json:
        table = [asdict(row) for row in rows]
        report = {"name": robot.name, "nv": robot.nv, "rows": table, "left_out": left_out}
        print(json.dumps(report, indent=1))
        return 0
    loops = " of the spanning tree" if robot.model.loops else ""
    printed: list[str] = []
    for row in rows:
        if not printed:
            name = printable(robot.name)
            print(f"{name}: {robot.model.n_links} moving links, nv = {robot.nv}; operations{loops} for one state")
            print("\n".join(_head()))
        print(_line(row, first=row.function not in printed))
        printed.append(row.function)
    print("* what method='auto' takes; sincos counts sines and cosines one by one")
    for reason in dict.fromkeys(left_out.values()):
        print(f"without {', '.join(m for m in left_out if left_out[m] == reason)}: {reason}")
    return 0


def count(
    robot: Robot, functions: Sequence[str] = (), methods: Sequence[str] = (), left_out: dict[str, str] | None = None
) -> Iterator[Row]:
    """The rows of these functions and formulations; none named are the usual ones, and all that they have.

    Where all are counted, those that are not for this robot are left out, and `left_out` is told why.
    """
    tree, methods = robot.spanning_tree(), [ALIASES.get(m, m) for m in methods]
    if tree.nv == 0:
        raise InputError(f"robot {robot.name!r} has no degrees of freedom, so there is nothing to count")
    taken: dict[str, str] = {}
    for function, method in list(_pairs(tree, functions, methods)):
        if function not in taken:
            taken[function] = cheapest(tree.model, function, "auto").method
        try:
            original = traced(tree.model, function, method, regroup=False).count()
        except FormulationError as error:
            if methods:
                raise
            if left_out is not None:
                left_out[method] = str(error)
            continue
        regrouped = cheapest(tree.model, function, method).program.count()
        yield Row(function, method, taken[function] == method, original, regrouped)


def _pairs(robot: Robot, functions: Sequence[str], methods: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What is to be counted, or an error that says what there is."""
    for name in functions:
        if needs := lookup(name, "auto")[0].needs:
            what = "a frame" if needs == ("frame",) else ", ".join(f"{x}=" for x in needs)
            asked = ", ".join(f"{x}=..." for x in needs)
            raise InputError(f"function {name!r} needs {what}; robot.kernel({name!r}, {asked}).info has its operations")
    massless = robot.massless_joints
    if massless and (solving := [f for f in functions if f in _SOLVE]):
        raise InputError(f"{solving[0]} is not defined: {robot.engine.solvability.error()}")
    chosen = functions or [f for f in DEFAULT if not (massless and f in _SOLVE)]
    known = {m: None for f in chosen for m in lookup(f, "auto")[0].methods}
    for name in methods:
        if name not in known:
            raise unknown("method", name, known, ", ".join(chosen))
    for function in dict.fromkeys(chosen):
        yield from ((function, m) for m in lookup(function, "auto")[0].methods if not methods or m in methods)


def _head() -> Iterator[str]:
    columns = "".join(f"{c:>7}" for c in _COLUMNS)
    yield f"  {'':<49}{'as the file has it':^{len(columns)}}   {'regrouped':^{len(columns)}}"
    yield f"  {'function':<22}{'method':<27}{columns}   {columns}"


def _line(row: Row, *, first: bool) -> str:
    star = "*" if row.auto else " "
    cells = ("".join(f"{counts[c]:>7,}" for c in _COLUMNS) for counts in (row.original, row.regrouped))
    return f"  {row.function if first else '':<22}{star + row.method:<27}{'   '.join(cells)}"
