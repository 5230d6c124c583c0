"""Functions of time and state into compiled code: a step into a loop over time, anything else into a kernel.

What is compiled is known by its traced operations, not by its source: a user's function may depend on anything outside of
it. So it is traced each time, and compiled only if nobody has compiled the same operations before.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from qddot.compiler.runtime import llvm_compile, stored
from qddot.compiler.runtime.forks import guarded_lock
from qddot.compiler.runtime.gufunc import kernel as kernel_from_code
from qddot.compiler.runtime.kernel import Info, Kernel, Shape
from qddot.compiler.runtime.time_stepping import TimeLoop
from qddot.compiler.targets.host import host
from qddot.dynamics.pipeline import MOST_INSTRUCTIONS, _Notice, _source
from qddot.errors import KernelTooLargeError

if TYPE_CHECKING:  # rendering is loaded when something is to be compiled
    from qddot.compiler.ir.expr import Graph
    from qddot.compiler.ir.program import Program
    from qddot.compiler.ir.step_program import Layout, Step

Run = Callable[..., Any]

KEPT = 64  # pieces of compiled code in memory; older ones may still be on disk


class _Newest:
    """The newest pieces of code by their keys: a law whose numbers change from call to call would fill the memory."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._lock = guarded_lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> Any:
        """The code, or None."""
        with self._lock:
            return self._kept.get(key)

    def keep(self, key: str, code: Any) -> Any:
        """Remembers code, and returns it; if another thread was faster with the same, that one's."""
        with self._lock:
            code = self._kept.setdefault(key, code)
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
            return code


_loops, _kernels = _Newest(), _Newest()


def program_of(what: str, run: Run, sizes: Sequence[int]) -> Program:
    """The fused straight-line program of a function of vectors."""
    from qddot.compiler.ir.expr import trace
    from qddot.compiler.ir.fuse import fused
    from qddot.compiler.ir.program import straight_line

    graph, outputs, _ = trace(run, sizes)
    program = fused(straight_line(graph, outputs, sum(sizes)))
    count = len(program.nodes())
    if count > MOST_INSTRUCTIONS:
        raise KernelTooLargeError(f"{what} has {count:,} operations; straight-line code stops at {MOST_INSTRUCTIONS:,}")
    return program


class Calls:
    """The functions that a step calls while it is traced: each is traced once, and its results are inputs of the step."""

    def __init__(self, what: str, graph: Graph, n_inputs: int, shared: Sequence[int], system: Callable[..., Any]) -> None:
        self.what, self.graph, self.n_inputs = what, graph, n_inputs
        self.shared, self.system = list(shared), system  # sizes of held inputs and parameters; a system made of them
        self.functions: dict[Run, tuple[int, Program, Shape]] = {}
        self.made: list[tuple[int, list[int]]] = []  # function and argument nodes

    def __call__(self, function: Run, *args: Any) -> Any:
        """What function(system, *args) will give."""
        arrays = [np.asarray(x, dtype=object) for x in args]
        if function not in self.functions:
            self.functions[function] = self._traced(function, [a.shape for a in arrays])
        number, program, shape = self.functions[function]
        self.made.append((number, [self.graph.node_of(x) for a in arrays for x in a.reshape(-1)]))
        first, count = self.n_inputs, len(program.outputs)
        self.n_inputs += count
        return self.graph.inputs(count, first).reshape(shape)

    def _traced(self, function: Run, shapes: Sequence[Shape]) -> tuple[int, Program, Shape]:
        found: list[Shape] = []

        def run(*vectors: Any) -> Any:
            given = [x.reshape(s) if s else x[0] for x, s in zip(vectors, shapes, strict=False)]
            result = np.asarray(function(self.system(vectors[0][0].graph, *vectors[len(shapes) :]), *given), dtype=object)
            found.append(result.shape)
            return result.reshape(-1)

        program = program_of(self.what, run, [*(prod(s) for s in shapes), *self.shared])
        return len(self.functions), program, found[0]


def step_of(what: str, run: Run, sizes: Sequence[int], system: Callable[..., Any]) -> Step:
    """A step whose calls are functions of their own: run(calls, state, clock, held, *parameters) gives the next state."""
    from qddot.compiler.ir.expr import trace
    from qddot.compiler.ir.fuse import fused
    from qddot.compiler.ir.program import straight_line
    from qddot.compiler.ir.step_program import Call, Step

    made: list[Calls] = []

    def whole(*vectors: Any) -> Any:
        made.append(Calls(what, vectors[0][0].graph, sum(sizes), sizes[2:], system))
        return run(made[0], *vectors)

    graph, outputs, _ = trace(whole, sizes)
    calls, n = made[0], made[0].n_inputs
    arguments = [Call(f, fused(straight_line(graph, nodes, n))) for f, nodes in calls.made]
    functions = sorted(calls.functions.values(), key=lambda x: x[0])
    return Step(fused(straight_line(graph, outputs, n)), tuple(arguments), tuple(p for _, p, _ in functions))


def loop_of(what: str, step: Step, layout: Layout) -> TimeLoop:
    """The loop over time around one step."""
    from qddot.compiler.codegen.abi import time_stepping

    key = _key("rollout", step.programs(), (layout, [c.function for c in step.calls]))
    if (kept := _loops.get(key)) is not None:
        return kept
    fields: stored.Fields = {"scratch": stored.count}
    found = stored.find(key, fields)
    if found is None:
        count = sum(len(p.nodes()) for p in step.programs())
        with _Notice(f"qddot: compiling {what} ({count:,} operations) …", count):
            target = host()
            text, layout = time_stepping.render(step, layout, target)
            data = llvm_compile.compile_object(text, target)
        found = stored.store(key, {"scratch": layout.scratch}, data, fields)
    return _loops.keep(key, TimeLoop(found.code, layout._replace(**found.facts), step.instructions()))


def kernel_of(what: str, run: Run, names: Sequence[str], inputs: Sequence[Shape], output: Shape) -> Kernel:
    """A kernel with batches, as those of a robot's functions."""
    from qddot.compiler.codegen.abi import gufunc as llvm

    begin = time.perf_counter()
    program = program_of(what, run, [prod(s) for s in inputs])
    target, count = host(), len(program.nodes())
    lanes = target.lanes("float64")
    key = _key("kernel", [program], (what, names, inputs, output, lanes))
    if (kept := _kernels.get(key)) is not None:
        return kept
    found = stored.find(key, {})
    cached = found is not None
    if found is None:
        text = llvm.render(program, list(inputs), [output], lanes, "float64", target)
        found = stored.store(key, {}, llvm_compile.compile_object(text, target), {})
    seconds, ops, size = time.perf_counter() - begin, program.count(), len(found.data)
    info = Info(what, "traced", "unrolled", "float64", lanes, ops, count, size, seconds, cached, fused=target.fma)
    kernel = kernel_from_code(found.code, names, inputs, output, info, lambda: f"{what}: {count} operations")
    return _kernels.keep(key, kernel)


def _key(kind: str, programs: Sequence[Program], shape: Any) -> str:
    """Everything that the code depends on."""
    digest = hashlib.sha256(repr((kind, shape, host().identity, _source())).encode())
    for program in programs:
        graph = program.graph
        used = [(n, graph.ops[n], graph.args[n]) for n in program.nodes()]
        leaves = sorted({x for n, _, args in used for x in args} | set(program.outputs))
        known = [(n, graph.ops[n], graph.args[n]) for n in leaves if graph.ops[n] in ("const", "input")]
        digest.update(repr((program.n_inputs, program.outputs, used, known)).encode())
    return digest.hexdigest()
