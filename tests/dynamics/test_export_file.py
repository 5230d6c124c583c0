"""Several functions in one C file: the kernels' bits, what they share, free parameters, loops, names and errors."""

import json
import re
import shutil

import numpy as np
import pytest

import qddot
from qddot.cli.main import main
from qddot.compiler.ir import interpreter
from qddot.compiler.targets.host import host
from qddot.dynamics import export, export_file
from qddot.dynamics.catalogue import ALL, input_shapes
from qddot.dynamics.trace import traced
from qddot.errors import InputError, KernelTooLargeError, UnknownNameError
from qddot.mechanism import parameters
from tests.support.c_code import STRICT, call, library, needs_compiler, run_compiler
from tests.support.paths import ROOT

FMA = host().fma
SHOWN = ["inverse_dynamics", "forward_dynamics", "mass_matrix", ("jacobian", {"frame": "tip"})]
TERMS = ("terms", ["mass_matrix", "bias_force", ("pose", {"frame": "tip"}), ("jacobian", {"frame": "tip"})])


OTHERS = ("puma560", "stanford", "quadruped")


def state(robot):
    q, v = robot.random_state(1)
    rng = np.random.default_rng(2)
    known = {"q": q, "v": v, "a": rng.standard_normal(robot.nv), "tau": rng.standard_normal(robot.nv)}
    return known | {"f_ext": rng.standard_normal((robot.model.n_links, 6)), "gains": np.array([3.0, 2.0])}


def agree(folder, robot, functions, **options):
    """The bits of every function of a file are those of its kernel."""
    found = robot.export_c(functions, cc="", fma=FMA, **options)
    lib, given, dtype = library(folder, [found.source]), state(robot), options.get("dtype", "float64")
    wanted = export_file.listed(functions, {"free": options.get("free", ())})
    for (name, own), function in zip(wanted, found.functions, strict=True):
        free = own.get("free", ())
        kernel = robot.kernel(name, dtype=dtype, **{**own, "free": free})
        arrays = [given[x] for x in ALL[name].inputs] + [robot.parameters(x) for x in free]
        expected = kernel(*(np.asarray(x, dtype) for x in arrays))
        result = call(lib, function.name, arrays, expected.size, dtype)
        assert np.isfinite(result).all()
        assert result.tobytes() == expected.tobytes(), function.name
    return found


def parsed_call(lib, robot, code, dtype="float64", given=None):
    """A combined function by its printed signature: results by name."""
    import ctypes

    given = state(robot) if given is None else given
    inputs = [np.ascontiguousarray(given[x], dtype) for x, _ in code.inputs]
    outputs = {x: np.full(n, 7.0, dtype) for x, n in code.outputs}
    arrays = [*inputs, *outputs.values()]
    getattr(lib, code.name)(*(ctypes.c_void_p(x.ctypes.data) for x in arrays))
    return outputs


# ---- the same numbers as everywhere


@needs_compiler
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_functions_of_one_file_have_the_kernels_bits(dtype, tmp_path):
    found = agree(tmp_path, qddot.load("scara"), SHOWN, dtype=dtype)
    assert found.source.count("static void") == 1  # sine and cosine, which they share
    assert found.source.count("static void scara_sincos(") == 1
    assert [f.name for f in found.functions] == [
        *(f"scara_{x}" for x in SHOWN[:3]),
        "scara_jacobian_tip",
    ]


@needs_compiler
def test_prescribed_joints(tmp_path):
    robot = qddot.load("scara")
    some = {"prescribed": [robot.joint_names[0], robot.joint_names[2]]}
    found = agree(tmp_path, robot, [("hybrid_dynamics", some), ("hybrid_dynamics_with_forces", some)])
    assert f"with prescribed accelerations of {robot.joint_names[0]}, {robot.joint_names[2]}" in flat(found.header)


@needs_compiler
def test_functions_of_robots_with_loops(tmp_path):
    robot = qddot.load("fourbar")
    hybrid = ("constrained_hybrid_dynamics", {"prescribed": [robot.joint_names[0]]})
    names = ["constrained_forward_dynamics", "constrained_forward_dynamics_with_forces", hybrid, "constraint_jacobian"]
    found = agree(tmp_path, robot, [*names, "constraint_residual", "constraint_bias", "mass_matrix"])
    assert "third number from the end is from 0 to" in flat(found.header)


