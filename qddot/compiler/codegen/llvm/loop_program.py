"""Rolled programs as LLVM text: a function for each segment, and the loops that call them row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import pack

from qddot.compiler.codegen.llvm.core import Core
from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.output_columns import OutputColumns
from qddot.compiler.ir.loop_program import Climb, Columns, Place, Rolled, Segment, Step, Sweep
from qddot.compiler.ir.ops import LEAVES

_FIRST = 3  # a row's integers: kind, first constant, parent, own shelves, parent's shelves, starts


def _integers(rolled: Rolled, i: int, constant: int) -> list[int]:
    shelves = [shelf[k] for k in (i, rolled.parent[i]) for shelf in rolled.shelf]
    return [rolled.kind[i], constant, rolled.parent[i], *shelves, *(start[i] for start in rolled.starts)]


def data(rolled: Rolled, T: str) -> str:
    """The tables of the rows, for all lane widths."""
    integers: list[int] = []
    numbers: list[float] = []
    for i, constants in enumerate(rolled.constants):
        integers += _integers(rolled, i, len(numbers))
        numbers += constants
    floats = pack(f"<{len(numbers)}{'d' if T == 'double' else 'f'}", *numbers) or b"\0" * 8
    climbs = {s: step for s, step in _labelled(rolled.steps) if isinstance(step, Climb)}
    tables = {"rows": integers}
    for s, step in climbs.items():
        tables[f"climb{s}"] = [x for each in zip(step.rows, step.kinds, step.columns, strict=True) for x in each]
    return "".join(_bytes(k, pack(f"<{len(x)}q", *x)) for k, x in tables.items()) + _bytes("constants", floats)


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
            text.append(_segment(emitter, rolled, f"segment{emitter.lanes}_{s}_{k}", segment))
        for k, segment in enumerate(step.starts if isinstance(step, Climb) else ()):
            text.append(_segment(emitter, rolled, f"start{emitter.lanes}_{s}_{k}", segment))
    return text


def _labelled(steps: tuple[Step, ...], before: str = "") -> Iterator[tuple[str, Step]]:
    """All steps, those inside of others too, with a label each."""
    for k, step in enumerate(steps):
        yield f"{before}{k}", step
        if isinstance(step, Columns):
            yield from _labelled(step.steps, f"{before}{k}_")


def _segment(emitter: Emitter, rolled: Rolled, name: str, segment: Segment) -> str:
    program, V = segment.program, emitter.V
    graph = program.graph
    lines: list[str] = []
    names: dict[int, str] = {}
    bases: dict[tuple[str, int, int], str] = {}
    pairs: dict[int, str] = {}
    areas = len(rolled.slots)
    first = [sum(rolled.memory()[:a]) for a in range(areas)]

    def base(place: Place) -> str:
        """Where the numbers begin that a place counts from."""
        key = ("constant", 0, 0) if place.where == "constant" else (place.where, place.table, place.pitch)
        if key in bases:
            return bases[key]
        at = {
            "constant": 1,
            "own": _FIRST + place.table,
            "parent": _FIRST + areas + place.table,
            "input": _FIRST + 2 * areas + place.table,
            "unit": _FIRST + 2 * areas + place.table,
            "output": _FIRST + 2 * areas + place.table,
        }[place.where]
        name = bases[key] = f"%{place.where}{key[1]}_{key[2]}"
        lines.append(f"  {name}.r = getelementptr i64, ptr %row, i64 {at}")
        lines.append(f"  {name}.i = load i64, ptr {name}.r, !invariant.load !1")
        if place.where in ("own", "parent"):
            lines.append(f"  {name}.m = mul i64 {name}.i, {rolled.slots[place.table]}")
            lines.append(f"  {name}.o = add i64 {name}.m, {first[place.table]}")
            lines.append(f"  {name} = getelementptr {V}, ptr %work, i64 {name}.o")
        elif place.where == "unit":  # which of the row's own numbers is 1
            lines.append(f"  {name} = sub i64 %column, {name}.i")
        else:
            kind, source = {"constant": (emitter.T, "@constants"), "input": (V, "%in"), "output": (V, "%out")}[place.where]
            lines.append(f"  {name}.c = mul i64 %column, {place.pitch}")
            lines.append(f"  {name}.o = add i64 {name}.i, {name}.c")
            lines.append(f"  {name} = getelementptr {kind}, ptr {source}, i64 {name}.o")
        return name

    def pointer(place: Place, label: str) -> str:
        kind = emitter.T if place.where == "constant" else V
        begin = base(place)
        lines.append(f"  %{label}.p = getelementptr {kind}, ptr {begin}, i64 {place.number}")
        return f"%{label}.p"

    def value(n: int) -> str:
        if graph.ops[n] == "const":
            return emitter.const(graph.args[n][0])
        if n not in names:  # an input of the segment
            place = segment.sources[graph.args[n][0]]
            names[n] = f"%i{n}"
            if place.where == "unit":
                lines.append(f"  %i{n}.is = icmp eq i64 {base(place)}, {place.number}")
                lines.append(f"  %i{n} = select i1 %i{n}.is, {V} {emitter.const(1.0)}, {V} {emitter.const(0.0)}")
                return names[n]
            where = pointer(place, f"i{n}")
            if place.where != "constant":
                lines.append(f"  %i{n} = load {V}, ptr {where}, align {emitter.align}")
            elif emitter.lanes == 1:
                lines.append(f"  %i{n} = load {V}, ptr {where}, align {emitter.align}, !invariant.load !1")
            else:
                lines.append(f"  %i{n}.1 = load {emitter.T}, ptr {where}, !invariant.load !1")
                lines.append(f"  %i{n}.v = insertelement {V} poison, {emitter.T} %i{n}.1, i32 0")
                mask = f"<{emitter.lanes} x i32> zeroinitializer"
                lines.append(f"  %i{n} = shufflevector {V} %i{n}.v, {V} poison, {mask}")
        return names[n]

    for n in program.nodes():
        op, args = graph.ops[n], graph.args[n]
        if op in ("sin", "cos"):
            angle = args[0]
            if angle not in pairs:
                operand, pairs[angle] = value(angle), f"sc{angle}"
                lines.append(emitter.sincos(pairs[angle], operand))
            lines.append(emitter.of_pair(f"v{n}", pairs[angle], op))
        else:
            arguments = [value(x) for x in args]
            lines += emitter.operation(n, op, arguments)
        names[n] = f"%v{n}"
    for j, (n, place) in enumerate(zip(program.outputs, segment.targets, strict=True)):
        number = value(n) if graph.ops[n] in LEAVES else names[n]
        where = pointer(place, f"o{j}")
        if rolled.adds and place.where == "output":
            lines.append(f"  %o{j}.b = load {V}, ptr {where}, align {emitter.align}")
            lines.append(f"  %o{j} = fadd {V} %o{j}.b, {number}")
            number = f"%o{j}"
        lines.append(f"  store {V} {number}, ptr {where}, align {emitter.align}")
    body = "\n".join(lines)
    pointers = "ptr noalias %in, ptr noalias %out, ptr noalias %work, ptr %row, i64 %column, ptr %env"
    return f"define internal void @{name}({pointers}) {{\n{body}\n  ret void\n}}\n"


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
        elif isinstance(step, Climb):
            lines += _climb(rolled, L, s, step)
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


def _climb(rolled: Rolled, L: int, s: str, climb: Climb) -> list[str]:
    starts = [_call(f"start{L}_{s}_{k}", f"%first{s}", f"%number{s}") for k in range(len(climb.starts))]
    calls = [_call(f"segment{L}_{s}_{k}", f"%row{s}", f"%number{s}") for k in range(len(climb.segments))]
    return [
        f"  br label %before{s}",
        f"before{s}:",
        f"  br label %column{s}",
        f"column{s}:",
        f"  %c{s} = phi i64 [ 0, %before{s} ], [ %c1{s}, %top{s} ]",
        f"  %of{s} = getelementptr [3 x i64], ptr @climb{s}, i64 %c{s}",
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
        f"  br i1 %world{s}, label %top{s}, label %climb{s}",
        f"climb{s}:",
        *_row(rolled, f"%p{s}", f"row{s}"),
        f"  %kind{s} = load i64, ptr %row{s}, !invariant.load !1",
        *_by_kind(f"kind{s}", f"%kind{s}", calls, f"next{s}"),
        f"next{s}:",
        f"  br label %test{s}",
        f"top{s}:",
        f"  %c1{s} = add i64 %c{s}, 1",
        f"  %more{s} = icmp ult i64 %c1{s}, {len(climb.rows)}",
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
