"""How much is tried: profile "ci" is the same every time and small; HYPOTHESIS_PROFILE=long looks for what is new."""

import os

from hypothesis import HealthCheck, Phase, settings

_COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
}
settings.register_profile("ci", max_examples=40, derandomize=True, database=None, **_COMMON)
settings.register_profile("long", max_examples=3000, **_COMMON)
# Shrinking a failure takes minutes: first see all of them.
settings.register_profile("hunt", max_examples=300, phases=[Phase.explicit, Phase.generate], **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
