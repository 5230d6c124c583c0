"""Studies as TOML files, for the command line: a robot, a space, measures, and nothing that runs unless it is trusted.

robot = "arm.urdf"            # beside this file, or an embedded robot
dt = 1e-3
steps = 2000
samples = 10000
sampling = "sobol"
directory = "runs"            # beside this file

[space]
q0 = { uniform = [[-1.0, -1.0], [1.0, 1.0]] }
"link2.mass" = { normal = [1.0, 0.1] }
v0 = { file = "v0.npy" }      # rows; lists in the file itself are rows too
"joint1.damping" = { grid = [0.1, 0.2, 0.5] }

[measures]
peak = "max_abs:tau"
path = { function = "mine:speed", reduce = "integral" }   # code: only with --trust

[options]                     # of a rollout
integrator = "rk4"
"""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qddot.errors import InputError, StudyError, shown, unknown
from qddot.robot.load import load
from qddot.study.distributions import Choice, LogUniform, Normal, Uniform
from qddot.study.space import Grid
from qddot.study.study import Study

_KEYS = ("robot", "factory", "function", "dt", "steps", "samples", "sampling", "seed", "record", "batch", "retries")
_TABLES = ("space", "measures", "options", "directory")
_DRAWN: dict[str, Callable[..., Any]] = {"uniform": Uniform, "normal": Normal, "loguniform": LogUniform, "choice": Choice}


def read(path: str | os.PathLike[str], *, directory: str | os.PathLike[str] | None = None, trust: bool = False) -> Study:
    """The study of a file. `trust` lets it name functions, imported from the file's folder, and files elsewhere."""
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StudyError(f"{file}: it cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StudyError(f"{file}: it is no TOML: {error}") from None
    for key in content:
        if key not in (*_KEYS, *_TABLES):
            raise unknown("entry", key, (*_KEYS, *_TABLES), str(file))
    return _made(file.resolve().parent, content, directory, trust)


def _made(folder: Path, content: dict[str, Any], directory: Any, trust: bool) -> Study:
    space = {name: _values(folder, name, x, trust) for name, x in _table(content, "space").items()}
    options = {**_table(content, "options", optional=True)}
    options |= {
        k: content[k] for k in ("dt", "steps", "samples", "sampling", "seed", "record", "batch", "retries") if k in content
    }
    if "function" in content:
        measures: Any = _function(folder, content["function"], trust)
    else:
        measures = {name: _measure(folder, x, trust) for name, x in _table(content, "measures").items()}
    robot: Any = None
    if "factory" in content:
        robot = _function(folder, content["factory"], trust)
    elif "robot" in content:
        name = content["robot"]
        if not isinstance(name, str):
            raise StudyError(f"robot is {shown(name)}; give a file or the name of an embedded robot")
        robot = load(_inside(folder, name, trust) if Path(name).suffix else name)
    where = directory if directory is not None else folder / str(content.get("directory", "runs"))
    return Study(robot, space, measures, directory=where, **options)


def _table(content: Mapping[str, Any], name: str, optional: bool = False) -> dict[str, Any]:
    found = content.get(name, {} if optional else None)
    if not isinstance(found, dict):
        raise StudyError(f"[{name}] is missing, or no table")
    return found


def _values(folder: Path, name: str, x: Any, trust: bool) -> Any:
    if not isinstance(x, dict):
        return x
    if len(x) != 1:
        raise StudyError(f"{name!r} of the space is {shown(x)}; give one of {', '.join(_DRAWN)}, grid, file")
    ((kind, given),) = x.items()
    if kind == "file":
        try:
            return np.load(_inside(folder, str(given), trust), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StudyError(f"{name!r} of the space: {given} cannot be read: {error}") from None
    if kind == "grid":
        return Grid(given)
    if kind not in _DRAWN:
        raise unknown("kind of values", kind, (*_DRAWN, "grid", "file"), f"{name!r} of the space")
    if kind == "choice":
        return Choice(given)
    if not isinstance(given, list) or len(given) != 2:
        raise InputError(f"{name!r} of the space: {kind} takes two values, not {shown(given)}")
    return _DRAWN[kind](*given)


def _measure(folder: Path, x: Any, trust: bool) -> Any:
    if not isinstance(x, dict):
        return x
    if "function" not in x or x.keys() - {"function", "reduce"}:
        raise StudyError(f"a measure is {shown(x)}; give a channel, or function= and reduce=")
    function = _function(folder, x["function"], trust)
    return (x["reduce"], function) if "reduce" in x else function


def _function(folder: Path, name: Any, trust: bool) -> Any:
    if not trust:
        raise StudyError(f"the study names the function {shown(name)}, which is code; --trust runs it")
    module, sign, attribute = str(name).partition(":")
    if not sign:
        raise StudyError(f"the function {shown(name)} is not of the form module:function")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise StudyError(f"the function {shown(name)} cannot be imported: {error}") from None


def _inside(folder: Path, name: str, trust: bool) -> Path:
    path = (folder / name).resolve()
    if not trust and not path.is_relative_to(folder):
        raise StudyError(f"the study names {shown(name)}, which is outside of its folder; --trust allows it")
    return path
