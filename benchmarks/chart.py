"""The README's chart and table of speed, from figures of `python -m benchmarks.peers --json FILE`.

    python -m benchmarks.chart FILE... -o docs/pictures/performance.svg     one panel a file
    python -m benchmarks.chart FILE... --table                              the same figures as Markdown

Without FILE: the recorded figures of `benchmarks/recorded/`. Bars are ratios of times, Pinocchio C++ over qddot, medians of
the rounds. The SVG is written as text, so the chart needs nothing but Python and is the same from run to run.
"""

import argparse
import json
import math
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

RECORDED = Path(__file__).parent / "recorded"


class Series(NamedTuple):
    """A column of the table: which ratio of which function, and the colour of its bars (none: not drawn)."""

    title: str
    function: str
    ratio: str
    colour: str = ""


SERIES = (
    Series("inverse dynamics", "rnea", "lanes / C++", "#0072b2"),
    Series("forward dynamics", "aba", "lanes / C++", "#56b4e9"),
    Series("mass matrix, packed", "crba", "packed / C++", "#e69f00"),
    Series("∂ forward dynamics, packed", "daba", "packed / C++", "#c8502b"),
    Series("one call from Python", "rnea", "one call / pin"),
)
ROBOTS = {"ur5": "UR5", "panda7": "Panda", "g1-fixed": "G1", "talos-floating": "Talos, floating"}
SIMD = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sse2": "SSE2"}

WIDTH, PLOT, TOP, BOTTOM = 960, 250, 106, 52  # pixels: picture, height of the bars' area, and what is above and below it
LEFT, GAP = 44, 28  # pixels: margin for the scale, space between panels
INK, PALE = "#24292f", "#d8dee4"


class Panel(NamedTuple):
    """One file: the processor it was measured on, and a ratio for each (robot, series)."""

    title: str
    states: int
    dof: dict[str, int]
    ratios: dict[tuple[str, Series], dict[str, float | None]]


def read(path: Path) -> Panel:
    data = json.loads(path.read_text(encoding="utf-8"))
    rows = {(row["robot"], row["function"]): row for row in data["rows"]}
    found = {
        (robot, s): row["ratios"][s.ratio]
        for robot in ROBOTS
        for s in SERIES
        if (row := rows.get((robot, s.function))) and row["ratios"].get(s.ratio)
    }
    if not any(s.colour for _, s in found):
        raise SystemExit(f"{path}: none of {', '.join(ROBOTS)} has a ratio to draw; was the run made with --no-cpp?")
    machine = data["machine"]
    title = f"{machine['cpu']}, {SIMD.get(machine['simd'], machine['simd'])}"
    return Panel(title, data["states"], {robot: row["nv"] for (robot, _), row in rows.items()}, found)


def number(x: float) -> str:
    return f"{x:.1f}" if x < 9.95 else str(int(x + 0.5))


def cell(ratio: dict[str, float | None] | None) -> str:
    if ratio is None:
        return "–"
    if ratio["median"] is None:  # only a range was kept
        return f"{number(ratio['low'])}–{number(ratio['high'])}×"
    return f"{number(ratio['median'])}×"


