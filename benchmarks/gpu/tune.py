"""The search for layouts: which options of `grid.GridOptions` make each kernel fastest.

Rounds for each kernel, each starting from the best so far: how many threads share a state and how long functions are;
where sines are computed; a bound on registers; the threads of a block; the tiles that wait in shared memory. Where warps
share a state, what their phases are made by. Kernels go forward in turn, so that all have seen their most promising layouts
when time ends.
"""

import time
from concurrent.futures import Future
from typing import Any

from benchmarks.gpu import cases, report
from benchmarks.gpu.cases import Case
from benchmarks.gpu.children import Measurer, Preparers
from benchmarks.gpu.run import Run
from qddot.compiler.codegen.abi.grid import GridOptions
from qddot.compiler.codegen.llvm.thread_program import WHOLE_ROW_MAX_NUMBERS

GROUPS = (1, 2, 4, 6, 8, 16)
FUNCTION_OPS = (8000, 4000, 16000)
REGISTERS = (128, 168, 96, 80, 64)
NEAR_OPS = (0, 10_000)
THREADS = (32, 64, 128)
TILES = (1, 2, 3, 4)
WARPS = (8, 4)
PHASES_MIN_OPS = 2000
IN_PHASES = {
    "phase_ops": (100, 200, 400),
    "level_step": (10, 50, 200),
    "held_values": (150, 170, 210),
    "most_places": (400, 1000),
}

SMALL_BATCH = 256
_MEASURE_LIMIT = 60.0  # seconds
_FIRST = 3  # candidates of a kernel before others have theirs
Options = dict[str, Any]


def default(text: Options | None = None) -> Options:
    """The options as a table, without the second kernel, which does not matter here."""
    return GridOptions(strided=False)._asdict() | (text or {})


