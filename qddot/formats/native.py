"""qddot's own file: a Model as JSON text, everything kept, read back equal to the bit.

The file is `Model.describe()` with a format and a version in front, one link a line. Functions of users' own joints are
code and stay out of it: the file has their names, and the reader is given the functions.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from qddot.errors import FileError, Finding, ModelError, message, shown
from qddot.formats.atomic import write_bytes
from qddot.formats.files import of_file
from qddot.formats.native_values import MAX_BYTES, UNIT_TOLERANCE, Values, parse
from qddot.formats.registry import ReadOptions, Written, register, register_writer
from qddot.joints import KINDS, Fixed, Joint, Own
from qddot.mechanism.builder import WORLD, Builder
from qddot.mechanism.couplings import FIELDS, Coupling, Terms
from qddot.mechanism.model import Constraint, Frame, Limits, Loop, Mimic, Model
from qddot.mechanism.named_configurations import Groups, NamedConfiguration
from qddot.mechanism.parameters import check_body
from qddot.mechanism.validation import check_defects, rigid
from qddot.spatial import Inertia, Transform
from qddot.spatial.joint_blocks import Vector
from qddot.spatial.rotation import Rotation

FORMAT = "qddot"
VERSIONS = (1,)

_LINK_KEYS = (
    *("name", "parent", "joint", "placement", "mass", "first_moment", "second_moment", "armature", "damping"),
    *("friction", "stiffness", "spring_reference", "limits", "actuated", "mimic"),
)
_PASSIVE = ("armature", "damping", "friction", "stiffness")


# ---- writing -------------------------------------------------------------------------------------------------------


@register_writer(".json", ".qddot")
def _written(model: Model, lossy: bool) -> Written:
    """Everything is kept; functions of users' own have no place in a file, and `lossy` does not change that."""
    for name, joint in [*zip(model.joint_names, model.joint, strict=True), *((p.name, p.joint) for p in model.loops)]:
        if isinstance(joint, Own) and not joint.name:
            fix = "give it one, Own(function, freedoms, name=…), to be able to read the file"
            raise ModelError(message("", f"joint {name!r}", "its function has no name", fix))
    for constraint in model.constraints:
        if not isinstance(constraint.position, Coupling):
            fix = "write the robot without it and add it again after reading, with_constraint(…)"
            raise ModelError(message("", f"constraint {constraint.name!r}", "a function cannot be written", fix))
    content = {"format": FORMAT, "version": VERSIONS[-1], **model.describe(), **_groups(model)}
    return Written(_one_item_a_line(content))


def _groups(model: Model) -> dict[str, Any]:
    """Groups of joints and named configurations, where there are any."""
    groups = [{"name": name, "joints": list(joints)} for name, joints in model.groups.joints]
    named = [{**c._asdict(), "coordinates": {j: list(q) for j, q in c.coordinates}} for c in model.groups.configurations]
    return {key: rows for key, rows in (("groups", groups), ("configurations", named)) if rows}


def write(model: Model, path: str | os.PathLike[str]) -> None:
    """Writes the file in one step: a reader sees the old one or the new one, never a part."""
    write_bytes(Path(path), _written(model, False).text.encode("ascii"))


def _one_item_a_line(content: Mapping[str, Any]) -> str:
    parts = []
    for key, value in content.items():
        body = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            body = "[\n  " + ",\n  ".join(json.dumps(item, allow_nan=False) for item in value) + "\n ]"
        parts.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


# ---- reading -------------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str], own_joints: Mapping[str, Callable[..., Any]] | None = None) -> Model:
    """The model of a file. `own_joints` has the functions of the user's own joints, by name."""
    file = Path(path)
    reader = _Reader(str(file), own_joints or {})
    try:
        return reader.model(parse(file))
    except FileError:
        raise
    except ModelError as error:
        raise of_file(error, str(file)) from None


@register("native", ".json", ".qddot", rank=4)
def _model(path: Path, options: ReadOptions) -> Model:
    return read(path, own_joints=options.own_joints)


