"""What qddot raises, and what it has to say about a model that it accepts.

Every message names the thing, shows the value and says what to do. Errors stop; findings are collected on the model's
way in and kept with the robot.
"""

from __future__ import annotations

import difflib
import importlib
import sys
import types
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

SHOWN_CHARS = 60  # of a value in a message
_NEAR_AMONG, _NEAR_LENGTH = 2000, 100  # names among which near ones are looked for, and characters of each


def outside() -> int:
    """The `stacklevel` at which a warning names the line that called qddot, however deep in it the caller is."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "qddot":
        frame, level = frame.f_back, level + 1
    return level


def printable(text: str, keep: str = "") -> str:
    """The text with control characters, bidirectional marks and lone surrogates as escapes such as \\x1b.

    A terminal then shows it and obeys none of it; the characters in `keep` stay, such as line feeds.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


class QddotError(Exception):
    """The root of everything qddot raises on purpose. Its text may name parts of a file, and is safe to print."""

    def __str__(self) -> str:
        return printable(super().__str__(), keep="\n")


class ModelError(QddotError, ValueError):
    """A mechanism that cannot be: unknown parts, two parents, a negative mass. Names the part and its line."""


class FileError(ModelError):
    """A file that cannot be read as a mechanism."""


class InputError(QddotError, ValueError):
    """A call with arguments of the wrong shape or value."""


class NotTraceableError(InputError, TypeError):
    """A user's function whose operations cannot be recorded, or that does not do the same whenever it is run."""


class SingularMassMatrixError(QddotError, ArithmeticError):
    """Forward dynamics was asked of a mechanism in which some motion moves no mass."""


class NumericalOverflowError(QddotError, OverflowError):
    """Numbers of a model or a state whose result is beyond the range of floating-point numbers."""


class KernelTooLargeError(QddotError):
    """A function of a robot has more operations than straight-line code can sensibly have."""


class FormulationError(InputError):
    """A formulation was asked of a robot that its formulas are not for; names the joint or link."""


class NotRollableError(QddotError):
    """An algorithm, or a robot, that rolled code cannot be made of; says why."""


class RecordingError(QddotError, OSError):
    """A recorded run that cannot be written or read. Says what of it is intact and how to go on."""


class StudyError(QddotError):
    """A study that cannot go on, or whose folder does not fit together; says what to do."""


class ObjectError(QddotError, ValueError):
    """Object code that cannot be loaded: not whole, not for this machine, or with references that lead out of it."""


class DeviceError(QddotError, RuntimeError):
    """The driver of a graphics card refused something; `code` is what it returned."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class MissingExtraError(QddotError, ImportError):
    """A package that is not among qddot's own dependencies; says which extra brings it."""


class UnknownNameError(QddotError, KeyError):
    """A name that the robot does not have; lists the nearest ones."""

    def __str__(self) -> str:
        return printable(str(self.args[0]), keep="\n")


class QddotWarning(UserWarning):
    """A model was accepted with findings that its user should see."""


@dataclass(frozen=True)
class Finding:
    """One thing found wrong or doubtful in a model: where, what, and what to do."""

    severity: str
    where: str
    element: str
    message: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return printable(f"{place}{self.element}: {self.message}; {self.fix}")


def shown(value: object) -> str:
    """A value as messages have it: its repr, cut where it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."


def message(where: str, element: str, problem: str, fix: str) -> str:
    """The one form that errors about models have."""
    return str(Finding("error", where, element, problem, fix))


def near(name: str, known: Iterable[str]) -> str:
    """The names like one that does not exist, as an addition to the message about it."""
    found = _nearest(name, known)
    return f" (near: {', '.join(found)})" if found else ""


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names most like one. Comparing takes the product of the lengths: it is done with few and short names."""
    among = [k for k in islice(known, _NEAR_AMONG) if len(k) <= _NEAR_LENGTH]
    return difflib.get_close_matches(name[:_NEAR_LENGTH], among, n=3, cutoff=0.5)


def unknown(what: str, name: str, known: Iterable[str], owner: str) -> UnknownNameError:
    """The error for a name nobody has, with the names that come nearest to it."""
    known = list(known)
    near = _nearest(str(name), known)
    if near:
        hint = "did you mean " + " or ".join(repr(n) for n in near) + "?"
    else:
        shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
        hint = f"it has {shown}" if known else "it has none"
    return UnknownNameError(f"{owner} has no {what} {name!r}: {hint}")


def unexpected(function: str, name: str, known: Iterable[str]) -> TypeError:
    """The error for a keyword argument that a function does not take, with the one that may be meant."""
    known = list(known)
    near = difflib.get_close_matches(name[:_NEAR_LENGTH], known, n=1)
    hint = f"did you mean {near[0]!r}? It" if near else "it"
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}; {hint} takes {', '.join(known)}")


def one_name(x: object, what: str) -> str:
    """A name as a user gives it; a list of names, None or a number is an error."""
    if not isinstance(x, str):
        raise InputError(f"{what} is {shown(x)}; give one name")
    return x


def extra(module: str, name: str, what: str) -> types.ModuleType:
    """A module of an optional package, or an error that says for what it is needed and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        text = f"{what} needs {package}, which cannot be imported ({error}): pip install 'qddot[{name}]'"
        raise MissingExtraError(text) from None
