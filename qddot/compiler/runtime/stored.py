"""Compiled code in the cache, with facts about it that only its compilation knew: a line of JSON, then the object code.

The cache says that an entry is ours and whole. What is in it is checked all the same, fact by fact, and the object code
when it is loaded: an entry that does not hold what it should is removed, and the caller compiles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from qddot.compiler.runtime.cache import default_cache
from qddot.compiler.targets import registry
from qddot.compiler.targets.target import Target
from qddot.errors import ObjectError

Fields = Mapping[str, Callable[[Any], Any]]  # a fact's name, and what makes it of its JSON or raises


class Stored(NamedTuple):
    """Facts, object code, and the code in memory."""

    facts: dict[str, Any]
    data: bytes
    code: Any


def find(key: str, fields: Fields, target: Target | None = None) -> Stored | None:
    """What is stored under this key; None if nothing is, or something that cannot be loaded."""
    value = default_cache().get(key)
    if value is None:
        return None
    try:
        return _loaded(value, fields, target)
    except ObjectError as error:
        default_cache().reject(key, f"cannot be loaded ({error})")
        return None


def store(key: str, facts: dict[str, Any], data: bytes, fields: Fields, target: Target | None = None) -> Stored:
    """Loads new code, and stores it for the next process."""
    value = json.dumps(facts).encode() + b"\n" + data
    stored = _loaded(value, fields, target)
    default_cache().put(key, value)
    return stored


def _loaded(value: bytes, fields: Fields, target: Target | None) -> Stored:
    head, _, data = value.partition(b"\n")
    try:
        facts = json.loads(head)
        if not isinstance(facts, dict) or set(facts) != set(fields):
            raise ValueError("facts other than expected")
        facts = {name: read(facts[name]) for name, read in fields.items()}
    except (ValueError, TypeError, RecursionError) as error:
        raise ObjectError(f"its header is not as written: {error}") from None
    return Stored(facts, data, registry.load(data, target))


def text(x: Any) -> str:
    """A fact that is text."""
    if not isinstance(x, str):
        raise TypeError(f"{x!r} is not text")
    return x


def flag(x: Any) -> bool:
    """A fact that is true or false."""
    if not isinstance(x, bool):
        raise TypeError(f"{x!r} is neither true nor false")
    return x


def count(x: Any) -> int:
    """A fact that is a whole number, zero or more."""
    if not isinstance(x, int) or isinstance(x, bool) or x < 0:
        raise ValueError(f"{x!r} is not a count")
    return x


def counts(x: Any) -> dict[str, int]:
    """A fact that is a count for each of some names."""
    if not isinstance(x, dict):
        raise TypeError(f"{x!r} is not a table")
    return {name: count(n) for name, n in x.items()}
