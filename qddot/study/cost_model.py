"""What a study costs beside its samples: a model of the overheads, the size of pieces that follows, and a simulation of it.

The driver spends `driver` seconds on each piece (hand out, receive, hash, write), one piece after the other; a worker waits
`latency` seconds between two pieces where nothing waits for it, and takes `startup` seconds before its first. The figures
are measured by `python -m benchmarks.studies`; docs/cluster.md has them and what follows.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

OVERHEAD = 0.01  # the part of a worker's time that may be lost between pieces
BUSY = 0.5  # the part of the driver's time that pieces may take: above, they queue


@dataclass(frozen=True)
class Costs:
    """Seconds, measured on one machine."""

    driver: float = 1e-3
    latency: float = 2e-3
    startup: float = 2.0


def piece_seconds(workers: int, costs: Costs | None = None) -> float:
    """How long a piece should take: so long that neither the workers nor the driver wait for each other."""
    found = costs or Costs()
    return max(1.0, found.latency / OVERHEAD, workers * found.driver / BUSY)


class Simulated(NamedTuple):
    """A run that was simulated: seconds, the part of the workers' time that was work, and how many pieces were lost."""

    seconds: float
    efficiency: float
    lost: int


def simulate(
    workers: int,
    pieces: int,
    seconds: float,
    costs: Costs,
    *,
    deaths_per_hour: float = 0.0,
    spread: float = 0.1,
    seed: int = 0,
) -> Simulated:
    """A run of so many pieces of `seconds` each (with a relative spread), event by event.

    Workers die `deaths_per_hour` times each, at random; their piece is lost and handed out again, and they start anew.
    """
    rng = np.random.default_rng(seed)
    left, lost, driver_free, end = pieces, 0, 0.0, 0.0
    events = [(costs.startup, k) for k in range(workers)]  # when each worker asks for a piece
    heapq.heapify(events)
    in_flight = 0
    while left or in_flight:
        now, worker = heapq.heappop(events)
        if worker < 0:  # an answer has arrived at the driver
            driver_free = max(now, driver_free) + costs.driver
            in_flight -= 1
            end = max(end, driver_free)
            continue
        if not left:
            if in_flight:  # one of the others may lose its piece
                heapq.heappush(events, (now + max(costs.startup, 0.1 * seconds), worker))
            continue
        left, in_flight = left - 1, in_flight + 1
        begin = max(now, driver_free) + costs.latency
        takes = seconds * max(0.1, 1.0 + spread * rng.standard_normal())
        death = rng.exponential(3600.0 / deaths_per_hour) if deaths_per_hour > 0.0 else np.inf
        if death < takes:
            lost, left, in_flight = lost + 1, left + 1, in_flight - 1
            heapq.heappush(events, (begin + death + costs.startup, worker))
        else:
            heapq.heappush(events, (begin + takes, worker))
            heapq.heappush(events, (begin + takes, -1))
    return Simulated(end, pieces * seconds / (workers * end), lost)
