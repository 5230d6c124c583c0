"""In which order the links of a tree are joined two by two, so that it is one assembly after O(log n) steps.

Miller & Reif 1985, for the divide and conquer of Featherstone & Orin 2000, section 3.5 (see `parallel`). A round adds the
branches that carry nothing to what carries them (rake), then joins every other pair along the chains that are left
(compress). Either takes away a good part of the tree. An assembly is named by its first link.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Step(NamedTuple):
    """Assemblies `inner`, named by their first link, and those that are joined to them: one each, or several if raked."""

    inner: Array
    outer: Array
    owner: Array  # which of the inner ones an outer one belongs to
    is_rake: bool  # the outer ones end here: nothing hangs on them any more


class Plan(NamedTuple):
    """The steps inward; `roots` are the assemblies that are left, on the world."""

    steps: tuple[Step, ...]
    roots: Array

    @property
    def depth(self) -> int:
        """Steps one after another: velocities, then assemblies, inward and outward."""
        return 4 * len(self.steps) + 2

    @property
    def joins(self) -> int:
        return sum(len(step.inner) for step in self.steps)


@lru_cache(maxsize=64)
def schedule(parent: tuple[int, ...], heavy: tuple[bool, ...]) -> Plan:
    """Who is joined when. A link that is not `heavy` cannot yield before it has joined one that it carries."""
    children: list[list[int]] = [[] for _ in parent]  # assemblies, by their first links
    for i in range(1, len(parent)):
        children[parent[i]].append(i)
    carries = children[:]  # carries[i]: on the last link of the assembly that begins with link i
    ready, live, steps = list(heavy), list(range(1, len(parent))), list[Step]()
    while any(carries[i] for i in live):
        rakes = {i: [k for k in carries[i] if not carries[k]] for i in live if len(carries[i]) > 1}
        rakes = {i: leaves for i, leaves in rakes.items() if leaves}
        if rakes:
            for i in rakes:
                carries[i], ready[i] = [k for k in carries[i] if carries[k]], True
            steps.append(_step(list(rakes.items()), True))
        pairs = _pairs(live, carries, ready)
        for i, k in pairs:
            carries[i], ready[i] = carries[k], True
        if pairs:
            steps.append(_step([(i, [k]) for i, k in pairs], False))
        gone = {k for leaves in rakes.values() for k in leaves} | {k for _, k in pairs}
        live = [i for i in live if i not in gone]
    return Plan(tuple(steps), np.array(live, dtype=int))


def _pairs(live: list[int], carries: list[list[int]], ready: list[bool]) -> list[tuple[int, int]]:
    """Every other joint along the chains, from the base outward."""
    pairs, taken = [], set()
    for i in live:
        if i not in taken and len(carries[i]) == 1:
            k = carries[i][0]
            if ready[k] or not carries[k]:
                pairs.append((i, k))
                taken |= {i, k}
    return pairs


def _step(joined: list[tuple[int, list[int]]], is_rake: bool) -> Step:
    outer = [k for _, ks in joined for k in ks]
    owner = [n for n, (_, ks) in enumerate(joined) for _ in ks]
    inner, ends, owners = (np.array(x, dtype=int) for x in ([i for i, _ in joined], outer, owner))
    return Step(inner, ends, owners, is_rake)
