"""NVIDIA's assembler takes the kernels, for all generations of cards, without warnings; skipped where it is not installed.

The long version has all embedded robots and two humanoids, each also laid out in phases for several warps a state.
"""

import shutil
import warnings
from functools import cache

import pytest

import qddot
from benchmarks.gpu import cases, ptxas
from qddot.compiler.codegen.abi import grid, grid_steps
from qddot.compiler.runtime import ptx
from qddot.robots import NAMES
from qddot.simulation import Rollout
from tests.compiler.test_grid import TARGET, program_of

if shutil.which("ptxas") is None:
    pytest.skip("needs ptxas, of NVIDIA's toolkit", allow_module_level=True)

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
FUNCTIONS = ("inverse_dynamics", "forward_dynamics", "mass_matrix", "inverse_dynamics_derivatives")
HUMANOIDS = ("talos-fixed", "g1-floating")
EMBEDDED = [pytest.param(name, marks=() if name == "double_pendulum" else pytest.mark.slow) for name in NAMES]
SHARED_BYTES = 227 << 10  # of a block on a card of compute capability 9.0


@cache
def robot_of(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qddot.QddotWarning)
        found = cases.load(name, None) if name in cases.ROBOTS else qddot.load(name)
        return found.spanning_tree() if found.model.is_constrained else found


def is_taken(code, what):
    """For all generations: without a warning, and with registers that a thread has."""
    for arch in ARCHITECTURES:
        found = ptxas.assembled(code, arch)
        assert found.warnings == (), (what, arch)
        assert 0 < found.registers <= 255, (what, arch)


@pytest.mark.parametrize("name", EMBEDDED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_of_an_embedded_robot(name, dtype):
    robot = robot_of(name)
    for function in FUNCTIONS:
        if robot.massless_joints and function == "forward_dynamics":
            continue
        kernel = robot.kernel(function, dtype=dtype, packed="derivatives" in function, target="cuda")
        for text in kernel.code.texts:
            is_taken(text, (name, function))


@pytest.mark.parametrize("name", EMBEDDED)
def test_phases_of_an_embedded_robot(name):
    for function in FUNCTIONS[::3]:
        in_phases(robot_of(name), function, "float32", 4)


def in_phases(robot, function, dtype, warps):
    program, inputs, output = program_of(robot, function, dtype, packed="derivatives" in function)
    text, facts = grid.render(program, inputs, output, dtype, TARGET, grid.GridOptions(warps_per_state=warps))
    assert facts.threads == 32 * warps
    assert facts.shared_bytes <= SHARED_BYTES
    is_taken(ptx.compile_ptx(text, TARGET).decode(), (robot.name, function, f"{warps} warps"))


def humanoid(name):
    if name not in cases.available([name], None):
        pytest.skip("needs example-robot-data")
    return robot_of(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", HUMANOIDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_of_a_humanoid(name, dtype):
    robot = humanoid(name)
    for function in FUNCTIONS:
        kernel = robot.kernel(function, dtype=dtype, packed="derivatives" in function, target="cuda")
        for text in kernel.code.texts:
            is_taken(text, (name, function))


@pytest.mark.slow
@pytest.mark.parametrize("name", HUMANOIDS)
@pytest.mark.parametrize("warps", [4, 8])
def test_phases_of_a_humanoid(name, warps):
    for function in ("inverse_dynamics", "inverse_dynamics_derivatives"):
        in_phases(humanoid(name), function, "float32", warps)


@pytest.mark.parametrize("name", ["puma560", pytest.param("g1-floating", marks=pytest.mark.slow)])
@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "rk4"])
def test_steps_of_time(name, integrator):
    robot = humanoid(name) if name in HUMANOIDS else robot_of(name)
    rollout = Rollout(robot, dt=1e-3, integrator=integrator, dtype="float32", target="cuda")
    text = grid_steps.render(*rollout.traced(), TARGET)
    is_taken(ptx.compile_ptx(text, TARGET).decode(), (name, integrator))


def test_what_the_assembler_says_is_read():
    text = """ptxas info    : Compiling entry function 'strided' for 'sm_90'
ptxas info    : Function properties for strided
    1760 bytes stack frame, 2584 bytes spill stores, 3056 bytes spill loads
ptxas info    : Used 200 registers, used 0 barriers, 1760 bytes cumulative stack size
ptxas info    : Compiling entry function 'rows' for 'sm_90'
ptxas info    : Function properties for rows
    24 bytes stack frame, 32 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 168 registers, used 0 barriers, 24 bytes cumulative stack size
ptxas warning : something
ptxas info    : Function properties for rows.part0_1
    0 bytes stack frame, 8 bytes spill stores, 0 bytes spill loads
"""
    assert ptxas.said(text, 1.5) == (168, 24, 40, 1.5, ("ptxas warning : something",))
    with pytest.raises(ValueError, match="error"):
        ptxas.assembled(".version 7.0\n.target sm_75\nnonsense", "sm_90")
