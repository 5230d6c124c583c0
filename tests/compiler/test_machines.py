"""Where it runs: both loaders, processors without AVX-512, AVX2, AVX and FMA, ARM; lanes below the machine's own.

Emulated processors need Debian's `qemu-user-static`. An emulated ARM machine is a folder that QDDOT_ARM_ROOT names, with
`root`, an ARM64 Linux system with Python 3.11 in it, and `site`, its packages. To make one, without a container:

- as `root`, unpack (`dpkg-deb -x`) Debian 12's arm64 packages libc6, python3.11-minimal, libpython3.11-minimal,
  libpython3.11-stdlib, libexpat1, zlib1g, libssl3, libffi8, libstdc++6, libgcc-s1, libbz2-1.0, liblzma5, libsqlite3-0,
  libuuid1, libtinfo6, libreadline8, libcrypt1, libncursesw6, libdb5.3, libnsl2, libtirpc3, fetched by `apt-get download`
  after `dpkg --add-architecture arm64`;
- as `site`, unzip the wheels of `pip download --no-deps --only-binary=:all: --python-version 3.11` with `--platform`
  manylinux_2_28_aarch64 and manylinux_2_27_aarch64, of numpy, llvmlite, pytest, iniconfig, pluggy, packaging, pygments,
  hypothesis, sortedcontainers and mpmath.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import qddot
from qddot import scalars
from qddot.compiler.codegen.abi import gufunc, time_stepping
from qddot.compiler.ir import interpreter
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.program import straight_line
from qddot.compiler.ir.step_program import Layout, Step
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.targets import host as target
from qddot.compiler.targets import target as kinds_of_processors
from qddot.compiler.targets.host import host, native
from qddot.compiler.targets.target import HOST, X86, Target
from qddot.compiler.targets.x86_64 import LEVELS
from tests.support.kernels import assert_two_ulp, compiled, hard_angles
from tests.support.machine_bits import ROLLED
from tests.support.mechanisms import built
from tests.support.paths import ROOT, TESTS, file_of
from tests.support.targets import OWN, restricted

BITS = TESTS / "support" / "machine_bits.py"
QEMU = shutil.which("qemu-x86_64-static")


def run(code, **environment):
    """Runs a script in a process of its own, whose death is a failed test."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-2000:]}"
    return done.stdout.strip()


# ---- the loaders -------------------------------------------------------------------------------------------------------


def test_unknown_and_impossible_loaders_are_refused(monkeypatch):
    data = llvm_compile.compile_object(sum_and_product(host()))
    monkeypatch.setenv("QDDOT_LOADER", "dlopen")
    with pytest.raises(qddot.InputError, match=r"QDDOT_LOADER='dlopen' is not known; take 'own' or 'llvm'"):
        llvm_compile.Code(data)
    monkeypatch.setenv("QDDOT_LOADER", "own")
    monkeypatch.setattr(llvm_compile, "architecture", lambda: "arm64")
    with pytest.raises(qddot.InputError, match="works on x86-64 Linux only"):
        llvm_compile.Code(data)
    monkeypatch.setenv("QDDOT_LOADER", "")
    assert llvm_compile.loader() == "llvm"


def sum_and_product(kind):
    """LLVM text of a small kernel."""
    graph, nodes, _ = trace(lambda x: np.array([x[0] * x[1] + 2.0], dtype=object), [2])
    return gufunc.render(fused(straight_line(graph, nodes, 2)), [(2,)], [(1,)], kind.lanes("float64"), "float64", kind)


def test_llvms_loader_drops_three_hundred_kernels():
    """Each engine has its target machine: one for all belongs to the first, and is gone with it."""
    code = """
        import gc, sys
        import numpy as np
        from tests.support.kernels import compiled
        from qddot.compiler.runtime import llvm_compile as machine
        assert machine.loader() == "llvm"
        x, kept = np.array([[0.25], [-0.5]]), []
        for k in range(300):
            kernel, _ = compiled(lambda x, k=k: np.array([x[0] * (1.5 + k)], dtype=object), [1], (1,), lanes=1)
            kept = [*kept[-3:], (kernel.ufunc, k)]  # what is left of a kernel goes later, and in another order
            assert all(np.array_equal(ufunc(x), x * (1.5 + j)) for ufunc, j in kept)
        gc.collect()
        print("alive")
    """
    path = os.pathsep.join([str(ROOT), *sys.path])
    assert run(code, QDDOT_LOADER="llvm", PYTHONPATH=path) == "alive"


