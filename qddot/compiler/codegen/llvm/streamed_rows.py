"""Long results with shared columns, written with streaming stores, as LLVM text; eight lanes of doubles on AVX-512."""

from __future__ import annotations

from collections.abc import Sequence

from qddot.compiler.codegen.llvm.tables import table
from qddot.compiler.codegen.llvm.transpose_eight_doubles import shuffle, square

COUNT = ", ".join(f"i64 {k}" for k in range(8))


def streamed_rows_function(name: str, columns: Sequence[int], zero: int | None) -> str:
    """Columns of eight lanes into eight rows that follow each other, with streaming stores, which take whole cache lines.

    Eight columns at a time become eight numbers of eight rows. A row begins anywhere in a cache line, so a line is
    assembled from the rest of the previous tile and the beginning of this one. A line with the end of a row has the
    beginning of the next row too. Partial lines need ordinary masked stores, which stall: only the first and the last line
    of all eight rows may be partial.
    """
    tiles, rest = divmod(len(columns), 8)
    lookup = [[*columns[k : k + 8], int(set(columns[k : k + 8]) == {zero})] for k in range(0, 8 * tiles, 8)]
    lines = ["entry:"]
    for r in range(8):
        lines += [
            f"  %row{r} = getelementptr i8, ptr %rows, i64 {8 * len(columns) * r}",
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
    square(lines, "b", columns=[str(c) for c in columns[:8]])
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
    _ends_of_rows(lines, columns, tiles, rest)
    body = "\n".join(lines)
    head = f"define internal void @{name}(ptr %rows, ptr noalias %cols)"
    return f"{table(name, lookup)}{head} {{\n{body}\n  ret void\n}}\n"


def _ends_of_rows(lines: list[str], columns: Sequence[int], tiles: int, rest: int) -> None:
    """The lines that have the ends of rows, one or two a row.

    What follows the numbers of the last tile, %new, is what is left of the row, and the next row from its beginning.
    """
    square(lines, "h", columns=[str(c) for c in columns[:8]])
    square(lines, "e", columns=[str(c) for c in [*columns[8 * tiles :], *columns[:8]][:8]])
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
    """A streaming store of a cache line."""
    return f"  store <8 x double> {value}, ptr {place}, align 64, !nontemporal !2"


def masked_store(value: str, place: str, mask: str) -> str:
    """Writes some of eight numbers."""
    return f"  call void @llvm.masked.store.v8f64.p0(<8 x double> {value}, ptr {place}, i32 8, <8 x i1> {mask})"
