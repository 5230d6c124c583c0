"""The command `qddot bench`: how many states a second are computed of a robot on this machine."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from qddot.cli import bench_cuda
from qddot.cli.robot_file import load_robot, robot_arguments
from qddot.compiler.runtime.threads import get_num_threads, set_num_threads
from qddot.dynamics.catalogue import lookup
from qddot.errors import printable
from qddot.robot import Robot

HELP = "Prints how many states a second are computed of a robot on this machine, or on its graphics card."
DEFAULT = ("inverse_dynamics", "mass_matrix", "forward_dynamics", "mass_matrix_inverse", "forward_kinematics")
_TIMING_ROUNDS = 5


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


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    robot_arguments(parser)
    parser.add_argument(
        "--target",
        choices=("cpu", "cuda"),
        default="cpu",
        help="what computes: this machine's processor (default), or its NVIDIA card",
    )


def run(options: argparse.Namespace) -> int:
    """Prints the table, row by row."""
    robot = load_robot(options).spanning_tree()
    names = [f for f in DEFAULT if not (robot.massless_joints and f in ("forward_dynamics", "mass_matrix_inverse"))]
    if options.target == "cuda":
        return bench_cuda.run(robot, names, options.json)
    rows = []
    if not options.json:
        threads = f"{get_num_threads()} threads"
        name = printable(robot.name)
        print(f"{name}: nq = {robot.nq}, nv = {robot.nv}; batch of 4096 states in double precision, {threads}")
        columns = ("states/s, 1 thread", "all threads", "one call", "vs eager", "compiled in")
        print(f"  {'function':<22} " + " ".join(f"{c:>{w}}" for c, w in zip(columns, (19, 13, 10, 9, 12), strict=True)))
    for row in measure(robot, names):
        rows.append(row)
        if not options.json:
            print(
                f"  {row.function:<22} {row.one_thread:>19,.0f} {row.all_threads:>13,.0f} {1e6 * row.one_call:>7.2f} µs"
                f" {row.eager * row.one_thread:>8,.0f}× {row.compile_seconds:>10.2f} s"
            )
    if options.json:
        print(json.dumps({"name": robot.name, "threads": get_num_threads(), "rows": [vars(r) for r in rows]}, indent=1))
    return 0


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
    return statistics.median(once() for _ in range(_TIMING_ROUNDS))
