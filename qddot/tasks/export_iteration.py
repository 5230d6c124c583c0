"""Inverse kinematics as C99: a function that makes one iteration, and one that repeats it until targets are reached.

The iteration is the program that `qddot.tasks.inverse_kinematics` compiles, with the same bits; targets and weights are its
arguments. What stands around it in C is what `_Search` does with one start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.codegen import c99
from qddot.compiler.codegen.printer import Array, Function
from qddot.compiler.ir.program import Program, straight_line
from qddot.compiler.runtime.c_compiler import Measured
from qddot.dynamics import export
from qddot.dynamics.engine import Engine
from qddot.dynamics.export_file import FileOptions
from qddot.dynamics.exported_function import argument_facts, checked_name, identifier, precision, robot_text, table
from qddot.dynamics.pipeline import unknowns
from qddot.tasks.inverse_kinematics import iteration_of
from qddot.tasks.iteration import ANGLE, CONVERGED, COST, DAMPING, FIRST_DAMPING, ITERATIONS, LENGTH, STATUS, Iteration
from qddot.tasks.target_arrays import joined

_OWN = {
    COST: "cost at q",
    DAMPING: "damping",
    STATUS: "status: 0 before it has stopped, 1 converged, 2 at a local minimum",
    ITERATIONS: "iterations made",
    LENGTH: "square of what all tasks are off by at q, m^2",
    ANGLE: "the same in rad^2",
}


class IterationSource(NamedTuple):
    """A C file and its header, and what is known of them.

    `name` is the function that solves, `NAME_step` makes one iteration. `target` are the numbers that they take for the
    targets which were given, (..., k). `operations` are those of one iteration, `stack_bytes` of all that the file calls.
    """

    name: str
    source: str
    header: str
    target: NDArray[Any]
    operations: dict[str, int]
    stack_bytes: int | None
    code_bytes: int | None
    compiler: str


@dataclass(frozen=True)
class _Exported:
    """An iteration that is written in C."""

    name: str
    iteration: Iteration
    limits: bool
    dtype: str

    @property
    def step(self) -> str:
        """The function that makes one iteration."""
        return f"{self.name}_step"

    @property
    def inputs(self) -> list[Array]:
        """Of one iteration."""
        return [("state", self.iteration.n_state), ("target", sum(self.iteration.sizes)), ("tolerances", 2)]

    @property
    def outputs(self) -> list[Array]:
        """Of one iteration."""
        return [("next", self.iteration.n_state)]

    def printed(self, options: FileOptions) -> tuple[Program, Function]:
        """The program whose operations are counted, and what is printed."""
        sizes = [n for _, n in self.inputs]
        graph, (state, *numbers) = unknowns(sizes)
        nodes = graph.nodes_of(self.iteration(state, np.concatenate(numbers)))
        graph.marks.clear()  # they would name links above the errors and the step too
        program = straight_line(graph, nodes, sum(sizes))
        export.check_size(f"inverse kinematics of {self.iteration.model.name!r}", program)
        code = Function(program, self.step, self.inputs, self.outputs, self.dtype, prefix=self.name)
        chosen: Any = {name: x for name, x in options.items() if name in ("sincos", "fma")}
        return program, export.with_options(code, self.iteration.model, c99.C99, chosen)

    def facts(self) -> Iterator[tuple[str, str]]:
        """What is to be known of one iteration."""
        nq, nv = self.iteration.model.nq, self.iteration.model.nv
        own = sorted(_OWN.items())
        yield "function", f"one iteration of inverse kinematics, {precision(self.dtype)}"
        state = [(nq, "the best q"), (nv, "the step that is tried from it"), *((1, text) for _, text in own)]
        yield f"state[{self.iteration.n_state}]", _places(state)
        infinite, damping = nq + nv + COST, nq + nv + DAMPING
        yield "at first", f"state is q, INFINITY in [{infinite}], {FIRST_DAMPING:g} in [{damping}], and 0 elsewhere"
        yield f"target[{sum(self.iteration.sizes)}]", _places(self._layout())
        yield "tolerances[2]", "squares of those in m and rad"
        yield f"next[{self.iteration.n_state}]", "the state after it; may be state"

    def solving_facts(self) -> Iterator[tuple[str, str]]:
        """What is to be known of the function that solves."""
        model = self.iteration.model
        ((q, joints),) = argument_facts(model, [("q", model.nq)])
        kept = "limits are kept, and q is clipped to them" if self.limits else "limits of joints are not kept"
        yield "function", f"repeats {self.step} from q; {kept}"
        yield f"target[{sum(self.iteration.sizes)}]", f"as for {self.step}"
        yield q, f"{joints}; where to start, and the best that was found. It stays where the cost is not finite"
        yield "iterations", "it makes at most so many"
        yield "tolerance", "up to how many m and rad the targets count as reached; must be above 0"
        yield "returns", "1 if they are reached, otherwise 0"

    def _layout(self) -> list[tuple[int, str]]:
        return [part for task in self.iteration.tasks for part in task.layout(self.iteration.model)]

    # ---- the function that solves

    @property
    def declaration(self) -> str:
        """Of the function that solves."""
        T, n = self._type, sum(self.iteration.sizes)
        arguments = f"const {T} target[{n}], {T} q[{self.iteration.model.nq}], int iterations, {T} tolerance"
        return f"int {self.name}({arguments})"

    def definition(self) -> str:
        """The function that solves, and its declaration, which strict compilers want first."""
        nq, own = self.iteration.model.nq, self.iteration.model.nq + self.iteration.model.nv
        cost, status = f"state[{own + COST}]", f"state[{own + STATUS}]"
        zero, half, infinite = (c99.number(x, self.dtype) for x in (0.0, 0.5, np.inf))
        end = c99.number(CONVERGED + 0.5, self.dtype)
        lines = [
            self.declaration,
            "{",
            f"    const {self._type} tolerances[2] = {{tolerance * tolerance, tolerance * tolerance}};",
            f"    {self._type} state[{self.iteration.n_state}] = {{{zero}}};",
            f"    if (!(tolerance > {zero}))",
            "        return 0;",
            f"    for (int k = 0; k < {nq}; k++)",
            "        state[k] = q[k];",
            f"    {cost} = {infinite};",
            f"    state[{own + DAMPING}] = {c99.number(FIRST_DAMPING, self.dtype)};",
            f"    for (int k = 0; k < iterations && {status} < {half}; k++)",
            f"        {self.step}(state, target, tolerances, state);",
            f"    if (!({cost} < {infinite}))",
            "        return 0; /* it has never moved: something is not finite */",
            f"    for (int k = 0; k < {nq}; k++)",
            "        q[k] = state[k];",
            f"    return {status} > {half} && {status} < {end};",
            "}",
        ]
        guard = ["#ifdef __cplusplus", 'extern "C"', "#endif", f"{self.declaration};", ""]
        return "\n".join([*guard, *lines, ""])

    @property
    def _type(self) -> str:
        return "double" if self.dtype == "float64" else "float"


def source_of(engine: Engine, targets: Any, limits: bool, options: FileOptions) -> IterationSource:
    """The iteration for these tasks as a C file with its header."""
    name, dtype = options.get("name"), options.get("dtype", "float64")
    called = identifier(engine.model.name, "ik") if name is None else checked_name(name, c99.C99)
    iteration, _, parts = iteration_of(engine, targets, limits)
    exported = _Exported(called, iteration, limits, dtype)
    program, code = exported.printed(options)
    text = f"{c99.render([code])}\n{exported.definition()}"
    measured, why = export.measure_size(text, options.get("cc"), options.get("cflags", ""))
    stack = None if measured is None else measured.stack_bytes
    about = c99.comment(_head(exported, code, measured, why))
    header = c99.header(f"QDDOT_{called}_H", about, _declared(exported, program, code, measured))
    compiler = "" if measured is None else f"{measured.compiler}; {measured.flags}"
    size, target = None if measured is None else measured.code, joined(*parts)
    return IterationSource(called, f"{about}\n{text}", header, target, program.count(), stack, size, compiler)


def _head(exported: _Exported, code: Function, measured: Measured | None, why: str) -> list[str]:
    from qddot.version import __version__

    facts = [("robot", robot_text(exported.iteration.model)), ("functions", f"{exported.name}, {exported.step}")]
    facts.append(("sincos", export.SINCOS if code.own_sincos else "libm's"))
    if measured is None:
        facts.append(("stack", f"not measured: {why}"))
    else:
        size = "not measured" if measured.code is None else f"{measured.code} bytes with constants"
        facts += [("code", size), ("measured by", f"{measured.compiler}; {measured.flags}")]
    return [
        f"{exported.name}: inverse kinematics of a robot",
        "",
        *table(facts, c99.C99),
        "",
        f"Written by qddot {__version__}. SI units. No allocation, no state: threads and interrupts may call it.",
        "Arrays are contiguous, matrices row by row.",
        *c99.C99.notes(code),
    ]


def _declared(exported: _Exported, program: Program, code: Function, measured: Measured | None) -> list[str]:
    """The declarations of both functions, each under what is to be known about it."""
    step, solving = (
        [*exported.facts(), ("operations", export.operations_text(program.count()))],
        [*exported.solving_facts()],
    )
    if measured is not None:
        without = measured.stack_bytes - measured.stack.get(exported.name, 0)
        step.append(("stack", f"{without} bytes, without libm's"))
        solving.append(("stack", f"{measured.stack_bytes} bytes with those of {exported.step}, without libm's"))
    start = c99.declaration(code.name, code.inputs, code.outputs, code.dtype)
    return [
        f"{c99.comment([exported.step, '', *table(step, c99.C99)])}\n{start};",
        f"{c99.comment([exported.name, '', *table(solving, c99.C99)])}\n{exported.declaration};",
    ]


def _places(parts: Sequence[tuple[int, str]]) -> str:
    """What stands where in an array."""
    ends = np.cumsum([n for n, _ in parts])
    return "; ".join(f"{_range(int(end) - n, n)} {text}" for end, (n, text) in zip(ends, parts, strict=True))


def _range(first: int, n: int) -> str:
    return f"[{first}]" if n == 1 else f"[{first} to {first + n - 1}]"
