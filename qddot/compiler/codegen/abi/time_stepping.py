"""The loop over time, as LLVM text: a program that makes one step of a state, run for many steps and many samples.

The program maps (state, t, dt, held inputs, parameters) to the next state. `void loop(args, sizes, strides, env)` puts the
states of a block of samples into lanes once, calls the program's core step after step, and writes at regular steps
what is recorded. Held inputs (controls that are arrays in time) are read a row a step; parameters stay in their lanes.
Where a batch does not fill the last block, its last sample is computed again in the lanes that are left. A program of one
lane gives the same bits as one of many. Steps are counted, and their times are computed in doubles whatever the type of the
states, so that time does not drift.

| argument | shape, contiguous in its last axis     | meaning                                        |
|----------|----------------------------------------|------------------------------------------------|
| 0        | (samples, n_state)                     | states at the start                            |
| 1        | (samples, steps, n_held)               | held inputs                                    |
| 2        | (samples, n_parameters)                |                                                |
| 3        | (samples, records, n_recorded)         | written: the first numbers of recorded states  |
| 4        | (samples, n_state)                     | written: states at the end                     |
| 5        | 4 doubles                              | room for t and dt; then dt and t of step zero  |
| 6        | `Layout.scratch` bytes, aligned to 64  | scratch memory                                 |
| 7, 8, …  | (samples, steps, n)                    | held inputs that are arrays of their own       |

`sizes` are the samples, the steps, the number of the first step and how many steps lie between records; `strides` are
the bytes from sample to sample of arguments 0 to 4, then those from row to row of arguments 1 and 3, then both of each of
the arguments from 7 on. A loop that runs backwards in time counts the numbers of steps down; its rows are in the order in
which it comes to them.
"""

from __future__ import annotations

from qddot.compiler.codegen.abi.block_groups import group_of, renamed
from qddot.compiler.codegen.abi.operands import padded
from qddot.compiler.codegen.llvm import sincos
from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes
from qddot.compiler.codegen.llvm.module import module
from qddot.compiler.codegen.llvm.straight_line import straight_line_core
from qddot.compiler.codegen.llvm.transpose import has_transposes, transpose_function
from qddot.compiler.ir.program import Program
from qddot.compiler.ir.step_program import Layout, Step
from qddot.compiler.targets.target import Target


class _Part:
    """One program of a step in its own functions, with the columns of a block before and after it."""

    def __init__(self, tag: str, program: Program, emitter: Emitter) -> None:
        self.core = straight_line_core(program, emitter, tag=f".{tag}")
        self.inputs, self.outputs = program.n_inputs, self.core.outputs.count
        self.columns = [self.core.outputs.column(k) for k in range(len(program.outputs))]


def render(step: Step, layout: Layout, target: Target) -> tuple[str, Layout]:
    """A module with `@loop`, and the layout with the size of its scratch memory."""
    emitter = Emitter(layout.lanes, layout.dtype, target)
    functions = [_Part(f"f{k}", p, emitter) for k, p in enumerate(step.functions)]
    arguments = [_Part(f"a{k}", c.arguments, emitter) for k, c in enumerate(step.calls)]
    last = _Part("last", step.last, emitter)
    parts = [*functions, *arguments, last]
    # scratch memory: a step's inputs, what its programs make, a function's inputs, what it makes, the cores' own scratch
    columns = [
        last.inputs,
        max(p.outputs for p in (*arguments, last)),
        max([p.inputs for p in functions], default=0),
        max([p.outputs for p in functions], default=0),
        max(p.core.scratch for p in parts),
    ]
    sizes = [padded(emitter.align * n) for n in columns]
    group = group_of(step.instructions(), layout.n_state, target.registers, (max(64, sum(sizes)), 0, 0))
    layout = layout._replace(scratch=group.blocks * group.inputs)
    calls = [c.function for c in step.calls]
    text = [
        *(line for p in parts for line in p.core.functions),
        *(p.core.grouped(group.blocks) for p in parts if group.blocks > 1 and p.core.grouped is not None),
        _rows("gather", emitter, into_rows=False),
        _rows("scatter", emitter, into_rows=True),
        *_each_step(layout, emitter),
        *_moves(step, layout, functions, arguments, last),
        *(_run(layout, sizes, calls, emitter, n, group.inputs) for n in sorted({1, group.blocks})),
        _loop(layout.lanes, group.blocks),
    ]
    return module(text, [p.core for p in parts], target), layout


