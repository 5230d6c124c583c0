"""Mutated robot files: each is read, or refused with a FileError that names it, in time; the process never ends by it.

    python -m tests.fuzz_files --format urdf --count 20000
    python -m tests.fuzz_files --format mjcf --first 1234 --count 1 --keep folder   # one of them again

File number k is made from the seed and k alone. What is read must have finite numbers and harmless messages.
"""

from __future__ import annotations

import argparse
import faulthandler
import gzip
import random
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import qddot
from qddot.errors import FileError

MAX_SECONDS = 5.0  # of the processor for one file
HANG_SECONDS = 300.0  # of the clock, after which the stack is printed and the process ended

INERTIA = '<inertia ixx="0.2" ixy="0.01" ixz="0" iyy="0.3" iyz="0" izz="0.25"/>'
URDF = f"""<?xml version="1.0"?>
<robot name="arm">
  <material name="blue"><color rgba="0 0 1 1"/></material>
  <link name="base"><visual><geometry><box size="1 1 0.1"/></geometry></visual></link>
  <link name="upper"><inertial><origin xyz="0 0 0.2" rpy="0 1.5707963 0"/><mass value="3.5"/>{INERTIA}</inertial>
    <visual><geometry><mesh filename="package://arm/meshes/upper.stl" scale="1 1 1"/></geometry></visual></link>
  <link name="lower"><inertial><mass value="1.5"/>{INERTIA}</inertial></link>
  <link name="finger_l"><inertial><mass value="0.1"/>{INERTIA}</inertial></link>
  <link name="finger_r"><inertial><mass value="0.1"/>{INERTIA}</inertial></link>
  <link name="tool"/>
  <joint name="shoulder" type="revolute"><origin xyz="0 0 0.1" rpy="0 0 0"/><parent link="base"/><child link="upper"/>
    <axis xyz="0 1 0"/><limit lower="-2" upper="2" effort="50" velocity="3"/>
    <dynamics damping="0.5" friction="0.1"/></joint>
  <joint name="elbow" type="continuous"><origin xyz="0 0 0.4"/><parent link="upper"/><child link="lower"/>
    <axis xyz="0 1 0"/></joint>
  <joint name="left" type="prismatic"><parent link="lower"/><child link="finger_l"/><axis xyz="1 0 0"/>
    <limit lower="0" upper="0.04" effort="5" velocity="1"/></joint>
  <joint name="right" type="prismatic"><parent link="lower"/><child link="finger_r"/><axis xyz="-1 0 0"/>
    <limit lower="0" upper="0.04" effort="5" velocity="1"/><mimic joint="left" multiplier="1" offset="0"/></joint>
  <joint name="flange" type="fixed"><origin xyz="0 0 0.3"/><parent link="lower"/><child link="tool"/></joint>
  <gazebo reference="tool"/>
</robot>
"""
MJCF = """<mujoco model="leg">
  <compiler angle="degree" autolimits="true"/>
  <option gravity="0 0 -9.81" timestep="0.002"><flag contact="disable"/></option>
  <default><joint damping="0.1" armature="0.01"/>
    <default class="thin"><geom type="capsule" size="0.02"/></default></default>
  <asset><mesh name="tetra" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>
  <worldbody>
    <body name="trunk" pos="0 0 1"><freejoint name="root"/><geom type="box" size="0.2 0.1 0.05" mass="5"/>
      <site name="imu" pos="0 0 0.1"/>
      <body name="thigh" pos="0.1 0 0" euler="0 90 0"><joint name="hip" axis="0 1 0" pos="0 0 0.01" range="-60 60"/>
        <geom class="thin" fromto="0 0 0 0 0 -0.3" mass="1"/>
        <body name="shank" pos="0 0 -0.3"><joint name="knee" axis="0 1 0" stiffness="2" springref="10"/>
          <geom class="thin" fromto="0 0 0 0 0 -0.3" mass="0.5"/></body></body>
      <body name="arm" pos="-0.1 0 0"><joint name="ball" type="ball"/><geom type="mesh" mesh="tetra" mass="0.2"/>
        <body name="slider"><joint name="slide" type="slide" axis="1 0 0"/>
          <inertial pos="0 0 0" mass="0.3" diaginertia="0.1 0.1 0.1"/></body></body></body>
    <replicate count="3" offset="0.1 0 0"><body name="bead"><joint type="hinge"/><geom size="0.02"/></body></replicate>
  </worldbody>
  <equality><connect name="tie" body1="shank" body2="slider" anchor="0 0 -0.1"/>
    <joint joint1="hip" joint2="knee" polycoef="0 1 0 0 0"/></equality>
  <tendon><fixed name="rope"><joint joint="hip" coef="1"/><joint joint="knee" coef="-1"/></fixed></tendon>
  <actuator><motor name="m" joint="knee" gear="5"/></actuator>
  <keyframe><key name="home" qpos="0 0 1 1 0 0 0 0 0 1 0 0 0 0 0 0 0"/></keyframe>
</mujoco>
"""
BODY = """<inertial><pose>0 0 0.1 0 0 0</pose><mass>2</mass>
  <inertia><ixx>.1</ixx><iyy>.1</iyy><izz>.1</izz></inertia></inertial>"""
