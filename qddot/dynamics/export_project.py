"""A C file of a robot's functions in a folder that build tools know: CMake, Arduino, PlatformIO, or none of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from qddot.compiler.codegen import c99
from qddot.dynamics import export_example
from qddot.dynamics.export import write_files
from qddot.dynamics.export_file import FileFunction, Printed, SourceFile
from qddot.dynamics.exported_function import robot_text
from qddot.errors import FileError, InputError, message
from qddot.mechanism.model import Model

_VERSION = "1.0.0"  # of the package: build tools ask for one
# headers of C and of Arduino, and words that CMake keeps for itself
_TAKEN = re.compile(
    "arduino|assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdarg|stdbool|stddef|"
    "stdint|stdio|stdlib|string|tgmath|time|wchar|wctype|all|all_build|clean|depend|edit_cache|help|install|install_local|"
    "install_strip|list_install_components|package|package_source|preinstall|rebuild_cache|run_tests|test|zero_check|main|m",
    re.IGNORECASE,
)


class Project(NamedTuple):
    """A folder that was written: its name, its files, and the C file in it with its header and functions."""

    folder: Path
    name: str
    layout: str
    files: tuple[Path, ...]
    code: SourceFile

    @property
    def functions(self) -> tuple[FileFunction, ...]:
        """The C functions."""
        return self.code.functions


class _Contents(NamedTuple):
    """What the files of a layout are made of."""

    model: Model
    code: SourceFile
    printed: Sequence[Printed]
    state: Mapping[str, NDArray[Any]]

    @property
    def name(self) -> str:
        return self.code.name

    @property
    def about(self) -> str:
        """The robot in a line that stays one, in ASCII."""
        return c99.escaped(robot_text(self.model))


# ---- layouts: files by their paths in the folder ---------------------------------------------------------------------


def _plain(x: _Contents) -> dict[str, str]:
    main = export_example.main_program(x.name, x.printed, x.state)
    build = f"cc -std=c99 -O2 main.c {x.name}.c -lm -o {x.name}_example"
    return {
        f"{x.name}.c": x.code.source,
        f"{x.name}.h": x.code.header,
        "main.c": main,
        "README.md": _readme(x, [build, f"./{x.name}_example"], ""),
    }


def _cmake(x: _Contents) -> dict[str, str]:
    use = (
        f"In another project:\n\n```cmake\nfind_package({x.name} REQUIRED)\n"
        f"target_link_libraries(YOUR_TARGET PRIVATE {x.name}::{x.name})\n```\n\n"
        f"`add_subdirectory` and `FetchContent` work as well.\n"
    )
    build = ["cmake -S . -B build", "cmake --build build", "ctest --test-dir build", "cmake --install build --prefix DIR"]
    return {
        "CMakeLists.txt": _CMAKE.replace("@NAME@", x.name).replace("@VERSION@", _VERSION),
        f"include/{x.name}.h": x.code.header,
        f"src/{x.name}.c": x.code.source,
        "examples/main.c": export_example.main_program(x.name, x.printed, x.state),
        "README.md": _readme(x, build, use),
    }


def _arduino(x: _Contents) -> dict[str, str]:
    properties = {
        "name": x.name,
        "version": _VERSION,
        "author": "qddot",
        "maintainer": "qddot",
        "sentence": f"Dynamics of a robot, {x.about}.",
        "paragraph": f"Plain C without allocation: {', '.join(f.name for f in x.code.functions)}.",
        "category": "Device Control",
        "url": "",
        "architectures": "*",
        "includes": f"{x.name}.h",
    }
    return {"library.properties": "".join(f"{k}={v}\n" for k, v in properties.items()), **_sketchbook(x)}


def _platformio(x: _Contents) -> dict[str, str]:
    manifest = {
        "name": x.name,
        "version": _VERSION,
        "description": f"Dynamics of a robot, {x.about}.",
        "headers": f"{x.name}.h",
        "frameworks": "*",
        "platforms": "*",
        "build": {"flags": ["-ffp-contract=off"]},
    }
    return {"library.json": json.dumps(manifest, indent=2) + "\n", **_sketchbook(x)}


def _sketchbook(x: _Contents) -> dict[str, str]:
    """What Arduino and PlatformIO have in common."""
    use = "Put this folder among your libraries (Arduino: `libraries/`, PlatformIO: `lib/`) and open the example.\n"
    return {
        f"src/{x.name}.h": x.code.header,
        f"src/{x.name}.c": x.code.source,
        f"examples/{x.name}/{x.name}.ino": export_example.sketch(x.name, x.printed, x.state),
        "README.md": _readme(x, [], use),
    }


LAYOUTS: dict[str, Callable[[_Contents], dict[str, str]]] = {
    "cmake": _cmake,
    "arduino": _arduino,
    "platformio": _platformio,
    "plain": _plain,
}

_CMAKE = """cmake_minimum_required(VERSION 3.15)
project(@NAME@ VERSION @VERSION@ LANGUAGES C)

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  set(@NAME@_MAIN ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release)
  endif()
