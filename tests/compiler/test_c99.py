"""Exported C: compiles without a warning, gives the kernel's bits, and needs the stack that it states."""

import ctypes
import dataclasses
import json
import os
import re
import shutil
import subprocess
from itertools import pairwise

import numpy as np
import pytest

import qddot
from qddot import scalars
from qddot.cli.main import main
from qddot.compiler.codegen import c99
from qddot.compiler.codegen.printer import WIDTH, Function
from qddot.compiler.ir import interpreter
from qddot.compiler.ir.fuse import fused
from qddot.compiler.runtime import c_compiler
from qddot.compiler.targets import host as processors
from qddot.compiler.targets.host import architecture, host, native
from qddot.compiler.targets.target import X86
from qddot.dynamics import choose, export, exported_function
from qddot.dynamics.catalogue import ALL, FUNCTIONS
from qddot.errors import FileError, InputError, KernelTooLargeError, SingularMassMatrixError, UnknownNameError
from qddot.robots.generators import random_tree
from tests.support.c_code import COMPILERS, STRICT, call, library, needs_compiler, needs_gcc, run_compiler
from tests.support.kernels import compiled, float_angles, hard_angles
from tests.support.mechanisms import MOVING, needs_of
from tests.support.paths import GOLDEN

SHOWN = ("inverse_dynamics", "forward_dynamics", "mass_matrix", "forward_kinematics", "jacobian")


def states(robot, name, count=5):
    rng = np.random.default_rng(0)
    for _ in range(count):
        q, v = robot.random_state(rng)
        known = {"q": q, "v": v, "a": v[::-1].copy(), "tau": v[::-1].copy()}
        known["f_ext"] = rng.standard_normal((robot.model.n_links, 6))
        yield [known[x] for x in FUNCTIONS[name].inputs]


def agree(folder, robot, jobs, compiler=None, level="-O1"):
    """The bits of C are those of the kernel, for each (function, dtype)."""
    jobs, fma = [(name, dtype, f"{name}_{dtype}") for name, dtype in jobs], host().fma
    made = [robot.export_c(n, **needs_of(n, robot), dtype=d, name=c, cc="", fma=fma).source for n, d, c in jobs]
    lib = library(folder, made, compiler, level)
    for name, dtype, called in jobs:
        kernel = robot.kernel(name, dtype=dtype, **needs_of(name, robot))
        for arrays in states(robot, name):
            expected = kernel(*arrays)
            found = call(lib, called, arrays, expected.size, dtype)
            assert np.isfinite(found).all()
            assert found.tobytes() == expected.tobytes(), f"{called}: {found - expected.ravel()}"


# ---- the same numbers everywhere


QUICKER = ("revolute", "prismatic", "free", "spherical_exponential", "planar", "own")  # the others are slow
KINDS = [pytest.param(kind, marks=() if kind in QUICKER else pytest.mark.slow) for kind in MOVING]


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_joint_has_the_kernels_bits(kind, tmp_path):
    model = random_tree(3, rng=5, kinds=(kind, "revolute"), mimic=kind == "revolute").model()
    single = ("inverse_dynamics", "forward_kinematics")
    agree(tmp_path, qddot.Robot(model), [*((n, "float64") for n in SHOWN), *((n, "float32") for n in single)])


@needs_compiler
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", ["puma560", "stanford", "quadruped"])
def test_embedded_robots_have_the_kernels_bits(name, compiler, tmp_path):
    agree(tmp_path, qddot.load(name), [(n, "float64") for n in SHOWN], compiler, "-O2")


@needs_compiler
def test_every_function_has_the_kernels_bits(tmp_path):
    agree(tmp_path, qddot.load("scara"), [(name, "float64") for name in FUNCTIONS])


@needs_compiler
@pytest.mark.parametrize("fma", [True, False])
def test_the_librarys_sine_gives_the_interpreters_bits(fma, tmp_path):
    robot = qddot.load("stanford")
    names = ("inverse_dynamics", "forward_dynamics")
    lib = library(tmp_path, [robot.export_c(name, name=name, fma=fma, sincos="libm", cc="").source for name in names])
    for name in names:
        plain, *_ = choose.cheapest(robot.model, name, "auto")
        program = fused(plain) if fma else plain
        for arrays in states(robot, name):
            expected = interpreter.run(program, np.concatenate(arrays))
            assert call(lib, name, arrays, robot.nv, "float64").tolist() == expected


