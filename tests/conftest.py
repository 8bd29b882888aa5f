"""What all tests share: how many examples the property tests try, by the environment variable HYPOTHESIS_PROFILE."""

import os

from hypothesis import HealthCheck, settings

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("quick", max_examples=20, deadline=None, suppress_health_check=_QUIET, database=None)
settings.register_profile("full", max_examples=150, deadline=None, suppress_health_check=_QUIET, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
