"""Rows between the caller's arrays and the shared memory of a warp, as LLVM text: all 32 threads move them together.

Rows that follow each other are one stretch of memory: 16 bytes a thread at a time, if the rows in shared memory follow each
other too and the array is aligned, else number by number. All others, and those of the last states of a batch, are moved
row by row. A tile is 128 bytes of each of 32 longer rows.
"""

from __future__ import annotations

from qddot.compiler.codegen.llvm.emitter import number_bytes
from qddot.compiler.codegen.llvm.thread_arguments import WARP, GridOperand
from qddot.compiler.codegen.llvm.thread_tiles import TILE_BYTES, WIDE_BYTES, tile_pitch, wide_count

_VECTOR_BYTES = 16  # that a thread moves at a time
_AT_A_TIME = 8  # loads before the first store


def read_row(x: GridOperand, T: str) -> list[str]:
    """Copies the rows of this warp's states into `%memory`."""
    return _move(x, T, into_shared=True)


def write_row(x: GridOperand, T: str) -> list[str]:
    """Copies them back."""
    meet = "  call void @meet(ptr %env)"
    return [meet, *_move(x, T, into_shared=False), meet]


def _move(x: GridOperand, T: str, into_shared: bool) -> list[str]:
    i, n = x.index, x.size
    name = f"{'r' if into_shared else 'w'}{i}"
    linear = _vectors(x, T, name, into_shared) if x.pitch == n else _numbers(x, T, name, into_shared)
    return [
        f"  %{name}.o = mul i64 %first, %s{i}",
        f"  %{name}.g = getelementptr {T}, ptr addrspace(1) %a{i}, i64 %{name}.o",
        f"  %{name}.full = icmp eq i32 %rows, {WARP}",
        f"  %{name}.dense = icmp eq i64 %s{i}, {n}",
        f"  %{name}.int = ptrtoint ptr addrspace(1) %{name}.g to i64",
        f"  %{name}.low = and i64 %{name}.int, {_VECTOR_BYTES - 1}",
        f"  %{name}.aligned = icmp eq i64 %{name}.low, 0",
        f"  %{name}.a = and i1 %{name}.full, %{name}.dense",
        f"  %{name}.fast = and i1 %{name}.a, %{name}.aligned",
        f"  br i1 %{name}.fast, label %{name}.linear, label %{name}.by.row",
        f"{name}.linear:",
        *linear,
        f"  br label %{name}.done",
        *_row_by_row(x, T, name, into_shared),
        f"{name}.done:",
    ]


def _vectors(x: GridOperand, T: str, name: str, into_shared: bool) -> list[str]:
    """The whole stretch, 16 bytes a thread."""
    width = _VECTOR_BYTES // number_bytes(T)
    V, count, lines = f"<{width} x {T}>", WARP * x.size // width, list[str]()
    source, target = _ends(x, name, into_shared)
    for start in range(0, count, WARP * _AT_A_TIME):
        turns = range(start, min(count, start + WARP * _AT_A_TIME), WARP)
        rest = [k for k in turns if count - k < WARP]
        for k in turns:
            lines.append(f"  %{name}.k{k} = add i32 %lane, {k}")
            if k in rest:
                lines += _guard(f"{name}.{k}", f"%{name}.k{k}", count)
            lines += _loaded(f"%{name}.x{k}", V, source, f"%{name}.k{k}", 16)
            if k in rest:
                lines += [
                    *_stored(f"%{name}.y{k}", V, target, f"%{name}.k{k}", f"%{name}.x{k}", 16),
                    *_after(f"{name}.{k}"),
                ]
        for k in turns:
            if k not in rest:
                lines += _stored(f"%{name}.y{k}", V, target, f"%{name}.k{k}", f"%{name}.x{k}", 16)
    return lines


def _numbers(x: GridOperand, T: str, name: str, into_shared: bool) -> list[str]:
    """The whole stretch number by number: rows in shared memory are one number longer."""
    source, target = _ends(x, name, into_shared)
    lines, size = list[str](), number_bytes(T)
    for first in range(0, x.size, _AT_A_TIME):
        turns = range(first, min(x.size, first + _AT_A_TIME))
        for j in turns:
            k = f"%{name}.k{j}"
            lines += [
                f"  {k} = add i32 %lane, {WARP * j}",
                f"  {k}.row = udiv i32 {k}, {x.size}",
                f"  {k}.padded = add i32 {k}, {k}.row",
            ]
            at = k if into_shared else f"{k}.padded"
            lines += _loaded(f"%{name}.x{j}", T, source, at, size)
        for j in turns:
            at = f"%{name}.k{j}.padded" if into_shared else f"%{name}.k{j}"
            lines += _stored(f"%{name}.y{j}", T, target, at, f"%{name}.x{j}", size)
    return lines


