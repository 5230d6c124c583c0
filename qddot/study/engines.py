"""Where pieces of a study are computed. An engine is a file with a class of these four methods, and a row here."""

from __future__ import annotations

import importlib
from typing import Any, Protocol, TypedDict

from qddot.dynamics.input_checks import count, positive
from qddot.errors import InputError, unknown
from qddot.study.outcome import Lost, Outcome, Piece
from qddot.study.plan import Plan

Answer = tuple[Piece, Outcome | Lost]


class EngineOptions(TypedDict, total=False):
    """What may be said to an engine; what is left out has a default."""

    workers: int  # processes; as many as there are processors
    threads: int  # of a worker's kernels; 1
    timeout: float  # seconds that a piece may take before its worker is ended; 600
    memory: int  # bytes that a worker may take; its share of the machine's
    address: str  # of a cluster that runs already


class Engine(Protocol):
    """Computes pieces in any order; what is lost comes back as `Lost`, and the driver decides what to do."""

    def __init__(self, plan: Plan, options: EngineOptions) -> None: ...

    @property
    def slots(self) -> int:
        """How many pieces it takes at a time: the bound of what is in memory."""
        ...

    def submit(self, piece: Piece) -> None:
        """Begins with a piece; returns at once."""
        ...

    def wait(self) -> list[Answer]:
        """Returns what has come in since, at least one of the pieces that were submitted."""
        ...

    def close(self) -> None:
        """Ends everything that the engine has started."""
        ...


ENGINES = {  # name -> module, class; loaded when it is named
    "serial": ("qddot.study.engine_serial", "SerialEngine"),
    "local": ("qddot.study.engine_local", "LocalEngine"),
    "ray": ("qddot.study.engine_ray", "RayEngine"),
    "dask": ("qddot.study.engine_dask", "DaskEngine"),
}


def named(name: Any, plan: Plan, options: EngineOptions) -> Engine:
    """The engine of this name, started."""
    if not isinstance(name, str) or name not in ENGINES:
        raise unknown("engine", str(name), ENGINES, "a study")
    for key in ("workers", "threads", "memory"):
        if options.get(key) is not None:
            count(options[key], key)
    if options.get("timeout") is not None:
        positive(options["timeout"], "timeout", "seconds")
    if "address" in options and name not in ("ray", "dask"):
        raise InputError(f"address= is for the engines 'ray' and 'dask'; engine {name!r} runs on this machine")
    module, kind = ENGINES[name]
    engine: Engine = getattr(importlib.import_module(module), kind)(plan, options)
    return engine
