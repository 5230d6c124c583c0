"""Faults put into every function of docs/papers.md: is each caught by a test that the row names?

    python -m tests.mutants [--rows "Kim 2012"] [--faults 5] [--jobs 2] [--write]

A fault is a small change of the function's syntax tree: a plus becomes a minus, a factor or a sign is dropped, a value is
off by 1 %. Where lines of the function carry the number of the row's equation in a comment, the faults are put there. The
code object of the running function is replaced, in a child process for each fault; no file changes. A fault that every
named test of its row misses is a survivor, and the exit code is 1. `--write` puts the table into docs/mutants.md.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import inspect
import io
import itertools
import os
import re
import signal
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
SECONDS = 240  # a fault may make a loop endless

# Faults that change nothing that could be tested, by function and description, with the reason.
EQUIVALENT: dict[tuple[str, str], str] = {}


class Fault(NamedTuple):
    """One change of one function: which code object becomes which, and how a reader finds it."""

    function: str
    says: str
    owner: types.FunctionType
    code: types.CodeType


Job = tuple[Fault | None, tuple[str, ...]]


# ---- making faults -------------------------------------------------------------------------------------------------------


def off(x: Any) -> Any:
    """The same thing with every number in it slightly another."""
    if isinstance(x, bool):
        return not x
    if isinstance(x, str | bytes | type(None)) or (isinstance(x, type) or callable(x)):
        return x
    if isinstance(x, tuple):
        return type(x)(*map(off, x)) if hasattr(x, "_fields") else tuple(map(off, x))
    if isinstance(x, list):
        return [off(y) for y in x]
    if isinstance(x, dict):
        return {k: off(y) for k, y in x.items()}
    if isinstance(x, int):
        return x + 1
    if isinstance(x, Iterator):
        return (off(y) for y in x)
    try:
        return x * 1.01 + 0.01
    except TypeError:
        return _fields_off(x)


def _fields_off(x: Any) -> Any:
    out = copy.copy(x)
    for name in [*getattr(x, "__dict__", ()), *(f for c in type(x).__mro__ for f in getattr(c, "__slots__", ()))]:
        with contextlib.suppress(AttributeError, TypeError):
            object.__setattr__(out, name, off(getattr(x, name)))
    return out


class _Change(ast.NodeTransformer):
    """Makes the fault number `wanted` among those of a function, and counts them."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.count, self.says, self.line = wanted, 0, "", 0

    def _hit(self, node: ast.AST, says: str) -> bool:
        self.count += 1
        if self.count - 1 == self.wanted:
            self.says, self.line = says, node.lineno  # type: ignore[attr-defined]
            return True
        return False

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        text = ast.unparse(node)
        if isinstance(node.op, ast.Add | ast.Sub) and not _is_text(node):
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            if self._hit(node, f"{_short(text)}: sign"):
                return ast.copy_location(ast.BinOp(node.left, other, node.right), node)
        elif isinstance(node.op, ast.Mult) and self._hit(node, f"{_short(text)}: factor dropped"):
            return node.left if not isinstance(node.left, ast.Constant) else node.right
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        constant = isinstance(node.operand, ast.Constant)
        if (
            isinstance(node.op, ast.USub)
            and not constant
            and self._hit(node, f"{_short(ast.unparse(node))}: minus dropped")
        ):
            return node.operand
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Sub) and self._hit(node, f"{_short(ast.unparse(node))}: sign"):
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            return ast.copy_location(ast.AugAssign(node.target, other, node.value), node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        is_value = isinstance(node.value, ast.Call) and not _is_container(node.value)
        if is_value and self._hit(node, f"{_short(ast.unparse(node))}: value off"):
            return ast.copy_location(ast.Assign(node.targets, _off(node.value)), node)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None and self._hit(node, f"{_short(ast.unparse(node))}: result off"):
            return ast.copy_location(ast.Return(_off(node.value)), node)
        return node


def _off(node: ast.expr) -> ast.expr:
    load = ast.parse("__import__('tests.mutants', fromlist=['off']).off(_)", mode="eval").body
    assert isinstance(load, ast.Call)
    load.args = [node]
    return ast.copy_location(load, node)


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(n, ast.JoinedStr | ast.List | ast.Tuple) or _is_str(n) for n in (node.left, node.right))


