"""Kernels of a grid of GPU threads: with emulated threads the bits of this processor's kernels; their PTX."""

import ctypes
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import qddot
from qddot.compiler.codegen.abi import grid, grid_steps
from qddot.compiler.codegen.llvm.thread_parts import parts
from qddot.compiler.runtime import ptx
from qddot.compiler.runtime.cuda.grid import STEP_THREADS
from qddot.compiler.targets import nvptx
from qddot.dynamics import pipeline
from qddot.dynamics.catalogue import input_shapes, lookup
from qddot.dynamics.request import Request
from qddot.errors import InputError
from qddot.simulation import Rollout
from qddot.simulation.integrators import INTEGRATORS
from tests.support.grid_emulation import PRELUDE, Emulated, Threads

TARGET = nvptx.named("")
COUNT = 77  # two whole warps and a part of a third


def program_of(robot, function, dtype="float64", packed=False, form="auto", **static):
    """A function's program, and the shapes of its inputs and its result."""
    request = Request(function, dtype=dtype, packed=packed, form=form, static=tuple(static.items()))
    found = lookup(function, "auto")[0]
    inputs, output = input_shapes(robot.model, found, ()), found.output(robot.model)
    _, program = pipeline.program_for(robot.model, request, output)
    if packed:
        program, layout = pipeline.packed(program, output)
        output = (layout.size,)
    return program, inputs, output


def arrays_of(robot, shapes, dtype, count=COUNT):
    """Random states, and numbers for the other inputs."""
    rng = np.random.default_rng(3)
    q, v = robot.random_state(rng, count)
    made = [q, v, *(rng.standard_normal((count, *s)) for s in shapes[2:])][: len(shapes)]
    return [np.ascontiguousarray(x, dtype) for x in made]


CASES = [
    ("puma560", "inverse_dynamics", "float64", {}, {}),
    ("puma560", "forward_dynamics", "float32", {}, {}),
    ("puma560", "mass_matrix", "float32", {}, {"threads": 64}),
    ("puma560", "forward_kinematics", "float64", {}, {}),  # two axes a link
    ("stanford", "inverse_dynamics_derivatives", "float32", {"packed": True}, {"groups": 3}),
    ("pendulum", "mass_matrix", "float64", {}, {}),  # constant
    ("fourbar", "inverse_dynamics_second_derivatives", "float64", {}, {}),  # numbers that two tiles have
    ("quadruped", "inverse_dynamics", "float64", {}, {"function_max_ops": 200}),
    ("quadruped", "mass_matrix", "float64", {}, {"groups": 2, "tile_buffers": 1, "function_max_ops": 300}),
    ("quadruped", "forward_dynamics_derivatives", "float32", {"packed": True}, {"groups": 4}),
    ("puma560", "inverse_dynamics", "float32", {}, {"warps_per_state": 2}),
    ("puma560", "forward_dynamics", "float64", {}, {"warps_per_state": 4, "phase_ops": 30}),
    ("pendulum", "mass_matrix", "float64", {}, {"warps_per_state": 2}),  # constant
    ("puma560", "forward_kinematics", "float64", {}, {"warps_per_state": 3}),  # constants among the results
    ("stanford", "inverse_dynamics_derivatives", "float32", {"packed": True}, {"warps_per_state": 4}),  # a part of a piece
    ("quadruped", "mass_matrix", "float32", {}, {"warps_per_state": 4, "held_values": 12}),
    ("quadruped", "inverse_dynamics", "float64", {}, {"warps_per_state": 8, "held_values": 12, "most_places": 0}),
    ("quadruped", "forward_dynamics_derivatives", "float32", {"packed": True}, {"warps_per_state": 8}),
    ("puma560", "inverse_dynamics", "float64", {"form": "rolled"}, {"threads": 32}),
    ("quadruped", "mass_matrix", "float32", {"form": "rolled"}, {"threads": 64}),
]


