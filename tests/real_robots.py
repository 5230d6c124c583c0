"""The URDF files of example-robot-data, where it is installed."""

import sysconfig
from pathlib import Path

ROBOTS = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix/share/example-robot-data/robots"
URDFS = sorted(ROBOTS.rglob("*.urdf"))

# Three files are broken; Pinocchio refuses the last two as well, and ignores the mimic of the first.
REFUSED = {
    "alex_psyonic_hands.urdf": r"urdf:1037: joint 'Left_index_q2' <mimic>: it mimics 'index_q1', which is no joint",
    "falcon.urdf": r"urdf:182: joint 'top_propeller_joint': its child link 'Z_propeller' does not exist",
    "ur3.urdf": r"urdf:6: robot: it has no <link>",
}
