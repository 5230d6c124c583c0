"""Programs as LLVM text: the same code for one lane and for many, and the loop that NumPy calls.

A kernel works on blocks of `lanes` states. Rows of the inputs are transposed into columns of lanes, sines and cosines of
inputs are computed in a loop, the straight-line code runs from memory to memory, and the columns of the results are
transposed back. What is left of a batch is done by the one-lane code, which gives the same bits: every operation is IEEE,
and fused where the IR says so. Long code is cut into functions that pass values through memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from struct import pack, unpack

from qddot.compiler import sincos
from qddot.compiler.ops import LEAVES
from qddot.compiler.program import Program
from qddot.compiler.sincos import number

CHUNK = 500  # operations of one function: more are slower to compile and to run (docs/decisions/0005)

_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_FUSED_SIGNS = {"fma": (False, False), "fms": (False, True), "fnma": (True, False), "fnms": (True, True)}

Shape = tuple[int, ...]


@dataclass
class _Core:
    """One lane width: types, and the functions written so far."""

    program: Program
    lanes: int
    dtype: str
    functions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.T = "double" if self.dtype == "float64" else "float"
        short = "f64" if self.dtype == "float64" else "f32"
        self.V = self.T if self.lanes == 1 else f"<{self.lanes} x {self.T}>"
        self.suffix = short if self.lanes == 1 else f"v{self.lanes}{short}"
        self.align = (8 if self.T == "double" else 4) * self.lanes
        self.bits = "i1" if self.lanes == 1 else f"<{self.lanes} x i1>"

    def const(self, x: float) -> str:
        if self.T == "float":
            x = unpack("f", pack("f", x))[0]
        return number(x) if self.lanes == 1 else f"splat ({self.T} {number(x)})"

    # ---- straight-line code

    def render(self) -> None:
        program, graph = self.program, self.program.graph
        nodes = program.nodes()
        angles = sorted({graph.args[n][0] for n in nodes if graph.ops[n] in ("sin", "cos")})
        self.angles = [a for a in angles if graph.ops[a] == "input"]  # the others are computed on the way
        self.angle_place = {a: k for k, a in enumerate(self.angles)}
        ready = {n for n in nodes if graph.ops[n] in ("sin", "cos") and graph.args[n][0] in self.angle_place}
        code = [n for n in nodes if n not in ready]
        chunks = [code[k : k + CHUNK] for k in range(0, len(code), CHUNK)] or [[]]
        self.slots = self._crossing(chunks, ready)
        for k, chunk in enumerate(chunks):
            self.functions.append(self._chunk(k, chunk, ready, last=k == len(chunks) - 1))
        self.functions.append(self._driver(len(chunks)))

    def _crossing(self, chunks: list[list[int]], ready: set[int]) -> dict[int, int]:
        """Where values stand that one function computes and another one uses."""
        graph = self.program.graph
        home = {n: k for k, chunk in enumerate(chunks) for n in chunk}
        slots: dict[int, int] = {}
        for k, chunk in enumerate(chunks):
            for n in chunk:
                wanted = list(graph.args[n])
                for x in wanted:
                    if x in home and home[x] != k and graph.ops[x] == "less":
                        wanted.extend(graph.args[x])  # a comparison has no place in memory: it is made again
                    elif x in home and home[x] != k and graph.ops[x] not in LEAVES and x not in ready:
                        slots.setdefault(x, len(slots))
        return slots

    def _chunk(self, k: int, chunk: list[int], ready: set[int], last: bool) -> str:
        graph, V = self.program.graph, self.V
        lines: list[str] = []
        names: dict[int, str] = {}
        pairs: dict[int, str] = {}
        own = set(chunk)

        def load(pointer: str, index: int, name: str) -> str:
            lines.append(f"  %{name}.p = getelementptr {V}, ptr %{pointer}, i64 {index}")
            lines.append(f"  %{name} = load {V}, ptr %{name}.p, align {self.align}, !invariant.load !1")
            return f"%{name}"

        def value(n: int) -> str:
            if n in names:
                return names[n]
            op = graph.ops[n]
            if op == "const":
                return self.const(graph.args[n][0])
            if op == "input":
                names[n] = load("in", graph.args[n][0], f"i{n}")
            elif op == "less":
                lines.extend(self._operation(n, op, [value(x) for x in graph.args[n]]))
                names[n] = f"%v{n}"
            elif n in ready:
                place = self.angle_place[graph.args[n][0]]
                names[n] = load("sc", 2 * place + (op == "cos"), f"t{n}")
            else:
                names[n] = load("mem", self.slots[n], f"m{n}")
            return names[n]

        for n in chunk:
            op, args = graph.ops[n], graph.args[n]
            if op in ("sin", "cos"):
                angle = args[0]
                if angle not in pairs:
                    pairs[angle] = self._inline_sincos(lines, value(angle), angle)
                lines.append(f"  %v{n} = extractvalue {{ {V}, {V} }} {pairs[angle]}, {int(op == 'cos')}")
            else:
                lines += self._operation(n, op, [value(x) for x in args])
            names[n] = f"%v{n}"
            if n in self.slots:
                lines.append(f"  %s{n}.p = getelementptr {V}, ptr %mem, i64 {self.slots[n]}")
                lines.append(f"  store {V} %v{n}, ptr %s{n}.p, align {self.align}")
        for j, n in enumerate(self.program.outputs):
            mine = n in own or (last and (graph.ops[n] in LEAVES or n in ready))
            if mine:
                lines.append(f"  %o{j}.p = getelementptr {V}, ptr %out, i64 {j}")
                lines.append(f"  store {V} {value(n)}, ptr %o{j}.p, align {self.align}")
        body = "\n".join(lines)
        pointers = "ptr noalias %in, ptr noalias %sc, ptr noalias %mem, ptr noalias %out, ptr %env"
        return f"define internal void @chunk{self.lanes}_{k}({pointers}) {{\n{body}\n  ret void\n}}\n"

    def _operation(self, n: int, op: str, args: list[str]) -> list[str]:
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
            return [*lines, f"  %v{n} = call {V} @llvm.fma.{self.suffix}({V} {a}, {V} {b}, {V} {c})"]
        if op == "sqrt":
            return [f"  %v{n} = call {V} @llvm.sqrt.{self.suffix}({V} {args[0]})"]
        if op == "less":
            return [f"  %v{n} = fcmp olt {V} {args[0]}, {args[1]}"]
        if op == "select":
            return [f"  %v{n} = select {self.bits} {args[0]}, {V} {args[1]}, {V} {args[2]}"]
        if op == "arctan2":
            return [f"  %v{n} = call {V} @arctan2_{self.lanes}({V} {args[0]}, {V} {args[1]}, ptr %env)"]
        raise ValueError(f"straight-line code cannot have the operation {op!r}")

    def _inline_sincos(self, lines: list[str], angle: str, n: int) -> str:
        V = self.V
        if self.T == "double":
            lines.append(f"  %sc{n} = call {{ {V}, {V} }} @sincos{self.lanes}({V} {angle}, ptr %env)")
        else:
            lines.append(f"  %sc{n} = call {{ {V}, {V} }} @sincos_single{self.lanes}({V} {angle}, ptr %env)")
        return f"%sc{n}"

    def _driver(self, chunks: int) -> str:
        """Sines and cosines of inputs, then the chunks."""
        V, L = self.V, self.lanes
        n_angles = len(self.angles)
        kind = "sincos" if self.T == "double" else "sincos_single"
        index = ", ".join(f"i64 {self.program.graph.args[a][0]}" for a in self.angles)
        table = f"@angles{L} = internal constant [{n_angles} x i64] [{index}]\n" if n_angles else ""
        loop = ""
        if n_angles:
            loop = f"""  br label %angle
