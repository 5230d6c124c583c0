"""Straight-line programs as C99 that people can read: one function, no allocation, no global state.

Every operation of the program is one of the C code, in an order that its data allow, so that a compiler which neither
contracts nor reassociates gives the bits of the kernel. A value with one use is written where it is used; everything else
has a name. Results that are no larger than an input are stored last, so that they may overwrite it; larger ones are
stored as they come, which takes less of the stack.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypedDict, Unpack

import numpy as np

from qddot.compiler.codegen.llvm import sincos
from qddot.compiler.ir.program import Program
from qddot.errors import InputError

WIDTH = 110  # columns of a line
_NESTED = 66  # characters up to which an expression is written inside another
_TERNARY, _SUM, _PRODUCT, _SIGN, _ATOM = range(5)  # how tightly an expression binds
_INFIX = {"add": ("+", _SUM), "sub": ("-", _SUM), "mul": ("*", _PRODUCT), "div": ("/", _PRODUCT)}
_FUSED_SIGNS = {"fma": (False, False), "fms": (False, True), "fnma": (True, False), "fnms": (True, True)}

Text = tuple[str, int]  # an expression and how tightly it binds
Array = tuple[str, int]  # the name and the length of an argument


class RenderOptions(TypedDict, total=False):
    """Choices about the C code."""

    dtype: str  # "float64" unless given
    own_sincos: bool  # the kernels' own sine and cosine (the default) or the C library's
    fma: bool  # whether sine and cosine use fma (the default); whether the program does is its maker's choice
    inline: bool  # a `static inline` function; not unless given
    label: Callable[[str, int], str]  # the comment above the code of a symbol of a link


def _symbol_and_link(symbol: str, link: int) -> str:
    return f"{symbol} {link}"


def render(
    program: Program,
    name: str,
    inputs: Sequence[Array],
    output: Array,
    **options: Unpack[RenderOptions],
) -> str:
    """The code of a C function `name` of the input arrays, which writes the output array."""
    dtype, fma = options.get("dtype", "float64"), options.get("fma", True)
    own_sincos, label = options.get("own_sincos", True), options.get("label", _symbol_and_link)
    for argument, _ in (*inputs, output):
        if not re.fullmatch(r"[a-zA-Z]\w*[a-zA-Z]|[a-zA-Z]", argument) or argument.startswith(("sin_", "cos_")):
            raise ValueError(f"{argument!r} could be taken for a name of the code's own")
    writer = _Writer(program, inputs, output, dtype, own_sincos, f"{name}_sincos", label)
    body = writer.render()
    text = ["#include <math.h>", ""]
    if writer.angles:
        text = ["#include <float.h>", *text, *_evaluation(writer.T), *_sincos(writer.helper, writer.T, fma), ""]
    uncontracted = [] if fma else _CONTRACTION  # with fma no expression has a product in a sum
    start = declaration(name, inputs, output, dtype)
    text += [f"static inline {start}"] if options.get("inline") else [f"{start};", "", start]
    return "\n".join([*text, "{", *uncontracted, *body, "}", ""])


def declaration(name: str, inputs: Sequence[Array], output: Array, dtype: str) -> str:
    """What stands before the body, and, with a semicolon, in a header."""
    T = _type(dtype)
    arguments = [f"const {T} {x}[{n}]" for x, n in inputs] + [f"{T} {output[0]}[{output[1]}]"]
    line = f"void {name}({', '.join(arguments)})"
    if len(line) <= WIDTH:
        return line
    return f"void {name}(\n    " + ",\n    ".join(arguments) + ")"


def stores_early(inputs: Sequence[Array], output: Array) -> bool:
    """Whether results are stored before all inputs are read: the two must not overlap then."""
    return output[1] > max((n for _, n in inputs), default=0)


def _type(dtype: str) -> str:
    return "double" if dtype == "float64" else "float"


# GCC does not know the pragma, and does not contract under -std=c99; Clang does, within an expression.
_CONTRACTION = ["#ifdef __clang__", "#pragma STDC FP_CONTRACT OFF", "#endif"]


def _evaluation(T: str) -> list[str]:
    """Refuses compilers that compute with more digits than the type has."""
    wider = " || FLT_EVAL_METHOD == 1" if T == "float" else ""
    return [
        f"#if FLT_EVAL_METHOD < 0 || FLT_EVAL_METHOD == 2{wider}",
        f'#error "sine and cosine need {T}s that are rounded to {T}s; on x86 compile with -msse2 -mfpmath=sse"',
        "#endif",
        "",
    ]


@dataclass
class _Writer:
    """The body of the function as it grows."""

    program: Program
    inputs: Sequence[Array]
    output: Array
    dtype: str
    own_sincos: bool
    helper: str
    label: Callable[[str, int], str]
    lines: list[str] = field(default_factory=list)
    named: dict[int, Text] = field(default_factory=dict)
    waiting: dict[int, Text] = field(default_factory=dict)  # values that may still be written inside another
    angles: set[int] = field(default_factory=set)  # those whose sine and cosine are there by our own code

    def __post_init__(self) -> None:
        self.graph, self.T = self.program.graph, _type(self.dtype)
        self.suffix = "" if self.T == "double" else "f"
        self.places = [f"{name}[{k}]" for name, n in self.inputs for k in range(n)]
        uses = Counter(x for n in self.program.nodes() for x in self.graph.args[n])
        self.uses = uses + Counter(self.program.outputs)
        self.count = 0
        self.early = stores_early(self.inputs, self.output)
        self.results: dict[int, list[int]] = {}
        for k, n in enumerate(self.program.outputs):
            self.results.setdefault(n, []).append(k)

    def render(self) -> list[str]:
        said = ""
        self.lines += [f"    (void){name};" for name in self._idle()]
        for symbol, link, nodes in self.program.sections():
            comment = self.label(symbol, link)
            if comment != said:
                self.lines += ([""] if self.lines else []) + [f"    /* {comment} */"]
                said = comment
            for n in nodes:
                self._compute(n)
            for n in list(self.waiting):
                self._name(n)
        last = [n for n in self.results if not self.early or self.graph.ops[n] in ("const", "input")]
        if not self.early:
            for n in last:
                if self.graph.ops[n] == "input":  # which the first result may overwrite
                    self._statement(n, self._value(n)[0])
        if last and said != "results":
            self.lines += ["", "    /* results */"]
        self.lines += [self._store(k, self._value(n)[0]) for k, n in sorted((k, n) for n in last for k in self.results[n])]
        return self.lines

    def _idle(self) -> list[str]:
        """The arguments that nothing is read of, about which compilers warn."""
        used = {self.graph.args[n][0] for n in self.uses if self.graph.ops[n] == "input"}
        ends = list(accumulate(n for _, n in self.inputs))
        return [name for (name, n), end in zip(self.inputs, ends, strict=True) if used.isdisjoint(range(end - n, end))]

    def _store(self, place: int, text: str) -> str:
        return f"    {self.output[0]}[{place}] = {text};"

    def _compute(self, n: int) -> None:
        op, args = self.graph.ops[n], self.graph.args[n]
        if op in ("sin", "cos"):
            self._angle(n, op, args[0])
        elif op == "less":
            if n in self.program.outputs:
                raise ValueError("a comparison is no number that a function could give")
            for x in args:
                self._name(x)  # it is written out wherever it decides
        else:
            text = self._operation(op, args)
            while len(text[0]) > _NESTED and (inside := [x for x in args if x in self.waiting]):
                self._name(max(inside, key=lambda x: len(self.waiting[x][0])))
                text = self._operation(op, args)
            for x in args:
                self.waiting.pop(x, None)
            self.waiting[n] = text
            if self.uses[n] > 1:
                self._name(n)

    def _value(self, n: int) -> Text:
        op, args = self.graph.ops[n], self.graph.args[n]
        if n in self.named:
            return self.named[n]
        if op == "const":
            text = number(args[0], self.dtype)
            return text, _SIGN if text.startswith("-") else _ATOM
        if op == "input":
            return self.places[args[0]], _ATOM
        return self.waiting[n]

    def _name(self, n: int) -> None:
        """Ends the waiting of a value: it gets a name, or is stored if that is its only use."""
        if n in self.waiting:
            self._statement(n, self.waiting.pop(n)[0])

    def _statement(self, n: int, text: str) -> None:
        places = self.results.get(n, []) if self.early else []
        if places and self.uses[n] == 1:
            self.lines.append(self._store(places[0], text))
            return
        name = f"t{self.count}"
        self.count += 1
        self.named[n] = name, _ATOM
        self.lines.append(f"    const {self.T} {name} = {text};")
        self.lines += [self._store(k, name) for k in places]

    def _angle(self, n: int, op: str, angle: int) -> None:
        """Own code gives the sine and cosine of an angle together, where the first of them is wanted."""
        self._name(angle)
        x = self._value(angle)[0]
        short = x.replace("[", "").replace("]", "")
        name = f"{op}_{short}"
        self.named[n] = name, _ATOM
        if not self.own_sincos:
            self.lines.append(f"    const {self.T} {name} = {op}{self.suffix}({x});")
        elif angle not in self.angles:
            self.angles.add(angle)
            self.lines.append(f"    {self.T} sin_{short}, cos_{short};")
            self.lines.append(f"    {self.helper}({x}, &sin_{short}, &cos_{short});")
        if self.early:
            self.lines += [self._store(k, name) for k in self.results.get(n, ())]

    def _operation(self, op: str, args: tuple[int, ...]) -> Text:
        if op in _INFIX:
            sign, level = _INFIX[op]
            x, y = self._value(args[0]), self._value(args[1])
            return f"{_at(x, level)} {sign} {_at(y, level + 1)}", level
        if op == "neg":
            return "-" + _at(self._value(args[0]), _ATOM), _SIGN
        if op in _FUSED_SIGNS:
            minus_a, minus_c = _FUSED_SIGNS[op]
            a, b, c = self._signed(args[0], minus_a), self._signed(args[1], False), self._signed(args[2], minus_c)
            return f"fma{self.suffix}({a}, {b}, {c})", _ATOM
        if op == "sqrt":
            return f"sqrt{self.suffix}({self._value(args[0])[0]})", _ATOM
        if op == "arctan2":
            point = [self._value(k)[0] for k in args]
            if self.T == "float" and self.own_sincos:  # as the kernel does it
                return f"(float)atan2((double)({point[0]}), (double)({point[1]}))", _SIGN
            return f"atan2{self.suffix}({point[0]}, {point[1]})", _ATOM
        if op == "select":
            low, high = (self._value(k)[0] for k in self.graph.args[args[0]])
            then, otherwise = (_at(self._value(k), _SUM) for k in args[1:])
            return f"{low} < {high} ? {then} : {otherwise}", _TERNARY
        raise ValueError(f"straight-line code cannot have the operation {op!r}")

    def _signed(self, n: int, minus: bool) -> str:
        if minus and self.graph.ops[n] == "const":
            return number(-self.graph.args[n][0], self.dtype)
        return "-" + _at(self._value(n), _ATOM) if minus else _at(self._value(n), _SUM)


def _at(text: Text, level: int) -> str:
    return text[0] if text[1] >= level else f"({text[0]})"


def number(x: float, dtype: str) -> str:
    """A constant of C that is this number: the shortest digits that give it back, 17 at most (9 for a float)."""
    T = _type(dtype)
    if math.isnan(x):
        return f"({T})NAN"
    if math.isinf(x):
        return f"{'-' if x < 0 else ''}({T})INFINITY"
    if T == "double":
        return repr(float(x))
    with np.errstate(over="ignore"):
        single = np.float32(x)
    if np.isinf(single):
        raise InputError(f"the number {x!r} does not fit into float32; export float64")
    return f"{float(str(single))!r}f"


# ---- sine and cosine ---------------------------------------------------------------------------------------------------


def _sincos(name: str, T: str, fma: bool) -> list[str]:
    """The operations of `codegen/llvm/sincos.py` in their order."""
    own = sincos.DOUBLE if T == "double" else sincos.SINGLE
    fused = _multiply_add(T, fma)

    def c(x: float) -> str:
        return number(x, "float64" if T == "double" else "float32")

    def polynomial(p: str, coefficients: tuple[float, ...]) -> list[str]:
        steps = [f"    {p} = {fused(p, 'z', c(x))};" for x in reversed(coefficients[:-1])]
        return [f"    {T} {p} = {c(coefficients[-1])};", *steps]

    narrow, wide = ("(float)", "(double)") if T == "float" else ("", "")
    return [
        f"static void {name}({T} x, {T} *s, {T} *c)",
        "{",
        *([] if fma else _CONTRACTION),
        f"    if (!({'fabs' if T == 'double' else 'fabsf'}(x) <= {c(sincos.LIMIT)})) {{",
        f"        *s = {narrow}sin({wide}x);",
        f"        *c = {narrow}cos({wide}x);",
        "        return;",
        "    }",
        "    /* x = n pi/2 + r, |r| <= pi/4 */",
        f"    const {T} shifted = {fused('x', c(own.two_over_pi), c(own.rounding))};",
        f"    const {T} n = shifted - {c(own.rounding)};",
        *_reduced(T, fma),
        f"    const {T} z = r * r;",
        *polynomial("p", own.sin),
        *polynomial("k", own.cos),
        f"    const {T} sine = {fused('z * r' if fma else '(z * r)', 'p', 'r')};",
        *_cosine(T, fma),
        "    /* quarter turns exchange the two and turn their signs */",
        "    const unsigned long turns = (unsigned long)(long)n;",
        f"    const {T} s1 = (turns & 1U) != 0 ? cosine : sine;",
        f"    const {T} c1 = (turns & 1U) != 0 ? sine : cosine;",
        "    *s = (turns & 2U) != 0 ? -s1 : s1;",
        "    *c = ((turns + 1U) & 2U) != 0 ? -c1 : c1;",
        "}",
    ]


def _multiply_add(T: str, fma: bool) -> Callable[[str, str, str], str]:
    """How a·b + c is written; a sign before a is that of the product."""

    def text(a: str, b: str, c: str) -> str:
        if fma:
            return f"{'fma' if T == 'double' else 'fmaf'}({a}, {b}, {c})"
        return f"{c} - {a[1:]} * {b}" if a.startswith("-") else f"{a} * {b} + {c}"

    return text


def _reduced(T: str, fma: bool) -> list[str]:
    """r = x - n pi/2."""
    if T == "float" and not fma:
        first, second = (number(x, "float64") for x in sincos.DOUBLE.half_pi[:2])
        return [
            "    /* by way of doubles: n times each part of pi/2 is exact */",
            f"    const double r1 = (double)x - (double)n * {first};",
            f"    const float r = (float)(r1 - (double)n * {second});",
        ]
    own, dtype = (sincos.DOUBLE, "float64") if T == "double" else (sincos.SINGLE, "float32")
    fused, parts = _multiply_add(T, fma), [number(x, dtype) for x in own.half_pi]
    return [
        "    /* pi/2 comes in three parts; x less n times the first is exact */",
        f"    const {T} r1 = {fused('-n', parts[0], 'x')};",
        f"    const {T} r2 = {fused('-n', parts[1], 'r1')};",
        f"    const {T} r = {fused('-n', parts[2], 'r2')};",
    ]


def _cosine(T: str, fma: bool) -> list[str]:
    fused = _multiply_add(T, fma)
    if T == "float":
        return [
            f"    const float w = {fused('k', 'z', '-0.5f')};",
            f"    const float cosine = {fused('w', 'z', '1.0f')};",
        ]
    return [
        f"    const double w = {fused('-0.5', 'z', '1.0')};",
        f"    const double cosine = {fused('z * z' if fma else '(z * z)', 'k', 'w')};",
    ]
