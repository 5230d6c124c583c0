"""The command line: `qddot demo`, `qddot info FILE`, `qddot check FILE`, `qddot count FILE`, `qddot compare FILE`,
`qddot bench FILE`, `qddot export FILE`, `qddot view FILE`, `qddot cache`.

Exit codes: 0 all is well, 1 something was found wrong, 2 the file or the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from qddot import robots
from qddot.cli import bench, count, demo, export, view
from qddot.cli import cache as cache_command
from qddot.cli import compare as compare_command
from qddot.compiler.runtime.threads import get_num_threads
from qddot.errors import Finding, QddotError, QddotWarning, printable
from qddot.robot import Robot
from qddot.robot.identities import Identity, identities
from qddot.robot.load import PRINTED, load
from qddot.version import __version__

TRUST = "let the file lead to meshes and included files anywhere, and read MJCF without limits of time and memory"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    options = _parser().parse_args(arguments)
    warnings.simplefilter("ignore", QddotWarning)  # the commands print the findings themselves
    try:
        return int(options.command(options))
    except QddotError as error:
        if getattr(options, "json", False):
            print(json.dumps({"error": str(error)}))
        print(f"qddot: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="qddot", description="Robot dynamics from a model file.")
    parser.add_argument("--version", action="version", version=f"qddot {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, function: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=function)
        sub.add_argument("--json", action="store_true", help="print JSON instead of text")
        return sub

    for name, function, text in (
        ("info", _info, "Shows the tree, the masses, the joints and the findings of a robot."),
        ("check", _check, "Lists everything doubtful in a robot's file, then tests the identities of dynamics on it."),
        ("count", _count, "Prints the operations of a robot's dynamics by function and formulation, regrouped or not."),
        ("bench", _bench, "Prints how many states a second are computed of a robot on this machine."),
        ("export", export.command, "Writes a function of a robot as readable C99."),
        ("view", view.command, "Shows a robot, or the folder of a recorded run, in the browser (extra [view])."),
    ):
        sub = command(name, function, text)
        sub.add_argument("file", help=f"a URDF, MJCF, DH or qddot file, or one of: {', '.join(robots.NAMES)}")
        sub.add_argument("--floating-base", action="store_true", help="put a URDF on a free joint")
        sub.add_argument("--trust", action="store_true", help=TRUST)
        sub.add_argument(
            "--snap",
            action="store_const",
            const=True,
            default=PRINTED,
            help="set angles within 1e-5 rad of a multiple of π/2 to it",
        )
        sub.add_argument("--loop-tolerance", type=float, help="how far loops may miss and count as closed, in m or rad")
        if name == "export":
            export.add_arguments(sub)
        if name == "view":
            view.add_arguments(sub)
        if name == "count":
            count.add_arguments(sub)
    compare = command("compare", _compare, "Prints every formulation of a robot's dynamics: operations and measured time.")
    compare.add_argument("file", nargs="?", help="as for the other commands; none with --arms")
    compare.add_argument("--floating-base", action="store_true", help="put a URDF on a free joint")
    compare.add_argument("--trust", action="store_true", help=TRUST)
    compare_command.add_arguments(compare)
    cache = command("cache", cache_command.command, "Shows and clears the compiled code kept on disk.")
    cache_command.add_arguments(cache)
    demonstration = command("demo", demo.command, "Simulates three robots, says how well and how fast, saves them.")
    demo.add_arguments(demonstration)
    return parser


def _compare(options: argparse.Namespace) -> int:
    choices = {"floating_base": options.floating_base, "trust": options.trust}
    robot = None if options.file is None else load(options.file, **choices)
    return compare_command.command(options, robot)


def _load(options: argparse.Namespace) -> Robot:
    passive = not getattr(options, "no_passive_forces", False)
    choices = {"floating_base": options.floating_base, "snap": options.snap, "trust": options.trust}
    return load(options.file, passive_forces=passive, loop_tolerance=options.loop_tolerance, **choices)


# ---- info ----------------------------------------------------------------------------------------------------------


def _info(options: argparse.Namespace) -> int:
    robot = _load(options)
    if options.json:
        print(json.dumps(_description(robot), indent=1))
        return 0
    print("\n".join(map(printable, _summary(robot))))
    return 0


def _description(robot: Robot) -> dict[str, Any]:
    model = robot.model
    return {
        "name": robot.name,
        "nq": robot.nq,
        "nv": robot.nv,
        "mass": robot.mass,
        "gravity": list(model.gravity),
        "links": [
            {
                "name": model.link_names[i],
                "parent": model.link_names[p],
                "joint": model.joint_names[i],
                "kind": model.joint[i].kind,
                "mass": model.inertia[i].m,
                "mimics": None if (m := model.mimic[i]) is None else model.joint_names[m.link],
                "actuated": model.actuated[i],
            }
            for i, p in model.outward()
        ],
        "frames": [{"name": f.name, "link": model.link_names[f.link]} for f in model.frames],
        "loops": [
            {"name": x.name, "kind": x.joint.kind, "links": [model.link_names[x.link_a], model.link_names[x.link_b]]}
            for x in model.loops
        ],
        "massless_joints": list(robot.massless_joints),
        "findings": [vars(f) for f in robot.findings],
    }


def _summary(robot: Robot) -> Iterator[str]:
    model = robot.model
    loops = f", {len(model.loops)} loops" if model.loops else ""
    yield f"{robot.name}: {model.n_links} moving links, nq = {robot.nq}, nv = {robot.nv}{loops}"
    yield f"moving mass {robot.mass:.6g} kg, gravity ({', '.join(f'{g:g}' for g in model.gravity)}) m/s²"
    yield ""
    names = _tree_names(robot)
    width = max(map(len, names), default=4)
    joint_width = max(map(len, robot.joint_names), default=5)
    yield f"  {'link':<{width}}  {'joint':<{joint_width}}  {'kind':<22} {'mass, kg':>10}  limits"
    for name, (i, _) in zip(names, model.outward(), strict=True):
        kind = model.joint[i].kind
        if (m := model.mimic[i]) is not None:
            kind = f"{kind} = {m.factor:g}·{model.joint_names[m.link]}{m.offset:+g}"
        row = f"  {name:<{width}}  {model.joint_names[i]:<{joint_width}}  {kind:<22} {model.inertia[i].m:>10.4g}"
        yield f"{row}  {_limits(robot, i)}".rstrip()
    for loop in model.loops:
        a, b = model.link_names[loop.link_a], model.link_names[loop.link_b]
        yield f"  loop {loop.name}: {loop.joint.kind} between {a} and {b}"
    if model.frames:
        shown = ", ".join(f"{f.name} (on {model.link_names[f.link]})" for f in model.frames[:12])
        yield f"  frames: {shown}" + (f", and {len(model.frames) - 12} more" if len(model.frames) > 12 else "")
    yield from _massless(robot)
    yield from _findings(robot.findings)


def _tree_names(robot: Robot) -> list[str]:
    depth = [0] * (robot.model.n_links + 1)
    for i, p in robot.model.outward():
        depth[i] = depth[p] + 1
    return ["  " * (depth[i] - 1) + robot.model.link_names[i] for i, _ in robot.model.outward()]


def _limits(robot: Robot, i: int) -> str:
    lower, upper = robot.model.limits[i].lower, robot.model.limits[i].upper
    if len(lower) != 1 or not (np.isfinite(lower[0]) or np.isfinite(upper[0])):
        return ""
    unit = "rad" if robot.model.joint[i].is_angle[0] else "m"
    return f"[{lower[0]:g}, {upper[0]:g}] {unit}"


def _massless(robot: Robot) -> Iterator[str]:
    if robot.massless_joints:
        yield ""
        yield f"warning: forward dynamics is not defined: {robot.engine.solvability.error()}"


def _findings(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{finding.severity}: {finding}"


# ---- check ---------------------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> int:
    robot = _load(options)
    results = list(identities(robot, kernels=True))
    findings = (*robot.findings, *robot.loop_findings)
    warned = [f for f in findings if f.severity != "note"]
    bad = bool(warned or robot.massless_joints or not all(r.holds for r in results))
    if options.json:
        report = {
            "name": robot.name,
            "findings": [vars(f) for f in findings],
            "massless_joints": list(robot.massless_joints),
            "identities": [{**vars(r), "holds": r.holds} for r in results],
            "ok": not bad,
        }
        print(json.dumps(report, indent=1))
        return int(bad)
    print(printable(f"{robot.name}: {robot.model.n_links} moving links, nq = {robot.nq}, nv = {robot.nv}"))
    for line in (*_findings(findings), *_massless(robot)):
        print(printable(line))
    print("\n".join(_table(results)))
    failed = sum(not r.holds for r in results)
    held = f"{len(results) - failed} of {len(results)} identities hold"
    print(f"{len(warned)} warnings, {len(findings) - len(warned)} notes; {held}")
    return int(bad)


def _table(results: Sequence[Identity]) -> Iterator[str]:
    for r in results:
        yield f"  {'ok  ' if r.holds else 'FAIL'}  {r.name:<50} {r.error:8.1e}  (allowed {r.allowed:.1e})"


# ---- count -----------------------------------------------------------------------------------------------------------


def _count(options: argparse.Namespace) -> int:
    return count.command(options, _load(options))


# ---- bench -----------------------------------------------------------------------------------------------------------


def _bench(options: argparse.Namespace) -> int:
    robot = _load(options).spanning_tree()
    names = [f for f in bench.DEFAULT if not (robot.massless_joints and f in ("forward_dynamics", "mass_matrix_inverse"))]
    rows = []
    if not options.json:
        threads = f"{get_num_threads()} threads"
        name = printable(robot.name)
        print(f"{name}: nq = {robot.nq}, nv = {robot.nv}; batch of 4096 states in double precision, {threads}")
        columns = ("states/s, 1 thread", "all threads", "one call", "vs eager", "compiled in")
        print(f"  {'function':<22} " + " ".join(f"{c:>{w}}" for c, w in zip(columns, (19, 13, 10, 9, 12), strict=True)))
    for row in bench.measure(robot, names):
        rows.append(row)
        if not options.json:
            print(
                f"  {row.function:<22} {row.one_thread:>19,.0f} {row.all_threads:>13,.0f} {1e6 * row.one_call:>7.2f} µs"
                f" {row.eager * row.one_thread:>8,.0f}× {row.compile_seconds:>10.2f} s"
            )
    if options.json:
        print(json.dumps({"name": robot.name, "threads": get_num_threads(), "rows": [vars(r) for r in rows]}, indent=1))
    return 0
