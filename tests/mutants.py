"""Faults put into every function of docs/papers.md: is each caught by a test that the row names?

    python -m tests.mutants [--rows "Kim 2012"] [--faults 4] [--jobs 2] [--write]

A fault is a small change of the function's syntax tree: a plus becomes a minus, a factor or a sign is dropped, the
arguments of a cross product are exchanged, a value is off by 1 %. Where statements of the function carry the row's equation
in a comment, `# (15)`, `# (68) (69)`, `# (81)-(86)` or `# Kim (45), Saha (7)`, the faults are put there; otherwise anywhere
in it. The code object of the running function is replaced, in a child process for each fault; no file changes, and no
kernel is cached.

The named tests, cheapest first, must catch every fault; one that all of them miss is a survivor, and the exit code is 1. A
fault that ends in an exception other than a failed assertion is counted apart, as a crash: it says that the function is
called, not that its result is checked. So each function of a row needs a fault that an assertion catches.

After a change of docs/papers.md, of a function or of a test: run the rows concerned (`--rows`, any part of the paper's
name or of the equation), and for each survivor strengthen the test, name a better one, or put the equation's number on the
lines that have it. A fault that cannot change a result goes to EQUIVALENT with the reason. In the end run all rows with
`--write`, which puts the table into docs/mutants.md; tests/test_mutants.py fails when that page has other rows than
docs/papers.md.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import functools
import importlib
import inspect
import io
import itertools
import os
import re
import resource
import sys
import time
import tokenize
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
CPU_SECONDS = 300  # of one child process: a fault may make a loop endless

# Faults that change nothing that could be tested, by function and description, with the reason.
EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "qddot.algorithms.denoc.composite_masses",
        "composite_masses: carried[0] = zero_inertia(): value off",
    ): "what the world carries is summed and never read",
}


class Fault(NamedTuple):
    """One change of one function: which code object becomes which, and how a reader finds it."""

    function: str
    says: str
    owner: types.FunctionType
    code: types.CodeType


Job = tuple[Fault | None, tuple[str, ...]]
MISSED, CAUGHT, CRASHED, NOT_RUN = range(4)


# ---- making faults -------------------------------------------------------------------------------------------------------


def off(x: Any) -> Any:
    """The same thing with every number in it slightly another."""
    if isinstance(x, bool):
        return not x
    if isinstance(x, str | bytes | type(None)) or (isinstance(x, type) or callable(x)):
        return x
    if isinstance(x, tuple):
        return type(x)(*map(off, x)) if hasattr(x, "_fields") else type(x)(map(off, x))
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


class Place(NamedTuple):
    """A fault that could be made: what it does, and the lines of its statement."""

    says: str
    first: int
    last: int


class _Change(ast.NodeTransformer):
    """Makes the fault number `wanted` among those of a function, and lists them."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted, self.places, self.first, self.last = wanted, list[Place](), 0, 0

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.stmt):
            return super().visit(node)
        outer = self.first, self.last
        body = getattr(node, "body", None)
        self.first, self.last = node.lineno, body[0].lineno - 1 if body else node.end_lineno or node.lineno
        out = super().visit(node)
        self.first, self.last = outer
        return out

    def _hit(self, node: ast.AST, what: str) -> bool:
        text = " ".join(ast.unparse(node).split())
        self.places.append(Place(f"{text}: {what}", self.first, max(self.first, self.last)))
        return len(self.places) - 1 == self.wanted

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if any(isinstance(n, ast.JoinedStr | ast.List | ast.Tuple) or _is_str(n) for n in (node.left, node.right)):
            return node
        if isinstance(node.op, ast.Add | ast.Sub) and self._hit(node, "sign"):
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            return ast.copy_location(ast.BinOp(node.left, other, node.right), node)
        if isinstance(node.op, ast.Mult) and self._hit(node, "factor dropped"):
            return node.left if not isinstance(node.left, ast.Constant) else node.right
        if isinstance(node.op, ast.Div) and self._hit(node, "multiplied instead"):
            return ast.copy_location(ast.BinOp(node.left, ast.Mult(), node.right), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _OPPOSITE and self._hit(node, "sign"):
            other = ast.parse(f"__import__('qddot.rotation', fromlist=['_']).{_OPPOSITE[name]}", mode="eval").body
            return ast.copy_location(ast.Call(other, node.args, []), node)
        if name == "cross" and self._hit(node, "arguments exchanged"):
            return ast.copy_location(ast.Call(node.func, node.args[::-1], []), node)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        changes = isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant)
        return node.operand if changes and self._hit(node, "minus dropped") else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Sub) and self._hit(node, "sign"):
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            return ast.copy_location(ast.AugAssign(node.target, other, node.value), node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if _is_value(node.value) and self._hit(node, "value off"):
            return ast.copy_location(ast.Assign(node.targets, _off(node.value)), node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        call = node.value
        if isinstance(call, ast.Call) and call.args and _is_value(call.args[-1]) and self._hit(node, "value off"):
            return ast.copy_location(ast.Expr(ast.Call(call.func, [*call.args[:-1], _off(call.args[-1])], [])), node)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None and self._hit(node, "result off"):
            return ast.copy_location(ast.Return(_off(node.value)), node)
        return node


_OPPOSITE = {"add": "sub", "sub": "add", "mat_add": "mat_sub", "mat_sub": "mat_add"}


def _off(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Tuple):
        return ast.copy_location(ast.Tuple([_off(x) if _is_value(x) else x for x in node.elts], node.ctx), node)
    load = ast.parse("__import__('tests.mutants', fromlist=['off']).off(_)", mode="eval").body
    assert isinstance(load, ast.Call)
    load.args = [node]
    return ast.copy_location(load, node)


def _is_str(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_value(node: ast.expr) -> bool:
    """Something computed, and a tuple with such a thing in it and no container."""
    if isinstance(node, ast.Tuple):
        return any(map(_is_value, node.elts)) and not any(map(_is_container, node.elts))
    return isinstance(node, ast.Call | ast.BinOp | ast.IfExp | ast.ListComp) and not _is_container(node)


def _is_container(node: ast.expr) -> bool:
    """Empty tables, sizes and ranges: a value that is off there is a crash, which says little."""
    return isinstance(node, ast.Call) and bool(
        re.search(r"per_link|zeros|empty|len$|range|list$|dict$|set$|tuple$|slots|sorted|Graph", ast.unparse(node.func))
    )


def faults(name: str, paper: str, equations: tuple[str, ...], most: int) -> list[Fault]:
    """Up to `most` faults of what docs/papers.md names, spread over its lines; those of the equations' own lines alone
    where there are such."""
    found = [(function, k, place) for function in _functions(_find(name)) for k, place in enumerate(_places(function))]
    own = [(f, k, p) for f, k, p in found if set(equations) & cited(paper, _comments(f, p), equations)]
    among = own or found
    chosen = among if len(among) <= most else [among[(2 * k + 1) * len(among) // (2 * most)] for k in range(most)]
    return [Fault(name, f"{f.__qualname__}: {place.says}", f, _mutated(f, k)) for f, k, place in chosen]


def cited(paper: str, comment: str, labels: tuple[str, ...] = ()) -> set[str]:
    """The equations of this paper that a comment has, and the labels that are no numbers if they stand in it.

    A paper's name holds for the numbers after it; numbers before any name count for every paper.
    """
    out, of = {label for label in labels if not label.startswith("(") and label in comment}, ""
    for author, first, last in _CITATION.findall(comment):
        of = author or of
        if not author and (not of or paper.startswith(of)):
            begin, end = (re.fullmatch(r"(A?)(\d+)([ab]?)", x) for x in (first, last or first))
            if begin and end:
                out |= {f"({begin[1]}{k}{begin[3]})" for k in range(int(begin[2]), int(end[2]) + 1)}
    return out


_CITATION = re.compile(r"(Featherstone|Kim|Saha|Lin)|(?<![\w.])\((A?\d+[ab]?)\)(?:-\((A?\d+[ab]?)\))?")


@functools.cache
def _source(path: str) -> tuple[str, dict[int, str]]:
    """The text of a file, and its comments by line."""
    text = Path(path).read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return text, {t.start[0]: t.string for t in tokens if t.type == tokenize.COMMENT}


def _comments(function: types.FunctionType, place: Place) -> str:
    comments = _source(function.__code__.co_filename)[1]
    return " ".join(comments.get(k, "") for k in range(place.first, place.last + 1))


@functools.cache
def _places(function: types.FunctionType) -> list[Place]:
    change = _Change()
    for statement in _definition(ast.parse(_source(function.__code__.co_filename)[0]), function).body:
        change.visit(statement)
    return change.places


@functools.cache
def _mutated(function: types.FunctionType, k: int) -> types.CodeType:
    path, change = function.__code__.co_filename, _Change(k)
    tree = ast.parse(_source(path)[0])
    node = _definition(tree, function)
    node.body = [change.visit(statement) for statement in node.body]
    code = _code(compile(ast.fix_missing_locations(tree), path, "exec"), function)
    assert code.co_freevars == function.__code__.co_freevars, f"{function.__qualname__}: {change.places[k].says}"
    return code


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


def outcomes(jobs: list[Job], processes: int) -> dict[Job, tuple[int, float]]:
    """What the tests say of each fault, and the seconds of processor time that it took, each in a process of its own."""
    waiting, running = list(reversed(jobs)), dict[int, Job]()
    out: dict[Job, tuple[int, float]] = {}
    while waiting or running:
        while waiting and len(running) < processes:
            job = waiting.pop()
            running[_child(job)] = job
        child, status, used = os.wait4(-1, 0)
        job, code = running.pop(child), os.waitstatus_to_exitcode(status)
        code = CRASHED if code < 0 else code  # killed: out of time, or the machine code was wrong
        if code == NOT_RUN:
            raise RuntimeError(f"the tests could not be run: {job}")
        out[job] = code, used.ru_utime + used.ru_stime
        if job[0]:
            print(f"\nmissed: {job[0].says}\n" if code == MISSED else ".x"[code - 1], end="", flush=True)
    return out


def _child(job: Job) -> int:
    child = os.fork()
    if child:
        return child
    code = NOT_RUN
    with contextlib.suppress(BaseException):
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        code = _outcome(*job)
    os._exit(code)


def _outcome(fault: Fault | None, tests: tuple[str, ...]) -> int:
    import pytest

    if fault is not None:
        fault.owner.__code__ = fault.code
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    seen = _Exceptions()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        options = ["-x", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
        end = pytest.main([*options, *tests], plugins=[seen])
    if end == pytest.ExitCode.OK:
        return MISSED
    if end in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
        return CAUGHT if any(map(_is_assertion, seen.seen)) else CRASHED
    return NOT_RUN


class _Exceptions:
    """Plugin of pytest: what the tests ended with."""

    def __init__(self) -> None:
        self.seen: list[BaseException] = []

    def pytest_exception_interact(self, call: Any) -> None:
        self.seen.append(call.excinfo.value)


def _is_assertion(e: BaseException) -> bool:
    """Or a `pytest.raises` in vain; Hypothesis groups several."""
    inner: tuple[BaseException, ...] = getattr(e, "exceptions", ())
    return isinstance(e, AssertionError) or type(e).__name__ == "Failed" or any(map(_is_assertion, inner))


class Result(NamedTuple):
    """What became of the faults of one row."""

    paper: str
    equations: str
    functions: tuple[str, ...]
    tests: tuple[str, ...]
    made: int
    crashed: int
    missed: tuple[str, ...]


def run(wanted: str, most: int, jobs: int) -> list[Result]:
    """All rows whose paper or equation has the wanted text in it."""
    papers = _prepared()
    rows = [
        (paper, row)
        for paper, table in papers.tables().items()
        for row in table
        if row.function != papers.OPEN and wanted in f"{paper} {shown(row)}"
    ]
    tests = {row: tuple(papers.names(row.test)) for _, row in rows}
    for file in sorted({t.partition("::")[0] for row in tests.values() for t in row}):
        importlib.import_module(Path(file).stem)  # once, before the children are made
    alone = outcomes([(None, (t,)) for t in dict.fromkeys(itertools.chain(*tests.values()))], jobs)
    cost = {t: seconds for (_, (t,)), (_, seconds) in alone.items()}
    if broken := [t for (_, (t,)), (code, _) in alone.items() if code != MISSED]:
        sys.exit(f"these fail without a fault: {broken}")
    print(f"{len(cost)} tests, processor seconds of the longest:", file=sys.stderr)
    for t in sorted(cost, key=lambda t: -cost[t])[:8]:
        print(f"  {cost[t]:5.1f}  {t}", file=sys.stderr)
    work = []
    for paper, row in rows:
        ordered = tuple(sorted(tests[row], key=lambda t: cost[t]))
        work += [(row, f, ordered) for n in papers.names(row.function) for f in faults(n, paper, row.equations, most)]
    known = outcomes(list(dict.fromkeys((f, ordered) for _, f, ordered in work)), jobs)
    return [_result(paper, row, [(f, known[f, t][0]) for r, f, t in work if r is row], papers) for paper, row in rows]


def _prepared() -> Any:
    """Tests that draw their cases draw the same ones every time, and do not search for simpler ones when they fail."""
    import hypothesis

    os.environ["QDDOT_CACHE_DIR"] = ""  # kernels that were compiled without the fault must not be found
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", phases=phases, database=None, derandomize=True, deadline=None)
    hypothesis.settings.load_profile("mutants")
    os.chdir(ROOT)
    sys.path.insert(0, "tests")
    return importlib.import_module("test_papers")


def _result(paper: str, row: Any, found: list[tuple[Fault, int]], papers: Any) -> Result:
    functions = tuple(papers.names(row.function))
    missed = [f.says for f, code in found if code == MISSED and (f.function, f.says) not in EQUIVALENT]
    for name in functions:
        codes = [code for f, code in found if f.function == name]
        if CAUGHT not in codes and MISSED not in codes:
            missed.append(f"{name}: no assertion fails" if codes else f"{name}: no fault could be made")
    crashed = sum(code == CRASHED for _, code in found)
    return Result(paper, shown(row), functions, tuple(papers.names(row.test)), len(found), crashed, tuple(missed))


def shown(row: Any) -> str:
    """A row's first cell."""
    return row.equations[0] if len(row.equations) == 1 else f"{row.equations[0]}-{row.equations[-1]}"


# ---- the table -----------------------------------------------------------------------------------------------------------


def page(results: list[Result], most: int) -> str:
    """docs/mutants.md"""
    made, crashed, missed = (sum(x) for x in zip(*((r.made, r.crashed, len(r.missed)) for r in results), strict=True))
    lines = [
        "# Faults put into the functions of the papers",
        "",
        f"`python -m tests.mutants --faults {most} --write` puts up to {most} faults into every function that",
        "[the table of the papers](papers.md) names and runs the tests of that row: a plus becomes a minus, a factor or a",
        "sign is dropped, the arguments of a cross product are exchanged, a value is off by 1 %. Where lines carry the",
        "equation's number, the faults are put there. A fault that all tests of its row miss is a survivor. Crashes are",
        "faults that end in an exception other than a failed assertion; every function has at least one fault that an",
        "assertion catches.",
        "",
        f"{len(results)} rows, {made} faults, of which {crashed} crash; {missed} survivors.",
        "",
    ]
    for paper, group in itertools.groupby(results, key=lambda r: r.paper):
        lines += [f"## {paper}", "", _HEAD, "|---|---|---|---|---|---|"]
        for r in group:
            functions, tests = (", ".join(f"`{x}`" for x in names) for names in (r.functions, r.tests))
            missed = "; ".join(r.missed) or "none"
            lines.append(f"| {r.equations} | {functions} | {tests} | {r.made} | {r.crashed} | {missed} |")
        lines.append("")
    return "\n".join(lines)


_HEAD = "| equation | functions | tests | faults | crashes | survivors |"


def main() -> int:
    """Runs the faults and prints what survived."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__, formatter_class=formatter)
    parser.add_argument("--rows", default="", help="only rows with this text in the paper's name or the equation")
    parser.add_argument("--faults", type=int, default=4, help="most faults a function and row")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="write docs/mutants.md; takes all rows")
    options = parser.parse_args()
    if options.write and options.rows:
        parser.error("--write takes all rows: leave out --rows")
    begin = time.monotonic()
    results = run(options.rows, options.faults, options.jobs)
    print()
    survivors = [r for r in results if r.missed]
    for r in survivors:
        print(f"{r.paper} {r.equations} ({', '.join(r.functions)})", *r.missed, sep="\n    ")
    made, missed = sum(r.made for r in results), sum(len(r.missed) for r in results)
    print(f"{len(results)} rows, {made} faults, {missed} survivors, {time.monotonic() - begin:.0f} s")
    if options.write:
        (ROOT / "docs" / "mutants.md").write_text(page(results, options.faults), encoding="utf-8")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
