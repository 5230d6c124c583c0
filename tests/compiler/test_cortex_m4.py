"""Exported C and exported object code on microcontrollers: run on emulated boards, without an operating system."""

import shutil
import subprocess

import numpy as np
import pytest

import qddot
from qddot.compiler.targets import host
from qddot.compiler.targets.target import X86
from tests.support.mechanisms import bent_chain
from tests.support.paths import TESTS

BOARD = TESTS / "cortex_m4"
COMPILER, EMULATOR = "arm-none-eabi-gcc", "qemu-system-arm"
M4F = "-mcpu=cortex-m4 -mfpu=fpv4-sp-d16 -mfloat-abi=hard"
M7 = "-mcpu=cortex-m7 -mfpu=fpv5-d16 -mfloat-abi=hard"
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wdouble-promotion"]

pytestmark = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
    reason="needs Debian's gcc-arm-none-eabi, libnewlib-arm-none-eabi and qemu-system-arm",
)


def on_the_board(folder, exported, states, dtype):
    """The results for every state, and the bytes of stack that were used, those of the libraries included."""
    (folder / "it.c").write_text(exported.source)
    (folder / "it.h").write_text(exported.header)
    run(folder, COMPILER, "-std=c99", "-O2", *M4F.split(), *STRICT, "-c", "it.c")
    return linked_on_the_board(folder, exported.name, states, dtype, M4F, "mps2-an386")


def linked_on_the_board(folder, name, states, dtype, flags, board):
    """The same for an object file it.o with its header it.h, on this board."""
    real, (count, width) = "float" if dtype == "float32" else "double", states.shape
    rows = ",\n".join(
        "{" + ", ".join(float(x).hex() + ("f" if real == "float" else "") for x in row) + "}" for row in states
    )
    (folder / "case.h").write_text(
        f'#include "it.h"\n#define REAL {real}\n#define N {width // 3}\n#define COUNT {count}\n'
        f"#define CALL {name}\nstatic const REAL states[COUNT][{width}] = {{\n{rows}}};\n"
    )
    build = [COMPILER, "-std=c99", "-O2", *flags.split()]
    link = ["-nostartfiles", "--specs=nosys.specs", "-T", str(BOARD / "board.ld"), "-I", "."]
    run(folder, *build, *link, str(BOARD / "start.c"), "it.o", "-lm", "-o", "it.elf")
    target = ["-M", board, "-nographic", "-semihosting-config", "enable=on,target=native", "-kernel", "it.elf"]
    done = run(folder, EMULATOR, *target)
    *words, used = (done.stdout + done.stderr).split()
    bits = np.array([int(x, 16) for x in words], dtype=np.uint32 if real == "float" else np.uint64)
    return bits.view(dtype).reshape(count, width // 3), int(used, 16)


def run(folder, *command):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[:2000]
    return done


def some_states(robot, dtype, count=100):
    rng = np.random.default_rng(0)
    n = robot.nv
    return np.hstack([rng.uniform(-3, 3, (count, n)), rng.standard_normal((count, 2 * n))]).astype(dtype)


@pytest.mark.parametrize("function", ["inverse_dynamics", "forward_dynamics"])
def test_single_precision_has_the_kernels_bits(function, tmp_path):
    robot = qddot.load("puma560")
    exported = robot.export_c(function, dtype="float32", cc=COMPILER, cflags=M4F)
    states = some_states(robot, "float32")
    found, used = on_the_board(tmp_path, exported, states, "float32")
    expected = robot.kernel(function, dtype="float32")(*np.split(states, 3, axis=1))
    assert found.tobytes() == expected.tobytes()
    # what is stated was needed but for what is kept for other paths
    assert 0.8 * exported.stack_bytes < used <= exported.stack_bytes
    assert exported.code_bytes < 8192


def test_exponentials_have_the_kernels_bits(tmp_path):
    """In single precision they go by way of doubles, for which the board has no instructions."""
    robot = bent_chain(2)
    exported = robot.export_c("inverse_dynamics", dtype="float32", cc="")
    states = some_states(robot, "float32", 20)
    found, _ = on_the_board(tmp_path, exported, states, "float32")
    expected = robot.kernel("inverse_dynamics", dtype="float32")(*np.split(states, 3, axis=1))
    assert found.tobytes() == expected.tobytes()


def test_double_precision_without_fused_operations(tmp_path):
    robot = qddot.load("puma560")
    exported = robot.export_c("inverse_dynamics", fma=False, cc=COMPILER, cflags=M4F)
    states = some_states(robot, "float64", 20)
    found, _ = on_the_board(tmp_path, exported, states, "float64")
    expected = robot.inverse_dynamics(*np.split(states, 3, axis=1))
    assert np.max(np.abs(found - expected)) < 1e-13 * np.max(np.abs(expected))  # some hundred roundings


@pytest.mark.parametrize(
    ("target", "flags", "board", "dtype"),
    [
        ("cortex-m4", M4F, "mps2-an386", "float32"),
        ("cortex-m7", M7, "mps2-an500", "float32"),
        ("cortex-m7", M7, "mps2-an500", "float64"),
    ],
)
@pytest.mark.parametrize("function", ["inverse_dynamics", "forward_dynamics"])
def test_object_code_has_the_kernels_bits(function, target, flags, board, dtype, tmp_path):
    """Without a C compiler's part in it: LLVM made the code. Single precision goes by way of doubles in sines only."""
    robot = qddot.load("puma560")
    made = robot.export_library(tmp_path / "it.o", [function], target=target, dtype=dtype)
    states = some_states(robot, dtype)
    found, used = linked_on_the_board(tmp_path, made.functions[0].name, states, dtype, flags, board)
    expected = robot.kernel(function, dtype=dtype)(*np.split(states, 3, axis=1))
    assert found.tobytes() == expected.tobytes()
    assert made.functions[0].scratch_bytes < used < 900  # saved registers and spills, and what the header states


def test_object_code_in_double_precision_without_hardware(tmp_path):
    robot = qddot.load("puma560")
    made = robot.export_library(tmp_path / "it.o", ["inverse_dynamics"], target="cortex-m4")
    assert "rounded separately" in made.header
    assert "the compiler's own library for arithmetic on doubles" in " ".join(made.header.replace(" *", " ").split())
    states = some_states(robot, "float64", 20)
    found, _ = linked_on_the_board(tmp_path, made.functions[0].name, states, "float64", M4F, "mps2-an386")
    expected = robot.inverse_dynamics(*np.split(states, 3, axis=1))
    assert np.max(np.abs(found - expected)) < 1e-13 * np.max(np.abs(expected))  # some hundred roundings
    if host.architecture() == X86:  # whose processors without fma round as often, and in the same order
        expected = robot.kernel("inverse_dynamics", target="cpu:x86-64-v2")(*np.split(states, 3, axis=1))
        assert found.tobytes() == expected.tobytes()
