"""Drops of a quadruped with random masses, heights, attitudes and ground friction: python examples/quadruped_drops.py [N]

The friction of the ground is no number of the model, so there is a robot, and a compiled time step, for each of three.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import qddot
from qddot.simulation import controls, forces
from qddot.study import Choice, Normal, Study

DT, SECONDS = 1e-4, 0.4


def on_ground(friction):
    """The quadruped, and what drives it: springs in its joints, and the ground."""
    robot = qddot.load("quadruped")
    legs = np.r_[np.zeros(6), np.ones(robot.nv - 6)]  # nothing drives the floating base
    feet = [name for name in robot.frame_names if name.endswith("_foot")]
    stand = robot.neutral()
    ground = forces.ground(robot, feet, stiffness=5e4, damping=0.5, friction=friction)
    return robot, {"controls": controls.pd(robot, stand, 60.0 * legs, 2.0 * legs), "forces": ground}


def dropped(rng):
    """A configuration: 45 to 60 cm up, tilted by up to 0.2 rad."""
    q = qddot.load("quadruped").neutral()
    q[2] = rng.uniform(0.45, 0.6)
    half = rng.uniform(-0.1, 0.1, 2)
    q[3:7] = np.r_[half, 0.0, 1.0] / np.sqrt(1.0 + half @ half)
    return q


def study(samples, directory):
    robot = qddot.load("quadruped")
    space = {
        "q0": dropped,
        "friction": Choice([0.2, 0.5, 0.9]),
        "body.payload_mass": Normal(1.0, 0.25),
    }
    for leg in ("front_right", "front_left", "rear_right", "rear_left"):
        mass = float(robot.parameters(f"{leg}_thigh.mass"))
        space[f"{leg}_thigh.mass"] = Normal(mass, 0.1 * mass)
    measures = {
        "height": "body.position",
        "speed": ("max", lambda t, q, v: (v[6:] @ v[6:]) ** 0.5),
        "torque": "max_abs:tau",
        "energy": "energy",
    }
    steps = round(SECONDS / DT)
    options = {"integrator": "semi_implicit_euler", "record": steps // 100, "samples": samples, "seed": 1}
    return Study(on_ground, space, measures, dt=DT, steps=steps, directory=directory, **options)


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 48
    with tempfile.TemporaryDirectory() as folder:
        done = study(number, folder).run()
        found = done.results
        torque = np.max(found["torque"], axis=1)
        print(f"{number} drops, {len(done.failures)} failed; peak torque {np.nanmedian(torque):.0f} N m in the median")
        slip = [np.nanmedian(found["speed"][found["friction"] == mu]) for mu in (0.2, 0.5, 0.9)]
        print("peak joint speed with a friction of 0.2, 0.5, 0.9:", *(f"{x:.1f}" for x in slip), "rad/s")
        worst = int(found.outliers("speed", 1)[0])
        run = done.simulate(worst)
        assert np.array_equal(run.robot.pose(run.q[-1], "body")[:3, 3], found["height"][worst])  # bit for bit
        run.save_html(Path(folder) / "worst.html")
        print(f"the fastest joints are those of sample {worst}: study.simulate({worst}).show() plays it")
