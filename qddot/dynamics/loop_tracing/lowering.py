"""The record of an algorithm's loops into sweeps and segments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from qddot.compiler.ir.expr import Graph
from qddot.compiler.ir.loop_program import AncestorWalk, Columns, Place, Rolled, Segment, Step, Sweep
from qddot.compiler.ir.program import straight_line
from qddot.dynamics.loop_tracing.loop_fusion import Turn, turns_of
from qddot.dynamics.loop_tracing.recorder import Key, Recorder, axis_of_columns
from qddot.dynamics.loop_tracing.representative_model import OneOfEach
from qddot.errors import NotRollableError
from qddot.mechanism.array_axes import Axes, part
from qddot.mechanism.model import Model

_FREE = frozenset({"const", "input", "column", "unit"})  # available everywhere
# areas of memory; all rows have the last in common
_FOR_GOOD, _OUTWARD, _INWARD, _COMMON = range(4)


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
        self.output = output
        self.clears = bool(output.of_links) and len(rows) < len(model.parent)
        self.turns = turns_of(recorder)
        self.owner: dict[int, tuple[int, int]] = {}
        for t, turn in enumerate(self.turns):
            for k in turn.loops:
                # a column's turn has those of other links in it, which end first
                for key, (begin, end) in reversed(recorder.loops[k].span.items()):
                    self.owner.update(dict.fromkeys(range(begin, end), (t, key if isinstance(key, int) else key[0])))
        self.slots = [0, 0, 0, 0]
        self.cell: dict[int, tuple[int, int]] = {}  # area and first slot of a quantity
        for index in sorted(recorder.memory.layout):
            area = self._area(index)
            self.cell[index] = area, self.slots[area]
            self.slots[area] += recorder.memory.layout[index].width
        self.kept: list[dict[int, int]] = [{} for _ in small.parent]  # node: slot, of each link
        self.columns: list[dict[int, int]] = [{} for _ in small.parent]  # node: place among its constants
        self.matrix: dict[int, int] = {}  # where in the outputs a matrix begins
        self.common: dict[int, int] = {}  # node: slot, of what one link or the world computes and others use
        self.out: dict[tuple[int, int], list[tuple[int, Place]]] = {}

    def _area(self, index: int) -> int:
        """Where a quantity is kept: for good, or only while links outward or inward of one another take their turns."""
        if index in self.recorder.totals:
            return _COMMON
        using = [t for t in self.turns if any(index in s for s in t.sets)]
        if len(using) > 1 and any(t.climbs and index in t.parent_set for t in using):
            raise NotRollableError("what goes from a column to the base is used in another loop")
        if len(using) == 1:
            turn = using[0]
            if turn.climbs and index in turn.parent_set:
                return _INWARD
            if not turn.backward and index not in turn.own_read | turn.parent_set:
                return _OUTWARD
            if turn.backward and index in self.recorder.memory.zero:
                return _INWARD
        return _FOR_GOOD

    def _places(self, axes: Axes, where: str, base: int) -> list[tuple[int, Place]]:
        """For each number of an array of the small model its link, and where it stands for a real one; 0 for the world."""
        shape, pitch = axes(self.small), [axes.pitch(self.model, k) for k in range(len(axes))]
        if len(axes.of_links) > 1:
            raise NotRollableError(
                "it computes rows and columns for all joints without going through them column by column"
            )
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
        last = self._results([self.graph.node_of(x) for x in result.reshape(-1)], result.shape)
        steps: list[Step] = [self._segment(end, 0, last)] if last else []
        if any((end, i) in self.out for i in self.links):
            if self.turns and self._can_be_finished(self.turns[-1]):
                for i in self.links:  # what is left to do is done when a link has its last turn
                    self.out.setdefault((end - 1, i), []).extend(self.out.pop((end, i), []))
            else:
                steps.append(Sweep(False, tuple(self._segment(end, i, self.out.get((end, i), [])) for i in self.links)))
        for group, turns in groupby(reversed(range(end)), lambda t: self.turns[t].group):
            done: list[Step] = [step for step in map(self._step, turns) if step is not None]
            if group:
                count = Axes(self.recorder.groups[group - 1])(self.model)[0]
                done = [Columns(count, (self._first_of(group), *reversed(done)))]
            steps += done
        first = self._first_of(0)
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
            frame=[range(len(parent)), frames(parent), frames(parent), [0] * len(parent)],
            kind=kind,
            parent=parent,
            starts=self._starts(),
            constants=constants,
            steps=(first, *reversed(steps)),
            clears=self.clears,
        )

    def _step(self, t: int) -> Sweep | AncestorWalk | None:
        """All links' turns of a kind."""
        if self.turns[t].climbs:
            return self._climb(t)
        segments = tuple(self._segment(t, i, self._roots(t, i)) for i in self.links)
        return Sweep(self.turns[t].backward, segments) if any(s.targets for s in segments) else None

    def _can_be_finished(self, turn: Turn) -> bool:
        """Whether a link may go on when its last turn is over: nobody waits for it, and it waits for no sum."""
        return not (turn.backward or turn.climbs or len(self.recorder.loops) in self.recorder.breaks)

    def _results(self, nodes: list[int], shape: tuple[int, ...]) -> list[tuple[int, Place]]:
        """Finds out which turn writes what of the result; gives what is left for the world."""
        end = len(self.turns)
        if nodes and all(self.graph.ops[n] == "matrix" for n in nodes):
            rows, columns = shape[-2:]
            for k, n in enumerate(nodes[:: rows * columns]):
                matrix = self.graph.args[n][0]
                self.matrix[matrix] = k * prod(self.output(self.model)[-2:])
                if matrix in self.recorder.results:
                    self._column_of(matrix)
            return []
        last = []
        for node, (i, place) in zip(nodes, self._places(self.output, "output", 0), strict=True):
            t, owner = (end, i) if i == 0 or self.graph.ops[node] in _FREE else self.owner.get(node, (end, i))
            if owner != i:
                raise NotRollableError("a link's result was computed for another one")
            if i == 0:
                last.append((node, place))
            else:
                self.out.setdefault((t, i), []).append((node, place))
        return last

    def _column_of(self, matrix: int) -> None:
        """Finds out which turn writes what of a matrix by columns."""
        group, nodes = self.recorder.results[matrix]
        last = max(t for t, turn in enumerate(self.turns) if turn.group == group)
        width = self.output(self.model)[-1]
        table = self.starts.setdefault(("v", width), 1 + len(self.starts))
        for i in self.links:
            for k, n in enumerate(part(self.small, "v", i)):
                free = self.graph.ops[nodes[n]] in _FREE
                t, owner = (last, i) if free else self.owner.get(nodes[n], (last, i))
                if owner != i:
                    raise NotRollableError("a link's result was computed for another one")
                place = Place("output", self.matrix[matrix] + k * width, table, 1)
                self.out.setdefault((t, i), []).append((nodes[n], place))

    def _climb(self, t: int) -> AncestorWalk:
        """The loop over columns, and from each of them through the links that carry it."""
        (loop,) = (self.recorder.loops[k] for k in self.turns[t].loops)
        starts = [key for key in loop.span if not isinstance(key, int)]
        a_link = {self.recorder.matrices[w.matrix] for written in loop.written.values() for w in written}
        if len(a_link) != 1:
            raise NotRollableError("it writes matrices of several kinds in one loop over columns")
        axis = axis_of_columns(*a_link)
        rows, kinds, columns = [], [], []
        kind_of = {i: k for k, members in enumerate(self.recorder.kinds) for i in members.links}
        for r, i in enumerate(self.rows[1:], 1):
            for k, number in enumerate(part(self.model, axis, i)):
                rows.append(r)
                kinds.append(starts.index((kind_of[i] + 1, k)))
                columns.append(number)
        is_chain = all(self.model.parent[i] == i - 1 for i in self.rows[1:])
        in_rows = {w.matrix for written in loop.written.values() for w in written if w.in_row}
        self.clears = self.clears or not is_chain or len(in_rows) < len(self.recorder.matrices)
        return AncestorWalk(
            rows,
            kinds,
            columns,
            tuple(self._segment(t, key[0], self._passed_on(t, key)) for key in starts if not isinstance(key, int)),
            tuple(self._segment(t, i, self._passed_on(t, i)) for i in self.links),
        )

    def _passed_on(self, t: int, key: Key) -> list[tuple[int, Place]]:
        """What a link's turn in a climb leaves behind: in its parent's memory, and in matrices."""
        (loop,) = (self.recorder.loops[k] for k in self.turns[t].loops)
        stores = loop.stores.get(key, {})
        roots = [cell for (where, index), nodes in stores.items() for cell in self._cells(index, where, nodes)]
        width = self.output(self.model)[-1]
        for matrix, in_row, nodes in loop.written.get(key, []):
            if matrix not in self.matrix:
                continue
            along, across = (1, width) if in_row else (width, 1)
            table = self.starts.setdefault(("v", along), 1 + len(self.starts))
            for r, node in enumerate(nodes):
                roots.append((node, Place("output", self.matrix[matrix] + r * along, table, across)))
        # of a matrix of one number rows and columns are the same place, but then nobody carries anybody
        if width > 1 and len({place for _, place in roots}) < len(roots):
            raise NotRollableError("it writes one number of a matrix twice")
        return roots

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

    def _first_of(self, group: int) -> Segment:
        """What the world has before the first loop, or before the first of a column."""
        found = [(index, nodes) for index, (own, nodes) in self.recorder.first.items() if own == group]
        return self._segment(-1, 0, [x for index, nodes in found for x in self._first(index, nodes)])

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
        if op == "matrix":
            raise NotRollableError("it goes on with a matrix, whose numbers are results by then")
        if op == "column" and i == 0:
            raise NotRollableError("it uses a link's number outside of loops")
        if op == "column":
            return Place("constant", self.columns[i].setdefault(node, len(self.columns[i])))
        if op == "unit":
            axis = self.recorder.groups[args[1] - 1]
            found = [j for j in self.links if args[0] in part(self.small, axis, j)]
            table = self.starts.setdefault((axis, 1), 1 + len(self.starts))
            if found != [i]:
                raise NotRollableError("a link uses what belongs to another one")
            return Place("unit", args[0] - part(self.small, axis, i).start, table)
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


def frames(parent: Sequence[int]) -> list[int]:
    """A frame for each link, live from its own visit to its last child's; in a loop inward, the other way round."""
    until = list(range(len(parent)))  # the last link that needs it
    for i in range(1, len(parent)):
        until[parent[i]] = i
    ending: dict[int, list[int]] = {}
    frame, free = [0] * len(parent), list[int]()
    used = 0
    for i in range(len(parent)):
        if free:
            frame[i] = free.pop()
        else:
            frame[i], used = used, used + 1
        ending.setdefault(until[i], []).append(frame[i])
        free += ending.pop(i, [])
    return frame
