"""How long work takes on the device, by its own clock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from qddot.compiler.runtime.cuda.arrays import empty
from qddot.compiler.runtime.cuda.context import DEFAULT_STREAM, find

COPIED_BYTES = 1 << 30  # by which the bandwidth of copies is measured: more than caches hold


def device_time(
    call: Callable[[], Any],
    calls: int = 20,
    rounds: int = 5,
    stream: int = DEFAULT_STREAM,
    ahead: Callable[[], Any] | None = None,
) -> float:
    """Seconds of one call on the device, in the best of some rounds; the first calls are not counted.

    `stream` is the one that the call puts its work on: for PyTorch, `torch.cuda.current_stream().cuda_stream`. `ahead` puts
    other work on it before the clock starts: while the device is busy with that, the calls queue up, and what is measured
    of short ones is the device and not the host.
    """
    context, is_current = find()
    own = context.driver
    with ExitStack() as stack:
        if not is_current:
            stack.enter_context(context)
        begin, end = context.event(timing=True), context.event(timing=True)
        stack.callback(own.cuEventDestroy_v2, begin)
        stack.callback(own.cuEventDestroy_v2, end)
        for _ in range(3):
            call()
        best = float("inf")
        for _ in range(rounds):
            if ahead is not None:
                ahead()
            own.cuEventRecord(begin, stream)
            for _ in range(calls):
                call()
            own.cuEventRecord(end, stream)
            own.cuEventSynchronize(end)
            best = min(best, own.elapsed_ms(begin, end) / calls)
    return 1e-3 * best


def copy_bandwidth(size: int = COPIED_BYTES) -> float:
    """Bytes a second that a copy within the device reads and writes."""
    context, _ = find()
    source, target = (empty((size // 8,), "float64", context) for _ in range(2))

    def copy() -> None:
        context.driver.cuMemcpyDtoDAsync_v2(target.pointer, source.pointer, size, DEFAULT_STREAM)

    return 2 * size / device_time(copy)
