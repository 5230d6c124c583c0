"""Arrays of other packages, told from their types: what is given comes back. No framework is imported here.

An array on the host is read as a NumPy array of the same memory, and results are handed back as arrays of the same
package on the same device. Arrays on a card are never copied to the host, and neither gradients nor traces are dropped:
what cannot be kept is an error that says what to do.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.errors import InputError

Array = NDArray[Any]

DOUBLE, SINGLE = np.dtype(np.float64), np.dtype(np.float32)
_HALVES = ("float16", "bfloat16", "half")
# What has no arrays in it, found by its type: most arguments are one of these or an array of doubles.
PLAIN = frozenset((list, tuple, dict, str, int, float, bool, type(None), range))
_NUMBERS = frozenset((int, float))
_SIMPLE = frozenset((int, float, str, bool, type(None)))
# Arguments that are choices, not numbers of which the result is made: they have no say in its type.
NO_ARRAYS = frozenset(("frame", "rows", "prescribed", "hold", "actuated", "by", "gains", "tolerance", "size"))


class Kind:
    """A package of arrays. This one is for arrays that lie on a card and belong to no package that is known."""

    name = "CUDA"
    gradients = ""  # what keeps them

    def dtype(self, x: Any) -> str:
        """NumPy's name of its type of numbers."""
        found = getattr(x, "dtype", None)
        if found is None:
            found = np.dtype(x.__cuda_array_interface__["typestr"])
        return str(found).rpartition(".")[2]

    def device(self, x: Any) -> str:
        """Where it lies: "cpu", "cuda", or the package's name of another place."""
        return "cuda"

    def keeps_gradients(self, x: Any) -> bool:
        """Whether what is computed of it is to be differentiated."""
        return False

    def to_host(self, what: str) -> str:
        """How it is copied to the host, as a line of Python."""
        return f"numpy.asarray({what})"

    def cast(self, what: str, dtype: str) -> str:
        """How it is cast, as a line of Python."""
        return f"{what}.astype('{dtype}')"

    def view(self, x: Any, what: str) -> Array:
        """The NumPy array of the same memory on the host."""
        return np.asarray(x)

    def made(self, x: Array, like: Any) -> Any:
        """An array of this package, on the device of `like`."""
        return x


class _Torch(Kind):
    name = "torch"
    gradients = "robot.torch()"

    def device(self, x: Any) -> str:
        return str(x.device.type)

    def keeps_gradients(self, x: Any) -> bool:
        torch: Any = sys.modules["torch"]
        if x.requires_grad and torch.is_grad_enabled():
            return True
        functorch = getattr(torch._C, "_functorch")  # noqa: B009  PyTorch's own, and no public name says it
        if functorch.is_functorch_wrapped_tensor(x):  # inside torch.func's jvp and vmap
            return True
        return torch.autograd.forward_ad.unpack_dual(x).tangent is not None

    def to_host(self, what: str) -> str:
        return f"{what}.cpu()"

    def cast(self, what: str, dtype: str) -> str:
        return f"{what}.to(torch.{dtype})"

    def view(self, x: Any, what: str) -> Array:
        if str(x.layout) != "torch.strided":
            raise InputError(f"{what} is a tensor of layout {x.layout}; give {what}.to_dense()")
        try:
            return np.asarray(x.detach().resolve_neg().numpy())
        except (RuntimeError, TypeError) as error:
            raise InputError(
                f"{what} is a {type(x).__name__} whose numbers cannot be read ({error}); in code that is traced, as by "
                f"torch.export, use robot.torch()"
            ) from None

    def made(self, x: Array, like: Any) -> Any:
        usable = x.flags.writeable and min(x.strides, default=0) >= 0
        return sys.modules["torch"].from_numpy(x if usable else x.copy())


