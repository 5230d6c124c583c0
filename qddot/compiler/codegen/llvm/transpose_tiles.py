"""Tiles of w numbers of each row, as LLVM text: loaded from rows, transposed in registers, stored as columns, or back.

A register is a row of 128-bit groups, and processors have fast shuffles within groups: unpack on x86-64, zip on ARM. So
columns are made of registers that hold the same numbers of rows r, r + c, r + 2c, …, a group each, where c numbers fill a
group; a c × c transpose within groups gives c columns. Rows are written a group at a time, or, where the tile is as wide as
there are lanes, after whole groups were transposed as well. Shuffles across groups in between would be several
instructions each.

Tiles narrower than a group interleave rows r and r + L/2, then pairs of pairs, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes

_GROUP_BYTES = 16
Pointer = Callable[[int], tuple[list[str], str]]


def group(emitter: Emitter) -> int:
    """How many numbers are in a group of a register."""
    return min(emitter.lanes, _GROUP_BYTES // number_bytes(emitter.T))


class Tile:
    """A tile of so many numbers, a power of two, from number `at` of rows on that begin at %row{r}.b.

    `column` names a pointer to a column, with the lines that make it: right before it is used, as those to rows, for there
    are not many registers for addresses.
    """

    def __init__(self, name: str, width: int, emitter: Emitter, at: str, column: Pointer) -> None:
        self.name, self.width, self.emitter, self.at, self.column = name, width, emitter, at, column
        self.lanes, self.group = emitter.lanes, group(emitter)
        self.groups = self.lanes // self.group
        self.lines: list[str] = []

    def to_columns(self, wanted: Iterable[int]) -> list[str]:
        """The lines that store the wanted columns."""
        columns = self._columns() if self.width >= self.group else self._narrow_columns()
        for c in wanted:
            pointer = self._column(c)
            self.lines.append(f"  store {self.emitter.V} {columns[c].name}, ptr {pointer}, align {self.emitter.align}")
        return self.lines

    def to_rows(self) -> list[str]:
        """The lines that store all rows."""
        V, align = self.emitter.V, self.emitter.align
        columns = []
        for c in range(self.width):
            columns.append(_Vector(f"%{self.name}.c{c}", self.lanes))
            pointer = self._column(c)
            self.lines.append(f"  {columns[c].name} = load {V}, ptr {pointer}, align {align}")
        if self.width < self.group:
            self._store_rows(enumerate(self._narrow_rows(columns)))
        elif self.width == self.lanes:
            self._store_rows(self._whole_rows(columns))
        else:
            for b in range(0, self.width, self.group):
                self._store_groups(b, columns[b : b + self.group])
        return self.lines

    # ---- groups

    def _columns(self) -> list[_Vector]:
        columns = []
        for b in range(0, self.width, self.group):
            same = [[self._loaded(r, b, self.group) for r in range(i, self.lanes, self.group)] for i in range(self.group)]
            columns += self._transposed([self._joined(x) for x in same], 1, self.group)
        return columns

    def _whole_rows(self, columns: Sequence[_Vector]) -> list[tuple[int, _Vector]]:
        """Rows as wide as a register, each with its number."""
        size = self.group
        blocks = [self._transposed(columns[b : b + size], 1, size) for b in range(0, self.lanes, size)]
        found = []
        for i in range(size):
            rows = self._transposed([block[i] for block in blocks], size, self.lanes)
            found += [(j * size + i, row) for j, row in enumerate(rows)]
        return sorted(found)

    def _store_groups(self, first: int, columns: Sequence[_Vector]) -> None:
        for i, x in enumerate(self._transposed(columns, 1, self.group)):
            for j in range(self.groups):
                part = self._shuffled(x, x, range(j * self.group, (j + 1) * self.group)) if self.groups > 1 else x
                self._store_row(j * self.group + i, first, part)

    def _transposed(self, vectors: Sequence[_Vector], unit: int, span: int) -> list[_Vector]:
        """Within each `span` of lanes, so many units of as many vectors, transposed."""
        rows = [[x] for x in vectors]
        while len(rows) > 1:
            half = len(rows) // 2
            rows = [self._interleaved(a, b, unit, span) for a, b in zip(rows[:half], rows[half:], strict=True)]
        return rows[0]

    def _interleaved(self, a: Sequence[_Vector], b: Sequence[_Vector], unit: int, span: int) -> list[_Vector]:
        """For each pair of registers the units of the lower halves of their spans in turn, then those of the upper ones."""
        parts = []
        for x, y in zip(a, b, strict=True):
            n = x.length
            for half in (0, span // 2):
                starts = [s + half + u for s in range(0, n, span) for u in range(0, span // 2, unit)]
                order = [k for s in starts for first in (s, n + s) for k in range(first, first + unit)]
                parts.append(self._shuffled(x, y, order))
        return parts

    def _joined(self, parts: list[_Vector]) -> _Vector:
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self._shuffled(a, b, range(2 * a.length)) for a, b in pairs]
        return parts[0]

    # ---- narrower tiles

    def _narrow_columns(self) -> list[_Vector]:
        rows = [[self._loaded(r, 0, self.width)] for r in range(self.lanes)]
        while len(rows) > 1:
            half = len(rows) // 2
            rows = [self._in_turn(a, b) for a, b in zip(rows[:half], rows[half:], strict=True)]
        return rows[0]

    def _in_turn(self, a: Sequence[_Vector], b: Sequence[_Vector]) -> list[_Vector]:
        """a0 b0 a1 b1 …"""
        parts = []
        for x, y in zip(a, b, strict=True):
            n = x.length
            order = [k for j in range(n) for k in (j, n + j)]
            cuts = [order] if 2 * n <= self.lanes else [order[:n], order[n:]]
            parts += [self._shuffled(x, y, cut) for cut in cuts]
        return parts

    def _narrow_rows(self, columns: list[_Vector]) -> list[_Vector]:
        rows = [columns]
        while len(rows) < self.lanes:
            rows = [self._every_other(x, first) for first in (0, 1) for x in rows]
        return [row for (row,) in rows]

    def _every_other(self, a: list[_Vector], first: int) -> list[_Vector]:
        """a0 a2 … or a1 a3 …"""
        if len(a) == 1:
            return [self._shuffled(a[0], a[0], range(first, a[0].length, 2))]
        pairs = zip(a[::2], a[1::2], strict=True)
        return [self._shuffled(x, y, range(first, 2 * x.length, 2)) for x, y in pairs]

    # ---- lines

    def _column(self, c: int) -> str:
        lines, pointer = self.column(c)
        self.lines += lines
        return pointer

    def _next(self) -> str:
        return f"%{self.name}.x{len(self.lines)}"

    def _shuffled(self, a: _Vector, b: _Vector, order: Iterable[int]) -> _Vector:
        name, V, mask = self._next(), f"<{a.length} x {self.emitter.T}>", [f"i32 {k}" for k in order]
        self.lines.append(f"  {name} = shufflevector {V} {a.name}, {V} {b.name}, <{len(mask)} x i32> <{', '.join(mask)}>")
        return _Vector(name, len(mask))

    def _place(self, r: int, first: int) -> str:
        """A pointer to a number of row r of the tile."""
        begin, T = self._next(), self.emitter.T
        self.lines.append(f"  {begin} = getelementptr {T}, ptr %row{r}.b, i64 {self.at}")
        if not first:
            return begin
        name = self._next()
        self.lines.append(f"  {name} = getelementptr {T}, ptr {begin}, i64 {first}")
        return name

    def _loaded(self, r: int, first: int, length: int) -> _Vector:
        """So many numbers of row r."""
        place, name, T = self._place(r, first), self._next(), self.emitter.T
        self.lines.append(f"  {name} = load <{length} x {T}>, ptr {place}, align {number_bytes(T)}")
        return _Vector(name, length)

    def _store_rows(self, rows: Iterable[tuple[int, _Vector]]) -> None:
        for r, row in rows:
            self._store_row(r, 0, row)

    def _store_row(self, r: int, first: int, x: _Vector) -> None:
        place, T = self._place(r, first), self.emitter.T
        self.lines.append(f"  store <{x.length} x {T}> {x.name}, ptr {place}, align {number_bytes(T)}")


class _Vector(NamedTuple):
    name: str
    length: int
