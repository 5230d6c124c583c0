"""Runs that survive: a folder of chunks, each on disk whole or not at all, and a manifest that says which are there.

A long simulation is cut into chunks of steps. A chunk is a function of the state before it, so that a run that was killed
goes on from the end of its last complete chunk and gives the bits of a run that was not. What is in the folder:

    manifest.json     format, what the run is of, and for every complete chunk its file, its rows and its SHA-256; nothing
                      that a result depends on is missing, so that a run is never gone on with as another one
    robot.qddot       the robot, where it can be written
    chunk-000000.npz  arrays of one chunk, and under "state/" the state after it

Every file is written beside its place, flushed to the disk, and then renamed; the manifest is written after its chunk.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from qddot.dynamics.engine import HasEngine
from qddot.errors import FileError, InputError, ModelError, QddotWarning, RecordingError, unexpected
from qddot.formats import native
from qddot.mechanism.model import Model
from qddot.progress import Progress
from qddot.simulation import disk, manifest
from qddot.simulation.archive import NUMBERS, packed, unpacked
from qddot.simulation.trajectory import Trajectory

Array = NDArray[Any]
State = Mapping[str, Any]
StepChunk = Callable[[dict[str, Array]], tuple[State, Mapping[str, Any]]]

ROBOT = "robot.qddot"
CHANNEL = "channel/"  # before the names of a saved trajectory's own channels
_STATE = "state/"


class RecordOptions(TypedDict, total=False):
    """The options of `record`."""

    robot: HasEngine | None
    info: Mapping[str, Any] | None
    run_of: Mapping[str, Any] | None
    batch_axes: int
    progress: bool | None


def record(
    step_chunk: StepChunk,
    state0: State,
    chunks: int,
    directory: str | os.PathLike[str],
    **options: Unpack[RecordOptions],
) -> Recording:
    """Runs chunk after chunk into a folder, or goes on with a run that is there already.

    `step_chunk(state)` gives the state after a chunk and the chunk's arrays; both are dictionaries of arrays. Time is the
    first axis of "t", and of the other arrays the axis after `batch_axes` ones. It must depend on nothing but its state:
    then a run that was interrupted, or killed, and called again gives the same bits as one that was not. The folder of
    another run (other state0, robot, info or `run_of`, which is everything else that `step_chunk` depends on) is refused.
    `progress` says how far it is; None: as `qddot.set_progress` has it.
    """
    if extra := options.keys() - RecordOptions.__annotations__.keys():
        raise unexpected("record", extra.pop(), RecordOptions.__annotations__)
    run, first = Recording(directory), _arrays(state0, "state0")
    with run.only_writer(), Progress("recording", enabled=options.get("progress")) as line:
        run.begin(first, options)
        run.drop_damaged()
        state, begun = run.state or first, len(run.chunks)
        if state.keys() != first.keys():
            raise RecordingError(
                f"{run.directory}: its last state has {list(state)}, not {list(first)}: it is not this run's"
            )
        try:
            for k in range(begun, chunks):
                line.stage, line.done = f"recording, {k} of {chunks} chunks", k / chunks
                after, rows = step_chunk(dict(state))
                state = _arrays(after, "the state after a chunk")
                run.append(_arrays(rows, "a chunk"), state)
        except KeyboardInterrupt:
            there = f"{len(run.chunks)} of {chunks} chunks are in {run.directory}"
            print(f"\ninterrupted: {there}; the same call goes on from there", file=sys.stderr)
            raise
    return run


class Recording:
    """A folder that `record` writes, complete or not."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._manifest: dict[str, Any] = {}
        if self.exists:
            self._manifest = manifest.read(self.directory)

    @property
    def exists(self) -> bool:
        """Whether a run has been begun there."""
        return (self.directory / manifest.NAME).is_file()

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The complete chunks, in order: file, rows, sha256."""
        return list(self._manifest.get("chunks", ()))

    @property
    def info(self) -> dict[str, Any]:
        """What the run was said to be."""
        return dict(self._manifest.get("info", {}))

    @property
    def state(self) -> dict[str, Array] | None:
        """The state after the last complete chunk; None before the first."""
        if not self.chunks:
            return None
        content = self._read_chunk(self.chunks[-1])
        return {name.removeprefix(_STATE): x for name, x in content.items() if name.startswith(_STATE)}

    def arrays(self) -> dict[str, Array]:
        """What has been recorded so far, every chunk checked against its SHA-256."""
        self._must_exist()
        parts = [self._read_chunk(chunk) for chunk in self.chunks]
        names = [n for n in (parts[0] if parts else ()) if not n.startswith(_STATE)]
        try:
            return {n: np.concatenate([part[n] for part in parts], axis=self._time_axis(n)) for n in names}
        except (KeyError, ValueError, TypeError) as error:
            raise RecordingError(f"{self.directory}: its chunks do not fit together: {error}") from None

    def _time_axis(self, name: str) -> int:
        return 0 if name == "t" else int(self._manifest["batch_axes"])

    def trajectory(self, robot: HasEngine) -> Trajectory:
        """What has been recorded so far, as a trajectory: t, q, v, a, tau, and all else as channels."""
        arrays = self.arrays()
        if not {"t", "q", "v"} <= arrays.keys():
            have = ", ".join(arrays) or "nothing yet"
            raise InputError(f"{self.directory} holds {have}; a trajectory needs t, q and v: take Recording(...).arrays()")
        recorded, model = self._manifest["robot"], robot.engine.model
        if recorded is not None and recorded != model.digest:
            raise InputError(
                f"{self.directory} was recorded of another robot than {model.name!r}; give the one it was made with"
            )
        own = {n: arrays.pop(n) for n in list(arrays) if n not in ("t", "q", "v", "a", "tau")}
        if of_other := [n for n, x in arrays.items() if x.dtype.kind not in "fiu"]:
            raise RecordingError(f"{self.directory}: {', '.join(of_other)} hold something else than real numbers")
        channels = {n.removeprefix(CHANNEL): x for n, x in own.items()}
        try:
            return Trajectory(robot, **arrays, channels=channels, info=self.info)
        except InputError as error:
            raise RecordingError(f"{self.directory}: it holds no states of robot {model.name!r}: {error}") from None

    def model(self) -> Model:
        """The robot's model as it was saved with the run."""
        self._must_exist()
        if not (self.directory / ROBOT).is_file():
            problem = "its robot has functions of its user's own, which cannot be written"
            raise RecordingError(f"{self.directory}: {problem}; give robot=")
        source, package_dirs = self._manifest.get("source") or ("", ())
        try:
            found = native.read(self.directory / ROBOT)
        except ModelError as error:
            raise RecordingError(f"{error}; give robot=") from None
        return dataclasses.replace(found, source=source, package_dirs=tuple(package_dirs))

    # ---- writing

    def begin(self, first: dict[str, Array], options: RecordOptions) -> None:
        """Writes the manifest of a new run, or checks that the one that is there is of the same run."""
        robot = options.get("robot")
        model = None if robot is None else robot.engine.model
        plain = {"info": dict(options.get("info") or {}), "run_of": dict(options.get("run_of") or {})}
        identity = {
            "robot": None if model is None else model.digest,
            "state0": {name: hashlib.sha256(packed({name: x})).hexdigest() for name, x in first.items()},
            **json.loads(json.dumps(plain, default=_plain, sort_keys=True)),
            "batch_axes": options.get("batch_axes", 0),
        }
        if self._manifest:
            if other := manifest.differences(self._manifest, identity):
                fix = "give another folder, remove this one, or save with overwrite=True"
                raise InputError(f"{self.directory} holds another run, of another {' and '.join(other)}: {fix}")
            return
        self._manifest = {"format": manifest.FORMAT, "version": manifest.VERSION, **identity, "chunks": []}
        if model is not None:
            self._manifest["source"] = [model.source, list(model.package_dirs)]
            self._write_robot(model)
        self._write_manifest()

    def _write_robot(self, model: Model) -> None:
        try:
            native.write(model, self.directory / ROBOT)
        except FileError as error:
            raise RecordingError(f"{error}; nothing of the run is there yet") from None
        except ModelError:  # a user's own functions cannot be written; whoever reads the run gives the robot
            return

    def append(self, rows: dict[str, Array], state: dict[str, Array]) -> None:
        """One more chunk: its file first, then the manifest that counts it."""
        axis = self._manifest["batch_axes"]
        times = {n: x.shape[: 1 if n == "t" else axis + 1][0 if n == "t" else axis :] for n, x in rows.items()}
        if len(set(times.values())) != 1 or () in times.values():
            shapes = ", ".join(f"{n} {x.shape}" for n, x in rows.items())
            raise InputError(f"the arrays of a chunk must have one length in time, the axis {axis}, and have {shapes}")
        known = self._manifest.get("arrays") if self.chunks else None
        if (known := known or sorted(rows)) != sorted(rows):
            raise InputError(f"a chunk has the arrays {sorted(rows)}, and those before it {known}; give the same in all")
        data = packed(rows | {_STATE + n: x for n, x in state.items()})
        entry = {
            "file": manifest.chunk_name(len(self.chunks)),
            "rows": next(iter(times.values()))[0],
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        self._write(str(entry["file"]), data)
        before = self._manifest
        self._manifest = {**before, "arrays": known, "chunks": [*self.chunks, entry]}
        try:
            self._write_manifest()
        except BaseException:
            self._manifest = before
            raise

    def drop_damaged(self) -> None:
        """Forgets chunks at the end that are not what was written; they are computed again."""
        while self.chunks:
            try:
                self._read_chunk(self.chunks[-1])
                return
            except RecordingError as error:
                warnings.warn(f"{error}; it is computed again", QddotWarning, stacklevel=4)
                self._manifest["chunks"] = self.chunks[:-1]

    @contextmanager
    def only_writer(self) -> Iterator[None]:
        """Holds the folder against a second process that would record into it; a killed one holds nothing."""
        with ExitStack() as stack:
            with self._explained():
                self.directory.mkdir(parents=True, exist_ok=True)
                stack.enter_context(disk.locked(self.directory))
            for path in self.directory.glob(f".*{disk.UNFINISHED}"):
                with suppress(OSError):
                    path.unlink()
            self._manifest = manifest.read(self.directory) if self.exists else {}
            yield

    def _write(self, name: str, data: bytes) -> None:
        with self._explained():
            disk.write(self.directory / name, data)

    def _write_manifest(self) -> None:
        self._write(manifest.NAME, (json.dumps(self._manifest, indent=1) + "\n").encode())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What the system says about a write, in words, with what is intact and how to go on."""
        try:
            yield
        except RecordingError:
            raise
        except OSError as error:
            problem, fix = disk.explained(error)
            done = f"{len(self.chunks)} chunks of the run are there and intact"
            raise RecordingError(f"{self.directory}: {problem}; {done}; {fix} and make the same call to go on") from None

    # ---- reading

    def _must_exist(self) -> None:
        if not self._manifest:
            raise RecordingError(f"{self.directory}: there is no recorded run ({manifest.NAME} is missing); check the path")

    def _read_chunk(self, chunk: Mapping[str, Any]) -> dict[str, Array]:
        path = self.directory / chunk["file"]
        try:
            data = path.read_bytes()
        except OSError as error:
            raise RecordingError(f"{path}: it cannot be read: {error.strerror}; the chunks before it are intact") from None
        if hashlib.sha256(data).hexdigest() != chunk["sha256"]:
            raise RecordingError(f"{path}: its content has changed since it was written; the chunks before it are intact")
        try:
            content = unpacked(data)
        except Exception as error:  # ZIP and NumPy's readers raise almost anything, and a file may be a stranger's
            raise RecordingError(f"{path}: it holds no arrays: {error}") from None
        self._check_rows(content, chunk, path)
        return content

    def _check_rows(self, content: Mapping[str, Array], chunk: Mapping[str, Any], path: Path) -> None:
        """A chunk must hold what the manifest says, also where its SHA-256 is right."""
        rows = {n: x for n, x in content.items() if not n.startswith(_STATE)}
        if (known := self._manifest.get("arrays")) is not None and sorted(rows) != sorted(known):
            raise RecordingError(f"{path}: it has the arrays {sorted(rows)}, and the manifest says {known}")
        for name, x in rows.items():
            axis = self._time_axis(name)
            if x.ndim <= axis or x.shape[axis] != chunk["rows"]:
                raise RecordingError(f"{path}: {name!r} has the shape {x.shape}; the manifest says {chunk['rows']} times")


# ---- arrays and files ------------------------------------------------------------------------------------------------


def _arrays(content: State, what: str) -> dict[str, Array]:
    arrays = {name: np.asarray(x, order="C") for name, x in content.items()}
    for name, x in arrays.items():
        if x.dtype.kind not in NUMBERS:
            raise InputError(f"{name!r} in {what} must be an array of numbers, not of {x.dtype}")
    return arrays


def _plain(x: Any) -> Any:
    if isinstance(x, np.ndarray | np.generic):
        return x.tolist()
    return repr(x)
