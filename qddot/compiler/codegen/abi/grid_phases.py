"""Kernels whose blocks compute 32 states at a time, each of their warps a part of the program (`thread_phases`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from qddot.compiler.codegen.abi.grid_angles import angle_loop, table_of_angles
from qddot.compiler.codegen.abi.grid_copies import read_row
from qddot.compiler.codegen.abi.grid_frame import Frame, Prelude, array_parameters, own_row
from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes
from qddot.compiler.codegen.llvm.thread_arguments import WARP, Arguments, GridOperand
from qddot.compiler.codegen.llvm.thread_phases import Phases, Work
from qddot.compiler.codegen.llvm.thread_warps import WarpOptions, WarpProgram
from qddot.compiler.ir.program import Program


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
        return [table_of_angles(self.name, self.arguments.angles), *self.warps.text(), self._kernel()]

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
            f"  %p{i} = getelementptr {self.T}, ptr addrspace(3) {x.memory}, i32 %own.o{i}",
        ]

    def _angles(self) -> list[str]:
        """Sines and cosines of numbers of the first input: each warp those of some of them."""
        k = len(self.arguments.inputs)
        lines = [
            f"  %angles.o = mul i32 %lane, {self.arguments.angle_pitch}",
            f"  %sc = getelementptr {self.T}, ptr addrspace(3) %memory{k}, i32 %angles.o",
        ]
        loop = angle_loop(self.name, self.arguments, self.emitter, "%p0", self.phases.warps)
        return [*lines, *loop, "  call void @join(ptr %env)"]

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