@needs_compiler
@pytest.mark.parametrize("options", [{"fma": False}, {"sincos": "libm"}, {"fma": False, "sincos": "libm"}])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 2e-5)])
def test_other_roundings_stay_close(options, dtype, tolerance, tmp_path):
    robot = qddot.load("puma560")  # some hundred roundings of 1e-16, or 6e-8, a result
    lib = library(tmp_path, [robot.export_c("inverse_dynamics", dtype=dtype, name="f", cc="", **options).source])
    kernel = robot.kernel("inverse_dynamics")
    for arrays in states(robot, "inverse_dynamics"):
        expected = kernel(*arrays)
        assert np.max(np.abs(call(lib, "f", arrays, 6, dtype) - expected)) < tolerance * max(1.0, np.max(np.abs(expected)))


@needs_compiler
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("fma", [True, False])
def test_sine_and_cosine(dtype, fma, tmp_path, monkeypatch):
    """The bits of kernels for processors with and without fused multiply-adds."""
    monkeypatch.setattr(processors, "native", lambda: dataclasses.replace(native(), fma=fma))
    kernel, program = compiled(
        lambda x: np.array([scalars.sin(x[0]), scalars.cos(x[0])], dtype=object), [1], (2,), dtype=dtype
    )
    lib = library(tmp_path, [c99.render([Function(program, "f", [("q", 1)], [("out", 2)], dtype, fma=fma)])])
    hard = hard_angles()[::3] if dtype == "float64" else float_angles()[::300]
    angles = np.concatenate([hard, [0.0, -0.0, 1e5, -1e5, 1.0000001e5, -3e7, 1e22, np.inf, -np.inf, np.nan]])
    angles = angles.astype(dtype)
    found = np.array([call(lib, "f", [angles[k : k + 1]], 2, dtype) for k in range(angles.size)])
    expected = kernel(angles[:, None])
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found[:-3]), np.signbit(expected[:-3]))


@needs_compiler
def test_random_arithmetic_has_the_interpreters_bits(tmp_path):
    rng = np.random.default_rng(3)
    programs, sources = [], []
    for k in range(40):

        def function(x):
            pool = list(x)
            for _ in range(30):
                a, b, c = (pool[i] for i in rng.integers(0, len(pool), 3))
                a = a if rng.uniform() < 0.8 else float(rng.standard_normal())
                made = [
                    a + b,
                    a - b,
                    a * b,
                    a / (b * b + 1.0),
                    -b,
                    a * b - c,
                    c - a * b,
                    -(b * c) - b,
                    scalars.where(scalars.less(b, a), c, -b),
                    scalars.sqrt(b * b + 0.5),
                    scalars.arctan2(b, c),
                ]
                pool.append(made[rng.integers(len(made))])
            return np.array([*pool[-3:], pool[0], 1.5], dtype=object)  # an input and a number are results too

        plain, _ = compiled_program(function)
        programs += [plain, fused(plain)]
        sources += [
            c99.render([Function(program, f"f{2 * k + j}", [("x", 2), ("y", 2)], [("z", 5)], fma=bool(j))])
            for j, program in enumerate(programs[-2:])
        ]
    lib = library(tmp_path, sources)
    for k, program in enumerate(programs):
        for _ in range(3):
            x = rng.standard_normal(4)
            found = call(lib, f"f{k}", [x[:2], x[2:]], 5, "float64")
            assert np.array_equal(found, interpreter.run(program, x), equal_nan=True)


def compiled_program(function):
    from qddot.compiler.ir.expr import trace
    from qddot.compiler.ir.program import straight_line

    graph, nodes, _ = trace(lambda x, y: function([*x, *y]), [2, 2])
    return straight_line(graph, nodes, 4), graph


@needs_compiler
def test_results_may_overwrite_an_input(tmp_path):
    robot = qddot.load("puma560")
    found = robot.export_c("inverse_dynamics", name="f", cc="")
    assert "may be one of the inputs" in found.source
    lib = library(tmp_path, [found.source])
    (q, v, a), *_ = states(robot, "inverse_dynamics")
    expected = call(lib, "f", [q, v, a], 6, "float64")
    for k in range(3):
        arrays = [x.copy() for x in (q, v, a)]
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in arrays]
        lib.f(*pointers, pointers[k])
        assert np.array_equal(arrays[k], expected)
    assert "must not overlap an input" in robot.export_c("mass_matrix", cc="").source


# ---- what compilers say


