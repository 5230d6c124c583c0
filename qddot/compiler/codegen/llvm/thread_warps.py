"""A straight-line program for the warps of a block, each of which computes a part of the same 32 states, in phases.

Each warp has a function of its own, with the block's barriers in it. Values for other warps go through places in shared
memory; so do results, which are written to the caller's rows piece by piece, 16 bytes a thread where that is aligned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes
from qddot.compiler.codegen.llvm.thread_arguments import GLOBAL, WARP, Arguments
from qddot.compiler.codegen.llvm.thread_phases import PIECE, PITCH, Phases, Work
from qddot.compiler.codegen.llvm.thread_places import Places, places
from qddot.compiler.codegen.llvm.thread_registers import loads
from qddot.compiler.ir.ops import COMPARISONS
from qddot.compiler.ir.program import Program

_AT_A_TIME = 2  # pieces that a thread has in registers
_VECTOR_BYTES = 16


@dataclass(frozen=True)
class WarpOptions:
    """What a thread may use."""

    registers: int  # for values
    places: int  # of shared memory, as far as values can stay in registers


class Across:
    """How a warp writes a piece: a thread takes a few numbers that follow each other, of some of the 32 rows in turn."""

    def __init__(self, T: str) -> None:
        self.T, self.numbers = T, _VECTOR_BYTES // number_bytes(T)
        self.threads = PIECE // self.numbers  # of a row
        self.rows = WARP // self.threads  # at a time
        self.turns = WARP // self.rows

    @property
    def parameters(self) -> list[str]:
        """Of functions that write pieces."""
        rows = [f"ptr addrspace(1) %to{t}" for t in range(self.turns)]
        return ["ptr addrspace(3) %pool", "ptr addrspace(3) %across", *rows, "i1 %aligned", "i32 %column"]

    def lines(self, a: int) -> list[str]:
        """Lines that set these, but for %pool, which is this thread's number of the first place; %places is its begin."""
        lines = [
            f"  %column.thread = and i32 %lane, {self.threads - 1}",
            f"  %column = mul i32 %column.thread, {self.numbers}",
            f"  %across.row = lshr i32 %lane, {self.threads.bit_length() - 1}",
            f"  %across.o = mul i32 %column, {PITCH}",
            "  %across.k = add i32 %across.o, %across.row",
            f"  %across = getelementptr {self.T}, ptr addrspace(3) %places, i32 %across.k",
            f"  %row.bytes = mul i64 %s{a}, {number_bytes(self.T)}",
            f"  %out.int = ptrtoint ptr addrspace(1) %a{a} to i64",
            "  %out.bits = or i64 %row.bytes, %out.int",
            f"  %out.low = and i64 %out.bits, {_VECTOR_BYTES - 1}",
            "  %aligned = icmp eq i64 %out.low, 0",
        ]
        for t in range(self.turns):
            lines += [
                f"  %turn{t}.any = add i32 %across.row, {t * self.rows}",
                f"  %turn{t}.beyond = icmp sgt i32 %turn{t}.any, %last",
                f"  %turn{t} = select i1 %turn{t}.beyond, i32 %last, i32 %turn{t}.any",
                f"  %turn{t}.l = zext i32 %turn{t} to i64",
                f"  %turn{t}.s = add i64 %first, %turn{t}.l",
                f"  %turn{t}.o = mul i64 %turn{t}.s, %s{a}",
                f"  %turn{t}.p = getelementptr {self.T}, ptr addrspace(1) %a{a}, i64 %turn{t}.o",
                f"  %to{t} = getelementptr {self.T}, ptr addrspace(1) %turn{t}.p, i32 %column",
            ]
        return lines


class WarpProgram:
    """A program and its phases; `arguments` say where numbers are."""

    def __init__(
        self,
        name: str,
        program: Program,
        emitter: Emitter,
        arguments: Arguments,
        work: Work,
        made: Phases,
        options: WarpOptions,
    ) -> None:
        self.name, self.program, self.emitter, self.arguments, self.made = name, program, emitter, arguments, made
        self.across = Across(emitter.T)
        self.sincos = known_before(program, arguments.angles)
        self.loads = loads(program, work, made, options.registers)
        self.places: Places = places(program, work, made, self.loads, options.places, arguments.output.staged)
        self.steps: list[list[list[int]]] = [[[] for _ in range(made.warps)] for _ in range(made.count)]
        for n, p, w in zip(work.nodes, made.phase, made.warp, strict=True):
            self.steps[p][w].append(n)
        self.results: dict[int, list[int]] = {}
        for k, n in enumerate(program.outputs):
            self.results.setdefault(n, []).append(k)
        self.computed = set(work.nodes)

    @property
    def parameters(self) -> str:
        """Of each function, with their types."""
        out = self.arguments.output
        given = [x.parameters for x in self.arguments.inputs]
        given += self.across.parameters if out.staged else ["ptr addrspace(3) %pool", out.parameters]
        return ", ".join([*given, "ptr addrspace(3) %sc", "ptr %mem", "ptr %env"])

    def text(self) -> list[str]:
        """A function for each warp."""
        return [WarpFunction(self, w).text() for w in range(self.made.warps)]

    def call(self, w: int) -> str:
        """A line that computes the part of a warp: arguments have the names of parameters."""
        return f"  call void @{self.name}.warp{w}({self.parameters})"