endif()
option(@NAME@_EXAMPLE "build the example" ${@NAME@_MAIN})

add_library(@NAME@ src/@NAME@.c)
add_library(@NAME@::@NAME@ ALIAS @NAME@)
target_include_directories(@NAME@ PUBLIC
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(@NAME@ PROPERTIES
  C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
  POSITION_INDEPENDENT_CODE ON WINDOWS_EXPORT_ALL_SYMBOLS ON)
if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(@NAME@ PRIVATE -ffp-contract=off)
endif()
if(NOT MSVC)
  target_link_libraries(@NAME@ PRIVATE m)
endif()

install(TARGETS @NAME@ EXPORT @NAME@Config)
install(FILES include/@NAME@.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT @NAME@Config NAMESPACE @NAME@:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/@NAME@)
write_basic_package_version_file(@NAME@ConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/@NAME@ConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/@NAME@)

if(@NAME@_EXAMPLE)
  enable_testing()
  add_executable(@NAME@_example examples/main.c)
  set_target_properties(@NAME@_example PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON)
  target_link_libraries(@NAME@_example PRIVATE @NAME@::@NAME@)
  if(NOT MSVC)
    target_link_libraries(@NAME@_example PRIVATE m)
  endif()
  add_test(NAME @NAME@_example COMMAND @NAME@_example)
endif()
"""


def _readme(x: _Contents, build: Sequence[str], use: str) -> str:
    from qddot.version import __version__

    lines = [
        f"# {x.name}",
        "",
        f"Functions of a robot in C, written by qddot {__version__}; `{x.name}.h` says what they take.",
    ]
    lines += ["", *(f"- `{f.name}`" for f in x.code.functions), ""]
    if build:
        lines += ["```", *build, "```", ""]
    lines += ["The example prints the results of one state and ends with `ok` if they are those that qddot found.", ""]
    return "\n".join([*lines, use]) if use else "\n".join(lines)


# ---- files -----------------------------------------------------------------------------------------------------------


def check_layout(layout: str) -> None:
    """That there is such a layout."""
    if layout not in LAYOUTS:
        raise InputError(f"layout={layout!r} is not known; take one of {', '.join(LAYOUTS)}")


def write(
    path: str | os.PathLike[str],
    model: Model,
    code: SourceFile,
    printed: Sequence[Printed],
    layout: str,
    state: Mapping[str, NDArray[Any]],
) -> Project:
    """Writes the folder; other files in it stay."""
    folder = Path(path)
    if _TAKEN.fullmatch(code.name):
        raise InputError(f"{code.name!r} is a name that C or a build tool has already; give the project another name=")
    texts = LAYOUTS[layout](_Contents(model, code, printed, state))
    files = {folder / place: text.encode("ascii") for place, text in texts.items()}
    for parent in sorted({file.parent for file in files}):
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"it cannot be made: {error.strerror or error}"
            raise FileError(message(str(parent), "folder", problem, "give the name of another folder")) from None
    return Project(folder, code.name, layout, tuple(write_files(files)), code)
