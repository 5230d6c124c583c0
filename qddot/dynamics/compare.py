"""The formulations of one function side by side on one robot: what they cost, and which one `auto` takes and why."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qddot.compiler.runtime.kernel import Kernel
from qddot.compiler.runtime.threads import get_num_threads, set_num_threads
from qddot.dynamics import pipeline
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.dynamics.choose import cheapest
from qddot.dynamics.engine import Engine, HasEngine
from qddot.dynamics.request import Request
from qddot.errors import FormulationError
from qddot.mechanism.configurations import random_state
from qddot.progress import Progress

STATES, ROUNDS = 2048, 7


@dataclass(frozen=True)
class Formulation:
    """One way to compute a function: operations by kind, instructions, cost, nanoseconds a state; or why it is refused.

    `auto` marks the one that `method="auto"` takes; `why` is then what it was chosen by.
    """

    function: str
    method: str
    auto: bool
    ops: Mapping[str, int]
    instructions: int = 0
    cost: int = 0
    nanoseconds: float | None = None
    why: str = ""
    refused: str = ""

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return self.ops.get("mul", 0) + self.ops.get("add", 0)


def compare(robot: HasEngine, function: str, *, measure: bool = False, most: float | None = None) -> list[Formulation]:
    """Every formulation of a function, traced for this robot and, if asked, compiled and measured on this machine.

    Measured are those that have at most `most` times the fewest instructions; all are interleaved on the same states on one
    thread, in a batch, and the median counts.
    """
    model = robot.engine.tree.model
    chosen = cheapest(model, function, "auto")
    rows = []
    methods = FUNCTIONS[function].methods
    with Progress(f"tracing {function} of {model.name!r}") as progress:
        for k, method in enumerate(methods):
            progress.done = k / len(methods)
            try:
                choice = cheapest(model, function, method)
            except FormulationError as error:
                rows.append(Formulation(function, method, False, {}, refused=str(error)))
                continue
            auto, line = method == chosen.method, choice.line
            counts = choice.program.count(), len(line.body), line.cost
            rows.append(Formulation(function, method, auto, *counts, None, chosen.why if auto else ""))
    if not measure:
        return rows
    least = min(r.instructions for r in rows if not r.refused)
    limit = pipeline.MOST_INSTRUCTIONS if most is None else most * least
    fit = [r.method for r in rows if not r.refused and r.instructions <= min(limit, pipeline.MOST_INSTRUCTIONS)]
    times = measured(robot.engine.tree, function, fit)
    return [Formulation(**{**vars(r), "nanoseconds": times.get(r.method)}) for r in rows]


def measured(engine: Engine, function: str, methods: Sequence[str], rounds: int = ROUNDS) -> dict[str, float]:
    """Nanoseconds a state of the kernels of these formulations."""
    arrays = states(engine, function)
    built = {m: pipeline.build(engine.model, Request(function, m, form="unrolled")) for m in methods}
    threads = get_num_threads()
    try:
        set_num_threads(1)
        times: dict[str, list[float]] = {m: [] for m in built}
        for round_ in _rounds(built, arrays, rounds + 1):
            for method, seconds in round_:
                times[method].append(seconds / STATES * 1e9)
    finally:
        set_num_threads(threads)
    return {m: statistics.median(own[1:]) for m, own in times.items()}  # the first round warms up


def _rounds(built: Mapping[str, Kernel], arrays: list[Any], rounds: int) -> Iterator[Iterator[tuple[str, float]]]:
    def turn(kernel: Kernel) -> float:
        begin = time.perf_counter()
        kernel(*arrays)
        return time.perf_counter() - begin

    for _ in range(rounds):
        yield ((method, turn(kernel)) for method, kernel in built.items())


def states(engine: Engine, function: str) -> list[Any]:
    """A batch of random inputs of a function."""
    rng = np.random.default_rng(0)
    pairs = [random_state(engine.model, rng) for _ in range(64)]
    q, v = (np.resize(np.stack(x), (STATES, x[0].size)) for x in zip(*pairs, strict=True))
    known = {"q": q, "v": v, "a": v[::-1].copy(), "tau": v[::-1].copy()}
    known["f_ext"] = rng.standard_normal((STATES, engine.model.n_links, 6))
    return [known[x] for x in FUNCTIONS[function].inputs]
