"""JSON text and the values in it, each checked where it stands ("links[3].joint.axis"), for qddot's own file."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from qddot.errors import FileError, message, shown
from qddot.formats.files import read_bytes
from qddot.spatial.rotation import Mat, Vec

MAX_BYTES = 64_000_000
UNIT_TOLERANCE = 1e-9  # as in the Builder: what is further from unit than this was edited by hand


def parse(file: Path) -> Any:
    """The JSON value of a file, strictly read: no NaN, no key twice."""
    data = read_bytes(str(file), MAX_BYTES)

    def no_constant(literal: str) -> Any:
        line = data.count(b"\n", 0, max(0, data.find(literal.encode()))) + 1
        fix = 'write a finite number; limits may be "inf" or "-inf" in quotes'
        raise FileError(message(f"{file}:{line}", "JSON", f"{literal} is no number of JSON", fix))

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise FileError(message(str(file), "JSON", f"key {shown(key)} stands twice in one object", "remove one"))
            seen.add(key)
        return dict(pairs)

    try:
        return json.loads(data.decode("utf-8"), parse_constant=no_constant, object_pairs_hook=no_duplicates)
    except FileError:
        raise
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileError(message(f"{file}:{line}", "file", "it is no UTF-8 text", "save the robot again")) from None
    except json.JSONDecodeError as error:
        problem = f"{error.msg} at column {error.colno}"
        fix = "correct the syntax or save the robot again"
        raise FileError(message(f"{file}:{error.lineno}", "JSON", problem, fix)) from None
    except (RecursionError, ValueError):
        problem = "it is nested too deeply or has a number too long to read"
        raise FileError(message(str(file), "JSON", problem, "save the robot again")) from None


class Values:
    """Checks of types, lengths and ranges; errors name the file and the place in it."""

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, at: str, problem: str, fix: str) -> NoReturn:
        raise FileError(message(self.file, at, problem, fix))

    def table(self, x: Any, at: str, keys: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
        keys, known = list(keys), [*keys, *optional]
        if not isinstance(x, dict):
            self.fail(at, f"it is {shown(x)}", "write an object with " + ", ".join(keys))
        for key in x:
            if key not in known:
                near = difflib.get_close_matches(key[:100], known, n=1, cutoff=0.5)
                self.fail(at, f"unknown key {shown(key)}", f"did you mean {near[0]!r}?" if near else "remove it")
        for key in keys:
            if key not in x:
                self.fail(at, f"{key!r} is missing", "write it")
        return dict(x)

    def items(self, x: Any, at: str) -> list[Any]:
        if not isinstance(x, list):
            self.fail(at, f"it is {shown(x)}", "write a list")
        return list(x)

    def text(self, x: Any, at: str) -> str:
        if not isinstance(x, str):
            self.fail(at, f"it is {shown(x)}", "write a text")
        try:
            x.encode()
        except UnicodeEncodeError:  # JSON can write half of a surrogate pair
            self.fail(at, f"it is {shown(x)}", "write a text without surrogates")
        return str(x)

    def index(self, x: Any, at: str, least: int, most: int) -> int:
        if not isinstance(x, int) or isinstance(x, bool) or not least <= x <= most:
            self.fail(at, f"it is {shown(x)}", f"write a whole number from {least} to {most}")
        return int(x)

    def number(self, x: Any, at: str, least: float = -math.inf, limit: bool = False) -> float:
        if limit and x in ("inf", "-inf"):
            x = float(x)
        elif not isinstance(x, int | float) or isinstance(x, bool) or not math.isfinite(_float(x)):
            infinite = ', or "inf" or "-inf"' if limit else ""
            self.fail(at, f"it is {shown(x)}", f"write a finite number{infinite}")
        if x < least:
            self.fail(at, f"it is {shown(x)}", f"write a number of {least:g} or more")
        return float(x)

    def numbers(self, x: Any, at: str, count: int, least: float = -math.inf, limit: bool = False) -> tuple[float, ...]:
        if not isinstance(x, list) or len(x) != count:
            self.fail(at, f"it is {shown(x)}", f"write a list of {count} numbers")
        return tuple(self.number(v, f"{at}[{k}]", least, limit) for k, v in enumerate(x))

    def vec(self, x: Any, at: str) -> Vec:
        a, b, c = self.numbers(x, at, 3)
        return (a, b, c)

    def mat(self, x: Any, at: str) -> Mat:
        if not isinstance(x, list) or len(x) != 3:
            self.fail(at, f"it is {shown(x)}", "write three rows of three numbers")
        a, b, c = (self.vec(row, f"{at}[{k}]") for k, row in enumerate(x))
        return (a, b, c)

    def symmetric(self, x: Any, at: str) -> Mat:
        A = self.mat(x, at)
        largest = max(abs(v) for row in A for v in row)
        if any(abs(A[r][c] - A[c][r]) > UNIT_TOLERANCE * largest for r in range(3) for c in range(r)):
            self.fail(at, "it is not symmetric", "write a symmetric matrix")
        return A


def _float(x: int | float) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.inf
