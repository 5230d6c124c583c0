"""From an algorithm to its rolled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from qddot.compiler.expr import Graph
from qddot.compiler.rolled import Rolled
from qddot.errors import NotRollableError
from qddot.kinds import kinds_of
from qddot.model import Model
from qddot.rolling.assembly import Assembly
from qddot.rolling.record import Memory, Recorder, layout_of, one_of_each

MOST_KINDS = 64
_PASSES = 8  # what is known of memory grows with each; a few are enough


def roll(model: Model, algorithm: Callable[..., Any], names: Sequence[str], shapes: Any, output: Any) -> Rolled:
    """The rolled program of `algorithm(model, *inputs)`; `shapes(model)` and `output(model)` are those of its arrays."""
    if model.is_coupled:
        raise NotRollableError("joints share coordinates")
    kinds = kinds_of(model)
    if len(kinds) > MOST_KINDS:
        raise NotRollableError(f"its links are of {len(kinds)} kinds")
    memory = Memory()
    for _ in range(_PASSES):
        before = memory.state()
        recorder = Recorder(Graph(), memory, kinds)
        small = one_of_each(model, kinds, recorder)
        arrays, first = [], 0
        for shape in shapes(small):
            arrays.append(recorder.graph.inputs(prod(shape), first).reshape(shape))
            first += prod(shape)
        result = np.asarray(algorithm(small, *arrays), dtype=object)
        shared = memory.read | memory.written
        memory.layout = {k: layout_of(values) for k, values in recorder.seen.items() if k in shared}
        memory.zero = {k for k in memory.written if all(recorder.begins_with.get(k, [False]))}
        if before == memory.state():
            break
    else:
        raise NotRollableError("what it keeps in memory does not settle")
    return Assembly(model, small, recorder, names, shapes, output).rolled(result)
