"""What code is compiled for: how wide vectors are, whether products and sums are fused, what the cache must tell apart.

The processor is asked through NumPy, which executes CPUID (or what other processors have) when it is imported. Unlike
/proc/cpuinfo, that is true under emulation and in virtual machines as well; and unlike LLVM's answer it costs nothing, so
that a process that finds its kernels in the cache does not load LLVM.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

from qddot.compiler.runtime.forks import guarded_lock
from qddot.errors import InputError

_system_lock = guarded_lock()

HOST = "host"
X86, ARM = "x86-64", "arm64"


@dataclass(frozen=True)
class Target:
    """A kind of processor. Code for equal targets on equal systems is the same."""

    cpu: str  # LLVM's name of it; HOST: this very one, with every instruction that it has
    arch: str  # X86, ARM, or whatever else it is, of which nothing is known
    vector_bits: int
    fma: bool  # without it products and sums are rounded apart

    def lanes(self, dtype: str) -> int:
        """How many numbers one instruction takes."""
        return self.vector_bits // (64 if dtype == "float64" else 32)

    @property
    def avx512(self) -> bool:
        """Whether there are x86 instructions on 512 bits."""
        return self.arch == X86 and self.vector_bits == 512

    @property
    def identity(self) -> str:
        """Everything about processor and system that compiled code depends on, for the keys of the cache."""
        return repr((sys.platform, platform.machine(), self, _processor() if self.cpu == HOST else ""))


class _Level(NamedTuple):
    vector_bits: int
    fma: bool
    needs: tuple[str, ...]  # NumPy's names of the features that this processor must have to run such code


# Processors that can be named instead of this one, by LLVM's names.
LEVELS = {
    "x86-64": _Level(128, False, ()),
    "x86-64-v2": _Level(128, False, ("SSE42", "POPCNT")),
    "sandybridge": _Level(256, False, ("SSE42", "POPCNT", "AVX")),
    "x86-64-v3": _Level(256, True, ("AVX2", "FMA3", "F16C", "BMI", "BMI2")),
    "x86-64-v4": _Level(512, True, ("AVX512F", "AVX512CD", "AVX512VL", "AVX512BW", "AVX512DQ", "FMA3", "BMI2")),
}


def architecture() -> str:
    """X86, ARM, or what the system calls it: that of this process, which may run on another one by translation."""
    return X86 if _has("SSE2") else ARM if _has("ASIMD") else platform.machine()


def host() -> Target:
    """What kernels are compiled for: this processor, or the one that the environment variable QDDOT_TARGET_CPU names."""
    name = os.environ.get("QDDOT_TARGET_CPU")
    return named(name) if name else native()


def named(cpu: str) -> Target:
    """A processor of `LEVELS`. An error if this machine cannot run its code."""
    level = LEVELS.get(cpu)
    if level is None:
        raise InputError(f"target processor {cpu!r} is not known; take one of {', '.join(LEVELS)}")
    if architecture() != X86:
        raise InputError(f"target processor {cpu!r}: this machine is {platform.machine()}, not x86-64")
    if missing := [x for x in level.needs if not _has(x)]:
        raise InputError(f"target processor {cpu!r}: this machine's processor lacks {', '.join(missing)}")
    return Target(cpu, X86, level.vector_bits, level.fma)


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


def _has(feature: str) -> bool:
    return bool(_multiarray_umath.__cpu_features__[feature])


@functools.cache
def _processor() -> str:
    """What this processor is and can do: by itself, and by the system."""
    with _system_lock:  # it holds a lock of its own in Python 3.11
        said = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        wanted = ("flags", "Features", "model name", "CPU implementer", "CPU part", "CPU variant", "isa", "cpu\t")
        said = repr(sorted({line for line in info.read_text().splitlines() if line.startswith(wanted)}))
    elif sys.platform == "darwin":
        said += _sysctl("hw.cpufamily") + _sysctl("hw.cpusubfamily")
    features = sorted(name for name, has in _multiarray_umath.__cpu_features__.items() if has)
    return hashlib.sha256(repr((said, features)).encode()).hexdigest()


def _sysctl(name: str) -> str:
    """A number that macOS knows about the processor, as text."""
    import ctypes

    value, size = ctypes.c_uint32(), ctypes.c_size_t(4)
    ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return f" {name}={value.value}"
