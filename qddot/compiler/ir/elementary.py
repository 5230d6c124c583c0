"""exp, log, tanh, arctan and arctan2 of doubles, each a fixed sequence of IEEE operations: the same bits in every back end.

A function is written once, at the end of this file, on values that record what is done to them. The steps are run on floats
here, and rendered as LLVM IR and as C by `codegen`. No step is fused, so that processors with and without fused
multiply-adds agree, and there are no branches, so that lanes do too.

| step                 | meaning                                                   |
|----------------------|-----------------------------------------------------------|
| x, y                 | the arguments                                             |
| number, pattern      | a constant: a double, 64 bits                             |
| add sub mul div      | of doubles, rounded once                                  |
| less, select         | x < y; c ? x : y                                          |
| to_bits, from_bits   | the 64 bits of a double, and back                         |
| iadd isub iand ior   | of bits, modulo 2⁶⁴                                       |
| shl, shr             | bits moved by a constant, zeros coming in                 |
| note                 | what the following steps do                               |

The methods are those of Sun's fdlibm (exp, log) and of S. Moshier's Cephes (tanh, arctan), with selects for branches.
Errors are below one unit in the last place, of tanh below two, of arctan2 below 1.3. NaN gives NaN; exp overflows to
infinity and underflows gradually to zero; log of zero is -infinity and of negative numbers NaN; tanh and arctan are odd to
the last bit. arctan2 treats zeros and infinities as C does; only targets without a C library use it.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from qddot.scalars import divide

_WORD = 2**64


class Step(NamedTuple):
    """An operation, and the numbers of the steps that it takes, or what a constant, a shift or a note says."""

    op: str
    args: tuple[Any, ...] = ()


def bits_of(x: float) -> int:
    """The 64 bits of a double."""
    return int(struct.unpack("<Q", struct.pack("<d", x))[0])


def _double(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


_VALUES: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": divide,
    "less": operator.lt,
    "select": lambda c, x, y: x if c else y,
    "to_bits": bits_of,
    "from_bits": _double,
    "iadd": lambda a, b: (a + b) % _WORD,
    "isub": lambda a, b: (a - b) % _WORD,
    "iand": operator.and_,
    "ior": operator.or_,
}
_SHIFTS: dict[str, Callable[[int, int], int]] = {"shl": lambda a, n: (a << n) % _WORD, "shr": operator.rshift}


def evaluate(name: str, *arguments: float) -> float:
    """The function of floats: the definition of what every back end computes."""
    values: list[Any] = []
    given = iter(arguments)
    for op, args in steps(name):
        if op in ("x", "y"):
            values.append(float(next(given)))
        elif op in ("number", "pattern", "note"):
            values.append(args[0])
        elif op in _SHIFTS:
            values.append(_SHIFTS[op](values[args[0]], args[1]))
        else:
            values.append(_VALUES[op](*(values[k] for k in args)))
    return float(values[-1])


@cache
def steps(name: str) -> tuple[Step, ...]:
    """The steps of a function by name; the last one is its result."""
    if name == "arctan2":
        recorded = [Step("y"), Step("x")]
        _arctan2(_Number(recorded, 0), _Number(recorded, 1))
    else:
        recorded = [Step("x")]
        FUNCTIONS[name](_Number(recorded, 0))
    return tuple(recorded)


class _Value:
    """A step while a function is written."""

    def __init__(self, steps: list[Step], at: int) -> None:
        self.steps, self.at = steps, at

    def _add(self, op: str, *args: Any) -> int:
        self.steps.append(Step(op, args))
        return len(self.steps) - 1


class _Number(_Value):
    """A double."""

    def _of(self, x: _Number | float) -> int:
        return x.at if isinstance(x, _Number) else self._add("number", float(x))

    def _with(self, op: str, x: _Number | float, y: _Number | float) -> _Number:
        a, b = self._of(x), self._of(y)
        return _Number(self.steps, self._add(op, a, b))

    def __add__(self, y: _Number | float) -> _Number:
        return self._with("add", self, y)

    def __radd__(self, y: float) -> _Number:
        return self._with("add", y, self)

    def __sub__(self, y: _Number | float) -> _Number:
        return self._with("sub", self, y)

    def __rsub__(self, y: float) -> _Number:
        return self._with("sub", y, self)

    def __mul__(self, y: _Number | float) -> _Number:
        return self._with("mul", self, y)

    def __rmul__(self, y: float) -> _Number:
        return self._with("mul", y, self)

    def __truediv__(self, y: _Number | float) -> _Number:
        return self._with("div", self, y)

    def __rtruediv__(self, y: float) -> _Number:
        return self._with("div", y, self)

    def below(self, y: float, then: _Number | float, otherwise: _Number | float) -> _Number:
        """`then` where this is less than a constant."""
        return self._chosen(self.at, self._of(y), then, otherwise)

    def less(self, y: _Number, then: _Number | float, otherwise: _Number | float) -> _Number:
        """`then` where this is less than another number."""
        return self._chosen(self.at, y.at, then, otherwise)

    def above(self, y: float, then: _Number | float, otherwise: _Number | float) -> _Number:
        """`then` where this is greater than a constant."""
        return self._chosen(self._of(y), self.at, then, otherwise)

    def _chosen(self, low: int, high: int, then: _Number | float, otherwise: _Number | float) -> _Number:
        a, b = self._of(then), self._of(otherwise)
        return _Number(self.steps, self._add("select", self._add("less", low, high), a, b))

    def polynomial(self, *coefficients: float) -> _Number:
        """c0 + c1 x + c2 x² + …, by Horner's rule."""
        value: Any = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            value = value * self + c
        return _Number(self.steps, self._of(value))

    def bits(self) -> _Bits:
        return _Bits(self.steps, self._add("to_bits", self.at))

    def size(self) -> _Number:
        """Without its sign."""
        return (self.bits() & _SIZE).number()

    def high(self) -> _Number:
        """Its first 26 bits: products of two such numbers are not rounded."""
        return (self.bits() & -(2**27)).number()

    def signed(self, x: _Number) -> _Number:
        """This number, which has no sign, with the sign of another."""
        return (self.bits() | (x.bits() & _SIGN)).number()

    def note(self, text: str) -> None:
        self._add("note", text)


