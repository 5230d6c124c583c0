"""The C calling convention, and shared libraries without a linker: on this machine and on others, under emulation."""

import ctypes
import struct
import sys
from itertools import pairwise

import numpy as np
import pytest

from qddot import scalars
from qddot.compiler.codegen import c99
from qddot.compiler.codegen.abi import c_function
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.program import straight_line
from qddot.compiler.runtime import llvm_compile, shared_library
from qddot.compiler.targets import host
from qddot.compiler.targets import registry as targets
from qddot.compiler.targets.target import ARCHITECTURES, ARM, X86
from qddot.errors import InputError, ObjectError
from tests.support.c_code import needs_compiler
from tests.support.c_programs import OTHERS, SYSTEMS, results
from tests.support.kernels import compiled

needs_fma = pytest.mark.skipif(not host.native().fma, reason="this processor rounds products and sums separately")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="shared libraries are for Linux")


def function(x, y):
    """Sines of inputs, in lanes and of values on the way, conditions, a square root, exp and its like, and atan2."""
    s = [scalars.sin(a) * scalars.cos(b) for a, b in zip(x, y, strict=True)]
    norm = scalars.sqrt(s[0] * s[0] + y[1] * y[1] + 1.0)
    chosen = scalars.where(scalars.less(x[0], y[0]), norm, -norm / 3.0) * scalars.exp(y[2]) + scalars.log(norm)
    chosen = scalars.where(scalars.less_equal(x[2], 0.5), chosen, scalars.tanh(chosen) - scalars.arctan(y[2]))
    return np.array([*s, chosen, scalars.cos(norm * x[1]), scalars.arctan2(s[1], norm)], dtype=object)


SIZES, RESULTS = [3, 3], 6


def made(name, target="cpu", dtype="float64", what=function, sizes=SIZES, size=RESULTS):
    """The object code of a function, and what C has to know of it."""
    known = targets.exported(target)
    graph, nodes, _ = trace(what, sizes)
    program = fused(straight_line(graph, nodes, sum(sizes)))
    return c_function.render(program, name, [(n,) for n in sizes], (size,), dtype, known.target), known


def library(file, functions, sizes=SIZES, size=RESULTS):
    """Writes a library of functions [(name, target, dtype)] and its header."""
    parts = [made(*x) for x in functions]
    code = llvm_compile.object_file([f.text for f, _ in parts], parts[0][1].target, parts[0][1].triple)
    file.write_bytes(code.data if file.suffix == ".o" else shared_library.linked(code.data, file.name))
    inputs = [(f"x{'abc'[k]}", n) for k, n in enumerate(sizes)]
    starts = [f"{c99.declaration(name, inputs, [('out', size)], dtype)};" for name, _, dtype in functions]
    file.with_suffix(".h").write_text(c99.header("IT_H", "/* functions */", starts))
    return file


def states(dtype, count=20, sizes=SIZES):
    rng = np.random.default_rng(0)
    return [rng.uniform(-3, 3, (count, n)).astype(dtype) for n in sizes]


def expected(arrays, dtype):
    return compiled(function, SIZES, (RESULTS,), dtype=dtype)[0](*arrays)


# ---- the same numbers everywhere


@needs_compiler
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("ending", [".o", ".so"])
def test_this_machine_has_the_kernels_bits(dtype, ending, tmp_path):
    if ending == ".so" and host.architecture() not in (X86, ARM):
        pytest.skip("no shared libraries for this machine")
    file = library(tmp_path / f"libit{ending}", [("f", "cpu", dtype)])
    arrays = states(dtype)
    assert results(file, "f", arrays, RESULTS).tobytes() == expected(arrays, dtype).tobytes()


