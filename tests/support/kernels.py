"""Kernels of plain functions, the program that says what each computes, and the angles that are hard for sines."""

import functools

import mpmath
import numpy as np

import qddot
from qddot.compiler.codegen.abi import gufunc
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.program import straight_line
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.runtime.gufunc import kernel as kernel_from_code
from qddot.compiler.runtime.kernel import Info
from qddot.compiler.targets.host import host

# The same operations in the same order, but for sines and cosines, which differ in the last bit from the library's.
SAME_ORDER = 1e-13
# Eager and compiled code add and multiply in another order, and fuse.
OTHER_ORDER = 1e-12


def as_computed(plain):
    """The program whose operations are those of the machine: products are fused into sums where it has multiply-adds."""
    return fused(plain) if host().fma else plain


def compiled(function, sizes, output, lanes=None, dtype="float64", change=str, target=None):
    """A kernel of a plain function of vectors, and the program that says what it computes. `change` is made to its text.

    `target` is what its text is for, and has instructions of this machine.
    """
    graph, nodes, _ = trace(function, sizes)
    plain = straight_line(graph, nodes, sum(sizes))
    program = fused(plain)
    width = host().lanes(dtype) if lanes is None else lanes
    inputs = [(n,) for n in sizes]
    text = change(gufunc.render(program, inputs, [output], width, dtype, target or host()))
    code = llvm_compile.Code(llvm_compile.compile_object(text))
    info = Info("test", "test", "unrolled", dtype, width, program.count(), len(program.body), 0, 0.0, False)
    names = [f"x{k}" for k in range(len(sizes))]
    return kernel_from_code(code, names, inputs, output, info, lambda: ""), as_computed(plain)


def close(x, y, tolerance):
    y = np.asarray(y)
    scale = np.maximum(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(x - y), initial=0.0) <= tolerance * scale


def ulps(values, exact):
    """The largest error in units of the last place of the exact result."""
    worst = 0.0
    for x, y in zip(values, exact, strict=True):
        unit = np.spacing(abs(float(y))) if y != 0 else np.finfo(float).tiny
        worst = max(worst, float(abs(mpmath.mpf(float(x)) - y) / unit))
    return worst


@functools.cache
def hard_angles():
    rng = np.random.default_rng(0)
    n = rng.integers(1, 60_000, 2000)
    near = np.array([float(mpmath.mpf(int(k)) * mpmath.pi / 2) for k in n])  # nearest floats to multiples of π/2
    tiny = 10.0 ** rng.uniform(-300, -1, 300)
    return np.concatenate(
        [rng.uniform(-1e5, 1e5, 3000), rng.uniform(-4, 4, 3000), near, np.nextafter(near, 0), tiny, -tiny]
    )


@functools.cache
def float_angles():
    """float32 up to 1e5: of all magnitudes, and next to every multiple of π/2."""
    rng = np.random.default_rng(0)
    all_sizes = np.arange(0, int(np.float32(1e5).view(np.uint32)), 1999, dtype=np.uint32).view(np.float32)
    near = (np.arange(1, 63_661) * (np.pi / 2)).astype(np.float32)
    angles = np.concatenate([all_sizes, near, np.nextafter(near, np.float32(0)), np.float32(rng.uniform(0, 1e5, 10_000))])
    return angles * rng.choice(np.float32([-1, 1]), angles.size)


@functools.cache
def exact_sines():
    """Sines and cosines of the hard angles to sixty digits."""
    with mpmath.workdps(60):
        x = [mpmath.mpf(float(a)) for a in hard_angles()]
        return [mpmath.sin(a) for a in x], [mpmath.cos(a) for a in x]


def assert_two_ulp(values):
    """Of the sines and cosines of all hard angles."""
    with mpmath.workdps(60):
        for k, exact in enumerate(exact_sines()):
            assert ulps(values[:, k], exact) < 2.0


@functools.cache
def robot_of(way):
    """A robot of its own for each way to compile: it keeps its kernels."""
    return qddot.load("puma560")
