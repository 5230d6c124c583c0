"""Arrays of traced values: NumPy's own functions work on them, element by element, with the functions of `qddot.scalars`.

NumPy asks the classes of its arguments first (`__array_ufunc__`, `__array_function__`): `TracedArray` for arrays, and
traced scalars by `on_ufunc` and `on_function`. Functions that make arrays ask nobody. While `arrays_hold_traced_values`
lasts, those that a user's own modules call in this thread, such as `np.zeros(n)`, give arrays that can hold traced values.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from qddot import scalars
from qddot.scalars import NotKnownYet, Scalar, Unknown, each


class TracedArray(np.ndarray):
    """An array that may hold traced values beside plain numbers."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return on_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return on_function(function, args, options)

    def __getitem__(self, key: Any) -> Any:
        if _is_mask(key):
            raise NotKnownYet("a traced value cannot pick elements; use np.where(condition, then, otherwise)")
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if _is_mask(key):
            key, value = ..., scalars.where(key, value, self)
        super().__setitem__(key, value)


def _is_mask(key: Any) -> bool:
    return isinstance(key, Unknown) or (
        isinstance(key, np.ndarray) and key.dtype == object and any(isinstance(x, Unknown) for x in key.flat)
    )


# ---- ufuncs


def on_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What `__array_ufunc__` of a traced value gives: a ufunc, or its reduce, accumulate or outer."""
    plain = [np.asarray(x.item() if isinstance(x, np.generic) else x, dtype=object) for x in inputs]
    (out,) = options.pop("out", (None,))
    if any(isinstance(x, Unknown) for a in plain for x in a.flat):
        result = _of_objects(ufunc, method, plain, options)
    else:
        result = getattr(ufunc, method)(*map(_numbers, plain), **options)
    if out is None:
        return _holding(result)
    if out.dtype != object:
        raise NotKnownYet("a traced value cannot go into an array of floats; make it by np.zeros_like of a traced array")
    np.asarray(out)[...] = result
    return out


def _of_objects(ufunc: Any, method: str, inputs: list[Any], options: dict[str, Any]) -> Any:
    if ufunc in _ON_OBJECTS:
        function = ufunc
    elif ufunc in _FUNCTIONS or ufunc.__name__ in _BY_NAME:
        function = np.frompyfunc(_FUNCTIONS.get(ufunc) or _BY_NAME[ufunc.__name__], ufunc.nin, 1)
    else:
        known = ", ".join(sorted({f.__name__ for f in (*_ON_OBJECTS, *_FUNCTIONS)} | _BY_NAME.keys()))
        raise NotKnownYet(f"np.{ufunc.__name__} is not known of traced values. These are: {known}")
    if options.get("where", True) is not True or method in ("at", "reduceat"):
        raise NotKnownYet(f"np.{ufunc.__name__} takes no where= and no .{method} on traced values; use np.where")
    kept = {name: x for name, x in options.items() if name in ("axis", "keepdims", "initial", "axes")}
    return getattr(function, method)(*inputs, **kept)


def _holding(x: Any) -> Any:
    """A result: arrays of floats can hold traced values from now on, arrays of truths and whole numbers stay."""
    if isinstance(x, np.ndarray) and x.dtype.kind in "fO":
        return x.astype(object, copy=False).view(TracedArray) if x.ndim else x.item()
    return x


def _numbers(x: Any) -> Any:
    """An array of objects that are all plain numbers, as NumPy would have made it."""
    return np.array(x.tolist()) if x.size else x.astype(float)


_ON_OBJECTS = frozenset(  # what NumPy does to objects by their own operators
    {np.add, np.subtract, np.multiply, np.divide, np.negative, np.positive, np.square, np.reciprocal, np.matmul}
)


def _angle_by_sine(x: Scalar) -> Scalar:
    return scalars.arctan2(x, scalars.sqrt(1.0 - x * x))


def _angle_by_cosine(x: Scalar) -> Scalar:
    return scalars.arctan2(scalars.sqrt(1.0 - x * x), x)


def _both(x: Any, y: Any) -> Any:
    return scalars.where(x, y, False) if isinstance(x, bool) else x & y


def _either(x: Any, y: Any) -> Any:
    return scalars.where(x, True, y) if isinstance(x, bool) else x | y


def _not(x: Any) -> Any:
    return (not x) if isinstance(x, bool) else ~x


def _cosh(x: Scalar) -> Scalar:
    return 0.5 * (scalars.exp(x) + scalars.exp(-x))


def _sinh(x: Scalar) -> Scalar:
    return scalars.tanh(x) * _cosh(x)  # a difference of exponentials would lose digits near zero


def _expm1(x: Scalar) -> Scalar:
    return scalars.tanh(0.5 * x) * (scalars.exp(x) + 1.0)  # the same


def _heaviside(x: Scalar, at_zero: Scalar) -> Scalar:
    return scalars.where(scalars.less(x, 0.0), 0.0, scalars.where(scalars.less(0.0, x), 1.0, x + at_zero))


def _copysign(x: Scalar, y: Scalar) -> Scalar:
    size = scalars.absolute(x)
    return scalars.where(scalars.less(y, 0.0), -size, size)


def _larger(x: Scalar, y: Scalar) -> Scalar:
    """Of two numbers of which one may be NaN."""
    return scalars.where(scalars.less_equal(y, x), x, scalars.where(_is_nan(y), x, y))


def _smaller(x: Scalar, y: Scalar) -> Scalar:
    return scalars.where(scalars.less_equal(x, y), x, scalars.where(_is_nan(y), x, y))


def _is_nan(x: Any) -> Any:
    return _not(scalars.less_equal(x, x))


def _is_infinite(x: Any) -> Any:
    return scalars.less_equal(math.inf, scalars.absolute(x))


_FUNCTIONS: dict[Any, Callable[..., Scalar]] = {
    np.power: scalars.power,
    np.float_power: scalars.power,
    np.absolute: scalars.absolute,
    np.fabs: scalars.absolute,
    np.sign: scalars.sign,
    np.minimum: scalars.minimum,
    np.maximum: scalars.maximum,
    np.hypot: scalars.hypot,
    np.sin: scalars.sin,
    np.cos: scalars.cos,
    np.tan: lambda x: scalars.sin(x) / scalars.cos(x),
    np.arcsin: _angle_by_sine,
    np.arccos: _angle_by_cosine,
    np.arctan: scalars.arctan,
    np.arctan2: scalars.arctan2,
    np.sqrt: scalars.sqrt,
    np.exp: scalars.exp,
    np.log: scalars.log,
    np.exp2: lambda x: scalars.exp(x * math.log(2.0)),
    np.expm1: _expm1,
    np.log2: lambda x: scalars.log(x) / math.log(2.0),
    np.log10: lambda x: scalars.log(x) / math.log(10.0),
    np.sinh: _sinh,
    np.cosh: _cosh,
    np.tanh: scalars.tanh,
    np.heaviside: _heaviside,
    np.copysign: _copysign,
    np.fmax: _larger,
    np.fmin: _smaller,
    np.isnan: _is_nan,
    np.isinf: _is_infinite,
    np.isfinite: lambda x: scalars.less(scalars.absolute(x), math.inf),
    np.deg2rad: lambda x: x * (math.pi / 180.0),
    np.radians: lambda x: x * (math.pi / 180.0),
    np.rad2deg: lambda x: x * (180.0 / math.pi),
    np.degrees: lambda x: x * (180.0 / math.pi),
    np.less: scalars.less,
    np.less_equal: scalars.less_equal,
    np.greater: lambda x, y: scalars.less(y, x),
    np.greater_equal: lambda x, y: scalars.less_equal(y, x),
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.logical_and: _both,
    np.bitwise_and: _both,
    np.logical_or: _either,
    np.bitwise_or: _either,
    np.logical_not: _not,
    np.invert: _not,
}
_BY_NAME: dict[str, Callable[..., Scalar]] = {"clip": scalars.clip}  # a ufunc that NumPy does not export


# ---- other functions


def on_function(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What `__array_function__` of a traced value gives. NumPy's own code is run where it comes down to ufuncs."""
    if function in _REPLACED:
        return _REPLACED[function](*args, **options)
    given = tuple(_as_arrays(x) for x in args)
    named = {name: _as_arrays(x) for name, x in options.items()}
    try:
        return _holding(np.ndarray.__array_function__(_NOTHING, function, (TracedArray,), given, named))
    except TypeError:
        if any(map(_is_traced, (*given, *named.values()))):
            raise
    return _holding(function(*map(_as_numbers, given), **{name: _as_numbers(x) for name, x in named.items()}))


