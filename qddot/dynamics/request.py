"""What a kernel is to be: a function of a robot with every choice that changes its code, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import DTypeLike

from qddot.dynamics.catalogue import LOOP_FUNCTIONS, lookup
from qddot.errors import InputError
from qddot.mechanism import derivative_variable
from qddot.mechanism.model import Model

MOTION = ("inverse_dynamics", "forward_dynamics", "hybrid_dynamics")  # functions that loops change
OF_CONSTRAINTS = ("constraint_", "constrained_", "loop_joint_forces")
_PLAIN = ("method", "dtype", "lanes", "form", "regroup", "packed", "target")
_DTYPES, _FORMS, _LANES = ("float64", "float32"), ("auto", "unrolled", "rolled"), (1, 2, 4, 8, 16)


class KernelOptions(TypedDict, total=False):
    """The choices of `Robot.kernel`."""

    method: str
    dtype: DTypeLike
    lanes: int | None
    form: str
    frame: str | None
    prescribed: Iterable[str | int | tuple[str, int]] | None
    by: Any
    free: Sequence[str]
    regroup: bool
    packed: bool
    target: str


@dataclass(frozen=True)
class Request:
    """A function and the choices that its code is made for; `static` are its arguments that are no arrays."""

    function: str
    method: str = "auto"
    dtype: str = "float64"
    lanes: int | None = None
    form: str = "auto"
    regroup: bool = True
    free: tuple[str, ...] = ()
    packed: bool = False
    target: str = "cpu"
    static: tuple[tuple[str, Any], ...] = ()

    @property
    def tracing(self) -> dict[str, Any]:
        """What tracing is given beside the function and its formulation."""
        others = {"free": self.free} if self.free else {}
        return {**dict(self.static), "regroup": self.regroup, "dtype": self.dtype, **others}


def checked(model: Model, function: str, given: KernelOptions, rows: Sequence[int] | None) -> Request:
    """The request for a kernel of a model; `rows` are the independent rows of its constraints."""
    for name in given:
        if name not in KernelOptions.__annotations__:
            known = ", ".join(KernelOptions.__annotations__)
            raise TypeError(f"kernel() got an unexpected keyword argument {name!r}; it takes {known}")
    own: dict[str, Any] = {name: x for name, x in given.items() if name in _PLAIN}
    own["dtype"] = dtype_name(given.get("dtype", "float64"))
    request = Request(function, **own)
    if request.form not in _FORMS:
        raise InputError(f"form={request.form!r} is not known; take 'auto', 'unrolled' or 'rolled'")
    free = given.get("free", ())
    chosen = {name: given.get(name) for name in ("frame", "prescribed", "by")}
    static = static_arguments(model, request, chosen, rows)
    if request.lanes is not None and request.lanes not in _LANES:
        raise InputError(f"lanes={request.lanes!r} is not known; take 1, 2, 4, 8, 16 or None")
    names = (free,) if isinstance(free, str) else tuple(free)
    return replace(request, free=names, static=tuple(static.items()))


def dtype_name(given: DTypeLike) -> str:
    """ "float64" or "float32", given by its name or as NumPy's type."""
    try:
        found = [name for name in _DTYPES if given is not None and np.dtype(given) == np.dtype(name)]
    except TypeError:
        found = []
    if not found:
        raise InputError(f"dtype={given!r} is not known; take 'float64' or 'float32'")
    return found[0]


def static_arguments(
    model: Model, request: Request, given: Mapping[str, Any], rows: Sequence[int] | None
) -> dict[str, Any]:
    """The arguments of a function that are no arrays, resolved; an error if one is missing or not taken."""
    function = request.function
    needs = lookup(function, request.method)[0].needs
    for name, value in given.items():
        if (name in needs) != (value is not None):
            raise InputError(f"function {function!r} {'needs' if name in needs else 'takes no'} {name}=")
    if model.is_constrained and function.startswith(MOTION):
        raise ignores_loops(model, function)
    if model.nv == 0:
        raise InputError(f"robot {model.name!r} has no degrees of freedom, so there is nothing to compile")
    if function.startswith(OF_CONSTRAINTS) and not model.is_constrained:
        raise no_constraints(model)
    resolved: dict[str, Callable[[], Any]] = {
        "frame": lambda: model.frame(given["frame"]).name,
        "prescribed": lambda: model.dof_indices(given["prescribed"]),
        "by": lambda: derivative_variable.resolve(model, given["by"]),
        "rows": lambda: rows,
    }
    return {name: resolved[name]() for name in needs}


def ignores_loops(model: Model, function: str) -> InputError:
    """For a function of trees that is asked of a robot with loops."""
    own = [*(loop.name for loop in model.loops), *(c.name for c in model.constraints)]
    keeps = f"constrained_{function}"
    known = f"{keeps} keeps them, and " if keeps in LOOP_FUNCTIONS else ""
    return InputError(
        f"robot {model.name!r} has loops or constraints ({', '.join(own[:4])}), which {function} would ignore; "
        f"{known}robot.spanning_tree() gives the robot with its loops cut open"
    )


def no_constraints(model: Model) -> InputError:
    return InputError(f"robot {model.name!r} has neither loops nor other constraints")
