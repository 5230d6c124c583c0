"""How many examples Hypothesis draws: `QDDOT_TEST_PROFILE=dev` (at most 5 a test) or `ci` (40, or what the test says).

The default is `ci`, and `dev` for `pytest -m quick`. `tests.mutants` has a profile of its own, which draws the same
examples every time.
"""

import os
from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, settings

PROFILES = {"dev": 5, "ci": 40, "mutants": 100}
_PHASES = (Phase.explicit, Phase.generate)  # no search for simpler examples

settings.register_profile("dev", max_examples=PROFILES["dev"], deadline=None)
settings.register_profile("ci", max_examples=PROFILES["ci"], deadline=None)
settings.register_profile(
    "mutants", max_examples=PROFILES["mutants"], deadline=None, phases=_PHASES, database=None, derandomize=True
)


def load(default: str = "ci") -> None:
    """The profile that the environment names, or this one; before test modules are imported."""
    name = os.environ.get("QDDOT_TEST_PROFILE") or default
    if name not in PROFILES:
        raise ValueError(f"QDDOT_TEST_PROFILE={name!r} is not known; take one of {', '.join(PROFILES)}")
    settings.load_profile(name)


def examples(count: int = 40, suppress: Sequence[HealthCheck] = (HealthCheck.too_slow,)) -> settings:
    """Settings of a test that draws so many examples, or as many as the profile `dev` has."""
    most = PROFILES["dev"] if settings.get_current_profile_name() == "dev" else count
    return settings(max_examples=min(count, most), deadline=None, suppress_health_check=list(suppress))
