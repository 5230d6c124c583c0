"""Robots' functions as libraries for C programs: the kernels' bits, files, headers, names and errors."""

import ctypes
import json
import shlex
import subprocess
import sys

import numpy as np
import pytest

import qddot
from qddot import joints
from qddot.cli.main import main
from qddot.compiler.targets import host
from qddot.compiler.targets.target import X86
from qddot.dynamics import export_library
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.errors import FileError, InputError, KernelTooLargeError, SingularMassMatrixError, UnknownNameError
from qddot.mechanism.validation import pose
from tests.support.c_code import needs_compiler, run_compiler
from tests.support.c_programs import OTHERS, SYSTEMS, results
from tests.support.mechanisms import needs_of

SHOWN = ("inverse_dynamics", "forward_dynamics", "mass_matrix")
needs_x86 = pytest.mark.skipif(host.architecture() != X86, reason="code for x86-64 cannot run here")
needs_fma = pytest.mark.skipif(not host.native().fma, reason="this processor rounds products and sums separately")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="shared libraries are for Linux")


def states(robot, name, dtype, count=5):
    """The inputs of a function, (count, n) each."""
    rng = np.random.default_rng(0)
    known = {"q": np.stack([robot.random_state(k)[0] for k in range(count)])}
    known |= {x: rng.standard_normal((count, robot.nv)) for x in ("v", "a", "tau")}
    known["f_ext"] = rng.standard_normal((count, 6 * robot.model.n_links))
    return [known[x].astype(dtype) for x in FUNCTIONS[name].inputs]


def shaped(robot, arrays, name):
    """The same for kernels."""
    shapes = {"f_ext": (robot.model.n_links, 6)}
    return [x.reshape(len(x), *shapes.get(n, x.shape[1:])) for n, x in zip(FUNCTIONS[name].inputs, arrays, strict=True)]


def agree(file, robot, made, dtype, system, target="cpu"):
    """Every function of a library, in a C program, gives the kernel's bits."""
    for function in made.functions:
        arrays = states(robot, function.function, dtype)
        kernel = robot.kernel(function.function, dtype=dtype, target=target, **needs_of(function.function, robot))
        expected = kernel(*shaped(robot, arrays, function.function))
        found = results(file, function.name, arrays, expected[0].size, system)
        assert np.isfinite(found).all()
        assert found.tobytes() == expected.tobytes(), function.name


# ---- the same numbers everywhere


@needs_x86
@needs_compiler
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_levels_of_x86_have_their_kernels_bits(level, dtype, tmp_path):
    if host.obstacle(host.processor(level)):
        pytest.skip("this machine cannot run its code")
    robot, file = qddot.load("puma560"), tmp_path / "puma.o"
    made = robot.export_library(file, SHOWN, target=level, dtype=dtype)
    assert made.processor == level
    agree(file, robot, made, dtype, SYSTEMS["native"], f"cpu:{level}")


@needs_fma
@pytest.mark.parametrize("target", OTHERS)
@pytest.mark.parametrize(("robot", "dtype"), [("puma560", "float64"), ("puma560", "float32"), ("quadruped", "float64")])
@pytest.mark.parametrize("ending", [".o", ".so"])
def test_other_machines_have_the_kernels_bits(target, robot, dtype, ending, tmp_path):
    robot, file = qddot.load(robot), tmp_path / f"librobot{ending}"
    made = robot.export_library(file, SHOWN, target=target, dtype=dtype)
    agree(file, robot, made, dtype, SYSTEMS[target])


def with_loops():
    """A robot with 60 links of six kinds, whose code can keep its loops over them."""
    b, kinds = qddot.Builder("long"), [joints.Revolute((0, 0, 1)), joints.Prismatic((1, 0, 0)), joints.Revolute((1, 0, 0))]
    kinds += [joints.Universal((0, 0, 1), (0, 1, 0)), joints.Cylindrical((0, 1, 0)), joints.Planar((0, 0, 1))]
    for k in range(60):
        b.link(f"link{k}", mass=1.0 + 0.1 * k, com=(0.1, 0.2, 0.3), inertia=(0.2, 0.01, 0.02, 0.3, 0.03, 0.4))
        b.joint(f"joint{k}", "world" if k == 0 else f"link{k - 1}", f"link{k}", kinds[k % 6], pose((0.1, 0.0, 0.2)))
    return b.robot()


