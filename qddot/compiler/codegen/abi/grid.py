"""A module for a grid of GPU threads: `rows(count, arrays and strides…, scratch)` around the program of one thread.

A warp computes 32 states. It copies their rows into shared memory together, 16 bytes a thread where rows follow each
other, and each thread reads its own row there; results go the other way. `rows` takes arrays whose states have contiguous
numbers, at any distance from state to state (0: all have the same); `strided` takes any strides, and each thread reads and
writes its own numbers: for arrays in columns that is as fast. A grid with a second dimension computes a part of each
result in each of its layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from qddot.compiler.codegen.abi.grid_copies import tile_function
from qddot.compiler.codegen.abi.grid_frame import NVIDIA, Frame, Prelude, array_parameters, grid_module, own_row
from qddot.compiler.codegen.abi.grid_kernel import Grid, GridOptions
from qddot.compiler.codegen.abi.grid_loops import LoopGrid, WarpEmitter
from qddot.compiler.codegen.abi.grid_passes import PassOptions, passes_of, render_passes
from qddot.compiler.codegen.abi.grid_phases import PhasedGrid
from qddot.compiler.codegen.abi.grid_stages import Stages, stages
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
from qddot.compiler.codegen.llvm.thread_parts import Layers
from qddot.compiler.codegen.llvm.thread_phases import phases, work_of
from qddot.compiler.codegen.llvm.thread_program import WHOLE_ROW_MAX_NUMBERS
from qddot.compiler.codegen.llvm.thread_tiles import TILE_BYTES
from qddot.compiler.codegen.llvm.thread_warps import WarpOptions, known_before
from qddot.compiler.ir.loop_program import Rolled
from qddot.compiler.ir.program import Program
from qddot.compiler.runtime.cuda.grid import Grid as LaunchFacts
from qddot.compiler.targets.target import Target

# Chosen by times on an H200 (docs/decisions/0044)
ONE_THREAD_MAX_OPS = 8000  # of a program that one thread computes
LAYER_MAX_OPS = 5200  # of each thread where several compute a state; with more, it spills
MOST_LAYERS = 32
PASSES_MAX_OPS = {"float": 1_000_000, "double": 30_000}  # of a program in passes: doubles keep twice the bytes
NEAR_MAX_OPS = {"float": 10_000, "double": 800}  # of a program that has no branches at sines and reciprocals
MAX_REGISTERS = {"float": ((600, 0), (1000, 80), (3000, 168)), "double": ((1000, 168),)}  # up to so many operations
REPEATED_MAX_RATIO = 1.9  # of the operations of all threads of a state to those of one
STRIDED_MAX_OPS = 20_000  # of a program with a second kernel, for arrays of any strides
_SHARED_LARGEST_BYTES = 227 << 10  # of a block on any card
SMALL_BATCH_WARPS = 8, 4  # that compute a state together where one thread would take long: the most that have room
EIGHT_WARPS_MAX_OPS = 45_000  # of a program whose values may have room where eight warps share them
_PROCESSOR_REGISTERS = 65_536  # of a multiprocessor
STAGED_MAX_BYTES = 14_000  # of a warp's input rows in shared memory; results, sines and cosines come on top


def render(
    program: Program | Rolled,
    inputs: Sequence[Shape],
    output: Shape,
    dtype: str,
    target: Target,
    options: GridOptions | None = None,
    prelude: Prelude = NVIDIA,
    most_shared: int = 0,
) -> tuple[str, LaunchFacts]:
    """The text of a module with the kernels of a program, and how they are launched.

    Where warps share states, there is no text if a block takes more than `most_shared` bytes of shared memory (0: any).
    """
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
        given = [replace(x, angles=angles) for x in operands]
        return _render_phases(program, given, emitter, options, prelude, most_shared)
    kernels = []
    for name, x in zip(("rows", "strided"), operands, strict=False):
        place = shared_row(program, x) if options.groups == 1 else None
        x = replace(x, output=replace(x.output, place=place))
        own = replace(x, angles=angles, angle_space=LOCAL if is_near(program, x, options) else SHARED)
        kernels.append(Grid(name, program, own, emitter, options, prelude))
    if options.threads == 0:
        options = options._replace(threads=kernels[0].fitting_threads)
        kernels = [replace(kernel, options=options) for kernel in kernels]
    common = [prelude.functions, tile_function(emitter.T, prod(output))]
    text = [*common, *(line for kernel in kernels for line in kernel.text())]
    whole = grid_module(text, emitter, _bounds(options), [k.name for k in kernels], prelude)
    return whole, LaunchFacts(options.threads, kernels[0].shared_bytes, options.groups, 0, options.strided)


def render_modules(
    program: Program | Rolled,
    inputs: Sequence[Shape],
    output: Shape,
    dtype: str,
    target: Target,
    options: GridOptions | None = None,
    prelude: Prelude = NVIDIA,
) -> tuple[list[str], LaunchFacts]:
    """The modules of a kernel as it is launched, one after another, and how."""
    emitter = Emitter(1, dtype, target)
    if isinstance(program, Program) and len(program.body) > ONE_THREAD_MAX_OPS and prod(output) > WHOLE_ROW_MAX_NUMBERS:
        own = stages(program) if len(output) == 1 else None
        if own is not None and max(len(own.first.body), len(own.second.body)) <= ONE_THREAD_MAX_OPS:
            return _render_stages(own, inputs, output, emitter, prelude)
    text, facts = render(program, inputs, output, dtype, target, options, prelude)
    return [text], facts


def options_of(program: Program | Rolled, dtype: str, target: Target) -> GridOptions | None:
    """How a program without loops is laid out."""
    return None if isinstance(program, Rolled) else chosen(program, Emitter(1, dtype, target))


def _render_stages(
    own: Stages, inputs: Sequence[Shape], output: Shape, emitter: Emitter, prelude: Prelude
) -> tuple[list[str], LaunchFacts]:
    """A module for each stage; the second has what the first wrote as its last input."""
    made = []
    for program, given, start in ((own.first, inputs, own.start), (own.second, [*inputs, (own.numbers,)], 0)):
        options, kernels = chosen(program, emitter)._replace(strided=True, groups=1), []
        angles = tuple(angles_of(program, prod(inputs[0])))
        operands = arguments(given, output, emitter.T, options.direct_max_numbers), strided_arguments(given, output)
        for name, x in zip(("rows", "strided"), operands, strict=True):
            if program is own.second:
                x = replace(x, inputs=(*x.inputs[:-1], replace(x.inputs[-1], result_from=own.start)))
            kernels.append(Grid(name, program, replace(x, angles=angles), emitter, options, prelude, start))
        made.append(kernels)
    threads = min(kernels[0].fitting_threads for kernels in made)
    made = [[replace(k, options=k.options._replace(threads=threads)) for k in kernels] for kernels in made]
    common, texts = [prelude.functions, tile_function(emitter.T, prod(output))], []
    for kernels in made:
        text = [*common, *(line for kernel in kernels for line in kernel.text())]
        texts.append(grid_module(text, emitter, _bounds(kernels[0].options), [k.name for k in kernels], prelude))
    return texts, LaunchFacts(threads, max(kernels[0].shared_bytes for kernels in made), has_strided=True)


def is_long_for_one_thread(program: Program | Rolled, own: GridOptions | None) -> bool:
    """Whether one thread computes a long program, laid out like this: other code is faster, for small and large batches."""
    is_long = isinstance(program, Program) and len(program.body) > ONE_THREAD_MAX_OPS
    return is_long and own is not None and own.groups == 1


def render_small_batches(
    program: Program, inputs: Sequence[Shape], output: Shape, dtype: str, target: Target
) -> tuple[str, LaunchFacts] | None:
    """A module for small batches: warps share the states that one thread computes in the first.

    A small batch takes a quarter to a third of the time, a large one more. None where no card has the memory for it.
    """
    is_very_long = len(program.body) > EIGHT_WARPS_MAX_OPS
    for warps in SMALL_BATCH_WARPS[is_very_long:]:
        options = GridOptions(strided=False, warps_per_state=warps)
        if is_very_long:  # other phases take as long to be found as these to be compiled, and are hardly better
            options = options._replace(phase_ops=200, level_step=20)
        text, facts = render(program, inputs, output, dtype, target, options, most_shared=_SHARED_LARGEST_BYTES)
        if text:
            return text, facts
    return None


def render_large_batches(
    program: Program | Rolled,
    inputs: Sequence[Shape],
    output: Shape,
    dtype: str,
    target: Target,
    own: GridOptions | None,
) -> tuple[list[str], LaunchFacts] | None:
    """Other modules, for large batches: passes of a program that one thread would spill, where it says how it is cut."""
    if isinstance(program, Rolled) or not is_long_for_one_thread(program, own):
        return None
    if len(program.body) > PASSES_MAX_OPS[Emitter(1, dtype, target).T]:
        return None
    return render_in_passes(program, inputs, output, dtype, target)


def render_in_passes(
    program: Program,
    inputs: Sequence[Shape],
    output: Shape,
    dtype: str,
    target: Target,
    options: PassOptions | None = None,
    prelude: Prelude = NVIDIA,
) -> tuple[list[str], LaunchFacts] | None:
    """A module for each pass of a program; None where it cannot be cut."""
    emitter, options = Emitter(1, dtype, target), options or PassOptions()
    found = passes_of(program, options)
    if found is None:
        return None
    own = arguments(inputs, output, emitter.T, GridOptions().direct_max_numbers)
    return render_passes(found, own, emitter, options, prelude)


def _render_phases(
    program: Program,
    operands: Sequence[Arguments],
    emitter: Emitter,
    options: GridOptions,
    prelude: Prelude,
    most_shared: int,
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
    options, shared = options._replace(threads=kernels[0].threads), kernels[0].shared_bytes
    facts = LaunchFacts(options.threads, shared, 1, 0, options.strided, options.warps_per_state)
    if 0 < most_shared < shared:
        return "", facts
    text = [prelude.functions, *(line for kernel in kernels for line in kernel.text())]
    return grid_module(text, emitter, _bounds(options), [k.name for k in kernels], prelude), facts


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
    return options._replace(groups=_layers(program, TILE_BYTES // number_bytes(emitter.T)))


def _layers(program: Program, quantum: int) -> int:
    """Threads of a state: the fewest that do not spill much; 1 where they would repeat too much of what others compute."""
    size, layers = len(program.body), Layers(program, quantum)
    for count in range(max(2, -(-size // LAYER_MAX_OPS)), MOST_LAYERS + 1):
        own = layers.sizes(count)
        if sum(own) > REPEATED_MAX_RATIO * size:
            return 1
        if max(own) <= LAYER_MAX_OPS:
            return len(own)
    return 1


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
