"""Xacro: macros that expand to URDF, by the package `xacro` (extra `qddot[xacro]`), which runs what files tell it to.

A xacro file evaluates Python expressions, reads environment variables and includes files from anywhere, so that it is
expanded with `trust=True` only. It runs in a child process of its own: the package keeps its state in global variables.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from qddot.errors import FileError, InputError, message, shown
from qddot.formats import places, urdf
from qddot.formats.limited import EndedError, Limited
from qddot.formats.registry import ReadOptions, register
from qddot.mechanism.model import Model

_TRUST = "load it with trust=True (--trust) if you trust its author, or expand it yourself: xacro A > B.urdf"


@register("xacro", ".xacro", has_floating_base=True)
def _model(path: Path, options: ReadOptions) -> Model:
    text = expanded(path, options)
    given = {"package_dirs": options.package_dirs, "snap": options.snap, "text": text}
    builder = urdf.read(f"{path} (expanded)", floating_base=options.floating_base, **given)  # type: ignore[arg-type]
    return builder.model()


def expanded(path: Path, options: ReadOptions) -> str:
    """The URDF text that a xacro file stands for."""

    def refuse(problem: str, fix: str) -> FileError:
        return FileError(message(str(path), "file", problem, fix))

    if not options.trust:
        raise refuse("a xacro file runs code", _TRUST)
    if importlib.util.find_spec("xacro") is None:
        problem = "it is read by the package xacro, which is not installed"
        raise refuse(problem, 'install it with: pip install "qddot[xacro]"')
    request = {
        "file": str(path.resolve()),
        "arguments": _checked(options.xacro_arguments),
        "places": [str(place) for place in places.package_places(path.parent, options.package_dirs)],
    }
    child = Limited("xacro")
    try:
        facts, data = child.ask(request)
    except EndedError as error:
        raise refuse(f"xacro {error}", "expand it yourself: xacro A > B.urdf") from None
    finally:
        child.close()
    if "error" in facts:
        said = " ".join(str(facts["error"]).split())
        raise refuse(f"xacro says: {said or facts.get('kind', 'nothing')}", "correct the file or its xacro_arguments")
    return data.decode("utf-8")


def _checked(arguments: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(arguments, Mapping):
        raise InputError(f"xacro_arguments is {shown(arguments)}; give names and values, such as {{'prefix': 'left_'}}")
    for name in arguments:
        if not isinstance(name, str):
            raise InputError(f"xacro_arguments has the name {shown(name)}; give texts")
    return {name: str(value) for name, value in arguments.items()}
