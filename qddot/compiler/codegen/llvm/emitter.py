"""One operation of the IR as lines of LLVM text: types and constants of a lane width, arithmetic, functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from struct import pack, unpack

from qddot.compiler.codegen.llvm import elementary, sincos
from qddot.compiler.codegen.llvm.sincos import number
from qddot.compiler.targets.target import Target

RECIPROCAL_LIMIT = 2.0**100  # of a divisor whose reciprocal is computed without a branch; and the inverse of that
_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARISONS = {"less": "olt", "less_equal": "ole"}
_FUSED_SIGNS = {"fma": (False, False), "fms": (False, True), "fnma": (True, False), "fnms": (True, True)}


def scalar_type(dtype: str) -> str:
    """LLVM's name of a NumPy type."""
    return "double" if dtype == "float64" else "float"


def number_bytes(T: str) -> int:
    """The size of a scalar."""
    return 8 if T == "double" else 4


def table(name: str, rows: list[list[int]]) -> str:
    """A constant array of rows of whole numbers."""
    width = len(rows[0])
    text = ", ".join(f"[{width} x i32] [{', '.join(f'i32 {x}' for x in row)}]" for row in rows)
    return f"@{name}.table = internal constant [{len(rows)} x [{width} x i32]] [{text}]\n"


