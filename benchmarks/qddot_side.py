"""qddot as a contestant: one lane, lanes, all threads, and one call a state from Python.

All times are those of calls from Python on row-major arrays, so that bringing the states into lanes, NumPy's dispatch
and the writing of results are in every figure. Results go into an array that is there already (`out=`), as Pinocchio's
and MuJoCo's do. This is the only module of the benchmarks that knows how kernels are made and called.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import qddot
from benchmarks import native
from benchmarks.cases import Case
from benchmarks.contest import Contestant, clocked

ONE_LANE, LANES, THREADS, CALL = "qddot one lane", "qddot lanes", "qddot all threads", "qddot one call"

_KERNELS = {
    "rnea": "inverse_dynamics",
    "crba": "mass_matrix",
    "aba": "forward_dynamics",
    "minverse": "mass_matrix_inverse",
    "fk": "forward_kinematics",
}


def all_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Kernels:
    """The kernels of one function of one robot."""

    def __init__(self, case: Case, function: str) -> None:
        if not hasattr(case.robot, "kernel"):
            raise native.Unavailable("this version of qddot has no kernels")
        model = case.robot.model
        name = _KERNELS.get(function) or f"jacobian:{model.link_names[case.tip]}"
        before = _resident_bytes()
        try:
            self.lanes, self.one_lane = case.robot.kernel(name), case.robot.kernel(name, lanes=1)
        except qddot.QddotError as refusal:
            raise native.Unavailable(f"qddot has no kernel {name!r}: {refusal}") from None
        self.memory = _resident_bytes() - before
        self.inputs = {"rnea": (case.q, case.v, case.a), "aba": (case.q, case.v, case.tau)}.get(function, (case.q,))
        self.states = len(case.q)
        self.out = np.asarray(self.lanes(*self.inputs))

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
        # rows are cut out beforehand: indexing an array costs as much as a small kernel
        rows = list(zip(*self.inputs, strict=True))
        kernel = self.lanes
        yield Contestant(
            CALL,
            lambda count: np.stack([kernel(*row) for row in rows[:count]]),
            _on_threads(1, clocked(lambda: [kernel(*row) for row in rows])),
            self.states,
        )

    def _batch(self, kernel: Any, threads: int) -> np.ndarray:
        qddot.set_num_threads(threads)
        self.out[:] = np.nan  # so that what a kernel leaves out is seen
        kernel(*self.inputs, out=self.out)
        return self.out

    def facts(self) -> dict[str, Any]:
        """What the kernel says of itself."""
        info = self.lanes.info
        return {
            "ops": dict(info.ops),
            "method": info.method,
            "form": info.form,
            "lanes": info.lanes,
            "code_bytes": info.code_bytes,
            "compile_seconds": info.compile_seconds,
            "memory_bytes": self.memory,
        }


def _on_threads(threads: int, seconds: Callable[[], float]) -> Callable[[], float]:
    def timed() -> float:
        qddot.set_num_threads(threads)
        return seconds()

    return timed


def _resident_bytes() -> int:
    """Memory of this process, 0 where the system does not say."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
