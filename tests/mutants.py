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
lines that have it. A fault that cannot change a result goes to `faults.EQUIVALENT` with the reason. In the end run all
rows with `--write`, which puts the table into docs/mutants.md; tests/house/test_mutants.py fails when that page has other
rows than docs/papers.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import itertools
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.faults import Fault, faults
from tests.support.paths import ROOT

CPU_SECONDS = 120  # of one child process: a fault may make a loop endless; all tests of a row take 30 at most

Job = tuple[Fault | None, tuple[str, ...]]
MISSED, CAUGHT, CRASHED, NOT_RUN = range(4)


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
        sys.path.insert(0, str(Path(file).resolve().parent))
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
    from tests.support import papers, profiles

    os.environ["QDDOT_CACHE_DIR"] = ""  # kernels that were compiled without the fault must not be found
    os.environ["QDDOT_TEST_PROFILE"] = "mutants"
    profiles.load()
    os.chdir(ROOT)
    return papers


def _result(paper: str, row: Any, found: list[tuple[Fault, int]], papers: Any) -> Result:
    functions = tuple(papers.names(row.function))
    missed = [f.says for f, code in found if code == MISSED]
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