@pytest.mark.parametrize(("name", "function", "dtype", "chosen", "options"), CASES)
def test_a_grid_gives_the_bits_of_this_processor(name, function, dtype, chosen, options):
    robot = qddot.load(name)
    robot = robot.spanning_tree() if robot.model.is_constrained else robot
    program, inputs, output = program_of(robot, function, dtype, **chosen)
    emulated = Emulated(program, inputs, output, dtype, TARGET, grid.GridOptions(**options))
    arrays = arrays_of(robot, inputs, dtype)
    wanted = robot.kernel(function, dtype=dtype, **chosen)(*arrays)
    for kernel in ("rows", "strided"):
        out = np.full((COUNT, *output), np.nan, dtype)
        emulated(kernel, *arrays, out=out)
        np.testing.assert_array_equal(out, wanted, err_msg=kernel)


@pytest.fixture(scope="module")
def arm():
    robot = qddot.load("puma560")
    program, inputs, output = program_of(robot, "inverse_dynamics", "float32")
    emulated = Emulated(program, inputs, output, "float32", TARGET, grid.GridOptions(threads=64))
    return robot.kernel("inverse_dynamics", dtype="float32"), emulated, arrays_of(robot, inputs, "float32")


def run(emulated, kernel, arrays, out, **options):
    emulated(kernel, *arrays, out=out, **options)
    return out


def empty(count=COUNT, width=6):
    return np.full((count, width), np.nan, np.float32)


def test_arrays_in_columns(arm):
    kernel, emulated, arrays = arm
    columns = [np.asfortranarray(x) for x in arrays]
    out = run(emulated, "strided", columns, empty(6, COUNT).T)
    np.testing.assert_array_equal(out, kernel(*arrays))


def test_an_input_that_all_states_share(arm):
    kernel, emulated, arrays = arm
    given = [arrays[0], arrays[1][5].copy(), arrays[2]]
    np.testing.assert_array_equal(run(emulated, "rows", given, empty()), kernel(*given))


def test_padded_reversed_and_unaligned_rows(arm):
    kernel, emulated, arrays = arm
    wide = np.full((COUNT, 9), np.nan, np.float32)
    wide[:, 1:7] = arrays[0]
    block = np.full(COUNT * 6 + 1, np.nan, np.float32)
    unaligned = block[1:].reshape(COUNT, 6)
    unaligned[:] = arrays[1]
    given = [wide[:, 1:7], unaligned, arrays[2][::-1]]
    padded = np.full((COUNT, 8), -1.0, np.float32)
    run(emulated, "rows", given, padded[:, :6])
    np.testing.assert_array_equal(padded[:, :6], kernel(*given))
    assert (padded[:, 6:] == -1.0).all(), "numbers beside the result were overwritten"


@pytest.mark.parametrize("count", [1, 31, 32, 33, 64, 65])
def test_any_number_of_states_by_one_block(arm, count):
    kernel, emulated, arrays = arm
    given = [x[:count].copy() for x in arrays]
    behind = np.full((count + 1, 6), -1.0, np.float32)
    run(emulated, "rows", given, behind[:count], blocks=1)
    np.testing.assert_array_equal(behind[:count], kernel(*given))
    assert (behind[count] == -1.0).all(), "a row beyond the last was written"


def test_a_sample_that_is_not_finite_spoils_no_other(arm):
    kernel, emulated, arrays = arm
    given = [x.copy() for x in arrays]
    given[0][40, 2] = np.nan
    out = run(emulated, "rows", given, empty())
    np.testing.assert_array_equal(out, kernel(*given))
    assert np.isnan(out[40]).any()
    assert np.isfinite(np.delete(out, 40, axis=0)).all()


@pytest.mark.parametrize(
    ("name", "options"),
    [("puma560", {}), ("quadruped", {}), ("puma560", {"near_max_ops": 0}), ("quadruped", {"near_max_ops": 0, "groups": 2})],
    ids=["direct rows", "staged rows", "angles first", "angles first, two layers"],
)
def test_angles_far_from_zero_are_mended(name, options):
    """A state with one is computed with the sines that are right there; its neighbours keep their bits."""
    robot = qddot.load(name)
    program, inputs, output = program_of(robot, "inverse_dynamics")
    emulated = Emulated(program, inputs, output, "float64", TARGET, grid.GridOptions(**options))
    arrays = arrays_of(robot, inputs, "float64")
    far = [3, 40, 76]
    arrays[0][far, -2] = [3e6, -1.7e8, 1e22]
    wanted = robot.kernel("inverse_dynamics")(*arrays)
    for kernel in ("rows", "strided"):
        out = np.full((COUNT, *output), np.nan)
        emulated(kernel, *arrays, out=out)
        near = np.setdiff1d(np.arange(COUNT), far)
        np.testing.assert_array_equal(out[near], wanted[near])
        np.testing.assert_allclose(out[far], wanted[far], rtol=1e-11, atol=1e-11)  # sines differ in the last place


