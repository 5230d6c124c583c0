"""From an algorithm to its rolled program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from qddot.compiler.ir.expr import Graph
from qddot.compiler.ir.loop_program import Rolled
from qddot.dynamics.loop_tracing.lowering import Assembly
from qddot.dynamics.loop_tracing.mimic_sums import numbers_of
from qddot.dynamics.loop_tracing.recorded_values import layout_of
from qddot.dynamics.loop_tracing.recorder import Memory, Recorder
from qddot.dynamics.loop_tracing.representative_model import one_of_each
from qddot.errors import NotRollableError
from qddot.mechanism.array_axes import Axes
from qddot.mechanism.link_classes import LinkClass, classify_links
from qddot.mechanism.model import Frame, Model
from qddot.scalars import NotKnownYet

MOST_KINDS = 64
_PASSES = 8  # what is known of memory grows with each; a few are enough
_OF_LINKS = ("inertia", "placement", "f_ext")  # scalars of a link; gravity is of none, all others of a degree of freedom


def links_by_kind(model: Model, needs: Mapping[str, Any], *, of_carriers: bool) -> list[LinkClass]:
    """The kinds of links that a rolled program has code for; see `roll`."""
    distinguished = DistinguishedLinks(model, needs)
    return classify_links(model, _rows(model, distinguished, of_carriers), distinguished.class_key)


def _rows(model: Model, distinguished: DistinguishedLinks, of_carriers: bool) -> list[int]:
    return sorted(distinguished.carriers) if of_carriers else [i for i, _ in model.outward()]


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
    distinguished = DistinguishedLinks(model, needs)
    rows = _rows(model, distinguished, of_carriers)
    kinds = classify_links(model, rows, distinguished.class_key)
    if len(kinds) > MOST_KINDS:
        raise NotRollableError(f"its links are of {len(kinds)} kinds")
    memory = Memory()
    for _ in range(_PASSES):
        before = memory.state()
        recorder = Recorder(Graph(), memory, kinds)
        small = one_of_each(model, kinds, recorder, distinguished.frame)
        arrays, first = [], 0
        for axes in inputs:
            shape = axes(small)
            arrays.append(recorder.graph.inputs(prod(shape), first).reshape(shape))
            first += prod(shape)
        try:
            result = np.asarray(algorithm(small, *arrays, **distinguished.needs_on(small)), dtype=object)
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


class DistinguishedLinks:
    """Links that an algorithm is told of by name or number: each is a kind of its own.

    They come from what a function needs besides arrays: its frame, the DoF that are prescribed, the scalar `by`.
    """

    def __init__(self, model: Model, needs: Mapping[str, Any]) -> None:
        self.model, self.needs = model, needs
        self.frame: Frame | None = model.frame(needs["frame"]) if "frame" in needs else None
        self.carriers = {*model.ancestors(self.frame.link)} if self.frame else set()
        self.prescribed, self.by = {*needs.get("prescribed", ())}, needs.get("by")
        self.link_of_by = 0 if self.by is None else self._link_of(self.by)

    def _link_of(self, by: tuple[Any, ...]) -> int:
        """The link that the scalar belongs to, 0 for none."""
        if by[0] == "gravity":
            return 0
        if by[0] in _OF_LINKS:
            return int(by[1])
        return next(i for i, s in enumerate(self.model.slots) if s.v.start <= by[1] < s.v.stop)

    def class_key(self, i: int) -> Any:
        """What is asked of link i alone: links of one kind are alike in it."""
        of_frame = self.frame is not None and i == self.frame.link
        return self._prescribed(i), i in self.carriers, of_frame, i == self.link_of_by, self.model.mimic[i] is None

    def _prescribed(self, i: int) -> tuple[int, ...]:
        slot = self.model.slots[i].v
        return tuple(k - slot.start for k in range(slot.start, slot.stop) if k in self.prescribed)

    def needs_on(self, small: Model) -> dict[str, Any]:
        """The same needs, said of the model of one link of each kind."""
        needs = dict(self.needs)
        if "prescribed" in needs:
            each = [
                (slot.v.start, self.model.joint_index(x))
                for slot, x in zip(small.slots, small.joint_names, strict=True)
                if x
            ]
            needs["prescribed"] = tuple(start + k for start, i in each for k in self._prescribed(i))
        if self.by is not None and self.link_of_by:
            kind, place, *rest = self.by
            k = small.joint_names.index(self.model.joint_names[self.link_of_by])
            start, other = self.model.slots[self.link_of_by].v.start, small.slots[k].v.start
            needs["by"] = (kind, k if kind in _OF_LINKS else place - start + other, *rest)
        return needs
