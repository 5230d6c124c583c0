"""Everything that is to be known of a card in one call: `python -m benchmarks.gpu.acceptance FOLDER --robots-dir ROBOTS`.

In eight minutes: the targets' rows, calls from Python and rollouts; the tests marked gpu; precision and bits of thirty
robots; `qddot bench`; all batches and layouts, and frax. Each part is a process with a limit of time, what it prints is in
FOLDER/NAME.log, what it finds in FOLDER/NAME.json, and FOLDER/summary.json is written after each part, so that nothing is
lost if the time is over. ROBOTS comes from a machine that has example-robot-data:

    python -m benchmarks.gpu --save-robots ROBOTS --thirty

Needs NumPy and llvmlite; pytest and hypothesis for the tests; PyTorch, CuPy, JAX and frax for their rows.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu import cases, targets

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "llvmlite", "torch", "jax", "jaxlib", "cupy-cuda12x", "cupy-cuda13x", "numba", "frax", "pytest")
TESTS = ("tests/compiler/test_cuda_device.py", "tests/compiler/test_cuda_kernels.py", "tests/torch/test_torch_cuda.py")
THIRTY = "thirty"  # the folder of their files among those of the robots
_ENDING = 10.0  # seconds that a part has to end when its time is over


class Part(NamedTuple):
    """What is run, and its share of the time that is left."""

    name: str
    words: list[str]
    share: float


class Given(NamedTuple):
    """Of the command line."""

    folder: Path
    work: Path  # code and results of the CPU, which parts share
    robots_dir: Path | None
    robots: list[str]
    rehearse: bool


def parts(given: Given) -> list[Part]:
    """The most important first."""
    rehearse = ["--rehearse"] * given.rehearse
    own = [*_from(given.robots_dir), "--folder", str(given.work), *rehearse]
    robots, module = ["--robots", ",".join(given.robots)], ["-m", "benchmarks.gpu"]
    small, large = (256, 4096) if given.rehearse else (targets.SMALL_BATCH, max(cases.BATCHES))
    of_targets = ["--layouts", "row", "--batches", f"{small},{large}", "--beside", "calls,rollouts"]
    every = ["--batches", f"{small},{large}"] if given.rehearse else []
    found = [
        Part("figures", [*module, *robots, *own, *of_targets], 10.0),
        Part("tests", ["-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-v", "-rs", "-m", "gpu", *TESTS], 5.0),
        Part("bench", ["-m", "qddot", "bench", "puma560", "--target", "cpu" if given.rehearse else "cuda"], 1.0),
        Part("curves", [*module, *robots, *own, *every, "--dtypes", "float32", "--beside", "frax"], 5.0),
    ]
    thirty = given.robots_dir / THIRTY if given.robots_dir else None
    if thirty and thirty.is_dir():
        words = [*module, *_from(thirty), "--robots", "saved", "--folder", str(given.work / THIRTY), *rehearse]
        words += ["--functions", "inverse_dynamics,forward_dynamics,mass_matrix", "--layouts", "row", "--batches", "512"]
        found.insert(2, Part("thirty", [*words, "--beside", ""], 4.0))
    return found


def _from(folder: Path | None) -> list[str]:
    return ["--robots-dir", str(folder)] if folder else []


def run(given: Given, all_parts: Iterable[Part], seconds: float) -> dict[str, Any]:
    """All parts as far as time goes; the summary."""
    end = time.monotonic() + seconds
    given.folder.mkdir(parents=True, exist_ok=True)
    summary: dict[str, Any] = {"machine": machine(), "rehearsal": given.rehearse, "parts": {}}
    waiting = list(all_parts)
    while waiting:
        part = waiting[0]
        left = end - time.monotonic()
        limit = left * part.share / sum(p.share for p in waiting)
        waiting.pop(0)
        summary["parts"][part.name] = _done(given, part, limit) if left > _ENDING else {"error": "there was no time left"}
        print(f"== {part.name}: {json.dumps(summary['parts'][part.name])[:300]}", flush=True)
        summary |= _found(given.folder)
        temporary = given.folder / "summary.json.tmp"
        temporary.write_text(json.dumps(summary, indent=1), encoding="utf-8")
        temporary.replace(given.folder / "summary.json")
    return summary


def _done(given: Given, part: Part, limit: float) -> dict[str, Any]:
    """Runs a part; one that does not end in time is asked to, and then ended with all that it has started."""
    begin, words = time.monotonic(), [sys.executable, *part.words]
    if part.words[:2] == ["-m", "benchmarks.gpu"]:
        words += ["--seconds", f"{max(5.0, limit - _ENDING):.0f}", "--json", str(given.folder / f"{part.name}.json")]
    with (given.folder / f"{part.name}.log").open("w", encoding="utf-8") as log:
        log.write(f"$ python {' '.join(words[1:])}\n")
        log.flush()
        environment = os.environ | {
            "QDDOT_CACHE_DIR": str(given.work / "cache"),
            "QDDOT_CACHE_KEY": str(given.work / "cache.key"),
        }
        process = subprocess.Popen(
            words, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env=environment, start_new_session=True
        )
        try:
            process.wait(timeout=max(1.0, limit))
            return {"exit": process.returncode, "seconds": round(time.monotonic() - begin, 1)}
        except subprocess.TimeoutExpired:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_ENDING)
            return {"error": f"ended after {limit:.0f} s", "seconds": round(time.monotonic() - begin, 1)}
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def machine() -> dict[str, Any]:
    """What the figures are of."""
    known = {}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            known[name] = importlib.metadata.version(name)
    found = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "python": platform.python_version()}
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem,power.limit", "--format=csv"]
    commit = ["git", "rev-parse", "HEAD"]
    return found | {"packages": known, "card": _said(asked), "commit": _said(commit), "processors": os.cpu_count()}


def _said(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=30)
    return done.stdout.strip()


def _found(folder: Path) -> dict[str, Any]:
    """What the files of the parts say: targets, precision and bits by function and type, errors."""
    out: dict[str, Any] = {}
    for path in (folder / f"{name}.json" for name in ("figures", "curves", "thirty")):
        with suppress(OSError, json.JSONDecodeError):
            data = json.loads(path.read_text(encoding="utf-8"))
            out[path.stem] = {"rows": len(data["rows"]), "errors": data["errors"]}
            if path.stem == "figures":
                out["targets"] = [v._asdict() for v in targets.verdicts(data)]
            if path.stem == "thirty":
                out["precision"] = precision(data["rows"])
    return out


def precision(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each function and type: robots, those with the CPU's bits, and the robot with the largest error."""
    found: dict[str, Any] = {}
    for r in rows:
        if "seconds" in r:
            own = found.setdefault(
                f"{r['function']} {r['dtype']}", {"robots": 0, "bits_equal": 0, "wrong": [], "error": -1.0}
            )
            own["robots"] += 1
            own["bits_equal"] += r["bits_equal"]
            own["wrong"] += [] if r["agrees"] else [r["robot"]]
            if r["error"] > own["error"]:
                own |= {"error": r["error"], "worst": r["robot"]}
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.acceptance", description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="where logs and figures go")
    parser.add_argument("--seconds", type=float, default=460.0, help="of all parts together")
    parser.add_argument("--robots-dir", type=Path, help="of files of `benchmarks.gpu --save-robots ROBOTS --thirty`")
    parser.add_argument("--robots", default="panda7,talos-fixed,g1-floating", help="whose figures are taken")
    parser.add_argument("--parts", help="some of figures, tests, thirty, bench, curves; all of them unless said")
    parser.add_argument("--work", type=Path, help="for code that is kept for the next call (default: a temporary folder)")
    parser.add_argument("--rehearse", action="store_true", help="kernels of the CPU in the place of a card")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="qddot-acceptance-", ignore_cleanup_errors=True) as temporary:
        work = (options.work or Path(temporary)).absolute()
        robots_dir = options.robots_dir.absolute() if options.robots_dir else None
        given = Given(options.folder.absolute(), work, robots_dir, options.robots.split(","), options.rehearse)
        wanted = options.parts.split(",") if options.parts else None
        summary = run(given, [p for p in parts(given) if wanted is None or p.name in wanted], options.seconds)
    known = summary.get("targets", [])
    missed = [v["what"] for v in known if v["met"] is not True]
    print(
        f"{len(known) - len(missed)} of {len(known)} targets are met; missed or not measured: {', '.join(missed) or 'none'}"
    )
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends as well
    sys.exit(main())