SDF = f"""<sdf version="1.8">
<world name="lab"><gravity>0 0 -9.81</gravity><physics name="p" type="ode"/>
<model name="fourbar">
  <pose>0 0 1 0 0 0</pose>
  <link name="a"><pose>0 0 0 0 0 1.5707963267948966</pose>{BODY}</link>
  <link name="b"><pose relative_to="a">1 0 0 0 0 0</pose>{BODY}</link>
  <link name="c"><pose relative_to="f">0 0 0 0 0 0</pose>{BODY}<gravity>1</gravity></link>
  <frame name="f" attached_to="b"><pose>0 0 1 0 0 0</pose></frame>
  <joint name="base" type="fixed"><parent>world</parent><child>a</child></joint>
  <joint name="h" type="revolute"><parent>a</parent><child>b</child><axis><xyz expressed_in="__model__">0 0 1</xyz>
    <limit><lower>-1</lower><upper>1e16</upper><effort>-1</effort></limit><dynamics><damping>.5</damping></dynamics></axis></joint>
  <joint name="u" type="universal"><pose>0 0.1 0 0 0 0</pose><parent>b</parent><child>c</child><axis><xyz>1 0 0</xyz></axis>
    <axis2><xyz>0 1 0</xyz></axis2></joint>
  <joint name="loop" type="ball"><parent>a</parent><child>c</child></joint>
</model></world></sdf>
"""
DH_CSV = """# name: puma
# convention: standard
# gravity: 0 0 -9.81
name,alpha,a,theta,d,kind,mass,com_x,com_y,com_z,ixx,ixy,ixz,iyy,iyz,izz,lower,upper,damping
one,pi/2,0,0,0.67,revolute,0,0,0,0,0,0,0,0.35,0,0,-160deg,160deg,0.1
two,0,0.43,-3*pi/4,0,revolute,17.4,-0.36,0.006,0.22,0.13,0,0,0.52,0,0.53,,,
three,-90deg,-0.02,0,0.15,prismatic,4.8,-0.02,-0.01,0.07,0.06,0,0,0.08,0,0.01,-1,1,
"""
DH_TOML = """[robot]
name = "scara"
convention = "modified"
gravity = [0.0, 0.0, -9.81]

[[link]]
name = "first"
a = 0.3
alpha = "pi/2"
mass = 2.0
com = [0.1, 0.0, 0.0]
inertia = [0.1, 0.0, 0.0, 0.2, 0.0, 0.2]
lower = "-90deg"
upper = "90deg"

[[link]]
kind = "prismatic"
d = 0.1
mass = 1
inertia = [[0.1, 0.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 0.1]]
"""


