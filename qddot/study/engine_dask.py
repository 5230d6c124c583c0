"""The engine "dask": pieces as tasks of a Dask cluster, or of one that is started on this machine and stopped afterwards.

Like a Ray cluster it runs the code that its users send it, by design (docs/cluster.md).
"""

from __future__ import annotations

import queue
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

from qddot.compiler.runtime.threads import set_num_threads
from qddot.errors import InputError, StudyError, extra
from qddot.study.engines import Answer, EngineOptions
from qddot.study.outcome import Lost, Outcome, Piece
from qddot.study.plan import Plan

_LOOK_SECONDS = 0.5  # between looks for workers that have come or gone
_PLUGIN = "qddot-study"


class DaskEngine:
    """A worker is given one piece at a time, so that its death is held against no other. Retries are the driver's."""

    def __init__(self, plan: Plan, options: EngineOptions) -> None:
        if options.get("timeout"):
            raise InputError("Dask cannot end a piece that takes too long: leave timeout= out, or take 'local' or 'ray'")
        distributed = extra("distributed", "dask", "engine='dask'")
        extra("dask", "dask", "engine='dask'").config.set({"distributed.scheduler.allowed-failures": 0})
        self._gone = (distributed.scheduler.KilledWorker, distributed.CancelledError)
        self._cluster: Any = None
        address: Any = options.get("address")
        if not address:
            own: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": None, "silence_logs": 50}
            own |= {"processes": True, "threads_per_worker": 1, "memory_limit": options.get("memory") or "auto"}
            address = self._cluster = distributed.LocalCluster(n_workers=options.get("workers"), **own)
        self._client = distributed.Client(address)
        self._client.register_plugin(_plugin(plan, options.get("threads") or 1), name=_PLUGIN)  # also of later workers
        self._slots = max(1, len(self._client.nthreads()))
        self._waiting: deque[Piece] = deque()
        self._ended: queue.Queue[Any] = queue.Queue()
        self._running: dict[Any, _Running] = {}

    @property
    def slots(self) -> int:
        """How many pieces it takes at a time: one is computed while another waits here."""
        return 2 * self._slots

    def submit(self, piece: Piece) -> None:
        """The next worker that is idle is given it."""
        self._waiting.append(piece)

    def wait(self) -> list[Answer]:
        """The pieces that have ended, at least one."""
        while True:
            there = set(self._client.nthreads())
            self._assign(there)
            answers = self._lost(there)
            with suppress(queue.Empty):
                if (task := self._ended.get(timeout=0.0 if answers else _LOOK_SECONDS)) in self._running:
                    answers.append(self._answer(task))
            if answers:
                return answers

    def close(self) -> None:
        """Ends the connection, and the cluster if it was started here."""
        with suppress(Exception):  # it may be gone
            self._client.cancel(list(self._running))
            self._client.unregister_worker_plugin(_PLUGIN)
        with suppress(Exception):
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def _assign(self, there: set[str]) -> None:
        for worker in sorted(there - {r.worker for r in self._running.values()}):
            if not self._waiting:
                return
            piece = self._waiting.popleft()
            task = self._client.submit(_evaluate, piece, pure=False, retries=0, workers=[worker])
            self._running[task] = _Running(worker, piece)
            task.add_done_callback(self._ended.put)

    def _lost(self, there: set[str]) -> list[Answer]:
        """The pieces whose worker is gone: Dask would keep them until it comes back."""
        gone = [task for task, r in self._running.items() if r.worker not in there and not task.done()]
        self._client.cancel(gone)
        return [(self._running.pop(task).piece, Lost("died", "its worker died")) for task in gone]

    def _answer(self, task: Any) -> Answer:
        piece = self._running.pop(task).piece
        try:
            return piece, task.result()
        except self._gone:
            return piece, Lost("died", "its worker died")
        except Exception as error:
            raise StudyError(f"a worker of the Dask cluster cannot compute: {type(error).__name__}: {error}") from None


class _Running(NamedTuple):
    """A piece, and the address of the worker that is at it."""

    worker: str
    piece: Piece


def _plugin(plan: Plan, threads: int) -> Any:
    """What brings the plan to every worker, also to one that is started in place of one that died."""
    base: Any = extra("distributed", "dask", "engine='dask'").WorkerPlugin

    class Bringer(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.plan = plan

        def setup(self, worker: Any) -> None:
            set_num_threads(threads)

    return Bringer()


def _evaluate(piece: Piece) -> Outcome:
    from distributed import get_worker

    plugins: dict[str, Any] = get_worker().plugins
    outcome: Outcome = plugins[_PLUGIN].plan.evaluate(piece)
    return outcome
