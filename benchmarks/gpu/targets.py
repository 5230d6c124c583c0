"""What is aimed at on an H200, and GRiD's figures, with which runs are compared."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

GRID = Path(__file__).parents[1] / "recorded" / "gpu" / "grid.csv"
CARD = "H200"  # that the figures are of

INVERSE, FORWARD, MASS = "inverse_dynamics", "forward_dynamics", "mass_matrix"
D_INVERSE, D_FORWARD = "inverse_dynamics_derivatives", "forward_dynamics_derivatives"

# 1e9 states a second in float32, arrays in rows, the largest batch; the last two rows count steps of time.
FAST = {
    "panda7": {INVERSE: 28.0, FORWARD: 21.0, MASS: 22.0, D_INVERSE: 4.8, D_FORWARD: 3.3},
    "talos-fixed": {INVERSE: 5.5, FORWARD: 2.2, MASS: 4.2, D_INVERSE: 0.7, D_FORWARD: 0.2},
    "g1-floating": {INVERSE: 4.8, FORWARD: 1.8, D_INVERSE: 0.35, D_FORWARD: 0.1},
}
ROLLOUTS = {("panda7", "rk4"): 5.0, ("panda7", "semi_implicit_euler"): 28.0, ("g1-floating", "semi_implicit_euler"): 1.5}
# Nanoseconds a state in a batch of 256, by GRiD.
SMALL_BATCH = 256
SMALL = {
    "panda7": {INVERSE: 22.7, FORWARD: 44.9, D_INVERSE: 39.5, D_FORWARD: 67.4},
    "talos-fixed": {INVERSE: 42.5, FORWARD: 88.0, D_INVERSE: 110.0, D_FORWARD: 345.0},
}
CALL_SECONDS = 12e-6
DOUBLE_SHARE = 0.5  # of the rate in float32, where that is bound by memory
_BOUND_BY_MEMORY = 0.5  # share of the bandwidth of copies from which on a kernel counts as such


class Verdict(NamedTuple):
    """A target, and whether it is met; None: it was not measured."""

    what: str
    wanted: str
    found: str
    met: bool | None


def grid_figures() -> dict[tuple[str, str, int], float]:
    """GRiD's nanoseconds a state, by robot, function and batch."""
    lines = [line for line in GRID.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {(r["robot"], r["function"], int(r["batch"])): float(r["ns_per_state"]) for r in csv.DictReader(lines)}


def verdicts(data: dict[str, Any]) -> list[Verdict]:
    """Of a run."""
    return [*_fast(data), *_rollouts(data), *_small(data), *_calls(data), *_doubles(data)]


def found_rows(data: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    """The rows of a run that were measured and have these values."""
    return [r for r in data["rows"] if "seconds" in r and all(r[k] == x for k, x in wanted.items())]


def _largest(data: dict[str, Any], **wanted: Any) -> dict[str, Any] | None:
    found = [r for r in found_rows(data, layout="row", **wanted) if r["batch"] >= 1 << 18]
    return max(found, key=lambda r: r["batch"], default=None)


def _fast(data: dict[str, Any]) -> Iterator[Verdict]:
    for robot, own in FAST.items():
        for function, least in own.items():
            row = _largest(data, robot=robot, function=function, dtype="float32")
            rate = row["states_per_second"] / 1e9 if row else 0.0
            yield _judged(f"{robot} {function}, 1e9/s", f"≥ {least:g}", f"{rate:.2f}", rate >= least, row)


def _judged(what: str, wanted: str, found: str, met: bool, row: dict[str, Any] | None) -> Verdict:
    """Of a row, or of none. A wrong result is no result, however fast."""
    if row is None:
        return Verdict(what, wanted, "–", None)
    return Verdict(what, wanted, found, met) if row["agrees"] else Verdict(what, wanted, f"{found}, wrong results", False)


def _rollouts(data: dict[str, Any]) -> Iterator[Verdict]:
    """Rows of steps of time, {"robot", "integrator", "steps_per_second"}, once a run has them (under "rollouts")."""
    known = {(r["robot"], r["integrator"]): r["steps_per_second"] / 1e9 for r in data.get("rollouts", ()) if "seconds" in r}
    for key, least in ROLLOUTS.items():
        rate = known.get(key)
        found = "–" if rate is None else f"{rate:.2f}"
        yield Verdict(f"{' '.join(key)} steps, 1e9/s", f"≥ {least:g}", found, None if rate is None else rate >= least)


def _small(data: dict[str, Any]) -> Iterator[Verdict]:
    for robot, own in SMALL.items():
        for function, most in own.items():
            rows = found_rows(data, robot=robot, function=function, dtype="float32", layout="row", batch=SMALL_BATCH)
            ns = 1e9 * rows[0]["seconds"] / SMALL_BATCH if rows else 0.0
            what = f"{robot} {function}, batch {SMALL_BATCH}, ns"
            yield _judged(what, f"≤ {most:g}", f"{ns:.1f}", ns <= most, rows[0] if rows else None)


def _calls(data: dict[str, Any]) -> Iterator[Verdict]:
    known = [c for c in data["calls"] if "seconds" in c]
    for name in ("torch", "cupy"):
        seconds = min((c["seconds"] for c in known if c["arrays"] == name), default=None)
        found = "–" if seconds is None else f"{1e6 * seconds:.1f}"
        met = None if seconds is None else seconds <= CALL_SECONDS
        yield Verdict(f"one call from Python, {name}, µs", f"≤ {1e6 * CALL_SECONDS:g}", found, met)


def _doubles(data: dict[str, Any]) -> Iterator[Verdict]:
    """Half of the rate of float32 where memory bounds, and the CPU's bits."""
    pairs = sorted({(r["robot"], r["function"]) for r in found_rows(data, dtype="float64")})
    for robot, function in pairs:
        own = {"robot": robot, "function": function}
        single, double = _largest(data, dtype="float32", **own), _largest(data, dtype="float64", **own)
        if single and double and single["copy_share"] >= _BOUND_BY_MEMORY:
            share = double["states_per_second"] / single["states_per_second"]
            what = f"{robot} {function}, float64 over float32"
            yield Verdict(what, f"≥ {DOUBLE_SHARE:g}", f"{share:.2f}", share >= DOUBLE_SHARE)
        rows = found_rows(data, dtype="float64", **own)
        other = [r for r in rows if not r["bits_equal"]]
        found = f"{len(rows) - len(other)} of {len(rows)} rows"
        yield Verdict(f"{robot} {function}, float64: bits of the CPU", "equal", found, not other)
