"""Base parameters: which combinations of a robot's inertias its joint forces depend on, and how.

Inverse dynamics is linear in the inertias π, tau = Y(q, v, a) π. Changes of π that Y never sees make a space, and what
is left when they are taken out are the base parameters β = K π. Most of that space is known exactly: what a joint
cannot move of its link's inertia may as well be the parent's (`Joint.transferable_inertia`, as in
`mechanism.simplify`). The rest comes from a base that is fixed, from gravity along an axis, or from joints that share a
coordinate, and is the null space of Y at random states. Gautier & Khalil 1990 and Mayeda,
Yoshida & Osuka 1990 have the rules of revolute arms.

Elimination goes from the tips to the base. Of a link it takes first what the others can replace with the least
rounding, and among equals the mass, the first moments, then I_yy: the parameters that remain are those of a text book.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.algorithms.regressor import torque_regressor
from qddot.dynamics.adapters import units
from qddot.errors import InputError, printable
from qddot.mechanism import parameters
from qddot.mechanism.model import Model
from qddot.spatial import Product, transform_inertia

Array = NDArray[np.float64]

TEN = ("m", "hx", "hy", "hz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")  # the order of parameters("inertia")
_GIVEN_UP = (0, 3, 2, 1, 6, 4, 9, 5, 7, 8)  # what is eliminated first, where several could be
_AS_GOOD = 0.5  # of the largest pivot: what counts as equal to it
_PIVOT = 1e-6  # of a null vector: smaller entries are rounding, or for a link nearer to the base
_ROUNDING = 1e-11  # of a null vector: what a singular value decomposition leaves where there is zero
_DUST = 1e-14  # of K: what composing transforms leaves where there is zero


@dataclass(frozen=True, eq=False)
class BaseParameters:
    """The parameters that joint forces determine: `values` = `matrix` @ robot.parameters("inertia").reshape(-1).

    Base parameter k has the name of the parameter of one link, number `columns[k]` of them all. What else is in it is
    the k-th row of the matrix; `explain` writes it out. A robot that has the base parameters in these places and zeros
    elsewhere, `inertia()`, moves as this one does, though no such bodies need exist.

    `margin` is how clear the case was: the least singular value of the regressor that was taken for one and the
    largest that was taken for zero, both of the largest.
    """

    names: tuple[str, ...]
    values: Array
    matrix: Array
    columns: tuple[int, ...]
    all_names: tuple[str, ...]
    margin: tuple[float, float]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The parameters that no joint force depends on."""
        return tuple(n for n, column in zip(self.all_names, self.matrix.T, strict=True) if not column.any())

    def inertia(self, values: ArrayLike | None = None) -> Array:
        """Base parameters, these or others, as inertias of links: (..., n_links, 10), for kernels with free inertias."""
        given = self.values if values is None else np.asarray(values, dtype=float)
        if given.shape[-1:] != self.values.shape:
            raise InputError(f"the values have shape {given.shape}; the last axis must have {len(self)} entries")
        out = np.zeros((*given.shape[:-1], len(self.all_names)))
        out[..., self.columns] = given
        return out.reshape(*given.shape[:-1], -1, len(TEN))

    def explain(self) -> str:
        """A line for each: name, value, and the sum that it is."""
        width = max(map(len, self.names), default=0)
        lines = zip(self.names, self.values, self.matrix, strict=True)
        return "\n".join(printable(f"{n:<{width}} {x:>12.6g} = {self._sum(row, n)}") for n, x, row in lines)

    def _sum(self, row: Array, own: str) -> str:
        text = own
        for name, k in zip(self.all_names, row, strict=True):
            if k != 0.0 and name != own:
                factor = "" if f"{abs(k):.6g}" == "1" else f"{abs(k):.6g} "
                text += f" {'-' if k < 0.0 else '+'} {factor}{name}"
        return text


def base_parameters(model: Model, tolerance: float = 1e-9, seed: int = 0) -> BaseParameters:
    """The base parameters of a tree.

    A singular value of the regressor (columns of unit length, random states) below `tolerance` of the largest is taken
    for zero, and so is a column below `tolerance` of the longest.
    """
    if not 0.0 < tolerance < 1.0:
        raise InputError(f"tolerance={tolerance!r} is not between 0 and 1")
    size = len(TEN) * model.n_links
    known, left = _reduced(_left_to_parents(model), model.n_links)
    rest = np.setdiff1d(np.arange(size), left)
    unseen, gone, margin = _unseen(_regressor(model, seed)[:, rest], tolerance, rest, model.n_links)
    known -= unseen @ known[gone]
    kept = np.setdiff1d(rest, gone)
    K = np.zeros((len(kept), size))
    K[:, kept] = np.eye(len(kept))
    K[:, [*left, *gone]] = -_rounded(np.hstack([known, unseen]), _DUST)[kept]  # so that K times these changes is zero
    K += 0.0  # no negative zeros
    names = tuple(f"{link}.{x}" for link in model.link_names[1:] for x in TEN)
    values = K @ parameters.current(model, "inertia").reshape(-1)
    columns = tuple(kept.tolist())
    return BaseParameters(tuple(names[k] for k in columns), values, K, columns, names, margin)


