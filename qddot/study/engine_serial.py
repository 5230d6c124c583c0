"""The engine "serial": in this process, one piece after the other. For debugging, and for what cannot be sent elsewhere."""

from __future__ import annotations

from qddot.study.engines import Answer, EngineOptions
from qddot.study.outcome import Piece
from qddot.study.plan import Plan


class SerialEngine:
    """Computes when it is waited for."""

    slots = 1

    def __init__(self, plan: Plan, options: EngineOptions) -> None:
        self._plan = plan
        self._waiting: list[Piece] = []

    def submit(self, piece: Piece) -> None:
        """Keeps it until `wait`."""
        self._waiting.append(piece)

    def wait(self) -> list[Answer]:
        """Computes one piece."""
        piece = self._waiting.pop(0)
        return [(piece, self._plan.evaluate(piece))]

    def close(self) -> None:
        """There is nothing to end."""