class _Jax(Kind):
    name = "jax"
    gradients = "robot.jax()"

    def device(self, x: Any) -> str:
        jax: Any = sys.modules["jax"]
        if isinstance(x, jax.core.Tracer):
            raise InputError(
                "is being traced by JAX (jit, grad, vmap), and has no numbers yet; use robot.jax(), that is "
                "qddot.jax.Dynamics(robot), whose functions can be traced"
            )
        places = {d.platform for d in x.devices()}
        return places.pop() if len(places) == 1 else " and ".join(sorted(places))

    def to_host(self, what: str) -> str:
        return f"jax.device_put({what}, jax.devices('cpu')[0])"

    def view(self, x: Any, what: str) -> Array:
        if len(x.devices()) > 1:
            raise InputError(
                f"{what} lies on {len(x.devices())} devices; copy it to one, jax.device_put({what}, device), or use "
                f"robot.jax() under shard_map"
            )
        return np.asarray(x)

    def made(self, x: Array, like: Any) -> Any:
        jax: Any = sys.modules["jax"]
        if getattr(like, "committed", True):
            return jax.device_put(x, next(iter(like.devices())))
        return jax.device_put(x)


class _Cupy(Kind):
    name = "cupy"

    def to_host(self, what: str) -> str:
        return f"cupy.asnumpy({what})"


TORCH, _JAX = _Torch(), _Jax()
_CUDA, _KINDS = Kind(), {"torch": TORCH, "jax": _JAX, "jaxlib": _JAX, "cupy": _Cupy()}
_TITLES = ("Tensor", "Array", "ArrayImpl", "Tracer", "ndarray")


@lru_cache(maxsize=256)
def _kind_of(kind: Any) -> Kind | None:
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if package in _KINDS and base.__name__ in _TITLES:
            return _KINDS[package]
    for package, title in (("torch", "Tensor"), ("jax", "Array"), ("cupy", "ndarray")):
        own = getattr(sys.modules.get(package), title, None)
        if isinstance(own, type) and issubclass(kind, own):
            return _KINDS[package]
    return _CUDA if hasattr(kind, "__cuda_array_interface__") else None


def kind_of(x: Any) -> Kind | None:
    """The package of an array; None for NumPy's, numbers, lists, and all that is no array."""
    kind: Any = type(x)
    return None if kind is np.ndarray or kind in PLAIN else _kind_of(kind)


class Given(NamedTuple):
    """What the arrays of a call have in common."""

    kind: Kind | None  # the first package other than NumPy
    like: Any  # its first array
    dtype: np.dtype[Any] | None  # of the result: single where all are; None: NumPy's rules have the last word
    keeps_gradients: str  # the first argument whose gradients are kept; empty: none does
    on_device: bool  # whether some lie on a card


def are_doubles(arrays: Sequence[Any]) -> bool:
    """Whether all are NumPy's arrays of doubles, as in almost every call, or lists of numbers."""
    for x in arrays:
        if x.__class__ is np.ndarray:
            if x.dtype is not DOUBLE:
                return False
        elif not is_list_of_numbers(x):
            return False
    return True


def is_list_of_numbers(x: Any) -> bool:
    """Whether it is a list without anything but numbers in it."""
    return x.__class__ is list and _NUMBERS.issuperset(map(type, x))


def given(arguments: Mapping[str, Any]) -> Given:
    """What the arrays among arguments are, by the arguments' names; an error for what no function takes."""
    kinds: list[tuple[Kind, Any]] = []
    differentiated, on_device, types = "", False, set[str]()
    for what, x in _arrays(arguments):
        kind = kind_of(x)
        if kind is None:
            types.add(_numpy_type(what, x))
            continue
        kinds.append((kind, x))
        place = _place(kind, x, what)
        on_device |= place == "cuda"
        types.add(_checked_type(what, kind.dtype(x), kind))
        differentiated = differentiated or (what if kind.keeps_gradients(x) else "")
    if len(names := dict.fromkeys(kind.name for kind, _ in kinds)) > 1:
        raise InputError(f"the arrays belong to {' and '.join(names)}; give arrays of one package")
    single = SINGLE if types == {"float32"} else None
    kind, like = kinds[0] if kinds else (None, None)
    return Given(kind, like, single, differentiated, on_device)


