"""The model of costs where its answers can be worked out by hand; `python -m benchmarks.studies` has real workers."""

import pytest

from qddot.study.cost_model import Costs, piece_seconds, simulate


def test_one_worker_is_a_sum():
    found = simulate(1, 10, 2.0, Costs(driver=0.0, latency=0.5, startup=3.0), spread=0.0)
    assert found.seconds == pytest.approx(3.0 + 10 * 2.5)
    assert found.efficiency == pytest.approx(20.0 / 28.0)
    assert found.lost == 0


def test_the_driver_is_the_limit_of_many_workers_with_short_pieces():
    costs = Costs(driver=1e-3, latency=0.0, startup=0.0)
    found = simulate(1000, 20_000, 0.1, costs, spread=0.0)
    assert found.seconds >= 20_000 * 1e-3  # a piece a millisecond, whatever the workers do
    assert found.efficiency < 0.11
    long = piece_seconds(1000, costs)
    assert long == 2.0
    assert simulate(1000, 20_000, long, costs).efficiency > 0.9


def test_a_thousand_workers_that_die():
    costs = Costs(driver=1e-3, latency=2e-3, startup=2.0)
    calm = simulate(1000, 50_000, 2.0, costs)
    rough = simulate(1000, 50_000, 2.0, costs, deaths_per_hour=6.0)
    # a piece of 2 s is lost with a chance of 2/600 at six deaths an hour: 167 expected, and their spread is 13
    assert 100 < rough.lost < 240
    assert calm.efficiency > 0.9
    assert calm.efficiency > rough.efficiency > calm.efficiency - 0.05


def test_everything_ends_when_the_last_pieces_are_lost():
    assert simulate(2, 4, 100.0, Costs(), deaths_per_hour=60.0, seed=3).lost > 0
