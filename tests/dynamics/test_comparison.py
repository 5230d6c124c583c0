"""Formulations side by side, and what `auto` makes of them."""

import json

import numpy as np
import pytest

import qddot
from qddot.cli.compare import general_arm
from qddot.cli.main import main
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.program import REUSE_MAX_OPS, straight_line
from qddot.dynamics import choose, compare
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.errors import InputError
from tests.support.real_robots import URDFS, load, or_skipped, short


def test_every_formulation_is_there_and_auto_is_the_least():
    rows = compare.compare(qddot.load("scara"), "forward_dynamics")
    assert [r.method for r in rows] == list(FUNCTIONS["forward_dynamics"].methods)
    taken = [r for r in rows if r.auto]
    assert len(taken) == 1
    tried = FUNCTIONS["forward_dynamics"].auto
    assert taken[0].cost == min(r.cost for r in rows if r.method in tried)
    assert all(f"{m} " in taken[0].why for m in tried)
    assert f"{taken[0].cost} ({taken[0].instructions} instructions)" in taken[0].why


def test_values_that_come_from_memory_cost_more():
    """A value that was used long ago is one more instruction, and that waits."""
    near, far = ([1.0, *range(n), 1.0] for n in (3, 3 * REUSE_MAX_OPS))

    def last_is_first(x, steps):
        y, z = x[0] * x[1], x[0]
        for k in steps:
            z = z * x[1] + k
        return np.array([y * z], dtype=object)

    costs = []
    for steps in (near, far):
        graph, nodes, _ = trace(lambda x, s=steps: last_is_first(x, s), [2])
        program = straight_line(graph, nodes, 2)
        costs.append(program.cost - len(program.body))
    assert costs == [0, 2]


def test_a_formulation_that_is_not_for_this_robot_says_so():
    rows = {r.method: r for r in compare.compare(qddot.load("quadruped"), "mass_matrix")}
    assert "free" in rows["renaud"].refused
    assert rows["composite_body"].refused == ""


def test_measured_ones_have_times():
    rows = compare.compare(qddot.load("double_pendulum"), "mass_matrix", measure=True, most=2.0)
    least = min(r.instructions for r in rows if not r.refused)
    assert {r.method for r in rows if r.nanoseconds} == {r.method for r in rows if 0 < r.instructions <= 2.0 * least}
    assert all(r.nanoseconds is None or r.nanoseconds > 0 for r in rows)


def test_kernels_say_why():
    robot = qddot.load("puma560")
    info = robot.kernel("forward_dynamics").info
    assert info.method in info.why
    assert str(info.instructions) in info.why
    assert "links of" in qddot.chain(100).kernel("gravity_force").info.why


LARGE = [
    p for p in URDFS if p.stem in ("talos_reduced", "tiago_dual", "tiago_pro", "centauro", "b1-z1", "g1_29dof_rev_1_0")
]


@pytest.mark.parametrize("floating", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("source", or_skipped(LARGE), ids=short)
def test_of_large_robots_only_what_would_lose_is_not_traced(source, floating, monkeypatch):
    model = load(source, floating_base=floating).model
    for function in ("inverse_dynamics", "forward_dynamics", "gravity_force"):
        few = choose.cheapest(model, function, "auto")
        with monkeypatch.context() as patch:
            patch.setattr(choose, "_LARGE", 10**9)
            all_ = choose.cheapest(model, function, "auto")
        assert (few.method, few.sums, few.line.cost) == (all_.method, all_.sums, all_.line.cost)
        assert few.why.count("instructions") <= all_.why.count("instructions")


def test_the_estimate_of_a_factored_mass_matrix_is_low():
    """For general chains, where nothing folds: below the real count, and above a third of it."""
    for n in (12, 20):
        contest = choose._Contest(qddot.chain(n, rng=0).model, "forward_dynamics", "articulated_body_classical", {})
        contest.enter("composite_body_factored", False)
        real = contest.found["composite_body_factored", False].instructions
        assert 0.3 * real < contest._least_instructions("composite_body_factored") < real


def test_articulated_bodies_win_from_ten_joints_on():
    """Featherstone & Orin 2000 have the crossover at nine or ten; docs/choice.md has the figures."""
    for n, winner in ((8, "composite_body_factored"), (12, "articulated_body_classical")):
        rows = {r.method: r.operations for r in compare.compare(general_arm(n), "forward_dynamics")}
        assert min(("composite_body_factored", "articulated_body_classical"), key=rows.get) == winner


def test_command(capsys, tmp_path):
    assert main(["compare", "double_pendulum", "--no-times", "--function", "mass_matrix"]) == 0
    out = capsys.readouterr().out
    assert "*composite_body" in out
    assert "lin_planar" in out
    assert main(["compare", "--arms", "3", "--no-times", "--json", "--function", "bias_force"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert sorted(table) == ["2", "3"]
    assert np.all([r["instructions"] for r in table["3"]["bias_force"]])
    pytest.importorskip("matplotlib")
    for words in (["double_pendulum"], ["--arms", "3"]):
        path = tmp_path / f"{len(words)}.svg"
        assert main(["compare", *words, "--no-times", "--function", "mass_matrix", "--plot", str(path)]) == 0
        assert "composite_body" in path.read_text() or path.stat().st_size > 5000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give a file"),
        (["--arms", "1"], "from 2 to 60"),
        (["puma560", "--function", "jacobian"], "needs more than a state"),
    ],
)
def test_wrong_use(words, said, capsys):
    assert main(["compare", *words]) == 2
    assert said in capsys.readouterr().err


def test_unknown_functions_are_named():
    with pytest.raises((InputError, qddot.UnknownNameError), match="mass_matrix"):
        compare.compare(qddot.load("puma560"), "mass_matrx")
