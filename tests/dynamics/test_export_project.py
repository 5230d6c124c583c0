"""C projects: built with CMake and used by another project, as sketches, and the example's results bit by bit."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import qddot
from qddot import robots
from qddot.cli.main import main
from qddot.compiler.ir import interpreter
from qddot.dynamics import export_file
from qddot.errors import FileError, InputError
from tests.dynamics.test_export_file import strange
from tests.support.c_code import STRICT, needs_compiler, run_compiler

needs_cmake = pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("gcc")), reason="there is no CMake")
needs_cplusplus = pytest.mark.skipif(not shutil.which("g++"), reason="there is no C++ compiler")
FEW = ["inverse_dynamics", ("terms", ["mass_matrix", "bias_force"])]
ARDUINO = """#include <cstdio>
struct Port {
    void begin(long) {}
    explicit operator bool() const { return true; }
    void print(const char *x) { std::printf("%s", x); }
    void print(char x) { std::printf("%c", x); }
    void print(double x, int digits) { std::printf("%.*g", digits, x); }
    void println(const char *x) { std::printf("%s\\n", x); }
};
static Port Serial;
"""
CONSUMER = """cmake_minimum_required(VERSION 3.15)
project(consumer LANGUAGES C CXX)
find_package(ROBOT 1.0 REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE ROBOT::ROBOT)
"""
USE = """#include <cstdio>
#include <ROBOT.h>

