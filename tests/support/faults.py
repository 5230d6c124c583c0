"""Small faults of functions, for `tests.mutants`: changes of the syntax tree, compiled to code objects.

A plus becomes a minus, a factor or a sign is dropped, the arguments of a cross product are exchanged, a value is off
by 1 %.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import importlib
import inspect
import io
import re
import tokenize
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from qddot.mechanism.model import Model

# Faults that change nothing that could be tested, by function and description, with the reason.
EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "qddot.algorithms.papers.denoc.composite_masses",
        "carried[0] = zero_inertia(): value off",
    ): "what the world carries is summed and never read",
    (
        "qddot.algorithms.papers.lin_frames.joint_frames",
        "frames = JointFrames([Transform()], [0.0], [0.0], [zero_inertia()]): value off",
    ): "the entries of the world stand there for the count and are never read",
    (
        "qddot.algorithms.constrained_dynamics.multipliers_of_inverse",
        "size = np.linalg.norm(A, axis=(-2, -1)): value off",
    ): "1 % of the size below which a singular value counts as rounding",
    (
        "qddot.algorithms.constrained_dynamics.null_space",
        "moved + usual * (np.eye(n) * ~left[..., None, :]): sign",
    ): "ones or minus ones on the diagonal for unknowns whose right side is zero, so that they are zero either way",
    (
        "qddot.algorithms.papers.divide_and_conquer.forward_dynamics",
        "return np.full(model.nv, np.nan): result off",
    ): "NaN and 1 % is NaN",
}


class Fault(NamedTuple):
    """One change of one function: which code object becomes which, and how a reader finds it."""

    function: str
    says: str
    owner: types.FunctionType
    code: types.CodeType


def off(x: Any) -> Any:
    """The same thing with every number in it slightly another."""
    if isinstance(x, bool):
        return not x
    if isinstance(x, str | bytes | type(None) | type | Model) or callable(x):
        return x  # a model is what a function is given, not what it computes
    if isinstance(x, tuple):
        return type(x)(*map(off, x)) if hasattr(x, "_fields") else type(x)(map(off, x))
    if isinstance(x, list):
        return [off(y) for y in x]
    if isinstance(x, dict):
        return {k: off(y) for k, y in x.items()}
    if isinstance(x, int):
        return x + 1
    if isinstance(x, Iterator):
        return (off(y) for y in x)
    try:
        return x * 1.01 + 0.01
    except TypeError:
        return _fields_off(x)


def _fields_off(x: Any) -> Any:
    out = copy.copy(x)
    for name in [*getattr(x, "__dict__", ()), *(f for c in type(x).__mro__ for f in getattr(c, "__slots__", ()))]:
        with contextlib.suppress(AttributeError, TypeError):
            object.__setattr__(out, name, off(getattr(x, name)))
    return out


class Place(NamedTuple):
    """A fault that could be made: what it does, and the lines of its statement."""

    says: str
    first: int
    last: int


class _Change(ast.NodeTransformer):
    """Makes the fault number `wanted` among those of a function, and lists them."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted, self.places, self.first, self.last = wanted, list[Place](), 0, 0
        self.inner: set[str] = set()  # names of functions inside the function

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.stmt):
            return super().visit(node)
        outer = self.first, self.last
        body = getattr(node, "body", None)
        self.first, self.last = node.lineno, body[0].lineno - 1 if body else node.end_lineno or node.lineno
        out = super().visit(node)
        self.first, self.last = outer
        return out

    def _hit(self, node: ast.AST, what: str) -> bool:
        text = " ".join(ast.unparse(node).split())
        self.places.append(Place(f"{text}: {what}", self.first, max(self.first, self.last)))
        return len(self.places) - 1 == self.wanted

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if any(isinstance(n, ast.JoinedStr | ast.List | ast.Tuple) or _is_str(n) for n in (node.left, node.right)):
            return node
        if isinstance(node.op, ast.Add | ast.Sub) and self._hit(node, "sign"):
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            return ast.copy_location(ast.BinOp(node.left, other, node.right), node)
        if isinstance(node.op, ast.Mult) and self._hit(node, "factor dropped"):
            return node.left if not isinstance(node.left, ast.Constant) else node.right
        if isinstance(node.op, ast.Div) and self._hit(node, "multiplied instead"):
            return ast.copy_location(ast.BinOp(node.left, ast.Mult(), node.right), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _OPPOSITE and self._hit(node, "sign"):
            other = ast.parse(f"__import__('qddot.spatial.rotation', fromlist=['_']).{_OPPOSITE[name]}", mode="eval").body
            return ast.copy_location(ast.Call(other, node.args, []), node)
        if name == "cross" and self._hit(node, "arguments exchanged"):
            return ast.copy_location(ast.Call(node.func, node.args[::-1], []), node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value = self.visit(node.value)  # and no index: that would be a crash, which says little
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        changes = isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant)
        return node.operand if changes and self._hit(node, "minus dropped") else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Sub) and self._hit(node, "value off"):  # of a number or of a list
            return ast.copy_location(ast.AugAssign(node.target, node.op, _off(node.value)), node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if _is_value(node.value) and self._hit(node, "value off"):
            return ast.copy_location(ast.Assign(node.targets, _parts_off(node.value)), node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        call = node.value
        if isinstance(call, ast.Call) and call.args and _is_value(call.args[-1]) and self._hit(node, "value off"):
            call.args[-1] = _off(call.args[-1])
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.inner.add(node.name)
        self.generic_visit(node)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        is_value = node.value is not None and not (isinstance(node.value, ast.Name) and node.value.id in self.inner)
        if is_value and self._hit(node, "result off"):
            return ast.copy_location(ast.Return(_off(node.value)), node)
        return node


_OPPOSITE = {"add": "sub", "sub": "add", "mat_add": "mat_sub", "mat_sub": "mat_add"}


def _off(node: ast.expr) -> ast.expr:
    load = ast.parse("__import__('tests.support.faults', fromlist=['off']).off(_)", mode="eval").body
    assert isinstance(load, ast.Call)
    load.args = [node]
    return ast.copy_location(load, node)


def _parts_off(node: ast.expr) -> ast.expr:
    """Of a tuple what is computed in it: names and indices may stand beside it."""
    if not isinstance(node, ast.Tuple):
        return _off(node)
    return ast.copy_location(ast.Tuple([_off(x) if _is_value(x) else x for x in node.elts], node.ctx), node)


def _is_str(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_value(node: ast.expr) -> bool:
    """Something computed, and a tuple with such a thing in it and no container."""
    if isinstance(node, ast.Tuple):
        return any(map(_is_value, node.elts)) and not any(map(_is_container, node.elts))
    if isinstance(node, ast.IfExp):
        return not _is_str(node.body) and not _is_container(node.body)
    if isinstance(node, ast.ListComp):
        return _is_value(node.elt)
    return isinstance(node, ast.Call | ast.BinOp | ast.UnaryOp) and not _is_container(node)


_CONTAINER = re.compile(
    r"per_link|joint_vector|joint_matrix|\.column$|\.row$|zeros|empty|len$|range|^list|^dict|^set|^tuple|slots|sorted|Graph"
)


def _is_container(node: ast.expr) -> bool:
    """Empty tables, sizes and ranges: a value that is off there is a crash, which says little."""
    return isinstance(node, ast.Call) and bool(_CONTAINER.search(ast.unparse(node.func)))


def faults(name: str, paper: str, equations: tuple[str, ...], most: int) -> list[Fault]:
    """Up to `most` faults of what docs/papers.md names, spread over its lines; those of the equations' own lines alone
    where there are such."""
    found = [(f, k, place) for f in _functions(_find(name)) for k, place in enumerate(_places(f))]
    found = [(f, k, place) for f, k, place in found if (name, place.says) not in EQUIVALENT]
    own = [(f, k, place) for f, k, place in found if set(equations) & cited(paper, _comments(f, place), equations)]
    among = own or found
    chosen = among if len(among) <= most else [among[(2 * k + 1) * len(among) // (2 * most)] for k in range(most)]
    return [Fault(name, place.says, f, _mutated(f, k)) for f, k, place in chosen]


def cited(paper: str, comment: str, labels: tuple[str, ...] = ()) -> set[str]:
    """The equations of this paper that a comment has, and the labels that are no numbers if they stand in it.

    A paper's name holds for the numbers after it; numbers before any name count for every paper.
    """
    out, of = {label for label in labels if not label.startswith("(") and label.lower() in comment.lower()}, ""
    for author, first, last in _CITATION.findall(comment):
        of = author or of
        if not author and (not of or paper.startswith(of)):
            begin, end = (re.fullmatch(r"(A?)(\d+)([ab]?)", x) for x in (first, last or first))
            if begin and end:
                out |= {f"({begin[1]}{k}{begin[3]})" for k in range(int(begin[2]), int(end[2]) + 1)}
    return out


_CITATION = re.compile(r"\b(Featherstone|Kim|Saha|Lin)\b|(?<![\w.])\((A?\d+[ab]?)\)(?:-\((A?\d+[ab]?)\))?")


@functools.cache
def _source(path: str) -> tuple[str, dict[int, str]]:
    """The text of a file, and its comments by line."""
    text = Path(path).read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return text, {t.start[0]: t.string for t in tokens if t.type == tokenize.COMMENT}


def _comments(function: types.FunctionType, place: Place) -> str:
    """Those in the lines of a statement, and in the line above it if it has nothing else."""
    text, comments = _source(function.__code__.co_filename)
    above = text.splitlines()[place.first - 2].lstrip().startswith("#")
    return " ".join(comments.get(k, "") for k in range(place.first - above, place.last + 1))


@functools.cache
def _places(function: types.FunctionType) -> list[Place]:
    change = _Change()
    for statement in _definition(ast.parse(_source(function.__code__.co_filename)[0]), function).body:
        change.visit(statement)
    return change.places


@functools.cache
def _mutated(function: types.FunctionType, k: int) -> types.CodeType:
    path, change = function.__code__.co_filename, _Change(k)
    tree = ast.parse(_source(path)[0])
    node = _definition(tree, function)
    node.body = [change.visit(statement) for statement in node.body]
    code = _code(compile(ast.fix_missing_locations(tree), path, "exec"), function)
    assert code.co_freevars == function.__code__.co_freevars, f"{function.__qualname__}: {change.places[k].says}"
    return code


def _definition(tree: ast.AST, function: types.FunctionType) -> ast.FunctionDef:
    line = function.__code__.co_firstlineno
    for node in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        begins = (node.lineno, *(d.lineno for d in node.decorator_list))
        if node.name == function.__code__.co_name and line in begins:
            return node
    raise LookupError(function.__qualname__)


def _code(module: types.CodeType, function: types.FunctionType) -> types.CodeType:
    waiting = [module]
    while waiting:
        code = waiting.pop()
        if code.co_name == function.__code__.co_name and code.co_firstlineno == function.__code__.co_firstlineno:
            return code
        waiting += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    raise LookupError(function.__qualname__)


def _functions(thing: Any) -> list[types.FunctionType]:
    """The Python functions of what a row names: itself, what a property calls, or all methods of a class."""
    if isinstance(thing, type):
        own = [v for k, v in vars(thing).items() if not k.startswith("__") or k in _ARITHMETIC]
        return [f for v in own for f in _functions(v)]
    thing = getattr(thing, "fget", None) or getattr(thing, "func", None) or getattr(thing, "__func__", None) or thing
    thing = inspect.unwrap(thing) if callable(thing) else thing
    return [thing] if isinstance(thing, types.FunctionType) and "qddot" in (thing.__module__ or "") else []


_ARITHMETIC = ("__add__", "__sub__", "__mul__", "__rmul__", "__matmul__", "__neg__", "__truediv__")


def _find(name: str) -> Any:
    """What has this dotted name, properties as they stand in their class."""
    *path, last = name.split(".")
    for cut in range(len(path), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            thing: Any = importlib.import_module(".".join(path[:cut]))
            for part in [*path[cut:], last]:
                thing = inspect.getattr_static(thing, part)
            return thing
    raise LookupError(name)
