"""From a function to machine code: trace, choose, fuse, schedule, render, compile, cache.

The same way for all code: kernels of a robot's functions, kernels of a user's own function, and loops over time around a
step. What is compiled is known by everything that it depends on: a robot's function by the model's digest and the request,
any other code by its traced operations, because a user's function may depend on anything outside of it.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qddot.compiler.ir.packed_output import Layout, layout_of, with_layout
from qddot.compiler.runtime import stored
from qddot.compiler.runtime.forks import guarded_lock
from qddot.compiler.runtime.gufunc import kernel as kernel_from_code
from qddot.compiler.runtime.kernel import Info, Kernel, Shape, Source
from qddot.compiler.runtime.time_stepping import OfSamples
from qddot.compiler.targets import registry as targets
from qddot.compiler.targets.host import host
from qddot.compiler.targets.target import Target
from qddot.dynamics import products
from qddot.dynamics.catalogue import FUNCTIONS, lookup
from qddot.dynamics.choose import cheapest, cheapest_rolled
from qddot.dynamics.explain import explain, explain_rolled
from qddot.dynamics.request import Request
from qddot.dynamics.trace import kinds_of_links
from qddot.errors import InputError, KernelTooLargeError, NotRollableError
from qddot.mechanism.model import Model
from qddot.progress import Progress

if TYPE_CHECKING:  # code generation is loaded when something is to be compiled
    from qddot.compiler.ir.expr import Graph
    from qddot.compiler.ir.loop_program import Rolled
    from qddot.compiler.ir.program import Program
    from qddot.compiler.ir.step_program import Layout as StepLayout
    from qddot.compiler.ir.step_program import Step

MOST_INSTRUCTIONS = 150_000  # of straight-line code: some twenty seconds to compile
MOST_WHEN_ASKED = 300_000  # the same with form="unrolled"
_MAX_UNROLLED_OUTPUTS = 20_000  # entries of a result, at some ten instructions each
LOOPS_FROM_LINKS = 80  # links above which code keeps its loops (docs/decisions/0007)
_MIN_LINKS_PER_CLASS = 4  # on average: with fewer alike, loops do not pay
_AS_IT_IS = "Robot(model, compiled=False) runs the algorithm as it is"
MANY_REGISTERS = 32  # from which on columns of M⁻¹ are computed in pairs (docs/decisions/0020)
MAX_KEPT = 64  # pieces of code of users' functions in memory; older ones may still be on disk
_FACTS: stored.Fields = {
    "method": stored.text,
    "form": stored.text,
    "sums": stored.flag,
    "ops": stored.counts,
    "instructions": stored.count,
    "lanes": stored.count,
    "fused": stored.flag,
    "why": stored.text,
}


# ---- kernels of a robot's functions ----------------------------------------------------------------------------------


def build(model: Model, request: Request) -> Kernel:
    """The kernel of a function of a model, from the cache if it is there."""
    begin, function, target = (
        time.perf_counter(),
        lookup(request.function, request.method)[0],
        targets.named(request.target),
    )
    named, output, parts = products.signature(model, function, request.free, dict(request.static), request.product)
    inputs = list(named.values())
    kind = targets.KINDS[target.kind]
    fields = {**_FACTS, **kind.facts, **({"layout": Layout.from_json} if request.packed else {})}
    key = _digest(model.digest, request, target.identity)
    found, cached = stored.find(key, fields, target), True
    if found is None:
        what = f"{request.what} of {model.name!r}"
        with Progress(f"tracing {what}") as progress:
            facts, text = _rendered(model, request, inputs, output, target)
            progress.stage = f"compiling {what} ({facts['instructions']:,} operations)"
            data = targets.compile_module(text, target, request.function)
        found, cached = stored.store(key, facts, data, fields, target), False
    facts, data, code = found
    layout, own = facts.pop("layout", None), {name: facts.pop(name) for name in kind.facts}
    tracing = {**request.tracing, **({"sums": True} if facts.pop("sums") else {})}
    told = explain_rolled if facts["form"] == "rolled" else explain
    info = Info(
        function=request.function,
        dtype=request.dtype,
        code_bytes=len(data),
        compile_seconds=time.perf_counter() - begin,
        cached=cached,
        free=request.free,
        product=request.product.label if request.product else "",
        parts=tuple(parts.items()),
        **facts,
    )
    return kind.kernel(
        code,
        own,
        tuple(named),
        inputs,
        output if layout is None else (layout.size,),
        info,
        lambda: told(model, request.function, info.method, **tracing),
        layout,
        Source(
            lambda: _rendered(model, request, inputs, output, target)[1],
            lambda text: targets.assembly(text, target),
            (remade, (model, request)),
            lambda: _small_batches(model, request, (inputs, output), target, key),
        ),
    )


def _small_batches(
    model: Model, request: Request, shapes: tuple[list[Shape], Shape], target: Target, key: str
) -> stored.Stored:
    """Other code of a kernel for small batches, from the cache if it is there."""
    kind, key = targets.KINDS[target.kind], _digest("small batches", key)
    assert kind.render_small is not None
    found = stored.find(key, kind.small_facts, target)
    if found is None:
        with Progress(f"compiling {request.what} of {model.name!r} for small batches"):
            _, work = _work(model, request, *shapes, target)
            text, facts = kind.render_small(work, target)
            data = targets.compile_module(text, target, request.function)
        found = stored.store(key, facts, data, kind.small_facts, target)
    return found


def remade(model: Model, request: Request) -> Kernel:
    """A kernel that another process had pickled, made once in this one."""
    key = _digest("pickled", model.digest, request)
    kept: Kernel | None = _kernels.get(key)
    return _kernels.keep(key, build(model, request)) if kept is None else kept


def _rendered(
    model: Model, request: Request, inputs: list[Shape], output: Shape, target: Target
) -> tuple[dict[str, Any], str]:
    """The LLVM text of a kernel, and the facts about it."""
    facts, work = _work(model, request, inputs, output, target)
    text, own = targets.KINDS[target.kind].render(work, target)
    return {**facts, **own}, text


def _work(
    model: Model, request: Request, inputs: list[Shape], output: Shape, target: Target
) -> tuple[dict[str, Any], targets.Work]:
    """What a kernel computes, and the facts about it."""
    facts, program = program_for(model, request, output, target.registers)
    if request.packed:
        program, layout = packed(program, output)
        if layout.size == 0:
            raise InputError(
                f"{request.function} of {model.name!r} is the same for all states: there is nothing to pack; take "
                f"packed=False"
            )
        facts["layout"], output = layout.to_json(), (layout.size,)
    last = 0 if request.product else len(request.free)
    return facts, targets.Work(program, inputs, output, request.dtype, request.lanes, last)


def program_for(
    model: Model, request: Request, output: Shape, registers: int = MANY_REGISTERS
) -> tuple[dict[str, Any], Any]:
    """The program of a request, fused and scheduled for a target with so many registers, and the facts about it."""
    facts, program = _chosen(model, request)
    return facts, scheduled(program, output, registers) if facts["form"] == "unrolled" else program


def _chosen(model: Model, request: Request) -> tuple[dict[str, Any], Any]:
    """The program to compile, and the facts about it."""
    if request.form == "rolled":
        try:
            return _with_loops(model, request)[:2]
        except NotRollableError as error:
            raise NotRollableError(f"{error}; take form='unrolled'") from None
    spare, can_roll = None, request.form == "auto" and not request.packed and not request.product
    if can_roll and model.n_links > LOOPS_FROM_LINKS and _has_alike_links(model, request):
        try:
            facts, program, is_best = _with_loops(model, request)
            if is_best:
                return facts, program
            spare = facts, program
        except NotRollableError:
            can_roll = False
    try:
        return _straight_line(model, request)
    except KernelTooLargeError as error:
        if not can_roll:
            raise KernelTooLargeError(f"{error}; {_instead(request)}") from None
        return spare or _loops_instead(model, request, error)


def _instead(request: Request) -> str:
    """What to do where straight-line code is too large and there are no loops instead."""
    if request.product is None:
        return _AS_IT_IS
    matrix = f"{request.function.removesuffix('_with_forces')}_derivatives"
    if matrix in FUNCTIONS:
        return f"robot.{matrix} keeps its loops: multiply by its matrices"
    return "differentiate with respect to fewer inputs (wrt=)"


def _has_alike_links(model: Model, request: Request) -> bool:
    """Whether links are of so few kinds that loops over them may pay."""
    try:
        kinds = kinds_of_links(model, request.function, request.method, **request.tracing)
    except NotRollableError:
        return False
    return model.n_links >= _MIN_LINKS_PER_CLASS * (1 + kinds)


def _loops_instead(model: Model, request: Request, error: KernelTooLargeError) -> tuple[dict[str, Any], Rolled]:
    """Code that keeps its loops where straight-line code is too large."""
    try:
        facts, program, _ = _with_loops(model, request)
    except NotRollableError as why:
        raise KernelTooLargeError(f"{error}, and {why}; {_AS_IT_IS}") from None
    return {**facts, "why": f"{facts['why']}; {error}"}, program


def _with_loops(model: Model, request: Request) -> tuple[dict[str, Any], Rolled, bool]:
    """Code that keeps its loops, and whether it is to be taken without a look at straight-line code.

    Loops repeat for each column what straight-line code has once.
    """
    from qddot.compiler.ir import loop_program

    try:
        loops, method = cheapest_rolled(model, request.function, request.method, **request.tracing)
    except NotRollableError as error:
        raise NotRollableError(f"{request.function} of {model.name!r} cannot be rolled: {error}") from None
    program = loop_program.fused(loops)
    facts = {"method": method, "form": "rolled", "sums": False, "ops": loops.count()}
    facts["instructions"] = program.instructions()
    facts["why"] = f"loops are kept: {model.n_links} links of {len(set(loops.kind[1:]))} kinds"
    return facts, program, not loops.repeats or loops.n_outputs > _MAX_UNROLLED_OUTPUTS


def _straight_line(model: Model, request: Request) -> tuple[dict[str, Any], Program]:
    plain, line, method, sums, chosen = cheapest(model, request.function, request.method, **request.tracing)
    count, most = len(line.body), MOST_WHEN_ASKED if request.form == "unrolled" else MOST_INSTRUCTIONS
    if count > most:
        asked = f" unless form='unrolled' asks for up to {MOST_WHEN_ASKED:,}" if count <= MOST_WHEN_ASKED else ""
        raise KernelTooLargeError(
            f"{request.what} of {model.name!r} has {count:,} operations; straight-line code stops at {most:,}{asked}"
        )
    facts = {"method": method, "form": "unrolled", "sums": sums, "ops": plain.count(), "instructions": count}
    return {**facts, "why": chosen}, line


def packed(program: Program | Rolled, output: Shape) -> tuple[Program, Layout]:
    from qddot.compiler.ir.loop_program import Rolled

    if isinstance(program, Rolled):
        raise InputError("code that keeps its loops has no packed results; take form='unrolled' or packed=False")
    layout = layout_of(program, output)
    return with_layout(program, layout), layout


# ---- code of any traced function -------------------------------------------------------------------------------------


def unknowns(sizes: Sequence[int]) -> tuple[Graph, list[Any]]:
    """A new graph and vectors of these sizes, to trace a function with: call it with them."""
    from qddot.compiler.ir.expr import Graph

    graph = Graph()
    return graph, graph.vectors(sizes)


def program_of(what: str, graph: Graph, outputs: list[int], n_inputs: int) -> Program:
    """The fused and scheduled straight-line program that computes some nodes of a graph."""
    from qddot.compiler.ir.fuse import fused
    from qddot.compiler.ir.program import straight_line

    program = fused(straight_line(graph, outputs, n_inputs))
    count = len(program.body)
    if count > MOST_INSTRUCTIONS:
        raise KernelTooLargeError(f"{what} has {count:,} operations; straight-line code stops at {MOST_INSTRUCTIONS:,}")
    return scheduled(program)


def scheduled(program: Program, shape: Shape = (), registers: int = MANY_REGISTERS) -> Program:
    """The same operations in an order that keeps values in registers and caches."""
    from qddot.compiler.ir.schedule import best_order, side_by_side

    best = best_order(program, shape)
    return side_by_side(best) if registers >= MANY_REGISTERS else best


def kernel_of(
    what: str,
    graph: Graph,
    result: Any,
    names: Sequence[str],
    inputs: Sequence[Shape],
    output: Shape,
    dtype: str = "float64",
) -> Kernel:
    """A kernel of any traced function of arrays, with batches as a robot's functions have."""
    from qddot.compiler.codegen.abi import gufunc

    begin = time.perf_counter()
    program = program_of(what, graph, graph.nodes_of(result), sum(prod(s) for s in inputs))
    target, count = host(), len(program.body)
    lanes = target.lanes(dtype)
    key = _digest("kernel", what, names, inputs, output, lanes, dtype, target.identity, operations(program))
    if (kept := _kernels.get(key)) is not None:
        return kept
    found, cached = stored.find(key, {}), True
    if found is None:
        text = gufunc.render(program, list(inputs), [output], lanes, dtype, target)
        found, cached = stored.store(key, {}, targets.compile_module(text, target, what), {}), False
    seconds, ops, size = time.perf_counter() - begin, program.count(), len(found.data)
    info = Info(what, "traced", "unrolled", dtype, lanes, ops, count, size, seconds, cached, fused=target.fma)
    explained = f"{what}: {count} operations"
    return _kernels.keep(key, kernel_from_code(found.code, names, inputs, output, info, lambda: explained))


