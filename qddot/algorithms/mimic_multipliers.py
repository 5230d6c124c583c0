"""Joints that share coordinates (mimic joints), for formulations that know none: by multipliers.

Featherstone & Orin 2000, (21), with "joint m moves k times as far as joint g" in the place of loop closure. The tree
gets a coordinate for every joint, M_tree is its mass matrix, and A ÿ = 0 holds the joints together:

    ÿ = M_tree⁻¹ (b - Aᵀλ),    A M_tree⁻¹ Aᵀ λ = A M_tree⁻¹ b

| code  | meaning                                                              |
|-------|----------------------------------------------------------------------|
| tree  | the model with a coordinate for every joint                          |
| rows  | A: -k at the coordinate that is followed, 1 at the one that follows  |
| solve | multiplies by M_tree⁻¹                                               |

Cost: that of the formulation, once and once more for every joint that follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms.newton_euler_classical import rigid_body_forces
from qddot.algorithms.sparse_factors import where_regular
from qddot.mechanism.model import Model
from qddot.scalars import Scalar, split, stack
from qddot.spatial.joint_blocks import Matrix, Vector
from qddot.spatial.rotation import ZERO

Forward = Callable[..., NDArray[Any]]


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any, forward: Forward) -> NDArray[Any]:
    """Accelerations of the independent coordinates under tau, passive forces already in it."""
    return solved(model, q, tau - rigid_body_forces(model, q, v, np.zeros(model.nv), f_ext), forward)


def mass_matrix_inverse(model: Model, q: Any, forward: Forward) -> NDArray[Any]:
    """M⁻¹ of the independent coordinates, column by column."""
    return np.stack([solved(model, q, unit, forward) for unit in np.eye(model.nv)], axis=-1)


def solved(model: Model, q: Any, b: Any, forward: Forward) -> NDArray[Any]:
    """M⁻¹ b, from a forward dynamics of trees without shared coordinates."""
    tree, x = _tree(model), model.coordinates(q)
    own = stack([y for i, _ in model.outward() for y in x[i]])
    rest = np.zeros(tree.nv)

    def solve(forces: list[Scalar]) -> list[Scalar]:
        return split(forward(tree, own, rest, stack(forces)))

    places, b, given = _places(model, tree), split(b), [0.0] * tree.nv
    for k, place in places.items():
        given[place] = b[k]
    rows = _rows(model, tree)
    free, columns = solve(given), [solve(row) for row in rows]
    bars = Matrix(Vector(Vector(row).dot(column) for column in columns) for row in rows).inverse()
    y = Vector(free)
    for multiplier, column in zip(bars @ [Vector(row).dot(free) for row in rows], columns, strict=True):
        y = y - multiplier * Vector(column)
    return where_regular(model, q, stack([y[places[k]] for k in range(model.nv)]))


def _tree(model: Model) -> Model:
    """A coordinate for every joint; without gravity and passive forces, so that forward dynamics at rest is M_tree⁻¹."""
    apart = tuple(None for _ in model.mimic)
    alone = replace(model, mimic=apart, gravity=ZERO, loops=(), constraints=(), pivot_floor=())
    return alone.without_passive_forces()


def _places(model: Model, tree: Model) -> dict[int, int]:
    """Where an independent coordinate stands among those of the tree."""
    found: dict[int, int] = {}
    for i, _ in model.outward():
        if model.mimic[i] is None:
            old, new = model.slots[i].v, tree.slots[i].v
            found.update(zip(range(old.start, old.stop), range(new.start, new.stop), strict=True))
    return found


def _rows(model: Model, tree: Model) -> list[list[Scalar]]:
    """A, a row for every joint that follows."""
    rows = []
    for i, mimic in enumerate(model.mimic):
        if mimic is not None:
            row: list[Scalar] = [0.0] * tree.nv
            row[tree.slots[mimic.link].v.start], row[tree.slots[i].v.start] = -mimic.factor, 1.0
            rows.append(row)
    return rows
