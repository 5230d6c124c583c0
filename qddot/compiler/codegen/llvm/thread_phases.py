"""A program for several warps that compute the same 32 states together: phases with a barrier of the block between them.

In a phase, a warp computes what needs nothing but its own values and those that any warp had before the phase. Nothing is
computed twice. Phases are filled in turn, with about as many operations for each warp: first those that the longest chain
of operations hangs on, of them those that come first in the program, at home (`thread_clusters`) as long as there are any.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from qddot.compiler.codegen.llvm.thread_arguments import WARP
from qddot.compiler.codegen.llvm.thread_clusters import clusters
from qddot.compiler.ir.ops import COMPARISONS
from qddot.compiler.ir.program import Program

PIECE = 8  # numbers of a row of results that are written together: a sector of memory, or two
PITCH = WARP + 4  # from one number of a piece to the next, in shared memory
PIECE_PLACES = PIECE * PITCH // WARP  # a place has one number of each state of a warp
_COSTS = {"div": 10, "sqrt": 10, "sin": 40, "arctan2": 60, "exp": 25, "log": 25, "tanh": 40, "arctan": 30}  # others: 1
_WRITE_COST = 12  # of a piece
_BARRIER_COST = 30
_TRIED = ((200, 20), (200, 100), (100, 20), (100, 100))  # operations of a phase, levels that are alike


@dataclass(frozen=True)
class Work:
    """The operations of a program by their places in its order: what each needs, who uses it, and results by pieces."""

    nodes: list[int]
    operands: list[list[int]]
    cost: list[int]
    pieces: list[list[int]]

    @cached_property
    def users(self) -> list[list[int]]:
        """Of each operation."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for k, own in enumerate(self.operands):
            for x in own:
                found[x].append(k)
        return found

    @cached_property
    def levels(self) -> list[int]:
        """The cost of the longest chain that begins with each operation."""
        found = list(self.cost)
        for k in range(len(found) - 1, -1, -1):
            found[k] += max((found[x] for x in self.users[k]), default=0)
        return found


def work_of(program: Program, known: Container[int]) -> Work:
    """What there is to do, but for sines and cosines that are `known`. Comparisons are no values: they are repeated."""
    graph = program.graph
    nodes = [n for n in program.body if n not in known and graph.ops[n] not in COMPARISONS]
    place = {n: k for k, n in enumerate(nodes)}
    operands = [sorted({place[x] for x in through_comparisons(program, n) if x in place}) for n in nodes]
    outputs = [place.get(n, -1) for n in program.outputs]
    pieces = [[k for k in outputs[s : s + PIECE] if k >= 0] for s in range(0, len(outputs), PIECE)]
    return Work(nodes, operands, [_COSTS.get(graph.ops[n], 1) for n in nodes], pieces)


def through_comparisons(program: Program, n: int) -> list[int]:
    """The values that an operation needs, those that are compared for it among them."""
    graph, found = program.graph, list[int]()
    stack = list(graph.args[n])
    while stack:
        x = stack.pop()
        if graph.ops[x] in COMPARISONS:
            stack += graph.args[x]
        else:
            found.append(x)
    return found


@dataclass(frozen=True)
class Phases:
    """Who computes what and when; results are written a phase after their piece is complete."""

    warps: int
    phase: list[int]  # of each operation of the work
    warp: list[int]
    longest: list[int]  # of each phase, the cost of the warp that has most to do

    @property
    def count(self) -> int:
        """The last one writes only."""
        return len(self.longest) + 1

    @property
    def cost(self) -> int:
        """Operations of the slowest warp of each phase, and barriers."""
        return sum(self.longest) + _BARRIER_COST * self.count

    def places(self, work: Work) -> int:
        """The most numbers of a state that cross or wait to be written at a time."""
        begun, ended = [0] * (self.count + 1), [0] * (self.count + 1)
        for k, users in enumerate(work.users):
            if others := [self.phase[x] for x in users if self.warp[x] != self.warp[k]]:
                begun[self.phase[k]] += 1
                ended[max(others) + 1] += 1
        for own in work.pieces:
            when = [self.phase[k] for k in own] or [0]
            begun[min(when)] += PIECE_PLACES
            ended[min(max(when) + 2, self.count)] += PIECE_PLACES
        return max(accumulate(a - b for a, b in zip(begun, ended, strict=True)))


