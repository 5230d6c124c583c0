"""Another export language is a printer and a row: Python as one, printed, run, and compared with the interpreter."""

import math
import re

import numpy as np
import pytest

import qddot
from qddot.cli.main import main
from qddot.compiler.codegen import languages
from qddot.compiler.codegen.printer import ATOM, CONDITION, SUM, Language, Printer, at_level
from qddot.compiler.ir import interpreter
from qddot.dynamics.choose import cheapest
from qddot.errors import InputError


class PythonPrinter(Printer):
    def comment(self, text):
        return f"    # {text}"

    def constant(self, name, text):
        return f"    {name} = {text}"

    store = constant

    def sincos(self, x, sine, cosine):
        return [f"    {sine}, {cosine} = math.sin({x}), math.cos({x})"]

    def number(self, x):
        return f"float('{x}')" if math.isnan(x) or math.isinf(x) else repr(float(x))

    def call(self, name, arguments):
        return f"math.{name.replace('arc', 'a')}({', '.join(arguments)})", ATOM

    def select(self, condition, then, otherwise):
        return f"{at_level(then, SUM)} if {condition} else {at_level(otherwise, SUM)}", CONDITION


def file(function, about):
    arguments = ", ".join([*(name for name, _ in function.inputs), *(name for name, _ in function.outputs)])
    body = PythonPrinter(function).print()
    return "\n".join([about, "import math", "", f"def {function.name}({arguments}):", *body, ""])


PYTHON = Language(
    name="Python",
    ending=".py",
    comment=lambda lines: "\n".join(f"# {line}" for line in lines),
    escaped=lambda text: " ".join(text.split()),
    notes=lambda function: [],
    file=file,
    header=lambda function: "",
    reserved=re.compile("def|lambda|math"),
)


@pytest.fixture
def python(monkeypatch):
    monkeypatch.setitem(languages.LANGUAGES, "python", PYTHON)


@pytest.mark.parametrize("robot", ["scara", "quadruped", "stanford"])
@pytest.mark.parametrize("function", ["inverse_dynamics", "mass_matrix"])
def test_another_language_gives_the_interpreters_bits(python, robot, function, tmp_path):
    robot = qddot.load(robot)
    exported = robot.export_source(function, tmp_path / "it.py", language="python", fma=False, name="f")
    space = {}
    exec((tmp_path / "it.py").read_text(), space)
    program, *_ = cheapest(robot.model, function, "auto")
    q, v = robot.random_state(0)
    arrays = [q, v, v[::-1].copy()] if function == "inverse_dynamics" else [q]
    out = np.zeros(len(program.outputs))
    space["f"](*arrays, out)
    assert out.tolist() == interpreter.run(program, np.concatenate(arrays))
    assert [p.name for p in tmp_path.iterdir()] == ["it.py"]  # a language without headers
    assert (exported.header, exported.stack_bytes, exported.compiler) == ("", None, "")
    assert "stack" not in exported.source.split("import")[0]  # which C compilers measure


def test_a_language_has_its_own_words(python):
    with pytest.raises(InputError, match="'lambda' cannot be the name of a Python function"):
        qddot.load("scara").export_source("mass_matrix", language="python", name="lambda")


def test_the_command_takes_a_language(python, capsys):
    assert main(["export", "scara", "--function", "mass_matrix", "--language", "python", "--no-fma"]) == 0
    assert "def scara_mass_matrix(q, M):" in capsys.readouterr().out


def test_unknown_languages_are_refused(capsys):
    assert main(["export", "scara", "--function", "mass_matrix", "--language", "cobol"]) == 2
    assert "language 'cobol' is not known; take one of c99" in capsys.readouterr().err
