"""The cheapest formulation of a function for one robot, by the operations of its trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from qddot.dynamics.catalogue import OF_WHOLE_LINKS, Function, lookup
from qddot.dynamics.conditioning import is_ill_conditioned
from qddot.dynamics.trace import rewriting, rolled, traced
from qddot.errors import KernelTooLargeError, NotRollableError
from qddot.mechanism.model import Model
from qddot.mechanism.simplify import has_parallel_axes, simplified

if TYPE_CHECKING:
    from qddot.compiler.ir.loop_program import Rolled
    from qddot.compiler.ir.program import Program

_MANY = 30_000  # instructions: where there are more, sums of angles save less than a hundredth and cost a second trace
_MOVES_Q = "differentiated"  # by itself, on dual numbers: frames taken at one instant, as sums of angles need, stay behind
_NO_HOPE = 2  # times the trace of another formulation: one that is longer will not be the cheapest


class Choice(NamedTuple):
    """A program, the same with products and sums fused, its formulation, whether sums of angles turn its links, and why."""

    program: Program
    line: Program
    method: str
    sums: bool
    why: str = ""


def cheapest(model: Model, name: str, method: str, **needs: Any) -> Choice:
    """The program of a function by the requested formulation, or by the one of least `Program.cost`; sums of angles where
    they make it shorter.

    `auto` tries those of the function's formulations that win on some robot; `qddot compare` shows them all.
    """
    from qddot.compiler.ir.fuse import fused

    function = lookup(name, method)[0]
    first, *others = _likely(model, function, method) or (lookup(name, method)[1],)
    program = traced(model, name, first, **needs)
    found = [Choice(program, fused(program), first, False)]
    tried = {first: found[0].line}
    can_sum = first not in OF_WHOLE_LINKS and rewriting(model, function) is simplified
    ways = [(m, False) for m in others]
    if can_sum and needs.get("regroup", True) and not needs.get("free"):
        worth_trying = len(found[0].line.body) < _MANY and has_parallel_axes(simplified(model))
        ways += [(m, True) for m in (first, *others) if m != _MOVES_Q] if worth_trying else []
    for m, sums in ways:
        try:
            other = traced(model, name, m, sums=sums, most=_NO_HOPE * len(program.graph), **needs)
        except KernelTooLargeError:
            continue
        found.append(Choice(other, fused(other), m, sums))
        tried[f"{m} with sums of angles" if sums else m] = found[-1].line
    shortest: dict[str, Choice] = {}
    for c in sorted(found, key=lambda c: len(c.line.body)):
        shortest.setdefault(c.method, c)
    costs = ", ".join(f"{label} {line.cost()} ({len(line.body)} instructions)" for label, line in tried.items())
    return min(shortest.values(), key=lambda c: c.line.cost())._replace(why=f"cost: {costs}")


def _likely(model: Model, function: Function, method: str) -> tuple[str, ...]:
    """The formulations that `auto` tries: none that loses digits on this robot."""
    found = function.auto if method == "auto" else ()
    if "composite_body_factored" in found and is_ill_conditioned(model):
        return tuple(m for m in found if m != "composite_body_factored") or ("articulated_body",)
    return found


def cheapest_rolled(model: Model, name: str, method: str, **needs: Any) -> tuple[Rolled, str]:
    """The same for rolled code; formulations that cannot be rolled are passed over, where none is left for all others."""
    function, own, _ = lookup(name, method)
    likely = _likely(model, function, method) or (own,)
    others = [m for m in function.methods if m not in likely] if method == "auto" else []
    found: list[tuple[Rolled, str]] = []
    error = NotRollableError("there is no formulation")
    for m in (*likely, *others):
        if found and m in others:
            break
        try:
            found.append((rolled(model, name, m, **needs), m))
        except NotRollableError as e:
            error = e
    if not found:
        raise error
    return min(found, key=lambda c: c[0].instructions())
