"""What is handed to workers and what comes back: pieces of a study, their results, and what went wrong."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Failure(NamedTuple):
    """A sample without a result: its row, the kind of the problem and what is known about it."""

    row: int
    kind: str  # raised, diverged, died, timeout
    reason: str


@dataclass(frozen=True)
class Piece:
    """Samples `first` to `first + count`, with the values that only the driver can draw."""

    first: int
    count: int
    given: Mapping[str, Array] = field(default_factory=dict)
    tries: int = 0  # that were lost

    @property
    def end(self) -> int:
        """The sample after the last one."""
        return self.first + self.count


@dataclass(frozen=True)
class Outcome:
    """The measures of a piece, a row a sample; rows of failures are NaN. The receipt says how it came about."""

    first: int
    count: int
    arrays: Mapping[str, Array]
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0
    host: str = ""

    def digest(self) -> str:
        """SHA-256 of the place, the failures, and every measure of the samples that have one."""
        failed = {f.row for f in self.failures}
        fine = np.array([k not in failed for k in range(self.first, self.first + self.count)], dtype=bool)
        content = hashlib.sha256(json.dumps([self.first, self.count, self.failures]).encode())
        for name in sorted(self.arrays):
            content.update(np.ascontiguousarray(self.arrays[name][fine]).tobytes())
        return content.hexdigest()


class Lost(NamedTuple):
    """A piece without any result: its worker died, or took too long and was ended."""

    kind: str  # died, timeout
    reason: str


@cache
def host_kind() -> str:
    """The kind of machine that results of the same bits can be expected of."""
    from qddot.compiler.targets.host import host

    target = host()
    return f"{platform.system()} {platform.machine()}, {target.lanes('float64')} lanes, {'fma' if target.fma else 'no fma'}"
