"""A record of an algorithm's loops over the links, and of what goes through memory and into matrices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from qddot.compiler.ir.expr import Graph
from qddot.errors import NotRollableError
from qddot.mechanism.link_classes import LinkClass


class _Parent:
    """The parent of the link whose turn it is. Only quantities of links know what to do with it."""

    def __index__(self) -> int:
        raise NotRollableError("it looks up what belongs to the parent in a plain list")


PARENT: Any = _Parent()


@dataclass
class Layout:
    """How a quantity lies in memory: a value to copy the form of, and for each of its numbers the place."""

    form: Any
    place: list[int]

    @property
    def width(self) -> int:
        return len(set(self.place))


@dataclass
class Memory:
    """What is known of quantities that children read or write, by their order: it grows from pass to pass."""

    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    zero: set[int] = field(default_factory=set)  # of those written, the ones that begin with nothing
    layout: dict[int, Layout] = field(default_factory=dict)

    def state(self) -> Any:
        return set(self.read), set(self.written), set(self.zero), {k: x.place for k, x in self.layout.items()}


Key = int | tuple[int, int]  # a link whose turn it is, or a link and which of its columns is begun


class Written(NamedTuple):
    """What a turn leaves in a matrix: in a row or in a column of it, the degrees of freedom of a link."""

    matrix: int
    in_row: bool
    nodes: list[int]


def axis_of_columns(a_link: int | None) -> str:
    """What the columns of a matrix run over, by how many a link has; None for those of joints."""
    axes = {None: "v", 6: "forces", 10: "inertias"}
    if a_link not in axes:
        raise NotRollableError(f"a matrix has {a_link} columns a link")
    return axes[a_link]


@dataclass
class LoopRecord:
    """One loop over the links, or one over columns and from each through the links that carry it.

    What was made for each link, what was written to memory, and what to matrices.
    """

    backward: bool
    climbs: bool = False
    group: int = 0  # of loops that are repeated for each column; 0 for those that are not
    begins_at: int = 0  # the link that it begins at, where it is a loop from there to the base
    span: dict[Key, tuple[int, int]] = field(default_factory=dict)  # the nodes made for a link
    stores: dict[Key, dict[tuple[str, int], list[int]]] = field(default_factory=dict)  # (own or parent, quantity): nodes
    written: dict[Key, list[Written]] = field(default_factory=dict)

    @property
    def given(self) -> set[int]:
        """The quantities that links give to their parents."""
        return {index for stores in self.stores.values() for where, index in stores if where == "parent"}


class Recorder:
    """What happens while the algorithm runs on one link of each kind."""

    def __init__(self, graph: Graph, memory: Memory, kinds: list[LinkClass]) -> None:
        self.graph, self.memory, self.kinds = graph, memory, kinds
        self.loops: list[LoopRecord] = []
        self.link: int | None = None  # the one whose turn it is, inside of a loop
        self.turns = 0
        self.key: Key = 0  # the same, and of which column
        self.visit = 0
        self.count = 0
        self.matrices: list[int | None] = []  # how many columns a link has in them; None for those of joints
        self.column_factor: Any = None  # a quantity: by what a column is written where joints share coordinates
        self.groups: list[str] = []  # of loops that are repeated for each column: what the columns run over
        self.group = 0  # the one that is being recorded, counted from 1
        self.results: dict[int, tuple[int, list[int]]] = {}  # of a matrix by columns: the group, and the nodes of a column
        self.first: dict[int, tuple[int, list[int]]] = {}  # what the world has of a quantity, and the group
        self.totals: set[int] = set()  # quantities of all links together
        self.breaks: set[int] = set()  # loops before which such a one was read: they come after all earlier ones
        self.seen: dict[int, list[Any]] = {}  # all values that a quantity had
        self.begins_with: dict[int, list[bool]] = {}  # whether they were nothing where not set by a child

    def loop(self, links: Sequence[int], backward: bool, begins_at: int = 0) -> Iterator[tuple[int, int]]:
        if self.link is not None:
            raise NotRollableError("it has a loop over links inside a loop over links")
        record = LoopRecord(backward, group=self.group, begins_at=begins_at)
        self.loops.append(record)
        for i in links:
            yield from ((i, p) for p in self._turn(record, i, i))

    def _turn(self, record: LoopRecord, i: int, key: Key) -> Iterator[Any]:
        """One turn of a link, which may be taken while another one has its own."""
        outer = self.link, self.key, self.visit
        self.link, self.key, self.visit = i, key, self.turns + 1
        self.turns += 1
        begin = len(self.graph)
        yield PARENT
        record.span[key] = (begin, len(self.graph))
        self.link, self.key, self.visit = outer

    def columns(self, counts: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
        """The columns of a link of each kind."""
        if self.link is not None or self.group:
            raise NotRollableError("it has a loop over columns inside another loop")
        record = LoopRecord(True, climbs=True)
        self.loops.append(record)
        for i, count in counts.items():
            for k in range(count):
                yield from ((i, p, k) for p in self._turn(record, i, (i, k)))

    def climb(self, links: Sequence[int]) -> Iterator[tuple[int, int]]:
        """From a column's link through those that carry it: a link of each kind, the same for all columns."""
        record = self.loops[-1]
        if self.link is None or not record.climbs:
            raise NotRollableError("it goes from every link through all that carry it")
        if not any(i in record.span for i in links):
            for i in links:
                yield from ((i, p) for p in self._turn(record, i, i))
