"""One kernel of a grid: what its threads do before and after their programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from qddot.compiler.codegen.abi.grid_angles import angle_loop, far_angle_loop, near_or_far, table_of_angles
from qddot.compiler.codegen.abi.grid_copies import read_row, write_row
from qddot.compiler.codegen.abi.grid_frame import Frame, Prelude, array_parameters, own_kept, own_row
from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes
from qddot.compiler.codegen.llvm.thread_arguments import GLOBAL, LOCAL, WARP, Arguments, GridOperand
from qddot.compiler.codegen.llvm.thread_parts import parts
from qddot.compiler.codegen.llvm.thread_program import ThreadOptions, ThreadProgram
from qddot.compiler.codegen.llvm.thread_tiles import TILE_BYTES
from qddot.compiler.ir.program import Program

_SHARED_MAX_BYTES = 48 << 10  # of a block on every card


class GridOptions(NamedTuple):
    """How a program is laid out for a grid."""

    threads: int = 0  # of a block; 0: as many as fit with their shared memory
    groups: int = 1
    function_max_ops: int = 8000
    tile_buffers: int = 1
    near_max_ops: int = 10_000  # of a program without branches at sines, with a second one for angles far from zero
    direct_max_numbers: int = 8  # of a row that is not staged in shared memory
    max_registers: int = 0  # of a thread; 0: what the assembler takes
    strided: bool = True
    warps_per_state: int = 1  # that share its values; more than 1: in phases
    phase_ops: int = 0  # of each warp; 0: by cost
    level_step: int = 0  # operations: levels of the program within it are alike (thread_phases); 0: by cost
    held_values: int = 0  # of a thread in registers; 0: for three quarters of them
    most_places: int = 1600  # of a number of each state in shared memory, unless there are more for values that cross


@dataclass(frozen=True)
class Grid:
    """One kernel: what its threads do before and after their programs."""

    name: str
    program: Program
    arguments: Arguments
    emitter: Emitter
    options: GridOptions
    prelude: Prelude
    first: int = 0  # of the results that it computes
    result: GridOperand | None = None  # the caller's array, where the kernel keeps its results in scratch memory
    kept: int = 0  # numbers of a state in scratch memory

    @property
    def T(self) -> str:
        """The type of a number."""
        return self.emitter.T

    @cached_property
    def programs(self) -> list[ThreadProgram]:
        """One for each layer."""
        own = self.options
        options = ThreadOptions(own.function_max_ops, own.tile_buffers, own.groups == 1, self.is_near)
        quantum = TILE_BYTES // number_bytes(self.T)
        given = replace(self.arguments, angles=()) if self.is_near else self.arguments
        return [
            ThreadProgram(f"{self.name}.part{g}", program, self.emitter, given, options, self.first + first)
            for g, (first, program) in enumerate(parts(self.program, self.options.groups, quantum))
        ]

    @property
    def is_near(self) -> bool:
        """Whether sines and cosines are computed by the program."""
        return self.arguments.angle_space == LOCAL

    @cached_property
    def far_program(self) -> ThreadProgram | None:
        """What threads with far angles compute."""
        if not self.is_near:
            return None
        options = ThreadOptions(self.options.function_max_ops, self.options.tile_buffers, is_cold=True)
        return ThreadProgram(f"{self.name}.far", self.program, self.emitter, self.far_arguments, options)

    @property
    def far_arguments(self) -> Arguments:
        """Inputs as the caller has them: results may have taken the place of staged ones."""
        return replace(self.arguments, inputs=tuple(replace(x, space=GLOBAL) for x in self.arguments.inputs))

    @property
    def warp_numbers(self) -> list[int]:
        """Numbers of shared memory of a warp: those of each staged input, those of results, sines and cosines."""
        inputs = [WARP * x.pitch if x.staged else 0 for x in self.arguments.inputs]
        angles = 0 if self.is_near else WARP * (self.arguments.angle_pitch + self.arguments.angle_pitch % 4)
        if not self.arguments.output.staged or self.arguments.output.place is not None:
            return [*inputs, 0, angles]
        programs = [*self.programs, *([far] if (far := self.far_program) else [])]
        buffers = programs[0].buffers + any(p.has_spare for p in programs)
        return [*inputs, WARP * programs[0].tile_pitch * buffers, angles]

    @property
    def fitting_threads(self) -> int:
        """Of a block: the most, up to four warps, whose shared memory every card has."""
        warp = sum(self.warp_numbers) * number_bytes(self.T)
        return next((n for n in (128, 64) if n // WARP * warp <= _SHARED_MAX_BYTES), WARP)

    @property
    def shared_bytes(self) -> int:
        """Of a block."""
        return sum(self.warp_numbers) * number_bytes(self.T) * self.options.threads // WARP

    def text(self) -> list[str]:
        """The kernel and all functions of its own."""
        programs, far = self.programs, self.far_program
        functions = [line for p in (*programs, *([far] if far else [])) for line in p.text()]
        return [table_of_angles(self.name, self.arguments.angles), *functions, self._kernel(programs)]

    def _kernel(self, programs: list[ThreadProgram]) -> str:
        operands = [*self.arguments.inputs, self.arguments.output, *([self.result] if self.result else [])]
        scratch, far = max(p.scratch for p in programs), self.far_program
        local = {"mem": scratch, **({"far.mem": far.scratch, "pairs": self.arguments.angle_pitch} if far else {})}
        frame = Frame(
            self.name,
            array_parameters([x for x in operands if x.result_from is None and x.kept_from is None]),
            self.T,
            self.options.threads,
            self.warp_numbers,
            local,
            self.prelude,
        )
        return frame.text([*self._earlier_results(), *self._rows(), *self._layers(programs)])

    def _earlier_results(self) -> list[str]:
        """Inputs that are numbers of the result, as if they were an array of their own."""
        lines, out = list[str](), self.arguments.output
        for x in self.arguments.inputs:
            if x.result_from is None:
                continue
            offset = str(x.result_from)
            if out.strided:
                offset = f"%first{x.index}"
                lines.append(f"  {offset} = mul i64 {out.strides[0]}, {x.result_from}")
                lines.append(f"  {x.strides[0]} = add i64 {out.strides[0]}, 0")
            lines += [
                f"  %a{x.index} = getelementptr {self.T}, ptr addrspace(1) %a{out.index}, i64 {offset}",
                f"  %s{x.index} = add i64 %s{out.index}, 0",
            ]
        return lines

    def _rows(self) -> list[str]:
        """Where each operand's numbers of this state are, %p; staged ones are read by the warp together."""
        lines, T, staged = list[str](), self.T, False
        for x in self.arguments.inputs:
            i = x.index
            if x.staged:
                staged = True
                lines += read_row(x, T)
                lines.append(f"  %own.o{i} = mul i32 %own, {x.pitch}")
                lines.append(f"  %p{i} = getelementptr {T}, ptr addrspace(3) {x.memory}, i32 %own.o{i}")
            else:
                lines += own_row(x, T) if x.kept_from is None else own_kept(x, T, self.kept)
        out = self.arguments.output
        if out.kept_from is not None:
            lines += own_kept(out, T, self.kept)
        elif out.staged:
            pitch = self.programs[0].tile_pitch
            lines += [
                f"  %first.o = mul i64 %first, %s{out.index}",
                f"  %to = getelementptr {T}, ptr addrspace(1) %a{out.index}, i64 %first.o",
                f"  %lane.o = mul i32 %lane, {pitch}",
                f"  %tiles = getelementptr {T}, ptr addrspace(3) {out.memory}, i32 %lane.o",
            ]
        else:
            lines += own_row(out, T)
        return [*lines, *(["  call void @meet(ptr %env)"] if staged else []), *self._angles()]

    def _angles(self) -> list[str]:
        """Sines and cosines of numbers of the first input."""
        if self.is_near:
            return ["  %sc = getelementptr i8, ptr %pairs, i64 0"]
        k = len(self.arguments.inputs) + 1
        lines = [
            f"  %angles.o = mul i32 %lane, {self.arguments.angle_pitch}",
            f"  %sc = getelementptr {self.T}, ptr addrspace(3) %memory{k}, i32 %angles.o",
        ]
        return [*lines, *angle_loop(self.name, self.arguments, self.emitter, "%p0")]

    def _layers(self, programs: list[ThreadProgram]) -> list[str]:
        """The program of this layer of the grid."""
        given, out, lines = self._given(self.arguments, "p"), self.arguments.output, list[str]()
        if far := self.far_program:
            lines += self._near_and_far(programs[0], far, given)
        elif len(programs) == 1:
            lines += [*programs[0].calls(given), "  br label %computed"]
        else:
            cases = " ".join(f"i32 {g}, label %layer{g}" for g in range(1, len(programs)))
            lines += ["  %layer = call i32 @layer(ptr %env)", f"  switch i32 %layer, label %layer0 [ {cases} ]"]
            for g, p in enumerate(programs):
                lines += [f"layer{g}:", *p.calls(given), "  br label %computed"]
        lines += ["computed:"]
        if out.staged and programs[0].is_one_row:
            lines += write_row(out, self.T)
        elif self.arguments.inputs and any(x.staged for x in self.arguments.inputs):
            lines.append("  call void @meet(ptr %env)")
        return lines

    def _near_and_far(self, near: ThreadProgram, far: ThreadProgram, given: str) -> list[str]:
        return [
            *near_or_far(near.calls(given), "computed"),
            *(line for x in far.arguments.inputs for line in own_row(x, self.T, "far.p")),
            *far_angle_loop(self.name, far.arguments, self.emitter, "%far.p0"),
            *far.calls(self._given(far.arguments, "far.p", "far.mem")),
            "  br label %computed",
        ]

    def _given(self, arguments: Arguments, name: str, memory: str = "mem") -> str:
        """What a program is called with; its inputs are at pointers of this name."""
        given = []
        for x in arguments.inputs:
            given.append(f"{x.pointer} %{name}{x.index}")
            given += [f"i64 {c}" for c in x.strides if x.strided]
        out = self.arguments.output
        if out.staged:
            given += [
                "ptr addrspace(3) %tiles",
                "ptr addrspace(1) %to",
                f"i64 %s{out.index}",
                "i32 %rows",
                "i32 %lane",
            ]
        else:
            given += [f"ptr addrspace(1) %p{out.index}", *(f"i64 {c}" for c in out.strides if out.strided)]
        return ", ".join([*given, f"{self.arguments.angle_pointer} %sc", f"ptr %{memory}", "ptr %env"])
