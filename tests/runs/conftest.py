"""The flow around the workers, with workers that are functions."""

import importlib
from collections import deque

import pytest

from perfci.core.settings import load
from perfci.runs import experiment
from perfci.runs.plan import Request
from tests.git_repositories import commit_all, git
from tests.runs.stand_ins import Workers, write_ops


@pytest.fixture
def workers(monkeypatch):
    stand_in = Workers()
    for name in ("describe", "looks"):
        monkeypatch.setattr(importlib.import_module(f"perfci.runs.{name}"), "working", stand_in.working)
    monkeypatch.setattr(importlib.import_module("perfci.runs.looks"), "working_in_turns", stand_in.working_in_turns)
    return stand_in


@pytest.fixture
def settings(tmp_path):
    root = tmp_path / "project"
    write_ops(root)
    return load(root)


@pytest.fixture
def heard():
    return deque()


@pytest.fixture
def measure(settings, heard):
    """Measures the project with these wishes; seed 7 by default."""

    def measured(where=settings, **request):
        return experiment.measure(where, Request(**{"seed": 7} | request), "perfci check --no-judge", heard.append)

    return measured


@pytest.fixture
def forked(settings):
    """The project on the branch topic, where relu differs from main."""
    git(settings.root.parent, "init", "-q", "-b", "main", str(settings.root))
    (settings.root / ".gitignore").write_text("reports/\n")
    commit_all(settings.root)
    git(settings.root, "checkout", "-q", "-b", "topic")
    path = settings.kernels / "relu" / "relu_triton.py"
    path.write_text(path.read_text() + "\n\nTOPIC = True\n")
    commit_all(settings.root)
    return settings
