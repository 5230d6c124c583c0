"""How long work takes on the device, by its own clock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from qddot.compiler.runtime.cuda.context import DEFAULT_STREAM, find


def device_time(call: Callable[[], Any], calls: int = 20, rounds: int = 5, stream: int = DEFAULT_STREAM) -> float:
    """Seconds of one call on the device, in the best of some rounds; the first calls are not counted.

    `stream` is the one that the call puts its work on: for PyTorch, `torch.cuda.current_stream().cuda_stream`.
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
            own.cuEventRecord(begin, stream)
            for _ in range(calls):
                call()
            own.cuEventRecord(end, stream)
            own.cuEventSynchronize(end)
            best = min(best, own.elapsed_ms(begin, end) / calls)
    return 1e-3 * best
