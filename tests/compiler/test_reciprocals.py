"""Reciprocals on cards: Newton's steps as they are emitted, on exact numbers, from estimates as bad as a card's."""

import math
import re
from fractions import Fraction

import numpy as np

from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.targets import nvptx


def nearest(x):
    return x.numerator / x.denominator


def above(x):
    y = nearest(x)
    return y if Fraction(y) >= x else math.nextafter(y, math.inf)


def reciprocal(x, estimate):
    """Runs the lines on floats."""
    values = {"%x": x}
    for line in Emitter(1, "float64", nvptx.named("")).near_reciprocal(1, "%x"):
        out, text = line.strip().split(" = ", 1)
        names = re.findall(r"double (%[\w.]+|splat \(double \S+\)|0x\w+|[\d.e+-]+)[,)]", text)
        if "reciprocal_estimate" in text:
            values[out] = estimate
        elif text.startswith("fneg"):
            values[out] = -values[text.split()[-1]]
        elif "llvm.fma" in text or "multiply_add_up" in text:
            a, b, c = (Fraction(values.get(n, 1.0)) for n in names)  # the one constant is 1
            values[out] = (above if "multiply_add_up" in text else nearest)(a * b + c)
        elif "fabs" in text:
            break
    return values["%v1"]


def estimates(x):
    """With 20 bits, and up to two units in the last of them wrong."""
    significand, exponent = math.frexp(1.0 / x)
    return [math.ldexp((math.floor(significand * 2**21) + k) / 2**21, exponent) for k in range(-2, 3)]


def test_doubles_are_rounded_as_division_is():
    rng = np.random.default_rng(0)
    last = np.arange(1, 200) * 2.0**-52
    for x in [1.0, *(1.0 + last), *(2.0 - last), *rng.uniform(1.0, 2.0, 1000)]:
        for e in estimates(float(x)):
            assert reciprocal(float(x), e) == 1.0 / x, (float(x).hex(), e)
