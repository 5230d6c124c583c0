"""The operation `qddot::evaluate(key, inputs)`, as PyTorch knows it: shapes, batches, gradients.

Who calls it decides the way to the kernel:

| caller                                   | way                                                                   |
|------------------------------------------|-----------------------------------------------------------------------|
| plain tensors                            | the kernel                                                            |
| tensors that require gradients           | `_Recorded`, whose backward are calls again                            |
| torch.func transforms, forward-mode AD   | `_Transformed`, the same with rules for vmap and jvp                   |
| torch.compile, torch.export, fake tensors | the registered operation, which stays whole in the graph             |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from qddot.torch.gradients import kept, pulled, pushed
from qddot.torch.kernels import program

_PLAIN = (Tensor, torch.nn.Parameter)


def _always() -> bool:
    return True


# PyTorch has no public names for these. Without them the slower way is taken, which is right for all.
_transforms_are_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", _always)
_count_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", _always)


def evaluate(key: str, inputs: Sequence[Tensor]) -> Tensor:
    """The result of a call, differentiable."""
    if torch.compiler.is_compiling():
        found: Tensor = _operation(key, inputs)
        return found
    if _transforms_are_active() or getattr(forward_ad, "_current_level", 0) >= 0:
        return _Transformed.apply(key, *inputs)
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return _Recorded.apply(key, *inputs)
    return _direct(key, inputs)


def _direct(key: str, inputs: Sequence[Tensor]) -> Tensor:
    """Without gradients: the kernel for plain tensors, the registered operation for all others."""
    if not _count_modes() and all(type(x) in _PLAIN for x in inputs) and all(x.is_cpu or x.is_cuda for x in inputs):
        return program(key)(inputs)
    found: Tensor = _operation(key, list(inputs))
    return found


class _Recorded(Function):
    """Remembers what gradients need."""

    @staticmethod
    def forward(ctx: Any, key: str, *inputs: Tensor) -> Tensor:
        ctx.key, result = key, _direct(key, inputs)
        ctx.save_for_backward(*kept(key, inputs, result))
        return result

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        return None, *pulled(evaluate, ctx.key, ctx.saved_tensors, cotangent, ctx.needs_input_grad[1:])


class _Transformed(Function):
    """The same under torch.func and with dual tensors."""

    @staticmethod
    def forward(key: str, *inputs: Tensor) -> Tensor:
        return _direct(key, inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.key, *tensors = inputs
        ctx.save_for_backward(*kept(ctx.key, tensors, output))
        ctx.save_for_forward(*kept(ctx.key, tensors, output))

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        return None, *pulled(evaluate, ctx.key, ctx.saved_tensors, cotangent, ctx.needs_input_grad[1:])

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Tensor | None) -> Tensor:
        return pushed(evaluate, ctx.key, ctx.saved_tensors, tangents)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], key: str, *inputs: Tensor) -> tuple[Tensor, int]:
        return evaluate(key, _in_front(key, inputs, in_dims[1:])), 0


def _in_front(key: str, inputs: Sequence[Tensor], axes: Sequence[int | None]) -> list[Tensor]:
    """Inputs with the mapped axis as the first of their batch axes, all of which are as many."""
    own = [len(shape) for shape in program(key).inputs.values()]
    batches = [x.ndim - (axis is not None) - n for x, axis, n in zip(inputs, axes, own, strict=True)]
    most, out = max(batches), []
    for x, axis, count in zip(inputs, axes, batches, strict=True):
        if axis is None:
            out.append(x)
            continue
        moved = x.movedim(axis, 0)
        out.append(moved.reshape(moved.shape[0], *(1,) * (most - count), *moved.shape[1:]))
    return out


# ---- the registered operation ------------------------------------------------------------------------------------------

_NAME = "qddot::evaluate"
_library = torch.library.Library("qddot", "DEF")
_library.define("evaluate(str key, Tensor[] inputs) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_operation: Any = torch.ops.qddot.evaluate.default


def _run(key: str, inputs: list[Tensor]) -> Tensor:
    return program(key)(inputs)


def _shaped(key: str, inputs: list[Tensor]) -> Tensor:
    own = program(key)
    return inputs[0].new_empty((*own.batch([x.shape for x in inputs]), *own.output))


def _keep(ctx: Any, inputs: tuple[str, list[Tensor]], output: Tensor) -> None:
    ctx.key, tensors = inputs
    ctx.save_for_backward(*kept(ctx.key, tensors, output))


def _backward(ctx: Any, cotangent: Tensor) -> Any:
    return None, pulled(_operation, ctx.key, ctx.saved_tensors, cotangent, ctx.needs_input_grad[1])


def _map(info: Any, in_dims: tuple[Any, ...], key: str, inputs: list[Tensor]) -> tuple[Tensor, int]:
    found: Tensor = _operation(key, _in_front(key, inputs, in_dims[1]))
    return found, 0


_library.impl("evaluate", _run, "CPU")
_library.impl("evaluate", _run, "CUDA")
torch.library.register_fake(_NAME, _shaped, lib=_library)
torch.library.register_autograd(_NAME, _backward, setup_context=_keep, lib=_library)
torch.library.register_vmap(_NAME, _map, lib=_library)