_NOTHING = np.empty(0, dtype=object).view(TracedArray)


def _as_arrays(x: Any) -> Any:
    """Traced scalars as arrays without axes, in lists too."""
    if isinstance(x, list | tuple) and type(x) in (list, tuple):
        return type(x)(map(_as_arrays, x))
    if not isinstance(x, Unknown):
        return x
    out = np.empty((), dtype=object)
    out[()] = x
    return out.view(TracedArray)


def _is_traced(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return any(map(_is_traced, x))
    return isinstance(x, TracedArray) and any(isinstance(e, Unknown) for e in x.flat)


def _as_numbers(x: Any) -> Any:
    if isinstance(x, list | tuple) and type(x) in (list, tuple):
        return type(x)(map(_as_numbers, x))
    return _numbers(np.asarray(x)) if isinstance(x, TracedArray) else x


def _where(condition: Any, *branches: Any) -> Any:
    if len(branches) != 2:
        raise NotKnownYet("np.where of a traced condition takes what holds then and what holds otherwise")
    return _holding(each(scalars.where, condition, *branches))


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    if period is not None or any(isinstance(p, Unknown) for p in np.asarray(xp, dtype=object).flat):
        raise NotKnownYet("np.interp of a traced value takes places xp that are plain numbers, and no period")
    places, values = np.asarray(xp, dtype=float).tolist(), np.asarray(fp, dtype=object).tolist()

    def one(x: Scalar) -> Scalar:
        y = scalars.interp(x, places, values)
        y = y if left is None else scalars.where(scalars.less(x, places[0]), left, y)
        return y if right is None else scalars.where(scalars.less(places[-1], x), right, y)

    return _holding(each(one, x))


def _select(conditions: Any, choices: Any, default: Any = 0.0) -> Any:
    if len(conditions) != len(choices):
        raise NotKnownYet("np.select takes as many choices as conditions")
    out = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        out = each(scalars.where, condition, choice, out)
    return _holding(out)


def _nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """NumPy's own leaves arrays of objects as they are."""
    if not copy:
        raise NotKnownYet("np.nan_to_num of traced values gives a new array; leave out copy=False")
    largest = float(np.finfo(float).max)
    most, least = (bound if x is None else x for x, bound in ((posinf, largest), (neginf, -largest)))

    def one(x: Scalar) -> Scalar:
        bounded = scalars.where(
            scalars.less_equal(math.inf, x), most, scalars.where(scalars.less_equal(x, -math.inf), least, x)
        )
        return scalars.where(_is_nan(x), nan, bounded)

    return _holding(each(one, x))


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord not in (None, 2) or (ord == 2 and axis is None and np.ndim(x) != 1):
        raise NotKnownYet("np.linalg.norm of traced values is the square root of the sum of squares; ord is None or 2")
    x = _holding(np.asarray(x, dtype=object))
    return scalars.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))


