"""The loop that NumPy calls, as LLVM text: states in and out of a kernel's columns of lanes.

`void loop(char **args, intptr_t *dimensions, intptr_t *steps, void *env)` is the form of a generalized ufunc's inner loop.
Full blocks of lanes are transposed in registers where rows are contiguous, and moved number by number where they are not;
what is left of a batch is done one state at a time. Memory of the next block is asked for while one is computed. An input
that all states share stays in its columns from the first block on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from qddot.compiler.codegen.llvm.streamed_output import BEGIN_ROWS, CONTEXT, END_ROWS, ByTiles, Ring
from qddot.compiler.codegen.llvm.transpose import (
    Shape,
    copy_function,
    shared_rows_function,
    streamed_rows_function,
    transpose_function,
)
from qddot.compiler.targets.target import ARM, X86

STACK = 65536  # bytes of scratch memory that may lie on the stack; more is taken from the heap for the time of a call

STREAM = 3_000_000  # bytes of a result above which it is written past the caches (docs/decisions/0005)

WIDE = 16  # numbers of an input above which asking for all of the next block at once would wait for memory


SHORT = 64  # numbers of a result up to which all of the next block is asked for at once; longer ones ask as they write


def lines_ahead(inputs: list[Shape], lanes: int, T: str) -> list[int]:
    """How many lines of memory of each input are asked for between the operations of the block before: all of wide ones."""
    size = 8 if T == "double" else 4
    return [-(-prod(s) * lanes * size // 64) if lanes > 1 and prod(s) > WIDE else 0 for s in inputs]


def numpy_loop(
    inputs: list[Shape],
    outputs: list[Shape],
    lanes: int,
    T: str,
    work: int,
    arch: str,
    places: list[int] | None = None,
    zero: int | None = None,
    stream: bool = False,
    ring: Ring | None = None,
    alone: bool = True,
    busy: bool = False,
    rows: Sequence[int] = (),
) -> str:
    """`@loop` and all that it calls but the cores: `@core1` and, for many lanes, `@core{lanes}`.

    Without `alone` there is no `@core1`, and what is left of a batch is a block that its last state fills up.

    `work` is how many numbers the cores need between their functions. `places` says in which column of lanes each number
    of the result is, where they are not all apart; `zero` is the column of zeros. With `stream` long results are written
    past the caches; with a `ring` of columns the core writes them itself, into rows that follow each other. With `busy`
    there is time to wait for a result's memory while one state is computed. Inputs in `rows` may follow each other in
    memory: then they are not transposed, and `@core{lanes}r` takes them in rows.
    """
    size = 8 if T == "double" else 4
    text = [_DECLARATIONS, _X86 if arch == X86 else "", _AVX512 if stream else ""]
    for i, shape in enumerate(inputs):
        text.append(copy_function(f"read{i}", shape, T, into_rows=False))
        if lanes == 8 and T == "double":
            text.append(transpose_function(f"columns{i}", prod(shape), into_rows=False))
    for i, shape in enumerate(outputs):
        text.append(copy_function(f"write{i}", shape, T, into_rows=True))
        if lanes > 1 and places is not None:
            text.append(copy_function(f"write_lanes{i}", shape, T, into_rows=True, places=places))
        if ring is not None:
            text.append(ring.functions())
        elif lanes == 8 and T == "double":
            if places is None:
                text.append(transpose_function(f"rows{i}", prod(shape), into_rows=True))
            else:
                text.append(shared_rows_function(f"rows{i}", places, zero))
                if stream:
                    text.append(streamed_rows_function(f"stream{i}", places, zero))
    if not alone:
        for i, shape in enumerate(inputs):
            text.append(copy_function(f"read_plain{i}", shape, T, into_rows=False, plain=True))
        for i, shape in enumerate(outputs if ring is None else ()):
            text.append(copy_function(f"write_plain{i}", shape, T, into_rows=True, places=places, plain=True))
    columns = ring.columns if ring is not None else sum(map(prod, outputs)) if places is None else 1 + max(places)
    text += [_copy(T), _fetch("columns", 0), _fetch("rows", 1)]
    text.append(_loop(inputs, outputs, lanes, T, size, work, arch, columns, stream, ring, alone, busy, rows))
    return "\n".join(text)


_X86 = """declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
"""

_AVX512 = """declare void @llvm.x86.sse.sfence()
declare <8 x double> @llvm.x86.avx512.vpermi2var.pd.512(<8 x double>, <8 x i64>, <8 x double>)
declare void @llvm.masked.store.v8f64.p0(<8 x double>, ptr, <8 x i1>)
"""

_DECLARATIONS = """declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare i64 @llvm.smin.i64(i64, i64)
declare <4 x double> @llvm.masked.load.v4f64.p0(ptr, <4 x i1>, <4 x double>)
declare void @llvm.masked.store.v4f64.p0(<4 x double>, ptr, <4 x i1>)
"""


# ---- the loop --------------------------------------------------------------------------------------------------------

# NumPy warns of what the floating-point flags say after a loop; what is not finite we report ourselves, by sample
_SAVE_FLAGS = {
    X86: ("  %flags = alloca i32", "  call void @llvm.x86.sse.stmxcsr(ptr %flags)"),
    ARM: ('  %flags = call i64 asm sideeffect "mrs $0, fpsr", "=r,~{memory}"()',),
}
_RESTORE_FLAGS = {
    X86: ("  call void @llvm.x86.sse.ldmxcsr(ptr %flags)",),
    ARM: ('  call void asm sideeffect "msr fpsr, $0", "r,~{memory}"(i64 %flags)',),
}

_Copies = Callable[..., tuple[list[str], list[str]]]


def _loop(
    inputs: list[Shape],
    outputs: list[Shape],
    lanes: int,
    T: str,
    size: int,
    work: int,
    arch: str,
    columns: int,
    stream: bool,
    ring: Ring | None,
    alone: bool,
    busy: bool,
    rows: Sequence[int],
) -> str:
    """`void loop(char **args, intptr_t *dimensions, intptr_t *steps, void *env)`."""
    operands = [*inputs, *outputs]
    n_in = sum(prod(s) for s in inputs)
    n_out = sum(prod(s) for s in outputs)
    head: list[str] = ["  %n = load i64, ptr %dimensions"]
    place = len(operands)
    strides: list[list[str]] = []
    contiguous = []
    for i, shape in enumerate(operands):
        head += [
            f"  %a{i}.p = getelementptr ptr, ptr %args, i64 {i}",
            f"  %a{i} = load ptr, ptr %a{i}.p",
            f"  %s{i}.p = getelementptr i64, ptr %steps, i64 {i}",
            f"  %s{i} = load i64, ptr %s{i}.p",
        ]
        own = []
        for j in range(len(shape)):
            name = f"%c{i}_{j}"
            head.append(f"  {name}.p = getelementptr i64, ptr %steps, i64 {place}")
            head.append(f"  {name} = load i64, ptr {name}.p")
            if shape[j] > 1:
                head.append(f"  {name}.ok = icmp eq i64 {name}, {size * prod(shape[j + 1 :])}")
                contiguous.append(f"{name}.ok")
            own.append(name)
            place += 1
        strides.append(own)
    flag = "true"
    for k, ok in enumerate(contiguous):
        head.append(f"  %all{k} = and i1 {flag}, {ok}")
        flag = f"%all{k}"

    if stream:
        head.append(f"  %stream.n = icmp ugt i64 %n, {STREAM // (size * n_out)}")
        head.append(f"  %stream.s = icmp eq i64 %s{len(inputs)}, {size * n_out}")  # rows that follow each other
        head.append(f"  %follow = and i1 %stream.s, {flag}")
        head.append("  %stream = and i1 %stream.n, %follow")

    follow = flag
    for i in rows:
        head.append(f"  %rows.s{i} = icmp eq i64 %s{i}, {size * prod(inputs[i])}")
        head.append(f"  %rows.ok{i} = and i1 {follow}, %rows.s{i}")
        follow = f"%rows.ok{i}"
    head.append(f"  %in.rows = and i1 {follow}, {'true' if rows else 'false'}")

    def copies(width: int, base: str, r: str, plain: bool = False) -> tuple[list[str], list[str]]:
        """Calls that bring state `base + r` in and out of lane r of the scratch columns."""
        column = 0
        reads: list[str] = []
        writes: list[str] = []
        for i, shape in enumerate(operands):
            is_in = i < len(inputs)
            if i == len(inputs):
                column = 0
            tag = f"{i}_{width}_{r.strip('%')}{'_p' if plain else ''}"
            into = "%in" if is_in else "%out"
            lines = [
                f"  %at{tag} = add i64 {base}, {r}",
                f"  %off{tag} = mul i64 %at{tag}, %s{i}",
                f"  %row{tag} = getelementptr i8, ptr %a{i}, i64 %off{tag}",
                f"  %lane{tag} = mul i64 {r}, {size}",
                f"  %first{tag} = add i64 %lane{tag}, {column * size * width}",
                f"  %col{tag} = getelementptr i8, ptr {into}, i64 %first{tag}",
            ]
            shared = "_lanes" if width > 1 and columns < n_out else ""
            kind = "_plain" if plain else "" if is_in else shared
            call = f"@read{kind}{i}" if is_in else f"@write{kind}{i - len(inputs)}"
            extra = "" if plain else "".join(f", i64 {c}" for c in strides[i])
            lines.append(f"  call void {call}(ptr %row{tag}, ptr %col{tag}, i64 {size * width}{extra})")
            (reads if is_in else writes).extend(lines)
            column += prod(shape)
        return reads, writes

    n_columns = max(n_out, columns * lanes)
    take, give_back = _scratch(n_in * lanes * size, n_columns * size, work * size, ring.size * 64 if ring else 0)
    context = (f"  %lines = alloca [{CONTEXT} x i8], align 64",) if ring else ()
    lines = ["start:", *_SAVE_FLAGS.get(arch, ()), *context, *take, "entry:", *head]
    by_tiles = ByTiles(ring.size, len(inputs), strides[-1]) if ring else None
    if lanes > 1:
        lines += _blocks(inputs, outputs, lanes, T, flag, copies, stream, by_tiles, rows)
    else:
        lines += ["  br label %tail", "tail:", "  %done = phi i64 [ 0, %entry ]"]
    lines += ["  %left = icmp ult i64 %done, %n", "  br i1 %left, label %rest, label %end", "rest:"]
    if alone:
        lines += _one_by_one(inputs, outputs, size, flag, copies, busy)
    else:
        lines += _last_block(inputs, lanes, T, flag, copies, by_tiles)
    lines += [
        "end:",
        *(("  call void @llvm.x86.sse.sfence()",) if stream else ()),
        *give_back,
        "  br label %finish",
        "finish:",
        *_RESTORE_FLAGS.get(arch, ()),
        "  ret void",
    ]
    return "define void @loop(ptr %args, ptr %dimensions, ptr %steps, ptr %env) {\n" + "\n".join(lines) + "\n}\n"


def _one_by_one(inputs: list[Shape], outputs: list[Shape], size: int, flag: str, copies: _Copies, busy: bool) -> list[str]:
    """What is left of a batch, state after state, by the code for one lane."""
    reads, writes = copies(1, "%t", "0")
    return [
        "  br label %one",
        "one:",
        "  %t = phi i64 [ %done, %rest ], [ %t1, %one_done ]",
        f"  br i1 {flag}, label %one_fast, label %one_any",
        "one_fast:",
        *_plain_copies(inputs, outputs, size, busy),
        "  br label %one_done",
        "one_any:",
        *reads,
        "  call void @core1(ptr %in, ptr %out, ptr %work, ptr %env)",
        *writes,
        "  br label %one_done",
        "one_done:",
        "  %t1 = add i64 %t, 1",
        "  %more1 = icmp ult i64 %t1, %n",
        "  br i1 %more1, label %one, label %end",
    ]


def _last_block(inputs: list[Shape], lanes: int, T: str, flag: str, copies: _Copies, by_tiles: ByTiles | None) -> list[str]:
    """What is left of a batch as one block; the lanes that are too many have its last state, and nobody looks at them."""
    ahead = "".join(", ptr %in" for n in lines_ahead(inputs, lanes, T) if n) + (", ptr %lines" if by_tiles else "")

    def write(plain: bool) -> list[str]:
        return by_tiles.moved("y", "%y.state", plain) if by_tiles else copies(lanes, "%y.base", "%y.lane", plain)[1]

    def each_lane(t: str, move: Callable[[bool], list[str]], before: str, count: str, after: str) -> list[str]:
        """`move`, of entries that lie side by side or not, for every lane."""
        return [
            f"{t}.lanes:",
            f"  %{t}.lane = phi i64 [ 0, %{before} ], [ %{t}.lane1, %{t}.moved ]",
            f"  %{t}.own = add i64 %done, %{t}.lane",
            f"  %{t}.state = call i64 @llvm.smin.i64(i64 %{t}.own, i64 %x.last)",
            f"  %{t}.base = sub i64 %{t}.state, %{t}.lane",
            f"  br i1 {flag}, label %{t}.plain, label %{t}.any",
            f"{t}.plain:",
            *move(True),
            f"  br label %{t}.moved",
            f"{t}.any:",
            *move(False),
            f"  br label %{t}.moved",
            f"{t}.moved:",
            f"  %{t}.lane1 = add i64 %{t}.lane, 1",
            f"  %{t}.more = icmp ult i64 %{t}.lane1, {count}",
            f"  br i1 %{t}.more, label %{t}.lanes, label %{after}",
        ]

    return [
        "  %x.last = sub i64 %n, 1",
        "  %x.count = sub i64 %n, %done",
        "  br label %x.lanes",
        *each_lane("x", lambda plain: copies(lanes, "%x.base", "%x.lane", plain)[0], "rest", str(lanes), "x.core"),
        "x.core:",
        *(BEGIN_ROWS if by_tiles else ()),
        f"  call void @core{lanes}(ptr %in, ptr %out, ptr %work, ptr %env{ahead})",
        *(END_ROWS if by_tiles else ()),
        "  br label %y.lanes",
        *each_lane("y", write, "x.core", "%x.count", "end"),
    ]


def _plain_copies(inputs: list[Shape], outputs: list[Shape], size: int, busy: bool) -> list[str]:
    """One state whose entries lie side by side: inputs are copied as they are, and so is the result.

    The memory of a long result is asked for before it is computed, if computing takes long enough.
    """
    rows, moves, column = [], [], 0
    for i, shape in enumerate([*inputs, *outputs]):
        if i == len(inputs):
            moves.append("  call void @core1(ptr %in, ptr %out, ptr %work, ptr %env)")
            column = 0
        scratch = "%in" if i < len(inputs) else "%out"
        row, place = f"%pr{i}", f"%pc{i}"
        source, target = (row, place) if i < len(inputs) else (place, row)
        rows += [f"  %po{i} = mul i64 %t, %s{i}", f"  {row} = getelementptr i8, ptr %a{i}, i64 %po{i}"]
        if i >= len(inputs) and busy and prod(shape) > SHORT:
            rows.append(f"  call void @fetch_rows(ptr {row}, i64 {prod(shape) * size})")
        moves += [
            f"  {place} = getelementptr i8, ptr {scratch}, i64 {column * size}",
            f"  call void @copy(ptr {target}, ptr {source}, i64 {prod(shape)})",
        ]
        column += prod(shape)
    return [*rows, *moves]


def _fetch(kind: str, write: int) -> str:
    """Asks for the memory of the next block while this one is computed: at most 16 kB, nothing for steps below one."""
    return f"""define internal void @fetch_{kind}(ptr %at, i64 %bytes) {{
entry:
  %small = call i64 @llvm.smin.i64(i64 %bytes, i64 16384)
  %any = icmp sgt i64 %small, 0
  br i1 %any, label %line, label %done
line:
  %i = phi i64 [ 0, %entry ], [ %next, %line ]
  %p = getelementptr i8, ptr %at, i64 %i
  call void @llvm.prefetch.p0(ptr %p, i32 {write}, i32 3, i32 1)
  %next = add i64 %i, 64
  %more = icmp slt i64 %next, %small
  br i1 %more, label %line, label %done
done:
  ret void
}}
"""


def _copy(T: str) -> str:
    """Moves numbers that lie side by side, four at a time. (LLVM's own memcpy may become a call to the C library.)"""
    return f"""define internal void @copy(ptr %to, ptr %from, i64 %n) {{
entry:
  %fours = and i64 %n, -4
  %any4 = icmp ugt i64 %fours, 0
  br i1 %any4, label %four, label %rest
four:
  %i = phi i64 [ 0, %entry ], [ %i4, %four ]
  %f4 = getelementptr {T}, ptr %from, i64 %i
  %t4 = getelementptr {T}, ptr %to, i64 %i
  %v4 = load <4 x {T}>, ptr %f4, align 1
  store <4 x {T}> %v4, ptr %t4, align 1
  %i4 = add i64 %i, 4
  %more4 = icmp ult i64 %i4, %fours
  br i1 %more4, label %four, label %rest
rest:
  %any = icmp ult i64 %fours, %n
  br i1 %any, label %one, label %done
one:
  %j = phi i64 [ %fours, %rest ], [ %j1, %one ]
  %f1 = getelementptr {T}, ptr %from, i64 %j
  %t1 = getelementptr {T}, ptr %to, i64 %j
  %v1 = load {T}, ptr %f1, align 1
  store {T} %v1, ptr %t1, align 1
  %j1 = add i64 %j, 1
  %more1 = icmp ult i64 %j1, %n
  br i1 %more1, label %one, label %done
done:
  ret void
}}
"""


def _scratch(n_in: int, n_out: int, n_work: int, n_rows: int) -> tuple[list[str], list[str]]:
    """Lines that take %in, %out, %work and %rows of so many bytes, aligned to 64, and lines that give them back.

    Where the heap has none left, the loop does nothing but set MemoryError in its own thread, as C functions of Python do:
    it takes the GIL for that, which NumPy may have released. Whoever called the ufunc gets the error, and nobody else.
    """
    sizes = [-(-n // 64) * 64 for n in (n_in, n_out, n_work, n_rows)]
    total = max(64, sum(sizes))
    parts = [
        "  %in = getelementptr i8, ptr %scratch, i64 0",
        f"  %out = getelementptr i8, ptr %scratch, i64 {sizes[0]}",
        f"  %work = getelementptr i8, ptr %scratch, i64 {sizes[0] + sizes[1]}",
        f"  %rows = getelementptr i8, ptr %scratch, i64 {sum(sizes[:3])}",
        "  br label %entry",
    ]
    if total <= STACK:
        return [f"  %scratch = alloca [{total} x i8], align 64", *parts], []
    take = [
        *_library_function("take", 3),
        f"  %raw = call ptr %take(i64 {total + 64})",
        "  %none = icmp eq ptr %raw, null",
        "  br i1 %none, label %fail, label %taken",
        "fail:",
        *(line for k, x in enumerate(("ensure", "raise", "release")) for line in _library_function(x, 5 + k)),
        "  %gil = call i32 %ensure()",
        "  %null = call ptr %raise()",
        "  call void %release(i32 %gil)",
        "  br label %finish",
        "taken:",
        "  %raw.i = ptrtoint ptr %raw to i64",
        "  %up = add i64 %raw.i, 63",
        "  %aligned = and i64 %up, -64",
        "  %scratch = inttoptr i64 %aligned to ptr",
        *parts,
    ]
    return take, [*_library_function("free", 4), "  call void %free(ptr %raw)"]


def _library_function(name: str, place: int) -> list[str]:
    """Lines that read a function out of %env (`machine.library_functions`)."""
    return [f"  %{name}.p = getelementptr ptr, ptr %env, i64 {place}", f"  %{name} = load ptr, ptr %{name}.p"]


class _Moves(NamedTuple):
    """One direction between rows and columns: its tag, fast and general code."""

    tag: str
    fast: list[str]
    general: list[str]


def _blocks(
    inputs: list[Shape],
    outputs: list[Shape],
    lanes: int,
    T: str,
    flag: str,
    copies: _Copies,
    stream: bool,
    by_tiles: ByTiles | None,
    rows: Sequence[int],
) -> list[str]:
    """The loop over full blocks of lanes; afterwards %done states are finished. Inputs in `rows` stay so if %in.rows."""
    reads = _Moves("r", _fast_moves(inputs, 0, "columns", lanes, T, rows), copies(lanes, "%first", "%r.lane")[0])
    begin: list[str] = []
    if by_tiles:
        begin, write = by_tiles.begun(), by_tiles.written(lanes)
    else:
        fast = _fast_moves(outputs, len(inputs), "rows", lanes, T, ())
        fast = _streamed_moves(len(inputs), fast) if stream else fast
        write = _move(_Moves("w", fast, copies(lanes, "%first", "%w.lane")[1]), lanes, flag)
    return [
        f"  %full = udiv i64 %n, {lanes}",
        f"  %whole = mul i64 %full, {lanes}",
        "  %any_block = icmp ugt i64 %full, 0",
        "  br i1 %any_block, label %begin, label %tail",
        "begin:",
        *begin,
        "  br label %first_block",
        "first_block:",
        "  br label %block",
        "block:",
        "  %b = phi i64 [ 0, %first_block ], [ %b.next, %w.moved ]",
        "  %b.next = add i64 %b, 1",
        f"  %first = mul i64 %b, {lanes}",
        *_move(reads, lanes, flag),
        *(by_tiles.between() if by_tiles else ()),
        *_compute(lines_ahead(inputs, lanes, T), lanes, bool(by_tiles), bool(rows)),
        *write,
        "  %b.more = icmp ult i64 %b.next, %full",
        "  br i1 %b.more, label %block, label %last",
        "last:",
        *(by_tiles.ended() if by_tiles else ()),
        "  br label %all_blocks",
        "all_blocks:",
        "  br label %tail",
        "tail:",
        "  %done = phi i64 [ 0, %entry ], [ %whole, %all_blocks ]",
    ]


def _compute(ahead: list[int], lanes: int, tiled: bool, rows: bool) -> list[str]:
    """Calls the core, and tells it where the next rows of wide inputs begin; memory at hand where all are the same.

    Or calls the core that takes wide inputs in rows, if there is one, where they are.
    """
    lines, more = list[str](), ""
    for i, n in enumerate(ahead):
        if n:
            lines += [
                f"  %ahead.step{i} = mul i64 %s{i}, {lanes}",
                f"  %ahead.o{i} = mul i64 %b.next, %ahead.step{i}",
                f"  %ahead.rows{i} = getelementptr i8, ptr %a{i}, i64 %ahead.o{i}",
                f"  %ahead.none{i} = icmp eq i64 %ahead.step{i}, 0",
                f"  %ahead{i} = select i1 %ahead.none{i}, ptr %in, ptr %ahead.rows{i}",
            ]
            more += f", ptr %ahead{i}"
    more += ", ptr %lines" if tiled else ""
    arguments = f"(ptr %in, ptr %out, ptr %work, ptr %env{more})"
    if not rows:
        return [*lines, f"  call void @core{lanes}{arguments}"]
    return [
        *lines,
        "  br i1 %in.rows, label %as_rows, label %as_columns",
        "as_rows:",
        f"  call void @core{lanes}r{arguments}",
        "  br label %computed",
        "as_columns:",
        f"  call void @core{lanes}{arguments}",
        "  br label %computed",
        "computed:",
    ]


def _fast_moves(shapes: list[Shape], first: int, kind: str, lanes: int, T: str, rows: Sequence[int]) -> list[str]:
    """Transpositions of one block whose rows are contiguous; none where lanes or type have no such code."""
    if lanes != 8 or T != "double":
        return []
    lines, column, tag = [], 0, "r" if kind == "columns" else "w"
    scratch = "%in" if kind == "columns" else "%out"
    ahead = lines_ahead(shapes, lanes, T) if kind == "columns" else []
    for k, shape in enumerate(shapes):
        i = first + k
        if kind == "columns":
            lines += [
                f"  %r.same{i} = icmp eq i64 %s{i}, 0",
                f"  %r.later{i} = icmp ne i64 %b, 0",
                f"  %r.kept{i} = and i1 %r.same{i}, %r.later{i}",
                f"  %r.has{i} = or i1 %r.kept{i}, {'%in.rows' if i in rows else 'false'}",
                f"  br i1 %r.has{i}, label %r.got{i}, label %r.get{i}",
                f"r.get{i}:",
            ]
        lines += [
            f"  %{tag}.f{i} = mul i64 %first, %s{i}",
            f"  %{tag}.r{i} = getelementptr i8, ptr %a{i}, i64 %{tag}.f{i}",
            f"  %{tag}.c{i} = getelementptr i8, ptr {scratch}, i64 {column * 8 * lanes}",
            f"  call void @{kind}{k}(ptr %{tag}.r{i}, i64 %s{i}, ptr %{tag}.c{i})",
        ]
        if not ahead[k] if kind == "columns" else prod(shape) <= SHORT:
            lines += [
                f"  %{tag}.l{i} = mul i64 %s{i}, {lanes}",
                f"  %{tag}.n{i} = getelementptr i8, ptr %{tag}.r{i}, i64 %{tag}.l{i}",
                f"  call void @fetch_{kind}(ptr %{tag}.n{i}, i64 %{tag}.l{i})",
            ]
        if kind == "columns":
            lines += [f"  br label %r.got{i}", f"r.got{i}:"]
        column += prod(shape)
    return lines


def _streamed_moves(i: int, otherwise: list[str]) -> list[str]:
    """The result of one block past the caches, where the whole result is long."""
    return [
        "  br i1 %stream, label %w.stream, label %w.usual",
        "w.stream:",
        f"  %w.sf = mul i64 %first, %s{i}",
        f"  %w.sr = getelementptr i8, ptr %a{i}, i64 %w.sf",
        "  call void @stream0(ptr %w.sr, ptr %out)",
        "  br label %w.moved",
        "w.usual:",
        *otherwise,
    ]


def _move(moves: _Moves, lanes: int, flag: str) -> list[str]:
    """Moves the states of a block into or out of its scratch columns."""
    t, fast, general = moves
    return [
        f"  br i1 {flag if fast else 'false'}, label %{t}.fast, label %{t}.slow",
        f"{t}.fast:",
        *fast,
        f"  br label %{t}.moved",
        f"{t}.slow:",
        f"  br label %{t}.one",
        f"{t}.one:",
        f"  %{t}.lane = phi i64 [ 0, %{t}.slow ], [ %{t}.lane1, %{t}.one ]",
        *general,
        f"  %{t}.lane1 = add i64 %{t}.lane, 1",
        f"  %{t}.lanes = icmp ult i64 %{t}.lane1, {lanes}",
        f"  br i1 %{t}.lanes, label %{t}.one, label %{t}.moved",
        f"{t}.moved:",
    ]
