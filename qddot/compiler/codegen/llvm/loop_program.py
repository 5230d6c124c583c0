"""A loop program as internal functions of LLVM text: one for each segment, and the loops that call them row by row.

A row's integers are: kind, first constant, parent, its own frames, its parent's frames, where its numbers start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import pack

from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.memory_plan import OutputColumns
from qddot.compiler.codegen.llvm.module import Core
from qddot.compiler.ir.loop_program import AncestorWalk, Columns, Place, Rolled, Segment, Step, Sweep
from qddot.compiler.ir.ops import LEAVES

FRAMES_AT = 3  # index of the first frame among a row's integers


class SegmentBody:
    """The function of one segment; it works on row %row and column %column."""

    def __init__(self, emitter: Emitter, rolled: Rolled, segment: Segment) -> None:
        self.emitter, self.rolled, self.segment = emitter, rolled, segment
        self.graph = segment.program.graph
        self.lines: list[str] = []
        self.names: dict[int, str] = {}  # of values in registers
        self.bases: dict[tuple[str, int, int], str] = {}  # pointers by what places count from
        self.angles: set[int] = set()  # whose sine and cosine are in registers

    def text(self, name: str) -> str:
        """The function: all is read before anything is written."""
        for n in self.segment.program.body:
            self._compute(n)
        for j, (n, place) in enumerate(zip(self.segment.program.outputs, self.segment.targets, strict=True)):
            self._store(j, n, place)
        body = "\n".join(self.lines)
        pointers = "ptr noalias %in, ptr noalias %out, ptr noalias %work, ptr %row, i64 %column, ptr %env"
        return f"define internal void @{name}({pointers}) {{\n{body}\n  ret void\n}}\n"

    def _compute(self, n: int) -> None:
        op, args = self.graph.ops[n], self.graph.args[n]
        if op in ("sin", "cos"):
            value = "" if args[0] in self.angles else self._value(args[0])
            self.lines += self.emitter.sine_or_cosine(n, op, args[0], value, self.angles)
        else:
            operands = [self._value(x) for x in args]
            self.lines += self.emitter.operation(n, op, operands)
        self.names[n] = f"%v{n}"

    def _value(self, n: int) -> str:
        if self.graph.ops[n] == "const":
            return self.emitter.const(self.graph.args[n][0])
        if n not in self.names:  # an input of the segment
            self.names[n] = f"%i{n}"
            self._load(f"%i{n}", self.segment.sources[self.graph.args[n][0]])
        return self.names[n]

    def _load(self, name: str, place: Place) -> None:
        V, T, align = self.emitter.V, self.emitter.T, self.emitter.align
        if place.where == "unit":
            one, zero = self.emitter.const(1.0), self.emitter.const(0.0)
            self.lines.append(f"  {name}.is = icmp eq i64 {self._base(place)}, {place.number}")
            self.lines.append(f"  {name} = select i1 {name}.is, {V} {one}, {V} {zero}")
            return
        pointer = self._pointer(place, name)
        if place.where != "constant":
            self.lines.append(f"  {name} = load {V}, ptr {pointer}, align {align}")
        elif self.emitter.lanes == 1:
            self.lines.append(f"  {name} = load {V}, ptr {pointer}, align {align}, !invariant.load !1")
        else:
            mask = f"<{self.emitter.lanes} x i32> zeroinitializer"
            self.lines.append(f"  {name}.1 = load {T}, ptr {pointer}, !invariant.load !1")
            self.lines.append(f"  {name}.v = insertelement {V} poison, {T} {name}.1, i32 0")
            self.lines.append(f"  {name} = shufflevector {V} {name}.v, {V} poison, {mask}")

    def _store(self, j: int, n: int, place: Place) -> None:
        V, align = self.emitter.V, self.emitter.align
        value = self._value(n) if self.graph.ops[n] in LEAVES else self.names[n]
        pointer = self._pointer(place, f"%o{j}")
        if self.rolled.adds and place.where == "output":
            self.lines.append(f"  %o{j}.b = load {V}, ptr {pointer}, align {align}")
            self.lines.append(f"  %o{j} = fadd {V} %o{j}.b, {value}")
            value = f"%o{j}"
        self.lines.append(f"  store {V} {value}, ptr {pointer}, align {align}")

    def _pointer(self, place: Place, name: str) -> str:
        kind = self.emitter.T if place.where == "constant" else self.emitter.cell
        base = self._base(place)
        self.lines.append(f"  {name}.p = getelementptr {kind}, ptr {base}, i64 {place.number}")
        return f"{name}.p"

    def _base(self, place: Place) -> str:
        """The pointer, or the column, that a place counts from."""
        key = ("constant", 0, 0) if place.where == "constant" else (place.where, place.table, place.pitch)
        if key in self.bases:
            return self.bases[key]
        name = self.bases[key] = f"%{place.where}{key[1]}_{key[2]}"
        cell, lines = self.emitter.cell, self.lines
        lines.append(f"  {name}.r = getelementptr i64, ptr %row, i64 {self._integer(place)}")
        lines.append(f"  {name}.i = load i64, ptr {name}.r, !invariant.load !1")
        if place.where in ("own", "parent"):
            lines.append(f"  {name}.m = mul i64 {name}.i, {self.rolled.slots[place.table]}")
            lines.append(f"  {name}.o = add i64 {name}.m, {sum(self.rolled.memory()[: place.table])}")
            lines.append(f"  {name} = getelementptr {cell}, ptr %work, i64 {name}.o")
        elif place.where == "unit":  # which of the row's own numbers is 1
            lines.append(f"  {name} = sub i64 %column, {name}.i")
        else:
            T = self.emitter.T
            kind, memory = {"constant": (T, "@constants"), "input": (cell, "%in"), "output": (cell, "%out")}[place.where]
            lines.append(f"  {name}.c = mul i64 %column, {place.pitch}")
            lines.append(f"  {name}.o = add i64 {name}.i, {name}.c")
            lines.append(f"  {name} = getelementptr {kind}, ptr {memory}, i64 {name}.o")
        return name

    def _integer(self, place: Place) -> int:
        """Which of the row's integers says where the numbers of a place begin."""
        arenas = len(self.rolled.slots)
        if place.where == "constant":
            return 1
        if place.where in ("own", "parent"):
            return FRAMES_AT + (arenas if place.where == "parent" else 0) + place.table
        return FRAMES_AT + 2 * arenas + place.table


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
    tables = {"row_table": integers}
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
            lines.append(_call(f"segment{L}_{s}_0", "@row_table", column))
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
    return [f"  %at.{name} = mul i64 {number}, {width}", f"  %{name} = getelementptr i64, ptr @row_table, i64 %at.{name}"]


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
        f"  %z.p = getelementptr {emitter.cell}, ptr %out, i64 %z",
        f"  store {emitter.V} {emitter.const(0.0)}, ptr %z.p, align {emitter.align}",
        "  %z1 = add i64 %z, 1",
        f"  %z.more = icmp ult i64 %z1, {count}",
        "  br i1 %z.more, label %clear, label %cleared",
        "cleared:",
    ]
