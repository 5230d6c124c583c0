"""A line that says what takes longer than a second, how far it is and how long it will take; it is gone afterwards.

On a terminal it is a line of standard error, in a notebook a line below the cell, elsewhere nothing. `set_progress(False)`,
or `QDDOT_PROGRESS=0` in the environment, turns it off; `set_progress(True)` writes it to standard error in any case.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

from qddot import notebook
from qddot.errors import InputError, printable, shown

NOTICE_SECONDS = 1.0  # before the line appears, and between its changes
PIECE_SECONDS = 0.25  # of a loop that is run in pieces, so that something can be said between them
_FIRST_PIECE, _GROWTH = 20_000, 8.0  # steps of all samples together; by how much pieces may grow at a time

_chosen: list[bool | None] = [None]
_active: list[Progress] = []  # from the outermost to the innermost


def set_progress(enabled: bool | None) -> None:
    """Whether compiles, simulations and sweeps of more than a second say how far they are.

    True: always, on standard error. False: never. None, the default: on terminals and in notebooks, unless the environment
    has `QDDOT_PROGRESS=0`.
    """
    if enabled is not None and not isinstance(enabled, bool):
        raise InputError(f"enabled is {shown(enabled)}; give True, False or None")
    _chosen[0] = enabled


def get_progress() -> bool | None:
    """What `set_progress` was given last; None at first."""
    return _chosen[0]


class _Sink(Protocol):
    """Where the line is shown."""

    def show(self, text: str) -> None: ...
    def clear(self) -> None: ...


class _Terminal:
    def __init__(self) -> None:
        self._width = 0

    def show(self, text: str) -> None:
        print(text.ljust(self._width), end="\r", file=sys.stderr, flush=True)
        self._width = len(text)

    def clear(self) -> None:
        self.show("")


class _Cell:
    """An output of the cell that is running, replaced again and again."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str) -> None:
        from IPython.display import HTML, display

        content = HTML(f"<div style='opacity:.7'>{notebook.escaped(text)}</div>" if text else "")
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)

    def clear(self) -> None:
        if self._handle is not None:
            self.show("")


def _sink(enabled: bool | None) -> _Sink | None:
    """Where a line goes; None where nobody looks or it is switched off."""
    wanted = _chosen[0] if enabled is None else enabled
    if wanted is None and os.environ.get("QDDOT_PROGRESS", "").strip().lower() in ("0", "off", "no", "false"):
        wanted = False
    if wanted is False or sys.stderr is None:
        return None
    if notebook.is_notebook():
        return _Cell()
    return _Terminal() if wanted or sys.stderr.isatty() else None


class Progress:
    """Says what is done, for how long and, where `done` is set to a number between 0 and 1, how long it will still take.

    `stage` and `done` may change meanwhile. Of nested ones the innermost is shown. `enabled` as for `set_progress`.
    """

    def __init__(self, stage: str, *, enabled: bool | None = None) -> None:
        self.stage, self._done, self._first = stage, None, None
        self._begin = self._last = time.perf_counter()
        self._sink, self._is_shown = _sink(enabled), False
        self._over: threading.Event | None = None
        self._thread: threading.Thread | None = None

    _done: float | None
    _first: float | None

    @property
    def done(self) -> float | None:
        """The part that is done, between 0 and 1; None where it is not known."""
        return self._done

    @done.setter
    def done(self, part: float) -> None:
        self._done = min(1.0, max(0.0, part))
        if self._first is None:
            self._first = self._done  # what an earlier run had done took no time of this one

    def __enter__(self) -> Progress:
        _active.append(self)
        if self._sink is not None:
            run = contextvars.copy_context().run  # a notebook knows by it which cell an output belongs to
            self._over = threading.Event()
            self._thread = threading.Thread(target=run, args=(self._watch, self._over), name="qddot-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._over is not None and self._thread is not None:
            self._over.set()
            self._thread.join()
        if self in _active:
            _active.remove(self)
        if self._is_shown and self._sink is not None:
            self._sink.clear()

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(NOTICE_SECONDS):
            self._show()

    def _show(self) -> None:
        said = [other for other in _active if other._sink is not None]  # a loop within another that says enough is silent
        if self._sink is not None and said[-1:] == [self]:
            self._is_shown = True
            self._sink.show(self.text)

    @property
    def text(self) -> str:
        """The line: "qddot: simulating 'arm', 40 %, 12 s, 18 s left …"."""
        spent, done, first = time.perf_counter() - self._begin, self._done, self._first or 0.0
        parts = [printable(self.stage), *([] if done is None else [f"{100.0 * done:.0f} %"]), f"{spent:.0f} s"]
        if done is not None and done > first:
            parts.append(f"{_span(spent / (done - first) * (1.0 - done))} left")
        return f"qddot: {', '.join(parts)} …"


class Loop(Progress):
    """The same for a loop of known length that is run in pieces: between them the line is written, by no thread of its own.

    One piece where nobody looks, and within another that says already how far it is.
    """

    def __init__(self, stage: str, total: int, *, samples: int = 1) -> None:
        super().__init__(stage, enabled=False)
        self._total, self._finished, self._piece = total, 0, max(1, _FIRST_PIECE // max(1, samples))
        if total > self._piece and not any(other.done is not None for other in _active):
            self._sink = _sink(None)

    def __enter__(self) -> Loop:
        _active.append(self)
        return self

    def pieces(self, count: int) -> Iterator[int]:
        """The lengths of the pieces that `count` steps are run in."""
        if self._sink is None:
            if count:
                yield count
            return
        self.done = self._finished / self._total
        while count > 0:
            size = min(self._piece, count)
            begin = time.perf_counter()
            yield size
            now = time.perf_counter()
            count, self._finished = count - size, self._finished + size
            self.done = self._finished / self._total
            self._piece = max(1, int(size * min(_GROWTH, max(0.5, PIECE_SECONDS / max(now - begin, 1e-9)))))
            if now - self._begin > NOTICE_SECONDS and now - self._last > PIECE_SECONDS:
                self._last = now
                self._show()


def _span(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120.0
        else f"{seconds / 60.0:.0f} min"
        if seconds < 7200.0
        else f"{seconds / 3600.0:.1f} h"
    )