def phases(work: Work, warps: int, most_places: int, phase_ops: int = 0, level_step: int = 0) -> Phases:
    """Phases of about so many operations for a warp; levels within a step are alike. 0: what costs least and has room."""
    home = clusters(work.users, work.cost, warps)
    tried = [(phase_ops or n, level_step or step) for n, step in _TRIED]
    made = [Slices(work, home, warps, n, step).filled() for n, step in dict.fromkeys(tried)]
    return min(made, key=lambda x: (max(x.places(work), most_places), x.cost))


class Slices:
    """Phases in the making."""

    def __init__(self, work: Work, home: Sequence[int], warps: int, phase_ops: int, level_step: int) -> None:
        size = len(work.nodes)
        self.work, self.home, self.warps, self.phase_ops = work, home, warps, phase_ops
        self.order = sorted(range(size), key=lambda k: (-(work.levels[k] // level_step), k))
        self.rank = [0] * size
        for i, k in enumerate(self.order):
            self.rank[k] = i
        self.missing = [len(x) for x in work.operands]
        self.phase, self.warp = [-1] * size, [-1] * size
        self.ready: list[list[int]] = [[] for _ in range(warps)]  # by rank, at home, for any warp
        self.now = 0
        self.open = [len(set(x)) for x in work.pieces]
        self.pieces_of: dict[int, set[int]] = {}
        for p, own in enumerate(work.pieces):
            for k in own:
                self.pieces_of.setdefault(k, set()).add(p)

    def filled(self) -> Phases:
        """All phases."""
        for k, n in enumerate(self.missing):
            if n == 0:
                self._offer(k)
        longest, left, complete = list[int](), len(self.missing), 0
        while left:
            load, done, complete = self._slice(complete)
            longest.append(max(load))
            left -= done
            self.now += 1
        return Phases(self.warps, self.phase, self.warp, longest or [0])

    def _offer(self, k: int) -> None:
        heapq.heappush(self.ready[self.home[k]], self.rank[k])

    def _slice(self, pieces: int) -> tuple[list[int], int, int]:
        """One phase, which writes so many pieces first: the load of each warp, operations, pieces that are complete."""
        load = [pieces * _WRITE_COST // self.warps] * self.warps
        own: list[list[int]] = [[] for _ in load]  # operations that only this warp can do in this phase
        seen: list[set[int]] = [set() for _ in load]  # values of others
        later, done, complete = list[int](), 0, 0
        turn = [(x, w) for w, x in enumerate(load)]
        heapq.heapify(turn)
        while turn:
            _, w = heapq.heappop(turn)
            k = self._next(w, own[w], load)
            if k < 0:
                continue
            self.phase[k], self.warp[k] = self.now, w
            load[w] += self._cost(k, w, seen[w])
            done += 1
            complete += self._finished_pieces(k)
            for x in self.work.users[k]:
                self.missing[x] -= 1
                if self.missing[x] == 0:
                    makers = {self.warp[y] for y in self.work.operands[x] if self.phase[y] == self.now}
                    if len(makers) == 1:
                        heapq.heappush(own[w], self.rank[x])
                    else:
                        later.append(x)
            if load[w] < self.phase_ops:
                heapq.heappush(turn, (load[w], w))
        for k in [*later, *(self.order[r] for ranks in own for r in ranks)]:
            self._offer(k)
        return load, done, complete

    def _next(self, w: int, own: list[int], load: list[int]) -> int:
        """What a warp does next, or -1: its own, what is ready at its home, or what another home will not come to."""
        ready = self.ready[w]
        if own and (not ready or own[0] < ready[0]):
            return self.order[heapq.heappop(own)]
        if not ready:
            ready = max(zip(self.ready, load, strict=True), key=lambda x: len(x[0]) + x[1])[0]
            v = self.ready.index(ready)
            if not ready or len(ready) + load[v] <= self.phase_ops:
                return -1
        return self.order[heapq.heappop(ready)]

    def _cost(self, k: int, w: int, seen: set[int]) -> int:
        """Of an operation, with the values that it has to load, and its own if another warp will need it."""
        loads = {x for x in self.work.operands[k] if self.warp[x] != w} - seen
        seen |= loads
        stored = any(self.home[x] != w for x in self.work.users[k])
        return self.work.cost[k] + len(loads) + stored + len(self.pieces_of.get(k, ()))

    def _finished_pieces(self, k: int) -> int:
        found = 0
        for p in self.pieces_of.get(k, ()):
            self.open[p] -= 1
            found += self.open[p] == 0
        return found
