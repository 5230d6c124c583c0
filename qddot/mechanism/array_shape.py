"""What the axes of a function's arrays run over, so that shapes follow from a model and each link's part can be found."""

from __future__ import annotations

from math import prod

from qddot.mechanism.model import Model

# "q": coordinates; "v": degrees of freedom; "links": moving links; "forces": six numbers a link; "inertias": ten
_NAMES = ("q", "v", "links", "forces", "inertias")


class Axes(tuple[str | int, ...]):
    """Names of what belongs to links or their joints, and plain lengths. Called with a model, it is a shape."""

    __slots__ = ()

    def __new__(cls, *axes: str | int) -> Axes:
        assert all(isinstance(x, int) or x in _NAMES for x in axes)
        return super().__new__(cls, axes)

    def __call__(self, model: Model) -> tuple[int, ...]:
        n = model.n_links
        lengths = {"q": model.nq, "v": model.nv, "links": n, "forces": 6 * n, "inertias": 10 * n}
        return tuple(x if isinstance(x, int) else lengths[x] for x in self)

    @property
    def of_links(self) -> list[int]:
        """Which axes run over what links or joints have."""
        return [k for k, x in enumerate(self) if not isinstance(x, int)]

    def pitch(self, model: Model, axis: int) -> int:
        """How far apart, in a row-major array, two neighbours along an axis are."""
        return prod(self(model)[axis + 1 :])


def part(model: Model, axis: str, i: int) -> range:
    """What belongs to link i along an axis."""
    slot = model.slots[i]
    return {
        "q": range(slot.q.start, slot.q.stop),
        "v": range(slot.v.start, slot.v.stop),
        "links": range(i - 1, i),
        "forces": range(6 * i - 6, 6 * i),
        "inertias": range(10 * i - 10, 10 * i),
    }[axis]
