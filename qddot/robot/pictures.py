"""How a robot shows itself: in a notebook, in the viewer, and by a check of the identities of dynamics on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from qddot import notebook
from qddot.notebook import Markup
from qddot.robot.base import RobotBase

if TYPE_CHECKING:
    from qddot.robot.check_report import CheckReport
    from qddot.viewer.app import Viewer

_MAX_ROWS = 200  # links of a table in a notebook


class PictureMethods(RobotBase):
    """A part of `Robot`: how it is shown."""

    def show(self, q: ArrayLike | None = None, **options: Any) -> Viewer:
        """Opens the viewer at a configuration, with sliders for the joints; extra `[view]`.

        In a notebook it is shown below the cell, elsewhere in the browser. `qddot.viewer.show` has the options.
        """
        from qddot.viewer import show

        return show(self, q=q, **options)  # type: ignore[arg-type]  # Robot has the rest of what a viewer asks for

    def check(self, states: int = 3, seed: int = 0, kernels: bool = True) -> CheckReport:
        """What `qddot check` says: findings of the file, and the identities of dynamics at random states.

        `kernels=False` leaves out that compiled code computes what the algorithms compute.
        """
        from qddot.robot.check_report import check

        return check(self, states, seed, kernels)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        model = self.model
        loops = f", {len(model.loops)} loops" if model.loops else ""
        note = f"{model.n_links} moving links, nq = {self.nq}, nv = {self.nv}{loops}, {float(model.mass):.5g} kg"
        head = ("link", "joint", "kind", "mass, kg", "lower", "upper", "velocity", "effort")
        rows = [self._html_row(i) for i, _ in list(model.outward())[:_MAX_ROWS]]
        parts = [notebook.table(head, rows)]
        if model.n_links > _MAX_ROWS:
            parts.append(notebook.paragraph(f"and {model.n_links - _MAX_ROWS} more links"))
        for loop in model.loops[:_MAX_ROWS]:
            a, b = model.link_names[loop.link_a], model.link_names[loop.link_b]
            parts.append(notebook.paragraph(f"loop {loop.name}: {loop.joint.kind} between {a} and {b}"))
        parts += [notebook.paragraph(f"{f.severity}: {f}") for f in model.findings if f.severity != "note"]
        return notebook.card(f"Robot {self.name}", note, *parts)

    def _html_row(self, i: int) -> list[object]:
        model, limits = self.model, self.model.limits[i]
        kind = model.joint[i].kind
        if (m := model.mimic[i]) is not None:
            kind = f"{kind} = {m.factor:g}·{model.joint_names[m.link]}{m.offset:+g}"
        depth = len(list(model.ancestors(i))) - 1
        link = Markup("&nbsp;" * 4 * (depth - 1) + "└&nbsp;" * bool(depth) + notebook.escaped(model.link_names[i]))
        bounds = [_bound(x) for x in (limits.lower, limits.upper, limits.velocity, limits.effort)]
        return [link, model.joint_names[i], kind, notebook.number(model.inertia[i].m), *bounds]


def _bound(x: Sequence[float]) -> object:
    """A limit of one degree of freedom, or of several that have the same; nothing where there is none."""
    if not any(map(math.isfinite, x)):
        return notebook.number(None)
    return notebook.number(x[0]) if len(set(x)) == 1 else ", ".join(f"{v:g}" for v in x)
