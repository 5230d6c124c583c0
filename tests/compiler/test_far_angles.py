"""Targets without a C library: sine and cosine of any double, and arctan2, as LLVM text of qddot's own."""

import dataclasses
import functools
import itertools
import math
import re
import shutil
import subprocess
from typing import ClassVar

import llvmlite.binding as llvm
import mpmath
import numpy as np
import pytest

from qddot import scalars
from qddot.compiler.codegen.abi import c_function
from qddot.compiler.codegen.llvm import far_angles
from qddot.compiler.ir import elementary
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.program import straight_line
from qddot.compiler.targets.host import host
from qddot.compiler.targets.target import Target
from tests.support.kernels import assert_two_ulp, compiled, hard_angles, ulps

GREATEST = np.finfo(float).max
CLOSEST = 6381956970095103.0 * 2.0**797  # of all doubles the closest to a multiple of π/2: cos is 4.7e-19
MOST_SINCOS, MOST_ARCTAN2 = 2.0, 1.3  # units in the last place


class Bare(Target):
    """A processor without a C library."""

    has_c_library: ClassVar[bool] = False


def bare(fma=None):
    fields = dataclasses.asdict(host())
    return Bare(**fields if fma is None else fields | {"fma": fma})


GPU = Bare("sm_75", "nvptx64", vector_bits=0, fma=True)


def both(x):
    return np.array([scalars.sin(x[0]), scalars.cos(x[0])], dtype=object)


def angle(x):
    return np.array([scalars.arctan2(x[0], x[1])], dtype=object)


def everything(x):
    return np.concatenate([both(x), angle(x), np.array([scalars.arctan(x[1])], dtype=object)])


def kernel(function, lanes=1, dtype="float64", target=None):
    sizes, output = ([1], (2,)) if function is both else ([2], (1,))
    return compiled(function, sizes, output, lanes, dtype, target=target or bare())[0]


# ---- sine and cosine


def closest_to_multiples():
    """Of each exponent, the double that is closest to a multiple of π/2, by continued fractions, and one that is close."""
    found = []
    with mpmath.workdps(700):
        for e in range(-36, 972):
            rest = 2 * mpmath.mpf(2) ** e / mpmath.pi  # m · rest is close to a whole number for its convergents' m
            before, m = 0, 1
            rest -= int(rest)
            while True:
                rest = 1 / rest
                whole = int(rest)
                rest -= whole
                if whole * m + before >= 2**53:
                    break
                before, m = m, whole * m + before
            found += [math.ldexp(m, e), math.ldexp(m - before, e)]
    return [x for x in found if x > 1e5]


@functools.cache
def angles():
    rng = np.random.default_rng(0)
    any_bits = rng.integers(0, 0x7FF0000000000000, 1500).view(float)  # of all exponents alike
    with mpmath.workdps(700):
        turns = [mpmath.mpf(2) ** mpmath.mpf(p) for p in rng.uniform(16, 1022, 300)]
        near = np.array([float(mpmath.floor(n) * mpmath.pi / 2) for n in turns])
    limit = [1e5, math.nextafter(1e5, 0), math.nextafter(1e5, math.inf), -1e5]
    small = [0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, math.nextafter(2.0**-1022, 0)]
    known = [CLOSEST, 5.319372648326541e255, GREATEST, -GREATEST, 2.0**1023, 1e22, 2.0**53 + 2]
    whole = np.concatenate([any_bits, near, np.nextafter(near, 0), closest_to_multiples()])
    return np.concatenate([limit, small, known, whole * rng.choice([-1, 1], whole.size)])


@functools.cache
def exact():
    with mpmath.workdps(40):
        return [[f(mpmath.mpf(float(x))) for x in angles()] for f in (mpmath.sin, mpmath.cos)]


@pytest.mark.parametrize("fma", [True, False])
def test_sine_and_cosine_of_any_double(fma):
    values = kernel(both, target=bare(fma))(angles()[:, None])
    with mpmath.workdps(40):
        for k, function in enumerate(exact()):
            assert ulps(values[:, k], function) < MOST_SINCOS


def test_the_closest_of_all_doubles_is_among_them():
    """And is as far from multiples of π/2 as the reduction needs."""
    distance = min(min(abs(s), abs(c)) for x, s, c in zip(angles(), *exact(), strict=True) if abs(x) > 1e5)
    assert abs(kernel(both)([CLOSEST])[1]) == float(distance)
    assert 2.0**-61 < distance < 2.0**-60


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_lanes_have_the_bits_of_one(lanes):
    assert np.array_equal(kernel(both, lanes)(angles()[:, None]), kernel(both)(angles()[:, None]))


@pytest.mark.parametrize("fma", [True, False])
def test_near_angles_have_the_bits_of_other_targets(fma):
    x = hard_angles()[:, None]
    own = kernel(both, target=bare(fma))(x)
    assert np.array_equal(own, kernel(both, target=dataclasses.replace(host(), fma=fma))(x))
    assert_two_ulp(own)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_no_number_gives_nan(lanes, dtype):
    with np.errstate(invalid="ignore"):
        values = kernel(both, lanes, dtype)(np.array([[math.inf], [-math.inf], [math.nan], [1e6]] * 4, dtype))
    assert np.isnan(values.reshape(4, 4, 2)).tolist() == [[[True] * 2] * 3 + [[False] * 2]] * 4


