"""The loop over time, as LLVM text: a program that makes one step of a state, run for many steps and many samples.

The program maps (state, t, dt, held inputs, parameters) to the next state. `void loop(args, sizes, strides, env)` puts the
states of a block of samples into lanes once, calls the program's core step after step, and writes every so many steps
what is recorded. Held inputs (controls that are arrays in time) are read a row a step; parameters stay in their lanes.
Where a batch does not fill the last block, its last sample is computed again in the lanes that are left: every sample
passes through the same code, whatever its batch.

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

import ctypes
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.kernel import _pool, get_num_threads
from qddot.compiler.machine import Code, library_functions

if TYPE_CHECKING:  # rendering is loaded when something is to be compiled
    from qddot.compiler.program import Program

Array = NDArray[Any]
Sizes = tuple[int, int, int]  # steps, the number of the first, how many between records


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


def render(program: Program, layout: Layout) -> tuple[str, Layout]:
    """A module with `@loop`, and the layout with what only the code knows."""
    from qddot.compiler import sincos
    from qddot.compiler.llvm import _Core

    core = _Core(program, layout.lanes, "float64")
    core.render()
    widths = {layout.lanes, core.together}
    places = list(range(layout.n_state)) if core.places is None else core.places
    block = [layout.lanes * 8 * n for n in (layout.n_inputs, core.columns, core.scratch)]
    sizes = [-(-core.group * n // 64) * 64 for n in block]
    layout = layout._replace(group=core.group, scratch=max(64, sum(sizes)))
    text = [
        *map(sincos.define, sorted(widths)),
        sincos.arctan2(layout.lanes, core.V, "double"),
        *core.functions,
        _rows("take", layout.lanes, block[0], into_rows=False),
        _rows("give", layout.lanes, block[0], into_rows=True),
        *_each_step(layout, block[0]),
        _advance(core.V, core.align, places),
        _loop(layout, block, sizes),
        *_declarations(widths),
    ]
    return "\n".join(text), layout


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
    from qddot.compiler.rows import transpose_function

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


def _advance(V: str, align: int, places: list[int]) -> str:
    """What a step has made becomes the state; `places` says in which column of the result each number is."""
    lines = []
    for k, place in enumerate(places):
        lines += [
            f"  %o{k} = getelementptr {V}, ptr %out, i64 {place}",
            f"  %x{k} = load {V}, ptr %o{k}, align {align}",
            f"  %i{k} = getelementptr {V}, ptr %in, i64 {k}",
            f"  store {V} %x{k}, ptr %i{k}, align {align}",
        ]
    return "define internal void @advance(ptr %in, ptr %out) {\n" + "\n".join(lines) + "\n  ret void\n}\n"


def _loads(name: str, count: int, kind: str, table: str) -> list[str]:
    """Lines that read %name0, %name1, … out of a table of pointers or whole numbers."""
    lines = []
    for k in range(count):
        lines.append(f"  %{name}{k}.p = getelementptr {kind}, ptr %{table}, i64 {k}")
        lines.append(f"  %{name}{k} = load {kind}, ptr %{name}{k}.p")
    return lines


def _loop(layout: Layout, block: list[int], sizes: list[int]) -> str:
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
            f"  %out = getelementptr i8, ptr %a6, i64 {sizes[0]}",
            f"  %work = getelementptr i8, ptr %a6, i64 {sizes[0] + sizes[1]}",
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
            f"  call void @core{lanes}(ptr %a6, ptr %out, ptr %work, ptr %env, i64 %count)",
            "  br label %forward",
            "forward:",
            "  %b = phi i64 [ 0, %step ], [ %b1, %forward ]",
            f"  %in.o = mul i64 %b, {block[0]}",
            "  %in.b = getelementptr i8, ptr %a6, i64 %in.o",
            f"  %out.o = mul i64 %b, {block[1]}",
            "  %out.b = getelementptr i8, ptr %out, i64 %out.o",
            "  call void @advance(ptr %in.b, ptr %out.b)",
            "  %b1 = add i64 %b, 1",
            "  %b.more = icmp ult i64 %b1, %count",
            "  br i1 %b.more, label %forward, label %look",
            "look:",
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


# ---- calling it --------------------------------------------------------------------------------------------------------

_WORTH_A_THREAD = 2_000_000  # operations: some 100 µs, twenty times what handing work to a thread costs
_AT_ONCE = 1_000_000_000  # operations of one call: about a tenth of a second, after which an interruption is noticed


class TimeLoop:
    """A compiled rollout: many samples through many steps in one call, on as many threads as kernels may use."""

    def __init__(self, code: Code, layout: Layout, instructions: int) -> None:
        self.layout, self._code = layout, code
        self._operations = max(1, instructions)
        self._function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(code.address)
        self._env = ctypes.addressof(library_functions())

    def __call__(
        self,
        state: Array,
        held: Array,
        parameters: Array,
        *,
        times: tuple[float, float],
        first: int,
        steps: int,
        every: int,
        records: Array,
    ) -> Array:
        """The states after `steps` steps from number `first` on; `records` is filled. `times` are dt and that of step zero.

        `state` is (samples, n_state), `held` (samples, steps, n_held), `parameters` (samples, n_parameters); the latter two
        may be broadcast views. Every array is contiguous in its last axis.
        """
        state, done, rows = np.ascontiguousarray(state), 0, 0
        most = max(1, _AT_ONCE // (self._operations * len(state)))
        while done < steps:
            count = min(most, steps - done)
            made = (first + done + count) // every - (first + done) // every
            piece = held[:, done : done + count], parameters, records[:, rows : rows + made]
            state = self._all_samples(state, *piece, times, (count, first + done, every))
            done, rows = done + count, rows + made
        return state

    def _all_samples(
        self, state: Array, held: Array, parameters: Array, records: Array, times: tuple[float, float], sizes: Sizes
    ) -> Array:
        samples, lanes = len(state), self.layout.lanes
        out = np.empty_like(state)
        blocks = -(-samples // lanes)
        parts = max(1, min(get_num_threads(), blocks, samples * sizes[0] * self._operations // _WORTH_A_THREAD))
        edges = [lanes * (k * blocks // parts) for k in range(parts)] + [samples]

        def part(low: int, high: int) -> None:
            some = slice(low, high)
            self._some(state[some], held[some], parameters[some], records[some], out[some], times, sizes)

        jobs = [_pool().submit(part, a, b) for a, b in pairwise(edges[1:])]
        part(edges[0], edges[1])
        for job in jobs:
            job.result()
        return out

    def _some(
        self,
        state: Array,
        held: Array,
        parameters: Array,
        records: Array,
        out: Array,
        times: tuple[float, float],
        sizes: Sizes,
    ) -> None:
        clock = np.array([0.0, *times])
        scratch = np.empty(self.layout.scratch + 64, np.uint8)
        aligned = -(-scratch.ctypes.data // 64) * 64
        arrays = [state, held, parameters, records, out, clock]
        pointers = (ctypes.c_void_p * 7)(*(a.ctypes.data for a in arrays), aligned)
        numbers = (ctypes.c_int64 * 4)(len(state), *sizes)
        strides = [a.strides[0] for a in arrays[:5]] + [held.strides[1], records.strides[1]]
        self._function(pointers, numbers, (ctypes.c_int64 * 7)(*strides), self._env)