@needs_gcc
@pytest.mark.parametrize("options", [{}, {"dtype": "float32"}, {"cflags": "-mfma"}, {"fma": False}, {"inline": True}])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_stated_stack_is_what_the_compiler_reports(options, compiler, tmp_path):
    if "-mfma" in options.get("cflags", "") and architecture() != X86:
        pytest.skip("-mfma is a flag for x86")
    found = qddot.load("puma560").export_c("forward_dynamics", cc=compiler, **options)
    stated = int(re.search(r"\* stack +(\d+) bytes", found.source)[1])
    flags = re.search(r"; (-std=c99 .*?)\)", " ".join(found.source.replace(" * ", " ").split()))[1].split()
    text = found.source
    if options.get("inline"):  # an inline function nobody calls has no stack
        text = text.replace("static inline void", "void")
    (tmp_path / "it.c").write_text(text)
    run_compiler(compiler, *flags, "-fstack-usage", "-c", str(tmp_path / "it.c"), "-o", str(tmp_path / "it.o"))
    rows = [line.split("\t") for line in (tmp_path / "it.su").read_text().splitlines()]
    assert all(row[2] in ("static", "dynamic,bounded") for row in rows)  # the bound is one
    assert sum(int(row[1]) for row in rows) == stated == found.stack_bytes
    assert found.code_bytes is None or found.code_bytes > 1000


@needs_gcc
@pytest.mark.skipif(not shutil.which("nm"), reason="there is no nm")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_nothing_but_the_librarys_functions_is_called_and_nothing_is_kept(dtype, tmp_path):
    text = qddot.load("puma560").export_c("forward_dynamics", dtype=dtype, cc="").source
    (tmp_path / "it.c").write_text(text)
    run_compiler("gcc", "-std=c99", "-O2", "-fno-pic", "-c", str(tmp_path / "it.c"), "-o", str(tmp_path / "it.o"))
    rows = [line.split() for line in run_compiler("nm", str(tmp_path / "it.o")).splitlines()]
    assert {row[-1] for row in rows if row[-2] == "U"} <= {"fma", "fmaf", "sin", "cos", "sincos", "sqrt", "sqrtf", "atan2"}
    assert not [row for row in rows if row[-2] in "BbDdC"]


