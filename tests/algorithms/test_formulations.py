"""Every formulation of a function gives the same numbers, eager and compiled, under every name it goes by."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qddot
from qddot.algorithms import composite_body
from qddot.cli.main import main
from qddot.compiler.ir.fuse import fused
from qddot.dynamics import choose, trace
from qddot.dynamics.catalogue import ALIASES, FUNCTIONS
from qddot.errors import FormulationError
from qddot.robots.generators import chain, random_tree
from tests.support.mechanisms import State, built, is_branched, needs_of, trees
from tests.support.profiles import examples

SETTINGS = examples(15)
SEVERAL = [name for name, function in FUNCTIONS.items() if len(function.methods) > 1]
# The acceptance of these formulations: to ten digits, and where M is divided by, ten digits times its condition over 1e3.
AGREED = 1e-10
ONE_AXIS = ("revolute", "prismatic")


def inputs(s, name):
    known = {"q": s.q, "v": s.v, "a": s.a, "tau": s.a, "f_ext": s.f_ext}
    return [known[x] for x in FUNCTIONS[name].inputs]


def tolerance(s, name):
    solves = name.startswith(("forward_dynamics", "hybrid_dynamics", "mass_matrix_inverse"))
    return AGREED * max(1.0, np.linalg.cond(s.robot.mass_matrix(s.q)) / 1e3) if solves else AGREED


def close(x, y, off):
    assert np.max(np.abs(x - y), initial=0.0) <= off * max(1.0, np.max(np.abs(y), initial=0.0))


def agree(robot, name, compute):
    """All formulations against the first; those of joints with one axis refuse others."""
    s, needs = State(robot), needs_of(name, robot)
    arrays = inputs(s, name)
    first, *others = FUNCTIONS[name].methods
    expected = compute(first, arrays, needs)
    several_axes = not {j.kind for j in robot.model.joint[1:]} <= {*ONE_AXIS, "helical"}
    for method in others:
        if several_axes and method.split("_")[0] in ("lin", "renaud", "fijany", "khalil", "balafoutis"):
            with pytest.raises(FormulationError, match="joint '"):
                compute(method, arrays, needs)
        elif method == "cyclic_reduction" and is_branched(robot.model):
            with pytest.raises(FormulationError, match=r"carries joints .* is for unbranched chains"):
                compute(method, arrays, needs)
        else:
            close(compute(method, arrays, needs), expected, tolerance(s, name))


@SETTINGS
@given(st.sampled_from(SEVERAL), trees(max_links=6))
def test_eager_on_any_tree(name, robot):
    agree(robot, name, lambda method, arrays, needs: FUNCTIONS[name].methods[method](robot.model, *arrays, **needs))


@pytest.mark.parametrize("name", [n for n in SEVERAL if "derivatives" not in n])
def test_compiled_on_a_tree(name):
    """`test_kernels` has a chain, the Stanford arm."""
    robot = qddot.Robot(random_tree(5, rng=3, kinds=ONE_AXIS, order="random").model())
    assert {joint.kind for joint in robot.model.joint[1:]} == set(ONE_AXIS)
    assert robot.model.parent != tuple(range(-1, 5))
    agree(robot, name, lambda method, arrays, needs: built(robot.model, name, method, **needs)(*arrays))


@pytest.mark.parametrize("regroup", [True, False])
def test_lin_and_renaud_with_and_without_regrouping(regroup):
    robot = qddot.load("puma560")
    s = State(robot)
    M = composite_body.mass_matrix(robot.model, s.q)
    for method in ("lin", "lin_planar", "lin_1988", "renaud", "fijany_bejczy", "denoc"):
        close(robot.kernel("mass_matrix", method=method, regroup=regroup)(s.q), M, AGREED)


def test_walker_and_orin_by_number():
    robot = qddot.Robot(chain(5, rng=1).model())
    s, names = State(robot), {}
    for alias, own in ALIASES.items():
        k = robot.kernel("mass_matrix", method=alias)
        names[alias] = k.info.method
        close(k(s.q), composite_body.mass_matrix(s.model, s.q), AGREED)
        assert k.info.method == own
    assert list(names.values()) == ["newton_euler_columns", "newton_euler_half_columns", "composite_body"]
    ops = [sum(trace.traced(s.model, "mass_matrix", alias).count().values()) for alias in ALIASES]
    assert ops == sorted(ops, reverse=True)  # each needs less than the one before, as Walker & Orin found


@SETTINGS
@given(trees())
def test_half_columns(robot):
    s = State(robot)
    close(composite_body.mass_matrix_by_half_columns(s.model, s.q), composite_body.mass_matrix(s.model, s.q), AGREED)


OTHERS = ("denoc", "lin", "lin_planar", "lin_1988", "renaud", "fijany_bejczy", "newton_euler_half_columns")
RECURSIVE = ("khalil_kleinfinger", "balafoutis_patel")  # the recursion that `auto` takes, but for details


def test_formulations_of_the_papers_are_not_contenders_of_auto():
    for function in FUNCTIONS.values():
        assert not {*OTHERS, *RECURSIVE} & set(function.auto)


@pytest.mark.parametrize("name", ["mass_matrix", "bias_force", "forward_dynamics"])
def test_none_of_them_would_win(name):
    """Which is why `auto` need not trace them."""
    for robot in ("planar3", "scara", "stanford"):
        model = qddot.load(robot).model.without_passive_forces()
        taken = len(fused(choose.cheapest(model, name, "auto").program).body)
        for method in (m for m in FUNCTIONS[name].methods if m in OTHERS):
            assert len(fused(choose.cheapest(model, name, method).program).body) >= taken


@pytest.mark.parametrize("name", ["inverse_dynamics", "bias_force"])
def test_what_auto_leaves(name):
    """docs/formulations.md: within one instruction or a twentieth of what `auto` takes, on these arms."""
    for robot in ("planar3", "scara", "stanford", "puma560"):
        model = qddot.load(robot).model.without_passive_forces()
        taken = len(fused(choose.cheapest(model, name, "auto").program).body)
        for method in RECURSIVE:
            assert len(fused(choose.cheapest(model, name, method).program).body) >= min(taken - 1, 0.95 * taken)


def test_count_leaves_out_what_is_not_for_a_robot(tmp_path, capsys):
    file = str(tmp_path / "robot.json")
    qddot.Robot(random_tree(2, rng=1, kinds=("universal",)).model()).save(file)
    assert main(["count", file, "--function", "mass_matrix"]) == 0
    out = capsys.readouterr().out
    assert "denoc" in out
    assert "without lin, lin_planar, lin_1988, renaud, fijany_bejczy: joint 'joint1' of robot 'tree2' is universal" in out
    assert main(["count", file, "--function", "mass_matrix", "--method", "lin"]) != 0
    assert "joint 'joint1'" in capsys.readouterr().err
    assert main(["count", "planar3", "--function", "mass_matrix", "--method", "walker_orin_2"]) == 0
    assert "newton_euler_half_columns" in capsys.readouterr().out


def test_long_chains_run_what_cannot_be_rolled():
    """A formulation over pairs of links is compiled as straight-line code, or refused with the reason."""
    model = chain(12, rng=0).model()
    with pytest.raises(qddot.QddotError, match="cannot be rolled"), warnings.catch_warnings():
        built(model, "mass_matrix", method="lin", form="rolled")
    rolled = built(model, "inverse_dynamics", method="denoc", form="rolled")
    s = State(qddot.Robot(model))
    close(rolled(s.q, s.v, s.a), s.robot.inverse_dynamics(s.q, s.v, s.a), AGREED)
