"""Dynamics inside PyTorch and JAX on a card, beside frax: `python -m benchmarks.gpu.frameworks --robots-dir ROBOTS`.

Calls go through `qddot.torch` and `qddot.jax` on arrays of these packages on the card, in float32. The time is the host's,
of some calls of which the last is waited for, as frax's recorded figures are; PyTorch's rows have the card's own time
beside it. The gradient is that of the sum of all accelerations with respect to q, v and tau, in reverse.

Kernels are compiled by many processes at once. Each framework has a process of its own, which is started again if it ends
or hangs; each row is in the file (--json) as soon as it is measured. Before a row counts, its results are compared with
the CPU's kernel in float64, and rows in float64 with the CPU's bits. --rehearse does all of it without a card.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases import TOLERANCE
from benchmarks.gpu import cases, others
from benchmarks.gpu.acceptance import machine
from benchmarks.gpu.children import Measurer, Preparers

ROBOTS = ("panda7", "g1-floating")
GRADIENT = others.FRAX_GRADIENT
FUNCTIONS = ("inverse_dynamics", "mass_matrix", "forward_dynamics", GRADIENT)
GRAPH = "torch-graph"  # calls of qddot.torch that were captured in a CUDA graph: the host takes little time for them
FRAMEWORKS = ("torch", "jax", GRAPH, "frax")
LATE = (GRAPH, "frax")  # measured when all others are done; frax compiles for long
BATCH, GRADIENT_BATCH = 1 << 20, 65_536
RECORDED = {  # frax on an H200, float32, 1e9 states a second
    "panda7": dict(zip(FUNCTIONS, (0.108, 0.118, 0.061, 0.027), strict=True)),
    "g1-floating": dict(zip(FUNCTIONS, (0.022, 0.021, 0.011, 0.0053), strict=True)),
}
WANTED = 100.0  # times frax's
_ROW_SECONDS = 25.0  # that a row may take
_ROUND_SECONDS, _ROUNDS, _MOST_CALLS = 0.02, 5, 50
_TIMES_THE_CPU = 4.0  # error of single precision over that of the CPU's kernel: its order of operations may differ


class Row(NamedTuple):
    """What is measured."""

    framework: str
    robot: str
    function: str
    dtype: str
    batch: int


def rows(robots: list[str], frameworks: list[str], rehearse: bool) -> list[Row]:
    """In the order in which they are measured, where kernels are ready."""
    found = []
    for robot in robots:
        for function in FUNCTIONS:
            batch = GRADIENT_BATCH if function == GRADIENT else BATCH
            found += [Row(x, robot, function, "float32", 700 if rehearse else batch) for x in frameworks]
        found += [Row(x, robot, "inverse_dynamics", "float64", cases.STATES) for x in frameworks if x not in LATE]
    return sorted(found, key=lambda r: LATE.index(r.framework) if r.framework in LATE else -1)


# ---- kernels and what is expected: processes of `prepare`


def kernel_options(function: str) -> dict[str, Any]:
    """Of the kernel that the frameworks call for a gradient; of a function itself: none."""
    own = {"vjp": True, "known_result": True, "coordinates": "ambient", "wrt": ("q", "v", "tau")}
    return own if function == GRADIENT else {}


def base(function: str) -> str:
    """The function that is differentiated."""
    return "forward_dynamics" if function == GRADIENT else function


def arguments(robot: Any, function: str) -> list[np.ndarray]:
    """Of so many states, in doubles that single precision holds."""
    return cases.states(robot, base(function))


def expectation(folder: Path, robot: str, function: str) -> Path:
    """Where results of the CPU's kernels lie."""
    return folder / "expected" / f"{robot}.{function}.npz"


