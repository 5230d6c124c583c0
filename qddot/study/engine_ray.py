"""The engine "ray": pieces for actors of a Ray cluster, or of one that is started on this machine and stopped afterwards.

The plan is put into the object store once; each actor unpickles it once. A Ray cluster runs the code that its users send
it, by design: docs/cluster.md says how to keep it to oneself.
"""

from __future__ import annotations

import importlib
import os
import pickle
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

from qddot.errors import StudyError, extra
from qddot.study.engines import Answer, EngineOptions
from qddot.study.outcome import Lost, Outcome, Piece
from qddot.study.plan import Plan

TIMEOUT = 600.0  # seconds of a piece
_LOOK_SECONDS = 0.5  # between looks for pieces that take too long
CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # Ray's variable; 0: nodes are 127.0.0.1, and servers listen there alone
# a raylet that has died ends the driver's process as well, by Ray's design; the same call goes on from the folder


class RayEngine:
    """An actor for each processor, or card, is given one piece at a time, so that the time of a piece is its own.

    Retries are the driver's, not Ray's, so that failures are listed alike on every engine.
    """

    def __init__(self, plan: Plan, options: EngineOptions) -> None:
        self._ray = ray = extra("ray", "ray", "engine='ray'")
        self._timeout = options.get("timeout") or TIMEOUT
        threads = options.get("threads") or 1
        self._started = not ray.is_initialized()
        if self._started:
            _start(ray, options, threads)
        self._plan = ray.put(extra("ray.cloudpickle", "ray", "engine='ray'").dumps(plan))
        needs: dict[str, Any] = {"num_cpus": threads, "max_restarts": 0, "max_task_retries": 0}
        if options.get("memory"):
            needs["memory"] = options["memory"]
        have = ray.cluster_resources()
        workers = max(1, int(have.get("CPU", 1)) // threads)
        if plan.work.is_for_cuda:
            needs["num_gpus"] = 1
            workers = max(1, min(workers, int(have.get("GPU", 0))))
        self._workers = min(workers, options.get("workers") or workers)
        self._actor, self._threads = ray.remote(**needs)(_Worker), threads
        self._starting: dict[Any, Any] = {}  # what an actor answers when it has the plan -> the actor
        self._idle: list[Any] = []
        self._waiting: deque[Piece] = deque()
        self._running: dict[Any, _Running] = {}
        for _ in range(self._workers):
            self._start_actor()

    @property
    def slots(self) -> int:
        """How many pieces it takes at a time: one is computed while another waits here."""
        return 2 * self._workers

    def submit(self, piece: Piece) -> None:
        """The next actor that is idle is given it."""
        self._waiting.append(piece)
        self._assign()

    def wait(self) -> list[Answer]:
        """The pieces that have ended, at least one."""
        while True:
            pending = [*self._starting, *self._running]
            ended, _ = self._ray.wait(pending, num_returns=1, timeout=_LOOK_SECONDS)
            answers = [self._answer(task) for task in ended if task in self._running] + self._late()
            for task in ended:
                if task in self._starting:
                    self._begin(task)
            self._assign()
            if answers:
                return answers

    def close(self) -> None:
        """Ends the actors, and stops the cluster if it was started here."""
        with suppress(Exception):  # the cluster may be gone
            for actor in (*self._idle, *self._starting.values(), *(r.actor for r in self._running.values())):
                self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()

    def _start_actor(self) -> None:
        actor = self._actor.remote(self._plan, self._threads)
        self._starting[actor.ready.remote()] = actor

    def _begin(self, task: Any) -> None:
        actor = self._starting.pop(task)
        try:
            self._ray.get(task)
        except self._ray.exceptions.ActorDiedError as error:
            if "creation task" in str(error):  # the plan cannot be read there: another actor would not either
                raise StudyError(f"a worker of the Ray cluster cannot be started: {error}") from None
            self._start_actor()
        except self._ray.exceptions.RayActorError:  # somebody has killed it
            self._start_actor()
        else:
            self._idle.append(actor)

    def _assign(self) -> None:
        while self._idle and self._waiting:
            actor, piece = self._idle.pop(), self._waiting.popleft()
            self._running[actor.evaluate.remote(piece)] = _Running(actor, piece, time.monotonic())

    def _answer(self, task: Any) -> Answer:
        actor, piece, _ = self._running.pop(task)
        try:
            outcome = self._ray.get(task)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError):
            self._start_actor()
            return piece, Lost("died", "its worker died")
        except self._ray.exceptions.RayError as error:
            raise StudyError(f"a worker of the Ray cluster cannot compute: {error}") from None
        self._idle.append(actor)
        return piece, outcome

    def _late(self) -> list[Answer]:
        """Ends the actors whose pieces take too long."""
        now, out = time.monotonic(), list[Answer]()
        for task in [t for t, r in self._running.items() if now - r.begin > self._timeout]:
            actor, piece, _ = self._running.pop(task)
            self._ray.kill(actor)
            self._start_actor()
            out.append((piece, Lost("timeout", f"it takes longer than {self._timeout:g} s")))
        return out


class _Running(NamedTuple):
    """A piece that an actor is at, and since when."""

    actor: Any
    piece: Piece
    begin: float


class _Worker:
    """What an actor does."""

    def __init__(self, content: bytes, threads: int) -> None:
        self._plan = plan_of(content, threads)

    def ready(self) -> None:
        """Answers when the plan is there."""

    def evaluate(self, piece: Piece) -> Outcome:
        """The outcome of a piece."""
        return self._plan.evaluate(piece)


def _start(ray: Any, options: EngineOptions, threads: int) -> None:
    """Connects to the cluster of `address`, or starts one on this machine, without a dashboard and for this user alone."""
    address = options.get("address")
    own: dict[str, Any] = {"address": address} if address else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    if not address and options.get("workers"):
        own["num_cpus"] = options["workers"] * threads
    try:
        with nullcontext() if address else on_loopback():
            ray.init(log_to_driver=False, configure_logging=False, **own)
    except (RuntimeError, ConnectionError, ValueError, TimeoutError) as error:
        where = f"the Ray cluster {address!r} cannot be reached" if address else "Ray cannot be started here"
        raise StudyError(f"{where}: {str(error).splitlines()[0]}") from None


@contextmanager
def on_loopback() -> Iterator[None]:
    """Ray's settings for a cluster whose servers listen on 127.0.0.1 alone and answer nobody without its token.

    Ray turns a node of 127.0.0.1 into the machine's own address and listens everywhere, except where it thinks that there
    are no clusters. It reads both settings when it is imported, which somebody may have done before: so they are set in
    it as well.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    with suppress(ImportError, AttributeError):  # a Ray without tokens
        importlib.import_module("ray._raylet").Config.initialize("")
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = os.environ.get(CLUSTERS), getattr(constants, "ENABLE_RAY_CLUSTER", None)
    os.environ[CLUSTERS], constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before[1]
        del os.environ[CLUSTERS]
        if before[0] is not None:
            os.environ[CLUSTERS] = before[0]


def plan_of(content: bytes, threads: int) -> Plan:
    """The plan in a worker of a cluster: what cloudpickle has written is a pickle."""
    from qddot.compiler.runtime.threads import set_num_threads

    set_num_threads(threads)
    plan: Plan = pickle.loads(content)
    return plan