def test_results_take_the_place_of_inputs_only_behind_their_last_use():
    robot = qddot.load("quadruped")
    program, inputs, output = program_of(robot, "inverse_dynamics")
    given = grid.arguments(inputs, output, "float")
    assert grid.shared_row(program, given) == 2
    late = replace(program, outputs=[program.outputs[0]] * len(program.outputs), body=[*program.body[:1]])
    first = replace(program, outputs=[program.body[0]] * len(program.outputs))
    assert grid.shared_row(first, given) is None
    assert grid.shared_row(late, given) is not None, "nothing is read after the only operation"


def test_wide_inputs_stay_in_memory():
    """An input that has no room in shared memory is read where it is."""
    robot = qddot.load("quadruped")
    shapes = [(robot.nq,), (robot.nv,), (robot.nv,), (200,)]
    staged = [x.staged for x in grid.arguments(shapes, (robot.nv,), "double").inputs]
    assert staged == [True, True, False, False]
    assert all(x.staged for x in grid.arguments(shapes[:3], (robot.nv,), "float").inputs)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_parts_of_a_program_cover_its_results_once(count):
    robot = qddot.load("quadruped")
    program, _, _ = program_of(robot, "inverse_dynamics_derivatives", packed=True)
    made = parts(program, count, 16)
    outputs = [n for first, part in made for n in part.outputs]
    assert outputs == program.outputs
    assert 1 < len(made) <= count
    assert [first for first, _ in made] == sorted({first for first, _ in made})
    assert all(f % 16 == 0 for f, _ in made)
    assert max(len(p.body) for _, p in made) < len(program.body)


# ---- warps that share the values of a state


@pytest.fixture(scope="module")
def team():
    robot = qddot.load("quadruped")
    program, inputs, output = program_of(robot, "inverse_dynamics_derivatives", "float32", packed=True)
    options = grid.GridOptions(warps_per_state=4)
    emulated = Emulated(program, inputs, output, "float32", TARGET, options)
    return (
        robot.kernel("inverse_dynamics_derivatives", dtype="float32", packed=True),
        emulated,
        arrays_of(robot, inputs, "float32"),
    )


@pytest.mark.parametrize("count", [1, 33, 96])
def test_any_number_of_states_by_one_block_of_a_team(team, count):
    kernel, emulated, arrays = team
    given, width = [np.concatenate([x, x])[:count] for x in arrays], emulated.output[0]
    behind = np.full((count + 1, width), -1.0, np.float32)
    run(emulated, "rows", given, behind[:count], blocks=1)
    np.testing.assert_array_equal(behind[:count], kernel(*given))
    assert (behind[count] == -1.0).all(), "a row beyond the last was written"


@pytest.mark.parametrize(("pad", "shift"), [(1, 0), (4, 0), (0, 1), (3, 2)])
def test_rows_of_a_team_at_any_distance(team, pad, shift):
    """16 bytes are written at a time only where all rows are aligned."""
    kernel, emulated, arrays = team
    width = emulated.output[0]
    block = np.full(shift + COUNT * (width + pad), -1.0, np.float32)
    padded = block[shift:].reshape(COUNT, width + pad)
    run(emulated, "rows", arrays, padded[:, :width])
    np.testing.assert_array_equal(padded[:, :width], kernel(*arrays))
    assert (padded[:, width:] == -1.0).all(), "numbers beside the result were overwritten"


def test_a_sample_that_is_not_finite_spoils_no_other_of_a_team(team):
    kernel, emulated, arrays = team
    given = [x.copy() for x in arrays]
    given[1][40, 2] = np.nan
    out = run(emulated, "rows", given, empty(COUNT, emulated.output[0]))
    np.testing.assert_array_equal(out, kernel(*given))
    assert np.isfinite(np.delete(out, 40, axis=0)).all()


# ---- steps of time


