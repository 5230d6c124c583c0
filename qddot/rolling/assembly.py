"""The record of an algorithm's loops into sweeps and segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from qddot.axes import Axes, part
from qddot.compiler.expr import Graph
from qddot.compiler.program import straight_line
from qddot.compiler.rolled import Place, Rolled, Segment, Sweep
from qddot.errors import NotRollableError
from qddot.model import Model
from qddot.rolling.record import OneOfEach, Recorder

_FREE = frozenset({"const", "input", "column"})  # at hand everywhere
# areas of memory; all rows have the last in common
_FOR_GOOD, _OUTWARD, _INWARD, _COMMON = range(4)


@dataclass
class _Turn:
    """Loops that can be one, because they go the same way and what one leaves the next does not miss."""

    backward: bool
    loops: list[int]
    own_set: set[int]
    own_read: set[int]
    parent_set: set[int]
    parent_read: set[int]

    def takes(self, other: _Turn) -> bool:
        if self.backward != other.backward or self.own_set & other.own_read:
            return False
        if self.backward:
            return not other.parent_set & (self.own_read | self.parent_read | self.parent_set)
        return not (self.parent_set or other.parent_set)

    def add(self, other: _Turn) -> None:
        self.loops += other.loops
        for mine, others in zip(self.sets, other.sets, strict=True):
            mine |= others

    @property
    def sets(self) -> tuple[set[int], ...]:
        return self.own_set, self.own_read, self.parent_set, self.parent_read


class Assembly:
    """The segments of all loops, from the last to the first: what a later one needs, an earlier one keeps."""

    def __init__(
        self, model: Model, small: OneOfEach, recorder: Recorder, rows: Sequence[int], inputs: Sequence[Axes], output: Axes
    ) -> None:
        self.model, self.small, self.recorder, self.graph = model, small, recorder, recorder.graph
        self.rows, self.links = rows, range(1, len(small.parent))
        self.n_inputs, self.n_outputs = sum(prod(axes(model)) for axes in inputs), prod(output(model))
        self.starts: dict[tuple[str, int], int] = {}  # what stands where in inputs and outputs: its number among the tables
        self.input_place: list[tuple[int, Place]] = []
        base = 0
        for axes in inputs:
            self.input_place += self._places(axes, "input", base)
            base += prod(axes(model))
        self.output_place = self._places(output, "output", 0)
        self.clears = bool(output.of_links) and len(rows) < len(model.parent)
        self.turns = self._turns()
        self.owner: dict[int, tuple[int, int]] = {}
        for t, turn in enumerate(self.turns):
            for k in turn.loops:
                for i, (begin, end) in recorder.loops[k].span.items():
                    self.owner.update(dict.fromkeys(range(begin, end), (t, i)))
        self.slots = [0, 0, 0, 0]
        self.cell: dict[int, tuple[int, int]] = {}  # area and first slot of a quantity
        for index in sorted(recorder.memory.layout):
            area = self._area(index)
            self.cell[index] = area, self.slots[area]
            self.slots[area] += recorder.memory.layout[index].width
        self.kept: list[dict[int, int]] = [{} for _ in small.parent]  # node: slot, of each link
        self.columns: list[dict[int, int]] = [{} for _ in small.parent]  # node: place among its constants
        self.common: dict[int, int] = {}  # node: slot, of what one link or the world computes and others use
        self.out: dict[tuple[int, int], list[tuple[int, Place]]] = {}

    def _turns(self) -> list[_Turn]:
        turns: list[_Turn] = []
        for k, loop in enumerate(self.recorder.loops):
            turn = _Turn(loop.backward, [k], set(), set(), set(), set())
            for stores in loop.stores.values():
                for where, index in stores:
                    (turn.own_set if where == "own" else turn.parent_set).add(index)
            for begin, end in loop.span.values():
                for node in range(begin, end):
                    if self.graph.ops[node] == "cell":
                        where, index, _ = self.graph.args[node]
                        (turn.own_read if where == "own" else turn.parent_read).add(index)
            if turns and k not in self.recorder.breaks and turns[-1].takes(turn):
                turns[-1].add(turn)
            else:
                turns.append(turn)
        return turns

    def _area(self, index: int) -> int:
        """Where a quantity is kept: for good, or only while links outward or inward of one another take their turns."""
        if index in self.recorder.totals:
            return _COMMON
        using = [t for t in self.turns if any(index in s for s in t.sets)]
        if len(using) == 1:
            turn = using[0]
            if not turn.backward and index not in turn.own_read | turn.parent_set:
                return _OUTWARD
            if turn.backward and index in self.recorder.memory.zero:
                return _INWARD
        return _FOR_GOOD

    def _places(self, axes: Axes, where: str, base: int) -> list[tuple[int, Place]]:
        """For each number of an array of the small model its link, and where it stands for a real one; 0 for the world."""
        shape, pitch = axes(self.small), [axes.pitch(self.model, k) for k in range(len(axes))]
        if len(axes.of_links) > 1:
            raise NotRollableError("its result has rows and columns for all joints")
        owner = {}
        for k in axes.of_links:
            name = str(axes[k])
            table = self.starts.setdefault((name, pitch[k]), 1 + len(self.starts))
            owner = {n: (i, n - r.start, table) for i in self.links for r in (part(self.small, name, i),) for n in r}
        places = []
        for index in np.ndindex(*shape):
            number, link, table = base, 0, 0
            for k, n in enumerate(index):
                if k in axes.of_links:
                    link, n, table = owner[n]
                number += n * pitch[k]
            places.append((link, Place(where, number, table)))
        return places

    def rolled(self, result: Any) -> Rolled:
        end = len(self.turns)
        for node, (i, place) in zip((self.graph.node_of(x) for x in result.reshape(-1)), self.output_place, strict=True):
            t, owner = (end, i) if i == 0 or self.graph.ops[node] in _FREE else self.owner.get(node, (end, i))
            if owner != i:
                raise NotRollableError("a link's result was computed for another one")
            self.out.setdefault((t, i), []).append((node, place))
        last = [self._segment(end, 0, self.out[end, 0])] if (end, 0) in self.out else []
        sweeps = []
        if any((end, i) in self.out for i in self.links):
            if self.turns and not self.turns[-1].backward and len(self.recorder.loops) not in self.recorder.breaks:
                for i in self.links:  # what is left to do is done when a link has its last turn
                    self.out.setdefault((end - 1, i), []).extend(self.out.pop((end, i), []))
            else:
                sweeps.append(Sweep(False, tuple(self._segment(end, i, self.out.get((end, i), [])) for i in self.links)))
        for t in reversed(range(len(self.turns))):
            segments = tuple(self._segment(t, i, self._roots(t, i)) for i in self.links)
            if any(s.targets for s in segments):
                sweeps.append(Sweep(self.turns[t].backward, segments))
        first = self._segment(-1, 0, [x for index, nodes in self.recorder.first.items() for x in self._first(index, nodes)])
        row = {i: r for r, i in enumerate(self.rows)}
        parent = [0, *(row[self.model.parent[i]] for i in self.rows[1:])]
        kind, constants = self._kinds(row)
        return Rolled(
            names=[self.model.link_names[i] for i in self.rows],
            n_inputs=self.n_inputs,
            n_outputs=self.n_outputs,
            slots=[
                self.slots[_FOR_GOOD] + max(len(kept) for kept in self.kept),
                *self.slots[_OUTWARD:_COMMON],
                self.slots[_COMMON] + len(self.common),
            ],
            shelf=[range(len(parent)), shelves(parent), shelves(parent), [0] * len(parent)],
            kind=kind,
            parent=parent,
            starts=self._starts(),
            constants=constants,
            steps=(first, *reversed(sweeps), *last),
            clears=self.clears,
        )

    def _kinds(self, row: dict[int, int]) -> tuple[list[int], list[tuple[float, ...]]]:
        """The kind and the constants of each row."""
        kind = [0] * len(row)
        constants: list[tuple[float, ...]] = [()] * len(row)
        for k, members in enumerate(self.recorder.kinds):
            columns = np.array([self.graph.columns[self.graph.args[n][0]] for n in self.columns[k + 1]]).T
            for r, i in enumerate(members.links):
                kind[row[i]] = k
                constants[row[i]] = tuple(columns[r].tolist()) if len(columns) else ()
        return kind, constants

    def _starts(self) -> list[list[int]]:
        """Tables of where a row's numbers begin; the first is for what stands in one place."""
        tables = [[0] * len(self.rows)]
        for name, pitch in self.starts:
            tables.append([0, *(pitch * part(self.model, name, i).start for i in self.rows[1:])])
        return tables

    def _first(self, index: int, nodes: list[int]) -> list[tuple[int, Place]]:
        """What the world has of a quantity; its children bring it themselves where it begins with nothing."""
        unused = index not in self.cell or index in self.recorder.memory.zero
        return [] if unused else self._cells(index, "own", nodes)

    def _cells(self, index: int, where: str, nodes: list[int]) -> list[tuple[int, Place]]:
        """A quantity's nodes and their slots, each slot once."""
        places = self.recorder.memory.layout[index].place
        slots = dict(zip(places, nodes, strict=True))
        area, first = self.cell[index]
        return [(node, Place(where, first + p, area)) for p, node in slots.items()]

    def _roots(self, t: int, i: int) -> list[tuple[int, Place]]:
        """What a link's turn leaves behind."""
        memory = self.recorder.memory
        stores: dict[tuple[str, int], list[int]] = {}
        for k in self.turns[t].loops:
            stores.update(self.recorder.loops[k].stores.get(i, {}))
        if self.recorder.kinds[i - 1].is_last:  # the first to come has to bring something
            for index in self.turns[t].parent_set & memory.zero:
                nothing = [self.graph.const(0.0)] * len(memory.layout[index].place)
                stores.setdefault(("parent", index), nothing)
        roots = [cell for (where, index), nodes in stores.items() for cell in self._cells(index, where, nodes)]
        roots += [(n, Place("own", slot)) for n, slot in self.kept[i].items() if self.owner[n] == (t, i)]
        roots += [(n, Place("own", slot, _COMMON)) for n, slot in self.common.items() if self.owner[n] == (t, i)]
        return roots + self.out.get((t, i), [])

    def _segment(self, k: int, i: int, roots: list[tuple[int, Place]]) -> Segment:
        """The straight-line code of loop k for link i that computes the roots."""
        ops, args = self.graph.ops, self.graph.args
        sources: dict[int, Place] = {}
        here: set[int] = set()
        waiting = [node for node, _ in roots]
        while waiting:
            node = waiting.pop()
            if node in sources or node in here or ops[node] == "const":
                continue
            place = self._source(node, k, i)
            if place is not None:
                sources[node] = place
            else:
                here.add(node)
                waiting.extend(args[node])
        graph, moved = Graph(), {}
        for j, node in enumerate(sorted(sources)):
            moved[node] = graph.leaf("input", j)
        for node in sorted(here):
            moved[node] = graph.leaf(ops[node], *(self._moved(x, moved, graph) for x in args[node]))
        outputs = [self._moved(node, moved, graph) for node, _ in roots]
        program = straight_line(graph, outputs, len(sources))
        return Segment(program, tuple(sources[n] for n in sorted(sources)), tuple(place for _, place in roots))

    def _moved(self, node: int, moved: dict[int, int], graph: Graph) -> int:
        return graph.const(self.graph.args[node][0]) if self.graph.ops[node] == "const" else moved[node]

    def _source(self, node: int, k: int, i: int) -> Place | None:
        """Where a value comes from that this segment does not compute."""
        op, args = self.graph.ops[node], self.graph.args[node]
        if op == "column":
            return Place("constant", self.columns[i].setdefault(node, len(self.columns[i])))
        if op == "input":
            link, place = self.input_place[args[0]]
            if link != i:
                raise NotRollableError("a link uses what belongs to another one")
            return place
        owner = self.owner.get(node)
        if op == "cell" and owner in (None, (k, i)):
            area, first = self.cell[args[1]]
            return Place(args[0], first + args[2], area)
        if owner in (None, (k, i)):
            return None
        assert owner is not None
        time, link = owner
        alone = len(self.recorder.kinds[link - 1].links) == 1
        if time >= k or not (link == i or alone):
            raise NotRollableError("a link uses what was computed for another one")
        if link == i:
            return Place("own", self.kept[i].setdefault(node, self.slots[_FOR_GOOD] + len(self.kept[i])))
        return Place("own", self.common.setdefault(node, self.slots[_COMMON] + len(self.common)), _COMMON)


def shelves(parent: Sequence[int]) -> list[int]:
    """A shelf for each link that it needs from its own turn to its last child's; in a loop inward, the other way round."""
    until = list(range(len(parent)))  # the last link that needs it
    for i in range(1, len(parent)):
        until[parent[i]] = i
    ending: dict[int, list[int]] = {}
    shelf, free = [0] * len(parent), list[int]()
    used = 0
    for i in range(len(parent)):
        if free:
            shelf[i] = free.pop()
        else:
            shelf[i], used = used, used + 1
        ending.setdefault(until[i], []).append(shelf[i])
        free += ending.pop(i, [])
    return shelf
