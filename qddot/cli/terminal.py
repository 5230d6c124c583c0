"""Terminals and pipes that are not UTF-8, such as cp1252 and ASCII: a character that they lack is spelled out."""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

_HANDLER = "qddot.spelled"
_SPELLED = {
    "²": "^2",
    "³": "^3",
    "⁻": "^-",
    "¹": "1",
    "ᵀ": "^T",
    "½": "1/2",
    "·": "*",
    "×": "x",
    "÷": "/",
    "±": "+/-",
    "−": "-",
    "–": "-",
    "—": "-",
    "…": "...",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "√": "sqrt ",
    "∂": "d",
    "Σ": "sum",
    "λ": "lambda",  # Unicode calls it lamda
    "Λ": "Lambda",
    "µ": "u",
    "°": " deg",
    "\u0307": "_dot",  # the mark on q̇, which is two characters
    "\u0308": "_ddot",
    "Ȧ": "A_dot",
    "Ṁ": "M_dot",
    "Ṡ": "S_dot",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "│": "|",
    "─": "-",
    "├": "|",
    "└": "`",
    "█": "#",
    "░": ".",
}


@contextmanager
def any_encoding() -> Iterator[None]:
    """While it lasts, everything can be printed."""
    codecs.register_error(_HANDLER, _spell_out)
    streams = [s for s in (sys.stdout, sys.stderr) if isinstance(s, io.TextIOWrapper)]
    before = [s.errors for s in streams]
    for stream in streams:
        stream.reconfigure(errors=_HANDLER)
    try:
        yield
    finally:
        for stream, errors in zip(streams, before, strict=True):
            if not stream.closed:
                stream.reconfigure(errors=errors)


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(spelled, error.object[error.start : error.end])), error.end


def spelled(c: str) -> str:
    """A character in ASCII: by its meaning, without its accents, a Greek letter by its name; else as an escape."""
    if c.isascii() or c in _SPELLED:
        return _SPELLED.get(c, c)
    parts = unicodedata.normalize("NFKD", c)
    if parts != c:
        return "".join(spelled(x) for x in parts if not unicodedata.combining(x))
    if unicodedata.combining(c):
        return ""
    script, *_, letter = unicodedata.name(c, "?").split()
    if script == "GREEK":
        return letter.lower() if c.islower() else letter.capitalize()
    return c.encode("unicode_escape").decode("ascii")