SRDF = """<robot name="quadruped">
  <virtual_joint name="floor" type="floating" parent_frame="world" child_link="body"/>
  <group name="legs"><group name="front"/><group name="rear"/></group>
  <group name="front"><chain base_link="body" tip_link="front_left_shank"/><joint name="front_left_knee"/>
    <link name="front_right_thigh"/></group>
  <group name="rear"><joint name="rear_left_hip"/><joint name="rear_right_hip"/></group>
  <group_state name="stand" group="legs"><joint name="floor" value="0 0 0.5 0 0 0 1"/>
    <joint name="front_left_knee" value="-1.2"/><joint name="rear_right_hip" value="0 1"/></group_state>
</robot>
"""
FORMATS = ("urdf", "gz", "mjcf", "sdf", "dh", "native", "srdf")


def seeds(kind: str, folder: Path) -> list[tuple[str, bytes]]:
    """(ending, content) of the files that mutated ones are made of."""
    if kind == "native":
        out = []
        for robot in (qddot.load("fivebar"), qddot.load("quadruped"), qddot.chain(3, rng=0)):
            robot.save(folder / "seed.json")
            out.append((".json", (folder / "seed.json").read_bytes()))
        return out
    texts = {
        "urdf": [(".urdf", URDF)],
        "mjcf": [(".xml", MJCF), (".mjcf", MJCF)],
        "sdf": [(".sdf", SDF)],
        "dh": [(".csv", DH_CSV), (".toml", DH_TOML)],
        "srdf": [(".srdf", SRDF)],
    }
    if kind == "gz":
        return [(".urdf.gz", gzip.compress(URDF.encode(), level, mtime=0)) for level in (0, 9)]
    return [(ending, text.encode()) for ending, text in texts[kind]]


# ---- mutations -------------------------------------------------------------------------------------------------------

NUMBER = re.compile(rb"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
WORD = re.compile(rb'"[^"\n]*"|>[^<>\n]+<')
TAG = re.compile(rb"<[^<>]*>")
NUMBERS = [
    b"nan",
    b"inf",
    b"-1",
    b"0",
    b"1e308",
    b"-1e308",
    b"1e-320",
    b"1e999",
    b"",
    b"0x1F",
    b"1_0",
    b"9" * 400,
    b"2000000000",
]
NUMBERS += [
    b"1e30",
    b"-0",
    b"1.5707963267",
    b"1 2 3",
    b"1,2",
    b"\xd9\xa3",
    b"true",
    b"99999999999",
    b"1e-13",
    b"3.0000000000001",
]
WORDS = [
    b"",
    b"world",
    b"__model__",
    b" ",
    b"a" * 5000,
    b"../../../etc/passwd",
    b"package://../../etc/passwd",
    b"&amp;",
    b"&#10;",
]
WORDS += [
    b"\xe2\x80\xae",
    b"\\u0000",
    b"\\ud800",
    b"<!--",
    b"${x}",
    b"$(find x)",
    b"NaN",
    b"*/",
    b"=1+1",
    b"\x1b[2J",
    b"fixed",
    b"free",
]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The content after one to five changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        data = rng.choice(MUTATIONS)(data, rng)
    return data


def _span(data: bytes, rng: random.Random, most: int = 200) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 1, 2, 4, 8, rng.randrange(1, most))))


def _replaced(pattern: re.Pattern[bytes], data: bytes, rng: random.Random, new: bytes) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return data
    place = rng.choice(found)
    return data[: place.start()] + new + data[place.end() :]


def _number(data: bytes, rng: random.Random) -> bytes:
    return _replaced(NUMBER, data, rng, rng.choice(NUMBERS))


def _word(data: bytes, rng: random.Random) -> bytes:
    found = WORD.findall(data)
    if rng.random() < 0.5 and found:  # a name of another part, or a number where a name is meant
        return _replaced(WORD, data, rng, rng.choice(found))
    new = rng.choice(WORDS)
    return _replaced(WORD, data, rng, b'"' + new + b'"' if rng.random() < 0.8 else b">" + new + b"<")


def _tag(data: bytes, rng: random.Random) -> bytes:
    found = TAG.findall(data) or [b"[[link]]"]
    return _replaced(TAG, data, rng, rng.choice((b"", b"<a>", b"</a>", rng.choice(found))))