@needs_gcc
def test_no_undefined_behaviour_even_of_what_is_no_number(tmp_path):
    text = qddot.load("puma560").export_c("forward_dynamics", name="f", cc="").source
    (tmp_path / "it.c").write_text(
        text
        + """
int main(void)
{
    const double strange[9] = {0.0, -0.0, 1.0, 1e5, -1e5, 1e300, (double)INFINITY, -(double)INFINITY, (double)NAN};
    for (int k = 0; k < 9; k++) {
        double x[6], y[6];
        for (int i = 0; i < 6; i++)
            x[i] = strange[k];
        f(x, x, x, y);
    }
    return 0;
}
"""
    )
    sanitize = ["-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    command = ["gcc", "-std=c99", "-O1", *sanitize, str(tmp_path / "it.c"), "-o", str(tmp_path / "it"), "-lm"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this gcc has no sanitizer")
    done = subprocess.run([str(tmp_path / "it")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@needs_compiler
def test_inline_headers_stand_together_and_in_cplusplus(tmp_path):
    robot = qddot.load("scara")
    names = ["inverse_dynamics", "mass_matrix"]
    for name in names:
        robot.export_c(name, tmp_path / f"{name}.h", inline=True, cc="")
        assert not (tmp_path / f"{name}.c").exists()
    robot.export_c("jacobian", tmp_path / "plain.c", frame=robot.frame_names[-1], cc="")
    lines = [f'#include "{name}.h"' for name in (*names, *names, "plain")]
    body = "int main(void)\n{\n    double q[4] = {0}, M[16];\n    scara_mass_matrix(q, M);\n    return !(M[0] > 0);\n}\n"
    (tmp_path / "it.c").write_text("\n".join([*lines, body]))
    plain = [w for w in STRICT if w not in ("-std=c99", "-Wmissing-prototypes")]
    for compiler, flags in [*((c, STRICT) for c in COMPILERS), ("g++", [*plain, "-x", "c++"])]:
        if shutil.which(compiler):
            unused = ["-Wno-unused-function"]  # inverse dynamics is not called
            run_compiler(compiler, *flags, *unused, str(tmp_path / "it.c"), "-o", str(tmp_path / "it"), "-lm")
            assert subprocess.run([str(tmp_path / "it")]).returncode == 0


# ---- how it reads


def test_golden_files():
    """What is exported stays as it is, but for what a compiler measured. `QDDOT_UPDATE=1 pytest` writes it anew."""
    robot = qddot.load("double_pendulum")
    cases = {
        "forward_dynamics.c": ("forward_dynamics", {}),
        "inverse_dynamics_float32.c": ("inverse_dynamics", {"dtype": "float32"}),
        "inverse_dynamics_float32_plain.c": ("inverse_dynamics", {"dtype": "float32", "sincos": "libm", "fma": False}),
        "jacobian_inline.h": ("jacobian", {"frame": "bob2", "inline": True}),
    }
    for file, (name, options) in cases.items():
        text = robot.export_c(name, cc="", **options).source.replace(f"qddot {qddot.__version__}", "qddot VERSION")
        if os.environ.get("QDDOT_UPDATE"):
            (GOLDEN / file).write_text(text)
        assert text == (GOLDEN / file).read_text(), f"{file} is another now; look, and update if it is better"


def test_measuring_changes_nothing_but_two_lines():
    robot = qddot.load("double_pendulum")
    plain = robot.export_c("forward_dynamics", cc="").source
    assert "stack       not measured: no C compiler was asked" in plain
    if COMPILERS:
        measured = robot.export_c("forward_dynamics").source
        assert strip(measured) == strip(plain)
        assert re.search(r"stack +\d+ bytes", measured)


def strip(text):
    return re.sub(r" \* stack .*?(?= \*\n)", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("name", ["puma560", "quadruped"])
def test_lines_are_short_and_ascii(name):
    text = qddot.load(name).export_c("forward_dynamics", cc="").source
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= WIDTH + 4
    for link in qddot.load(name).link_names:
        assert f"/* {link}: " in text


def test_fusing_keeps_the_sections():
    plain, *_ = choose.cheapest(qddot.load("puma560").model, "forward_dynamics", "auto")
    labels = [(symbol, link) for symbol, link, _ in plain.sections()]
    after = [(symbol, link) for symbol, link, _ in fused(plain).sections()]
    rest = iter(labels)
    assert all(label in rest for label in after)  # the same ones in the same order, but for those that became empty
    assert len(after) > 0.9 * len(labels)
    for program in (plain, fused(plain)):
        assert [n for *_, nodes in program.sections() for n in nodes] == program.body
    assert all(a <= b for a, b in pairwise(end for end, *_ in fused(plain).graph.marks))


def test_the_head_says_what_the_coordinates_are():
    text = qddot.load("quadruped").export_c("inverse_dynamics_with_forces", cc="").source
    flat = " ".join(text.split("*/")[0].replace(" * ", " ").split())
    assert "unit quaternion x, y, z, w" in flat
    assert "twist in the child's frame: angular rad/s, linear m/s" in flat
    assert "moment N m then force N" in flat
    assert "tau + passive(q, v) + J^T f_ext" in flat
    assert set(exported_function.ABOUT) <= set(ALL)


@pytest.mark.parametrize(
    ("x", "double", "single"),
    [
        (0.1, "0.1", "0.1f"),
        (-1.0 / 3.0, "-0.3333333333333333", "-0.33333334f"),
        (1e22, "1e+22", "1e+22f"),
        (2.0, "2.0", "2.0f"),
        (np.nan, "(double)NAN", "(float)NAN"),
        (-np.inf, "-(double)INFINITY", "-(float)INFINITY"),
    ],
)
def test_numbers(x, double, single):
    assert c99.number(x, "float64") == double
    assert c99.number(x, "float32") == single


def test_numbers_beyond_float32():
    with pytest.raises(InputError, match="does not fit into float32"):
        c99.number(1e300, "float32")


# ---- names, files and errors


def test_names_never_collide():
    names = ["arm", "my-arm", "my arm", "my_arm", "my__arm", "7dof", "_arm", "arm_", "", "ärm", "a*/b", "double"]
    made = [exported_function.identifier(name, "pose") for name in names]
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"[A-Za-z]\w*", name) and name.isascii() for name in made)
    assert exported_function.identifier("panda", "forward_dynamics") == "panda_forward_dynamics"


@needs_compiler
def test_strange_names_do_no_harm(tmp_path):
    b = qddot.Builder('*/ int x; /* "ü\\')
    b.link("/* not a comment */", mass=1.0, com=(0.1, 0.0, 0.0))
    b.joint("a\nb ??/", "world", "/* not a comment */", qddot.joints.Revolute((0, 1, 0)))
    found = b.robot().export_c("inverse_dynamics", cc="")
    library(tmp_path, [found.source, found.header + "extern int nothing;\n"])


def test_export_to_files(tmp_path, capsys):
    out = tmp_path / "out.c"
    assert main(["export", "scara", "--function", "forward_dynamics", "-o", str(out)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.c", "out.h"]
    assert "void scara_forward_dynamics(" in out.read_text()
    assert 'extern "C"' in (tmp_path / "out.h").read_text()
    assert "scara_forward_dynamics by " in capsys.readouterr().err


def test_export_to_the_terminal(capsys):
    assert main(["export", "scara", "--function", "jacobian", "--frame", "tip", "--cc", "", "--name", "J_of_tool"]) == 0
    assert "void J_of_tool(const double q[4], double J[24])" in capsys.readouterr().out
    arguments = [
        "export",
        "scara",
        "--function",
        "mass_matrix",
        "--json",
        "--no-fma",
        "--dtype",
        "float32",
        "--sincos",
        "libm",
    ]
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["operations"]["mul"] > 0
    assert "fmaf" not in report["source"]
    assert "cosf(" in report["source"]
    if COMPILERS:
        assert report["stack_bytes"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--function", "inverse_dynamic"], "did you mean 'inverse_dynamics'"),
        (["--function", "jacobian"], "needs frame="),
        (["--function", "jacobian", "--frame", "tiip"], "did you mean 'tip'"),
        (["--function", "mass_matrix", "--method", "magic"], "no method 'magic'"),
        (["--function", "mass_matrix", "--dtype", "float16"], "dtype='float16'"),
        (["--function", "mass_matrix", "--sincos", "mine"], "take 'own' or 'libm'"),
        (["--function", "mass_matrix", "--name", "2nd"], "cannot be the name of a C function"),
        (["--function", "mass_matrix", "--name", "double"], "cannot be the name of a C function"),
        (["--function", "mass_matrix", "--cc", "no-such-cc"], "no C compiler 'no-such-cc'"),
        (["--function", "mass_matrix", "--cc", "gcc '"], "cannot be read"),
        (["--function", "mass_matrix", "-o", "/no/such/folder/out.c"], "/no/such/folder/out.c"),
        (["--function", "mass_matrix", "-o", "out.h"], "ends in .c"),
    ],
)
def test_errors(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "scara", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@needs_gcc
def test_flags_that_the_compiler_refuses():
    with pytest.raises(InputError, match="no-such-flag"):
        qddot.load("scara").export_c("mass_matrix", cc="gcc", cflags="--no-such-flag")


def test_without_a_compiler(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    found = qddot.load("scara").export_c("mass_matrix")
    assert "stack       not measured: no C compiler was found" in found.source
    assert (found.stack_bytes, found.code_bytes, found.compiler) == (None, None, "")
    monkeypatch.setenv("CC", "/bin/false")
    assert "not measured: " in qddot.load("scara").export_c("mass_matrix").source


def test_too_large(monkeypatch):
    monkeypatch.setattr(export, "MOST_OPERATIONS", 100)
    with pytest.raises(KernelTooLargeError, match="more than 100"):
        qddot.load("puma560").export_c("inverse_dynamics")


def test_what_a_robot_cannot_do_is_not_exported():
    with pytest.raises(InputError, match="has loops"):
        qddot.load("fourbar").export_c("inverse_dynamics")
    b = qddot.Builder("light")
    b.link("feather")
    b.joint("hinge", "world", "feather", qddot.joints.Revolute((0, 1, 0)))
    with pytest.raises(SingularMassMatrixError, match="hinge"):
        b.robot().export_c("forward_dynamics")
    with pytest.raises(UnknownNameError):
        b.robot().export_c("backward_dynamics")


def test_a_file_is_never_half_written(tmp_path, monkeypatch):
    out = tmp_path / "out.c"
    out.write_text("old")
    found = qddot.load("scara").export_c("mass_matrix", cc="")

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export.os, "replace", fails)
    with pytest.raises(FileError, match="No space left"):
        export.write(found, out)
    assert [p.name for p in tmp_path.iterdir()] == ["out.c"]
    assert out.read_text() == "old"


def test_stack_usage_files():
    text = "it.c:30:6:f\t544\tstatic\nit.c:12:13:f_sincos.part.0\t80\tstatic\n"
    assert c_compiler.read_stack_usage(text) == {"f_sincos.part.0": 80, "f": 544}
