"""A straight-line program as internal functions of LLVM text: `@core{name}(in, out, work, env)` and what it calls.

Inputs and results are columns of lanes in memory. Sines and cosines of inputs are computed in a loop, then the functions
run one after another; values that cross from one to another pass through scratch memory. Code for one lane and for many is
the same and gives the same bits: every operation is IEEE, and fused where the IR says so.

LLVM would load a value that is in memory once and, when registers run out, spill it. Instead, a value that was not used for
a while is reloaded from its original memory; an empty inline assembly hides from LLVM that the pointer is the same, so that
it does not merge the loads. Where a value is a cache line there is a pointer to every 256th of them as well: an address
within 128 lines of its base has an 8-bit displacement, which makes the instruction three bytes shorter.

Inputs are columns of lanes, or, if the plan says so, the caller's rows: then four columns are transposed at the first use
of one of them, and only those that other functions use as well are stored.
"""

from __future__ import annotations

from functools import partial

from qddot.compiler.codegen.llvm import sincos
from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.emitter import table as number_table
from qddot.compiler.codegen.llvm.memory_plan import ZERO_WINDOW, CoreOptions, InputTile, Location, MemoryPlan, plan
from qddot.compiler.codegen.llvm.module import Core
from qddot.compiler.codegen.llvm.prefetch import LINE_BYTES
from qddot.compiler.codegen.llvm.transpose_eight_doubles import four_columns
from qddot.compiler.ir.ops import COMPARISONS, LEAVES
from qddot.compiler.ir.program import Program

RELOAD_AFTER_OPS = 50  # since its last use, a value is reloaded; of 32 registers, with fewer the sooner (decision 12)

_REACH_LINES = 256  # that one base pointer reaches by 8-bit displacements


