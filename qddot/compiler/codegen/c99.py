"""Straight-line programs as C99 that people can read: plain functions, no allocation, no global state.

Every operation of the program is one of the C code, in an order that its data allow, so that a compiler which neither
contracts nor reassociates gives the bits of the kernel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from qddot.compiler.codegen import c99_elementary
from qddot.compiler.codegen.llvm import sincos
from qddot.compiler.codegen.printer import (
    ATOM,
    CONDITION,
    SIGN,
    SUM,
    WIDTH,
    Array,
    Function,
    Language,
    Printer,
    Text,
    at_level,
)
from qddot.errors import InputError

_FUNCTIONS = {"arctan": "atan", "arctan2": "atan2"}  # that C calls otherwise

# GCC does not know the pragma, and does not contract under -std=c99; Clang does, within an expression.
_CONTRACTION = ["#ifdef __clang__", "#pragma STDC FP_CONTRACT OFF", "#endif"]
_EXTERN_C = ["#ifdef __cplusplus", 'extern "C" {', "#endif"]
_END_EXTERN_C = ["#ifdef __cplusplus", "}", "#endif"]
# words of C and of C++, which takes the files too, and what <math.h> and <float.h> declare
_RESERVED = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|inline|int|long|register|"
    "restrict|return|short|signed|sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|while|main|"
    "alignas|alignof|and|and_eq|asm|bitand|bitor|bool|catch|class|compl|concept|const_cast|consteval|constexpr|constinit|"
    "co_await|co_return|co_yield|decltype|delete|dynamic_cast|explicit|export|false|friend|module|mutable|namespace|new|"
    "noexcept|not|not_eq|nullptr|operator|or|or_eq|private|protected|public|reinterpret_cast|requires|static_assert|"
    "static_cast|template|this|thread_local|throw|true|try|typeid|typename|using|virtual|wchar_t|xor|xor_eq|import|"
    "(a?(sin|cos|tan)h?|atan2|exp|exp2|expm1|log|log10|log2|log1p|logb|ilogb|ldexp|frexp|modf|pow|sqrt|cbrt|hypot|erf|erfc|"
    "tgamma|lgamma|gamma|ceil|floor|trunc|l?l?round|l?l?rint|nearbyint|fmod|remainder|remquo|fabs|fma|fmax|fmin|fdim|"
    "copysign|nan|nextafter|nexttoward|scalbl?n|sincos|[jy][01n])[fl]?|u?int64_t|NAN|INFINITY|HUGE_VAL[FL]?|[A-Z]+_EVAL_METHOD"
)


def render(functions: Sequence[Function]) -> str:
    """The code of C functions of one type of numbers with all that they need, their own declarations included.

    They share the functions that compute sine, cosine, exp and the like if they have the same `prefix`.
    """
    T, helpers, bodies = _type(functions[0].dtype), dict[str, list[str]](), list[str]()
    elementary: dict[str, set[str]] = {}  # by prefix
    for function in functions:
        printer = _Printer(function)
        lines = printer.print()
        if printer.angles:
            helpers[printer.helper] = [*_sincos_function(printer.helper, T, function.fma), ""]
        elementary.setdefault(printer.prefix, set()).update(printer.elementary)
        uncontracted = [] if function.fma else _CONTRACTION  # with fma no expression has a product in a sum
        start = declaration(function.name, function.inputs, function.outputs, function.dtype)
        inline = ["static inline"] if function.inline else []
        bodies.append("\n".join([" ".join([*inline, start]), "{", *uncontracted, *lines, "}", ""]))
    own = [x for prefix, names in elementary.items() for x in c99_elementary.definitions(prefix, names, _CONTRACTION)]
    text = ["#include <float.h>"] if helpers or own or T == "double" else []
    text += ["#include <math.h>", *(["#include <stdint.h>"] if own else []), "", *_width_of_doubles(T)]
    if helpers or own:
        text += _evaluation(T, "sine and cosine" if helpers else "functions such as exp")
    text += [*(line for helper in helpers.values() for line in helper), *own]
    if not functions[0].inline:
        starts = [f"{declaration(f.name, f.inputs, f.outputs, f.dtype)};" for f in functions]
        text += [*_EXTERN_C, *starts, *_END_EXTERN_C, ""]
    return "\n".join([*text, "\n".join(bodies)])


def declaration(name: str, inputs: Sequence[Array], outputs: Sequence[Array], dtype: str) -> str:
    """What stands before the body, and, with a semicolon, in a header."""
    T = _type(dtype)
    arguments = [f"const {T} {x}[{n}]" for x, n in inputs] + [f"{T} {x}[{n}]" for x, n in outputs]
    line = f"void {name}({', '.join(arguments)})"
    if len(line) <= WIDTH:
        return line
    return f"void {name}(\n    " + ",\n    ".join(arguments) + ")"


def comment(lines: Sequence[str]) -> str:
    """Lines as one comment."""
    return "\n".join([f"/* {lines[0]}", *(f" * {line}".rstrip() for line in lines[1:]), " */"])


def escaped(text: str) -> str:
    """Text that neither ends a comment nor begins one, on one line, in ASCII."""
    text = " ".join(text.split()).encode("ascii", "backslashreplace").decode()
    text = re.sub(r"[\x00-\x1f\x7f]", " ", text)
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)", " ", text)


def header(guard: str, about: str, declarations: Sequence[str]) -> str:
    """A header for C and C++; `about` is its comment."""
    body = "\n\n".join(declarations)
    begin, end = "\n".join(_EXTERN_C), "\n".join(_END_EXTERN_C)
    return f"{about}\n#ifndef {guard}\n#define {guard}\n\n{begin}\n\n{body}\n\n{end}\n\n#endif\n"


def _guard(function: Function) -> str:
    return f"QDDOT_{function.name}_H"


def _file(function: Function, about: str) -> str:
    if not function.inline:
        return f"{about}\n{render([function])}"
    guard = _guard(function)
    return f"{about}\n#ifndef {guard}\n#define {guard}\n\n{render([function])}\n#endif\n"


def _header(function: Function) -> str:
    if function.inline:
        return ""
    about = f"/* {function.name}: what it computes stands in its C file */"
    start = declaration(function.name, function.inputs, function.outputs, function.dtype)
    return header(_guard(function), about, [f"{start};"])


def _notes(function: Function) -> list[str]:
    notes = ["A compiler must not contract or reassociate: -std=c99 or -ffp-contract=off, and never -ffast-math."]
    if function.fma:
        notes += ["Without an instruction for fma (-mfma on x86) it is a slow call of libm; export with --no-fma then."]
    return notes


C99 = Language("C", ".c", comment, escaped, _notes, _file, _header, _RESERVED, is_c=True)


def _evaluation(T: str, what: str) -> list[str]:
    """Refuses compilers that compute with more digits than the type has."""
    wider = " || FLT_EVAL_METHOD == 1" if T == "float" else ""
    return [
        f"#if FLT_EVAL_METHOD < 0 || FLT_EVAL_METHOD == 2{wider}",
        f'#error "{what} need {T}s that are rounded to {T}s; on x86 compile with -msse2 -mfpmath=sse"',
        "#endif",
        "",
    ]


def _width_of_doubles(T: str) -> list[str]:
    """Refuses processors whose doubles are floats, as AVR's are."""
    if T == "float":
        return []
    return ["#if DBL_MANT_DIG < 53", '#error "doubles are shorter than 64 bits here; export float32"', "#endif", ""]