def expected(folder: Path, name: str, function: str) -> dict[str, Any]:
    """Writes the results of the CPU's kernels in both types."""
    robot, found = cases.load(name, folder / "robots"), {}
    for dtype in cases.DTYPES:
        given = [x.astype(dtype) for x in arguments(robot, function)]
        if function == GRADIENT:  # the result itself, and the cotangent of a sum
            given += [robot.kernel(base(function), dtype=dtype)(*given), np.ones((len(given[0]), robot.nv), dtype)]
        kernel = robot.kernel(base(function), dtype=dtype, **kernel_options(function))
        found[dtype] = kernel(*given).reshape(len(given[0]), -1)
    path = expectation(folder, name, function)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.stem}.{os.getpid()}.npz")
    np.savez(temporary, **found)
    temporary.replace(path)
    return {}


def compiled(folder: Path, name: str, function: str, dtype: str, on_card: bool) -> dict[str, Any]:
    """Leaves the kernels of a row in the cache: that of the function, too, if it is a gradient."""
    robot, out = cases.load(name, folder / "robots"), {}
    target = "cuda" if on_card else "cpu"
    for options in ({}, kernel_options(function)) if function == GRADIENT else ({},):
        kernel = robot.kernel(base(function), dtype=dtype, target=target, **options)
        out = {"instructions": kernel.info.instructions, "compile_seconds": kernel.info.compile_seconds}
        if on_card:
            from benchmarks.gpu.prepare import _assembled
            from qddot.compiler.runtime.cuda.kernel import code_of

            out |= _assembled(code_of(kernel))
    return out


# ---- a framework's process


class Package:
    """A framework, with the arrays that were made last."""

    def __init__(self) -> None:
        self._last: tuple[Any, list[Any]] = (None, [])

    def array(self, x: np.ndarray) -> Any:
        """On the card."""
        raise NotImplementedError

    def arguments(self, robot: Any, row: Row) -> list[Any]:
        """All states of a row: the same few hundred again and again."""
        key = row.robot, row.dtype, row.batch
        if self._last[0] != key:
            known = [x.astype(row.dtype) for x in arguments(robot, "inverse_dynamics")]
            self._last = None, []  # frees memory first
            self._last = key, [self.array(np.resize(x, (row.batch, x.shape[1]))) for x in known]
        return self._last[1][: 1 if row.function == "mass_matrix" else None]


