"""Random numbers by their place: Philox 4x64 of J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

A number is a function of the seed of a study, the name of what is drawn, the sample and the place within the sample. So
it depends neither on the chunk that a sample is in, nor on the machine that draws it, nor on what was drawn before. The
numbers are those of `numpy.random.Philox`; here they are computed for many samples at a time.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_ROUNDS = 10
_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_WORD, _HALF = 2**64 - 1, np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def key(seed: int, name: str) -> tuple[int, int]:
    """The key of one drawn quantity of one study."""
    tag = hashlib.sha256(name.encode()).digest()
    return seed & _WORD, int.from_bytes(tag[:8], "little")


def generator(seed: int, name: str, sample: int) -> np.random.Generator:
    """NumPy's generator for one sample, with 2^128 numbers until it meets that of the next."""
    return np.random.Generator(np.random.Philox(key=np.array(key(seed, name), dtype=np.uint64), counter=[0, 0, sample, 0]))


def words(seed: int, name: str, samples: Array, count: int) -> Array:
    """The first `count` words of 64 bits that `generator` gives for each of the samples: (samples, count)."""
    blocks = -(-count // 4)
    place = np.tile(np.arange(1, blocks + 1, dtype=np.uint64), len(samples))  # NumPy counts before it computes
    sample = np.repeat(samples.astype(np.uint64), blocks)
    zero = np.zeros(len(place), dtype=np.uint64)
    return _philox((place, zero, sample, zero.copy()), key(seed, name)).reshape(len(samples), 4 * blocks)[:, :count]


def uniforms(seed: int, name: str, samples: Array, count: int) -> Array:
    """Numbers in the open interval (0, 1), (samples, count): the middles of 2^53 equal parts."""
    return ((words(seed, name, samples, count) >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53


def _philox(counter: tuple[Array, Array, Array, Array], k: tuple[int, int]) -> Array:
    a, b, c, d = counter
    k0, k1 = k
    for _ in range(_ROUNDS):
        high0, low0 = _product(a, _MULTIPLIERS[0])
        high1, low1 = _product(c, _MULTIPLIERS[1])
        a, b, c, d = high1 ^ b ^ np.uint64(k0), low1, high0 ^ d ^ np.uint64(k1), low0
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return np.stack([a, b, c, d], axis=-1)


def _product(x: Array, m: int) -> tuple[Array, Array]:
    """The upper and the lower 64 bits of x m."""
    high, low = np.uint64(m >> 32), np.uint64(m & 0xFFFFFFFF)
    x1, x0 = x >> _32, x & _HALF
    middle = x1 * low + (x0 * low >> _32)
    other = x0 * high + (middle & _HALF)
    return x1 * high + (middle >> _32) + (other >> _32), x * np.uint64(m)
