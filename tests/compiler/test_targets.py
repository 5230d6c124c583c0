"""Other processors by name, ARM64 object code under emulation, and a look inside: IR, assembly, what QDDOT_DEBUG shows."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import qddot
from qddot import scalars
from qddot.compiler.codegen.abi import gufunc
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.program import straight_line
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.runtime.gufunc import kernel as kernel_from_code
from qddot.compiler.runtime.kernel import Info, Source
from qddot.compiler.runtime.time_stepping import TimeLoop
from qddot.compiler.targets import host
from qddot.compiler.targets import registry as targets
from qddot.compiler.targets import target as target_module
from qddot.compiler.targets.target import ARCHITECTURES, ARM, X86
from qddot.dynamics.choose import cheapest
from tests.support.arm_program import program as arm_program
from tests.support.paths import ROOT

EMULATOR = shutil.which("qemu-aarch64-static")
SHAPES = [(6,), (6,), (6,)]

needs_x86 = pytest.mark.skipif(host.architecture() != X86, reason="code for x86-64 cannot run here")


def function(x):
    a, b = scalars.sin(x[0]), scalars.cos(x[1])
    return np.array([a * b + x[2], b / (a * a + 1.0), x[3] * x[4] - x[5], a - b, x[0], b * b], dtype=object)


def small_kernel(target, lanes=None, dtype="float64"):
    """A kernel of a small function for a target, with its source."""
    graph, nodes, _ = trace(function, [6])
    program = fused(straight_line(graph, nodes, 6))
    width = target.lanes(dtype) if lanes is None else lanes

    def render():
        return gufunc.render(program, [(6,)], [(6,)], width, dtype, target)

    code = llvm_compile.Code(targets.compile_module(render(), target, "small"), target)
    info = Info("small", "test", "unrolled", dtype, width, {}, len(program.body), 0, 0.0, False)
    return kernel_from_code(
        code, ["x"], [(6,)], (6,), info, lambda: "", source=Source(render, lambda text: targets.assembly(text, target))
    )


# ---- names


def test_names_of_targets(monkeypatch):
    monkeypatch.setenv("QDDOT_TARGET_CPU", "")
    assert targets.named("cpu") == host.native()
    assert (targets.named("cpu:x86-64-v3").vector_bits, targets.named("cpu:x86-64-v3").fma) == (256, True)
    assert targets.named("cpu:apple-m1").arch == ARM
    assert len({targets.named(f"cpu:{x}").identity for facts in ARCHITECTURES.values() for x in facts.processors}) == sum(
        len(facts.processors) for facts in ARCHITECTURES.values()
    )


@pytest.mark.parametrize("name", ["gpu", "", "cpu:", "x86-64-v3", None, 3])
def test_unknown_kinds_of_targets_are_refused(name):
    with pytest.raises(qddot.InputError, match=r"is not known; take one of 'cpu', 'cpu:PROCESSOR'"):
        targets.named(name)


def test_unknown_processors_are_refused():
    with pytest.raises(qddot.InputError, match=r"target processor 'i386' is not known; take one of x86-64"):
        targets.named("cpu:i386")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_llvm_knows_every_processor(arch):
    """Text that LLVM compiles for each: in a process of its own, which an unknown name or instruction would end."""
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.compiler.test_targets import *
for name in ARCHITECTURES[{arch!r}].processors:
    target = targets.named(f"cpu:{{name}}")
    for dtype in ("float64", "float32"):
        kernel = small_kernel(target, dtype=dtype)
    assert len(kernel.assembly) > 1000
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "done\n", done.stderr
    assert "is not a recognized" not in done.stderr


# ---- what runs, and what does not


@needs_x86
@pytest.mark.parametrize("name", ["x86-64", "x86-64-v3", "haswell", "x86-64-v4"])
def test_named_processors_run_where_they_can(name):
    target = targets.named(f"cpu:{name}")
    if host.obstacle(target):
        pytest.skip("this machine cannot run its code")
    x = np.random.default_rng(0).standard_normal((21, 6))
    kernel = small_kernel(target)
    assert kernel.info.lanes == target.vector_bits // 64
    assert np.array_equal(kernel(x), np.stack([kernel(row) for row in x]))
    if target.fma == host.native().fma:
        assert np.array_equal(kernel(x), small_kernel(host.native())(x))


def test_code_for_other_machines_says_why_it_does_not_run():
    other = "cpu:neoverse-n1" if host.architecture() == X86 else "cpu:haswell"
    kernel = small_kernel(targets.named(other))
    for call in (kernel, kernel._batches):
        with pytest.raises(qddot.InputError, match=r"small: target processor .*this machine is .*, not "):
            call(np.zeros(6))
    assert kernel.one_state is None
    assert "define void @loop" in kernel.llvm_ir
    code = llvm_compile.Code(b"", targets.named(other))
    with pytest.raises(qddot.InputError, match="time stepping: target processor"):
        TimeLoop(code, None, 1)


@needs_x86
def test_missing_instructions_are_named(monkeypatch):
    monkeypatch.setattr(host, "lacks_feature", lambda feature: feature == "AVX2")
    kernel = small_kernel(targets.named("cpu:x86-64-v3"))
    with pytest.raises(qddot.InputError, match="this machine's processor lacks AVX2"):
        kernel(np.zeros(6))


def test_instructions_that_numpy_does_not_name_are_not_missing(monkeypatch):
    """Before 2.4 it has no BMI and BMI2."""
    features = {"AVX2": True, "FMA3": True, "F16C": True, "SSE2": True, "AVX512F": False}
    monkeypatch.setattr(target_module, "_multiarray_umath", type("", (), {"__cpu_features__": features}))
    assert [target_module.lacks_feature(x) for x in ("AVX2", "AVX512F", "BMI2")] == [False, True, False]


# ---- ARM64


@pytest.mark.skipif(not EMULATOR, reason="there is no qemu-aarch64-static")
@pytest.mark.skipif(not host.native().fma, reason="this processor rounds products and sums separately")
@pytest.mark.parametrize("processor", ["generic", "apple-m1"])
@pytest.mark.parametrize("robot", ["puma560", "quadruped"])
def test_arm_object_code_gives_the_bits_of_this_machine(robot, processor, tmp_path):
    """Compiled here, run under emulation: blocks of two lanes and a rest; shared columns of a long result."""
    robot, target = qddot.load(robot), targets.named(f"cpu:{processor}")
    rng = np.random.default_rng(0)
    for name, shapes in (("inverse_dynamics", [(robot.nq,), (robot.nv,), (robot.nv,)]), ("mass_matrix", [(robot.nq,)])):
        output = (robot.nv,) if name == "inverse_dynamics" else (robot.nv, robot.nv)
        program = cheapest(robot.model, name, "auto")[1]
        q = np.stack([robot.random_state(k)[0] for k in range(7)])
        inputs = [q, *(rng.standard_normal((7, *s)) for s in shapes[1:])]
        text = gufunc.render(program, shapes, [output], target.lanes("float64"), "float64", target)
        file = tmp_path / name
        file.write_bytes(arm_program(targets.compile_module(text, target), inputs, (7, *output)))
        file.chmod(0o755)
        done = subprocess.run([EMULATOR, str(file)], capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        result = np.frombuffer(done.stdout).reshape(7, *output)
        assert np.array_equal(result, robot.kernel(name)(*inputs))


# ---- looking inside


def test_the_source_of_a_kernel():
    kernel = small_kernel(host.native())
    assert kernel.llvm_ir.count("define void @loop") == 1
    assert "loop:" in kernel.assembly
    assert kernel.assembly.count("\n") > 100
    without = kernel_from_code(
        llvm_compile.Code(llvm_compile.compile_object(kernel.llvm_ir)), ["x"], [(6,)], (6,), kernel.info, str
    )
    with pytest.raises(qddot.InputError, match="source of this kernel is not known"):
        _ = without.llvm_ir


def test_debug_to_standard_error(monkeypatch, capsys):
    monkeypatch.setenv("QDDOT_DEBUG", "time, ir")
    small_kernel(host.native())
    shown = capsys.readouterr().err
    assert "; qddot: small-" in shown
    assert "define void @loop" in shown
    assert ".cfi_startproc" not in shown
    assert "qddot: compiled small-" in shown


def test_debug_into_a_folder(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("QDDOT_DEBUG", "ir,asm")
    monkeypatch.setenv("QDDOT_DEBUG_DIR", str(tmp_path / "out"))
    kernel = small_kernel(host.native())
    monkeypatch.setenv("QDDOT_DEBUG", "")
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert [name.rpartition(".")[2] for name in names] == ["ll", "s"]
    assert (tmp_path / "out" / names[0]).read_text() == kernel.llvm_ir
    assert (tmp_path / "out" / names[1]).read_text() == kernel.assembly
    assert not capsys.readouterr().err


def test_unknown_switches_are_refused(monkeypatch):
    monkeypatch.setenv("QDDOT_DEBUG", "ir,dot")
    with pytest.raises(qddot.InputError, match="QDDOT_DEBUG=dot is not known; take some of ir,asm,time"):
        small_kernel(host.native())
    monkeypatch.setenv("QDDOT_DEBUG", "")
    monkeypatch.setenv("QDDOT_FASTCALL", "no")
    with pytest.raises(qddot.InputError, match="QDDOT_FASTCALL='no' is not known; take 0 or 1"):
        small_kernel(host.native())


def test_the_fast_call_can_be_turned_off(monkeypatch):
    x = np.random.default_rng(0).standard_normal(6)
    fast = small_kernel(host.native())
    monkeypatch.setenv("QDDOT_FASTCALL", "0")
    slow = small_kernel(host.native())
    assert slow.one_state is None
    assert np.array_equal(slow(x), fast(x))
    with pytest.raises(qddot.InputError, match="takes x"):
        slow(x, x)


def test_import_loads_no_code_generation():
    code = "import sys, qddot; print([m for m in sys.modules if 'compiler.codegen' in m or 'compiler.ir.rules' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
