"""Every function of every embedded robot as a kernel for a GPU: its PTX, how it is launched, and its bits."""

import json

import pytest

from qddot.robots import NAMES
from tests.support import golden_grids

GOLDEN = json.loads(golden_grids.FILE.read_text(encoding="utf-8"))
ROBOTS = [pytest.param(name, marks=() if name == "pendulum" else pytest.mark.slow) for name in NAMES]
PAIRS = [
    pytest.param(name, dtype, marks=() if (name, dtype) == ("double_pendulum", "float32") else pytest.mark.slow)
    for name in NAMES
    for dtype in golden_grids.DTYPES
]


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
def test_ptx_of_every_function(name):
    """It compiles, and is launched as the golden file says (`python -m tests.support.golden_grids --write`)."""
    assert golden_grids.headers(name) == GOLDEN[name]


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
def test_bits_of_every_function(name, dtype):
    assert list(golden_grids.differing(name, dtype)) == []


def test_all_robots_are_in_the_golden_file():
    assert set(GOLDEN) == set(NAMES)
    assert sum(map(len, GOLDEN.values())) > 400