@needs_compiler
def test_free_parameters_are_arguments(tmp_path):
    robot = qddot.load("scara")
    link, joint = robot.link_names[-1], robot.joint_names[0]
    free = [f"{link}.mass", f"{link}.com", f"{joint}.damping", "gravity"]
    found = agree(tmp_path, robot, ["inverse_dynamics", "gravity_force"], free=free)
    assert f"const double {link}_mass[1], const double {link}_com[3]" in flat(found.header)
    assert "const double gravity_vector[3], double gravity[4]" in flat(found.header)


def test_functions_take_the_free_parameters_that_they_depend_on():
    robot = qddot.load("scara")
    free = ["tool.mass", "tool.position", "joint1.damping"]
    functions = [
        "gravity_force",
        ("pose", {"frame": "tip"}),
        "inverse_dynamics",
        ("terms", ["mass_matrix", "passive_force"]),
    ]
    text = flat(robot.export_c(functions, free=free, cc="").header)
    of_pose, of_gravity = "double tool_position[3]", "double tool_mass[1], const double tool_position[3]"
    assert f"scara_pose_tip(const double q[4], const {of_pose}, double T[16])" in text
    assert f"scara_gravity_force( const double q[4], const {of_gravity}, double gravity[4])" in text
    assert f"const {of_gravity}, const double joint1_damping[1], double tau[4])" in text
    assert f"const {of_gravity}, const double joint1_damping[1], double M[16], double passive[4])" in text


def test_every_kind_of_parameter_is_known():
    """A kind that stands in none of the sets would be taken away from functions that depend on it."""
    own = set().union(*export_file.DEPENDS_ON.values())
    assert own == set(parameters.KINDS)
    assert parameters.DESCRIPTIONS.keys() == set(parameters.KINDS)


def test_a_payload_is_an_argument():
    text = flat(qddot.load("scara").export_c(["mass_matrix", "inverse_dynamics"], free=["tip.payload_mass"], cc="").header)
    assert text.count("const double tip_payload_mass[1]") == 2


@pytest.mark.parametrize("function", sorted(export_file.DEPENDS_ON))
def test_functions_depend_on_nothing_else(function):
    """No operation reads a parameter that a function is said not to depend on, even if all are free."""
    robot = qddot.load("fourbar" if function.startswith("constraint") else "scara")
    kinds = ["inertia", "placement", "armature", "damping", "friction", "gravity"]
    others = [x for x in kinds if x not in export_file.DEPENDS_ON[function]]
    if "payload" not in export_file.DEPENDS_ON[function]:
        others.append(f"{robot.frame_names[-1]}.payload")
    assert others
    needs = {"frame": robot.frame_names[-1]} if "frame" in ALL[function].needs else {}
    program = traced(robot.model, function, "auto", free=others, **needs)
    own = sum(np.prod(s, dtype=int) for s in input_shapes(robot.model, ALL[function]))
    args, ops = program.graph.args, program.graph.ops
    read = {args[x][0] for n in program.body for x in args[n] if ops[x] == "input"}
    assert not [k for k in read if k >= own]


@needs_compiler
def test_one_function_takes_free_parameters_too(tmp_path):
    robot = qddot.load("scara")
    name = f"{robot.link_names[-1]}.mass"
    source = robot.export_c("inverse_dynamics", free=[name], name="f", cc="", fma=FMA).source
    lib, given = library(tmp_path, [source]), state(robot)
    kernel = robot.kernel("inverse_dynamics", free=[name])
    for mass in (robot.parameters(name), np.array(7.5)):
        arrays = [given["q"], given["v"], given["a"], mass]
        assert call(lib, "f", arrays, 4, "float64").tobytes() == kernel(*arrays).tobytes()


# ---- what is shared


@needs_compiler
@pytest.mark.parametrize("fma", [True, False])
def test_a_combined_function_has_the_interpreters_bits(fma, tmp_path):
    robot = qddot.load("scara")
    wanted, options = robot._functions([TERMS], {"fma": fma, "sincos": "libm", "cc": ""}, "test")
    found, (printed,) = export_file.file_of(robot.model, wanted, options)
    lib, given = library(tmp_path, [found.source]), state(robot)
    results = parsed_call(lib, robot, printed.code)
    expected = interpreter.run(printed.code.program, np.concatenate([given["q"], given["v"]]))
    assert np.concatenate(list(results.values())).tolist() == expected
    assert list(results) == ["M", "bias", "T", "J"]


