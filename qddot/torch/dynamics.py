"""`Dynamics`: the methods of `Robot` on tensors, made from one table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from qddot.dynamics.engine import Engine, HasEngine
from qddot.errors import InputError, one_name
from qddot.mechanism import parameters
from qddot.mechanism.model import Model
from qddot.torch import configurations, loops, rollouts
from qddot.torch.call import Call, Static, register
from qddot.torch.forces import link_forces
from qddot.torch.methods import METHODS, Method
from qddot.torch.operation import evaluate

_HALF = (torch.float16, torch.bfloat16)
_WITH_LOOPS = (*loops.CHOICES, "forward_dynamics_derivatives")  # with loops they are the constrained ones


class Dynamics:
    """The functions of a robot as differentiable operations of PyTorch, by the names of `Robot` (docs/torch.md).

    Tensors decide the type and the device of results. `dtype` and `device` are those of arguments that are no tensors, and
    tensors of others are refused. `free` names parameters (docs/parameters.md) that methods take as keyword arguments;
    those not given keep the robot's numbers.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def __init__(
        self,
        robot: HasEngine,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        free: Sequence[str] = (),
    ) -> None:
        if dtype not in (None, torch.float32, torch.float64):
            raise InputError(f"dtype={dtype} is not computed with; take torch.float32 or torch.float64")
        self.engine, self.model = robot.engine, robot.engine.model
        self.dtype, self.device = dtype, None if device is None else torch.device(device)
        self.free = (free,) if isinstance(free, str) else tuple(one_name(x, "a parameter in free=") for x in free)
        parameters.parameters(self.model, self.free)
        self.digest, self.links = register(self.engine), self.model.link_names[1:]
        self.quaternions = configurations.quaternions(self.model)
        self.is_constrained = self.model.is_constrained
        self.takes_any = dtype is None and device is None and not self.is_constrained
        if self.is_constrained:
            self.tree = Dynamics(loops.Holder(self.engine.tree), dtype, device, self.free)

    def __repr__(self) -> str:
        free = f", free={self.free}" if self.free else ""
        return f"<qddot.torch.Dynamics of {self.model.name!r}{free}>"

    def __reduce__(self) -> Any:
        return _remade, (self.engine.model, self.dtype, self.device, self.free)

    # ---- evaluation

    def evaluate(
        self, function: str, given: Mapping[str, Any], static: Static = (), free: Mapping[str, Any] | None = None
    ) -> Tensor:
        """A function of the catalogue, by its inputs' names; `free` has the values of free parameters."""
        values = {**given, **(free or {})}
        tensors = self.tensors(values)
        return evaluate(_key(self.digest, function, static, tuple(free or ())), tensors)

    def call(self, method: Method, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What a method of the table gives."""
        choices = loops.CHOICES.get(method.function, ()) if self.is_constrained else ()
        values = method.bound(args, keywords, (*self.free, *choices))
        free = {name: values[name] for name in self.free if name in values and name not in method.positional}
        if self.is_constrained and method.function in _WITH_LOOPS:
            return loops.of_motion(self, method, values, free)
        static = tuple((name, _constant(values[name])) for name in ("frame", "prescribed", "by", "rows") if name in values)
        given = {name: values[name] for name in method.inputs}
        function = method.function
        if method.takes_forces and values["f_ext"] is not None:
            if values["expressed_in"] == "world" and "derivative" in function:
                raise InputError(
                    f"{function}: forces in the world's axes change with q; take link_forces(q, f_ext, 'world') as "
                    f"f_ext for forces that stay as they are in the links' frames"
                )
            given["f_ext"] = self.link_forces(given["q"], values["f_ext"], values["expressed_in"], **free)
            function = f"{function}_with_forces"
            if "by" in values:
                given["df_ext_dp"] = self._first(given["q"]).new_zeros((len(self.links), 6))
        result = self.evaluate(function, given, static, free)
        if values.get("reference", "body") != "body":
            return self._referred(result, values, free)
        return result if method.finish is None else method.finish(result)

    def tensors(self, values: Mapping[str, Any]) -> list[Tensor]:
        """All arguments as tensors of the first one's type and device, where they are none."""
        like = next((x for x in values.values() if isinstance(x, Tensor)), None)
        if like is None:
            kind = next((x for x in values.values() if isinstance(x, np.ndarray)), 0.0)
            like = self._tensor("", kind, None)
        return [self._tensor(name, x, like) for name, x in values.items()]

    def _tensor(self, name: str, x: Any, like: Tensor | None) -> Tensor:
        if isinstance(x, Tensor):
            if x.dtype in _HALF and torch.is_autocast_enabled(x.device.type):
                x = x.float()
            if self.dtype is not None and x.dtype != self.dtype:
                raise InputError(
                    f"{name} is {x.dtype}, and this Dynamics computes with {self.dtype}; take {name}.to({self.dtype})"
                )
            if self.device is not None and (
                x.device.type != self.device.type or self.device.index not in (None, x.device.index)
            ):
                raise InputError(f"{name} is on {x.device}, and this Dynamics computes on {self.device}; take {name}.to(…)")
            return x
        dtype = like.dtype if self.dtype is None and like is not None else self.dtype
        device = like.device if self.device is None and like is not None else self.device
        if dtype in _HALF:
            dtype = torch.float32
        made = torch.as_tensor(x, dtype=dtype, device=device)
        return made if made.is_floating_point() else made.to(torch.get_default_dtype())

    def _first(self, q: Any) -> Tensor:
        return self._tensor("q", q, None)

    # ---- what is made of other methods

    def link_forces(self, q: Any, f_ext: Any, expressed_in: str = "frame", **free: Any) -> Any:
        """External forces by name as the forces on all links in their own frames, (..., n_links, 6)."""
        like = self._first(q)
        return link_forces(
            self.links, self.digest, lambda: self.forward_kinematics(like, **free), f_ext, expressed_in, like
        )

    def _referred(self, J: Tensor, values: Mapping[str, Any], free: Mapping[str, Any]) -> Tensor:
        """A body Jacobian in the world's axes, at the world's origin or at the frame's."""
        if values["reference"] not in ("world", "aligned"):
            raise InputError(f"reference={values['reference']!r} is not known; take 'body', 'world' or 'aligned'")
        T = self.pose(values["q"], values["frame"], **free)
        R, p = T[..., :3, :3], T[..., :3, 3]
        w, u = R @ J[..., :3, :], R @ J[..., 3:, :]
        if values["reference"] == "world":
            u = u + torch.linalg.cross(p[..., None].expand_as(w), w, dim=-2)
        return torch.cat([w, u], -2)

    def normalize(self, q: Any) -> Tensor:
        """The nearest valid configuration: quaternions made unit."""
        return configurations.normalize(self.quaternions, self._first(q))

    def integrate(self, q: Any, v: Any, dt: Any = 1.0) -> Tensor:
        """The configuration reached from q with the constant velocity v after a time dt."""
        q, v = self.tensors({"q": q, "v": v})
        return configurations.integrate(self.model, q, v * dt)

    def difference(self, q0: Any, q1: Any) -> Tensor:
        """The velocity that leads from q0 to q1 in a unit of time."""
        return configurations.difference(self.model, *self.tensors({"q0": q0, "q1": q1}))

    def tangent_gradient(self, q: Any, g: Any) -> Tensor:
        """The nv derivatives along the degrees of freedom, of a gradient g with respect to the coordinates q."""
        return configurations.tangent_gradient(self.model, *self.tensors({"q": q, "g": g}))


for _name, _function in (loops.METHODS | rollouts.METHODS).items():
    setattr(Dynamics, _name, _function)


def _made(name: str, method: Method) -> Any:
    """A method of `Dynamics` for a row of the table."""

    count, is_plain = len(method.inputs), method.is_plain

    def run(self: Dynamics, *args: Any, **keywords: Any) -> Any:
        if is_plain and len(args) == count and not keywords and self.takes_any and _are_plain(args):
            result = evaluate(_key(self.digest, name, (), ()), args)
            return result if method.finish is None else method.finish(result)
        return self.call(method, args, keywords)

    run.__name__, run.__qualname__ = name, f"Dynamics.{name}"
    taken = f"{', '.join(method.positional)}{''.join(f', {x}=…' for x in method.keywords)}"
    run.__doc__ = f"`Robot.{name}` on tensors: takes {taken}, and free parameters by their names."
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = [
        inspect.Parameter(x, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=method.default(x)) for x in method.positional
    ]
    named = [inspect.Parameter(x, inspect.Parameter.KEYWORD_ONLY, default=method.default(x)) for x in method.keywords]
    rest = inspect.Parameter("free", inspect.Parameter.VAR_KEYWORD)
    run.__signature__ = inspect.Signature([first, *own, *named, rest])  # type: ignore[attr-defined]
    return run


for _name, _row in METHODS.items():
    setattr(Dynamics, _name, _made(_name, _row))


def _are_plain(args: Sequence[Any]) -> bool:
    """Whether arguments are tensors of a type that is computed with."""
    return all(isinstance(x, Tensor) and (x.dtype is torch.float64 or x.dtype is torch.float32) for x in args)


def _remade(model: Model, dtype: Any, device: Any, free: Any) -> Dynamics:
    return Dynamics(loops.Holder(Engine(model)), dtype, device, free)


def _constant(x: Any) -> Any:
    """An argument that is no array as tuples, names and numbers."""
    if isinstance(x, str) or not hasattr(x, "__iter__"):
        return x.item() if hasattr(x, "item") else x
    return tuple(_constant(part) for part in x)


@torch.compiler.assume_constant_result
def _key(robot: str, function: str, static: Static, free: tuple[str, ...]) -> str:
    return _known_key(robot, function, static, free)


@lru_cache(maxsize=4096)
def _known_key(robot: str, function: str, static: Static, free: tuple[str, ...]) -> str:
    return Call(robot, function, static, free).key
