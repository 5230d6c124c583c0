"""Long programs in two kernels: the results that others follow from first, with the bits of this processor's kernels."""

import numpy as np
import pytest

import qddot
from qddot.compiler.codegen.abi import grid, grid_stages
from qddot.compiler.targets import nvptx
from qddot.dynamics import pipeline, request
from tests.support.grid_emulation import Emulated

COUNT = 45  # a whole warp and a part of another
FREE = ("inertia", "gravity")  # gradients behind that with respect to tau


def vjp_of(robot, dtype="float64", **others):
    """The product of cotangents with the Jacobian of forward dynamics: its program, its kernel, and arrays."""
    given = {"vjp": True, "known_result": True, "dtype": dtype, **others}
    kernel = robot.kernel("forward_dynamics", **given)
    wanted = request.checked(robot.model, "forward_dynamics", given, None)
    program = pipeline.program_for(robot.model, wanted, kernel.output)[1]
    rng = np.random.default_rng(0)
    q, v = robot.random_state(rng, COUNT)
    tau, w = rng.standard_normal((2, COUNT, robot.nv))
    parameters = [robot.parameters(name) for name in others.get("free", ())]
    arrays = [q, v, tau, *parameters, robot.forward_dynamics(q, v, tau), w]
    return program, kernel, [np.ascontiguousarray(x, dtype) for x in arrays]


@pytest.fixture(autouse=True)
def short_programs_are_long(monkeypatch):
    monkeypatch.setattr(grid, "ONE_THREAD_MAX_OPS", 3500)


def test_gradients_follow_from_those_with_respect_to_forces():
    robot = qddot.load("quadruped")
    program = vjp_of(robot)[0]
    made = grid_stages.stages(program)
    nv = robot.nv
    assert (made.start, made.numbers) == (2 * nv, nv)
    assert len(made.first.body) < 0.6 * len(program.body)
    assert len(made.second.body) < 0.75 * len(program.body)
    assert made.second.n_inputs == program.n_inputs + nv
    assert made.second.outputs == program.outputs


def test_programs_without_a_waist_have_one_stage():
    robot = qddot.load("quadruped")
    for name in ("inverse_dynamics_derivatives", "mass_matrix"):
        wanted = request.checked(robot.model, name, {"packed": True}, None)
        program = pipeline.program_for(robot.model, wanted, (3, robot.nv, robot.nv)[name == "mass_matrix" :])[1]
        assert grid_stages.stages(program) is None


@pytest.mark.parametrize(
    ("dtype", "others"),
    [("float32", {"free": FREE}), ("float64", {"free": FREE}), ("float64", {"free": FREE, "coordinates": "ambient"})],
)
def test_two_kernels_give_the_bits_of_this_processor(dtype, others):
    program, kernel, arrays = vjp_of(qddot.load("quadruped"), dtype, **others)
    emulated = Emulated(program, list(kernel.inputs), kernel.output, dtype, nvptx.named(""))
    assert len(emulated.modules) == 2
    expected = kernel(*arrays)
    out = np.full((COUNT, *kernel.output), np.nan, dtype)
    emulated("rows", *arrays, out=out)
    assert np.array_equal(out, expected)
    wide = np.full((COUNT, 2 * kernel.output[0]), 7.0, dtype)  # rows with gaps, then columns
    emulated("rows", *arrays, out=wide[:, : kernel.output[0]])
    assert np.array_equal(wide[:, : kernel.output[0]], expected)
    assert (wide[:, kernel.output[0] :] == 7.0).all()
    columns = np.full((*kernel.output, COUNT), np.nan, dtype).T
    emulated("strided", *(np.asfortranarray(x) for x in arrays), out=columns)
    assert np.array_equal(columns, expected)


def test_a_kernel_for_a_card_has_both():
    robot = qddot.load("quadruped")
    kernel = robot.kernel("forward_dynamics", vjp=True, known_result=True, free=FREE, target="cuda", dtype="float32")
    assert len(kernel.code.texts) == 2
    assert kernel.code.small_batches is None
    assert kernel.code.grid.groups == 1
    assert kernel.code.grid.has_strided
