"""Contestants, their check against the reference, and the clock: everybody runs in every round, one after another.

Machines are noisy and drift; two figures taken minutes apart do not compare. So the contestants of one robot and one
function run interleaved, each round begins with another of them, and ratios are formed within a round.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Contestant:
    """One way to compute one function.

    `results(count)` gives those of the first states in qddot's conventions; `seconds()` the time of one pass over all
    of its `states` states. `variant` tells apart ways of which only the fastest is shown.
    """

    name: str
    results: Callable[[int], np.ndarray]
    seconds: Callable[[], float]
    states: int
    variant: str = ""
    rounds: list[float] = field(default_factory=list)  # seconds a state

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


class Disagreement(Exception):  # noqa: N818  the finding of a check
    """A contestant computes something else than the reference."""


def check(contestant: Contestant, reference: np.ndarray, tolerance: float) -> float:
    """The largest difference, relative to the largest entry; a benchmark of different results is worthless."""
    results = contestant.results(len(reference))
    label = f"{contestant.name} {contestant.variant}".strip()
    if results.shape != reference.shape:
        raise Disagreement(f"{label} gives shape {results.shape}, the reference {reference.shape}")
    error = float(np.max(np.abs(results - reference))) / max(1.0, float(np.max(np.abs(reference))))
    if not error <= tolerance:
        raise Disagreement(f"{label} is off by {error:.2g} relative; {tolerance:.2g} is allowed")
    return error


def clocked(function: Callable[[], object]) -> Callable[[], float]:
    """The `seconds` of a contestant whose function does all its states in one call."""

    def seconds() -> float:
        begin = time.perf_counter()
        function()
        return time.perf_counter() - begin

    return seconds


def one_by_one(function: Callable[..., object], rows: list[tuple[object, ...]]) -> None:
    """One call a state from Python, as in a control loop: the next result takes the place of the one before."""
    for row in rows:
        function(*row)


def race(contestants: list[Contestant], rounds: int, turn: float) -> None:
    """Fills `rounds` of each. A turn is `turn` seconds, and three passes at least; its median pass counts, so that an
    interruption does not. Passes of half a second and more outlast interruptions, and one is enough.
    """
    first_passes = [max(c.seconds(), 1e-9) for c in contestants]
    passes = [max(3 if t < 0.5 else 1, math.ceil(turn / t)) for t in first_passes]
    for first in range(rounds):
        for shift in range(len(contestants)):
            k = (first + shift) % len(contestants)
            times = [contestants[k].seconds() for _ in range(passes[k])]
            contestants[k].rounds.append(statistics.median(times) / contestants[k].states)


def fastest(contestants: list[Contestant], *names: str) -> Contestant | None:
    """Of all variants of the contestants with these names, the one with the lowest median."""
    return min((c for c in contestants if c.name in names), key=lambda c: c.median, default=None)


@dataclass(frozen=True)
class Ratio:
    """How many times as fast, over the rounds."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.1f}× ({self.low:.1f}–{self.high:.1f})"


def ratio(ours: Contestant | None, theirs: Contestant | None) -> Ratio | None:
    if ours is None or theirs is None:
        return None
    each = [t / o for o, t in zip(ours.rounds, theirs.rounds, strict=True)]
    return Ratio(statistics.median(each), min(each), max(each))
