"""Which values the warps of a block load, and when: as if a thread had so many registers and no more.

Where they are full, the value goes whose next use is furthest off (Belady 1966). It is loaded again for that use, from
where it is for other warps anyway, or from a place that is for its own warp alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from qddot.compiler.codegen.llvm.thread_phases import Phases, Work, through_comparisons
from qddot.compiler.ir.program import Program

Loads = dict[int, list[int]]  # by operations: the values that are loaded for them
_OWN_PENALTY = 0.5  # of the distance to its next use, for a value that would have to be stored


def loads(program: Program, work: Work, made: Phases, registers: int) -> list[Loads]:
    """Of each warp."""
    graph, found = program.graph, list[Loads]()
    crossing = {work.nodes[x] for k, own in enumerate(work.operands) for x in own if made.warp[x] != made.warp[k]}
    orders: list[list[tuple[int, int]]] = [[] for _ in range(made.warps)]
    for k, (p, w) in enumerate(zip(made.phase, made.warp, strict=True)):
        orders[w].append((p, k))
    for order in orders:
        nodes = [work.nodes[k] for _, k in sorted(order)]
        needs = [[x for x in dict.fromkeys(through_comparisons(program, n)) if graph.ops[x] != "const"] for n in nodes]
        found.append(_Registers(nodes, needs, crossing, registers).loads())
    return found


class _Registers:
    """Those of a thread of one warp."""

    def __init__(self, nodes: Sequence[int], needs: Sequence[Sequence[int]], crossing: set[int], count: int) -> None:
        self.nodes, self.needs, self.count = nodes, needs, count
        own = set(nodes)
        self.to_store = own - crossing  # if it is to be loaded
        self.uses: dict[int, list[int]] = {}  # of each value, the last one first
        for i in range(len(nodes) - 1, -1, -1):
            for x in needs[i]:
                self.uses.setdefault(x, []).append(i)
        self.held = set[int]()
        self.furthest: list[tuple[float, int, int]] = []  # (priority, next use, value), with values that have gone since

    def loads(self) -> Loads:
        found: Loads = {}
        for i, (n, needed) in enumerate(zip(self.nodes, self.needs, strict=True)):
            missing = [x for x in needed if x not in self.held]
            if missing:
                found[n] = missing
                self.held.update(missing)
            for x in needed:
                self.uses[x].pop()
                self._hold(x, i)
            self.held.add(n)
            self._hold(n, i)
            while len(self.held) > self.count:
                self._drop()
        return found

    def _hold(self, x: int, now: int) -> None:
        """Says when a value is needed next, or that it never is."""
        uses = self.uses.get(x)
        if not uses:
            self.held.discard(x)
            return
        distance = uses[-1] - now
        far = uses[-1] - _OWN_PENALTY * distance if x in self.to_store else uses[-1]
        heapq.heappush(self.furthest, (-far, uses[-1], x))

    def _drop(self) -> None:
        while True:
            _, use, x = heapq.heappop(self.furthest)
            if x in self.held and self.uses[x][-1] == use:
                self.held.remove(x)
                return