angle:
  %k = phi i64 [ 0, %entry ], [ %k1, %angle ]
  %which.p = getelementptr i64, ptr @angles{L}, i64 %k
  %which = load i64, ptr %which.p
  %x.p = getelementptr {V}, ptr %in, i64 %which
  %x = load {V}, ptr %x.p, align {self.align}
  %pair = call {{ {V}, {V} }} @{kind}{L}({V} %x, ptr %env)
  %s = extractvalue {{ {V}, {V} }} %pair, 0
  %c = extractvalue {{ {V}, {V} }} %pair, 1
  %k2 = shl i64 %k, 1
  %s.p = getelementptr {V}, ptr %sc, i64 %k2
  store {V} %s, ptr %s.p, align {self.align}
  %k3 = or i64 %k2, 1
  %c.p = getelementptr {V}, ptr %sc, i64 %k3
  store {V} %c, ptr %c.p, align {self.align}
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {n_angles}
  br i1 %more, label %angle, label %run
run:
"""
        calls = "\n".join(
            f"  call void @chunk{L}_{k}(ptr %in, ptr %sc, ptr %mem, ptr %out, ptr %env)" for k in range(chunks)
        )
        return f"""{table}define internal void @core{L}(ptr noalias %in, ptr noalias %out, ptr %env) {{
entry:
  %sc = alloca [{max(1, 2 * n_angles)} x {V}], align 64
  %mem = alloca [{max(1, len(self.slots))} x {V}], align 64
{loop}{calls}
  ret void
}}
"""


# ---- rows and columns ------------------------------------------------------------------------------------------------


def _flat_offset(name: str, k: str, shape: Shape, strides: list[str]) -> list[str]:
    """Lines that compute %name = the byte offset of the k-th entry of an array with any strides."""
    lines, total = [], "0"
    for j, d in enumerate(shape):
        rest = prod(shape[j + 1 :])
        lines.append(f"  %{name}.d{j} = udiv i64 {k}, {rest}")
        lines.append(f"  %{name}.m{j} = urem i64 %{name}.d{j}, {d}")
        lines.append(f"  %{name}.o{j} = mul i64 %{name}.m{j}, {strides[j]}")
        lines.append(f"  %{name}.t{j} = add i64 %{name}.o{j}, {total}")
        total = f"%{name}.t{j}"
    lines.append(f"  %{name} = add i64 {total}, 0")
    return lines


def _copy_function(name: str, shape: Shape, T: str, size: int, into_rows: bool) -> str:
    """Moves one state between an array with any strides and a column of lanes; `%pitch` bytes lie between its entries."""
    n = prod(shape)
    strides = [f"%c{j}" for j in range(len(shape))]
    parameters = ", ".join(f"i64 %c{j}" for j in range(len(shape)))
    offset = "\n".join(_flat_offset("at", "%k", shape, strides))
    row, column = "%row.p", "%column.p"
    source, target = (column, row) if into_rows else (row, column)
    return f"""define internal void @{name}(ptr %row, ptr %column, i64 %pitch{", " + parameters if parameters else ""}) {{
entry:
  br label %step
step:
  %k = phi i64 [ 0, %entry ], [ %k1, %step ]
{offset}
  %row.p = getelementptr i8, ptr %row, i64 %at
  %far = mul i64 %k, %pitch
  %column.p = getelementptr i8, ptr %column, i64 %far
  %value = load {T}, ptr {source}, align 1
  store {T} %value, ptr {target}, align 1
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {n}
  br i1 %more, label %step, label %done
done:
  ret void
}}
"""


def _transpose_function(name: str, columns: int, into_rows: bool) -> str:
    """Eight contiguous rows of doubles into columns of eight lanes or back, four columns at a time."""
    tile = _tile_to_rows if into_rows else _tile_to_columns
    full, rest = divmod(columns, 4)
    lines = ["entry:"]
    for r in range(8):
        lines.append(f"  %off{r} = mul i64 %step, {r}")
        lines.append(f"  %row{r} = getelementptr i8, ptr %rows, i64 %off{r}")
    if full:
        lines += ["  br label %tile", "tile:", "  %at = phi i64 [ 0, %entry ], [ %next, %tile ]"]
        tile(lines, "f", "%at", 4)
        lines += [
            "  %next = add i64 %at, 4",
            f"  %more = icmp ult i64 %next, {4 * full}",
            "  br i1 %more, label %tile, label %last",
        ]
    else:
        lines.append("  br label %last")
    lines.append("last:")
    if rest:
        lines.append(f"  %at_last = add i64 {4 * full}, 0")
        tile(lines, "l", "%at_last", rest)
    body = "\n".join(lines)
    return f"define internal void @{name}(ptr %rows, i64 %step, ptr noalias %cols) {{\n{body}\n  ret void\n}}\n"


def _mask(width: int) -> str:
    return "<4 x i1> <" + ", ".join(f"i1 {int(k < width)}" for k in range(4)) + ">"


_LOW, _HIGH = "0, 8, 2, 10, 4, 12, 6, 14", "1, 9, 3, 11, 5, 13, 7, 15"
_FIRST, _SECOND = "0, 1, 8, 9, 4, 5, 12, 13", "2, 3, 10, 11, 6, 7, 14, 15"


def _shuffle(lines: list[str], out: str, a: str, b: str, mask: str, n: int = 8) -> None:
    numbers = ", ".join(f"i32 {m}" for m in mask.split(", "))
    count = len(mask.split(", "))
    lines.append(f"  %{out} = shufflevector <{n} x double> %{a}, <{n} x double> %{b}, <{count} x i32> <{numbers}>")


def _tile_to_columns(lines: list[str], t: str, first: str, width: int) -> None:
    for r in range(8):
        lines.append(f"  %{t}.p{r} = getelementptr double, ptr %row{r}, i64 {first}")
        if width == 4:
            lines.append(f"  %{t}.l{r} = load <4 x double>, ptr %{t}.p{r}, align 8")
        else:
            lines.append(
                f"  %{t}.l{r} = call <4 x double> @llvm.masked.load.v4f64.p0"
                f"(ptr align 8 %{t}.p{r}, {_mask(width)}, <4 x double> zeroinitializer)"
            )
    for r in range(4):
        _shuffle(lines, f"{t}.a{r}", f"{t}.l{r}", f"{t}.l{r + 4}", "0, 1, 2, 3, 4, 5, 6, 7", 4)
    for k, (a, b) in enumerate(((0, 1), (2, 3))):
        _shuffle(lines, f"{t}.lo{k}", f"{t}.a{a}", f"{t}.a{b}", _LOW)
        _shuffle(lines, f"{t}.hi{k}", f"{t}.a{a}", f"{t}.a{b}", _HIGH)
    for c, (half, mask_) in enumerate((("lo", _FIRST), ("hi", _FIRST), ("lo", _SECOND), ("hi", _SECOND))):
        if c < width:
            _shuffle(lines, f"{t}.c{c}", f"{t}.{half}0", f"{t}.{half}1", mask_)
            lines.append(f"  %{t}.i{c} = add i64 {first}, {c}")
            lines.append(f"  %{t}.q{c} = getelementptr <8 x double>, ptr %cols, i64 %{t}.i{c}")
            lines.append(f"  store <8 x double> %{t}.c{c}, ptr %{t}.q{c}, align 64")


def _tile_to_rows(lines: list[str], t: str, first: str, width: int) -> None:
    for c in range(4):
        if c < width:
            lines.append(f"  %{t}.i{c} = add i64 {first}, {c}")
            lines.append(f"  %{t}.q{c} = getelementptr <8 x double>, ptr %cols, i64 %{t}.i{c}")
            lines.append(f"  %{t}.c{c} = load <8 x double>, ptr %{t}.q{c}, align 64")
        else:
            lines.append(f"  %{t}.c{c} = select i1 true, <8 x double> zeroinitializer, <8 x double> zeroinitializer")
    for k, (a, b) in enumerate(((0, 1), (2, 3))):
        _shuffle(lines, f"{t}.lo{k}", f"{t}.c{a}", f"{t}.c{b}", _LOW)
        _shuffle(lines, f"{t}.hi{k}", f"{t}.c{a}", f"{t}.c{b}", _HIGH)
    for r, (half, mask_) in enumerate((("lo", _FIRST), ("hi", _FIRST), ("lo", _SECOND), ("hi", _SECOND))):
        _shuffle(lines, f"{t}.r{r}", f"{t}.{half}0", f"{t}.{half}1", mask_)
        _shuffle(lines, f"{t}.l{r}", f"{t}.r{r}", f"{t}.r{r}", "0, 1, 2, 3")
        _shuffle(lines, f"{t}.l{r + 4}", f"{t}.r{r}", f"{t}.r{r}", "4, 5, 6, 7")
    for r in range(8):
        lines.append(f"  %{t}.p{r} = getelementptr double, ptr %row{r}, i64 {first}")
        if width == 4:
            lines.append(f"  store <4 x double> %{t}.l{r}, ptr %{t}.p{r}, align 8")
        else:
            lines.append(
                f"  call void @llvm.masked.store.v4f64.p0(<4 x double> %{t}.l{r}, ptr align 8 %{t}.p{r}, {_mask(width)})"
            )


# ---- the module ------------------------------------------------------------------------------------------------------


def render(
    program: Program, inputs: list[Shape], outputs: list[Shape], lanes: int, dtype: str = "float64", x86: bool = True
) -> str:
    """A module with `@loop`, the function that NumPy calls for a generalized ufunc of these core shapes."""
    T, size = ("double", 8) if dtype == "float64" else ("float", 4)
    widths = [lanes, 1] if lanes > 1 else [1]
    text = [_DECLARATIONS, _X86 if x86 else ""]
    for width in widths:
        core = _Core(program, width, dtype)
        core.render()
        text.append(sincos.define(width))
        if T == "float":
            text.append(_single(width))
        text.append(_arctan2(width, core.V, T))
        text += core.functions
    for i, shape in enumerate(inputs):
        text.append(_copy_function(f"read{i}", shape, T, size, into_rows=False))
        if lanes == 8 and T == "double":
            text.append(_transpose_function(f"columns{i}", prod(shape), into_rows=False))
    for i, shape in enumerate(outputs):
        text.append(_copy_function(f"write{i}", shape, T, size, into_rows=True))
        if lanes == 8 and T == "double":
            text.append(_transpose_function(f"rows{i}", prod(shape), into_rows=True))
    text.append(_copy(T))
    text.append(_loop(inputs, outputs, lanes, T, size, x86))
    suffixes = sorted({"f64", "f32", *(f"v{w}f64" for w in widths if w > 1), *(f"v{w}f32" for w in widths if w > 1)})
    for suffix in suffixes:
        V = {"f64": "double", "f32": "float"}.get(
            suffix
        ) or f"<{suffix[1:-3]} x {'double' if suffix.endswith('64') else 'float'}>"
        text.append(f"declare {V} @llvm.fma.{suffix}({V}, {V}, {V})")
        text.append(f"declare {V} @llvm.sqrt.{suffix}({V})")
        text.append(f"declare {V} @llvm.fabs.{suffix}({V})")
    if lanes > 1:
        text.append(f"declare i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1>)")
    text.append('!0 = !{!"branch_weights", i32 1, i32 100000}\n!1 = !{}')
    return "\n".join(text)


_X86 = """declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
"""

_DECLARATIONS = """declare <4 x double> @llvm.masked.load.v4f64.p0(ptr, <4 x i1>, <4 x double>)
declare void @llvm.masked.store.v4f64.p0(<4 x double>, ptr, <4 x i1>)
"""


def _single(lanes: int) -> str:
    """Sine and cosine of floats by way of doubles."""
    F, D = ("float", "double") if lanes == 1 else (f"<{lanes} x float>", f"<{lanes} x double>")
    return f"""define internal {{ {F}, {F} }} @sincos_single{lanes}({F} %x, ptr %env) alwaysinline {{
  %wide = fpext {F} %x to {D}
  %pair = call {{ {D}, {D} }} @sincos{lanes}({D} %wide, ptr %env)
  %s = extractvalue {{ {D}, {D} }} %pair, 0
  %c = extractvalue {{ {D}, {D} }} %pair, 1
  %fs = fptrunc {D} %s to {F}
  %fc = fptrunc {D} %c to {F}
  %half = insertvalue {{ {F}, {F} }} poison, {F} %fs, 0
  %out = insertvalue {{ {F}, {F} }} %half, {F} %fc, 1
  ret {{ {F}, {F} }} %out
}}
"""


def _arctan2(lanes: int, V: str, T: str) -> str:
    """Lane by lane, by the library's function."""
    lines, out = [], "poison"
    for k in range(lanes):
        for name in ("y", "x"):
            get = f"fadd {T} %{name}, -0.0" if lanes == 1 else f"extractelement {V} %{name}, i32 {k}"
            lines.append(f"  %{name}{k} = {get}")
            if T == "float":
                lines.append(f"  %{name}w{k} = fpext float %{name}{k} to double")
        y, x = (f"%yw{k}", f"%xw{k}") if T == "float" else (f"%y{k}", f"%x{k}")
        lines.append(f"  %r{k} = call double %function(double {y}, double {x})")
        r = f"%r{k}"
        if T == "float":
            lines.append(f"  %rn{k} = fptrunc double %r{k} to float")
            r = f"%rn{k}"
        if lanes > 1:
            lines.append(f"  %out{k} = insertelement {V} {out}, {T} {r}, i32 {k}")
            out = f"%out{k}"
        else:
            out = r
    body = "\n".join(lines)
    return f"""define internal {V} @arctan2_{lanes}({V} %y, {V} %x, ptr %env) noinline {{
  %place = getelementptr ptr, ptr %env, i64 2
  %function = load ptr, ptr %place
{body}
  ret {V} {out}
}}
"""


