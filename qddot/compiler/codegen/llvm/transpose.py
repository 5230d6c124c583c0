"""Rows and columns as LLVM text: how the numbers of eight states get from memory into lanes and back.

A row is one state, its numbers side by side; a column is one number of all lanes. Full blocks are transposed in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from qddot.compiler.codegen.llvm.prefetch import ROW_PREFETCH_BYTES

Shape = tuple[int, ...]


def _flat_offset(name: str, k: str, shape: Shape, strides: list[str]) -> list[str]:
    """Lines that compute %name = the byte offset of the k-th entry of an array with any strides."""
    lines, total = [], "0"
    for j, d in enumerate(shape):
        rest = prod(shape[j + 1 :])
        lines.append(f"  %{name}.d{j} = udiv i64 {k}, {rest}")
        lines.append(f"  %{name}.m{j} = urem i64 %{name}.d{j}, {d}")
        lines.append(f"  %{name}.o{j} = mul i64 %{name}.m{j}, {strides[j]}")
        lines.append(f"  %{name}.t{j} = add i64 %{name}.o{j}, {total}")
        total = f"%{name}.t{j}"
    lines.append(f"  %{name} = add i64 {total}, 0")
    return lines


def has_transposes(lanes: int, T: str) -> bool:
    """Whether blocks of so many lanes are transposed in registers."""
    return lanes == 8 and T == "double"


def copy_function(
    name: str, shape: Shape, T: str, into_rows: bool, columns: Sequence[int] | None = None, plain: bool = False
) -> str:
    """Moves one state between an array and a column of lanes; `%pitch` bytes lie between the entries of the column.

    The array may have any strides; with `plain` its entries lie side by side, and strides are not asked for.
    """
    table, place = "", "  %place = add i64 %k, 0"
    if columns is not None:
        table = _table(name, [[k] for k in columns])
        place = f"""  %place.p = getelementptr i32, ptr @{name}.table, i64 %k
  %place.i = load i32, ptr %place.p
  %place = zext i32 %place.i to i64"""
    n = prod(shape)
    strides = [] if plain else [f"%c{j}" for j in range(len(shape))]
    parameters = ", ".join(f"i64 {c}" for c in strides)
    side_by_side = f"  %at = mul i64 %k, {8 if T == 'double' else 4}"
    offset = side_by_side if plain else "\n".join(_flat_offset("at", "%k", shape, strides))
    row, column = "%row.p", "%column.p"
    source, target = (column, row) if into_rows else (row, column)
    arguments = ", ".join(["ptr %row", "ptr %column", "i64 %pitch", *([parameters] if parameters else [])])
    return f"""{table}define internal void @{name}({arguments}) {{
entry:
  br label %step
step:
  %k = phi i64 [ 0, %entry ], [ %k1, %step ]
{offset}
  %row.p = getelementptr i8, ptr %row, i64 %at
{place}
  %far = mul i64 %place, %pitch
  %column.p = getelementptr i8, ptr %column, i64 %far
  %value = load {T}, ptr {source}, align 1
  store {T} %value, ptr {target}, align 1
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {n}
  br i1 %more, label %step, label %done
done:
  ret void
}}
"""


def transpose_function(name: str, columns: int, into_rows: bool) -> str:
    """Eight contiguous rows of doubles into columns of eight lanes or back, four columns at a time."""
    tile = _tile_to_rows if into_rows else _tile_to_columns
    full, rest = divmod(columns, 4)
    lines = ["entry:"]
    for r in range(8):
        lines.append(f"  %off{r} = mul i64 %step, {r}")
        lines.append(f"  %at.row{r} = getelementptr i8, ptr %rows, i64 %off{r}")
        lines.append(f'  %row{r} = call ptr asm "", "=r,0"(ptr %at.row{r})')  # LLVM would compute it anew for each tile
    if full:
        lines += ["  br label %tile", "tile:", "  %at = phi i64 [ 0, %entry ], [ %next, %tile ]"]
        tile(lines, "f", "%at", 4)
        lines += [
            "  %next = add i64 %at, 4",
            f"  %more = icmp ult i64 %next, {4 * full}",
            "  br i1 %more, label %tile, label %last",
        ]
    else:
        lines.append("  br label %last")
    lines.append("last:")
    if rest:
        lines.append(f"  %at_last = add i64 {4 * full}, 0")
        tile(lines, "l", "%at_last", rest)
    body = "\n".join(lines)
    return f"define internal void @{name}(ptr %rows, i64 %step, ptr noalias %cols) {{\n{body}\n  ret void\n}}\n"


def _table(name: str, rows: list[list[int]]) -> str:
    """A constant array of rows of whole numbers."""
    width = len(rows[0])
    text = ", ".join(f"[{width} x i32] [{', '.join(f'i32 {x}' for x in row)}]" for row in rows)
    return f"@{name}.table = internal constant [{len(rows)} x [{width} x i32]] [{text}]\n"


def shared_rows_function(name: str, places: Sequence[int], zero: int | None) -> str:
    """Columns of eight lanes into eight contiguous rows, by a table of columns: results may share them.

    The last tile begins where it is full, and writes some numbers a second time. Rows this long are not in the first cache:
    their memory is asked for some tiles ahead. Tiles of nothing but zeros are not transposed.
    """
    starts = [*range(0, len(places) - 3, 4), *([len(places) - 4] if len(places) % 4 else [])]
    rows = [[k, *places[k : k + 4], int(set(places[k : k + 4]) == {zero})] for k in starts]
    lines = ["entry:"]
    for r in range(8):
        lines.append(f"  %off{r} = mul i64 %step, {r}")
        lines.append(f"  %row{r} = getelementptr i8, ptr %rows, i64 %off{r}")
    lines += ["  br label %tile", "tile:", "  %t = phi i64 [ 0, %entry ], [ %next, %after ]"]
    for k in range(6):
        lines.append(f"  %x{k}.p = getelementptr [6 x i32], ptr @{name}.table, i64 %t, i64 {k}")
        lines += [f"  %y{k} = load i32, ptr %x{k}.p", f"  %x{k} = zext i32 %y{k} to i64"]
    for r in range(8):
        lines.append(f"  %at{r} = getelementptr double, ptr %row{r}, i64 %x0")
        lines.append(f"  %ahead{r} = getelementptr i8, ptr %at{r}, i64 {ROW_PREFETCH_BYTES}")
        lines.append(f"  call void @llvm.prefetch.p0(ptr %ahead{r}, i32 1, i32 3, i32 1)")
    lines += ["  %zero = icmp ne i64 %x5, 0", "  br i1 %zero, label %nothing, label %full", "full:"]
    _tile_to_rows(lines, "f", "%x0", 4, [f"%x{k + 1}" for k in range(4)])
    lines += ["  br label %after", "nothing:"]
    lines += [f"  store <4 x double> zeroinitializer, ptr %at{r}, align 8" for r in range(8)]
    lines += [
        "  br label %after",
        "after:",
        "  %next = add i64 %t, 1",
        f"  %more = icmp ult i64 %next, {len(rows)}",
        "  br i1 %more, label %tile, label %last",
        "last:",
    ]
    body = "\n".join(lines)
    head = f"define internal void @{name}(ptr %rows, i64 %step, ptr noalias %cols)"
    return f"{_table(name, rows)}{head} {{\n{body}\n  ret void\n}}\n"


COUNT = ", ".join(f"i64 {k}" for k in range(8))


def streamed_rows_function(name: str, places: Sequence[int], zero: int | None) -> str:
    """As the function before, but past the caches, which takes whole lines of memory; rows follow each other.

    Eight columns at a time become eight numbers of eight rows. A row begins anywhere in a line, so that a line is put
    together from what is left of the tile before and what fits of this one. The line that has the end of a row has the
    beginning of the next one as well. Only the first and the last line of all eight rows may belong to others: they are
    written as usual, and waiting for them is why there must not be more of these.
    """
    tiles, rest = divmod(len(places), 8)
    table = [[*places[k : k + 8], int(set(places[k : k + 8]) == {zero})] for k in range(0, 8 * tiles, 8)]
    lines = ["entry:"]
    for r in range(8):
        lines += [
            f"  %row{r} = getelementptr i8, ptr %rows, i64 {8 * len(places) * r}",
            f"  %int{r} = ptrtoint ptr %row{r} to i64",
            f"  %byte{r} = and i64 %int{r}, 63",
            f"  %back{r} = sub i64 0, %byte{r}",
            f"  %line{r} = getelementptr i8, ptr %row{r}, i64 %back{r}",
            f"  %other{r} = lshr i64 %byte{r}, 3",
            f"  %own{r} = sub i64 8, %other{r}",  # numbers of its first line that are this row's
            f"  %own.e{r} = insertelement <8 x i64> poison, i64 %own{r}, i32 0",
            f"  %own.v{r} = shufflevector <8 x i64> %own.e{r}, <8 x i64> poison, <8 x i32> zeroinitializer",
            f"  %pick{r} = add <8 x i64> %own.v{r}, <{COUNT}>",
        ]
    square(lines, "b", columns=[str(c) for c in places[:8]])
    lines += ["  %fits = icmp eq i64 %byte0, 0", "  br i1 %fits, label %begin, label %shared", "begin:"]
    lines += [streamed("%b.r0", "%line0"), "  br label %first", "shared:"]
    lines += [f"  %head = icmp ult <8 x i64> <{COUNT}>, %own.v0", masked_store("%b.r0", "%row0", "%head")]
    lines += ["  br label %first", "first:"]
    lines += ["  br label %tile", "tile:", "  %t = phi i64 [ 1, %first ], [ %next, %whole ]"]
    lines += [f"  %old{r} = phi <8 x double> [ %b.r{r}, %first ], [ %new{r}, %whole ]" for r in range(8)]
    for k in range(9):
        lines.append(f"  %x{k}.p = getelementptr [9 x i32], ptr @{name}.table, i64 %t, i64 {k}")
        lines += [f"  %y{k} = load i32, ptr %x{k}.p", f"  %x{k} = zext i32 %y{k} to i64"]
    lines += ["  %zero = icmp ne i64 %x8, 0", "  br i1 %zero, label %whole, label %full", "full:"]
    square(lines, "f", columns=[f"%x{c}" for c in range(8)])
    lines += ["  br label %whole", "whole:"]
    lines += [f"  %new{r} = phi <8 x double> [ zeroinitializer, %tile ], [ %f.r{r}, %full ]" for r in range(8)]
    lines.append("  %line = shl i64 %t, 6")
    for r in range(8):
        lines.append(f"  %at{r} = getelementptr i8, ptr %line{r}, i64 %line")
        lines += [picked(f"put{r}", f"%old{r}", f"%pick{r}", f"%new{r}"), streamed(f"%put{r}", f"%at{r}")]
    lines += ["  %next = add i64 %t, 1", f"  %more = icmp ult i64 %next, {tiles}"]
    lines += ["  br i1 %more, label %tile, label %last", "last:"]
    _ends_of_rows(lines, places, tiles, rest)
    body = "\n".join(lines)
    head = f"define internal void @{name}(ptr %rows, ptr noalias %cols)"
    return f"{_table(name, table)}{head} {{\n{body}\n  ret void\n}}\n"


def _ends_of_rows(lines: list[str], places: Sequence[int], tiles: int, rest: int) -> None:
    """The lines that have the ends of rows, one or two a row.

    What follows the numbers of the last tile, %new, is what is left of the row, and the next row from its beginning.
    """
    square(lines, "h", columns=[str(c) for c in places[:8]])
    square(lines, "e", columns=[str(c) for c in [*places[8 * tiles :], *places[:8]][:8]])
    after = ", ".join(str(k if k < rest else 8 + k - rest) for k in range(8))
    later = ", ".join(str((8 - rest + k) % 8) for k in range(8))
    for r in range(8):
        beginning = f"h.r{(r + 1) % 8}"  # of the row after the last nothing is written
        shuffle(lines, f"e1.{r}", f"e.r{r}", beginning, after)
        shuffle(lines, f"e2.{r}", beginning, beginning, later)
        lines += [
            picked(f"end{r}", f"%new{r}", f"%pick{r}", f"%e1.{r}"),
            picked(f"over{r}", f"%e1.{r}", f"%pick{r}", f"%e2.{r}"),
            f"  %end{r}.p = getelementptr i8, ptr %line{r}, i64 {64 * tiles}",
            f"  %over{r}.p = getelementptr i8, ptr %line{r}, i64 {64 * tiles + 64}",
            f"  %two{r} = icmp ule i64 %own{r}, {rest}",
        ]
    for r in range(7):
        lines += [streamed(f"%end{r}", f"%end{r}.p"), f"  br i1 %two{r}, label %two.{r}, label %one.{r}", f"two.{r}:"]
        lines += [streamed(f"%over{r}", f"%over{r}.p"), f"  br label %one.{r}", f"one.{r}:"]
    lines += [
        f"  %left = sub i64 {8 + rest}, %own7",  # numbers of the last row that are in no line yet
        "  %left.e = insertelement <8 x i64> poison, i64 %left, i32 0",
        "  %left.v = shufflevector <8 x i64> %left.e, <8 x i64> poison, <8 x i32> zeroinitializer",
        "  br i1 %two7, label %two.7, label %one.7",
        "two.7:",
        streamed("%end7", "%end7.p"),
        f"  %tail2 = icmp ult <8 x i64> <{', '.join(f'i64 {8 + k}' for k in range(8))}>, %left.v",
        masked_store("%over7", "%over7.p", "%tail2"),
        "  ret void",
        "one.7:",
        f"  %tail1 = icmp ult <8 x i64> <{COUNT}>, %left.v",
        masked_store("%end7", "%end7.p", "%tail1"),
    ]


def picked(name: str, a: str, which: str, b: str) -> str:
    """Eight of the sixteen numbers of two vectors."""
    intrinsic = "@llvm.x86.avx512.vpermi2var.pd.512"
    return f"  %{name} = call <8 x double> {intrinsic}(<8 x double> {a}, <8 x i64> {which}, <8 x double> {b})"


def streamed(value: str, place: str) -> str:
    """Writes a line of memory past the caches."""
    return f"  store <8 x double> {value}, ptr {place}, align 64, !nontemporal !2"


def masked_store(value: str, place: str, mask: str) -> str:
    """Writes some of eight numbers."""
    return f"  call void @llvm.masked.store.v8f64.p0(<8 x double> {value}, ptr align 8 {place}, <8 x i1> {mask})"


def square(lines: list[str], t: str, base: str = "%cols", columns: Sequence[str] = "01234567") -> None:
    """Eight columns of `base` into eight rows %t.r0 … %t.r7: halves of two columns side by side, then as tiles of four."""
    for k, a in enumerate(_FORMER):
        for half in (0, 4):
            for c in (a, a + 2):
                lines.append(f"  %{t}.q{half}{c} = getelementptr <8 x double>, ptr {base}, i64 {columns[c]}, i64 {half}")
                lines.append(f"  %{t}.h{half}{c} = load <4 x double>, ptr %{t}.q{half}{c}, align 32")
            shuffle(lines, f"{t}.c{half}{k}", f"{t}.h{half}{a}", f"{t}.h{half}{a + 2}", "0, 1, 2, 3, 4, 5, 6, 7", 4)
    for half in (0, 4):
        for k, (a, b) in enumerate(((0, 1), (2, 3))):
            shuffle(lines, f"{t}.lo{half}{k}", f"{t}.c{half}{a}", f"{t}.c{half}{b}", LOW)
            shuffle(lines, f"{t}.hi{half}{k}", f"{t}.c{half}{a}", f"{t}.c{half}{b}", HIGH)
        for r, (side, mask) in enumerate((("lo", EVEN), ("hi", EVEN), ("lo", ODD), ("hi", ODD))):
            shuffle(lines, f"{t}.r{half + r}", f"{t}.{side}{half}0", f"{t}.{side}{half}1", mask)


def _mask(width: int) -> str:
    return "<4 x i1> <" + ", ".join(f"i1 {int(k < width)}" for k in range(4)) + ">"


LOW, HIGH = "0, 8, 2, 10, 4, 12, 6, 14", "1, 9, 3, 11, 5, 13, 7, 15"
_FIRST, _SECOND = "0, 1, 8, 9, 4, 5, 12, 13", "2, 3, 10, 11, 6, 7, 14, 15"
EVEN, ODD = "0, 1, 4, 5, 8, 9, 12, 13", "2, 3, 6, 7, 10, 11, 14, 15"  # pairs; an instruction that keeps its operands
_FORMER = (0, 1, 4, 5)  # each stands with the one two further in one vector: then the last step takes pairs in order


def shuffle(lines: list[str], out: str, a: str, b: str, mask: str, n: int = 8) -> None:
    """Those numbers of two vectors that the mask counts."""
    numbers = ", ".join(f"i32 {m}" for m in mask.split(", "))
    count = len(mask.split(", "))
    lines.append(f"  %{out} = shufflevector <{n} x double> %{a}, <{n} x double> %{b}, <{count} x i32> <{numbers}>")


def _tile_to_columns(lines: list[str], t: str, first: str, width: int) -> None:
    lines += [f"  %{t}.p{r} = getelementptr double, ptr %row{r}, i64 {first}" for r in range(8)]
    four_columns(lines, t, width)
    for c in range(width):
        lines.append(f"  %{t}.i{c} = add i64 {first}, {c}")
        lines.append(f"  %{t}.q{c} = getelementptr <8 x double>, ptr %cols, i64 %{t}.i{c}")
        lines.append(f"  store <8 x double> %{t}.c{c}, ptr %{t}.q{c}, align 64")


def four_columns(lines: list[str], t: str, width: int = 4) -> None:
    """The numbers of eight rows from %t.p0 … %t.p7 on as columns %t.c0 … %t.c3, or as many as there are."""
    for r in range(8):
        if width == 4:
            lines.append(f"  %{t}.l{r} = load <4 x double>, ptr %{t}.p{r}, align 8")
        else:
            lines.append(
                f"  %{t}.l{r} = call <4 x double> @llvm.masked.load.v4f64.p0"
                f"(ptr align 8 %{t}.p{r}, {_mask(width)}, <4 x double> zeroinitializer)"
            )
    for k, r in enumerate(_FORMER):
        shuffle(lines, f"{t}.a{k}", f"{t}.l{r}", f"{t}.l{r + 2}", "0, 1, 2, 3, 4, 5, 6, 7", 4)
    for k, (a, b) in enumerate(((0, 1), (2, 3))):
        shuffle(lines, f"{t}.lo{k}", f"{t}.a{a}", f"{t}.a{b}", LOW)
        shuffle(lines, f"{t}.hi{k}", f"{t}.a{a}", f"{t}.a{b}", HIGH)
    for c, (half, mask_) in enumerate((("lo", EVEN), ("hi", EVEN), ("lo", ODD), ("hi", ODD))):
        if c < width:
            shuffle(lines, f"{t}.c{c}", f"{t}.{half}0", f"{t}.{half}1", mask_)


def _tile_to_rows(lines: list[str], t: str, first: str, width: int, columns: list[str] | None = None) -> None:
    for c in range(4):
        if c < width:
            lines.append(f"  %{t}.i{c} = add i64 {columns[c]}, 0" if columns else f"  %{t}.i{c} = add i64 {first}, {c}")
            lines.append(f"  %{t}.q{c} = getelementptr <8 x double>, ptr %cols, i64 %{t}.i{c}")
            lines.append(f"  %{t}.c{c} = load <8 x double>, ptr %{t}.q{c}, align 64")
        else:
            lines.append(f"  %{t}.c{c} = select i1 true, <8 x double> zeroinitializer, <8 x double> zeroinitializer")
    for k, (a, b) in enumerate(((0, 1), (2, 3))):
        shuffle(lines, f"{t}.lo{k}", f"{t}.c{a}", f"{t}.c{b}", LOW)
        shuffle(lines, f"{t}.hi{k}", f"{t}.c{a}", f"{t}.c{b}", HIGH)
    for r, (half, mask_) in enumerate((("lo", _FIRST), ("hi", _FIRST), ("lo", _SECOND), ("hi", _SECOND))):
        shuffle(lines, f"{t}.r{r}", f"{t}.{half}0", f"{t}.{half}1", mask_)
        shuffle(lines, f"{t}.l{r}", f"{t}.r{r}", f"{t}.r{r}", "0, 1, 2, 3")
        shuffle(lines, f"{t}.l{r + 4}", f"{t}.r{r}", f"{t}.r{r}", "4, 5, 6, 7")
    for r in range(8):
        lines.append(f"  %{t}.p{r} = getelementptr double, ptr %row{r}, i64 {first}")
        if width == 4:
            lines.append(f"  store <4 x double> %{t}.l{r}, ptr %{t}.p{r}, align 8")
        else:
            lines.append(
                f"  call void @llvm.masked.store.v4f64.p0(<4 x double> %{t}.l{r}, ptr align 8 %{t}.p{r}, {_mask(width)})"
            )
