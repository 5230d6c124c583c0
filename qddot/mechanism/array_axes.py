"""What the axes of arrays run over: lengths and each link's part, the places of joints, names and units of columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

from qddot.errors import InputError
from qddot.joints import Joint
from qddot.mechanism.model import Model

# "q": coordinates; "v": degrees of freedom; "links": moving links; "forces": six numbers a link; "inertias": ten
_NAMES = ("q", "v", "links", "forces", "inertias")
_UNITS = {  # of angles, of lengths
    "v": ("rad/s", "m/s"),
    "a": ("rad/s²", "m/s²"),
    "tau": ("N m", "N"),
}
QUANTITIES = {"q": "position", "v": "velocity", "a": "acceleration", "tau": "torque"}


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


class JointIndex(Mapping[str, int | slice]):
    """Where a joint's coordinates stand in q, or its degrees of freedom in v, by its name."""

    def __init__(self, model: Model, which: str) -> None:
        self._model, self._which = model, which

    def __getitem__(self, name: str) -> int | slice:
        i = self._model.joint_index(name)
        mimic = self._model.mimic[i]
        if mimic is not None:
            master = self._model.joint_names[mimic.link]
            raise InputError(
                f"joint {name!r} has no coordinate of its own: it follows {master!r} by "
                f"q = {mimic.factor:g} q + {mimic.offset:g}; ask for {master!r}"
            )
        where: slice = getattr(self._model.slots[i], self._which)
        return where.start if where.stop - where.start == 1 else where

    def __iter__(self) -> Iterator[str]:
        return (n for i, n in enumerate(self._model.joint_names) if i and self._model.mimic[i] is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Column(NamedTuple):
    """One number a time: its name, such as "elbow" or "base.qx", and its unit, "" where it has none."""

    name: str
    unit: str


def columns(model: Model, quantity: str) -> tuple[Column, ...]:
    """The columns of q, v, a or tau, in their order."""
    found: list[Column] = []
    for i, _ in model.outward():
        if model.mimic[i] is None:
            found += _of_joint(model.joint_names[i], model.joint[i], quantity)
    return tuple(found)


def _of_joint(name: str, joint: Joint, quantity: str) -> list[Column]:
    suffixes = joint.coordinate_names if quantity == "q" else joint.velocity_names
    names = [name] if len(suffixes) == 1 else [f"{name}.{suffix}" for suffix in suffixes]
    return [Column(n, unit) for n, unit in zip(names, _units(joint, quantity), strict=True)]


def _units(joint: Joint, quantity: str) -> tuple[str, ...]:
    if quantity == "q":
        return joint.coordinate_units
    angle, length = _UNITS[quantity]
    return tuple(angle if is_angle else length for is_angle in joint.is_angle)