def known_before(program: Program, angles: Sequence[int]) -> dict[int, int]:
    """Where sines and cosines are, of these numbers of the first input, that are computed before anything else."""
    graph, at, found = program.graph, {k: 2 * i for i, k in enumerate(angles)}, dict[int, int]()
    for n in program.body:
        if graph.ops[n] in ("sin", "cos"):
            angle = graph.args[n][0]
            if graph.ops[angle] == "input" and graph.args[angle][0] in at:
                found[n] = at[graph.args[angle][0]] + (graph.ops[n] == "cos")
    return found


class WarpFunction:
    """What one warp does in all phases."""

    def __init__(self, whole: WarpProgram, warp: int) -> None:
        self.whole, self.warp, self.emitter, self.graph = whole, warp, whole.emitter, whole.program.graph
        self.T = self.emitter.T
        self.lines = ["  %local = addrspacecast ptr %mem to ptr addrspace(5)"]
        self.own = {n for step in whole.steps for n in step[warp]}
        self.names: dict[int, str] = {}
        self.angles: set[int] = set()
        self.labels = 0

    def text(self) -> str:
        """The function."""
        whole = self.whole
        if not whole.arguments.output.staged and self.warp == 0:
            self._copy_leaves()
        for p, step in enumerate(whole.steps):
            own = whole.places.writes[p][self.warp]
            for k in range(0, len(own), _AT_A_TIME):
                self._write(own[k : k + _AT_A_TIME])
            for k in whole.places.leaves.get((p, self.warp), ()):
                self._store_result(k, self._leaf(whole.program.outputs[k]))
            for n in step[self.warp]:
                self._compute(n)
            if p + 1 < len(whole.steps):
                self.lines.append("  call void @join(ptr %env)")
        body = "\n".join(self.lines)
        head = f"define internal void @{whole.name}.warp{self.warp}({whole.parameters}) noinline #1"
        return f"{head} {{\n{body}\n  ret void\n}}\n"

    # ---- values

    def _compute(self, n: int) -> None:
        op, args = self.graph.ops[n], self.graph.args[n]
        for x in self.whole.loads[self.warp].get(n, ()):
            self.names[x] = self._load(x)
        if op in ("sin", "cos"):
            value = "" if args[0] in self.angles else self._value(args[0])
            self.lines += self.emitter.sine_or_cosine(n, op, args[0], value, self.angles)
        else:
            self.lines += self.emitter.operation(n, op, [self._value(x) for x in args])
        self.names[n] = f"%v{n}"
        if n in self.whole.places.of:
            self._store_shared(self.names[n], self.whole.places.of[n] * WARP)
        if n in self.whole.places.local:
            self.labels += 1
            self.lines += [
                f"  %l{self.labels} = getelementptr {self.T}, ptr addrspace(5) %local, i32 {self.whole.places.local[n]}",
                f"  store {self.T} {self.names[n]}, ptr addrspace(5) %l{self.labels}",
            ]
        self._store_results(n)

    def _value(self, n: int) -> str:
        op = self.graph.ops[n]
        if op == "const":
            return self.emitter.const(self.graph.args[n][0])
        if n in self.names:
            return self.names[n]
        if op in COMPARISONS:  # is not stored but repeated
            self.lines += self.emitter.operation(n, op, [self._value(x) for x in self.graph.args[n]])
            self.names[n] = f"%v{n}"
            return self.names[n]
        raise ValueError(f"value {n} was not loaded")

    def _leaf(self, n: int) -> str:
        """A number, an input, or what was computed before."""
        return self.emitter.const(self.graph.args[n][0]) if self.graph.ops[n] == "const" else self._load(n)

    def _load(self, n: int) -> str:
        """A value from where it is."""
        self.labels += 1
        p, memory, invariant = f"%l{self.labels}", "ptr addrspace(3)", ""
        if n in self.whole.sincos:
            self.lines.append(f"  {p} = getelementptr {self.T}, {memory} %sc, i64 {self.whole.sincos[n]}")
        elif self.graph.ops[n] == "input":
            operand, k = self.whole.arguments.input(self.graph.args[n][0])
            lines, at = operand.address(p, k, self.T)
            self.lines += lines
            memory, invariant = operand.pointer, ", !invariant.load !1" if operand.space == GLOBAL else ""
            p = at
        elif n in self.own and n in self.whole.places.local:
            memory = "ptr addrspace(5)"
            self.lines.append(f"  {p} = getelementptr {self.T}, {memory} %local, i32 {self.whole.places.local[n]}")
        else:
            self.lines.append(f"  {p} = getelementptr {self.T}, {memory} %pool, i32 {self.whole.places.of[n] * WARP}")
        self.lines.append(f"  %x{self.labels} = load {self.T}, {memory} {p}{invariant}")
        return f"%x{self.labels}"

    def _store_shared(self, value: str, index: int) -> None:
        self.labels += 1
        self.lines += [
            f"  %l{self.labels} = getelementptr {self.T}, ptr addrspace(3) %pool, i32 {index}",
            f"  store {self.T} {value}, ptr addrspace(3) %l{self.labels}",
        ]

    # ---- results

    def _copy_leaves(self) -> None:
        """Results that nobody computes, before a barrier: after the last one, other warps stage the next states' inputs."""
        for n in [n for n in self.whole.results if n not in self.whole.computed]:
            for k in self.whole.results[n]:
                self._store_result(k, self._leaf(n))

    def _store_results(self, n: int) -> None:
        for k in self.whole.results.get(n, ()):
            self._store_result(k, self._value(n))

    def _store_result(self, k: int, value: str) -> None:
        out = self.whole.arguments.output
        if out.staged:
            self._store_shared(value, self.whole.places.pieces[k // PIECE] * WARP + k % PIECE * PITCH)
            return
        lines, at = out.address(f"%o{k}", k, self.T)
        self.lines += [*lines, f"  store {self.T} {value}, {out.pointer} {at}"]

    def _write(self, pieces: Sequence[int]) -> None:
        """Pieces that are complete."""
        a, size = self.whole.across, len(self.whole.program.outputs)
        whole = [p for p in pieces if (p + 1) * PIECE <= size]
        found: dict[tuple[int, int], list[str]] = {}
        for p in whole:
            for t in range(a.turns):
                found[p, t] = [self._across(p, t, i) for i in range(a.numbers)]
        if whole:
            self.labels += 1
            w = f"w{self.labels}"
            self.lines += [f"  br i1 %aligned, label %{w}.vector, label %{w}.single", f"{w}.vector:"]
            for (p, t), values in found.items():
                self._write_vector(p, t, values)
            self.lines += [f"  br label %{w}.done", f"{w}.single:"]
            for (p, t), values in found.items():
                for i, value in enumerate(values):
                    self._write_number(f"%to{t}", p * PIECE + i, value)
            self.lines += [f"  br label %{w}.done", f"{w}.done:"]
        for p in pieces:
            if p not in whole:
                self._write_part(p, size - p * PIECE)

    def _across(self, p: int, t: int, i: int) -> str:
        self.labels += 1
        index = self.whole.places.pieces[p] * WARP + i * PITCH + t * self.whole.across.rows
        self.lines += [
            f"  %l{self.labels} = getelementptr {self.T}, ptr addrspace(3) %across, i32 {index}",
            f"  %x{self.labels} = load {self.T}, ptr addrspace(3) %l{self.labels}",
        ]
        return f"%x{self.labels}"

    def _write_vector(self, p: int, t: int, values: list[str]) -> None:
        self.labels += 1
        v, V = f"%u{self.labels}", f"<{len(values)} x {self.T}>"
        for i, value in enumerate(values):
            before = f"{v}.{i - 1}" if i else "poison"
            self.lines.append(f"  {v}.{i} = insertelement {V} {before}, {self.T} {value}, i32 {i}")
        self.lines += [
            f"  {v}.p = getelementptr {self.T}, ptr addrspace(1) %to{t}, i64 {p * PIECE}",
            f"  store {V} {v}.{len(values) - 1}, ptr addrspace(1) {v}.p, align {_VECTOR_BYTES}",
        ]

    def _write_number(self, to: str, index: int, value: str) -> None:
        self.labels += 1
        self.lines += [
            f"  %g{self.labels} = getelementptr {self.T}, ptr addrspace(1) {to}, i64 {index}",
            f"  store {self.T} {value}, ptr addrspace(1) %g{self.labels}, align {number_bytes(self.T)}",
        ]

    def _write_part(self, p: int, size: int) -> None:
        """The last piece, which has less numbers: threads beyond its end write the last one once more."""
        a, at = self.whole.across, self.whole.places.pieces[p] * WARP
        for i in range(a.numbers):
            self.labels += 1
            c = f"%c{self.labels}"
            self.lines += [
                f"  {c}.any = add i32 %column, {i}",
                f"  {c}.beyond = icmp sgt i32 {c}.any, {size - 1}",
                f"  {c}.in = select i1 {c}.beyond, i32 {size - 1}, i32 {c}.any",
                f"  {c} = sub i32 {c}.in, %column",
                f"  {c}.o = mul i32 {c}, {PITCH}",
                f"  {c}.p = getelementptr {self.T}, ptr addrspace(3) %across, i32 {c}.o",
            ]
            for t in range(a.turns):
                self.lines += [
                    f"  {c}.p{t} = getelementptr {self.T}, ptr addrspace(3) {c}.p, i32 {at + t * a.rows}",
                    f"  {c}.x{t} = load {self.T}, ptr addrspace(3) {c}.p{t}",
                    f"  {c}.g{t} = getelementptr {self.T}, ptr addrspace(1) %to{t}, i32 {c}",
                ]
                self._write_number(f"{c}.g{t}", p * PIECE, f"{c}.x{t}")
