"""Where code runs: architecture, processor, features, lanes; how it is compiled, and what the cache tells apart.

A target has a name, `kind` or `kind:processor`. A new kind is a file of its own and a row of `KINDS`; a new architecture of
kind "cpu" is a file and a row of `target.ARCHITECTURES`.
"""

from __future__ import annotations

from collections.abc import Callable

from qddot.compiler.targets import host as _host
from qddot.compiler.targets.target import Target
from qddot.errors import InputError

__all__ = ["KINDS", "Target", "named"]


def _cpu(processor: str) -> Target:
    return _host.processor(processor) if processor else _host.host()


KINDS: dict[str, Callable[[str], Target]] = {"cpu": _cpu}  # a target of the kind, by the name of its processor or ""


def named(name: str) -> Target:
    """The target of a name: "cpu" is this machine's, "cpu:x86-64-v3" that of any processor that LLVM and we know by name.

    Code can be compiled for a target that this machine cannot run; it cannot be called here.
    """
    kind, colon, processor = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind not in KINDS or (colon and not processor):
        kinds = ", ".join(f"{k!r}, '{k}:PROCESSOR'" for k in KINDS)
        raise InputError(f"target {name!r} is not known; take one of {kinds}")
    return KINDS[kind](processor)
