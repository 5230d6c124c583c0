"""qddot against Pinocchio and MuJoCo, on the same states in the same run: `python -m benchmarks.peers`.

What is compared, and how to read the table, is in README.md of this folder.
"""

import argparse
import concurrent.futures
import ctypes
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import qddot
from benchmarks import mujoco_peer, native, pinocchio_peer, qddot_side
from benchmarks.cases import ALL, FUNCTIONS, ROBOTS, Case, case
from benchmarks.contest import Contestant, check, fastest, race, ratio
from qddot.compiler.targets.host import host

CPP = tuple(pinocchio_peer.COMPILERS)
CPP_STORED = tuple(name + pinocchio_peer.STORED for name in CPP)
PYTHON = "Pinocchio from Python"

# (ours, theirs) of the ratios shown.
RATIOS = {
    "one lane / C++": (qddot_side.ONE_LANE, CPP),
    "lanes / C++": (qddot_side.LANES, CPP),
    "lanes / C++ stored": (qddot_side.LANES, CPP_STORED),
    "packed / C++": (qddot_side.PACKED, CPP),
    "packed one lane / C++": (qddot_side.PACKED_ONE, CPP),
    "lanes / MuJoCo": (qddot_side.LANES, ("MuJoCo C",)),
    "one call / pin": (qddot_side.CALL, (PYTHON,)),
}


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--robots", type=_names(ROBOTS), default=ALL, help=", ".join(ROBOTS))
    parser.add_argument("--functions", type=_names(FUNCTIONS), default=list(FUNCTIONS), help=", ".join(FUNCTIONS))
    parser.add_argument("--rounds", type=int, default=5, help="how often every contestant has its turn")
    parser.add_argument("--states", type=int, default=4096, help="states in the batch")
    parser.add_argument("--turn", type=float, default=0.03, help="seconds that a turn lasts at least")
    parser.add_argument("--json", type=Path, help="a file for all figures, every round's included")
    parser.add_argument("--no-cpp", action="store_true", help="without the contestants that need a compiler")
    parser.add_argument("--compile-limit", type=float, default=60, help="seconds a kernel may take to compile")
    parser.add_argument("--build-dir", type=Path, default=native.default_build_dir(), help="where builds are kept")
    chosen = parser.parse_args(words)
    if min(chosen.rounds, chosen.states) < 1:
        parser.error("--rounds and --states must be at least 1")
    return chosen


def _names(known: dict[str, Any]) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not known; take some of {', '.join(known)}")
        return names

    return parse


