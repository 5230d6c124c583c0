"""Which files a robot's file may lead to: those in its own folder, in its package, and in folders that the user declares.

A file from a stranger names other files, and those names may lead anywhere: by "..", by an absolute path, by a link. What
a name leads to is opened only below one of these folders:

- the folder of the robot's file, and the package around it: the nearest folder above, five levels up at most, that has
  one of `_MARKS` in it; without such, the folder above one that is called urdf, mjcf, …
- `package_dirs`
- for package://NAME/… and model://NAME/… a folder NAME above the robot's file, or beside one above it, with a package.xml
  or model.config in it, and those below ROS_PACKAGE_PATH and AMENT_PREFIX_PATH

Symbolic links are followed first, except in the folders of ROS, which installs by links. `trust=True` allows every file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

_PACKAGE = ("package.xml", "model.config")
_MARKS = (*_PACKAGE, "pyproject.toml", "setup.py", "__init__.py", "CMakeLists.txt", ".git")
_INNER = {"urdf", "xacro", "robots", "mjcf", "xml", "sdf"}  # folders that are usually one of several in a package
_MAX_PACKAGE_LEVELS = 5
_REFERENCE = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://(.*)$", re.DOTALL)


class _Candidate(NamedTuple):
    """A file that a name may mean, and the folder, if there is one, that this kind of name may lead to besides."""

    path: Path
    root: Path | None = None


def locate(name: str, folder: Path, package_dirs: Sequence[str] = (), trust: bool = False) -> Path | None:
    """The file that a mesh's name means: in package_dirs, beside or above the robot's file, or where ROS has packages."""
    for path, root in _candidates(name, folder, package_dirs):
        if trust or is_inside(path, folder, package_dirs if root is None else (*package_dirs, str(root))):
            return path
    return None


def leads_outside(name: str, folder: Path, package_dirs: Sequence[str] = ()) -> bool:
    """Whether a name that `locate` does not find means a file that is there and not to be opened, or another machine."""
    return _is_remote(name) or any(True for _ in _candidates(name, folder, package_dirs))


def is_inside(path: Path, folder: Path, package_dirs: Sequence[str] = ()) -> bool:
    """Whether a path lies below the folder of a robot's file, its package, the declared folders or those of ROS."""
    if _is_remote(str(path)):
        return False
    if any(Path(os.path.abspath(path)).is_relative_to(os.path.abspath(place)) for place in _ros_folders()):
        return True
    try:
        real = path.resolve()
        return any(real.is_relative_to(root) for root in roots(folder, package_dirs))
    except (OSError, RuntimeError, ValueError):  # links that form a ring, a zero byte
        return False


def roots(folder: Path, package_dirs: Sequence[str] = ()) -> list[Path]:
    """The folders below which a file in `folder` may lead, with all links followed."""
    return [package_of(folder), *(Path(d).resolve() for d in package_dirs)]


def package_of(folder: Path) -> Path:
    """The folder of the package that a folder belongs to; the folder itself where nothing says more."""
    folder = folder.resolve()
    for up in (folder, *folder.parents)[: _MAX_PACKAGE_LEVELS + 1]:
        if _has(up, _MARKS):
            return up
    return folder.parent if folder.name.lower() in _INNER and not _is_everything(folder.parent) else folder


def package_places(folder: Path, package_dirs: Sequence[str] = ()) -> list[Path]:
    """Where packages are looked for by their names: these folders, and what is in them."""
    folder = folder.resolve()
    return [*(Path(d).resolve() for d in package_dirs), folder, *folder.parents, *_ros_folders()]


def _has(folder: Path, marks: tuple[str, ...]) -> bool:
    return not _is_everything(folder) and any(os.path.lexists(folder / mark) for mark in marks)


def _is_everything(folder: Path) -> bool:
    """Whether a folder holds all that the user has: it is no package, whatever is in it."""
    return folder == folder.parent or folder == Path.home()


def _is_remote(name: str) -> bool:
    """Whether a name means another machine, which even looking for the file would ask."""
    scheme, rest = _parts(name)
    network = rest.replace("\\", "/").startswith("//")
    return scheme not in ("", "file", "package", "model") or (scheme in ("", "file") and network)


def _parts(name: str) -> tuple[str, str]:
    match = _REFERENCE.match(name)
    return (match.group(1).lower(), match.group(2)) if match else ("", name)


def _candidates(name: str, folder: Path, package_dirs: Sequence[str]) -> Iterator[_Candidate]:
    """The files that are there under a name, the likeliest first, allowed or not."""
    if _is_remote(name):
        return
    scheme, rest = _parts(name)
    for written in dict.fromkeys((rest, unquote(rest)) if scheme else (rest,)):
        for candidate in _readings(scheme, written, folder, package_dirs):
            try:
                found = candidate.path.is_file()
            except (OSError, ValueError):  # a name too long, or with a zero byte
                found = False
            if found:
                yield candidate


def _readings(scheme: str, rest: str, folder: Path, package_dirs: Sequence[str]) -> Iterator[_Candidate]:
    declared = [Path(d) for d in package_dirs]
    if scheme in ("package", "model"):
        package, _, inside = rest.lstrip("/").partition("/")
        if package in ("", ".", ".."):
            return
        for place in declared:
            yield from (_Candidate(place / package / inside), _Candidate(place / inside))
        if (own := package_of(folder)).name == package:
            yield _Candidate(own / inside)
        for up in (folder, *folder.parents):
            for place in (up, up / package):
                if place.name == package:
                    yield _Candidate(place / inside, place if _has(place, _PACKAGE) else None)
        yield from (_Candidate(place / package / inside) for place in _ros_folders())
    elif scheme == "file" or os.path.isabs(rest):
        yield _Candidate(Path(rest))
    else:
        yield from (_Candidate(place / rest) for place in (*declared, folder, *folder.parents))


def _ros_folders() -> list[Path]:
    ros1 = os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep)
    ros2 = [os.path.join(p, "share") for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    return [Path(p) for p in (*ros1, *ros2) if p]
