"""Long programs in several kernels that keep numbers for the next ones, with the bits of this processor's kernels."""

import numpy as np
import pytest

import qddot
from qddot.compiler.codegen.abi import grid
from qddot.compiler.codegen.abi.grid_passes import PassOptions
from qddot.compiler.ir.passes import passes
from qddot.compiler.targets import nvptx
from qddot.dynamics import pipeline, request
from tests.support.grid_emulation import Emulated

COUNT = 45  # a whole warp and a part of another
NAME = "forward_dynamics_derivatives"


def derivatives_of(robot, dtype="float64", is_packed=True):
    """Derivatives of forward dynamics: their program, their kernel on this processor, and arrays."""
    kernel = robot.kernel(NAME, dtype=dtype, packed=is_packed)
    wanted = request.checked(robot.model, NAME, {"dtype": dtype, "packed": is_packed}, None)
    program = pipeline.program_for(robot.model, wanted, (3, robot.nv, robot.nv))[1]
    if is_packed:
        program = pipeline.packed(program, (3, robot.nv, robot.nv))[0]
    rng = np.random.default_rng(0)
    q, v = robot.random_state(rng, COUNT)
    return program, kernel, [np.ascontiguousarray(x, dtype) for x in (q, v, rng.standard_normal((COUNT, robot.nv)))]


def floating():
    return qddot.load("quadruped")


def test_each_operation_is_in_one_pass_but_for_short_ones():
    program, *_ = derivatives_of(floating())
    found = passes(program, 20)
    assert len(found.parts) == 5
    sizes = [len(x.program.body) for x in found.parts]
    assert max(sizes) < 0.6 * len(program.body)
    assert len(program.body) <= sum(sizes) < 1.2 * len(program.body)
    assert found.parts[-1].program.outputs == program.outputs
    at = 0
    for x in found.parts[:-1]:
        assert x.first == at
        at += len(x.program.outputs)
    assert at == found.kept == found.parts[-1].first


def test_more_is_computed_again_where_that_may_take_longer():
    program, *_ = derivatives_of(floating())
    few, many = passes(program, 20), passes(program, 400)
    assert many.kept < few.kept
    assert sum(len(x.program.body) for x in many.parts) > sum(len(x.program.body) for x in few.parts)
    everything = passes(program, 10**6)
    assert everything is None  # nothing is worth keeping


def test_programs_without_cuts_have_no_passes():
    robot = floating()
    wanted = request.checked(robot.model, "inverse_dynamics", {}, None)
    assert passes(pipeline.program_for(robot.model, wanted, (robot.nv,))[1]) is None


@pytest.mark.parametrize(("dtype", "is_packed"), [("float32", True), ("float64", True), ("float64", False)])
def test_passes_give_the_bits_of_this_processor(dtype, is_packed):
    program, kernel, arrays = derivatives_of(floating(), dtype, is_packed)
    options = PassOptions(layer_ops=600, again_ops=40)
    emulated = Emulated(program, list(kernel.inputs), kernel.output, dtype, nvptx.named(""), options)
    assert len(emulated.modules) == 5
    assert max(x.groups for x in emulated.facts.modules) > 1
    expected = kernel(*arrays)
    out = np.full((COUNT, *kernel.output), np.nan, dtype)
    emulated("rows", *arrays, out=out)
    assert np.array_equal(out, expected)
    kept = emulated.scratch.reshape(2, emulated.facts.kept_numbers, 32)  # each number of a warp's states side by side
    assert not np.isnan(kept).any()
    wide = np.full((COUNT, 2, *kernel.output), 7.0, dtype)  # rows with gaps
    emulated("rows", *arrays, out=wide[:, 0])
    assert np.array_equal(wide[:, 0], expected)
    assert (wide[:, 1] == 7.0).all()


def test_a_bad_state_stays_alone():
    program, kernel, arrays = derivatives_of(floating(), "float32")
    emulated = Emulated(program, list(kernel.inputs), kernel.output, "float32", nvptx.named(""), PassOptions(again_ops=40))
    out, expected = (np.full((COUNT, *kernel.output), np.nan, "float32") for _ in range(2))
    expected[...] = kernel(*arrays)
    arrays[1][3] = np.nan
    emulated("rows", *arrays, out=out)
    assert np.isnan(out[3]).any()
    others = np.arange(COUNT) != 3
    assert np.array_equal(out[others], expected[others])


def test_a_kernel_for_a_card_has_passes_for_large_batches(monkeypatch, tmp_path):
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path))
    robot, given = qddot.load("puma560"), {"target": "cuda", "dtype": "float32", "packed": True}
    assert robot.kernel(NAME, **given).code.large_batches is None
    monkeypatch.setattr(grid, "ONE_THREAD_MAX_OPS", 1000)
    monkeypatch.setattr(grid, "REPEATED_MAX_RATIO", 1.0)
    for _ in range(2):  # compiled, then from the cache
        robot = qddot.load("puma560").with_payload("link6", 0.5)
        code = robot.kernel(NAME, **given).code
        assert len(code.texts) == 1
        large = code.large_batches
        assert len(large.texts) == len(large.grid.modules) > 2
        assert large.grid.kept_numbers > 0
        assert code.small_batches is not None
        assert len({*code.texts, *large.texts, *code.small_batches.texts}) == 2 + len(large.texts)
    monkeypatch.setattr(grid, "PASSES_MAX_OPS", {"float": 1000})
    robot = qddot.load("puma560").with_payload("link6", 0.25)
    assert robot.kernel(NAME, **given).code.large_batches is None
