"""The cranks and the base of a five-bar, so that its tip moves evenly: python examples/fivebar_design.py [N]

A design has the length of the cranks and half the distance of the motors; forearms are 0.3 m. It is good where the tip's
velocity depends on both motors alike: the condition number of the Jacobian, averaged over a square of tip positions.
First a sweep without gradients, then descents from its best designs, every one of them a sample of a second study.
"""

import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

import qddot
from qddot.robots.fivebar import ELBOW, LENGTH, PIVOT, TIP
from qddot.study import Study, Uniform

SQUARE = np.stack(np.meshgrid(np.linspace(-0.1, 0.1, 5), np.linspace(0.25, 0.45, 5)), axis=-1).reshape(-1, 2)  # m
FREE = ("left_crank.position", "right_crank.position", "left_forearm.position", "right_forearm.position")
LOWER, UPPER = np.array([0.15, 0.02]), np.array([0.45, 0.2])  # crank, half the base; m
WORST = 50.0  # condition number that a tip position counts with which cannot be reached


@cache
def kernels():
    """The loop's Jacobian and the tip's, with the lengths as inputs: one code for all designs."""
    robot = qddot.load("fivebar")
    tree = robot.spanning_tree()
    return robot.kernel("constraint_jacobian", free=FREE), tree.kernel("jacobian", frame="tip", free=FREE)


def condition(design):
    """The mean condition number over the square, and the part of the square that is reached: (n, 2) -> (n,), (n,)."""
    crank, base = (x[:, None] for x in design.T)
    q = np.zeros((len(design), len(SQUARE), 4))
    fine = np.ones(q.shape[:2], dtype=bool)
    for side, sign in ((0, -1.0), (1, 1.0)):
        alpha0 = np.arctan2(ELBOW[1] - PIVOT[1], sign * (ELBOW[0] - PIVOT[0]))
        beta0 = np.arctan2(TIP[1] - ELBOW[1], sign * (TIP[0] - ELBOW[0]))
        x, y = SQUARE[:, 0] - sign * base, SQUARE[:, 1]
        reach = np.hypot(x, y)
        cosine = (crank**2 + reach**2 - LENGTH**2) / (2.0 * crank * reach)
        fine &= np.abs(cosine) < 0.999
        alpha = np.arctan2(y, x) - sign * np.arccos(np.clip(cosine, -0.999, 0.999))  # elbows outside
        beta = np.arctan2(y - crank * np.sin(alpha), x - crank * np.cos(alpha))
        q[..., 2 * side] = alpha - alpha0
        q[..., 2 * side + 1] = (beta - alpha) - (beta0 - alpha0)
    zero = np.zeros_like(crank)
    pivots = [np.stack([sign * base, zero, zero], axis=-1) for sign in (-1.0, 1.0)]
    elbow = np.stack([crank, zero, zero], axis=-1)
    of_loop, of_tip = kernels()
    rows = of_loop(q, *pivots, elbow, elbow)
    motors, others = rows[..., [0, 2]], rows[..., [1, 3]]
    slopes = np.zeros((*q.shape[:2], 4, 2))  # of all joints by those of the motors
    slopes[..., 0, 0] = slopes[..., 2, 1] = 1.0
    slopes[..., [1, 3], :] = -np.linalg.pinv(others, rcond=1e-9) @ motors
    tip = (of_tip(q, *pivots, elbow, elbow) @ slopes)[..., 3:5, :]
    large, small = np.moveaxis(np.linalg.svd(tip, compute_uv=False), -1, 0)
    number = np.where(fine & (small * WORST > large), large / np.where(small > 0.0, small, 1.0), WORST)
    return number.mean(axis=-1), fine.mean(axis=-1)


def swept(robot, values):
    mean, reached = condition(values["design"])
    return {"condition": mean, "reached": reached}


def descended(robot, values):
    """Steps against the slope (central differences), halved where they lead up."""
    x, step = values["design"].copy(), np.full(len(values["design"]), 0.02)
    best = condition(x)[0]
    for _ in range(40):
        slope = np.stack([condition(x + h)[0] - condition(x - h)[0] for h in np.eye(2) * 1e-5], axis=-1)
        length = np.linalg.norm(slope, axis=-1, keepdims=True)
        new = np.clip(x - step[:, None] * slope / np.where(length > 0.0, length, 1.0), LOWER, UPPER)
        value = condition(new)[0]
        better = value < best
        x[better], best = new[better], np.where(better, value, best)
        step = np.where(better, 1.2 * step, 0.5 * step)
    return {"condition": best, "best": x}


def studies(samples, directory):
    """The sweep, and the descents from its best designs."""
    space = {"design": Uniform(LOWER, UPPER)}
    options = {"samples": samples, "sampling": "sobol", "batch": 64}
    sweep = Study(None, space, swept, directory=Path(directory) / "sweep", **options).run()
    first = np.argsort(sweep.results["condition"])[:16]
    space = {"design": sweep.results["design"][first]}
    return sweep, Study(None, space, descended, batch=8, directory=Path(directory) / "descents").run()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sweep, descents = studies(int(sys.argv[1]) if len(sys.argv) > 1 else 512, folder)
        print(
            f"of {len(sweep.results)} designs the best has a mean condition number of {sweep.results['condition'].min():.3f}"
        )
        k = int(np.argmin(descents.results["condition"]))
        crank, base = descents.results["best"][k]
        print(
            f"descents lead to {descents.results['condition'][k]:.3f}: cranks of {crank:.3f} m, motors {2 * base:.3f} m apart"
        )
        assert descents.results["condition"][k] <= sweep.results["condition"].min()
