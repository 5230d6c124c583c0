"""What a kernel is to be: a function of a robot with every choice that changes its code, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import DTypeLike

from qddot.dynamics import products
from qddot.dynamics.catalogue import LOOP_FUNCTIONS, lookup
from qddot.errors import InputError, one_name, shown, unexpected
from qddot.mechanism import derivative_variable
from qddot.mechanism.model import Model

MOTION = ("inverse_dynamics", "forward_dynamics", "hybrid_dynamics")  # functions that loops change
OF_CONSTRAINTS = ("constraint_", "constrained_", "loop_joint_forces")
_PLAIN = ("method", "dtype", "lanes", "form", "regroup", "packed", "target")
OPTIONS = ("frame", "prescribed", "by", "rows")  # arguments of functions that are no arrays
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
    rows: Iterable[int] | None
    free: Sequence[str]
    regroup: bool
    packed: bool
    target: str
    vjp: bool | int
    jvp: bool | int
    wrt: str | Iterable[str]
    coordinates: str
    known_result: bool


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
    product: products.Product | None = None

    @property
    def what(self) -> str:
        """What is computed, in words."""
        return f"{self.product.label} of {self.function}" if self.product else self.function

    @property
    def tracing(self) -> dict[str, Any]:
        """What tracing is given beside the function and its formulation."""
        others: dict[str, Any] = {"free": self.free} if self.free else {}
        others |= {"product": self.product} if self.product else {}
        return {**dict(self.static), "regroup": self.regroup, "dtype": self.dtype, **others}


def checked(model: Model, function: str, given: KernelOptions, rows: Sequence[int] | None) -> Request:
    """The request for a kernel of a model; `rows` are the independent rows of its constraints."""
    for name in given:
        if name not in KernelOptions.__annotations__:
            raise unexpected("kernel", name, KernelOptions.__annotations__)
    own: dict[str, Any] = {name: x for name, x in given.items() if name in _PLAIN}
    request = Request(function, **{**own, "dtype": dtype_name(own.get("dtype", "float64"))})
    one_name(request.target, "target")
    for name in ("packed", "regroup"):
        if not isinstance(getattr(request, name), bool | np.bool_):
            raise InputError(f"{name}={getattr(request, name)!r} is not known; take True or False")
    if request.form not in _FORMS:
        raise InputError(f"form={request.form!r} is not known; take 'auto', 'unrolled' or 'rolled'")
    free = given.get("free", ())
    chosen = {name: given.get(name) for name in OPTIONS}
    static = static_arguments(model, request, chosen, rows)
    if request.lanes is not None and request.lanes not in _LANES:
        raise InputError(f"lanes={request.lanes!r} is not known; take 1, 2, 4, 8, 16 or None")
    names = (free,) if isinstance(free, str) else tuple(one_name(x, "a parameter in free=") for x in free)
    product = products.checked(function, lookup(function, request.method)[0], names, given)
    if product is not None and request.form == "rolled":
        raise InputError("form='rolled' has no vjp and no jvp; take form='auto' or 'unrolled'")
    return replace(request, free=names, static=tuple(static.items()), product=product)


def dtype_name(x: Any) -> str:
    """The type that is computed with, by its name: "float64" or "float32". NumPy's own are taken as well."""
    try:
        name = next(name for name in _DTYPES if x is not None and np.dtype(x) == name)
    except (TypeError, ValueError, StopIteration):
        raise InputError(f"dtype={shown(x)} is not known; take 'float64' or 'float32'") from None
    return name


def static_arguments(
    model: Model, request: Request, given: Mapping[str, Any], rows: Sequence[int] | None
) -> dict[str, Any]:
    """The arguments of a function that are no arrays, resolved; an error if one is missing or not taken."""
    function = request.function
    found = lookup(function, request.method)[0]
    needs, chosen = found.needs, given.get("rows")
    for name in (name for name in given if name != "rows"):
        if (name in needs) != (given[name] is not None):
            raise InputError(f"function {function!r} {'needs' if name in needs else 'takes no'} {name}=")
    if chosen is not None and not found.is_task:
        raise InputError(f"function {function!r} takes no rows=")
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
        "rows": lambda: twist_rows(chosen) if found.is_task else rows,
    }
    return {name: resolved[name]() for name in needs}


def twist_rows(rows: Any) -> tuple[int, ...]:
    """The chosen rows of a frame's twist, angular first; all six if none are named."""
    if rows is None:
        return tuple(range(6))
    found: list[Any] = [*rows] if isinstance(rows, Iterable) and not isinstance(rows, str) else [None]
    is_row = [isinstance(x, int | np.integer) and not isinstance(x, bool) and -6 <= x < 6 for x in found]
    if not found or not all(is_row):
        raise InputError(
            f"rows={shown(rows)} are no rows of a twist; take some of 0, 1, 2 (angular) and 3, 4, 5 (linear), such as "
            f"[3, 4, 5]"
        )
    chosen = tuple(range(6)[x] for x in found)
    if len({*chosen}) < len(chosen):
        raise InputError(f"rows={shown(rows)} names a row twice")
    return chosen


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
