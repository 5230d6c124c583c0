"""Sine and cosine as LLVM text, for a scalar or for lanes: one reduction, two polynomials, no table, no library.

x = n π/2 + r with |r| ≤ π/4. π/2 is taken in three parts of which n times the first two is exact, so that r is right to
its last bits wherever |x| ≤ 1e5, also next to multiples of π/2. The polynomials are the classical ones of least error for
sin and cos on |r| ≤ π/4 (in the form of S. Moshier's and Sun's libraries). Beyond 1e5, lanes are done one by one by the C
library's functions, whose addresses come in `%env`. NaN and infinity give NaN.
"""

from __future__ import annotations

import struct

LIMIT = 1e5

TWO_OVER_PI = 0.6366197723675814
ROUND = 6755399441055744.0  # 1.5 · 2⁵²: adding it leaves the nearest integer in the low bits
HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
SIN = (
    -0.16666666666666632,
    0.00833333333332249,
    -0.0001984126982985795,
    2.7557313707070068e-06,
    -2.5050760253406863e-08,
    1.58969099521155e-10,
)
COS = (
    0.0416666666666666,
    -0.001388888888887411,
    2.480158728947673e-05,
    -2.7557314351390663e-07,
    2.087572321298175e-09,
    -1.1359647557788195e-11,
)


def number(x: float) -> str:
    """A double as LLVM writes it without loss. NaN is signalling: whatever is computed with it is an invalid operation."""
    return "0x7FF4000000000000" if x != x else f"0x{struct.unpack('>Q', struct.pack('>d', x))[0]:016X}"


def splat(x: float, lanes: int) -> str:
    """A number in every lane."""
    return number(x) if lanes == 1 else f"splat (double {number(x)})"


def integers(x: int, lanes: int) -> str:
    return str(x) if lanes == 1 else f"splat (i64 {x})"


def function(T: str, lanes: int) -> str:
    """The name of the function that gives sine and cosine of so many numbers."""
    return f"sincos{lanes}" if T == "double" else f"sincos_single{lanes}"


def multiply_add(out: str, V: str, suffix: str, a: str, b: str, c: str, fma: bool) -> list[str]:
    """Lines for out = a·b + c on values of type V: rounded once, or, where there is no such instruction, twice.

    (LLVM would call the C library's `fma` there, number by number.)
    """
    if fma:
        return [f"  {out} = call {V} @llvm.fma.{suffix}({V} {a}, {V} {b}, {V} {c})"]
    return [f"  {out}.ab = fmul {V} {a}, {b}", f"  {out} = fadd {V} {out}.ab, {c}"]


def define(lanes: int, fused: bool) -> str:
    """`@sincos(x, env)` on doubles: returns {sin, cos}. The reduction is as exact where multiply-adds are not fused."""
    V = "double" if lanes == 1 else f"<{lanes} x double>"
    both = f"{{ {V}, {V} }}"
    body = "\n".join([*_reduced(lanes, V, fused), *_quadrants(lanes, V), *_is_large(lanes, V)])
    return f"""define internal {both} @sincos{lanes}({V} %x, ptr %env) alwaysinline {{
entry:
{body}
slow:
  %patched = call {both} @sincos_beyond{lanes}({V} %x, {V} %sin, {V} %cos, ptr %env)
  %sin_slow = extractvalue {both} %patched, 0
  %cos_slow = extractvalue {both} %patched, 1
  br label %done
done:
  %sin_out = phi {V} [ %sin, %entry ], [ %sin_slow, %slow ]
  %cos_out = phi {V} [ %cos, %entry ], [ %cos_slow, %slow ]
  %half = insertvalue {both} poison, {V} %sin_out, 0
  %pair = insertvalue {both} %half, {V} %cos_out, 1
  ret {both} %pair
}}
{_beyond(lanes, V, both)}"""


def _reduced(lanes: int, V: str, fused: bool) -> list[str]:
    """%s and %c of the reduced angle; the number of quarter turns is in the low bits of %shifted."""
    suffix = "f64" if lanes == 1 else f"v{lanes}f64"
    lines: list[str] = []

    def c(x: float) -> str:
        return splat(x, lanes)

    def fma(out: str, a: str, b: str, d: str) -> None:
        lines.extend(multiply_add(f"%{out}", V, suffix, a, b, d, fused))

    def polynomial(name: str, coefficients: tuple[float, ...]) -> str:
        last = c(coefficients[-1])
        for k, coefficient in enumerate(reversed(coefficients[:-1])):
            fma(f"{name}{k}", last, "%z", c(coefficient))
            last = f"%{name}{k}"
        return last

    fma("shifted", "%x", c(TWO_OVER_PI), c(ROUND))
    lines.append(f"  %n = fsub {V} %shifted, {c(ROUND)}")
    lines.append(f"  %m = fneg {V} %n")
    fma("r1", "%m", c(HALF_PI[0]), "%x")
    fma("r2", "%m", c(HALF_PI[1]), "%r1")
    fma("r", "%m", c(HALF_PI[2]), "%r2")
    lines.append(f"  %z = fmul {V} %r, %r")
    lines.append(f"  %zr = fmul {V} %z, %r")
    fma("s", "%zr", polynomial("ps", SIN), "%r")
    lines.append(f"  %zz = fmul {V} %z, %z")
    fma("w", c(-0.5), "%z", c(1.0))
    fma("c", "%zz", polynomial("pc", COS), "%w")
    return lines


