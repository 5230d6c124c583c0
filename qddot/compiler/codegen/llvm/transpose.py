"""States between rows in memory and columns of lanes, as LLVM text.

A row is one state, its numbers contiguous; a column is one number of all lanes. A state alone is copied number by number. A
full block is transposed in registers, for any width and type; eight doubles have code of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from qddot.compiler.codegen.llvm import transpose_eight_doubles as eight_doubles
from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes, table
from qddot.compiler.codegen.llvm.memory_plan import OutputColumns
from qddot.compiler.codegen.llvm.transpose_tiles import Tile, group

Shape = tuple[int, ...]
_UNROLLED_MAX_NUMBERS = 16  # of a row that is moved without a loop


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
    """Tiles as wide as there are lanes, and for the numbers left over tiles as narrow as possible."""
    head = f"define internal void @{name}(ptr %rows, i64 %step, ptr noalias %cols)"
    if numbers == 0:
        return f"{head} {{\n  ret void\n}}\n"
    if columns is None and numbers <= _UNROLLED_MAX_NUMBERS:
        body = "\n".join(["entry:", *_row_starts(emitter), *_one_by_one(numbers, into_rows, emitter), "  ret void"])
        return f"{head} {{\n{body}\n}}\n"
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


def _one_by_one(numbers: int, into_rows: bool, emitter: Emitter) -> list[str]:
    """Tiles one after another, without a loop."""
    lines, done = list[str](), 0
    for k, (start, w) in enumerate(_cover(numbers, into_rows, emitter)):
        tile = Tile(f"t{k}", w, emitter, str(start), partial(_fixed_column, k, start, emitter))
        lines += tile.to_rows() if into_rows else tile.to_columns(range(done - start, w))
        done = start + w
    return lines


def _fixed_column(k: int, start: int, emitter: Emitter, c: int) -> tuple[list[str], str]:
    """The c-th column of the k-th tile."""
    name = f"%t{k}.col{c}"
    return [f"  {name} = getelementptr {emitter.V}, ptr %cols, i64 {start + c}"], name


def _cover(numbers: int, into_rows: bool, emitter: Emitter) -> list[tuple[int, int]]:
    """Where tiles begin, and how wide they are; the last may begin within the one before."""
    w = min(group(emitter), 1 << (numbers.bit_length() - 1))
    wide = emitter.lanes if into_rows else w
    starts = [(k, wide) for k in range(0, numbers - wide + 1, wide)]
    done = len(starts) * wide
    return starts + [(min(k, numbers - w), w) for k in range(done, numbers, w)]


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
    tile = Tile("tile", w, emitter, "%at", partial(_column_pointer, emitter, lookup))
    full = tile.to_rows() if into_rows else tile.to_columns(range(w))
    tables = "" if shared is None else _tables(name, shared, None if columns is None else columns.zero, w)
    lines = [
        "entry:",
        *([f"  %last = sub i64 %count, {w}"] if span is None else []),
        *_row_starts(emitter),
        "  br label %tile",
        "tile:",
        "  %next = phi i64 [ 0, %entry ], [ %after, %moved ]",
        f"  %at = call i64 @llvm.smin.i64(i64 %next, i64 {last})",
        f"  %at.column = add i64 %at, {first}",
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
    zeros = list[str]()
    for r in range(emitter.lanes):
        zeros.append(f"  %row{r}.z = getelementptr {T}, ptr %row{r}.b, i64 %at")
        zeros.append(f"  store <{w} x {T}> zeroinitializer, ptr %row{r}.z, align {number_bytes(T)}")
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


def _row_starts(emitter: Emitter) -> list[str]:
    """%row{r}.b, where each row begins."""
    lines = []
    for r in range(emitter.lanes):
        lines.append(f"  %row{r}.o = mul i64 %step, {r}")
        lines.append(f"  %row{r}.b = getelementptr i8, ptr %rows, i64 %row{r}.o")
    return lines


def _column_pointer(emitter: Emitter, lookup: str | None, c: int) -> tuple[list[str], str]:
    """%col{c}.p, the column of the c-th number of the tile, by a table or in order."""
    lines, column = [f"  %col{c}.k = add i64 %at.column, {c}"], f"%col{c}.k"
    if lookup is not None:
        lines.append(f"  %col{c}.t = getelementptr [2 x i32], ptr {lookup}, i64 {column}, i64 0")
        lines.append(f"  %col{c}.i = load i32, ptr %col{c}.t, !invariant.load !1")
        lines.append(f"  %col{c}.w = zext i32 %col{c}.i to i64")
        column = f"%col{c}.w"
    return [*lines, f"  %col{c}.p = getelementptr {emitter.V}, ptr %cols, i64 {column}"], f"%col{c}.p"
