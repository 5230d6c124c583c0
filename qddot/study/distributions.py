"""What is drawn: distributions by their quantile functions, which every way of sampling feeds with numbers in (0, 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.dynamics.input_checks import real_numbers
from qddot.errors import InputError, shown

Array = NDArray[Any]


class Distribution(Protocol):
    """What a space can draw from."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample; each entry is drawn on its own."""
        ...

    def quantile(self, u: Array) -> Array:
        """The values, (n, *shape), below which the parts u, (n, *shape), of the distribution lie."""
        ...

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that the values depend on, for the identity of a study."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Between two bounds, numbers or arrays."""

    lower: ArrayLike
    upper: ArrayLike

    def __post_init__(self) -> None:
        low, high = _pair(self, "lower", "upper")
        if np.any(low > high):
            raise InputError(f"Uniform: lower {shown(self.lower)} is above upper {shown(self.upper)}")

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(np.shape(self.lower), np.shape(self.upper))

    def quantile(self, u: Array) -> Array:
        low, high = np.asarray(self.lower, float), np.asarray(self.upper, float)
        return low + (high - low) * u

    @property
    def facts(self) -> dict[str, Any]:
        return _facts(self)


@dataclass(frozen=True)
class LogUniform:
    """Between two positive bounds, uniform in the logarithm."""

    lower: ArrayLike
    upper: ArrayLike

    def __post_init__(self) -> None:
        low, high = _pair(self, "lower", "upper")
        if np.any(low <= 0.0) or np.any(low > high):
            raise InputError(f"LogUniform takes 0 < lower <= upper, not {shown(self.lower)} and {shown(self.upper)}")

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(np.shape(self.lower), np.shape(self.upper))

    def quantile(self, u: Array) -> Array:
        low, high = np.log(np.asarray(self.lower, float)), np.log(np.asarray(self.upper, float))
        return np.exp(low + (high - low) * u)

    @property
    def facts(self) -> dict[str, Any]:
        return _facts(self)


@dataclass(frozen=True)
class Normal:
    """By mean and standard deviation, numbers or arrays."""

    mean: ArrayLike
    std: ArrayLike

    def __post_init__(self) -> None:
        _, std = _pair(self, "mean", "std")
        if np.any(std < 0.0):
            raise InputError(f"Normal: std is {shown(self.std)}; it must not be negative")

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(np.shape(self.mean), np.shape(self.std))

    def quantile(self, u: Array) -> Array:
        return np.asarray(self.mean, float) + np.asarray(self.std, float) * normal_quantile(u)

    @property
    def facts(self) -> dict[str, Any]:
        return _facts(self)


@dataclass(frozen=True)
class Choice:
    """One of some values, each as likely as the others."""

    values: Sequence[Any]

    def __post_init__(self) -> None:
        if not len(self.values):
            raise InputError("Choice: there is no value to choose from")
        real_numbers(self.values, "the values of Choice")

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def quantile(self, u: Array) -> Array:
        values = np.asarray(self.values, float)
        return values[np.minimum((u * len(values)).astype(int), len(values) - 1)]

    @property
    def facts(self) -> dict[str, Any]:
        return {"kind": "Choice", "values": np.asarray(self.values, float).tolist()}


@dataclass(frozen=True)
class OfScipy:
    """A frozen distribution of `scipy.stats`, or anything else that has a method `ppf`."""

    frozen: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.frozen.ppf(0.5))

    def quantile(self, u: Array) -> Array:
        return np.asarray(self.frozen.ppf(u), float)

    @property
    def facts(self) -> dict[str, Any]:
        places = np.linspace(0.05, 0.95, 19).reshape(-1, *(1,) * len(self.shape))
        probes = self.quantile(np.broadcast_to(places, (19, *self.shape)))
        return {"kind": getattr(getattr(self.frozen, "dist", self.frozen), "name", "ppf"), "quantiles": probes.tolist()}


def distribution(x: Any) -> Distribution | None:
    """What x draws from; None if it is no distribution."""
    if isinstance(x, Uniform | LogUniform | Normal | Choice):
        return x
    return OfScipy(x) if callable(getattr(x, "ppf", None)) else None


def spread(d: Distribution, x: Array) -> Array:
    """The standard deviation of each number; of LogUniform that of the logarithm, times the value x."""
    if isinstance(d, Uniform | LogUniform):
        low, high = np.asarray(d.lower, float), np.asarray(d.upper, float)
        width = high - low if isinstance(d, Uniform) else x * np.log(high / low)
        return width / np.sqrt(12.0)
    if isinstance(d, Normal):
        return np.asarray(d.std, float)
    return np.std(x, axis=0)


def normal_quantile(u: Array) -> Array:
    """Algorithm AS 241 of M. Wichura, Applied Statistics 37 (1988): relative error below 1e-15."""
    from_middle = u - 0.5
    inner = np.abs(from_middle) <= 0.425
    r = 0.180625 - np.where(inner, from_middle, 0.0) ** 2
    middle = from_middle * _ratio(_MIDDLE, r)
    tail = np.sqrt(-np.log(np.where(inner, 0.5, np.minimum(u, 1.0 - u))))
    outer = np.where(tail <= 5.0, _ratio(_NEAR, tail - 1.6), _ratio(_FAR, tail - 5.0))
    return np.where(inner, middle, np.copysign(outer, from_middle))


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], r: Array) -> Array:
    above, below = (np.polynomial.polynomial.polyval(r, c) for c in polynomials)
    return above / below


_MIDDLE = (
    (
        *(3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4),
        *(4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    ),
    (
        *(1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3),
        *(2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
    ),
)
_NEAR = (
    (
        *(1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0),
        *(1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    ),
    (
        *(1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1),
        *(1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
    ),
)
_FAR = (
    (
        *(6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1),
        *(2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    ),
    (
        *(1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2),
        *(7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
    ),
)


def _pair(x: Any, *names: str) -> tuple[Array, Array]:
    a, b = (real_numbers(getattr(x, n), f"{n} of {type(x).__name__}") for n in names)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise InputError(f"{type(x).__name__}: {' and '.join(names)} must be finite, not {shown(x)}")
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise InputError(f"{type(x).__name__}: {names[0]} has shape {a.shape} and {names[1]} {b.shape}") from None
    return a, b


def _facts(x: Any) -> dict[str, Any]:
    return {"kind": type(x).__name__, **{n: np.asarray(v, float).tolist() for n, v in vars(x).items()}}
