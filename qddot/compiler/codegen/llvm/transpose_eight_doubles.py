"""Blocks of eight doubles between rows in memory and columns of lanes, as LLVM text: 4 × 8 tiles, transposed in registers.

One step fewer than the general code of `transpose`, and instructions that AVX-512 executes on either of two ports.
"""

from __future__ import annotations

from collections.abc import Sequence

from qddot.compiler.codegen.llvm.emitter import table
from qddot.compiler.codegen.llvm.prefetch import ROW_PREFETCH_BYTES
from qddot.compiler.targets.architecture import Architecture


def transpose_function(name: str, columns: int, into_rows: bool, architecture: Architecture) -> str:
    """Eight contiguous rows of doubles into columns of eight lanes or back, four columns at a time."""
    tile = _tile_to_rows if into_rows else _tile_to_columns
    full, rest = divmod(columns, 4)
    lines = ["entry:"]
    for r in range(8):
        lines.append(f"  %off{r} = mul i64 %step, {r}")
        lines.append(f"  %at.row{r} = getelementptr i8, ptr %rows, i64 %off{r}")
        lines.append(architecture.opaque_pointer(f"%row{r}", f"%at.row{r}"))  # not to be computed again for each tile
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


def shared_rows_function(name: str, columns: Sequence[int], zero: int | None) -> str:
    """Columns of eight lanes into eight contiguous rows, by a table: equal numbers share a column.

    The last tile begins where it is full, and writes some numbers twice. Rows this long are not in the L1 cache: they are
    prefetched some tiles ahead. Tiles of zeros are not transposed.
    """
    starts = [*range(0, len(columns) - 3, 4), *([len(columns) - 4] if len(columns) % 4 else [])]
    rows = [[k, *columns[k : k + 4], int(set(columns[k : k + 4]) == {zero})] for k in starts]
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
    return f"{table(name, rows)}{head} {{\n{body}\n  ret void\n}}\n"


def square(lines: list[str], t: str, base: str = "%cols", columns: Sequence[str] = "01234567") -> None:
    """Eight columns of `base` into eight rows %t.r0 … %t.r7: halves of two columns in a vector, then as tiles of four."""
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
                f"(ptr %{t}.p{r}, i32 8, {_mask(width)}, <4 x double> zeroinitializer)"
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
                f"  call void @llvm.masked.store.v4f64.p0(<4 x double> %{t}.l{r}, ptr %{t}.p{r}, i32 8, {_mask(width)})"
            )
