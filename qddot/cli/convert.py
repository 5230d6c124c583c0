"""The command `qddot convert`: a robot's file in another format."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from qddot.cli.robot_file import finding_lines, load_robot, robot_arguments
from qddot.errors import printable

HELP = "Writes a robot's file in another format: qddot's own (.json), URDF (.urdf) or MJCF (.xml), also with .gz."


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    robot_arguments(parser)
    add = parser.add_argument
    add("output", help="the file to write; its ending says the format")
    add("--lossy", action="store_true", help="leave out what the format cannot hold, such as loops in URDF")
    add("--package-dir", action="append", default=[], metavar="DIR", help="where packages are (may be repeated)")


def run(options: argparse.Namespace) -> int:
    """Writes the file, and says what it does not hold."""
    lost = load_robot(options, package_dirs=options.package_dir).save(options.output, lossy=options.lossy)
    if options.json:
        print(json.dumps({"file": options.output, "lost": [asdict(f) for f in lost]}, indent=1))
        return 0
    for line in finding_lines(lost):
        print(printable(line), file=sys.stderr)
    print(printable(f"written to {options.output}"))
    return 0
