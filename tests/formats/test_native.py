"""qddot's own file: what is written is read back equal, and nothing else is accepted."""

import json
import math
import pickle
import stat

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import qddot
from qddot import robots
from qddot.errors import FileError, ModelError, QddotError
from qddot.formats import native
from qddot.joints import KINDS, Fixed, Own, Revolute, Spherical
from qddot.mechanism.builder import Builder
from qddot.mechanism.model import Model
from qddot.mechanism.validation import pose
from qddot.robots.generators import OWN_JOINTS, cam, random_tree
from qddot.spatial.rotation import IDENTITY, ZERO
from tests.support.profiles import examples


def trees():
    orders = ("depth", "breadth", "random")
    return [random_tree(8, seed, mimic=bool(seed % 2), order=orders[seed % 3]).model() for seed in range(12)]


@pytest.mark.parametrize("model", [robots.build(name).model() for name in robots.NAMES] + trees(), ids=lambda m: m.name)
def test_round_trip(model, tmp_path):
    file = tmp_path / "robot.qddot"
    native.write(model, file)
    back = native.read(file, OWN_JOINTS)
    assert back.digest == model.digest
    assert back.describe() == model.describe()
    assert back == pickle.loads(pickle.dumps(model))
    assert [type(T.R) for T in back.placement] == [type(T.R) for T in model.placement]  # zeros are known again
    assert [T.p is ZERO for T in back.placement] == [T.p is ZERO for T in model.placement]
    assert bool(back.findings) == (model.name in ("puma560", "quadruped"))  # whose inertias are kept as published


def test_inertias_that_no_body_has_are_found(tmp_path):
    native.write(
        Builder("r").link("a", 1.0, inertia=(1, 0, 0, 1, 0, 1)).joint("j", "world", "a", Revolute()).model(),
        tmp_path / "r.qddot",
    )
    text = (tmp_path / "r.qddot").read_text()
    (tmp_path / "s.qddot").write_text(text.replace('"second_moment": [[1.0', '"second_moment": [[-3.0'))
    with pytest.warns(qddot.QddotWarning, match=r"links\[1\]: its inertia is not positive: principal moments -3, 1, 1"):
        qddot.load(str(tmp_path / "s.qddot"))


def everything():
    """One of each: infinite and finite limits, loops, merged links, frames, mimic, springs, an integer pitch."""
    b = Builder("every thing", gravity=(0.0, 1.0, -9.0), friction_velocity=0.02)
    b.link("a", 1.0, (0.1, 0.0, 0.0), (1, 0, 0, 1, 0, 1)).link("b", 2.0).link("c", 0.5).link("weld", 1.0)
    b.link("base", 3.0, (0.0, 0.1, 0.0))
    b.joint("base_weld", "world", "base", Fixed(), pose((1.0, 0.0, 0.0)))
    b.joint("j1", "base", "a", Revolute((1, 2, 3)), pose((0, 0, 1), (0.1, 0.2, 0.3)), lower=-1, effort_limit=5)
    b.joint("j2", "a", "b", KINDS["helical"](pitch=2), armature=0.1, damping=0.2, friction=0.3, stiffness=4)
    b.joint("j3", "b", "c", Revolute(), mimic=("j1", -2.0, 0.5), actuated=False)
    b.joint("weld_joint", "c", "weld", Fixed(), pose((0, 1, 0)))
    b.loop("closed", "weld", "base", Spherical(), pose((0, 0, 1)), pose((0, 0, 2)))
    b.frame("tool", "weld", pose((0, 0, 3)))
    return b.model()


def test_everything_is_kept(tmp_path):
    model = everything()
    native.write(model, tmp_path / "x")
    back = native.read(tmp_path / "x")
    assert back == model
    assert back.limits[1].lower == (-1.0,)
    assert back.limits[1].upper == (math.inf,)
    assert back.mimic[3] == (1, -2.0, 0.5)
    assert back.inertia[0].m == 3.0
    assert back.frame("tool").link == 3
    assert back.loops[0].name == "closed"
    assert back.placement[2].R is IDENTITY
    assert (back.gravity, back.friction_velocity) == ((0.0, 1.0, -9.0), 0.02)


def test_write_is_atomic_and_says_why_not(tmp_path):
    model = everything()
    file = tmp_path / "robot"
    file.write_text("old")
    native.write(model, file)
    native.write(model, file)
    assert [p.name for p in tmp_path.iterdir()] == ["robot"]
    assert stat.S_IMODE(file.stat().st_mode) & 0o400
    with pytest.raises(FileError, match="cannot be written"):
        native.write(model, tmp_path / "no" / "folder")
    with pytest.raises(FileError, match="cannot be written"):
        native.write(model, tmp_path)  # a folder is not replaced


