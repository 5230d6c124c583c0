"""How fast one's own robot is computed on one's own machine: what `qddot bench` prints."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from qddot.compiler.runtime.threads import get_num_threads, set_num_threads
from qddot.dynamics.catalogue import lookup
from qddot.robot import Robot

DEFAULT = ("inverse_dynamics", "mass_matrix", "forward_dynamics", "mass_matrix_inverse", "forward_kinematics")
_ROUNDS = 5


@dataclass(frozen=True)
class Row:
    """One function: states a second in a batch on one thread and on all, seconds of one call, and what was compiled."""

    function: str
    one_thread: float
    all_threads: float
    one_call: float
    eager: float
    instructions: int
    compile_seconds: float
    code_bytes: int


def measure(robot: Robot, functions: Sequence[str] = DEFAULT, states: int = 4096) -> Iterator[Row]:
    """Measures functions on random states, row by row; medians of rounds. Of the spanning tree if there are loops."""
    robot = robot.spanning_tree()
    rng = np.random.default_rng(0)
    pairs = [robot.random_state(rng) for _ in range(min(states, 256))]
    q, v = (np.resize(np.stack(x), (states, x[0].size)) for x in zip(*pairs, strict=True))
    known = {"q": q, "v": v, "a": v[::-1].copy(), "tau": v[::-1].copy()}
    known["f_ext"] = rng.standard_normal((states, robot.model.n_links, 6))
    threads = get_num_threads()
    for name in functions:
        kernel = robot.kernel(name)
        function, _, algorithm = lookup(name, "auto")
        arrays = [known[x] for x in function.inputs]
        first = [x[0].copy() for x in arrays]
        out = kernel(*arrays)
        try:
            set_num_threads(1)
            one = _seconds(partial(kernel, *arrays, out=out))
            call = _seconds(partial(kernel, *first), repeat=2000)
            set_num_threads(threads)
            everything = _seconds(partial(kernel, *arrays, out=out))
        finally:
            set_num_threads(threads)
        eager = _seconds(partial(algorithm, robot.model, *first), repeat=3)
        yield Row(
            function=name,
            one_thread=states / one,
            all_threads=states / everything,
            one_call=call,
            eager=eager,
            instructions=kernel.info.instructions,
            compile_seconds=kernel.info.compile_seconds,
            code_bytes=kernel.info.code_bytes,
        )


def _seconds(function: Callable[[], Any], repeat: int = 5) -> float:
    def once() -> float:
        begin = time.perf_counter()
        for _ in range(repeat):
            function()
        return (time.perf_counter() - begin) / repeat

    function()
    return statistics.median(once() for _ in range(_ROUNDS))