@pytest.mark.parametrize("data", [b"", b"junk" * 50, b"\x7fELF\x02\x01\x01" + bytes(300)], ids=["nothing", "junk", "zeros"])
def test_llvms_loader_refuses_what_is_no_object(data):
    """In a process of its own: LLVM itself would end it."""
    code = f"""
        from qddot.compiler.runtime import llvm_compile as machine
        from qddot.errors import ObjectError
        try:
            machine.Code({data!r})
        except ObjectError:
            print("refused")
    """
    assert run(code, QDDOT_LOADER="llvm") == "refused"


def test_llvms_engines_go_on_any_thread_while_others_compile():
    """By reference count and by the garbage collector, which may run in the middle of a compilation."""
    code = """
        import gc, os, threading
        from qddot.compiler.runtime import llvm_compile as machine
        text = os.environ["TEXT"]
        data = machine.compile_object(text)
        gc.set_threshold(20)  # often: garbage of one thread is collected by another one that holds the lock
        class Cycle:
            def __init__(self):
                self.me, self.code = self, machine.Code(data)
        def compile_():
            for _ in range(20):
                assert machine.compile_object(text) == data
        def drop():
            for _ in range(40):
                Cycle()
                machine.Code(data)
        threads = [threading.Thread(target=f) for f in (compile_, drop, drop, compile_)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print("alive")
    """
    assert run(code, QDDOT_LOADER="llvm", TEXT=sum_and_product(host())) == "alive"


def test_a_simulation_from_the_cache_loads_no_llvm(tmp_path):
    code = """
        import sys, qddot
        robot = qddot.load("scara")
        q, v = robot.random_state(0)
        print(robot.simulate(q, v, dt=1e-3, steps=3).q.sum(), "llvmlite.binding" in sys.modules)
    """
    first, second = (run(code, QDDOT_CACHE_DIR=str(tmp_path), QDDOT_LOADER=OWN).split() for _ in range(2))
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("True", str(OWN == "llvm"))


# ---- processors --------------------------------------------------------------------------------------------------------


def runs_here(name):
    try:
        return bool(target.named(name))
    except qddot.InputError:
        return False


@pytest.fixture(params=LEVELS)
def level(request, monkeypatch):
    """Kernels are compiled for this processor."""
    if not runs_here(request.param):
        pytest.skip("this machine cannot run its code")
    monkeypatch.setenv("QDDOT_TARGET_CPU", request.param)
    return host()


@pytest.mark.skipif(target.architecture() != X86, reason="other processors have no levels")
def test_numpy_and_llvm_agree_about_this_processor():
    features = llvm_compile.load_llvm().get_host_cpu_features()
    assert native().fma == features["fma"]
    assert native().avx512 == (features["avx512f"] and features["avx512dq"])
    assert (native().vector_bits >= 256) == features["avx"]


JOBS = [
    ("inverse_dynamics", {}),
    ("forward_dynamics", {}),
    ("inverse_dynamics", {"dtype": "float32"}),
    ("forward_dynamics", {"lanes": 1}),
    ("mass_matrix", {"packed": True}),
    ("inverse_dynamics", {"free": ("inertia",)}),
]


def test_bits_of_every_processor(level, monkeypatch):
    """Fused they are the same on all processors; rounded apart they are the same on all without FMA, and close to fused."""
    monkeypatch.setenv("QDDOT_LOADER", OWN)  # our own loader refuses code that calls something outside
    robot, rng = qddot.load("puma560"), np.random.default_rng(0)
    known = [rng.standard_normal((11, 6)) for _ in range(3)]
    for name, options in JOBS:
        kernel = robot.kernel(name, **options)
        arrays = known[: len(kernel.inputs)] + [rng.standard_normal((11, *s)) for s in kernel.inputs[3:]]
        result = kernel(*arrays)
        assert kernel.info.fused == level.fma
        assert kernel.info.lanes == options.get("lanes", level.lanes(kernel.info.dtype))
        assert np.array_equal(result, reference(level.fma, name, options)(*arrays))
        other = reference(not level.fma, name, options)(*arrays)
        # some hundred roundings, and the condition of M, which is below 1e3 here
        assert np.max(np.abs(result - other)) < 1e5 * np.finfo(result.dtype).eps * np.max(np.abs(other))


def reference(fma, name, options):
    """A kernel of a processor with or without FMA, one lane wide."""
    model = qddot.load("puma560").model
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("QDDOT_TARGET_CPU")
        patch.setattr(target, "native", lambda: dataclasses.replace(native(), fma=fma))
        return built(model, name, **{**options, "lanes": 1})


