"""What a robot has to do with files: it is saved, and knows the groups and configurations that its SRDF file names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from qddot import formats
from qddot.errors import Finding, one_name
from qddot.mechanism import configurations
from qddot.robot.base import Array, RobotBase


class FileMethods(RobotBase):
    """Saving, groups and named configurations."""

    def save(self, path: str | os.PathLike[str], *, lossy: bool = False) -> tuple[Finding, ...]:
        """Writes the robot in the format of the file's ending; `.gz` after it compresses (docs/files.md).

        `.json` and `.qddot` are qddot's own, from which `load` gives an equal robot; `.urdf` is URDF; `.xml` and `.mjcf`
        are MJCF. What such a format cannot hold and the dynamics depend on, such as loops in URDF, is an error; with
        `lossy` it is left out. Returns what the file does not hold.
        """
        return formats.write(self.model, Path(path), lossy)

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Groups of joints by name, as the robot's SRDF file has them."""
        return dict(self.model.groups.joints)

    @property
    def configuration_names(self) -> tuple[str, ...]:
        """The names that `configuration` takes."""
        return tuple(dict.fromkeys(c.name for c in self.model.groups.configurations))

    def configuration(self, name: str, group: str | None = None) -> Array:
        """A configuration by its name in the robot's SRDF file, or a keyframe of MJCF; joints without a value are neutral.

        Where several groups have one of this name, it is all of them together, or that of `group`.
        """
        return configurations.named(
            self.model, one_name(name, "configuration"), None if group is None else one_name(group, "group")
        )