class Torch(Package):
    """`qddot.torch`."""

    def __init__(self, rehearse: bool, in_graph: bool = False) -> None:
        super().__init__()
        import torch

        import qddot.torch  # noqa: F401  before the clock starts

        self.torch, self.device = torch, "cpu" if rehearse else "cuda"
        self.version, self.on_card, self.in_graph = torch.__version__, not rehearse, in_graph and not rehearse
        if not rehearse:
            torch.zeros(1, device="cuda").sum().item()
        leaf = torch.ones(1, device=self.device, requires_grad=True)
        torch.autograd.grad(leaf.sum(), leaf)  # starts its thread

    def array(self, x: np.ndarray) -> Any:
        return self.torch.from_numpy(x).to(self.device)

    def call(self, robot: Any, function: str, given: list[Any]) -> Callable[[], Any]:
        """A call with these arrays, and what it gives."""
        own = robot.torch()
        if function != GRADIENT:
            run = getattr(own, function)
            return self._captured(lambda: run(*given))
        leaves, grad = [x.detach().requires_grad_() for x in given], self.torch.autograd.grad
        return self._captured(lambda: grad(own.forward_dynamics(*leaves).sum(), leaves))

    def _captured(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """The same as a CUDA graph, if it is to be."""
        if not self.in_graph:
            return call
        cuda, graph, side = self.torch.cuda, self.torch.cuda.CUDAGraph(), self.torch.cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(3):
                call()
        cuda.current_stream().wait_stream(side)
        with cuda.graph(graph):
            found = call()

        def replay() -> Any:
            graph.replay()
            return found

        return replay

    def wait(self, _: Any) -> None:
        if self.on_card:
            self.torch.cuda.synchronize()

    def card_seconds(self, call: Callable[[], Any], host: float) -> float | None:
        """Of a call on the card; calls are queued behind a pause before the clock starts."""
        if not self.on_card:
            return None
        cuda, least = self.torch.cuda, np.inf
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        calls = max(3, min(_MOST_CALLS, int(_ROUND_SECONDS / host)))
        for _ in range(3):
            cuda._sleep(int(2e9 * 150e-6 * calls))
            begin.record()
            for _ in range(calls):
                call()
            end.record()
            end.synchronize()
            least = min(least, 1e-3 * begin.elapsed_time(end) / calls)
        return least

    def tidy(self) -> None:
        if self.on_card:
            self.torch.cuda.empty_cache()


class Jax(Package):
    """`qddot.jax`; and frax, which would compute in float64 where that is on."""

    def __init__(self, rehearse: bool, doubles: bool = True) -> None:
        super().__init__()
        import jax

        import qddot.jax  # noqa: F401  before the clock starts

        jax.config.update("jax_enable_x64", doubles)
        self.jax, self.version, self.on_card = jax, jax.__version__, not rehearse
        if not rehearse and jax.default_backend() == "cpu":
            raise RuntimeError("this JAX is for the CPU")
        jax.block_until_ready(jax.numpy.zeros(1) + 1)

    def array(self, x: np.ndarray) -> Any:
        return self.jax.device_put(x)

    def call(self, robot: Any, function: str, given: list[Any]) -> Callable[[], Any]:
        own = robot.jax()
        if function != GRADIENT:
            run = self.jax.jit(getattr(own, function))
        else:
            run = self.jax.jit(self.jax.grad(lambda q, v, tau: own.forward_dynamics(q, v, tau).sum(), (0, 1, 2)))
        return lambda: run(*given)

    def wait(self, found: Any) -> None:
        self.jax.block_until_ready(found)

    def card_seconds(self, call: Callable[[], Any], host: float) -> float | None:
        return None

    def tidy(self) -> None:
        self.jax.clear_caches()


def measured(folder: Path, row: Row, package: Any) -> dict[str, Any]:
    """A row: compared, then timed."""
    robot = cases.load(row.robot, folder / "robots")
    begin = time.perf_counter()
    if row.framework == "frax":
        call, out = frax_call(row, package), {}
        package.wait(call())
    else:
        call = package.call(robot, row.function, package.arguments(robot, row))
        found = call()
        package.wait(found)
        out = agreement(folder, row, found)
        del found
    out["first_seconds"] = time.perf_counter() - begin
    host = seconds(call, package.wait)
    out |= {"seconds": host, "states_per_second": row.batch / host}
    if (card := package.card_seconds(call, host)) is not None:
        out |= {"card_seconds": card, "card_states_per_second": row.batch / card}
    package.tidy()
    return out


def seconds(call: Callable[[], Any], wait: Callable[[Any], None]) -> float:
    """Of one call: many are made, and the last is waited for; the best of some rounds."""
    begin = time.perf_counter()
    wait(call())
    once = time.perf_counter() - begin
    calls, least = max(3, min(_MOST_CALLS, int(_ROUND_SECONDS / once))), np.inf
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        for _ in range(calls):
            found = call()
        wait(found)
        least = min(least, (time.perf_counter() - begin) / calls)
    return float(least)


def agreement(folder: Path, row: Row, found: Any) -> dict[str, Any]:
    """The error against doubles of the CPU, relative to the largest number; whether bits are the CPU's."""
    known = np.load(expectation(folder, row.robot, row.function))
    precise, same = known["float64"], known[row.dtype]
    parts, count = found if isinstance(found, tuple) else (found,), min(row.batch, cases.STATES)
    scale, worst, equal = float(np.abs(precise).max()) or 1.0, 0.0, True
    for at in {0, row.batch - count}:
        which = np.arange(at, at + count) % len(precise)
        pieces = [_host(x[at : at + count]).reshape(count, -1) for x in parts]
        mine = np.concatenate(pieces, axis=-1)
        errors = np.abs(mine - precise[which])
        worst = max(worst, float(np.where(np.isnan(errors), np.inf, errors).max()) / scale)
        equal = equal and bool((mine == same[which]).all()) and str(mine.dtype) == row.dtype
    own = float(np.abs(known["float32"] - precise).max()) / scale
    most = TOLERANCE if row.dtype == "float64" else _TIMES_THE_CPU * own + float(np.finfo(np.float32).eps)
    return {"difference": worst, "cpu_difference": own, "bits_equal": equal, "agrees": equal or worst <= most}


def _host(x: Any) -> np.ndarray:
    return np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)