class _Reader(Values):
    """Takes values out of the parsed file, each with its place ("links[3].joint.axis") for messages.

    Types, lengths and ranges are checked here; that the whole is a possible mechanism is left to a Builder, whose own
    result is dropped: it would normalize and multiply, and the numbers of the file are to be kept as they stand.
    """

    def __init__(self, file: str, own_joints: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(file)
        self.own_joints = own_joints
        self.findings: list[Finding] = []

    def model(self, content: Any) -> Model:
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            fix = "give a file that qddot saved"
            raise FileError(message(self.file, "file", f'it does not say "format": "{FORMAT}"', fix))
        if content.get("version") not in VERSIONS or isinstance(content.get("version"), bool | float):
            read = ", ".join(str(v) for v in VERSIONS)
            problem = f"version is {content.get('version')!r}, and this qddot reads {read}"
            raise FileError(message(self.file, "version", problem, "use a newer qddot or save the robot again"))
        keys = ("format", "version", "name", "gravity", "friction_velocity", "links", "frames", "loops")
        optional = ("constraints", "loop_tolerance", "groups", "configurations")
        top = self.table(content, "file", keys, optional=optional)
        name = self.text(top["name"], "name")
        rows = [self._link(x, f"links[{i}]", i) for i, x in enumerate(self.items(top["links"], "links"))]
        if not rows:
            self.fail("links", "it is empty", "the first link is the world")
        frames = [self._frame(x, f"frames[{k}]", len(rows)) for k, x in enumerate(self.items(top["frames"], "frames"))]
        loops = [self._loop(x, f"loops[{k}]", len(rows)) for k, x in enumerate(self.items(top["loops"], "loops"))]
        model = Model(
            name=name,
            link_names=tuple(r["name"] for r in rows),
            joint_names=tuple(r["joint_name"] for r in rows),
            parent=tuple(r["parent"] for r in rows),
            joint=tuple(r["joint"] for r in rows),
            placement=tuple(r["placement"] for r in rows),
            inertia=tuple(r["inertia"] for r in rows),
            armature=tuple(r["armature"] for r in rows),
            damping=tuple(r["damping"] for r in rows),
            friction=tuple(r["friction"] for r in rows),
            stiffness=tuple(r["stiffness"] for r in rows),
            spring_reference=tuple(r["spring_reference"] for r in rows),
            limits=tuple(r["limits"] for r in rows),
            actuated=tuple(r["actuated"] for r in rows),
            mimic=tuple(r["mimic"] for r in rows),
            frames=tuple(frames),
            loops=tuple(loops),
            gravity=self.vec(top["gravity"], "gravity"),
            friction_velocity=self.number(top["friction_velocity"], "friction_velocity", least=0.0),
            constraints=self._constraints(
                top.get("constraints", []), sum(r["joint"].nq for r in rows if r["mimic"] is None)
            ),
            loop_tolerance=self._loop_tolerance(top.get("loop_tolerance")),
            findings=tuple(self.findings),
        )
        self._check_whole(model)
        return dataclasses.replace(model, groups=self._groups(top, model))

    def _find(self, *facts: str) -> None:
        self.findings.append(Finding(*facts))

    # ---- parts

    def _link(self, x: Any, at: str, i: int) -> dict[str, Any]:
        row = self.table(x, at, _LINK_KEYS)
        name = self.text(row["name"], f"{at}.name")
        joint_name, joint = self._named_joint(row["joint"], f"{at}.joint")
        if i == 0 and (name != WORLD or row["parent"] != -1 or not isinstance(joint, Fixed)):
            self.fail(at, f"it is {name!r} on a {joint.kind} joint", "the first link is 'world', fixed, of parent -1")
        if i > 0 and joint.nv == 0:
            self.fail(f"{at}.joint.kind", "a link of its own cannot be fixed", "make it a frame of its carrier")
        parent = -1 if i == 0 else self.index(row["parent"], f"{at}.parent", 0, i - 1)
        out = {"name": name, "joint_name": joint_name, "joint": joint, "parent": parent}
        out["placement"] = self._transform(row["placement"], f"{at}.placement")
        inertia = Inertia(
            self.number(row["mass"], f"{at}.mass", least=0.0),
            self.vec(row["first_moment"], f"{at}.first_moment"),
            self.symmetric(row["second_moment"], f"{at}.second_moment"),
        )
        check_body(inertia, at, self.file, self._find, allow_unphysical=True)
        out["inertia"] = inertia
        for key in _PASSIVE:
            out[key] = Vector(self.numbers(row[key], f"{at}.{key}", joint.nv, least=0.0))
        out["spring_reference"] = Vector(self.numbers(row["spring_reference"], f"{at}.spring_reference", joint.nq))
        out["limits"] = self._limits(row["limits"], f"{at}.limits", joint.nv)
        if not isinstance(row["actuated"], bool):
            self.fail(f"{at}.actuated", f"it is {shown(row['actuated'])}", "write true or false")
        out["actuated"] = row["actuated"]
        out["mimic"] = None if row["mimic"] is None else self._mimic(row["mimic"], f"{at}.mimic")
        return out

    def _named_joint(self, x: Any, at: str) -> tuple[str, Joint]:
        if not isinstance(x, dict) or not isinstance(x.get("name"), str):
            self.fail(at, f"it is {shown(x)}", "write an object with a name, a kind and the kind's numbers")
        return x["name"], self._joint({k: v for k, v in x.items() if k != "name"}, at)

    def _joint(self, x: Any, at: str) -> Joint:
        kind = x.get("kind") if isinstance(x, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            near = difflib.get_close_matches(str(kind)[:100], KINDS, n=1, cutoff=0.5)
            fix = f"did you mean {near[0]!r}?" if near else "use one of " + ", ".join(KINDS)
            self.fail(f"{at}.kind", f"unknown kind {shown(kind)}", fix)
        if kind == Own.kind:
            return self._own(x, at)
        cls: Any = KINDS[kind]
        names = [f.name for f in dataclasses.fields(cls)]
        row = self.table(x, at, ("kind", *names))
        return cls(**{name: self._joint_field(cls, name, row[name], f"{at}.{name}") for name in names})

    def _joint_field(self, cls: type[Joint], name: str, value: Any, at: str) -> Any:
        if name in cls.number_names:
            self.number(value, at)
            return value  # an int stays one, so that the file's digest is the model's
        if name not in cls.axis_names:
            return self.text(value, at)
        axis = self.vec(value, at)
        if abs(math.sqrt(sum(c * c for c in axis)) - 1.0) > UNIT_TOLERANCE:
            self.fail(at, f"it is {list(axis)}", "give an axis of unit length")
        return axis

    def _own(self, x: Any, at: str) -> Own:
        row = self.table(x, at, ("kind", "function", "freedoms", "code"))
        name = self.text(row["function"], f"{at}.function")
        count = self.index(row["freedoms"], f"{at}.freedoms", 1, 6)
        code = self.text(row["code"], f"{at}.code")
        if name not in self.own_joints:
            fix = f"functions are not stored: read it with own_joints={{{name!r}: function}}"
            self.fail(f"{at}.function", f"the joint needs the function {name!r}", fix)
        joint = Own(self.own_joints[name], count, name)
        check_defects(joint, f"{at}.function", self.file)
        if joint.describe()["code"] != code:
            problem = f"function {name!r} is not the one that the file was saved with"
            fix = "check that it still gives the same motion, and save the robot again"
            self._find("warning", self.file, f"{at}.function", problem, fix)
        return joint

    def _limits(self, x: Any, at: str, nv: int) -> Limits:
        row = self.table(x, at, Limits._fields)
        least = {"lower": -math.inf, "upper": -math.inf, "velocity": 0.0, "effort": 0.0}
        return Limits(*(self.numbers(row[key], f"{at}.{key}", nv, least[key], limit=True) for key in Limits._fields))

    def _mimic(self, x: Any, at: str) -> Mimic:
        row = self.table(x, at, Mimic._fields)
        factor, offset = (self.number(row[key], f"{at}.{key}") for key in ("factor", "offset"))
        return Mimic(self.index(row["link"], f"{at}.link", 1, MAX_BYTES), factor, offset)

    def _frame(self, x: Any, at: str, n: int) -> Frame:
        row = self.table(x, at, Frame._fields)
        link = self.index(row["link"], f"{at}.link", 0, n - 1)
        return Frame(self.text(row["name"], f"{at}.name"), link, self._transform(row["placement"], f"{at}.placement"))

    def _loop(self, x: Any, at: str, n: int) -> Loop:
        row = self.table(x, at, Loop._fields)
        a, b = (self.index(row[key], f"{at}.{key}", 0, n - 1) for key in ("link_a", "link_b"))
        T_a, T_b = (self._transform(row[key], f"{at}.{key}") for key in ("placement_a", "placement_b"))
        return Loop(self.text(row["name"], f"{at}.name"), self._joint(row["joint"], f"{at}.joint"), a, T_a, b, T_b)

    def _constraints(self, x: Any, nq: int) -> tuple[Constraint, ...]:
        return tuple(self._constraint(row, f"constraints[{k}]", nq) for k, row in enumerate(self.items(x, "constraints")))

    def _constraint(self, x: Any, at: str, nq: int) -> Constraint:
        row = self.table(x, at, ("name", "rows", "coupling"))
        self.index(row["rows"], f"{at}.rows", 1, 1)
        numbers = self.table(row["coupling"], f"{at}.coupling", FIELDS)
        left, right = (self._terms(numbers[key], f"{at}.coupling.{key}", nq) for key in ("left", "right"))
        polynomial = self.items(numbers["polynomial"], f"{at}.coupling.polynomial")
        coefficients = tuple(self.number(c, f"{at}.coupling.polynomial[{k}]") for k, c in enumerate(polynomial))
        reference = self.number(numbers["reference"], f"{at}.coupling.reference")
        return Constraint(self.text(row["name"], f"{at}.name"), 1, Coupling(left, right, reference, coefficients))

    def _terms(self, x: Any, at: str, nq: int) -> Terms:
        terms = []
        for k, term in enumerate(self.items(x, at)):
            if not isinstance(term, list) or len(term) != 2:
                self.fail(f"{at}[{k}]", f"it is {shown(term)}", "write a place in q and a factor")
            terms.append((self.index(term[0], f"{at}[{k}][0]", 0, nq - 1), self.number(term[1], f"{at}[{k}][1]")))
        return tuple(terms)

    def _groups(self, top: Mapping[str, Any], model: Model) -> Groups:
        groups, named = [], []
        own = {model.joint_names[i]: model.joint[i] for i, _ in model.outward() if model.mimic[i] is None}

        def known(joint: Any, at: str, among: Collection[str]) -> str:
            if not isinstance(joint, str) or joint not in among:
                self.fail(at, f"it names {shown(joint)}", "name a joint of this robot")
            return joint

        for k, x in enumerate(self.items(top.get("groups", []), "groups")):
            row = self.table(x, f"groups[{k}]", ("name", "joints"))
            members = self.items(row["joints"], f"groups[{k}].joints")
            joints = tuple(known(j, f"groups[{k}].joints", model.joint_names[1:]) for j in members)
            groups.append((self.text(row["name"], f"groups[{k}].name"), joints))
        for k, x in enumerate(self.items(top.get("configurations", []), "configurations")):
            at = f"configurations[{k}]"
            row = self.table(x, at, NamedConfiguration._fields)
            if not isinstance(row["coordinates"], dict) or not isinstance(row["group"], str):
                self.fail(at, f"it is {shown(x)}", "write a name, a group and coordinates by joint")
            coordinates = tuple(
                (known(j, at, own), tuple(self.numbers(q, f"{at}.coordinates", own[j].nq)))
                for j, q in row["coordinates"].items()
            )
            named.append(NamedConfiguration(self.text(row["name"], f"{at}.name"), row["group"], coordinates))
        return Groups(tuple(groups), tuple(named))

    def _loop_tolerance(self, x: Any) -> float | None:
        if x is not None and self.number(x, "loop_tolerance") <= 0.0:
            self.fail("loop_tolerance", f"it is {shown(x)}", "write a number greater than zero, or leave it out")
        return None if x is None else float(x)

    def _transform(self, x: Any, at: str) -> Transform:
        row = self.table(x, at, ("rotation", "position"))
        rows = self.mat(row["rotation"], f"{at}.rotation")
        return rigid(Transform(Rotation(rows), self.vec(row["position"], f"{at}.position")), at, self.file)

    # ---- the whole

    def _check_whole(self, model: Model) -> None:
        """Lets a Builder judge names, springs, limits, mimics and loops."""
        b = Builder(model.name, gravity=model.gravity, friction_velocity=model.friction_velocity)
        names = model.link_names
        for i, p in model.outward():
            where = f"{self.file}: links[{i}]"
            mimic = model.mimic[i]
            if mimic is not None and (mimic.link > model.n_links or model.mimic[mimic.link] is not None):
                self.fail(f"links[{i}].mimic.link", f"it is {mimic.link}", "name a link that is no mimic itself")
            limits = model.limits[i]._asdict()
            b.link(names[i], where=where).joint(
                model.joint_names[i],
                names[p],
                names[i],
                model.joint[i],
                model.placement[i],
                **{key: getattr(model, key)[i] for key in (*_PASSIVE, "spring_reference")},
                **{key: limits[key] for key in ("lower", "upper")},
                **{f"{key}_limit": limits[key] for key in ("velocity", "effort")},
                mimic=None if mimic is None else (model.joint_names[mimic.link], mimic.factor, mimic.offset),
                where=where,
            )
        for k, frame in enumerate(model.frames):
            b.frame(frame.name, names[frame.link], frame.placement, where=f"{self.file}: frames[{k}]")
        for k, loop in enumerate(model.loops):
            ends = names[loop.link_a], names[loop.link_b], loop.joint, loop.placement_a, loop.placement_b
            b.loop(loop.name, *ends, where=f"{self.file}: loops[{k}]")
        b.model()
