"""The results of a study: columns on the disk, read where they are looked at, and views of them for other libraries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.errors import StudyError, extra, unknown
from qddot.formats.atomic import replacing
from qddot.study import analysis
from qddot.study.outcome import Failure
from qddot.study.space import Space
from qddot.study.store import Store

Array = NDArray[Any]


class Results:
    """A row a sample, in the order of the space: `results["energy"]` is an array, also in the middle of a run.

    Samples without a result, failed or not computed yet, are NaN; `failures` and `done` tell which.
    """

    def __init__(self, store: Store, space: Space) -> None:
        self._store, self.space = store, space
        if store.exists:
            store.load()

    def __len__(self) -> int:
        return self._store.end - self._store.first if self._store.exists else len(self.space)

    def __repr__(self) -> str:
        return f"<Results of {len(self):,} samples: {', '.join(self.names) or 'none yet'}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The measures."""
        return tuple(self._store.columns or ())

    def __getitem__(self, name: str) -> Array:
        if name in self.names:
            return self._store.column(name)
        if name in self.space.names:
            return self.values()[name]
        raise unknown("result", str(name), (*self.names, *self.space.names), f"the study in {self._store.directory}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    @property
    def failures(self) -> list[Failure]:
        """The samples that have no result and why, in order."""
        return [self._store.failures[k] for k in sorted(self._store.failures)]

    @property
    def done(self) -> Array:
        """Which samples are done, failures included."""
        out = np.zeros(len(self), dtype=bool)
        for low, high in (self._store.done - self._store.first).tolist():
            out[low:high] = True
        return out

    @property
    def facts(self) -> dict[str, Any]:
        """How it was computed: seconds of work, and on which kinds of machines."""
        return {"seconds": self._store.seconds, "hosts": sorted(self._store.hosts - {""})}

    def values(self) -> dict[str, Array]:
        """What the space has for every sample."""
        return self.space.values(self._store.first, len(self))

    # ---- what they say

    def quantiles(self, name: str, parts: ArrayLike = (0.05, 0.25, 0.5, 0.75, 0.95)) -> Array:
        """The values below which these parts of the samples lie; samples without a result do not count."""
        return analysis.quantiles(self[name], parts)

    def sensitivity(self, name: str) -> analysis.Sensitivity:
        """Sobol's indices of a measure, of a study with sampling="saltelli"."""
        return analysis.sensitivity(self.space, self[name], name)

    def outliers(self, name: str, number: int = 10) -> Array:
        """The rows of the samples that are farthest from the median, the farthest first: for `Study.simulate`."""
        return analysis.outliers(self[name], number)

    # ---- for other libraries

    def columns(self, *names: str) -> dict[str, Array]:
        """Flat columns, those of the space first: an array has a column for each of its numbers, such as `tau[2]`."""
        of_space = self.values()  # once: samplers are called for every sample
        every = {**of_space, **{name: self[name] for name in self.names}}
        for name in names:
            if name not in every:
                _ = self[name]  # raises with the names that come near
        arrays = {name: every[name] for name in names or every}
        if not names and len(arrays) < len(of_space) + len(self.names):
            raise StudyError("the space and the measures have a name in common; name the measures otherwise")
        out: dict[str, Array] = {}
        for name, x in arrays.items():
            if x.ndim == 1:
                out[name] = x
                continue
            for place in np.ndindex(x.shape[1:]):
                out[f"{name}[{', '.join(map(str, place))}]"] = x[(slice(None), *place)]
        return out

    def to_pandas(self, *names: str) -> Any:
        """A DataFrame with a row a sample, indexed by its number; needs pandas."""
        pandas = extra("pandas", "data", "a table of results")
        return pandas.DataFrame(self.columns(*names), index=pandas.RangeIndex(len(self), name="sample"))

    def to_xarray(self) -> Any:
        """A Dataset over `sample`: measures as variables, the space as coordinates (extra `[data]`)."""
        xarray = extra("xarray", "data", "an xarray view")

        def variable(name: str, x: Array) -> Any:
            return (("sample", *(f"{name}_{k}" for k in range(x.ndim - 1))), x)

        coordinates = {name: variable(name, x) for name, x in self.values().items()}
        return xarray.Dataset({name: variable(name, self[name]) for name in self.names}, coordinates)

    def save(self, path: str | os.PathLike[str], *names: str) -> Path:
        """Writes the columns to a .parquet (extra `[data]`) or .csv file, in one step."""
        file, columns = Path(path), self.columns(*names)
        if file.suffix.lower() not in (".parquet", ".csv"):
            raise StudyError(f"{file}: results are written to .parquet or .csv")
        with replacing(file) as unfinished:
            if file.suffix.lower() == ".parquet":
                arrow = extra("pyarrow", "data", "writing Parquet")
                parquet = extra("pyarrow.parquet", "data", "writing Parquet")
                parquet.write_table(arrow.table({name: np.ascontiguousarray(x) for name, x in columns.items()}), unfinished)
            else:
                with open(unfinished, "w", encoding="utf-8", newline="") as out:
                    out.write(",".join(f'"{name}"' for name in columns) + "\n")
                    for row in zip(*(x.tolist() for x in columns.values()), strict=True):
                        out.write(",".join(map(repr, row)) + "\n")
        return file
