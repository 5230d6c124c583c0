"""The command `qddot sweep`: runs the study of a file, says how far one is, puts parts together."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from qddot.errors import InputError, StudyError

HELP = "Runs a study (a TOML file), or tells how far one is."
EPILOG = (
    "qddot sweep study.toml [--engine ray]; qddot sweep status DIR; qddot sweep merge DIR. The file is described in "
    "docs/studies.md. With --part k/n each task of a batch system computes its part, and 'merge' puts them together."
)
_SHOWN_FAILURES = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command, besides the --json that every command has."""
    parser.epilog = EPILOG
    add = parser.add_argument
    add("file", help="the study's file; or: status, merge")
    add(
        "folder",
        nargs="?",
        metavar="DIR",
        help="the study's folder, for status and merge; of a run, in place of the file's own",
    )
    add("--engine", default="local", choices=("local", "serial", "ray", "dask"), help="where it runs (default: local)")
    add("--address", help="of a Ray or Dask cluster that runs already")
    add("--workers", type=int, help="processes (default: one for each processor)")
    add("--threads", type=int, help="of a worker's kernels (default: 1)")
    add("--timeout", type=float, help="seconds that a piece may take (default: 600)")
    add("--chunk", type=int, help="samples in a piece (default: by the time that they take)")
    add("--part", metavar="K/N", help="compute the K-th of N parts, counted from 1, into a folder of its own")
    add("--resume", action="store_true", help="go on with a study that has been begun")
    add("--retry-failed", action="store_true", help="compute samples that have failed once more")
    add("--trust", action="store_true", help="run the functions that the file names, and read files outside of its folder")


def run(options: argparse.Namespace) -> int:
    """0: all samples have results; 1: some have failed, or are missing."""
    from qddot.study.merge import merge
    from qddot.study.store import Store

    if options.file in ("status", "merge"):
        if options.folder is None:
            raise InputError(f"qddot sweep {options.file} takes the folder of a study")
        if options.file == "merge":
            return _report([merge(options.folder)], options.json)
        return _status(Path(options.folder), options.json)
    from qddot.study.study_file import read

    study = read(options.file, directory=options.folder, trust=options.trust)
    part = None if options.part is None else _part(options.part)
    folder = study.folder(part)
    if Store(folder).exists and not (options.resume or options.retry_failed):
        raise StudyError(f"{folder}: a study has been begun there; --resume goes on with it")
    names = ("address", "workers", "threads", "timeout", "chunk")
    chosen: dict[str, Any] = {n: x for n in names if (x := getattr(options, n)) is not None}
    study.run(options.engine, part=part, retry_failed=options.retry_failed, **chosen)
    return _status(folder, options.json)


def _part(text: str) -> tuple[int, int]:
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal()):
        raise InputError(f"--part is {text!r}; give K/N, such as 3/16")
    return int(k), int(n)


def _status(folder: Path, as_json: bool) -> int:
    from qddot.study.merge import parts
    from qddot.study.store import Store

    whole = Store(folder)
    found = [whole] if whole.exists else parts(folder)
    if not found:
        raise StudyError(f"{folder}: there is no study in it")
    for store in found:
        store.load()
    return _report(found, as_json)


def _report(stores: list[Any], as_json: bool) -> int:
    failures = [f for store in stores for f in store.failures.values()]
    samples, done = sum(s.end - s.first for s in stores), sum(s.n_done for s in stores)
    report: dict[str, Any] = {
        "samples": samples,
        "done": done,
        "failed": len(failures),
        "kinds": dict(Counter(f.kind for f in failures)),
        "worker_seconds": round(sum(s.seconds for s in stores), 1),
        "hosts": sorted(set().union(*(s.hosts for s in stores)) - {""}),
        "measures": sorted(set().union(*(s.columns or () for s in stores))),
        "first_failures": [f._asdict() for f in sorted(failures)[:_SHOWN_FAILURES]],
    }
    if len(stores) > 1 or "part-" in stores[0].directory.name:
        report["parts"] = {s.directory.name: [s.n_done, s.end - s.first] for s in stores}
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        print("\n".join(_lines(report)))
    return int(done < samples or bool(failures))


def _lines(report: dict[str, Any]) -> list[str]:
    kinds = ", ".join(f"{n} {kind}" for kind, n in report["kinds"].items())
    rate = report["done"] / report["worker_seconds"] if report["worker_seconds"] else 0.0
    lines = [
        f"done      {report['done']:,} of {report['samples']:,} samples ({report['done'] / report['samples']:.1%})",
        f"failed    {report['failed']:,}{f' ({kinds})' if kinds else ''}",
        f"work      {report['worker_seconds']:,.1f} s of workers, {rate:,.0f} samples a second and worker",
        f"measures  {', '.join(report['measures']) or 'none yet'}",
    ]
    if rate and report["done"] < report["samples"]:
        lines.append(f"left      {(report['samples'] - report['done']) / rate:,.0f} s of workers")
    if report["hosts"]:
        lines.append(f"hosts     {'; '.join(report['hosts'])}")
    lines += [f"part      {name}: {done:,} of {total:,}" for name, (done, total) in report.get("parts", {}).items()]
    lines += [f"failure   sample {f['row']}, {f['kind']}: {f['reason']}" for f in report["first_failures"]]
    if report["failed"] > len(report["first_failures"]):
        lines.append("          … (all of them are in failures.json, or in study.failures)")
    return lines
