"""Programs that keep their loops: code that does not grow with what it works on.

A rolled program works on rows. Row 0 is the first one's parent; every other row has a parent of a smaller number, a kind,
constants of its own, and places where its numbers stand in the inputs and outputs. Rows have memory: in each of several
areas a shelf with so many slots. Rows may share a shelf where they do not need it at the same time. A sweep visits the
rows from 1 on, in order or backwards, and runs the segment of the row's kind: straight-line code whose inputs come from
`sources` and whose outputs go to `targets`; all is read before anything is written.

| place           | meaning                                                                  |
|-----------------|--------------------------------------------------------------------------|
| input, output   | inputs or outputs, at `number` + starts[table][row]                      |
| constant        | a constant of the row                                                    |
| own, parent     | slot `number` of the row's shelf, or of its parent's, in area `table`    |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from qddot.compiler import interp
from qddot.compiler.fuse import fused as fused_program
from qddot.compiler.program import Program


class Place(NamedTuple):
    """Where a number is read or written."""

    where: str
    number: int
    table: int = 0


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
class Rolled:
    """A program over rows. Tables have an entry a row, row 0 included."""

    n_inputs: int
    n_outputs: int
    slots: Sequence[int]  # of a shelf, by area
    shelf: Sequence[Sequence[int]]  # of each row, by area
    kind: Sequence[int]
    parent: Sequence[int]
    starts: Sequence[Sequence[int]]
    constants: Sequence[Sequence[float]]
    first: Segment  # runs for row 0 before all else
    sweeps: tuple[Sweep, ...]

    def count(self) -> dict[str, int]:
        """Operations by kind, over all rows."""
        rows, total = Counter(self.kind[1:]), Counter(self.first.program.count())
        for sweep in self.sweeps:
            for k, segment in enumerate(sweep.segments):
                for op, n in segment.program.count().items():
                    total[op] += n * rows[k]
        return dict(total)

    def instructions(self) -> int:
        """How many nodes are computed, over all rows."""
        rows = Counter(self.kind[1:])
        return sum(rows[k] * len(s.program.nodes()) for sweep in self.sweeps for k, s in enumerate(sweep.segments))

    def memory(self) -> list[int]:
        """How many numbers each area has."""
        return [n * (max(shelf) + 1) for n, shelf in zip(self.slots, self.shelf, strict=True)]

    def visits(self, sweep: Sweep) -> Iterator[int]:
        rows = range(1, len(self.kind))
        return iter(reversed(rows)) if sweep.backward else iter(rows)


def fused(rolled: Rolled) -> Rolled:
    """The same with multiply-adds fused in every segment."""

    def each(segment: Segment) -> Segment:
        return replace(segment, program=fused_program(segment.program))

    sweeps = tuple(Sweep(s.backward, tuple(each(x) for x in s.segments)) for s in rolled.sweeps)
    return replace(rolled, first=each(rolled.first), sweeps=sweeps)


def run(rolled: Rolled, inputs: Sequence[float]) -> list[float]:
    """The outputs for one set of inputs: the definition of what a rolled program computes."""
    memory = [[[0.0] * n for _ in range(max(shelf) + 1)] for n, shelf in zip(rolled.slots, rolled.shelf, strict=True)]
    outputs = [0.0] * rolled.n_outputs

    def shelf(place: Place, row: int) -> list[float]:
        return memory[place.table][rolled.shelf[place.table][row if place.where == "own" else rolled.parent[row]]]

    def read(place: Place, row: int) -> float:
        if place.where == "input":
            return float(inputs[place.number + rolled.starts[place.table][row]])
        if place.where == "constant":
            return rolled.constants[row][place.number]
        return shelf(place, row)[place.number]

    def execute(segment: Segment, row: int) -> None:
        values = interp.run(segment.program, [read(p, row) for p in segment.sources])
        for place, value in zip(segment.targets, values, strict=True):
            if place.where == "output":
                outputs[place.number + rolled.starts[place.table][row]] = value
            else:
                shelf(place, row)[place.number] = value

    execute(rolled.first, 0)
    for sweep in rolled.sweeps:
        for row in rolled.visits(sweep):
            execute(sweep.segments[rolled.kind[row]], row)
    return outputs