class FunctionBody:
    """The k-th function of a plan: where its operands come from, and where its results go."""

    def __init__(self, emitter: Emitter, plan: MemoryPlan, k: int) -> None:
        self.emitter, self.plan, self.number = emitter, plan, k
        self.graph = plan.program.graph
        self.nodes, self.own = plan.functions[k], set(plan.functions[k])
        self.lines: list[str] = []
        self.names: dict[int, str] = {}  # of values in registers
        self.used: dict[int, int] = {}  # the operation that used each of them last
        self.angles: set[int] = set()  # whose sine and cosine are in registers
        self.bases: dict[Location, tuple[str, int]] = {}  # base pointers by memory and reach: name, and period of origin
        self.now = self.period = 0
        self.reload_after = max(1, RELOAD_AFTER_OPS * emitter.target.registers // 32)
        self.labels = 0

    def text(self, name: str) -> str:
        """The function; the last one also stores the results that no function computes."""
        for k, n in enumerate(self.nodes):
            self.now = k
            self.period = self.now // self.reload_after
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
            value = "" if args[0] in self.angles else self._value(args[0])
            self.lines += self.emitter.sine_or_cosine(n, op, args[0], value, self.angles)
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
        in_memory = op not in COMPARISONS and (n not in self.own or n in self.plan.slots)
        old = in_memory and self.now - self.used.get(n, self.now) > self.reload_after
        self.used[n] = self.now
        if n not in self.names and op in COMPARISONS:  # a comparison is not stored but repeated
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


def straight_line_core(program: Program, emitter: Emitter, options: CoreOptions | None = None, tag: str = "") -> Core:
    """The core of a program; `tag` is part of the names of its functions."""
    options = options or CoreOptions()
    name, made = f"{emitter.lanes}{tag}", plan(program, emitter.lanes, options, emitter.target.vector_bits > 0)
    bodies = [FunctionBody(emitter, made, k).text(f"chunk{name}_{k}") for k in range(len(made.functions))]
    functions = (*bodies, _driver(emitter, made, name))
    grouped = partial(_grouped_driver, emitter, made, name)
    return Core(emitter, functions, made.scratch, made.outputs, made.sincos_lanes, grouped)


def _driver(emitter: Emitter, plan: MemoryPlan, name: str) -> str:
    """`@core{name}`: what comes before all functions, then one after another."""
    table, lines = _before(emitter, plan, name)
    arguments = f"(ptr %in, ptr %work, ptr %mem, ptr %out, ptr %env{plan.arguments})"
    lines.insert(1, f"  %mem = getelementptr {emitter.V}, ptr %work, i64 {plan.sincos_scratch}")
    lines += [f"  call void @chunk{name}_{k}{arguments}" for k in range(len(plan.functions))]
    body = "\n".join(lines)
    parameters = f"ptr noalias %in, ptr noalias %out, ptr noalias %work, ptr %env{plan.arguments}"
    return f"{table}define internal void @core{name}({parameters}) {{\n{body}\n  ret void\n}}\n"


def _grouped_driver(emitter: Emitter, plan: MemoryPlan, name: str, blocks: int) -> str:
    """`@core{name}x{blocks}`: each function for so many blocks, before the next one; steps are bytes between blocks."""
    before = "\n".join(_before(emitter, plan, name)[1])
    steps = {"in": "%in.step", "out": "%out.step", "work": "%work.step"}
    steps |= {f"next_block{i}": f"%next.step{i}" for i in plan.next_blocks}
    lines, calls = ["entry:"], [list[str]() for _ in range(1 + len(plan.functions))]
    for g in range(blocks):
        for pointer, step in steps.items():
            lines.append(f"  %{pointer}.o{g} = mul i64 {step}, {g}")
            lines.append(f"  %{pointer}.{g} = getelementptr i8, ptr %{pointer}, i64 %{pointer}.o{g}")
        lines.append(f"  %mem.{g} = getelementptr {emitter.V}, ptr %work.{g}, i64 {plan.sincos_scratch}")
        calls[0].append(f"  call void @before{name}(ptr %in.{g}, ptr %out.{g}, ptr %work.{g}, ptr %env)")
        own = f"ptr %in.{g}, ptr %work.{g}, ptr %mem.{g}, ptr %out.{g}, ptr %env"
        own += "".join(f", ptr %next_block{i}.{g}" for i in plan.next_blocks)
        for k in range(len(plan.functions)):
            calls[1 + k].append(f"  call void @chunk{name}_{k}({own})")
    more = "".join(f", ptr %next_block{i}, i64 %next.step{i}" for i in plan.next_blocks)
    body = "\n".join([*lines, *(line for own in calls for line in own)])
    memory = "ptr %in, i64 %in.step, ptr %out, i64 %out.step, ptr %work, i64 %work.step, ptr %env"
    return f"""define internal void @before{name}(ptr noalias %in, ptr noalias %out, ptr noalias %work, ptr %env) {{
{before}
  ret void
}}
define internal void @core{name}x{blocks}({memory}{more}) {{
{body}
  ret void
}}
"""


def _before(emitter: Emitter, plan: MemoryPlan, name: str) -> tuple[str, list[str]]:
    """Sines and cosines of inputs, and zeros of the result: tables, and lines."""
    graph = plan.program.graph
    inputs = [graph.args[a][0] for a in plan.angles]
    inputs += inputs[-1:] * (plan.sincos_scratch // 2 - len(inputs))
    index = ", ".join(f"i64 {k}" for k in inputs)
    table = f"@angles{name} = internal constant [{len(inputs)} x i64] [{index}]\n" if inputs else ""
    lines = ["entry:"]
    if inputs:
        loop = _angle_by_angle if plan.sincos_lanes == 1 else _angles_in_lanes
        lines += ["  br label %angle", "angle:", "  %k = phi i64 [ 0, %entry ], [ %k1, %angle ]"]
        lines += loop(emitter, plan.sincos_lanes, name)
        lines += [
            f"  %k1 = add i64 %k, {plan.sincos_lanes}",
            f"  %more = icmp ult i64 %k1, {len(plan.angles)}",
            "  br i1 %more, label %angle, label %angles_done",
            "angles_done:",
        ]
    if plan.zero_windows:
        table += number_table(f"zeros{name}", [[k] for k in plan.zero_windows])
        lines += _zeros(emitter, len(plan.zero_windows), name)
    return table, lines


def _zeros(emitter: Emitter, windows: int, name: str) -> list[str]:
    """Sets windows of one state's result to zero."""
    return [
        "  br label %no_zeros",
        "no_zeros:",
        "  br label %zeros",
        "zeros:",
        "  %z = phi i64 [ 0, %no_zeros ], [ %z1, %zeros ]",
        f"  %z.p = getelementptr i32, ptr @zeros{name}.table, i64 %z",
        "  %z.k = load i32, ptr %z.p",
        "  %z.w = zext i32 %z.k to i64",
        f"  %z.to = getelementptr {emitter.T}, ptr %out, i64 %z.w",
        f"  store <{ZERO_WINDOW} x {emitter.T}> zeroinitializer, ptr %z.to, align {emitter.align}",
        "  %z1 = add i64 %z, 1",
        f"  %z.more = icmp ult i64 %z1, {windows}",
        "  br i1 %z.more, label %zeros, label %zeros_done",
        "zeros_done:",
    ]


def _angle_by_angle(emitter: Emitter, _: int, name: str) -> list[str]:
    """Sine and cosine of the %k-th angle of a block."""
    V, align = emitter.V, emitter.align
    return [
        f"  %which.p = getelementptr i64, ptr @angles{name}, i64 %k",
        "  %which = load i64, ptr %which.p",
        f"  %x.p = getelementptr {V}, ptr %in, i64 %which",
        f"  %x = load {V}, ptr %x.p, align {align}",
        emitter.sincos("pair", "%x"),
        emitter.of_pair("s", "pair", "sin"),
        emitter.of_pair("c", "pair", "cos"),
        "  %k2 = shl i64 %k, 1",
        f"  %s.p = getelementptr {V}, ptr %work, i64 %k2",
        f"  store {V} %s, ptr %s.p, align {align}",
        "  %k3 = or i64 %k2, 1",
        f"  %c.p = getelementptr {V}, ptr %work, i64 %k3",
        f"  store {V} %c, ptr %c.p, align {align}",
    ]


def _angles_in_lanes(emitter: Emitter, n: int, name: str) -> list[str]:
    """Sines and cosines of n angles of one state, from the %k-th on, which are the lanes of one vector."""
    T, lines = emitter.T, list[str]()
    V = f"<{n} x {T}>"
    both = f"{{ {V}, {V} }}"
    for j in range(n):
        lines += [
            f"  %k.{j} = add i64 %k, {j}",
            f"  %which.p{j} = getelementptr i64, ptr @angles{name}, i64 %k.{j}",
            f"  %which{j} = load i64, ptr %which.p{j}",
            f"  %x.p{j} = getelementptr {T}, ptr %in, i64 %which{j}",
            f"  %x{j} = load {T}, ptr %x.p{j}",
            f"  %v{j} = insertelement {V} {f'%v{j - 1}' if j else 'poison'}, {T} %x{j}, i32 {j}",
        ]
    order = ", ".join(f"i32 {j // 2 + n * (j % 2)}" for j in range(2 * n))
    return [
        *lines,
        f"  %pair = call {both} @{sincos.function(T, n)}({V} %v{n - 1}, ptr %env)",
        f"  %s = extractvalue {both} %pair, 0",
        f"  %c = extractvalue {both} %pair, 1",
        "  %k2 = shl i64 %k, 1",
        f"  %sc.v = shufflevector {V} %s, {V} %c, <{2 * n} x i32> <{order}>",
        f"  %sc.q = getelementptr {T}, ptr %work, i64 %k2",
        f"  store <{2 * n} x {T}> %sc.v, ptr %sc.q, align {emitter.align}",
    ]
