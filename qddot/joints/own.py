"""A user's own joint, and how its function is recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

from numpy.typing import NDArray

from qddot.errors import NotTraceableError, QddotError
from qddot.joints.base import Defect, VaryingAxes
from qddot.joints.loop_rows import LoopRows
from qddot.scalars import Scalar
from qddot.spatial import Force, Motion, Product, Slide, Transform, log
from qddot.spatial.dual import Dual, slope_of, value_of
from qddot.spatial.joint_blocks import Forces, Motions, Vector
from qddot.spatial.rotation import EYE, IDENTITY, ZERO, AxisRotation, Rotation, Vec, transpose
from qddot.spatial.tape import Tape, record

_NEWTON_STEPS = 12  # for the coordinates in a loop: quadratic from anywhere near


@dataclass(frozen=True, repr=False)
class Own(VaryingAxes):
    """A user's own joint: `function(q)` gives the child's `Transform`, or its rotation (3×3) and position (3).

    S and Ṡ follow by differentiating the function exactly, so it must be written with arithmetic and with the functions
    of `qddot.scalars` or NumPy. It is recorded when the joint is first used (at the latest when a robot is built with it);
    what it depends on is read then, and changes afterwards are not seen. To be pickled it must be importable, not a lambda.
    """

    function: Callable[[Sequence[Scalar]], Any]
    freedoms: int
    name: str = ""
    kind = "own"
    can_fold = True
    coordinate_text, velocity_text = "the arguments of its function", "rates"

    @property
    def nq(self) -> int:  # type: ignore[override]
        return self.freedoms

    @property
    def nv(self) -> int:  # type: ignore[override]
        return self.freedoms

    @cached_property
    def recorded(self) -> RecordedTransform:
        """The operations of the function: what is computed, and what the joint is known by."""
        name = self.name or getattr(self.function, "__name__", type(self.function).__name__)
        what, forms = f"the function {name!r} of a joint", []

        def numbers(q: NDArray[Any]) -> list[Scalar]:
            form, out = _taken_apart(_as_transform(self.function(q.tolist()), what))
            forms.append(form)
            return out

        tape = record(what, numbers, (self.freedoms,))
        if len(set(forms)) > 1:
            raise NotTraceableError(f"{what} does not do the same when it is run again: its Transform has another form")
        return RecordedTransform(tape, forms[0])

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return self.recorded(q)

    def S(self, q: Sequence[Scalar]) -> Motions:
        columns = []
        for k in range(self.nv):
            T = self.transform([Dual(x, 1.0 if j == k else 0.0) for j, x in enumerate(q)])
            R, dR = value_of(T.R.rows), slope_of(T.R.rows)
            turned = [Rotation(transpose(R)) @ c for c in transpose(dR)]  # the columns of Rᵀ dR = [w]
            columns.append(Motion((turned[1][2], turned[2][0], turned[0][1]), Rotation(transpose(R)) @ slope_of(T.p)))
        return Motions(columns)

    @property
    def loop_row_count(self) -> int:
        return 6

    def loop_rows(self, T: Transform) -> LoopRows:
        """The joint's coordinates are found by Newton's method; the rows are the projector 1 - S S⁺, so six of them."""
        q = Vector(self.neutral())
        for _ in range(_NEWTON_STEPS):
            q = q + _nearest_velocity(self.S(q), log(self.transform(q).inverse() @ T))
        S = self.S(q)
        left = log(self.transform(q).inverse() @ T)
        off = left - S @ _nearest_velocity(S, left)
        units = [Motion(e, ZERO) for e in EYE] + [Motion(ZERO, e) for e in EYE]
        columns = [x - S @ _nearest_velocity(S, x) for x in units]  # symmetric: its columns are its rows

        def drift(V: Motion) -> Vector:
            bias = self.bias(q, _nearest_velocity(S, V))
            return -1.0 * Vector((bias - S @ _nearest_velocity(S, bias)).components)

        return LoopRows(Vector(off.components), Forces(Force(c.w, c.v) for c in columns), S, drift)

    def scaled(self, s: float) -> None:
        return None

    def defect(self) -> Defect | None:
        """A user's own joint is known by the operations of its function, so they must be found."""
        if isinstance(self.freedoms, bool) or self.freedoms not in range(1, 7):
            return Defect(f"it has {self.freedoms!r} degrees of freedom", "give a whole number from 1 to 6")
        try:
            _ = self.recorded
        except Exception as error:  # a user's function may raise anything
            said = f"cannot be used: {error}" if isinstance(error, QddotError) else f"raises {error!r}"
            fix = "it takes a list of as many scalars as the joint has degrees of freedom, and gives the child's Transform"
            return Defect(f"its function {said}", fix, error)
        return None

    def parameters(self) -> dict[str, Any]:
        """It has no numbers of its own; functions are alike if their operations are."""
        return {"function": self.recorded.digest}

    def with_parameters(self, values: Mapping[str, Any]) -> Self:
        return self

    def describe(self) -> dict[str, Any]:
        """Its name, and the operations of its function."""
        return {"kind": self.kind, "function": self.name, "freedoms": self.freedoms, "code": self.recorded.digest}

    @classmethod
    def sample(cls, rng: Any) -> Self:
        raise NotImplementedError("a user's own joint has a user's function")


