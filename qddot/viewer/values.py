"""The values of an algorithm beside the robot: a table of one symbol, and arrows on the links for spatial vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.viewer.protocols import ShownTrace
from qddot.viewer.scene import Scene

Array = NDArray[Any]

_ANGULAR, _LINEAR = (200, 30, 10), (0, 110, 30)
_LONGEST = 0.35  # of an arrow, by the size of the robot
_STYLE = (
    "<style>table{font-size:11px;border-collapse:collapse}td,th{padding:0 5px;text-align:right;white-space:nowrap}</style>"
)


class ValuesTab:
    """The tab "Values": which symbol, its table, and two arrows a link, for the angular and the linear part."""

    def __init__(self, server: Any, scene: Scene, trace: ShownTrace) -> None:
        self.scene, self.trace = scene, trace
        gui = server.gui
        names = tuple(trace.values)
        vectors = [name for name in names if self._vectors(name)]
        self.choice = gui.add_dropdown("Symbol", names, initial_value=(*vectors, *names)[0])
        self.choice.on_update(lambda event: self.update())
        self.arrows_shown = gui.add_checkbox("Arrows", initial_value=True, hint="red: ω or moment; green: v or force")
        self.arrows_shown.on_update(lambda event: self.update())
        self.table = gui.add_html("")
        gui.add_markdown("*These are the values at the traced state; they do not follow the sliders.*")
        thick = 0.007 * scene.size
        sizes = {"shaft_radius": 1.5 * thick, "head_radius": 3.5 * thick, "head_length": 7 * thick}
        nothing = np.zeros((1, 2, 3))
        self.arrows = {
            (i, part): server.scene.add_arrows(f"/robot/{i}/value_{part}", nothing, color, visible=False, **sizes)
            for i in range(1, len(scene.model.parent))
            for part, color in (("angular", _ANGULAR), ("linear", _LINEAR))
        }
        self.update()

    def update(self) -> None:
        """Shows the symbol that is chosen."""
        name = str(self.choice.value)
        self.table.content = (
            f"<div style='overflow:auto;font-size:12px;padding:0 6px'>{_STYLE}{self.trace.html_of(name)}</div>"
        )
        vectors = self._vectors(name) if self.arrows_shown.value else {}
        parts = {"angular": slice(0, 3), "linear": slice(3, 6)}
        longest = {
            part: max((float(np.linalg.norm(x[some])) for x in vectors.values()), default=0.0)
            for part, some in parts.items()
        }
        for (i, part), handle in self.arrows.items():
            value = vectors.get(self.scene.model.link_names[i])
            way = np.zeros(3) if value is None else value[parts[part]]
            shown = longest[part] > 0.0 and float(np.linalg.norm(way)) > 0.02 * longest[part]
            if shown:
                scale = _LONGEST * self.scene.size / longest[part]
                handle.points = np.array([[np.zeros(3), scale * way]], dtype=np.float32)
            handle.visible = shown

    def _vectors(self, name: str) -> dict[str, Array]:
        """The values of a symbol that is a spatial vector of each link, in the link's own frame; nothing for others."""
        values = self.trace.values[name]
        fits = all(isinstance(x, np.ndarray) and x.shape == (6,) and np.isfinite(x).all() for x in values.values())
        return dict(values) if fits else {}
