"""What qddot raises, and what it has to say about a model that it accepts.

Every message names the thing, shows the value and says what to do. Errors stop; findings are collected on the model's
way in and kept with the robot.
"""

from __future__ import annotations

import difflib
import importlib
import types
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

_NEAR_AMONG = 2000  # names among which near ones are looked for: comparing takes long


class QddotError(Exception):
    """The root of everything qddot raises on purpose."""


class ModelError(QddotError, ValueError):
    """A mechanism that cannot be: unknown parts, two parents, a negative mass. Names the part and its line."""


class FileError(ModelError):
    """A file that cannot be read as a mechanism."""


class InputError(QddotError, ValueError):
    """A call with arguments of the wrong shape or value."""


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


class MissingExtraError(QddotError, ImportError):
    """A package that is not among qddot's own dependencies; says which extra brings it."""


class UnknownNameError(QddotError, KeyError):
    """A name that the robot does not have; lists the nearest ones."""

    def __str__(self) -> str:
        return str(self.args[0])


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
        return f"{place}{self.element}: {self.message}; {self.fix}"


def message(where: str, element: str, problem: str, fix: str) -> str:
    """The one form that errors about models have."""
    return str(Finding("error", where, element, problem, fix))


def near(name: str, known: Iterable[str]) -> str:
    """The names like one that does not exist, as an addition to the message about it."""
    among = list(islice(known, _NEAR_AMONG))
    found = difflib.get_close_matches(name, among, n=3, cutoff=0.5)
    return f" (near: {', '.join(found)})" if found else ""


def unknown(what: str, name: str, known: Iterable[str], owner: str) -> UnknownNameError:
    """The error for a name nobody has, with the names that come nearest to it."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    if near:
        hint = "did you mean " + " or ".join(repr(n) for n in near) + "?"
    else:
        shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
        hint = f"it has {shown}" if known else "it has none"
    return UnknownNameError(f"{owner} has no {what} {name!r}: {hint}")


def extra(module: str, name: str, what: str) -> types.ModuleType:
    """A module of an optional package, or an error that says for what it is needed and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        text = f"{what} needs {package}, which cannot be imported ({error}): pip install 'qddot[{name}]'"
        raise MissingExtraError(text) from None
