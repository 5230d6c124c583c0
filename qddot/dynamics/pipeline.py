"""A function of a model into a kernel: the formulation and the form chosen, compiled, and kept on disk."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qddot.compiler.ir.packed_output import Layout, layout_of, with_layout
from qddot.compiler.runtime import llvm_compile, stored
from qddot.compiler.runtime.gufunc import kernel as kernel_from_code
from qddot.compiler.runtime.kernel import Info, Kernel, Shape
from qddot.compiler.targets.host import host
from qddot.dynamics.catalogue import cheapest, cheapest_rolled, explain, explain_rolled, input_shapes, lookup
from qddot.errors import InputError, KernelTooLargeError, NotRollableError
from qddot.mechanism.model import Model

if TYPE_CHECKING:  # rendering is loaded when something is to be compiled
    from qddot.compiler.ir.loop_program import Rolled
    from qddot.compiler.ir.program import Program

MOST_INSTRUCTIONS = 150_000  # some half a minute to compile
_MOST_NUMBERS = 20_000  # of a result that takes some ten instructions each: more are not tried as straight-line code
LONG = 80  # links above which code keeps its loops (docs/decisions/0007)
_ALIKE = 4  # links of a kind, on average, that make it worth while
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


def build(
    model: Model,
    name: str,
    method: str = "auto",
    dtype: str = "float64",
    lanes: int | None = None,
    *,
    form: str = "auto",
    regroup: bool = True,
    free: Sequence[str] = (),
    packed: bool = False,
    **needs: Any,
) -> Kernel:
    """The kernel of a function of a model, from the cache if it is there."""
    function = lookup(name, method)[0]
    begin = time.perf_counter()
    needs = {**needs, "regroup": regroup, **({"free": tuple(free)} if free else {})}
    key = _key(model, name, method, dtype, lanes, {**needs, "form": form, "packed": packed})
    inputs, output = input_shapes(model, function, free), function.output(model)
    fields = {**_FACTS, "layout": Layout.from_json} if packed else _FACTS
    found = stored.find(key, fields)
    cached = found is not None
    if found is None:
        found = stored.store(key, *_compile(model, name, method, dtype, lanes, form, needs, inputs, output, packed), fields)
    facts, data, code = found
    layout = facts.pop("layout", None)
    if sums := facts.pop("sums"):
        needs["sums"] = sums
    info = Info(
        function=name,
        dtype=dtype,
        code_bytes=len(data),
        compile_seconds=time.perf_counter() - begin,
        cached=cached,
        free=tuple(free),
        **facts,
    )
    names = (*function.inputs, *free)
    told = explain_rolled if facts["form"] == "rolled" else explain
    shape = output if layout is None else (layout.size,)
    return kernel_from_code(code, names, inputs, shape, info, lambda: told(model, name, facts["method"], **needs), layout)


def _compile(
    model: Model,
    name: str,
    method: str,
    dtype: str,
    lanes: int | None,
    form: str,
    needs: Mapping[str, Any],
    inputs: list[Shape],
    output: Shape,
    packed: bool,
) -> tuple[dict[str, Any], bytes]:
    from qddot.compiler.codegen.abi import gufunc
    from qddot.compiler.ir.program import Program
    from qddot.compiler.ir.schedule import best_order, side_by_side

    facts, program = _chosen(model, name, method, "unrolled" if packed and form == "auto" else form, needs)
    if isinstance(program, Program):
        program = side_by_side(best_order(program, output))
    if packed:
        program, layout = _packed(program, output)
        if layout.size == 0:
            raise InputError(
                f"{name} of {model.name!r} is the same for all states: there is nothing to pack; take packed=False"
            )
        facts["layout"], output = layout.to_json(), (layout.size,)
    count = facts["instructions"]
    target = host()
    width = target.lanes(dtype) if lanes is None else lanes
    with _Notice(f"qddot: compiling {name} of {model.name!r} ({count:,} operations) …", count):
        text = gufunc.render(program, inputs, [output], width, dtype, target, len(needs.get("free", ())))
        data = llvm_compile.compile_object(text, target)
    return {**facts, "lanes": width, "fused": target.fma}, data


def _chosen(
    model: Model, name: str, method: str, form: str, needs: Mapping[str, Any]
) -> tuple[dict[str, Any], Program | Rolled]:
    """The program to compile, and what is to be known of it."""
    from qddot.compiler.ir import loop_program as rolling

    why, spare = "", None
    if form == "rolled" or (form == "auto" and model.n_links > LONG):
        try:
            loops, formulation = cheapest_rolled(model, name, method, **needs)
            if form == "auto" and model.n_links < _ALIKE * len(set(loops.kind)):
                raise NotRollableError("too few of its links are alike")
            program = rolling.fused(loops)
            facts = {"method": formulation, "form": "rolled", "sums": False, "ops": loops.count()}
            facts["instructions"] = program.instructions()
            facts["why"] = f"loops are kept: {model.n_links} links of {len(set(loops.kind[1:]))} kinds"
            if form == "rolled" or not loops.repeats or loops.n_outputs > _MOST_NUMBERS:
                return facts, program
            spare = facts, program  # it computes again for each column what straight-line code has once
        except NotRollableError as error:
            why = f"{name} of {model.name!r} cannot be rolled: {error}"
            if form == "rolled":
                raise NotRollableError(f"{why}; take form='unrolled'") from None
    try:
        return _straight_line(model, name, method, needs, why)
    except KernelTooLargeError:
        if spare is None:
            raise
        return spare


def _straight_line(
    model: Model, name: str, method: str, needs: Mapping[str, Any], why: str
) -> tuple[dict[str, Any], Program | Rolled]:
    plain, line, method, sums, chosen = cheapest(model, name, method, **needs)
    count = len(line.nodes())
    if count > MOST_INSTRUCTIONS:
        raise KernelTooLargeError(
            f"{name} of {model.name!r} has {count:,} operations; straight-line code stops at {MOST_INSTRUCTIONS:,}"
            f"{why and f' ({why})'}; Robot(model, compiled=False) runs the algorithm as it is"
        )
    facts = {"method": method, "form": "unrolled", "sums": sums, "ops": plain.count(), "instructions": count}
    return {**facts, "why": chosen}, line


def _packed(program: Program | Rolled, output: Shape) -> tuple[Program, Layout]:
    from qddot.compiler.ir.loop_program import Rolled

    if isinstance(program, Rolled):
        raise InputError("code that keeps its loops has no packed results; take form='unrolled' or packed=False")
    layout = layout_of(program, output)
    return with_layout(program, layout), layout


class _Notice:
    """A line on the terminal while something takes longer than a second, gone afterwards."""

    def __init__(self, text: str, operations: int) -> None:
        self.text = text if operations > 15_000 and sys.stderr.isatty() else ""

    def __enter__(self) -> None:
        if self.text:
            print(self.text, end="\r", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self.text:
            print(" " * len(self.text), end="\r", file=sys.stderr, flush=True)


# ---- the cache's keys -------------------------------------------------------------------------------------------------


def _key(model: Model, name: str, method: str, dtype: str, lanes: int | None, needs: Mapping[str, Any]) -> str:
    parts = (model.digest, name, method, dtype, lanes, sorted(needs.items()), host().identity, _source())
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def _source() -> str:
    """The state of qddot's own code: a kernel of another version is another kernel."""
    root = Path(__file__).parents[1]
    stats = [(str(p.relative_to(root)), p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(root.rglob("*.py"))]
    import llvmlite

    return hashlib.sha256(repr((stats, llvmlite.__version__, sys.version)).encode()).hexdigest()