@pytest.mark.parametrize("lanes", [1, 8])
def test_floats_are_rounded_results_of_doubles(lanes):
    rng = np.random.default_rng(1)
    x = rng.integers(0x47C35001, 0x7F800000, 4000, dtype=np.uint32).view(np.float32)  # from 1e5 on
    x *= rng.choice(np.float32([-1, 1]), x.size)
    of_doubles = kernel(both)(x[:, None].astype(float))
    assert np.array_equal(kernel(both, lanes, "float32")(x[:, None]), of_doubles.astype(np.float32))


def test_the_bits_of_two_over_pi():
    words = far_angles.two_over_pi()
    with mpmath.workprec(1400):
        expected = int(mpmath.floor(mpmath.ldexp(2 / mpmath.pi, 64 * (len(words) - 1))))
    assert sum(w << 64 * k for k, w in enumerate(reversed(words))) == expected


# ---- arctan2


@functools.cache
def pairs():
    """(y, x) of all octants, all sizes and extreme ratios, and slopes where the method changes or a result's unit does."""
    rng = np.random.default_rng(2)
    plain = rng.standard_normal((4000, 2))
    sizes = 2.0 ** rng.uniform(-1074, 1023, (1500, 2))
    alike = 2.0 ** (rng.uniform(-1020, 1000, (1500, 1)) + rng.uniform(-8, 8, (1500, 2)))
    x = rng.uniform(1, 2, 4000)
    places = rng.choice(
        [0.66, 2.41421356237309504880, 1.0, *np.tan(2.0 ** np.arange(-20.0, 1.0)), *2.0 ** np.arange(-20, 3)], 4000
    )
    near = np.stack([x * places * (1.0 + rng.uniform(-1, 1, 4000) * 2.0 ** rng.uniform(-50, -1, 4000)), x], axis=1)
    ends = list(itertools.product([5e-324, 2.0**-1022, 1.0, 1e300, GREATEST], repeat=2))
    subnormal = np.floor(2.0 ** rng.uniform(0, 45, (1000, 1)) * rng.uniform(1, 16, (1000, 2))) * 5e-324
    whole = np.concatenate([plain, sizes, alike, near, ends, subnormal])
    return whole * rng.choice([-1.0, 1.0], whole.shape)


@pytest.mark.parametrize("lanes", [1, 8])
def test_arctan2_in_all_octants(lanes):
    with mpmath.workdps(40):
        expected = [mpmath.atan2(mpmath.mpf(float(y)), mpmath.mpf(float(x))) for y, x in pairs()]
        found = kernel(angle, lanes)(pairs())[:, 0]
        normal = np.array([abs(e) >= 2.0**-1022 for e in expected])
        assert ulps(found[normal], itertools.compress(expected, normal)) < MOST_ARCTAN2
        behind = pairs()[:, 1] < 0.0  # for these the low part of π matters
        assert ulps(found[behind], itertools.compress(expected, behind)) < 1.0
        for f, e in zip(found[~normal], itertools.compress(expected, ~normal), strict=True):
            assert abs(f - e) <= 0.5 * mpmath.mpf(2) ** -1074  # rounded once


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_arctan2_of_special_values_is_cs(lanes, dtype):
    """C99, F.9.1.4; Python's follows it on every system."""
    values = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan]
    both_of = np.array([*itertools.product(values, repeat=2)], dtype)
    with np.errstate(invalid="ignore"):
        found = kernel(angle, lanes, dtype)(both_of)[:, 0]
    expected = np.array([math.atan2(y, x) for y, x in itertools.product(values, repeat=2)]).astype(dtype)
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found) | np.isnan(found), np.signbit(expected) | np.isnan(expected))


@pytest.mark.parametrize("lanes", [1, 4])
def test_arctan2_is_as_it_is_written(lanes):
    found = kernel(angle, lanes)(pairs())[:, 0]
    assert np.array_equal(found, [elementary.evaluate("arctan2", y, x) for y, x in pairs()])


def test_arctan2_of_floats_is_rounded_from_doubles():
    with np.errstate(over="ignore", under="ignore"):
        single = pairs().astype(np.float32)
        of_doubles = kernel(angle)(single.astype(float))
        assert np.array_equal(kernel(angle, 8, "float32")(single), of_doubles.astype(np.float32))


# ---- the text


def text_for(target, dtype="float64"):
    graph, nodes, _ = trace(everything, [2])
    return c_function.render(straight_line(graph, nodes, 2), "f", [(2,)], (4,), dtype, target)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_nothing_is_called_or_read_from_outside(dtype):
    def outside(text):
        read = re.findall(r"^.*(?:load|getelementptr)\b.*%env\b.*$", text, re.MULTILINE)
        return read + re.findall(r"^declare .*@(?!llvm\.)\w+\(.*$", text, re.MULTILINE)

    made = text_for(GPU, dtype)
    assert (outside(made.text), made.library) == ([], ())
    assert outside(text_for(host(), dtype).text) != []


def assembled(dtype):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu=GPU.cpu, opt=2)
    module = llvm.parse_assembly(text_for(GPU, dtype).text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    return machine.emit_assembly(module)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_llvm_makes_ptx_of_it(dtype):
    ptx = assembled(dtype)
    assert ".target sm_75" in ptx
    assert ".extern" not in ptx
    assert "mul.hi.u64" in ptx
    assert not re.search(r"\b(?:mul|add|sub)\.f(?:32|64)\b", ptx)  # without .rn, the assembler might fuse them


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("ptxas"), reason="there is no ptxas")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_ptx_assembles(dtype, tmp_path):
    (tmp_path / "f.ptx").write_text(assembled(dtype))
    command = ["ptxas", "-arch=sm_75", "f.ptx", "-o", "f.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f.cubin").stat().st_size > 0
