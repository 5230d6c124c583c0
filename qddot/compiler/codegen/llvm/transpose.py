"""States between rows in memory and columns of lanes, as LLVM text.

A row is one state, its numbers contiguous; a column is one number of all lanes. A state alone is copied number by number. A
full block is transposed in registers, for any width and type; eight doubles have code of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from qddot.compiler.codegen.llvm import transpose_eight_doubles as eight_doubles
from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes, table
from qddot.compiler.codegen.llvm.memory_plan import OutputColumns

Shape = tuple[int, ...]


def copy_function(
    name: str, shape: Shape, T: str, into_rows: bool, columns: Sequence[int] | None = None, plain: bool = False
) -> str:
    """Moves one state between an array and a lane of the columns, which are `%pitch` bytes apart.

    The array may have any strides, a loop for each of its axes; `plain`: its entries are contiguous, and there are no
    arguments for strides. `columns` is the column of each number, where they are not in order.
    """
    text, index = "", "  %column.k = add i64 %k, 0"
    if columns is not None:
        text = table(name, [[k] for k in columns])
        index = f"""  %column.k.p = getelementptr i32, ptr @{name}.table, i64 %k
  %column.k.i = load i32, ptr %column.k.p
  %column.k = zext i32 %column.k.i to i64"""
    strides = [] if plain else [f"%c{j}" for j in range(len(shape))]
    arguments = ", ".join(["ptr %row", "ptr %column", "i64 %pitch", *(f"i64 {c}" for c in strides)])
    axes = list(zip(shape, strides, strict=True)) if strides else [(prod(shape), str(number_bytes(T)))]
    source, target = ("%column.p", "%row.p") if into_rows else ("%row.p", "%column.p")
    begin, end = _loops_over_axes(axes)
    return f"""{text}define internal void @{name}({arguments}) {{
entry:
{begin}
{index}
  %far = mul i64 %column.k, %pitch
  %column.p = getelementptr i8, ptr %column, i64 %far
  %value = load {T}, ptr {source}, align 1
  store {T} %value, ptr {target}, align 1
{end}
  ret void
}}
"""


def _loops_over_axes(axes: Sequence[tuple[int, str]]) -> tuple[str, str]:
    """What stands before and after that which is done for each entry, %k, of an array at %row.p; axes: (size, stride)."""
    begin, end, last = list[str](), list[str](), len(axes) - 1
    for j, (size, stride) in enumerate(axes):
        before, row, k = ("entry", "%row", "0") if j == 0 else (f"axis{j - 1}", f"%row{j - 1}", f"%k{j - 1}")
        here, number = ("%row.p", "%k") if j == last else (f"%row{j}", f"%k{j}")
        begin += [
            f"  br label %axis{j}",
            f"axis{j}:",
            f"  %i{j} = phi i64 [ 0, %{before} ], [ %i{j}.next, %next{j} ]",
            f"  {here} = phi ptr [ {row}, %{before} ], [ %row{j}.next, %next{j} ]",
            f"  {number} = phi i64 [ {k}, %{before} ], [ %k.next, %next{j} ]",
        ]
        end[:0] = [
            f"  br label %next{j}",
            f"next{j}:",
            *(["  %k.next = add i64 %k, 1"] if j == last else []),
            f"  %i{j}.next = add i64 %i{j}, 1",
            f"  %row{j}.next = getelementptr i8, ptr {here}, i64 {stride}",
            f"  %more{j} = icmp ult i64 %i{j}.next, {size}",
            f"  br i1 %more{j}, label %axis{j}, label %after{j}",
            f"after{j}:",
        ]
    return "\n".join(begin), "\n".join(end)


def has_transposes(lanes: int) -> bool:
    """Whether blocks of so many lanes are transposed in registers."""
    return lanes in (2, 4, 8, 16)


def transpose_function(name: str, numbers: int, into_rows: bool, emitter: Emitter) -> str:
    """`@name(rows, step, cols)`: contiguous rows of so many numbers, `step` bytes apart, into columns of lanes or back."""
    if (emitter.lanes, emitter.T) == (8, "double"):
        return eight_doubles.transpose_function(name, numbers, into_rows, emitter.target.architecture)
    return _tiles(name, numbers, into_rows, emitter, None)


def shared_rows_function(name: str, columns: OutputColumns, emitter: Emitter) -> str:
    """`@name(rows, step, cols)`: columns of lanes that equal numbers share into contiguous rows."""
    assert columns.shared is not None
    if (emitter.lanes, emitter.T) == (8, "double"):
        return eight_doubles.shared_rows_function(name, columns.shared, columns.zero)
    return _tiles(name, columns.size, True, emitter, columns)


def part_of_rows_function(name: str, columns: OutputColumns, emitter: Emitter) -> str:
    """`@name(rows, step, cols, from, count)`: so many numbers, at least as many as lanes, from one on, into rows."""
    return _tile_loop(name, emitter.lanes, None, True, emitter, columns)


def _tiles(name: str, numbers: int, into_rows: bool, emitter: Emitter, columns: OutputColumns | None) -> str:
    """Tiles as wide as there are lanes, a power of two, and for the numbers left over a tile as narrow as possible."""
    head = f"define internal void @{name}(ptr %rows, i64 %step, ptr noalias %cols)"
    if numbers == 0:
        return f"{head} {{\n  ret void\n}}\n"
    w = min(emitter.lanes, 1 << (numbers.bit_length() - 1))
    rest = numbers % w
    narrow = 1 << (rest - 1).bit_length() if rest else w
    if narrow == w:
        return _tile_loop(name, w, (0, numbers), into_rows, emitter, columns)
    whole = _tile_loop(f"{name}.whole", w, (0, numbers - rest), into_rows, emitter, columns)
    last = _tile_loop(f"{name}.rest", narrow, (numbers - narrow, narrow), into_rows, emitter, columns)
    return f"""{whole}{last}{head} {{
  call void @{name}.whole(ptr %rows, i64 %step, ptr %cols)
  %rest = getelementptr {emitter.T}, ptr %rows, i64 {numbers - narrow}
  call void @{name}.rest(ptr %rest, i64 %step, ptr %cols)
  ret void
}}
"""


def _tile_loop(
    name: str, w: int, span: tuple[int, int] | None, into_rows: bool, emitter: Emitter, columns: OutputColumns | None
) -> str:
    """A loop over tiles of w numbers of each row, a power of two; the last tile begins where it is full.

    `span`: from which number on, where the rows begin here, and how many; None: both are arguments. Tiles of zeros are not
    transposed.
    """
    of = ", i64 %from, i64 %count" if span is None else ""
    head = f"define internal void @{name}(ptr %rows, i64 %step, ptr noalias %cols{of})"
    first, count, last = ("%from", "%count", "%last") if span is None else (*map(str, span), str(span[1] - w))
    shared = None if columns is None else columns.shared
    lookup = None if shared is None else f"@{name}.table"
    full = _tile_to_rows(w, emitter, lookup) if into_rows else _tile_to_columns(w, emitter)
    tables = "" if shared is None else _tables(name, shared, None if columns is None else columns.zero, w)
    lines = [
        "entry:",
        *([f"  %last = sub i64 %count, {w}"] if span is None else []),
        "  br label %tile",
        "tile:",
        "  %next = phi i64 [ 0, %entry ], [ %after, %moved ]",
        f"  %at = call i64 @llvm.smin.i64(i64 %next, i64 {last})",
        f"  %at.column = add i64 %at, {first}",
        *_row_pointers(emitter),
        *(full if shared is None else _unless_zero(lookup, w, emitter, full)),
        "  br label %moved",
        "moved:",
        f"  %after = add i64 %next, {w}",
        f"  %more = icmp ult i64 %after, {count}",
        "  br i1 %more, label %tile, label %done",
        "done:",
        "  ret void",
    ]
    body = "\n".join(lines)
    return f"{tables}{head} {{\n{body}\n}}\n"


def _tables(name: str, shared: Sequence[int], zero: int | None, w: int) -> str:
    """For each number its column, and whether the tile that begins with it is zero."""
    return table(name, [[k, int(set(shared[j : j + w]) == {zero})] for j, k in enumerate(shared)])


def _unless_zero(lookup: str | None, w: int, emitter: Emitter, full: list[str]) -> list[str]:
    """A tile, or zeros where the table says so."""
    T = emitter.T
    zeros = [f"  store <{w} x {T}> zeroinitializer, ptr %row{r}.p, align {number_bytes(T)}" for r in range(emitter.lanes)]
    return [
        f"  %zero.p = getelementptr [2 x i32], ptr {lookup}, i64 %at.column, i64 1",
        "  %zero.i = load i32, ptr %zero.p, !invariant.load !1",
        "  %zero = icmp ne i32 %zero.i, 0",
        "  br i1 %zero, label %nothing, label %full",
        "nothing:",
        *zeros,
        "  br label %moved",
        "full:",
        *full,
    ]


def _tile_to_columns(w: int, emitter: Emitter) -> list[str]:
    """Interleaves rows r and r + L/2, then pairs of pairs, and so on: the columns of all lanes are in order at last."""
    lines, shuffles = list[str](), _Shuffles(emitter)
    rows = []
    for r in range(emitter.lanes):
        lines.append(f"  %row{r} = load <{w} x {emitter.T}>, ptr %row{r}.p, align {number_bytes(emitter.T)}")
        rows.append([_Vector(f"%row{r}", w)])
    while len(rows) > 1:
        half = len(rows) // 2
        rows = [shuffles.interleaved(a, b) for a, b in zip(rows[:half], rows[half:], strict=True)]
    lines += shuffles.lines
    for c, column in enumerate(rows[0]):
        lines += _column_pointer(c, emitter, None)
        lines.append(f"  store {emitter.V} {column.name}, ptr %col{c}.p, align {emitter.align}")
    return lines


def _tile_to_rows(w: int, emitter: Emitter, lookup: str | None) -> list[str]:
    """The reverse: even and odd numbers apart, until each vector is a row."""
    lines, shuffles = list[str](), _Shuffles(emitter)
    columns = []
    for c in range(w):
        lines += _column_pointer(c, emitter, lookup)
        lines.append(f"  %col{c} = load {emitter.V}, ptr %col{c}.p, align {emitter.align}")
        columns.append(_Vector(f"%col{c}", emitter.lanes))
    rows = [columns]
    while len(rows) < emitter.lanes:
        rows = [shuffles.every_other(x, first) for first in (0, 1) for x in rows]
    lines += shuffles.lines
    for r, (row,) in enumerate(rows):
        lines.append(f"  store <{w} x {emitter.T}> {row.name}, ptr %row{r}.p, align {number_bytes(emitter.T)}")
    return lines


def _row_pointers(emitter: Emitter) -> list[str]:
    """%row{r}.p, where the tile begins in each row."""
    lines = []
    for r in range(emitter.lanes):
        lines.append(f"  %row{r}.o = mul i64 %step, {r}")
        lines.append(f"  %row{r}.b = getelementptr i8, ptr %rows, i64 %row{r}.o")
        lines.append(f"  %row{r}.p = getelementptr {emitter.T}, ptr %row{r}.b, i64 %at")
    return lines


def _column_pointer(c: int, emitter: Emitter, lookup: str | None) -> list[str]:
    """%col{c}.p, the column of the c-th number of the tile, by a table or in order."""
    lines, column = [f"  %col{c}.k = add i64 %at.column, {c}"], f"%col{c}.k"
    if lookup is not None:
        lines.append(f"  %col{c}.t = getelementptr [2 x i32], ptr {lookup}, i64 {column}, i64 0")
        lines.append(f"  %col{c}.i = load i32, ptr %col{c}.t, !invariant.load !1")
        lines.append(f"  %col{c}.w = zext i32 %col{c}.i to i64")
        column = f"%col{c}.w"
    return [*lines, f"  %col{c}.p = getelementptr {emitter.V}, ptr %cols, i64 {column}"]


class _Vector(NamedTuple):
    name: str
    length: int


class _Shuffles:
    """Shuffles of long vectors, each a list of registers of at most `lanes` numbers."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.lines: list[str] = []

    def _shuffled(self, a: _Vector, b: _Vector, order: Sequence[int]) -> _Vector:
        name, V = f"%x{len(self.lines)}", f"<{a.length} x {self.emitter.T}>"
        mask = ", ".join(f"i32 {k}" for k in order)
        self.lines.append(f"  {name} = shufflevector {V} {a.name}, {V} {b.name}, <{len(order)} x i32> <{mask}>")
        return _Vector(name, len(order))

    def interleaved(self, a: list[_Vector], b: list[_Vector]) -> list[_Vector]:
        """a0 b0 a1 b1 …"""
        parts = []
        for x, y in zip(a, b, strict=True):
            n = x.length
            order = [k for j in range(n) for k in (j, n + j)]
            cuts = [order] if 2 * n <= self.emitter.lanes else [order[:n], order[n:]]
            parts += [self._shuffled(x, y, cut) for cut in cuts]
        return parts

    def every_other(self, a: list[_Vector], first: int) -> list[_Vector]:
        """a0 a2 … or a1 a3 …"""
        if len(a) == 1:
            return [self._shuffled(a[0], a[0], range(first, a[0].length, 2))]
        pairs = zip(a[::2], a[1::2], strict=True)
        return [self._shuffled(x, y, range(first, 2 * x.length, 2)) for x, y in pairs]
