"""What a derivative is taken with respect to, as a user writes it: `by=("q", "joint3")`, `by=("gravity", (0, 0, 1))`.

| by                              | the scalar p                                                                    |
|---------------------------------|---------------------------------------------------------------------------------|
| ("q", k), "v", "a", "tau"       | one degree of freedom: a joint with one by name, (joint, k), or an index into v |
| ("inertia", link, ten numbers)  | how much of this inertia (docs/parameters.md) the link has besides its own      |
| ("placement", link, twist)      | how far the frame of the link's joint is moved along the twist, in its own frame |
| ("gravity", direction)          | how much of this acceleration there is besides                                  |
| ("f_ext", link, k)              | component k of the external force on the link, in its frame: moment, then force |
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qddot.errors import InputError, unknown
from qddot.mechanism.model import Model

By = tuple[Any, ...]

_FREEDOM = ("q", "v", "a", "tau")
_NUMBERS = {"inertia": 10, "placement": 6, "gravity": 3}


def resolve(model: Model, by: Any) -> By:
    """The same with places for names and plain numbers, so that it can be compared and kept."""
    parts = tuple(by) if isinstance(by, tuple | list) else (by,)
    kinds = (*_FREEDOM, *_NUMBERS, "f_ext")
    if not parts or parts[0] not in kinds:
        raise unknown("kind of scalar", str(parts[0] if parts else by), kinds, "by=")
    kind, *rest = parts
    wanted = 1 if kind in (*_FREEDOM, "gravity") else 2
    if len(rest) != wanted:
        rest_of = {"gravity": "a direction", "f_ext": "a link and one of its force's six components"}
        what = rest_of.get(kind, "a degree of freedom" if kind in _FREEDOM else "a link and numbers")
        raise InputError(f"by={by!r} must be {kind!r} and {what}")
    if kind in _FREEDOM:
        chosen = model.dof_indices([rest[0]])
        if len(chosen) != 1:
            raise InputError(f"by={by!r} names {len(chosen)} degrees of freedom; take one of them, as ({rest[0]!r}, k)")
        return kind, chosen[0]
    if kind == "f_ext":
        return kind, _link(model, rest[0]), _component(by, rest[1])
    numbers = np.asarray(rest[-1], dtype=float).reshape(-1)
    if numbers.size != _NUMBERS[kind] or not np.isfinite(numbers).all():
        raise InputError(f"by={by!r} needs {_NUMBERS[kind]} finite numbers")
    if kind == "gravity":
        return kind, tuple(numbers.tolist())
    return kind, _link(model, rest[0]), tuple(numbers.tolist())


def _component(by: Any, k: Any) -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 0 <= k < 6:
        raise InputError(f"by={by!r} has no component {k!r}: moment x, y, z are 0, 1, 2, force x, y, z are 3, 4, 5")
    return int(k)


def _link(model: Model, name: Any) -> int:
    if isinstance(name, int | np.integer) and not isinstance(name, bool) and 0 < name <= model.n_links:
        return int(name)
    if name not in model.link_names[1:]:
        raise unknown("moving link", str(name), model.link_names[1:], f"robot {model.name!r}")
    return model.link_names.index(name)