def frax_call(row: Row, package: Any) -> Callable[[], Any]:
    run, given_of = others.frax_function(row.robot, row.function)
    given = [package.array(x) for x in given_of(row.batch)]
    return lambda: run(*given)


def serve(framework: str, folder: Path, rehearse: bool) -> None:
    """A framework's process: rows come in as lines of JSON, and go out measured."""

    def send(x: dict[str, Any]) -> None:
        print(json.dumps(x), flush=True)

    package, failure = None, ""
    try:
        is_torch = framework in ("torch", GRAPH)
        package = Torch(rehearse, framework == GRAPH) if is_torch else Jax(rehearse, doubles=framework == "jax")
    except Exception as error:  # said for each row
        failure = f"{type(error).__name__}: {error}"
    for line in sys.stdin:
        request = json.loads(line)
        if package is None:
            send({"done": {"error": failure}})
        elif "row" not in request:
            send({"done": {"version": package.version}})
        else:
            try:
                send({"done": measured(folder, Row(*request["row"]), package)})
            except Exception as error:  # becomes a row of the report
                send({"done": {"error": f"{type(error).__name__}: {error}"[:1000], "code": getattr(error, "code", 0)}})


# ---- the run


class Run:
    """What is known so far, in a file that is written after each row."""

    def __init__(self, folder: Path, path: Path | None, end: float, rehearse: bool) -> None:
        self.folder, self.path, self.end, self.rehearse = folder, path, end, rehearse
        self.data: dict[str, Any] = {"rehearsal": rehearse, "rows": [], "errors": []}
        self._processes: dict[str, Measurer] = {}

    def left(self) -> float:
        return self.end - time.monotonic()

    def measurer(self, framework: str) -> Measurer:
        """A framework's process."""
        if framework not in self._processes:
            (self.folder / framework).mkdir(parents=True, exist_ok=True)
            made = self._processes[framework] = Measurer(self.folder)
            words = ["--serve", framework, "--folder", str(self.folder), *(["--rehearse"] if self.rehearse else [])]
            made.command = [sys.executable, "-m", "benchmarks.gpu.frameworks", *words]
            made._log = self.folder / framework / "log"
        return self._processes[framework]

    def close(self) -> None:
        for process in self._processes.values():
            process.close()

    def save(self) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_name(self.path.name + ".tmp")
            temporary.write_text(json.dumps(self.data, indent=1), encoding="utf-8")
            temporary.replace(self.path)

    def measure(self, row: Row, kernel: dict[str, Any]) -> None:
        """A row, into the file."""
        limit = min(_ROW_SECONDS, max(1.0, self.left()))
        answer = self.measurer(row.framework).ask({"row": row}, limit)
        if "error" in answer:
            self.failed(row, answer["error"])
            return
        own = row._asdict() | {"instructions": kernel.get("instructions")} | answer
        if row.dtype == "float32":
            own["recorded_frax"] = 1e9 * RECORDED[row.robot][row.function]
            own["ratio"] = own["states_per_second"] / own["recorded_frax"]
        self.data["rows"].append(own)
        self.save()
        print(line(own), flush=True)

    def failed(self, row: Row, error: str) -> None:
        self.data["errors"].append(row._asdict() | {"error": error})
        self.save()
        print(f"ERROR {' '.join(map(str, row))}: {error}", flush=True)


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    shown = f"{row['robot']:<12} {row['function']:<26} {row['framework']:<11} {row['dtype']} {row['batch']:>8}"
    shown += f" {row['states_per_second'] / 1e9:8.4f}e9/s"
    if "card_seconds" in row:
        shown += f" (card {row['card_states_per_second'] / 1e9:.4f})"
    if "ratio" in row:
        shown += f" {row['ratio']:7.1f} x frax recorded"
    if "difference" in row:
        words = f"error {row['difference']:.1e}, the CPU's {row['cpu_difference']:.1e}"
        words += ", the CPU's bits" if row["bits_equal"] else ""
        shown += f"; {'' if row['agrees'] else 'WRONG '}{words}"
    return shown


