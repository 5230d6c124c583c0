"""A study: one robot or many, the space of what varies, and what is kept of each sample."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from qddot.dynamics.input_checks import count
from qddot.errors import InputError, StudyError, shown, unexpected
from qddot.progress import Progress
from qddot.robot import Robot
from qddot.simulation.arguments import RolloutOptions
from qddot.study import analysis, engines, gradients, luggage, measures, work
from qddot.study import space as spaces
from qddot.study.driver import Driver
from qddot.study.engines import EngineOptions
from qddot.study.gradients import Slopes
from qddot.study.outcome import Failure, Piece
from qddot.study.plan import Plan
from qddot.study.results import Results
from qddot.study.store import Store

if TYPE_CHECKING:
    from qddot.simulation.trajectory import Trajectory

Array = NDArray[Any]
BLOCK = 256  # samples that a user's function is given at a time


class StudyOptions(RolloutOptions, total=False):
    """What may be said to a study besides: the options of a rollout, and how samples are drawn."""

    samples: int | None  # that are drawn, for each given row
    sampling: str  # random, latin, sobol, saltelli
    seed: int
    controls: Any
    record: int  # every how many steps the measures over time see the state
    batch: int  # samples that a function of arrays is given at a time
    retries: int  # of a sample that fails


class RunOptions(EngineOptions, total=False):
    """The options of `Study.run`: those of an engine, and four more."""

    chunk: int  # samples in a piece; chosen by the time that they take
    part: tuple[int, int] | None  # (k, n): the k-th of n parts, counted from 1, into a folder of its own
    retry_failed: bool  # computes samples that have failed once more
    progress: bool | None


class Study:
    """Samples of a space, simulated or computed, with their measures in a folder that survives anything.

    `robot` is a Robot, a list of them (chosen by `"robot"` of the space) or a function of some of the space's values that
    makes one. `space` has names and values: arrays and lists have a row a sample, `Grid` values are crossed with all else,
    distributions and functions of a random generator are drawn. The names are q0, v0, inputs, controls, free parameters
    of the model, and the arguments of a robot's function. `measures` are names and what is measured: a channel, a function
    of (t, q, v), or (reduction, either); or a function of (robot, values) in place of the simulation. docs/studies.md.
    """

    def __init__(
        self,
        robot: Robot | Sequence[Robot] | Callable[..., Any] | None,
        space: Mapping[str, Any],
        measures: Mapping[str, Any] | Callable[..., Any],
        *,
        directory: str | os.PathLike[str],
        dt: float | None = None,
        steps: int | None = None,
        **options: Unpack[StudyOptions],
    ) -> None:
        if luggage.importing_main:
            raise StudyError(
                "a worker has imported this script to find a function in it, and the script begins a study: put that under "
                'if __name__ == "__main__":'
            )
        if extra := options.keys() - StudyOptions.__annotations__.keys():
            raise unexpected("Study", extra.pop(), ("directory", "dt", "steps", *StudyOptions.__annotations__))
        self.directory = Path(directory)
        samples, design = options.pop("samples", None), options.pop("sampling", "random")
        self.space = spaces.made(space, samples, design, options.pop("seed", 0))
        retries = options.pop("retries", 2)
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise InputError(f"retries is {shown(retries)}; give a whole number of zero or more")
        block, every = count(options.pop("batch", BLOCK), "batch"), options.pop("record", 1)
        setups = work.setups(robot, self.space.names)
        first = self.space.values(0, min(len(self.space), 2))
        if callable(measures):
            _only(options, dt, steps)
            self.plan = Plan(self.space, work.Calls(setups, measures, block), retries)
        else:
            if dt is None or steps is None:
                raise InputError("a study of simulations needs dt=… and steps=…")
            own = {name: x[:1] for name, x in first.items() if name in setups.names}
            one, _ = setups.robot({name: x[0] for name, x in own.items()})
            if one is None:
                raise InputError("a study of simulations needs a robot")
            chosen = {"dt": dt, **options}
            what = work.rollouts(setups, measures_of(measures, one), steps, every, chosen, first)
            self.plan = Plan(self.space, what, retries)

    def __len__(self) -> int:
        return len(self.space)

    def __repr__(self) -> str:
        return f"<Study of {len(self):,} samples of {', '.join(self.space.names)} in {str(self.directory)!r}>"

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the results depend on: a folder with another identity is refused."""
        return json.loads(json.dumps({"space": self.space.facts, "work": self.plan.work.facts}, default=_plain))

    @property
    def results(self) -> Results:
        """What is in the folder: a row a sample, NaN where there is none yet."""
        return Results(Store(self.directory), self.space)

    @property
    def failures(self) -> list[Failure]:
        """The samples without a result, in order, and why."""
        return self.results.failures

    def run(self, engine: str = "local", **options: Unpack[RunOptions]) -> Study:
        """Computes what is not there yet, and returns the study.

        `engine`: "local" (processes on this machine), "serial" (this process), "ray", "dask". The results are the same bits
        on every engine, in any number of pieces and interruptions; the same call goes on after one.
        """
        if extra := options.keys() - {*RunOptions.__annotations__, *EngineOptions.__annotations__}:
            raise unexpected("Study.run", extra.pop(), ("engine", *RunOptions.__annotations__))
        chunk, progress = options.pop("chunk", None), options.pop("progress", None)
        if chunk is not None:
            count(chunk, "chunk")
        store, again = self._store(options.pop("part", None)), options.pop("retry_failed", False)
        with store.writing(self.identity), Progress("study", enabled=progress) as line:
            if again:
                store.forget(sorted(store.failures))
            if not store.is_complete:
                with_engine = engines.named(engine, self.plan, options)
                try:
                    Driver(self.plan, store, with_engine, chunk).run(line)
                except KeyboardInterrupt:
                    print(f"\ninterrupted: {store.n_done:,} samples are done; the same call goes on", file=sys.stderr)
                    raise
                finally:
                    try:
                        with_engine.close()
                    finally:
                        store.flush()
            store.finish()
        return self

    def folder(self, part: Any = None) -> Path:
        """Where the results are, or those of the part (k, n)."""
        return self._store(part).directory

    def _store(self, part: Any) -> Store:
        if part is None:
            return Store(self.directory, 0, len(self))
        try:
            k, n = (count(x, "part") for x in part)
        except (TypeError, ValueError):
            raise InputError(f"part is {shown(part)}; give (k, n), the k-th of n parts counted from 1") from None
        blocks, block = -(-len(self) // self.plan.work.block), self.plan.work.block
        if k > n or n > blocks:
            raise InputError(f"part is {shown(part)}; this study can be cut into 1 to {blocks} parts, counted from 1")
        low, high = (min(len(self), blocks * x // n * block) for x in (k - 1, k))
        return Store(self.directory / f"part-{k:05d}-of-{n:05d}", low, high)

    # ---- one sample again

    def values(self, row: int) -> dict[str, Array]:
        """What the space has for one sample."""
        return {name: x[0] for name, x in self.space.values(self._row(row), 1).items()}

    def simulate(self, row: int) -> Trajectory:
        """One sample once more, bit for bit, with every state of it: to be looked at, plotted and played."""
        from qddot.simulation.simulate import facts
        from qddot.simulation.trajectory import Trajectory

        what = self.plan.work
        if not isinstance(what, work.Rollouts):
            raise InputError("this study calls a function of arrays, and simulates nothing; take study.compute(row)")
        values = self.space.values(self._row(row), 1)
        rollout = what.rollout(values)
        q0, v0 = work.starts(rollout.robot, values)  # type: ignore[arg-type]
        _, q, v = rollout.run(rollout.start(q0, v0), what.steps, 1, with_start=True)
        numbers = np.arange(what.steps + 1)
        tau, info = rollout.forces_at(numbers, q, v)[0], {"row": row, "steps": what.steps, **facts(rollout)}
        robot: Any = rollout.robot
        if rollout.free:
            robot = robot.with_parameters({n: x[0] for n, x in zip(rollout.free, rollout.values, strict=True)})
        return Trajectory(robot, rollout.t0 + rollout.dt * numbers, q[0], v[0], tau=tau, info=info)

    def compute(self, row: int) -> dict[str, Array]:
        """The measures of one sample once more, with the same bits."""
        row, block = self._row(row), self.plan.work.block
        low = row // block * block  # of a user's function the whole block
        outcome = self.plan.evaluate(Piece(low, min(block, len(self) - low)))
        if failure := next((f for f in outcome.failures if f.row == row), None):
            raise StudyError(f"sample {row} has no result: {failure.reason}")
        return {name: x[row - low] for name, x in outcome.arrays.items()}

    def _row(self, row: Any) -> int:
        if isinstance(row, bool) or not isinstance(row, int | np.integer) or not 0 <= row < len(self):
            raise InputError(f"row is {shown(row)}; the study has samples 0 to {len(self) - 1}")
        return int(row)

    # ---- derivatives

    def gradients(self, name: str, rows: Sequence[int] | None = None) -> dict[str, Array]:
        """Derivatives of one measured number, "energy" or "tip[2]", with respect to what is varied: (rows, ...) by name.

        Of simulations they are computed here, backwards through the compiled rollout. A function of arrays gives its own,
        as results with names such as "energy.by.q".
        """
        return self._slopes(name, range(len(self)) if rows is None else rows).by

    def gradient_sensitivity(self, name: str, samples: int = 1000) -> analysis.GradientSensitivity:
        """What a measured number depends on, from its derivatives with respect to the drawn numbers at some samples."""
        number = min(count(samples, "samples"), len(self))
        rows = np.unique(np.linspace(0, len(self) - 1, number).astype(int)).tolist()
        found = self._slopes(name, rows)
        return analysis.gradient_sensitivity(self.space, self.space.values_of(rows), found.value, found.by)

    def _slopes(self, name: str, rows: Sequence[int]) -> Slopes:
        rows = [self._row(row) for row in rows]
        what = self.plan.work
        if isinstance(what, work.Rollouts):
            return gradients.of_rollouts(what, self.space.values_of(rows), name)
        return gradients.of_results(self.results, rows, name)

    # ---- looking at it

    def plot(self, *names: str, path: str | os.PathLike[str] | None = None, kind: str = "histogram") -> Any:
        """A figure of the measures; `kind` is histogram, parallel, map, sensitivity or gradients; extra `[view]`."""
        from qddot.study.plots import plot

        return plot(self, names, kind, path)


measures_of = measures.made


def _only(options: Mapping[str, Any], dt: Any, steps: Any) -> None:
    given = [*options, *(name for name, x in (("dt", dt), ("steps", steps)) if x is not None)]
    if given:
        raise InputError(f"{', '.join(given)}: these are for simulations, and this study calls a function of arrays")


def _plain(x: Any) -> Any:
    if isinstance(x, np.ndarray | np.generic):
        return x.tolist()
    return repr(x)
