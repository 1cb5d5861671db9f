"""Fixtures that tests of extensions share with those of the gate."""

from tests.cli.conftest import root
from tests.flow.conftest import editable, measured, project
from tests.report.conftest import examples, golden
from tests.runs.conftest import forked, heard, measure, settings, workers

__all__ = [
    "editable",
    "examples",
    "forked",
    "golden",
    "heard",
    "measure",
    "measured",
    "project",
    "root",
    "settings",
    "workers",
]
