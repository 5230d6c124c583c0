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
        text = ["#include <float.h>", *text, *_EVALUATION]
    if writer.angles:
        text += [*_sincos(writer.helper, writer.T, fma), ""]
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
_EVALUATION = [
    "#if FLT_EVAL_METHOD < 0 || FLT_EVAL_METHOD == 2",
    '#error "sine and cosine need doubles that are rounded to doubles; on x86 compile with -msse2 -mfpmath=sse"',
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
        uses = Counter(x for n in self.program.body for x in self.graph.args[n])
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
    """The operations of `codegen/llvm/sincos.py` in their order; floats go by way of doubles, as in the kernels."""

    def fused(a: str, b: str, c: str) -> str:
        if fma:
            return f"fma({a}, {b}, {c})"
        return f"{c} - {a[1:]} * {b}" if a.startswith("-") else f"{a} * {b} + {c}"

    def polynomial(p: str, coefficients: tuple[float, ...]) -> list[str]:
        steps = [f"    {p} = {fused(p, 'z', repr(c))};" for c in reversed(coefficients[:-1])]
        return [f"    double {p} = {coefficients[-1]!r};", *steps]

    narrow = "(float)" if T == "float" else ""
    half_pi = [repr(x) for x in sincos.HALF_PI]
    return [
        f"static void {name}({T} angle, {T} *s, {T} *c)",
        "{",
        *([] if fma else _CONTRACTION),
        f"    const double x = {'(double)' if T == 'float' else ''}angle;",
        f"    if (!(fabs(x) <= {sincos.LIMIT!r})) {{",
        f"        *s = {narrow}sin(x);",
        f"        *c = {narrow}cos(x);",
        "        return;",
        "    }",
        "    /* x = n pi/2 + r, |r| <= pi/4; pi/2 comes in three parts, of which n times the first two is exact */",
        f"    const double shifted = {fused('x', repr(sincos.TWO_OVER_PI), repr(sincos.ROUND))};",
        f"    const double n = shifted - {sincos.ROUND!r};",
        f"    const double r1 = {fused('-n', half_pi[0], 'x')};",
        f"    const double r2 = {fused('-n', half_pi[1], 'r1')};",
        f"    const double r = {fused('-n', half_pi[2], 'r2')};",
        "    const double z = r * r;",
        *polynomial("p", sincos.SIN),
        *polynomial("k", sincos.COS),
        f"    const double sine = {fused('(z * r)' if not fma else 'z * r', 'p', 'r')};",
        f"    const double w = {fused('-0.5', 'z', '1.0')};",
        f"    const double cosine = {fused('(z * z)' if not fma else 'z * z', 'k', 'w')};",
        "    /* quarter turns exchange the two and turn their signs */",
        "    const unsigned long turns = (unsigned long)(long)n;",
        "    const double s1 = (turns & 1U) != 0 ? cosine : sine;",
        "    const double c1 = (turns & 1U) != 0 ? sine : cosine;",
        f"    *s = {narrow}((turns & 2U) != 0 ? -s1 : s1);",
        f"    *c = {narrow}(((turns + 1U) & 2U) != 0 ? -c1 : c1);",
        "}",
    ]
