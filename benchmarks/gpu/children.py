"""The processes that do the work: one that has the card, and many that compile. None of them can end or stop the run."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_SHOWN = 300  # characters of what a process said at its end


def environment(folder: Path) -> dict[str, str]:
    """That of the processes: a cache of the run's own, and no cache of the driver's that would hide how long it takes."""
    own = {
        "QDDOT_CACHE_DIR": str(folder / "cache"),
        "QDDOT_CACHE_KEY": str(folder / "cache.key"),
        "QDDOT_PROGRESS": "0",
        "CUDA_CACHE_DISABLE": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
    }
    return os.environ | own


class Measurer:
    """The process that has the card; started at the first request, and again if it has ended or hung."""

    def __init__(self, folder: Path, rehearse: bool = False) -> None:
        self.folder = folder
        self.command = [sys.executable, "-m", "benchmarks.gpu.measure", str(folder)] + ["--rehearse"] * rehearse
        self.starts = 0
        self._log = folder / "measure.log"  # of the process that is running
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def ask(
        self,
        request: dict[str, Any],
        limit: float,
        on_row: Callable[[dict[str, Any]], None] = lambda row: None,
        total: float = float("inf"),
    ) -> dict[str, Any]:
        """The answer, with no more than so many seconds between two rows and in total; else what went wrong, as "error"."""
        end = time.monotonic() + total
        try:
            process = self._started()
            assert process.stdin is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError as error:
            return {"error": f"{self._stopped()} ({error})"}
        while True:
            try:
                wait = max(0.1, min(limit, end - time.monotonic()))
                line = self._lines.get(timeout=wait)
            except queue.Empty:
                self._stopped()
                return {"error": f"no answer within {wait:.0f} s"}
            if line is None:
                return {"error": self._stopped(has_ended=True)}
            with suppress(json.JSONDecodeError):  # what a library prints is no answer
                found = json.loads(line)
                if "row" in found:
                    on_row(found["row"])
                elif "done" in found:
                    if "code" in found["done"] and found["done"]["code"]:
                        self._stopped()  # its context may be lost
                    return found["done"]

    def close(self) -> None:
        self._stopped()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self.starts += 1
            log = self._log.open("w", encoding="utf-8")
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env=environment(self.folder),
                cwd=ROOT,
            )
            log.close()
            self._lines = queue.Queue()
            threading.Thread(target=_read, args=(self._process, self._lines), daemon=True).start()
        return self._process

    def _stopped(self, has_ended: bool = False) -> str:
        """Ends the process, and says how it was."""
        process, self._process = self._process, None
        if process is None:
            return "the process had not started"
        if not has_ended:
            process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        said = ""
        with suppress(OSError):
            said = self._log.read_text(encoding="utf-8", errors="replace").strip()[-_SHOWN:]
        return f"the process ended with {process.returncode}: {said}"


def _read(process: subprocess.Popen[str], lines: "queue.Queue[str | None]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


class Preparers:
    """Jobs, so many at a time, each in a process of its own with a limit of time."""

    def __init__(self, folder: Path, workers: int, limit: float) -> None:
        self.folder, self.limit = folder, limit
        self._threads = ThreadPoolExecutor(workers)
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, job: dict[str, Any]) -> "Future[dict[str, Any]]":
        """Does a job some time; its result has "error" if that fails."""
        return self._threads.submit(self._do, job)

    def close(self) -> None:
        """Ends what is still running."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _do(self, job: dict[str, Any]) -> dict[str, Any]:
        command = [sys.executable, "-m", "benchmarks.gpu.prepare", str(self.folder), json.dumps(job)]
        with self._lock:
            if self._closed:
                return {"error": "the run was over"}
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env=environment(self.folder),
                cwd=ROOT,
            )
            self._running.add(process)
        try:
            out, said = process.communicate(timeout=self.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return {"error": f"took longer than {self.limit:.0f} s"}
        finally:
            with self._lock:
                self._running.discard(process)
        with suppress(json.JSONDecodeError, IndexError):
            return json.loads(out.strip().splitlines()[-1])
        return {"error": f"the process ended with {process.returncode}: {said.strip()[-_SHOWN:]}"}
