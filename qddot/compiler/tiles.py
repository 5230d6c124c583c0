"""Results written tile by tile, as LLVM text, between the operations that compute them.

A line of memory that is written past the caches takes 2.5 ns; a few of them are not waited for if there is something else
to do. So the numbers of a packed result, which are in the order in which they are computed, are written as soon as there
are eight more of each row.

Rows follow each other and have a multiple of four numbers. So there are two places in a line where rows begin, one for even
rows and one for odd ones, the same for all blocks: a line is eight columns in some rows, up to the last column of a tile or
some before it. The line that has the end of a row has the beginning of the next one as well; only the first line of a
result and its last one may belong to others. What goes on from block to block is kept in a context of `CONTEXT` bytes,
`%lines`.
"""

from __future__ import annotations

from qddot.compiler.rows import AHEAD, COUNT, EVEN, HIGH, LOW, ODD, masked_store, picked, shuffle, streamed

# Where things are in the context: the first line of each row; how many bytes before a tile the columns of even and of odd
# rows begin; whether the first line is written whole, and past the caches; how the end of a block and the next row make a
# line; that end.
_LINE, _BACK, _WHOLE, _PAST, _JOIN, _END = 0, 64, 80, 88, 128, 192
CONTEXT = 256

_CONVENTION = "intel_ocl_bicc"  # for calls: half of the vector registers stay as they are


def tile_functions(size: int) -> str:
    """What writes rows of `size` numbers.

    `@begin_tiles` is called once, `@first_tile`, `@next_tile` and `@ends_of_rows` for each block, and `@end_tiles` at last.
    Tiles are not written where the context is null.
    """
    return "".join((_begin_tiles(size), _first_tile(), _next_tile(), _ends_of_rows(size), _end_tiles()))


def tile_call(t: int) -> list[str]:
    """Lines that write the t-th eight columns of %out."""
    call = f"  call {_CONVENTION} void @{'next' if t else 'first'}_tile(ptr %lines, ptr %tile{t}, i64 {64 * t})"
    return [f"  %tile{t} = getelementptr <8 x double>, ptr %out, i64 {8 * t}", call]


def _begin_tiles(size: int) -> str:
    V = "<8 x i64>"
    lines = [
        "  %first = ptrtoint ptr %rows to i64",
        *_splat("first.v", "%first"),
        f"  %row = add {V} %first.v, <{', '.join(f'i64 {8 * size * r}' for r in range(8))}>",
        f"  %byte = and {V} %row, splat (i64 63)",
        f"  %line = sub {V} %row, %byte",
        *_keep("line", f"{V} %line", _LINE),
        f"  %back = mul {V} %byte, splat (i64 -8)",  # a number of eight bytes is a column of 64
        f"  %back.2 = shufflevector {V} %back, {V} poison, <2 x i32> <i32 0, i32 1>",
        *_keep("back", "<2 x i64> %back.2", _BACK),
        f"  %other = lshr {V} %byte, splat (i64 3)",
        f"  %other0 = extractelement {V} %other, i32 0",  # numbers of the first line that are not its row's
        "  %own0 = sub i64 8, %other0",
        *_splat("own", "%own0"),
        f"  %ours = add {V} %own, <{COUNT}>",
        f"  %theirs = icmp ult {V} %ours, splat (i64 8)",
        f"  %join = select <8 x i1> %theirs, {V} <{COUNT}>, {V} %ours",
        *_keep("join", f"{V} %join", _JOIN),
        "  %whole = icmp eq i64 %other0, 0",
        "  %whole.i = zext i1 %whole to i64",
        *_keep("whole", "i64 %whole.i", _WHOLE),
        "  %past.i = zext i1 %past to i64",
        *_keep("past", "i64 %past.i", _PAST),
    ]
    return _function("begin_tiles(ptr %lines, ptr %rows, i1 %past)", lines)


def _first_tile() -> str:
    """The first line of the first row, with what the block before left for it."""
    lines: list[str] = []
    _four_rows(lines, "b", "%cols", 0)
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
        "  br label %done",
        "all:",
        *_is_past(),
    ]
    _written(lines, "w", {"%at": "%put"})
    return _tile("first_tile", lines)


