"""A user's function as a tape, the list of its operations: recorded once, replayed on scalars of any kind.

A function may depend on anything outside of it: globals, defaults, the state of its object. What it does to its arguments
is all that counts, so it is run on values that are not known yet, and from then on the tape stands for it: it is evaluated,
differentiated, compiled, compared and pickled. Its numbers are kept to the last bit, and nothing is simplified.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot import scalars
from qddot.errors import NotTraceableError
from qddot.scalars import Scalar, Unknown

Entry = tuple[Any, ...]  # ("const", value), or an operation and the numbers of its arguments


@dataclass(frozen=True)
class Tape:
    """What a function of some vectors computes. Values are numbered: the inputs, then one for each entry."""

    sizes: tuple[int, ...]  # of the vectors
    entries: tuple[Entry, ...]
    outputs: tuple[int, ...]

    def __call__(self, *vectors: Sequence[Scalar] | NDArray[Any]) -> list[Scalar]:
        """The results for these vectors."""
        sizes = tuple(len(x) for x in vectors)
        if sizes != self.sizes:
            raise ValueError(f"a function recorded of vectors of sizes {self.sizes} is given vectors of sizes {sizes}")
        values = [x for vector in vectors for x in vector]
        for op, *args in self.entries:
            values.append(args[0] if op == "const" else _OPERATIONS[op](*[values[a] for a in args]))
        return [values[k] for k in self.outputs]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the operations and of every bit of their numbers."""
        content = repr((self.sizes, [_exact(e) for e in self.entries], self.outputs))
        return hashlib.sha256(content.encode()).hexdigest()


def record(what: str, function: Callable[..., Any], sizes: Sequence[int]) -> Tape:
    """The tape of a function that takes arrays of unknown scalars and gives a sequence of scalars.

    The function is run twice. One that does something else the second time is refused: nobody could say what it computes.
    """
    first, again = (_recorded(what, function, sizes) for _ in range(2))
    if first.digest != again.digest:
        raise NotTraceableError(
            f"{what} does not do the same when it is run again{_difference(first, again)}: it depends on something that "
            f"changes, such as random numbers, a counter or the time. Draw such numbers once, before it is defined"
        )
    return first


def _recorded(what: str, function: Callable[..., Any], sizes: Sequence[int]) -> Tape:
    recorder = _Recorder(sum(sizes))
    ends = np.cumsum([0, *sizes])
    vectors = [recorder.nodes(range(a, b)) for a, b in pairwise(ends)]
    try:
        outputs = tuple(recorder.number_of(x) for x in function(*vectors))
    except NotTraceableError:
        raise
    except (TypeError, AttributeError) as error:
        raise NotTraceableError(
            f"{what} cannot be traced: {error}. It is run on values that are not known yet: write it with arithmetic and "
            f"the functions of qddot.scalars (sin, cos, sqrt, arctan2, less, where), not those of math"
        ) from error
    return Tape(tuple(sizes), tuple(recorder.entries), outputs)


def _exact(entry: Entry) -> Entry:
    return ("const", entry[1].hex()) if entry[0] == "const" else entry


def _difference(first: Tape, again: Tape) -> str:
    """The numbers that first differ, where that is all that differs."""
    pairs = zip(first.entries, again.entries, strict=False)
    a, b = next(((a, b) for a, b in pairs if _exact(a) != _exact(b)), (("",), ("",)))
    return f" (a number in it was {a[1]!r} and then {b[1]!r})" if a[0] == b[0] == "const" else ""


class _Recorder:
    def __init__(self, n_inputs: int) -> None:
        self.n_inputs = n_inputs
        self.entries: list[Entry] = []

    def nodes(self, numbers: Sequence[int]) -> NDArray[Any]:
        out = np.empty(len(numbers), dtype=object)
        out[:] = [Node(self, k) for k in numbers]
        return out

    def add(self, *entry: Any) -> int:
        self.entries.append(entry)
        return self.n_inputs + len(self.entries) - 1

    def number_of(self, x: Any) -> int:
        if isinstance(x, np.ndarray) and x.ndim == 0:
            x = x.item()
        if isinstance(x, Node):
            if x.recorder is not self:
                raise TypeError("it keeps values from one run to the next")
            return x.number
        if isinstance(x, _NUMBERS):
            return self.add("const", float(x))
        raise TypeError(f"{x!r} is no real number")


class Node(Unknown):
    """A scalar that is not known yet, and records what is done to it."""

    __slots__ = ("number", "recorder")

    def __init__(self, recorder: _Recorder, number: int) -> None:
        self.recorder, self.number = recorder, number

    def _with(self, op: str, *args: Any) -> Any:
        if not all(isinstance(x, _OPERANDS) for x in args):
            return NotImplemented
        return Node(self.recorder, self.recorder.add(op, *[self.recorder.number_of(x) for x in args]))

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
        if not isinstance(n, int | np.integer) or n < 0:
            raise TypeError(f"a traced value can be raised to whole powers of zero or more, not to {n!r}")
        return self._with("pow", self, n)

    def __neg__(self) -> Any:
        return self._with("neg", self)

    def __pos__(self) -> Any:
        return self

    def __lt__(self, x: Any) -> Any:
        return self._with("less", self, x)

    def __gt__(self, x: Any) -> Any:
        return self._with("less", x, self)

    def sin(self) -> Any:
        return self._with("sin", self)

    def cos(self) -> Any:
        return self._with("cos", self)

    def sqrt(self) -> Any:
        return self._with("sqrt", self)

    def arctan2(self, x: Any) -> Any:
        """The angle of the point (x, self); either may be a plain number."""
        return Node._with(self if isinstance(self, Node) else x, "arctan2", self, x)

    def where(self, then: Any, otherwise: Any) -> Any:
        """What `scalars.where` calls on the result of a comparison."""
        return self._with("where", self, then, otherwise)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> Any:
        """NumPy's functions, element by element."""
        function = _UFUNCS.get(ufunc)
        if method != "__call__" or function is None:
            return NotImplemented
        plain = (x.item() if isinstance(x, np.generic) else x for x in inputs)  # which would lead here again
        return np.frompyfunc(function, len(inputs), 1)(*(np.asarray(x, dtype=object) for x in plain))

    def __hash__(self) -> int:
        return hash((id(self.recorder), self.number))

    def __repr__(self) -> str:
        return f"<value {self.number} of a recorded function>"


_NUMBERS = (float, int, np.floating, np.integer)
_OPERANDS = (Node, *_NUMBERS)
_OPERATIONS: dict[str, Callable[..., Scalar]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "pow": lambda x, n: x ** int(n),
    "sin": scalars.sin,
    "cos": scalars.cos,
    "sqrt": scalars.sqrt,
    "arctan2": scalars.arctan2,
    "less": scalars.less,
    "where": scalars.where,
}
_UFUNCS: dict[Any, Callable[..., Scalar]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
    np.negative: operator.neg,
    np.power: operator.pow,
    np.sin: scalars.sin,
    np.cos: scalars.cos,
    np.sqrt: scalars.sqrt,
    np.arctan2: scalars.arctan2,
    np.less: scalars.less,
    np.greater: lambda x, y: scalars.less(y, x),
}
