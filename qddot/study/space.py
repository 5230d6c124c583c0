"""What a study varies: rows that are given, values that are crossed, and what is drawn, each sample by its number alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.dynamics.input_checks import count, real_numbers
from qddot.errors import InputError, shown, unknown
from qddot.study import philox
from qddot.study.distributions import Distribution, distribution
from qddot.study.sequences import DESIGNS, Axes

Array = NDArray[Any]
Sampler = Callable[[np.random.Generator], Any]


class Grid:
    """Values that are crossed with everything else: numbers, or rows of an array."""

    def __init__(self, values: Any) -> None:
        self.values = real_numbers(values, "Grid")
        if not self.values.ndim or not len(self.values):
            raise InputError("Grid: give at least one value")

    def __repr__(self) -> str:
        return f"Grid({shown(self.values.tolist())})"


@dataclass(frozen=True)
class Space:
    """`len(rows)` given rows × the grid × `draws` drawn ones; the sample's number counts the draws fastest.

    `rows` are arrays with a row for each; `drawn` are distributions, which a design feeds; `samplers` are functions of a
    random generator.
    """

    rows: Mapping[str, Array]
    grid: Mapping[str, Array]
    drawn: Mapping[str, Distribution]
    samplers: Mapping[str, Sampler]
    draws: int
    design: str
    seed: int

    def __len__(self) -> int:
        return self._given * self._crossed * self.draws

    @property
    def _given(self) -> int:
        return len(next(iter(self.rows.values()))) if self.rows else 1

    @property
    def _crossed(self) -> int:
        return prod(len(x) for x in self.grid.values())

    @property
    def names(self) -> tuple[str, ...]:
        """What varies."""
        return (*self.rows, *self.grid, *self.drawn, *self.samplers)

    @property
    def axes(self) -> list[str]:
        """The drawn numbers of a sample, by name: those of an array with their places."""
        return [axis_name(name, place) for name, d in self.drawn.items() for place in np.ndindex(d.shape)]

    def values(self, first: int, number: int, given: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """The values of the samples from `first` on, an array with a row a sample for each name, in float64.

        `given` are those of the samplers, where somebody else has called them.
        """
        if first < 0 or number < 0 or first + number > len(self):
            raise InputError(f"samples {first} to {first + number} are not among the {len(self):,} of the study")
        samples = np.arange(first, first + number)
        outer, draw = np.divmod(samples, self.draws)
        row, crossed = np.divmod(outer, self._crossed)
        out = {name: x[row] for name, x in self.rows.items()}
        for name, x in reversed(list(self.grid.items())):  # the last one counts fastest
            crossed, place = np.divmod(crossed, len(x))
            out[name] = x[place]
        out |= self._draw(samples, draw)
        out |= self.sampled(first, number) if given is None else given
        return {name: out[name] for name in self.names}

    def values_of(self, samples: Sequence[int]) -> dict[str, Array]:
        """Those of any samples, in this order."""
        rows = np.asarray(samples, dtype=np.int64).reshape(-1)
        begins = np.flatnonzero(np.r_[True, np.diff(rows) != 1][: len(rows)])
        runs = [self.values(int(run[0]), len(run)) for run in np.split(rows, begins[1:])] if len(rows) else []
        runs = runs or [self.values(0, 0)]
        return {name: np.concatenate([run[name] for run in runs]) for name in self.names}

    def sampled(self, first: int, number: int) -> dict[str, Array]:
        """The values that the samplers give."""
        samples = np.arange(first, first + number)
        return {name: _called(name, sampler, self.seed, samples) for name, sampler in self.samplers.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Samplers stay with the driver: a function may be one that cannot be pickled."""
        return {**self.__dict__, "samplers": dict.fromkeys(self.samplers)}

    def _draw(self, samples: Array, draw: Array) -> dict[str, Array]:
        if not self.drawn:
            return {}
        # random points differ from row to row of the rest; a design is the same at each, so that these can be compared
        numbers, points = (samples, len(self)) if self.design == "random" else (draw, self.draws)
        u = DESIGNS[self.design](Axes(self.seed, points, len(self.axes)), numbers)
        out, begin = {}, 0
        for name, d in self.drawn.items():
            size = prod(d.shape)
            out[name] = d.quantile(np.ascontiguousarray(u[:, begin : begin + size]).reshape(-1, *d.shape))
            begin += size
        return out

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that the values depend on; samplers by the values of their first samples, for code has no digest."""
        first = np.arange(min(3, len(self)))
        return {
            "samples": len(self),
            "rows": {name: _digest(x) for name, x in self.rows.items()},
            "grid": {name: _digest(x) for name, x in self.grid.items()},
            "drawn": {name: d.facts for name, d in self.drawn.items()},
            "samplers": {name: _digest(_called(name, f, self.seed, first)) for name, f in self.samplers.items()},
            "sampling": self.design if self.drawn else None,
            "seed": self.seed if self.drawn or self.samplers else None,
        }


def axis_name(name: str, place: Sequence[int]) -> str:
    """One number of an array, such as "q0[2]"."""
    return f"{name}[{', '.join(map(str, place))}]" if place else name


def made(given: Any, samples: int | None, design: str, seed: int) -> Space:
    """The space that a user has described."""
    if not isinstance(given, Mapping):
        raise InputError(f"the space is {shown(given)}; give names and values, such as {{'q0': array}}")
    if design not in DESIGNS:
        raise unknown("sampling", design, DESIGNS, "a study")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise InputError(f"seed is {shown(seed)}; give a whole number from 0 to 2^64 - 1")
    rows: dict[str, Array] = {}
    grid: dict[str, Array] = {}
    drawn: dict[str, Distribution] = {}
    samplers: dict[str, Sampler] = {}
    for name, x in given.items():
        if not isinstance(name, str):
            raise InputError(f"the space has the name {shown(name)}; names are texts")
        if isinstance(x, Grid):
            grid[name] = x.values
        elif (d := distribution(x)) is not None:
            drawn[name] = d
        elif callable(x):
            samplers[name] = x
        else:
            rows[name] = _rows(name, x)
    lengths = {name: len(x) for name, x in rows.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise InputError(f"arrays of a space have a row a sample, and as many rows: {told}; Grid(…) crosses values")
    return Space(rows, grid, drawn, samplers, _draws(samples, design, rows or grid, drawn, samplers), design, int(seed))


def _draws(
    samples: Any, design: str, given: Any, drawn: Mapping[str, Distribution], samplers: Mapping[str, Sampler]
) -> int:
    """How many draws there are for each given row."""
    if not drawn and not samplers:
        if samples is not None:
            raise InputError(f"samples={shown(samples)} is for spaces that are drawn, and all values of this one are given")
        return 1
    if samples is None:
        if not given:
            raise InputError("say how many samples are drawn: samples=…")
        return 1
    draws = count(samples, "samples")
    if design == "saltelli":
        axes = sum(prod(d.shape) for d in drawn.values())
        if samplers or given or not drawn or draws % (axes + 2):
            raise InputError(
                f"sampling='saltelli' is for spaces of distributions alone, and for a multiple of {axes + 2} samples "
                f"({axes} drawn numbers and 2)"
            )
    return draws


def _rows(name: str, x: Any) -> Array:
    array = real_numbers(x, f"{name!r} of the space")
    if not array.ndim or not len(array):
        raise InputError(f"{name!r} of the space is {shown(x)}; give an array with a row a sample, Grid or distribution")
    return np.ascontiguousarray(array)


def _called(name: str, sampler: Sampler, seed: int, samples: Array) -> Array:
    """One after the other: the generator of each sample is its own."""
    drawn = [np.asarray(sampler(philox.generator(seed, name, int(k))), float) for k in samples]
    if len({x.shape for x in drawn}) > 1:
        raise InputError(f"the sampler of {name!r} gives arrays of several shapes: {sorted({x.shape for x in drawn})}")
    return np.stack(drawn) if drawn else np.zeros((0,))


def _digest(x: Array) -> dict[str, Any]:
    return {"shape": list(x.shape), "sha256": hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()}


def rows_of(x: Mapping[str, Array], which: Sequence[int] | Array | slice) -> dict[str, Array]:
    """Some of the samples of some values."""
    return {name: values[which] for name, values in x.items()}
