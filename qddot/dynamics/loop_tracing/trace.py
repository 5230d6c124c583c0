"""From an algorithm to its rolled program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from qddot.compiler.ir.expr import Graph
from qddot.compiler.ir.loop_program import Rolled
from qddot.dynamics.loop_tracing.distinguished_links import Singled
from qddot.dynamics.loop_tracing.lowering import Assembly
from qddot.dynamics.loop_tracing.mimic_sums import numbers_of
from qddot.dynamics.loop_tracing.recorded_values import layout_of
from qddot.dynamics.loop_tracing.recorder import Memory, Recorder
from qddot.dynamics.loop_tracing.representative_model import one_of_each
from qddot.errors import NotRollableError
from qddot.mechanism.array_shape import Axes
from qddot.mechanism.link_classes import LinkClass, classify_links
from qddot.mechanism.model import Model
from qddot.scalars import NotKnownYet

MOST_KINDS = 64
_PASSES = 8  # what is known of memory grows with each; a few are enough


def links_by_kind(model: Model, needs: Mapping[str, Any], *, of_carriers: bool) -> list[LinkClass]:
    """The kinds of links that a rolled program has code for; see `roll`."""
    singled = Singled(model, needs)
    return classify_links(model, _rows(model, singled, of_carriers), singled.class_key)


def _rows(model: Model, singled: Singled, of_carriers: bool) -> list[int]:
    return sorted(singled.carriers) if of_carriers else [i for i, _ in model.outward()]


def roll(
    model: Model,
    algorithm: Callable[..., Any],
    inputs: Sequence[Axes],
    output: Axes,
    needs: Mapping[str, Any],
    *,
    of_carriers: bool,
) -> Rolled:
    """The rolled program of `algorithm(model, *inputs, **needs)`.

    Where it is `of_carriers`, only the links are visited that carry the frame.
    """
    if model.is_coupled and {"by", "prescribed"} & {*needs}:
        raise NotRollableError("joints share coordinates, and it is told of single degrees of freedom")
    singled = Singled(model, needs)
    rows = _rows(model, singled, of_carriers)
    kinds = classify_links(model, rows, singled.class_key)
    if len(kinds) > MOST_KINDS:
        raise NotRollableError(f"its links are of {len(kinds)} kinds")
    memory = Memory()
    for _ in range(_PASSES):
        before = memory.state()
        recorder = Recorder(Graph(), memory, kinds)
        small = one_of_each(model, kinds, recorder, singled.frame)
        arrays, first = [], 0
        for axes in inputs:
            shape = axes(small)
            arrays.append(recorder.graph.inputs(prod(shape), first).reshape(shape))
            first += prod(shape)
        try:
            result = np.asarray(algorithm(small, *arrays, **singled.needs_on(small)), dtype=object)
        except NotKnownYet:
            raise NotRollableError("it does one thing or another by a link's numbers") from None
        if model.is_coupled:
            result = numbers_of(result, "v" in output)
        shared = memory.read | memory.written
        memory.layout = {k: layout_of(values) for k, values in recorder.seen.items() if k in shared}
        memory.zero = {k for k in memory.written if all(recorder.begins_with.get(k, [False]))}
        if before == memory.state():
            break
    else:
        raise NotRollableError("what it keeps in memory does not settle")
    program = Assembly(model, small, recorder, [0, *rows], inputs, output).rolled(result)
    return replace(program, clears=True, adds=True) if model.is_coupled and "v" in output else program
