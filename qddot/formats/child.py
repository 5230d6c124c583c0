"""What runs in the limited child process of `qddot/formats/limited.py`: MuJoCo's compiler, trimesh's readers, xacro.

As a script it imports nothing of qddot. It answers requests from its standard input until that ends, each within limits
that it sets itself; whatever a parser prints goes nowhere.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import struct
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.parsers import expat

MAX_ANSWER = 2**30  # bytes
MAX_FILE = 256 * 2**20  # bytes of a mesh, of all that it refers to, and of all that is in an archive
MAX_ENTRIES = 1000  # of an archive
MAX_FACES = 5_000_000  # of all instances in one mesh file
READ = (".stl", ".obj", ".dae", ".zae", ".ply", ".off", ".glb", ".gltf")
_LENGTH = struct.Struct("<Q")


# ---- MJCF ------------------------------------------------------------------------------------------------------------


def compile_mjcf(file: str, text: str | None) -> tuple[Any, dict[str, Any]]:
    """MuJoCo's model of a file, or of a text that stands for it, its name, the lines of its parts, and MuJoCo's remarks.

    Remarks come by two ways, Python's warnings and a callback that would otherwise print and write a log file.
    """
    import mujoco

    remarks: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(remarks.append)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            spec = _spec(mujoco, file, text)
            compiled = spec.compile()
    finally:
        mujoco.set_mju_user_warning(before)
    remarks += [str(w.message) for w in caught]
    lines = []
    tables = {"body": spec.bodies, "joint": spec.joints, "site": spec.sites, "equality": spec.equalities}
    for kind, parts in tables.items():
        for part in parts:
            if line := re.fullmatch(r"line ([1-9]\d*)", part.info):
                lines.append((kind, part.id, int(line[1])))
    name = "" if spec.modelname == "MuJoCo Model" else spec.modelname
    return compiled, {"name": name, "lines": lines, "remarks": remarks}


def _spec(mujoco: Any, file: str, text: str | None) -> Any:
    if text is not None:
        spec = mujoco.MjSpec.from_string(text)
        spec.modelfiledir = os.path.dirname(file)
        return spec
    if file.lower().endswith(".xml"):
        return mujoco.MjSpec.from_file(file)
    as_xml = f"{file}.xml"  # MuJoCo 4 looks at the ending; beside the file, so that what it includes is found
    with gzip.open(file, "rb") if file.lower().endswith(".gz") else open(file, "rb") as stream:
        content = stream.read(MAX_FILE)
    return mujoco.MjSpec.from_file(as_xml, include={as_xml: content})


def _mjcf(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    import mujoco
    import numpy as np

    compiled, facts = compile_mjcf(request["file"], request["text"])
    size = mujoco.mj_sizeModel(compiled)
    if size > MAX_ANSWER:
        raise ValueError(f"Error: the compiled model has {size:,} bytes, more than {MAX_ANSWER:,}")
    data = np.zeros(size, dtype=np.uint8)
    mujoco.mj_saveModel(compiled, None, data)
    return facts, data.tobytes()


# ---- meshes ----------------------------------------------------------------------------------------------------------


def load_mesh(file: str, roots: list[str] | None, remarks: list[str]) -> Iterator[tuple[Any, tuple[int, ...] | None, bool]]:
    """The parts of a mesh file in metres: a trimesh, its one colour if it has one, whether it has a picture.

    What the file refers to, such as pictures, is read below one of `roots` only, or below any where that is None; what of
    it cannot be read is added to `remarks`.
    """
    import trimesh

    data, kind, resolver = _opened(trimesh, Path(file), roots, remarks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pictures: Pillow's own limit is an error at twice what it warns of
        scene: Any = trimesh.load_scene(io.BytesIO(data), file_type=kind, resolver=resolver)
    instances = [scene.geometry[name] for _, name in map(scene.graph.get, scene.graph.nodes_geometry)]
    faces = sum(len(g.faces) for g in instances if hasattr(g, "faces"))
    if faces > MAX_FACES:
        raise ValueError(f"it has {faces:,} faces, more than {MAX_FACES:,}")
    if faces == 0:
        raise ValueError("it has no faces")
    unit = re.match(r"^([0-9.eE+-]+) \* meters$", str(scene.units or ""))
    for part in scene.dump():
        if hasattr(part, "faces") and len(part.faces):
            if unit is not None:  # COLLADA says what its numbers are; STL and OBJ are taken as metres
                part.apply_scale(float(unit.group(1)))
            material = getattr(part.visual, "material", None)
            picture = any(getattr(material, name, None) is not None for name in ("image", "baseColorTexture"))
            yield part, _own_color(part), picture


def _own_color(part: Any) -> tuple[int, ...] | None:
    """The one colour of a part: its material's, or the mean of its faces'."""
    if part.visual.kind is None:
        return None
    material = getattr(part.visual, "material", None)
    rgba = part.visual.main_color if material is None else material.main_color
    return tuple(int(x) for x in rgba)


def _opened(trimesh: Any, file: Path, roots: list[str] | None, remarks: list[str]) -> tuple[bytes, str, Any]:
    """A mesh file's bytes, its kind, and what finds the files that it refers to."""
    kind = file.suffix.lower()
    if kind not in READ:
        raise ValueError(f"files that end in {kind or 'nothing'} are not read, but {', '.join(READ)}")
    data = _bytes_of(file)
    resolver = _resolver(trimesh, lambda name: _beside(file, name, roots), remarks)
    if kind == ".zae":
        entries = _unpacked(data)
        kind, name = ".dae", next((n for n in entries if n.lower().endswith(".dae")), "")
        if not name:
            raise ValueError("the archive has no .dae file")
        data, resolver = entries[name], _resolver(trimesh, entries.__getitem__, remarks)
    if kind == ".dae":
        _refuse_document_types(data)
    return data, kind[1:], resolver


