"""The shape of the code: who may import whom, how long a thing may get, and that the metadata agree."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import qddot

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "qddot"

# Each room may import the rooms listed, and nothing else of qddot. Top-level modules are public; packages are rooms.
GROUND = {"errors", "notebook", "progress", "scalars", "version"}
ALGEBRA = GROUND | {"spatial", "joints"}
DATA = ALGEBRA | {"mechanism"}
MAY_IMPORT = {
    "version": set(),  # one number
    "errors": set(),  # what is raised
    "scalars": set(),  # arithmetic on anything: floats, dual numbers, expressions
    "notebook": {"errors"},  # pieces of HTML
    "progress": {"errors", "notebook"},  # a line while something takes long
    "spatial": GROUND,  # rigid-body algebra on any scalar
    "joints": GROUND | {"spatial"},  # kinds of joints
    "mechanism": ALGEBRA,  # what a robot is: checked, frozen data
    "algorithms": DATA,  # one paper, one file, one state; knows no compiler
    "formats": DATA,  # files in and out
    "robots": DATA | {"formats"},  # embedded robots, read by a format or built
    "conventions": DATA,  # other engines' orders of coordinates
    "compiler": GROUND,  # arithmetic to machine code; knows no robot
    "dynamics": DATA | {"algorithms", "compiler", "formats"},  # which algorithm computes what, compiled and evaluated
    "simulation": DATA | {"algorithms", "compiler", "dynamics", "formats", "viewer"},  # in time, files, pictures
    "tasks": DATA | {"algorithms", "compiler", "dynamics"},  # what a robot is to reach: inverse kinematics, control
    "viewer": DATA | {"formats"},  # shapes come from files
    "jax": DATA | {"algorithms", "compiler", "dynamics", "simulation"},  # operations of JAX
    "torch": DATA | {"algorithms", "compiler", "dynamics", "simulation"},  # operations of PyTorch
    # the facade
    "robot": DATA
    | {"algorithms", "compiler", "dynamics", "simulation", "tasks", "formats", "robots", "jax", "torch", "viewer"},
    # many samples of everything, on many machines
    "study": DATA | {"compiler", "dynamics", "formats", "robot", "simulation", ""},
    "gym": DATA | {"compiler", "dynamics", "simulation", "robot"},  # robots as environments of Gymnasium
    "functions": {"dynamics"},  # public names
    "comparison": {"dynamics"},  # public names
    "cli": DATA | {"compiler", "dynamics", "simulation", "formats", "robots", "robot", "study", "viewer", ""},  # commands
    "__main__": {"cli"},
    "": DATA | {"compiler", "robot", "study"},  # public names
}


def rooms() -> list[tuple[str, Path]]:
    """(room, file): a room is a top-level module or a package below qddot."""
    out = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        out.append(("" if parts == ("__init__",) else parts[0], path))
    return out


def shown(path: object) -> str:
    return str(path.relative_to(PACKAGE)) if isinstance(path, Path) else str(path)


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


@pytest.mark.parametrize(("room", "path"), rooms(), ids=shown)
def test_imports_point_one_way(room, path):
    assert room in MAY_IMPORT, f"say in MAY_IMPORT what {room!r} may import"
    extra = imported_rooms(path) - MAY_IMPORT[room] - {room}
    assert not extra, f"{shown(path)} imports {sorted(extra)}"


def test_the_import_rules_have_no_cycle():
    done: set[str] = set()
    while len(done) < len(MAY_IMPORT):
        ready = {room for room, needs in MAY_IMPORT.items() if room not in done and needs - {room, ""} <= done}
        assert ready, f"a cycle among {set(MAY_IMPORT) - done}"
        done |= ready


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined_names(path: Path) -> set[str]:
    """The private names that a file gives to anything: functions, classes, variables, fields."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)  # __slots__
    return set(filter(private, found))


OF_PYTHON = {
    "_replace",
    "_fields",
    "_asdict",
    "_make",
    "_exit",
    "_SimpleCData",
    "_ARRAY_API",
    "_UFUNC_API",
    "_getframe",
    "_C",
}


@pytest.mark.parametrize("room", sorted(set(MAY_IMPORT) - {""}))
def test_private_names_stay_in_their_room(room):
    """An attribute with a leading underscore belongs to the room that defines it."""
    own = [path for r, path in rooms() if r == room]
    known = set().union(OF_PYTHON, *map(defined_names, own))
    for path in own:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and private(node.attr):
                assert node.attr in known, f"{shown(path)}:{node.lineno} uses {node.attr} of another room"
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("qddot"):
                for alias in node.names:
                    assert not private(alias.name) or alias.name in known, f"{shown(path)} imports {alias.name}"


