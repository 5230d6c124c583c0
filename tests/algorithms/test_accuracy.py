"""What the papers claim of accuracy, measured against 60 digits (docs/accuracy.md)."""

import mpmath
import numpy as np
import pytest

import qddot
from benchmarks import accuracy
from benchmarks.accuracy import DIGITS, arm, errors, in_scalars, run, single, states
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.errors import QddotError
from tests.support.real_robots import URDFS, WHY

MODELS = {"puma560": accuracy.robots()["puma560"], "stanford": accuracy.robots()["stanford"], "arm": arm(4, [1.0] * 4)}
MODELS["quadruped"] = accuracy.robots()["quadruped"]


@pytest.mark.parametrize("quantity", [*accuracy.QUANTITIES, "bias_force"])
@pytest.mark.parametrize("name", MODELS)
def test_formulations_are_one_function(name, quantity):
    """With sixty digits nothing is left of their differences: they differ by rounding, and by nothing else."""
    model = in_scalars(MODELS[name], single)
    state = next(states(model, 1))
    with mpmath.workdps(DIGITS):
        first, *others = FUNCTIONS[quantity].methods
        exact = run(model, quantity, first, state, mpmath.mpf)
        size, same = max(abs(x) for x in exact.ravel()), 0
        for method in others:
            try:
                result = run(model, quantity, method, state, mpmath.mpf)
            except QddotError:
                continue
            off = max(abs(x - y) for x, y in zip(result.ravel(), exact.ravel(), strict=True))
            assert off <= mpmath.mpf(10) ** (12 - DIGITS) * size, (
                method
            )  # twelve digits for the condition of what is solved
            same += 1
    assert same >= min(1, len(others))


@pytest.fixture(scope="module")
def long_arm():
    return errors(arm(24, [1.0] * 24), "forward_dynamics", count=5)


@pytest.mark.parametrize("precision", accuracy.PRECISIONS)
def test_articulated_bodies_are_more_accurate_than_composite_ones(long_arm, precision):
    """Featherstone & Orin (after Ascher, Pai & Cloutier), Saha: true where M is badly conditioned, by a factor of ten."""
    found = {method: row[precision] for method, row in long_arm[0].items()}
    for method in ("articulated_body", "articulated_body_classical", "augmented", "divide_and_conquer"):
        assert found[method] < 30  # units of rounding, where the condition of M is 2e4
        assert 4 * found[method] < found["composite_body_factored"], method


def test_where_the_mass_matrix_is_well_conditioned_there_is_no_difference():
    found, _ = errors(MODELS["stanford"], "forward_dynamics", count=5)
    for precision in accuracy.PRECISIONS:
        assert found["articulated_body"][precision] < 3
        assert found["composite_body_factored"][precision] < 3


def test_absolute_coordinates_are_for_robots_near_the_origin():
    near, far = (errors(arm(4, [1.0] * 4, base=(d, d, 0.0)), "forward_dynamics", count=3)[0] for d in (0.0, 1024.0))
    assert far["articulated_body_absolute"]["float64"] > 1e4 * near["articulated_body_absolute"]["float64"]
    assert far["articulated_body"] == near["articulated_body"]


def test_constraint_forces_lose_what_heavy_links_at_the_tip_outweigh():
    found, _ = errors(arm(6, [10.0**k for k in range(6)]), "forward_dynamics", count=3)
    assert found["constraint_forces"]["float64"] > 100 * found["articulated_body"]["float64"]


@pytest.mark.parametrize("quantity", accuracy.QUANTITIES)
def test_every_formulation_that_there_is_takes_part(quantity):
    found, refused = errors(MODELS["puma560"], quantity, count=1)
    assert set(found) | set(refused) == set(FUNCTIONS[quantity].methods)
    assert len(found) >= 3
    assert all(np.isfinite(list(row.values())).all() for row in found.values())


def test_the_page_says_how_it_was_made(capsys):
    accuracy.table("arm", {"arm": arm(2, [1.0] * 2)}, "forward_dynamics", "float64")
    printed = capsys.readouterr().out
    for method in FUNCTIONS["forward_dynamics"].methods:
        assert f"| {method} | " in printed


# ---- kernels of float32

LARGEST = {"inverse_dynamics": 2e-5, "mass_matrix": 2e-6, "inverse_dynamics_derivatives": 1e-5}
SOLVED = 1e-3  # what the condition of M leaves: iCub's is above 2e7


def assert_single(robot, functions):
    for function in functions:
        found = accuracy.single_errors(robot, function, 50)
        assert np.isnan(found).mean() <= 0.02  # refused: a pivot that was nothing but rounding
        assert 0.0 < np.nanmax(found) < LARGEST.get(function, SOLVED), function


@pytest.mark.parametrize("name", accuracy.EMBEDDED)
def test_single_precision(name):
    """Some hundred roundings of 6e-8, most of which cancel; docs/accuracy.md has what was found."""
    assert_single(qddot.load(name), ("inverse_dynamics", "forward_dynamics", "mass_matrix"))


@pytest.mark.slow
@pytest.mark.skipif(not URDFS, reason=WHY)
def test_single_precision_of_thirty_real_robots():
    robots = accuracy.real_robots()
    assert len(robots) == accuracy.REAL_ROBOTS == 30
    for robot in robots.values():
        assert_single(robot, [f for f, (_, most) in accuracy.KERNELS.items() if robot.nv <= min(most, 20)])
        assert_single(robot, ("inverse_dynamics", "forward_dynamics"))