def _row_by_row(x: GridOperand, T: str, name: str, into_shared: bool) -> list[str]:
    i, size, lines = x.index, number_bytes(T), list[str]()
    source, target = (f"ptr addrspace(1) %{name}.row.g", f"ptr addrspace(3) %{name}.row.s")
    if not into_shared:
        source, target = target, source
    for start in range(0, x.size, WARP):
        k = f"%{name}.c{start}"
        lines.append(f"  {k} = add i32 %lane, {start}")
        guarded = x.size - start < WARP
        if guarded:
            lines += _guard(f"{name}.c{start}", k, x.size)
        lines += _loaded(f"%{name}.z{start}", T, source, k, size)
        lines += _stored(f"%{name}.t{start}", T, target, k, f"%{name}.z{start}", size)
        if guarded:
            lines += _after(f"{name}.c{start}")
    return [
        f"{name}.by.row:",
        f"  br label %{name}.row",
        f"{name}.row:",
        f"  %{name}.r = phi i32 [ 0, %{name}.by.row ], [ %{name}.r1, %{name}.row.done ]",
        f"  %{name}.r.l = zext i32 %{name}.r to i64",
        f"  %{name}.r.o = mul i64 %{name}.r.l, %s{i}",
        f"  %{name}.row.g = getelementptr {T}, ptr addrspace(1) %{name}.g, i64 %{name}.r.o",
        f"  %{name}.r.s = mul i32 %{name}.r, {x.pitch}",
        f"  %{name}.row.s = getelementptr {T}, ptr addrspace(3) {x.memory}, i32 %{name}.r.s",
        *lines,
        f"  br label %{name}.row.done",
        f"{name}.row.done:",
        f"  %{name}.r1 = add i32 %{name}.r, 1",
        f"  %{name}.r.more = icmp slt i32 %{name}.r1, %rows",
        f"  br i1 %{name}.r.more, label %{name}.row, label %{name}.done",
    ]


def _ends(x: GridOperand, name: str, into_shared: bool) -> tuple[str, str]:
    """Where the stretch is read, and where it is written."""
    ends = f"ptr addrspace(1) %{name}.g", f"ptr addrspace(3) {x.memory}"
    return ends if into_shared else (ends[1], ends[0])


def _guard(name: str, k: str, count: int) -> list[str]:
    return [
        f"  %{name}.in = icmp ult i32 {k}, {count}",
        f"  br i1 %{name}.in, label %{name}.do, label %{name}.after",
        f"{name}.do:",
    ]


def _after(name: str) -> list[str]:
    return [f"  br label %{name}.after", f"{name}.after:"]


def _loaded(x: str, V: str, source: str, k: str, align: int) -> list[str]:
    return [f"  {x}.p = getelementptr {V}, {source}, i32 {k}", f"  {x} = load {V}, {_as(source, x)}, align {align}"]


def _stored(y: str, V: str, target: str, k: str, x: str, align: int) -> list[str]:
    return [f"  {y}.p = getelementptr {V}, {target}, i32 {k}", f"  store {V} {x}, {_as(target, y)}, align {align}"]


def _as(memory: str, name: str) -> str:
    """A pointer of the same memory."""
    return f"{memory.rpartition(' ')[0]} {name}.p"


def tile_function(T: str, row: int) -> str:
    """`@write_tile(tile, to, stride, rows, lane, width)`: 128 bytes of each row; the last tile of a row may have less.

    Rows of `row` numbers are moved 16 bytes a thread where that is a whole multiple, and the caller's are aligned.
    """
    width, pitch = TILE_BYTES // number_bytes(T), tile_pitch(row, number_bytes(T))
    arguments = "ptr addrspace(3) %tile, ptr addrspace(1) %to, i64 %stride, i32 %rows, i32 %lane, i32 %width, ptr %env"
    is_wide = wide_count(row, number_bytes(T)) > 1
    whole = _wide_tile(T, width, pitch) if is_wide else _whole_tile(T, width, pitch)
    return f"""define internal void @write_tile({arguments}) noinline #1 {{
  call void @meet(ptr %env)
  %row = lshr i32 %lane, {width.bit_length() - 1}
  %column = and i32 %lane, {width - 1}
  %own = getelementptr {T}, ptr addrspace(1) %to, i32 %column
  %all.rows = icmp eq i32 %rows, {WARP}
{chr(10).join(_is_aligned(T) if is_wide else [f"  %suits = icmp eq i32 %width, {width}"])}
  %all = and i1 %all.rows, %suits
  br i1 %all, label %whole, label %test
{chr(10).join([*whole, *_part_of_a_tile(T, width, pitch)])}
done:
  call void @meet(ptr %env)
  ret void
}}
"""