def _moves(step: Step, layout: Layout, functions: list[_Part], arguments: list[_Part], last: _Part) -> list[str]:
    """What leads from one program to the next: columns of arguments and of results, and the new state."""
    shared, result = range(layout.n_state + 2, layout.n_inputs), layout.n_inputs
    text = []
    for k, (call, made) in enumerate(zip(step.calls, arguments, strict=True)):
        f, own = functions[call.function], len(made.columns)
        given = [("out", column, "to", j) for j, column in enumerate(made.columns)]
        given += [("in", x, "to", own + j) for j, x in enumerate(shared)]
        text.append(_copies(f"given.{k}", made.core.emitter, given))
        back = [("to", column, "in", result + j) for j, column in enumerate(f.columns)]
        text.append(_copies(f"result.{k}", made.core.emitter, back))
        result += len(f.columns)
    new = [("out", column, "in", j) for j, column in enumerate(last.columns)]
    return [*text, _copies("advance", last.core.emitter, new)]


def _copies(name: str, emitter: Emitter, moves: list[tuple[str, int, str, int]]) -> str:
    """`@name(in, out, to)`: columns of a block from one memory to another."""
    V, lines = emitter.V, []
    for k, (source, a, target, b) in enumerate(moves):
        lines += [
            f"  %s{k} = getelementptr {V}, ptr %{source}, i64 {a}",
            f"  %x{k} = load {V}, ptr %s{k}, align {emitter.align}",
            f"  %t{k} = getelementptr {V}, ptr %{target}, i64 {b}",
            f"  store {V} %x{k}, ptr %t{k}, align {emitter.align}",
        ]
    body = "\n".join(lines)
    return f"define internal void @{name}(ptr %in, ptr %out, ptr %to) {{\n{body}\n  ret void\n}}\n"


def _rows(name: str, emitter: Emitter, into_rows: bool) -> str:
    """Moves `width` numbers of each sample of a block between rows of memory and, from `column` on, lanes.

    Samples beyond the last of the batch are read as the last, and not written.
    """
    T, lanes, size = emitter.T, emitter.lanes, number_bytes(emitter.T)
    source, target = ("%at", "%row.k") if into_rows else ("%row.k", "%at")
    write = "  br i1 %beyond, label %after, label %move" if into_rows else "  br label %move"
    return f"""define internal void @{name}(ptr %memory, i64 %stride, ptr %lanes, i64 %column, i64 %width,
    i64 %first, i64 %last) {{
entry:
  %some = icmp ne i64 %width, 0
  %c.o = mul i64 %column, {size * lanes}
  br i1 %some, label %sample, label %done
sample:
  %j = phi i64 [ 0, %entry ], [ %j1, %after ]
  %s = add i64 %first, %j
  %beyond = icmp ugt i64 %s, %last
  %own = select i1 %beyond, i64 %last, i64 %s
  %far = mul i64 %own, %stride
  %row = getelementptr i8, ptr %memory, i64 %far
  %l.o = mul i64 %j, {size}
  %o = add i64 %c.o, %l.o
  %place = getelementptr i8, ptr %lanes, i64 %o
{write}
move:
  %k = phi i64 [ 0, %sample ], [ %k1, %move ]
  %row.k = getelementptr {T}, ptr %row, i64 %k
  %k.o = mul i64 %k, {size * lanes}
  %at = getelementptr i8, ptr %place, i64 %k.o
  %x = load {T}, ptr {source}, align {size}
  store {T} %x, ptr {target}, align {size}
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %width
  br i1 %more, label %move, label %after
after:
  %j1 = add i64 %j, 1
  %left = icmp ult i64 %j1, {lanes}
  br i1 %left, label %sample, label %done
done:
  ret void
}}
"""


def _each_step(layout: Layout, emitter: Emitter) -> list[str]:
    """`@load_controls0` … and `@record`, which move rows at every step: full blocks are transposed in registers."""
    column, blocks = layout.n_state + 2, []
    for k, width in enumerate(_held_parts(layout)):
        blocks.append(_block(f"load_controls{k}", "gather", emitter, column, width))
        column += width
    return [*blocks, _block("record", "scatter", emitter, 0, layout.n_recorded)]


def _held_parts(layout: Layout) -> tuple[int, ...]:
    return layout.held_parts or (layout.n_held,)


def _block(name: str, slow: str, emitter: Emitter, column: int, width: int) -> str:
    lanes = emitter.lanes
    head = f"define internal void @{name}(ptr %memory, i64 %stride, ptr %lanes, i64 %first, i64 %last) {{"
    if width == 0:
        return f"{head}\n  ret void\n}}\n"
    quick = has_transposes(emitter.lanes)
    return f"""{transpose_function(f"{name}.rows", width, slow == "scatter", emitter) if quick else ""}{head}
entry:
  %end = add i64 %first, {lanes - 1}
  %short = icmp ugt i64 %end, %last
  br i1 {"%short" if quick else "true"}, label %slow, label %quick
quick:
  %far = mul i64 %first, %stride
  %row = getelementptr i8, ptr %memory, i64 %far
  %columns = getelementptr i8, ptr %lanes, i64 {emitter.align * column}
{f"  call void @{name}.rows(ptr %row, i64 %stride, ptr %columns)" if quick else ""}
  ret void
slow:
  call void @{slow}(ptr %memory, i64 %stride, ptr %lanes, i64 {column}, i64 {width}, i64 %first, i64 %last)
  ret void
}}
"""


