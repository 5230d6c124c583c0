"""What objects look like in notebooks: small pieces of HTML without scripts. Whatever comes from a file is escaped.

Text becomes HTML only here: a `Markup` is HTML already, and every other value is escaped where it is put into one.
"""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.errors import printable

Array = NDArray[Any]

_MAX_NAME_CHARS, MAX_TEXT_CHARS = 200, 1500  # of a name, and of a message
_SPARK_WIDTH, _SPARK_HEIGHT, _SPARK_POINTS, _SPARK_LINES = 160, 28, 120, 16
_STYLE = """<style>
.qddot{font:13px/1.45 system-ui,sans-serif;max-width:100%}
.qddot .title{font-weight:600;font-size:14px}
.qddot .note{opacity:.7}
.qddot .scroll{max-height:460px;overflow:auto;margin:6px 0}
.qddot table{border-collapse:collapse;margin:2px 0 8px}
.qddot th,.qddot td{padding:1px 10px 1px 0;text-align:left;vertical-align:top;border:0;background:none;max-width:560px}
.qddot th{white-space:nowrap;font-weight:500;opacity:.65;border-bottom:1px solid rgba(128,128,128,.4)}
.qddot td.n,.qddot th.n{white-space:nowrap;text-align:right;font-variant-numeric:tabular-nums}
.qddot pre{margin:0;font:12px/1.35 ui-monospace,monospace;background:none;color:inherit}
.qddot summary{cursor:pointer}
.qddot .bad{color:#c0392b;font-weight:600}
.qddot .good{color:#2e8b57}
.qddot svg{display:block}
</style>"""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(value: object, most: int = _MAX_NAME_CHARS) -> Markup:
    """A value as text in HTML: markup characters as entities, control characters as escapes, cut after so many."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    if len(text) > most:
        text = f"{text[: most - 1]}…"
    return Markup(html.escape(printable(text)))


def number(x: Any) -> Markup:
    """A number of five digits, to be aligned on the right; nothing for None."""
    if x is None:
        return _Number("")
    value = float(x) + 0.0
    text = f"{value:.5g}" if math.isfinite(value) else {math.inf: "∞", -math.inf: "-∞"}.get(value, "NaN")
    return _Number(text)


class _Number(Markup):
    __slots__ = ()


def matrix(x: Array) -> Markup:
    """Rows of numbers in columns."""
    rows = np.atleast_2d(x) if np.ndim(x) else np.reshape(x, (1, 1))
    return Markup("<pre>" + "\n".join(" ".join(f"{v:>11.5g}" for v in row + 0.0) for row in rows) + "</pre>")


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> Markup:
    """A table; cells that `number` made are aligned on the right, with their heads."""
    rows = [list(row) for row in rows]
    right = [bool(rows) and k < len(rows[0]) and isinstance(rows[0][k], _Number) for k in range(len(head))]

    def cell(tag: str, value: object, is_right: bool) -> str:
        return f"<{tag}{' class=n' if is_right else ''}>{escaped(value)}</{tag}>"

    top = "".join(cell("th", x, r) for x, r in zip(head, right, strict=True))
    body = "".join(f"<tr>{''.join(cell('td', x, isinstance(x, _Number)) for x in row)}</tr>" for row in rows)
    return Markup(f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>")


def paragraph(text: object, of_class: str = "note") -> Markup:
    """A message, in whole."""
    return Markup(f"<div class={of_class}>{escaped(text, MAX_TEXT_CHARS)}</div>")


def section(title: object, body: Markup, is_open: bool = True) -> Markup:
    """A part that can be folded."""
    return Markup(f"<details{' open' if is_open else ''}><summary>{escaped(title)}</summary>{body}</details>")


def card(title: object, note: object, *parts: Markup) -> str:
    """The whole of what a cell shows: a title, a line below it, and the parts, which scroll if they are long."""
    below = f"<div class=note>{escaped(note)}</div>" if note else ""
    body = f"<div class=scroll>{''.join(parts)}</div>" if parts else ""
    return f"<div class=qddot>{_STYLE}<div class=title>{escaped(title)}</div>{below}{body}</div>"


def sparkline(y: Array) -> Markup:
    """A curve without axes, as SVG; rows of a matrix are curves of one picture. Values that are not finite are left out."""
    rows = np.atleast_2d(y)
    rows = rows[np.ix_(_some(len(rows), _SPARK_LINES), _some(rows.shape[-1], _SPARK_POINTS))].astype(float)
    finite = rows[np.isfinite(rows)]
    if not finite.size:
        return escaped("no finite values")
    low, span = float(finite.min()), float(np.ptp(finite))
    opacity = 1.0 if len(rows) == 1 else 0.45
    paths = "".join(
        f"<path d='{_path(row, low, span)}' fill=none stroke='#4287c8' stroke-width=1.3 stroke-opacity={opacity} />"
        for row in rows
    )
    size = f"width={_SPARK_WIDTH} height={_SPARK_HEIGHT} viewBox='0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}'"
    return Markup(f"<svg {size} role=img>{paths}</svg>")


def _some(count: int, most: int) -> Array:
    """At most so many indices, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, max(count - 1, 0), min(count, most)).round().astype(int))


def _path(y: Array, low: float, span: float) -> str:
    with np.errstate(all="ignore"):
        share = (y - low) / span if span > 0.0 else np.where(np.isfinite(y), 0.5, np.nan)
    parts, draws = [], False
    for k, s in enumerate(share.tolist()):
        if not math.isfinite(s):
            draws = False
            continue
        x, height = _SPARK_WIDTH * k / max(1, len(y) - 1), 2.0 + (_SPARK_HEIGHT - 4.0) * (1.0 - s)
        parts.append(f"{'L' if draws else 'M'}{x:.1f},{height:.1f}")
        draws = True
    return "".join(parts)


def frame(page: str | None = None, *, url: str = "", height: int = 480) -> Markup:
    """A page within a cell: one that is served at `url`, or the text of one, which is saved with the notebook."""
    source = f'src="{html.escape(url)}"' if page is None else f'srcdoc="{html.escape(page)}"'
    sandbox = "" if page is None else ' sandbox="allow-scripts"'
    style = "border:1px solid rgba(128,128,128,.4);border-radius:4px"
    return Markup(f'<iframe {source}{sandbox} width="100%" height="{int(height)}" style="{style}"></iframe>')


def is_notebook() -> bool:
    """Whether this process answers to a notebook rather than to a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
