"""The shape of the code: who may import whom, how long a thing may get, and that the metadata agree."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import qddot

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "qddot"

# Each module may import those listed and nothing else of qddot. Reading down, everything points to the left and up.
MAY_IMPORT = {
    "scalars": set(),
    "errors": set(),
    "rotation": {"scalars"},
    "dual": {"scalars"},
    "spatial": {"rotation", "scalars"},
    "blocks": {"spatial", "rotation", "scalars"},
    "joints": {"blocks", "spatial", "rotation", "dual", "scalars"},
    "closing": {"joints", "blocks", "spatial", "rotation", "scalars"},
    "joint_space": {"blocks", "scalars"},
    "model": {"joints", "joint_space", "blocks", "spatial", "rotation", "scalars", "errors"},
    "axes": {"model"},
    "parts": {"joints", "blocks", "spatial", "rotation", "errors"},
    "build": {"model", "parts", "joints", "blocks", "spatial", "rotation", "errors"},
    "precise": {"spatial", "rotation", "scalars"},
    "regroup": {"precise", "model", "joints", "blocks", "spatial", "rotation", "scalars"},
    "conditioning": {"algorithms", "model", "blocks", "spatial"},
    "pivots": {"conditioning", "model", "joints", "blocks", "rotation", "scalars"},
    "singularity": {"model", "errors"},
    "parameters": {"model", "parts", "blocks", "spatial", "rotation", "scalars", "errors"},
    "kinds": {"model", "joints", "spatial", "rotation"},
    "rolling": {"compiler", "axes", "kinds", "model", "joint_space", "joints", "spatial", "rotation", "scalars", "errors"},
    "algorithms": {
        *("model", "closing", "kinds", "joint_space", "blocks", "spatial", "rotation", "dual", "scalars", "joints"),
        "errors",
    },
    "identification": {"algorithms", "parameters", "model", "spatial", "errors"},
    "formats": {"build", "parts", "model", "joints", "blocks", "spatial", "rotation", "errors", "joint_space"},
    "robots": {"build", "parts", "joints", "spatial", "rotation", "formats", "errors", "scalars"},
    "conventions": {"model", "joints", "spatial", "rotation", "errors"},
    "compiler": {"scalars", "errors"},  # knows nothing about robots
    "functions": {
        *("algorithms", "axes", "compiler", "conditioning", "parameters", "pivots", "regroup", "rolling"),
        *("model", "joints", "spatial", "scalars", "errors"),
    },
    "by": {"model", "errors"},
    "derivative_methods": {"by", "constraints", "model", "errors"},
    "constraints": {"algorithms", "model", "errors"},
    "constraint_methods": {"constraints", "model", "errors"},
    "kernels": {"functions", "compiler", "model", "errors"},
    "export": {"functions", "compiler", "model", "errors", ""},
    "naming": {"joints", "model"},
    "viewer": {"naming", "formats", "parts", "model", "spatial", "errors"},
    "simulation": {  # takes a robot, and imports none: `Robot.simulate` leads here
        *("algorithms", "compiler", "constraints", "functions", "kernels", "parameters", "pivots", "regroup"),
        *("viewer", "naming", "formats"),
        *("model", "joints", "blocks", "spatial", "rotation", "dual", "scalars", "errors"),
    },
    "robot": {
        *(
            "by",
            "simulation",
            "constraint_methods",
            "derivative_methods",
            "kernels",
            "export",
            "functions",
            "identification",
            "parameters",
            "pivots",
            "singularity",
            "algorithms",
            "compiler",
            "formats",
        ),
        *("model", "joints", "errors", "scalars"),
    },
    "loading": {"robot", "simulation", "build", "formats", "robots", "model", "errors"},
    "check": {"robot", "functions", "algorithms", "spatial", "rotation"},
    "demo": {"simulation", "check", "loading", "robot", "robots", "compiler", "scalars", "errors"},
    "view_command": {"loading", "viewer", "simulation", "errors"},
    "cache_command": {"compiler", "errors"},
    "export_command": {"loading", "robot", "export", "functions"},
    "count_command": {"robot", "functions", "errors"},
    "comparison": {"robot", "functions", "kernels", "compiler", "errors"},
    "compare_command": {"comparison", "loading", "robot", "functions", "errors"},
    "bench": {"robot", "functions", "kernels", "compiler"},
    "cli": {
        *(
            "bench",
            "cache_command",
            "compare_command",
            "count_command",
            "export_command",
            "view_command",
            "demo",
            "loading",
        ),
        *("robot", "check", "robots", "compiler", "errors", ""),
    },
    "__main__": {"cli"},
    "": {"loading", "robot", "compiler", "parts", "model", "joints", "spatial", "errors"},
}


def rooms() -> list[tuple[str, Path]]:
    """(room, file): a room is a top-level module or a package below qddot."""
    out = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        out.append(("" if parts == ("__init__",) else parts[0], path))
    return out


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
            if node.module == "qddot":
                names = [
                    f"qddot.{a.name}" if (PACKAGE / a.name).exists() or (PACKAGE / f"{a.name}.py").exists() else "qddot"
                    for a in node.names
                ]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "qddot":
                found.add(name.split(".")[1] if "." in name else "")
    return found


@pytest.mark.parametrize(("room", "path"), rooms(), ids=lambda x: str(x) if isinstance(x, str) else x.name)
def test_imports_point_one_way(room, path):
    assert room in MAY_IMPORT, f"say in MAY_IMPORT what {room!r} may import"
    extra = imported_rooms(path) - MAY_IMPORT[room] - {room}
    assert not extra, f"{path.name} imports {sorted(extra)}"


def test_the_import_rules_have_no_cycle():
    done: set[str] = set()
    while len(done) < len(MAY_IMPORT):
        ready = {room for room, needs in MAY_IMPORT.items() if room not in done and needs - {room, ""} <= done}
        assert ready, f"a cycle among {set(MAY_IMPORT) - done}"
        done |= ready


def functions(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node


@pytest.mark.parametrize("path", sorted((PACKAGE / "algorithms").glob("*.py")), ids=lambda p: p.name)
def test_algorithms_stay_on_one_screen(path):
    for node in functions(path):
        assert node.end_lineno - node.lineno < 60, f"{path.name}: {node.name} is longer than 60 lines"


CITATION = re.compile(r"Kim|Featherstone|Saha|Lin 1991|Khatib|Not in the papers|Not in Featherstone|errata")


@pytest.mark.parametrize("path", sorted((PACKAGE / "algorithms").glob("[a-z]*.py")), ids=lambda p: p.name)
def test_algorithms_cite_their_source(path):
    if path.name == "passive.py":
        pytest.skip("joint dampers, friction and springs are the model's, not a paper's")
    assert CITATION.search(ast.get_docstring(ast.parse(path.read_text())) or ""), f"{path.name} cites nothing"


# Lines a file may have where 400 are not enough, and why it is one file all the same.
BUDGETS = {
    "joints.py": 600,  # thirteen kinds that are read side by side
    "build.py": 430,  # half of it is the signatures and docstrings of Builder
    "robot.py": 800,  # one short method a function, all alike
    "functions.py": 630,  # one table of all functions and formulations, and what makes programs of its rows
    "model.py": 440,  # what algorithms read and write, in one place
    "constraints.py": 470,  # what a state with constraints can be asked, and what can be wrong with it
    "urdf.py": 560,  # the format and its dirt
    "mjcf.py": 560,  # the format and what of it is left out
    "loop.py": 640,  # one loop, written out; wide and shared inputs and long results have their own way
}


def test_budgets():
    for path in PACKAGE.rglob("*.py"):
        lines = len(path.read_text().splitlines())
        assert lines <= BUDGETS.get(path.name, 400), f"{path.name} has {lines} lines"


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == qddot.__version__
    assert f"version: {qddot.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {qddot.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_hard_dependencies_are_two():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(re.split(r"[<>=]", d)[0] for d in project["dependencies"]) == ["llvmlite", "numpy"]


def test_importing_qddot_brings_nothing_but_numpy():
    code = "import sys, qddot; print(*sorted({m.split('.')[0] for m in sys.modules} & set(sys.argv[1:])))"
    heavy = ["mujoco", "pinocchio", "scipy", "sympy", "casadi", "llvmlite", "matplotlib", "viser"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
