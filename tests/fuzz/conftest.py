"""How much is tried: profile "ci" is the same every time and small, "night" the same and many times as much.

HYPOTHESIS_PROFILE=long looks for what is new.

Making a failure's input small takes minutes, so both show it as it was found; HYPOTHESIS_PROFILE=small makes it small.
"""

import os

from hypothesis import HealthCheck, Phase, settings

_COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
}
_SAME = {"derandomize": True, "database": None, **_COMMON}
_SHOWN = {**_SAME, "phases": [Phase.explicit, Phase.generate]}
settings.register_profile("ci", max_examples=6, **_SHOWN)
settings.register_profile("night", max_examples=100, **_SHOWN)
settings.register_profile("small", max_examples=10, **_SAME)
settings.register_profile("long", max_examples=3000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
