"""The engine "local": worker processes on this machine, one for each processor, each with its kernels on one thread."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import qddot
from qddot.errors import QddotError
from qddot.simulation import arguments
from qddot.study import luggage
from qddot.study.engines import Answer, EngineOptions
from qddot.study.outcome import Lost, Outcome, Piece
from qddot.study.plan import Plan
from qddot.study.worker import receive, send

TIMEOUT = 600.0  # seconds of a piece
_LEAST_MEMORY = 2 * 2**30  # bytes, for a worker
_STARTS, _STARTS_KILLED = 3, 50  # of a worker that dies, or is killed, before its first piece
_AHEAD = 2  # pieces a worker: one is computed while the answer to another is written


class LocalEngine:
    """A thread for each worker talks with it, ends it when it takes too long, and starts another when it has died."""

    def __init__(self, plan: Plan, options: EngineOptions) -> None:
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        threads = options.get("threads") or 1
        usual = 1 if plan.work.is_for_cuda else max(1, processors // threads)  # workers would share the one card
        self.workers = options.get("workers") or usual
        memory = options.get("memory") or max(_LEAST_MEMORY, arguments.memory() // self.workers)
        self._timeout = options.get("timeout") or TIMEOUT
        self._first_message = pickle.dumps((threads, memory, luggage.packed(plan)))
        self._environment = _environment(threads)
        self._waiting: queue.Queue[Piece | None] = queue.Queue()
        self._answers: queue.Queue[Answer | BaseException] = queue.Queue()
        self._warm = threading.Event()  # one worker compiles, and the others find the kernels in the cache on disk
        self._closing = False
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, args=(k,), daemon=True) for k in range(self.workers)]
        for thread in self._threads:
            thread.start()

    @property
    def slots(self) -> int:
        """How many pieces it takes at a time."""
        return _AHEAD * self.workers

    @property
    def processes(self) -> list[int]:
        """The ids of the workers that run now."""
        with self._lock:
            return [p.pid for p in self._running if p.poll() is None]

    def submit(self, piece: Piece) -> None:
        """The next worker that is free takes it."""
        self._waiting.put(piece)

    def wait(self) -> list[Answer]:
        """Everything that has come in, at least one answer."""
        found = [self._answers.get()]
        while not self._answers.empty():
            found.append(self._answers.get())
        for answer in found:
            if isinstance(answer, BaseException):
                raise answer
        return found  # type: ignore[return-value]

    def close(self) -> None:
        """Ends the workers; pieces that they are at are lost."""
        self._closing = True
        self._warm.set()
        for _ in self._threads:
            self._waiting.put(None)
        with self._lock:
            running = list(self._running)
        for process in running:
            process.kill()
        for thread in self._threads:
            thread.join()

    # ---- in the threads

    def _serve(self, k: int) -> None:
        process: subprocess.Popen[bytes] | None = None
        try:
            process = self._started()
            if k:
                self._warm.wait()
            while not self._closing and (piece := self._waiting.get()) is not None:
                if process is None:
                    process = self._started()
                answer, process = self._asked(process, piece)
                self._answers.put((piece, answer))
                self._warm.set()
        except BaseException as error:
            if not self._closing:
                self._answers.put(error)
        finally:
            if process is not None:
                self._end(process)

    def _asked(self, process: subprocess.Popen[bytes], piece: Piece) -> tuple[Outcome | Lost, Any]:
        """The answer to a piece, and the worker; None where it is gone."""
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self._timeout, stop)
        timer.start()
        try:
            send(process.stdin, pickle.dumps(piece))  # type: ignore[arg-type]
            data = receive(process.stdout)  # type: ignore[arg-type]
        except OSError:
            data = None
        finally:
            timer.cancel()
        if data is not None:
            answer: Outcome = pickle.loads(data)
            return answer, process
        self._end(process)
        if late.is_set():
            return Lost("timeout", f"it takes longer than {self._timeout:g} s"), None
        return Lost("died", f"its worker died (exit code {process.returncode})"), None

    def _started(self) -> subprocess.Popen[bytes]:
        """A worker that has the plan. One that dies before it has is started again, for it may have been killed."""
        starts = 0
        while True:
            process = self._spawned()
            try:
                send(process.stdin, self._first_message)  # type: ignore[arg-type]
                reply = receive(process.stdout)  # type: ignore[arg-type]
            except OSError:
                reply = None
            if reply is not None and (problem := pickle.loads(reply)) is None:
                return process
            self._end(process)
            starts += 1
            killed = process.returncode == -signal.SIGKILL if os.name == "posix" else False
            if reply is not None or self._closing or starts >= (_STARTS_KILLED if killed else _STARTS):
                break
        raise QddotError(f"a worker of the study cannot be started: {'it ended at once' if reply is None else problem}")

    def _spawned(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "qddot.study.worker"]
        with self._lock:
            process = subprocess.Popen(command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._running.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        process.wait()
        with self._lock:
            self._running.discard(process)


def _environment(threads: int) -> dict[str, str]:
    """Workers find this qddot, and libraries within them do not take the processors of the others."""
    home = str(Path(qddot.__file__).parents[1])
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    return {**os.environ, **one, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "QDDOT_PROGRESS": "0"}