@pytest.mark.parametrize("target", ["native", *OTHERS])
def test_code_with_loops(target, tmp_path):
    """Over links of several kinds, each with code of its own: choosing among them may take tables of jumps."""
    if target != "native" and not host.native().fma:
        pytest.skip("this processor rounds products and sums separately")
    robot, file = with_loops(), tmp_path / ("librobot.so" if sys.platform == "linux" else "robot.o")
    kernel = robot.kernel("inverse_dynamics", form="rolled")
    wanted = [("inverse_dynamics", {"form": "rolled"})]
    made = robot.export_library(file, wanted, target="cpu" if target == "native" else target)
    arrays = states(robot, "inverse_dynamics", "float64")
    found = results(file, made.functions[0].name, arrays, robot.nv, SYSTEMS[target])
    assert found.tobytes() == kernel(*arrays).tobytes()


@needs_compiler
def test_every_function_has_the_kernels_bits(tmp_path):
    robot, file = qddot.load("scara"), tmp_path / "scara.o"
    given = {name: needs_of(name, robot) for name in FUNCTIONS}
    wanted = [(name, {**given[name], "name": name}) for name in FUNCTIONS if "df_ext_dp" not in FUNCTIONS[name].inputs]
    made = robot.export_library(file, wanted)
    assert [f.name for f in made.functions] == [name for name, _ in wanted]
    run_compiler("cc", "-shared", "-o", str(tmp_path / "scara.so"), str(file), "-lm")  # the command that errors name
    lib = ctypes.CDLL(str(tmp_path / "scara.so"))
    for name, _ in wanted:
        arrays = states(robot, name, "float64", 1)
        expected = robot.kernel(name, **given[name])(*(x[0] for x in shaped(robot, arrays, name)))
        out = np.zeros(expected.size)
        getattr(lib, name)(*(ctypes.c_void_p(x.ctypes.data) for x in (*arrays, out)))
        assert out.tobytes() == expected.tobytes(), name


@needs_linux
def test_angles_of_any_size(tmp_path):
    """Beyond 1e5 rad sine and cosine are the C library's, as in kernels."""
    robot = qddot.load("scara")
    made = robot.export_library(tmp_path / "libscara.so", ["inverse_dynamics"])
    lib = ctypes.CDLL(str(made.files[0]))
    q, v = robot.random_state(0)
    for scale in (1.0, 1e6, 1e18):
        out = np.zeros(4)
        lib.scara_inverse_dynamics(*(ctypes.c_void_p(x.ctypes.data) for x in (q * scale, v, v, out)))
        assert out.tobytes() == robot.kernel("inverse_dynamics")(q * scale, v, v).tobytes()


@needs_linux
def test_free_parameters_are_arguments(tmp_path):
    robot, free = qddot.load("scara"), ["tool.mass", "gravity"]
    made = robot.export_library(tmp_path / "libscara.so", [("inverse_dynamics", {"free": free})])
    assert "const double tool_mass[1]" in made.header
    assert "const double gravity_vector[3]" in made.header
    q, v = robot.random_state(0)
    arrays = [q, v, v, np.array(7.5), np.array([0.1, 0.2, -9.0])]
    out = np.zeros(4)
    lib = ctypes.CDLL(str(made.files[0]))
    lib.scara_inverse_dynamics(*(ctypes.c_void_p(x.ctypes.data) for x in (*arrays, out)))
    assert out.tobytes() == robot.kernel("inverse_dynamics", free=free)(*arrays).tobytes()


# ---- files


