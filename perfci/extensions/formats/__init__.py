"""A run's verdicts as files that other programs read.

junit      tests of JUnit, which GitLab and others show beside a merge request
metrics    figures of OpenMetrics, of which GitLab shows what moved
"""

from perfci.core.extensions import Extension

HERE = "perfci.extensions.formats"

EXTENSION = Extension(provides={"format": (f"{HERE}.junit:JUNIT", f"{HERE}.metrics:OPENMETRICS")})
