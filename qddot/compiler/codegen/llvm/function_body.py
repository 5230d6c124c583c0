"""The body of one function of straight-line code: where its operands come from, and where its results go.

Inputs, sines and cosines, and values of other functions are in memory. LLVM would load such a value once and, when
registers run out, spill it. Instead, a value that was not used for a while is reloaded from its original memory; an empty
inline assembly hides from LLVM that the pointer is the same, so that it does not merge the loads. Where a value is a cache
line there is a pointer to every 256th of them as well: an address within 128 lines of its base has an 8-bit displacement,
which makes the instruction three bytes shorter.

Inputs are columns of lanes, or, if the plan says so, the caller's rows: then four columns are transposed at the first use
of one of them, and only those that other functions use as well are stored.
"""

from __future__ import annotations

from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.lazy_inputs import InputTile
from qddot.compiler.codegen.llvm.memory_plan import Location, MemoryPlan
from qddot.compiler.codegen.llvm.prefetch import LINE_BYTES
from qddot.compiler.codegen.llvm.transpose_eight_doubles import four_columns
from qddot.compiler.ir.ops import LEAVES

RELOAD_AFTER_OPS = 50  # since its last use, a value is reloaded instead of being kept in a register

_REACH_LINES = 256  # that one base pointer reaches by 8-bit displacements


