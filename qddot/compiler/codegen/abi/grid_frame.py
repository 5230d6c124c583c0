"""What all kernels of a grid have in common, as LLVM text: which states a warp has, and where their numbers are.

What belongs to the machine is in a prelude: `@thread`, `@block`, `@meet` and the like. The tests have one for this
processor, with a thread of the system for each thread of a warp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.module import METADATA, with_library
from qddot.compiler.codegen.llvm.thread_arguments import WARP, GridOperand


class Prelude(NamedTuple):
    """What belongs to a machine: how a kernel begins, and the functions that say which thread this is."""

    kernel: str  # linkage and calling convention
    parameters: str  # after those of all kernels
    begin: tuple[str, ...]  # lines that set %env
    functions: str
    has_spaces: bool = True  # whether memories have address spaces


NVIDIA = Prelude(
    "define ptx_kernel void",
    "",
    ("  %env = getelementptr i8, ptr null, i64 0",),
    """declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare void @llvm.nvvm.bar.warp.sync(i32)
declare void @llvm.nvvm.barrier0()
declare float @llvm.nvvm.rcp.approx.ftz.f(float)
declare double @llvm.nvvm.rcp.approx.ftz.d(double)
define internal float @reciprocal_estimate_f32(float %x) alwaysinline {
  %r = call float @llvm.nvvm.rcp.approx.ftz.f(float %x)
  ret float %r
}
define internal double @reciprocal_estimate_f64(double %x) alwaysinline {
  %r = call double @llvm.nvvm.rcp.approx.ftz.d(double %x)
  ret double %r
}
declare double @llvm.nvvm.fma.rp.d(double, double, double)
define internal double @multiply_add_up(double %a, double %b, double %c) alwaysinline {
  %r = call double @llvm.nvvm.fma.rp.d(double %a, double %b, double %c)
  ret double %r
}
@memory = external addrspace(3) global [0 x i8], align 16
define internal i32 @thread(ptr %env) alwaysinline #1 {
  %x = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  ret i32 %x
}
define internal i32 @block(ptr %env) alwaysinline #1 {
  %x = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  ret i32 %x
}
define internal i32 @layer(ptr %env) alwaysinline #1 {
  %x = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  ret i32 %x
}
define internal i32 @blocks(ptr %env) alwaysinline #1 {
  %x = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  ret i32 %x
}
define internal void @meet(ptr %env) alwaysinline #1 {
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  ret void
}
define internal void @join(ptr %env) alwaysinline #1 {
  call void @llvm.nvvm.barrier0()
  ret void
}
define internal ptr addrspace(3) @shared(ptr %env) alwaysinline #1 {
  ret ptr addrspace(3) @memory
}
""",
)


@dataclass(frozen=True)
class Frame:
    """A kernel: its name, its arguments, the threads of a block, and the shared memory of a warp in parts."""

    name: str
    parameters: Sequence[str]
    T: str
    threads: int
    warp_numbers: Sequence[int]  # of each part
    local_numbers: Mapping[str, int]  # of a thread, by the names of arrays
    prelude: Prelude
    warps_per_state: int = 1  # that compute the same states, and share the memory of a warp

    @property
    def shared_numbers(self) -> int:
        """Of a block."""
        return sum(self.warp_numbers) * self.threads // WARP // self.warps_per_state

    def text(self, state: Sequence[str]) -> str:
        """The kernel around the lines for one state, which end at the label %computed."""
        allocated = [f"  %{name} = alloca [{max(1, n)} x {self.T}]" for name, n in self.local_numbers.items()]
        lines = ["entry:", *self.prelude.begin, *allocated, *self._places(), *self._states(), *state]
        lines += ["  br label %written", "written:", "  %w.next = add i64 %w, %next.warp", "  br label %head"]
        body = "\n".join(lines)
        return (
            f"{self.prelude.kernel} @{self.name}({', '.join(self.parameters)}{self.prelude.parameters}) #1 {{\n{body}\n}}\n"
        )

    def _places(self) -> list[str]:
        """Which thread this is, and where the shared memory of its warp is."""
        warps, T = self.threads // WARP // self.warps_per_state, self.T
        lines = [
            "  %thread = call i32 @thread(ptr %env)",
            f"  %warp = lshr i32 %thread, {WARP.bit_length() - 1}",
            f"  %lane = and i32 %thread, {WARP - 1}",
            "  %block = call i32 @block(ptr %env)",
            "  %blocks = call i32 @blocks(ptr %env)",
            f"  %first.warp = mul i32 %block, {warps}",
            f"  %team = udiv i32 %warp, {self.warps_per_state}",
            "  %own.warp = add i32 %first.warp, %team",
            "  %begin = zext i32 %own.warp to i64",
            f"  %all.warps = mul i32 %blocks, {warps}",
            "  %next.warp = zext i32 %all.warps to i64",
            "  %shared = call ptr addrspace(3) @shared(ptr %env)",
            f"  %warp.o = mul i32 %team, {sum(self.warp_numbers)}",
            f"  %m0 = getelementptr {T}, ptr addrspace(3) %shared, i32 %warp.o",
        ]
        at = 0
        for k, n in enumerate(self.warp_numbers):
            lines.append(f"  %memory{k} = getelementptr {T}, ptr addrspace(3) %m0, i32 {at}")
            at += n
        return lines

    def _states(self) -> list[str]:
        """The loop over the states of this warp, 32 at a time; threads beyond the last state compute it again."""
        return [
            "  br label %head",
            "head:",
            "  %w = phi i64 [ %begin, %entry ], [ %w.next, %written ]",
            f"  %first = mul i64 %w, {WARP}",
            "  %more = icmp slt i64 %first, %count",
            "  br i1 %more, label %some, label %end",
            "end:",
            "  ret void",
            "some:",
            "  %left = sub i64 %count, %first",
            f"  %few = icmp slt i64 %left, {WARP}",
            f"  %rows.l = select i1 %few, i64 %left, i64 {WARP}",
            "  %rows = trunc i64 %rows.l to i32",
            "  %last = sub i32 %rows, 1",
            "  %beyond = icmp sgt i32 %lane, %last",
            "  %own = select i1 %beyond, i32 %last, i32 %lane",
            "  %own.l = zext i32 %own to i64",
            "  %state = add i64 %first, %own.l",
        ]


def array_parameters(operands: Sequence[GridOperand]) -> list[str]:
    """Of a kernel of arrays: the count of states, each array with its strides, scratch memory."""
    given = ["i64 %count"]
    for x in operands:
        given += [f"ptr addrspace(1) %a{x.index}", f"i64 %s{x.index}", *(f"i64 {c}" for c in x.strides)]
    return [*given, "ptr addrspace(1) %scratch"]


def own_row(x: GridOperand, T: str, name: str = "p") -> list[str]:
    """This thread's state in an array that is not staged."""
    i = x.index
    return [
        f"  %{name}.o{i} = mul i64 %state, %s{i}",
        f"  %{name}{i} = getelementptr {T}, ptr addrspace(1) %a{i}, i64 %{name}.o{i}",
    ]