def _loads(name: str, count: int, kind: str, table: str) -> list[str]:
    """Lines that read %name0, %name1, … out of a table of pointers or whole numbers."""
    lines = []
    for k in range(count):
        lines.append(f"  %{name}{k}.p = getelementptr {kind}, ptr %{table}, i64 {k}")
        lines.append(f"  %{name}{k} = load {kind}, ptr %{name}{k}.p")
    return lines


def _programs(lanes: int, calls: list[int], blocks: int, step: int) -> list[str]:
    """The functions of a step one after another, each after its arguments, and the new state."""

    def core(tag: str, source: str, target: str) -> list[str]:
        if blocks == 1:
            return [f"  call void @core{lanes}.{tag}(ptr %{source}, ptr %{target}, ptr %work, ptr %env)"]
        memory = ", ".join(f"ptr %{x}, i64 {step}" for x in (source, target, "work"))
        return [f"  call void @core{lanes}.{tag}x{blocks}({memory}, ptr %env)"]

    lines = []
    for k, f in enumerate(calls):
        lines += [
            *core(f"a{k}", "a6", "out"),
            *_each([f"  call void @given.{k}(ptr %a6, ptr %out, ptr %to)"], blocks),
            *core(f"f{f}", "to", "back"),
            *_each([f"  call void @result.{k}(ptr %a6, ptr %out, ptr %back)"], blocks),
        ]
    advance = _each(["  call void @advance(ptr %a6, ptr %out, ptr %to)"], blocks)
    return [*lines, *core("last", "a6", "out"), *advance]


_OF_BLOCKS = ("a6", "out", "to", "back", "work", "first")


def _each(lines: list[str], blocks: int) -> list[str]:
    """Calls for one block as calls for each of several."""
    names = [{x: f"{x}.{g}" for x in _OF_BLOCKS} if g else {} for g in range(blocks)]
    return [line for given in lines for own in names for line in (renamed([given], own) if own else [given])]


def _memory(sizes: list[int]) -> list[str]:
    """Where in the scratch memory everything begins; a step's inputs are at its very beginning."""
    names = ("out", "to", "back", "work")
    return [f"  %{x} = getelementptr i8, ptr %a6, i64 {sum(sizes[: k + 1])}" for k, x in enumerate(names)]


def _blocks_memory(blocks: int, step: int, lanes: int) -> list[str]:
    """Where the memory of further blocks is, and their first samples."""
    lines = []
    for g in range(1, blocks):
        lines.append(f"  %first.{g} = add i64 %first, {g * lanes}")
        lines += [f"  %{x}.{g} = getelementptr i8, ptr %{x}, i64 {g * step}" for x in _OF_BLOCKS if x != "first"]
    return lines


def _run(layout: Layout, sizes: list[int], calls: list[int], emitter: Emitter, blocks: int, step: int) -> str:
    """`@run{blocks}(args, sizes, strides, env, first)`: so many blocks from a sample on through all their steps."""
    n, held, parameters, lanes = layout.n_state, layout.n_held, layout.n_parameters, layout.lanes
    samples = "i64 %first, i64 %last"
    return "\n".join(
        [
            f"define internal void @run{blocks}(ptr %args, ptr %sizes, ptr %strides, ptr %env, i64 %first) {{",
            "entry:",
            *_loads("a", 6 + len(_held_parts(layout)), "ptr", "args"),
            *_loads("n", 4, "i64", "sizes"),
            *_loads("s", 5 + 2 * len(_held_parts(layout)), "i64", "strides"),
            "  %dt.p = getelementptr double, ptr %a5, i64 2",
            "  %dt = load double, ptr %dt.p",
            "  %t0.p = getelementptr double, ptr %a5, i64 3",
            "  %t0 = load double, ptr %t0.p",
            *_clock("dt", 1, emitter),
            *_memory(sizes),
            *_blocks_memory(blocks, step, lanes),
            "  %last = sub i64 %n0, 1",
            "  br label %block",
            "block:",
            *_each(
                [
                    f"  call void @gather(ptr %a0, i64 %s0, ptr %a6, i64 0, i64 {n}, {samples})",
                    f"  call void @gather(ptr %a2, i64 %s2, ptr %a6, i64 {n + 2 + held}, i64 {parameters}, {samples})",
                ],
                blocks,
            ),
            "  br label %step",
            *_one_step(layout, samples, calls, emitter, blocks, step),
            "block_done:",
            *_each([f"  call void @scatter(ptr %a4, i64 %s4, ptr %a6, i64 0, i64 {n}, {samples})"], blocks),
            "  ret void",
            "}\n",
        ]
    )


