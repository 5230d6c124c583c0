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
from qddot.scalars import Scalar
from qddot.spatial.traced import Entry, Recorder
from qddot.spatial.traced_array import arrays_hold_traced_values


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
    One that fails on an array of floats is given arrays that can hold traced values instead, and run again.
    """
    try:
        first, again = _twice(function, sizes)
    except NotTraceableError:
        raise
    except (TypeError, AttributeError):
        try:
            with arrays_hold_traced_values():
                first, again = _twice(function, sizes)
        except NotTraceableError:
            raise
        except (TypeError, AttributeError) as error:
            raise NotTraceableError(
                f"{what} cannot be traced: {error}. It is run on values that are not known yet: write it with arithmetic, "
                f"NumPy and the functions of qddot.scalars (docs/simulation.md has a list), not those of math"
            ) from error
    if first.digest != again.digest:
        raise NotTraceableError(
            f"{what} does not do the same when it is run again{_difference(first, again)}: it depends on something that "
            f"changes, such as random numbers, a counter or the time. Draw such numbers once, before it is defined"
        )
    return first


def _twice(function: Callable[..., Any], sizes: Sequence[int]) -> tuple[Tape, Tape]:
    return _recorded(function, sizes), _recorded(function, sizes)


def _recorded(function: Callable[..., Any], sizes: Sequence[int]) -> Tape:
    recorder = Recorder(sum(sizes))
    ends = np.cumsum([0, *sizes])
    vectors = [recorder.values(range(a, b)) for a, b in pairwise(ends)]
    outputs = tuple(recorder.number_of(x) for x in function(*vectors))
    return Tape(tuple(sizes), tuple(recorder.entries), outputs)


def _exact(entry: Entry) -> Entry:
    return ("const", entry[1].hex()) if entry[0] == "const" else entry


def _difference(first: Tape, again: Tape) -> str:
    """The numbers that first differ, where that is all that differs."""
    pairs = zip(first.entries, again.entries, strict=False)
    a, b = next(((a, b) for a, b in pairs if _exact(a) != _exact(b)), (("",), ("",)))
    return f" (a number in it was {a[1]!r} and then {b[1]!r})" if a[0] == b[0] == "const" else ""


_OPERATIONS: dict[str, Callable[..., Scalar]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": scalars.divide,
    "neg": operator.neg,
    "pow": scalars.power,
    "sin": scalars.sin,
    "cos": scalars.cos,
    "sqrt": scalars.sqrt,
    "exp": scalars.exp,
    "log": scalars.log,
    "tanh": scalars.tanh,
    "arctan": scalars.arctan,
    "arctan2": scalars.arctan2,
    "less": scalars.less,
    "less_equal": scalars.less_equal,
    "where": scalars.where,
}