class _Bits(_Value):
    """The bits of a double."""

    def _with(self, op: str, other: _Bits | int) -> _Bits:
        at = other.at if isinstance(other, _Bits) else self._add("pattern", other % _WORD)
        return _Bits(self.steps, self._add(op, self.at, at))

    def __add__(self, other: _Bits | int) -> _Bits:
        return self._with("iadd", other)

    def __sub__(self, other: _Bits | int) -> _Bits:
        return self._with("isub", other)

    def __and__(self, other: _Bits | int) -> _Bits:
        return self._with("iand", other)

    def __or__(self, other: _Bits | int) -> _Bits:
        return self._with("ior", other)

    def __lshift__(self, n: int) -> _Bits:
        return _Bits(self.steps, self._add("shl", self.at, n))

    def __rshift__(self, n: int) -> _Bits:
        return _Bits(self.steps, self._add("shr", self.at, n))

    def number(self) -> _Number:
        return _Number(self.steps, self._add("from_bits", self.at))


# ---- the functions -------------------------------------------------------------------------------------------------------

_SIGN, _SIZE = 2**63, 2**63 - 1
_FRACTION = 2**52 - 1  # the bits of a double below its exponent
_ROUNDING = 1.5 * 2.0**52  # added to a number, it leaves the nearest integer in the low bits
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # whole multiples of the first are exact
_ROOT_HALF = 0x3FE6A09E00000000  # the bits of √½, rounded down


def _exp(x: _Number) -> _Number:
    x.note("x = n ln 2 + r, |r| <= ln(2) / 2; beyond these limits the result is 0 or infinite")
    x = x.below(-746.0, -746.0, x.above(710.0, 710.0, x))
    shifted = x * 1.44269504088896338700 + _ROUNDING
    n = shifted - _ROUNDING
    high, low = x - n * _LN2_HIGH, n * _LN2_LOW
    r = high - low
    x.note("exp(r) by a rational function")
    z = r * r
    p = z.polynomial(
        1.66666666666666019037e-01,
        -2.77777777770155933842e-03,
        6.61375632143793436117e-05,
        -1.65339022054652515390e-06,
        4.13813679705723846039e-08,
    )
    c = r - z * p
    y = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
    x.note("times 2^n, in two factors, so that small results are rounded once")
    k = shifted.bits() + (2048 - bits_of(_ROUNDING))
    half = k >> 1
    return y * ((half - 1) << 52).number() * ((k - half - 1) << 52).number()


def _log(x: _Number) -> _Number:
    x.note("x = 2^k (1 + f), between the roots of 1/2 and 2")
    tiny = 2.0**-1022
    given = x.below(tiny, x * 2.0**54, x)
    b = given.bits() + (bits_of(1.0) - _ROOT_HALF)
    k = ((b >> 52) | bits_of(2.0**52)).number() - 2.0**52 - x.below(tiny, 1077.0, 1023.0)
    f = ((b & _FRACTION) + _ROOT_HALF).number() - 1.0
    x.note("log(1 + f) = f - f^2/2 + s (f^2/2 + R), s = f / (2 + f)")
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * w.polynomial(3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01)
    odd = z * w.polynomial(
        6.666666666666735130e-01, 2.857142874366239149e-01, 1.818357216161805012e-01, 1.479819860511658591e-01
    )
    square = 0.5 * f * f
    y = s * (square + (odd + even)) + k * _LN2_LOW - square + f + k * _LN2_HIGH
    x.note("infinity stays, zero gives -infinity, less than zero NaN")
    return x.above(0.0, x.below(math.inf, y, x), x.below(0.0, math.nan, x - math.inf))


