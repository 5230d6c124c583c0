"""The kinds of targets by name: `kind` or `kind:processor`.

A new kind is files of its own and a row of `KINDS`; a new architecture of kind "cpu" is a file and a row of
`target.ARCHITECTURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from qddot.compiler.runtime import llvm_compile, ptx
from qddot.compiler.runtime.cuda.grid import from_json as grid_from_json
from qddot.compiler.runtime.kernel import Kernel, Shape
from qddot.compiler.runtime.llvm_compile import Code
from qddot.compiler.runtime.time_stepping import TimeLoop
from qddot.compiler.targets import host, nvptx
from qddot.compiler.targets.target import ARCHITECTURES, Target
from qddot.errors import InputError


class Kind(NamedTuple):
    """What a kind of target can do."""

    named: Callable[[str], Target]  # by the name of its processor, or ""
    compile: Callable[[str, Target, str], bytes]  # code of an LLVM module; the last is its name for QDDOT_DEBUG
    assembly: Callable[[str, Target], str]  # of an LLVM module, to be read
    load: Callable[[bytes, Target | None], Any]  # what `compile` gave, ready to be called
    render: Callable[..., tuple[str, dict[str, Any]]]  # `(work, target)`: the LLVM module of a kernel, and facts about it
    kernel: Callable[..., Kernel]  # of loaded code: `(code, facts, parts)`
    render_steps: Callable[..., Any]  # `(step, layout, target)`: the LLVM module of a loop over time, and its layout
    time_loop: Callable[..., Any]  # of loaded code: `(code, layout, instructions)`
    facts: Mapping[str, Callable[[Any], Any]] = {}  # the facts of `render` that the cache keeps, and who reads them
    render_small: Callable[..., tuple[str, dict[str, Any]]] | None = None  # as `render`, of other code for small batches
    small_facts: Mapping[str, Callable[[Any], Any]] = {}  # its facts


_NOTHING = "; no code"  # the LLVM text where there is none


class Work(NamedTuple):
    """What a kernel computes: a program of arrays with these shapes, of which the last inputs are parameters."""

    program: Any
    inputs: list[Shape]
    output: Shape
    dtype: str
    lanes: int | None = None
    parameters: int = 0


def _cpu(processor: str) -> Target:
    return host.processor(processor) if processor else host.host()


def _render_gufunc(work: Work, target: Target) -> tuple[str, dict[str, Any]]:
    from qddot.compiler.codegen.abi import gufunc

    lanes = target.lanes(work.dtype) if work.lanes is None else work.lanes
    text = gufunc.render(work.program, work.inputs, [work.output], lanes, work.dtype, target, work.parameters)
    return text, {"lanes": lanes, "fused": target.fuses(work.dtype)}


def _render_grid(work: Work, target: Target) -> tuple[str, dict[str, Any]]:
    from qddot.compiler.codegen.abi import grid

    if work.lanes not in (None, 1):
        raise InputError(f"lanes={work.lanes} is for SIMD registers, and a GPU has none; leave it out")
    options = grid.options_of(work.program, work.dtype, target)
    given = work.program, work.inputs, work.output, work.dtype, target, options
    texts, facts = grid.render_modules(*given)
    found = {"lanes": 1, "fused": target.fuses(work.dtype), "grid": facts.as_json(), "large_batches": None}
    found["has_small_batches"] = grid.is_long_for_one_thread(work.program, options)
    if large := grid.render_large_batches(*given):
        texts, found["large_batches"] = [*texts, *large[0]], large[1].as_json()
    return ptx.joined(texts), found


def _render_small_grid(work: Work, target: Target) -> tuple[str, dict[str, Any]]:
    from qddot.compiler.codegen.abi import grid

    made = grid.render_small_batches(work.program, work.inputs, work.output, work.dtype, target)
    return (made[0], {"grid": made[1].as_json()}) if made else (_NOTHING, {"grid": None})


def _grid_or_none(x: Any) -> Any:
    return None if x is None else grid_from_json(x)


def _kernel_gufunc(code: Any, facts: dict[str, Any], *parts: Any) -> Kernel:
    from qddot.compiler.runtime import gufunc

    return gufunc.kernel(code, *parts)


def _kernel_cuda(code: Any, facts: dict[str, Any], *parts: Any) -> Kernel:
    from qddot.compiler.runtime.cuda import kernel
    from qddot.compiler.runtime.cuda.modules import GridCode

    info = parts[3]
    texts, large, small, source = ptx.modules(code), None, None, parts[-1]
    if (grid := facts["large_batches"]) is not None:
        count = len(grid.modules)
        texts, large = texts[:-count], GridCode(texts[-count:], grid, info.function)

    def made() -> GridCode | None:
        found = source.small_batches()
        return None if found.facts["grid"] is None else GridCode([found.code], found.facts["grid"], info.function)

    if facts["has_small_batches"]:
        small = made
    return kernel.kernel(GridCode(texts, facts["grid"], info.function, small, large), *parts)


def _render_steps(*given: Any) -> Any:
    from qddot.compiler.codegen.abi import time_stepping

    return time_stepping.render(*given)


def _render_grid_steps(step: Any, layout: Any, target: Target) -> Any:
    from qddot.compiler.codegen.abi import grid_steps

    return grid_steps.render(step, layout, target), layout


def _time_loop_cuda(code: Any, layout: Any, instructions: int) -> Any:
    from qddot.compiler.runtime.cuda.grid import STEP_THREADS, Grid
    from qddot.compiler.runtime.cuda.modules import GridCode
    from qddot.compiler.runtime.cuda.time_stepping import GridTimeLoop

    return GridTimeLoop(GridCode([code], Grid(STEP_THREADS), "simulate"), layout, instructions)


KINDS: dict[str, Kind] = {
    "cpu": Kind(
        named=_cpu,
        compile=llvm_compile.compile_object,
        assembly=llvm_compile.assembly,
        load=Code,
        render=_render_gufunc,
        kernel=_kernel_gufunc,
        render_steps=_render_steps,
        time_loop=TimeLoop,
    ),
    "cuda": Kind(
        named=nvptx.named,
        compile=ptx.compile_ptx,
        assembly=ptx.assembly,
        load=ptx.load,
        render=_render_grid,
        kernel=_kernel_cuda,
        render_steps=_render_grid_steps,
        time_loop=_time_loop_cuda,
        facts={"grid": grid_from_json, "large_batches": _grid_or_none, "has_small_batches": bool},
        render_small=_render_small_grid,
        small_facts={"grid": _grid_or_none},
    ),
}


def named(name: str) -> Target:
    """The target of a name: "cpu" is this machine's, "cpu:x86-64-v3" that of any processor that LLVM and we know by name.

    Code can be compiled for a target that this machine cannot run; it cannot be called here.
    """
    kind, colon, processor = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind not in KINDS or (colon and not processor):
        kinds = ", ".join(f"{k!r}, '{k}:PROCESSOR'" for k in KINDS)
        raise InputError(f"target {name!r} is not known; take one of {kinds}")
    return KINDS[kind].named(processor)


class Export(NamedTuple):
    """What code for other people's programs is compiled for."""

    target: Target
    triple: str  # of LLVM; "" for this machine's own


