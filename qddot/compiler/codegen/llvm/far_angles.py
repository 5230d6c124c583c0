"""Sine and cosine of doubles far from zero as LLVM text, without a C library: M. Payne and R. Hanek's reduction.

x = m 2ᵉ with m of 53 bits. Only a window of the bits of 2/π matters for x · 2/π modulo 4: those of weight 2²⁻ᵉ and more add
whole turns, and 192 bits below them leave 137 right ones of the fraction. No double is closer than 2⁻⁶¹ to a multiple of
π/2, so that more than 64 significant bits remain, next to multiples too. They are multiplied by π/2 and rounded once. It is
done with integers, so that processors with and without fused multiply-adds reduce alike. The rest, and its error, is that
of angles near zero (`sincos.py`).
"""

from __future__ import annotations

from functools import cache

from qddot.compiler.codegen.llvm import sincos

_PADDING = 64  # zeros before the bits of 2/π
_LEAST_EXPONENT = 1013  # the biased one of 2⁻¹⁰, whose window is the first
_WORDS = (2046 - _LEAST_EXPONENT) // 64 + 4  # to the last word of the window of the greatest double
_SIGN = -(2**63)


def define(fused: bool) -> str:
    """`@sincos_far(x)` of a double with |x| ≥ 2⁻¹⁰, infinity or NaN: returns {sin, cos}, with errors below two units in the
    last place. `fused`: whether there are fused multiply-adds of doubles, which the polynomials use.
    """
    angle = sincos.ReducedAngle("double", 1, fused)
    angle.lines += [*_product(), *_reduced()]
    angle.sine_and_cosine()
    body = "\n".join(angle.lines)
    words = ", ".join(f"i64 {x}" for x in two_over_pi())
    return f"""@two_over_pi = internal constant [{_WORDS} x i64] [{words}]
declare i64 @llvm.fshl.i64(i64, i64, i64)
declare i64 @llvm.ctlz.i64(i64, i1)
define internal {{ double, double }} @{sincos.FAR}(double %x) alwaysinline cold {{
{body}
  %half = insertvalue {{ double, double }} poison, double %sin, 0
  %pair = insertvalue {{ double, double }} %half, double %cos, 1
  ret {{ double, double }} %pair
}}
"""


@cache
def two_over_pi() -> tuple[int, ...]:
    """The bits of 2/π as words of 64 bits, the first ones zero."""
    bits = 64 * _WORDS - _PADDING
    x = (2 << 2 * bits + 64) // _pi(bits + 64)
    return tuple(x >> 64 * k & 2**64 - 1 for k in reversed(range(_WORDS)))


def _pi(bits: int) -> int:
    """π 2ᵇⁱᵗˢ but for some units, by J. Machin's formula: π/4 = 4 arctan 1/5 - arctan 1/239."""

    def arctan(n: int) -> int:
        power, total, k = (1 << bits) // n, 0, 1
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power, k = power // (n * n), k + 2
        return total

    return 16 * arctan(5) - 4 * arctan(239)


def _product() -> list[str]:
    """%high, %middle and %low, 64 bits each: x · 2/π modulo 4, of which the first two bits are the whole part."""
    lines = [
        "  %bits.x = bitcast double %x to i64",
        "  %exponent.sign = lshr i64 %bits.x, 52",
        "  %exponent = and i64 %exponent.sign, 2047",
        f"  %fraction = and i64 %bits.x, {2**52 - 1}",
        f"  %m = or i64 %fraction, {2**52}",
        f"  %start = sub i64 %exponent, {_LEAST_EXPONENT}",
        "  %word = lshr i64 %start, 6",
        "  %first = getelementptr i64, ptr @two_over_pi, i64 %word",
    ]
    for k in range(4):
        lines += [
            f"  %at{k} = getelementptr i64, ptr %first, i64 {k}",
            f"  %w{k} = load i64, ptr %at{k}, !invariant.load !1",
        ]
    lines += [f"  %t{k} = {_shifted_left(f'%w{k}', f'%w{k + 1}', '%start')}" for k in range(3)]  # the window
    return [
        *lines,
        *(f"  %{name}.w = zext i64 %{name} to i128" for name in ("m", "t1", "t2")),
        "  %m2 = mul i128 %m.w, %t2.w",
        "  %m1 = mul i128 %m.w, %t1.w",
        "  %m0 = mul i64 %m, %t0",
        "  %low = trunc i128 %m2 to i64",
        "  %carry = lshr i128 %m2, 64",
        "  %sum = add i128 %m1, %carry",
        "  %middle = trunc i128 %sum to i64",
        "  %above.w = lshr i128 %sum, 64",
        "  %above = trunc i128 %above.w to i64",
        "  %high = add i64 %m0, %above",
    ]


def _reduced() -> list[str]:
    """%r and %shifted out of the product."""
    return [
        # the fraction as a signed number, -1/2 … 1/2: its sign, and its size (its complement is off by 2⁻¹²⁸)
        f"  %f = {_shifted_left('%high', '%middle', '2')}",
        f"  %f.rest = {_shifted_left('%middle', '%low', '2')}",
        "  %f.sign = ashr i64 %f, 63",
        "  %g = xor i64 %f, %f.sign",
        "  %g.rest = xor i64 %f.rest, %f.sign",
        # its first 64 significant bits times π/2
        "  %zeros = call i64 @llvm.ctlz.i64(i64 %g, i1 false)",
        f"  %h = {_shifted_left('%g', '%g.rest', '%zeros')}",
        "  %h.w = zext i64 %h to i128",
        f"  %p = mul i128 %h.w, {_pi(96) >> 34}",  # π/2 2⁶³
        "  %p.high = lshr i128 %p, 64",
        "  %p.bits = trunc i128 %p.high to i64",
        "  %p.rounded = uitofp i64 %p.bits to double",
        # times a power of two, with the sign of x times that of the fraction
        "  %scale.exponent = sub i64 960, %zeros",
        "  %scale.size = shl i64 %scale.exponent, 52",
        "  %signs = xor i64 %f, %bits.x",
        f"  %sign = and i64 %signs, {_SIGN}",
        "  %scale.bits = or i64 %scale.size, %sign",
        "  %scale = bitcast i64 %scale.bits to double",
        "  %r.finite = fmul double %p.rounded, %scale",
        "  %nothing = fsub double %x, %x",  # NaN if x is not finite
        "  %r = fadd double %r.finite, %nothing",
        # quarter turns, to the nearest, with the sign of x
        "  %whole = lshr i64 %high, 62",
        "  %turns.size = sub i64 %whole, %f.sign",
        "  %x.sign = ashr i64 %bits.x, 63",
        "  %turns.signed = xor i64 %turns.size, %x.sign",
        "  %turns = sub i64 %turns.signed, %x.sign",
        "  %shifted = bitcast i64 %turns to double",
    ]


def _shifted_left(x: str, following: str, by: str) -> str:
    """The first word of two that are shifted left, by a number of bits that is taken modulo 64."""
    return f"call i64 @llvm.fshl.i64(i64 {x}, i64 {following}, i64 {by})"