@needs_compiler
def test_the_header_says_what_is_there(tmp_path):
    robot = qddot.load("puma560")
    made = robot.export_library(
        tmp_path / "libpuma.o", ["inverse_dynamics", ("jacobian", {"frame": "link6"})], target="x86-64-v2"
    )
    assert [p.name for p in made.files] == ["libpuma.o", "libpuma.h"]
    assert made.header == (tmp_path / "libpuma.h").read_text()
    flat = " ".join(made.header.replace(" * ", " ").split())
    assert "void puma560_inverse_dynamics(const double q[6], const double v[6], const double a[6], double tau[6]);" in flat
    assert "void puma560_jacobian_link6(const double q[6], double J[36]);" in flat
    assert "joint1 (rad)" in flat
    assert "M(q) a + bias(q, v) = tau + passive(q, v)" in flat
    assert "processor x86-64-v2" in flat
    assert "rounded separately" in flat
    assert "libm: sin, cos" in flat
    assert max(map(len, made.header.splitlines())) <= 114
    scratch = [f"{f.scratch_bytes} bytes of the stack" for f in made.functions]
    assert all(x in flat for x in scratch)
    for flags in (["-std=c99"], ["-x", "c++", "-std=c++11"]):
        run_compiler("gcc", *flags, "-Wall", "-Werror", "-pedantic", "-fsyntax-only", str(made.files[1]))


@needs_linux
@needs_compiler
def test_strange_names_do_no_harm(tmp_path):
    b = qddot.Builder('*/ int x; /* "ü\\')
    b.link("/* not a comment */", mass=1.0, com=(0.1, 0.0, 0.0))
    b.joint("a\nb ??/", "world", "/* not a comment */", qddot.joints.Revolute((0, 1, 0)))
    robot, file = b.robot(), tmp_path / '*"$(x) ü\n.so'
    made = robot.export_library(file, ["inverse_dynamics", ("pose", {"frame": "/* not a comment */"})])
    assert made.header.isascii()
    run_compiler("gcc", "-std=c99", "-Wall", "-Werror", "-fsyntax-only", "-x", "c", str(made.files[1]))
    out, x = np.zeros(1), np.array([0.3])
    function = getattr(ctypes.CDLL(str(file)), made.functions[0].name)
    function(*(ctypes.c_void_p(a.ctypes.data) for a in (x, x, x, out)))
    assert out.tobytes() == robot.inverse_dynamics(x, x, x).tobytes()


def test_a_file_is_never_half_written(tmp_path, monkeypatch):
    robot, file = qddot.load("pendulum"), tmp_path / "libit.so"
    file.write_text("old")
    robot.export_library(file, ["mass_matrix"], target="aarch64-linux-gnu")
    before = file.read_bytes()
    assert before.startswith(b"\x7fELF")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(FileError, match="No space left"):
        robot.export_library(file, ["inverse_dynamics"], target="aarch64-linux-gnu")
    assert file.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["libit.h", "libit.so"]