def _is_str(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_container(node: ast.Call) -> bool:
    """Empty tables, sizes and ranges: a value that is off there is a crash, which says little."""
    return bool(
        re.search(r"per_link|zeros|empty|len$|range|list$|dict$|set$|tuple$|slots|sorted|Graph", ast.unparse(node.func))
    )


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}…"


def faults(name: str, equations: tuple[str, ...], most: int) -> list[Fault]:
    """Up to `most` faults of what docs/papers.md names, spread over its lines; those of the equations' own lines first."""
    found = [f for function in _functions(_find(name)) for f in _of_function(name, function)]
    numbers = [e for e in equations if e.startswith("(")]
    own = [f for f, line in found if any(e in line.partition("#")[2] for e in numbers)]
    among = own or [f for f, _ in found]
    step = max(1, -(-len(among) // most))
    return among[::step]


def _of_function(name: str, function: types.FunctionType) -> list[tuple[Fault, str]]:
    path = Path(inspect.getsourcefile(function) or "")
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    out = []
    for k in itertools.count():
        tree = ast.parse(source)
        node = _definition(tree, function)
        change = _Change(k)
        node.body = [change.visit(statement) for statement in node.body]
        if not change.says:
            return out
        code = _code(compile(ast.fix_missing_locations(tree), str(path), "exec"), function)
        says = f"{function.__qualname__}, line {change.line - node.lineno + 1}: {change.says}"
        if code.co_freevars == function.__code__.co_freevars:
            out.append((Fault(name, says, function, code), lines[change.line - 1]))
    raise AssertionError


def _definition(tree: ast.AST, function: types.FunctionType) -> ast.FunctionDef:
    line = function.__code__.co_firstlineno
    for node in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        begins = (node.lineno, *(d.lineno for d in node.decorator_list))
        if node.name == function.__code__.co_name and line in begins:
            return node
    raise LookupError(function.__qualname__)


def _code(module: types.CodeType, function: types.FunctionType) -> types.CodeType:
    waiting = [module]
    while waiting:
        code = waiting.pop()
        if code.co_name == function.__code__.co_name and code.co_firstlineno == function.__code__.co_firstlineno:
            return code
        waiting += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    raise LookupError(function.__qualname__)


def _functions(thing: Any) -> list[types.FunctionType]:
    """The Python functions of what a row names: itself, what a property calls, or all methods of a class."""
    if isinstance(thing, type):
        own = [v for k, v in vars(thing).items() if not k.startswith("__") or k in _ARITHMETIC]
        return [f for v in own for f in _functions(v)]
    thing = getattr(thing, "fget", None) or getattr(thing, "func", None) or getattr(thing, "__func__", None) or thing
    thing = inspect.unwrap(thing) if callable(thing) else thing
    return [thing] if isinstance(thing, types.FunctionType) and "qddot" in (thing.__module__ or "") else []


_ARITHMETIC = ("__add__", "__sub__", "__mul__", "__rmul__", "__matmul__", "__neg__", "__truediv__")


def _find(name: str) -> Any:
    """What has this dotted name, properties as they stand in their class."""
    *path, last = name.split(".")
    for cut in range(len(path), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            thing: Any = importlib.import_module(".".join(path[:cut]))
            for part in [*path[cut:], last]:
                thing = inspect.getattr_static(thing, part)
            return thing
    raise LookupError(name)


# ---- running tests -------------------------------------------------------------------------------------------------------


def caught(jobs: list[Job], processes: int) -> dict[Job, bool]:
    """For each fault and its tests whether one of them fails, in a process of its own: exit code 1, or a killed one."""
    waiting, running, out = list(reversed(jobs)), {}, {}
    while waiting or running:
        while waiting and len(running) < processes:
            job = waiting.pop()
            running[_child(job)] = job
        child, status = os.wait()
        job = running.pop(child)
        code = os.waitstatus_to_exitcode(status)
        if code > 1:
            raise RuntimeError(f"the tests of {job} could not be run")
        out[job] = code != 0
        print("." if out[job] else "S" if job[0] else "", end="", flush=True)
    return out


def _child(job: Job) -> int:
    child = os.fork()
    if child:
        return child
    code = 2
    with contextlib.suppress(BaseException):
        signal.alarm(SECONDS)
        code = int(_failed(*job))
    os._exit(code)


def _failed(fault: Fault | None, tests: tuple[str, ...]) -> bool:
    import pytest

    if fault is not None:
        fault.owner.__code__ = fault.code
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        options = ["-x", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
        outcome = pytest.main([*options, *tests])
    if outcome not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
        raise RuntimeError(str(outcome))
    return outcome != pytest.ExitCode.OK


class Result(NamedTuple):
    """What became of the faults of one row."""

    paper: str
    equations: str
    functions: tuple[str, ...]
    made: int
    missed: tuple[str, ...]


def run(wanted: str, most: int, jobs: int) -> list[Result]:
    """All rows whose paper or equation has the wanted text in it."""
    os.chdir(ROOT)
    sys.path.insert(0, "tests")
    papers = importlib.import_module("test_papers")
    rows = [
        (paper, row)
        for paper, table in papers.tables().items()
        for row in table
        if row.function != papers.OPEN and wanted in f"{paper} {' '.join(row.equations)}"
    ]
    tests = {row: tuple(papers.names(row.test)) for _, row in rows}
    for file in sorted({t.partition("::")[0] for row in tests.values() for t in row}):
        importlib.import_module(Path(file).stem)  # once, before the children are made
    broken = [t for (_, t), failed in caught([(None, t) for t in dict.fromkeys(tests.values())], jobs).items() if failed]
    if broken:
        sys.exit(f"these fail without a fault: {broken}")
    work = [(paper, row, [faults(n, row.equations, most) for n in papers.names(row.function)]) for paper, row in rows]
    known = caught(list(dict.fromkeys((f, tests[row]) for _, row, groups in work for g in groups for f in g)), jobs)
    return [_result(paper, row, groups, papers, known, tests[row]) for paper, row, groups in work]


def _result(paper: str, row: Any, groups: Any, papers: Any, known: Any, tests: tuple[str, ...]) -> Result:
    missed = []
    for name, group in zip(papers.names(row.function), groups, strict=True):
        survivors = [f.says for f in group if not known[f, tests] and (name, f.says) not in EQUIVALENT]
        of_class = isinstance(_find(name), type)
        if not group or (survivors and (not of_class or len(survivors) == len(group))):
            missed += survivors or [f"{name}: no fault could be made"]
    shown = row.equations[0] if len(row.equations) == 1 else f"{row.equations[0]}-{row.equations[-1]}"
    return Result(paper, shown, tuple(papers.names(row.function)), sum(map(len, groups)), tuple(missed))


# ---- the table -----------------------------------------------------------------------------------------------------------


def page(results: list[Result], most: int) -> str:
    """docs/mutants.md"""
    made, missed = sum(r.made for r in results), sum(len(r.missed) for r in results)
    lines = [
        "# Faults put into the functions of the papers",
        "",
        f"`python -m tests.mutants --faults {most} --write` puts faults into every function that [the table of the",
        "papers](papers.md) names and runs the tests of that row: a plus becomes a minus, a factor or a sign is dropped, a",
        "value is off by 1 %. Where lines of a function carry the equation's number, the faults are put there. All faults",
        "of a function must be caught; a row whose function is a class counts as covered when its tests catch some of the",
        "faults in it.",
        "",
        f"{len(results)} rows, {made} faults, {missed} survivors.",
        "",
    ]
    for paper, group in itertools.groupby(results, key=lambda r: r.paper):
        lines += [f"## {paper}", "", "| equation | functions | faults | missed |", "|---|---|---|---|"]
        for r in group:
            functions = ", ".join(f"`{f}`" for f in r.functions)
            lines.append(f"| {r.equations} | {functions} | {r.made} | {'; '.join(r.missed) or 'none'} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Runs the faults and prints what survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--rows", default="", help="only rows with this text in the paper's name or the equation")
    parser.add_argument("--faults", type=int, default=5, help="most faults a function and row")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="write docs/mutants.md")
    options = parser.parse_args()
    os.environ["QDDOT_CACHE_DIR"] = ""  # kernels that were compiled without the fault must not be found
    results = run(options.rows, options.faults, options.jobs)
    print()
    survivors = [r for r in results if r.missed]
    for r in survivors:
        print(f"{r.paper} {r.equations} ({', '.join(r.functions)}): {'; '.join(r.missed)}")
    print(f"{len(results)} rows, {sum(r.made for r in results)} faults, {sum(len(r.missed) for r in results)} survivors")
    if options.write:
        (ROOT / "docs" / "mutants.md").write_text(page(results, options.faults), encoding="utf-8")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