# NumPy warns of what the floating-point flags say after a loop; what is not finite we report ourselves, by sample
_SAVE_FLAGS = ("  %flags = alloca i32", "  call void @llvm.x86.sse.stmxcsr(ptr %flags)")
_RESTORE_FLAGS = ("  call void @llvm.x86.sse.ldmxcsr(ptr %flags)",)

_Copies = Callable[[int, str, str], tuple[list[str], list[str]]]


def _loop(inputs: list[Shape], outputs: list[Shape], lanes: int, T: str, size: int, x86: bool) -> str:
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

    def copies(width: int, base: str, r: str) -> tuple[list[str], list[str]]:
        """Calls that bring state `base + r` in and out of lane r of the scratch columns."""
        column = 0
        reads: list[str] = []
        writes: list[str] = []
        for i, shape in enumerate(operands):
            is_in = i < len(inputs)
            if i == len(inputs):
                column = 0
            tag = f"{i}_{width}_{r.strip('%')}"
            into = "%in" if is_in else "%out"
            lines = [
                f"  %at{tag} = add i64 {base}, {r}",
                f"  %off{tag} = mul i64 %at{tag}, %s{i}",
                f"  %row{tag} = getelementptr i8, ptr %a{i}, i64 %off{tag}",
                f"  %lane{tag} = mul i64 {r}, {size}",
                f"  %first{tag} = add i64 %lane{tag}, {column * size * width}",
                f"  %col{tag} = getelementptr i8, ptr {into}, i64 %first{tag}",
            ]
            call = f"@read{i}" if is_in else f"@write{i - len(inputs)}"
            extra = "".join(f", i64 {c}" for c in strides[i])
            lines.append(f"  call void {call}(ptr %row{tag}, ptr %col{tag}, i64 {size * width}{extra})")
            (reads if is_in else writes).extend(lines)
            column += prod(shape)
        return reads, writes

    V = T if lanes == 1 else f"<{lanes} x {T}>"
    scratch = [
        f"  %in = alloca [{max(1, n_in)} x {V}], align 64",
        f"  %out = alloca [{max(1, n_out)} x {V}], align 64",
    ]
    lines = ["entry:", *head, *scratch, *(_SAVE_FLAGS if x86 else ())]
    if lanes > 1:
        lines += _blocks(inputs, outputs, lanes, T, size, flag, copies)
    else:
        lines += ["  br label %tail", "tail:", "  %done = phi i64 [ 0, %entry ]"]
    reads, writes = copies(1, "%t", "0")
    lines += [
        "  %left = icmp ult i64 %done, %n",
        "  br i1 %left, label %one, label %end",
        "one:",
        "  %t = phi i64 [ %done, %tail ], [ %t1, %one_done ]",
        f"  br i1 {flag}, label %one_fast, label %one_any",
        "one_fast:",
        *_plain_copies(inputs, outputs, size),
        "  br label %one_done",
        "one_any:",
        *reads,
        "  call void @core1(ptr %in, ptr %out, ptr %env)",
        *writes,
        "  br label %one_done",
        "one_done:",
        "  %t1 = add i64 %t, 1",
        "  %more1 = icmp ult i64 %t1, %n",
        "  br i1 %more1, label %one, label %end",
        "end:",
        *(_RESTORE_FLAGS if x86 else ()),
        "  ret void",
    ]
    return "define void @loop(ptr %args, ptr %dimensions, ptr %steps, ptr %env) {\n" + "\n".join(lines) + "\n}\n"


