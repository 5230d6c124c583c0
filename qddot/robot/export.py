"""Functions of a robot for other people's programs: the methods that `Robot` has for exporting them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from qddot.dynamics import request
from qddot.dynamics.constrained_solver import solver_of
from qddot.dynamics.task_functions import TASK_FUNCTIONS
from qddot.errors import InputError, one_name, shown, unexpected
from qddot.mechanism import configurations, parameters
from qddot.robot.base import Array, RobotBase

if TYPE_CHECKING:  # printers are loaded when something is exported
    from qddot.dynamics.export import Source
    from qddot.dynamics.export_file import One, Several, SourceFile, Wanted
    from qddot.dynamics.export_library import Library
    from qddot.dynamics.export_library import Wanted as LibraryWanted
    from qddot.dynamics.export_project import Project

_IN_COMMON = ("frame", "rows", "prescribed", "free")  # options of a file that go to the functions which take them


class ExportMethods(RobotBase):
    """A part of `Robot`."""

    def export_source(
        self,
        function: str,
        path: str | os.PathLike[str] | None = None,
        *,
        language: str = "c99",
        frame: str | None = None,
        prescribed: Iterable[str | int | tuple[str, int]] | None = None,
        by: Any = None,
        **options: Any,
    ) -> Source:
        """A function as readable source code in `path`; options: `qddot.dynamics.export.SourceOptions` (docs/export.md)."""
        from qddot.dynamics import export

        called = options.pop("called", "export_source")
        for name in options:
            if name not in export.SourceOptions.__annotations__:
                raise unexpected(called, name, export.SourceOptions.__annotations__)
        chosen = self._resolved(function, {"frame": frame, "prescribed": prescribed, "by": by, **options})
        found = export.source_of(self.model, function, language, **chosen)
        if path is not None:
            export.write(found, path)
        return found

    @overload
    def export_c(self, function: str, path: str | os.PathLike[str] | None = None, **options: Any) -> Source: ...
    @overload
    def export_c(
        self, function: Iterable[Wanted], path: str | os.PathLike[str] | None = None, **options: Any
    ) -> SourceFile: ...
    def export_c(
        self, function: str | Iterable[Wanted], path: str | os.PathLike[str] | None = None, **options: Any
    ) -> Source | SourceFile:
        """A function, or several in one file, as readable C99 in `path`, with a header beside it.

        Options of one function are those of `export_source`. Several are a list of names, of names with options,
        `("jacobian", {"frame": "tool0"})`, and of names with lists: `("terms", ["mass_matrix", "bias_force"])` is one C
        function that gives both results and computes once what they have in common. Options of a list are `dtype`,
        `sincos`, `fma`, `cc` and `cflags` for all, `name`, which their names begin with (otherwise the robot's), and
        `frame` (one or several), `rows`, `prescribed` and `free` for those that take them.
        """
        from qddot.dynamics import export, export_file

        if isinstance(function, str):
            if "language" in options:
                raise unexpected("export_c", "language", export.SourceOptions.__annotations__)
            return self.export_source(function, path, language="c99", called="export_c", **options)

        wanted, options = self._functions(function, options, "export_c")
        found, _ = export_file.file_of(self.model, wanted, options)  # type: ignore[arg-type]
        if path is not None:
            export.write(found, path)
        return found

    def export_project(
        self,
        path: str | os.PathLike[str],
        functions: str | Iterable[Wanted] = "control",
        *,
        layout: str = "cmake",
        **options: Any,
    ) -> Project:
        """A folder with a C file of several functions, its header, an example that calls them, and what builds it.

        - `functions` are as for `export_c`, or "control": inverse and forward dynamics, mass matrix, bias, gravity and
          passive forces, pose, Jacobian and its derivative of a frame, and `control_terms`, which combines most of them.
        - `layout` is "cmake" (a package for `find_package`), "arduino", "platformio", or "plain".
        - Options are those of `export_c` with a list. `name` is also the name of the project and of its header.
        """
        from qddot.dynamics import export_file, export_project

        export_project.check_layout(layout)
        if functions == "control":
            functions, options = self._control(options)
        listed = [functions] if isinstance(functions, str) else functions
        wanted, options = self._functions(listed, options, "export_project")
        found, printed = export_file.file_of(self.model, wanted, options)  # type: ignore[arg-type]
        return export_project.write(path, self.model, found, printed, layout, self._example_state(printed))

    def control_functions(
        self, frame: str | Iterable[str] | None = None, prescribed: Iterable[str | int | tuple[str, int]] | None = None
    ) -> list[Wanted]:
        """The functions that `export_project` and `qddot export --all control` write, as a list for `export_c`.

        Without `frame` it is the last frame of a robot that ends in one link; a robot with several ends has then no
        functions of a frame.
        """
        from qddot.dynamics import export_file

        frames = export_file.end_frames(self.model) if frame is None else _names(frame)
        has_mass = not self.engine.solvability.massless_joints
        return export_file.control(self.model, frames, prescribed and tuple(prescribed), has_mass)

    def export_library(
        self,
        path: str | os.PathLike[str],
        functions: Iterable[LibraryWanted],
        *,
        target: str = "cpu",
        dtype: str = "float64",
    ) -> Library:
        """Functions as machine code for C programs, with a header beside it (docs/export.md).

        - `path` ends in `.so`, a shared library for Linux, or in `.o`, an object file.
        - `functions` are names, or names with options, such as `("jacobian", {"frame": "tool0"})`. Options are `name`, the
          function's in C (otherwise ROBOT_FUNCTION), and kernels' `method`, `dtype`, `form`, `frame`, `rows`, `prescribed`,
          `by`, `free`.
        - `target="cpu"`: this processor, a system such as "aarch64-linux-gnu", or a processor such as "x86-64-v3".
        """
        from qddot.dynamics import export_library

        chosen = []
        for name, options in export_library.named(functions):
            wanted = {"dtype": dtype, **options}
            chosen.append(export_library.requested(self.model, name, wanted, self._rows_for(name)))
            self._require_mass_for(name)
        return export_library.export(self.model, path, chosen, target)

    # ---- options

    def _control(self, options: dict[str, Any]) -> tuple[list[Wanted], dict[str, Any]]:
        """The set "control", and the options that are left."""
        others = {name: x for name, x in options.items() if name not in ("frame", "prescribed")}
        return self.control_functions(options.get("frame"), options.get("prescribed")), others

    def _functions(
        self, functions: Iterable[Wanted], options: dict[str, Any], called: str
    ) -> tuple[list[One | Several], dict[str, Any]]:
        """Functions of a file, resolved, and the options of the file."""
        from qddot.dynamics import export_file

        known = (*export_file.FileOptions.__annotations__, *_IN_COMMON)
        for name in options:
            if name not in known:
                raise unexpected(called, name, known)
        if not isinstance(functions, Iterable) or isinstance(functions, Mapping):
            raise InputError(f"functions are {shown(functions)}; give a list of names, or of names with options")
        common: dict[str, Any] = {"prescribed": options.get("prescribed"), "free": _names(options.get("free", ()))}
        common["rows"] = None if options.get("rows") is None else request.twist_rows(options["rows"])
        common["frames"] = () if options.get("frame") is None else _names(options["frame"])
        parameters.parameters(self.model, common["free"])
        dtype = request.dtype_name(options.get("dtype", "float64"))
        listed = export_file.listed(functions, common)
        _check_taken(common, listed)

        def one(name: str, own: dict[str, Any]) -> One:
            return export_file.One(name, self._resolved(name, {**own, "dtype": dtype}))

        wanted: list[One | Several] = [
            export_file.Several(name, tuple(one(*x) for x in own)) if isinstance(own, list) else one(name, own)
            for name, own in listed
        ]
        others = {name: x for name, x in options.items() if name not in _IN_COMMON}
        return wanted, {**others, "dtype": dtype}

    def _resolved(self, function: str, options: dict[str, Any]) -> dict[str, Any]:
        """The options of a function as the printer takes them, checked."""
        dtype = request.dtype_name(options.get("dtype", "float64"))
        chosen = {name: options.get(name) for name in request.OPTIONS}
        wanted = request.Request(function, options.get("method", "auto"), dtype)
        static = request.static_arguments(self.model, wanted, chosen, self._rows_for(function))
        free = _names(options.get("free", ()))
        parameters.parameters(self.model, free)
        self._require_mass_for(function)
        others = {name: x for name, x in options.items() if name not in chosen}
        if function.startswith("constrained_forward_dynamics"):
            others["dependence_limit"] = solver_of(self.engine).dependence_limit
        return {**others, **static, "dtype": dtype, "free": free}

    def _require_mass_for(self, function: str) -> None:
        """Nothing is exported that divides by a mass matrix which is singular everywhere."""
        if function.startswith(("forward_dynamics", "mass_matrix_inverse", *TASK_FUNCTIONS)):
            self.engine.solvability.require_mass()

    # ---- the example

    def _example_state(self, printed: Iterable[Any]) -> dict[str, Array]:
        """One state by the names of inputs, with loops closed, and the present values of free parameters."""
        v = np.array([round(0.1 * (1 + k % 5) * (-1) ** k, 1) for k in range(self.nv)])
        if self.model.is_constrained:
            solver = solver_of(self.engine)
            q = solver.closed
            v = solver.project_velocity(q, v)
        else:
            q = configurations.integrate(self.model, configurations.neutral(self.model), v)
        state = {"q": q, "v": v, "a": np.round(0.5 - 0.1 * np.arange(self.nv), 1), "tau": np.full(self.nv, 0.25)}
        forces = np.tile([0.0, 0.0, 0.0, 0.0, 0.0, 1.0], (self.model.n_links, 1))
        state |= {"f_ext": forces, "df_ext_dp": forces, "gains": np.zeros(2)}
        state["tau_loops"] = np.zeros(sum(loop.joint.nv for loop in self.model.loops))
        free = {name for x in printed for name in x.exported.free}
        return state | {name: parameters.current(self.model, name) for name in free}


def _names(x: Any) -> tuple[str, ...]:
    """One name, or several."""
    if not isinstance(x, Iterable):
        raise InputError(f"{shown(x)} is no name; give a name, or a list of names")
    return (x,) if isinstance(x, str) else tuple(one_name(name, "a name") for name in x)


def _check_taken(common: dict[str, Any], listed: Sequence[tuple[str, Any]]) -> None:
    """That some function takes what was given to all of them."""
    every = [x for name, own in listed for x in (own if isinstance(own, list) else [(name, own)])]
    for option, key in (("frame", "frames"), ("rows", "rows"), ("prescribed", "prescribed")):
        if common[key] and not any(option in own for _, own in every):
            raise InputError(f"none of the functions takes {option}=; leave it out")
    for name in common["free"]:
        if not any(name in own.get("free", ()) for _, own in every):
            raise InputError(f"none of the functions depends on {name!r}; leave it out of free=")