def table(panel: Panel) -> str:
    lines = ["| robot (DoF) | " + " | ".join(s.title for s in SERIES) + " |", "|---" * (len(SERIES) + 1) + "|"]
    for robot, name in ROBOTS.items():
        if robot in panel.dof:
            cells = (cell(panel.ratios.get((robot, s))) for s in SERIES)
            lines.append(f"| {name} ({panel.dof[robot]}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(x: float, y: float, words: str, size: int = 12, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def rectangle(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def line(x0: float, x1: float, y: float, colour: str) -> str:
    return f'<path d="M{x0:.1f} {y:.1f}H{x1:.1f}" stroke="{colour}"/>'


def bars(panel: Panel, x0: float, width: float, scale: float) -> list[str]:
    """The groups of one panel, a robot each."""
    drawn, base = [s for s in SERIES if s.colour], TOP + PLOT
    robots = [robot for robot in ROBOTS if robot in panel.dof]
    group = width / len(robots)
    step = 0.84 * group / len(drawn)
    out = [text(x0 + width / 2, TOP - 14, panel.title, 14, extra=' font-weight="600"')]
    for i, robot in enumerate(robots):
        left = x0 + i * group + 0.08 * group
        for k, s in enumerate(drawn):
            ratio, x = panel.ratios.get((robot, s)), left + k * step
            height = ratio["median"] * scale if ratio else 0.0
            if ratio:
                out.append(rectangle(x, base - height, step - 2, height, s.colour))
            label = number(ratio["median"]) if ratio else "n/a"
            out.append(text(x + step / 2 - 1, base - max(height, scale) - 4, label, 11))
        out.append(text(x0 + (i + 0.5) * group, base + 18, ROBOTS[robot], 12))
        out.append(text(x0 + (i + 0.5) * group, base + 33, f"{panel.dof[robot]} DoF", 11, extra=' fill="#57606a"'))
    return out


def svg(panels: list[Panel]) -> str:
    most = max(r["median"] for p in panels for (_, s), r in p.ratios.items() if s.colour)
    top = 10 * math.ceil((most + 2) / 10)
    scale, base = PLOT / top, TOP + PLOT
    width = (WIDTH - LEFT - 16 - GAP * (len(panels) - 1)) / len(panels)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {base + BOTTOM}" role="img" '
        f'font-family="system-ui, Segoe UI, Helvetica, Arial, sans-serif" fill="{INK}">',
        "<title>qddot against Pinocchio C++, ratios of times</title>",
        f'<rect width="{WIDTH}" height="{base + BOTTOM}" fill="#ffffff"/>',
        text(LEFT, 26, "Times as fast as Pinocchio C++", 17, "start", ' font-weight="600"'),
        text(WIDTH - 16, 26, f"batch of {panels[0].states} states, one core, float64", 12, "end", ' fill="#57606a"'),
    ]
    x = LEFT
    for s in SERIES:
        if s.colour:
            out.append(rectangle(x, 44, 12, 12, s.colour))
            out.append(text(x + 18, 54, s.title, 12, "start"))
            x += 40 + 7 * len(s.title)
    for level in range(0, top + 1, 10):
        y = base - level * scale
        out.append(text(LEFT - 8, y + 4, f"{level}×", 11, "end", ' fill="#57606a"'))
        out += [line(x0, x0 + width, y, PALE) for x0 in starts(panels, width)]
    for panel, x0 in zip(panels, starts(panels, width), strict=True):
        out += bars(panel, x0, width, scale)
        out.append(f'<path d="M{x0:.1f} {base - scale:.1f}H{x0 + width:.1f}" stroke="{INK}" stroke-dasharray="4 3"/>')
        out.append(line(x0, x0 + width, base, INK))
    out.append(text(WIDTH - 16, base + BOTTOM - 4, "dashed: Pinocchio C++ = 1", 11, "end", ' fill="#57606a"'))
    return "\n".join([*out, "</svg>", ""])


def starts(panels: list[Panel], width: float) -> list[float]:
    return [LEFT + k * (width + GAP) for k in range(len(panels))]


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chart", description=__doc__.split("\n", 1)[0])
    parser.add_argument("files", nargs="*", type=Path, help="of benchmarks.peers --json; otherwise the recorded figures")
    parser.add_argument("-o", "--output", type=Path, help="the SVG file to write")
    parser.add_argument("--table", action="store_true", help="print the figures as Markdown")
    options = parser.parse_args(words)
    if not (options.output or options.table):
        parser.error("say -o FILE.svg, --table, or both")
    panels = [read(path) for path in options.files or sorted(RECORDED.glob("*.json"))]
    if options.output:
        options.output.write_text(svg(panels), encoding="utf-8", newline="\n")
    if options.table:
        print("\n\n".join(f"{panel.title}:\n\n{table(panel)}" for panel in panels))


if __name__ == "__main__":
    main()
