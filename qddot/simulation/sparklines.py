"""A trajectory in a notebook: a row for each column of its arrays, with its range and a small curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qddot import notebook
from qddot.notebook import Markup

if TYPE_CHECKING:
    from qddot.simulation.trajectory import Trajectory

_MAX_ROWS = 24  # columns of one array


def html_of(x: Trajectory) -> str:
    """What a notebook shows: stored arrays only, so that nothing is compiled to look at it."""
    of = f", {' × '.join(map(str, x.batch))} of them" if x.batch else ""
    made = ", ".join(f"{k} {x.info[k]}" for k in ("integrator", "dt") if k in x.info)
    note = f"{len(x)} times from {x.t[0]:g} to {x.t[-1]:g} s{of}{'; ' + made if made else ''}"
    stored = [n for n in ("q", "v", "a", "tau") if getattr(x, n) is not None]
    parts = [_section(x, name, name in ("q", "v", "tau")) for name in (*stored, *x.channels)]
    return notebook.card(f"Trajectory of {x.robot.engine.model.name}", note, *parts)


def _section(x: Trajectory, name: str, is_open: bool) -> Markup:
    array, columns = x[name], x.columns(name)
    flat = array.reshape(-1, len(x), len(columns)) if len(columns) else np.empty((0, len(x), 0))
    rows = []
    for k, column in enumerate(columns[:_MAX_ROWS]):
        y = flat[:, :, k]  # a view: what is drawn of it is copied, and nothing else
        found = (np.fmin.reduce(y, axis=None), np.fmax.reduce(y, axis=None), y[0, -1]) if y.size else (np.nan,) * 3
        ends = [notebook.number(v) for v in found]
        rows.append((column.name or name, column.unit, notebook.sparkline(y), *ends))
    left = len(columns) - _MAX_ROWS
    title = f"{name}: the first {_MAX_ROWS} of {len(columns)} columns" if left > 0 else name
    last = "last" if not x.batch else "last of the first"
    return notebook.section(title, notebook.table(("", "unit", "", "least", "greatest", last), rows), is_open)
