"""The driver of a study: it cuts the samples into pieces, keeps an engine busy, and writes what comes back.

A piece that is lost whole, because its worker died, is tried again; lost again, or ended because it took too long, it is
cut in half, until the samples that do it are alone. Those are tried so many times and then listed as failures.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from qddot.errors import StudyError
from qddot.progress import Progress
from qddot.study.engines import Engine
from qddot.study.outcome import Failure, Lost, Outcome, Piece
from qddot.study.plan import Plan
from qddot.study.store import Store

PIECE_SECONDS = 1.0  # of work in a piece: far above what handing it out takes (docs/cluster.md)
_HOPELESS = 100  # failures without one sample that succeeds: then something is wrong with the study


class Driver:
    """One run of a study."""

    def __init__(self, plan: Plan, store: Store, engine: Engine, chunk: int | None = None) -> None:
        self._plan, self._store, self._engine, self._chunk = plan, store, engine, chunk
        self._undone = deque(store.missing())
        self._again: deque[Piece] = deque()
        self._in_flight = 0
        self._held: list[Outcome] = []
        self._seconds_per_sample: float | None = None
        self._begun = store.n_done
        self._any_success = store.n_done > len(store.failures)

    def run(self, line: Progress) -> None:
        """Until every sample has a receipt."""
        total, begin = self._store.end - self._store.first, time.monotonic()
        while True:
            while self._in_flight < self._engine.slots and (piece := self._next()) is not None:
                self._engine.submit(piece)
                self._in_flight += 1
            if not self._in_flight:
                self._write_held()
                return
            for piece, answer in self._engine.wait():
                self._in_flight -= 1
                self._take(piece, answer)
            done, failed = self._store.n_done, len(self._store.failures)
            rate = (done - self._begun) / max(time.monotonic() - begin, 1e-9)
            line.stage = f"study, {done:,} of {total:,} samples, {rate:,.0f} a second, {failed:,} failed"
            line.done = done / total

    # ---- what is handed out

    def _next(self) -> Piece | None:
        if self._again:
            return self._again.popleft()
        if not self._undone:
            return None
        low, high = self._undone.popleft()
        middle = self._edge(low, high)
        if middle < high:
            self._undone.appendleft((middle, high))
        space = self._plan.space
        return Piece(low, middle - low, space.sampled(low, middle - low) if space.samplers else {})

    def _edge(self, low: int, high: int) -> int:
        """The end of the next piece: a multiple of the block, for a user's functions see whole blocks."""
        block = self._plan.work.block
        size = self._chunk or self._size(high - low + sum(b - a for a, b in self._undone))
        end = low // block * block + max(1, round(size / block)) * block
        return min(high, end)

    def _size(self, left: int) -> int:
        """So many samples take `PIECE_SECONDS`; fewer towards the end, so that all workers end together."""
        block = self._plan.work.block
        if self._seconds_per_sample is None:
            return block  # to find out
        wanted = PIECE_SECONDS / max(self._seconds_per_sample, 1e-9)
        return max(block, int(min(wanted, left / self._engine.slots)))

    # ---- what comes back

    def _take(self, piece: Piece, answer: Outcome | Lost) -> None:
        if isinstance(answer, Outcome):
            self._measure(answer)
            self._keep(answer)
            return
        tries = piece.tries + 1
        if piece.count == 1:
            if tries <= self._plan.retries:
                self._again.append(replace(piece, tries=tries))
            else:
                failure = Failure(piece.first, answer.kind, answer.reason)
                self._keep(Outcome(piece.first, 1, {}, (failure,), 0.0, ""))
        elif answer.kind == "died" and tries == 1:
            self._again.append(replace(piece, tries=1))  # perhaps somebody has killed it
        else:
            self._again.extend(self._halves(piece))

    def _halves(self, piece: Piece) -> Iterator[Piece]:
        block, middle = self._plan.work.block, piece.first + piece.count // 2
        edge = middle // block * block
        middle = edge if edge > piece.first else middle
        for low, high in ((piece.first, middle), (middle, piece.end)):
            own = slice(low - piece.first, high - piece.first)
            yield Piece(low, high - low, {name: x[own] for name, x in piece.given.items()})

    def _measure(self, outcome: Outcome) -> None:
        now = outcome.seconds / outcome.count
        known = self._seconds_per_sample
        # the first piece of a worker has loaded its kernels, or compiled them: what is much faster counts at once
        self._seconds_per_sample = now if known is None or now < 0.5 * known else 0.5 * (known + now)

    def _keep(self, outcome: Outcome) -> None:
        self._any_success = self._any_success or len(outcome.failures) < outcome.count
        self._held.append(outcome)  # until one has succeeded: what makes all fail is not a property of the samples
        if not self._any_success and sum(o.count for o in self._held) >= _HOPELESS:
            reason = outcome.failures[0].reason
            raise StudyError(f"the first {_HOPELESS} samples of the study have all failed, so it is stopped: {reason}")
        if self._any_success:
            self._write_held()

    def _write_held(self) -> None:
        """Writes what has been held back."""
        for outcome in self._held:
            self._store.add(outcome)
        self._held.clear()
