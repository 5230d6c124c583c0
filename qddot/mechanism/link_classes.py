"""Classes of links whose code is the same but for numbers: equal joint types and sparsity patterns (0, ±1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from qddot.joints import Joint
from qddot.mechanism.model import Model
from qddot.spatial import Product, Transform
from qddot.spatial.rotation import IDENTITY, ZERO, AxisRotation, Rotation


class LinkClass(NamedTuple):
    """Links of one class: whether they are leaves, and whether each is the last of its parent's children."""

    links: list[int]
    is_leaf: bool
    is_last: bool


def classify_links(model: Model, rows: Sequence[int], class_key: Callable[[int], Any]) -> list[LinkClass]:
    """The classes of the links in `rows`, each with its links in order; links of one class have the same `class_key`."""
    last = {model.parent[i]: i for i in rows}  # a loop inward meets it first
    kinds: dict[Any, LinkClass] = {}
    for i in rows:
        shape = map_numbers(row_of(model, i), lambda x: x if x in (0.0, 1.0, -1.0) else None, _described)
        place = i not in last, last[model.parent[i]] == i
        kinds.setdefault((shape, place, class_key(i)), LinkClass([], *place)).links.append(i)
    return list(kinds.values())


def group_links(model: Model, *fields: str) -> list[tuple[list[int], tuple[Any, ...]]]:
    """Links that are alike in these fields, and their fields with arrays over those links in the place of numbers."""
    rows: dict[Any, list[int]] = {}
    for i, _ in model.outward():
        shape = map_numbers(row_of(model, i, fields), lambda x: x if x in (0.0, 1.0, -1.0) else None, _described)
        rows.setdefault(shape, []).append(i)
    out = []
    for links in rows.values():
        numbers: list[list[float]] = [[] for _ in links]
        for i, own in zip(links, numbers, strict=True):
            map_numbers(row_of(model, i, fields), own.append, lambda *_: None)
        out.append((links, map_numbers(row_of(model, links[0], fields), _Columns(numbers), rebuild)))
    return out


class _Columns:
    """In the place of the numbers of a row, one after another, those of all rows; 0, 1 and -1 stay what they are."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.columns = iter(np.array(rows).T)

    def __call__(self, x: float) -> Any:
        values = np.ascontiguousarray(next(self.columns))
        return x if x in (0.0, 1.0, -1.0) else values


_FORCES = ("armature", "damping", "friction", "stiffness", "spring_reference")
FIELDS = ("joint", "placement", "inertia", *_FORCES, "pivot_floor")


def row_of(model: Model, i: int, fields: Sequence[str] = FIELDS) -> tuple[Any, ...]:
    return tuple(table[i] if (table := getattr(model, name)) else () for name in fields)


def map_numbers(value: Any, number: Callable[[float], Any], other: Callable[[Any, Any], Any]) -> Any:
    """A row with its numbers replaced."""
    if isinstance(value, Joint):
        return other(value, {k: _map_parameter(value, x, number) for k, x in value.parameters().items()})
    if isinstance(value, Transform):
        return other(value, [_map_part(part, number) for part in value.parts])
    if isinstance(value, tuple):
        return other(value, [map_numbers(x, number, other) for x in value])
    return number(float(value))


def _map_parameter(joint: Joint, x: Any, number: Callable[[float], Any]) -> Any:
    """A joint's parameter. An axis along a coordinate axis, or one that a plane is made of, decides which code runs."""
    if isinstance(x, float):
        return number(x)
    if isinstance(x, tuple) and not joint.axis_selects_code and not {1.0, -1.0} & set(x):
        return tuple(number(k) for k in x)
    return x


def _map_part(T: Transform, number: Callable[[float], Any]) -> tuple[Any, Any, Any]:
    p = None if T.p is ZERO else tuple(number(x) for x in T.p)
    if T.R is IDENTITY:
        return None, None, p
    if isinstance(T.R, AxisRotation):
        return T.R.axis, (number(T.R.c), number(T.R.s)), p
    return None, tuple(tuple(number(x) for x in row) for row in T.R.rows), p


def _described(value: Any, parts: Any) -> Any:
    """A row's part as something that can be compared."""
    fields = tuple(sorted(parts.items(), key=lambda kv: kv[0])) if isinstance(parts, dict) else tuple(parts)
    return (type(value).__name__, fields)


def rebuild(value: Any, parts: Any) -> Any:
    if isinstance(value, Joint):
        return value.with_parameters(parts)
    if isinstance(value, Transform):
        return Product(*(_part(*part) for part in parts))
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def _part(axis: int | None, turn: Any, p: Any) -> Transform:
    R = IDENTITY if turn is None else Rotation(turn) if axis is None else AxisRotation(axis, *turn)
    return Transform(R, ZERO if p is None else p)
