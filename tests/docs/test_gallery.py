"""The runs of docs/gallery.md run and assert what they show; their pictures are there and small."""

import importlib.util
import re

import numpy as np
import pytest

from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "pictures"
MAX_BYTES = 1_500_000  # all pictures of the gallery
SHORT = ("inverse_kinematics", "saturated", "fourbar")  # the others compile for longer
PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
NAMES = re.findall(r":pyobject: (\w+)", PAGE)


@pytest.fixture(scope="module")
def gallery():
    spec = importlib.util.spec_from_file_location("gallery_pictures", FOLDER / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", [n if n in SHORT else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_run(gallery, name):
    run = getattr(gallery, name)()
    assert np.isfinite(run.q).all()
    assert run.t[0] < gallery.MOMENTS.get(getattr(gallery, name), 0.1) < run.t[-1]


def test_every_run_has_a_picture_and_all_are_small(gallery):
    assert len(NAMES) == 12
    assert {f.__name__ for f in gallery.RUNS} == set(NAMES)
    files = [FOLDER / "gallery" / f"{name}.png" for name in NAMES]
    for file in files:
        assert PAGE.count(f"](pictures/gallery/{file.name})") == 2  # in the overview, and above the code
    assert sum(file.stat().st_size for file in files) < MAX_BYTES
    assert {file.name for file in (FOLDER / "gallery").iterdir()} == {file.name for file in files}
