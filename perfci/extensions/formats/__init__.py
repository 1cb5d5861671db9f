"""A run's verdicts as a file that other programs read: tests of JUnit, which GitLab and others show beside a change."""

from perfci.core.extensions import Extension

EXTENSION = Extension(provides={"format": ("perfci.extensions.formats.junit:JUNIT",)})