def _next_tile() -> str:
    """A line of each row, even rows first: all at once would take more registers than the caller can spare."""
    lines = _is_past()
    for odd in (0, 1):
        lines += _kept(f"back{odd}", "i64", _BACK + 8 * odd)
        lines.append(f"  %from{odd} = getelementptr i8, ptr %cols, i64 %back{odd}")
        _four_rows(lines, "t", f"%from{odd}", odd)
        for r in range(odd, 8, 2):
            lines += _kept(f"line{r}", "ptr", _LINE + 8 * r)
            lines.append(f"  %to{r} = getelementptr i8, ptr %line{r}, i64 %byte")
        _written(lines, f"w{odd}", {f"%to{r}": f"%t.r{r}" for r in range(odd, 8, 2)}, AHEAD)
    return _tile("next_tile", lines)


def _ends_of_rows(size: int) -> str:
    """The lines that have the ends of rows, one or two a row; the end of the last row waits for the next block.

    Rows go on in the next ones: the first columns, a row further, are copied behind the last ones.
    """
    tiles, rest = divmod(size, 8)
    lines = _is_past()
    for c in range(8):
        lines.append(f"  %b{c}.p = getelementptr <8 x double>, ptr %cols, i64 {c}")
        lines.append(f"  %b{c} = load <8 x double>, ptr %b{c}.p, align 64")
        shuffle(lines, f"n{c}", f"b{c}", f"b{c}", "1, 2, 3, 4, 5, 6, 7, 7")
        lines.append(f"  %n{c}.p = getelementptr <8 x double>, ptr %cols, i64 {size + c}")
        lines.append(f"  store <8 x double> %n{c}, ptr %n{c}.p, align 64")
    for odd in (0, 1):
        rows = range(odd, 7, 2)
        lines += _kept(f"back{odd}", "i64", _BACK + 8 * odd)
        for r in range(odd, 8, 2):
            lines += _kept(f"line{r}", "ptr", _LINE + 8 * r)
        for k, t in enumerate("ef"):
            lines.append(f"  %{t}.back{odd} = add i64 %back{odd}, {64 * 8 * (tiles + k)}")
            lines.append(f"  %{t}.from{odd} = getelementptr i8, ptr %cols, i64 %{t}.back{odd}")
            lines += [f"  %{t}{r} = getelementptr i8, ptr %line{r}, i64 {64 * (tiles + k)}" for r in range(odd, 8, 2)]
        _four_rows(lines, "e", f"%e.from{odd}", odd)
        _written(lines, f"e{odd}", {f"%e{r}": f"%e.r{r}" for r in rows})
        lines += _keep("end", "<8 x double> %e.r7", _END) if odd else []
        lines.append(f"  %two{odd} = icmp sle i64 %back{odd}, {-64 * (8 - rest)}")
        lines += [f"  br i1 %two{odd}, label %two.{odd}, label %one.{odd}", f"two.{odd}:"]
        _four_rows(lines, "f", f"%f.from{odd}", odd)
        _written(lines, f"f{odd}", {**{f"%f{r}": f"%f.r{r}" for r in rows}, **({"%e7": "%e.r7"} if odd else {})})
        lines += _keep("later", "<8 x double> %f.r7", _END) if odd else []
        lines += [f"  br label %one.{odd}", f"one.{odd}:"]
    lines += _kept("line", "<8 x i64>", _LINE)
    lines.append(f"  %next = add <8 x i64> %line, splat (i64 {64 * size})")
    lines += _keep("next", "<8 x i64> %next", _LINE)
    return _function("ends_of_rows(ptr %lines, ptr noalias %cols)", lines)


def _end_tiles() -> str:
    """The end of the last row of all."""
    lines = [
        *_kept("join", "<8 x i64>", _JOIN),
        *_kept("end", "<8 x double>", _END),
        *_kept("at", "ptr", _LINE),
        "  %ours = icmp ult <8 x i64> %join, splat (i64 8)",
        masked_store("%end", "%at", "%ours"),
    ]
    return _function("end_tiles(ptr %lines)", lines)


