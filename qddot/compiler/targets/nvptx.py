"""NVIDIA GPUs by way of PTX, the assembly that the driver compiles for its card.

Code for an older generation runs on all newer ones, and gains nothing from being written for a newer one: kernels use no
instruction that the oldest supported generation (Turing) lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from qddot.compiler.targets.architecture import Architecture, Processor
from qddot.compiler.targets.target import Target
from qddot.errors import InputError

OLDEST = "sm_75"
PTX = {  # the version of PTX that each generation needs
    "sm_75": 70,  # Turing
    "sm_80": 70,  # Ampere
    "sm_86": 71,
    "sm_89": 78,  # Ada
    "sm_90": 78,  # Hopper
    "sm_100": 86,  # Blackwell
    "sm_120": 87,
}
NVPTX = Architecture(
    name="nvptx64",
    triple="nvptx64-nvidia-cuda",
    processors={name: Processor(0, True, ()) for name in PTX},
    pointer_constraint="=l,0",
)


@dataclass(frozen=True)
class GpuTarget(Target):
    """A generation of NVIDIA GPUs. One thread computes one state, or a part of its results."""

    kind: ClassVar[str] = "cuda"
    has_c_library: ClassVar[bool] = False

    def lanes(self, dtype: str) -> int:
        """A thread is one lane of a warp."""
        return 1

    @property
    def architecture(self) -> Architecture:
        """Facts about PTX, in the version that this generation needs."""
        return replace(NVPTX, features=f"+ptx{PTX[self.cpu]}")

    @property
    def registers(self) -> int:
        """Of a thread, at most."""
        return 255

    @property
    def identity(self) -> str:
        """PTX depends on no system."""
        return repr(("ptx", self))


def named(processor: str) -> GpuTarget:
    """A generation by its name; the oldest without one, whose code runs on all."""
    if processor and processor not in PTX:
        raise InputError(f"target 'cuda:{processor}' is not known; take 'cuda', or one of {', '.join(PTX)} after 'cuda:'")
    return GpuTarget(processor or OLDEST, NVPTX.name, 0, True)
