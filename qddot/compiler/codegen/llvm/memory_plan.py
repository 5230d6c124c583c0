"""Where the values of straight-line code are: which function computes them, and in which memory others find them.

Inputs in rows may be transposed lazily, at their first use: columns that are transposed before the code runs are stored
and reloaded, and nothing is computed meanwhile. For parameters of each state, about ten a link, that takes a quarter of
the time of inverse dynamics.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod

from qddot.compiler.codegen.llvm.prefetch import L1_PREFETCH_MAX_LINES, NARROW_INPUT_MAX_NUMBERS
from qddot.compiler.codegen.llvm.streamed_output import Ring, cut_into_tiles
from qddot.compiler.ir.ops import COMPARISONS, LEAVES
from qddot.compiler.ir.packed_output import SHORT_RESULT_MAX_NUMBERS
from qddot.compiler.ir.program import Program


@dataclass(frozen=True)
class OutputColumns:
    """The columns of a result of `size` numbers: one each in order, `shared` by equal numbers, or a `ring` of them."""

    size: int
    shared: tuple[int, ...] | None = None  # the column of each number
    zero: int | None = None  # the column of zeros among the shared ones
    ring: Ring | None = None

    @property
    def count(self) -> int:
        """How many columns there are."""
        if self.ring is not None:
            return self.ring.columns
        return self.size if self.shared is None else 1 + max(self.shared)

    def column(self, k: int) -> int:
        """Where the k-th number is."""
        if self.ring is not None:
            return self.ring.column(k)
        return k if self.shared is None else self.shared[k]


def shared_columns(program: Program) -> OutputColumns:
    """Equal numbers of a long result, such as zeros and symmetric entries, share a column; a short result has one each."""
    outputs, graph = program.outputs, program.graph
    if len(outputs) <= SHORT_RESULT_MAX_NUMBERS:
        return OutputColumns(len(outputs))
    column: dict[int, int] = {}
    shared = tuple(column.setdefault(n, len(column)) for n in outputs)
    zeros = [shared[k] for k, n in enumerate(outputs) if graph.ops[n] == "const" and graph.args[n][0] == 0.0]
    return OutputColumns(len(outputs), shared, zeros[0] if zeros else None)


@dataclass
class InputTile:
    """Four columns of an input whose rows have `row` numbers, from number `start` on."""

    operand: int
    row: int
    start: int
    function: int  # that transposes them: the first that uses one
    nodes: dict[int, int] = field(default_factory=dict)  # by column, those that are used
    later: set[int] = field(default_factory=set)  # those that other functions use as well


def wide_parameters(program: Program, inputs: list[tuple[int, ...]], parameters: int) -> dict[int, range]:
    """Which of the last inputs, so many parameters, are wide, and which numbers of all inputs they are.

    Not those with angles in them: sines and cosines of inputs are computed first, from columns.
    """
    graph, ends = program.graph, list(accumulate(map(prod, inputs), initial=0))
    angles = {graph.args[graph.args[n][0]][0] for n in program.body if graph.ops[n] in ("sin", "cos")}
    found = {i: range(ends[i], ends[i + 1]) for i in range(len(inputs) - parameters, len(inputs))}
    wide = {i: numbers for i, numbers in found.items() if len(numbers) > NARROW_INPUT_MAX_NUMBERS}
    return {i: numbers for i, numbers in wide.items() if not angles & set(numbers)}


def input_tiles(program: Program, rows: dict[int, range], functions: list[list[int]]) -> dict[int, InputTile]:
    """The tile of each number of inputs that come in rows. An input's last tile begins where it is full."""
    graph = program.graph
    of = {index: (i, numbers) for i, numbers in rows.items() for index in numbers}
    tiles: dict[tuple[int, int], InputTile] = {}
    found: dict[int, InputTile] = {}
    for k, nodes in enumerate(functions):
        used = [x for n in nodes for x in graph.args[n]] + (program.outputs if k == len(functions) - 1 else [])
        used += [y for x in used if graph.ops[x] in COMPARISONS for y in graph.args[x]]  # comparisons are repeated
        for x in used:
            if graph.ops[x] == "input" and graph.args[x][0] in of:
                i, numbers = of[graph.args[x][0]]
                index = graph.args[x][0] - numbers.start
                start = min(index // 4 * 4, len(numbers) - 4)
                found[x] = tile = tiles.setdefault((i, start), InputTile(i, len(numbers), start, k))
                tile.nodes[index - start] = x
                tile.later |= {x} if tile.function != k else set()
    return found


FUNCTION_MAX_OPS = 350  # of one generated function: longer ones are slower to compile and to run (docs/decisions/0013)
SCALAR_SINCOS_LANES = 8  # angles of one state whose sines and cosines are computed in one vector
ZERO_WINDOW = 8  # numbers of one state's result that are set to zero at once, before anything is computed

Location = tuple[str, int]  # which memory, and the index there


@dataclass(frozen=True)
class CoreOptions:
    """What a core does besides arithmetic."""

    prefetch_lines: Sequence[int] = ()  # of each input, between the operations
    streams: bool = False  # whether long packed results are written by the core itself, with streaming stores
    row_inputs: tuple[tuple[int, range], ...] = ()  # inputs that stay in rows: which numbers of all inputs they are


@dataclass(frozen=True)
class MemoryPlan:
    """All that the functions of one program agree on."""

    program: Program
    functions: list[list[int]]  # the nodes that each computes
    angles: list[int]  # inputs whose sines and cosines are computed first
    sincos_slots: dict[int, int]  # of sines and cosines of inputs, in their scratch memory
    sincos_lanes: int  # angles of one state per vector
    slots: dict[int, int]  # of values that cross from one function to another
    prefetches: dict[int, list[tuple[int, int]]]  # before which operation which lines (input, line) are prefetched
    prefetch_locality: int  # of LLVM's prefetch: 3 for L1, 2 for L2
    input_tiles: dict[int, InputTile]
    output_tiles: dict[int, list[int]]  # after which operation which tiles of the result are written; -1: at the end
    outputs: OutputColumns
    output_columns: dict[int, set[int]]  # of each node that is a result
    zero_windows: list[int]  # where windows of zeros begin; what else they cover is computed and stored later
    next_blocks: tuple[int, ...]  # the wide inputs, whose next rows are prefetched or read
    arguments: str  # that not all cores have: the next block's rows of wide inputs, the context of streamed results

    @property
    def sincos_scratch(self) -> int:
        """Numbers of scratch memory for sines and cosines."""
        return 2 * self.sincos_lanes * -(-len(self.angles) // self.sincos_lanes)

    @property
    def scratch(self) -> int:
        """Numbers of scratch memory of a lane."""
        return self.sincos_scratch + 1 + max(self.slots.values(), default=-1)

    def location(self, n: int) -> Location:
        """Where a value is that another function computes, or none."""
        if self.program.graph.ops[n] == "input":
            return "in", self.program.graph.args[n][0]
        return ("sc", self.sincos_slots[n]) if n in self.sincos_slots else ("mem", self.slots[n])


def plan(program: Program, lanes: int, options: CoreOptions, simd: bool = True) -> MemoryPlan:
    """The plan of a program for a lane width; `simd`: whether the target has vectors at all."""
    graph, body = program.graph, program.body
    of = {graph.args[n][0] for n in body if graph.ops[n] in ("sin", "cos")}
    angles = [a for a in sorted(of) if graph.ops[a] == "input"]  # the others are computed on the way
    first = {a: 2 * k for k, a in enumerate(angles)}
    sincos = [n for n in body if graph.ops[n] in ("sin", "cos") and graph.args[n][0] in first]
    sincos_slots = {n: first[graph.args[n][0]] + (graph.ops[n] == "cos") for n in sincos}
    code = [n for n in body if n not in sincos_slots]
    functions = cut(code, FUNCTION_MAX_OPS)
    ring, tiles = cut_into_tiles(program, code) if options.streams else (None, {})
    outputs = OutputColumns(len(program.outputs), ring=ring)
    if lanes > 1 and ring is None:
        outputs = shared_columns(program)
    columns: dict[int, set[int]] = {}
    for k, n in enumerate(program.outputs):
        columns.setdefault(n, set()).add(outputs.column(k))
    wide = [i for i, n in enumerate(options.prefetch_lines) if n]
    zeros = [n for n in columns if graph.ops[n] == "const" and graph.args[n][0] == 0.0] if lanes == 1 else []
    windows = zero_windows({k for n in zeros for k in columns[n]}, len(program.outputs))
    return MemoryPlan(
        program=program,
        functions=functions,
        angles=angles,
        sincos_slots=sincos_slots,
        sincos_lanes=SCALAR_SINCOS_LANES if simd and lanes == 1 and len(angles) > 2 else 1,
        slots=crossing(program, functions, sincos_slots),
        prefetches=_prefetches(options.prefetch_lines, code),
        prefetch_locality=3 if sum(options.prefetch_lines) <= L1_PREFETCH_MAX_LINES else 2,
        input_tiles=input_tiles(program, dict(options.row_inputs), functions),
        output_tiles=tiles,
        outputs=outputs,
        output_columns={n: of for n, of in columns.items() if not (windows and n in zeros)},
        zero_windows=windows,
        next_blocks=tuple(wide),
        arguments="".join(f", ptr %next_block{i}" for i in wide) + (", ptr %context" if ring else ""),
    )


def zero_windows(zeros: set[int], size: int) -> list[int]:
    """Windows over the zeros of a result of `size` numbers, if there are more than one function should store."""
    windows: list[int] = []
    for k in sorted(zeros) if len(zeros) > FUNCTION_MAX_OPS else ():
        if not windows or k >= windows[-1] + ZERO_WINDOW:
            windows.append(min(k, size - ZERO_WINDOW))
    return windows


def cut(code: list[int], most: int) -> list[list[int]]:
    """Parts of equal length, none with more than so many operations."""
    length = -(-len(code) // -(-len(code) // most)) if code else 1
    return [code[k : k + length] for k in range(0, len(code), length)] or [[]]


def _prefetches(lines: Sequence[int], code: list[int]) -> dict[int, list[tuple[int, int]]]:
    """All lines of wide inputs, spread evenly over the operations."""
    found: dict[int, list[tuple[int, int]]] = {}
    all_lines = [(i, k) for i, n in enumerate(lines) for k in range(n)]
    for k, line in enumerate(all_lines if code else ()):
        found.setdefault(code[k * len(code) // len(all_lines)], []).append(line)
    return found


def crossing(
    program: Program, functions: list[list[int]], elsewhere: Container[int] = (), stored: Mapping[int, int] | None = None
) -> dict[int, int]:
    """Slots of values that one function computes and another one uses; `stored` are results that wait for a function.

    A slot is free again after the last function that uses its value: a small scratch memory stays in the L1 cache.
    """
    graph = program.graph
    home = {n: k for k, nodes in enumerate(functions) for n in nodes}
    last_use: dict[int, int] = dict(stored or {})  # the last function that uses a value
    for k, nodes in enumerate(functions):
        for n in nodes:
            operands = list(graph.args[n])
            for x in operands:
                if x in home and home[x] != k and graph.ops[x] in COMPARISONS:
                    operands.extend(graph.args[x])  # a comparison is not stored but repeated
                elif x in home and home[x] != k and graph.ops[x] not in LEAVES and x not in elsewhere:
                    last_use[x] = max(k, last_use.get(x, k))
    slots: dict[int, int] = {}
    free: list[int] = []
    freed: dict[int, list[int]] = {}  # slots by the function before which they are free again
    count = 0
    for k, nodes in enumerate(functions):
        free += freed.pop(k, [])
        for n in nodes:
            if n in last_use:
                if not free:
                    free.append(count)
                    count += 1
                slots[n] = free.pop()
                freed.setdefault(last_use[n] + 1, []).append(slots[n])
    return slots
