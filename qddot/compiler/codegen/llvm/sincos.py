"""Sine and cosine as LLVM text, for a scalar or for lanes: one reduction, two polynomials, no table, no library.

x = n π/2 + r with |r| ≤ π/4. π/2 is taken in three parts, so that r is right to its last bits wherever |x| ≤ 1e5, also next
to multiples of π/2. In doubles n times the first two parts is exact, and fused multiply-adds are not needed. In floats they
are: fused, x - n·p is exact for the first part. Where there are none, floats are reduced as doubles.

The polynomials are of least error for sin and cos on |r| ≤ π/4; those of doubles are the classical ones (in the form of S.
Moshier's and Sun's libraries). Errors are below two units in the last place. Beyond 1e5, lanes are done one by one in
doubles: by the C library's functions, whose addresses come in `%env`, or by the function of `far_angles.py`, which reads
nothing there. NaN and infinity give NaN.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

LIMIT = 1e5
FAR = "sincos_far"  # the function of `far_angles.py`


class Constants(NamedTuple):
    """The numbers of one precision."""

    two_over_pi: float
    rounding: float  # added to a number, it leaves the nearest integer in the low bits
    half_pi: tuple[float, float, float]  # in three parts
    sin: tuple[float, ...]  # r + r z (s0 + s1 z + …), where z is r²
    cos: tuple[float, ...]  # 1 - z/2 + z² (c0 + c1 z + …)


DOUBLE = Constants(
    0.6366197723675814,
    6755399441055744.0,  # 1.5 · 2⁵²
    (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21),
    (
        -0.16666666666666632,
        0.00833333333332249,
        -0.0001984126982985795,
        2.7557313707070068e-06,
        -2.5050760253406863e-08,
        1.58969099521155e-10,
    ),
    (
        0.0416666666666666,
        -0.001388888888887411,
        2.480158728947673e-05,
        -2.7557314351390663e-07,
        2.087572321298175e-09,
        -1.1359647557788195e-11,
    ),
)
SINGLE = Constants(  # all of them floats
    0.6366197466850281,
    12582912.0,  # 1.5 · 2²³
    (1.570796251296997, 7.549789415861596e-08, 5.390302529957765e-15),
    (-0.16666653752326965, 0.008332142606377602, -0.00019513638108037412),
    (0.04166664555668831, -0.0013887303648516536, 2.4431203200947493e-05),
)


def number(x: float) -> str:
    """A double as LLVM writes it without loss. NaN is signalling: whatever is computed with it is an invalid operation."""
    return "0x7FF4000000000000" if x != x else f"0x{struct.unpack('>Q', struct.pack('>d', x))[0]:016X}"


def function(T: str, lanes: int) -> str:
    """The name of the function that gives sine and cosine of so many numbers."""
    return f"sincos{lanes}" if T == "double" else f"sincos_single{lanes}"


def near_function(T: str, lanes: int) -> str:
    """The name of the function without branches, for angles up to the limit."""
    return f"near_{function(T, lanes)}"


def multiply_add(out: str, V: str, suffix: str, a: str, b: str, c: str, fma: bool) -> list[str]:
    """Lines for out = a·b + c on values of type V: rounded once, or, where there is no such instruction, twice.

    (LLVM would call the C library's `fma` there, number by number.)
    """
    if fma:
        return [f"  {out} = call {V} @llvm.fma.{suffix}({V} {a}, {V} {b}, {V} {c})"]
    return [f"  {out}.ab = fmul {V} {a}, {b}", f"  {out} = fadd {V} {out}.ab, {c}"]


class ReducedAngle:
    """Sine and cosine of an angle %r that is reduced, with the number of quarter turns in the low bits of %shifted."""

    def __init__(self, T: str, lanes: int, fused: bool) -> None:
        self.T, self.lanes, self.fused = T, lanes, fused
        self.constants, self.bits = (DOUBLE, 64) if T == "double" else (SINGLE, 32)
        self.V, self.I, self.B = (self._vector(x) for x in (T, f"i{self.bits}", "i1"))
        self.suffix = f"f{self.bits}" if lanes == 1 else f"v{lanes}f{self.bits}"
        self.lines: list[str] = []  # the text as it grows

    def sine_and_cosine(self) -> None:
        """%sin and %cos."""
        self._polynomials()
        self._quadrants()

    def _vector(self, T: str) -> str:
        return T if self.lanes == 1 else f"<{self.lanes} x {T}>"

    def _splat(self, x: float, T: str = "") -> str:
        """A number in every lane."""
        return number(x) if self.lanes == 1 else f"splat ({T or self.T} {number(x)})"

    def _integers(self, x: int) -> str:
        return str(x) if self.lanes == 1 else f"splat (i{self.bits} {x})"

    def _fma(self, out: str, a: str, b: str, c: str) -> None:
        self.lines += multiply_add(f"%{out}", self.V, self.suffix, a, b, c, self.fused)

    def _polynomials(self) -> None:
        """%s and %c of the reduced angle."""
        V, own = self.V, self.constants
        self.lines += [f"  %z = fmul {V} %r, %r", f"  %zr = fmul {V} %z, %r"]
        self._fma("s", "%zr", self._polynomial("ps", own.sin), "%r")
        if self.T == "float":  # one operation less, and more exact
            self._fma("w", self._polynomial("pc", own.cos), "%z", self._splat(-0.5))
            self._fma("c", "%w", "%z", self._splat(1.0))
        else:
            self.lines.append(f"  %zz = fmul {V} %z, %z")
            self._fma("w", self._splat(-0.5), "%z", self._splat(1.0))
            self._fma("c", "%zz", self._polynomial("pc", own.cos), "%w")

    def _polynomial(self, name: str, coefficients: tuple[float, ...]) -> str:
        last = self._splat(coefficients[-1])
        for k, coefficient in enumerate(reversed(coefficients[:-1])):
            self._fma(f"{name}{k}", last, "%z", self._splat(coefficient))
            last = f"%{name}{k}"
        return last

    def _quadrants(self) -> None:
        """%sin and %cos: quarter turns exchange %s and %c and change their signs."""
        V, I, B, number = self.V, self.I, self.B, self._integers
        self.lines += [
            f"  %bits = bitcast {V} %shifted to {I}",
            f"  %odd = and {I} %bits, {number(1)}",
            f"  %swap = icmp ne {I} %odd, {number(0)}",
            f"  %s1 = select {B} %swap, {V} %c, {V} %s",
            f"  %c1 = select {B} %swap, {V} %s, {V} %c",
            f"  %odd_sign = shl {I} %bits, {number(self.bits - 1)}",
            f"  %turned = shl {I} %bits, {number(self.bits - 2)}",  # the second bit is that of the sign of the sine
            f"  %both = xor {I} %turned, %odd_sign",
            f"  %s_sign = and {I} %turned, {number(-1 << (self.bits - 1))}",
            f"  %c_sign = and {I} %both, {number(-1 << (self.bits - 1))}",
            f"  %s1i = bitcast {V} %s1 to {I}",
            f"  %c1i = bitcast {V} %c1 to {I}",
            f"  %s2i = xor {I} %s1i, %s_sign",
            f"  %c2i = xor {I} %c1i, %c_sign",
            f"  %sin = bitcast {I} %s2i to {V}",
            f"  %cos = bitcast {I} %c2i to {V}",
        ]


_LIBRARY = """  %sin_function = load ptr, ptr %env
  %cos_place = getelementptr ptr, ptr %env, i64 1
  %cos_function = load ptr, ptr %cos_place
"""


def beyond_function(T: str, lanes: int) -> str:
    """The name of the function that takes angles with what `near_function` gives, and mends those beyond the limit."""
    return f"{function(T, lanes)}_beyond"


def mended_function(T: str, lanes: int) -> str:
    """The name of the same function, which is no call in the end."""
    return f"mended_{function(T, lanes)}"


def define(T: str, lanes: int, fused: bool, own: bool = False) -> str:
    """`@sincos(x, env)` on numbers of type T: returns {sin, cos}. `fused`: whether there are fused multiply-adds.

    `own`: angles beyond the limit are done by `far_angles.define`, whose text the module must have, not by the C library.
    """
    return _Definition(T, lanes, fused, own).text()


def define_near(T: str, lanes: int, fused: bool) -> str:
    """`@near_sincos(x)`: the same bits for angles up to the limit, without a branch; callers see to the others."""
    return _Definition(T, lanes, fused, True).near()


class _Definition(ReducedAngle):
    """The whole function."""

    def __init__(self, T: str, lanes: int, fused: bool, own: bool) -> None:
        super().__init__(T, lanes, fused)
        self.own = own

    def text(self) -> str:
        """The function, and the one for angles beyond the limit."""
        V, name = self.V, function(self.T, self.lanes)
        both = f"{{ {V}, {V} }}"
        self._reduce()
        self.sine_and_cosine()
        self._is_large()
        body = "\n".join(self.lines)
        return f"""define internal {both} @{name}({V} %x, ptr %env) alwaysinline {{
entry:
{body}
slow:
  %patched = call {both} @{beyond_function(self.T, self.lanes)}({V} %x, {V} %sin, {V} %cos, ptr %env)
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
{self._beyond()}"""

    def near(self) -> str:
        """The function without the test and what follows it."""
        V = self.V
        both = f"{{ {V}, {V} }}"
        self._reduce()
        self.sine_and_cosine()
        body = "\n".join(self.lines)
        return f"""define internal {both} @{near_function(self.T, self.lanes)}({V} %x) alwaysinline {{
{body}
  %half = insertvalue {both} poison, {V} %sin, 0
  %pair = insertvalue {both} %half, {V} %cos, 1
  ret {both} %pair
}}
"""

    def _reduce(self) -> None:
        """%r, the reduced angle; the number of quarter turns is in the low bits of %shifted."""
        own = self.constants
        self._fma("shifted", "%x", self._splat(own.two_over_pi), self._splat(own.rounding))
        self.lines.append(f"  %n = fsub {self.V} %shifted, {self._splat(own.rounding)}")
        if self.T == "float" and not self.fused:
            self._reduce_as_double()
            return
        self.lines.append(f"  %m = fneg {self.V} %n")
        self._fma("r1", "%m", self._splat(own.half_pi[0]), "%x")
        self._fma("r2", "%m", self._splat(own.half_pi[1]), "%r1")
        self._fma("r", "%m", self._splat(own.half_pi[2]), "%r2")

    def _reduce_as_double(self) -> None:
        """Two parts are enough: n times what is left of π/2 is less than half a unit in the last place of r."""
        F, D = self.V, self._vector("double")
        first, second = (self._splat(x, "double") for x in DOUBLE.half_pi[:2])
        self.lines += [
            f"  %x.d = fpext {F} %x to {D}",
            f"  %n.d = fpext {F} %n to {D}",
            f"  %p1 = fmul {D} %n.d, {first}",
            f"  %r1 = fsub {D} %x.d, %p1",
            f"  %p2 = fmul {D} %n.d, {second}",
            f"  %r2 = fsub {D} %r1, %p2",
            f"  %r = fptrunc {D} %r2 to {F}",
        ]

    def _is_large(self) -> None:
        """Goes to %slow if any lane is beyond the limit."""
        any_large = "%large"
        self.lines += [
            f"  %size = call {self.V} @llvm.fabs.{self.suffix}({self.V} %x)",
            f"  %large = fcmp ogt {self.V} %size, {self._splat(LIMIT)}",
        ]
        if self.lanes > 1:
            any_large = "%any"
            self.lines.append(f"  %any = call i1 @llvm.vector.reduce.or.v{self.lanes}i1({self.B} %large)")
        self.lines.append(f"  br i1 {any_large}, label %slow, label %done, !prof !0")

    def _beyond(self) -> str:
        """The lanes beyond the limit, one by one, by functions of doubles."""
        V, lines, before = self.V, list[str](), "%entry"
        values = {"sin": "%sin", "cos": "%cos"}
        for k in range(self.lanes):
            get = f"fadd {self.T} %x, -0.0" if self.lanes == 1 else f"extractelement {V} %x, i32 {k}"
            lines += [
                f"  %x{k} = {get}",
                f"  %size{k} = call {self.T} @llvm.fabs.f{self.bits}({self.T} %x{k})",
                f"  %far{k} = fcmp ogt {self.T} %size{k}, {number(LIMIT)}",
                f"  br i1 %far{k}, label %call{k}, label %next{k}",
                f"call{k}:",
                *(self._own_call(k) if self.own else ()),
            ]
            called = {name: self._call(lines, name, k, value) for name, value in values.items()}
            lines += [f"  br label %next{k}", f"next{k}:"]
            for name, value in values.items():
                lines.append(f"  %{name}.{k} = phi {V} [ {value}, {before} ], [ {called[name]}, %call{k} ]")
            values, before = {name: f"%{name}.{k}" for name in values}, f"%next{k}"
        body = "\n".join(lines)
        names = [(beyond_function(self.T, self.lanes), "noinline cold")]
        if self.own:
            names.append((mended_function(self.T, self.lanes), "alwaysinline"))
        return "\n".join(self._beyond_text(name, attributes, body, values) for name, attributes in names)

    def _beyond_text(self, name: str, attributes: str, body: str, values: dict[str, str]) -> str:
        V = self.V
        both, arguments = f"{{ {V}, {V} }}", f"{V} %x, {V} %sin, {V} %cos, ptr %env"
        return f"""define internal {both} @{name}({arguments}) {attributes} {{
entry:
{"" if self.own else _LIBRARY}{body}
  %half = insertvalue {both} poison, {V} {values["sin"]}, 0
  %pair = insertvalue {both} %half, {V} {values["cos"]}, 1
  ret {both} %pair
}}
"""

    def _own_call(self, k: int) -> list[str]:
        """%far_pair of the k-th lane."""
        given, lines = self._as_double("far", k)
        return [*lines, f"  %far_pair{k} = call {{ double, double }} @{FAR}(double {given})"]

    def _call(self, lines: list[str], name: str, k: int, value: str) -> str:
        """A value with its k-th lane by %far_pair or by the library's function."""
        if self.own:
            lines.append(f"  %{name}.d{k} = extractvalue {{ double, double }} %far_pair{k}, {int(name == 'cos')}")
        else:
            given, widened = self._as_double(name, k)
            lines += [*widened, f"  %{name}.d{k} = call double %{name}_function(double {given})"]
        result = f"%{name}.d{k}"
        if self.T == "float":
            lines.append(f"  %{name}.f{k} = fptrunc double {result} to float")
            result = f"%{name}.f{k}"
        if self.lanes == 1:
            return result
        lines.append(f"  %{name}.v{k} = insertelement {self.V} {value}, {self.T} {result}, i32 {k}")
        return f"%{name}.v{k}"

    def _as_double(self, name: str, k: int) -> tuple[str, list[str]]:
        """The k-th lane of the angles as a double, and the lines that make it one."""
        if self.T == "double":
            return f"%x{k}", []
        return f"%{name}.x{k}", [f"  %{name}.x{k} = fpext float %x{k} to double"]


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
