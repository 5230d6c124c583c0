"""A child process that reads what a stranger wrote with other people's parsers: its time and memory are limited.

MuJoCo's compiler and the readers of meshes can be kept busy for hours, take all memory or end the process by files made
for it. They run in `qddot/formats/child.py`; here are the process, the requests and what is said when it has to be ended.
Everywhere the process is ended after `MAX_SECONDS`; its memory is limited where the system can do so (Linux).
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

MAX_SECONDS = 30.0  # of the processor for one file; of the clock twice as many
MAX_BYTES = 4 * 2**30  # of address space: what MuJoCo reserves for 9,000 degrees of freedom
IDLE_SECONDS = 20.0  # after which a process without work is ended; starting one takes about half a second
_LENGTH = struct.Struct("<Q")
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}  # threads reserve memory


class EndedError(Exception):
    """The child did not answer; the text says why, to stand after the name of what it was doing."""


class Limited:
    """One child process for one kind of work, started when it is needed and kept for the next files."""

    def __init__(self, work: str) -> None:
        self.work = work
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: threading.Timer | None = None
        atexit.register(self._at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The child's answer: facts, and bytes that belong to them. Raises EndedError."""
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            try:
                return self._answer(request)
            except BaseException:  # also of Ctrl-C: an answer that nobody waits for must not be taken for the next one
                self._end()
                raise
            finally:
                self._idle = threading.Timer(IDLE_SECONDS, self.close)
                self._idle.daemon = True
                self._idle.start()

    def close(self) -> None:
        """Ends the process, if there is one and it has nothing to do."""
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
                self._idle = None
            self._end()

    def _at_exit(self) -> None:
        """Ends the process also where a thread that nobody waits for still waits for an answer."""
        mine = self._lock.acquire(timeout=0.1)
        self._end()
        if mine:
            self._lock.release()

    def _answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        fresh = self._process is None or self._process.poll() is not None
        if fresh:
            self._end()
            self._process = self._started()
        process, late = self._process, threading.Event()
        assert process is not None
        assert process.stdin is not None

        def stop() -> None:
            late.set()
            process.kill()

        clock = threading.Timer(2.0 * MAX_SECONDS, stop)
        clock.daemon = True
        clock.start()
        try:
            with suppress(OSError):  # of a process that is gone: reading tells
                _write(process.stdin, json.dumps({**request, "seconds": MAX_SECONDS}).encode())
            facts, data = _read(process.stdout), _read(process.stdout)
        finally:
            clock.cancel()
        if facts is not None and data is not None:
            return dict(json.loads(facts)), data
        code = process.wait()
        self._end()
        if not fresh and not late.is_set() and not _is_time(code):
            return self._answer(request)  # what an earlier file has broken is not this one's fault
        if late.is_set() or _is_time(code):
            raise EndedError(f"was stopped after {MAX_SECONDS:g} s")
        raise EndedError(f"ended without an answer ({'signal' if code < 0 else 'code'} {abs(code)})")

    def _started(self) -> subprocess.Popen[bytes]:
        environment = os.environ | _ONE_THREAD | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-P", str(Path(__file__).with_name("child.py")), self.work, str(MAX_BYTES)]
        try:
            return subprocess.Popen(
                command,
                bufsize=0,  # a buffer would have a lock, which a thread may hold when another forks
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd=tempfile.gettempdir(),
            )
        except OSError as error:
            raise EndedError(f"could not be started ({error.strerror or error})") from None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close(process)

    def _forget(self) -> None:
        """In a process that was forked: the child is not its own, and the lock may be held by a thread that is gone."""
        process, self._process, self._idle, self._lock = self._process, None, None, threading.Lock()
        if process is not None:
            process.returncode = 0  # not its own to wait for
            _close(process)


def _is_time(code: int) -> bool:
    """Whether the system ended a process for the time it took."""
    return hasattr(signal, "SIGXCPU") and code == -signal.SIGXCPU


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _write(pipe: Any, data: bytes) -> None:
    left = memoryview(_LENGTH.pack(len(data)) + data)
    while left:
        left = left[pipe.write(left) :]


def _read(pipe: Any) -> bytes | None:
    """One message, or None where the process has ended before its end."""
    head = _exactly(pipe, _LENGTH.size)
    size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else MAX_BYTES + 1
    data = _exactly(pipe, size) if size <= MAX_BYTES else None
    return data if data is not None and len(data) == size else None


def _exactly(pipe: Any, size: int) -> bytes:
    pieces, missing = list[bytes](), size
    while missing and (piece := pipe.read(min(missing, 2**20))):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)
