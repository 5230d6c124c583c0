"""What all commands on a robot share: the options to load it, and how its findings are printed."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from qddot import robots
from qddot.errors import Finding, InputError, shown
from qddot.robot import Robot
from qddot.robot.load import PRINTED, load

_FILE = f"a URDF, xacro, SDF, MJCF, DH or qddot file, also .gz, or one of: {', '.join(robots.NAMES)}"
_TRUST = "let the file lead to files anywhere, run the code of xacro, and read MJCF without limits of time and memory"


def robot_arguments(parser: argparse.ArgumentParser, optional: str = "") -> None:
    """The file and how it is read; `optional` says when it may be left out."""
    add = parser.add_argument
    if optional:
        add("file", nargs="?", help=optional)
    else:
        add("file", help=_FILE)
    add("--floating-base", action="store_true", help="put a URDF on a free joint")
    add("--trust", action="store_true", help=_TRUST)
    snap = "set angles within 1e-5 rad of a multiple of π/2 to it"
    add("--snap", action="store_const", const=True, default=PRINTED, help=snap)
    add(
        "--srdf",
        metavar="FILE",
        help="groups and named configurations (default: a file of the same name beside the robot's)",
    )
    add("--xacro", action="append", default=[], metavar="NAME:=VALUE", help="an argument of a xacro file (may be repeated)")
    add("--loop-tolerance", type=float, help="how far loops may miss and count as closed, in m or rad")


def load_robot(options: argparse.Namespace, **more: Any) -> Robot:
    """The robot that the options name; `more` goes to `qddot.load`."""
    given = {"floating_base": options.floating_base, "snap": options.snap, "trust": options.trust}
    if options.srdf is not None:
        more["srdf"] = options.srdf
    if options.xacro:
        more["xacro_arguments"] = dict(map(_argument, options.xacro))
    return load(options.file, loop_tolerance=options.loop_tolerance, **given, **more)


def _argument(text: str) -> tuple[str, str]:
    name, sign, value = text.partition(":=")
    if not sign or not name:
        raise InputError(f"--xacro is {shown(text)}; give NAME:=VALUE")
    return name, value


def finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """A line a finding."""
    for finding in findings:
        yield f"{finding.severity}: {finding}"


def massless_lines(robot: Robot) -> Iterator[str]:
    """Lines that say why there is no forward dynamics, if there is none."""
    if robot.massless_joints:
        yield ""
        yield f"warning: forward dynamics is not defined: {robot.engine.solvability.error()}"
