"""The command `qddot cache`: shows and clears the compiled code that is kept on disk."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from typing import Any

from qddot.compiler.runtime.cache import ADVICE, Cache, default_cache

HELP = "Shows and clears the compiled code kept on disk."
EPILOG = (
    "It is kept in the folder that the environment variable QDDOT_CACHE_DIR names (empty: nothing is kept), and signed "
    "with the key in the file that QDDOT_CACHE_KEY names; both have defaults in the user's home."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command, besides the --json that every command has."""
    parser.epilog = EPILOG
    parser.add_argument("--clear", action="store_true", help="remove all compiled code; it is compiled again when used")


def run(options: argparse.Namespace) -> int:
    """Prints the report; 1 when the folder must not be used or could not be cleared."""
    cache = default_cache()
    removed = cache.clear() if options.clear else None
    report = _report(cache, removed)
    failed = report["trouble"] is not None or report["key_trouble"] is not None or (options.clear and report["entries"] > 0)
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print("\n".join(_lines(report)))
    return int(failed)


def _report(cache: Cache, removed: int | None) -> dict[str, Any]:
    entries = cache.entries()
    report = {
        "folder": None if cache.folder is None else str(cache.folder),
        "entries": len(entries),
        "bytes": sum(entry.size for entry in entries),
        "limit_bytes": cache.limit_bytes,
        "oldest_use": _time(entries[0].last_used) if entries else None,
        "newest_use": _time(entries[-1].last_used) if entries else None,
        "trouble": cache.trouble(),
        "key_file": None if cache.key_file is None else str(cache.key_file),
        "key_trouble": cache.key_trouble(),
    }
    return report if removed is None else {**report, "removed": removed}


def _lines(report: dict[str, Any]) -> list[str]:
    if report["folder"] is None:
        return ["caching is off: QDDOT_CACHE_DIR is empty, or this user has no home folder"]
    lines = [f"folder   {report['folder']}"]
    if report["trouble"]:
        return [*lines, f"the folder {report['trouble']}, so it is not used", ADVICE]
    if report["key_trouble"]:
        return [*lines, f"{report['key_trouble']}, so nothing is stored", ADVICE]
    if "removed" in report:
        lines.append(f"removed  {report['removed']}")
    lines += [f"entries  {report['entries']}", f"size     {_bytes(report['bytes'])} of {_bytes(report['limit_bytes'])}"]
    if report["entries"]:
        lines.append(f"used     {report['oldest_use']} (oldest), {report['newest_use']} (newest)")
    return [*lines, f"key      {report['key_file']}"]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")


def _bytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
