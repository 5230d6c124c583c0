"""States in time that lie on a card, and come to the host when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime.cuda.arrays import DeviceArray
from qddot.dynamics.engine import HasEngine
from qddot.errors import InputError
from qddot.simulation.after_run import drift, warn_diverged
from qddot.simulation.limits import warn_outside
from qddot.simulation.rollout import Rollout
from qddot.simulation.trajectory import Trajectory

Array = NDArray[Any]
_LATE = ("q", "v", "tau", "channels")


class DeviceTrajectory(Trajectory):
    """A trajectory of which `device["q"]` and `device["v"]` are arrays on the card, views of `device["state"]`.

    They speak DLPack and `__cuda_array_interface__`: `torch.from_dlpack(run.device["q"])`. `q`, `v`, `tau` and `channels`
    are NumPy's as ever: the states are copied to the host when one of them is first read, and warnings come then.
    `tau` is None where controls or parameters were given on the device.
    """

    def __init__(
        self, rollout: Rollout, records: DeviceArray, numbers: Array, info: Mapping[str, Any], **facts: Any
    ) -> None:
        """`records` are (..., T, nq + nv); `facts` says `knows_tau` and `has_limits`, whether they were chosen."""
        self.robot: Any = rollout.robot
        self.info = dict(info)
        self.t = rollout.t0 + rollout.dt * numbers
        self.a = None
        self._rollout, self._numbers, self._facts, self._batch = rollout, numbers, facts, records.shape[:-2]
        nq, every = rollout.model.nq, (slice(None),) * (records.ndim - 1)
        views = {"q": records[(*every, slice(None, nq))], "v": records[(*every, slice(nq, None))], "state": records}
        self.device: Mapping[str, DeviceArray] = MappingProxyType(views)

    @property
    def batch(self) -> tuple[int, ...]:
        return self._batch

    @property
    def _own(self) -> tuple[str, ...]:
        return ("t", "q", "v", *(["tau"] if self._facts["knows_tau"] else []))

    def __getattr__(self, name: str) -> Any:
        # Only what is not there yet comes here.
        if name not in _LATE or "_rollout" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        engine = self._rollout.engine
        if name in ("q", "v"):
            state = self.device["state"].copy_to_host()
            self.q, self.v = np.split(state, [self._rollout.model.nq], axis=-1)
            warn_diverged(engine, self.q, self.v, self._numbers, self._rollout.integrator)
        elif name == "tau":
            self.tau = self._rollout.forces_at(self._numbers, self.q, self.v) if self._facts["knows_tau"] else None
            if not self._facts["has_limits"] and self.tau is not None:
                warn_outside(engine, self.q, self.tau)
        elif not engine.model.is_constrained:
            self.channels = {}
        else:
            self.channels = drift(engine, self.q, self.v, tuple(self._rollout.plan.motion or ()))
        return self.__dict__[name]

    def sample(self, *index: int) -> Trajectory:
        has_more = self._facts["knows_tau"] or self.robot.engine.model.is_constrained
        if has_more or "q" in self.__dict__ or len(index) != len(self._batch):
            return super().sample(*index)
        try:
            one = self.device["state"][index] if index else self.device["state"]
        except IndexError:
            raise InputError(f"the batch is {self._batch}; {index} is outside of it") from None
        q, v = np.split(one.copy_to_host(), [self._rollout.model.nq], axis=-1)
        return Trajectory(self.robot, self.t, q, v, info=self.info)

    def __reduce__(self) -> Any:
        """Memory of a card belongs to a process: elsewhere it is a trajectory on the host."""
        return _on_host, (self.robot, self.t, self.q, self.v, self.tau, self.channels, self.info)


def _on_host(robot: HasEngine, t: Array, q: Array, v: Array, tau: Any, channels: Any, info: Any) -> Trajectory:
    return Trajectory(robot, t, q, v, tau=tau, channels=channels, info=info)
