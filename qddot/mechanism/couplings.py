"""Joints that are coupled by an equation of numbers alone: φ(q) = Σ k q - p(Σ l q - x₀), p a polynomial.

A constraint of one row, such as MJCF's <equality> has between joints and between fixed tendons. Where two joints are
coupled linearly one follows the other exactly, which `Builder.joint(…, mimic=…)` says without a constraint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from qddot.errors import ModelError, message, near
from qddot.scalars import total

Terms = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Coupling:
    """`left` and `right` are (place in q, factor); `polynomial` begins with the constant. A function of q."""

    left: Terms
    right: Terms
    reference: float
    polynomial: tuple[float, ...]

    def __call__(self, q: Any) -> list[Any]:
        x, value = _sum(self.right, q) - self.reference, 0.0
        for coefficient in reversed(self.polynomial):
            value = value * x + coefficient
        return [_sum(self.left, q) - value]

    def describe(self) -> dict[str, Any]:
        """As plain lists and numbers."""
        terms = {side: [list(term) for term in getattr(self, side)] for side in ("left", "right")}
        return {**terms, "reference": self.reference, "polynomial": list(self.polynomial)}


FIELDS = tuple(f.name for f in dataclasses.fields(Coupling))


class Place(NamedTuple):
    """A joint's own coordinate: factor times the one that stands `at` in q, and an offset."""

    at: int
    factor: float
    offset: float


class Declared(NamedTuple):
    """A coupling as it is declared, by the names of joints."""

    name: str
    joints: Mapping[str, float]
    of: Mapping[str, float]
    reference: float
    polynomial: tuple[float, ...]
    where: str

    def coupling(self, places: Mapping[str, Place]) -> Coupling:
        """The same in terms of the coordinates that there are; joints that follow others have none of their own."""
        element = f"coupling {self.name!r}"
        if not self.joints or not self.polynomial:
            raise ModelError(message(self.where, element, "it has no joints or no polynomial", "give at least one number"))
        for joint in (*self.joints, *self.of):
            if joint not in places:
                problem = f"{joint!r} is no joint of one degree of freedom{near(joint, places)}"
                raise ModelError(message(self.where, element, problem, "name joints of one degree of freedom"))
        (left, constant), (right, shift) = _combined(self.joints, places), _combined(self.of, places)
        return Coupling(left, right, self.reference - shift, (self.polynomial[0] - constant, *self.polynomial[1:]))


def _combined(terms: Mapping[str, float], places: Mapping[str, Place]) -> tuple[Terms, float]:
    factors: dict[int, float] = {}
    for joint, k in terms.items():
        place = places[joint]
        factors[place.at] = factors.get(place.at, 0.0) + k * place.factor
    return tuple(factors.items()), total(k * places[joint].offset for joint, k in terms.items())


def _sum(terms: Terms, q: Any) -> Any:
    return total(k * q[i] for i, k in terms)