def _left_to_parents(model: Model) -> Array:
    """As columns the changes of π by which a link loses and its parent gains what the joint between them cannot move."""
    columns: list[Array] = []
    for i, p in model.outward():
        joint = model.joint[i]
        at_rest = Product(model.placement[i], joint.transform(joint.neutral()))
        parts = np.array([parameters.numbers_of(joint.transferable_inertia(unit)) for unit in units()], dtype=float)
        for part in _reduced(parts.T, 1)[0].T:
            change = np.zeros((model.n_links + 1, len(TEN)))
            change[i] = part
            change[p] -= parameters.numbers_of(transform_inertia(at_rest, parameters.inertia_of(part.tolist())))
            columns.append(change[1:].reshape(-1))  # what arrives at the world is gone
    return np.array(columns).reshape(len(columns), len(TEN) * model.n_links).T


def _regressor(model: Model, seed: int) -> Array:
    """The regressor at random states, several times as many rows as columns, whatever the limits of the joints are."""
    if model.nv == 0:
        return np.zeros((0, len(TEN) * model.n_links))
    rng = np.random.default_rng(seed)
    states = 40 + 4 * len(TEN) * model.n_links // model.nv
    own = [i for i, _ in model.outward() if model.mimic[i] is None]
    q = np.array([[x for i in own for x in model.joint[i].random(rng)] for _ in range(states)])
    v, a = rng.standard_normal((2, states, model.nv))
    Y = torque_regressor(model, q, v, a, units())
    return Y.reshape(-1, Y.shape[-1])


def _unseen(Y: Array, tolerance: float, places: Array, n_links: int) -> tuple[Array, list[int], tuple[float, float]]:
    """The changes of π that Y does not see, as `_reduced` gives them; Y has the columns of π at these places."""
    lengths = np.linalg.norm(Y, axis=0)
    seen = lengths > tolerance * np.max(lengths, initial=0.0)
    _, values, V = np.linalg.svd(np.linalg.qr(Y[:, seen] / lengths[seen], mode="r"))
    values = values / np.max(values, initial=1e-300)
    zero = values <= tolerance
    N = np.zeros((len(TEN) * n_links, np.sum(zero) + np.sum(~seen)))
    N[np.ix_(places[seen], np.arange(np.sum(zero)))] = V[zero].T
    N[places[~seen], np.sum(zero) :] = np.eye(np.sum(~seen))
    N, gone = _reduced(N, n_links)
    unit = np.ones(len(N))
    unit[places[seen]] = lengths[seen]
    margin = float(np.min(values[~zero], initial=1.0)), float(np.max(values[zero], initial=0.0))
    return _rounded(N, _ROUNDING) * (unit[gone] / unit[:, None]), gone, margin


def _reduced(N: Array, n_links: int) -> tuple[Array, list[int]]:
    """A basis of the space of N's columns that is the unit matrix in some rows, and those rows: the last links' first."""
    N, pivots, left = N.copy(), dict[int, int](), list(range(N.shape[1]))
    least = _ROUNDING * np.max(np.abs(N), initial=1.0)
    for i in reversed(range(n_links)):
        block = slice(len(TEN) * i, len(TEN) * (i + 1))
        while left:
            sizes = np.max(np.abs(N[:, left]), axis=0)
            share = np.where(sizes > least, np.abs(N[block, left]) / np.maximum(sizes, least), 0.0)
            best = np.max(share, axis=1)
            if not np.max(best) > _PIVOT:
                break
            r = next(k for k in _GIVEN_UP if best[k] >= _AS_GOOD * np.max(best))
            c, row = left[int(np.argmax(share[r]))], len(TEN) * i + r
            N[:, c] /= N[row, c]
            others = np.delete(np.arange(N.shape[1]), c)
            N[:, others] -= np.outer(N[:, c], N[row, others])
            left.remove(c)
            pivots[row] = c
    return N[:, list(pivots.values())], list(pivots)


def _rounded(N: Array, least: float) -> Array:
    return np.where(np.abs(N) < least, 0.0, N)
