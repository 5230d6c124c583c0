"""Inverse kinematics and whole-body control: the methods that `Robot` has for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from qddot.dynamics.request import dtype_name
from qddot.errors import unexpected
from qddot.robot.base import RobotBase

if TYPE_CHECKING:  # loaded at their first use
    from qddot.tasks import Contact, ContactSolution, Solution, Task
    from qddot.tasks.export_iteration import IterationSource


class TaskMethods(RobotBase):
    """A part of `Robot`."""

    def inverse_kinematics(
        self,
        targets: Mapping[str, Any] | Task | Sequence[Task],
        q0: ArrayLike | None = None,
        *,
        limits: bool = True,
        restarts: int = 8,
        iterations: int = 100,
        tolerance: float = 1e-8,
        seed: int = 0,
    ) -> Solution:
        """Configurations in which frames are where they should be, for any leading batch axes (docs/inverse_kinematics.md).

        `targets` is {frame: target}, where a target is a 4×4 pose, (p, R), (p, quaternion) or a position of three numbers,
        or tasks of `qddot.tasks`: Pose, Position, Orientation, LookAt, CenterOfMass, Posture. Loops are closed.

        - `q0`: where to start, and near which angles are returned; None: the middle of the limits.
        - `limits`: whether joints stay within theirs.
        - `restarts`: from how many random configurations to start again where q0 does not lead there.
        - `iterations`: at most so many from each start.
        - `tolerance`: up to how many m and rad targets count as reached.
        - `seed`: of the random configurations, which are the same for all samples.

        The result has `q`, and of each sample `success`, `status`, `error` and `iterations`.
        """
        from qddot.tasks.inverse_kinematics import Options, inverse_kinematics

        return inverse_kinematics(self.engine, targets, q0, Options(limits, restarts, iterations, tolerance, seed))

    def export_inverse_kinematics(
        self,
        targets: Mapping[str, Any] | Task | Sequence[Task],
        path: str | os.PathLike[str] | None = None,
        *,
        limits: bool = True,
        **options: Any,
    ) -> IterationSource:
        """Inverse kinematics for such targets as readable C99 in `path`, with a header beside it (docs/export.md).

        `NAME_step` makes one iteration and has its bits; `NAME` repeats it from one start. `targets` are as for
        `inverse_kinematics`; which tasks and frames they are is in the code, their numbers are arguments of it: those of
        these targets are `target` of the result. Options are `dtype`, `sincos`, `fma`, `name`, `cc` and `cflags` of
        `export_c`; without `name` it is ROBOT_ik.
        """
        from qddot.dynamics.export import write
        from qddot.dynamics.export_file import FileOptions
        from qddot.tasks.export_iteration import source_of

        for name in options:
            if name not in FileOptions.__annotations__:
                raise unexpected("export_inverse_kinematics", name, FileOptions.__annotations__)
        chosen: Any = {**options, "dtype": dtype_name(options.get("dtype", "float64"))}
        found = source_of(self.engine, targets, bool(limits), chosen)
        if path is not None:
            write(found, path)
        return found

    def contact_inverse_dynamics(
        self,
        q: ArrayLike,
        v: ArrayLike,
        wanted: Any,
        contacts: Iterable[Contact],
        *,
        limits: bool = True,
        regularization: float = 1e-4,
    ) -> ContactSolution:
        """Accelerations, joint forces and contact forces of a robot that stands on contacts, for any leading batch axes.

        A quadratic program (docs/whole_body.md; extra `[qp]`): accelerations come as near to `wanted`, which are
        FrameAcceleration, CenterOfMassAcceleration and JointAcceleration of `qddot.tasks`, as joints that are not actuated,
        `contacts` (`qddot.tasks.Contact`) and, with `limits`, the effort limits allow. `regularization` is the weight of
        all accelerations and contact forces, which settles what is left open.
        """
        from qddot.tasks.contact_dynamics import contact_inverse_dynamics

        return contact_inverse_dynamics(self.engine, q, v, wanted, contacts, limits, regularization)
