"""A row of the catalogue: what a function takes, the shape of its result, and the formulations that compute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from qddot.compiler.runtime.kernel import Shape
from qddot.mechanism.model import Model

Algorithm = Callable[..., Any]


class Function(NamedTuple):
    """Inputs by name, the shape of the result, and the formulations that compute it, the paper's own first.

    `needs` names what else its kernel is made for ("frame", "prescribed", "by", "rows"); `auto` lists the formulations of
    which the cheapest is compiled. `simplify` is the rewriting of the model that its result does not notice. Axes of the
    result that are `of_rows` have an entry for each row of a frame's twist that is chosen.
    """

    inputs: tuple[str, ...]
    output: Callable[[Model], Shape]
    methods: Mapping[str, Algorithm]
    needs: tuple[str, ...] = ()
    auto: tuple[str, ...] = ()
    simplify: Callable[[Model], Model] = lambda model: model
    of_rows: tuple[int, ...] = ()

    @property
    def is_task(self) -> bool:
        """Whether its rows are some of a frame's twist; those of other functions are rows of constraints."""
        return {"frame", "rows"} <= {*self.needs}

    def shape(self, model: Model, needs: Mapping[str, Any]) -> Shape:
        """Of the result, for what else the kernel is made for."""
        rows = needs.get("rows", range(6))
        return tuple(len(rows) if k in self.of_rows else n for k, n in enumerate(self.output(model)))
