"""From an algorithm to its rolled program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from qddot.axes import Axes
from qddot.compiler.expr import Graph
from qddot.compiler.rolled import Rolled
from qddot.errors import NotRollableError
from qddot.kinds import kinds_of
from qddot.model import Model
from qddot.rolling.assembly import Assembly
from qddot.rolling.one_of_each import one_of_each
from qddot.rolling.quantities import layout_of
from qddot.rolling.record import Memory, Recorder
from qddot.rolling.shared import numbers_of
from qddot.rolling.singled import Singled
from qddot.scalars import NotKnownYet

MOST_KINDS = 64
_PASSES = 8  # what is known of memory grows with each; a few are enough


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
        raise NotRollableError("joints share coordinates, and it is told of single freedoms")
    singled = Singled(model, needs)
    rows = sorted(singled.carriers) if of_carriers else [i for i, _ in model.outward()]
    kinds = kinds_of(model, rows, singled.told_apart)
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
