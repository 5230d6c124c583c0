"""Packed results: the unique non-constant entries.

A matrix of a robot with branches is mostly zeros, and a symmetric one has everything else twice. A batch of them is bound
by memory bandwidth. The trace tells which entries are constant and which are equal for all states: a packed kernel omits
them, and its layout says where the numbers belong. They are in the order in which they are computed, so that they can be
written on the way (`streamed_output`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import InputError

if TYPE_CHECKING:  # a kernel from the cache is not traced
    from qddot.compiler.ir.program import Program

SHORT_RESULT_MAX_NUMBERS = 32  # a longer result shares columns and is written tile by tile
ROW_PADDING_NUMBERS = 8  # a longer packed result is padded to a multiple: all rows have the same cache-line alignment


@dataclass(frozen=True)
class Layout:
    """Where the numbers of a packed result belong: `places` has the shape of the full result.

    It holds the index of each entry in the packed result, or -1 where the entry is the same for all states; these are in
    `constants`, which is 0 elsewhere. Packed numbers are in the order in which they are computed. There are `size` of them:
    more than 32 are filled up with zeros to a multiple of eight.
    """

    places: NDArray[np.int64]
    constants: NDArray[np.float64]
    size: int

    def unpack(self, packed: Any) -> NDArray[Any]:
        """The full result of one state, or of a batch of states."""
        numbers = np.asarray(packed)
        if numbers.shape[-1:] != (self.size,):
            raise InputError(f"a packed result has shape {numbers.shape}; its last axis must have {self.size} numbers")
        batch = numbers.shape[:-1]
        full: NDArray[Any] = np.empty((*batch, *self.places.shape), numbers.dtype)
        full[...] = self.constants
        vary = self.places >= 0
        full[..., vary] = numbers[..., self.places[vary]]
        return full

    def to_json(self) -> list[Any]:
        """What `from_json` makes it of again."""
        return [list(self.places.shape), self.places.ravel().tolist(), self.constants.ravel().tolist(), self.size]

    @staticmethod
    def from_json(facts: list[Any]) -> Layout:
        """A layout from the lists of `to_json`."""
        shape, places, constants, size = facts
        layout = Layout(np.array(places, np.int64).reshape(shape), np.array(constants, np.float64).reshape(shape), size)
        if not isinstance(size, int) or layout.places.max(initial=-1) >= size or layout.places.min(initial=-1) < -1:
            raise ValueError(f"a layout of {size!r} numbers has places beyond them")
        return layout


def layout_of(program: Program, shape: tuple[int, ...]) -> Layout:
    """The layout of a program's outputs, which make a result of this shape."""
    graph, when = program.graph, {n: k for k, n in enumerate(program.body)}

    def computed(n: int) -> int:
        """When a number is computed; inputs and their sines and cosines, which no operation computes, come last."""
        of_input = graph.ops[n] in ("sin", "cos") and graph.ops[graph.args[n][0]] == "input"
        return len(when) if of_input else when.get(n, len(when))

    fixed = [graph.ops[n] == "const" for n in program.outputs]
    varying = dict.fromkeys(n for n, c in zip(program.outputs, fixed, strict=True) if not c)
    place = {n: k for k, n in enumerate(sorted(varying, key=computed))}
    constants = [graph.args[n][0] if c else 0.0 for n, c in zip(program.outputs, fixed, strict=True)]
    size = (
        len(place)
        if len(place) <= SHORT_RESULT_MAX_NUMBERS
        else -(-len(place) // ROW_PADDING_NUMBERS) * ROW_PADDING_NUMBERS
    )
    return Layout.from_json([shape, [place.get(n, -1) for n in program.outputs], constants, size])


def with_layout(program: Program, layout: Layout) -> Program:
    """The same program with the outputs of the layout."""
    first = dict(zip(layout.places.ravel().tolist()[::-1], program.outputs[::-1], strict=True))
    zero = program.graph.const(0.0)
    return replace(program, outputs=[first.get(k, zero) for k in range(layout.size)])