def _element(data: bytes, rng: random.Random) -> bytes:
    """One element or line taken out, doubled or moved."""
    found = list(re.finditer(rb"<(\w+)[^<>]*/>|<(\w+)[^<>]*>.*?</\2>|[^\n]*\n", data, re.DOTALL))
    if not found:
        return data
    piece, target = rng.choice(found), rng.choice(found).start()
    without = data[: piece.start()] + data[piece.end() :]
    way = rng.choice(("out", "double", "move"))
    if way == "out":
        return without
    base = data if way == "double" else without
    return base[:target] + piece.group() * (1 if way == "move" else rng.choice((1, 1, 2, 50))) + base[target:]


def _bytes(data: bytes, rng: random.Random) -> bytes:
    start, end = _span(data, rng)
    way = rng.choice(("flip", "out", "noise", "double", "cut"))
    if way == "flip" and start < len(data):
        return data[:start] + bytes([data[start] ^ (1 << rng.randrange(8))]) + data[start + 1 :]
    if way == "noise":
        return data[:start] + rng.randbytes(rng.randrange(1, 9)) + data[start:]
    if way == "double":
        return data[:end] + data[start:end] * rng.choice((1, 1, 3, 100)) + data[end:]
    return data[:start] if way == "cut" and rng.random() < 0.3 else data[:start] + data[end:]


MUTATIONS = (_number, _number, _number, _word, _word, _tag, _element, _element, _bytes)


# ---- the run ---------------------------------------------------------------------------------------------------------


def try_file(path: Path) -> str:
    """Loads a file; "read", or the name of the one error that files have. Whatever else happens is raised."""
    start = time.process_time()
    try:
        robot = qddot.load("quadruped", srdf=path) if path.suffix == ".srdf" else qddot.load(path)
        for name in robot.configuration_names:
            assert len(robot.configuration(name)) == robot.nq
        said = [repr(robot), *map(str, robot.findings)]
        robot.model.digest  # noqa: B018  it is written with finite numbers only
        outcome = "read"
    except FileError as error:
        said, outcome = [str(error)], type(error).__name__
        assert str(path) in said[0], f"the message does not name the file: {said[0]}"
    assert all(c.isprintable() or c == "\n" for text in said for c in text), "a message has control characters"
    assert max(map(len, said)) < 20_000, "a message is too long to be read"
    seconds = time.process_time() - start
    assert seconds < MAX_SECONDS, f"it took {seconds:.1f} s"
    return outcome


def run(kind: str, count: int, first: int = 0, seed: int = 0, keep: Path | None = None) -> tuple[Counter[str], list[str]]:
    """Outcomes of `count` files, and what went wrong."""
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        sources = seeds(kind, folder)
        for k in range(first, first + count):
            rng = random.Random(f"{kind} {seed} {k}")
            ending, data = rng.choice(sources)
            data = mutated(data, rng)
            path = folder / f"robot{ending}"
            path.write_bytes(data)
            if keep is not None:
                (keep / f"{kind}-{k}{ending}").write_bytes(data)
            try:
                outcomes[try_file(path)] += 1
            except Exception:
                outcomes["FAILED"] += 1
                failures.append(f"{kind} file {k}:\n{traceback.format_exc()}")
    return outcomes, failures


def main() -> int:
    """Runs as asked; 1 where something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--format", action="append", choices=FORMATS, help="may be repeated")
    parser.add_argument("--count", type=int, default=300, help="files of each format")
    parser.add_argument("--first", type=int, default=0, help="the number of the first file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder to write the files into")
    options = parser.parse_args()
    bad = False
    for kind in options.format or FORMATS:
        start = time.process_time()
        total: Counter[str] = Counter()
        for first in range(options.first, options.first + options.count, 500):
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            part = min(500, options.first + options.count - first)
            outcomes, failures = run(kind, part, first, options.seed, options.keep)
            total += outcomes
            for failure in failures[:5]:
                print(failure, file=sys.stderr)
        faulthandler.cancel_dump_traceback_later()
        parts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(total.items()))
        print(f"{kind}: {total.total()} files, {time.process_time() - start:.0f} s: {parts}", flush=True)
        bad |= bool(total["FAILED"])
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
