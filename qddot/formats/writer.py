"""What writers of XML formats share: elements with escaped names and exact numbers, and what a format cannot hold."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from xml.sax.saxutils import quoteattr

from qddot.errors import Finding, ModelError, message
from qddot.formats.xml import LARGEST
from qddot.mechanism.model import Frame, Model
from qddot.spatial import Inertia, Transform, transform_inertia
from qddot.spatial.inertia import about_centre
from qddot.spatial.rotation import EYE, ZERO, Mat, Vec

MAX_NAME = 1000  # characters of a name that readers take
UNLIMITED = 1e99  # stands for a limit that is not there, where a format asks for a number; readers take it for none
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_SHOWN = 8  # losses in one message
_DEFAULT_FRICTION_VELOCITY = 1e-3


@dataclass
class Losses:
    """What a file of some format cannot hold of a model."""

    format: str
    lossy: bool
    impossible: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def cannot(self, element: str, problem: str, fix: str) -> None:
        """The model cannot be written, whatever is left out."""
        self.impossible.append(message("", element, problem, fix))

    def lose(self, element: str, problem: str) -> None:
        """Something that the dynamics depend on: an error, or a warning if it may be left out."""
        fix = f"{self.format} cannot hold it"
        self.lost.append(message("", element, problem, fix))
        self.findings.append(Finding("warning", "", element, f"{problem}: left out", fix))

    def note(self, element: str, problem: str, fix: str) -> None:
        """Something that the dynamics do not depend on."""
        self.findings.append(Finding("note", "", element, problem, fix))

    def name(self, name: str, element: str) -> str:
        """A name that can be written and read again."""
        if wrong := _NOT_IN_XML.search(name):
            self.cannot(element, f"its name has the character {wrong[0]!r}, which XML does not allow", "rename it")
        elif len(name) > MAX_NAME:
            self.cannot(element[:60] + "…", f"its name has {len(name):,} characters", f"give at most {MAX_NAME:,}")
        elif not name.strip():
            self.cannot(element, "its name is blank", "rename it")
        return name

    def raise_if_any(self) -> None:
        """Raises an error that names what cannot be written and, unless it may be left out, what would be lost."""
        if self.impossible:
            raise ModelError(_listed(self.impossible, f"the robot cannot be written as {self.format}"))
        if self.lost and not self.lossy:
            way = "save it as .json, which keeps everything, or leave them out with lossy=True (--lossy)"
            raise ModelError(_listed(self.lost, f"{self.format} does not hold all of the robot; {way}"))


def _listed(what: list[str], head: str) -> str:
    more = [f"and {len(what) - _MAX_SHOWN} more"] if len(what) > _MAX_SHOWN else []
    return "\n  ".join([f"{head}:", *what[:_MAX_SHOWN], *more])


# ---- what both formats lack ----------------------------------------------------------------------------------------


def check_friction_velocity(model: Model, losses: Losses) -> None:
    """Neither format says at which speed dry friction is reached."""
    if any(any(f) for f in model.friction) and model.friction_velocity != _DEFAULT_FRICTION_VELOCITY:
        losses.lose(f"robot {model.name!r}", f"friction_velocity is {model.friction_velocity:g}")


def check_sizes(model: Model, losses: Losses) -> None:
    """Readers take no larger numbers, and gigantic masses or lengths are a mistake."""
    for i, name in enumerate(model.link_names):
        m, c, I = body(model.inertia[i])
        given = {"mass": (m,), "centre of mass": c, "inertia": (*I[0], *I[1], *I[2]), "place": model.placement[i].p}
        for what, values in given.items():
            if not all(abs(x) <= LARGEST for x in values):
                problem = f"its {what} is {', '.join(f'{x:g}' for x in values)}, which is too large"
                losses.cannot(f"link {name!r}", problem, "give it in SI units")
    for f in model.frames:
        if not all(abs(x) <= LARGEST for x in f.placement.p):
            losses.cannot(f"frame {f.name!r}", f"its place is {list(f.placement.p)}, which is too large", "correct it")


def check_order(model: Model, losses: Losses, order: Iterable[int]) -> None:
    """Readers number links depth first."""
    if list(order) != list(range(len(model.parent))):
        problem = "its links are not numbered depth first, as they are when the file is read"
        losses.note(f"robot {model.name!r}", problem, "joints stand in another order in q then: use robot.q_index")


# ---- numbers and elements ------------------------------------------------------------------------------------------


def numbers(values: Iterable[float]) -> str:
    """Numbers that are read back to the bit."""
    return " ".join(repr(float(x) + 0.0) for x in values)  # + 0.0: without the sign of -0.0


def limit(value: float) -> str:
    """A limit, also where there is none."""
    return numbers([value if math.isfinite(value) else math.copysign(UNLIMITED, value)])


def element(tag: str, attributes: dict[str, str], is_open: bool = False) -> str:
    """One tag with its attributes."""
    inside = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
    return f"<{tag}{inside}{'' if is_open else '/'}>"


def is_identity(T: Transform) -> bool:
    """Whether a placement is none."""
    return T.R.rows == EYE and T.p == ZERO


def body(G: Inertia) -> tuple[float, Vec, Mat]:
    """Mass, centre of mass, and the inertia about it."""
    c, centred = about_centre(G)
    return G.m, c, centred.I


def is_massless(G: Inertia) -> bool:
    """Whether a link has no inertia at all."""
    return not (G.m or any(G.h) or any(x for row in G.I for x in row))


def moved_to(frame: Frame, G: Inertia) -> Inertia:
    """The inertia of a frame's link as seen from the frame."""
    return transform_inertia(frame.placement.inverse(), G)


# ---- the tree ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """What stands on a link: a moving link by its number, or a frame."""

    link: int = 0
    frame: Frame | None = None


def parts_of(model: Model) -> list[list[Part]]:
    """What stands on each link, in an order that, read depth first, gives frames back in the model's own where it can."""
    rank = {f.name: k for k, f in enumerate(model.frames)}
    first = [len(rank)] * len(model.parent)  # of the frames on each link and on those that it carries
    for f in model.frames:
        first[f.link] = min(first[f.link], rank[f.name])
    for i, p in model.inward():
        first[p] = min(first[p], first[i])
    children: list[list[int]] = [[] for _ in model.parent]
    for i, p in model.outward():
        children[p].append(i)
    frames: list[list[Frame]] = [[] for _ in model.parent]
    for f in model.frames:
        frames[f.link].append(f)
    return [list(_merged(frames[i], children[i], rank, first)) for i in range(len(model.parent))]


def _merged(frames: list[Frame], children: list[int], rank: dict[str, int], first: list[int]) -> Iterator[Part]:
    waiting = list(frames)
    for k, child in enumerate(children):
        bound = min(first[c] for c in children[k:])
        while waiting and rank[waiting[0].name] < bound:
            yield Part(frame=waiting.pop(0))
        yield Part(link=child)
    yield from (Part(frame=f) for f in waiting)


def depth_first(parts: list[list[Part]]) -> Iterator[tuple[int, Part]]:
    """(link, part) over all parts, what a link carries right after it."""
    stack = [(0, part) for part in reversed(parts[0])]
    while stack:
        holder, part = stack.pop()
        yield holder, part
        if part.frame is None:
            stack.extend((part.link, p) for p in reversed(parts[part.link]))


def free_name(wanted: str, taken: set[str]) -> str:
    """The name, or one like it that is free; it is taken then."""
    name, k = wanted, 2
    while name in taken:
        name, k = f"{wanted}_{k}", k + 1
    taken.add(name)
    return name
