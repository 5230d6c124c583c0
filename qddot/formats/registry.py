"""Which format a file has, its reader and its writer. A format registers itself: a new one is one file in this folder."""

from __future__ import annotations

import gzip
import importlib
import pkgutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from qddot.errors import FileError, Finding, InputError, message
from qddot.formats.atomic import write_bytes
from qddot.formats.files import plain_name
from qddot.mechanism.model import Model

HEAD_BYTES = 65536  # of a file that are searched for a mark


@dataclass(frozen=True)
class ReadOptions:
    """What a user may say about any file; a reader takes what its format knows."""

    floating_base: bool = False
    package_dirs: Sequence[str] = ()
    snap: float = 0.0
    own_joints: Mapping[str, Callable[..., Any]] | None = None
    trust: bool = False
    xacro_arguments: Mapping[str, str] = field(default_factory=dict)


Reader = Callable[[Path, ReadOptions], Model]


class Written(NamedTuple):
    """The text of a file, and what of the model it does not hold."""

    text: str
    findings: tuple[Finding, ...] = ()


Writer = Callable[[Model, bool], Written]  # of a model and whether it may leave out what the format cannot hold


class Format(NamedTuple):
    """A format: its file endings, the marks in the head of its files where the ending says nothing, and its reader."""

    name: str
    read: Reader
    endings: tuple[str, ...]
    marks: tuple[bytes, ...] = ()
    rank: int = 0  # a file may have marks of several formats: the lowest rank wins
    has_floating_base: bool = False  # whether `floating_base` means something to it


_FORMATS: dict[str, Format] = {}
_WRITERS: dict[str, Writer] = {}  # by the file's ending


def register(name: str, *endings: str, **facts: Any) -> Callable[[Reader], Reader]:
    """Registers the decorated reader for files with these endings; `facts` are further fields of `Format`."""

    def add(reader: Reader) -> Reader:
        _FORMATS[name] = Format(name, reader, endings, **facts)
        return reader

    return add


def register_writer(*endings: str) -> Callable[[Writer], Writer]:
    """Registers the decorated writer for files with these endings."""

    def add(writer: Writer) -> Writer:
        _WRITERS.update(dict.fromkeys(endings, writer))
        return writer

    return add


def write(model: Model, path: Path, lossy: bool = False) -> tuple[Finding, ...]:
    """Writes a model in the format of the file's ending; `.gz` after it compresses. Gives what the file does not hold.

    What the format cannot hold and the dynamics depend on is an error; with `lossy` it is left out, and is a finding.
    The file is written in one step: a reader sees the old one or the new one, never a part.
    """
    _import_formats()
    ending = Path(plain_name(path.name)).suffix.lower()
    if ending not in _WRITERS:
        problem = f"qddot writes no files that end in {ending!r}" if ending else "its name has no ending"
        raise FileError(message(str(path), "file", problem, f"give a file that ends in {', '.join(sorted(_WRITERS))}"))
    written = _WRITERS[ending](model, lossy)
    data = written.text.encode()
    if plain_name(path.name) != path.name:
        data = gzip.compress(data, mtime=0)
    write_bytes(path, data)
    return written.findings


def read(path: Path, options: ReadOptions) -> Model:
    """The model in a file of any format."""
    found = format_of(path)
    if options.floating_base and not found.has_floating_base:
        raise no_floating_base(str(path))
    return found.read(path, options)


def no_floating_base(source: str) -> InputError:
    """For a floating base under what says itself what its base is."""
    fix = "leave out floating_base=; this kind of file says itself what its base is"
    return InputError(message(source, "load", "floating_base= is for URDF files", fix))


def format_of(path: Path) -> Format:
    """By the file's ending, and where that says nothing, such as .xml, by the first mark in it."""
    ending = Path(plain_name(path.name)).suffix.lower()
    if len(ending) > 1:  # .urdf is most likely read by urdf.py, and the others need not be imported
        _import_formats(ending[1:])
    for found in _FORMATS.values():
        if ending in found.endings:
            return found
    formats = all_formats()
    for found in formats:
        if ending in found.endings:
            return found
    head = _head(path)
    for found in formats:
        if any(mark in head for mark in found.marks):
            return found
    endings = ", ".join(sorted(e for found in formats for e in found.endings)) + " or .xml, also with .gz after it"
    raise FileError(message(str(path), "file", "it is of no kind that qddot reads", f"give a file that ends in {endings}"))


def all_formats() -> list[Format]:
    """Every format, in the order in which marks are looked for."""
    _import_formats()
    return sorted(_FORMATS.values(), key=lambda found: (found.rank, found.name))


def _import_formats(only: str = "") -> None:
    """Imports the modules of this folder, or the one of this name, so that formats among them are registered."""
    import qddot.formats

    for module in pkgutil.iter_modules(qddot.formats.__path__):
        if only in ("", module.name):
            importlib.import_module(f"qddot.formats.{module.name}")


def _head(path: Path) -> bytes:
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            stream: Any = file if plain_name(path.name) == path.name else gzip.GzipFile(fileobj=file)
            return bytes(stream.read(HEAD_BYTES)).replace(b"\0", b"")  # of UTF-16
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return b""
    except OSError as error:
        problem = f"it cannot be read: {error.strerror or error}"
        raise FileError(message(str(path), "file", problem, "check the path and its permissions")) from None
