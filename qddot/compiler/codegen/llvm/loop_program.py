"""A loop program as internal functions of LLVM text: one for each segment, and the loops that call them row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import pack

from qddot.compiler.codegen.llvm.core import Core
from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.output_columns import OutputColumns
from qddot.compiler.codegen.llvm.segment_body import SegmentBody
from qddot.compiler.ir.loop_program import AncestorWalk, Columns, Rolled, Segment, Step, Sweep


def _integers(rolled: Rolled, i: int, constant: int) -> list[int]:
    """What `segment_body` reads of a row."""
    frames = [frame[k] for k in (i, rolled.parent[i]) for frame in rolled.frame]
    return [rolled.kind[i], constant, rolled.parent[i], *frames, *(start[i] for start in rolled.starts)]


def data(rolled: Rolled, T: str) -> str:
    """The tables of the rows, for all lane widths."""
    integers: list[int] = []
    numbers: list[float] = []
    for i, constants in enumerate(rolled.constants):
        integers += _integers(rolled, i, len(numbers))
        numbers += constants
    floats = b"".join(_number(x, T) for x in numbers) or b"\0" * 8
    walks = {s: step for s, step in _labelled(rolled.steps) if isinstance(step, AncestorWalk)}
    tables = {"rows": integers}
    for s, step in walks.items():
        tables[f"walk{s}"] = [x for each in zip(step.rows, step.kinds, step.columns, strict=True) for x in each]
    return "".join(_bytes(k, pack(f"<{len(x)}q", *x)) for k, x in tables.items()) + _bytes("constants", floats)


def _number(x: float, T: str) -> bytes:
    """A number in memory; NaN is signalling, as in `sincos.number`."""
    if x != x:
        return pack("<Q", 0x7FF4 << 48) if T == "double" else pack("<I", 0x7FA0 << 16)
    return pack("<d" if T == "double" else "<f", x)


def _bytes(name: str, content: bytes) -> str:
    text = "".join(f"\\{b:02X}" for b in content)
    return f'@{name} = internal constant [{len(content)} x i8] c"{text}", align 64\n'


def loop_program_core(rolled: Rolled, emitter: Emitter, prefetch_lines: Sequence[int] = ()) -> Core:
    """`@core{lanes}(in, out, work, env)` and the segments that it calls.

    It prefetches nothing, but is called like a core that does.
    """
    wide = [i for i, n in enumerate(prefetch_lines) if n]
    functions = (*_segments(emitter, rolled), _driver(emitter, rolled, wide))
    return Core(emitter, functions, sum(rolled.memory()), OutputColumns(rolled.n_outputs))


def _segments(emitter: Emitter, rolled: Rolled) -> list[str]:
    text = []
    for s, step in _labelled(rolled.steps):
        if isinstance(step, Columns):
            continue
        for k, segment in enumerate((step,) if isinstance(step, Segment) else step.segments):
            text.append(SegmentBody(emitter, rolled, segment).text(f"segment{emitter.lanes}_{s}_{k}"))
        for k, segment in enumerate(step.starts if isinstance(step, AncestorWalk) else ()):
            text.append(SegmentBody(emitter, rolled, segment).text(f"start{emitter.lanes}_{s}_{k}"))
    return text


def _labelled(steps: tuple[Step, ...], before: str = "") -> Iterator[tuple[str, Step]]:
    """All steps, those inside of others too, with a label each."""
    for k, step in enumerate(steps):
        yield f"{before}{k}", step
        if isinstance(step, Columns):
            yield from _labelled(step.steps, f"{before}{k}_")


def _driver(emitter: Emitter, rolled: Rolled, wide: Sequence[int]) -> str:
    L = emitter.lanes
    lines = ["entry:", *(_clear(emitter, rolled.n_outputs) if rolled.clears else ())]
    lines += _steps(rolled, L, rolled.steps)
    unused = "".join(f", ptr %next_block{i}" for i in wide)
    parameters = f"ptr noalias %in, ptr noalias %out, ptr noalias %work, ptr %env{unused}"
    body = "\n".join(lines)
    return f"define internal void @core{L}({parameters}) {{\n{body}\n  ret void\n}}\n"


def _steps(rolled: Rolled, L: int, steps: tuple[Step, ...], before: str = "", column: str = "0") -> list[str]:
    lines: list[str] = []
    for k, step in enumerate(steps):
        s = f"{before}{k}"
        if isinstance(step, Segment):
            lines.append(_call(f"segment{L}_{s}_0", "@rows", column))
        elif len(rolled.kind) == 1:
            continue
        elif isinstance(step, Sweep):
            lines += _sweep(rolled, L, s, step, column)
        elif isinstance(step, AncestorWalk):
            lines += _ancestor_walk(rolled, L, s, step)
        else:
            lines += _each_column(s, step.count, _steps(rolled, L, step.steps, f"{s}_", f"%c{s}"))
    return lines


def _each_column(s: str, count: int, body: list[str]) -> list[str]:
    return [
        f"  br label %before{s}",
        f"before{s}:",
        f"  br label %column{s}",
        f"column{s}:",
        f"  %c{s} = phi i64 [ 0, %before{s} ], [ %c1{s}, %top{s} ]",
        *body,
        f"  br label %top{s}",
        f"top{s}:",
        f"  %c1{s} = add i64 %c{s}, 1",
        f"  %more{s} = icmp ult i64 %c1{s}, {count}",
        f"  br i1 %more{s}, label %column{s}, label %done{s}",
        f"done{s}:",
    ]


def _call(name: str, row: str, column: str) -> str:
    return f"  call void @{name}(ptr %in, ptr %out, ptr %work, ptr {row}, i64 {column}, ptr %env)"


def _by_kind(label: str, kind: str, calls: list[str], after: str) -> list[str]:
    """One of several calls, by a number."""
    cases = " ".join(f"i64 {k}, label %{label}_{k}" for k in range(1, len(calls)))
    lines = [f"  switch i64 {kind}, label %{label}_0 [ {cases} ]"]
    for k, call in enumerate(calls):
        lines += [f"{label}_{k}:", call, f"  br label %{after}"]
    return lines


def _row(rolled: Rolled, number: str, name: str) -> list[str]:
    """%name, where the integers of a row begin."""
    width = len(_integers(rolled, 0, 0))
    return [f"  %at.{name} = mul i64 {number}, {width}", f"  %{name} = getelementptr i64, ptr @rows, i64 %at.{name}"]


def _sweep(rolled: Rolled, L: int, s: str, sweep: Sweep, column: str) -> list[str]:
    rows = len(rolled.kind)
    begin, end, step = (rows - 1, 0, -1) if sweep.backward else (1, rows, 1)
    calls = [_call(f"segment{L}_{s}_{k}", f"%row{s}", column) for k in range(len(sweep.segments))]
    return [
        f"  br label %before{s}",
        f"before{s}:",
        f"  br label %sweep{s}",
        f"sweep{s}:",
        f"  %i{s} = phi i64 [ {begin}, %before{s} ], [ %n{s}, %next{s} ]",
        *_row(rolled, f"%i{s}", f"row{s}"),
        f"  %kind{s} = load i64, ptr %row{s}, !invariant.load !1",
        *_by_kind(f"kind{s}", f"%kind{s}", calls, f"next{s}"),
        f"next{s}:",
        f"  %n{s} = add i64 %i{s}, {step}",
        f"  %more{s} = icmp ne i64 %n{s}, {end}",
        f"  br i1 %more{s}, label %sweep{s}, label %done{s}",
        f"done{s}:",
    ]


def _ancestor_walk(rolled: Rolled, L: int, s: str, walk: AncestorWalk) -> list[str]:
    starts = [_call(f"start{L}_{s}_{k}", f"%first{s}", f"%number{s}") for k in range(len(walk.starts))]
    calls = [_call(f"segment{L}_{s}_{k}", f"%row{s}", f"%number{s}") for k in range(len(walk.segments))]
    return [
        f"  br label %before{s}",
        f"before{s}:",
        f"  br label %column{s}",
        f"column{s}:",
        f"  %c{s} = phi i64 [ 0, %before{s} ], [ %c1{s}, %top{s} ]",
        f"  %of{s} = getelementptr [3 x i64], ptr @walk{s}, i64 %c{s}",
        f"  %own{s} = load i64, ptr %of{s}, !invariant.load !1",
        f"  %start{s}.p = getelementptr i64, ptr %of{s}, i64 1",
        f"  %start{s} = load i64, ptr %start{s}.p, !invariant.load !1",
        f"  %number{s}.p = getelementptr i64, ptr %of{s}, i64 2",
        f"  %number{s} = load i64, ptr %number{s}.p, !invariant.load !1",
        *_row(rolled, f"%own{s}", f"first{s}"),
        *_by_kind(f"start{s}", f"%start{s}", starts, f"up{s}"),
        f"up{s}:",
        f"  br label %test{s}",
        f"test{s}:",
        f"  %below{s} = phi ptr [ %first{s}, %up{s} ], [ %row{s}, %next{s} ]",
        f"  %p{s}.p = getelementptr i64, ptr %below{s}, i64 2",
        f"  %p{s} = load i64, ptr %p{s}.p, !invariant.load !1",
        f"  %world{s} = icmp eq i64 %p{s}, 0",
        f"  br i1 %world{s}, label %top{s}, label %walk{s}",
        f"walk{s}:",
        *_row(rolled, f"%p{s}", f"row{s}"),
        f"  %kind{s} = load i64, ptr %row{s}, !invariant.load !1",
        *_by_kind(f"kind{s}", f"%kind{s}", calls, f"next{s}"),
        f"next{s}:",
        f"  br label %test{s}",
        f"top{s}:",
        f"  %c1{s} = add i64 %c{s}, 1",
        f"  %more{s} = icmp ult i64 %c1{s}, {len(walk.rows)}",
        f"  br i1 %more{s}, label %column{s}, label %done{s}",
        f"done{s}:",
    ]


def _clear(emitter: Emitter, count: int) -> list[str]:
    """Zeros in all of the outputs."""
    return [
        "  br label %clear",
        "clear:",
        "  %z = phi i64 [ 0, %entry ], [ %z1, %clear ]",
        f"  %z.p = getelementptr {emitter.V}, ptr %out, i64 %z",
        f"  store {emitter.V} {emitter.const(0.0)}, ptr %z.p, align {emitter.align}",
        "  %z1 = add i64 %z, 1",
        f"  %z.more = icmp ult i64 %z1, {count}",
        "  br i1 %z.more, label %clear, label %cleared",
        "cleared:",
    ]
