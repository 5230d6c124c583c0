"""What the results of a study say: quantiles, outliers, and which inputs matter."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.dynamics.input_checks import count, real_numbers
from qddot.errors import InputError
from qddot.study.space import Space

Array = NDArray[Any]


class Sensitivity(NamedTuple):
    """Sobol's indices: how much of a measure's variance each drawn number makes alone, and with all others.

    `first` sums to one at most; `total` minus `first` is what comes of interactions. `error` is the standard error of
    `first`, from halves of the sample drawn again and again.
    """

    names: list[str]
    first: Array
    total: Array
    error: Array


def quantiles(x: Array, parts: ArrayLike) -> Array:
    """Of a column: (parts, ...)."""
    p = real_numbers(parts, "the parts")
    if np.any(~(p >= 0.0) | ~(p <= 1.0)):
        raise InputError(f"quantiles are at parts from 0 to 1, not {np.asarray(parts).tolist()}")
    fine = x[np.isfinite(x).reshape(len(x), -1).all(axis=1)]
    if not len(fine):
        raise InputError("there are no results yet")
    return np.quantile(fine, p, axis=0)


def outliers(x: Array, number: int) -> Array:
    """Rows by their distance from the median, over the spread between the quartiles."""
    flat = x.reshape(len(x), -1)
    low, middle, high = quantiles(flat, (0.25, 0.5, 0.75))
    spread = np.where(high > low, high - low, 1.0)
    distance = np.max(np.abs(flat - middle) / spread, axis=1)
    return np.argsort(-np.where(np.isfinite(distance), distance, -1.0), kind="stable")[: count(number, "number")]


def sensitivity(space: Space, x: Array, name: str) -> Sensitivity:
    """First-order indices by A. Saltelli et al., Comput. Phys. Commun. 181 (2010), total ones by M. Jansen (1999)."""
    if space.design != "saltelli" or not space.drawn:
        raise InputError("indices of sensitivity need a study with sampling='saltelli'")
    if x.ndim != 1:
        raise InputError(f"measure {name!r} has {x.shape[1:]} numbers a sample; indices are of measures of one number")
    axes = space.axes
    rows = np.asarray(x).reshape(-1, len(axes) + 2)
    rows = rows[np.isfinite(rows).all(axis=1)]
    if len(rows) < 2:
        raise InputError(f"measure {name!r} has too few results")
    chance = np.random.default_rng(0)
    again = [_indices(rows[chance.integers(len(rows), size=len(rows))])[0] for _ in range(100)]
    return Sensitivity(axes, *_indices(rows), np.std(again, axis=0))


def _indices(rows: Array) -> tuple[Array, Array]:
    a, b, mixed = rows[:, :1], rows[:, 1:2], rows[:, 2:]
    variance = np.var(np.concatenate([a, b]))
    if not variance > 0.0:
        return np.zeros(mixed.shape[1]), np.zeros(mixed.shape[1])
    return np.mean(b * (mixed - a), axis=0) / variance, 0.5 * np.mean((a - mixed) ** 2, axis=0) / variance
