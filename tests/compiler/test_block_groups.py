"""Blocks that are computed in groups: the bits of one state at a time, for every batch, stride, type and rest."""

import numpy as np
import pytest

import qddot
from qddot.compiler.codegen.abi import block_groups
from qddot.compiler.codegen.abi.block_groups import group_of

SMALL = (640, 256, 1024)  # bytes of a block


def robot():
    return qddot.random_tree(6, rng=3)


def arguments(robot, count):
    q, v = robot.random_state(np.random.default_rng(count), count)
    return q, v, np.random.default_rng(1).standard_normal((count, robot.nv))


@pytest.fixture(params=[2, 4], ids=lambda n: f"{n} blocks")
def blocks(request, monkeypatch):
    """Every straight-line kernel in groups of so many."""
    monkeypatch.setenv("QDDOT_CACHE_DIR", "")
    monkeypatch.setattr(block_groups, "GROUP_MIN_OPS", 0)
    monkeypatch.setattr(block_groups, "GROUP_MIN_OPS_PER_NUMBER", {16: 0, 32: 0})
    monkeypatch.setattr(block_groups, "GROUP_MAX_BYTES", {request.param: {16: 1 << 30, 32: 1 << 30}})
    return request.param


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("lanes", [2, 4, 8])
@pytest.mark.parametrize("function", ["forward_dynamics", "inverse_dynamics_derivatives"])
def test_every_batch_has_the_bits_of_one_state(blocks, function, lanes, dtype):
    own = robot()
    kernel, alone = own.kernel(function, dtype=dtype, lanes=lanes), own.kernel(function, dtype=dtype, lanes=1)
    assert f"@core{lanes}x{blocks}" in kernel.llvm_ir
    assert f"%g.next = add i64 %b, {blocks}\n" in kernel.llvm_ir  # the rows that are prefetched; no result shows them
    for count in (1, lanes, blocks * lanes - 1, blocks * lanes, blocks * lanes + 1, (2 * blocks + 1) * lanes + 1, 300):
        q, v, a = (x.astype(dtype) for x in arguments(own, count))
        expected = alone(q, v, a)
        np.testing.assert_array_equal(kernel(q, v, a), expected)
        np.testing.assert_array_equal(kernel(np.asfortranarray(q), v[::-1], a), alone(q, v[::-1], a))
        np.testing.assert_array_equal(kernel(q, v[0], a), alone(q, v[0], a))  # the same for all states
        whole = np.full((2 * count, *kernel.output), np.nan, dtype)
        np.testing.assert_array_equal(kernel(q, v, a, out=whole[::2]), expected)
        assert np.isnan(whole[1::2]).all()


def test_long_results_and_wide_inputs(blocks):
    """Streaming stores, rows of parameters that are prefetched, and a state that is not finite, which stays alone."""
    own = robot()
    matrices, alone = (own.kernel("inverse_dynamics_derivatives", lanes=n) for n in (4, 1))
    q, v, a = arguments(own, 4099)
    q[77, 0] = np.nan
    found = matrices(q, v, a)
    assert found.nbytes > 3e6
    np.testing.assert_array_equal(found, alone(q, v, a))
    assert np.isfinite(np.delete(found, 77, 0)).all()
    free, one = (own.kernel("inverse_dynamics", free=("inertia",), lanes=n) for n in (4, 1))
    inertia = own.parameters("inertia") * np.random.default_rng(2).uniform(0.9, 1.1, (203, 1, 1))
    given = [x[:203] for x in arguments(own, 203)]
    np.testing.assert_array_equal(free(*given, inertia), one(*given, inertia))


def test_groups_are_chosen_by_what_they_take():
    assert group_of(5000, 29, 16, SMALL).blocks == 4
    assert group_of(100, 6, 16, SMALL).blocks == 1  # too short
    assert group_of(5000, 2000, 16, SMALL).blocks == 1  # waits for memory
    assert group_of(2221, 147, 32, SMALL).blocks == 1
    assert group_of(5000, 29, 16, (64 << 10, 64 << 10, 64 << 10)).blocks == 2
    assert group_of(5000, 29, 16, (1 << 20, 1 << 20, 1 << 20)).blocks == 1
    steps = group_of(5000, 29, 16, (4096, 8192 - 320, 12288 - 64))[1:]
    assert all(320 <= step % 4096 <= 4096 - 320 for step in steps)


def test_calls_of_one_state_keep_their_short_way(monkeypatch):
    """Scratch memory of a group does not count there, where more than so much leaves no fast call."""
    monkeypatch.setenv("QDDOT_CACHE_DIR", "")
    monkeypatch.setattr(block_groups, "GROUP_MAX_BYTES", {64: {16: 1 << 30, 32: 1 << 30}})
    kernel = robot().kernel("forward_dynamics", lanes=4)
    assert "@core4x64" in kernel.llvm_ir
    assert "define ptr @call(" in kernel.llvm_ir
    q, v, a = arguments(robot(), 300)
    np.testing.assert_array_equal(kernel(q, v, a)[7], kernel(q[7], v[7], a[7]))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_steps_of_time_have_the_bits_of_one_sample(blocks, dtype):
    """Groups, blocks that are left, lanes that are left; held controls, and states recorded on the way."""
    own, rng = robot(), np.random.default_rng(0)
    q, v = own.random_state(rng, 150)
    u = rng.standard_normal((150, 6, own.nv))

    def run(which):
        options = {"dt": 1e-3, "steps": 6, "record": 2, "dtype": dtype, "limits": "ignore"}
        return own.simulate(q[which], 0.1 * v[which], u[which], **options)

    whole = run(slice(0, 150))
    assert np.isfinite(whole.q).all()
    for start, count in ((0, 1), (0, 8), (3, 31), (3, 64), (20, 65), (7, 129)):
        part = run(slice(start, start + count))
        np.testing.assert_array_equal(part.q, whole.q[start : start + count])
        np.testing.assert_array_equal(part.v, whole.v[start : start + count])