def run(own: Run, robots: list[str], frameworks: list[str], workers: int) -> None:
    """All rows as far as time goes."""
    own.data["machine"] = machine()
    waiting = rows(robots, frameworks, own.rehearse)
    preparers = Preparers(own.folder, workers, 120.0)
    ready: dict[Any, Future[dict[str, Any]]] = {}
    try:
        for row in waiting:
            if row.framework == "frax":
                continue
            kernel, known = (row.robot, row.function, row.dtype), (row.robot, row.function)
            if kernel not in ready:
                job = {"do": "operation", "row": kernel, "on_card": not own.rehearse}
                ready[kernel] = preparers.submit(job)
            if known not in ready:
                ready[known] = preparers.submit({"do": "expected", "row": known})
        for framework in frameworks:
            if framework != "frax":
                answer = own.measurer(framework).ask({}, max(1.0, min(45.0, own.left())))
                own.data.setdefault("frameworks", {})[framework] = answer
                print(f"{framework}: {answer}", flush=True)
        while waiting and own.left() > 1.0:
            is_late = waiting[0].framework in LATE
            own_turn = [r for r in waiting if (r.framework in LATE) == is_late]
            row = next((r for r in own_turn if r.framework == "frax" or all(ready[k].done() for k in keys(r))), None)
            if row is None:
                time.sleep(0.02)
                continue
            waiting.remove(row)
            found = [ready[k].result() for k in keys(row) if k in ready]
            error = next((x["error"] for x in found if "error" in x), None)
            if error is not None:
                own.failed(row, error)
                continue
            own.measure(row, found[0] if found else {})
            if row.framework == "frax" and "No module" in str(own.data["errors"][-1:]):
                waiting = [r for r in waiting if r.framework != "frax"]
        for row in waiting:
            own.failed(row, "not measured: there was no time left")
    finally:
        preparers.close()
        own.close()
        own.save()


def keys(row: Row) -> tuple[Any, Any]:
    """Of what has to be there before a row is measured."""
    return (row.robot, row.function, row.dtype), (row.robot, row.function)


def main(words: list[str] | None = None) -> int:
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--robots", default=",".join(ROBOTS), help="their names")
    add("--robots-dir", type=Path, help="of files of `python -m benchmarks.gpu --save-robots`")
    add("--frameworks", default=",".join(FRAMEWORKS))
    add("--seconds", type=float, default=60.0, help="after which the run ends with what it has")
    add("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes that compile")
    add("--folder", type=Path, help="for code and results of the CPU, kept for the next run (default: a temporary one)")
    add("--json", type=Path, help="the file to write; it is written after every row")
    add("--rehearse", action="store_true", help="arrays of the frameworks on the CPU")
    add("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.serve:
        serve(options.serve, options.folder, options.rehearse)
        return 0
    with tempfile.TemporaryDirectory(prefix="qddot-gpu-", ignore_cleanup_errors=True) as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        robots = cases.available(options.robots.split(","), options.robots_dir)
        robots = [x for x in robots if x in RECORDED]
        cases.save_robots(folder / "robots", robots, options.robots_dir)
        own = Run(folder, options.json, begin + options.seconds, options.rehearse)
        run(own, robots, options.frameworks.split(","), options.workers)
        for row in own.data["rows"]:
            if row.get("ratio", WANTED) < WANTED and row["framework"] != "frax":
                print(f"below {WANTED:g} x frax: {line(row)}")
        return 1 if own.data["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
