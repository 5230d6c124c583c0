"""A line on the terminal while something takes longer than a second, gone afterwards."""

from __future__ import annotations

import sys
import threading
import time

NOTICE_SECONDS = 1.0  # before the line appears, and between its changes


class Progress:
    """Says on standard error, where that is a terminal, what is done and for how long; `stage` may change meanwhile."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self._over, self._width, self._begin = threading.Event(), 0, time.perf_counter()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if sys.stderr is not None and sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, name="qddot-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._width:
            self._print("")

    def _show(self) -> None:
        while not self._over.wait(NOTICE_SECONDS):
            self._print(f"qddot: {self.stage}, {time.perf_counter() - self._begin:.0f} s …")

    def _print(self, text: str) -> None:
        print(text.ljust(self._width), end="\r", file=sys.stderr, flush=True)
        self._width = len(text)
