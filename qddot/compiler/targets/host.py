"""The processors of this machine: its own, and those by name whose code it can run.

NumPy executes CPUID (or its counterpart) when it is imported, so its answer is right under emulation and in virtual
machines too, unlike /proc/cpuinfo; and unlike LLVM's answer it is free: a process that finds its kernels in the cache does
not load LLVM.
"""

from __future__ import annotations

import functools
import os
import platform
import struct
import sys

from qddot.compiler.targets.target import ARCHITECTURES, HOST, X86, Target, lacks_feature
from qddot.compiler.targets.target import has_feature as _has
from qddot.errors import InputError

_COMMON = {2: 1 << 20}  # bytes of caches by level


def architecture() -> str:
    """X86, ARM, or the system's name: that of this process, which may be translated on another one."""
    return next((name for name, facts in ARCHITECTURES.items() if _has(facts.baseline)), platform.machine())


def host() -> Target:
    """What kernels are compiled for: this processor, or the one that the environment variable QDDOT_TARGET_CPU names."""
    name = os.environ.get("QDDOT_TARGET_CPU")
    return named(name) if name else native()


def named(cpu: str) -> Target:
    """A processor by LLVM's name. An error if this machine cannot run its code."""
    target = processor(cpu)
    if reason := obstacle(target):
        raise InputError(reason)
    return target


def processor(cpu: str) -> Target:
    """A processor of any architecture by LLVM's name, whether or not this machine can run its code."""
    for arch, facts in ARCHITECTURES.items():
        if found := facts.processors.get(cpu):
            return Target(cpu, arch, found.vector_bits, found.fma, found.doubles)
    known = ", ".join(name for facts in ARCHITECTURES.values() for name in facts.processors)
    raise InputError(f"target processor {cpu!r} is not known; take one of {known}")


def obstacle(target: Target) -> str | None:
    """Why this machine cannot run code for a target; None where it can."""
    if target.cpu == HOST:
        return None
    if architecture() != target.arch:
        return f"target processor {target.cpu!r}: this machine is {platform.machine()}, not {target.arch}"
    needs = target.architecture.processors[target.cpu].needs
    if missing := [x for x in needs if lacks_feature(x)]:
        return f"target processor {target.cpu!r}: this machine's processor lacks {', '.join(missing)}"
    return None


@functools.cache
def native() -> Target:
    """This processor."""
    if sys.byteorder != "little" or struct.calcsize("P") != 8:
        raise InputError(
            f"kernels are compiled for 64-bit little-endian processors; this one is {platform.machine()!r}, "
            f"{8 * struct.calcsize('P')}-bit {sys.byteorder}-endian; Robot(model, compiled=False) needs no kernels"
        )
    if architecture() != X86:
        return Target(HOST, architecture(), 128, True)  # ARM64, POWER and RISC-V have multiply-adds
    bits = 512 if _has("AVX512F") and _has("AVX512DQ") else 256 if _has("AVX") else 128
    return Target(HOST, X86, bits, _has("FMA3"))


@functools.cache
def cache_bytes(level: int) -> int:
    """Of the cache of this level that a core has or shares, as the system says; a common size where it says nothing."""
    try:
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{level}"  # 0 and 1 are those of the first level
        with open(f"{folder}/level", encoding="ascii") as own, open(f"{folder}/size", encoding="ascii") as size:
            return int(size.read().strip().removesuffix("K")) << 10 if int(own.read()) == level else _COMMON[level]
    except (OSError, ValueError):
        return _COMMON[level]
