"""What codegen must know about an instruction set, and the processors that can be named for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Processor(NamedTuple):
    """A processor by its capabilities."""

    vector_bits: int  # 0: it has no SIMD instructions
    fma: bool
    needs: tuple[str, ...]  # NumPy's names of the features that a machine must have to run its code
    doubles: bool = True  # False: only single precision is in hardware, `fma` included


_ALWAYS = ("  %invalid = or i1 true, true",)  # where the status cannot be read


@dataclass(frozen=True)
class Architecture:
    """An instruction set: its triple, its memory model, its floating-point status, its processors by LLVM's names."""

    name: str
    triple: str  # of code for other machines than this one
    baseline: str = ""  # NumPy's name of a feature that all its processors have, and no others
    processors: Mapping[str, Processor] = field(default_factory=dict)  # the first stands for the triple
    features: str = ""  # LLVM's names of those that all its processors have, where they are not implied
    abi: str = ""  # LLVM's name of the calling convention, where the triple does not imply it
    relocation: str = "pic"  # LLVM's model: position-independent, or "static" for code without a loader
    pointer_constraint: str = "=r,0"  # of the inline assembly that hides from LLVM that two pointers are equal
    declarations: str = ""
    spin_hint: str = ""  # a line for loops that wait for another thread
    streaming_fence: tuple[str, ...] = ()  # lines after which streaming stores are in order with what follows
    # NumPy turns the floating-point status after a loop into warnings; kernels report non-finite samples themselves.
    save_float_status: tuple[str, ...] = ()  # lines that keep the status and clear its flags
    read_invalid: tuple[str, ...] = _ALWAYS  # lines that set %invalid if an operation has been invalid since then
    restore_float_status: tuple[str, ...] = ()
    # Other people's threads may flush subnormal numbers to zero; ours do not.
    keep_subnormals: tuple[str, ...] = ()
    restore_subnormals: tuple[str, ...] = ()

    def opaque_pointer(self, result: str, pointer: str) -> str:
        """A line that copies a pointer so that LLVM cannot tell that both are equal, and merges no loads through them."""
        if not self.pointer_constraint:
            return f"  {result} = getelementptr i8, ptr {pointer}, i64 0"
        return f'  {result} = call ptr asm "", "{self.pointer_constraint}"(ptr {pointer})'

    def without_inline_assembly(self) -> Architecture:
        """The same for object code that is made on another architecture, for which llvmlite has no assembler.

        Values may be spilled rather than reloaded, and NumPy may warn of values that are not finite.
        """
        uses = any(" asm " in line for line in self.save_float_status)
        none = {"save_float_status": (), "read_invalid": _ALWAYS, "restore_float_status": (), "spin_hint": ""}
        none |= {"keep_subnormals": (), "restore_subnormals": ()}
        plain = replace(self, **none) if uses else self  # type: ignore[arg-type]
        return replace(plain, pointer_constraint="")