def _bytes_of(file: Path) -> bytes:
    with file.open("rb") as stream:
        data = stream.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise ValueError(f"{file.name} is larger than {MAX_FILE // 2**20} MB")
    return data


def _unpacked(data: bytes) -> dict[str, bytes]:
    """The files of an archive. What an entry says of its size is what zipfile reads at most."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        size = sum(e.file_size for e in entries)
        if len(entries) > MAX_ENTRIES or size > MAX_FILE:
            raise ValueError(f"the archive has {len(entries):,} files of {size:,} bytes")
        return {e.filename: archive.read(e) for e in entries}


def _refuse_document_types(data: bytes) -> None:
    """Entities can expand without end, and read files: documents that declare any are not passed on."""

    def refuse(*_: Any) -> None:
        raise ValueError("document types and entities are not read")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(data, True)


def _beside(file: Path, name: str, roots: list[str] | None) -> bytes:
    path = (file.parent / name.strip()).resolve()
    if roots is not None and not any(path.is_relative_to(root) for root in roots):
        raise ValueError(f"{name!r} is outside of the robot's folders")
    if not path.is_file():
        raise FileNotFoundError(name)
    return _bytes_of(path)


def _resolver(trimesh: Any, find: Any, remarks: list[str]) -> Any:
    """What trimesh asks for the files that a mesh refers to; together they have at most `MAX_FILE` bytes."""
    left = MAX_FILE

    class Resolver(trimesh.resolvers.Resolver):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        def get(self, name: str) -> bytes:
            nonlocal left
            try:
                data = bytes(find(name))
                left -= len(data)
                if left < 0:
                    raise ValueError(f"all that is referred to is more than {MAX_FILE // 2**20} MB")
            except Exception as error:  # trimesh goes on without it, and tells nobody
                remarks.append(f"{name} cannot be read ({type(error).__name__}: {error})"[:300])
                raise
            return data

        def write(self, name: str, data: Any) -> None:
            raise ValueError("a mesh that is read writes nothing")

        def namespaced(self, namespace: str) -> Any:
            return _resolver(trimesh, lambda name: find(f"{namespace}/{name}"), remarks)

        def keys(self) -> list[str]:
            return []

    return Resolver()


def _mesh(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    import numpy as np

    arrays: dict[str, Any] = {}
    parts, remarks = [], list[str]()
    for k, (part, color, picture) in enumerate(load_mesh(request["file"], request["roots"], remarks)):
        arrays[f"vertices{k}"], arrays[f"faces{k}"] = np.asarray(part.vertices), np.asarray(part.faces)
        if picture:
            arrays[f"glb{k}"] = np.frombuffer(part.export(file_type="glb"), dtype=np.uint8)
        parts.append({"color": color, "picture": picture})
    blob = io.BytesIO()
    np.savez(blob, **arrays)
    return {"parts": parts, "remarks": remarks[:10]}, blob.getvalue()


# ---- xacro -----------------------------------------------------------------------------------------------------------


def _xacro(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The text that a xacro file expands to. $(find NAME) is a folder NAME among the places of the request, or in one."""
    import types

    import xacro

    def folder_of(package: str) -> str:
        for place in map(Path, request["places"]):
            for folder in (place, place / package):
                if folder.name == package and folder.is_dir():
                    return str(folder)
        raise ValueError(f"package {package!r} is not found; name its folder in package_dirs=[…]")

    index: Any = types.ModuleType("ament_index_python.packages")  # xacro imports it for $(find)
    index.get_package_share_directory = folder_of
    sys.modules["ament_index_python"] = types.ModuleType("ament_index_python")
    sys.modules["ament_index_python.packages"] = index
    os.chdir(os.path.dirname(request["file"]))
    document = xacro.process_file(request["file"], mappings=request["arguments"])
    return {}, document.toxml(encoding="utf-8")


# ---- the process -----------------------------------------------------------------------------------------------------


def _limit(memory: int) -> None:
    with suppress(ImportError, ValueError, OSError):  # Windows has none of these, macOS not all
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _limit_time(seconds: float) -> None:
    """From now on: the processor's time until now is not counted."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + 1, most))


def _serve(work: str, memory: int) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process if it wants to
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    _limit(memory)
    do = {"mjcf": _mjcf, "mesh": _mesh, "xacro": _xacro}[work]
    while len(head := requests.read(_LENGTH.size)) == _LENGTH.size:
        request = json.loads(requests.read(_LENGTH.unpack(head)[0]))
        _limit_time(request["seconds"])
        try:
            facts, data = do(request)
        except Exception as error:
            facts, data = {"error": f"{error}", "kind": type(error).__name__}, b""
        said = json.dumps(facts).encode()
        answers.write(_LENGTH.pack(len(said)) + said + _LENGTH.pack(len(data)) + data)
        answers.flush()
        if facts.get("kind") in ("RuntimeError", "MemoryError"):
            return  # who knows in which state it left the parser


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
