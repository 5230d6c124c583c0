"""A module for NumPy: the inner loop of a generalized ufunc around the cores of a program.

`void loop(char **args, intptr_t *dimensions, intptr_t *steps, void *env)` moves states in and out of columns of lanes.
Full blocks are transposed in registers where rows are contiguous and there is such code for the lanes, and moved number by
number elsewhere; the rest of a batch is computed state by state. The next block is prefetched while the current one is
computed. An input that all states share stays in its columns after the first block.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from qddot.compiler.codegen.abi import fastcall
from qddot.compiler.codegen.abi.block_groups import Group, group_loop, group_of
from qddot.compiler.codegen.abi.operands import (
    Operand,
    Shape,
    copy_contiguous_function,
    move_block,
    operands,
    padded,
    prefetch_function,
    scratch_memory,
)
from qddot.compiler.codegen.abi.output_plan import OutputPlan, output_plan
from qddot.compiler.codegen.llvm import loop_program
from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes, scalar_type
from qddot.compiler.codegen.llvm.memory_plan import CoreOptions, wide_parameters
from qddot.compiler.codegen.llvm.module import Core, module
from qddot.compiler.codegen.llvm.prefetch import WHOLE_OUTPUT_MAX_NUMBERS, interleaved_lines
from qddot.compiler.codegen.llvm.straight_line import straight_line_core
from qddot.compiler.codegen.llvm.transpose import copy_function, has_transposes, transpose_function
from qddot.compiler.ir.loop_program import Rolled
from qddot.compiler.ir.program import Program
from qddot.compiler.targets.target import Target

SCALAR_CODE_MAX_OPS = 16_000  # of a program with a scalar core; above, a single state is padded to a full block of lanes
OUTPUT_PREFETCH_MIN_OPS_PER_NUMBER = 2  # arithmetic intensity from which prefetching the output of one state pays

# Counts the calls in which an operation was invalid, for `llvm_compile.invalid_calls`: NaN in constants is signalling.
_COUNT_INVALID = (
    "  br i1 %invalid, label %count, label %return, !prof !0",
    "count:",
    "  %count.at = getelementptr ptr, ptr %env, i64 8",
    "  %count.p = load ptr, ptr %count.at",
    "  %count.old = atomicrmw add ptr %count.p, i64 1 monotonic",
    "  br label %return",
    "return:",
)


def render(
    program: Program | Rolled,
    inputs: list[Shape],
    outputs: list[Shape],
    lanes: int,
    dtype: str,
    target: Target,
    parameters: int = 0,
) -> str:
    """A module with `@loop`, the inner loop of a generalized ufunc of these core shapes, and `@call`, for one state.

    `parameters` counts the last inputs that are parameters. For wide ones, where each state has its own, there is a second
    core that takes them in rows.
    """
    (output,) = outputs
    T = scalar_type(dtype)
    streams = target.avx512 and lanes == 8 and T == "double"
    scalar = isinstance(program, Rolled) or lanes == 1 or len(program.body) < SCALAR_CODE_MAX_OPS
    rows = wide_parameters(program, inputs, parameters) if isinstance(program, Program) and streams and scalar else {}
    text = [loop_program.data(program, T)] if isinstance(program, Rolled) else []
    cores = [_core(program, inputs, Emitter(lanes, dtype, target), streams, {})]
    if scalar and lanes > 1:
        cores.append(_core(program, inputs, Emitter(1, dtype, target), False, {}))
    if rows:
        cores.append(_core(program, inputs, Emitter(lanes, dtype, target), streams, rows))
    text += [line for core in cores for line in core.functions]
    work = max(core.emitter.lanes * core.scratch for core in cores)
    arguments, result = operands(inputs, output, T)
    plan = output_plan(result, cores[0].emitter, cores[0].outputs, streams)
    intense = isinstance(program, Program) and len(program.body) > OUTPUT_PREFETCH_MIN_OPS_PER_NUMBER * prod(output)
    group = _group(program, cores[0], arguments, result, plan) if not rows else Group(1, 0, 0, 0)
    if group.blocks > 1 and cores[0].grouped is not None:
        text.append(cores[0].grouped(group.blocks))
    in_groups = max(work, group.blocks * group.work // number_bytes(T))
    loop = BatchLoop(arguments, result, cores[0].emitter, in_groups, plan, tuple(rows), scalar, intense, group)
    text.append(loop.text())
    if scalar and fastcall.has_call(inputs, output, work, number_bytes(T)):
        text.append(fastcall.render(inputs, output, work, T))
    return module(text, cores, target)


def _group(program: Program | Rolled, core: Core, inputs: list[Operand], output: Operand, plan: OutputPlan) -> Group:
    """How many blocks are computed at a time: one, if the core writes rows itself, or a program keeps its loops."""
    emitter = core.emitter
    block = emitter.lanes * number_bytes(emitter.T)
    columns = max(output.size, plan.columns.count * emitter.lanes) * number_bytes(emitter.T)
    sizes = padded(sum(x.size for x in inputs) * block), padded(columns), padded(core.scratch * block)
    if isinstance(program, Rolled) or core.grouped is None or emitter.lanes == 1 or plan.arguments:
        return Group(1, *sizes)
    return group_of(len(program.body), output.size, emitter.target.registers, sizes)


def _core(program: Program | Rolled, inputs: list[Shape], emitter: Emitter, streams: bool, rows: dict[int, range]) -> Core:
    lines = interleaved_lines(inputs, emitter.lanes, emitter.T)
    if isinstance(program, Rolled):
        return loop_program.loop_program_core(program, emitter, lines)
    return straight_line_core(program, emitter, CoreOptions(lines, streams, tuple(rows.items())), "r" if rows else "")


@dataclass(frozen=True)
class BatchLoop:
    """`@loop` and all that it calls but the cores: `@core1`, `@core{lanes}` and, for inputs in rows, `@core{lanes}r`."""

    inputs: list[Operand]
    output: Operand
    emitter: Emitter
    work: int  # numbers of scratch memory of the cores
    plan: OutputPlan
    row_inputs: tuple[int, ...]  # that are not transposed where their rows follow each other in memory
    scalar: bool  # whether there is a scalar core; otherwise the rest of a batch is padded to a block by its last state
    prefetches_output: bool  # whether computing one state takes long enough to prefetch its result
    group: Group  # of blocks that are computed at a time

    @property
    def lanes(self) -> int:
        """States of a block."""
        return self.emitter.lanes

    @property
    def T(self) -> str:
        """The type of a number."""
        return self.emitter.T

    @property
    def _contiguous(self) -> str:
        """The flag: whether the entries of each state are contiguous, in all arguments."""
        count = sum(len(x.contiguous) for x in (*self.inputs, self.output))
        return f"%all{count - 1}" if count else "true"

    def text(self) -> str:
        """All functions."""
        return "\n".join([*self._functions(), self._loop()])

    def _functions(self) -> list[str]:
        text: list[str] = []
        for x in self.inputs:
            text.append(copy_function(f"read{x.number}", x.shape, self.T, into_rows=False))
            if has_transposes(self.lanes):
                text.append(transpose_function(f"columns{x.number}", x.size, False, self.emitter))
        text += self.plan.functions(self.scalar)
        if not self.scalar:
            names = [(f"read_plain{x.number}", x.shape) for x in self.inputs]
            text += [copy_function(name, shape, self.T, into_rows=False, plain=True) for name, shape in names]
        return [*text, copy_contiguous_function(self.T), prefetch_function("columns", 0), prefetch_function("rows", 1)]

    def _loop(self) -> str:
        size, facts = number_bytes(self.T), self.emitter.target.architecture
        sizes = {
            "in": max(sum(x.size for x in self.inputs) * self.lanes * size, self.group.blocks * self.group.inputs),
            "out": max(
                self.output.size * size, self.plan.columns.count * self.lanes * size, self.group.blocks * self.group.output
            ),
            "work": self.work * size,
            "rows": self.plan.row_bytes,
        }
        allocate, free = scratch_memory(sizes)
        lines = ["start:", *facts.save_float_status, *self.plan.context, *allocate, "entry:", *self._head()]
        if self.lanes > 1:
            lines += self._blocks()
        else:
            lines += ["  br label %tail", "tail:", "  %done = phi i64 [ 0, %entry ]"]
        lines += ["  %left = icmp ult i64 %done, %n", "  br i1 %left, label %rest, label %end", "rest:"]
        lines += self._one_by_one() if self.scalar else self._last_block()
        lines += ["end:", *self.plan.finish(), *free, "  br label %finish", "finish:"]
        lines += [*facts.read_invalid, *facts.restore_float_status, *_COUNT_INVALID]
        body = "\n".join(lines)
        return f"define void @loop(ptr %args, ptr %dimensions, ptr %steps, ptr %env) {{\n{body}\n  ret void\n}}\n"

    def _head(self) -> list[str]:
        """Arguments, and what is known about their memory."""
        lines = ["  %n = load i64, ptr %dimensions"]
        stride, flag, k = 1 + len(self.inputs), "true", 0
        for x in (*self.inputs, self.output):
            lines += x.load(stride)
            stride += len(x.shape)
        for x in (*self.inputs, self.output):
            for ok in x.contiguous:
                lines.append(f"  %all{k} = and i1 {flag}, {ok}")
                flag, k = f"%all{k}", k + 1
        lines += self.plan.head(flag)
        for i in self.row_inputs:
            lines.append(f"  %rows.s{i} = icmp eq i64 %s{i}, {number_bytes(self.T) * self.inputs[i].size}")
            lines.append(f"  %rows.ok{i} = and i1 {flag}, %rows.s{i}")
            flag = f"%rows.ok{i}"
        lines.append(f"  %in.rows = and i1 {flag}, {'true' if self.row_inputs else 'false'}")
        return lines

    # ---- full blocks

    def _blocks(self) -> list[str]:
        """The loop over full blocks of lanes; afterwards %done states are finished."""
        slow = [s for x in self.inputs for s in x.copy_lane(f"read{x.number}", self.lanes, ("%first", "%r.lane"))]
        return [
            f"  %full = udiv i64 %n, {self.lanes}",
            f"  %whole = mul i64 %full, {self.lanes}",
            "  %any_block = icmp ugt i64 %full, 0",
            "  br i1 %any_block, label %begin, label %tail",
            "begin:",
            *self.plan.begin(),
            "  br label %first_block",
            "first_block:",
            "  br label %block",
            "block:",
            f"  %b = phi i64 [ 0, %first_block ], [ %b.next, {'%g.end' if self.group.blocks > 1 else '%w.moved'} ]",
            f"  %b.next = add i64 %b, {self.group.blocks}",
            *self._body(move_block("r", self.lanes, self._contiguous, self._transposed_inputs(), slow)),
            "  %b.more = icmp ult i64 %b.next, %full",
            "  br i1 %b.more, label %block, label %last",
            "last:",
            *self.plan.end(),
            "  br label %all_blocks",
            "all_blocks:",
            "  br label %tail",
            "tail:",
            "  %done = phi i64 [ 0, %entry ], [ %whole, %all_blocks ]",
        ]

    def _body(self, read: list[str]) -> list[str]:
        """Reads, computes and writes a block, or a group of blocks."""
        write = self.plan.write(self._contiguous)
        if self.group.blocks == 1:
            return [f"  %first = mul i64 %b, {self.lanes}", *read, *self.plan.before_block(), *self._compute(), *write]
        wide = {i: f"%s{i}" for i, n in enumerate(self._prefetch_lines) if n}
        return group_loop(self.group, self.lanes, read, self._compute(), write, wide)

    @property
    def _prefetch_lines(self) -> list[int]:
        return interleaved_lines([x.shape for x in self.inputs], self.lanes, self.T)

    def _transposed_inputs(self) -> list[str]:
        """The inputs of a block whose rows are contiguous, unless they are in their columns already or stay in rows."""
        if not has_transposes(self.lanes):
            return []
        lines: list[str] = []
        for x, interleaved in zip(self.inputs, self._prefetch_lines, strict=True):
            i = x.index
            lines += [
                f"  %r.same{i} = icmp eq i64 %s{i}, 0",
                f"  %r.later{i} = icmp ne i64 %b, 0",
                f"  %r.kept{i} = and i1 %r.same{i}, %r.later{i}",
                f"  %r.has{i} = or i1 %r.kept{i}, {'%in.rows' if i in self.row_inputs else 'false'}",
                f"  br i1 %r.has{i}, label %r.got{i}, label %r.get{i}",
                f"r.get{i}:",
                *x.transpose_block(self.lanes, prefetch=not interleaved),
                f"  br label %r.got{i}",
                f"r.got{i}:",
            ]
        return lines

    def _compute(self) -> list[str]:
        """Calls a core with the next block's rows of wide inputs, or with memory in use where all states share them."""
        lines, more = list[str](), ""
        for i, n in enumerate(self._prefetch_lines):
            if n:
                lines += [
                    f"  %next.step{i} = mul i64 %s{i}, {self.lanes}",
                    f"  %next.o{i} = mul i64 %b.next, %next.step{i}",
                    f"  %next.rows{i} = getelementptr i8, ptr %a{i}, i64 %next.o{i}",
                    f"  %next.none{i} = icmp eq i64 %next.step{i}, 0",
                    f"  %next_block{i} = select i1 %next.none{i}, ptr %in, ptr %next.rows{i}",
                ]
                more += f", ptr %next_block{i}"
        arguments = f"(ptr %in, ptr %out, ptr %work, ptr %env{more}{self.plan.arguments})"
        if not self.row_inputs:
            return [*lines, f"  call void @core{self.lanes}{arguments}"]
        return [
            *lines,
            "  br i1 %in.rows, label %as_rows, label %as_columns",
            "as_rows:",
            f"  call void @core{self.lanes}r{arguments}",
            "  br label %computed",
            "as_columns:",
            f"  call void @core{self.lanes}{arguments}",
            "  br label %computed",
            "computed:",
        ]

    # ---- the rest of a batch

    def _one_by_one(self) -> list[str]:
        """State after state, by the scalar core."""
        core, state = "  call void @core1(ptr %in, ptr %out, ptr %work, ptr %env)", ("%t", "0")
        prefetch = self.prefetches_output and self.output.size > WHOLE_OUTPUT_MAX_NUMBERS
        row = f"  call void @prefetch_rows(ptr %pr{self.output.index}, i64 {self.output.size * number_bytes(self.T)})"
        return [
            "  br label %one",
            "one:",
            "  %t = phi i64 [ %done, %rest ], [ %t1, %one_done ]",
            f"  br i1 {self._contiguous}, label %one_fast, label %one_any",
            "one_fast:",
            *(line for x in (*self.inputs, self.output) for line in x.row_pointer()),
            *((row,) if prefetch else ()),
            *(line for x in self.inputs for line in x.copy_row()),
            core,
            *self.output.copy_row(),
            "  br label %one_done",
            "one_any:",
            *(line for x in self.inputs for line in x.copy_lane(f"read{x.number}", 1, state)),
            core,
            *self.output.copy_lane("write0", 1, state),
            "  br label %one_done",
            "one_done:",
            "  %t1 = add i64 %t, 1",
            "  %more1 = icmp ult i64 %t1, %n",
            "  br i1 %more1, label %one, label %end",
        ]

    def _last_block(self) -> list[str]:
        """One block whose spare lanes repeat the last state; their results are dropped."""
        more = "".join(", ptr %in" for n in self._prefetch_lines if n) + self.plan.arguments
        state = ("%x.base", "%x.lane")
        read = [
            [s for x in self.inputs for s in x.copy_lane(f"read{kind}{x.number}", self.lanes, state, plain)]
            for kind, plain in (("_plain", True), ("", False))
        ]
        write = [self.plan.write_last(plain) for plain in (True, False)]
        return [
            "  %x.last = sub i64 %n, 1",
            "  %x.count = sub i64 %n, %done",
            "  br label %x.lanes",
            *self._each_state("x", read, ("rest", str(self.lanes), "x.core")),
            "x.core:",
            *self.plan.begin_last(),
            f"  call void @core{self.lanes}(ptr %in, ptr %out, ptr %work, ptr %env{more})",
            *self.plan.end_last(),
            "  br label %y.lanes",
            *self._each_state("y", write, ("x.core", "%x.count", "end")),
        ]

    def _each_state(self, t: str, moves: list[list[str]], around: tuple[str, str, str]) -> list[str]:
        """One of two moves, of contiguous entries or of others, for every lane: from a label, up to a count, to a label."""
        before, count, after = around
        return [
            f"{t}.lanes:",
            f"  %{t}.lane = phi i64 [ 0, %{before} ], [ %{t}.lane1, %{t}.moved ]",
            f"  %{t}.own = add i64 %done, %{t}.lane",
            f"  %{t}.state = call i64 @llvm.smin.i64(i64 %{t}.own, i64 %x.last)",
            f"  %{t}.base = sub i64 %{t}.state, %{t}.lane",
            f"  br i1 {self._contiguous}, label %{t}.plain, label %{t}.any",
            f"{t}.plain:",
            *moves[0],
            f"  br label %{t}.moved",
            f"{t}.any:",
            *moves[1],
            f"  br label %{t}.moved",
            f"{t}.moved:",
            f"  %{t}.lane1 = add i64 %{t}.lane, 1",
            f"  %{t}.more = icmp ult i64 %{t}.lane1, {count}",
            f"  br i1 %{t}.more, label %{t}.lanes, label %{after}",
        ]
