"""A plan as bytes for another process: pickled, with what that process needs to find a user's functions."""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
from multiprocessing import spawn
from typing import Any

from qddot.errors import InputError
from qddot.study.plan import Plan


def packed(plan: Plan) -> bytes:
    """For a worker that this process starts itself, and that can import what this one can."""
    is_of_main, data = _pickled(plan)
    main: dict[str, Any] = {}
    if is_of_main:
        needed = ("init_main_from_name", "init_main_from_path", "sys_argv", "name")
        main = {k: x for k, x in spawn.get_preparation_data("qddot study").items() if k in needed}
        if "init_main_from_name" not in main and "init_main_from_path" not in main:
            is_of_main, data = False, b""  # a notebook, or the prompt: there is no file to import
    if not data:
        data = _by_value(plan)
    return pickle.dumps((list(sys.path), main if is_of_main else {}, data))


def unpacked(data: bytes) -> Plan:
    """The plan, in the worker."""
    path, main, content = pickle.loads(data)
    sys.path[:] = path
    if main:
        _refuse_studies()
        with contextlib.redirect_stdout(io.StringIO()):
            spawn.prepare(main)
        _refuse_studies(False)
    plan: Plan = pickle.loads(content)
    return plan


importing_main = False  # while a worker runs the user's script to find a function in it


def _refuse_studies(refuse: bool = True) -> None:
    global importing_main
    importing_main = refuse


class _Pickler(pickle.Pickler):
    """Notices functions and classes of the main module."""

    is_of_main = False

    def reducer_override(self, x: Any) -> Any:
        if getattr(x, "__module__", None) == "__main__" and hasattr(x, "__qualname__"):
            self.is_of_main = True
        return NotImplemented


def _pickled(plan: Plan) -> tuple[bool, bytes]:
    """Whether something of it is of the main module, and the bytes; none where it cannot be pickled."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    try:
        pickler.dump(plan)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False, b""
    return pickler.is_of_main, buffer.getvalue()


def _by_value(plan: Plan) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        raise InputError(
            "a function of this study cannot be sent to other processes: define it at the top level of a file, install "
            "cloudpickle, or take engine='serial'"
        ) from None
    try:
        return bytes(cloudpickle.dumps(plan))
    except Exception as error:  # whatever a user's objects raise
        raise InputError(f"the study cannot be sent to other processes: {error}; take engine='serial'") from None