def time_loop_of(what: str, step: Step, layout: StepLayout, target: str = "cpu") -> OfSamples:
    """The loop over time around one step."""
    found_target = targets.named(target)
    kind, fields = targets.KINDS[found_target.kind], {"scratch": stored.count}
    own = [operations(p) for p in step.programs()]
    key = _digest("rollout", layout, [c.function for c in step.calls], found_target.identity, own)
    kept: OfSamples | None = _loops.get(key)
    if kept is not None:
        return kept
    found = stored.find(key, fields, found_target)
    if found is None:
        with Progress(f"compiling {what} ({step.instructions():,} operations)"):
            text, layout = kind.render_steps(step, layout, found_target)
            data = targets.compile_module(text, found_target, what)
        found = stored.store(key, {"scratch": layout.scratch}, data, fields, found_target)
    loop = kind.time_loop(found.code, layout._replace(**found.facts), step.instructions())
    made: OfSamples = _loops.keep(key, loop)
    return made


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
            while len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            return code


_loops, _kernels = _Newest(), _Newest()


# ---- keys ----------------------------------------------------------------------------------------------------------


def operations(program: Program) -> str:
    """Everything that the code of a program depends on."""
    graph = program.graph
    used = [(n, graph.ops[n], graph.args[n]) for n in program.body]
    leaves = sorted({x for n, _, args in used for x in args} | set(program.outputs))
    known = [(n, graph.ops[n], graph.args[n]) for n in leaves if graph.ops[n] in ("const", "input")]
    return hashlib.sha256(repr((program.n_inputs, program.outputs, used, known)).encode()).hexdigest()


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr((*parts, _source())).encode()).hexdigest()


@cache
def _source() -> str:
    """The state of qddot's own code: a kernel of another version is another kernel."""
    root = Path(__file__).parents[1]
    stats = [(str(p.relative_to(root)), p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(root.rglob("*.py"))]
    import llvmlite

    return hashlib.sha256(repr((stats, llvmlite.__version__, sys.version)).encode()).hexdigest()