def _is_aligned(T: str) -> list[str]:
    """Whether rows begin at multiples of 16 bytes."""
    return [
        "  %to.i = ptrtoint ptr addrspace(1) %to to i64",
        f"  %stride.b = mul i64 %stride, {number_bytes(T)}",
        "  %bits = or i64 %to.i, %stride.b",
        f"  %low = and i64 %bits, {WIDE_BYTES - 1}",
        "  %suits = icmp eq i64 %low, 0",
    ]


def _wide_tile(T: str, width: int, pitch: int) -> list[str]:
    """All rows: some threads for each row, 16 bytes a thread, all loads before the first store."""
    count = WIDE_BYTES // number_bytes(T)
    across = width // count  # threads of a row
    down, vector, lines = WARP // across, f"<{count} x {T}>", list[str]()
    for k in range(across):
        lines.append(f"  %w{k} = getelementptr {T}, ptr addrspace(3) %from, i32 {k * down * pitch}")
        lines.append(f"  %y{k} = load {vector}, ptr addrspace(3) %w{k}, align {WIDE_BYTES}")
    for k in range(across):
        if k:
            lines.append(f"  %to{k} = getelementptr {T}, ptr addrspace(1) %to{k - 1}, i64 %down")
        lines.append(f"  store {vector} %y{k}, ptr addrspace(1) %to{k}, align {WIDE_BYTES}")
    return [
        "whole:",
        f"  %r.wide = lshr i32 %lane, {across.bit_length() - 1}",
        f"  %c.wide = and i32 %lane, {across - 1}",
        f"  %c.first = mul i32 %c.wide, {count}",
        "  %c.inside = icmp slt i32 %c.first, %width",
        "  br i1 %c.inside, label %wide, label %done",
        "wide:",
        f"  %s.wide = mul i32 %r.wide, {pitch}",
        "  %k.wide = add i32 %s.wide, %c.first",
        f"  %from = getelementptr {T}, ptr addrspace(3) %tile, i32 %k.wide",
        "  %l.wide = zext i32 %r.wide to i64",
        "  %o.wide = mul i64 %l.wide, %stride",
        "  %c.l = zext i32 %c.first to i64",
        "  %at.wide = add i64 %o.wide, %c.l",
        f"  %to0 = getelementptr {T}, ptr addrspace(1) %to, i64 %at.wide",
        f"  %down = mul i64 %stride, {down}",
        *lines,
        "  br label %done",
    ]


def _whole_tile(T: str, width: int, pitch: int) -> list[str]:
    """All numbers of 32 rows: each thread the same column of some of them, all loads before the first store."""
    size, lines = number_bytes(T), ["whole:"]
    for k in range(width):
        lines += [
            f"  %r{k} = add i32 %row, {k * WARP // width}",
            f"  %s{k} = mul i32 %r{k}, {pitch}",
            f"  %k{k} = add i32 %s{k}, %column",
            f"  %p{k} = getelementptr {T}, ptr addrspace(3) %tile, i32 %k{k}",
            f"  %x{k} = load {T}, ptr addrspace(3) %p{k}, align {size}",
        ]
    for k in range(width):
        lines += [
            f"  %l{k} = zext i32 %r{k} to i64",
            f"  %o{k} = mul i64 %l{k}, %stride",
            f"  %g{k} = getelementptr {T}, ptr addrspace(1) %own, i64 %o{k}",
            f"  store {T} %x{k}, ptr addrspace(1) %g{k}, align {size}",
        ]
    return [*lines, "  br label %done"]


def _part_of_a_tile(T: str, width: int, pitch: int) -> list[str]:
    """%width numbers of each of %rows rows."""
    size = number_bytes(T)
    return [
        "test:",
        "  %r = phi i32 [ %row, %0 ], [ %r.next, %after ]",
        "  %more = icmp slt i32 %r, %rows",
        "  br i1 %more, label %one, label %done",
        "one:",
        "  %inside = icmp slt i32 %column, %width",
        "  br i1 %inside, label %move, label %after",
        "move:",
        f"  %s = mul i32 %r, {pitch}",
        "  %k = add i32 %s, %column",
        f"  %p = getelementptr {T}, ptr addrspace(3) %tile, i32 %k",
        f"  %x = load {T}, ptr addrspace(3) %p, align {size}",
        "  %l = zext i32 %r to i64",
        "  %o = mul i64 %l, %stride",
        f"  %g = getelementptr {T}, ptr addrspace(1) %own, i64 %o",
        f"  store {T} %x, ptr addrspace(1) %g, align {size}",
        "  br label %after",
        "after:",
        f"  %r.next = add i32 %r, {WARP // width}",
        "  br label %test",
    ]