def exported(name: str) -> Export:
    """What code for other people's programs is compiled for: "cpu", which is this processor, another processor by LLVM's
    name, with or without "cpu:", or a triple such as "aarch64-linux-gnu", which stands for all processors of its kind.
    """
    if name == "cpu":
        return Export(host.host(), "")
    for facts in ARCHITECTURES.values():
        if name in (facts.triple, _short(facts.triple)):
            return Export(host.processor(next(iter(facts.processors))), facts.triple)
        if isinstance(name, str) and name.removeprefix("cpu:") in facts.processors:
            return Export(host.processor(name.removeprefix("cpu:")), "")
    triples = ", ".join(_short(facts.triple) for facts in ARCHITECTURES.values())
    processors = ", ".join(x for facts in ARCHITECTURES.values() for x in facts.processors)
    raise InputError(f"target {name!r} is not known; take 'cpu', one of {triples}, or a processor: {processors}")


def _short(triple: str) -> str:
    """A triple as compilers are named."""
    return triple.replace("-unknown", "")


def compile_module(text: str, target: Target, name: str = "") -> bytes:
    """Object code of an LLVM module for a target."""
    return KINDS[target.kind].compile(text, target, name)


def assembly(text: str, target: Target) -> str:
    """The assembly of an LLVM module for a target."""
    return KINDS[target.kind].assembly(text, target)


def load(data: bytes, target: Target | None) -> Any:
    """Compiled code, ready to be called; without a target, of this machine's processor."""
    return KINDS["cpu" if target is None else target.kind].load(data, target)
