"""Kernels of a grid for a program that keeps its loops: one thread a state, with its memory in global scratch space.

The scratch memory of a warp has a number of each of its 32 states side by side, so that the threads, which all are at the
same place of the program, use whole cache lines. A thread copies its inputs there and its results back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from qddot.compiler.codegen.llvm import loop_program
from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.thread_arguments import WARP, GridOperand, Shape
from qddot.compiler.ir.loop_program import Rolled


@dataclass(frozen=True)
class WarpEmitter(Emitter):
    """Values in memory lie a warp apart."""

    @property
    def cell(self) -> str:
        """A number of each thread."""
        return f"[{WARP} x {self.T}]"


@dataclass(frozen=True)
class LoopGrid:
    """The kernels around a program with loops."""

    program: Rolled
    inputs: Sequence[Shape]
    output: Shape
    emitter: WarpEmitter

    @property
    def scratch(self) -> int:
        """Numbers of global memory a thread: inputs, results, and the program's own."""
        return self.program.n_inputs + self.program.n_outputs + sum(self.program.memory())

    @property
    def operands(self) -> list[GridOperand]:
        """Inputs and output, with any strides."""
        shapes = (*self.inputs, self.output)
        return [GridOperand(i, shape, strided=True) for i, shape in enumerate(shapes)]

    def text(self) -> list[str]:
        """The program, the copies and what one thread does for one state, `@one`."""
        core = loop_program.loop_program_core(self.program, self.emitter)
        copies = [_copy(x, self.emitter.T, x is self.operands[-1]) for x in self.operands[:-1]]
        copies.append(_copy(self.operands[-1], self.emitter.T, out=True))
        return [loop_program.data(self.program, self.emitter.T), *core.functions, *copies]

    def state(self) -> list[str]:
        """Lines for one state, of which %p says where its numbers are; %own.warp counts the warps that run."""
        T, first, n_in = self.emitter.T, 0, self.program.n_inputs
        lines = [
            "  %own.w = zext i32 %own.warp to i64",
            f"  %memory.o = mul i64 %own.w, {WARP * self.scratch}",
            "  %lane.l = zext i32 %lane to i64",
            "  %memory.k = add i64 %memory.o, %lane.l",
            f"  %memory.g = getelementptr {T}, ptr addrspace(1) %scratch, i64 %memory.k",
            "  %in = addrspacecast ptr addrspace(1) %memory.g to ptr",
            f"  %out = getelementptr {self.emitter.cell}, ptr %in, i64 {n_in}",
            f"  %work = getelementptr {self.emitter.cell}, ptr %in, i64 {n_in + self.program.n_outputs}",
        ]
        for x in self.operands[:-1]:
            lines.append(f"  %to{x.index} = getelementptr {self.emitter.cell}, ptr %in, i64 {first}")
            lines.append(self._call(x, f"%to{x.index}"))
            first += x.size
        lines.append("  call void @core1(ptr %in, ptr %out, ptr %work, ptr %env)")
        return [*lines, self._call(self.operands[-1], "%out")]

    def _call(self, x: GridOperand, memory: str) -> str:
        strides = "".join(f", i64 {c}" for c in x.strides)
        return f"  call void @copy{x.index}(ptr addrspace(1) %p{x.index}, ptr {memory}{strides})"


def _copy(x: GridOperand, T: str, out: bool) -> str:
    """`@copy(array, memory, strides…)`: the numbers of one state, into the scratch memory or out of it."""
    lines, at = list[str](), "%array"
    for j, stride in enumerate(x.strides):
        inner = prod(x.shape[j + 1 :])
        lines += [
            f"  %d{j} = udiv i64 %k, {inner}",
            f"  %n{j} = urem i64 %d{j}, {x.shape[j]}",
            f"  %o{j} = mul i64 %n{j}, {stride}",
            f"  %a{j} = getelementptr {T}, ptr addrspace(1) {at}, i64 %o{j}",
        ]
        at = f"%a{j}"
    here, there = f"ptr addrspace(1) {at}", "ptr %m"
    source, target = (there, here) if out else (here, there)
    body = "\n".join(lines)
    strides = "".join(f", i64 {c}" for c in x.strides)
    return f"""define internal void @copy{x.index}(ptr addrspace(1) %array, ptr %memory{strides}) noinline #1 {{
entry:
  br label %number
number:
  %k = phi i64 [ 0, %entry ], [ %k1, %number ]
{body}
  %m = getelementptr [{WARP} x {T}], ptr %memory, i64 %k
  %x = load {T}, {source}
  store {T} %x, {target}
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {x.size}
  br i1 %more, label %number, label %done
done:
  ret void
}}
"""
