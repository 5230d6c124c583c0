"""What keeps first calls short: how much code there is, and how it is compiled."""

import contextlib
import io
import re
import time

import numpy as np
import pytest

import qddot
from qddot import progress
from qddot.compiler.codegen.llvm import memory_plan
from qddot.compiler.targets import registry as targets
from qddot.joints import Revolute
from tests.support.mechanisms import built


def star(count):
    """Pendulums side by side on the world, whose mass matrix is a diagonal."""
    b = qddot.Builder("star")
    for k in range(count):
        b.link(f"bob{k}", mass=1.0, com=(0.1, 0.0, -0.2), inertia=(0.01, 0.0, 0.0, 0.02, 0.0, 0.025))
        b.joint(f"pin{k}", "world", f"bob{k}", Revolute((0.0, 1.0, 0.0)))
    return qddot.Robot(b.model())


def stores_by_function(text):
    return [body.count("  store ") for body in re.findall(r"^define .*?^}", text, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["mass_matrix", "inverse_dynamics_derivatives"])
def test_many_zeros_are_written_by_a_loop(name, dtype):
    """Straight-line code would store each of them: 20 s in LLVM for a mass matrix of 101 degrees of freedom."""
    robot = star(24)
    kernel = robot.kernel(name, dtype=dtype)
    assert max(stores_by_function(kernel.llvm_ir)) <= memory_plan.FUNCTION_MAX_OPS
    rng = np.random.default_rng(0)
    states = [rng.standard_normal((19, 24)).astype(dtype) for _ in kernel.inputs]
    result = kernel(*states)
    expected = getattr(qddot.Robot(robot.model, compiled=False), name)(*states)
    expected = np.stack(expected, axis=-3) if isinstance(expected, tuple) else expected
    assert np.allclose(result, expected, atol=1e-5 if dtype == "float32" else 1e-12)
    for k in range(19):
        out = np.full(kernel.output, np.nan, dtype)
        assert np.array_equal(kernel(*(x[k] for x in states), out=out), result[k])


@pytest.mark.parametrize("size", [8, 9, 400, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_windows_cover_the_zeros_and_nothing_outside(size, seed, monkeypatch):
    monkeypatch.setattr(memory_plan, "FUNCTION_MAX_OPS", 1)
    zeros = {int(k) for k in np.random.default_rng(seed).choice(size, size // 2, replace=False)} | {size - 1}
    windows = memory_plan.zero_windows(zeros, size)
    covered = {k for start in windows for k in range(start, start + memory_plan.ZERO_WINDOW)}
    assert zeros <= covered <= set(range(size))


# ---- progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def soon(monkeypatch):
    """Progress shows after a twentieth of the time."""
    monkeypatch.setattr(progress, "NOTICE_SECONDS", 0.05)


def terminal():
    """Standard error that is a terminal."""
    return contextlib.redirect_stderr(Terminal())


def test_what_takes_long_is_said_and_wiped_out(soon):
    with terminal() as shown, progress.Progress("tracing this") as line:
        time.sleep(0.2)
        line.stage = "compiling that"
        time.sleep(0.2)
    *lines, last, rest = shown.getvalue().split("\r")
    assert any("qddot: tracing this, 0 s" in x for x in lines)
    assert any("qddot: compiling that, 0 s" in x for x in lines)
    assert (last.strip(), rest) == ("", "")
    assert len(last) == len(lines[-1])


def test_what_is_quick_is_not_mentioned():
    with terminal() as shown, progress.Progress("tracing this"):
        pass
    assert shown.getvalue() == ""


def test_nothing_is_said_where_there_is_no_terminal(soon, capsys):
    with progress.Progress("tracing this"):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_kernels_say_that_they_are_compiled(soon, monkeypatch):
    monkeypatch.setenv("QDDOT_CACHE_DIR", "")
    compile_module = targets.compile_module
    monkeypatch.setattr(targets, "compile_module", lambda *args: (time.sleep(0.2), compile_module(*args))[1])
    with terminal() as shown:
        built(qddot.load("puma560").model, "inverse_dynamics")
    assert re.search(r"qddot: compiling inverse_dynamics of 'puma560' \(\d+ operations\), 0 s …", shown.getvalue())
