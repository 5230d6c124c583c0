"""The folder of a study: a file for each measure, and a journal with a receipt for every piece that is done.

    study.json       format, identity of the study, which samples the folder is for, the measures and their shapes
    NAME.npy         a measure, a row a sample; NaN where there is no result (yet)
    journal.jsonl    a line a piece: its samples, failures, seconds, kind of machine, and the SHA-256 of all that
    failures.json    when all is done: the samples without a result, in order

A piece counts once its receipt is on the disk, which is written after the rows. So the process can be killed at any moment:
what has no receipt, or another hash than its receipt says, is computed again. There is one writer, the driver; the number
of files does not grow with the number of samples.
"""

from __future__ import annotations

import io
import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import QddotWarning, RecordingError, StudyError
from qddot.simulation import disk
from qddot.simulation.manifest import differences
from qddot.study.outcome import Failure, Outcome

Array = NDArray[Any]
Shape = tuple[int, ...]

FORMAT, VERSION = "qddot study", 1
HEAD, JOURNAL, FAILURES = "study.json", "journal.jsonl", "failures.json"
FLUSH_SECONDS = 1.0  # between flushes to the disk: what a power cut loses at most
_FILL_ROWS = 65_536
_NOWHERE = np.zeros((0, 2), dtype=np.int64)


