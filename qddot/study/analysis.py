"""What the results of a study say: quantiles, outliers, and which inputs matter."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.dynamics.input_checks import count, real_numbers
from qddot.errors import InputError
from qddot.study.distributions import Choice, LogUniform, Normal, Uniform, spread
from qddot.study.space import Space, axis_name

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


class GradientSensitivity(NamedTuple):
    """Derivatives of a measure with respect to each drawn number, times that number's standard deviation.

    `mean` says in which direction the measure goes on average, `rms` how strongly it answers anywhere. `bound` is an upper
    bound of Sobol's total index (I. Sobol and S. Kucherenko, Math. Comput. Simul. 79 (2009)), of uniform and normal
    numbers; NaN of others.
    """

    names: list[str]
    mean: Array
    rms: Array
    bound: Array


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


def gradient_sensitivity(space: Space, values: dict[str, Array], value: Array, by: dict[str, Array]) -> GradientSensitivity:
    """Of the drawn numbers that have a derivative."""
    names: list[str] = []
    slopes, factors = list[Array](), list[float]()
    for name, d in space.drawn.items():
        if name not in by or isinstance(d, Choice):
            continue
        scaled = by[name] * spread(d, values[name])
        for place in np.ndindex(d.shape):
            names.append(axis_name(name, place))
            slopes.append(scaled[(slice(None), *place)])
            factors.append(_POINCARE.get(type(d), np.nan))
    if not names:
        raise InputError("nothing that this study draws has a derivative; name distributions of states or parameters")
    table = np.stack(slopes, axis=-1)
    fine = np.isfinite(table).all(axis=1) & np.isfinite(value)
    if np.count_nonzero(fine) < 2:
        raise InputError("there are too few samples with a derivative")
    squares, variance = np.mean(table[fine] ** 2, axis=0), np.var(value[fine])
    bound = np.array(factors) * squares / variance if variance > 0.0 else np.zeros(len(names))
    return GradientSensitivity(names, np.mean(table[fine], axis=0), np.sqrt(squares), bound)


# Var f <= C E[(f' times the standard deviation)²]: 12/π² for uniform numbers (Wirtinger), 1 for normal ones
_POINCARE: dict[type, float] = {Uniform: 12.0 / np.pi**2, LogUniform: 12.0 / np.pi**2, Normal: 1.0}
