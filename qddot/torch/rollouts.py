"""Rollouts as operations of PyTorch: `qddot::rollout(key, inputs)` and its gradient, on the processor.

With plain tensors that require gradients the run itself, with its checkpoints, is kept for the way back. In graphs
(torch.compile) and under torch.func the gradient runs the rollout again where not all states were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from qddot.errors import InputError
from qddot.simulation.differentiable_run import DifferentiableRun
from qddot.simulation.rollout_function import RolloutFunction, known_function, own_shapes, rollout_function

if TYPE_CHECKING:
    from qddot.torch.dynamics import Dynamics

_ARRAYS = ("controls", "inputs", "parameters")
_transforms_are_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
_count_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: True)
_TYPES = {torch.float64: "float64", torch.float32: "float32"}


class Rollout:
    """A rollout of tensors, set up once: `q, v = rollout(q0, v0, controls=…)`, and the cost where there is one."""

    def __init__(self, dynamics: Dynamics, function: RolloutFunction, defaults: dict[str, Tensor]) -> None:
        self._dynamics, self._function, self._defaults = dynamics, function, defaults
        self._key, self._names, self._has_cost = function.key, tuple(function.shapes), function.has_cost

    def __repr__(self) -> str:
        return f"<qddot.torch: {self._function.rollout!r}>"

    def __call__(self, q0: Any, v0: Any, **given: Any) -> Any:
        """Recorded states, the start first, (..., rows, nq) and (..., rows, nv); what is not given is as it was made."""
        values = {"q0": q0, "v0": v0, **self._defaults, **given}
        for name in given:
            if name not in self._names:
                raise InputError(f"this rollout takes {', '.join(self._names)}; {name!r} is none of them")
        tensors = self._dynamics.tensors({name: values[name] for name in self._names})
        q, v, cost = _evaluated(self._key, tensors)
        return (q, v, cost) if self._has_cost else (q, v)


@torch.compiler.disable
def made(dynamics: Dynamics, controls: Any, dtype: torch.dtype, given: dict[str, Any], **options: Any) -> Rollout:
    """The rollout of a law, or of tensors by name, whose shapes count and whose numbers are its defaults."""
    if dtype not in _TYPES:
        raise InputError(f"rollout: tensors of {dtype} are not computed with; take .float() or .double()")
    arrays = {name: x for name, x in given.items() if x is not None}
    law = controls if callable(controls) else None
    if controls is not None and law is None:
        arrays["controls"] = controls
    shapes = own_shapes(dynamics, {name: np.shape(x) for name, x in arrays.items()})
    function = rollout_function(dynamics, shapes, law, dtype=_TYPES[dtype], **options)
    return Rollout(dynamics, function, arrays)


def differentiable_rollout(self: Dynamics, controls: Any = None, *, dt: float, **options: Any) -> Rollout:
    """`Robot.differentiable_rollout` on tensors: made once, called with tensors, within torch.compile too.

    Takes `steps`, `record`, `cost`, `inputs`, `parameters`, the free parameters of this `Dynamics` by name, `dtype`, and
    the other options of `simulate`. Of tensors that are given here the shapes count; a call may give others.
    """
    if torch.compiler.is_compiling():
        raise InputError(
            "rollouts are made before a function is compiled: rollout = dynamics.differentiable_rollout(…) outside of it, "
            "and rollout(q0, v0, …) inside; of one step with steps=1"
        )
    named = {name: options.pop(name) for name in (*self.free, *_ARRAYS[1:]) if name in options}
    tensors = [x for x in (controls, *named.values()) if isinstance(x, Tensor)]
    default = tensors[0].dtype if tensors else self.dtype or torch.get_default_dtype()
    return made(self, controls, options.pop("dtype", default), named, dt=dt, **options)


def rollout(self: Dynamics, q0: Any, v0: Any, controls: Any = None, *, dt: float, **options: Any) -> Any:
    """The motion from (q0, v0), differentiable: q (..., rows, nq), v (..., rows, nv), and the sum of `cost` if given.

    `controls` are held joint forces (..., steps, nv), or a law that is traced; options as for `differentiable_rollout`.
    """
    like = next((x.dtype for x in (q0, v0, controls) if isinstance(x, Tensor)), None)
    return differentiable_rollout(self, controls, dt=dt, **({"dtype": like} if like else {}), **options)(q0, v0)


def step(self: Dynamics, q: Any, v: Any, tau: Any = None, *, dt: float, **options: Any) -> tuple[Tensor, Tensor]:
    """One step of an integrator with tau held, differentiable; options as for `differentiable_rollout`."""
    held = None if tau is None else (tau if isinstance(tau, Tensor) else torch.as_tensor(tau))[..., None, :]
    states = rollout(self, q, v, held, dt=dt, steps=1, **options)
    return states[0][..., -1, :], states[1][..., -1, :]


METHODS = {f.__name__: f for f in (differentiable_rollout, rollout, step)}


# ---- the operation -----------------------------------------------------------------------------------------------------


def _evaluated(key: str, inputs: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    if not torch.compiler.is_compiling() and _transforms_are_active():
        made: tuple[Tensor, Tensor, Tensor] = _Transformed.apply(key, *inputs)
        return made
    is_plain = not (torch.compiler.is_compiling() or _count_modes())
    if is_plain and torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return _Kept.apply(key, *inputs)
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.qddot.rollout(key, inputs)
    return found


def _arrays(key: str, inputs: Sequence[Tensor]) -> tuple[RolloutFunction, list[Any]]:
    function = known_function(key)
    for name, x in zip(function.shapes, inputs, strict=True):
        if _TYPES.get(x.dtype) != function.dtype or x.device.type != "cpu":
            raise InputError(
                f"rollout: {name} is {x.dtype} on {x.device}; this rollout computes in {function.dtype} on the CPU"
            )
    function.batch([tuple(x.shape) for x in inputs])
    return function, [x.detach().resolve_neg().numpy() for x in inputs]


def _tensors(run: Any, function: RolloutFunction) -> tuple[Tensor, Tensor, Tensor]:
    cost = np.array(run.cost) if function.has_cost else np.empty(0, function.dtype)
    q, v, c = (torch.from_numpy(x) for x in (run.q.copy(), run.v.copy(), cost))
    return q, v, c


class _Kept(Function):
    """Keeps the run for the way back."""

    @staticmethod
    def forward(ctx: Any, key: str, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        function, arrays = _arrays(key, inputs)
        ctx.function, ctx.run = function, function.run(arrays)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)  # so that a change in place is noticed
        return _tensors(ctx.run, function)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        found = _KeptGradients.apply(ctx.function, ctx.run, *ctx.saved_tensors, *cotangents)
        return None, *(x if is_needed else None for x, is_needed in zip(found, ctx.needs_input_grad[1:], strict=True))


class _KeptGradients(Function):
    """The gradients of a run, which have no gradients of their own."""

    @staticmethod
    def forward(ctx: Any, function: RolloutFunction, run: DifferentiableRun, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        bars = [None if x is None else x.numpy() for x in tensors[len(function.shapes) :]]
        return tuple(torch.from_numpy(np.array(x)) for x in function.gradients(run, bars))

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return _once(ctx)


class _Transformed(Function):
    """The same under torch.func."""

    @staticmethod
    def forward(key: str, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _run(key, list(inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.key, *tensors = inputs
        ctx.count = len(tensors)
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        return None, *_GradientsTransformed.apply(ctx.key, ctx.count, *ctx.saved_tensors, *cotangents)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], key: str, *inputs: Tensor) -> Any:
        function = known_function(key)
        found = _Transformed.apply(key, *_in_front(function, inputs, in_dims[1:]))
        return found, (0, 0, 0 if function.has_cost else None)


class _GradientsTransformed(Function):
    """Gradients under torch.func: of inputs, results and cotangents, as many as there are inputs."""

    @staticmethod
    def forward(key: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(_gradients(key, *_parts(tensors, count)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return _once(ctx)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], key: str, count: int, *tensors: Tensor) -> Any:
        """A gradient for each of the mapped samples, whether an input was mapped or not."""
        mapped = [_expanded(x, axis, info.batch_size) for x, axis in zip(tensors, in_dims[2:], strict=True)]
        inputs, results, cotangents = _parts(mapped, count)
        aligned = _in_front(known_function(key), inputs, [0] * count)
        found = _GradientsTransformed.apply(key, count, *aligned, *results, *cotangents)
        return tuple(g.reshape(x.shape) for g, x in zip(found, inputs, strict=True)), (0,) * count


def _parts(tensors: Sequence[Tensor], count: int) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Inputs, results and cotangents."""
    some = list(tensors)
    return some[:count], some[count : count + 3], some[count + 3 :]