int main()
{
    const double q[4] = {0.1, 0.2, 0.3, 0.4};
    double gravity[4];
    ROBOT_gravity_force(q, gravity);
    for (double x : gravity)
        std::printf("%.17g\\n", x);
}
"""


def printed_results(text):
    """What an example prints, by function and result."""
    *rows, end = text.strip().splitlines()
    assert end == "ok", text
    return {tuple(row.split()[:2]): [float(x) for x in row.split()[2:]] for row in rows}


def expected_results(robot, functions, **options):
    """The same by the interpreter."""
    wanted, chosen = robot._functions(functions, {"cc": "", **options}, "test")
    _, printed = export_file.file_of(robot.model, wanted, chosen)
    state, found = robot._example_state(printed), {}
    for exported, _, code in printed:
        inputs = np.concatenate([np.ravel(state[x]) for x in exported.input_names])
        results, at = interpreter.run(code.program, inputs), 0
        for name, n in code.outputs:
            found[code.name, name] = results[at : at + n]
            at += n
    return found


# ---- CMake


@needs_cmake
def test_the_package_is_built_installed_and_found(tmp_path):
    """With strict warnings; the example prints the interpreter's bits; a C++ project finds the package."""
    robot, folder, build = qddot.load("scara"), tmp_path / "arm", tmp_path / "build"
    made = robot.export_project(folder, sincos="libm", cc="")
    assert {str(p.relative_to(folder)) for p in made.files} == {
        *("CMakeLists.txt", "README.md", "include/scara.h", "src/scara.c", "examples/main.c"),
    }
    flags = " ".join(STRICT)
    run_compiler("cmake", "-S", str(folder), "-B", str(build), f"-DCMAKE_C_FLAGS={flags}", "-DCMAKE_C_COMPILER=gcc")
    run_compiler("cmake", "--build", str(build))
    run_compiler("cmake", "--install", str(build), "--prefix", str(tmp_path / "installed"))
    done = subprocess.run([str(build / "scara_example")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert printed_results(done.stdout) == expected_results(robot, robot.control_functions(), sincos="libm")
    user = tmp_path / "user"
    user.mkdir()
    (user / "CMakeLists.txt").write_text(CONSUMER.replace("ROBOT", "scara"))
    (user / "main.cpp").write_text(USE.replace("ROBOT", "scara"))
    where = f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}"
    run_compiler("cmake", "-S", str(user), "-B", str(user / "build"), where)
    run_compiler("cmake", "--build", str(user / "build"))
    found = [float(x) for x in run_compiler(str(user / "build" / "consumer")).split()]
    assert np.abs(found - robot.gravity_force([0.1, 0.2, 0.3, 0.4])).max() < 1e-12


@pytest.mark.slow
@needs_cmake
@pytest.mark.parametrize("shared", ["ON", "OFF"])
def test_the_project_as_a_part_of_another(shared, tmp_path):
    qddot.load("scara").export_project(tmp_path / "scara", FEW, name="ROBOT", cc="")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.15)\nproject(user LANGUAGES C)\nadd_subdirectory(scara)\n"
        "add_executable(user main.c)\ntarget_link_libraries(user PRIVATE ROBOT::ROBOT)\n"
    )
    (tmp_path / "main.c").write_text(
        "#include <ROBOT.h>\nint main(void)\n{\n    double q[4] = {0}, t[4];\n    ROBOT_inverse_dynamics(q, q, q, t);\n"
        "    return t[0] != 0;\n}\n"
    )
    run_compiler("cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), f"-DBUILD_SHARED_LIBS={shared}")
    run_compiler("cmake", "--build", str(tmp_path / "build"))
    run_compiler(str(tmp_path / "build" / "user"))
    assert not list((tmp_path / "build").rglob("ROBOT_example*"))  # examples of parts are not built


# ---- sketches


@needs_cplusplus
@pytest.mark.parametrize("layout", ["arduino", "platformio"])
def test_a_sketch_prints_the_results(layout, tmp_path):
    """Compiled against a stand-in for Arduino's serial port."""
    robot, folder = qddot.load("scara"), tmp_path / "scara"
    robot.export_project(folder, FEW, layout=layout, dtype="float32", cc="")
    found = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    manifest = {"arduino": "library.properties", "platformio": "library.json"}[layout]
    assert found == {manifest, "README.md", "src/scara.h", "src/scara.c", "examples/scara/scara.ino"}
    (tmp_path / "Arduino.h").write_text(ARDUINO)
    (tmp_path / "main.cpp").write_text('#include "scara.ino"\nint main() { setup(); loop(); }\n')
    run_compiler("gcc", *STRICT, "-c", str(folder / "src" / "scara.c"), "-o", str(tmp_path / "scara.o"))
    places = [f"-I{tmp_path}", f"-I{folder / 'src'}", f"-I{folder / 'examples' / 'scara'}"]
    warnings = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    objects = [str(tmp_path / "main.cpp"), str(tmp_path / "scara.o")]
    run_compiler("g++", *warnings, *places, *objects, "-o", str(tmp_path / "it"), "-lm")
    results = printed_results(run_compiler(str(tmp_path / "it")))
    expected = expected_results(robot, FEW)
    assert results.keys() == expected.keys()
    for key, x in expected.items():
        assert np.abs(np.subtract(results[key], x)).max() < 1e-4 * max(1.0, np.abs(x).max())  # some hundred roundings


@pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="there is no arm-none-eabi-gcc")
@pytest.mark.parametrize("fma", [True, False])
def test_a_cortex_m4_compiles_the_library_in_arduinos_dialect(fma, tmp_path):
    made = qddot.load("scara").export_project(tmp_path, FEW, layout="arduino", dtype="float32", fma=fma, cc="")
    board = ["-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard", "-std=gnu11", "-O2"]
    source, out = str(tmp_path / "src" / "scara.c"), str(tmp_path / "it.o")
    run_compiler("arm-none-eabi-gcc", *board, "-Wall", "-Wextra", "-Werror", "-c", source, "-o", out)
    assert made.layout == "arduino"


def test_manifests(tmp_path):
    robot = strange()
    robot.export_project(tmp_path / "a", FEW, layout="arduino", name="arm", cc="")
    rows = [line.split("=", 1) for line in (tmp_path / "a" / "library.properties").read_text().splitlines()]
    known = dict(rows)
    assert known.keys() >= {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "architectures"}
    assert (known["name"], known["includes"]) == ("arm", "arm.h")
    robot.export_project(tmp_path / "p", FEW, layout="platformio", name="arm", cc="")
    manifest = json.loads((tmp_path / "p" / "library.json").read_text())
    assert (manifest["name"], manifest["headers"]) == ("arm", "arm.h")


