"""Batches of any shape as launches over one axis.

Neighbouring batch axes are merged where every operand's strides allow. Of those that remain, the longest is the one that a
launch covers, and there is one launch for each index of the others. Operands are not copied to be contiguous: the driver
copies rectangles at most, with neither stride 0 nor negative ones, and launches that read in place move fewer bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Shape = tuple[int, ...]


class Batch(NamedTuple):
    """States of one launch, the stride from one to the next of each operand, and the axes that launches loop over."""

    states: int
    steps: tuple[int, ...]
    outer: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """Of each launch: where each operand begins, in numbers from its pointer."""
        if self.states == 0:
            return
        for index in itertools.product(*(range(n) for n, _ in self.outer)):
            indexed = [(i, steps) for i, (_, steps) in zip(index, self.outer, strict=True)]
            yield tuple(sum(i * steps[k] for i, steps in indexed) for k in range(len(self.steps)))


def batch(shape: Shape, strides: Sequence[Shape]) -> Batch:
    """How batch axes are covered; `strides` has one for each axis, of each operand, 0 where the operand broadcasts."""
    if 0 in shape:
        return Batch(0, (0,) * len(strides))
    merged: list[tuple[int, tuple[int, ...]]] = []
    for k, n in enumerate(shape):
        if n == 1:
            continue
        steps = tuple(s[k] for s in strides)
        if merged and all(a == n * b for a, b in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = merged[-1][0] * n, steps
        else:
            merged.append((n, steps))
    if not merged:
        return Batch(1, (0,) * len(strides))
    states, steps = merged.pop(max(range(len(merged)), key=lambda k: merged[k][0]))
    return Batch(states, steps, tuple(merged))


def broadcast(shape: Shape, own: Shape, strides: Shape) -> Shape:
    """The strides along the batch axes `shape` of an operand whose own batch axes are `own`."""
    found = tuple(0 if n == 1 else s for n, s in zip(own, strides, strict=True))
    return (0,) * (len(shape) - len(own)) + found