@needs_compiler
@pytest.mark.parametrize("name", ["planar3", "fourbar", *(pytest.param(x, marks=pytest.mark.slow) for x in OTHERS)])
def test_combined_results_are_those_of_the_functions(name, tmp_path):
    robot = qddot.load(name)
    frames = [robot.link_names[-1], robot.link_names[0]]
    parts = ["mass_matrix", "bias_force", "gravity_force", "momentum", "coriolis_matrix"]
    if name != "fourbar":
        parts += ["inverse_dynamics", "forward_dynamics"]
    wanted, options = robot._functions([("all", [*parts, "jacobian", "pose"])], {"cc": "", "frame": frames}, "test")
    found, (printed,) = export_file.file_of(robot.model, wanted, options)
    results = list(parsed_call(library(tmp_path, [found.source], level="-O0"), robot, printed.code).values())
    given, eager = state(robot), qddot.Robot(robot.model, compiled=False).engine
    for part, result in zip(printed.exported.parts, results, strict=True):
        inputs = [given[x] for x in ALL[part.function].inputs]
        expected = np.ravel(eager.evaluate(part.function, *inputs, **part.static))
        scale = max(1.0, np.abs(expected).max())
        assert np.abs(result - expected).max() < 1e-11 * scale, part.function  # other formulations round otherwise


DYNAMICS = ("dynamics", ["inverse_dynamics", "forward_dynamics", "mass_matrix", "bias_force"])


@pytest.mark.parametrize(
    ("name", "what", "least"),
    [
        *(("puma560", "terms", 0.14), ("stanford", "terms", 0.15), ("stanford", "dynamics", 0.39)),
        pytest.param("puma560", "dynamics", 0.42, marks=pytest.mark.slow),
        pytest.param("quadruped", "terms", 0.06, marks=pytest.mark.slow),
    ],
)
def test_combining_saves_operations(name, what, least):
    """The figures of docs/c_projects.md."""
    page = (ROOT / "docs" / "c_projects.md").read_text(encoding="utf-8")
    robot = qddot.load(name)
    wanted = robot.control_functions(robot.frame_names[-1])[-1] if what == "terms" else DYNAMICS
    (function,) = robot.export_c([wanted], cc="").functions
    now, apart = (sum(x.values()) for x in (function.operations, function.apart))
    saved = 1.0 - now / apart
    assert saved > least
    sincos = f"{function.apart['sincos']} → {function.operations['sincos']}"
    title = "`control_terms`" if what == "terms" else "inverse and forward dynamics, mass matrix, bias"
    row = f"| {name} | {title} | {apart} | {now} | {100 * saved:.0f} % | {sincos} |"
    assert row in page, row


def test_forward_dynamics_beside_the_mass_matrix_is_computed_from_it():
    """Which costs less than a recursion of its own: formulations are chosen together."""
    robot = qddot.load("stanford")
    (function,) = robot.export_c([("both", ["forward_dynamics", "mass_matrix"])], cc="").functions
    alone = robot.export_c(["forward_dynamics"], cc="").functions[0].operations
    assert sum(function.operations.values()) < 1.05 * sum(alone.values())
    assert "composite_body_factored" in function.method


def test_results_have_names_of_their_own():
    robot = qddot.load("scara")
    parts = ["inverse_dynamics", "forward_dynamics", ("jacobian", {"frame": "tip"}), ("jacobian", {"frame": "quill"})]
    text = flat(robot.export_c([("all", parts)], cc="").header)
    assert "double tau_out[4], double a_out[4], double J_tip[24], double J_quill[24]" in text
    with pytest.raises(InputError, match="two results"):
        robot.export_c([("all", ["mass_matrix", "mass_matrix"])], cc="")


# ---- compilers and names


