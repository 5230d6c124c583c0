"""A module for a grid of GPU threads: `rows(count, arrays and strides…, scratch)` around the program of one thread.

A warp computes 32 states. It copies their rows into shared memory together, 16 bytes a thread where rows follow each
other, and each thread reads its own row there; results go the other way. `rows` takes arrays whose states have contiguous
numbers, at any distance from state to state (0: all have the same); `strided` takes any strides, and each thread reads and
writes its own numbers: for arrays in columns that is as fast. A grid with a second dimension computes a part of each
result in each of its layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from qddot.compiler.codegen.abi.grid_angles import angle_loop, far_angle_loop, near_or_far, table_of_angles
from qddot.compiler.codegen.abi.grid_copies import read_row, tile_function, write_row
from qddot.compiler.codegen.abi.grid_frame import NVIDIA, Frame, Prelude, array_parameters, grid_module, own_row
from qddot.compiler.codegen.abi.grid_loops import LoopGrid, WarpEmitter
from qddot.compiler.codegen.abi.grid_phases import PhasedGrid
from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes
from qddot.compiler.codegen.llvm.thread_arguments import (
    GLOBAL,
    LOCAL,
    SHARED,
    WARP,
    Arguments,
    GridOperand,
    Shape,
    angles_of,
)
from qddot.compiler.codegen.llvm.thread_parts import parts
from qddot.compiler.codegen.llvm.thread_phases import phases, work_of
from qddot.compiler.codegen.llvm.thread_program import WHOLE_ROW_MAX_NUMBERS, ThreadOptions, ThreadProgram
from qddot.compiler.codegen.llvm.thread_tiles import TILE_BYTES
from qddot.compiler.codegen.llvm.thread_warps import WarpOptions, known_before
from qddot.compiler.ir.loop_program import Rolled
from qddot.compiler.ir.program import Program
from qddot.compiler.runtime.cuda.grid import Grid as LaunchFacts
from qddot.compiler.targets.target import Target

# Chosen by times on an H200 (docs/decisions/0044)
ONE_THREAD_MAX_OPS = 8000  # of a program that one thread computes
LAYER_OPS = 3000  # that each thread would have if several did not repeat any
NEAR_MAX_OPS = {"float": 10_000, "double": 800}  # of a program that has no branches at sines and reciprocals
MAX_REGISTERS = {"float": ((600, 0), (1000, 80), (3000, 168)), "double": ((1000, 168),)}  # up to so many operations
REPEATED_MAX_RATIO = 1.9  # of the operations of all threads of a state to those of one
STRIDED_MAX_OPS = 20_000  # of a program with a second kernel, for arrays of any strides
_SHARED_MAX_BYTES = 48 << 10  # of a block on every card
_SHARED_LARGEST_BYTES = 227 << 10  # of a block on any card
SMALL_BATCH_WARPS = 8  # that compute a state together where a batch is small and one thread would take long
_PROCESSOR_REGISTERS = 65_536  # of a multiprocessor
STAGED_MAX_BYTES = 14_000  # of a warp's input rows in shared memory; results, sines and cosines come on top


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


def render(
    program: Program | Rolled,
    inputs: Sequence[Shape],
    output: Shape,
    dtype: str,
    target: Target,
    options: GridOptions | None = None,
    prelude: Prelude = NVIDIA,
) -> tuple[str, LaunchFacts]:
    """The text of a module with the kernels of a program, and how they are launched."""
    if isinstance(program, Rolled):
        warp = WarpEmitter(1, dtype, target)
        return _render_loops(program, inputs, output, warp, options or GridOptions(), prelude)
    emitter = Emitter(1, dtype, target)
    options = options or chosen(program, emitter)
    angles = tuple(angles_of(program, prod(inputs[0])))
    operands = [arguments(inputs, output, emitter.T, options.direct_max_numbers)]
    if options.strided:
        operands.append(strided_arguments(inputs, output))
    if options.warps_per_state > 1:
        return _render_phases(program, [replace(x, angles=angles) for x in operands], emitter, options, prelude)
    kernels = []
    for name, x in zip(("rows", "strided"), operands, strict=False):
        place = shared_row(program, x) if options.groups == 1 else None
        x = replace(x, output=replace(x.output, place=place))
        own = replace(x, angles=angles, angle_space=LOCAL if is_near(program, x, options) else SHARED)
        kernels.append(Grid(name, program, own, emitter, options, prelude))
    if options.threads == 0:
        options = options._replace(threads=kernels[0].fitting_threads)
        kernels = [replace(kernel, options=options) for kernel in kernels]
    text = [prelude.functions, tile_function(emitter.T), *(line for kernel in kernels for line in kernel.text())]
    whole = grid_module(text, emitter, _bounds(options), [k.name for k in kernels], prelude)
    return whole, LaunchFacts(options.threads, kernels[0].shared_bytes, options.groups, 0, options.strided)


def render_small_batches(
    program: Program | Rolled, inputs: Sequence[Shape], output: Shape, dtype: str, target: Target
) -> tuple[str, LaunchFacts] | None:
    """A second module, for small batches: warps share the states that one thread computes in the first.

    A small batch takes a quarter to a third of the time, a large one more. None where threads share states anyhow, or where
    no card has the memory for it.
    """
    if isinstance(program, Rolled) or len(program.body) <= ONE_THREAD_MAX_OPS:
        return None
    if chosen(program, Emitter(1, dtype, target)).groups > 1:
        return None
    options = GridOptions(strided=False, warps_per_state=SMALL_BATCH_WARPS)
    made = render(program, inputs, output, dtype, target, options)
    return made if made[1].shared_bytes <= _SHARED_LARGEST_BYTES else None


def _render_phases(
    program: Program, operands: Sequence[Arguments], emitter: Emitter, options: GridOptions, prelude: Prelude
) -> tuple[str, LaunchFacts]:
    """Kernels whose warps compute a state together."""
    work = work_of(program, known_before(program, operands[0].angles))
    made = phases(work, options.warps_per_state, options.most_places, options.phase_ops, options.level_step)
    registers = options.max_registers or min(255, _PROCESSOR_REGISTERS // (WARP * options.warps_per_state))
    own = WarpOptions(options.held_values or 3 * registers // 4, options.most_places)
    kernels = [
        PhasedGrid(name, program, x, emitter, work, made, own, prelude)
        for name, x in zip(("rows", "strided"), operands, strict=False)
    ]
    options = options._replace(threads=kernels[0].threads)
    text = [prelude.functions, *(line for kernel in kernels for line in kernel.text())]
    whole = grid_module(text, emitter, _bounds(options), [k.name for k in kernels], prelude)
    shared = kernels[0].shared_bytes
    return whole, LaunchFacts(options.threads, shared, 1, 0, options.strided, options.warps_per_state)


def _render_loops(
    program: Rolled, inputs: Sequence[Shape], output: Shape, emitter: WarpEmitter, options: GridOptions, prelude: Prelude
) -> tuple[str, LaunchFacts]:
    """Kernels of a program with loops: the same for rows and for any strides."""
    options = options._replace(threads=options.threads or 128)
    loops, names = LoopGrid(program, inputs, output, emitter), ("rows", "strided")
    text = [prelude.functions, *loops.text()]
    for name in names:
        frame = Frame(name, array_parameters(loops.operands), emitter.T, options.threads, (), {}, prelude)
        text.append(frame.text([*(line for x in loops.operands for line in own_row(x, emitter.T)), *loops.state()]))
    whole = grid_module(text, emitter, _bounds(options), names, prelude)
    return whole, LaunchFacts(options.threads, 0, 1, loops.scratch, True)


def _bounds(options: GridOptions) -> dict[str, int]:
    return {"maxntidx": options.threads, **({"maxnreg": options.max_registers} if options.max_registers else {})}


def chosen(program: Program, emitter: Emitter) -> GridOptions:
    """By the number of operations: where one thread would take long, several compute a state if that costs little twice."""
    size = len(program.body)
    options = GridOptions(
        strided=size <= STRIDED_MAX_OPS,
        max_registers=max_registers(size, emitter.T),
        near_max_ops=NEAR_MAX_OPS[emitter.T],
    )
    if size <= ONE_THREAD_MAX_OPS:
        return options
    made = parts(program, -(-size // LAYER_OPS), TILE_BYTES // number_bytes(emitter.T))
    total = sum(len(p.body) for _, p in made)
    return options._replace(groups=len(made) if total <= REPEATED_MAX_RATIO * size else 1)


def max_registers(size: int, T: str) -> int:
    """Of a thread, by the number of operations: with fewer, more threads run at a time, if few values are spilled."""
    return next((n for most, n in MAX_REGISTERS[T] if size <= most), 0)


def arguments(inputs: Sequence[Shape], output: Shape, T: str, direct_max_numbers: int = 0) -> Arguments:
    """Operands in rows: inputs are staged as long as there is room, but for short ones, which threads read as they are."""
    made, room = list[GridOperand](), STAGED_MAX_BYTES // number_bytes(T) // WARP
    for i, shape in enumerate(inputs):
        operand = GridOperand(i, shape, SHARED)
        if operand.pitch > room or operand.size <= direct_max_numbers:
            operand = GridOperand(i, shape)
        else:
            room -= operand.pitch
        made.append(operand)
    is_short = prod(output) <= direct_max_numbers
    return Arguments(tuple(made), GridOperand(len(made), output, GLOBAL if is_short else SHARED))


def shared_row(program: Program, given: Arguments) -> int | None:
    """The staged input whose row the result may take: each result comes when the number at its place was read."""
    out, graph = given.output, program.graph
    if not out.staged or out.size > WHOLE_ROW_MAX_NUMBERS:
        return None
    last: dict[int, int] = {}
    for k, n in enumerate(program.body):
        for x in graph.args[n]:
            if graph.ops[x] == "input":
                last[graph.args[x][0]] = k
    when = {n: k for k, n in enumerate(program.body)}
    start = sum(x.size for x in given.inputs)
    for x in reversed(given.inputs):
        start -= x.size
        ends = [last.get(start + j, -1) for j in range(x.size)]
        fits = x.staged and x.size == out.size
        if fits and all(when.get(n, len(when)) >= end for n, end in zip(program.outputs, ends, strict=True)):
            return x.index
    return None


def is_near(program: Program, given: Arguments, options: GridOptions) -> bool:
    """Whether the program has no branches at sines and reciprocals, and is computed once more by threads with far numbers.

    Threads that write tiles together cannot do that.
    """
    graph, out = program.graph, given.output
    has_branches = any(graph.ops[n] in ("sin", "cos", "div") for n in program.body)
    fits = len(program.body) <= min(options.near_max_ops, options.function_max_ops) and options.groups == 1
    return has_branches and fits and (not out.staged or out.size <= WHOLE_ROW_MAX_NUMBERS)


def strided_arguments(inputs: Sequence[Shape], output: Shape) -> Arguments:
    """Operands of any strides."""
    made = [GridOperand(i, shape, strided=True) for i, shape in enumerate((*inputs, output))]
    return Arguments(tuple(made[:-1]), made[-1])


@dataclass(frozen=True)
class Grid:
    """One kernel: what its threads do before and after their programs."""

    name: str
    program: Program
    arguments: Arguments
    emitter: Emitter
    options: GridOptions
    prelude: Prelude

    @property
    def T(self) -> str:
        """The type of a number."""
        return self.emitter.T

    @property
    def programs(self) -> list[ThreadProgram]:
        """One for each layer."""
        own = self.options
        options = ThreadOptions(own.function_max_ops, own.tile_buffers, own.groups == 1, self.is_near)
        quantum = TILE_BYTES // number_bytes(self.T)
        given = replace(self.arguments, angles=()) if self.is_near else self.arguments
        return [
            ThreadProgram(f"{self.name}.part{g}", program, self.emitter, given, options, first)
            for g, (first, program) in enumerate(parts(self.program, self.options.groups, quantum))
        ]

    @property
    def is_near(self) -> bool:
        """Whether sines and cosines are computed by the program."""
        return self.arguments.angle_space == LOCAL

    @property
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
        first = self.programs[0]
        return [*inputs, WARP * first.tile_pitch * (1 if first.is_one_row else first.buffers + 1), angles]

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
        operands = (*self.arguments.inputs, self.arguments.output)
        scratch, far = max(p.scratch for p in programs), self.far_program
        local = {"mem": scratch, **({"far.mem": far.scratch, "pairs": self.arguments.angle_pitch} if far else {})}
        frame = Frame(
            self.name,
            array_parameters(operands),
            self.T,
            self.options.threads,
            self.warp_numbers,
            local,
            self.prelude,
        )
        return frame.text([*self._rows(), *self._layers(programs)])

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
                lines += own_row(x, T)
        out = self.arguments.output
        if out.staged:
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
