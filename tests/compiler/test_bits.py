"""The same bits everywhere: golden values for every lane width, on this machine, for AVX2, and on an emulated ARM."""

import dataclasses
import json
import subprocess

import numpy as np
import pytest

import qddot
from qddot.compiler.targets import host as processors
from qddot.compiler.targets.host import host, native
from qddot.robots import NAMES
from tests.support.golden_bits import DTYPES, LANES, computed, golden, of_law
from tests.support.paths import ROOT

fused = pytest.mark.skipif(not native().fma, reason="golden values are those of fused multiply-adds")


def assert_golden(name, found):
    expected = golden()[name]
    other = [what for what, digests in found.items() if digests != expected.get(what)]
    assert not other, f"{name}: other bits than before in {', '.join(other)}; see tests/support/golden_bits.py"


@fused
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", ["double_pendulum", "fourbar"])
def test_golden_bits(name, lanes):
    """Every function in one of the widths."""
    assert_golden(name, computed(name, lanes, (LANES.index(lanes), len(LANES))))


@fused
@pytest.mark.parametrize("lanes", LANES[1:])
def test_golden_bits_of_a_law(lanes):
    """exp, log, tanh, arctan, powers and selects in a compiled step; one lane is in the test above."""
    found = " ".join(of_law(dtype, lanes) for dtype in DTYPES)
    assert_golden("double_pendulum", {"simulate with a law": found})


@fused
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_golden_bits_of_other_processors(cpu, monkeypatch):
    if processors.obstacle(processors.processor(cpu)):
        pytest.skip("this machine cannot run its code")
    monkeypatch.setenv("QDDOT_TARGET_CPU", cpu)
    assert host().cpu == cpu
    assert_golden("scara", computed("scara", part=(1, 6)))


@pytest.mark.slow
@fused
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", NAMES)
def test_golden_bits_of_everything(name, lanes):
    found = computed(name, lanes)
    assert found.keys() == golden()[name].keys()
    assert_golden(name, found)


def test_rounded_separately_the_bits_are_others():
    """What the golden values would be without fused multiply-adds: the digests do see a last bit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processors, "native", lambda: dataclasses.replace(native(), fma=not native().fma))
        found = computed("double_pendulum", 1, (0, 12))
    expected = golden()["double_pendulum"]
    assert found.pop("random_state") == expected["random_state"]
    assert any(digests != expected[what] for what, digests in found.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quadruped", "fivebar"])
def test_golden_bits_on_arm(arm, name):
    """A quarter of the functions, with a floating base and with loops; rollouts and random states among them."""
    command = [arm, "-m", "tests.support.golden_bits", name, "--part", "0", "4"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)[name]
    assert "random_state" in found
    assert any(what.startswith("simulate") for what in found)
    assert_golden(name, found)


# ---- random states


def test_random_states_are_plain_sums():
    """Quaternions by division through a sum of squares from left to right; BLAS rounds as its processor does."""
    robot = qddot.load("quadruped")
    q, _ = robot.random_state(7)
    rng = np.random.default_rng(7)
    place, (a, b, c, d) = rng.uniform(-1.0, 1.0, 3).tolist(), rng.standard_normal(4).tolist()
    n = 1.0 / (a * a + b * b + c * c + d * d) ** 0.5
    assert q[:7].tolist() == [*place, n * a, n * b, n * c, n * d]


def test_golden_bits_are_of_all_robots():
    assert tuple(golden()) == NAMES
