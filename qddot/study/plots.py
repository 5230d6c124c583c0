"""Figures of the results of a study, by matplotlib: histograms, parallel coordinates, maps, sensitivity."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import InputError, extra, unknown
from qddot.study.gradients import BY
from qddot.study.results import Results

if TYPE_CHECKING:
    from qddot.study.study import Study

Array = NDArray[Any]

_BLUE, _ORANGE, _GREY = "#2864a0", "#d2691e", "#606060"
_MOST_LINES = 2000  # of parallel coordinates: more are one grey block
_MOST_PANELS = 12
_MANY_POINTS = 5000  # of a map: above, hexagons show their mean


def plot(study: Study, names: Sequence[str], kind: str, path: str | os.PathLike[str] | None) -> Any:
    """A figure, and a file of it if `path` is given."""
    if kind not in (*KINDS, GRADIENTS):
        raise unknown("kind of plot", str(kind), (*KINDS, GRADIENTS), "a study")
    extra("matplotlib", "view", "plots")
    results = study.results
    if not results.names:
        raise InputError("there are no results yet: run the study first")
    figure = _gradients(study, list(names)) if kind == GRADIENTS else KINDS[kind](results, list(names))
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _columns(results: Results, names: list[str]) -> dict[str, Array]:
    """Flat columns by name: a name of an array stands for all of its columns."""
    every = results.columns(*results.space.names, *results.names)
    if not names:
        return results.columns(*results.names)
    out: dict[str, Array] = {}
    for name in names:
        found = [n for n in every if n == name or n.startswith(f"{name}[")]
        if not found:
            raise unknown("column", name, every, "the study")
        out |= {n: every[n] for n in found}
    return out


def _clean(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _histograms(results: Results, names: list[str]) -> Any:
    columns = dict(list(_columns(results, names).items())[:_MOST_PANELS])
    across = min(3, len(columns))
    down = -(-len(columns) // across)
    figure = _figure(3.6 * across, 2.4 * down)
    for k, (name, x) in enumerate(columns.items()):
        axes = figure.add_subplot(down, across, k + 1)
        fine = x[np.isfinite(x)]
        axes.hist(fine, bins=min(60, max(8, round(len(fine) ** 0.5))), color=_BLUE)
        for q in np.quantile(fine, (0.05, 0.5, 0.95)) if len(fine) else ():
            axes.axvline(q, color=_ORANGE, linewidth=1.0)
        left_out = f", {len(x) - len(fine):,} without" if len(fine) < len(x) else ""
        axes.set_title(f"{name}   ({len(fine):,} samples{left_out})", fontsize=9)
        _clean(axes)
    figure.supxlabel("orange: 5 %, 50 % and 95 % quantiles", fontsize=8, color=_GREY)
    return figure


def _parallel(results: Results, names: list[str]) -> Any:
    """A line a sample over scaled columns, coloured by the last one."""
    chosen = names or [*results.space.names, *results.names]
    columns = dict(list(_columns(results, chosen).items()))
    if len(columns) < 2:
        raise InputError("parallel coordinates need two columns at least; name more")
    table = np.column_stack(list(columns.values()))
    table = table[np.isfinite(table).all(axis=1)]
    table = table[np.linspace(0, len(table) - 1, min(len(table), _MOST_LINES)).astype(int)] if len(table) else table
    low, high = (f(table, axis=0) if len(table) else np.zeros(len(columns)) for f in (np.min, np.max))
    scaled = (table - low) / np.where(high > low, high - low, 1.0)
    figure = _figure(max(6.0, 1.1 * len(columns)), 3.6)
    axes = figure.add_subplot()
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection

    order = np.argsort(scaled[:, -1])
    places = np.broadcast_to(np.arange(scaled.shape[1]), scaled.shape)
    lines = LineCollection(
        list(np.stack([places, scaled], axis=-1)[order]),
        linewidths=0.6,
        alpha=float(np.clip(150.0 / max(1, len(table)), 0.08, 0.5)),
    )
    lines.set_color(colormaps["viridis"](scaled[order, -1]))
    axes.add_collection(lines)
    axes.set_xlim(-0.3, len(columns) - 0.7)
    axes.set_ylim(-0.05, 1.05)
    labels = [f"{n}\n{a:.3g} to {b:.3g}" for n, a, b in zip(columns, low, high, strict=True)]
    axes.set_xticks(range(len(columns)), labels, fontsize=8)
    axes.set_yticks([])
    axes.grid(axis="x", color=_GREY, linewidth=0.8)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axes.set_title(f"{len(table):,} samples, coloured by {list(columns)[-1]}", fontsize=9)
    return figure


def _map(results: Results, names: list[str]) -> Any:
    """The third column over the first two."""
    columns = _columns(results, names)
    if len(columns) != 3:
        raise InputError("a map needs three columns: what is across, what is up, and what is shown as colour")
    (across, x), (up, y), (shown, z) = columns.items()
    fine = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
    figure = _figure(5.2, 4.2)
    axes = figure.add_subplot()
    if np.count_nonzero(fine) > _MANY_POINTS:
        drawn = axes.hexbin(x[fine], y[fine], z[fine], gridsize=60, linewidths=0.1)
        what = f"mean of {shown}"
    else:
        drawn, what = axes.scatter(x[fine], y[fine], c=z[fine], s=8), shown
    figure.colorbar(drawn, label=what)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    _clean(axes)
    return figure


def _sensitivity(results: Results, names: list[str]) -> Any:
    """Bars of Sobol's indices, one panel a measure."""
    measures = names or [n for n in results.names if results[n].ndim == 1]
    found = [results.sensitivity(name) for name in measures]
    if not found:
        raise InputError("indices are of measures of one number, and there is none")
    figure = _figure(1.5 + 3.6 * len(found), 1.2 + 0.35 * len(found[0].names))
    for k, (name, x) in enumerate(zip(measures, found, strict=True)):
        axes = figure.add_subplot(1, len(found), k + 1)
        rows = np.arange(len(x.names))
        axes.barh(rows - 0.2, x.first, 0.38, color=_BLUE, label="alone (first order)", xerr=2.0 * x.error, ecolor=_GREY)
        axes.barh(rows + 0.2, x.total, 0.38, color=_ORANGE, label="with interactions (total)")
        axes.set_yticks(rows, x.names if k == 0 else [""] * len(x.names), fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(min(0.0, float(np.min(x.first - 2.0 * x.error)) * 1.05), 1.05)
        axes.set_title(f"part of the variance of {name}", fontsize=9)
        _clean(axes)
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8, frameon=False
    )
    return figure


