"""How much is tried: profile "ci" is the same every time and small; HYPOTHESIS_PROFILE=long looks for what is new.

Making a failure's input small takes minutes, so "ci" shows it as it was found; HYPOTHESIS_PROFILE=small makes it small.
"""

import os

from hypothesis import HealthCheck, Phase, settings

_COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
}
_SAME = {"max_examples": 25, "derandomize": True, "database": None, **_COMMON}
settings.register_profile("ci", phases=[Phase.explicit, Phase.generate], **_SAME)
settings.register_profile("small", **_SAME)
settings.register_profile("long", max_examples=3000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
