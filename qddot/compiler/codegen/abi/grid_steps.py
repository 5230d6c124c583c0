"""A module for a grid of GPU threads that each take one sample through many steps of time: `rows(…)`.

A sample's state stays in registers, or in local memory if there are too many numbers, from the first step to the last. The
arguments mean what those of the loop on the CPU do (`time_stepping`); strides are in numbers, time is computed in doubles.

| argument                         | meaning                                                            |
|----------------------------------|--------------------------------------------------------------------|
| count                            | samples                                                            |
| state, stride                    | (samples, n_state), at the start                                   |
| held, stride, stride of a step   | (samples, steps, n_held)                                           |
| parameters, stride               | (samples, n_parameters)                                            |
| records, stride, stride of a row | written: the first numbers of recorded states                      |
| end, stride                      | written: states at the end                                         |
| t0, dt                           | doubles                                                            |
| steps, first, every              | how many steps, the number of the first one, steps between records |
"""

from __future__ import annotations

from dataclasses import dataclass

from qddot.compiler.codegen.abi.grid_angles import near_or_far
from qddot.compiler.codegen.abi.grid_frame import NVIDIA, Frame, Prelude, grid_module
from qddot.compiler.codegen.llvm import sincos
from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.thread_arguments import LOCAL, Arguments, GridOperand
from qddot.compiler.codegen.llvm.thread_program import ThreadOptions, ThreadProgram
from qddot.compiler.ir.program import Program
from qddot.compiler.ir.step_program import Layout, Step
from qddot.compiler.runtime.cuda.grid import STEP_THREADS
from qddot.compiler.targets.target import Target

FUNCTION_MAX_OPS = 8000
SMALL_STEP_MAX_OPS = 1500  # of a step that fits in these registers with little spilling, so that more threads run at a time
SMALL_STEP_REGISTERS = 128
_FAR = "far."  # arrays of programs for angles far from zero

_PARAMETERS = (
    "i64 %count",
    *("ptr addrspace(1) %states", "i64 %states.s"),
    *("ptr addrspace(1) %held", "i64 %held.s", "i64 %held.row"),
    *("ptr addrspace(1) %parameters", "i64 %parameters.s"),
    *("ptr addrspace(1) %records", "i64 %records.s", "i64 %records.row"),
    *("ptr addrspace(1) %ends", "i64 %ends.s"),
    *("double %t0", "double %dt", "i64 %steps", "i64 %first.step", "i64 %every"),
)


def render(step: Step, layout: Layout, target: Target, prelude: Prelude = NVIDIA) -> str:
    """The text of a module with the kernel `rows`."""
    return _Steps(step, layout, Emitter(1, layout.dtype, target), prelude).text()


@dataclass(frozen=True)
class _Part:
    """One program of a step, from one array of the thread to another."""

    thread: ThreadProgram
    far: ThreadProgram  # the same for steps with angles far from zero
    source: str
    target: str

    @property
    def programs(self) -> list[ThreadProgram]:
        return [self.thread, self.far]

    def calls(self, is_far: bool) -> list[str]:
        own, name = (self.far, _FAR) if is_far else (self.thread, "")
        source, target = f"ptr %{name}{self.source}", f"ptr %{name}{self.target}"
        return own.calls(f"{source}, {target}, ptr %none, ptr %{name}mem, ptr %env")


