"""Where two models differ by more than rounding."""

from typing import Any

from qddot.mechanism.model import Model

ROUNDING = 1e-12  # of each number or of 1: a rotation by its angles, an inertia by its principal axes, and back


def differences(one: Model, other: Model, without: tuple[str, ...] = ()) -> list[str]:
    """The places where their descriptions differ, frames by name; `without` names entries that do not count."""
    found: list[str] = []

    def compare(a: Any, b: Any, at: str) -> None:
        if at.rsplit(".", 1)[-1] in without:
            return
        if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
            for key in a:
                compare(a[key], b[key], f"{at}.{key}")
        elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            for k, (x, y) in enumerate(zip(a, b, strict=True)):
                compare(x, y, f"{at}[{k}]")
        elif isinstance(a, float) and isinstance(b, float):
            if not abs(a - b) <= ROUNDING * max(1.0, abs(a)):
                found.append(f"{at}: {a!r}, {b!r}")
        elif a != b:
            found.append(f"{at}: {a!r}, {b!r}")

    compare(_description(one), _description(other), "")
    return found


def _description(model: Model) -> dict[str, Any]:
    described = model.describe()
    described["frames"] = {f.pop("name"): f for f in described["frames"]}
    for i, link in enumerate(described["links"]):
        if not any(link["stiffness"]):  # then where it would be at rest says nothing
            link["spring_reference"] = list(map(float, model.joint[i].neutral()))
    return described