def _tanh(x: _Number) -> _Number:
    size = x.size()
    x.note("near zero: x + x^3 times a rational function")
    z = size * size
    top = z.polynomial(-1.61468768441708447952e3, -9.92877231001918586564e1, -9.64399179425052238628e-1)
    bottom = z.polynomial(4.84406305325125486048e3, 2.23548839060100448583e3, 1.12811678491632931402e2, 1.0)
    near = size + size * z * (top / bottom)
    x.note("elsewhere: 1 - 2 / (exp(2 x) + 1)")
    far = 1.0 - 2.0 / (_exp(2.0 * size) + 1.0)
    return size.below(0.625, near, far).signed(x)


_MIDDLE, _LARGE = 0.66, 2.41421356237309504880  # slopes from which on 45 and 90 degrees are taken off


def _arctan(x: _Number) -> _Number:
    x.note("the angle is that of t, 45 degrees more, or 90 degrees more")
    size = x.size()
    angle = _small_angle(size)
    base, rest = _base(size)
    return (base + (angle + rest)).signed(x)


def _small_angle(size: _Number, lost: _Number | None = None) -> _Number:
    """The angle of t. `lost` is a correction of the angles that are not more."""
    over = size.above(_LARGE, -1.0, size.above(_MIDDLE, size - 1.0, size))
    under = size.above(_LARGE, size, size.above(_MIDDLE, size + 1.0, 1.0))
    t = over / under
    z = t * t
    top = z.polynomial(
        -6.485021904942025371773e1,
        -1.228866684490136173410e2,
        -7.500855792314704667340e1,
        -1.615753718733365076637e1,
        -8.750608600031904122785e-1,
    )
    bottom = z.polynomial(
        1.945506571482613964425e2,
        4.853903996359136964868e2,
        4.328810604912902668951e2,
        1.650270098316988542046e2,
        2.485846490142306297962e1,
        1.0,
    )
    angle = t * (z * top / bottom)
    return angle + t if lost is None else angle + lost + t


def _base(size: _Number) -> tuple[_Number, _Number]:
    """0, 45 or 90 degrees, and what that double is short of."""
    rest = size.above(_LARGE, _SHORT, size.above(_MIDDLE, 0.5 * _SHORT, 0.0))
    return size.above(_LARGE, 0.5 * math.pi, size.above(_MIDDLE, 0.25 * math.pi, 0.0)), rest


_SHORT = 6.123233995736765886130e-17  # what the double nearest to a right angle is short of


def _arctan2(y: _Number, x: _Number) -> _Number:
    y.note("the slope; of two zeros 0, of two infinities 1")
    rise, run = y.size(), x.size()
    small = 2.0**-500  # what is smaller is made larger, so that the remainder below is exact
    scale = rise.below(small, run.below(small, 1.0 / small, 1.0), 1.0)
    rise, run = rise * scale, run * scale
    quotient = rise / run
    of_equal = run.above(0.0, rise.above(0.0, 1.0, rise), rise + run)
    slope = rise.less(run, quotient, run.less(rise, quotient, of_equal))
    y.note("what its rounding has lost of the angle: the remainder of the division times the derivative 1 / (1 + z)")
    high, run_high = slope.high(), run.high()
    remainder = rise - high * run_high - high * (run - run_high) - (slope - high) * run
    z = slope * slope
    lost = remainder / run * (1.0 - z * (1.0 - z))
    lost = slope.below(_MIDDLE, slope.above(2.0**-27, lost, 0.0), 0.0)
    y.note("the angle from the x axis, whose side is 1 or -1; 180 degrees less the angle where it is -1")
    angle = _small_angle(slope, lost)
    base, rest = _base(slope)
    side = (x.bits() & _SIGN | bits_of(1.0)).number()
    base, rest = side.below(0.0, math.pi - base, base), side.below(0.0, 2.0 * _SHORT - rest, rest)
    return (base + (angle * side + rest)).signed(y)


FUNCTIONS: dict[str, Callable[[_Number], _Number]] = {"exp": _exp, "log": _log, "tanh": _tanh, "arctan": _arctan}
