"""The way of the data: the files that a first call runs through, and that none calls back (docs/decisions/0043)."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

MOST_FILES = 79  # of a call; 75 and 78 in November 2026

CODE = """
import json, sys
from pathlib import Path
import numpy as np
import qddot

ROOT = str(Path(qddot.__file__).parent)
robot, zero = qddot.load("double_pendulum"), np.zeros(2)
calls = {
    "inverse dynamics": lambda: robot.inverse_dynamics(zero, zero, zero),
    "simulate": lambda: robot.simulate(zero, zero, dt=1e-3, steps=10),
}

def recorded(call):
    files, edges = set(), set()

    def profile(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT):
            caller = frame.f_back
            while caller is not None and not caller.f_code.co_filename.startswith(ROOT):
                caller = caller.f_back
            files.add(name[len(ROOT):])
            if caller is not None and caller.f_code.co_filename != name:
                edges.add((caller.f_code.co_filename[len(ROOT):], name[len(ROOT):]))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(files), sorted(edge for edge in edges if edge[::-1] in edges)

print(json.dumps({name: recorded(call) for name, call in calls.items()}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """By call: how many files it runs through, and the edges that lead both ways."""
    empty = {"QDDOT_CACHE_DIR": str(tmp_path_factory.mktemp("cache")), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **empty})
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("call", ["inverse dynamics", "simulate"])
def test_no_file_calls_back(found, call):
    assert found[call][1] == []


@pytest.mark.parametrize("call", ["inverse dynamics", "simulate"])
def test_files_of_a_first_call_are_few(found, call):
    """And not so few that the recording has seen nothing."""
    assert 40 < found[call][0] <= MOST_FILES
