"""Points in the unit cube by their number: random, Latin hypercube, Sobol, and Saltelli's for sensitivity.

Every design gives the points `first` to `first + count` without those before them, so that any worker can make its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.errors import InputError
from qddot.study import philox

Array = NDArray[Any]


class Axes(NamedTuple):
    """What a design is made of: the seed, the number of points, and the number of axes."""

    seed: int
    points: int
    number: int


def random(axes: Axes, numbers: Array) -> Array:
    """Independent points."""
    return philox.uniforms(axes.seed, "design", numbers, axes.number)


def latin(axes: Axes, numbers: Array) -> Array:
    """A Latin hypercube: on every axis, each of as many equal parts as there are points holds one point."""
    parts = np.stack([_shuffled(axes, k, numbers) for k in range(axes.number)], axis=-1)
    return (parts + philox.uniforms(axes.seed, "design", numbers, axes.number)) / axes.points


def _shuffled(axes: Axes, axis: int, numbers: Array) -> Array:
    """Each number's place in a random order of all: a Feistel network of four rounds, walked until it is inside.

    It takes no memory, where a list of all places would not fit for 10⁹ points.
    """
    half = max(1, -(-max(axes.points - 1, 1).bit_length() // 2))
    mask, width = np.uint64(2**half - 1), np.uint64(half)
    rounds = philox.words(axes.seed, f"order {axis}", np.arange(1), 4)[0]
    out = numbers.astype(np.uint64)
    outside = np.ones(len(out), dtype=bool)
    while outside.any():
        left, right = out[outside] >> width, out[outside] & mask
        for k in rounds:
            left, right = right, left ^ (_mixed(right ^ k) & mask)
        out[outside] = left << width | right
        outside[outside] = out[outside] >= axes.points
    return out.astype(float)


def _mixed(x: Array) -> Array:
    """The finaliser of SplitMix64: every bit depends on every bit."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def sobol(axes: Axes, numbers: Array) -> Array:
    """Sobol's sequence with a random digital shift: it fills the cube evenly, best with a power of two of points."""
    if axes.number > len(_DIRECTIONS) + 1:
        raise InputError(
            f"sampling='sobol' is for {len(_DIRECTIONS) + 1} drawn numbers a sample at most, and there are {axes.number}; "
            f"take 'latin' or 'random'"
        )
    shift = philox.words(axes.seed, "shift", np.arange(1), axes.number)[0] >> np.uint64(64 - _BITS)
    return ((sobol_digits(axes.number, numbers) ^ shift).astype(float) + 0.5) * 2.0**-_BITS


def sobol_digits(count: int, numbers: Array) -> Array:
    """Sobol's sequence without a shift, in units of 2^-48."""
    gray = numbers.astype(np.uint64)
    gray ^= gray >> np.uint64(1)
    out = np.zeros((len(numbers), count), dtype=np.uint64)
    for axis in range(count):
        for bit, v in enumerate(_directions(axis)):
            out[:, axis] ^= (gray >> np.uint64(bit) & np.uint64(1)) * np.uint64(v)
    return out


def _directions(axis: int) -> list[int]:
    """The direction numbers of an axis, by the recurrence of its primitive polynomial."""
    if axis == 0:
        return [1 << (_BITS - 1 - k) for k in range(_BITS)]
    coefficients, first = _DIRECTIONS[axis - 1]
    m, s = list(first), len(first)
    while len(m) < _BITS:
        k = len(m)
        new = m[k - s] ^ m[k - s] << s
        for j in range(1, s):
            if coefficients >> (s - 1 - j) & 1:
                new ^= m[k - j] << j
        m.append(new)
    return [x << (_BITS - 1 - k) for k, x in enumerate(m)]


def saltelli(axes: Axes, numbers: Array) -> Array:
    """Rows A, B, and A with one axis of B, for indices of sensitivity: d + 2 points of every base point."""
    base, which = np.divmod(numbers, axes.number + 2)
    make = sobol if 2 * axes.number <= len(_DIRECTIONS) + 1 else random
    both = make(Axes(axes.seed, axes.points // (axes.number + 2), 2 * axes.number), base)
    a, b = both[:, : axes.number], both[:, axes.number :]
    of_b = (which[:, None] == np.arange(axes.number) + 2) | (which == 1)[:, None]
    return np.where(of_b, b, a)


DESIGNS: dict[str, Callable[[Axes, Array], Array]] = {
    "random": random,
    "latin": latin,
    "sobol": sobol,
    "saltelli": saltelli,
}

_BITS = 48  # points of the sequence that differ: 2.8e14
# S. Joe and F. Y. Kuo, "Constructing Sobol sequences with better two-dimensional projections", SIAM J. Sci. Comput. 30
# (2008), file new-joe-kuo-6: the coefficients of each primitive polynomial and its first direction numbers.
_DIRECTIONS = (
    (0, (1,)),
    (1, (1, 3)),
    (1, (1, 3, 1)),
    (2, (1, 1, 1)),
    (1, (1, 1, 3, 3)),
    (4, (1, 3, 5, 13)),
    (2, (1, 1, 5, 5, 17)),
    (4, (1, 1, 5, 5, 5)),
    (7, (1, 1, 7, 11, 19)),
    (11, (1, 1, 5, 1, 1)),
    (13, (1, 1, 1, 3, 11)),
    (14, (1, 3, 5, 5, 31)),
    (1, (1, 3, 3, 9, 7, 49)),
    (13, (1, 1, 1, 15, 21, 21)),
    (16, (1, 3, 1, 13, 27, 49)),
    (19, (1, 1, 1, 15, 7, 5)),
    (22, (1, 3, 1, 15, 13, 25)),
    (25, (1, 1, 5, 5, 19, 61)),
    (1, (1, 3, 7, 11, 23, 15, 103)),
    (4, (1, 3, 7, 13, 13, 15, 69)),
)
