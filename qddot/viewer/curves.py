"""Which curves stand beside a robot that moves: its energy, its torques and its forces."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.viewer.protocols import ShownTrajectory

Array = NDArray[Any]

COLORS = ("#4287c8", "#ec8c3a", "#5ea66e", "#be5a64", "#8c73b9", "#78828c", "#c8a83a", "#3aa8a8")
_MAX_POINTS = 400  # of a curve
_MAX_CURVES = 8  # in one diagram


class Diagram(NamedTuple):
    """Curves of one unit over the same times, by name."""

    title: str
    values: dict[str, Array]


def diagrams(x: ShownTrajectory) -> tuple[Array, list[Diagram]]:
    """Times, and what is drawn over them: energy, then the largest torques and forces that are not zero throughout."""
    rows = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MAX_POINTS)).round().astype(int))
    energies = {"total": x.energy[rows], "kinetic": x.kinetic_energy[rows], "potential": x.potential_energy[rows]}
    found = [Diagram("Energy [J]", energies)]
    tau = np.zeros((len(x), 0)) if x.tau is None else x.tau
    for unit, title in (("N m", "Torque [N m]"), ("N", "Force [N]")):
        columns = [] if x.tau is None else [k for k, c in enumerate(x.columns("tau")) if c.unit == unit]
        largest = sorted(columns, key=lambda k: -float(np.max(np.abs(tau[:, k]))))[:_MAX_CURVES]
        torques = {x.columns("tau")[k].name: tau[rows, k] for k in sorted(largest) if np.any(tau[:, k])}
        if torques:
            found.append(Diagram(title, torques))
    return x.t[rows], found
