"""Which part of its torque an arm needs to hold a load, over its workspace: python examples/torque_map.py [N] [FILE]

FILE is a robot file with effort limits, such as that of a UR5; without it the embedded Puma 560 is taken. A function of
arrays takes the place of a simulation: `robot.gravity_force` and `robot.pose` are compiled and batched already.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import qddot
from qddot.study import Study, Uniform

LOAD = 3.0  # kg, at the origin of the last link
PUMA = (97.6, 186.4, 89.4, 24.2, 20.1, 21.3)  # N m: B. Armstrong, O. Khatib and J. Burdick 1986


def torques(robot, values):
    """The torque against gravity by its limit, of the joint that needs the most, and where the hand is."""
    q = values["q"]
    hand = robot.pose(q, robot.link_names[-1])[..., :3, 3]
    limit = np.where(np.isfinite(robot.effort_limit), robot.effort_limit, PUMA)
    part = np.max(np.abs(robot.gravity_force(q)) / limit, axis=-1)
    return {"part": part, "radius": np.hypot(hand[:, 0], hand[:, 1]), "height": hand[:, 2]}


def study(samples, directory, file="puma560", sampling="sobol"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qddot.QddotWarning)  # what is doubtful about the file
        arm = qddot.load(file)
    arm = arm.with_payload(arm.link_names[-1], LOAD)
    space = {"q": Uniform(np.full(arm.nq, -np.pi), np.pi)}
    return Study(arm, space, torques, samples=samples, sampling=sampling, batch=4096, directory=directory)


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 65_536
    with tempfile.TemporaryDirectory() as folder:
        done = study(number, Path(folder) / "runs", *sys.argv[2:3]).run()
        part = done.results["part"]
        low, middle, high = done.results.quantiles("part", (0.05, 0.5, 0.95))
        print(f"{number:,} configurations: {low:.2f}, {middle:.2f} and {high:.2f} of the torque (5 %, 50 % and 95 %)")
        print(f"the hardest configuration, sample {np.argmax(part)}, needs {np.max(part):.2f}")
        print(f"{np.mean(part > 1.0):.1%} cannot be held")
