"""Calls like one before: arrays with equal facts, of which nothing is looked at again but where they lie.

A call from Python to a card is some microseconds of Python and some of the driver. What the first call of its kind found
out (shapes that fit, strides, the context, the launch) is kept here, and the next ones take a short way: with `out=` and
without, with arrays of qddot, PyTorch and CuPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from qddot.compiler.runtime.cuda.context import Context
from qddot.compiler.runtime.cuda.frameworks import Maker
from qddot.compiler.runtime.cuda.plan import Plan


class KnownCall:
    """A launch for arrays of one framework on one device, in order with its stream and of the kernel's type."""

    __slots__ = ("_context", "_current", "_driver", "_is_current", "_make", "_mask", "_plan", "_stream")

    def __init__(self, plan: Plan, context: Context, current: int, make: Maker, stream: Callable[[], int]) -> None:
        """`current` is the context that was current when this one was found: 0 if there was none."""
        self._plan, self._context, self._driver = plan, context, context.driver
        self._current, self._is_current = current or None, current == context.handle
        self._make, self._stream = make, stream
        self._mask = plan.itemsize - 1

    def __call__(self, arguments: Sequence[Any], pointers: list[int], out: Any) -> Any:
        """The result; None where the call has to be looked at as if it were the first."""
        plan = self._plan
        own = plan.borrow()
        bits = 0
        for pointer in pointers:
            bits |= pointer
        if (
            bits & self._mask
            or self._driver.forked
            or self._driver.get_current(own.current_at)
            or own.current.value != self._current
            or (out is not None and plan.overlaps(pointers))
        ):
            plan.give(own)
            return None
        if out is None:
            out, pointer = self._make(arguments)
            pointers.append(pointer)
        pointers.append(0)
        if self._is_current:
            plan.launch(pointers, self._stream(), own)
        else:
            with self._context:
                plan.launch(pointers, self._stream(), own)
        return out