def _gradients(study: Study, names: list[str]) -> Any:
    """Bars of derivatives times standard deviations, one panel a measured number."""
    results = study.results
    measures = names or [n for n in results.names if results[n].ndim == 1 and BY not in n]
    found = [study.gradient_sensitivity(name) for name in measures]
    if not found:
        raise InputError("derivatives are of measures of one number; name one, such as 'tip[2]'")
    figure = _figure(1.5 + 3.6 * len(found), 1.4 + 0.35 * len(found[0].names))
    for k, (name, x) in enumerate(zip(measures, found, strict=True)):
        axes = figure.add_subplot(1, len(found), k + 1)
        rows = np.arange(len(x.names))
        axes.barh(rows, x.rms, 0.6, color=_BLUE, label="root mean square")
        axes.plot(x.mean, rows, "o", color=_ORANGE, markersize=5, label="mean")
        axes.axvline(0.0, color=_GREY, linewidth=0.8)
        axes.set_yticks(rows, x.names if k == 0 else [""] * len(x.names), fontsize=8)
        axes.invert_yaxis()
        axes.set_title(f"change of {name} for one standard deviation", fontsize=9)
        _clean(axes)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


GRADIENTS = "gradients"
KINDS: dict[str, Callable[[Results, list[str]], Any]] = {
    "histogram": _histograms,
    "parallel": _parallel,
    "map": _map,
    "sensitivity": _sensitivity,
}
