"""qddot as a contestant: one lane, lanes, all threads, and one call a state from Python.

All times are those of calls from Python on row-major arrays, so that bringing the states into lanes, NumPy's dispatch
and the writing of results are in every figure. Results go into an array that is there already (`out=`), as Pinocchio's
and MuJoCo's do. This is the only module of the benchmarks that knows how kernels are made and called.
"""

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import qddot
from benchmarks import native
from benchmarks.cases import Case
from benchmarks.contest import Contestant, clocked, one_by_one

ONE_LANE, LANES, THREADS, CALL = "qddot one lane", "qddot lanes", "qddot all threads", "qddot one call"
PACKED, PACKED_ONE = "qddot packed", "qddot packed one lane"

_KERNELS = {
    "rnea": "inverse_dynamics",
    "crba": "mass_matrix",
    "aba": "forward_dynamics",
    "minverse": "mass_matrix_inverse",
    "fk": "forward_kinematics",
    "jacobian": "jacobian",
    "drnea": "inverse_dynamics_derivatives",
    "daba": "forward_dynamics_derivatives",
}
_MATRICES = ("crba", "minverse", "drnea", "daba")  # whose results have zeros, or numbers twice


def all_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Kernels:
    """The kernels of one function of one robot."""

    def __init__(self, case: Case, function: str, limit: float) -> None:
        model = case.robot.model
        options = {"frame": model.link_names[case.tip]} if function == "jacobian" else {}
        self.compiling = compile_in_child(model, _KERNELS[function], options, limit)
        self.lanes = case.robot.kernel(_KERNELS[function], **options)
        self.one_lane = case.robot.kernel(_KERNELS[function], lanes=1, **options)
        moving = {"a": (case.q, case.v, case.a), "tau": (case.q, case.v, case.tau)}
        self.inputs = moving.get(self.lanes.names[-1], (case.q,))
        self.states = len(case.q)
        self.out = np.asarray(self.lanes(*self.inputs))
        self.packed: dict[str, Any] = {}
        if function in _MATRICES:
            with suppress(qddot.errors.KernelTooLargeError):  # long chains: what is rolled cannot be packed
                for name, lanes in ((PACKED, None), (PACKED_ONE, 1)):
                    self.packed[name] = case.robot.kernel(_KERNELS[function], packed=True, lanes=lanes)

    def contestants(self) -> Iterator[Contestant]:
        for name, kernel, threads in (
            (ONE_LANE, self.one_lane, 1),
            (LANES, self.lanes, 1),
            (THREADS, self.lanes, all_threads()),
        ):
            yield Contestant(
                name,
                lambda count, kernel=kernel, threads=threads: self._batch(kernel, threads)[:count].copy(),
                _on_threads(threads, clocked(lambda kernel=kernel: kernel(*self.inputs, out=self.out))),
                self.states,
            )
        for name, packed in self.packed.items():
            out = np.empty((self.states, *packed.output))
            yield Contestant(
                name,
                lambda count, packed=packed: packed.unpack(packed(*self.inputs)[:count]),
                _on_threads(1, clocked(lambda packed=packed, out=out: packed(*self.inputs, out=out))),
                self.states,
            )
        # rows are cut out beforehand: indexing an array costs as much as a small kernel; nobody keeps the results
        rows = list(zip(*self.inputs, strict=True))
        kernel = self.lanes
        yield Contestant(
            CALL,
            lambda count: np.stack([kernel(*row) for row in rows[:count]]),
            _on_threads(1, clocked(lambda: one_by_one(kernel, rows))),
            self.states,
        )

    def _batch(self, kernel: Any, threads: int) -> np.ndarray:
        qddot.set_num_threads(threads)
        self.out[:] = np.nan  # so that what a kernel leaves out is seen
        kernel(*self.inputs, out=self.out)
        return self.out

    def facts(self) -> dict[str, Any]:
        """What the kernel with lanes says of itself, and what it took to make it."""
        info = self.lanes.info
        return {
            "ops": dict(info.ops),
            "instructions": info.instructions,
            "method": info.method,
            "form": info.form,
            "lanes": info.lanes,
            "code_bytes": info.code_bytes,
            **self.compiling,
        }


def _on_threads(threads: int, seconds: Callable[[], float]) -> Callable[[], float]:
    def timed() -> float:
        qddot.set_num_threads(threads)
        return seconds()

    return timed


# ---- compiling -----------------------------------------------------------------------------------------------------


@contextmanager
def empty_cache() -> Iterator[None]:
    """Kernels go into a folder for this run alone, so that every one of them is compiled in it."""
    before = os.environ.get("QDDOT_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["QDDOT_CACHE_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["QDDOT_CACHE_DIR"]
            if before is not None:
                os.environ["QDDOT_CACHE_DIR"] = before


def compile_in_child(model: qddot.Model, function: str, options: dict[str, str], limit: float) -> dict[str, Any]:
    """Seconds and memory to compile the kernels with lanes and with one; they are in the cache afterwards.

    In a process of its own, because that can be ended when it takes too long, and because its memory tells.
    """
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    child = spawn.Process(target=_compile, args=(sender, model, function, options))
    child.start()
    sender.close()
    try:
        if not receiver.poll(limit):
            raise native.Unavailable(f"compiling {function} took longer than {limit:g} s")
        answer = receiver.recv()
    except EOFError:
        raise native.Unavailable(f"the process that compiled {function} died") from None
    finally:
        child.kill()
        child.join()
    if isinstance(answer, str):
        raise native.Unavailable(f"qddot has no kernel {function!r}: {answer}")
    return answer


def _compile(sender: Any, model: qddot.Model, function: str, options: dict[str, str]) -> None:
    robot, before = qddot.Robot(model), _resident_bytes()
    try:
        lanes = robot.kernel(function, **options)
        memory = _resident_bytes() - before
        one_lane = robot.kernel(function, lanes=1, **options)
    except qddot.QddotError as refusal:
        sender.send(str(refusal))
        return
    sender.send(
        {
            "compile_seconds": lanes.info.compile_seconds,
            "compile_seconds_one_lane": one_lane.info.compile_seconds,
            "memory_bytes": memory,
        }
    )


def _resident_bytes() -> int:
    """Memory of this process, 0 where the system does not say."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
