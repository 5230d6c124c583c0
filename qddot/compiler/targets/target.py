"""A target: what kernels are compiled for. The registry of architectures has a row for each file of one."""

from __future__ import annotations

import functools
import hashlib
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

from qddot.compiler.runtime.forks import guarded_lock
from qddot.compiler.targets.aarch64 import AARCH64
from qddot.compiler.targets.architecture import Architecture
from qddot.compiler.targets.riscv64 import RISCV64
from qddot.compiler.targets.thumb import THUMB
from qddot.compiler.targets.x86_64 import X86_64

_system_lock = guarded_lock()

HOST = "host"
X86, ARM = X86_64.name, AARCH64.name

ARCHITECTURES: dict[str, Architecture] = {x.name: x for x in (X86_64, AARCH64, RISCV64, THUMB)}


@dataclass(frozen=True)
class Target:
    """A kind of processor. Code for equal targets on equal systems is the same."""

    cpu: str  # LLVM's name of it; HOST: this very one, with every instruction that it has
    arch: str  # a key of ARCHITECTURES, or the system's name of another one
    vector_bits: int
    fma: bool  # without it products and sums are rounded separately
    doubles: bool = True  # False: doubles are computed by software, without fma

    kind: ClassVar[str] = "cpu"  # a key of `registry.KINDS`
    has_c_library: ClassVar[bool] = True  # False: kernels read no functions in `%env`, and use qddot's own

    def lanes(self, dtype: str) -> int:
        """States per SIMD register."""
        return max(1, self.vector_bits // (64 if dtype == "float64" else 32))

    def fuses(self, dtype: str) -> bool:
        """Whether products and sums of a type are rounded once."""
        return self.fma and (self.doubles or dtype == "float32")

    @property
    def architecture(self) -> Architecture:
        """Facts about the instruction set; one without a row in the registry has none of its own."""
        facts = ARCHITECTURES.get(self.arch)
        if facts is None:
            return Architecture(self.arch, "")
        return facts if has_feature(facts.baseline) else facts.without_inline_assembly()

    @property
    def avx512(self) -> bool:
        """Whether there are x86 instructions on 512 bits."""
        return self.arch == X86 and self.vector_bits == 512

    @property
    def registers(self) -> int:
        """For vectors."""
        return 16 if self.arch == X86 and not self.avx512 else 32

    @property
    def identity(self) -> str:
        """Everything about processor and system that compiled code depends on, for the keys of the cache."""
        return repr((sys.platform, platform.machine(), self, _processor() if self.cpu == HOST else ""))


def has_feature(name: str) -> bool:
    """Whether this processor has a feature, by NumPy's name of it."""
    return bool(_multiarray_umath.__cpu_features__.get(name))


def lacks_feature(name: str) -> bool:
    """Whether it is known not to have it: before 2.4 NumPy does not name BMI and BMI2, which come with AVX2."""
    return _multiarray_umath.__cpu_features__.get(name) is False


@functools.cache
def _processor() -> str:
    """What this processor is and can do, according to NumPy and to the system."""
    with _system_lock:  # platform.processor() holds a lock of its own in Python 3.11
        said = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        text = info.read_text(encoding="utf-8", errors="replace")
        wanted = ("flags", "Features", "model name", "CPU implementer", "CPU part", "CPU variant", "isa", "cpu\t")
        said = repr(sorted({line for line in text.splitlines() if line.startswith(wanted)}))
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
