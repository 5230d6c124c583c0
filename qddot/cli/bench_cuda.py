"""`qddot bench --target cuda`: how many states a second are computed of a robot on the graphics card of this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from qddot.compiler.runtime.cuda.arrays import empty, to_device
from qddot.compiler.runtime.cuda.context import find
from qddot.compiler.runtime.cuda.kernel import code_of
from qddot.compiler.runtime.cuda.timing import copy_bandwidth, device_time
from qddot.errors import printable
from qddot.robot import Robot

DTYPES = ("float32", "float64")
MOST_STATES = 1 << 20
_SHARE_OF_MEMORY = 8  # the part of the card's memory that the arrays of one function take at most is one over this
_DISTINCT = 256  # states
_CALLS = 200


@dataclass(frozen=True)
class Row:
    """One function in one type: its batch, states a second on the card, and what was made for it."""

    function: str
    dtype: str
    states: int
    states_per_second: float
    copy_share: float  # of the bandwidth of copies within the card's memory
    one_call: float  # seconds on the host for a call with 256 states, without waiting for results
    registers: int
    local_bytes: int
    threads_a_state: int
    compile_seconds: float  # to PTX
    assemble_seconds: float  # by the driver
    cached: bool


def run(robot: Robot, names: Sequence[str], as_json: bool) -> int:
    """Prints the table, row by row; without a driver or a card an error says so."""
    device, copies = find()[0].device, copy_bandwidth()
    card = {"name": device.name, "arch": device.arch, "copy_bytes_per_second": copies}
    if not as_json:
        name, batch = printable(robot.name), f"batches of up to {MOST_STATES:,} states"
        print(f"{name}: nq = {robot.nq}, nv = {robot.nv}; {batch} on {device.name}, copies {copies / 1e12:.2f} TB/s")
        columns = ("states/s", "of copies", "one call", "registers", "local", "ready in")
        widths = (18, 10, 11, 10, 8, 10)
        print(f"  {'function':<22} {'':<8}" + "".join(f"{c:>{w}}" for c, w in zip(columns, widths, strict=True)))
    rows = []
    for row in measure(robot, names, copies):
        rows.append(row)
        if not as_json:
            ready = row.compile_seconds + row.assemble_seconds
            print(
                f"  {row.function:<22} {row.dtype:<8}{row.states_per_second:>18,.0f}{row.copy_share:>10.0%}"
                f"{1e6 * row.one_call:>8.2f} µs{row.registers:>10}{row.local_bytes:>6} B{ready:>8.2f} s"
            )
    if as_json:
        print(json.dumps({"name": robot.name, "card": card, "rows": [vars(r) for r in rows]}, indent=1))
    return 0


def measure(robot: Robot, functions: Sequence[str], copies: float, states: int = MOST_STATES) -> Iterator[Row]:
    """Measures functions on random states in arrays on the card, row by row; `copies`: their bandwidth, bytes a second."""
    rng = np.random.default_rng(0)
    q, v = robot.random_state(rng, _DISTINCT)
    known = {"q": q, "v": v, "a": v[::-1], "tau": v[::-1]}
    for name in functions:
        for dtype in DTYPES:
            yield _row(robot, name, dtype, known, (copies, states))


def _row(robot: Robot, name: str, dtype: str, known: dict[str, Any], how: tuple[float, int]) -> Row:
    copies, states = how
    context, _ = find()
    kernel = robot.kernel(name, dtype=dtype, target="cuda")
    code = code_of(kernel).suited(states, context)
    facts = code.facts(context)["rows"][0]
    moved = np.dtype(dtype).itemsize * sum(prod(s) for s in (*kernel.inputs, kernel.output))
    count = max(_DISTINCT, min(states, context.device.memory_bytes // _SHARE_OF_MEMORY // moved))
    rows = [known[x].astype(dtype) for x in kernel.names]
    arrays = [to_device(np.resize(x, (count, x.shape[1])), context) for x in rows]
    out: Any = empty((count, *kernel.output), dtype, context)
    seconds = device_time(partial(kernel, *arrays, out=out))
    few = [x[:_DISTINCT] for x in arrays]
    return Row(
        function=name,
        dtype=dtype,
        states=count,
        states_per_second=count / seconds,
        copy_share=count * moved / seconds / copies,
        one_call=_host_seconds(partial(kernel, *few)),
        registers=facts["registers"],
        local_bytes=facts["local_bytes"],
        threads_a_state=code.grid.threads_per_state,
        compile_seconds=kernel.info.compile_seconds,
        assemble_seconds=code.seconds,
        cached=kernel.info.cached and code.cached,
    )


def _host_seconds(call: Any, rounds: int = 5) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(_CALLS):
            last = call()
        best = min(best, (time.perf_counter() - begin) / _CALLS)
        last.copy_to_host()  # what is queued is done before the next round
    return best
