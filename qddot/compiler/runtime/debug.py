"""QDDOT_DEBUG: what the compiler makes, on standard error or as files in the folder QDDOT_DEBUG_DIR.

`QDDOT_DEBUG=ir,asm,time` names what is wanted: LLVM IR, assembly, times and sizes (docs/machines.md). Only what is compiled
is shown; code from the cache was shown when it was compiled.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from qddot.errors import InputError

KINDS = ("ir", "asm", "time")


def wanted() -> frozenset[str]:
    """The kinds that QDDOT_DEBUG names."""
    kinds = frozenset(x.strip() for x in os.environ.get("QDDOT_DEBUG", "").split(",")) - {""}
    if unknown := sorted(kinds - set(KINDS)):
        raise InputError(f"QDDOT_DEBUG={','.join(unknown)} is not known; take some of {','.join(KINDS)}")
    return kinds


def report(name: str, text: str, assembly: Callable[[], str], seconds: float, size: int) -> None:
    """Shows what is wanted of one compilation."""
    kinds, folder = wanted(), os.environ.get("QDDOT_DEBUG_DIR")
    label = f"{name or 'module'}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if "ir" in kinds:
        _show(folder, label, "ll", text)
    if "asm" in kinds:
        _show(folder, label, "s", assembly())
    if "time" in kinds:
        lines = text.count("\n")
        print(f"qddot: compiled {label}: {seconds:.3f} s, {lines} lines of IR, {size} bytes", file=sys.stderr)


def _show(folder: str | None, label: str, ending: str, text: str) -> None:
    if folder:
        path = Path(folder) / (re.sub(r"[^\w.-]+", "_", label) + f".{ending}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    else:
        print(f"; qddot: {label}.{ending}\n{text}", file=sys.stderr)
