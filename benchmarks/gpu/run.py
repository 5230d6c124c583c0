"""A run: kernels are compiled by many processes, and each is measured as soon as it is there."""

import json
import platform
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import qddot
from benchmarks.gpu import cases, others, report, rollouts, targets
from benchmarks.gpu.cases import Case
from benchmarks.gpu.children import Measurer, Preparers

_AT_THE_END = 45.0  # seconds for calls from Python and for frax
BESIDE = ("calls", "rollouts", "frax")  # what is measured beside the cases
_ROW_LIMIT = 40.0  # seconds that one row of a case may take to be measured


class Options(NamedTuple):
    """Of a run."""

    folder: Path
    robots: list[str]
    functions: list[str]
    dtypes: list[str]
    layouts: list[str]
    batches: list[int]
    seconds: float
    workers: int
    compile_limit: float
    rehearse: bool = False
    prepare_only: bool = False
    beside: tuple[str, ...] = BESIDE


class Run:
    """What is known so far, printed as it comes and saved after each case."""

    def __init__(self, options: Options, path: Path | None, begin: float, show: Callable[[str], None]) -> None:
        self.options, self.path, self.begin, self.show = options, path, begin, show
        self.data: dict[str, Any] = {
            "date": date.today().isoformat(),
            "versions": {"Python": platform.python_version(), "NumPy": np.__version__, "qddot": qddot.__version__},
            "rehearsal": options.rehearse,
            "machine": {},
            "kernels": [],
            "rows": [],
            "calls": [],
            "rollouts": [],
            "frax": [],
            "errors": [],
        }

    def left(self) -> float:
        """Seconds."""
        return self.begin + self.options.seconds - time.monotonic()

    def save(self) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_name(self.path.name + ".tmp")
            temporary.write_text(json.dumps(self.data, indent=1), encoding="utf-8")
            temporary.replace(self.path)

    def failed(self, what: str, error: str) -> None:
        self.data["errors"].append({"what": what, "error": error})
        self.show(f"ERROR {what}: {error}")


def figures(run: Run) -> int:
    """The whole run; the exit code."""
    options = run.options
    measurer = Measurer(options.folder, options.rehearse)
    preparers = Preparers(options.folder, options.workers, options.compile_limit)
    try:
        if not options.prepare_only:
            machine = measurer.ask({"do": "card"}, 120.0)
            if "error" in machine:
                run.failed("the card", machine["error"])
                return 2
            run.data["machine"] = machine
            run.show(report.machine_line(machine))
        on_card = not (options.prepare_only or options.rehearse)
        _all_cases(run, measurer, preparers, on_card)
        if not options.prepare_only:
            preparers.close()
            for name, measured in (("calls", _calls), ("rollouts", _rollouts), ("frax", _frax)):
                if name in options.beside:
                    measured(run, measurer)
                    run.save()
    finally:
        preparers.close()
        measurer.close()
        run.save()
    if not options.prepare_only:
        run.show(report.targets(run.data))
        run.show(report.table(run.data))
        run.save()
    return 0


def _all_cases(run: Run, measurer: Measurer, preparers: Preparers, on_card: bool) -> None:
    """Compiles all, and measures what is ready, first what was ready first."""
    options = run.options
    waiting = cases.all_cases(options.robots, options.functions, options.dtypes)
    references: dict[tuple[str, str], Future[dict[str, Any]]] = {}
    kernels: dict[Case, Future[dict[str, Any]]] = {}
    for case in waiting:
        pair = case.robot, case.function
        if pair not in references:
            references[pair] = preparers.submit({"do": "reference", "robot": pair[0], "function": pair[1]})
        kernels[case] = preparers.submit({"do": "kernel", "case": case, "on_card": on_card})
    reserve = 0.0 if options.prepare_only or not options.beside else min(_AT_THE_END, 0.2 * options.seconds)
    while waiting and run.left() > reserve:
        ready = [c for c in waiting if kernels[c].done() and references[c.robot, c.function].done()]
        for case in ready[:1]:
            waiting.remove(case)
            made, expected = kernels[case].result(), references[case.robot, case.function].result()
            if "error" in made or "error" in expected:
                run.failed(case.key, made.get("error") or f"reference: {expected['error']}")
                continue
            kernel = dict(zip(Case._fields, case, strict=True)) | made
            if not options.prepare_only:
                _measure(run, measurer, case, kernel)
            run.data["kernels"].append(kernel)
            run.show(report.kernel_line(kernel))
            run.save()
        if not ready:
            time.sleep(0.02)
    for case in waiting:
        made = kernels[case].result() if kernels[case].done() else {}
        run.failed(case.key, made.get("error") or "not measured: there was no time left")


def _measure(run: Run, measurer: Measurer, case: Case, kernel: dict[str, Any]) -> None:
    own = dict(zip(Case._fields, case, strict=True))

    def on_row(row: dict[str, Any]) -> None:
        if "facts" in row:
            kernel.update(row)
            return
        row = own | row
        run.data["rows"].append(row)
        run.show(report.row_line(row))

    request = {"do": "case", "case": case, "layouts": run.options.layouts, "batches": run.options.batches}
    answer = measurer.ask(request | {"instructions": kernel["instructions"]}, _ROW_LIMIT, on_row, run.left())
    if "error" in answer:
        run.failed(case.key, answer["error"])


def _calls(run: Run, measurer: Measurer) -> None:
    """What one call with 256 states costs on the host."""
    case = Case(run.options.robots[0], run.options.functions[0], run.options.dtypes[0])

    def on_row(row: dict[str, Any]) -> None:
        run.data["calls"].append({"robot": case.robot, "function": case.function} | row)
        run.show(report.call_line(case.robot, row))

    if (case.robot, case.function) in {(k["robot"], k["function"]) for k in run.data["kernels"]}:
        answer = measurer.ask({"do": "calls", "case": case}, _ROW_LIMIT, on_row, max(5.0, run.left()))
        if "error" in answer:
            run.failed("calls from Python", answer["error"])


def _rollouts(run: Run, measurer: Measurer) -> None:
    """Steps of time, of the robots that have a target for them."""
    for robot, integrator in targets.ROLLOUTS:
        if robot not in run.options.robots or run.left() < 5.0:
            continue
        answer = measurer.ask({"do": "rollout", "robot": robot, "integrator": integrator}, min(_ROW_LIMIT, run.left()))
        if "error" in answer:
            run.failed(f"{robot} steps of {integrator}", str(answer["error"]))
            continue
        run.data["rollouts"].append({"robot": robot} | answer)
        run.show(rollouts.line(run.data["rollouts"][-1]))


def _frax(run: Run, measurer: Measurer) -> None:
    """The JAX library, on those of its robots that are in the run. Compiling may take long: it has what is left of time."""
    for robot in others.FRAX_ROBOTS:
        for function in others.FRAX_FUNCTIONS:
            ours = "forward_dynamics" if function == others.FRAX_GRADIENT else function
            if robot not in run.options.robots or ours not in run.options.functions or run.left() < 5.0:
                continue
            own = {"robot": robot, "function": function}

            def on_row(row: dict[str, Any], own: dict[str, Any] = own) -> None:
                run.data["frax"].append(own | row)
                run.show(report.frax_line(own | row))

            answer = measurer.ask({"do": "frax", **own, "batches": run.options.batches}, run.left(), on_row)
            if "error" in answer:
                run.failed(f"frax {robot} {function}", answer["error"])
                if answer["error"].startswith("ModuleNotFoundError"):
                    return
