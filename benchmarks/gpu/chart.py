"""The chart of kernels on a card, from figures of `python -m benchmarks.gpu --json FILE`.

    python -m benchmarks.gpu.chart [FILE] -o docs/pictures/gpu.svg

Without FILE: the newest recorded run (`benchmarks/recorded/gpu/*.json`); nothing is drawn if there is none. States a
second in float32 by batch, arrays in rows; the bars at the right are the roofline: what copies within the card's memory,
or its arithmetic, allow at most.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from benchmarks.chart import INK, PALE, text
from benchmarks.gpu.cases import FUNCTIONS
from benchmarks.gpu.targets import found_rows, grid_figures

RECORDED = Path(__file__).parents[1] / "recorded" / "gpu"
ROBOTS = {
    "panda7": "Panda, 7",
    "talos-fixed": "Talos, fixed, 32",
    "g1-floating": "G1, floating, 35",
    "solo12-floating": "Solo12, floating, 18",
}
COLOURS = dict(zip(FUNCTIONS, ("#0072b2", "#56b4e9", "#e69f00", "#009e73", "#c8502b"), strict=True))
PANEL, PLOT, TOP, LEFT, GAP, ROOF = 208, 250, 106, 52, 14, 12  # pixels; ROOF is the width of the roofline's bars
WIDTH = 960


def recorded() -> Path | None:
    """The newest recorded run."""
    return max(RECORDED.glob("*.json"), key=lambda p: json.loads(p.read_text(encoding="utf-8"))["date"], default=None)


def curves(data: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows of each robot and function, by batch. Wrong results are not drawn."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in sorted(found_rows(data, dtype="float32", layout="row", agrees=True), key=lambda r: r["batch"]):
        if row["robot"] in ROBOTS:
            found.setdefault((row["robot"], row["function"]), []).append(row)
    return found


def svg(data: dict[str, Any]) -> str:
    """The picture."""
    own = curves(data)
    if not own or data.get("rehearsal"):
        raise SystemExit("there is nothing to draw: no right result in float32 that was measured on a card")
    robots = [r for r in ROBOTS if any(r == robot for robot, _ in own)]
    rates = [x for rows in own.values() for r in rows for x in (r["states_per_second"], r["roofline_states_per_second"])]
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))
    batches = [r["batch"] for rows in own.values() for r in rows]
    first, last = math.log2(min(batches)), max(math.log2(max(batches)), math.log2(min(batches)) + 1)
    base = TOP + PLOT

    def y(rate: float) -> float:
        return base - PLOT * (math.log10(rate) - low) / max(1, high - low)

    def x(left: float, batch: int) -> float:
        return left + (PANEL - ROOF - 8) * (math.log2(batch) - first) / (last - first)

    out = _head(data, base)
    for level in range(low, high + 1):
        out.append(text(LEFT - 6, y(10.0**level) + 4, f"1e{level}", 11, "end", ' fill="#57606a"'))
    for k, robot in enumerate(robots):
        left = LEFT + k * (PANEL + GAP)
        out.append(text(left + PANEL / 2, TOP - 12, ROBOTS[robot], 13, extra=' font-weight="600"'))
        out += [_path([(left, y(10.0**n)), (left + PANEL, y(10.0**n))], PALE) for n in range(low, high + 1)]
        for batch in sorted({r["batch"] for (name, _), rows in own.items() if name == robot for r in rows}):
            out.append(text(x(left, batch), base + 16, _power(batch), 10, extra=' fill="#57606a"'))
        for (name, function), rows in own.items():
            if name == robot:
                colour = COLOURS[function]
                out.append(_path([(x(left, r["batch"]), y(r["states_per_second"])) for r in rows], colour, 2))
                roof = y(rows[-1]["roofline_states_per_second"])
                out.append(_path([(left + PANEL - ROOF, roof), (left + PANEL, roof)], colour, 3))
                out += _grid(robot, function, rows, lambda b, left=left: x(left, b), y)
        out.append(_path([(left, base), (left + PANEL, base)], INK))
    note = "bars at the right: roofline; crosses: GRiD on an H200; both axes logarithmic"
    out.append(text(WIDTH - 16, base + 38, note, 11, "end", ' fill="#57606a"'))
    return "\n".join([*out, "</svg>", ""])


def _head(data: dict[str, Any], base: float) -> list[str]:
    height, machine = base + 48, data["machine"]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="system-ui, Segoe UI, Helvetica, Arial, sans-serif" fill="{INK}">',
        "<title>states a second on a graphics card by batch size</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        text(LEFT, 26, "States a second by batch", 17, "start", ' font-weight="600"'),
        text(WIDTH - 16, 26, f"{machine['card']}, float32, {data['date']}", 12, "end", ' fill="#57606a"'),
    ]
    left = LEFT
    for function, own in FUNCTIONS.items():
        out.append(f'<rect x="{left}" y="44" width="12" height="12" fill="{COLOURS[function]}"/>')
        out.append(text(left + 18, 54, own.title, 12, "start"))
        left += 44 + 7 * len(own.title)
    return out


def _path(points: list[tuple[float, float]], colour: str, width: int = 1) -> str:
    if len(points) == 1:
        return f'<circle cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="3" fill="{colour}"/>'
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{line}" stroke="{colour}" stroke-width="{width}" fill="none"/>'


def _grid(robot: str, function: str, rows: list[dict[str, Any]], x: Any, y: Any) -> list[str]:
    """GRiD's figures as crosses, where they are within the picture."""
    known, out = grid_figures(), []
    for batch in (r["batch"] for r in rows):
        if (ns := known.get((robot, function, batch))) is not None:
            a, b = x(batch), y(1e9 / ns)
            if TOP <= b <= TOP + PLOT:
                out.append(f'<path d="M{a - 3:.1f} {b - 3:.1f}l6 6m0 -6l-6 6" stroke="{COLOURS[function]}" fill="none"/>')
    return out


def _power(batch: int) -> str:
    """2^k in the letters of exponents, where it is one."""
    k = batch.bit_length() - 1
    return "2" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(d)] for d in str(k)) if batch == 1 << k else str(batch)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.chart", description=__doc__.split("\n", 1)[0])
    parser.add_argument("file", nargs="?", type=Path, help="of benchmarks.gpu --json; otherwise the newest recorded run")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the SVG file to write")
    options = parser.parse_args(words)
    path = options.file or recorded()
    if path is None:
        raise SystemExit(f"there are no figures in {RECORDED}: record a run of python -m benchmarks.gpu --json there")
    options.output.write_text(svg(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