def test_sine_and_cosine_of_every_processor(level):
    """The reduction of angles is exact with products rounded apart as well."""
    kernel, _ = compiled(lambda x: np.array([scalars.sin(x[0]), scalars.cos(x[0])], dtype=object), [1], (2,))
    assert_two_ulp(kernel(hard_angles()[:, None]))


def test_arithmetic_of_every_processor_is_the_interpreters(level):
    def function(x):
        a, b, c = x
        return np.array([a * b + c, a * b - c, c - a * b, -(a * b) - c, (a * b + c) * (a - b * c)], dtype=object)

    kernel, program = compiled(function, [3], (5,))
    x = np.random.default_rng(0).standard_normal((200, 3))
    assert np.array_equal(kernel(x), [interpreter.run(program, row) for row in x])


def test_rolled_code_and_time_loops_of_every_processor(level):
    """Against the processor with the same roundings, one lane wide."""
    q, v = (np.random.default_rng(k).standard_normal((11, 90)) for k in range(2))
    kernel = qddot.chain(90, rng=0).kernel("inverse_dynamics")
    assert kernel.info.form == "rolled"
    results = kernel(q, v, v), qddot.load("scara").simulate(q[:, :4], v[:, :4], dt=1e-3, steps=20).q
    with restricted(1):
        narrow = qddot.chain(90, rng=0).kernel("inverse_dynamics")
        assert narrow.info.lanes == 1
        assert np.array_equal(narrow(q, v, v), results[0])
        assert np.array_equal(qddot.load("scara").simulate(q[:, :4], v[:, :4], dt=1e-3, steps=20).q, results[1])
    eager = qddot.Robot(qddot.chain(90, rng=0).model, compiled=False).inverse_dynamics(q, v, v)
    assert np.max(np.abs(results[0] - eager)) < 1e-12 * np.max(np.abs(eager))


@pytest.mark.parametrize("fma", [True, False])
def test_no_text_asks_for_what_is_not_there(fma):
    """Kernels and loops over time, with sines and cosines, in one lane and many."""
    kind = Target("x86-64", X86, 256, fma)
    graph, nodes, _ = trace(lambda x: np.array([scalars.sin(x[0] * x[1] + x[2]), scalars.cos(x[0])], dtype=object), [4])
    program = fused(straight_line(graph, nodes, 4))
    texts = [gufunc.render(program, [(4,)], [(2,)], 4, dtype, kind) for dtype in ("float64", "float32")]
    texts.append(time_stepping.render(Step(program), Layout(2, 0, 0, 2, 4), kind)[0])
    for text in texts:
        called = [line for line in text.splitlines() if "@llvm.fma." in line and not line.startswith("declare")]
        assert bool(called) == fma


def test_unknown_and_impossible_processors_are_refused(monkeypatch):
    robot = qddot.load("pendulum")
    monkeypatch.setenv("QDDOT_TARGET_CPU", "i386")
    with pytest.raises(qddot.InputError, match=r"target processor 'i386' is not known; take one of x86-64, x86-64-v2"):
        robot.kernel("gravity_force")
    monkeypatch.setattr(target, "architecture", lambda: X86)
    monkeypatch.setattr(target, "lacks_feature", lambda feature: feature == "AVX2")
    monkeypatch.setenv("QDDOT_TARGET_CPU", "x86-64-v3")
    with pytest.raises(qddot.InputError, match="this machine's processor lacks AVX2"):
        robot.kernel("gravity_force")
    monkeypatch.setattr(target, "architecture", lambda: "arm64")
    with pytest.raises(qddot.InputError, match="not x86-64"):
        robot.kernel("gravity_force")


def test_machines_that_kernels_are_not_for_are_refused(monkeypatch):
    monkeypatch.setattr(target.sys, "byteorder", "big")
    with pytest.raises(qddot.InputError, match=r"64-bit little-endian processors.*compiled=False"):
        native.__wrapped__()


def test_the_cache_tells_processors_apart(monkeypatch):
    kinds = [native(), dataclasses.replace(native(), fma=not native().fma), dataclasses.replace(native(), vector_bits=64)]
    kinds += [Target(name, X86, level.vector_bits, level.fma) for name, level in LEVELS.items()]
    before = [kind.identity for kind in kinds]
    assert len(set(before)) == len(kinds)
    features = {name: not has for name, has in kinds_of_processors._multiarray_umath.__cpu_features__.items()}
    monkeypatch.setattr(kinds_of_processors, "_multiarray_umath", type("", (), {"__cpu_features__": features}))
    kinds_of_processors._processor.cache_clear()
    try:
        after = [kind.identity for kind in kinds]
    finally:
        kinds_of_processors._processor.cache_clear()
    assert [a == b for a, b in zip(before, after, strict=True)] == [kind.cpu != HOST for kind in kinds]