def test_the_command(tmp_path, capsys):
    out = tmp_path / "libscara.so"
    names = ["--function", "inverse_dynamics", "--function", "jacobian", "--frame", "tip", "--function", "mass_matrix"]
    assert main(["export", "scara", "--library", str(out), *names, "--target", "riscv64-linux-gnu"]) == 0
    said = capsys.readouterr().err
    assert all(f"scara_{x} by " in said for x in ("inverse_dynamics", "jacobian_tip", "mass_matrix"))
    assert "for riscv64-unknown-linux-gnu, processor generic-rv64; written to" in said
    assert (tmp_path / "libscara.h").read_text().count("void scara_") == 3
    frames = ["--function", "jacobian", "--frame", "tip", "--frame", "quill", "--free", "tool.position", "--json"]
    assert main(["export", "scara", "--library", str(tmp_path / "it.o"), *frames]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [f["name"] for f in report["functions"]] == ["scara_jacobian_tip", "scara_jacobian_quill"]
    one = ["--function", "mass_matrix", "--name", "M", "--dtype", "float32", "--json"]
    assert main(["export", "scara", "--library", str(tmp_path / "it.o"), *one]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [f["name"] for f in report["functions"]] == ["M"]
    assert "void M(const float q[4], float M[16]);" in report["header"]


@needs_linux
@needs_compiler
def test_the_named_link_command_works(tmp_path, capsys):
    """What the error for other kinds of libraries says to do."""
    where = ["export", "scara", "--function", "mass_matrix", "--library"]
    assert main([*where, str(tmp_path / "libscara.dylib")]) == 2
    command = capsys.readouterr().err.split("link it: ")[1]
    assert main([*where, str(tmp_path / "libscara.o")]) == 0
    subprocess.run(shlex.split(command), cwd=tmp_path, check=True)
    assert ctypes.CDLL(str(tmp_path / "libscara.dylib")).scara_mass_matrix


# ---- errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--function", "inverse_dynamic", "--library", "it.o"], "did you mean 'inverse_dynamics'"),
        (["--function", "jacobian", "--library", "it.o"], "needs frame="),
        (["--function", "mass_matrix", "--frame", "tip", "--library", "it.o"], "takes no frame="),
        (["--function", "mass_matrix", "--library", "it.o", "--target", "pdp11"], "aarch64-linux-gnu"),
        (
            ["--function", "mass_matrix", "--library", "it.so", "--target", "cortex-m4"],
            "no shared libraries; export 'it.o'",
        ),
        (["--function", "mass_matrix", "--library", "it.dll"], "cc -shared -o it.dll it.o"),
        (["--function", "mass_matrix", "--library", "it.c"], "ends in .so"),
        (["--function", "mass_matrix", "--library", "it"], "ends in .so"),
        (["--function", "mass_matrix", "--library", "/no/such/folder/it.o"], "/no/such/folder/it.o"),
        (["--function", "mass_matrix", "--library", "it.o", "--name", "double"], "cannot be the name of a C function"),
        (["--function", "mass_matrix", "--library", "it.o", "--dtype", "float16"], "dtype='float16'"),
        (["--function", "mass_matrix", "--library", "it.o", "--inline"], "--inline is for source code"),
        (["--function", "mass_matrix", "--library", "it.o", "--no-fma"], "--no-fma is for source code"),
        (["--function", "mass_matrix", "--library", "it.o", "-o", "it.c"], "--output is for source code"),
        (["--function", "mass_matrix", "--function", "mass_matrix", "--library", "it.o"], "give one of them another name="),
        (
            ["--function", "mass_matrix", "--function", "pose", "--library", "it.o", "--name", "f"],
            "--name is the name of",
        ),
        (["--function", "mass_matrix", "--target", "cortex-m4"], "--target is for --library"),
    ],
)
def test_errors(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "scara", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_a_robot_cannot_do_is_not_exported(tmp_path, monkeypatch):
    file, robot = tmp_path / "it.o", qddot.load("scara")
    with pytest.raises(InputError, match="has loops"):
        qddot.load("fourbar").export_library(file, ["inverse_dynamics"])
    b = qddot.Builder("light")
    b.link("feather")
    b.joint("hinge", "world", "feather", qddot.joints.Revolute((0, 1, 0)))
    with pytest.raises(SingularMassMatrixError, match="hinge"):
        b.robot().export_library(file, ["forward_dynamics"])
    with pytest.raises(UnknownNameError):
        robot.export_library(file, ["backward_dynamics"])
    with pytest.raises(InputError, match="needs functions"):
        robot.export_library(file, [])
    with pytest.raises(InputError, match=r"\('mass_matrix',\) is no function"):
        robot.export_library(file, [("mass_matrix",)])
    with pytest.raises(InputError, match="takes no option 'lanes' in a library; it takes method"):
        robot.export_library(file, [("mass_matrix", {"lanes": 8})])
    monkeypatch.setattr(export_library, "SCRATCH_MAX_BYTES", 100)
    with pytest.raises(KernelTooLargeError, match="bytes of scratch memory"):
        robot.export_library(file, "inverse_dynamics")
    assert not file.exists()
