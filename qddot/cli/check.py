"""The command `qddot check`: everything doubtful in a robot's file, and the identities of dynamics on it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence

from qddot.cli.robot_file import finding_lines, load_robot, massless_lines, robot_arguments
from qddot.errors import printable
from qddot.robot.identities import Identity, identities

HELP = "Lists everything doubtful in a robot's file, then tests the identities of dynamics on it."


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    robot_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints findings and identities; 1 where something is wrong."""
    robot = load_robot(options)
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
    for line in (*finding_lines(findings), *massless_lines(robot)):
        print(printable(line))
    print("\n".join(_table(results)))
    failed = sum(not r.holds for r in results)
    held = f"{len(results) - failed} of {len(results)} identities hold"
    print(f"{len(warned)} warnings, {len(findings) - len(warned)} notes; {held}")
    return int(bad)


def _table(results: Sequence[Identity]) -> Iterator[str]:
    for r in results:
        yield f"  {'ok  ' if r.holds else 'FAIL'}  {r.name:<50} {r.error:8.1e}  (allowed {r.allowed:.1e})"