class FunctionBody:
    """The k-th function of a plan."""

    def __init__(self, emitter: Emitter, plan: MemoryPlan, k: int) -> None:
        self.emitter, self.plan, self.number = emitter, plan, k
        self.graph = plan.program.graph
        self.nodes, self.own = plan.functions[k], set(plan.functions[k])
        self.lines: list[str] = []
        self.names: dict[int, str] = {}  # of values in registers
        self.used: dict[int, int] = {}  # the operation that used each of them last
        self.pairs: dict[int, str] = {}  # sine and cosine by angle
        self.bases: dict[Location, tuple[str, int]] = {}  # base pointers by memory and reach: name, and period of origin
        self.now = self.period = 0
        self.labels = 0

    def text(self, name: str) -> str:
        """The function; the last one also stores the results that no function computes."""
        for k, n in enumerate(self.nodes):
            self.now = k
            self.period = self.now // RELOAD_AFTER_OPS
            self._prefetch(n)
            self._compute(n)
            if n in self.plan.slots:
                self._store(f"%v{n}", ("mem", self.plan.slots[n]))
            self._store_result(n)
            self._write_tiles(n)
        if self.number == len(self.plan.functions) - 1:
            self._finish()
        pointers = "ptr noalias %in, ptr noalias %sc, ptr %mem, ptr %out, ptr %env"
        body = "\n".join(self.lines)
        return f"define internal void @{name}({pointers}{self.plan.arguments}) {{\n{body}\n  ret void\n}}\n"

    def _prefetch(self, n: int) -> None:
        """The lines of the next block that are due before this operation."""
        for i, line in self.plan.prefetches.get(n, ()):
            at, locality = f"%f{i}_{line}", self.plan.prefetch_locality
            self.lines.append(f"  {at} = getelementptr i8, ptr %next_block{i}, i64 {LINE_BYTES * line}")
            self.lines.append(f"  call void @llvm.prefetch.p0(ptr {at}, i32 0, i32 {locality}, i32 1)")

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
            self.lines += self.emitter.operation(n, op, [self._value(x) for x in args])
        self.names[n], self.used[n] = f"%v{n}", self.now

    def _value(self, n: int) -> str:
        """A node as an operand; reloaded from memory if it was last used long ago."""
        op = self.graph.ops[n]
        if op == "const":
            return self.emitter.const(self.graph.args[n][0])
        tile = self.plan.input_tiles.get(n)
        if tile is not None and tile.function == self.number:
            if n not in self.names:
                self._transpose(tile)
            return self.names[n]
        in_memory = op != "less" and (n not in self.own or n in self.plan.slots)
        old = in_memory and self.now - self.used.get(n, self.now) > RELOAD_AFTER_OPS
        self.used[n] = self.now
        if n not in self.names and op == "less":  # a comparison is not stored but repeated
            self.lines += self.emitter.operation(n, op, [self._value(x) for x in self.graph.args[n]])
            self.names[n] = f"%v{n}"
        elif n not in self.names or old:
            invariant = "" if n in self.own else ", !invariant.load !1"
            pointer = self._pointer(self.plan.location(n), reload=True)
            self.names[n] = f"{pointer}.x"
            self.lines.append(
                f"  {pointer}.x = load {self.emitter.V}, ptr {pointer}, align {self.emitter.align}{invariant}"
            )
        return self.names[n]

    def _transpose(self, tile: InputTile) -> None:
        """Columns of a tile from this block's rows, which lie before those of the next block."""
        t = f"x{tile.operand}_{tile.start}"
        for r in range(8):
            index = tile.start + tile.row * (r - 8)
            self.lines.append(f"  %{t}.p{r} = getelementptr double, ptr %next_block{tile.operand}, i64 {index}")
        four_columns(self.lines, t)
        for c, n in tile.nodes.items():
            self.names[n] = f"%{t}.c{c}"
            if n in tile.later:
                self._store(self.names[n], self.plan.location(n))

    def _write_tiles(self, n: int) -> None:
        """The tiles of the result that are complete after this operation."""
        if (ring := self.plan.outputs.ring) is not None:
            for t in self.plan.output_tiles.get(n, ()):
                self.lines += ring.write(t)

    def _finish(self) -> None:
        """Stores the results that no function computes, and writes the last tiles."""
        outputs = self.plan.outputs
        if outputs.ring is None:
            for n in self.plan.output_columns:
                if self._is_in_memory(n):
                    self._store_result(n)
            return
        for t in self.plan.output_tiles.get(-1, ()):
            for k in range(8 * t, 8 * t + 8):
                n = self.plan.program.outputs[k]
                if self._is_in_memory(n):
                    self._store(self._value(n), ("out", outputs.column(k)))
            self.lines += outputs.ring.write(t)

    def _is_in_memory(self, n: int) -> bool:
        """Whether no function computes a node."""
        return self.graph.ops[n] in LEAVES or n in self.plan.sincos_slots

    def _store_result(self, n: int) -> None:
        """Stores a result in every column that has it."""
        for j in sorted(self.plan.output_columns.get(n, ())):
            self._store(self._value(n), ("out", j))

    def _store(self, value: str, location: Location) -> None:
        pointer = self._pointer(location)
        self.lines.append(f"  store {self.emitter.V} {value}, ptr {pointer}, align {self.emitter.align}")

    def _pointer(self, location: Location, reload: bool = False) -> str:
        """A pointer; for a reload one of which LLVM cannot tell that it is the same as an older one."""
        self.labels += 1
        p, (memory, index) = f"%p{self.labels}", location
        reach = (index + _REACH_LINES // 2) // _REACH_LINES if self.emitter.align == LINE_BYTES else 0
        base = self._base((memory, reach), reload)
        self.lines.append(f"  {p} = getelementptr {self.emitter.V}, ptr {base}, i64 {index - _REACH_LINES * reach}")
        return p

    def _base(self, which: Location, reload: bool) -> str:
        memory, reach = which
        name, period = self.bases.get(which, ("", 0))
        if name and (period == self.period or not reload):
            return name
        self.labels += 1
        new = f"%b{self.labels}"
        if not name and reach == 0 and self.period == 0:
            new = f"%{memory}"
        elif not name:
            self.lines.append(f"  {new}.w = getelementptr {self.emitter.V}, ptr %{memory}, i64 {_REACH_LINES * reach}")
            name = f"{new}.w"
        if new != f"%{memory}":
            self.lines.append(self.emitter.target.architecture.opaque_pointer(new, name))
        self.bases[which] = new, self.period
        return new