def test_own_joints_need_their_functions(tmp_path):
    b = Builder("own")
    b.link("a", 1.0).joint("j", "world", "a", Own(cam, 1, "cam"))
    file = tmp_path / "own"
    native.write(b.model(), file)
    with pytest.raises(FileError, match=r"links\[1\].joint.function.*'cam'.*own_joints=\{'cam': function\}"):
        native.read(file)
    assert not native.read(file, {"cam": cam}).findings
    (finding,) = native.read(file, {"cam": lambda q: cam([2 * q[0]])}).findings
    assert finding.severity == "warning"
    assert "not the one" in str(finding)
    nameless = Builder("own").link("a", 1.0).joint("j", "world", "a", Own(cam, 1)).model()
    with pytest.raises(ModelError, match="no name"):
        native.write(nameless, file)


# ---- files edited by hand --------------------------------------------------------------------------------------------


def content():
    return {"format": "qddot", "version": 1, **everything().describe()}


def setting(*path_and_value):
    *path, value = path_and_value

    def edit(x):
        for step in path[:-1]:
            x = x[step]
        x[path[-1]] = value

    return edit


def removing(*path):
    def edit(x):
        for step in path[:-1]:
            x = x[step]
        del x[path[-1]]

    return edit


TILTED = [[1, 0, 0], [0, 1, 0.1], [0, 0, 1]]
EDITS = {
    "format": (setting("format", "urdf"), ['"format": "qddot"']),
    "version": (setting("version", 2), ["version is 2", "reads 1"]),
    "version type": (setting("version", True), ["version is True"]),
    "missing": (removing("links", 2, "mass"), ["links[2]", "'mass' is missing"]),
    "unknown": (setting("links", 2, "weight", 1), ["links[2]", "'weight'"]),
    "axis length": (
        setting("links", 1, "joint", "axis", [0, 0, 2]),
        ["links[1].joint.axis", "[0.0, 0.0, 2.0]", "unit"],
    ),
    "axis count": (setting("links", 1, "joint", "axis", [0, 1]), ["links[1].joint.axis", "3 numbers"]),
    "axis type": (setting("links", 1, "joint", "axis", [0, "x", 1]), ["links[1].joint.axis[1]", "'x'", "finite"]),
    "kind": (setting("links", 1, "joint", "kind", "revolut"), ["links[1].joint.kind", "'revolut'", "'revolute'"]),
    "fixed": (setting("links", 1, "joint", {"name": "j", "kind": "fixed"}), ["links[1].joint.kind", "frame"]),
    "parent": (setting("links", 2, "parent", 2), ["links[2].parent", "from 0 to 1"]),
    "parent type": (setting("links", 2, "parent", 1.0), ["links[2].parent", "1.0", "whole number"]),
    "world": (setting("links", 0, "name", "ground"), ["links[0]", "'world'"]),
    "no links": (setting("links", []), ["links", "empty"]),
    "links type": (setting("links", {}), ["links", "list"]),
    "link type": (setting("links", 1, 5), ["links[1]", "it is 5", "object"]),
    "name twice": (setting("links", 2, "name", "a"), ["links[2]", "'a'", "used twice"]),
    "name type": (setting("links", 2, "name", None), ["links[2].name", "None", "text"]),
    "joint twice": (setting("links", 2, "joint", "name", "j1"), ["links[2]", "'j1'", "used twice"]),
    "frame name": (setting("frames", 0, "name", "a"), ["frames[0]", "'a'", "rename"]),
    "frame link": (setting("frames", 0, "link", 9), ["frames[0].link", "it is 9", "from 0 to 3"]),
    "rotation": (setting("links", 1, "placement", "rotation", TILTED), ["links[1].placement", "orthogonal"]),
    "loop rotation": (setting("loops", 0, "placement_b", "rotation", TILTED), ["loops[0].placement_b", "orthogonal"]),
    "loop on itself": (setting("loops", 0, "link_a", 0), ["loops[0]", "do not move"]),
    "mass": (setting("links", 1, "mass", -1), ["links[1].mass", "it is -1", "0 or more"]),
    "mass text": (setting("links", 1, "mass", "1"), ["links[1].mass", "'1'", "finite"]),
    "mass huge": (setting("links", 1, "mass", 10**400), ["links[1].mass", "finite"]),
    "mass bool": (setting("links", 1, "mass", True), ["links[1].mass", "True"]),
    "moment": (setting("links", 1, "second_moment", TILTED), ["links[1].second_moment", "symmetric"]),
    "damping count": (setting("links", 2, "damping", [1, 2]), ["links[2].damping", "list of 1"]),
    "damping sign": (setting("links", 2, "damping", [-1]), ["links[2].damping[0]", "0 or more"]),
    "limit text": (setting("links", 1, "limits", "upper", ["infinite"]), ["links[1].limits.upper[0]", '"inf"']),
    "limits swapped": (setting("links", 1, "limits", "upper", [-2]), ["links[1]", "lower limit -1", "swap"]),
    "velocity": (setting("links", 1, "limits", "velocity", ["-inf"]), ["links[1].limits.velocity[0]", "0 or more"]),
    "actuated": (setting("links", 1, "actuated", 1), ["links[1].actuated", "true or false"]),
    "mimic self": (setting("links", 3, "mimic", "link", 3), ["links[3].mimic.link", "no mimic itself"]),
    "mimic far": (setting("links", 3, "mimic", "link", 8), ["links[3].mimic.link", "it is 8"]),
    "reference": (setting("links", 2, "spring_reference", []), ["links[2].spring_reference", "list of 1"]),
    "gravity": (setting("gravity", [0, 0]), ["gravity", "3 numbers"]),
    "position": (setting("links", 1, "placement", "position", "here"), ["links[1].placement.position", "'here'"]),
    "sequence": (
        setting("loops", 0, "joint", {"kind": "spherical_euler", "sequence": "xxz"}),
        ["loops[0]", "'xxz'", "three letters"],
    ),
}