def _expanded(x: Tensor, axis: int | None, count: int) -> Tensor:
    return x.expand(count, *x.shape) if axis is None else x.movedim(axis, 0)


_library = torch.library.Library("qddot", "FRAGMENT")
_tag = (torch.Tag.pt2_compliant_tag,)
_library.define("rollout(str key, Tensor[] inputs) -> (Tensor, Tensor, Tensor)", tags=_tag)
_library.define("rollout_gradients(str key, Tensor[] inputs, Tensor[] results, Tensor[] cotangents) -> Tensor[]", tags=_tag)


def _run(key: str, inputs: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    function, arrays = _arrays(key, inputs)
    return _tensors(function.run(arrays), function)


def _shaped(key: str, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    function = known_function(key)
    batch = function.batch([tuple(x.shape) for x in inputs])
    return tuple(inputs[0].new_empty(shape) for shape in function.results(batch))


def _gradients(key: str, inputs: list[Tensor], results: list[Tensor], cotangents: list[Tensor]) -> list[Tensor]:
    function, arrays = _arrays(key, inputs)
    run = function.run(arrays, states=(results[0].numpy(), results[1].numpy()))
    return [torch.from_numpy(np.array(x)) for x in function.gradients(run, [x.numpy() for x in cotangents])]


def _shaped_gradients(key: str, inputs: list[Tensor], results: Any, cotangents: Any) -> list[Tensor]:
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs]


def _keep(ctx: Any, inputs: tuple[str, list[Tensor]], output: tuple[Tensor, ...]) -> None:
    ctx.key, tensors = inputs
    ctx.count = len(tensors)
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: Any, *cotangents: Tensor) -> Any:
    inputs, results = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
    found = torch.ops.qddot.rollout_gradients(ctx.key, list(inputs), list(results), list(cotangents))
    return None, [x if needed else None for x, needed in zip(found, ctx.needs_input_grad[1], strict=True)]