def _quadrants(lanes: int, V: str) -> list[str]:
    """%sin and %cos: quarter turns exchange %s and %c and change their signs."""
    I = "i64" if lanes == 1 else f"<{lanes} x i64>"
    B = "i1" if lanes == 1 else f"<{lanes} x i1>"
    return [
        f"  %bits = bitcast {V} %shifted to {I}",
        f"  %odd = and {I} %bits, {integers(1, lanes)}",
        f"  %swap = icmp ne {I} %odd, {integers(0, lanes)}",
        f"  %s1 = select {B} %swap, {V} %c, {V} %s",
        f"  %c1 = select {B} %swap, {V} %s, {V} %c",
        f"  %ss = and {I} %bits, {integers(2, lanes)}",
        f"  %next = add {I} %bits, {integers(1, lanes)}",
        f"  %cs = and {I} %next, {integers(2, lanes)}",
        f"  %s_sign = shl {I} %ss, {integers(62, lanes)}",
        f"  %c_sign = shl {I} %cs, {integers(62, lanes)}",
        f"  %s1i = bitcast {V} %s1 to {I}",
        f"  %c1i = bitcast {V} %c1 to {I}",
        f"  %s2i = xor {I} %s1i, %s_sign",
        f"  %c2i = xor {I} %c1i, %c_sign",
        f"  %sin = bitcast {I} %s2i to {V}",
        f"  %cos = bitcast {I} %c2i to {V}",
    ]


def _is_large(lanes: int, V: str) -> list[str]:
    """Goes to %slow if any lane is beyond the limit."""
    suffix = "f64" if lanes == 1 else f"v{lanes}f64"
    lines = [
        f"  %size = call {V} @llvm.fabs.{suffix}({V} %x)",
        f"  %large = fcmp ogt {V} %size, {splat(LIMIT, lanes)}",
    ]
    if lanes == 1:
        return [*lines, "  br i1 %large, label %slow, label %done, !prof !0"]
    any_large = f"  %any = call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> %large)"
    return [*lines, any_large, "  br i1 %any, label %slow, label %done, !prof !0"]


def _beyond(lanes: int, V: str, both: str) -> str:
    """The lanes beyond the limit, one by one, by the library's functions."""
    lines = []
    sin, cos = "%sin", "%cos"
    for k in range(lanes):
        if lanes == 1:
            lines.append(f"  %x{k} = fadd double %x, 0.0")
        else:
            lines.append(f"  %x{k} = extractelement {V} %x, i32 {k}")
        lines += [
            f"  %size{k} = call double @llvm.fabs.f64(double %x{k})",
            f"  %far{k} = fcmp ogt double %size{k}, {number(LIMIT)}",
            f"  br i1 %far{k}, label %call{k}, label %next{k}",
            f"call{k}:",
            "  " + f"%sf{k} = call double %sin_function(double %x{k})",
            "  " + f"%cf{k} = call double %cos_function(double %x{k})",
        ]
        if lanes == 1:
            lines += ["  br label %next0", "next0:"]
            before = "%entry"
            lines.append(f"  %so0 = phi double [ {sin}, {before} ], [ %sf0, %call0 ]")
            lines.append(f"  %co0 = phi double [ {cos}, {before} ], [ %cf0, %call0 ]")
        else:
            before = "%entry" if k == 0 else f"%next{k - 1}"
            lines += [
                f"  %si{k} = insertelement {V} {sin}, double %sf{k}, i32 {k}",
                f"  %ci{k} = insertelement {V} {cos}, double %cf{k}, i32 {k}",
                f"  br label %next{k}",
                f"next{k}:",
                f"  %so{k} = phi {V} [ {sin}, {before} ], [ %si{k}, %call{k} ]",
                f"  %co{k} = phi {V} [ {cos}, {before} ], [ %ci{k}, %call{k} ]",
            ]
        sin, cos = f"%so{k}", f"%co{k}"
    body = "\n".join(lines)
    return f"""define internal {both} @sincos_beyond{lanes}({V} %x, {V} %sin, {V} %cos, ptr %env) noinline cold {{
entry:
  %sin_function = load ptr, ptr %env
  %cos_place = getelementptr ptr, ptr %env, i64 1
  %cos_function = load ptr, ptr %cos_place
{body}
  %half = insertvalue {both} poison, {V} {sin}, 0
  %pair = insertvalue {both} %half, {V} {cos}, 1
  ret {both} %pair
}}
"""


def single(lanes: int) -> str:
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


def arctan2(lanes: int, V: str, T: str) -> str:
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
