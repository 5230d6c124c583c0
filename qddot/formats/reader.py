"""What readers of XML formats share: messages that name the file and the line, tables by name, short excerpts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from qddot.errors import FileError, message
from qddot.formats.xml import Element
from qddot.mechanism.builder import Builder

MAX_SHOWN_CHARS = 60  # of a stranger's text in a message


@dataclass
class ElementReader:
    """A file on its way into a Builder."""

    file: str
    builder: Builder

    def where(self, e: Element) -> str:
        """The file and line of an element."""
        return f"{self.file}:{e.line}"

    def fail(self, e: Element, element: str, problem: str, fix: str) -> NoReturn:
        """Refuses the file."""
        raise FileError(message(self.where(e), element, problem, fix))

    def find(self, severity: str, e: Element, element: str, problem: str, fix: str) -> None:
        """Reports a finding."""
        self.builder.find(severity, self.where(e), element, problem, fix)

    def name_of(self, e: Element, owner: str) -> str:
        """The checked name of a link, joint or frame."""
        raise NotImplementedError

    def named(self, parent: Element, tag: str) -> dict[str, Element]:
        """The elements with this tag inside another, by name."""
        table: dict[str, Element] = {}
        for e in parent.children:
            if e.tag == tag:
                name = self.name_of(e, tag)
                if name in table:
                    problem = f"the name is used twice (first at {self.where(table[name])})"
                    self.fail(e, f"{tag} {name!r}", problem, "rename one")
                table[name] = e
        return table


def short(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "…"


def shown(text: str) -> str:
    """The beginning of a text, in quotes."""
    return repr(short(text))
