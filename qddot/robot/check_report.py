"""What `robot.check()` and `qddot check` say of a robot: findings of its file, and the identities of dynamics on it."""

from __future__ import annotations

from dataclasses import dataclass

from qddot import notebook
from qddot.errors import Finding, printable
from qddot.notebook import Markup
from qddot.progress import Progress
from qddot.robot.identities import Identity, identities, identity_count
from qddot.robot.robot import Robot


@dataclass(frozen=True)
class CheckReport:
    """Everything doubtful in a robot's file, the joints that move no mass, and the identities with their errors."""

    name: str
    size: str
    findings: tuple[Finding, ...]
    massless_joints: tuple[str, ...]
    no_forward_dynamics: str  # why there is none; nothing if there is one
    identities: tuple[Identity, ...]

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are more than notes."""
        return tuple(f for f in self.findings if f.severity != "note")

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong: no warnings, every motion moves mass, all identities hold."""
        return not self.warnings and not self.massless_joints and all(r.holds for r in self.identities)

    @property
    def summary(self) -> str:
        """One line: how many warnings and notes there are, and how many identities hold."""
        held, notes = sum(r.holds for r in self.identities), len(self.findings) - len(self.warnings)
        return f"{len(self.warnings)} warnings, {notes} notes; {held} of {len(self.identities)} identities hold"

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.size}", *(f"{f.severity}: {f}" for f in self.findings)]
        if self.no_forward_dynamics:
            lines += ["", f"warning: forward dynamics is not defined: {self.no_forward_dynamics}"]
        for r in self.identities:
            lines.append(f"  {'ok  ' if r.holds else 'FAIL'}  {r.name:<50} {r.error:8.1e}  (allowed {r.allowed:.1e})")
        return "\n".join(map(printable, [*lines, self.summary]))

    def __repr__(self) -> str:
        return f"<CheckReport of {self.name!r}: {self.summary}>"

    def _repr_html_(self) -> str:
        verdict = Markup("<span class=good>ok</span>"), Markup("<span class=bad>FAIL</span>")
        rows = [
            (verdict[not r.holds], r.name, notebook.number(r.error), notebook.number(r.allowed)) for r in self.identities
        ]
        parts = [notebook.table(("", "identity", "error", "allowed"), rows)]
        if self.findings:
            parts = [*(notebook.paragraph(f"{f.severity}: {f}") for f in self.findings), *parts]
        if self.no_forward_dynamics:
            parts.insert(0, notebook.paragraph(f"forward dynamics is not defined: {self.no_forward_dynamics}", "bad"))
        return notebook.card(f"Check of {self.name}", self.summary, *parts)


def check(robot: Robot, states: int = 3, seed: int = 0, kernels: bool = True) -> CheckReport:
    """The report on a robot; of its spanning tree where it has loops."""
    results: list[Identity] = []
    with Progress(f"checking {robot.name!r}") as line:
        line.done = 0.0
        for result in identities(robot, states, seed, kernels):
            results.append(result)
            line.done = len(results) / identity_count(kernels)
    size = f"{robot.model.n_links} moving links, nq = {robot.nq}, nv = {robot.nv}"
    why = str(robot.engine.solvability.error()) if robot.massless_joints else ""
    findings = (*robot.findings, *robot.loop_findings)
    return CheckReport(robot.name, size, findings, tuple(robot.massless_joints), why, tuple(results))
