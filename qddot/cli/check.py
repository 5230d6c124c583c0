"""The command `qddot check`: everything doubtful in a robot's file, and the identities of dynamics on it."""

from __future__ import annotations

import argparse
import json

from qddot.cli.robot_file import load_robot, robot_arguments

HELP = "Lists everything doubtful in a robot's file, then tests the identities of dynamics on it."


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    robot_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints findings and identities; 1 where something is wrong."""
    report = load_robot(options).check()
    if options.json:
        found = {
            "name": report.name,
            "findings": [vars(f) for f in report.findings],
            "massless_joints": list(report.massless_joints),
            "identities": [{**vars(r), "holds": r.holds} for r in report.identities],
            "ok": report.ok,
        }
        print(json.dumps(found, indent=1))
    else:
        print(report)
    return int(not report.ok)
