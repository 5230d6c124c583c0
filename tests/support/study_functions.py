"""Functions that workers of studies import: with samples that are fine, and samples that are not."""

import os
import time

import numpy as np

import qddot


def squares(robot, values):
    x = values["x"]
    return {"square": x**2, "pair": np.stack([x, x @ x + 0 * x], axis=-1)}  # the second one depends on the block


def poisoned(robot, values):
    """-1 raises, -2 ends its process, -3 takes for ever, -4 takes more memory than there is."""
    x = values["x"]
    if (x == -2).any():
        os._exit(3)
    if (x == -3).any():
        time.sleep(1000)
    if (x == -4).any():
        np.ones(2**42)
    if (x == -1).any():
        raise ValueError(f"{np.count_nonzero(x == -1)} of them must not be -1")
    return {"root": np.sqrt(x)}


def slow(robot, values):
    time.sleep(0.02)
    return {"twice": 2.0 * values["x"]}


def pendulum(length):
    builder = qddot.Builder("pendulum")
    builder.link("rod", 1.0, (0.0, 0.0, -length), (0.01, 0.0, 0.0, 0.01, 0.0, 0.01))
    builder.joint("hinge", "world", "rod", qddot.joints.Revolute((0.0, 1.0, 0.0)))
    return builder.robot()
