"""The loop over time, as LLVM text: a program that makes one step of a state, run for many steps and many samples.

The program maps (state, t, dt, held inputs, parameters) to the next state. `void loop(args, sizes, strides, env)` puts the
states of a block of samples into lanes once, calls the program's core step after step, and writes every so many steps
what is recorded. Held inputs (controls that are arrays in time) are read a row a step; parameters stay in their lanes.
Where a batch does not fill the last block, its last sample is computed again in the lanes that are left. A program of one
lane gives the same bits as one of many.

| argument | shape, contiguous in its last axis     | meaning                                        |
|----------|----------------------------------------|------------------------------------------------|
| 0        | (samples, n_state)                     | states at the start                            |
| 1        | (samples, steps, n_held)               | held inputs                                    |
| 2        | (samples, n_parameters)                |                                                |
| 3        | (samples, records, n_recorded)         | written: the first numbers of recorded states  |
| 4        | (samples, n_state)                     | written: states at the end                     |
| 5        | 3                                      | room for t, then dt and the time of step zero  |
| 6        | `Layout.scratch` bytes, aligned to 64  | scratch memory                                 |

`sizes` are the samples, the steps, the number of the first step and how many steps lie between records; `strides` are
the bytes from sample to sample of arguments 0 to 4, then those from row to row of arguments 1 and 3.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from qddot.compiler import sincos
from qddot.compiler.llvm import _Core
from qddot.compiler.program import Program
from qddot.compiler.rows import transpose_function


class Call(NamedTuple):
    """A function by its number, and the program of its arguments, from a step's inputs and the results of calls before."""

    function: int
    arguments: Program


class Step(NamedTuple):
    """A step as a program, and the functions that it calls on the way, each of them code that is there once.

    The inputs of `last` and of arguments are the step's own and then the results of all calls, one after the other. A
    function has its arguments as inputs, and then the step's held inputs and parameters.
    """

    last: Program
    calls: tuple[Call, ...] = ()
    functions: tuple[Program, ...] = ()

    def instructions(self) -> int:
        """Operations of a step."""
        inside = sum(len(self.functions[c.function].nodes()) + len(c.arguments.nodes()) for c in self.calls)
        return len(self.last.nodes()) + inside

    def programs(self) -> list[Program]:
        """All of them."""
        return [*self.functions, *(c.arguments for c in self.calls), self.last]


class Layout(NamedTuple):
    """How many numbers a sample has of each kind, how many samples lie in lanes, blocks done together, scratch bytes."""

    n_state: int
    n_held: int
    n_parameters: int
    n_recorded: int
    lanes: int
    group: int = 1
    scratch: int = 0

    @property
    def n_inputs(self) -> int:
        """State, t and dt, held inputs, parameters: the inputs of the program, in this order."""
        return self.n_state + 2 + self.n_held + self.n_parameters


class _Part:
    """One program of a step in its own functions, with the columns of a block before and after it."""

    def __init__(self, tag: str, program: Program, lanes: int) -> None:
        self.core = _Core(program, lanes, "float64")
        self.core.render()
        self.tag, self.lanes = tag, lanes
        self.before, self.after = program.n_inputs, self.core.columns
        self.places = list(range(len(program.outputs))) if self.core.places is None else self.core.places

    def text(self, group: int) -> list[str]:
        """`@run.tag(in, out, work, env, count)`: all blocks of a group at once, or one after another."""
        names, tagged = rf"@(core|chunk|angles){self.lanes}", rf"@\g<1>{self.lanes}.{self.tag}"
        own = [re.sub(names, tagged, x) for x in self.core.functions]
        head = f"define internal void @run.{self.tag}(ptr %in, ptr %out, ptr %work, ptr %env, i64 %count) {{"
        call = f"call void @core{self.lanes}.{self.tag}"
        if self.core.group == group:
            body = f"  {call}(ptr %in, ptr %out, ptr %work, ptr %env, i64 %count)"
        else:
            one = [f"  {call}(ptr %in.b, ptr %out.b, ptr %work, ptr %env, i64 1)"]
            body = _over_blocks({"in": 8 * self.lanes * self.before, "out": 8 * self.lanes * self.after}, one)
        return [*own, f"{head}\n{body}\n  ret void\n}}\n"]


def _over_blocks(strides: dict[str, int], lines: list[str]) -> str:
    """A loop over the blocks of a group; `%x.b` is where a block begins in `%x`."""
    moves = []
    for x, stride in strides.items():
        moves += [f"  %{x}.o = mul i64 %b, {stride}", f"  %{x}.b = getelementptr i8, ptr %{x}, i64 %{x}.o"]
    return "\n".join(
        [
            "entry:",
            "  br label %block",
            "block:",
            "  %b = phi i64 [ 0, %entry ], [ %b1, %block ]",
            *moves,
            *lines,
            "  %b1 = add i64 %b, 1",
            "  %more = icmp ult i64 %b1, %count",
            "  br i1 %more, label %block, label %done",
            "done:",
        ]
    )


