"""Fixtures that tests of extensions share with those of the gate."""

import contextlib

import pytest

from tests.cli.conftest import root
from tests.flow.conftest import Project, editable, measured, project
from tests.git_repositories import begin_topic
from tests.report.conftest import examples, golden, sentences
from tests.runs.conftest import forked, heard, measure, settings, workers

__all__ = [
    "connect",
    "editable",
    "examples",
    "forked",
    "golden",
    "heard",
    "measure",
    "measured",
    "project",
    "root",
    "sentences",
    "settings",
    "topic",
    "workers",
]


@pytest.fixture
def connect(monkeypatch):
    """A function that makes perfci take a stand-in for the cluster that it connects to."""
    return lambda ray: monkeypatch.setattr(
        "perfci.extensions.ray.cluster._connect", lambda _: contextlib.nullcontext(ray)
    )


@pytest.fixture
def topic(project: Project):
    begin_topic(project.root)
    project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 328.0")
    project.edit("relu", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 319.2")
    return project