class Contest:
    """One run: the libraries, what could not take part and why, and the rows so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.missing: dict[str, str] = {}
        self.rows: list[dict[str, Any]] = []
        self.libraries: dict[str, native.Library] = {} if options.no_cpp else self._build()
        self.peak = None if options.no_cpp else self._peak()

    def _build(self) -> dict[str, native.Library]:
        folder = self.options.build_dir
        say(f"building the C++ contestants in {folder} (minutes, once)")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            jobs = {
                name: pool.submit(pinocchio_peer.build, compiler, folder)
                for name, compiler in pinocchio_peer.COMPILERS.items()
            }
            jobs["MuJoCo C"] = pool.submit(mujoco_peer.build, folder)
            return {name: job.result() for name, job in jobs.items() if self._available(name, job.result)}

    def _peak(self) -> float | None:
        """Multiply-adds a second on one thread."""
        with suppress(native.Unavailable):
            library = native.build("peak.c", "gcc", (), self.options.build_dir).load()
            library.bench_peak.restype = ctypes.c_double
            return max(library.bench_peak(ctypes.c_long(1_000_000)) for _ in range(10))
        return None

    def _available(self, name: str, attempt: Any) -> bool:
        try:
            attempt()
        except native.Unavailable as reason:
            self.missing.setdefault(name, str(reason))
            return False
        return True

    def run(self) -> Iterator[dict[str, Any]]:
        """The rows of the table, each when it is ready."""
        for name in self.options.robots:
            this = case(name, self.options.states)
            peers = list(self._peers(this))
            for function in self.options.functions:
                say(f"{name} {function}")
                self.rows.append(self._row(this, function, peers))
                yield self.rows[-1]
            for peer in peers:
                peer.close()

    def _peers(self, this: Case) -> Iterator[Any]:
        """Those with a model of their own; what cannot take this robot is noted."""
        made: list[Any] = []

        def attempt(name: str, make: Any) -> None:
            self._available(f"{name}, {this.name}", lambda: made.append(make()))

        for name in CPP:
            if name in self.libraries:
                attempt(name, lambda name=name: pinocchio_peer.InCpp(name, self.libraries[name], states_of(this)))
        if "MuJoCo C" in self.libraries:
            attempt("MuJoCo C", lambda: mujoco_peer.InC(self.libraries["MuJoCo C"], this))
        attempt(PYTHON, lambda: pinocchio_peer.FromPython(states_of(this)))
        yield from made

    def _row(self, this: Case, function: str, peers: list[Any]) -> dict[str, Any]:
        contestants = [c for peer in peers for c in peer.contestants(function)]
        kernels: list[qddot_side.Kernels] = []
        limit = self.options.compile_limit
        if self._available(
            f"qddot, {this.name} {function}", lambda: kernels.append(qddot_side.Kernels(this, function, limit))
        ):
            contestants += kernels[0].contestants()
        reference, tolerance = this.reference(function), this.tolerance(function)
        errors = [check(c, reference, tolerance) for c in contestants]
        race(contestants, self.options.rounds, self.options.turn)
        return {
            "robot": this.name,
            "function": function,
            "nq": this.robot.nq,
            "nv": this.robot.nv,
            "tip": this.robot.model.link_names[this.tip],
            "contestants": contestants,
            "errors": errors,
            "kernel": kernels[0].facts() if kernels else None,
        }


def states_of(this: Case) -> pinocchio_peer.States:
    try:
        return pinocchio_peer.States(this)
    except ImportError as missing:
        raise native.Unavailable(f"the package {missing.name} is not installed") from None


# ---- what is printed -----------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def machine(contest: Contest) -> dict[str, Any]:
    cpu = native.cpu()
    flags = cpu.get("flags", "").split()
    simd = next((name for name in ("avx512f", "avx2", "avx", "sse2") if name in flags), platform.machine())
    name, target = cpu.get("model name", platform.machine()), os.environ.get("QDDOT_TARGET_CPU")
    if target:  # qddot's code is for another processor; Pinocchio's is for this one
        kind = host()
        simd = "avx512f" if kind.avx512 else "avx2" if kind.fma else simd
        name = f"{name} as {target}"
    peak = contest.peak
    return {
        "cpu": name,
        "processors": qddot_side.all_threads(),
        "simd": simd,
        "peak_fma_per_second": peak,
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    out = {"Python": platform.python_version(), "NumPy": np.__version__, "qddot": qddot.__version__}
    for package in ("llvmlite", "pin", "mujoco", "cmeel-eigen", "example-robot-data"):
        with suppress(importlib.metadata.PackageNotFoundError):
            out[package] = importlib.metadata.version(package)
    with suppress(ImportError):
        from llvmlite import binding

        out["LLVM"] = ".".join(map(str, binding.llvm_version_info))
    for compiler in ("gcc", *pinocchio_peer.COMPILERS.values()):
        with suppress(native.Unavailable):
            out[compiler] = native.version_of(compiler)
    return out


def microseconds(contestant: Contestant | None) -> str:
    if contestant is None:
        return "–"
    us = 1e6 * contestant.median
    return f"{us:.3f}" if us < 1 else f"{us:.2f}" if us < 100 else f"{us:.0f}"


KERNEL_COLUMNS = (
    *("robot", "kernel", "method, form", "lanes", "operations", "after fusing", "code, bytes", "compile, s"),
    *("memory, MB", "FMA peak"),
)
# Heading, and the contestants of which the fastest is shown.
COLUMNS = {
    **{name: (name,) for name in (qddot_side.ONE_LANE, qddot_side.LANES, qddot_side.PACKED, qddot_side.PACKED_ONE)},
    **{name: (name,) for name in (qddot_side.THREADS, *CPP)},
    "Pinocchio C++ stored": CPP_STORED,
    **{name: (name,) for name in ("MuJoCo C", qddot_side.CALL, PYTHON)},
}


def table_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table_head(*columns: str) -> str:
    return table_line(columns) + "\n" + "|---" * len(columns) + "|"


def timing_line(row: dict[str, Any]) -> str:
    cells = [f"{row['robot']} ({row['nv']})", FUNCTIONS[row["function"]]]
    for names in COLUMNS.values():
        best = fastest(row["contestants"], *names)
        variant = f" {best.variant[0]}" if best and best.variant else ""
        cells.append(microseconds(best) + variant)
    return table_line([*cells, *(str(r) if r else "–" for r in ratios(row).values())])


def ratios(row: dict[str, Any]) -> dict[str, Any]:
    """Against the fastest build and variant, by its median; then round by round."""
    found = row["contestants"]
    return {name: ratio(fastest(found, ours), fastest(found, *theirs)) for name, (ours, theirs) in RATIOS.items()}


def kernel_line(row: dict[str, Any], peak: float | None) -> str:
    facts, share = row["kernel"], peak_share(row, peak)
    return table_line(
        (
            row["robot"],
            FUNCTIONS[row["function"]],
            f"{facts['method']}, {facts['form']}",
            str(facts["lanes"]),
            ", ".join(f"{count} {name}" for name, count in facts["ops"].items() if count),
            str(facts["instructions"]),
            str(facts["code_bytes"]),
            f"{facts['compile_seconds']:.2f}",
            f"{facts['memory_bytes'] / 1e6:.0f}",
            "–" if share is None else f"{100 * share:.0f} %",
        )
    )


def peak_share(row: dict[str, Any], peak: float | None) -> float | None:
    """Additions and multiplications a second, as a share of what multiply-adds alone could do (two each)."""
    lanes = fastest(row["contestants"], qddot_side.LANES)
    if peak is None or lanes is None or row["kernel"] is None:
        return None
    ops = row["kernel"]["ops"]
    return float((ops.get("add", 0) + ops.get("mul", 0)) / lanes.median / (2.0 * peak))


def introduction(contest: Contest) -> str:
    about, options = machine(contest), contest.options
    peak = "" if contest.peak is None else f", {contest.peak / 1e9:.1f}e9 multiply-adds a second on one thread"
    return "\n\n".join(
        (
            f"{about['cpu']}, {about['processors']} processors, {about['simd']}{peak}; {about['system']}",
            "; ".join(f"{name} {version}" for name, version in versions().items()),
            f"µs a state, float64, one thread unless said, {options.states} random states, median of {options.rounds} "
            f"interleaved rounds; ratios are formed within a round: median (least–greatest). L and W: Pinocchio's "
            f"LOCAL or WORLD convention, whichever is faster.",
        )
    )


def record(contest: Contest) -> dict[str, Any]:
    """Everything, for other programs."""
    rows = []
    for row in contest.rows:
        each = [
            {
                "name": c.name,
                "variant": c.variant,
                "microseconds": 1e6 * c.median,
                "rounds": [1e6 * x for x in c.rounds],
                "error": error,
            }
            for c, error in zip(row["contestants"], row["errors"], strict=True)
        ]
        shares = {name: None if r is None else asdict(r) for name, r in ratios(row).items()}
        plain = {key: value for key, value in row.items() if key not in ("contestants", "errors")}
        rows.append({**plain, "contestants": each, "ratios": shares, "peak_share": peak_share(row, contest.peak)})
    return {
        "machine": machine(contest),
        "versions": versions(),
        "states": contest.options.states,
        "builds": {name: library.command for name, library in contest.libraries.items()},
        "missing": contest.missing,
        "rows": rows,
    }


def main(words: list[str] | None = None) -> None:
    options = arguments(words)
    with qddot_side.empty_cache():
        contest = Contest(options)
        print(introduction(contest), end="\n\n")
        print(table_head("robot (DoF)", "function", *COLUMNS, *RATIOS))
        for row in contest.run():
            print(timing_line(row), flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps(record(contest), indent=1, ensure_ascii=False))
    print("\n" + table_head(*KERNEL_COLUMNS))
    for row in contest.rows:
        if row["kernel"] is not None:
            print(kernel_line(row, contest.peak))
    for name, reason in contest.missing.items():
        print(f"\nWithout {name}: {reason}")


if __name__ == "__main__":
    main()
