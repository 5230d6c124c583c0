"""The robots of the comparison, the functions, the states, and the judge of all results.

A case is one robot in qddot and in Pinocchio with one set of random states. Robots come from the URDF files of
`example-robot-data`, which each engine reads by itself; chains are made by qddot and handed over as numbers.
"""

import sysconfig
import tempfile
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import qddot
from qddot.algorithms import articulated_body, composite_body, derivatives, kinematics, newton_euler
from qddot.joints import Prismatic, Revolute

FILES = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix/share/example-robot-data/robots"

FUNCTIONS = {
    "rnea": "RNEA",
    "crba": "CRBA",
    "aba": "ABA",
    "minverse": "M⁻¹",
    "fk": "FK, all links",
    "jacobian": "Jacobian of the tip, body frame",
    "drnea": "derivatives of RNEA",
    "daba": "derivatives of ABA",
}

CHECKED = 8  # states on which results are compared; each is computed by the readable reference, which is slow
# Relative to the largest entry. Rounding leaves 1e-12 and less, with room for ill-conditioned mass matrices below.
TOLERANCE = 1e-9
PER_CONDITION = 1e-15  # what passes through M⁻¹ is rounded in proportion to the condition of M


class Source(NamedTuple):
    """Where a robot comes from: a file below `FILES`, or a chain of so many links."""

    file: str = ""
    floating: bool = False
    fixed: tuple[str, ...] = ()  # joints of the file that are held at zero
    chain: int = 0


ROBOTS = {
    "ur5": Source("ur_description/urdf/ur5_robot.urdf"),
    "panda7": Source(
        "panda_description/urdf/panda.urdf",
        fixed=("panda_finger_joint1", "panda_finger_joint2"),
    ),
    "solo12-floating": Source("solo_description/robots/solo12.urdf", floating=True),
    "anymal-floating": Source("anymal_b_simple_description/robots/anymal.urdf", floating=True),
    "g1-fixed": Source("g1_description/urdf/g1_29dof_rev_1_0.urdf"),
    "g1-floating": Source("g1_description/urdf/g1_29dof_rev_1_0.urdf", floating=True),
    "talos-fixed": Source("talos_data/robots/talos_reduced.urdf"),
    "talos-floating": Source("talos_data/robots/talos_reduced.urdf", floating=True),
    "chain10": Source(chain=10),
    "chain100": Source(chain=100),
    "chain300": Source(chain=300),
    "chain1000": Source(chain=1000),
}
# Without the one that runs only if named: a batch of its matrices fits no memory.
ALL = [name for name in ROBOTS if name != "chain1000"]


@dataclass(eq=False)
class Case:
    """One robot, its states (rows: qddot's coordinates), and how to read it in Pinocchio."""

    name: str
    robot: qddot.Robot
    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    tau: np.ndarray
    read_pinocchio: Callable[[], Any]

    @cached_property
    def pinocchio(self) -> Any:
        """The robot as a `pinocchio.Model`."""
        return self.read_pinocchio()

    @cached_property
    def tip(self) -> int:
        """The link that the most joints carry; the first of them. Its Jacobian is the one compared."""
        model = self.robot.model
        return max((i for i, _ in model.outward()), key=lambda i: len(list(model.ancestors(i))))

    @cache  # noqa: B019  a case lives as long as its part of the run
    def reference(self, function: str) -> np.ndarray:
        """The result of the readable algorithms for the first states."""
        return np.stack([self._reference_of(function, k) for k in range(min(CHECKED, len(self.q)))])

    def _reference_of(self, function: str, k: int) -> np.ndarray:
        model, q, v = self.robot.model, self.q[k], self.v[k]
        match function:
            case "rnea":
                result = newton_euler.inverse_dynamics(model, q, v, self.a[k], None)
            case "crba":
                result = composite_body.mass_matrix(model, q)
            case "aba":
                result = articulated_body.forward_dynamics(model, q, v, self.tau[k], None)
            case "minverse":
                result = articulated_body.mass_matrix_inverse(model, q)
            case "fk":
                result = [_homogeneous(T) for T in kinematics.link_poses(model, q)[1:]]
            case "jacobian":
                result = kinematics.jacobian(model, q, model.frame(model.link_names[self.tip]))
            case "drnea":
                result = derivatives.inverse_dynamics_derivatives(model, q, v, self.a[k])
            case "daba":
                result = derivatives.forward_dynamics_derivatives(model, q, v, self.tau[k])
            case _:
                raise ValueError(f"function {function!r} is not known; take one of {', '.join(FUNCTIONS)}")
        return np.asarray(result, dtype=float)

    def tolerance(self, function: str) -> float:
        if function not in ("aba", "minverse", "daba"):
            return TOLERANCE
        condition = max(np.linalg.cond(M) for M in self.reference("crba"))
        return max(TOLERANCE, PER_CONDITION * float(condition))


