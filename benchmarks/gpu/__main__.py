"""The command line of the benchmark of kernels on a graphics card.

python -m benchmarks.gpu --seconds 540 --json gpu.json                  figures
python -m benchmarks.gpu --tune --seconds 540 --json tune.json          which layout is fastest for each kernel
python -m benchmarks.gpu --save-robots FOLDER [--thirty]                the robots as files, for another machine
python -m benchmarks.gpu --rehearse --seconds 60                        everything but the card
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu import cases
from benchmarks.gpu.acceptance import THIRTY
from benchmarks.gpu.run import BESIDE, Options, Run, figures
from benchmarks.gpu.tune import Tuning, search


def _listed(known: tuple[str, ...] | dict[str, Any]) -> Any:
    def words(text: str) -> list[str]:
        found = [x for x in text.split(",") if x]
        for x in found:
            if x not in known:
                raise argparse.ArgumentTypeError(f"{x!r} is not known; take some of {', '.join(known)}")
        return found

    return words


def _counts(text: str) -> list[int]:
    found = [int(x) for x in text.split(",")]
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give whole numbers from 1 on, with commas between them")
    return found


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("--robots", default=",".join(cases.ROBOTS), help="their names; saved: all files of --robots-dir")
    add("--functions", type=_listed(cases.FUNCTIONS), default=list(cases.FUNCTIONS))
    add("--dtypes", type=_listed(cases.DTYPES), help="default: both; of a search float32")
    add("--layouts", type=_listed(cases.LAYOUTS), default=list(cases.LAYOUTS))
    add("--batches", type=_counts, default=list(cases.BATCHES), help="states of a batch, with commas between them")
    add("--seconds", type=float, default=540.0, help="after which the run ends with what it has")
    add("--compile-limit", type=float, default=150.0, help="seconds for one kernel to be compiled and assembled")
    add("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes that compile")
    add("--robots-dir", type=Path, help="of files of --save-robots, where example-robot-data is not installed")
    add("--beside", type=_listed(BESIDE), default=list(BESIDE), help="what else is measured: calls, rollouts, frax")
    add("--folder", type=Path, help="for code and results of the CPU, kept for the next run (default: a temporary one)")
    add("--json", type=Path, help="the file to write; it is written after every case")
    add("--rehearse", action="store_true", help="kernels of the CPU in the place of a card")
    add("--prepare-only", action="store_true", help="compile to PTX and compute what is expected; needs no card")
    add("--tune", action="store_true", help="try other layouts of each kernel")
    add("--save-robots", type=Path, metavar="FOLDER", help="write the robots' files, and nothing more")
    add("--thirty", action="store_true", help="with --save-robots: thirty robots of example-robot-data, too")
    options = parser.parse_args(words)
    options.robots = _robots(parser, options.robots, options.robots_dir)
    if options.prepare_only and options.folder is None:
        parser.error("--prepare-only needs --folder, to keep what it makes")
    if options.tune and (options.rehearse or options.prepare_only):
        parser.error("--tune needs a card")
    if options.workers < 1 or options.seconds <= 0.0:
        parser.error("--workers and --seconds must be above zero")
    return options


def _robots(parser: argparse.ArgumentParser, text: str, folder: Path | None) -> list[str]:
    if text == "saved":
        if folder is None or not (found := cases.saved(folder)):
            parser.error("--robots saved: there are no robots in --robots-dir")
        return found
    names, known = (
        [x for x in text.split(",") if x],
        [*cases.ROBOTS, *cases.EMBEDDED, *(cases.saved(folder) if folder else ())],
    )
    for x in names:
        if x not in known:
            parser.error(f"{x!r} is not known; take some of {', '.join(known)}")
    return names


def show(text: str) -> None:
    print(text, flush=True)


def main(words: list[str] | None = None) -> int:
    begin, options = time.monotonic(), arguments(words)
    robots = cases.available(options.robots, options.robots_dir)
    if missing := [x for x in options.robots if x not in robots]:
        show(f"no file of {', '.join(missing)} here (--robots-dir); the run is of {', '.join(robots)}")
    if options.save_robots:
        for path in cases.save_robots(options.save_robots, robots, options.robots_dir):
            show(str(path))
        if options.thirty:
            show(f"and {len(cases.save_thirty(options.save_robots / THIRTY))} robots in {options.save_robots / THIRTY}")
        return 0
    with tempfile.TemporaryDirectory(prefix="qddot-gpu-", ignore_cleanup_errors=True) as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        cases.save_robots(folder / "robots", robots, options.robots_dir)
        dtypes = options.dtypes or (["float32"] if options.tune else list(cases.DTYPES))
        own = Options(
            folder,
            robots,
            options.functions,
            dtypes,
            options.layouts,
            options.batches,
            options.seconds,
            options.workers,
            options.compile_limit,
            options.rehearse,
            options.prepare_only,
            tuple(options.beside),
        )
        run = Run(own, options.json, begin, show)
        return search(Tuning(run)) if options.tune else figures(run)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends as well
    sys.exit(main())
