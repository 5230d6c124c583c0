"""Several functions of a robot as one program: what they have in common is computed once.

How much they share depends on their formulations, so those are chosen together: forward dynamics by factors of the mass
matrix costs little beside the mass matrix itself, and transforms are common to dynamics and kinematics only if the frames
of links stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from qddot.compiler.runtime.kernel import Shape
from qddot.dynamics.catalogue import INPUT_AXES, lookup
from qddot.dynamics.choose import likely_methods, sums_of_angles_help
from qddot.dynamics.trace import Part, traced_together
from qddot.mechanism import parameters
from qddot.mechanism.model import Model
from qddot.mechanism.simplify import simplified

if TYPE_CHECKING:
    from qddot.compiler.ir.program import Program


_SINCOS = 15  # instructions of a sine or cosine beyond one: functions that turn links otherwise have others


class Combined(NamedTuple):
    """The program of several functions, their inputs by name, and the formulation of each."""

    program: Program
    inputs: dict[str, Shape]
    methods: tuple[str, ...]


def combined(
    model: Model, functions: Sequence[tuple[str, str, Mapping[str, Any]]], free: Sequence[str], dtype: str
) -> Combined:
    """The cheapest program found of functions, given as (name, method or "auto", arguments that are no arrays).

    The formulations of one function after the other are tried beside those of the others: not all combinations.
    """
    from qddot.compiler.ir.fuse import fused

    inputs = _inputs(model, [name for name, *_ in functions], free)
    choices = [_methods(model, name, method) for name, method, _ in functions]
    found: list[tuple[int, Program, list[Part]]] = []
    for keep_frames, sums in _variants(model, functions, free):

        def add(parts: list[Part], keep_frames: bool = keep_frames) -> int:
            program = traced_together(model, parts, inputs, free=free, keep_frames=keep_frames, dtype=dtype)
            found.append((fused(program).cost + _SINCOS * program.count()["sincos"], program, parts))
            return found[-1][0]

        def part(k: int, method: str, sums: bool = sums) -> Part:
            name, _, needs = functions[k]
            can_sum = sums and sums_of_angles_help(model, lookup(name, method)[0], method)
            return Part(name, method, can_sum, needs)

        best = [part(k, methods[0]) for k, methods in enumerate(choices)]
        least = add(best)
        for k, methods in enumerate(choices):
            for method in methods[1:]:
                changed = [*best[:k], part(k, method), *best[k + 1 :]]
                if (cost := add(changed)) < least:
                    least, best = cost, changed
    _, program, parts = min(found, key=lambda x: x[0])
    return Combined(program, inputs, tuple(part.method for part in parts))


def _inputs(model: Model, functions: Sequence[str], free: Sequence[str]) -> dict[str, Shape]:
    """All inputs of functions, each once, in the order of the catalogue; free parameters last."""
    used = {x for name in functions for x in lookup(name, "auto")[0].inputs}
    order = ["q", "v", "a", "tau", *(x for x in INPUT_AXES if x not in ("q", "v", "a", "tau"))]
    own = {x: INPUT_AXES[x](model) for x in order if x in used}
    return own | {p.name: p.shape for p in parameters.parameters(model, free)}


def _variants(model: Model, functions: Sequence[Any], free: Sequence[str]) -> Iterator[tuple[bool, bool]]:
    """Whether frames of links are kept, and whether sums of angles turn them."""
    rows = [lookup(name, "auto")[0] for name, *_ in functions]
    yield False, False
    if any(row.simplify is simplified for row in rows):
        yield True, False
        if not free and any(sums_of_angles_help(model, row, next(iter(row.methods))) for row in rows):
            yield False, True


def _methods(model: Model, function: str, method: str) -> tuple[str, ...]:
    """The formulations that a function is tried in."""
    row, first, _ = lookup(function, method)
    return likely_methods(model, row, method) or (first,)