class _Steps:
    """The kernel of one step."""

    def __init__(self, step: Step, layout: Layout, emitter: Emitter, prelude: Prelude) -> None:
        self.step, self.layout, self.emitter, self.prelude = step, layout, emitter, prelude
        self.functions = [self._part(f"f{k}", p, "to", "back") for k, p in enumerate(step.functions)]
        self.arguments = [self._part(f"a{k}", c.arguments, "in", "out") for k, c in enumerate(step.calls)]
        self.last = self._part("last", step.last, "in", "out")

    @property
    def parts(self) -> list[_Part]:
        return [*self.functions, *self.arguments, self.last]

    def _part(self, name: str, program: Program, source: str, target: str) -> _Part:
        operands = GridOperand(0, (program.n_inputs,), LOCAL), GridOperand(1, (len(program.outputs),), LOCAL)
        given = Arguments(operands[:1], operands[1], angle_space=LOCAL)
        near, far = ThreadOptions(FUNCTION_MAX_OPS, 0, is_near=True), ThreadOptions(FUNCTION_MAX_OPS, 0, is_cold=True)
        made = [
            ThreadProgram(f"{kind}.{name}", program, self.emitter, given, options)
            for kind, options in (("step", near), ("far", far))
        ]
        return _Part(made[0], made[1], source, target)

    def text(self) -> str:
        sizes = {
            "in": self.last.thread.program.n_inputs,
            "out": max(len(p.thread.program.outputs) for p in (*self.arguments, self.last)),
            "to": max([p.thread.program.n_inputs for p in self.functions], default=0),
            "back": max([len(p.thread.program.outputs) for p in self.functions], default=0),
            "mem": max(part.thread.scratch for part in self.parts),
        }
        far = {f"{_FAR}{name}": size for name, size in sizes.items()}  # so that those of near angles stay in registers
        sizes |= far | {f"{_FAR}mem": max(part.far.scratch for part in self.parts)}
        frame = Frame("rows", _PARAMETERS, self.emitter.T, STEP_THREADS, (), sizes, self.prelude)
        functions = [line for part in self.parts for p in part.programs for line in p.text()]
        text = [self.prelude.functions, *functions, frame.text(self._sample())]
        bounds = {"maxntidx": STEP_THREADS}
        if self.step.instructions() <= SMALL_STEP_MAX_OPS:
            bounds["maxnreg"] = SMALL_STEP_REGISTERS
        return grid_module(text, self.emitter, bounds, ["rows"], self.prelude)

    def _sample(self) -> list[str]:
        """One sample from its start to its end."""
        n, held = self.layout.n_state, self.layout.n_held
        return [
            "  %none = getelementptr i8, ptr %mem, i64 0",
            *self._row("states", "%state"),
            *self._moves("start", n, "ptr addrspace(1) %states.p", 0, "ptr %in", 0),
            *self._row("parameters", "%state"),
            *self._moves("own", self.layout.n_parameters, "ptr addrspace(1) %parameters.p", 0, "ptr %in", n + 2 + held),
            *self._row("held", "%state"),
            *self._row("records", "%state"),
            "  br label %before",
            "before:",
            "  br label %step",
            *self._one_step(),
            "after:",
            *self._row("ends", "%state"),
            *self._moves("end", n, "ptr %in", 0, "ptr addrspace(1) %ends.p", 0),
        ]

    def _row(self, name: str, index: str) -> list[str]:
        return [
            f"  %{name}.o = mul i64 {index}, %{name}.s",
            f"  %{name}.p = getelementptr {self.emitter.T}, ptr addrspace(1) %{name}, i64 %{name}.o",
        ]

    def _moves(self, name: str, count: int, source: str, a: int, target: str, b: int) -> list[str]:
        """So many numbers from place a on of one array to place b on of another."""
        T, lines = self.emitter.T, list[str]()
        for k in range(count):
            x, memory, other = f"%{name}{k}", source.rpartition(" ")[0], target.rpartition(" ")[0]
            lines += [
                f"  {x}.a = getelementptr {T}, {source}, i64 {a + k}",
                f"  {x} = load {T}, {memory} {x}.a",
                f"  {x}.b = getelementptr {T}, {target}, i64 {b + k}",
                f"  store {T} {x}, {other} {x}.b",
            ]
        return lines

    def _one_step(self) -> list[str]:
        """The time, the held inputs, the programs, and a record where it is due."""
        n, T = self.layout.n_state, self.emitter.T
        return [
            "step:",
            "  %k = phi i64 [ 0, %before ], [ %k.next, %stepped ]",
            "  %r = phi i64 [ 0, %before ], [ %r.next, %stepped ]",
            "  %more.steps = icmp slt i64 %k, %steps",
            "  br i1 %more.steps, label %compute, label %after",
            "compute:",
            "  %number = add i64 %first.step, %k",
            "  %number.x = sitofp i64 %number to double",
            *sincos.multiply_add("%t", "double", "f64", "%number.x", "%dt", "%t0", self.emitter.target.fma),
            *self._clock("t", n),
            *self._clock("dt", n + 1),
            "  %held.k = mul i64 %k, %held.row",
            f"  %held.q = getelementptr {T}, ptr addrspace(1) %held.p, i64 %held.k",
            *self._moves("u", self.layout.n_held, "ptr addrspace(1) %held.q", 0, "ptr %in", n + 2),
            *near_or_far(self._programs(is_far=False), "computed.step"),
            *self._moves("far.given", self.layout.n_inputs, "ptr %in", 0, f"ptr %{_FAR}in", 0),
            *self._programs(is_far=True),
            *self._moves("far.new", n, f"ptr %{_FAR}out", 0, "ptr %out", 0),
            "  br label %computed.step",
            "computed.step:",
            *self._moves("new", n, "ptr %out", 0, "ptr %in", 0),
            "  %next = add i64 %number, 1",
            "  %phase = srem i64 %next, %every",
            "  %due = icmp eq i64 %phase, 0",
            "  br i1 %due, label %record, label %stepped",
            "record:",
            "  %r.o = mul i64 %r, %records.row",
            f"  %r.p = getelementptr {T}, ptr addrspace(1) %records.p, i64 %r.o",
            *self._moves("rec", self.layout.n_recorded, "ptr %in", 0, "ptr addrspace(1) %r.p", 0),
            "  br label %stepped",
            "stepped:",
            "  %r.up = zext i1 %due to i64",
            "  %r.next = add i64 %r, %r.up",
            "  %k.next = add i64 %k, 1",
            "  br label %step",
        ]

    def _clock(self, name: str, place: int) -> list[str]:
        """Puts a double where the programs find it, in the type of the states."""
        T, x = self.emitter.T, f"%{name}"
        narrow = [f"  {x}.x = fptrunc double {x} to float"] if T == "float" else []
        value = f"{x}.x" if narrow else x
        return [*narrow, f"  {x}.at = getelementptr {T}, ptr %in, i64 {place}", f"  store {T} {value}, ptr {x}.at"]

    def _programs(self, is_far: bool) -> list[str]:
        """The functions of a step one after another, each after its arguments, then the new state into %out."""
        n, lines, own = self.layout.n_state, list[str](), _FAR if is_far else ""
        shared, result = self.layout.n_held + self.layout.n_parameters, self.layout.n_inputs
        for k, (call, made) in enumerate(zip(self.step.calls, self.arguments, strict=True)):
            f, given = self.functions[call.function], len(made.thread.program.outputs)
            size = len(f.thread.program.outputs)
            given_to, found_in = f"ptr %{own}to", f"ptr %{own}in"
            lines += [*made.calls(is_far), *self._moves(f"{own}g{k}.", given, f"ptr %{own}out", 0, given_to, 0)]
            lines += self._moves(f"{own}h{k}.", shared, found_in, n + 2, given_to, given)
            lines += [*f.calls(is_far), *self._moves(f"{own}b{k}.", size, f"ptr %{own}back", 0, found_in, result)]
            result += size
        return [*lines, *self.last.calls(is_far)]
