"""What workers need to know of a study, and how they compute a piece: bad samples are isolated by bisection."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import QddotWarning
from qddot.study.outcome import Failure, Outcome, Piece, host_kind
from qddot.study.space import Space
from qddot.study.work import Work, failed

Array = NDArray[Any]


@dataclass
class Plan:
    """A study without its folder: it is pickled once for each worker."""

    space: Space
    work: Work
    retries: int = 2

    def evaluate(self, piece: Piece) -> Outcome:
        """The measures of a piece. Samples that raise are found by bisection and tried again; the others have results."""
        begin = time.perf_counter()
        values = self.space.values(piece.first, piece.count, piece.given)
        parts: list[tuple[int, dict[str, Array]]] = []
        failures: list[Failure] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", QddotWarning)
            for low, high in self._blocks(piece):
                own = {name: x[low - piece.first : high - piece.first] for name, x in values.items()}
                self._tried(own, low, high, parts, failures)
        shapes = {name: x.shape[1:] for _, part in parts for name, x in part.items()}
        arrays = {name: np.full((piece.count, *shape), np.nan) for name, shape in shapes.items()}
        for low, part in parts:
            for name, x in part.items():
                arrays[name][low - piece.first : low - piece.first + len(x)] = x
        seconds = time.perf_counter() - begin
        return Outcome(piece.first, piece.count, arrays, tuple(sorted(failures)), seconds, host_kind())

    def _blocks(self, piece: Piece) -> Iterator[tuple[int, int]]:
        size = self.work.together(piece.count)
        low = piece.first
        while low < piece.end:  # edges are multiples of a block, wherever the piece begins
            high = min((low // size + 1) * size, piece.end)
            yield low, high
            low = high

    def _tried(self, values: dict[str, Array], low: int, high: int, parts: list[Any], failures: list[Failure]) -> None:
        """Bisection, on a stack of its own: where a block raises, its halves are tried, and what is left alone again."""
        waiting = [(low, high)]
        while waiting:
            a, b = waiting.pop()
            own = {name: x[a - low : b - low] for name, x in values.items()}
            for attempt in range(1 + (self.retries if b - a == 1 else 0)):
                try:
                    found, lost = self.work(own, a)
                except Exception as error:  # a user's function, or a sample that the library refuses
                    if attempt == self.retries and b - a == 1:
                        failures.append(Failure(a, "raised", failed(error)))
                    continue
                parts.append((a, found))
                failures += lost
                break
            else:
                if b - a > 1:
                    middle = (a + b) // 2
                    waiting += [(middle, b), (a, middle)]
