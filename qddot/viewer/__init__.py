"""A robot in the browser: `qddot view FILE` and `trajectory.show()` (extra `[view]`), and `trajectory.save_html(...)`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qddot.errors import RecordingError, printable

if TYPE_CHECKING:
    from qddot.viewer.app import Viewer
    from qddot.viewer.protocols import ShownRobot, ShownTrajectory

__all__ = ["save_html", "show"]


def show(
    robot: ShownRobot,
    trajectory: ShownTrajectory | None = None,
    *,
    q: Any = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    browser: bool = True,
    block: bool | None = None,
) -> Viewer:
    """Opens the viewer. `block` waits until Ctrl-C; None: in a script, and not where one goes on typing."""
    from qddot.viewer.app import Viewer

    viewer = Viewer(robot, trajectory, q=q, host=host, port=port)
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