def own_kept(x: GridOperand, T: str, kept: int) -> list[str]:
    """This thread's numbers of those that are kept of each state: all of a warp's side by side, then its next ones."""
    i = x.index
    return [
        f"  %kept.w{i} = mul i64 %w, {kept * WARP}",
        f"  %kept.f{i} = add i64 %kept.w{i}, {(x.kept_from or 0) * WARP}",
        f"  %kept.l{i} = zext i32 %lane to i64",
        f"  %kept.o{i} = add i64 %kept.f{i}, %kept.l{i}",
        f"  %p{i} = getelementptr {T}, ptr addrspace(1) %scratch, i64 %kept.o{i}",
    ]


def grid_module(text: list[str], emitter: Emitter, bounds: dict[str, int], kernels: Sequence[str], prelude: Prelude) -> str:
    """The whole text, with sine, cosine and the like; `bounds` are facts for the assembler, by NVVM's names."""
    code = with_library(text, {1: emitter}, set(), emitter.target)
    notes = [f'!{{ptr @{k}, !"{name}", i32 {n}}}' for k in kernels for name, n in bounds.items()]
    metadata = [f"!nvvm.annotations = !{{{', '.join(f'!{3 + k}' for k in range(len(notes)))}}}"]
    metadata += [f"!{3 + k} = {note}" for k, note in enumerate(notes)]
    attributes = "attributes #1 = { convergent nounwind }"
    whole = "\n".join([code, attributes, *metadata, METADATA])
    if prelude.has_spaces:
        return whole
    return re.sub(r" addrspace\(\d\)", "", whole).replace("addrspacecast ptr", "bitcast ptr")