@dataclass(frozen=True)
class Emitter:
    """Code for `lanes` states at once; a value is a scalar, or a vector with a lane for each state."""

    lanes: int
    dtype: str
    target: Target

    @cached_property
    def T(self) -> str:
        """The type of a number."""
        return scalar_type(self.dtype)

    @cached_property
    def V(self) -> str:
        """The type of a value."""
        return self.T if self.lanes == 1 else f"<{self.lanes} x {self.T}>"

    @property
    def cell(self) -> str:
        """The type of what lies between a value in memory and the next one."""
        return self.V

    @cached_property
    def suffix(self) -> str:
        """How intrinsics call that type."""
        short = "f64" if self.T == "double" else "f32"
        return short if self.lanes == 1 else f"v{self.lanes}{short}"

    @cached_property
    def align(self) -> int:
        """Bytes of a value."""
        return number_bytes(self.T) * self.lanes

    def const(self, x: float) -> str:
        """A number in every lane."""
        if self.T == "float":
            x = unpack("f", pack("f", x))[0]
        return number(x) if self.lanes == 1 else f"splat ({self.T} {number(x)})"

    def operation(self, n: int, op: str, args: list[str]) -> list[str]:
        """Lines that compute %v{n}."""
        V = self.V
        if op in _BINARY:
            return [f"  %v{n} = {_BINARY[op]} {V} {args[0]}, {args[1]}"]
        if op == "neg":
            return [f"  %v{n} = fneg {V} {args[0]}"]
        if op in _FUSED_SIGNS:
            return self._multiply_add(n, op, *args)
        if op == "sqrt":
            return [f"  %v{n} = call {V} @llvm.sqrt.{self.suffix}({V} {args[0]})"]
        if op in _COMPARISONS:
            return [f"  %v{n} = fcmp {_COMPARISONS[op]} {V} {args[0]}, {args[1]}"]
        if op == "select":
            mask = "i1" if self.lanes == 1 else f"<{self.lanes} x i1>"
            fence = []
            if args[2] == self.const(math.nan):  # else LLVM masks the division of a guarded pivot, which then waits
                fence = [f"  %v{n}.x = call {V} @llvm.arithmetic.fence.{self.suffix}({V} {args[1]})"]
                args[1] = f"%v{n}.x"
            return [*fence, f"  %v{n} = select {mask} {args[0]}, {V} {args[1]}, {V} {args[2]}"]
        if op == "arctan2":
            return [f"  %v{n} = call {V} @arctan2_{self.lanes}({V} {args[0]}, {V} {args[1]}, ptr %env)"]
        if op in elementary.NAMES:
            return elementary.call(f"%v{n}", op, args[0], self.lanes, self.T)
        raise ValueError(f"straight-line code cannot have the operation {op!r}")

    def _multiply_add(self, n: int, op: str, a: str, b: str, c: str) -> list[str]:
        lines, (minus_a, minus_c) = [], _FUSED_SIGNS[op]
        if minus_a:
            lines.append(f"  %v{n}.a = fneg {self.V} {a}")
            a = f"%v{n}.a"
        if minus_c:
            lines.append(f"  %v{n}.c = fneg {self.V} {c}")
            c = f"%v{n}.c"
        return [*lines, *sincos.multiply_add(f"%v{n}", self.V, self.suffix, a, b, c, self.target.fuses(self.dtype))]

    def sincos(self, pair: str, angle: str) -> str:
        """A line that computes %pair, the sine and the cosine of an angle."""
        V = self.V
        return f"  %{pair} = call {{ {V}, {V} }} @{sincos.function(self.T, self.lanes)}({V} {angle}, ptr %env)"

    def near_reciprocal(self, n: int, x: str) -> list[str]:
        """Lines that compute %v{n} = 1/x as division rounds it, and %v{n}.far, whether x is beyond where that holds.

        Newton's steps from the processor's estimate, of which the last is rounded as division is. Before it doubles are
        rounded up: from below, divisors whose significand is all ones, as squares of normalized quaternions have, would
        end half a unit in the last place from their reciprocal, and be rounded to the wrong side.
        """
        V, e, one = self.V, f"%v{n}", self.const(1.0)

        def fma(out: str, a: str, b: str, c: str) -> str:
            return f"  {out} = call {V} @llvm.fma.{self.suffix}({V} {a}, {V} {b}, {V} {c})"

        lines = [
            f"  {e}.r0 = call {V} @reciprocal_estimate_{self.suffix}({V} {x})",
            f"  {e}.minus = fneg {V} {x}",
            fma(f"{e}.e0", f"{e}.minus", f"{e}.r0", one),
        ]
        if self.T == "double":
            lines += [
                fma(f"{e}.e1", f"{e}.e0", f"{e}.e0", f"{e}.e0"),
                f"  {e}.r1 = call double @multiply_add_up(double {e}.r0, double {e}.e1, double {e}.r0)",
                fma(f"{e}.e2", f"{e}.minus", f"{e}.r1", one),
                fma(e, f"{e}.r1", f"{e}.e2", f"{e}.r1"),
            ]
        else:
            lines.append(fma(e, f"{e}.r0", f"{e}.e0", f"{e}.r0"))
        return [
            *lines,
            f"  {e}.size = call {V} @llvm.fabs.{self.suffix}({V} {x})",
            f"  {e}.small = fcmp ult {V} {e}.size, {self.const(1.0 / RECIPROCAL_LIMIT)}",
            f"  {e}.large = fcmp ugt {V} {e}.size, {self.const(RECIPROCAL_LIMIT)}",
            f"  {e}.far = or i1 {e}.small, {e}.large",
        ]

    def near_sincos(self, pair: str, angle: str) -> list[str]:
        """Lines that compute %pair of an angle without a branch, and %pair.far, whether it is beyond the limit of that."""
        V = self.V
        return [
            f"  %{pair} = call {{ {V}, {V} }} @{sincos.near_function(self.T, self.lanes)}({V} {angle})",
            f"  %{pair}.size = call {V} @llvm.fabs.{self.suffix}({V} {angle})",
            f"  %{pair}.far = fcmp ogt {V} %{pair}.size, {self.const(sincos.LIMIT)}",
        ]

    def mended_sincos(self, pair: str, angle: str, near: str) -> list[str]:
        """Lines that compute %pair of an angle of any size from the pair that is right for near ones."""
        V = self.V
        both, parts = f"{{ {V}, {V} }}", [self.of_pair(f"{pair}.{op}", near, op) for op in ("sin", "cos")]
        given = f"{V} {angle}, {V} %{pair}.sin, {V} %{pair}.cos, ptr %env"
        return [*parts, f"  %{pair} = call {both} @{sincos.mended_function(self.T, self.lanes)}({given})"]

    def sine_or_cosine(self, n: int, op: str, angle: int, value: str, known: set[int]) -> list[str]:
        """Lines that compute %v{n} of an angle, of which both are computed together, the first time one is needed."""
        lines = [] if angle in known else [self.sincos(f"sc{angle}", value)]
        known.add(angle)
        return [*lines, self.of_pair(f"v{n}", f"sc{angle}", op)]

    def of_pair(self, result: str, pair: str, op: str) -> str:
        """A line that takes the sine or the cosine out of a pair."""
        return f"  %{result} = extractvalue {{ {self.V}, {self.V} }} %{pair}, {int(op == 'cos')}"