def _loop(lanes: int, blocks: int) -> str:
    """Blocks one after another, or several at a time, each through all its steps."""
    several = f"""  %b.left = sub i64 %blocks, %b
  %b.several = icmp uge i64 %b.left, {blocks}
  br i1 %b.several, label %group, label %single
group:
  call void @run{blocks}(ptr %args, ptr %sizes, ptr %strides, ptr %env, i64 %first)
  br label %done"""
    return f"""define void @loop(ptr %args, ptr %sizes, ptr %strides, ptr %env) {{
entry:
  %n = load i64, ptr %sizes
  %up = add i64 %n, {lanes - 1}
  %blocks = udiv i64 %up, {lanes}
  br label %block
block:
  %b = phi i64 [ 0, %entry ], [ %b1, %done ]
  %first = mul i64 %b, {lanes}
{several if blocks > 1 else "  br label %single"}
single:
  call void @run1(ptr %args, ptr %sizes, ptr %strides, ptr %env, i64 %first)
  br label %done
done:
  %by = phi i64 [ 1, %single ]{f", [ {blocks}, %group ]" if blocks > 1 else ""}
  %b1 = add i64 %b, %by
  %more = icmp ult i64 %b1, %blocks
  br i1 %more, label %block, label %end
end:
  ret void
}}
"""


def _clock(name: str, place: int, emitter: Emitter) -> list[str]:
    """Puts a double, t or dt, where the program finds it, in the type of the states."""
    T, x = emitter.T, f"%{name}"
    narrow = []
    if T == "float":
        narrow, x = [f"  %{name}.x = fptrunc double %{name} to float"], f"%{name}.x"
    return [*narrow, f"  %{name}.q = getelementptr {T}, ptr %a5, i64 {place}", f"  store {T} {x}, ptr %{name}.q"]


def _load_held(layout: Layout, blocks: int) -> list[str]:
    """The rows of this step."""
    lines = []
    for k in range(len(_held_parts(layout))):
        array, stride, row = (f"%a{6 + k}", f"%s{5 + 2 * k}", f"%s{6 + 2 * k}") if k else ("%a1", "%s1", "%s5")
        lines += [
            f"  %held.o{k} = mul i64 %k, {row}",
            f"  %held{k} = getelementptr i8, ptr {array}, i64 %held.o{k}",
            *_each([f"  call void @load_controls{k}(ptr %held{k}, i64 {stride}, ptr %a6, i64 %first, i64 %last)"], blocks),
        ]
    return lines


def _one_step(layout: Layout, samples: str, calls: list[int], emitter: Emitter, blocks: int, step: int) -> list[str]:
    """The time, the held inputs, the programs, and a record where it is due."""
    n, number = layout.n_state, "sub" if layout.backwards else "add"
    return [
        "step:",
        "  %k = phi i64 [ 0, %block ], [ %k1, %step_done ]",
        "  %r = phi i64 [ 0, %block ], [ %r1, %step_done ]",
        f"  %number = {number} i64 %n2, %k",
        "  %number.x = uitofp i64 %number to double",
        *sincos.multiply_add("%t", "double", "f64", "%number.x", "%dt", "%t0", emitter.target.fma),
        *_clock("t", 0, emitter),
        *_each([f"  call void @gather(ptr %a5, i64 0, ptr %a6, i64 {n}, i64 2, {samples})"], blocks),
        *_load_held(layout, blocks),
        *_programs(emitter.lanes, calls, blocks, step),
        "  %next = add i64 %number, 1",
        "  %phase = urem i64 %next, %n3",
        "  %due = icmp eq i64 %phase, 0",
        "  br i1 %due, label %record, label %step_done",
        "record:",
        "  %rec.o = mul i64 %r, %s6",
        "  %rec = getelementptr i8, ptr %a3, i64 %rec.o",
        *_each(["  call void @record(ptr %rec, i64 %s3, ptr %a6, i64 %first, i64 %last)"], blocks),
        "  br label %step_done",
        "step_done:",
        "  %r.up = zext i1 %due to i64",
        "  %r1 = add i64 %r, %r.up",
        "  %k1 = add i64 %k, 1",
        "  %k.more = icmp ult i64 %k1, %n1",
        "  br i1 %k.more, label %step, label %block_done",
    ]