def _homogeneous(T: Any) -> np.ndarray:
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = T.R.rows, T.p
    return out


def case(name: str, states: int) -> Case:
    source = ROBOTS[name]
    if source.chain:
        robot = qddot.chain(source.chain, rng=0)
        return _with_states(name, robot, states, lambda: pinocchio_from_numbers(robot.model))
    text = _with_fixed_joints((FILES / source.file).read_text(), source.fixed)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", qddot.QddotWarning)  # the files are known, and their meshes are not needed
        path = Path(folder) / "robot.urdf"
        path.write_text(text)
        robot = qddot.load(path, floating_base=source.floating, passive_forces=False)
    return _with_states(name, robot, states, lambda: _pinocchio_from_urdf(text, source.floating))


def _with_states(name: str, robot: qddot.Robot, states: int, read_pinocchio: Callable[[], Any]) -> Case:
    rng = np.random.default_rng(0)
    q, v = (np.stack(x) for x in zip(*(robot.random_state(rng) for _ in range(states)), strict=True))
    a, tau = rng.standard_normal((2, states, robot.nv))
    return Case(name, robot, q, v, a, tau, read_pinocchio)


def _with_fixed_joints(text: str, names: tuple[str, ...]) -> str:
    """The URDF with these joints made rigid, for both engines alike."""
    if not names:
        return text
    root = ElementTree.fromstring(text)
    found = {joint.get("name"): joint for joint in root.iter("joint")}
    for name in names:
        joint = found[name]
        joint.set("type", "fixed")
        for tag in ("axis", "limit", "mimic", "dynamics", "safety_controller"):
            for element in joint.findall(tag):
                joint.remove(element)
    return ElementTree.tostring(root, encoding="unicode")


# ---- the same robot in Pinocchio -----------------------------------------------------------------------------------


def _pinocchio_from_urdf(text: str, floating: bool) -> Any:
    import pinocchio

    return pinocchio.buildModelFromXML(text, *((pinocchio.JointModelFreeFlyer(),) if floating else ()))


def pinocchio_from_numbers(model: qddot.Model) -> Any:
    """A tree of hinges and slides, with the joint types that Pinocchio's own URDF reader would choose."""
    import pinocchio

    out = pinocchio.Model()
    for i, p in model.outward():
        joint = model.joint[i]
        if not isinstance(joint, Revolute | Prismatic):
            raise TypeError(f"joint {model.joint_names[i]!r} is {joint.kind}; only hinges and slides go this way")
        letter, word = ("R", "Revolute") if isinstance(joint, Revolute) else ("P", "Prismatic")
        axis = np.array(joint.axis)
        aligned = [name for name, e in zip("XYZ", np.eye(3), strict=True) if np.array_equal(axis, e)]
        theirs = (
            getattr(pinocchio, f"JointModel{letter}{aligned[0]}")()
            if aligned
            else getattr(pinocchio, f"JointModel{word}Unaligned")(axis)
        )
        T, G = model.placement[i], model.inertia[i]
        I = np.array(G.I)
        moments = [G.m, *G.h, I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]]
        k = out.addJoint(p, theirs, pinocchio.SE3(np.array(T.R.rows), np.array(T.p)), model.joint_names[i])
        out.appendBodyToJoint(k, pinocchio.Inertia.FromDynamicParameters(np.array(moments)), pinocchio.SE3.Identity())
    out.gravity.linear = np.array(model.gravity)
    return out
