"""The kinds of targets by name: `kind` or `kind:processor`.

A new kind is files of its own and a row of `KINDS`; a new architecture of kind "cpu" is a file and a row of
`target.ARCHITECTURES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from qddot.compiler.runtime import llvm_compile
from qddot.compiler.targets import host
from qddot.compiler.targets.target import ARCHITECTURES, Target
from qddot.errors import InputError


class Kind(NamedTuple):
    """What a kind of target can do."""

    named: Callable[[str], Target]  # by the name of its processor, or ""
    compile: Callable[[str, Target, str], bytes]  # object code of an LLVM module; the last is its name for QDDOT_DEBUG
    assembly: Callable[[str, Target], str]  # of an LLVM module, to be read


def _cpu(processor: str) -> Target:
    return host.processor(processor) if processor else host.host()


KINDS: dict[str, Kind] = {"cpu": Kind(_cpu, llvm_compile.compile_object, llvm_compile.assembly)}


def named(name: str) -> Target:
    """The target of a name: "cpu" is this machine's, "cpu:x86-64-v3" that of any processor that LLVM and we know by name.

    Code can be compiled for a target that this machine cannot run; it cannot be called here.
    """
    kind, colon, processor = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind not in KINDS or (colon and not processor):
        kinds = ", ".join(f"{k!r}, '{k}:PROCESSOR'" for k in KINDS)
        raise InputError(f"target {name!r} is not known; take one of {kinds}")
    return KINDS[kind].named(processor)


class Export(NamedTuple):
    """What code for other people's programs is compiled for."""

    target: Target
    triple: str  # of LLVM; "" for this machine's own


def exported(name: str) -> Export:
    """What code for other people's programs is compiled for: "cpu", which is this processor, another processor by LLVM's
    name, with or without "cpu:", or a triple such as "aarch64-linux-gnu", which stands for all processors of its kind.
    """
    if name == "cpu":
        return Export(host.host(), "")
    for facts in ARCHITECTURES.values():
        if name in (facts.triple, _short(facts.triple)):
            return Export(host.processor(next(iter(facts.processors))), facts.triple)
        if isinstance(name, str) and name.removeprefix("cpu:") in facts.processors:
            return Export(host.processor(name.removeprefix("cpu:")), "")
    triples = ", ".join(_short(facts.triple) for facts in ARCHITECTURES.values())
    processors = ", ".join(x for facts in ARCHITECTURES.values() for x in facts.processors)
    raise InputError(f"target {name!r} is not known; take 'cpu', one of {triples}, or a processor: {processors}")


def _short(triple: str) -> str:
    """A triple as compilers are named."""
    return triple.replace("-unknown", "")


def compile_module(text: str, target: Target, name: str = "") -> bytes:
    """Object code of an LLVM module for a target."""
    return KINDS[target.kind].compile(text, target, name)


def assembly(text: str, target: Target) -> str:
    """The assembly of an LLVM module for a target."""
    return KINDS[target.kind].assembly(text, target)