@pytest.mark.parametrize("case", EDITS)
def test_edited_files(tmp_path, case):
    edit, expected = EDITS[case]
    x = content()
    edit(x)
    file = tmp_path / "edited.qddot"
    file.write_text(json.dumps(x))
    with pytest.raises(FileError) as caught:
        native.read(file)
    for part in ("edited.qddot", *expected):
        assert part in str(caught.value)


TEXTS = {
    "empty": ("", [":1:", "JSON"]),
    "cut": (json.dumps(content())[:500], [":1:", "JSON", "column"]),
    "line": ('{\n "format": "qddot",\n "version" 1\n}', [":3:", "column"]),
    "nan": ('{"format": "qddot",\n"version": NaN}', [":2:", "NaN", "finite"]),
    "infinity": ('{"format": "qddot",\n\n"version": -Infinity}', [":3:", "-Infinity"]),
    "twice": ('{"format": "qddot", "format": "qddot"}', ["'format' stands twice"]),
    "list": ("[]", ["format"]),
    "deep": ("[" * 200_000, ["nested"]),
    "long": ("9" * 10_000, ["too long"]),
    "binary": (b"\x80\x04\x95", [":1:", "UTF-8"]),
}


@pytest.mark.parametrize("case", TEXTS)
def test_broken_text(tmp_path, case):
    text, expected = TEXTS[case]
    file = tmp_path / "broken"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FileError) as caught:
        native.read(file)
    for part in ("broken", *expected):
        assert part in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(FileError, match="there is no such file"):
        native.read(tmp_path / "missing")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    file = tmp_path_factory.mktemp("native") / "robot"
    native.write(everything(), file)
    return file, file.read_bytes()


@examples(300, suppress=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 2), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutated_bytes_give_a_model_or_an_error(original, edits):
    file, data = original
    text = bytearray(data)
    for place, action, byte in edits:
        k = place % len(text)
        text[k : k + (action < 2)] = bytes([byte]) if action else b""
    mutated = file.with_name("mutated")
    mutated.write_bytes(text)
    try:
        model = native.read(mutated)
    except QddotError as error:
        text = str(error)
    else:
        assert isinstance(model, Model)
        text = f"mutated {model.digest}"  # describable, so finite throughout
    assert "mutated" in text


@examples(150)
@given(data=st.data())
def test_replaced_values_give_a_model_or_an_error(original, data):
    """Any value of the file replaced by any other: what loads must round-trip."""
    x = content()
    at, key = x, None
    while True:
        keys = sorted(at) if isinstance(at, dict) else range(len(at))
        key = data.draw(st.sampled_from(list(keys)))
        if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.booleans()):
            break
        at = at[key]
    others = st.sampled_from([None, True, 0, 1, -1, 1.5, 1e308, "inf", "", "a", [], {}, [0], [1, 0, 0], 10**30])
    at[key] = data.draw(others)
    file = original[0].with_name("replaced")
    file.write_text(json.dumps(x))
    try:
        model = native.read(file)
    except QddotError as error:
        text = str(error)
    else:
        native.write(model, file)
        assert native.read(file) == model
        text = "replaced"
    assert "replaced" in text
