from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]  # explain traces every line, which is slow
settings.register_profile(
    "core",
    deadline=None,
    derandomize=True,
    max_examples=100,
    stateful_step_count=40,
    phases=_PHASES,
    suppress_health_check=_SLOW,
)
settings.register_profile(
    "core-long",
    settings.get_profile("core"),
    derandomize=False,
    max_examples=5000,
    stateful_step_count=80,
    print_blob=True,
)
settings.load_profile(os.environ.get("TIMESLICE_CORE_PROFILE", "core"))
