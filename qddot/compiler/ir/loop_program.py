"""Programs that keep their loops: code whose size does not grow with the number of links.

A loop program works on rows, one for each link. Row 0 is the parent of the first; every other row has a parent of a smaller
number, a kind, constants of its own, and indices where its numbers start in the inputs and outputs. Rows have memory: a
frame in each of several arenas; frames with disjoint live ranges share storage. A sweep visits the rows from 1 on, forward
or backward, and runs the segment of the row's kind: straight-line code whose inputs come from `sources` and whose outputs
go to `targets`; everything is read before anything is written. Before, between and after sweeps there may be segments of
row 0. An ancestor walk runs for each column of a matrix: a segment for the row of the column, then one for its parent, and
so on up to row 0, which has none. Steps may also be repeated for each column.

| place           | meaning                                                                  |
|-----------------|--------------------------------------------------------------------------|
| input           | inputs, at `number` + starts[table][row]                                 |
| output          | outputs, the same, + `pitch` times the number of the column; or added    |
| unit            | 1 if `number` + starts[table][row] is the number of the column, else 0   |
| constant        | a constant of the row                                                    |
| own, parent     | slot `number` of the row's frame, or of its parent's, in arena `table`   |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from qddot.compiler.ir import interpreter
from qddot.compiler.ir.fuse import fused as fused_program
from qddot.compiler.ir.program import Program


class Place(NamedTuple):
    """Where a number is read or written."""

    where: str
    number: int
    table: int = 0
    pitch: int = 0


@dataclass(frozen=True)
class Segment:
    """Straight-line code, what it reads and what it writes."""

    program: Program
    sources: tuple[Place, ...]
    targets: tuple[Place, ...]


@dataclass(frozen=True)
class Sweep:
    """One visit to all rows: the segment of each kind."""

    backward: bool
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class AncestorWalk:
    """For each column its row, which of the `starts` begins it, and its number, which several may have; then from parent to
    parent the segment of each kind.
    """

    rows: Sequence[int]
    kinds: Sequence[int]
    columns: Sequence[int]
    starts: tuple[Segment, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Columns:
    """Steps that are done for each of so many columns."""

    count: int
    steps: tuple[Step, ...]


Step = Segment | Sweep | AncestorWalk | Columns


@dataclass(frozen=True)
class Rolled:
    """A program over rows. Tables have an entry a row, row 0 included."""

    names: Sequence[str]
    n_inputs: int
    n_outputs: int
    slots: Sequence[int]  # of a frame, by arena
    frame: Sequence[Sequence[int]]  # of each row, by arena
    kind: Sequence[int]
    parent: Sequence[int]
    starts: Sequence[Sequence[int]]
    constants: Sequence[Sequence[float]]
    steps: tuple[Step, ...]  # one after the other; a segment by itself is of row 0
    clears: bool = False  # whether the outputs are zero where nothing is written
    adds: bool = False  # whether what is written to an output is added to what is there

    @property
    def loops(self) -> list[Sweep | AncestorWalk]:
        """The loops over rows, in order; those that are repeated for each column too."""
        steps = [x for step in self.steps for x in (step.steps if isinstance(step, Columns) else (step,))]
        return [step for step in steps if isinstance(step, Sweep | AncestorWalk)]

    @property
    def repeats(self) -> bool:
        """Whether there are steps that are done for each column."""
        return any(isinstance(step, Columns) for step in self.steps)

    def executed(self) -> Iterator[tuple[Segment, int]]:
        """All segments, and how often each runs."""
        return self._executed(self.steps)

    def _executed(self, steps: tuple[Step, ...]) -> Iterator[tuple[Segment, int]]:
        rows = Counter(self.kind[1:])
        for step in steps:
            if isinstance(step, Columns):
                yield from ((segment, step.count * times) for segment, times in self._executed(step.steps))
                continue
            if isinstance(step, Segment):
                yield step, 1
                continue
            if isinstance(step, AncestorWalk):
                starts, passed = Counter(step.kinds), self._passed(step)
                yield from ((segment, starts[k]) for k, segment in enumerate(step.starts))
            times = rows if isinstance(step, Sweep) else passed
            yield from ((segment, times[k]) for k, segment in enumerate(step.segments))

    def _passed(self, walk: AncestorWalk) -> Counter[int]:
        """How often walks pass rows of each kind."""
        carried = Counter(walk.rows)
        passed: Counter[int] = Counter()
        for row in range(len(self.kind) - 1, 0, -1):
            carried[self.parent[row]] += carried[row]
            passed[self.kind[row]] += carried[row]
        own = Counter(self.kind[row] for row in walk.rows)
        return passed - own

    def count(self) -> dict[str, int]:
        """Operations by kind, over all rows."""
        total: Counter[str] = Counter()
        for segment, times in self.executed():
            for op, n in segment.program.count().items():
                total[op] += n * times
        return dict(total)

    def instructions(self) -> int:
        """How many nodes are computed, over all rows."""
        return sum(times * len(segment.program.body) for segment, times in self.executed())

    def memory(self) -> list[int]:
        """How many numbers each arena has."""
        return [n * (max(frame) + 1) for n, frame in zip(self.slots, self.frame, strict=True)]

    def visits(self, sweep: Sweep) -> Iterator[int]:
        rows = range(1, len(self.kind))
        return iter(reversed(rows)) if sweep.backward else iter(rows)


def fused(rolled: Rolled) -> Rolled:
    """The same with multiply-adds fused in every segment."""

    def each(segment: Segment) -> Segment:
        return replace(segment, program=fused_program(segment.program))

    def step(x: Step) -> Step:
        if isinstance(x, Segment):
            return each(x)
        if isinstance(x, Columns):
            return replace(x, steps=tuple(map(step, x.steps)))
        segments = tuple(map(each, x.segments))
        if isinstance(x, AncestorWalk):
            return replace(x, starts=tuple(map(each, x.starts)), segments=segments)
        return replace(x, segments=segments)

    return replace(rolled, steps=tuple(map(step, rolled.steps)))


def run(rolled: Rolled, inputs: Sequence[float]) -> list[float]:
    """The outputs for one set of inputs: the definition of what a rolled program computes."""
    memory = [[[math.nan] * n for _ in range(max(frame) + 1)] for n, frame in zip(rolled.slots, rolled.frame, strict=True)]
    outputs = [0.0 if rolled.clears else math.nan] * rolled.n_outputs

    def frame(place: Place, row: int) -> list[float]:
        return memory[place.table][rolled.frame[place.table][row if place.where == "own" else rolled.parent[row]]]

    def read(place: Place, row: int, column: int) -> float:
        if place.where == "unit":
            return float(place.number + rolled.starts[place.table][row] == column)
        if place.where == "input":
            return float(inputs[place.number + rolled.starts[place.table][row]])
        if place.where == "constant":
            return rolled.constants[row][place.number]
        return frame(place, row)[place.number]

    def execute(segment: Segment, row: int, column: int) -> None:
        values = interpreter.run(segment.program, [read(p, row, column) for p in segment.sources])
        for place, value in zip(segment.targets, values, strict=True):
            if place.where == "output":
                at = place.number + rolled.starts[place.table][row] + place.pitch * column
                outputs[at] = outputs[at] + value if rolled.adds else value
            else:
                frame(place, row)[place.number] = value

    def follow(steps: tuple[Step, ...], column: int = 0) -> None:
        for step in steps:
            if isinstance(step, Segment):
                execute(step, 0, column)
            elif isinstance(step, Sweep):
                for row in rolled.visits(step):
                    execute(step.segments[rolled.kind[row]], row, column)
            elif isinstance(step, Columns):
                for c in range(step.count):
                    follow(step.steps, c)
            else:
                for row, kind, c in zip(step.rows, step.kinds, step.columns, strict=True):
                    execute(step.starts[kind], row, c)
                    while (row := rolled.parent[row]) > 0:
                        execute(step.segments[rolled.kind[row]], row, c)

    follow(rolled.steps)
    return outputs
