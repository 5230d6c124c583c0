"""The engine "dask": pieces as tasks of a Dask cluster, or of one that is started on this machine and stopped afterwards.

Like a Ray cluster it runs the code that its users send it, by design (docs/cluster.md).
"""

from __future__ import annotations

import hashlib
import queue
from contextlib import suppress
from typing import Any

from qddot.errors import InputError, StudyError, extra
from qddot.study.engine_ray import plan_of
from qddot.study.engines import Answer, EngineOptions
from qddot.study.outcome import Lost, Outcome, Piece
from qddot.study.plan import Plan

_AHEAD = 2  # pieces for each worker


class DaskEngine:
    """Bounded by the workers of the cluster; retries are the driver's."""

    def __init__(self, plan: Plan, options: EngineOptions) -> None:
        if options.get("timeout"):
            raise InputError("Dask cannot end a piece that takes too long: leave timeout= out, or take 'local' or 'ray'")
        distributed = extra("distributed", "dask", "engine='dask'")
        cloudpickle = extra("cloudpickle", "dask", "engine='dask'")
        dask = extra("dask", "dask", "engine='dask'")
        dask.config.set({"distributed.scheduler.allowed-failures": 0})  # a piece whose worker died comes back at once
        self._killed = distributed.scheduler.KilledWorker
        self._cluster: Any = None
        if options.get("address"):
            self._client = distributed.Client(options["address"])
        else:
            own: dict[str, Any] = {
                "host": "127.0.0.1",
                "dashboard_address": None,
                "processes": True,
                "threads_per_worker": 1,
            }
            own["memory_limit"] = options.get("memory") or "auto"
            self._cluster = distributed.LocalCluster(n_workers=options.get("workers"), silence_logs=50, **own)
            self._client = distributed.Client(self._cluster)
        self._threads = options.get("threads") or 1
        content = cloudpickle.dumps(plan)
        self._key = hashlib.sha256(content).hexdigest()
        self._plan = self._client.scatter(content, broadcast=True, hash=False)
        self._workers = max(1, sum(self._client.nthreads().values()))
        self._ended: queue.Queue[Any] = queue.Queue()
        self._running: dict[Any, Piece] = {}

    @property
    def slots(self) -> int:
        """How many pieces it takes at a time."""
        return _AHEAD * self._workers

    def submit(self, piece: Piece) -> None:
        """A task."""
        task = self._client.submit(_evaluate, self._plan, self._key, self._threads, piece, pure=False, retries=0)
        self._running[task] = piece
        task.add_done_callback(self._ended.put)

    def wait(self) -> list[Answer]:
        """The tasks that have ended, at least one."""
        while True:
            if (task := self._ended.get()) in self._running:
                return [self._answer(task)]

    def close(self) -> None:
        """Ends the connection, and the cluster if it was started here."""
        with suppress(Exception):  # it may be gone
            self._client.cancel(list(self._running))
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def _answer(self, task: Any) -> Answer:
        piece = self._running.pop(task)
        try:
            return piece, task.result()
        except self._killed:
            return piece, Lost("died", "its worker died (KilledWorker)")
        except Exception as error:
            raise StudyError(f"a worker of the Dask cluster cannot compute: {type(error).__name__}: {error}") from None


_plans: dict[str, Plan] = {}  # of this worker: it is unpickled once


def _evaluate(content: bytes, key: str, threads: int, piece: Piece) -> Outcome:
    if key not in _plans:
        _plans.clear()
        _plans[key] = plan_of(content, threads)
    return _plans[key].evaluate(piece)
