"""Random mechanisms for the physics tests, and two ways to write one mechanism down differently."""

import dataclasses

import numpy as np
from hypothesis import strategies as st

from qddot import scalars
from qddot.dynamics import pipeline
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.dynamics.request import Request
from qddot.joints import KINDS, Own
from qddot.mechanism.builder import Builder
from qddot.mechanism.model import Frame, Model
from qddot.robot import Robot
from qddot.robots.generators import random_tree
from qddot.spatial import Transform, constant_transform, transform_inertia
from qddot.spatial.rotation import AxisRotation, Rotation

MOVING = tuple(kind for kind in KINDS if kind != "fixed")


@st.composite
def trees(draw, kinds=MOVING, max_links=7):
    """Robots over all joint kinds: branching, several roots, any numbering, with and without mimic joints."""
    seed = draw(st.integers(0, 2**32 - 1))
    n = draw(st.integers(1, max_links))
    mimic = draw(st.booleans())
    order = draw(st.sampled_from(("depth", "breadth", "random")))
    # a tree with mimics needs joints of one DoF to be interesting
    few = draw(st.sampled_from((kinds, tuple(k for k in kinds if k in ("revolute", "prismatic", "helical")))))
    return Robot(random_tree(n, rng=seed, kinds=few, mimic=mimic, order=order).model(), compiled=False)


class State:
    """A robot in a random state with random accelerations and external forces."""

    def __init__(self, robot: Robot, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.robot, self.model = robot, robot.model
        self.q, self.v = robot.random_state(rng)
        self.a = rng.standard_normal(robot.nv)
        self.f_ext = rng.standard_normal((robot.model.n_links, 6))

    def slope(self, direction, function):
        """The derivative of a function of q along a velocity, by a complex step through `integrate`."""
        moved = self.robot.integrate(self.q, 1e-20j * np.asarray(direction))
        return np.asarray(function(moved)).imag / 1e-20

    def gradient(self, function):
        return np.array([self.slope(e, function) for e in np.eye(self.robot.nv)])


def renumbered(model: Model, rng: np.random.Generator) -> Model:
    """The same mechanism with its links numbered in another way, parents still before children."""
    waiting, order = {i for i, _ in model.outward()}, [0]
    while waiting:
        ready = sorted(i for i in waiting if model.parent[i] in order)
        order.append(ready[rng.integers(len(ready))])
        waiting.remove(order[-1])
    new = {old: k for k, old in enumerate(order)}

    def shuffled(table):
        return tuple(table[old] for old in order)

    tables = (
        "link_names",
        "joint_names",
        "joint",
        "placement",
        "inertia",
        "armature",
        "damping",
        "friction",
        "stiffness",
        "spring_reference",
        "limits",
        "actuated",
    )
    mimic = [None if m is None else m._replace(link=new[m.link]) for m in shuffled(model.mimic)]
    return dataclasses.replace(
        model,
        **{name: shuffled(getattr(model, name)) for name in tables},
        parent=tuple(-1 if old == 0 else new[model.parent[old]] for old in order),
        mimic=tuple(mimic),
        frames=tuple(f._replace(link=new[f.link]) for f in model.frames),
        loops=tuple(x._replace(link_a=new[x.link_a], link_b=new[x.link_b]) for x in model.loops),
    )


def needs_of(name: str, robot) -> dict:
    """What else a function needs, for tests that run over all functions: the last frame, every other DoF."""
    last, some = robot.frame_names[-1], tuple(range(0, robot.nv, 2))
    known = {"frame": last, "prescribed": some}
    return {need: known[need] for need in FUNCTIONS[name].needs}


AXIAL = ("revolute", "prismatic", "helical", "cylindrical", "universal")


def reframed(model: Model, rng: np.random.Generator) -> tuple[Model, list[Transform]]:
    """The same mechanism with every body frame turned, and where each new frame lies in the old one.

    A joint about an axis stays one when its frames are turned: its axis is turned with them.
    """
    turns = [Transform(), *(Transform(_random_rotation(rng)) for _ in range(model.n_links))]
    joints, placements, inertias = [model.joint[0]], [Transform()], [model.inertia[0]]
    for i, p in model.outward():
        joint, R = model.joint[i], turns[i].R
        axes = {name: R.T @ getattr(joint, name) for name in ("axis", "first", "second") if hasattr(joint, name)}
        joints.append(dataclasses.replace(joint, **axes))
        T = turns[p].inverse() @ model.placement[i] @ turns[i]
        placements.append(constant_transform(T.R.rows, T.p))
        inertias.append(transform_inertia(turns[i].inverse(), model.inertia[i]))
    frames = tuple(Frame(f.name, f.link, turns[f.link].inverse() @ f.placement) for f in model.frames)
    turned = dataclasses.replace(
        model, joint=tuple(joints), placement=tuple(placements), inertia=tuple(inertias), frames=frames
    )
    return turned, turns


def _random_rotation(rng: np.random.Generator) -> Rotation:
    T = Transform()
    for axis, angle in zip((0, 1, 2), rng.uniform(-3, 3, 3), strict=True):
        T = T @ Transform(AxisRotation(axis, float(np.cos(angle)), float(np.sin(angle))))
    return T.R


def built(model, function, method="auto", dtype="float64", lanes=None, *, form="auto", **options):
    """A kernel straight from the pipeline, without a robot's checks; frames, rows and the like among the options."""
    own = {name: options.pop(name) for name in ("regroup", "packed", "target") if name in options}
    free = tuple(options.pop("free", ()))
    return pipeline.build(
        model, Request(function, method, dtype, lanes, form, free=free, static=tuple(options.items()), **own)
    )


def is_branched(model):
    """Whether a link, not the world, carries two joints."""
    parents = [p for _, p in model.outward() if p]
    return len(parents) > len(set(parents))


def bent(q):
    """A joint along a curve that has a bit of everything."""
    x = q[0]
    return np.eye(3).tolist(), (np.tanh(x), scalars.exp(0.1 * x) - 1.0, scalars.log(x * x + 1.0) + np.arctan(x))


def bent_chain(links):
    """A chain of such joints."""
    builder = Builder("bent")
    before = "world"
    for k in range(links):
        builder.link(f"link{k}", 1.0, com=(0.1, 0.0, 0.2), inertia=(0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
        builder.joint(f"joint{k}", before, f"link{k}", Own(bent, 1))
        before = f"link{k}"
    return Robot(builder.model())
