"""A robot in the browser: `qddot view FILE` and `trajectory.show()` (extra `[view]`), and `trajectory.save_html(...)`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qddot import notebook
from qddot.errors import RecordingError, printable

if TYPE_CHECKING:
    from qddot.viewer.app import Viewer
    from qddot.viewer.protocols import ShownRobot, ShownTrace, ShownTrajectory

__all__ = ["InlinePage", "inline", "save_html", "show"]


def show(
    robot: ShownRobot,
    trajectory: ShownTrajectory | None = None,
    *,
    q: Any = None,
    trace: ShownTrace | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    browser: bool | None = None,
    block: bool | None = None,
) -> Viewer:
    """Opens the viewer, with a trajectory, or at a configuration `q`, with the values of a `trace` there.

    `browser` opens a window; None: not in a notebook, where the viewer is shown below the cell if it is the cell's value.
    `block` waits until Ctrl-C; None: in a script, and not where one goes on typing.
    """
    from qddot.viewer.app import Viewer

    viewer = Viewer(robot, trajectory, q=q, trace=trace, host=host, port=port)
    if browser is None:
        browser = not notebook.is_notebook()
    for note in viewer.notes:
        print(f"note: {note}", file=sys.stderr)
    if browser:
        webbrowser.open(viewer.url)
    if block is None:
        block = not (hasattr(sys, "ps1") or "IPython" in sys.modules)
    print(f"{printable(robot.name)} is shown at {viewer.url}" + ("; Ctrl-C ends it" if block else ""), file=sys.stderr)
    if block:
        viewer.wait()
    return viewer


def save_html(
    trajectory: ShownTrajectory,
    path: str | os.PathLike[str],
    *,
    frames_a_second: float = 30.0,
    layers: Sequence[str] = (),
    title: str | None = None,
) -> Path:
    """Writes a page that needs nothing else, of at most 2 MB: the motion, curves of energy and torques, and a few lines
    about the robot. `layers` are shown beside the links; the `title` is the robot's name if none is given."""
    from qddot.viewer.page import page_of

    page, file = page_of(trajectory, frames_a_second=frames_a_second, layers=layers, title=title), Path(path)
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise RecordingError(f"{file}: it cannot be written: {error.strerror or error}") from None
    return file


class InlinePage:
    """A page that plays a motion, for a cell of a notebook; `html` is its text."""

    def __init__(self, html: str, name: str, height: int) -> None:
        self.html, self.height, self._name = html, height, name

    def __repr__(self) -> str:
        return f"<InlinePage of {self._name!r}: {len(self.html) / 1e6:.1f} MB>"

    def _repr_html_(self) -> str:
        return notebook.frame(self.html, height=self.height)


def inline(trajectory: ShownTrajectory, *, height: int = 480, **options: Any) -> InlinePage:
    """The page of `save_html`, with its options, to be the value of a cell of a notebook."""
    from qddot.viewer.page import page_of

    return InlinePage(page_of(trajectory, **options), trajectory.robot.name, height)