class Store:
    """The folder of a study, or of a part of one: samples `first` to `end`."""

    def __init__(self, directory: str | os.PathLike[str], first: int = 0, end: int = 0) -> None:
        self.directory = Path(directory)
        self.first, self.end = first, end
        self.identity: dict[str, Any] = {}
        self.columns: dict[str, Shape] | None = None
        self.done = _NOWHERE  # the samples that are done: [begin, end) of every run of them, in order
        self.failures: dict[int, Failure] = {}
        self.seconds, self.hosts = 0.0, set[str]()  # of all receipts
        self._files: dict[str, FileIO] = {}
        self._heads: dict[str, int] = {}
        self._receipts: list[bytes] = []
        self._flushed = time.monotonic()
        if self.exists:
            self._read_head()

    @property
    def exists(self) -> bool:
        """Whether a study has been begun there."""
        return (self.directory / HEAD).is_file()

    @property
    def n_done(self) -> int:
        """Samples that have a receipt, failures included."""
        return int((self.done[:, 1] - self.done[:, 0]).sum())

    @property
    def is_complete(self) -> bool:
        """Whether every sample has a receipt."""
        return self.n_done == self.end - self.first

    def missing(self) -> Iterator[tuple[int, int]]:
        """The runs of samples that have no receipt."""
        at = self.first
        for low, high in self.done.tolist():
            if low > at:
                yield at, low
            at = high
        if at < self.end:
            yield at, self.end

    # ---- beginning and going on

    @contextmanager
    def writing(self, identity: Mapping[str, Any]) -> Iterator[None]:
        """Holds the folder against another driver, and begins the study or goes on with it."""
        with ExitStack() as stack:
            with self._explained():
                self.directory.mkdir(parents=True, exist_ok=True)
                stack.enter_context(disk.locked(self.directory))
            for path in self.directory.glob(f".*{disk.UNFINISHED}"):
                path.unlink(missing_ok=True)
            stack.callback(self._close)
            if self.exists:
                self._read_head()
                self._must_be(identity)
                self.load()
            else:
                self.identity = dict(identity)
                self._write_head()
            yield

    def _must_be(self, identity: Mapping[str, Any]) -> None:
        if other := differences(self.identity, json.loads(json.dumps(identity))):
            raise RecordingError(
                f"{self.directory} holds another study, which differs in {'; '.join(other)}; give another folder"
            )

    def load(self) -> None:
        """Reads the journal. Receipts whose rows are not what was written are forgotten."""
        self.done, self.failures, damaged = _NOWHERE, {}, 0
        self.seconds, self.hosts = 0.0, set()
        runs: list[tuple[int, int]] = []
        for receipt in self._journal():
            outcome = self._recorded(receipt)
            if outcome is None:
                damaged += 1
                continue
            runs.append((outcome.first, outcome.first + outcome.count))
            for k in [k for k in self.failures if runs[-1][0] <= k < runs[-1][1]]:  # the later receipt holds
                del self.failures[k]
            self.failures.update({f.row: f for f in outcome.failures})
            self.seconds += outcome.seconds
            self.hosts.add(outcome.host)
        self.done = _joined(np.array(runs, dtype=np.int64).reshape(-1, 2))
        if damaged:
            warnings.warn(
                f"{self.directory}: {damaged} pieces are not what was written; they are computed again",
                QddotWarning,
                stacklevel=4,
            )

    def forget(self, rows: Sequence[int]) -> None:
        """Takes the receipts of some samples away, for this run: they are computed again."""
        taken = np.zeros(0, dtype=np.int64) if not len(rows) else np.unique(np.asarray(rows, dtype=np.int64))
        out = []
        for low, high in self.done.tolist():
            inside = taken[(taken >= low) & (taken < high)]
            edges = [low, *(x for k in inside.tolist() for x in (k, k + 1)), high]
            out += [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
        self.done = np.array(out, dtype=np.int64).reshape(-1, 2)
        for k in taken.tolist():
            self.failures.pop(k, None)

    # ---- writing

    def add(self, outcome: Outcome) -> None:
        """The rows of a piece, and its receipt, which is flushed within a second."""
        with self._explained():
            if outcome.arrays and self.columns is None:
                self._begin_columns({name: x.shape[1:] for name, x in outcome.arrays.items()})
            for name, shape in (self.columns or {}).items():
                self._write_rows(name, outcome.first, self._rows(outcome, name, shape))
            self._receipts.append((json.dumps(_receipt(outcome)) + "\n").encode())
            self.done = _joined(np.vstack([self.done, [(outcome.first, outcome.first + outcome.count)]]))
            self.failures.update({f.row: f for f in outcome.failures})
            self.seconds += outcome.seconds
            self.hosts.add(outcome.host)
            if time.monotonic() - self._flushed > FLUSH_SECONDS:
                self.flush()

    def _rows(self, outcome: Outcome, name: str, shape: Shape) -> Array:
        if not outcome.arrays:
            return np.full((outcome.count, *shape), np.nan)
        have = {n: x.shape[1:] for n, x in outcome.arrays.items()}
        if have != self.columns:
            raise StudyError(
                f"{self.directory}: the results of samples {outcome.first} to {outcome.first + outcome.count} are {have}, "
                f"and those before {self.columns}; a study has the same for all samples"
            )
        return outcome.arrays[name]

    def flush(self) -> None:
        """Rows first, then their receipts."""
        with self._explained():
            if self._receipts:
                for file in self._files.values():
                    os.fsync(file.fileno())
                self._append(b"".join(self._receipts))
                self._receipts.clear()
            self._flushed = time.monotonic()

    def finish(self) -> None:
        """Writes the list of failures once all is done."""
        self.flush()
        if self.is_complete:
            listed = [self.failures[k]._asdict() for k in sorted(self.failures)]
            with self._explained():
                disk.write(self.directory / FAILURES, (json.dumps(listed, indent=1) + "\n").encode())

    def _append(self, lines: bytes) -> None:
        path = self.directory / JOURNAL
        size = path.stat().st_size if path.exists() else 0
        with open(path, "ab") as file:
            if size and not _ends_with_line(path):
                lines = b"\n" + lines  # a writer was killed within a line, which counts for nothing
            try:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), size)  # a part of a line would be in the way of the next
                raise

    def _begin_columns(self, shapes: Mapping[str, Shape]) -> None:
        """Files of NaN, written in full: a disk that is too small says so now."""
        for name, shape in shapes.items():
            path = self.directory / f"{name}.npy"
            head = _npy_head((self.end - self.first, *shape))
            row = np.full((min(_FILL_ROWS, self.end - self.first), *shape), np.nan)
            unfinished = path.with_name(f".{path.name}{disk.UNFINISHED}")
            try:
                with open(unfinished, "wb") as file:
                    file.write(head)
                    for k in range(0, self.end - self.first, _FILL_ROWS):
                        file.write(row[: min(_FILL_ROWS, self.end - self.first - k)].tobytes())
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(unfinished, path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
        self.columns = dict(shapes)
        self._write_head()

    def _write_rows(self, name: str, first: int, rows: Array) -> None:
        data = memoryview(np.ascontiguousarray(rows).tobytes())
        file = self._file(name)
        file.seek(self._offset(name, first))
        while len(data):
            data = data[file.write(data) :]

    def _write_head(self) -> None:
        about = {
            "format": FORMAT,
            "version": VERSION,
            "samples": [self.first, self.end],
            "columns": self.columns,
            "identity": self.identity,
        }
        with self._explained():
            disk.write(self.directory / HEAD, (json.dumps(about, indent=1) + "\n").encode())

    # ---- reading

    def column(self, name: str) -> Array:
        """A measure, a row a sample, read where it is looked at."""
        shape = (self.end - self.first, *(self.columns or {})[name])
        try:
            found = np.load(self.directory / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise RecordingError(f"{self.directory / name}.npy: it cannot be read: {error}; run the study again") from None
        if found.shape != shape or found.dtype != np.dtype("<f8"):
            raise RecordingError(f"{self.directory / name}.npy holds {found.dtype} {found.shape}, not float64 {shape}")
        return found

    def receipts(self) -> Iterator[Outcome]:
        """Every piece whose rows are what its receipt says, in the order of the journal."""
        for receipt in self._journal():
            if (outcome := self._recorded(receipt)) is not None:
                yield outcome

    def _read_head(self) -> None:
        path = self.directory / HEAD
        try:
            content = json.loads(path.read_bytes())
            if content["format"] != FORMAT or content["version"] != VERSION:
                raise ValueError(f"it is no {FORMAT!r} of version {VERSION}")
            self.first, self.end = (int(x) for x in content["samples"])
            self.identity = dict(content["identity"])
            columns = content["columns"]
            self.columns = None if columns is None else {name: tuple(map(int, x)) for name, x in columns.items()}
            if any(os.sep in name or name.startswith(".") for name in self.columns or ()):
                raise ValueError("a measure has the name of another folder's file")
        except OSError as error:
            raise RecordingError(f"{path}: it cannot be read: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RecordingError(f"{path}: it cannot be read: {error}; is this the folder of a study?") from None

    def _journal(self) -> Iterator[dict[str, Any]]:
        try:
            with open(self.directory / JOURNAL, "rb") as file:
                for line in file:
                    try:
                        receipt = json.loads(line)
                    except ValueError:  # torn, or damaged
                        receipt = None
                    if isinstance(receipt, dict):
                        yield receipt
        except FileNotFoundError:
            return

    def _recorded(self, receipt: Mapping[str, Any]) -> Outcome | None:
        """The piece of a receipt with the rows on the disk; None where they do not have its hash."""
        try:
            first, number = int(receipt["first"]), int(receipt["count"])
            if not (self.first <= first and 0 < number <= self.end - first):
                return None
            failures = tuple(Failure(int(row), str(kind), str(reason)) for row, kind, reason in receipt["failures"])
            low = first - self.first
            arrays = {}
            if receipt["has_rows"]:
                arrays = {name: np.asarray(self.column(name)[low : low + number]) for name in self.columns or {}}
            seconds, host = float(receipt["seconds"]), str(receipt["host"])
            outcome = Outcome(first, number, arrays, failures, seconds, host)
            return outcome if outcome.digest() == receipt["sha256"] else None
        except (KeyError, TypeError, ValueError, RecordingError):
            return None

    def _offset(self, name: str, first: int) -> int:
        shape = (self.columns or {})[name]
        if name not in self._heads:
            self._heads[name] = len(_npy_head((self.end - self.first, *shape)))
        return self._heads[name] + (first - self.first) * 8 * int(np.prod(shape, dtype=np.int64))

    def _file(self, name: str) -> FileIO:
        if name not in self._files:
            self._files[name] = FileIO(self.directory / f"{name}.npy", "r+")
        return self._files[name]

    def _close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What the system says about a write, in words, with what is intact and how to go on."""
        try:
            yield
        except RecordingError:
            raise
        except OSError as error:
            problem, fix = disk.explained(error)
            done = f"{self.n_done:,} samples are done, and what was flushed of them is intact"
            raise RecordingError(f"{self.directory}: {problem}; {done}; {fix} and make the same call to go on") from None


def _receipt(outcome: Outcome) -> dict[str, Any]:
    return {
        "first": outcome.first,
        "count": outcome.count,
        "sha256": outcome.digest(),
        "has_rows": bool(outcome.arrays),
        "seconds": round(outcome.seconds, 4),
        "host": outcome.host,
        "failures": [list(f) for f in outcome.failures],
    }


def _joined(runs: Array) -> Array:
    """Runs of samples in order, those that touch or overlap as one."""
    if len(runs) < 2:
        return runs
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    reach = np.maximum.accumulate(runs[:, 1])
    begins = np.r_[True, runs[1:, 0] > reach[:-1]]
    ends = np.r_[begins[1:], True]
    return np.column_stack([runs[begins, 0], reach[ends]])


def _npy_head(shape: Shape) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def _ends_with_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
