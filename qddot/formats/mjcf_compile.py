"""MJCF text into MuJoCo's own model: what MuJoCo would take in silence or choke on is refused, its compiler runs limited.

The file may be a stranger's, and MuJoCo's compiler can be kept busy for hours by a number in it, or take all memory. So
it runs in a child process (`qddot/formats/limited.py`), which hands back the compiled model as MuJoCo's binary file; and
the files that it includes or takes meshes from lie below the folders of `qddot/formats/places.py`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from qddot.errors import FileError, message
from qddot.formats import child, places, xml
from qddot.formats.limited import EndedError, Limited

_LESS_MEMORY = "ask for less memory or, if you trust the file, load it with trust=True, which sets no limit"
_MAX_COPIES = 20_000  # of one element by replicate, composite or flexcomp: more keeps MuJoCo busy for minutes
_MAX_RESERVED = 1_000_000  # keyframes, or numbers of the user's own for each body: more keeps MuJoCo busy for minutes
_MAX_FOLDERS = 20  # that compilers of a file and of those it includes name for meshes and pictures
_COPIERS = ("replicate", "composite", "flexcomp")
_FOLDERS = ("meshdir", "texturedir", "assetdir")

# What MuJoCo's compiler complains of, and what a person can do about it. The first that matches is said.
_FIXES = (
    (
        "allocate memory|unknown exception|bytes, more than",
        _LESS_MEMORY,
    ),
    ("codec can't decode|XML_ERROR", "give well-formed XML, saved as UTF-8: MuJoCo reads no other encoding"),
    ("opening file|not found in VFS", "put the file there, or correct its name and the compiler's meshdir or assetdir"),
    ("bad format|too large|invalid number", "write plain finite numbers, separated by spaces"),
    ("too much data|enough data", "give as many numbers as the attribute takes"),
    ("unrecognized attribute", "remove the attribute or correct its name"),
    ("unrecognized element|Unrecognized XML", "remove the element or correct its name"),
    ("invalid keyword", "use one of the words that MJCF knows for this attribute"),
    ("repeated name", "rename one of the two"),
    ("unknown", "declare what is named, or correct the name"),
    (
        "mass and inertia of moving",
        "give the body a geom with mass, or an <inertial> with positive mass and diaginertia",
    ),
    ("A \\+ B >= C|eigenvalues", "correct the inertia: no body has such moments"),
    ("range\\[0\\]", "give the smaller limit first"),
    ("axis too small", "give an axis that is not zero"),
    ("zero quaternion", "give a quaternion that is not zero, such as 1 0 0 0"),
    ("top level", "put the body directly into <worldbody>, or use other joints"),
    ("more than 6 dofs|followed by rotation", "give the body fewer joints, or put a body in between"),
    ("DEPTH", "give a model of ordinary shape"),
)
_ANY_FIX = "correct it as the XML reference of MuJoCo asks"
_TRUST = "simplify the model or, if you trust the file, load it with trust=True, which sets no limits"

_COMPILER = Limited("mjcf")

Places = dict[tuple[str, int], str]


class Compiled(NamedTuple):
    """MuJoCo, its model, where the model's parts stand in the file, the model's name and MuJoCo's remarks."""

    mujoco: Any
    model: Any
    places: Places
    name: str
    remarks: list[str]


def compiled(file: str, root: xml.Element, text: str | None, package_dirs: Sequence[str], trust: bool) -> Compiled:
    """What MuJoCo makes of a file, or of a text that stands for it; `root` is what it says."""
    mujoco = _mujoco(file)
    tree = _Tree(file, package_dirs, trust)
    tree.check(root)
    unplaced = f"{file} or a file it includes" if tree.includes else file  # said of parts that MuJoCo knows no line of
    try:
        if trust:
            model, facts = child.compile_mjcf(file, text)
        else:
            facts, data = _COMPILER.ask({"file": os.path.abspath(file), "text": text})
            if "error" in facts:
                raise ValueError(facts["error"])
            model = mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": data})
    except EndedError as error:
        raise FileError(message(unplaced, "file", f"MuJoCo's compiler {error}", _TRUST)) from None
    except (ValueError, RuntimeError, MemoryError, TypeError, mujoco.FatalError) as error:
        raise _explained(str(error), file, root, unplaced) from None
    lines: Places = {(kind, i): f"{file}:{line}" for kind, i, line in facts["lines"]}
    return Compiled(mujoco, model, {**lines, ("file", 0): unplaced}, facts["name"], facts["remarks"])


def _mujoco(file: str) -> Any:
    try:
        import mujoco
    except ImportError:
        fix = 'install it with: pip install "qddot[mjcf]"'
        problem = "MJCF is read by MuJoCo's compiler, which is not installed"
        raise FileError(message(file, "file", problem, fix)) from None
    return mujoco


# ---- before MuJoCo sees the file -----------------------------------------------------------------------------------