def _once(ctx: Any, *_: Any) -> Any:
    raise InputError("a rollout has first derivatives, and no second ones: take create_graph=False, or dyn's own functions")


def _in_front(function: RolloutFunction, inputs: Sequence[Tensor], axes: Sequence[int | None]) -> list[Tensor]:
    """Inputs with the mapped axis as the first of their batch axes, all of which are as many."""
    own = [len(shape) for shape in function.shapes.values()]
    counts = [x.ndim - (axis is not None) - n for x, axis, n in zip(inputs, axes, own, strict=True)]
    most, out = max(counts), []
    for x, axis, count in zip(inputs, axes, counts, strict=True):
        moved = x if axis is None else x.movedim(axis, 0)
        out.append(x if axis is None else moved.reshape(moved.shape[0], *(1,) * (most - count), *moved.shape[1:]))
    return out


_library.impl("rollout", _run, "CPU")
_library.impl("rollout_gradients", _gradients, "CPU")
torch.library.register_fake("qddot::rollout", _shaped, lib=_library)
torch.library.register_fake("qddot::rollout_gradients", _shaped_gradients, lib=_library)
torch.library.register_autograd("qddot::rollout", _backward, setup_context=_keep, lib=_library)
torch.library.register_autograd("qddot::rollout_gradients", _once, lib=_library)
