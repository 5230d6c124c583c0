"""What a simulation gives: states in time, by name, and what can be computed of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.dynamics.engine import HasEngine
from qddot.errors import InputError, unknown
from qddot.mechanism import configurations
from qddot.mechanism.array_axes import Column, columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from qddot.viewer import InlinePage

Array = NDArray[Any]


class _Derived(NamedTuple):
    """A channel that is computed of the states at its first use."""

    compute: Callable[[Trajectory], Array]
    columns: tuple[Column, ...]
    text: str


_SPATIAL = ("Lx", "Ly", "Lz", "px", "py", "pz")
_MOMENTUM = tuple(Column(n, "kg m²/s" if n.startswith("L") else "kg m/s") for n in _SPATIAL)
_POINT = tuple(Column(n, "m") for n in "xyz")
_JOULE = (Column("", "J"),)

DERIVED: dict[str, _Derived] = {
    "energy": _Derived(lambda x: x.energy, _JOULE, "energy"),
    "kinetic_energy": _Derived(lambda x: x.kinetic_energy, _JOULE, "kinetic energy"),
    "potential_energy": _Derived(lambda x: x.potential_energy, _JOULE, "potential energy"),
    "momentum": _Derived(lambda x: x.momentum, _MOMENTUM, "momentum about the centre of mass"),
    "center_of_mass": _Derived(lambda x: x.center_of_mass, _POINT, "centre of mass"),
    "constraint_drift": _Derived(lambda x: x.constraint_drift, (Column("", "m or rad"),), "how far loops are open"),
}


class Trajectory:
    """States of a robot in time.

    `t` has T times, `q` is (..., T, nq), `v` (..., T, nv), and so are `a` and `tau` where they are known: leading axes are
    those of a batch of simulations. `channels` are further arrays, (..., T) or (..., T, n), by name; `info` says how it was
    made. States are float64, or float32 where they are given so. `trajectory["tau"]`, `trajectory["energy"]` and
    `trajectory["elbow.v"]` give any of it by name.
    """

    def __init__(
        self,
        robot: HasEngine,
        t: ArrayLike,
        q: ArrayLike,
        v: ArrayLike,
        *,
        a: ArrayLike | None = None,
        tau: ArrayLike | None = None,
        channels: Mapping[str, ArrayLike] | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self.robot: Any = robot  # as it was given, with all its methods
        self.info = dict(info or {})
        self.t = np.asarray(t, dtype=float)
        if self.t.ndim != 1 or not self.t.size:
            raise InputError(f"t has shape {self.t.shape}; give at least one time, all on one axis")
        if not np.all(np.diff(self.t) >= 0.0):
            raise InputError("t goes backwards; give times in their order")
        model = robot.engine.model
        self.q = self._states("q", q, model.nq)
        self.v = self._states("v", v, model.nv)
        self.a = None if a is None else self._states("a", a, model.nv)
        self.tau = None if tau is None else self._states("tau", tau, model.nv)
        self.channels = {name: self._channel(name, x) for name, x in (channels or {}).items()}

    # ---- what it holds

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes: () for one simulation."""
        return self.q.shape[:-2]

    def __len__(self) -> int:
        return len(self.t)

    def __repr__(self) -> str:
        of = f", {' × '.join(map(str, self.batch))} of them" if self.batch else ""
        name = self.robot.engine.model.name
        return f"<Trajectory of {name!r}: {len(self)} times from {self.t[0]:g} to {self.t[-1]:g} s{of}>"

    def _repr_html_(self) -> str:
        from qddot.simulation.sparklines import html_of

        return html_of(self)

    @property
    def names(self) -> tuple[str, ...]:
        """What `trajectory[name]` answers, besides single columns such as "elbow.q"."""
        derived = [n for n in DERIVED if n != "constraint_drift" or self.robot.engine.model.is_constrained]
        if not self.robot.engine.model.mass > 0.0:
            derived = [n for n in derived if n not in ("momentum", "center_of_mass")]
        return (*self._own, *self.channels, *(n for n in derived if n not in self.channels))

    @property
    def _own(self) -> tuple[str, ...]:
        return ("t", "q", "v", *(n for n in ("a", "tau") if getattr(self, n) is not None))

    def __getitem__(self, name: str) -> Array:
        if name in self.channels:
            return self.channels[name]
        if name in self._own:
            return getattr(self, name)
        if name in DERIVED:
            return DERIVED[name].compute(self)
        quantity = name.rpartition(".")[2]
        if quantity in self._own[1:]:
            found = [f"{c.name}.{quantity}" for c in self.columns(quantity)]
            if name in found:
                return getattr(self, quantity)[..., found.index(name)]
        known = [*self.names, *(f"{c.name}.{n}" for n in self._own[1:] for c in self.columns(n))]
        raise unknown("channel", name, known, f"this trajectory of {self.robot.engine.model.name!r}")

    def __iter__(self) -> Iterator[str]:
        raise TypeError("a trajectory is not a sequence: go over trajectory.names, or over trajectory.t")

    def columns(self, name: str) -> tuple[Column, ...]:
        """The names and units of a channel's columns."""
        if name in self._own[1:] and name not in self.channels:
            return columns(self.robot.engine.model, name)
        if name == "t":
            return (Column("", "s"),)
        if name in DERIVED and name not in self.channels:
            return DERIVED[name].columns
        count = int(np.prod(self[name].shape[len(self.batch) + 1 :]))
        if self[name].ndim == len(self.batch) + 1:
            return (Column("", ""),)
        return tuple(Column(str(k), "") for k in range(count))

    def sample(self, *index: int) -> Trajectory:
        """One simulation of a batch."""
        if len(index) != len(self.batch):
            raise InputError(f"the batch has {len(self.batch)} axes; give as many indices, not {len(index)}")
        try:
            pick = {n: None if (x := getattr(self, n)) is None else x[index] for n in ("q", "v", "a", "tau")}
            own = {n: x[index] for n, x in self.channels.items()}
        except IndexError:
            raise InputError(f"the batch is {self.batch}; {index} is outside of it") from None
        return Trajectory(self.robot, self.t, **pick, channels=own, info=self.info)  # type: ignore[arg-type]

    def resampled(self, times: ArrayLike) -> Trajectory:
        """The states at other times, on the straight way (in the tangent space) between the two that stand around each."""
        at = np.clip(np.asarray(times, dtype=float).reshape(-1), self.t[0], self.t[-1])
        k = np.clip(np.searchsorted(self.t, at, side="right") - 1, 0, max(len(self.t) - 2, 0))
        after = np.minimum(k + 1, len(self.t) - 1)
        span = self.t[after] - self.t[k]
        s = np.where(span > 0.0, (at - self.t[k]) / np.where(span > 0.0, span, 1.0), 0.0)
        after = np.where(s > 0.0, after, k)  # a state that is not finite is not that of its neighbours

        def between(x: Array) -> Array:
            w = s.reshape(-1, *(1,) * (x.ndim - len(self.batch) - 1))
            axis = len(self.batch)
            return (1.0 - w) * np.take(x, k, axis) + w * np.take(x, after, axis)

        q0, q1 = (self.q[..., at, :].astype(float) for at in (k, after))
        model = self.robot.engine.model
        step = configurations.difference(model, q0, q1) * s[:, None]
        q = configurations.normalize(model, configurations.integrate(model, q0, step))
        rest = {n: None if (x := getattr(self, n)) is None else between(x) for n in ("v", "a", "tau")}
        own = {n: between(x) for n, x in self.channels.items()}
        return Trajectory(self.robot, at, q, **rest, channels=own, info=self.info)  # type: ignore[arg-type]

    # ---- what follows from it

    def _evaluated(self, name: str, *states: Array) -> Array:
        """In float64, also of states in float32: differences of energies are small."""
        return self.robot.engine.evaluate(name, *(x.astype(float, copy=False) for x in states))

    @cached_property
    def kinetic_energy(self) -> Array:
        """(..., T), in J."""
        return self._evaluated("kinetic_energy", self.q, self.v)

    @cached_property
    def potential_energy(self) -> Array:
        """Of gravity and joint springs, (..., T), in J."""
        return self._evaluated("potential_energy", self.q)

    @property
    def energy(self) -> Array:
        """Kinetic and potential energy, (..., T), in J."""
        return self.kinetic_energy + self.potential_energy

    @property
    def energy_drift(self) -> Array:
        """The largest change of energy since the first time, by the largest kinetic energy: (...)."""
        change = np.max(np.abs(self.energy - self.energy[..., :1]), axis=-1)
        largest = np.max(np.abs(self.kinetic_energy), axis=-1)
        return change / np.where(largest > 0.0, largest, 1.0)

    @cached_property
    def momentum(self) -> Array:
        """Angular momentum about the centre of mass and linear momentum, in the world's axes: (..., T, 6)."""
        return self._evaluated("momentum", self.q, self.v)

    @cached_property
    def center_of_mass(self) -> Array:
        """(..., T, 3), in m."""
        return self._evaluated("center_of_mass", self.q)

    @cached_property
    def constraint_drift(self) -> Array:
        """How far the constraint that is most open is open, (..., T), in m or rad."""
        if not self.robot.engine.model.is_constrained:
            raise InputError(
                f"robot {self.robot.engine.model.name!r} has no loops or other constraints, so nothing can drift open"
            )
        return np.max(np.abs(self._evaluated("constraint_residual", self.q)), axis=-1)

    # ---- other views of it

    def to_numpy(self, *names: str) -> dict[str, Array]:
        """The arrays by name: the chosen ones, or all that is stored."""
        return {name: self[name] for name in names or (*self._own, *self.channels)}

    def to_xarray(self, *names: str) -> Any:
        """The same as an `xarray.Dataset` with named axes and units (extra `[data]`)."""
        from qddot.simulation.writers import to_xarray

        return to_xarray(self, names or self.names[1:])

    def plot(self, *names: str, path: str | os.PathLike[str] | None = None) -> Figure:
        """A figure with a panel for each channel, by default positions, velocities, torques and energy; extra `[view]`."""
        from qddot.simulation.plotting import plot

        return plot(self, names, path)

    def show(self, **options: Any) -> Any:
        """Opens the viewer in the browser and plays; extra `[view]`. `qddot.viewer.show` has the options."""
        from qddot.viewer import show

        return show(self.robot, self, **options)

    def save_html(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Writes one self-contained page that plays the motion in any browser, without Python.

        `qddot.viewer.save_html` has the options.
        """
        from qddot.viewer import save_html

        return save_html(self, path, **options)

    def inline(self, height: int = 480, **options: Any) -> InlinePage:
        """The page of `save_html` for a cell of a notebook: it plays below the cell, and is saved with the notebook."""
        from qddot.viewer import inline

        return inline(self, height=height, **options)

    # ---- files

    def save(self, path: str | os.PathLike[str], *names: str, overwrite: bool = False) -> Path:
        """Writes it, by the ending of `path`: .csv, .parquet or .mcap (extra `[data]`), otherwise a folder for
        `qddot.load_trajectory`.

        `names` are the channels that go into a table; the default is all. A folder holds what is stored, bit for bit, in
        chunks that are each written whole or not at all (docs/results.md); one that holds another run is
        refused, or with `overwrite` replaced.
        """
        from qddot.simulation import writers

        file = Path(path)
        write = writers.WRITERS.get(file.suffix.lower())
        if write is not None:
            write(self, file, names or self.names[1:])
            return file
        from qddot.simulation.recorded import save

        if names:
            raise InputError(
                f"{file} would be a folder, which holds everything; give names for .csv, .parquet or .mcap only"
            )
        return save(self, file, overwrite)

    # ---- checks

    def _states(self, name: str, x: ArrayLike, count: int) -> Array:
        array = np.asarray(x)
        array = array if array.dtype == np.float32 else np.asarray(array, dtype=float)
        batch = array.shape[:-2] if name == "q" else self.batch
        if array.shape != (*batch, len(self.t), count):
            wanted = f"({'..., ' if name == 'q' else ''.join(f'{n}, ' for n in batch)}{len(self.t)}, {count})"
            robot = self.robot.engine.model.name
            raise InputError(f"{name} has shape {array.shape}, but must have {wanted}: robot {robot!r}, times in t")
        return array

    def _channel(self, name: str, x: ArrayLike) -> Array:
        array = np.asarray(x)
        if array.dtype.kind not in "fiub":
            raise InputError(f"channel {name!r} must hold real numbers, not {array.dtype}")
        if name in ("t", "q", "v", "a", "tau"):
            raise InputError(f"channel {name!r} has the name of an array of its own: give it as {name}=")
        if array.shape[: len(self.batch) + 1] != (*self.batch, len(self.t)):
            wanted = ", ".join(map(str, (*self.batch, len(self.t))))
            raise InputError(f"channel {name!r} has shape {array.shape}, but its first axes must be ({wanted})")
        return array
