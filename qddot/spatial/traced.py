"""Traced values: what a user's function is given while it is recorded. Whatever is done to them becomes an entry of a tape.

Comparisons give conditions, which decide `where` and nothing else: Python's `if`, `and`, `min` ask for their truth, which
is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot import scalars
from qddot.scalars import Unknown
from qddot.spatial.traced_array import TracedArray, on_function, on_ufunc

Entry = tuple[Any, ...]  # ("const", value), or an operation and the numbers of its arguments


class Recorder:
    """The entries of a tape as they come. Values are numbered: the inputs, then one for each entry."""

    def __init__(self, n_inputs: int) -> None:
        self.n_inputs = n_inputs
        self.entries: list[Entry] = []

    def values(self, numbers: Sequence[int]) -> NDArray[Any]:
        """Traced values of these numbers."""
        out = np.empty(len(numbers), dtype=object)
        out[:] = [TracedValue(self, k) for k in numbers]
        return out.view(TracedArray)

    def add(self, *entry: Any) -> int:
        """The number of a new entry."""
        self.entries.append(entry)
        return self.n_inputs + len(self.entries) - 1

    def number_of(self, x: Any) -> int:
        """The number of a traced value, or of a plain one, which becomes an entry."""
        if isinstance(x, np.ndarray) and x.ndim == 0:
            x = x.item()
        if isinstance(x, TracedValue):
            if x.recorder is not self:
                raise TypeError("it keeps values from one run to the next")
            return x.number
        if isinstance(x, Condition):
            raise TypeError("a comparison is no number; take np.where(condition, 1.0, 0.0)")
        if isinstance(x, _NUMBERS):
            return self.add("const", float(x))
        raise TypeError(f"{x!r} is no real number")


class _Traced(Unknown):
    """What NumPy asks values and conditions."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return on_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return on_function(function, args, options)

    def __hash__(self) -> int:
        return id(self)


class TracedValue(_Traced):
    """A scalar that is not known yet, and records what is done to it."""

    __slots__ = ("number", "recorder")

    def __init__(self, recorder: Recorder, number: int) -> None:
        self.recorder, self.number = recorder, number

    def _with(self, op: str, *args: Any) -> Any:
        if not all(isinstance(x, _OPERANDS) for x in args):
            return NotImplemented
        return TracedValue(self.recorder, self.recorder.add(op, *[self.recorder.number_of(x) for x in args]))

    def __add__(self, x: Any) -> Any:
        return self._with("add", self, x)

    def __radd__(self, x: Any) -> Any:
        return self._with("add", x, self)

    def __sub__(self, x: Any) -> Any:
        return self._with("sub", self, x)

    def __rsub__(self, x: Any) -> Any:
        return self._with("sub", x, self)

    def __mul__(self, x: Any) -> Any:
        return self._with("mul", self, x)

    def __rmul__(self, x: Any) -> Any:
        return self._with("mul", x, self)

    def __truediv__(self, x: Any) -> Any:
        return self._with("div", self, x)

    def __rtruediv__(self, x: Any) -> Any:
        return self._with("div", x, self)

    def __pow__(self, n: Any) -> Any:
        return self.power(n) if isinstance(n, _OPERANDS) else NotImplemented

    def __rpow__(self, x: Any) -> Any:
        return scalars.power(x, self) if isinstance(x, _NUMBERS) else NotImplemented

    def power(self, n: Any) -> Any:
        """What `scalars.power` calls: a known exponent is kept, because small whole ones are products."""
        if isinstance(n, TracedValue):
            return scalars.exp(n * scalars.log(self))
        return self._with("pow", self, n)

    def __neg__(self) -> Any:
        return self._with("neg", self)

    def __pos__(self) -> Any:
        return self

    def __lt__(self, x: Any) -> Any:
        return self._compared("less", self, x)

    def __gt__(self, x: Any) -> Any:
        return self._compared("less", x, self)

    def __le__(self, x: Any) -> Any:
        return self._compared("less_equal", self, x)

    def __ge__(self, x: Any) -> Any:
        return self._compared("less_equal", x, self)

    def __eq__(self, x: Any) -> Any:
        return (self <= x) & (self >= x) if isinstance(x, _OPERANDS) else NotImplemented

    def __ne__(self, x: Any) -> Any:
        return ~(self == x) if isinstance(x, _OPERANDS) else NotImplemented

    def _compared(self, op: str, x: Any, y: Any) -> Any:
        compared = self._with(op, x, y)
        if compared is NotImplemented:
            return compared

        def where(then: Any, otherwise: Any) -> Any:
            if not all(isinstance(x, _OPERANDS) for x in (then, otherwise)):
                raise TypeError(f"where chooses between numbers, and was given {then!r} and {otherwise!r}")
            return compared._with("where", compared, then, otherwise)

        return Condition(where)

    def sin(self) -> Any:
        return self._with("sin", self)

    def cos(self) -> Any:
        return self._with("cos", self)

    def sqrt(self) -> Any:
        return self._with("sqrt", self)

    def exp(self) -> Any:
        return self._with("exp", self)

    def log(self) -> Any:
        return self._with("log", self)

    def tanh(self) -> Any:
        return self._with("tanh", self)

    def arctan(self) -> Any:
        return self._with("arctan", self)

    def arctan2(self, x: Any) -> Any:
        """The angle of the point (x, self); either may be a plain number."""
        return TracedValue._with(self if isinstance(self, TracedValue) else x, "arctan2", self, x)

    __hash__ = _Traced.__hash__

    def __repr__(self) -> str:
        return f"<value {self.number} of a recorded function>"


class Condition(_Traced):
    """The result of a comparison, or of several. In arithmetic it counts as 1.0 or 0.0."""

    __slots__ = ("where",)

    def __init__(self, where: Callable[[Any, Any], Any]) -> None:
        self.where = where  # (then, otherwise): what `scalars.where` calls

    def __and__(self, other: Any) -> Any:
        if not isinstance(other, _CONDITIONS):
            return NotImplemented
        return Condition(lambda a, b: self.where(scalars.where(other, a, b), b))

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, _CONDITIONS):
            return NotImplemented
        return Condition(lambda a, b: self.where(a, scalars.where(other, a, b)))

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Any:
        return Condition(lambda a, b: self.where(b, a))

    def __add__(self, x: Any) -> Any:
        return self.where(1.0, 0.0) + x

    def __sub__(self, x: Any) -> Any:
        return self.where(1.0, 0.0) - x

    def __rsub__(self, x: Any) -> Any:
        return x - self.where(1.0, 0.0)

    def __mul__(self, x: Any) -> Any:
        return self.where(1.0, 0.0) * x

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        return "<condition of a recorded function>"


_NUMBERS = (float, int, np.floating, np.integer)
_OPERANDS = (TracedValue, *_NUMBERS)
_CONDITIONS = (Condition, bool, np.bool_)