def render(step: Step, layout: Layout) -> tuple[str, Layout]:
    """A module with `@loop`, and the layout with what only the code knows."""
    lanes = layout.lanes
    functions = [_Part(f"f{k}", p, lanes) for k, p in enumerate(step.functions)]
    arguments = [_Part(f"a{k}", c.arguments, lanes) for k, c in enumerate(step.calls)]
    last = _Part("last", step.last, lanes)
    parts = [*functions, *arguments, last]
    group = max(p.core.group for p in (functions or [last]))
    # what lies side by side: a step's inputs, what its programs make, a function's inputs, what it makes; then room to work
    columns = [
        last.before,
        max(p.after for p in (*arguments, last)),
        max([p.before for p in functions], default=0),
        max([p.after for p in functions], default=0),
    ]
    work = max(p.core.group * p.core.scratch for p in parts)
    sizes = [-(-8 * lanes * n // 64) * 64 for n in (*(group * n for n in columns), work)]
    layout = layout._replace(group=group, scratch=max(64, sum(sizes)))
    widths = {lanes, *(p.core.together for p in parts)}
    text = [
        *map(sincos.define, sorted(widths)),
        sincos.arctan2(lanes, last.core.V, "double"),
        *(line for p in parts for line in p.text(group)),
        _rows("take", lanes, 8 * lanes * last.before, into_rows=False),
        _rows("give", lanes, 8 * lanes * last.before, into_rows=True),
        *_each_step(layout, 8 * lanes * last.before),
        *_moves(step, layout, functions, arguments, last),
        _loop(layout, sizes, [c.function for c in step.calls]),
        *_declarations(widths),
    ]
    return "\n".join(text), layout


def _moves(step: Step, layout: Layout, functions: list[_Part], arguments: list[_Part], last: _Part) -> list[str]:
    """What leads from one program to the next: columns of arguments and of results, and the new state."""
    shared, result = range(layout.n_state + 2, layout.n_inputs), layout.n_inputs
    text = []
    for k, (call, made) in enumerate(zip(step.calls, arguments, strict=True)):
        f, own = functions[call.function], len(made.places)
        given = [("out", made.after, place, "to", f.before, j) for j, place in enumerate(made.places)]
        given += [("in", last.before, x, "to", f.before, own + j) for j, x in enumerate(shared)]
        text.append(_copies(f"given.{k}", made.core, given))
        back = [("to", f.after, place, "in", last.before, result + j) for j, place in enumerate(f.places)]
        text.append(_copies(f"result.{k}", made.core, back))
        result += len(f.places)
    new = [("out", last.after, place, "in", last.before, j) for j, place in enumerate(last.places)]
    return [*text, _copies("advance", last.core, new)]


def _copies(name: str, core: _Core, moves: list[tuple[str, int, int, str, int, int]]) -> str:
    """`@name(in, out, to, count)`: columns of each block from one memory to another."""
    strides = {x: 8 * core.lanes * n for source, m, _, target, n_, _ in moves for x, n in ((source, m), (target, n_))}
    V, lines = core.V, []
    for k, (source, _, a, target, _, b) in enumerate(moves):
        lines += [
            f"  %s{k} = getelementptr {V}, ptr %{source}.b, i64 {a}",
            f"  %x{k} = load {V}, ptr %s{k}, align {core.align}",
            f"  %t{k} = getelementptr {V}, ptr %{target}.b, i64 {b}",
            f"  store {V} %x{k}, ptr %t{k}, align {core.align}",
        ]
    body = _over_blocks(strides, lines)
    return f"define internal void @{name}(ptr %in, ptr %out, ptr %to, i64 %count) {{\n{body}\n  ret void\n}}\n"


def _declarations(widths: set[int]) -> list[str]:
    kinds = {"f64": "double"} | {f"v{w}f64": f"<{w} x double>" for w in widths if w > 1}
    lines = [f"declare {V} @llvm.{op}.{s}({V})" for s, V in kinds.items() for op in ("sqrt", "fabs")]
    lines += [f"declare {V} @llvm.fma.{s}({V}, {V}, {V})" for s, V in kinds.items()]
    lines += ["declare <4 x double> @llvm.masked.load.v4f64.p0(ptr, <4 x i1>, <4 x double>)"]
    lines += ["declare void @llvm.masked.store.v4f64.p0(<4 x double>, ptr, <4 x i1>)"]
    lines += [f"declare i1 @llvm.vector.reduce.or.v{w}i1(<{w} x i1>)" for w in sorted({8, *widths} - {1})]
    return [*lines, '!0 = !{!"branch_weights", i32 1, i32 100000}', "!1 = !{}"]


def _rows(name: str, lanes: int, block: int, into_rows: bool) -> str:
    """Moves `width` numbers of each of `count` samples between rows of memory and, from `column` on, lanes.

    Samples beyond the last of the batch are read as the last, and not written.
    """
    source, target = ("%at", "%row.k") if into_rows else ("%row.k", "%at")
    write = "  br i1 %beyond, label %after, label %move" if into_rows else "  br label %move"
    return f"""define internal void @{name}(ptr %memory, i64 %stride, ptr %lanes, i64 %column, i64 %width,
    i64 %first, i64 %count, i64 %last) {{
entry:
  %some = icmp ne i64 %width, 0
  br i1 %some, label %sample, label %done
sample:
  %j = phi i64 [ 0, %entry ], [ %j1, %after ]
  %s = add i64 %first, %j
  %beyond = icmp ugt i64 %s, %last
  %own = select i1 %beyond, i64 %last, i64 %s
  %far = mul i64 %own, %stride
  %row = getelementptr i8, ptr %memory, i64 %far
  %b = udiv i64 %j, {lanes}
  %lane = urem i64 %j, {lanes}
  %b.o = mul i64 %b, {block}
  %c.o = mul i64 %column, {8 * lanes}
  %l.o = shl i64 %lane, 3
  %bc.o = add i64 %b.o, %c.o
  %o = add i64 %bc.o, %l.o
  %place = getelementptr i8, ptr %lanes, i64 %o
{write}
move:
  %k = phi i64 [ 0, %sample ], [ %k1, %move ]
  %row.k = getelementptr double, ptr %row, i64 %k
  %k.o = mul i64 %k, {8 * lanes}
  %at = getelementptr i8, ptr %place, i64 %k.o
  %x = load double, ptr {source}, align 8
  store double %x, ptr {target}, align 8
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %width
  br i1 %more, label %move, label %after
after:
  %j1 = add i64 %j, 1
  %left = icmp ult i64 %j1, %count
  br i1 %left, label %sample, label %done
done:
  ret void
}}
"""


def _each_step(layout: Layout, block: int) -> list[str]:
    """`@hold` and `@record`, which move rows at every step: blocks of eight full lanes are transposed in registers."""
    held = _blocks("hold", "take", layout, block, layout.n_state + 2, layout.n_held)
    recorded = _blocks("record", "give", layout, block, 0, layout.n_recorded)
    return [held, recorded]


def _blocks(name: str, slow: str, layout: Layout, block: int, column: int, width: int) -> str:
    lanes = layout.lanes
    head = f"define internal void @{name}(ptr %memory, i64 %stride, ptr %lanes, i64 %first, i64 %blocks, i64 %last) {{"
    if width == 0:
        return f"{head}\n  ret void\n}}\n"
    quick = lanes == 8
    return f"""{transpose_function(f"{name}.rows", width, into_rows=slow == "give") if quick else ""}{head}
entry:
  br label %block
block:
  %b = phi i64 [ 0, %entry ], [ %b1, %after ]
  %own = mul i64 %b, {lanes}
  %s = add i64 %first, %own
  %end = add i64 %s, {lanes - 1}
  %short = icmp ugt i64 %end, %last
  %b.o = mul i64 %b, {block}
  %lanes.b = getelementptr i8, ptr %lanes, i64 %b.o
  br i1 {"%short" if quick else "true"}, label %slow, label %quick
quick:
  %far = mul i64 %s, %stride
  %row = getelementptr i8, ptr %memory, i64 %far
  %columns = getelementptr i8, ptr %lanes.b, i64 {8 * lanes * column}
{f"  call void @{name}.rows(ptr %row, i64 %stride, ptr %columns)" if quick else ""}
  br label %after
slow:
  call void @{slow}(ptr %memory, i64 %stride, ptr %lanes.b, i64 {column}, i64 {width}, i64 %s, i64 {lanes}, i64 %last)
  br label %after
after:
  %b1 = add i64 %b, 1
  %more = icmp ult i64 %b1, %blocks
  br i1 %more, label %block, label %done
done:
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


def _programs(calls: list[int]) -> list[str]:
    """The functions of a step one after another, each after its arguments, and the new state."""
    lines = []
    for k, f in enumerate(calls):
        lines += [
            f"  call void @run.a{k}(ptr %a6, ptr %out, ptr %work, ptr %env, i64 %count)",
            f"  call void @given.{k}(ptr %a6, ptr %out, ptr %to, i64 %count)",
            f"  call void @run.f{f}(ptr %to, ptr %back, ptr %work, ptr %env, i64 %count)",
            f"  call void @result.{k}(ptr %a6, ptr %out, ptr %back, i64 %count)",
        ]
    return [
        *lines,
        "  call void @run.last(ptr %a6, ptr %out, ptr %work, ptr %env, i64 %count)",
        "  call void @advance(ptr %a6, ptr %out, ptr %to, i64 %count)",
    ]


def _memory(sizes: list[int]) -> list[str]:
    """Where in the scratch memory everything begins; a step's inputs are at its very beginning."""
    names = ("out", "to", "back", "work")
    return [f"  %{x} = getelementptr i8, ptr %a6, i64 {sum(sizes[: k + 1])}" for k, x in enumerate(names)]


def _loop(layout: Layout, sizes: list[int], calls: list[int]) -> str:
    """Groups of blocks one after another, each through all its steps."""
    n, held, parameters, _, lanes, group, _ = layout
    samples = "i64 %first, i64 %count.s, i64 %last"
    return "\n".join(
        [
            "define void @loop(ptr %args, ptr %sizes, ptr %strides, ptr %env) {",
            "entry:",
            *_loads("a", 7, "ptr", "args"),
            *_loads("n", 4, "i64", "sizes"),
            *_loads("s", 7, "i64", "strides"),
            "  %dt.p = getelementptr double, ptr %a5, i64 1",
            "  %dt = load double, ptr %dt.p",
            "  %t0.p = getelementptr double, ptr %a5, i64 2",
            "  %t0 = load double, ptr %t0.p",
            *_memory(sizes),
            "  %last = sub i64 %n0, 1",
            f"  %up = add i64 %last, {lanes}",
            f"  %blocks = udiv i64 %up, {lanes}",
            "  br label %group",
            "group:",
            "  %g = phi i64 [ 0, %entry ], [ %g1, %group_done ]",
            "  %left = sub i64 %blocks, %g",
            f"  %short = icmp ult i64 %left, {group}",
            f"  %count = select i1 %short, i64 %left, i64 {group}",
            f"  %first = mul i64 %g, {lanes}",
            f"  %count.s = mul i64 %count, {lanes}",
            f"  call void @take(ptr %a0, i64 %s0, ptr %a6, i64 0, i64 {n}, {samples})",
            f"  call void @take(ptr %a2, i64 %s2, ptr %a6, i64 {n + 2 + held}, i64 {parameters}, {samples})",
            "  br label %step",
            *_one_step(n, samples, calls),
            "group_done:",
            f"  call void @give(ptr %a4, i64 %s4, ptr %a6, i64 0, i64 {n}, {samples})",
            "  %g1 = add i64 %g, %count",
            "  %g.more = icmp ult i64 %g1, %blocks",
            "  br i1 %g.more, label %group, label %end",
            "end:",
            "  ret void",
            "}",
        ]
    )


def _one_step(n: int, samples: str, calls: list[int]) -> list[str]:
    """The time, the held inputs, the programs, and a record where it is due."""
    return [
        "step:",
        "  %k = phi i64 [ 0, %group ], [ %k1, %step_done ]",
        "  %r = phi i64 [ 0, %group ], [ %r1, %step_done ]",
        "  %number = add i64 %n2, %k",
        "  %number.x = uitofp i64 %number to double",
        "  %t = call double @llvm.fma.f64(double %number.x, double %dt, double %t0)",
        "  store double %t, ptr %a5",
        f"  call void @take(ptr %a5, i64 0, ptr %a6, i64 {n}, i64 2, {samples})",
        "  %held.o = mul i64 %k, %s5",
        "  %held = getelementptr i8, ptr %a1, i64 %held.o",
        "  call void @hold(ptr %held, i64 %s1, ptr %a6, i64 %first, i64 %count, i64 %last)",
        *_programs(calls),
        "  %next = add i64 %number, 1",
        "  %phase = urem i64 %next, %n3",
        "  %due = icmp eq i64 %phase, 0",
        "  br i1 %due, label %record, label %step_done",
        "record:",
        "  %rec.o = mul i64 %r, %s6",
        "  %rec = getelementptr i8, ptr %a3, i64 %rec.o",
        "  call void @record(ptr %rec, i64 %s3, ptr %a6, i64 %first, i64 %count, i64 %last)",
        "  br label %step_done",
        "step_done:",
        "  %r.up = zext i1 %due to i64",
        "  %r1 = add i64 %r, %r.up",
        "  %k1 = add i64 %k, 1",
        "  %k.more = icmp ult i64 %k1, %n1",
        "  br i1 %k.more, label %step, label %group_done",
    ]