@needs_compiler
@pytest.mark.parametrize("options", [{}, {"dtype": "float32", "fma": False}], ids=str)
def test_c_and_cplusplus_take_the_file(options, tmp_path):
    """Without a warning; compiled as C++, the file links with what includes its header."""
    qddot.load("double_pendulum").export_c(
        ["inverse_dynamics", "mass_matrix"], tmp_path / "it.c", name="it", cc="", **options
    )
    T = "float" if "dtype" in options else "double"
    use = f'#include "it.h"\nint main() {{ {T} q[2] = {{}}, M[4]; it_mass_matrix(q, M); return !(M[0] > 0); }}\n'
    (tmp_path / "use.cpp").write_text(use)
    run_compiler("gcc", *STRICT, "-c", str(tmp_path / "it.c"), "-o", str(tmp_path / "it.o"))
    if shutil.which("g++"):
        plain = [w for w in STRICT if w not in ("-std=c99", "-Wmissing-prototypes")]
        source = ["-x", "c++", str(tmp_path / "use.cpp"), str(tmp_path / "it.c")]  # all of it as C++
        run_compiler("g++", *plain, *source, "-o", str(tmp_path / "it"), "-lm")
        run_compiler(str(tmp_path / "it"))


@needs_compiler
def test_strange_names_do_no_harm(tmp_path):
    robot = strange()
    link = robot.link_names[0]
    parts = ["mass_matrix", ("pose", {"frame": link}), ("jacobian", {"frame": link})]
    found = robot.export_c(["inverse_dynamics", *parts, ("all", parts)], free=[f"{link}.mass", "sin_x.damping"], cc="")
    assert found.header.isascii()
    library(tmp_path, [found.source, found.header + "extern int nothing;\n"])


def strange():
    b = qddot.Builder('*/ int x; /* "ü\\')
    b.link("/* not a comment */ %s%n", mass=1.0, com=(0.1, 0.0, 0.0))
    b.link("sin_q", mass=1.0, com=(0.1, 0.0, 0.0))
    b.joint("a\nb ??/", "world", "/* not a comment */ %s%n", qddot.joints.Revolute((0, 1, 0)))
    b.joint("sin_x", "/* not a comment */ %s%n", "sin_q", qddot.joints.Revolute((0, 1, 0)))
    return b.robot()


def flat(text):
    return " ".join(text.replace(" * ", " ").split())


@needs_compiler
def test_the_stated_stack_is_that_of_a_function_and_its_sine(tmp_path):
    found = qddot.load("scara").export_c(["inverse_dynamics", "mass_matrix"], tmp_path / "it.c", cc="gcc")
    flags = ["-std=c99", "-O2", "-fstack-usage"]
    run_compiler("gcc", *flags, "-c", str(tmp_path / "it.c"), "-o", str(tmp_path / "it.o"))
    rows = [line.split("\t") for line in (tmp_path / "it.su").read_text().splitlines()]
    stack = {row[0].split(":")[-1]: int(row[1]) for row in rows}
    helpers = sum(n for name, n in stack.items() if "sincos" in name)
    for f in found.functions:
        assert f.stack_bytes == stack[f.name] + helpers
        assert f"{f.stack_bytes} bytes, without libm's" in found.header
    assert found.code_bytes > 1000


# ---- the command


def test_a_repeated_function_writes_one_file(tmp_path, capsys):
    out = tmp_path / "arm.c"
    names = ["--function", "inverse_dynamics", "--function", "mass_matrix", "--function", "jacobian", "--frame", "tip"]
    assert main(["export", "scara", *names, "-o", str(out), "--combined", "terms"]) == 0
    said = capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["arm.c", "arm.h"]
    header = (tmp_path / "arm.h").read_text()
    for name in ("inverse_dynamics", "mass_matrix", "jacobian_tip", "terms"):
        assert re.search(rf"^void scara_{name}\(", header, re.MULTILINE)
        assert f"scara_{name} by " in said
    assert re.search(r"\(\d+ operations instead of \d+\)", said)


