"""Barriers of warps that share the values of a state: in any order of warps the same bits, and all threads come to all."""

import random
import re

import numpy as np
import pytest

import qddot
from qddot.compiler.codegen.abi import grid
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.program import straight_line
from tests.compiler.test_grid import TARGET, arrays_of, program_of
from tests.support.grid_emulation import Emulated

ORDERS = {
    "first to last": lambda warps: lambda k: list(range(warps)),
    "last to first": lambda warps: lambda k: list(range(warps))[::-1],
    "in turn": lambda warps: lambda k: list(range(warps))[:: 1 if k % 2 else -1],
    "at random": lambda warps: lambda k: random.Random(k).sample(range(warps), warps),
}
JOIN = "  call void @join(ptr %env)\n"
COUNT = 77  # with one block: two whole rounds, and a part of a third


def team(name, function, dtype, options, **chosen):
    """A kernel in phases on emulated threads, its arguments, and what they give on this processor."""
    robot = qddot.load(name)
    program, inputs, output = program_of(robot, function, dtype, **chosen)
    emulated = Emulated(program, inputs, output, dtype, TARGET, grid.GridOptions(**options))
    arrays = arrays_of(robot, inputs, dtype)
    return emulated, arrays, robot.kernel(function, dtype=dtype, **chosen)(*arrays)


def results(emulated, arrays, wanted, order, kernel="rows", blocks=1):
    """Of one block, whose warps run in this order; each thread came to the same barriers."""
    emulated.threads.order, emulated.threads.joins = ORDERS[order](emulated.facts.warps_per_state), []
    out = np.full_like(wanted, np.nan)
    emulated(kernel, *arrays, out=out, blocks=blocks)
    for block in emulated.threads.joins:
        assert len(set(block)) == 1, "some threads came to fewer barriers than others"
        assert block[0] >= 3
    return out


CASES = [
    ("puma560", "inverse_dynamics", "float64", {"warps_per_state": 2, "phase_ops": 60}, {}),
    ("quadruped", "inverse_dynamics", "float32", {"warps_per_state": 4, "held_values": 12, "most_places": 0}, {}),
    ("stanford", "inverse_dynamics_derivatives", "float32", {"warps_per_state": 3}, {"packed": True}),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda x: "-".join(x[:3]))
def case(request):
    name, function, dtype, options, chosen = request.param
    return team(name, function, dtype, options, **chosen)


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_warps_gives_the_same_bits(case, order):
    """A block goes on to the next states while others of its warps still write: nothing is mixed up."""
    emulated, arrays, wanted = case
    for kernel in ("rows", "strided"):
        np.testing.assert_array_equal(results(emulated, arrays, wanted, order, kernel), wanted, err_msg=kernel)


@pytest.mark.parametrize("count", [1, 31, 33])
def test_all_threads_come_to_all_barriers_in_the_last_block(case, count):
    emulated, arrays, wanted = case
    given = [x[:count].copy() for x in arrays]
    found = results(emulated, given, wanted[:count], "last to first", blocks=-(-count // 32))
    np.testing.assert_array_equal(found, wanted[:count])
    assert len(emulated.threads.joins) == -(-count // 32)


def test_angles_far_from_zero_before_a_barrier(case):
    """Some threads of a warp take another way there, and meet the others again."""
    emulated, arrays, wanted = case
    given = [x.copy() for x in arrays]
    given[0][5, -1] = 3e6
    found = results(emulated, given, wanted, "at random")
    np.testing.assert_array_equal(np.delete(found, 5, axis=0), np.delete(wanted, 5, axis=0))
    assert np.isfinite(found[5]).all()


def test_inputs_that_are_results_are_of_their_own_state():
    """Results of few numbers go straight to the caller's array; a warp that is done stages the next states' inputs."""

    def few(x, y):
        return np.array([x[1], x[2] * y[3] + x[4] * y[5], y[8]], dtype=object)

    graph, nodes, _ = trace(few, (9, 9))
    program = straight_line(graph, nodes, 18)
    options = grid.GridOptions(warps_per_state=2, strided=False)
    emulated = Emulated(program, [(9,), (9,)], (3,), "float64", TARGET, options)
    x, y = np.random.default_rng(0).standard_normal((2, COUNT, 9))
    wanted = np.stack([x[:, 1], x[:, 2] * y[:, 3] + x[:, 4] * y[:, 5], y[:, 8]], axis=1)
    for order in ORDERS:
        np.testing.assert_array_equal(results(emulated, (x, y), wanted, order), wanted, err_msg=order)


def test_a_missing_barrier_is_seen():
    """The test of the tests: without one of the barriers of the kernel or of all warps, some order gives other numbers."""
    emulated, arrays, wanted = team("puma560", "inverse_dynamics", "float64", {"warps_per_state": 2, "phase_ops": 60})
    text = emulated.text
    parts = re.split(r"(?=^define )", text, flags=re.MULTILINE)
    functions = [k for k, x in enumerate(parts) if "@rows.warp" in x.partition("\n")[0]]
    assert len(functions) == 2
    count = parts[functions[0]].count(JOIN)
    for j in range(count - 1):  # behind the last one nothing is read but results, which may be there by then
        made = list(parts)
        for k in functions:
            pieces = made[k].split(JOIN)
            made[k] = JOIN.join([*pieces[:j], pieces[j] + pieces[j + 1], *pieces[j + 2 :]])
        emulated.use("".join(made))
        found = [results(emulated, arrays, wanted, order) for order in ORDERS]
        assert not all(np.array_equal(x, wanted) for x in found), j


def test_a_barrier_that_one_warp_does_not_come_to_is_seen():
    emulated, arrays, wanted = team("puma560", "inverse_dynamics", "float64", {"warps_per_state": 2, "phase_ops": 60})
    head, begin, rest = emulated.text.partition("define internal void @rows.warp1(")
    assert begin
    emulated.use(head + begin + rest.replace(JOIN, "", 1))
    with pytest.raises(AssertionError, match=r"have ended|fewer barriers"):
        results(emulated, arrays, wanted, "first to last")