# ---- parts -------------------------------------------------------------------------------------------------------------


def _function(head: str, lines: list[str]) -> str:
    body = "\n".join(["entry:", *lines])
    return f"define internal void @{head} {{\n{body}\n  ret void\n}}\n"


def _tile(name: str, lines: list[str]) -> str:
    """A function that is called between operations."""
    head = f"define internal {_CONVENTION} void @{name}(ptr %lines, ptr noalias %cols, i64 %byte) noinline"
    test = ["entry:", "  %none = icmp eq ptr %lines, null", "  br i1 %none, label %done, label %tile", "tile:"]
    body = "\n".join([*test, *lines, "  br label %done", "done:"])
    return f"{head} {{\n{body}\n  ret void\n}}\n"


def _kept(name: str, kind: str, byte: int) -> list[str]:
    """Takes %name from the context."""
    where = f"  %{name}.at = getelementptr i8, ptr %lines, i64 {byte}"
    return [where, f"  %{name} = load {kind}, ptr %{name}.at, align {64 if '8 x' in kind else 8}"]


def _keep(name: str, value: str, byte: int) -> list[str]:
    """Puts a value into the context."""
    where = f"  %{name}.to = getelementptr i8, ptr %lines, i64 {byte}"
    return [where, f"  store {value}, ptr %{name}.to, align {64 if '8 x' in value else 8}"]


def _splat(name: str, value: str) -> list[str]:
    return [
        f"  %{name}.e = insertelement <8 x i64> poison, i64 {value}, i32 0",
        f"  %{name} = shufflevector <8 x i64> %{name}.e, <8 x i64> poison, <8 x i32> zeroinitializer",
    ]


def _is_past() -> list[str]:
    return [*_kept("past", "i64", _PAST), "  %is.past = icmp ne i64 %past, 0"]


def _written(lines: list[str], t: str, numbers: dict[str, str], ahead: int = 0) -> None:
    """Writes whole lines of memory, past the caches or not; then those some bytes ahead in the rows are asked for."""
    lines += [f"  br i1 %is.past, label %{t}.past, label %{t}.usual", f"{t}.past:"]
    lines += [streamed(value, place) for place, value in numbers.items()]
    lines += [f"  br label %{t}.done", f"{t}.usual:"]
    for place, value in numbers.items():
        lines.append(f"  store <8 x double> {value}, ptr {place}, align 64")
        if ahead:
            lines.append(f"  {place}.ahead = getelementptr i8, ptr {place}, i64 {ahead}")
            lines.append(f"  call void @llvm.prefetch.p0(ptr {place}.ahead, i32 1, i32 3, i32 1)")
    lines += [f"  br label %{t}.done", f"{t}.done:"]


def _four_rows(lines: list[str], t: str, columns: str, odd: int) -> None:
    """Eight columns into the even rows %t.r0, %t.r2 … or the odd ones: pairs of columns, fours, and all eight."""
    for c in range(8):
        lines.append(f"  %{t}.p{odd}{c} = getelementptr <8 x double>, ptr {columns}, i64 {c}")
        lines.append(f"  %{t}.c{odd}{c} = load <8 x double>, ptr %{t}.p{odd}{c}, align 64")
    for k in range(4):
        shuffle(lines, f"{t}.u{odd}{k}", f"{t}.c{odd}{2 * k}", f"{t}.c{odd}{2 * k + 1}", HIGH if odd else LOW)
    for k in (0, 2):
        shuffle(lines, f"{t}.x{odd}{k}", f"{t}.u{odd}{k}", f"{t}.u{odd}{k + 1}", EVEN)
        shuffle(lines, f"{t}.y{odd}{k}", f"{t}.u{odd}{k}", f"{t}.u{odd}{k + 1}", ODD)
    for r, (side, mask) in enumerate((("x", EVEN), ("y", EVEN), ("x", ODD), ("y", ODD))):
        shuffle(lines, f"{t}.r{2 * r + odd}", f"{t}.{side}{odd}0", f"{t}.{side}{odd}2", mask)
