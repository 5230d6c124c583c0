"""The primitive: one call of a kernel on arrays whose batch axes broadcast, with the rules by which JAX transforms it.

- A batch axis of `vmap` is one more leading axis: nothing loops over it.
- Tangents and cotangents are operations too (`qddot.jax.operation`), linear in them, each the transpose of another.
- A program calls XLA's foreign function `qddot_kernel` with the key of a kernel (`compiler.runtime.xla_ffi`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from qddot.compiler.runtime import xla_ffi
from qddot.compiler.runtime.kernel import Shape
from qddot.errors import InputError
from qddot.jax.operation import Operation, Parts

TARGET = "qddot_kernel"  # of XLA's custom calls; `jax.export` is told that it may stand in a program
_MIN_INNER = 64  # states of a call of the loop: where there would be fewer, what is shared is copied to be as many

kernel_p = Primitive("qddot")


def call(op: Operation, args: Sequence[Any]) -> Any:
    """The result of an operation for arrays of its type."""
    return kernel_p.bind(*args, op=op)


# ---- shapes ------------------------------------------------------------------------------------------------------------


def _batches(op: Operation, args: Sequence[Any]) -> list[Shape]:
    """The batch axes of each argument."""
    return [tuple(x.shape[: x.ndim - len(own)]) for x, own in zip(args, op.signature.inputs, strict=True)]


def _abstract(*avals: Any, op: Operation) -> Any:
    own = op.signature
    for k, x in enumerate(avals):
        own.check_shape(k, x.shape)
        if x.dtype != op.request.dtype:
            raise InputError(
                f"{own.function}: {own.names[k]} holds {x.dtype}, and this kernel computes in {op.request.dtype}"
            )
    first = avals[0]
    return first.update(shape=(*own.batch([x.shape for x in avals]), *own.output), weak_type=False)


kernel_p.def_abstract_eval(_abstract)


@functools.lru_cache(maxsize=4096)
def _compiled(op: Operation) -> Callable[..., Any]:
    return jax.jit(lambda *args: call(op, args))


kernel_p.def_impl(lambda *args, op: _compiled(op)(*args))


# ---- vmap --------------------------------------------------------------------------------------------------------------


def _batched(args: Sequence[Any], axes: Sequence[int | None], *, op: Operation) -> tuple[Any, int]:
    """The mapped axis becomes the first; arguments with fewer batch axes than others get axes of length one after it."""
    moved = [x if k is None else jnp.moveaxis(x, k, 0) for x, k in zip(args, axes, strict=True)]
    own = op.signature.inputs
    ranks = [x.ndim - len(s) - (k is not None) for x, s, k in zip(moved, own, axes, strict=True)]
    most = max(ranks)
    out = [
        x if k is None else x.reshape(x.shape[0], *(1,) * (most - rank), *x.shape[1:])
        for x, k, rank in zip(moved, axes, ranks, strict=True)
    ]
    return call(op, out), 0


batching.primitive_batchers[kernel_p] = _batched


# ---- derivatives -------------------------------------------------------------------------------------------------------


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, op: Operation) -> tuple[Any, Any]:
    known, like = call(op, primals), op.function.names
    at, (d_inputs, _, d_cotangent, d_rows) = op.parts(primals), op.parts(tangents)
    moving = tuple(name for name, t in zip(like, d_inputs, strict=True) if not _is_zero(t))
    found = []
    if moving:
        found.append(_along_inputs(op, at, known, dict(zip(like, d_inputs, strict=True)), moving))
    if d_cotangent and not _is_zero(d_cotangent[0]):
        found.append(call(op, [*at.inputs, *at.result, *d_cotangent, *(t for row in at.rows for t in row)]))
    for k, row in enumerate(d_rows):
        moves = tuple(name for name, t in zip(op.wrt, row, strict=True) if not _is_zero(t))
        if moves:
            others = [_only(op, r, row if j == k else r, moves, j == k) for j, r in enumerate(at.rows)]
            found.append(_linear(op, at._replace(rows=others), moves))
    if not found:
        return known, ad.Zero.from_primal_value(known)
    return known, functools.reduce(jnp.add, found)


def _is_zero(t: Any) -> bool:
    return type(t) is ad.Zero


def _only(op: Operation, row: list[Any], given: list[Any], moves: tuple[str, ...], changed: bool) -> list[Any]:
    """A row of tangents in which one that does not move is zero."""
    if not changed:
        return row
    zipped = zip(row, given, strict=True)
    return [jnp.zeros(x.shape, x.dtype) if _is_zero(t) else t for x, t in zipped]


def _linear(op: Operation, at: Parts, moves: tuple[str, ...]) -> Any:
    """The operation with other tangents; the first derivative takes those alone that are not zero."""
    if op.kind == "jvp" and moves != op.wrt:
        (row,) = at.rows
        kept = [t for name, t in zip(op.wrt, row, strict=True) if name in moves]
        return call(op.derived("jvp", moves), [*at.inputs, *at.result, *kept])
    return call(op, [*at.inputs, *at.result, *at.cotangent, *(t for row in at.rows for t in row)])


def _along_inputs(op: Operation, at: Parts, known: Any, d_inputs: dict[str, Any], moving: tuple[str, ...]) -> Any:
    """How the result, which is known, changes with the inputs, everything else held."""
    inputs = at.inputs
    if op.kind == "value":
        made = op.derived("jvp", moving)
        return call(made, [*inputs, *([known] if made.takes_result else ()), *(d_inputs[name] for name in made.wrt)])
    by_name = dict(zip(op.function.names, inputs, strict=True))
    if op.kind not in ("jvp", "vjp"):
        raise NotImplementedError(
            f"{op.request.function}: derivatives of qddot's functions go up to the second order, and this is a third; "
            f"take differences of second ones"
        )
    made = op.derived(f"{op.kind}_jvp", (*op.wrt, *moving))
    slopes = [_or_zeros(d_inputs[name], by_name[name]) for name in made.wrt]
    if op.kind == "jvp":
        row = dict(zip(op.wrt, at.rows[0], strict=True))
        first = [row.get(name) for name in made.wrt]
        given = [_zeros_like(by_name[name]) if t is None else t for name, t in zip(made.wrt, first, strict=True)]
        return call(made, [*inputs, *given, *slopes])
    whole = call(made, [*inputs, *at.cotangent, *slopes])
    parts = dict(zip(made.wrt, _split(made, whole), strict=True))
    return jnp.concatenate([parts[name].reshape(*whole.shape[:-1], -1) for name in op.wrt], axis=-1)


def _zeros_like(x: Any) -> Any:
    return jnp.zeros(x.shape, x.dtype)


def _or_zeros(t: Any, like: Any) -> Any:
    return _zeros_like(like) if _is_zero(t) else t


ad.primitive_jvps[kernel_p] = _jvp


def _split(op: Operation, row: Any) -> list[Any]:
    """A row of gradients as one array for each of `wrt`."""
    out, at = [], 0
    for shape in op.wrt_shapes:
        out.append(row[..., at : at + prod(shape)].reshape(*row.shape[:-1], *shape))
        at += prod(shape)
    return out


def _row(op: Operation, parts: Sequence[Any]) -> Any:
    """Arrays for each of `wrt` as one row; their batch axes broadcast."""
    flat = [x.reshape(*x.shape[: x.ndim - len(s)], -1) for x, s in zip(parts, op.wrt_shapes, strict=True)]
    batch = jnp.broadcast_shapes(*(x.shape[:-1] for x in flat))
    return jnp.concatenate([jnp.broadcast_to(x, (*batch, x.shape[-1])) for x in flat], axis=-1)


def _summed(x: Any, own: int, aval: Any) -> Any:
    """A cotangent summed over the batch axes along which its argument was broadcast; a state has so many axes."""
    wanted = tuple(aval.shape)
    extra = x.ndim - len(wanted)
    axes = [*range(extra)]
    axes += [k + extra for k in range(len(wanted) - own) if wanted[k] == 1 and x.shape[k + extra] != 1]
    return jnp.sum(x, axis=tuple(axes)).reshape(wanted) if axes else x


def _transposed(ct: Any, *args: Any, op: Operation) -> list[Any]:
    """Cotangents of the arguments that an operation is linear in, of which one row is not known."""
    if op.kind == "value":
        raise NotImplementedError(f"{op.request.function} is not linear, and has no transpose")
    if _is_zero(ct):
        return [ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in args]
    at = op.parts(args)
    found: list[Any] = [None] * len(args)
    n = len(at.inputs) + len(at.result)
    if at.cotangent and ad.is_undefined_primal(at.cotangent[0]):
        made = op.derived("jvp" if op.kind == "vjp" else "jvp_jvp", op.wrt)
        known = [t for row in at.rows for t in row]
        found[n] = call(made, [*at.inputs, *at.result, *known, *_split(op, ct)])
    for k, row in enumerate(at.rows):
        if any(ad.is_undefined_primal(t) for t in row):
            place = n + len(at.cotangent) + k * len(op.wrt)
            found[place : place + len(row)] = _row_transposed(ct, op, at, k)
    return [
        _summed(x, len(own), a.aval) if ad.is_undefined_primal(a) and x is not None else None
        for x, a, own in zip(found, args, op.signature.inputs, strict=True)
    ]


def _row_transposed(ct: Any, op: Operation, at: Parts, k: int) -> list[Any]:
    """Cotangents of the k-th row of tangents: the second derivative is symmetric in its two rows, and in a row and `ct`."""
    if op.kind == "jvp":
        wrt = tuple(name for name, t in zip(op.wrt, at.rows[0], strict=True) if ad.is_undefined_primal(t))
        made = op.derived("vjp", wrt)
        of = dict(zip(made.wrt, _split(made, call(made, [*at.inputs, *at.result, ct])), strict=True))
        return [of.get(name) for name in op.wrt]
    if op.kind == "jvp_jvp":
        made = op.derived("vjp_jvp", op.wrt)
        return _split(made, call(made, [*at.inputs, ct, *at.rows[1 - k]]))
    return _split(op, call(op, [*at.inputs, *at.cotangent, *_split(op, ct)]))


ad.primitive_transposes[kernel_p] = _transposed


# ---- programs of XLA ---------------------------------------------------------------------------------------------------


def _two_axes(op: Operation, args: Sequence[Any]) -> tuple[list[Any], int, int]:
    """Arguments of shape (outer, inner, …), and the lengths of the result along both.

    The inner axis is made of the last batch axes along which each argument has all states or one. An argument that has all
    along some of the others and one along the rest is copied.
    """
    batches, own = _batches(op, args), op.signature.inputs
    batch = np.broadcast_shapes(*batches)
    full = [(1,) * (len(batch) - len(b)) + b for b in batches]

    def is_shared(k: int) -> list[bool]:
        return [b[k] == 1 for b in full]

    cut = len(batch)
    pattern = None
    while cut and (batch[cut - 1] == 1 or pattern is None or is_shared(cut - 1) == pattern):
        cut -= 1
        if batch[cut] != 1:
            pattern = is_shared(cut)
    if prod(batch[cut:]) < _MIN_INNER:
        cut = 0
    outer, inner = prod(batch[:cut]), prod(batch[cut:])
    out = []
    for x, b, s in zip(args, full, own, strict=True):
        lengths = []
        for part, whole in ((b[:cut], batch[:cut]), (b[cut:], batch[cut:])):
            lengths.append(part if prod(part) == 1 else whole)
        x = jnp.broadcast_to(x.reshape(*b, *s), (*lengths[0], *lengths[1], *s))
        out.append(x.reshape(prod(lengths[0]), prod(lengths[1]), *s))
    return out, outer, inner


@functools.cache
def register(platform: str) -> None:
    """Tells XLA, once, where its calls go."""
    handlers = xla_ffi.handlers()
    address = handlers.cuda if platform == "CUDA" else handlers.cpu
    handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
    try:
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handler), platform=platform)
    except Exception as error:
        raise InputError(
            f"JAX {jax.__version__} does not take qddot's handler ({error}); docs/jax.md names versions that do"
        ) from error


def _lowered(platform: str, *args: Any, op: Operation) -> Any:
    register(platform)
    target = "cuda" if platform == "CUDA" else "cpu"
    kernel = op.kernel(target)
    key = xla_ffi.enter(kernel, op.identity(target))
    given, outer, inner = _two_axes(op, args)
    like = [jax.ShapeDtypeStruct((outer, inner, *op.output), op.request.dtype)]
    if scratch := xla_ffi.scratch_bytes(kernel, inner):
        like.append(jax.ShapeDtypeStruct((scratch,), jnp.uint8))
    out = jax.ffi.ffi_call(TARGET, like)(*given, kernel=np.int64(key))[0]
    return out.reshape(*np.broadcast_shapes(*_batches(op, args)), *op.output)


for _platform, _name in (("cpu", "cpu"), ("cuda", "CUDA")):
    _rule = mlir.lower_fun(functools.partial(_lowered, _name), multiple_results=False)
    mlir.register_lowering(kernel_p, _rule, platform=_platform)