def _place(kind: Kind, x: Any, what: str) -> str:
    try:
        place = kind.device(x)
    except InputError as error:
        raise InputError(f"{what} {error}") from None
    if place not in ("cpu", "cuda", "gpu"):
        raise InputError(
            f"{what} lies on {place!r}; qddot computes on the CPU and on NVIDIA's cards: give {kind.to_host(what)}"
        )
    return "cuda" if place == "gpu" else place


def _numpy_type(what: str, x: Any) -> str:
    return _checked_type(what, x.dtype.name, _CUDA) if isinstance(x, np.ndarray) else "float64"


def _checked_type(what: str, name: str, kind: Kind) -> str:
    if name in _HALVES or name.startswith("float8"):
        raise InputError(
            f"{what} holds {name}, whose digits are too few for dynamics; give {kind.cast(what, 'float32')} or 'float64'"
        )
    return name


def _arrays(x: Any, what: str = "") -> Iterator[tuple[str, Any]]:
    """Arrays, in whatever holds them, with the names of the arguments that they are in.

    A list of numbers stands for doubles, as it does for NumPy; a single number has no say.
    """
    if isinstance(x, Mapping):
        for name, y in x.items():
            if what or name not in NO_ARRAYS:
                yield from _arrays(y, what or str(name))
    elif x.__class__ in (list, tuple):
        types = set(map(type, x))
        if types & _NUMBERS:
            yield what, x
        for y in x if types - _SIMPLE else ():
            yield from _arrays(y, what)
    elif getattr(x, "holds_arrays", False):
        for f in dataclasses.fields(x):
            inner = _arrays(getattr(x, f.name), what)
            yield from (pair for pair in inner if pair[1].__class__ not in (list, tuple))
    elif isinstance(x, np.ndarray) or kind_of(x) is not None:
        yield what, x


def mapped(f: Callable[[Any, str], Any], x: Any, what: str = "") -> Any:
    """Arguments with f of the arrays in them."""
    if isinstance(x, Mapping):
        return {name: mapped(f, y, what or str(name)) for name, y in x.items()}
    if x.__class__ in (list, tuple):
        return x if _SIMPLE.issuperset(map(type, x)) else type(x)(mapped(f, y, what) for y in x)
    if getattr(x, "holds_arrays", False):
        return dataclasses.replace(x, **{y.name: mapped(f, getattr(x, y.name), what) for y in dataclasses.fields(x)})
    return f(x, what)


def on_host(x: Any, what: str) -> Any:
    """An array of any package on the host as NumPy's; all else as it is. An error on a card, or for kept gradients."""
    kind = kind_of(x)
    if kind is None:
        return x
    if _place(kind, x, what) == "cuda":
        raise InputError(f"{what} lies on a card, and this runs on the CPU; give {kind.to_host(what)}")
    _checked_type(what, kind.dtype(x), kind)
    if kind.keeps_gradients(x):
        raise no_gradients(kind, what, "what is computed of it here")
    return kind.view(x, what)


def no_gradients(kind: Kind | None, what: str, function: str) -> InputError:
    """The error for arrays whose gradients would be lost."""
    instead = "robot.torch()" if kind is None else kind.gradients
    return InputError(
        f"{what} keeps gradients (requires_grad, or inside torch.func), and {function} has none; {instead} has the "
        f"functions that can be differentiated, and {what}.detach() gives them up"
    )


def handed_back(found: Given, result: Any) -> Any:
    """Results as arrays of the package and the type that were given: arrays, tuples of them, and what can be mapped."""
    if isinstance(result, np.ndarray | np.generic):
        if result.dtype.kind not in "fiub":
            return result
        array = result if found.dtype is None or result.dtype.kind != "f" else result.astype(found.dtype, copy=False)
        return array if found.kind is None else found.kind.made(np.asarray(array), found.like)
    if hasattr(result, "with_arrays"):  # a result that knows which of its arrays are numbers of the robot
        return result.with_arrays(lambda x: handed_back(found, x))
    if isinstance(result, tuple):
        parts = [handed_back(found, x) for x in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return result