def test_all_control(capsys):
    assert main(["export", "scara", "--all", "control", "--cc", "", "--json", "--prescribed", "joint1"]) == 0
    report = json.loads(capsys.readouterr().out)
    names = ["inverse_dynamics", "forward_dynamics", "hybrid_dynamics", "gravity_force", "mass_matrix", "bias_force"]
    names += ["passive_force", "pose_tip", "jacobian_tip", "jacobian_derivative_tip", "control_terms"]
    assert [f["name"] for f in report["functions"]] == [f"scara_{x}" for x in names]
    assert report["source"].isascii()
    assert report["header"].count("void scara_") == len(names)
    assert main(["export", "fourbar", "--all", "control", "--cc", ""]) == 0
    printed, said = capsys.readouterr()
    assert "fourbar ends in several links: give --frame" in said
    assert "fourbar_jacobian" not in printed
    for name in ("constrained_forward_dynamics", "constraint_jacobian", "control_terms"):
        assert f"void fourbar_{name}(" in printed


def test_several_frames(capsys):
    names = ["--function", "jacobian", "--frame", "link6", "--frame", "link3", "--cc", ""]
    assert main(["export", "puma560", *names, "--name", "arm"]) == 0
    printed = capsys.readouterr().out
    assert "void arm_jacobian_link6(" in printed
    assert "void arm_jacobian_link3(" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --function NAME, or --all control"),
        (["--function", "mass_matrix", "--function", "inverse_dynamic"], "did you mean 'inverse_dynamics'"),
        (["--function", "mass_matrix", "--function", "jacobian"], "needs frame="),
        (["--function", "mass_matrix", "--function", "bias_force", "--frame", "tip"], "none of the functions takes frame="),
        (["--function", "mass_matrix", "--function", "mass_matrix"], "give one of them another name="),
        (["--function", "mass_matrix", "--function", "bias_force", "--method", "denoc"], "--method is for one function"),
        (["--function", "mass_matrix", "--function", "bias_force", "--inline"], "--inline is for one function"),
        (["--function", "mass_matrix", "--function", "bias_force", "--free", "tip.mas"], "no parameter 'tip.mas'"),
        (
            ["--function", "mass_matrix", "--function", "bias_force", "--free", "joint1.damping"],
            "depends on 'joint1.damping'",
        ),
        (["--function", "mass_matrix", "--function", "bias_force", "--name", "2nd"], "cannot be the name"),
        (["--function", "mass_matrix", "--layout", "cmake"], "-o FOLDER"),
        (["--all", "control", "--combined", "x"], "--all control has control_terms"),
        (["--all", "control", "--target", "cortex-m4"], "--target is for --library"),
        (["--all", "control", "--library", "it.o"], "--all is for source code"),
    ],
)
def test_errors(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "scara", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_errors_in_python(monkeypatch):
    robot = qddot.load("scara")
    with pytest.raises(InputError, match="needs functions"):
        robot.export_c([])
    with pytest.raises(InputError, match="3 is no name; give a name, or a list of names"):
        robot.export_c(["pose"], frame=3)
    with pytest.raises(InputError, match="combines no functions"):
        robot.export_c([("terms", [])])
    with pytest.raises(InputError, match=r"3 is no function; give a name"):
        robot.export_c(["mass_matrix", 3])
    with pytest.raises(InputError, match="takes no option 'lanes' in a file"):
        robot.export_c([("mass_matrix", {"lanes": 8})])
    with pytest.raises(TypeError, match="export_c\\(\\) got an unexpected keyword argument 'freee'; did you mean 'free'"):
        robot.export_c(["mass_matrix"], freee=["gravity"])
    for functions in ("mass_matrix", ["mass_matrix"]):  # export_source has a language
        with pytest.raises(TypeError, match=r"^export_c\(\) got an unexpected keyword argument 'language'"):
            robot.export_c(functions, language="c99")
    with pytest.raises(InputError, match="dtype='float16'"):
        robot.export_c(["mass_matrix"], dtype="float16")
    with pytest.raises(InputError, match="is a name of the file's own"):
        robot.export_c([("mass_matrix", {"name": "scara_sincos"})], cc="")
    with pytest.raises(InputError, match="has loops"):
        qddot.load("fourbar").export_c(["inverse_dynamics", "mass_matrix"])
    with pytest.raises(UnknownNameError):
        robot.export_c([("jacobian", {"frame": "tap"})])
    monkeypatch.setattr(export, "MOST_OPERATIONS", 50)  # each of them has fewer
    with pytest.raises(KernelTooLargeError, match="terms of 'scara'"):
        robot.export_c([("terms", ["mass_matrix", "inverse_dynamics", "forward_dynamics"])], cc="")
