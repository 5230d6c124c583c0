"""Long programs in several kernels, launched one after another, which keep numbers for the next ones in scratch memory.

Derivatives of forward dynamics are such programs: forces, M, its factors and the accelerations, derivatives of inverse
dynamics, then columns of M⁻¹ times those. One thread would have values of all of them, and spill; threads that each compute
a stretch of the result would repeat the first ones. Each kernel has as many layers as its own program wants.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from qddot.compiler.codegen.abi.grid_copies import tile_function
from qddot.compiler.codegen.abi.grid_frame import Prelude, grid_module
from qddot.compiler.codegen.abi.grid_kernel import Grid, GridOptions
from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes
from qddot.compiler.codegen.llvm.thread_arguments import GLOBAL, Arguments, GridOperand, angles_of
from qddot.compiler.codegen.llvm.thread_parts import Layers
from qddot.compiler.codegen.llvm.thread_tiles import TILE_BYTES
from qddot.compiler.ir.passes import AGAIN_MAX_OPS, Passes, passes
from qddot.compiler.ir.program import Program
from qddot.compiler.runtime.cuda.grid import Grid as LaunchFacts
from qddot.compiler.runtime.cuda.grid import ModuleFacts

LONG_OPS = 1000  # of a thread, from which on registers and instructions in caches are short; by times on an H200


class PassOptions(NamedTuple):
    """How a program in passes is laid out for a grid."""

    layer_ops: int = 3000  # that each thread of a pass would have if several did not repeat any; no more threads than that
    again_ops: int = AGAIN_MAX_OPS  # of a number that is computed again and not kept


def passes_of(program: Program, options: PassOptions) -> Passes | None:
    """The passes of a program that has cuts."""
    return passes(program, options.again_ops)


def render_passes(
    found: Passes, arguments: Arguments, emitter: Emitter, options: PassOptions, prelude: Prelude
) -> tuple[list[str], LaunchFacts]:
    """A module for each pass; `arguments` are those of the whole program."""
    made = [_kernel(found, k, arguments, emitter, options, prelude) for k in range(len(found.parts))]
    threads = min(kernel.fitting_threads for kernel in made)
    made = [replace(x, options=x.options._replace(threads=threads)) for x in made]
    common = [prelude.functions, tile_function(emitter.T, arguments.output.size)]
    texts = [grid_module([*common, *x.text()], emitter, {"maxntidx": threads}, [x.name], prelude) for x in made]
    own = tuple(ModuleFacts(x.options.groups, x.shared_bytes) for x in made)
    facts = LaunchFacts(threads, max(x.shared_bytes for x in own), max(x.groups for x in own))
    return texts, facts._replace(kept_numbers=found.kept, modules=own)


def _kernel(found: Passes, k: int, whole: Arguments, emitter: Emitter, options: PassOptions, prelude: Prelude) -> Grid:
    """The kernel of one pass."""
    (program, first), output, result = found.parts[k], whole.output, None
    used = _used(program, whole)
    inputs = [x if taken else replace(x, space=GLOBAL) for x, taken in zip(whole.inputs, used, strict=True)]
    if first:
        inputs.append(GridOperand(len(inputs), (first,), GLOBAL, kept_from=0))
    if k < len(found.parts) - 1:
        result = replace(output, index=len(inputs) + 1)
        output = GridOperand(len(inputs), (len(program.outputs),), GLOBAL, kept_from=first)
    else:
        output = replace(output, index=len(inputs))
    own = GridOptions(groups=_layers(program, options, TILE_BYTES // number_bytes(emitter.T)), strided=False)
    arguments = Arguments(tuple(inputs), output, tuple(angles_of(program, whole.inputs[0].size)))
    return Grid("rows", program, arguments, emitter, own, prelude, result=result, kept=found.kept)


def _used(program: Program, whole: Arguments) -> list[bool]:
    """Which inputs a program takes: others are not staged."""
    ops, args = program.graph.ops, program.graph.args
    taken = {x for n in program.body for x in args[n]} | set(program.outputs)
    numbers = {args[x][0] for x in taken if ops[x] == "input"}
    firsts = accumulate((x.size for x in whole.inputs), initial=0)
    return [any(a <= k < b for k in numbers) for a, b in pairwise(firsts)]


def _layers(program: Program, options: PassOptions, quantum: int) -> int:
    """Threads of a state: fewer operations in each take less time, and more in all take more."""
    size, layers = len(program.body), Layers(program, quantum)
    costs = {1: size * (1 + size / LONG_OPS)}
    for count in range(2, -(-size // options.layer_ops) + 1):
        own = layers.sizes(count)
        costs[len(own)] = sum(own) * (1 + max(own) / LONG_OPS)
    return min(costs, key=costs.__getitem__)