STEPS = [
    ("puma560", "semi_implicit_euler", "float64", {}),
    ("puma560", "rk4", "float32", {"controls": lambda t, q, v: -3.0 * v + 0.1 * t}),
    *(("double_pendulum", name, "float64", {}) for name in INTEGRATORS if name not in ("rk4", "semi_implicit_euler")),
    ("fivebar", "rk4", "float64", {}),  # a loop, closed after each step
    ("quadruped", "rk4", "float64", {}),  # large: a step calls its derivative
    ("quadruped", "semi_implicit_euler", "float32", {}),
]


@pytest.mark.parametrize(("name", "integrator", "dtype", "options"), STEPS)
def test_steps_give_the_bits_of_this_processor(name, integrator, dtype, options):
    steps_agree(qddot.load(name), integrator, dtype, **options)


def test_steps_with_held_inputs_and_parameters():
    robot, rng = qddot.load("puma560"), np.random.default_rng(1)
    controls, damping = rng.standard_normal((40, 9, robot.nv)), rng.uniform(0.1, 1.0, (40, 1))
    steps_agree(robot, "rk4", "float64", controls=controls, free={"joint1.damping": damping[:, 0]}, count=40)


def steps_agree(robot, integrator, dtype, controls=None, count=40, **options):
    """Nine steps of all samples, with every second one recorded, from number 3 on."""
    rollout = Rollout(robot, controls, dt=1e-3, integrator=integrator, dtype=dtype, t0=0.5, **options)
    q, v = robot.random_state(np.random.default_rng(0), count)
    if robot.model.is_constrained:  # at rest, where loops are closed
        q, v = np.tile(robot.neutral(), (count, 1)), np.zeros_like(v)
    start = rollout.start(q, v)
    wanted, q_wanted, v_wanted = rollout.run(start._replace(step=3), 6, record=2)
    step, layout = rollout.traced(starting=False)
    threads = Threads(grid_steps.render(step, layout, TARGET, PRELUDE), STEP_THREADS)
    state = np.ascontiguousarray(start.state, dtype)
    held, values = rollout.arrays((count,))
    records, end = np.full((count, 3, robot.nq + robot.nv), np.nan, dtype), np.full_like(state, np.nan)
    given = [ctypes.c_int64(count), *rows(state), *rows(held[:, 3:]), *rows(values), *rows(records), *rows(end)]
    given += [ctypes.c_double(0.5), ctypes.c_double(1e-3), *map(ctypes.c_int64, (6, 3, 2))]
    threads.run("rows", given, (1, 1))
    np.testing.assert_array_equal(end, wanted.state)
    np.testing.assert_array_equal(records, np.concatenate([q_wanted, v_wanted], axis=-1))


def rows(x):
    """An array as a kernel takes it: its address, and the strides of all axes but the last, in numbers."""
    return [ctypes.c_void_p(x.ctypes.data), *(ctypes.c_int64(s // x.itemsize) for s in x.strides[:-1])]


# ---- PTX


ROBOTS = ("puma560", "quadruped")


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ptx_of_a_function(name, dtype):
    robot = qddot.load(name)
    program, inputs, output = program_of(robot, "forward_dynamics", dtype)
    text, facts = grid.render(program, inputs, output, dtype, TARGET)
    code = ptx.compile_ptx(text, TARGET).decode()
    assert ".target sm_75" in code
    assert f".maxntid {facts.threads}" in code
    assert code.count(".visible .entry") == 2
    kind = "f32" if dtype == "float32" else "f64"
    assert f"fma.rn.{kind}" in code
    rest = code.replace("rcp.approx.ftz", "")  # where Newton's steps begin, far from subnormal numbers
    assert "ftz" not in rest, "subnormal numbers are lost"
    assert ".approx" not in rest, "not IEEE arithmetic"
    assemble(code)


def assemble(code):
    """NVIDIA's assembler takes the code, where there is one."""
    if shutil.which("ptxas") is not None:
        made = subprocess.run(["ptxas", "-arch=sm_90", "-o", "/dev/null", "-"], input=code.encode(), capture_output=True)
        assert made.returncode == 0, made.stderr.decode()


def test_generations_of_cards_have_names():
    assert nvptx.named("sm_90").architecture.features == "+ptx78"
    with pytest.raises(InputError, match="'cuda:sm_20' is not known; take 'cuda', or one of sm_75"):
        nvptx.named("sm_20")
