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

from qddot.compiler import machine
from qddot.compiler.cache import default_cache
from qddot.compiler.kernel import Info, Kernel, Shape
from qddot.compiler.machine import Code
from qddot.compiler.rollout import Layout, TimeLoop
from qddot.errors import KernelTooLargeError
from qddot.kernels import MOST_INSTRUCTIONS, _Notice, _pack, _source, _unpack

if TYPE_CHECKING:
    from qddot.compiler.program import Program

Run = Callable[..., Any]

_loops: dict[str, TimeLoop] = {}
_kernels: dict[str, Kernel] = {}


def program_of(what: str, run: Run, sizes: Sequence[int]) -> Program:
    """The fused straight-line program of a function of vectors."""
    from qddot.compiler.expr import trace
    from qddot.compiler.fuse import fused
    from qddot.compiler.program import straight_line

    graph, outputs, _ = trace(run, sizes)
    program = fused(straight_line(graph, outputs, sum(sizes)))
    count = len(program.nodes())
    if count > MOST_INSTRUCTIONS:
        raise KernelTooLargeError(f"{what} has {count:,} operations; straight-line code stops at {MOST_INSTRUCTIONS:,}")
    return program


def loop_of(what: str, program: Program, layout: Layout) -> TimeLoop:
    """The loop over time around a program that makes one step."""
    from qddot.compiler import rollout

    key = _key("rollout", program, layout)
    if key not in _loops:
        stored = _unpack(default_cache().get(key))
        if stored is None:
            count = len(program.nodes())
            with _Notice(f"qddot: compiling {what} ({count:,} operations) …", count):
                text, layout = rollout.render(program, layout)
                stored = {"group": layout.group, "scratch": layout.scratch}, machine.compile_object(text)
            default_cache().put(key, _pack(*stored))
        facts, data = stored
        _loops[key] = TimeLoop(Code(data), layout._replace(**facts), len(program.nodes()))
    return _loops[key]


def kernel_of(what: str, run: Run, names: Sequence[str], inputs: Sequence[Shape], output: Shape) -> Kernel:
    """A kernel with batches, as those of a robot's functions."""
    from qddot.compiler import llvm

    begin = time.perf_counter()
    program = program_of(what, run, [prod(s) for s in inputs])
    lanes, count = machine.lanes("float64"), len(program.nodes())
    key = _key("kernel", program, (inputs, output, lanes))
    if key not in _kernels:
        data, cached = default_cache().get(key), True
        if data is None:
            text = llvm.render(program, list(inputs), [output], lanes, "float64", machine.is_x86(), machine.has_avx512())
            data, cached = machine.compile_object(text), False
            default_cache().put(key, data)
        seconds, ops = time.perf_counter() - begin, program.count()
        info = Info(what, "traced", "unrolled", "float64", lanes, ops, count, len(data), seconds, cached)
        _kernels[key] = Kernel(Code(data), names, inputs, output, info, lambda: f"{what}: {count} operations")
    return _kernels[key]


def _key(kind: str, program: Program, shape: Any) -> str:
    """Everything that the code depends on."""
    graph, digest = program.graph, hashlib.sha256()
    used = [(n, graph.ops[n], graph.args[n]) for n in program.nodes()]
    leaves = sorted({x for n, _, args in used for x in args} | set(program.outputs))
    known = [(n, graph.ops[n], graph.args[n]) for n in leaves if graph.ops[n] in ("const", "input")]
    digest.update(repr((kind, shape, program.outputs, used, known, machine.cpu(), _source())).encode())
    return digest.hexdigest()