# ---- emulated machines -------------------------------------------------------------------------------------------------


def bits(*robots, emulator=(), python=sys.executable, **environment):
    """What tests/machine_bits.py says in another process, perhaps on another machine."""
    command = [*emulator, python, str(BITS), *robots]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-2000:]}"
    return json.loads(done.stdout)


EMULATED = [("Nehalem", False, 2, "x86-64-v2"), ("SandyBridge", False, 4, "sandybridge"), ("Haswell", True, 4, "x86-64-v3")]
EVERYTHING = ("puma560", "quadruped", "scara", ROLLED)


def emulated(model, fma, lanes, level, robots, cache):
    """An emulated processor gives the bits of native code for it, though both keep their kernels in one folder."""
    native_bits = bits(*robots, QDDOT_TARGET_CPU=level, QDDOT_CACHE_DIR=cache)
    ours = bits(*robots, QDDOT_CACHE_DIR=cache)
    assert (ours["bits"] == native_bits["bits"]) == (fma == host().fma)
    for cached in (False, True):
        theirs = bits(*robots, emulator=(QEMU, "-cpu", model), QDDOT_CACHE_DIR=cache, QDDOT_TARGET_CPU="")
        assert bool(theirs["cached"]) == cached
        assert (theirs["fma"], theirs["lanes"]) == (fma, lanes)
        assert theirs["bits"] == native_bits["bits"]


needs_qemu = pytest.mark.skipif(not QEMU or not runs_here("x86-64-v3"), reason="there is no qemu-x86_64-static")


def runs_numpy(model):
    """Whether NumPy, as it is installed, runs on an emulated processor: wheels of NumPy 2.4 do not on a Nehalem."""
    command = [QEMU, "-cpu", model, sys.executable, "-c", "import numpy"]
    return subprocess.run(command, capture_output=True).returncode == 0


@needs_qemu
def test_a_processor_without_fma_under_emulation(tmp_path):
    processor = next(p for p in EMULATED if not p[1] and runs_numpy(p[0]))
    emulated(*processor, ["pendulum"], str(tmp_path))


@needs_qemu
@pytest.mark.slow
@pytest.mark.parametrize("processor", EMULATED, ids=lambda p: p[0])
def test_processors_under_emulation(processor, tmp_path):
    if not runs_numpy(processor[0]):
        pytest.skip(f"NumPy does not run on an emulated {processor[0]}")
    emulated(*processor, EVERYTHING, str(tmp_path))


@pytest.mark.slow
def test_arm_gives_the_bits_of_x86(arm, tmp_path):
    """Inverse and forward dynamics, derivatives, poses, loops and time stepping of several robots; then from the cache."""
    ours = bits(*EVERYTHING, QDDOT_CACHE_DIR=str(tmp_path))
    for cached in (False, True):
        theirs = bits(*EVERYTHING, python=arm, QDDOT_CACHE_DIR=str(tmp_path))
        assert theirs["loader"] == "llvm"
        assert bool(theirs["cached"]) == cached
        assert theirs["bits"] == ours["bits"]


CORE = ("expr", "kernels", "call", "cache", "rolled", "spatial", "joints", "identities", "simulation", "integrators")


@pytest.mark.slow
@pytest.mark.parametrize("part", CORE)
def test_the_core_of_the_suite_on_arm(arm, part):
    """Each in a process of its own; processes that tests start there are emulated too."""
    code = f"import sys, pytest; sys.executable = {arm!r}; sys.exit(pytest.main(sys.argv[1:]))"
    options = ["-o", "addopts=", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", "not real_robots"]
    done = subprocess.run([arm, "-c", code, *options, str(file_of(f"test_{part}.py"))], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]


# ---- the compiler's tests on processors that this machine can be --------------------------------------------------------

COMPILER = ("test_kernels.py", "test_call.py", "test_rolled.py", "test_parameters.py", "test_c99.py", "test_simulation.py")
KINDS = [
    *({"QDDOT_TARGET_CPU": name} for name in LEVELS),
    *({"QDDOT_TEST_LANES": str(lanes)} for lanes in (1, 2, 4)),
    {"QDDOT_LOADER": "llvm"},
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "=".join(next(iter(kind.items()))))
def test_the_compilers_part_of_the_suite(kind):
    name = kind.get("QDDOT_TARGET_CPU")
    if name and not runs_here(name):
        pytest.skip("this machine cannot run its code")
    command = [sys.executable, "-m", "pytest", "-q", *(str(file_of(name)) for name in COMPILER)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **kind})
    assert done.returncode == 0, done.stdout[-4000:]