def _nearest_velocity(S: Motions, V: Motion) -> Vector:
    """S⁺ V: the joint velocity whose twist comes nearest."""
    duals = Forces(Force(s.w, s.v) for s in S)
    return S.T.on(duals).inverse() @ (S.T @ Force(V.w, V.v))


Form = tuple[bool, tuple[tuple[bool, int | None, bool], ...]]  # a product? and of each part: a Slide? its turn, any shift?
_NO_TURN, _DENSE = -1, None


class RecordedTransform(NamedTuple):
    """A function q -> T: its tape gives the numbers of T, and its form where they stand."""

    tape: Tape
    form: Form

    def __call__(self, q: Sequence[Scalar]) -> Transform:
        return _put_together(self.form, self.tape(q))

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr((self.tape.digest, self.form)).encode()).hexdigest()


def _as_transform(T: Any, what: str) -> Transform:
    if isinstance(T, Transform):
        return T
    try:
        rows, p = T
        (a, b, c), (d, e, f), (g, h, i) = rows
        x, y, z = p
    except (TypeError, ValueError):
        raise NotTraceableError(
            f"{what} gives {T!r}; it must give a Transform, or a rotation (3×3) and a position (3)"
        ) from None
    return Transform(Rotation(((a, b, c), (d, e, f), (g, h, i))), (x, y, z))


def _taken_apart(T: Transform) -> tuple[Form, list[Scalar]]:
    """Where the numbers of a transform stand, and the numbers. Zeros and ones that it knows of are no numbers."""
    parts, numbers = [], []
    for part in T.parts:
        turn = _NO_TURN if part.R is IDENTITY else part.R.axis if isinstance(part.R, AxisRotation) else _DENSE
        parts.append((isinstance(part, Slide), turn, part.p is not ZERO))
        if isinstance(part.R, AxisRotation):
            numbers += [part.R.c, part.R.s]
        elif turn is _DENSE:
            numbers += [x for row in part.R.rows for x in row]
        numbers += part.p if part.p is not ZERO else ()
    return (isinstance(T, Product), tuple(parts)), numbers


def _put_together(form: Form, numbers: Sequence[Scalar]) -> Transform:
    left, parts = iter(numbers), []
    for is_slide, turn, is_shifted in form[1]:
        R = IDENTITY
        if turn is _DENSE:
            R = Rotation((_three(left), _three(left), _three(left)))
        elif turn != _NO_TURN:
            R = AxisRotation(turn, next(left), next(left))
        p = _three(left) if is_shifted else ZERO
        parts.append(Slide(p) if is_slide else Transform(R, p))
    return Product(*parts) if form[0] else parts[0]


def _three(numbers: Iterator[Scalar]) -> Vec:
    return (next(numbers), next(numbers), next(numbers))