def _plain_copies(inputs: list[Shape], outputs: list[Shape], size: int) -> list[str]:
    """One state whose entries lie side by side: inputs are copied as they are, and so is the result."""
    lines, column = [], 0
    for i, shape in enumerate([*inputs, *outputs]):
        if i == len(inputs):
            lines.append("  call void @core1(ptr %in, ptr %out, ptr %env)")
            column = 0
        scratch = "%in" if i < len(inputs) else "%out"
        row, place = f"%pr{i}", f"%pc{i}"
        source, target = (row, place) if i < len(inputs) else (place, row)
        lines += [
            f"  %po{i} = mul i64 %t, %s{i}",
            f"  {row} = getelementptr i8, ptr %a{i}, i64 %po{i}",
            f"  {place} = getelementptr i8, ptr {scratch}, i64 {column * size}",
            f"  call void @copy(ptr {target}, ptr {source}, i64 {prod(shape)})",
        ]
        column += prod(shape)
    return lines


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


def _blocks(
    inputs: list[Shape], outputs: list[Shape], lanes: int, T: str, size: int, flag: str, copies: _Copies
) -> list[str]:
    """The loop over full blocks of lanes; afterwards %done states are finished."""
    fast = lanes == 8 and T == "double"
    reads, _ = copies(lanes, "%first", "%r")
    _, writes = copies(lanes, "%first", "%w")
    lines = [
        f"  %full = udiv i64 %n, {lanes}",
        "  %any_block = icmp ugt i64 %full, 0",
        "  br i1 %any_block, label %block, label %tail",
        "block:",
        "  %b = phi i64 [ 0, %entry ], [ %b1, %next ]",
        f"  %first = mul i64 %b, {lanes}",
    ]
    if fast:
        lines += [f"  br i1 {flag}, label %fast, label %gather", "fast:"]
        column = 0
        for i, shape in enumerate(inputs):
            lines += [
                f"  %f{i} = mul i64 %first, %s{i}",
                f"  %fr{i} = getelementptr i8, ptr %a{i}, i64 %f{i}",
                f"  %fc{i} = getelementptr i8, ptr %in, i64 {column * size * lanes}",
                f"  call void @columns{i}(ptr %fr{i}, i64 %s{i}, ptr %fc{i})",
            ]
            column += prod(shape)
        lines += ["  br label %compute"]
    else:
        lines += ["  br label %gather"]
    lines += [
        "gather:",
        "  br label %gather_one",
        "gather_one:",
        "  %r = phi i64 [ 0, %gather ], [ %r1, %gather_one ]",
        *reads,
        "  %r1 = add i64 %r, 1",
        f"  %r_more = icmp ult i64 %r1, {lanes}",
        "  br i1 %r_more, label %gather_one, label %compute",
        "compute:",
        f"  call void @core{lanes}(ptr %in, ptr %out, ptr %env)",
    ]
    if fast:
        lines += [f"  br i1 {flag}, label %fast_out, label %scatter", "fast_out:"]
        column = 0
        for k, shape in enumerate(outputs):
            i = len(inputs) + k
            lines += [
                f"  %g{i} = mul i64 %first, %s{i}",
                f"  %gr{i} = getelementptr i8, ptr %a{i}, i64 %g{i}",
                f"  %gc{i} = getelementptr i8, ptr %out, i64 {column * size * lanes}",
                f"  call void @rows{k}(ptr %gr{i}, i64 %s{i}, ptr %gc{i})",
            ]
            column += prod(shape)
        lines += ["  br label %next"]
    else:
        lines += ["  br label %scatter"]
    lines += [
        "scatter:",
        "  br label %scatter_one",
        "scatter_one:",
        "  %w = phi i64 [ 0, %scatter ], [ %w1, %scatter_one ]",
        *writes,
        "  %w1 = add i64 %w, 1",
        f"  %w_more = icmp ult i64 %w1, {lanes}",
        "  br i1 %w_more, label %scatter_one, label %next",
        "next:",
        "  %b1 = add i64 %b, 1",
        "  %b_more = icmp ult i64 %b1, %full",
        "  br i1 %b_more, label %block, label %tail",
        "tail:",
        "  %done = phi i64 [ 0, %entry ], [ %whole, %tail_in ]",
    ]
    # the count of finished states, known when the last block is done
    at = lines.index("  br i1 %b_more, label %block, label %tail")
    lines[at : at + 1] = [
        "  br i1 %b_more, label %block, label %tail_in",
        "tail_in:",
        f"  %whole = mul i64 %full, {lanes}",
        "  br label %tail",
    ]
    return lines
