"""Trajectories as a figure: one panel a channel, with labels and units."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from qddot.errors import InputError, extra, printable
from qddot.mechanism.array_axes import QUANTITIES, Column
from qddot.simulation.trajectory import DERIVED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from qddot.simulation.trajectory import Trajectory

_MOST_LINES = 6  # of which a legend can be read


def plot(trajectory: Trajectory, names: Sequence[str] = (), path: str | os.PathLike[str] | None = None) -> Figure:
    """The figure, also written to `path` where one is given. No window is opened and no global state is touched."""
    if trajectory.batch:
        raise InputError(
            f"a figure shows one simulation, and this is a batch of {trajectory.batch}: take trajectory.sample(k)"
        )
    figures = extra("matplotlib.figure", "view", "plotting")
    names = names or _default(trajectory)
    values = [trajectory[name] for name in names]  # an unknown name is an error before there is a figure
    panels = [(name, x, unit) for name, x in zip(names, values, strict=True) for unit in _units(_columns(trajectory, name))]
    panels = [p for p in panels if not _idle(trajectory, *p)] or panels
    columns = 1 if len(panels) < 4 else 2
    rows = -(-len(panels) // columns)
    figure = figures.Figure(figsize=(5.2 * columns + 1.0, 2.3 * rows + 0.6), layout="tight")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True).T.reshape(-1)
    for axis, (name, x, unit) in zip(axes, panels, strict=False):
        _panel(axis, trajectory, name, x, unit)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for k in range(columns):
        last = min((k + 1) * rows, len(panels)) - 1
        axes[last].set_xlabel("time [s]")
        axes[last].tick_params(labelbottom=True)
    figure.suptitle(_title(trajectory), fontsize="medium", parse_math=False)
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def _default(trajectory: Trajectory) -> list[str]:
    names = ["q", "v"] + (["tau"] if trajectory.tau is not None else []) + ["energy"]
    return names + (["constraint_drift"] if trajectory.robot.engine.model.is_constrained else [])


def _columns(trajectory: Trajectory, name: str) -> tuple[Column, ...]:
    """Of a channel, or the one of "elbow.q"."""
    owner, _, quantity = name.rpartition(".")
    if owner and name not in trajectory.names:
        unit = next(c.unit for c in trajectory.columns(quantity) if c.name == owner)
        return (Column("", unit),)
    return trajectory.columns(name)


def _units(columns: Sequence[Column]) -> list[str]:
    """Radians and metres do not share an axis."""
    return list(dict.fromkeys(c.unit for c in columns))


def _idle(trajectory: Trajectory, name: str, x: Any, unit: str) -> bool:
    """Forces in degrees of freedom that nothing drives, such as those of a floating base."""
    here = [k for k, column in enumerate(_columns(trajectory, name)) if column.unit == unit]
    return name == "tau" and not np.any(x[:, here])


def _panel(axis: Any, trajectory: Trajectory, name: str, x: Any, unit: str) -> None:
    columns = _columns(trajectory, name)
    curves = x.reshape(len(trajectory), -1)
    if name == "energy":
        _energies(axis, trajectory)
    else:
        for k, column in enumerate(columns):
            if column.unit == unit:
                axis.plot(trajectory.t, curves[:, k], label=column.name, linewidth=1.2)
    known = {n: d.text for n, d in DERIVED.items()} | QUANTITIES | ({"tau": "force"} if unit == "N" else {})
    text = printable(known.get(name, name))
    axis.set_ylabel(f"{text}\n[{unit}]" if unit else text, fontsize="small", parse_math=False)
    axis.grid(alpha=0.3)
    if name == "constraint_drift" and np.any(curves > 0.0):
        axis.set_yscale("log")
    lines = axis.get_lines()
    if len(lines) > 1:
        shown = lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1]]
        more = [] if len(shown) == len(lines) else [f" and {len(lines) - len(shown)} more"]
        labels = [str(line.get_label()) for line in shown]
        if more:
            labels[-1] += more[0]
        # set afterwards: a legend leaves out labels that begin with _, and takes text between $ for mathematics
        numbered = [str(k) for k in range(len(shown))]
        legend = axis.legend(shown, numbered, fontsize="x-small", loc="upper right", framealpha=0.7)
        for entry, label in zip(legend.get_texts(), labels, strict=True):
            entry.set(text=printable(label), parse_math=False)


def _energies(axis: Any, trajectory: Trajectory) -> None:
    axis.plot(trajectory.t, trajectory.energy, label="total", color="black", linewidth=1.4)
    axis.plot(trajectory.t, trajectory.kinetic_energy, label="kinetic", linewidth=1.0)
    axis.plot(trajectory.t, trajectory.potential_energy, label="potential", linewidth=1.0)


def _title(trajectory: Trajectory) -> str:
    info, parts = trajectory.info, [printable(trajectory.robot.engine.model.name)]
    if "integrator" in info:
        parts.append(str(info["integrator"]))
    if "dt" in info:
        parts.append(f"dt = {info['dt']:g} s")
    return ", ".join(parts)
