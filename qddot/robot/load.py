"""The ways to get a robot: from a file, by name, from a DH table, from a generator, from a Builder."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from qddot import formats, robots
from qddot.dynamics.input_checks import positive
from qddot.errors import FileError, InputError, ModelError, QddotWarning, message, printable, shown, unexpected, unknown
from qddot.formats.files import of_file
from qddot.mechanism import builder
from qddot.mechanism.model import Model
from qddot.robot import Robot

if TYPE_CHECKING:
    from qddot.simulation.trajectory import Trajectory


def load_trajectory(directory: str | os.PathLike[str], robot: Robot | None = None) -> Trajectory:
    """What `Trajectory.save` or a recorded run has left in a folder, also of a run that is not complete.

    `robot` is needed where it has joints or constraints of its user's own.
    """
    from qddot.simulation.run_folder import Recording

    recording = Recording(directory)
    return recording.trajectory(Robot(recording.model()) if robot is None else robot)


class Builder(builder.Builder):
    """`qddot.mechanism.builder.Builder` that also hands out the finished robot."""

    def robot(self) -> Robot:
        """The finished robot. What is doubtful about it is a warning, unless `allow_unphysical` has said that it may be."""
        model = self.model()
        if not self.allow_unphysical:
            _warn_of_findings(model, f"robot {model.name!r} was built")
        return Robot(model)


_DH_OPTIONS = ("name", "gravity", "snap", "where", "allow_unphysical")
PRINTED = 1e-11  # radians: what a π/2 of twelve digits misses, and nobody's design


_LOAD_OPTIONS = ("floating_base", "package_dirs", "passive_forces", "snap", "own_joints", "loop_tolerance", "trust")


class FileOptions(TypedDict, total=False):
    """What may be said to `load` besides."""

    srdf: str | os.PathLike[str] | bool  # groups and configurations; True, the default: a file beside the robot's
    xacro_arguments: Mapping[str, str]  # what `xacro FILE name:=value` takes


def load(
    source: str | os.PathLike[str],
    *,
    floating_base: bool = False,
    package_dirs: Sequence[str] = (),
    passive_forces: bool = True,
    snap: bool | float = PRINTED,
    own_joints: Mapping[str, Callable[..., Any]] | None = None,
    loop_tolerance: float | None = None,
    trust: bool = False,
    **more: Unpack[FileOptions],
) -> Robot:
    """A robot from a file (URDF, xacro, MJCF, SDF, DH table in CSV or TOML, qddot's own), also compressed (`.gz`), or, by
    its name, an embedded one.

    `floating_base` puts a URDF on a free joint; `package_dirs` is where its meshes may be; `passive_forces=False`
    leaves out joint damping, friction and springs; `snap` sets angles within so many radians of a multiple of π/2 to it
    and reports each: by default those of a π/2 printed with twelve digits, with True those within 1e-5, with False none;
    `own_joints` gives the functions of a saved robot's own joints; `loop_tolerance` is how far loops may miss, in m or
    rad, and still count as closed: by default it comes from the accuracy of the file's own numbers.

    A file leads to others, such as meshes, only below its own folder, its package and `package_dirs`, and MuJoCo's compiler
    reads MJCF with limits of time and memory. `trust=True` lifts both: for files whose author you trust. Xacro files run
    code and are read with it only. Further options are those of `FileOptions`: srdf, xacro_arguments.
    """
    for key in more:
        if key not in FileOptions.__annotations__:
            raise unexpected("load", key, (*_LOAD_OPTIONS, *FileOptions.__annotations__))
    if loop_tolerance is not None:
        positive(loop_tolerance, "loop_tolerance", "m or rad")
    tolerance = (1e-5 if snap else 0.0) if isinstance(snap, bool) else float(snap)
    package_dirs = (package_dirs,) if isinstance(package_dirs, str) else tuple(package_dirs)
    try:
        arguments = more.get("xacro_arguments", {})
        model = _read(source, formats.ReadOptions(floating_base, package_dirs, tolerance, own_joints, trust, arguments))
    except FileError:
        raise
    except ModelError as error:
        raise of_file(error, os.fspath(source)) from None
    if source not in robots.NAMES:
        model = dataclasses.replace(model, source=os.path.abspath(source), package_dirs=package_dirs, trusted=trust)
    model = _with_groups(model, more.get("srdf", source not in robots.NAMES), source, package_dirs)
    if loop_tolerance is not None:
        model = dataclasses.replace(model, loop_tolerance=float(loop_tolerance))
    if source not in robots.NAMES:  # those of embedded robots are known, and stand in their own pages
        _warn_of_findings(model, f"{printable(str(source))} was read")
    return Robot(model if passive_forces else model.without_passive_forces())


def _with_groups(
    model: Model, srdf: str | os.PathLike[str] | bool, source: str | os.PathLike[str], package_dirs: tuple[str, ...]
) -> Model:
    """With the groups and configurations of an SRDF file: that one, or with True one that is found beside the robot's."""
    if srdf is False or (srdf is True and model.groups.joints):  # a saved robot has its own
        return model
    from qddot.formats.srdf import with_groups, with_groups_beside

    if srdf is True:
        return with_groups_beside(model, Path(source), package_dirs)
    if not isinstance(srdf, str | os.PathLike):
        raise InputError(f"srdf is {shown(srdf)}; give the path of an SRDF file, or False for none")
    return with_groups(model, Path(srdf))


def _warn_of_findings(model: Model, what: str) -> None:
    serious = [f for f in model.findings if f.severity != "note"]
    if serious:
        more = f" (and {len(serious) - 3} more in robot.findings)" if len(serious) > 3 else ""
        text = "\n  ".join(str(f) for f in serious[:3])
        warnings.warn(f"{what} with findings{more}:\n  {text}", QddotWarning, stacklevel=3)


def _read(source: str | os.PathLike[str], options: formats.ReadOptions) -> Model:
    if not isinstance(source, str | os.PathLike) or isinstance(os.fspath(source), bytes):
        fix = "give a path as a string or pathlib.Path, or the name of an embedded robot"
        raise FileError(message("", "file", f"the source is a {type(source).__name__}", fix))
    path = Path(source)
    if isinstance(source, str) and source in robots.NAMES:
        if options.floating_base:
            raise formats.no_floating_base(source)
        return robots.build(source).model()
    if not os.path.exists(path):  # which also says no to names that are too long or have a zero byte
        if path.suffix == "" and os.sep not in str(source):
            raise unknown("robot or file", str(source), robots.NAMES, "qddot")
        raise FileError(message(str(source), "file", "it does not exist", "check the path"))
    return formats.read(path, options)


def from_dh(rows: Sequence[Mapping[str, Any]], convention: str = "modified", **options: Any) -> Robot:
    """A robot from a DH table: rows with alpha, a, theta, d, kind, mass, com, inertia (about the com).

    Options: `name`, `gravity`, `snap`, and `allow_unphysical` to keep inertias that no body has.
    """
    from qddot.formats import dh

    for key in options:
        if key not in _DH_OPTIONS:
            raise unexpected("from_dh", key, ("convention", *_DH_OPTIONS))
    model = dh.from_rows(rows, convention=convention, **options).model()
    if not options.get("allow_unphysical"):
        _warn_of_findings(model, f"robot {model.name!r} was built")
    return Robot(model)


def chain(n: int, rng: np.random.Generator | int | None = None, **options: Any) -> Robot:
    """A chain of n links: regular without rng, random with one."""
    from qddot.robots import generators

    return Robot(generators.chain(n, rng=rng, **options).model())


def random_tree(n: int, rng: np.random.Generator | int | None = None, **options: Any) -> Robot:
    """A random tree of n links over all kinds of joints."""
    from qddot.robots import generators

    return Robot(generators.random_tree(n, rng=rng, **options).model())
