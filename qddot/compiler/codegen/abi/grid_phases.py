"""Kernels whose blocks compute 32 states at a time, each of their warps a part of the program (`thread_phases`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from qddot.compiler.codegen.abi.grid_copies import read_row
from qddot.compiler.codegen.abi.grid_frame import Frame, Prelude, array_parameters, own_row
from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes
from qddot.compiler.codegen.llvm.thread_arguments import WARP, Arguments, GridOperand
from qddot.compiler.codegen.llvm.thread_phases import Phases, Work
from qddot.compiler.codegen.llvm.thread_warps import WarpOptions, WarpProgram
from qddot.compiler.ir.program import Program

_ANGLES_AT_A_TIME = 4  # of a thread, for the latency of one to be that of all


@dataclass(frozen=True)
class PhasedGrid:
    """One kernel."""

    name: str
    program: Program
    arguments: Arguments
    emitter: Emitter
    work: Work
    phases: Phases
    options: WarpOptions
    prelude: Prelude

    @property
    def T(self) -> str:
        """The type of a number."""
        return self.emitter.T

    @cached_property
    def warps(self) -> WarpProgram:
        """What each warp computes."""
        return WarpProgram(self.name, self.program, self.emitter, self.arguments, self.work, self.phases, self.options)

    @property
    def threads(self) -> int:
        """Of a block."""
        return WARP * self.phases.warps

    @property
    def parts(self) -> list[int]:
        """Numbers of shared memory: of each staged input, of sines and cosines, of values that cross and of results."""
        inputs = [WARP * x.pitch if x.staged else 0 for x in self.arguments.inputs]
        angles = WARP * (self.arguments.angle_pitch + self.arguments.angle_pitch % 4)
        return [*inputs, angles, WARP * self.warps.places.count]

    @property
    def shared_bytes(self) -> int:
        """Of a block."""
        return sum(self.parts) * number_bytes(self.T)

    def text(self) -> list[str]:
        """The kernel and all functions of its own."""
        table = ", ".join(f"i32 {k}" for k in self.arguments.angles)
        head = f"@{self.name}.angles = internal addrspace(4) constant [{len(self.arguments.angles)} x i32] [{table}]\n"
        return [head, *self.warps.text(), self._kernel()]

    def _kernel(self) -> str:
        operands = (*self.arguments.inputs, self.arguments.output)
        parameters, local = array_parameters(operands), {"mem": self.warps.places.slots}
        frame = Frame(self.name, parameters, self.T, self.threads, self.parts, local, self.prelude, self.phases.warps)
        return frame.text([*self._inputs(), *self._angles(), *self._places(), *self._calls()])

    def _inputs(self) -> list[str]:
        """Where each operand's numbers of this state are, %p; staged ones are read by a warp each."""
        lines, T = list[str](), self.T
        for x in self.arguments.inputs:
            lines += self._staged(x) if x.staged else own_row(x, T)
        return [*lines, "  call void @join(ptr %env)"]

    def _staged(self, x: GridOperand) -> list[str]:
        i = x.index
        return [
            f"  %reads{i} = icmp eq i32 %warp, {i % self.phases.warps}",
            f"  br i1 %reads{i}, label %read{i}, label %after.read{i}",
            f"read{i}:",
            *read_row(x, self.T),
            f"  br label %after.read{i}",
            f"after.read{i}:",
            f"  %own.o{i} = mul i32 %own, {x.pitch}",
            f"  %p{i} = getelementptr {self.T}, ptr addrspace(3) %memory{i}, i32 %own.o{i}",
        ]

    def _angles(self) -> list[str]:
        """Sines and cosines of numbers of the first input: each warp those of some of them."""
        angles, k, step = self.arguments.angles, len(self.arguments.inputs), _ANGLES_AT_A_TIME * self.phases.warps
        lines = [
            f"  %angles.o = mul i32 %lane, {self.arguments.angle_pitch}",
            f"  %sc = getelementptr {self.T}, ptr addrspace(3) %memory{k}, i32 %angles.o",
        ]
        if not angles:
            return lines
        return [
            *lines,
            f"  %k.first = mul i32 %warp, {_ANGLES_AT_A_TIME}",
            "  br label %before.angles",
            "before.angles:",
            "  br label %angles",
            "angles:",
            "  %k = phi i32 [ %k.first, %before.angles ], [ %k.next, %angles.stored ]",
            f"  %k.more = icmp ult i32 %k, {len(angles)}",
            "  br i1 %k.more, label %some.angles, label %after.angles",
            "some.angles:",
            *(line for j in range(_ANGLES_AT_A_TIME) for line in self._angle(j)),
            "  br label %angles.stored",
            "angles.stored:",
            f"  %k.next = add i32 %k, {step}",
            "  br label %angles",
            "after.angles:",
            "  call void @join(ptr %env)",
        ]

    def _angle(self, j: int) -> list[str]:
        """Sine and cosine of the angle after the %k-th by j; at the end, those of the last one once more."""
        angles, x, T = self.arguments.angles, self.arguments.inputs[0], self.T
        stride = x.strides[0] if x.strided else "1"
        return [
            f"  %k{j}.any = add i32 %k, {j}",
            f"  %k{j}.in = icmp ult i32 %k{j}.any, {len(angles) - 1}",
            f"  %k{j} = select i1 %k{j}.in, i32 %k{j}.any, i32 {len(angles) - 1}",
            f"  %which{j}.p = getelementptr i32, ptr addrspace(4) @{self.name}.angles, i32 %k{j}",
            f"  %which{j} = load i32, ptr addrspace(4) %which{j}.p",
            f"  %which{j}.l = zext i32 %which{j} to i64",
            f"  %which{j}.o = mul i64 %which{j}.l, {stride}",
            f"  %angle{j}.p = getelementptr {T}, {x.pointer} %p0, i64 %which{j}.o",
            f"  %angle{j} = load {T}, {x.pointer} %angle{j}.p",
            self.emitter.sincos(f"pair{j}", f"%angle{j}"),
            self.emitter.of_pair(f"sin{j}", f"pair{j}", "sin"),
            self.emitter.of_pair(f"cos{j}", f"pair{j}", "cos"),
            f"  %k{j}.2 = shl i32 %k{j}, 1",
            f"  %sin{j}.p = getelementptr {T}, ptr addrspace(3) %sc, i32 %k{j}.2",
            f"  store {T} %sin{j}, ptr addrspace(3) %sin{j}.p",
            f"  %cos{j}.p = getelementptr {T}, ptr addrspace(3) %sin{j}.p, i32 1",
            f"  store {T} %cos{j}, ptr addrspace(3) %cos{j}.p",
        ]

    def _places(self) -> list[str]:
        """What the functions of the warps are given about results."""
        out, T = self.arguments.output, self.T
        lines = [
            f"  %places = getelementptr {T}, ptr addrspace(3) %memory{len(self.arguments.inputs) + 1}, i32 0",
            f"  %pool = getelementptr {T}, ptr addrspace(3) %places, i32 %lane",
        ]
        return [*lines, *(self.warps.across.lines(out.index) if out.staged else own_row(out, T))]

    def _calls(self) -> list[str]:
        """The part of this warp."""
        count = self.phases.warps
        cases = " ".join(f"i32 {w}, label %part{w}" for w in range(1, count))
        lines = [f"  switch i32 %warp, label %part0 [ {cases} ]"]
        for w in range(count):
            lines += [f"part{w}:", self.warps.call(w), "  br label %computed"]
        return [*lines, "computed:"]
