"""Pictures of the three studies: python docs/pictures/studies.py UR5_FILE [torque_map | quadruped_drops | fivebar_design]

The file is that of a UR5, such as example-robot-data has; without it the embedded Puma 560 is taken.
"""

from __future__ import annotations

import importlib
import io
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parents[1] / "examples"
DPI, COLOURS = 110, 200


def example(name):
    """One of the examples, as a module that workers can import by this name."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


def save(figure, path, **labels):
    for name, text in labels.items():
        getattr(figure.axes[0], f"set_{name}")(text)
    data = io.BytesIO()
    figure.savefig(data, dpi=DPI)
    Image.open(data).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


def torque_map(out, folder, samples=1_000_000, file="puma560", engine="local"):
    study = example("torque_map").study(samples, folder / "map", file).run(engine)
    figure = study.plot("radius", "height", "part", kind="map")
    figure.axes[1].set_ylabel("part of the torque, mean")
    save(figure, out / "study_torque.png", xlabel="distance of the hand from the axis, m", ylabel="height, m")
    save(study.plot("part"), out / "study_torque_histogram.png")
    joints = study.plan.work.setups.given.nv
    mixed = example("torque_map").study(max(2, samples // 8) * (joints + 2), folder / "mixed", file, "saltelli").run(engine)
    save(mixed.plot("part", kind="sensitivity"), out / "study_torque_sensitivity.png")
    return study, mixed


def quadruped_drops(out, folder, samples=2000, engine="local"):
    study = example("quadruped_drops").study(samples, folder / "drops").run(engine)
    names = ("friction", "body.payload_mass", "height[2]", "speed")
    save(study.plot(*names, kind="parallel"), out / "study_drops.png")
    save(study.plot("height[2]", "speed", "energy"), out / "study_drops_histograms.png")
    return study


def fivebar_design(out, folder, samples=4096, engine="local"):
    own = example("fivebar_design")
    sweep, descents = own.studies(samples, folder, engine)
    figure = sweep.plot("design", "condition", kind="map")
    axes = figure.axes[0]
    first, last = descents.results["design"], descents.results["best"]
    axes.plot(*np.stack([first, last]).transpose(2, 0, 1), color="#d2691e", linewidth=1.0)
    axes.plot(*last.T, "o", color="#d2691e", markersize=4)
    figure.axes[1].set_ylabel("condition number, mean over the square")
    save(figure, out / "study_fivebar.png", xlabel="crank, m", ylabel="half the distance of the motors, m")
    save(sweep.plot("design", "reached", "condition", kind="parallel"), out / "study_fivebar_parallel.png")
    return sweep, descents


if __name__ == "__main__":
    words = sys.argv[1:]
    robot = {"file": words.pop(0)} if words and words[0] not in globals() else {}
    for name in words or ("torque_map", "quadruped_drops", "fivebar_design"):
        with tempfile.TemporaryDirectory() as temporary:
            globals()[name](FOLDER, Path(temporary), **(robot if name == "torque_map" else {}))
