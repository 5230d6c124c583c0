"""Results written tile by tile, as LLVM text, between the operations that compute them.

A streaming (non-temporal) store of a cache line takes 2.5 ns, but a few of them overlap with arithmetic. So the numbers of
a packed result, which are in the order in which they are computed, are written as soon as there are eight more of each row.
Then their columns are free for later numbers: a ring buffer that stays in the L1 cache.

Rows follow each other and have a multiple of eight numbers, so all rows have the same cache-line alignment. A line of a row
is eight columns, up to the last column of a tile or some before it. The line with the end of a row has the beginning of the
next one too; only the first and the last line of a result may be partial. What one block leaves for the next is in a
context of `CONTEXT_BYTES` bytes, `%context`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qddot.compiler.codegen.llvm.emitter import table
from qddot.compiler.codegen.llvm.prefetch import ROW_PREFETCH_BYTES
from qddot.compiler.codegen.llvm.transpose_eight_doubles import shuffle, square
from qddot.compiler.ir.packed_output import ROW_PADDING_NUMBERS, SHORT_RESULT_MAX_NUMBERS
from qddot.compiler.ir.program import Program

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
    _ends_of_shared_rows(lines, columns, tiles, rest)
    body = "\n".join(lines)
    head = f"define internal void @{name}(ptr %rows, ptr noalias %cols)"
    return f"{table(name, lookup)}{head} {{\n{body}\n  ret void\n}}\n"


def _ends_of_shared_rows(lines: list[str], columns: Sequence[int], tiles: int, rest: int) -> None:
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


# Offsets in the context: the first line of the first row; how many bytes before a tile the columns of its lines begin;
# whether the first line is whole; whether stores are streaming; how the end of a block and the next row make a line; that
# end.
_LINE, _BACK, _WHOLE, _STREAMING, _JOIN, _END = 0, 8, 16, 24, 64, 128
CONTEXT_BYTES = 192

_CONVENTION = "intel_ocl_bicc"  # calling convention: the callee preserves half of the vector registers

_GUARD, _RING = 8, 16  # columns: a copy of the ring's last tile, which its first one continues, then the ring
_RING_TILES = 8  # two are in use, the one to be written and the one before


@dataclass(frozen=True)
class Ring:
    """The columns of a result of `size` numbers: the first eight stay, the others are a ring buffer."""

    size: int

    @property
    def columns(self) -> int:
        """How many there are. The last eight are for the beginnings of the next rows."""
        return _RING + 8 * _RING_TILES + 8

    def column(self, k: int) -> int:
        """The column of the k-th number."""
        tile, rest = divmod(k, 8)
        return _RING + 8 * ((tile - 1) % _RING_TILES) + rest if tile else rest

    def write(self, t: int) -> list[str]:
        """Lines that write the t-th eight numbers."""
        lines = [f"  %tile{t} = getelementptr <8 x double>, ptr %out, i64 {self.column(8 * t)}"]
        if t and self.column(8 * t) == _RING:
            lines += [
                f"  %last{t} = getelementptr <8 x double>, ptr %out, i64 {self.column(8 * t - 8)}",
                f"  %spare{t} = getelementptr <8 x double>, ptr %out, i64 {_GUARD}",
                f"  call {_CONVENTION} void @repeat_tile(ptr %spare{t}, ptr %last{t})",
            ]
        return [
            *lines,
            f"  call {_CONVENTION} void @{'next' if t else 'first'}_tile(ptr %context, ptr %tile{t}, i64 {64 * t})",
        ]

    def functions(self) -> str:
        """What writes rows: `@begin_tiles` is called once, `@end_tiles` at last, the others for each block."""
        parts = _begin_tiles(), _first_tile(), _next_tile(self.size), _REPEAT_TILE, _ends_of_rows(self), _end_tiles()
        return "".join(parts)


def cut_into_tiles(program: Program, code: Sequence[int]) -> tuple[Ring | None, dict[int, list[int]]]:
    """Which eight numbers of a packed result are written when: after the last of them, or at the end, -1.

    None where they are not packed, or not in order.
    """
    numbers, when = program.outputs, {n: k for k, n in enumerate(code)}
    order = [when.get(n, len(code)) for n in numbers]
    packed = (
        len(numbers) > SHORT_RESULT_MAX_NUMBERS
        and len(numbers) % ROW_PADDING_NUMBERS == 0
        and len(numbers) - len(set(numbers)) < ROW_PADDING_NUMBERS
    )
    if not packed or order != sorted(order):
        return None, {}
    tiles: dict[int, list[int]] = {}
    for t, node in enumerate(numbers[7::8]):
        tiles.setdefault(node if node in when else -1, []).append(t)
    return Ring(len(numbers)), tiles


def _begin_tiles() -> str:
    V = "<8 x i64>"
    lines = [
        "  %row = ptrtoint ptr %rows to i64",
        "  %byte = and i64 %row, 63",
        "  %line = sub i64 %row, %byte",
        *_keep("line", "i64 %line", _LINE),
        "  %back = mul i64 %byte, -8",  # a number of eight bytes is a column of 64
        *_keep("back", "i64 %back", _BACK),
        "  %other = lshr i64 %byte, 3",  # numbers of the first line that are not its row's
        "  %own = sub i64 8, %other",
        f"  %own.e = insertelement {V} poison, i64 %own, i32 0",
        f"  %own.v = shufflevector {V} %own.e, {V} poison, <8 x i32> zeroinitializer",
        f"  %ours = add {V} %own.v, <{COUNT}>",
        f"  %theirs = icmp ult {V} %ours, splat (i64 8)",
        f"  %join = select <8 x i1> %theirs, {V} <{COUNT}>, {V} %ours",
        *_keep("join", f"{V} %join", _JOIN),
        "  %whole = icmp eq i64 %other, 0",
        "  %whole.i = zext i1 %whole to i64",
        *_keep("whole", "i64 %whole.i", _WHOLE),
        "  %streaming.i = zext i1 %is.streaming to i64",
        *_keep("streaming", "i64 %streaming.i", _STREAMING),
        "  ret void",
    ]
    return _function("begin_tiles(ptr %context, ptr %rows, i1 %is.streaming)", lines)


def _first_tile() -> str:
    """The first line of the first row, with what the block before left for it."""
    lines: list[str] = []
    square(lines, "b")
    lines += [
        *_kept("join", "<8 x i64>", _JOIN),
        *_kept("end", "<8 x double>", _END),
        picked("put", "%end", "%join", "%b.r0"),
        *_kept("at", "ptr", _LINE),
        *_kept("whole", "i64", _WHOLE),
        "  %is.whole = icmp ne i64 %whole, 0",
        "  br i1 %is.whole, label %all, label %some",
        "some:",
        "  %ours = icmp uge <8 x i64> %join, splat (i64 8)",
        masked_store("%put", "%at", "%ours"),
        *_keep("whole", "i64 1", _WHOLE),
        "  ret void",
        "all:",
    ]
    _written(lines, ["%put"], "%at", 0)
    return _function("first_tile(ptr %context, ptr noalias %cols, i64 %byte)", lines, between=True)


def _next_tile(size: int) -> str:
    """A line of each row."""
    lines = [*_kept("back", "i64", _BACK), "  %from = getelementptr i8, ptr %cols, i64 %back"]
    square(lines, "t", "%from")
    lines += [*_kept("line", "ptr", _LINE), "  %at = getelementptr i8, ptr %line, i64 %byte"]
    _written(lines, [f"%t.r{r}" for r in range(8)], "%at", 8 * size, ROW_PREFETCH_BYTES)
    return _function("next_tile(ptr %context, ptr noalias %cols, i64 %byte)", lines, between=True)


_REPEAT_TILE = f"""define internal {_CONVENTION} void @repeat_tile(ptr noalias %to, ptr noalias %from) noinline {{
entry:
  br label %column
column:
  %k = phi i64 [ 0, %entry ], [ %next, %column ]
  %from.p = getelementptr <8 x double>, ptr %from, i64 %k
  %to.p = getelementptr <8 x double>, ptr %to, i64 %k
  %numbers = load <8 x double>, ptr %from.p, align 64
  store <8 x double> %numbers, ptr %to.p, align 64
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, 8
  br i1 %more, label %column, label %done
done:
  ret void
}}
"""


def _ends_of_rows(ring: Ring) -> str:
    """The lines that have the ends of rows; the end of the last row waits for the next block.

    Rows go on in the next ones: the first columns, a row further, are copied behind the last ones.
    """
    end = ring.column(ring.size - 8) + 8
    lines = []
    for c in range(8):
        lines.append(f"  %b{c}.p = getelementptr <8 x double>, ptr %cols, i64 {c}")
        lines.append(f"  %b{c} = load <8 x double>, ptr %b{c}.p, align 64")
        shuffle(lines, f"n{c}", f"b{c}", f"b{c}", "1, 2, 3, 4, 5, 6, 7, 7")
        lines.append(f"  %n{c}.p = getelementptr <8 x double>, ptr %cols, i64 {end + c}")
        lines.append(f"  store <8 x double> %n{c}, ptr %n{c}.p, align 64")
    lines += [*_kept("back", "i64", _BACK), f"  %to.end = add i64 %back, {64 * end}"]
    lines.append("  %from = getelementptr i8, ptr %cols, i64 %to.end")
    square(lines, "e", "%from")
    lines += [*_keep("end", "<8 x double> %e.r7", _END), *_kept("line", "i64", _LINE)]
    lines.append(f"  %next = add i64 %line, {64 * ring.size}")
    lines += [*_keep("next", "i64 %next", _LINE), f"  %last = add i64 %line, {8 * ring.size}"]
    lines.append("  %at = inttoptr i64 %last to ptr")
    _written(lines, [f"%e.r{r}" for r in range(7)], "%at", 8 * ring.size)
    return _function("ends_of_rows(ptr %context, ptr noalias %cols)", lines)


def _end_tiles() -> str:
    """The end of the last row of all."""
    lines = [
        *_kept("join", "<8 x i64>", _JOIN),
        *_kept("end", "<8 x double>", _END),
        *_kept("at", "ptr", _LINE),
        "  %ours = icmp ult <8 x i64> %join, splat (i64 8)",
        masked_store("%end", "%at", "%ours"),
        "  ret void",
    ]
    return _function("end_tiles(ptr %context)", lines)


# ---- in the loop over blocks -------------------------------------------------------------------------------------------

# One block into scratch memory
BEGIN_ROWS = ("  call void @begin_tiles(ptr %context, ptr %rows, i1 false)",)
END_ROWS = ("  call void @ends_of_rows(ptr %context, ptr %out)", "  call void @end_tiles(ptr %context)")


# ---- parts -------------------------------------------------------------------------------------------------------------


def _function(head: str, lines: list[str], between: bool = False) -> str:
    """A function, or one that is called between operations."""
    body = "\n".join(["entry:", *lines])
    kind, more = (f"{_CONVENTION} ", " noinline") if between else ("", "")
    return f"define internal {kind}void @{head}{more} {{\n{body}\n}}\n"


def _kept(name: str, kind: str, byte: int) -> list[str]:
    """Takes %name from the context."""
    where = f"  %{name}.at = getelementptr i8, ptr %context, i64 {byte}"
    return [where, f"  %{name} = load {kind}, ptr %{name}.at, align {64 if '8 x' in kind else 8}"]


def _keep(name: str, value: str, byte: int) -> list[str]:
    """Puts a value into the context."""
    where = f"  %{name}.to = getelementptr i8, ptr %context, i64 {byte}"
    return [where, f"  store {value}, ptr %{name}.to, align {64 if '8 x' in value else 8}"]


def _written(lines: list[str], numbers: list[str], at: str, pitch: int, prefetch: int = 0) -> None:
    """Writes whole cache lines, `pitch` bytes apart, with streaming stores or ordinary ones, and returns.

    With ordinary ones the lines `prefetch` bytes further in the rows are prefetched.
    """
    places = [f"{at}{r}" for r in range(len(numbers))]
    lines += [f"  {place} = getelementptr i8, ptr {at}, i64 {pitch * r}" for r, place in enumerate(places)]
    lines += [*_kept("streaming", "i64", _STREAMING), "  %is.streaming = icmp ne i64 %streaming, 0"]
    lines += ["  br i1 %is.streaming, label %w.streaming, label %w.usual", "w.streaming:"]
    lines += [streamed(value, place) for place, value in zip(places, numbers, strict=True)]
    lines += ["  ret void", "w.usual:"]
    for place, value in zip(places, numbers, strict=True):
        lines.append(f"  store <8 x double> {value}, ptr {place}, align 64")
        if prefetch:
            lines.append(f"  {place}.later = getelementptr i8, ptr {place}, i64 {prefetch}")
            lines.append(f"  call void @llvm.prefetch.p0(ptr {place}.later, i32 1, i32 3, i32 1)")
    lines.append("  ret void")
