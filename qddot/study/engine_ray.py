"""The engine "ray": pieces as tasks of a Ray cluster, or of one that is started on this machine and stopped afterwards.

The plan is put into the object store once; each worker unpickles it once. A Ray cluster runs the code that its users send
it, by design: docs/cluster.md says how to keep it to oneself.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from qddot.errors import StudyError, extra
from qddot.study.engines import Answer, EngineOptions
from qddot.study.outcome import Lost, Piece
from qddot.study.plan import Plan

TIMEOUT = 600.0  # seconds of a piece
_AHEAD = 2  # pieces for each processor: one is computed while another waits beside it
_LOOK_SECONDS = 0.5  # between looks for pieces that take too long
# a raylet that has died ends the driver's process as well, by Ray's design; the same call goes on from the folder


class RayEngine:
    """Bounded by the processors of the cluster; retries are the driver's, not Ray's, so that failures are listed alike."""

    def __init__(self, plan: Plan, options: EngineOptions) -> None:
        self._ray = ray = extra("ray", "ray", "engine='ray'")
        self._cloudpickle = extra("ray.cloudpickle", "ray", "engine='ray'")
        self._timeout = options.get("timeout") or TIMEOUT
        threads = options.get("threads") or 1
        self._started = not ray.is_initialized()
        if self._started:
            _start(ray, options, threads)
        content = self._cloudpickle.dumps(plan)
        self._plan = ray.put(content)
        needs: dict[str, Any] = {"num_cpus": threads, "max_retries": 0}
        if _is_for_cuda(plan):
            needs["num_gpus"] = 1  # a task of its own for each card
        if options.get("memory"):
            needs["memory"] = options["memory"]
        self._evaluate = ray.remote(**needs)(_evaluate)
        self._key, self._threads = hashlib.sha256(content).hexdigest(), threads
        self._processors = max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        self._running: dict[Any, tuple[Piece, float]] = {}
        self._late: set[Any] = set()

    @property
    def slots(self) -> int:
        """How many pieces it takes at a time."""
        return _AHEAD * self._processors

    def submit(self, piece: Piece) -> None:
        """A task."""
        self._running[self._evaluate.remote(self._plan, self._key, self._threads, piece)] = (piece, time.monotonic())

    def wait(self) -> list[Answer]:
        """The tasks that have ended, at least one."""
        while True:
            ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=_LOOK_SECONDS)
            self._cancel_late()
            if ended:
                return [self._answer(task) for task in ended]

    def close(self) -> None:
        """Cancels what runs, and stops the cluster if it was started here."""
        with suppress(Exception):  # the cluster may be gone
            for task in self._running:
                self._ray.cancel(task, force=True)
        if self._started:
            self._ray.shutdown()

    def _answer(self, task: Any) -> Answer:
        piece, _ = self._running.pop(task)
        errors = self._ray.exceptions
        try:
            return piece, self._ray.get(task)
        except (errors.TaskCancelledError, errors.WorkerCrashedError, errors.ObjectLostError, errors.OutOfMemoryError) as error:
            if task in self._late:
                self._late.discard(task)
                return piece, Lost("timeout", f"it takes longer than {self._timeout:g} s")
            return piece, Lost("died", f"its worker died ({type(error).__name__})")
        except errors.RayTaskError as error:  # the plan itself cannot be read there
            raise StudyError(f"a worker of the Ray cluster cannot compute: {error.cause or error}") from None

    def _cancel_late(self) -> None:
        """Tasks wait for a processor too: with two ahead of each, a piece has twice the time."""
        now = time.monotonic()
        for task, (_, begin) in self._running.items():
            if now - begin > _AHEAD * self._timeout and task not in self._late:
                self._late.add(task)
                self._ray.cancel(task, force=True)


def _start(ray: Any, options: EngineOptions, threads: int) -> None:
    """Connects to the cluster of `address`, or starts one that only this machine can reach, without the dashboard."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    address = options.get("address")
    own: dict[str, Any] = {"address": address} if address else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    if not address and options.get("workers"):
        own["num_cpus"] = options["workers"] * threads
    ray.init(log_to_driver=False, configure_logging=False, **own)


def _is_for_cuda(plan: Plan) -> bool:
    options = getattr(plan.work, "options", {})
    prepared = getattr(plan.work, "prepared", None)
    return str(options.get("target", getattr(prepared, "target", "cpu"))).startswith("cuda")


_plans: dict[str, Plan] = {}  # of this worker


def _evaluate(content: bytes, key: str, threads: int, piece: Piece) -> Any:
    return plan_of(content, key, threads).evaluate(piece)


def plan_of(content: bytes, key: str, threads: int, loads: Callable[[bytes], Any] | None = None) -> Plan:
    """The plan in a worker of a cluster, unpickled once."""
    if key not in _plans:
        from qddot.compiler.runtime.threads import set_num_threads

        if loads is None:
            import pickle

            loads = pickle.loads  # what cloudpickle has written is a pickle
        set_num_threads(threads)
        _plans.clear()
        _plans[key] = loads(content)
    return _plans[key]