def first_round(instructions: int) -> list[Options]:
    """Threads of a state by lengths of functions, the likeliest first, as far as they matter for so many operations."""
    groups = [g for g in GROUPS if g == 1 or instructions // g >= 300]
    likely = max(1, -(-instructions // 4500))
    groups.sort(key=lambda g: abs(g - likely))
    whole = next((n for n in FUNCTION_OPS if n >= instructions), 0)
    lengths = [n for n in FUNCTION_OPS if n < instructions or n == whole]
    found = [default({"groups": g, "function_max_ops": n}) for n in lengths for g in groups]
    return [*found[:2], *in_phases(instructions), *found[2:]]


def in_phases(instructions: int) -> list[Options]:
    """Warps that share a state's values, with room for one block on a multiprocessor or for two."""
    if instructions < PHASES_MIN_OPS:
        return []
    found = [{"warps_per_state": n, "most_places": room} for room in (1600, 700) for n in WARPS]
    found += [{"warps_per_state": 8, "most_places": 700, "max_registers": 128}, {"warps_per_state": 16}]
    return [default(x) for x in found]


def next_round(number: int, best: Options, numbers: int) -> list[Options]:
    """Round 2 and later, around the best so far."""
    if best["warps_per_state"] > 1:
        name, values = list(IN_PHASES.items())[number - 2]
        return [x for n in values if (x := best | {name: n}) != best]
    rounds = [
        [{"near_max_ops": n} for n in NEAR_OPS if best["groups"] == 1],
        [{"max_registers": n} for n in REGISTERS],
        [{"threads": n} for n in THREADS],
        [{"tile_buffers": n} for n in TILES] if numbers > WHOLE_ROW_MAX_NUMBERS else [],
    ]
    return [x for own in rounds[number - 2] if (x := best | own) != best]


ROUNDS = 5


class Kernel:
    """The search of one kernel: what is still to be tried, what is under way, what was found."""

    def __init__(self, case: Case, instructions: int, numbers: int) -> None:
        self.case, self.instructions, self.numbers = case, instructions, numbers
        self.round, self.queue = 1, first_round(instructions)
        self.tried: list[Options] = []
        self.open = 0
        self.found: list[dict[str, Any]] = []

    def take(self) -> Options | None:
        """The next layout to try; None while a round is not complete, or at the end."""
        while not self.queue and not self.open and self.round < ROUNDS and self.best is not None:
            self.round += 1
            self.queue = [x for x in next_round(self.round, self.best["options"], self.numbers) if x not in self.tried]
        if not self.queue:
            return None
        self.open += 1
        self.tried.append(self.queue.pop(0))
        return self.tried[-1]

    @property
    def best(self) -> dict[str, Any] | None:
        """What is fastest in large batches."""
        return min((x for x in self.found if agrees(x)), key=seconds_of_large, default=None)

    @property
    def is_done(self) -> bool:
        return not self.open and not self.queue and (self.round >= ROUNDS or self.best is None)


def agrees(variant: dict[str, Any]) -> bool:
    """Whether it was measured, and its results are right."""
    return "rows" in variant and all(r["agrees"] for r in variant["rows"])


def seconds_of_large(variant: dict[str, Any]) -> float:
    """Of a state, in the largest batch."""
    row = variant["rows"][-1]
    return row["seconds"] / row["batch"]


class Tuning:
    """A search in progress."""

    def __init__(self, run: Run) -> None:
        self.run, options = run, run.options
        self.batches = sorted({SMALL_BATCH, max(options.batches)})
        self.measurer = Measurer(options.folder)
        self.preparers = Preparers(options.folder, options.workers, options.compile_limit)
        self.starting: list[tuple[Case, Future[dict[str, Any]], Future[dict[str, Any]]]] = []
        self.kernels: list[Kernel] = []
        self.waiting: list[tuple[Kernel, Options, Future[dict[str, Any]]]] = []
        run.data["variants"] = []

    def start(self) -> None:
        """Traces every kernel, and computes what is expected of it: the size of its program says what to try."""
        options = self.run.options
        for case in cases.all_cases(options.robots, options.functions, options.dtypes):
            expected = self.preparers.submit({"do": "reference", "robot": case.robot, "function": case.function})
            self.starting.append((case, expected, self.preparers.submit({"do": "trace", "case": case})))

    def begin(self) -> None:
        """Begins the search of kernels that are traced by now."""
        for own in [x for x in self.starting if x[1].done() and x[2].done()]:
            self.starting.remove(own)
            case, expected, made = own[0], own[1].result(), own[2].result()
            if error := made.get("error") or expected.get("error"):
                self.run.failed(case.key, error)
            else:
                self.kernels.append(Kernel(case, made["instructions"], made["numbers"]))

    @property
    def is_done(self) -> bool:
        return not self.starting and all(k.is_done for k in self.kernels)

    def fill(self) -> None:
        """Keeps the processes that compile busy, and no more than that."""
        while len(self.waiting) < 2 * self.run.options.workers:
            order = sorted(self.kernels, key=lambda k: max(len(k.tried), _FIRST))
            for kernel in order:
                if (options := kernel.take()) is not None:
                    job = {"do": "variant", "case": kernel.case, "options": options, "on_card": True}
                    self.waiting.append((kernel, options, self.preparers.submit(job)))
                    break
            else:
                return

    def measure_one(self) -> bool:
        """Measures one layout that is ready, if there is one."""
        for k, (kernel, options, future) in enumerate(self.waiting):
            if future.done():
                del self.waiting[k]
                kernel.open -= 1
                self._measured(kernel, options, future.result())
                return True
        return False

    def _measured(self, kernel: Kernel, options: Options, made: dict[str, Any]) -> None:
        found = dict(zip(Case._fields, kernel.case, strict=True)) | {"options": options} | made
        if "error" not in found:
            request = {"do": "variant", "case": kernel.case, "options": options, "batches": self.batches}
            limit = max(1.0, min(_MEASURE_LIMIT, self.run.left()))
            found |= self.measurer.ask(request | {"instructions": kernel.instructions}, limit)
        kernel.found.append(found)
        self.run.data["variants"].append(found)
        self.run.show(variant_line(found))
        self.run.save()

    def close(self) -> None:
        self.preparers.close()
        self.measurer.close()


def search(tuning: Tuning) -> int:
    """The whole search; the exit code."""
    run = tuning.run
    try:
        machine = tuning.measurer.ask({"do": "card"}, 120.0)
        if "error" in machine:
            run.failed("the card", machine["error"])
            return 2
        run.data["machine"] = machine
        run.show(report.machine_line(machine))
        tuning.start()
        while run.left() > 0.0 and not tuning.is_done:
            tuning.begin()
            tuning.fill()
            if not tuning.measure_one():
                time.sleep(0.02)
    finally:
        tuning.close()
        run.data["best"] = [k.best for k in tuning.kernels if k.best is not None]
        run.save()
    run.show(table(run.data))
    return 0


def variant_line(found: dict[str, Any]) -> str:
    title = cases.FUNCTIONS[found["function"]].title
    head = f"{found['robot']:<16}{title:<18}{found['dtype']:<8}{options_text(found['options'])}"
    if "error" in found:
        return f"{head}: ERROR {found['error']}"
    rates = ", ".join(f"{r['batch']:,}: {r['states_per_second'] / 1e9:.4f} e9/s" for r in found["rows"])
    wrong = "" if agrees(found) else "  WRONG RESULTS"
    return f"{head}: {rates}; {report.facts_text(found['facts'])}; ready in {_ready(found):.1f} s{wrong}"


def options_text(options: Options) -> str:
    """What differs from the defaults."""
    plain = default()
    own = [f"{k}={x}" for k, x in options.items() if x != plain[k]]
    return " ".join(own) or "defaults"


def _ready(found: dict[str, Any]) -> float:
    return found["compile_seconds"] + found.get("assemble_seconds", 0.0)


def table(data: dict[str, Any]) -> str:
    """Each kernel's layouts, the fastest in large batches first."""
    parts, good = [], [x for x in data["variants"] if agrees(x)]
    for case in dict.fromkeys((x["robot"], x["function"], x["dtype"]) for x in good):
        own = [x for x in good if (x["robot"], x["function"], x["dtype"]) == case]
        own.sort(key=seconds_of_large)
        small = min(own, key=lambda x: x["rows"][0]["seconds"])
        rows = [_cells(x, "fastest" if x is own[0] else "fastest of a small batch" if x is small else "") for x in own]
        title = f"{case[0]} {cases.FUNCTIONS[case[1]].title} {case[2]}: {own[0]['instructions']:,} operations"
        columns = (
            "options",
            "1e9/s",
            f"ns at {own[0]['rows'][0]['batch']}",
            "registers",
            "local B",
            "occupancy",
            "ready s",
            "",
        )
        parts.append(f"\n{title}\n\n{report.markdown(columns, rows)}")
    return "\n".join(parts) or "nothing was measured"


def _cells(x: dict[str, Any], note: str) -> tuple[str, ...]:
    f, first = x["facts"]["rows"][0], x["rows"][0]
    rate = f"{1e-9 / seconds_of_large(x):.4f}"
    ns = f"{1e9 * first['seconds'] / first['batch']:.1f}"
    own = str(f["registers"]), str(f["local_bytes"]), f"{f['occupancy']:.2f}", f"{_ready(x):.1f}"
    return options_text(x["options"]), rate, ns, *own, note