def _type(dtype: str) -> str:
    return "double" if dtype == "float64" else "float"


class _Printer(Printer):
    """The body of a C function."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        self.T = _type(function.dtype)
        self.suffix = "" if self.T == "double" else "f"
        self.prefix = function.prefix or function.name
        self.helper = f"{self.prefix}_sincos"
        self.elementary: set[str] = set()  # functions of our own that are called

    def comment(self, text: str) -> str:
        return f"    /* {text} */"

    def constant(self, name: str, text: str) -> str:
        return f"    const {self.T} {name} = {text};"

    def store(self, place: str, text: str) -> str:
        return f"    {place} = {text};"

    def unused(self, name: str) -> list[str]:
        return [f"    (void){name};"]  # compilers warn about it

    def sincos(self, x: str, sine: str, cosine: str) -> list[str]:
        return [f"    {self.T} {sine}, {cosine};", f"    {self.helper}({x}, &{sine}, &{cosine});"]

    def number(self, x: float) -> str:
        return number(x, self.function.dtype)

    def call(self, name: str, arguments: Sequence[str]) -> Text:
        if name == "arctan2" and self.T == "float" and self.function.own_sincos:  # as the kernel does it
            return f"(float)atan2((double)({arguments[0]}), (double)({arguments[1]}))", SIGN
        if name in c99_elementary.NAMES and self.function.own_sincos:
            self.elementary.add(name)
            own = c99_elementary.function(self.prefix, name)
            return (
                (f"{own}({arguments[0]})", ATOM)
                if self.T == "double"
                else (f"(float){own}((double)({arguments[0]}))", SIGN)
            )
        return f"{_FUNCTIONS.get(name, name)}{self.suffix}({', '.join(arguments)})", ATOM

    def select(self, condition: str, then: Text, otherwise: Text) -> Text:
        return f"{condition} ? {at_level(then, SUM)} : {at_level(otherwise, SUM)}", CONDITION


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


def _sincos_function(name: str, T: str, fma: bool) -> list[str]:
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