class _Tree:
    """A file and those that it includes."""

    def __init__(self, file: str, package_dirs: Sequence[str], trust: bool) -> None:
        self.file, self.package_dirs, self.trust = file, package_dirs, trust
        self.folder = os.path.dirname(file)
        self.includes = False

    def check(self, root: xml.Element) -> None:
        """Refuses what MuJoCo would take in silence or choke on, in the file and those it includes."""
        if root.tag != "mujoco":
            fix = "load URDF with its own reader" if root.tag == "robot" else "give an MJCF file: its root is <mujoco>"
            raise FileError(message(f"{self.file}:{root.line}", f"<{root.tag}>", "the root element is not <mujoco>", fix))
        known, waiting, trees = {os.path.abspath(self.file)}, [(self.file, root)], list[tuple[str, xml.Element]]()
        while waiting:
            name, top = waiting.pop()
            trees.append((name, top))
            _check_values(name, top)
            for element, _ in _walk(top):
                for folder in dict.fromkeys((self.folder, os.path.dirname(name))):
                    path = os.path.join(folder, element.attributes.get("file", ""))
                    is_text = element.tag == "include" or (element.tag == "model" and path.endswith((".xml", ".mjcf")))
                    if is_text and os.path.isfile(path) and os.path.abspath(path) not in known:
                        self._check_place(path, name, element)
                        known.add(os.path.abspath(path))
                        waiting.append(xml.load(path))
        self.includes = len(known) > 1
        if not self.trust:
            self._check_references(trees)

    def _check_references(self, trees: list[tuple[str, xml.Element]]) -> None:
        """That no file which MuJoCo may open lies elsewhere, however it puts folders and names together."""
        compilers = [e.attributes for _, top in trees for e, _ in _walk(top) if e.tag == "compiler"]
        named = {"", *(c[key] for c in compilers for key in _FOLDERS if key in c)}
        folders = {
            os.path.join(base, name) for base in {self.folder, *(os.path.dirname(n) for n, _ in trees)} for name in named
        }
        if len(named) > _MAX_FOLDERS:
            problem = f"it names {len(named)} folders for meshes and pictures"
            raise FileError(message(self.file, "<compiler>", problem, f"name at most {_MAX_FOLDERS}"))
        for name, top in trees:
            for element, _ in _walk(top):
                for value in (v for a, v in element.attributes.items() if a.startswith("file")):
                    for written in {value, os.path.basename(value)}:  # <compiler strippath="true">
                        for folder in folders:
                            self._check_place(os.path.join(folder, written), name, element)

    def _check_place(self, path: str, name: str, element: xml.Element) -> None:
        def refuse(problem: str, fix: str) -> NoReturn:
            raise FileError(message(f"{name}:{element.line}", f"<{element.tag}>", f"its file {path!r} {problem}", fix))

        if self.trust or "\0" in path or not os.path.lexists(path) or os.path.isdir(path):
            return
        if not places.is_inside(Path(path), Path(self.folder), self.package_dirs):
            fix = "put it there, name its folder in package_dirs=[…], or load the file with trust=True if you trust it"
            refuse("lies outside of the folder and the package of the file", fix)
        if os.path.exists(path) and not os.path.isfile(path):
            refuse("is no regular file", "give a file")


def _walk(root: xml.Element) -> Iterator[tuple[xml.Element, int]]:
    """Every element, and how many copies of it the file asks for."""
    waiting = [(root, 1)]
    while waiting:
        element, copies = waiting.pop()
        if element.tag in _COPIERS:
            counts = re.findall(r"\d+", element.attributes.get("count", ""))[:3]
            copies *= max(1, math.prod(max(1, int(c[:18])) for c in counts))
        yield element, copies
        waiting.extend((child, copies) for child in reversed(element.children))


def _check_values(file: str, root: xml.Element) -> None:
    names = {element.attributes.get("name") for element, _ in _walk(root)}
    for element, copies in _walk(root):
        where, tag = f"{file}:{element.line}", f"<{element.tag}>"
        for attribute, value in element.attributes.items() if element.tag == "size" else ():
            count = re.match(r"\s*\+?0*(\d{1,18})", value) if attribute.startswith(("nkey", "nuser")) else None
            if count is not None and int(count[1]) > _MAX_RESERVED:
                problem, fix = f"{attribute} is {value[:60]!r}", f"reserve at most {_MAX_RESERVED:,}"
                raise FileError(message(where, tag, problem, fix))
        if copies > _MAX_COPIES:
            problem = f"it asks for {copies:,} copies"
            raise FileError(message(where, tag, problem, f"ask for at most {_MAX_COPIES:,}"))
        for attribute, value in element.attributes.items():
            if attribute != "name" and value not in names and _not_finite(value):
                raise FileError(message(where, tag, f"{attribute} is {value!r}", "give finite numbers"))


def _not_finite(value: str) -> bool:
    """Whether a value is a list of numbers with a NaN or an infinity among them."""
    if not re.search("nan|inf", value, re.IGNORECASE):
        return False
    try:
        return not all(math.isfinite(float(word)) for word in value.split())
    except ValueError:
        return False


def _explained(error: str, file: str, root: xml.Element, unplaced: str) -> FileError:
    """MuJoCo's complaint in the form that all errors about models have."""
    said, _, rest = " ".join(error.split()).partition(" Element ")
    said = re.sub(r"^(XML )?(Error: )*|ErrorID=\S+ \S+ ", "", said).rstrip(": ")
    line = re.search(r"[Ll]ine (?:number=)?([1-9]\d*)", f"{rest} {said}")
    element = re.search(r"^(?:name )?'([^']*)'", rest)
    attribute = re.search(r"attribute:? '([^']*)'", said)
    if line and attribute:
        here = (e.attributes.get(attribute[1]) for e, _ in _walk(root) if e.line == int(line[1]))
        said += next((f" ({attribute[1]} is {value!r})" for value in here if value is not None), "")
    fix = next((fix for pattern, fix in _FIXES if re.search(pattern, error)), _ANY_FIX)
    where = f"{file}:{line[1]}" if line else unplaced
    return FileError(message(where, f"element {element[1]!r}" if element and element[1] else "element", said, fix))
