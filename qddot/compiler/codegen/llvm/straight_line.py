"""Programs as LLVM text: the same code for one lane and for many, and the loop that NumPy calls.

A kernel works on blocks of `lanes` states. Rows of the inputs are transposed into columns of lanes, sines and cosines of
inputs are computed in a loop, the straight-line code runs from memory to memory, and the columns of the results are
transposed back. What is left of a batch is done by the one-lane code, which gives the same bits: every operation is IEEE,
and fused where the IR says so. Long code is cut into functions that pass values through memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import pack, unpack

from qddot.compiler.codegen.abi import fastcall
from qddot.compiler.codegen.abi.gufunc import lines_ahead, numpy_loop
from qddot.compiler.codegen.llvm import loop_program, sincos
from qddot.compiler.codegen.llvm.function_body import Chunk, Place
from qddot.compiler.codegen.llvm.lazy_inputs import input_tiles, wide_parameters
from qddot.compiler.codegen.llvm.sincos import number
from qddot.compiler.codegen.llvm.streamed_output import cut_into_tiles
from qddot.compiler.codegen.llvm.transpose import Shape
from qddot.compiler.ir.loop_program import Rolled
from qddot.compiler.ir.ops import LEAVES
from qddot.compiler.ir.packed_output import SHORT
from qddot.compiler.ir.program import Program
from qddot.compiler.targets.target import Target

CHUNK = 350  # operations of one function: more are slower to compile and to run (docs/decisions/0005)
BUSY = 2  # operations for each number of a result above which there is time to wait for its memory meanwhile
ALONE = 16_000  # above which there is no code for one lane, which takes as long to compile again: a state fills a block

TOGETHER = 8  # angles of one state whose sines and cosines are computed side by side

NEAR = 256  # lines of memory that may be asked for into the first cache; more would drive out what is in use

_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_FUSED_SIGNS = {"fma": (False, False), "fms": (False, True), "fnma": (True, False), "fnms": (True, True)}


@dataclass
class Core:
    """One lane width: types, and the functions written so far."""

    program: Program | Rolled
    lanes: int
    dtype: str
    ahead: list[int] = field(default_factory=list)  # lines of memory of each input to ask for between the operations
    functions: list[str] = field(default_factory=list)
    places: list[int] | None = None  # the column of each output, where some share one
    together: int = 1  # angles whose sines and cosines are computed at once
    stream: bool = False  # whether long results are written past the caches
    rows: dict[int, range] = field(default_factory=dict)  # inputs that come in rows: what numbers of all inputs they are
    fma: bool = True  # whether the processor has multiply-adds; products and sums are rounded apart otherwise

    def __post_init__(self) -> None:
        self.T = "double" if self.dtype == "float64" else "float"
        short = "f64" if self.dtype == "float64" else "f32"
        self.V = self.T if self.lanes == 1 else f"<{self.lanes} x {self.T}>"
        self.suffix = short if self.lanes == 1 else f"v{self.lanes}{short}"
        self.align = (8 if self.T == "double" else 4) * self.lanes
        self.bits = "i1" if self.lanes == 1 else f"<{self.lanes} x i1>"
        self.asked = [i for i, n in enumerate(self.ahead) if n]
        self.more = "".join(f", ptr %ahead{i}" for i in self.asked)  # arguments that not all cores have
        self.name = f"{self.lanes}{'r' if self.rows else ''}"

    def const(self, x: float) -> str:
        if self.T == "float":
            x = unpack("f", pack("f", x))[0]
        return number(x) if self.lanes == 1 else f"splat ({self.T} {number(x)})"

    def render(self) -> None:
        """Writes the core and what it calls; `scratch` numbers a block lie between its functions."""
        if isinstance(self.program, Rolled):
            self.functions += loop_program.functions(self, self.program)
            self.scratch = sum(self.program.memory())
        else:
            self.straight = self.program
            self._straight_line(self.program)

    # ---- straight-line code

    def _straight_line(self, program: Program) -> None:
        graph = program.graph
        nodes = program.nodes()
        angles = sorted({graph.args[n][0] for n in nodes if graph.ops[n] in ("sin", "cos")})
        self.angles = [a for a in angles if graph.ops[a] == "input"]  # the others are computed on the way
        self.angle_place = {a: k for k, a in enumerate(self.angles)}
        self.ready = {n for n in nodes if graph.ops[n] in ("sin", "cos") and graph.args[n][0] in self.angle_place}
        code = [n for n in nodes if n not in self.ready]
        chunks = _cut(code)
        lines = [(i, k) for i, n in enumerate(self.ahead) for k in range(n)]
        self.level = 3 if len(lines) <= NEAR else 2
        self.fetches: dict[int, list[tuple[int, int]]] = {}  # before which operation to ask for which lines
        for k, line in enumerate(lines if code else ()):
            self.fetches.setdefault(code[k * len(code) // len(lines)], []).append(line)
        self.slots = self._crossing(chunks)
        self.input_tiles = input_tiles(program, self.rows, chunks)
        self.ring, self.tiles = cut_into_tiles(program, code) if self.stream else (None, {})
        self.more += ", ptr %lines" if self.ring else ""
        self.places = _places(program) if self.lanes > 1 and self.ring is None else None
        self.homes: dict[int, set[int]] = {}  # the columns of each output
        for k, n in enumerate(program.outputs):
            self.homes.setdefault(n, set()).add(self.column(k))
        self.columns = len(program.outputs) if self.places is None else 1 + max(self.places)
        zeros = [j for j, n in enumerate(program.outputs) if graph.ops[n] == "const" and graph.args[n][0] == 0.0]
        self.zero = self.places[zeros[0]] if self.places is not None and zeros else None
        self.together = TOGETHER if self.lanes == 1 and len(self.angles) > 2 else 1
        self.waves = 2 * self.together * -(-len(self.angles) // self.together)  # numbers of sines and cosines
        for k, chunk in enumerate(chunks):
            self.functions.append(Chunk(self, k, chunk).text(f"chunk{self.name}_{k}", last=k == len(chunks) - 1))
        self.functions.append(self._driver(len(chunks)))
        self.scratch = self.waves + self.passed

    def column(self, k: int) -> int:
        """Where the k-th number of the result is."""
        return self.ring.place(k) if self.ring is not None else k if self.places is None else self.places[k]

    def write(self, t: int) -> list[str]:
        """Lines that write the t-th tile of the result."""
        return self.ring.write(t) if self.ring is not None else []

    def _crossing(self, chunks: list[list[int]]) -> dict[int, int]:
        """Where values stand that one function computes and another one uses.

        A place is free again for the functions after the last that uses its value: what is passed then stays in the cache.
        """
        graph = self.straight.graph
        home = {n: k for k, chunk in enumerate(chunks) for n in chunk}
        until: dict[int, int] = {}  # the last function that uses a value
        for k, chunk in enumerate(chunks):
            for n in chunk:
                wanted = list(graph.args[n])
                for x in wanted:
                    if x in home and home[x] != k and graph.ops[x] == "less":
                        wanted.extend(graph.args[x])  # a comparison has no place in memory: it is made again
                    elif x in home and home[x] != k and graph.ops[x] not in LEAVES and x not in self.ready:
                        until[x] = k
        slots: dict[int, int] = {}
        free: list[int] = []
        ends: dict[int, list[int]] = {}
        places = 0
        for k, chunk in enumerate(chunks):
            free += ends.pop(k, [])
            for n in chunk:
                if n in until:
                    if not free:
                        free.append(places)
                        places += 1
                    slots[n] = free.pop()
                    ends.setdefault(until[n] + 1, []).append(slots[n])
        self.passed = places
        return slots

    def place(self, n: int) -> Place:
        """Where a value stands that another function computes, or none."""
        op, args = self.straight.graph.ops[n], self.straight.graph.args[n]
        if op == "input":
            return "in", args[0]
        return ("sc", 2 * self.angle_place[args[0]] + (op == "cos")) if n in self.ready else ("mem", self.slots[n])

    def operation(self, n: int, op: str, args: list[str]) -> list[str]:
        V = self.V
        if op in _BINARY:
            return [f"  %v{n} = {_BINARY[op]} {V} {args[0]}, {args[1]}"]
        if op == "neg":
            return [f"  %v{n} = fneg {V} {args[0]}"]
        if op in _FUSED_SIGNS:
            lines = []
            a, b, c = args
            if _FUSED_SIGNS[op][0]:
                lines.append(f"  %v{n}.a = fneg {V} {a}")
                a = f"%v{n}.a"
            if _FUSED_SIGNS[op][1]:
                lines.append(f"  %v{n}.c = fneg {V} {c}")
                c = f"%v{n}.c"
            return [*lines, *sincos.multiply_add(f"%v{n}", V, self.suffix, a, b, c, self.fma)]
        if op == "sqrt":
            return [f"  %v{n} = call {V} @llvm.sqrt.{self.suffix}({V} {args[0]})"]
        if op == "less":
            return [f"  %v{n} = fcmp olt {V} {args[0]}, {args[1]}"]
        if op == "select":
            return [f"  %v{n} = select {self.bits} {args[0]}, {V} {args[1]}, {V} {args[2]}"]
        if op == "arctan2":
            return [f"  %v{n} = call {V} @arctan2_{self.lanes}({V} {args[0]}, {V} {args[1]}, ptr %env)"]
        raise ValueError(f"straight-line code cannot have the operation {op!r}")

    def inline_sincos(self, lines: list[str], angle: str, n: int) -> str:
        V = self.V
        if self.T == "double":
            lines.append(f"  %sc{n} = call {{ {V}, {V} }} @sincos{self.lanes}({V} {angle}, ptr %env)")
        else:
            lines.append(f"  %sc{n} = call {{ {V}, {V} }} @sincos_single{self.lanes}({V} {angle}, ptr %env)")
        return f"%sc{n}"

    def _driver(self, chunks: int) -> str:
        """`core(in, out, work, env)`: sines and cosines of inputs, then one chunk after another.

        For each wide input there is one argument more: chunks ask between their operations for the memory there.
        """
        V, n_angles = self.V, len(self.angles)
        places = [self.straight.graph.args[a][0] for a in self.angles]
        places += places[-1:] * (self.waves // 2 - n_angles)
        index = ", ".join(f"i64 {k}" for k in places)
        table = f"@angles{self.name} = internal constant [{len(places)} x i64] [{index}]\n" if n_angles else ""
        lines = ["entry:", f"  %mem = getelementptr {V}, ptr %work, i64 {self.waves}"]
        if n_angles:
            lines += self._angles() if self.together == 1 else self._angles_together()
        arguments = f"(ptr %in, ptr %work, ptr %mem, ptr %out, ptr %env{self.more})"
        lines += [f"  call void @chunk{self.name}_{k}{arguments}" for k in range(chunks)]
        body = "\n".join(lines)
        parameters = f"ptr noalias %in, ptr noalias %out, ptr noalias %work, ptr %env{self.more}"
        return f"{table}define internal void @core{self.name}({parameters}) {{\n{body}\n  ret void\n}}\n"

    def _angles(self) -> list[str]:
        """The loop over the angles of one block."""
        V, L = self.V, self.lanes
        both = f"{{ {V}, {V} }}"
        kind = "sincos" if self.T == "double" else "sincos_single"
        return [
            "  br label %angle",
            "angle:",
            "  %k = phi i64 [ 0, %entry ], [ %k1, %angle ]",
            f"  %which.p = getelementptr i64, ptr @angles{self.name}, i64 %k",
            "  %which = load i64, ptr %which.p",
            f"  %x.p = getelementptr {V}, ptr %in, i64 %which",
            f"  %x = load {V}, ptr %x.p, align {self.align}",
            f"  %pair = call {both} @{kind}{L}({V} %x, ptr %env)",
            f"  %s = extractvalue {both} %pair, 0",
            f"  %c = extractvalue {both} %pair, 1",
            "  %k2 = shl i64 %k, 1",
            f"  %s.p = getelementptr {V}, ptr %work, i64 %k2",
            f"  store {V} %s, ptr %s.p, align {self.align}",
            "  %k3 = or i64 %k2, 1",
            f"  %c.p = getelementptr {V}, ptr %work, i64 %k3",
            f"  store {V} %c, ptr %c.p, align {self.align}",
            "  %k1 = add i64 %k, 1",
            f"  %more = icmp ult i64 %k1, {len(self.angles)}",
            "  br i1 %more, label %angle, label %angles_done",
            "angles_done:",
        ]

    def _angles_together(self) -> list[str]:
        """The loop over the angles of one state, some at a time: they are the lanes of one sine and cosine."""
        n, T = self.together, self.T
        V = f"<{n} x {T}>"
        both = f"{{ {V}, {V} }}"
        kind = "sincos" if T == "double" else "sincos_single"
        lines = ["  br label %angle", "angle:", "  %k = phi i64 [ 0, %entry ], [ %k1, %angle ]"]
        for j in range(n):
            lines += [
                f"  %k.{j} = add i64 %k, {j}",
                f"  %which.p{j} = getelementptr i64, ptr @angles1, i64 %k.{j}",
                f"  %which{j} = load i64, ptr %which.p{j}",
                f"  %x.p{j} = getelementptr {T}, ptr %in, i64 %which{j}",
                f"  %x{j} = load {T}, ptr %x.p{j}",
                f"  %v{j} = insertelement {V} {f'%v{j - 1}' if j else 'poison'}, {T} %x{j}, i32 {j}",
            ]
        lines += [
            f"  %pair = call {both} @{kind}{n}({V} %v{n - 1}, ptr %env)",
            f"  %s = extractvalue {both} %pair, 0",
            f"  %c = extractvalue {both} %pair, 1",
            "  %k2 = shl i64 %k, 1",
        ]
        order = ", ".join(f"i32 {j // 2 + n * (j % 2)}" for j in range(2 * n))
        return [
            *lines,
            f"  %sc.v = shufflevector {V} %s, {V} %c, <{2 * n} x i32> <{order}>",
            f"  %sc.q = getelementptr {T}, ptr %work, i64 %k2",
            f"  store <{2 * n} x {T}> %sc.v, ptr %sc.q, align {self.align}",
            f"  %k1 = add i64 %k, {n}",
            f"  %more = icmp ult i64 %k1, {len(self.angles)}",
            "  br i1 %more, label %angle, label %angles_done",
            "angles_done:",
        ]


def _cut(code: list[int]) -> list[list[int]]:
    """In parts of equal length, none too long."""
    length = -(-len(code) // -(-len(code) // CHUNK)) if code else 1
    return [code[k : k + length] for k in range(0, len(code), length)] or [[]]


def _places(program: Program) -> list[int] | None:
    """The column of each number of a long result: those that are equal, zeros and symmetric ones, share it.

    None where the result is short: a column each, in order.
    """
    places: dict[int, int] = {}
    out = [places.setdefault(n, len(places)) for n in program.outputs]
    return out if len(out) > SHORT else None


# ---- the module ------------------------------------------------------------------------------------------------------


def render(
    program: Program | Rolled,
    inputs: list[Shape],
    outputs: list[Shape],
    lanes: int,
    dtype: str,
    target: Target,
    parameters: int = 0,
) -> str:
    """A module with `@loop`, the function that NumPy calls for a generalized ufunc of these core shapes.

    So many of the inputs, the last ones, are parameters. For wide ones of which each state has its own there is a second
    core, which takes them in rows.
    """
    T = "double" if dtype == "float64" else "float"
    alone = isinstance(program, Rolled) or lanes == 1 or len(program.nodes()) < ALONE
    widths = [lanes, 1] if lanes > 1 and alone else [lanes]
    waves = set()  # numbers of angles whose sines and cosines are computed together
    text: list[str] = []
    work, places, zero, ring = 0, None, None, None
    stream = target.avx512 and lanes == 8 and T == "double"
    if isinstance(program, Rolled):
        text.append(loop_program.data(program, T))
    rows = wide_parameters(program, inputs, parameters) if isinstance(program, Program) and stream and alone else {}
    cores: list[tuple[int, dict[int, range]]] = [*((width, {}) for width in widths), *([(lanes, rows)] if rows else [])]
    for width, taken in cores:
        ahead = lines_ahead(inputs, width, T)
        core = Core(program, width, dtype, ahead, stream=stream and width > 1, rows=taken, fma=target.fma)
        core.render()
        if width > 1 and isinstance(program, Program):
            places, zero, ring = core.places, core.zero, core.ring
        work = max(work, width * core.scratch)
        waves |= {width, core.together}
        text += core.functions
    busy = isinstance(program, Program) and len(program.nodes()) > BUSY * len(program.outputs)
    stream = stream and (places is not None or ring is not None)
    text.append(
        numpy_loop(inputs, outputs, lanes, T, work, target.arch, places, zero, stream, ring, alone, busy, list(rows))
    )
    if alone and fastcall.has_call(inputs, outputs[0], work, 8 if T == "double" else 4):
        text.append(fastcall.render(inputs, outputs[0], work, T))
    text += [sincos.arctan2(width, T if width == 1 else f"<{width} x {T}>", T) for width in widths]
    for width in sorted(waves):
        text.append(sincos.define(width, target.fma))
        if T == "float":
            text.append(sincos.single(width))
    wide = (waves | set(widths)) - {1}
    for width in sorted({1, *wide}):
        for kind, short in (("double", "f64"), ("float", "f32")):
            V, suffix = (kind, short) if width == 1 else (f"<{width} x {kind}>", f"v{width}{short}")
            text.append(f"declare {V} @llvm.fma.{suffix}({V}, {V}, {V})")
            text += [f"declare {V} @llvm.{name}.{suffix}({V})" for name in ("sqrt", "fabs")]
    for width in sorted({8, *wide}):
        text.append(f"declare i1 @llvm.vector.reduce.or.v{width}i1(<{width} x i1>)")
    text.append('!0 = !{!"branch_weights", i32 1, i32 100000}\n!1 = !{}\n!2 = !{i32 1}')
    return "\n".join(text)