@needs_fma
@pytest.mark.parametrize("target", OTHERS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("ending", [".o", ".so"])
def test_other_machines_have_the_kernels_bits(target, dtype, ending, tmp_path):
    file = library(tmp_path / f"libit{ending}", [("f", target, dtype)])
    arrays = states(dtype)
    found, wanted = results(file, "f", arrays, RESULTS, SYSTEMS[target]), expected(arrays, dtype)
    assert found[:, :5].tobytes() == wanted[:, :5].tobytes()
    assert np.allclose(found[:, 5], wanted[:, 5], rtol=1e-6 if dtype == "float32" else 4e-16)  # atan2 is the C library's


@needs_linux
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_library_without_a_linker_is_loaded(dtype, tmp_path):
    """Two functions of two modules, whose internal names are the same; large angles, which the C library turns."""
    file = library(tmp_path / "libit.so", [("f", "cpu", dtype), ("g", "cpu", dtype)])
    lib = ctypes.CDLL(str(file))
    for scale in (1.0, 1e6):
        x, y = (scale * x[0] for x in states(dtype))
        wanted = expected((x, y), dtype)
        for f in (lib.f, lib.g):
            out = np.zeros(RESULTS, dtype)
            f(*(ctypes.c_void_p(a.ctypes.data) for a in (x, y, out)))
            assert out.tobytes() == wanted.tobytes()


@needs_linux
def test_a_result_may_overlap_the_inputs(tmp_path):
    lib = ctypes.CDLL(str(library(tmp_path / "libit.so", [("f", "cpu", "float64")])))
    x, y = (a[0] for a in states("float64"))
    wanted = expected((x, y), "float64")
    memory = np.concatenate([x, y])
    at = memory.ctypes.data
    lib.f(ctypes.c_void_p(at), ctypes.c_void_p(at + 24), ctypes.c_void_p(at))
    assert memory.tobytes() == wanted.tobytes()


def every_reference():
    """A module that reads constants of every width, and goes to code in another section by a call and by a jump."""
    kinds = {"i8": 11, "i16": 2222, "i32": 333333, "i64": 44444444, "double": 0.5}
    lines, tables = [], []
    for k, (T, x) in enumerate(kinds.items()):
        tables.append(f"@t{k} = internal constant [4 x {T}] [{', '.join(f'{T} {x + j}' for j in range(4))}]")
        turned = "fadd double 0.0," if T == "double" else f"uitofp {T}"
        lines += [
            f"  %p{k} = getelementptr [4 x {T}], ptr @t{k}, i64 0, i64 {k % 4}",
            f"  %x{k} = load {T}, ptr %p{k}",
            f"  %d{k} = {turned} %x{k}{'' if T == 'double' else ' to double'}",
            f"  %o{k} = getelementptr double, ptr %out, i64 {k}",
            f"  store double %d{k}, ptr %o{k}",
        ]
    body = "\n".join(lines)
    values = [*(x + k % 4 for k, x in enumerate(kinds.values())), 7.0, 8.0, 9.0]
    text = f"""{chr(10).join(tables)}
@pair = internal constant <2 x double> <double 7.0, double 8.0>, align 16
define internal void @last(ptr %out) noinline section ".text.last" {{
  %p = getelementptr double, ptr %out, i64 7
  store double 9.0, ptr %p
  ret void
}}
define internal i64 @other(ptr %x) noinline section ".text.other" {{
  %old = load i64, ptr %x
  ret i64 %old
}}
define void @f(ptr %in, ptr %out) {{
{body}
  %pair = load <2 x double>, ptr @pair
  %o.pair = getelementptr double, ptr %out, i64 5
  store <2 x double> %pair, ptr %o.pair, align 8
  %n = call i64 @other(ptr %in)
  store i64 %n, ptr %in
  tail call void @last(ptr %out)
  ret void
}}
"""
    return text, values


@pytest.mark.parametrize("target", ["native", *OTHERS])
def test_references_of_every_kind(target, tmp_path):
    text, values = every_reference()
    known, file = targets.exported("cpu" if target == "native" else target), tmp_path / "libit.so"
    if target == "native" and (sys.platform != "linux" or host.architecture() not in (X86, ARM)):
        pytest.skip("no shared libraries for this machine")
    file.write_bytes(shared_library.linked(llvm_compile.object_file([text], known.target, known.triple).data, file.name))
    file.with_suffix(".h").write_text("void f(double *in, double *out);\n")
    assert results(file, "f", [np.ones((1, 1))], 8, SYSTEMS[target]).tolist() == [values]


# ---- what is in a file


@pytest.mark.parametrize("name", [*ARCHITECTURES])
def test_nothing_but_the_c_library_is_outside(name):
    """Of what a linker must bring; a Cortex-M4 computes doubles by functions of its compiler's library."""
    facts = ARCHITECTURES[name]
    code, known = made("f", facts.triple)
    assert code.library == ("sin", "cos", "atan2")
    object_code = llvm_compile.object_file([code.text], known.target, known.triple)
    assert (object_code.triple, object_code.cpu) == (facts.triple, next(iter(facts.processors)))
    names = set(object_code.data[-8000:].split(b"\0"))
    assert {b"sin", b"cos", b"atan2", b"f"} <= names
    assert not {b"fma", b"fmaf", b"memcpy", b"malloc"} & names
    assert (b"__aeabi_dmul" in names) == (name == "thumb")


@pytest.mark.parametrize("name", ["library", "core1", "chunk1_0", "angles1", "sincos8", "arctan2_1", "sin"])
def test_names_of_the_code_itself_are_refused(name):
    with pytest.raises(InputError, match=f"name='{name}' is a name of the code's own"):
        made(name)


def test_only_what_is_used_is_outside():
    plain, _ = made("f", what=lambda x: np.array([x[0] * x[1]], dtype=object), sizes=[2], size=1)
    turned, _ = made("f", what=lambda x: np.array([scalars.sin(x[0])], dtype=object), sizes=[2], size=1)
    assert (plain.library, turned.library) == ((), ("sin", "cos"))
    assert "@library" not in plain.text
    assert (plain.scratch_bytes, turned.scratch_bytes) == (8 * 3, 8 * 4)


@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_memory_is_writable_or_executable(target, tmp_path):
    """And the names of functions are found as linkers and the system find them."""
    data = library(tmp_path / "libit.so", [("f", target, "float64")]).read_bytes()
    header = struct.unpack_from("<16sHHIQQQIHHHHHH", data)
    segments = [struct.unpack_from("<IIQQQQQQ", data, header[5] + 56 * k) for k in range(header[10])]
    loaded = [x for x in segments if x[0] == 1]
    assert [x[1] for x in loaded] == [4, 5, 6]
    assert all(x[2] % x[7] == x[3] % x[7] for x in loaded)  # offset and address agree within a page
    assert all(a[3] + a[6] <= b[3] // b[7] * b[7] for a, b in pairwise(loaded))
    assert b"libm.so.6\0" in data
    assert b"\0libit.so\0" in data


def test_other_objects_are_refused():
    code, known = made("f", "cortex-m7")
    with pytest.raises(ObjectError, match="Linux on x86-64, ARM64 and RISC-V only"):
        shared_library.linked(llvm_compile.object_file([code.text], known.target, known.triple).data, "it.so")


@pytest.mark.parametrize("name", ["x86-64-v3", "aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_a_call_of_something_outside_is_refused(name):
    """Which would need a table of jumps; ours are calls by pointers."""
    known = targets.exported(name)
    text = "declare void @outside()\ndefine void @f() {\n  call void @outside()\n  call void @outside()\n  ret void\n}\n"
    data = llvm_compile.object_file([text], known.target, known.triple).data
    with pytest.raises(ObjectError, match="'outside' cannot be resolved"):
        shared_library.linked(data, "it.so")


# ---- names of targets


def test_names_of_targets(monkeypatch):
    monkeypatch.setenv("QDDOT_TARGET_CPU", "")
    assert targets.exported("cpu") == (host.native(), "")
    for level in (2, 3, 4):
        known = targets.exported(f"x86-64-v{level}")
        assert known == targets.exported(f"cpu:x86-64-v{level}")
        assert (known.target.cpu, known.target.fma) == (f"x86-64-v{level}", level > 2)
    assert targets.exported("aarch64-linux-gnu").target.cpu == "generic"
    assert targets.exported("thumbv7em-none-eabihf") == targets.exported("thumbv7em-none-unknown-eabihf")
    four, seven = (targets.exported(f"cortex-m{k}").target for k in (4, 7))
    assert (four.fuses("float32"), four.fuses("float64"), seven.fuses("float64")) == (True, False, True)
    assert (four.lanes("float64"), four.lanes("float32")) == (1, 1)


@pytest.mark.parametrize("name", ["", "pdp11", "cpu:", "cpu:pdp11", None, 3])
def test_unknown_targets_are_refused(name):
    with pytest.raises(InputError, match=r"target .* is not known; take 'cpu', one of x86_64-linux-gnu, .*cortex-m7"):
        targets.exported(name)
