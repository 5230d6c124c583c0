"""Programs in phases for several warps: who computes what when, what is where, and that nothing is read too early."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import qddot
from qddot.compiler.codegen.abi import grid
from qddot.compiler.codegen.llvm.thread_arguments import WARP, angles_of
from qddot.compiler.codegen.llvm.thread_clusters import clusters
from qddot.compiler.codegen.llvm.thread_phases import PIECE, PITCH, phases, work_of
from qddot.compiler.codegen.llvm.thread_places import places
from qddot.compiler.codegen.llvm.thread_registers import loads
from qddot.compiler.codegen.llvm.thread_warps import known_before
from tests.compiler.test_grid import program_of

WARPS = 4


@pytest.fixture(scope="module")
def program():
    robot = qddot.load("quadruped")
    program, inputs, _ = program_of(robot, "forward_dynamics_derivatives", packed=True)
    return program, known_before(program, angles_of(program, inputs[0][0]))


@pytest.fixture(scope="module")
def work(program):
    return work_of(*program)


@pytest.fixture(scope="module")
def made(work):
    return phases(work, WARPS, 10_000)


def test_programs_that_one_thread_computes_slowly_have_phases_for_small_batches(monkeypatch, tmp_path):
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path))
    robot, given = qddot.load("puma560"), {"dtype": "float32", "packed": True, "target": "cuda"}
    assert robot.kernel("forward_dynamics_derivatives", **given).code.small_batches is None
    monkeypatch.setattr(grid, "ONE_THREAD_MAX_OPS", 1000)
    assert qddot.load("puma560").kernel("inverse_dynamics", **given | {"packed": False}).code.small_batches is None
    monkeypatch.setattr(grid, "REPEATED_MAX_RATIO", 0.0)  # as if layers had too much in common
    given["packed"] = False
    for _ in range(2):  # the second time from the cache
        made = qddot.load("puma560").kernel("forward_dynamics_derivatives", **given)
        assert made.code.grid.warps_per_state == 1
        assert made.code.small_batches.grid.warps_per_state == grid.SMALL_BATCH_WARPS[0]
        (first,), (second,) = made.code.texts, made.code.small_batches.texts
        assert first.count(".visible .entry rows") == second.count(".visible .entry rows") == 1
        assert first != second
    assert made.info.cached


def test_code_for_small_batches_is_made_when_it_is_first_needed(monkeypatch, tmp_path):
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(grid, "ONE_THREAD_MAX_OPS", 1000)
    monkeypatch.setattr(grid, "REPEATED_MAX_RATIO", 0.0)
    calls, render = [], grid.render_small_batches
    monkeypatch.setattr(grid, "render_small_batches", lambda *given: (calls.append(1), render(*given))[1])
    for most, is_there in ((grid._SHARED_LARGEST_BYTES, True), (1000, False)):  # room for it, and none
        monkeypatch.setattr(grid, "_SHARED_LARGEST_BYTES", most)
        calls.clear()
        for made_before in range(2):
            robot = qddot.load("puma560").with_payload("link6", 0.25 + is_there)
            code = robot.kernel("forward_dynamics_derivatives", dtype="float32", target="cuda").code
            assert len(calls) == made_before
            with ThreadPoolExecutor(4) as threads:
                found = list(threads.map(lambda _, own=code: own.small_batches, range(4)))
            assert all(x is found[0] for x in found)
            assert (found[0] is not None) == is_there
            assert len(calls) == 1  # the second kernel has it from the cache


def test_every_operation_is_computed_once_when_its_operands_are_there(work, made):
    assert len(made.phase) == len(made.warp) == len(work.nodes)
    assert set(made.warp) == set(range(WARPS))
    for k, own in enumerate(work.operands):
        for x in own:
            same = made.warp[x] == made.warp[k]
            assert made.phase[x] < made.phase[k] or (same and made.phase[x] == made.phase[k] and x < k)


def test_warps_have_about_the_same_to_do(work, made):
    share = sum(work.cost) / WARPS
    own = [sum(c for c, w in zip(work.cost, made.warp, strict=True) if w == v) for v in range(WARPS)]
    assert max(own) < 1.15 * share
    assert sum(made.longest) < 2.0 * share, "loads, stores and waiting cost as much as the operations"


def test_phases_have_room(work):
    """Where there is little, longer ones are taken that need less of it."""
    fast, small = phases(work, WARPS, 10_000), phases(work, WARPS, 0)
    assert small.places(work) < fast.places(work)
    assert small.cost > fast.cost


def test_little_crosses(work):
    home = clusters(work.users, work.cost, WARPS)
    across = sum(any(home[u] != home[k] for u in users) for k, users in enumerate(work.users))
    assert across < 0.2 * len(work.nodes)


def test_clusters_of_separate_graphs_are_the_graphs():
    """Four chains that have nothing to do with each other, in turn."""
    count, length = 4, 300
    users = [[k + count] if k + count < count * length else [] for k in range(count * length)]
    home = clusters(users, [1] * len(users), count)
    cut = sum(home[k] != home[u] for k, own in enumerate(users) for u in own)
    assert cut <= 2 * count
    assert max(home.count(p) for p in range(count)) <= 1.06 * length


@pytest.mark.parametrize(("registers", "most"), [(190, 10_000), (20, 10_000), (20, 0)])
def test_what_is_read_is_there(program, work, made, registers, most):
    """Simulates all phases on memory that holds which value was stored: within a phase, warps see only their own stores."""
    program, _ = program
    loaded = loads(program, work, made, registers)
    plan = places(program, work, made, loaded, most, has_pieces=True)
    home = dict(zip(work.nodes, made.warp, strict=True))
    memory, local, nodes = {}, [{} for _ in range(WARPS)], set(work.nodes)
    found = 0
    for p in range(made.count):
        stores = [{} for _ in range(WARPS)]
        for w, own in enumerate(stores):
            for piece in plan.writes[p][w]:
                for j, n in enumerate(program.outputs[piece * PIECE : (piece + 1) * PIECE]):
                    assert n not in nodes or {memory[x] for x in numbers(plan, piece, j)} == {n}
            for k in [k for k, x in enumerate(work.nodes) if (made.phase[k], made.warp[k]) == (p, w)]:
                n = work.nodes[k]
                for x in nodes.intersection(loaded[w].get(n, ())):
                    found += 1
                    if x in plan.local and home[x] == w:
                        assert local[w][plan.local[x]] == x
                    else:
                        assert {own.get(i, memory.get(i)) for i in place(plan.of[x])} == {x}
                if n in plan.local:
                    local[w][plan.local[n]] = n
                own |= dict.fromkeys(place(plan.of[n]) if n in plan.of else (), n)
                for r in [r for r, x in enumerate(program.outputs) if x == n]:
                    own |= dict.fromkeys(numbers(plan, r // PIECE, r % PIECE), n)
        written = [i for own in stores for i in own]
        assert len(written) == len(set(written)), "two values in one place"
        for own in stores:
            memory |= own
    assert found > 100
    assert plan.local or most > 0


def place(k):
    """The numbers of shared memory that a place covers."""
    return range(WARP * k, WARP * (k + 1))


def numbers(plan, piece, j):
    """Those of the j-th number of a piece."""
    start = WARP * plan.pieces[piece] + PITCH * j
    return range(start, start + WARP)
