"""One segment of a loop program as a function of LLVM text: straight-line code with operands by row.

A row's integers are: kind, first constant, parent, its own frames, its parent's frames, where its numbers start.
"""

from __future__ import annotations

from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.ir.loop_program import Place, Rolled, Segment
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
        self.pairs: dict[int, str] = {}  # sine and cosine by angle

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
            angle = args[0]
            if angle not in self.pairs:
                value = self._value(angle)
                self.pairs[angle] = f"sc{angle}"
                self.lines.append(self.emitter.sincos(self.pairs[angle], value))
            self.lines.append(self.emitter.of_pair(f"v{n}", self.pairs[angle], op))
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
        kind = self.emitter.T if place.where == "constant" else self.emitter.V
        base = self._base(place)
        self.lines.append(f"  {name}.p = getelementptr {kind}, ptr {base}, i64 {place.number}")
        return f"{name}.p"

    def _base(self, place: Place) -> str:
        """The pointer, or the column, that a place counts from."""
        key = ("constant", 0, 0) if place.where == "constant" else (place.where, place.table, place.pitch)
        if key in self.bases:
            return self.bases[key]
        name = self.bases[key] = f"%{place.where}{key[1]}_{key[2]}"
        V, lines = self.emitter.V, self.lines
        lines.append(f"  {name}.r = getelementptr i64, ptr %row, i64 {self._integer(place)}")
        lines.append(f"  {name}.i = load i64, ptr {name}.r, !invariant.load !1")
        if place.where in ("own", "parent"):
            lines.append(f"  {name}.m = mul i64 {name}.i, {self.rolled.slots[place.table]}")
            lines.append(f"  {name}.o = add i64 {name}.m, {sum(self.rolled.memory()[: place.table])}")
            lines.append(f"  {name} = getelementptr {V}, ptr %work, i64 {name}.o")
        elif place.where == "unit":  # which of the row's own numbers is 1
            lines.append(f"  {name} = sub i64 %column, {name}.i")
        else:
            T = self.emitter.T
            kind, memory = {"constant": (T, "@constants"), "input": (V, "%in"), "output": (V, "%out")}[place.where]
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
