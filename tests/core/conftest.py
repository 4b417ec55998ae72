from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
settings.register_profile("core", deadline=None, derandomize=True, max_examples=150, suppress_health_check=_SLOW)
settings.register_profile("core-long", deadline=None, max_examples=5000, suppress_health_check=_SLOW, print_blob=True)
settings.load_profile(os.environ.get("TIMESLICE_CORE_PROFILE", "core"))
