"""The command `qddot view`: a robot, or a recorded run, in the browser."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from qddot.cli.robot_file import load_robot, robot_arguments
from qddot.errors import InputError
from qddot.robot.load import load_trajectory

HELP = "Shows a robot, or the folder of a recorded run, in the browser (extra [view])."


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    robot_arguments(parser)
    add = parser.add_argument
    add(
        "--package-dir", action="append", default=[], metavar="DIR", help="where meshes of package:// are (may be repeated)"
    )
    add("--host", default="127.0.0.1", help="the address to serve on; 0.0.0.0 shows it to the whole network")
    add("--port", type=int, default=8080, help="the port, or the first free one after it")
    add("--no-browser", action="store_true", help="do not open a browser")
    add("--html", metavar="OUT.html", help="write a recorded run as one self-contained page instead")


def run(options: argparse.Namespace) -> int:
    """Shows what is given until Ctrl-C, or writes the page."""
    from qddot.viewer import show

    if not Path(options.file).is_dir():
        if options.html:
            raise InputError(f"--html is for the folder of a recorded run, and {options.file} is a robot")
        robot = load_robot(options, package_dirs=options.package_dir)
        show(robot, host=options.host, port=options.port, browser=not options.no_browser, block=True)
        return 0
    trajectory = load_trajectory(options.file)
    if options.html:
        path = trajectory.save_html(options.html)
        print(json.dumps({"file": str(path)}) if options.json else f"written to {path}")
        return 0
    trajectory.show(host=options.host, port=options.port, browser=not options.no_browser, block=True)
    return 0