@pytest.mark.parametrize(("room", "path"), rooms(), ids=shown)
def test_robots_have_a_type(room, path):
    for node in functions(path):
        for x in (*node.args.args, *node.args.kwonlyargs):
            if x.arg in ("robot", "model", "engine") and isinstance(x.annotation, ast.Name):
                assert x.annotation.id != "Any", f"{shown(path)}:{node.lineno}: {node.name} takes any {x.arg}"


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
    if path.name == "passive_forces.py":
        pytest.skip("joint dampers, friction and springs are the model's, not a paper's")
    assert CITATION.search(ast.get_docstring(ast.parse(path.read_text())) or ""), f"{path.name} cites nothing"


MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 400, 60, 8
BUDGETS: dict[str, int] = {}  # lines of a file, by its path in the package, where 400 are not enough, and why


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=shown)
def test_budgets(path):
    """Of lines of a file and of a function, and of parameters; options are keyword arguments of one TypedDict."""
    lines = len(path.read_text().splitlines())
    assert lines <= BUDGETS.get(shown(path), MAX_FILE_LINES), f"{shown(path)} has {lines} lines"
    for node in functions(path):
        where = f"{shown(path)}:{node.lineno}: {node.name}"
        assert node.end_lineno - node.lineno < MAX_FUNCTION_LINES, f"{where} is longer than {MAX_FUNCTION_LINES} lines"
        given = [x.arg for x in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len(given) - (given[:1] in (["self"], ["cls"]))
        assert count <= MAX_PARAMETERS, f"{where} has {count} parameters"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=shown)
def test_text_has_an_encoding(path):
    """Not that of the user's locale: files are UTF-8, or ASCII."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        own = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
        modes = [*(getattr(a, "value", None) for a in node.args), own.get("mode")]
        binary = any(isinstance(m, str) and len(m) < 4 and "b" in m for m in modes)
        of_module = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") in (
            *("os", "webbrowser"),
            "archive",  # of zipfile, which opens bytes
        )
        opens = name in ("read_text", "write_text", "TemporaryFile", "NamedTemporaryFile") or (
            name in ("open", "fdopen") and not of_module
        )
        text = own.get("text") is True or own.get("universal_newlines") is True
        assert "encoding" in own or not (text or (opens and not binary)), f"{shown(path)}:{node.lineno} says no encoding"


# Words that nobody would search for; CONTRIBUTING.md has the field's own.
PRIVATE_WORDS = re.compile(
    r"asked for|past the caches|tak(e|es|ing) turns|told apart|shel(f|ves)\b|numbers that vary|lines? of memory|at hand"
    r"|(?<!Own\(function, )(?<![\w.])freedoms(?!\w)(?! *[:=\]])(?![\"'])",
    re.IGNORECASE,
)
TEXTS = [
    p
    for folder in ("qddot", "docs", "benchmarks", "tests", "examples")
    for p in sorted((ROOT / folder).rglob("*"))
    if p.suffix in (".py", ".md", ".c", ".cpp") and "_build" not in p.parts and p != Path(__file__)
]


@pytest.mark.parametrize("path", [*TEXTS, ROOT / "README.md"], ids=lambda p: str(p.relative_to(ROOT)))
def test_words_of_the_field(path):
    """Identifiers that are public, such as `Own.freedoms`, stay."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = PRIVATE_WORDS.search(line)
        assert not found or "`tests/" in line, (
            f"{path.name}:{number}: {found.group(0)!r}; CONTRIBUTING.md has the field's word"
        )


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == qddot.__version__
    assert f"version: {qddot.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {qddot.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_hard_dependencies_are_two():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(re.split(r"[<>=]", d)[0] for d in project["dependencies"]) == ["llvmlite", "numpy"]


def test_public_modules_need_no_import_of_their_own():
    code = "import qddot; print(*(getattr(qddot, name).__name__ for name in qddot._PUBLIC_MODULES))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"qddot.{name}" for name in qddot._PUBLIC_MODULES]
    with pytest.raises(AttributeError, match="no attribute 'simulations'"):
        _ = qddot.simulations


def test_importing_qddot_brings_nothing_but_numpy():
    code = "import sys, qddot; print(*sorted({m.split('.')[0] for m in sys.modules} & set(sys.argv[1:])))"
    heavy = ["torch", "jax", "mujoco", "pinocchio", "scipy", "sympy", "casadi", "llvmlite", "matplotlib", "viser"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
