"""A small XML front end: a file into a light tree in which every element knows its line.

Files come from strangers, so size, depth and counts are bounded and nothing recurses. Document types are refused, and
with them every trick with entities. Text between tags is kept only where a format asks for it: most put everything into
attributes.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

from qddot.errors import FileError, message
from qddot.formats.files import read_bytes, refuse_if_larger

MAX_BYTES = 64 * 2**20
MAX_DEPTH = 600  # MJCF nests elements as the mechanism nests bodies
MAX_ELEMENTS = 300_000
MAX_ATTRIBUTES = 1_000  # of one element
MAX_VALUE = 2**24  # characters of one attribute

_FIXES = {
    "no element found": "the file is empty or cut off: give a complete one",
    "unclosed token": "the file is cut off in the middle of a tag: complete it",
    "mismatched tag": "close every element with its own name, in the order of opening",
    "duplicate attribute": "remove one of the two",
    "junk after document element": "put everything inside one root element",
    "undefined entity": "write the character itself; only &amp; &lt; &gt; &quot; &apos; are known",
    "XML or text declaration not at start of entity": "remove what stands before <?xml",
    "encoding specified in XML declaration is incorrect": "save the file as UTF-8 and declare that",
}
# One sign, digits with at most one point, an exponent: float() would also take 1_0, nan, inf and other scripts' digits.
# No two parts can match the same digits, so that a long wrong number is refused in linear time.
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
LARGEST = 1e30  # in SI units nothing of a robot is beyond this, and products of a few such numbers stay finite
_NOT_XML = "correct it there, or give a file that is XML"


@dataclass(slots=True)
class Element:
    """One tag: its attributes, the line it starts on, and the elements inside it."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element]
    text: str = ""


def load(source: str | os.PathLike[str], text: str | None = None, keep_text: bool = False) -> tuple[str, Element]:
    """The file's name as messages show it, and its root element. With `text`, nothing is opened.

    With `keep_text` elements have the text that stands right inside of them, without the space around it.
    """
    try:
        file = os.fsdecode(source)
    except TypeError:
        problem = f"the source is a {type(source).__name__}"
        raise FileError(message("", "file", problem, "give a path as a string or pathlib.Path")) from None
    if text is None:
        return file, parse(read_bytes(file, MAX_BYTES), file, keep_text=keep_text)
    # a lone surrogate has no UTF-8; passed on as it is, the parser refuses it and tells the line
    return file, parse(text.encode("utf-8", "surrogatepass"), file, "utf-8", keep_text=keep_text)


def parse(data: bytes, file: str, encoding: str | None = None, *, keep_text: bool = False) -> Element:
    """The root element of a document; `encoding` overrides what the document says of itself."""
    refuse_if_larger(data, MAX_BYTES, file)
    return _Parser(file, encoding, keep_text).root(data)


def or_none(limit: float) -> float:
    """A limit of a joint, infinite where the file gives a number that stands for none."""
    return limit if abs(limit) <= LARGEST else math.copysign(math.inf, limit)


class _Parser:
    """Handlers of expat that build the tree within the limits."""

    def __init__(self, file: str, encoding: str | None, keep_text: bool) -> None:
        self.file, self.keep_text = file, keep_text
        self.expat = expat.ParserCreate(encoding)
        self.open = [Element("", {}, 0, [])]  # the elements around the place that is read; the first is above the root
        self.pieces: dict[int, list[str]] = {}
        self.count = 0

    def root(self, data: bytes) -> Element:
        top, parser = self.open[0], self.expat
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        if self.keep_text:
            parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._doctype
        try:
            parser.Parse(data, True)
        except expat.ExpatError as e:
            raise self._not_xml(e) from None
        except FileError:
            raise
        except (LookupError, ValueError) as e:  # what a codec says that is unknown, or of more than one byte
            fix = "save the file as UTF-8 and declare that"
            raise self._refusal("?xml", f"its encoding cannot be read: {e}", fix) from None
        finally:  # the handlers hold the parser and the tree; without them, both go when the tree is done with
            parser.StartElementHandler = parser.EndElementHandler = parser.StartDoctypeDeclHandler = None
            parser.CharacterDataHandler = None
        return top.children[0]

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if len(self.open) > MAX_DEPTH:
            problem = f"elements are nested more than {MAX_DEPTH} deep"
            raise self._refusal(tag, problem, "give a model of ordinary shape")
        if self.count > MAX_ELEMENTS:
            raise self._refusal(tag, f"there are more than {MAX_ELEMENTS:,} elements", "split or simplify the model")
        if len(attributes) > MAX_ATTRIBUTES:
            raise self._refusal(tag, f"it has {len(attributes):,} attributes", f"give at most {MAX_ATTRIBUTES:,}")
        for name, value in attributes.items():
            if len(value) > MAX_VALUE:
                problem = f"its attribute {name[:100]!r} has {len(value):,} characters"
                raise self._refusal(tag, problem, f"give at most {MAX_VALUE:,}")
        element = Element(tag, attributes, self.expat.CurrentLineNumber, [])
        self.open[-1].children.append(element)
        self.open.append(element)

    def _end(self, tag: str) -> None:
        element = self.open.pop()
        if self.keep_text:
            element.text = "".join(self.pieces.pop(id(element), ())).strip()

    def _characters(self, piece: str) -> None:
        if not piece.isspace() or id(self.open[-1]) in self.pieces:
            self.pieces.setdefault(id(self.open[-1]), []).append(piece)

    def _doctype(self, *_: Any) -> None:
        fix = "remove the DOCTYPE; its entities, if any, have to be written out"
        raise self._refusal("!DOCTYPE", "document types and entities are not read", fix)

    def _refusal(self, tag: str, problem: str, fix: str) -> FileError:
        return FileError(message(f"{self.file}:{self.expat.CurrentLineNumber}", f"<{tag[:100]}>", problem, fix))

    def _not_xml(self, error: expat.ExpatError) -> FileError:
        problem = expat.ErrorString(error.code) or "broken"
        inside = f"<{self.open[-1].tag[:100]}>" if len(self.open) > 1 else "document"
        text = f"not valid XML at column {error.offset + 1}: {problem}"
        return FileError(message(f"{self.file}:{error.lineno}", inside, text, _FIXES.get(problem, _NOT_XML)))
