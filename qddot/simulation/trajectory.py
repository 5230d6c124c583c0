"""What a simulation gives back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


class Trajectory:
    """Times (T,), coordinates (..., T, nq), velocities (..., T, nv), and what else was recorded."""

    def __init__(
        self,
        robot: Any,
        t: Array,
        q: Array,
        v: Array,
        *,
        a: Array | None = None,
        tau: Array | None = None,
        channels: Mapping[str, Array] | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self.robot, self.t, self.q, self.v, self.a, self.tau = robot, t, q, v, a, tau
        self.channels, self.info = dict(channels or {}), dict(info or {})
