"""Text that came from a file, made harmless for where it is shown: terminals, pages, spreadsheets."""

from __future__ import annotations

import re

_FORMULA = re.compile("'*[=+\\-@\t\r\n＝＋－＠]")


def printable(text: str, keep: str = "") -> str:
    """The text with control characters, bidirectional marks and lone surrogates as escapes such as \\x1b.

    A terminal then shows it and obeys none of it; the characters in `keep` stay, such as line feeds.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


def markdown(text: str) -> str:
    """Text as itself in a page that renders Markdown and raw HTML: all but letters, digits and spaces as references."""
    return "".join(c if c.isascii() and (c.isalnum() or c == " ") else f"&#{ord(c)};" for c in printable(text))


def csv_cell(text: str) -> str:
    """A text cell of a CSV file, quoted where it has to be, that no spreadsheet takes for a formula.

    Text that begins with = + - @, a tab or a line end gets an apostrophe in front, and so does such text that has
    apostrophes there already: a program that reads the file drops one from every cell that `_FORMULA` matches.
    """
    if _FORMULA.match(text):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',;"\t\n\r') else text