_REPLACED: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.select: _select,
    np.nan_to_num: _nan_to_num,
    np.interp: _interp,
    np.linalg.norm: _norm,
}


# ---- arrays that a user's function makes

_MAKERS = ("zeros", "ones", "empty", "full", "eye", "identity", "zeros_like", "ones_like", "empty_like", "full_like")
_CONVERTERS = ("array", "asarray", "asanyarray", "copy")
_here = threading.local()
exchanging = threading.RLock()  # held while NumPy's functions are exchanged; forks wait for it
_originals: dict[str, Any] = {}
_users = 0


@contextmanager
def arrays_hold_traced_values() -> Iterator[None]:
    """Arrays of floats that a user's code makes in this thread by NumPy's functions can hold traced values."""
    global _users
    with exchanging:
        if _users == 0:
            for name in (*_MAKERS, *_CONVERTERS):
                _originals[name] = getattr(np, name)
                setattr(np, name, _making(_originals[name], name in _MAKERS))
        _users += 1
    before, _here.is_recording = getattr(_here, "is_recording", False), True
    try:
        yield
    finally:
        _here.is_recording = before
        with exchanging:
            _users -= 1
            if _users == 0:
                for name, original in _originals.items():
                    setattr(np, name, original)


def _making(original: Any, makes: bool) -> Any:
    @functools.wraps(original)
    def made(*args: Any, **options: Any) -> Any:
        out = original(*args, **options)
        if not getattr(_here, "is_recording", False) or not _is_users(sys._getframe(1).f_globals):
            return out
        if makes and out.dtype.kind == "f":
            out = out.astype(object)
        return out.view(TracedArray) if out.dtype == object else out

    return made


def _is_users(module: dict[str, Any]) -> bool:
    """Whether code is a user's own: neither ours nor of an installed package, which may hand arrays to compiled code."""
    file = str(module.get("__file__") or "").replace("\\", "/")
    is_ours = str(module.get("__name__", "")).partition(".")[0] in ("qddot", "numpy")
    return not (is_ours or "/site-packages/" in file or "/dist-packages/" in file)
