"""The viewer's controls: sliders for joints, a clock for trajectories, what is shown, and curves that grow with time."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot import notebook
from qddot.errors import InputError, extra, printable
from qddot.mechanism.array_axes import columns
from qddot.mechanism.model import Model
from qddot.viewer.curves import COLORS, diagrams
from qddot.viewer.protocols import ShownRobot, ShownTrace, ShownTrajectory
from qddot.viewer.scene import Scene
from qddot.viewer.stage import LAYERS, some_of
from qddot.viewer.values import ValuesTab

Array = NDArray[Any]

FRAMES_A_SECOND, _CURVE_UPDATES = 30.0, 8.0
_SPEEDS = ("0.1", "0.25", "0.5", "1", "2", "4")


@contextmanager
def silent() -> Iterator[None]:
    """Without what viser prints when it starts and stops: the caller says where the page is."""
    console: Any = getattr(sys.modules.get("rich"), "get_console", lambda: None)()  # which displays it, in a notebook
    before = getattr(console, "quiet", False)
    with redirect_stdout(io.StringIO()):
        try:
            if console is not None:
                console.quiet = True
            yield
        finally:
            if console is not None:
                console.quiet = before


class Viewer:
    """A robot in the browser, with a trajectory or with sliders alone. `url` is where; `close()` ends it."""

    def __init__(
        self,
        robot: ShownRobot,
        trajectory: ShownTrajectory | None = None,
        *,
        q: Any = None,
        trace: ShownTrace | None = None,
        host: str = "127.0.0.1",
        port: int = 8080,
    ) -> None:
        viser = extra("viser", "view", "the viewer")
        if trajectory is not None and trajectory.batch:
            raise InputError(f"the viewer shows one simulation, and this is a batch of {trajectory.batch}: take .sample(k)")
        self.robot, self.trajectory = robot, trajectory
        self.q = np.array(trajectory.q[0] if trajectory is not None else robot.neutral() if q is None else q, dtype=float)
        if trajectory is None and robot.model.is_constrained:
            self.q = robot.close_loops(self.q)[0]
        with silent():
            self.server = viser.ViserServer(host=host, port=port, label=printable(f"qddot: {robot.name}"), verbose=False)
        self.server.gui.main_panel.dock_right()
        self.server.gui.configure_theme(show_logo=False, show_share_button=False, control_width="large")
        self.scene = Scene(self.server, robot, self.q[None] if trajectory is None else some_of(trajectory.q))
        self.notes = self.scene.notes
        self.url = f"http://{host}:{self.server.get_port()}"
        self._quiet, self._lock, self._running = False, threading.RLock(), True
        self.time = 0.0 if trajectory is None else float(trajectory.t[0])
        tabs = self.server.gui.add_tab_group()
        if trajectory is not None:
            with tabs.add_tab("Play"):
                self._add_clock()
                self._add_curves()
        if trace is not None:
            with tabs.add_tab("Values"):
                self.values = ValuesTab(self.server, self.scene, trace)
        with tabs.add_tab("Joints"):
            self._add_sliders()
        with tabs.add_tab("Show"):
            self._add_layers()
        if trajectory is not None:
            self._thread = threading.Thread(target=self._play, name="qddot viewer", daemon=True)
            self._thread.start()

    @property
    def _played(self) -> ShownTrajectory:
        assert self.trajectory is not None
        return self.trajectory

    def __repr__(self) -> str:
        return f"<Viewer of {self.robot.name!r} at {self.url}>"

    def _repr_html_(self) -> str:
        """Within a notebook: the page that is served, below the cell."""
        return notebook.frame(url=self.url)

    def close(self) -> None:
        """Stops the server; the page in the browser stays as it was last."""
        self._running = False
        if self.trajectory is not None:
            self._thread.join()
        with silent():
            self.server.stop()

    def wait(self) -> None:
        """Until Ctrl-C."""
        try:
            while True:
                time.sleep(3600.0)
        except KeyboardInterrupt:
            self.close()

    # ---- the configuration

    def set_configuration(self, q: Any) -> None:
        """Shows a configuration, and sets the sliders to it."""
        with self._lock:
            self.q = np.asarray(q, dtype=float)
            self.scene.place(self.q, self.robot.gravity_force(self.q))
            with self._silently():
                for slider, value in zip(self.sliders, self.robot.difference(self._zero, self.q).tolist(), strict=True):
                    slider.value = float(np.clip(value, slider.min, slider.max))

    def _add_sliders(self) -> None:
        """One a degree of freedom, in the tangent space at the neutral configuration: for a hinge, its angle."""
        gui, model, self._zero = self.server.gui, self.robot.model, self.robot.neutral()
        now = self.robot.difference(self._zero, self.q).tolist()
        reset = gui.add_button("Reset")
        self.sliders, names = [], columns(model, "v")
        for i, _ in model.outward():
            slot, joint = model.slots[i], model.joint[i]
            for k in range(joint.nv if model.mimic[i] is None else 0):
                place = slot.v.start + k
                low, high = _range(model, i, k, now[place], self.scene.size)
                hint = f"{'rad' if joint.is_angle[k] else 'm'}, v[{place}]"
                slider = gui.add_slider(
                    printable(names[place].name), low, high, (high - low) / 1000.0, now[place], hint=hint
                )
                slider.on_update(lambda event, place=place: self._moved(place))
                self.sliders.append(slider)
        start = self.q.copy()
        reset.on_click(lambda event: self._by_hand(start))
        self.closing_note = gui.add_markdown("")

    def _moved(self, place: int) -> None:
        """One slider was moved; the others stay where the robot is, which may be beyond their ends."""
        if not self._quiet:
            x = self.robot.difference(self._zero, self.q)
            x[place] = self.sliders[place].value
            self._by_hand(self.robot.integrate(self._zero, x))

    def _by_hand(self, wanted: Array) -> None:
        """Where the sliders say, with loops closed; where they cannot be, everything stays as it was."""
        with self._lock:
            self._go_to(wanted)

    def _go_to(self, wanted: Array) -> None:
        self._stop()
        self.closing_note.content = ""
        if self.robot.model.is_constrained:
            (q,), _ = self.robot.close_loops(wanted[None])  # in a batch, what cannot be closed is no error but NaN
            if np.isnan(q).any():
                self.closing_note.content = "*The loops cannot be closed there.*"
                q = self.q
            self.set_configuration(q)
        else:
            self.q = wanted
            self.scene.place(wanted, self.robot.gravity_force(wanted))

    @contextmanager
    def _silently(self) -> Iterator[None]:
        """While sliders are set by the program, they do not answer."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    # ---- the clock

    def _add_clock(self) -> None:
        gui, t = self.server.gui, self._played.t
        self.playing = True
        self.play_button = gui.add_button("Pause")
        self.play_button.on_click(lambda event: self._toggle())
        self.speed = gui.add_dropdown("Speed", _SPEEDS, initial_value="1")
        begin, end = float(t[0]), float(t[-1] if t[-1] > t[0] else t[0] + 1e-3)
        self.scrubber = gui.add_slider("Time", begin, end, (end - begin) / 1000.0, begin, hint="s")
        self.scrubber.on_update(lambda event: self._scrubbed())
        self.repeat = gui.add_checkbox("Repeat", initial_value=True)

    def _toggle(self) -> None:
        if self.playing:
            self._stop()
            self.set_configuration(self.q)
            self.show_time(self.time)
            return
        if self.time >= self._played.t[-1]:
            self.time = float(self._played.t[0])
        self.playing, self.play_button.label = True, "Pause"

    def _stop(self) -> None:
        if self.trajectory is not None:
            self.playing, self.play_button.label = False, "Play"

    def _scrubbed(self) -> None:
        if not self._quiet:
            self._stop()
            self.show_time(float(self.scrubber.value))

    def show_time(self, t: float) -> None:
        """Shows the state at a time, between the recorded ones if need be."""
        with self._lock:
            x = self._played
            self.time = float(np.clip(t, x.t[0], x.t[-1]))
            at = x.resampled(self.time)
            self.q = at.q[0]
            tau = None if at.tau is None else at.tau[0]
            forces = at.channels.get("f_ext")
            self.scene.place(self.q, tau, None if forces is None else forces[0])
            with self._silently():
                self.scrubber.value = float(np.clip(self.time, self.scrubber.min, self.scrubber.max))

    def _play(self) -> None:
        last, curves = time.monotonic(), 0.0
        while self._running:
            now = time.monotonic()
            if self.playing:
                end = float(self._played.t[-1])
                t = self.time + (now - last) * float(self.speed.value)
                if t >= end and not self.repeat.value:
                    self._stop()
                self.show_time(t if t < end else end if not self.repeat.value else float(self._played.t[0]))
            last = now
            if now - curves > 1.0 / _CURVE_UPDATES:
                self._update_curves()
                curves = now
            time.sleep(max(0.0, 1.0 / FRAMES_A_SECOND - (time.monotonic() - now)))

    # ---- curves

    def _add_curves(self) -> None:
        self._curve_times, found = diagrams(self._played)
        self._curve_shown = -1
        self.curves = [(self._curve(d.title, d.values), list(d.values.values())) for d in found]

    def _curve(self, title: str, values: dict[str, Array]) -> Any:
        t, every = self._curve_times, np.concatenate(list(values.values()))
        low, high = float(np.nanmin(every)), float(np.nanmax(every))
        margin = 0.05 * (high - low) or max(1e-3, 0.05 * abs(high))
        series: list[dict[str, Any]] = [{"label": "t [s]"}]
        series += [{"label": printable(n), "stroke": COLORS[k % len(COLORS)], "width": 1.5} for k, n in enumerate(values)]
        scales = {
            "x": {"time": False, "auto": False, "range": (float(t[0]), float(max(t[-1], t[0] + 1e-3)))},
            "y": {"auto": False, "range": (low - margin, high + margin)},
        }
        data = (t, *values.values())
        return self.server.gui.add_uplot(data, tuple(series), title=title, scales=scales, aspect=1.7)

    def _update_curves(self) -> None:
        """What has been until now."""
        shown = max(2, int(np.searchsorted(self._curve_times, self.time, side="right")))
        if shown != self._curve_shown:
            self._curve_shown = shown
            for handle, values in self.curves:
                handle.data = tuple(np.ascontiguousarray(x[:shown]) for x in (self._curve_times, *values))

    # ---- what is shown

    def _add_layers(self) -> None:
        gui, x = self.server.gui, self.trajectory
        available = {"torques": True, "external forces": x is not None and "f_ext" in x.channels}
        for name in LAYERS:
            if available.get(name, True):
                label = "gravity torques" if name == "torques" and x is None else name
                box = gui.add_checkbox(label.capitalize(), initial_value=False)
                box.on_update(lambda event, name=name: self.scene.show_layer(name, bool(event.target.value)))
        if x is None:
            self.scene.place(self.q, self.robot.gravity_force(self.q))
        for note in self.notes:
            gui.add_markdown(f"⚠ {markdown(note)}")


def _range(model: Model, i: int, k: int, now: float, size: float) -> tuple[float, float]:
    """A slider's ends: the joint's limits where it has them, and room for where it stands."""
    default, limits = np.pi if model.joint[i].is_angle[k] else max(1.0, size), model.limits[i]
    low = limits.lower[k] if np.isfinite(limits.lower[k]) else -default
    high = limits.upper[k] if np.isfinite(limits.upper[k]) else default
    low, high = min(low, now), max(high, now)
    return (float(low), float(high)) if high > low else (float(low), float(low) + 1e-3)


def markdown(text: str) -> str:
    """Text as itself in a page that renders Markdown and raw HTML: all but letters, digits and spaces as references."""
    return "".join(c if c.isascii() and (c.isalnum() or c == " ") else f"&#{ord(c)};" for c in printable(text))
