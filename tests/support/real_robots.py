"""Robots of other people: the URDF files of example-robot-data where it is installed, embedded robots where it is not."""

import sysconfig
import warnings
from pathlib import Path
from typing import Any

import pytest

import qddot
from tests.support.peers import HOW, MISSING

ROBOTS = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix/share/example-robot-data/robots"
if "example_robot_data" in MISSING:
    ROBOTS = Path("hidden by QDDOT_TEST_WITHOUT")
URDFS = sorted(ROBOTS.rglob("*.urdf"))
WHY = f"needs example-robot-data: {HOW['example_robot_data']}"  # of a test that is skipped

# Three files are broken; Pinocchio refuses the last two as well, and ignores the mimic of the first.
REFUSED = {
    "alex_psyonic_hands.urdf": r"urdf:1037: joint 'Left_index_q2' <mimic>: it mimics 'index_q1', which is no joint",
    "falcon.urdf": r"urdf:182: joint 'top_propeller_joint': its child link 'Z_propeller' does not exist",
    "ur3.urdf": r"urdf:6: robot: it has no <link>",
}
GOOD = [p for p in URDFS if p.name not in REFUSED]

EMBEDDED = ("pendulum", "double_pendulum", "planar3", "scara", "stanford", "puma560", "quadruped")
# What the compiler's tests run over: thirty files, or the embedded trees. Either way something to load.
REAL: list[Path | str] = [p for p in GOOD if p.stat().st_size < 80_000][::2][:30] or list(EMBEDDED)


def or_skipped(files: list[Any]) -> list[Any]:
    """The files, or in their place a test that is skipped with the reason."""
    return files or [pytest.param(Path("no file"), marks=pytest.mark.skip(reason=WHY))]


def short(source: Path | str) -> str:
    """The name of a robot in the name of a test."""
    return Path(source).stem


def load(source: Path | str, **options: object) -> qddot.Robot:
    """The robot, without warnings about the dirt of its file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qddot.QddotWarning)
        return qddot.load(source, **options)