# ---- the example


def build_and_run(folder, name):
    files = [str(folder / "main.c"), str(folder / f"{name}.c")]
    run_compiler("gcc", *STRICT, "-O1", *files, "-o", str(folder / "it"), "-lm")
    return run_compiler(str(folder / "it"))


@needs_compiler
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_strange_names_in_a_project(dtype, tmp_path):
    robot = strange()
    made = robot.export_project(tmp_path, layout="plain", dtype=dtype, free=["sin_x.damping", "gravity"], cc="")
    results = printed_results(build_and_run(tmp_path, made.name))
    assert len(results) == sum(max(1, f.function.count("+") + 1) for f in made.functions)


SMALL = ("pendulum", "fourbar")
ROBOTS = [pytest.param(x, marks=() if x in SMALL else pytest.mark.slow) for x in robots.NAMES]


@needs_compiler
@pytest.mark.parametrize("name", ROBOTS)
def test_every_robot_has_an_example_that_agrees(name, tmp_path):
    robot = qddot.load(name)
    made = robot.export_project(tmp_path, layout="plain", cc="")
    assert printed_results(build_and_run(tmp_path, made.name))
    assert made.functions[-1].name == f"{made.name}_control_terms"


@needs_compiler
def test_the_example_finds_wrong_results(tmp_path):
    made = qddot.load("scara").export_project(tmp_path, FEW, layout="plain", cc="")
    source = (tmp_path / "scara.c").read_text()
    changed = re.sub(r"tau\[0\] = ", "tau[0] = 1e-6 + ", source, count=1)
    assert changed != source
    (tmp_path / "scara.c").write_text(changed)
    files = [str(tmp_path / "main.c"), str(tmp_path / "scara.c")]
    run_compiler("gcc", "-std=c99", *files, "-o", str(tmp_path / "it"), "-lm")
    done = subprocess.run([str(tmp_path / "it")], capture_output=True, text=True)
    assert done.returncode == 1
    assert "scara_inverse_dynamics tau" in done.stdout
    assert " differs\n" in done.stdout
    assert done.stdout.endswith("wrong: results differ from the expected ones\n")
    assert made.folder == tmp_path


# ---- the command, files and errors


def test_the_command(tmp_path, capsys):
    folder = tmp_path / "some" / "where"
    assert main(["export", "scara", "--all", "control", "--layout", "cmake", "-o", str(folder), "--cc", ""]) == 0
    assert "scara_control_terms by " in capsys.readouterr().err
    assert (folder / "CMakeLists.txt").is_file()
    assert (folder / "include" / "scara.h").read_text().count("void scara_") == 10
    arguments = [
        "--function",
        "mass_matrix",
        "--layout",
        "arduino",
        "-o",
        str(folder),
        "--name",
        "arm",
        "--json",
        "--cc",
        "",
    ]
    assert main(["export", "scara", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [f["name"] for f in report["functions"]] == ["arm_mass_matrix"]
    assert str(folder / "library.properties") in report["files"]


def test_errors(tmp_path):
    robot = qddot.load("scara")
    with pytest.raises(InputError, match="layout='make' is not known; take one of cmake, arduino, platformio, plain"):
        robot.export_project(tmp_path / "x", layout="make")
    for name in ("math", "Test", "arduino", "stdio"):
        with pytest.raises(InputError, match="give the project another name="):
            robot.export_project(tmp_path / "x", "gravity_force", name=name, cc="")
    with pytest.raises(TypeError, match="export_project\\(\\) got an unexpected keyword argument 'inline'"):
        robot.export_project(tmp_path / "x", inline=True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be made"):
        robot.export_project(tmp_path / "file", FEW, cc="")
