"""Repositories in the states in which perfci meets them."""

from pathlib import Path

import pytest

from tests.git_repositories import fork, git, start


@pytest.fixture
def repository(tmp_path) -> Path:
    return start(tmp_path / "repository")


@pytest.fixture
def forked(repository) -> Path:
    """On the branch topic, one commit beyond where it left main; main has moved on by another."""
    return fork(repository)


@pytest.fixture
def merged(forked) -> Path:
    """Detached at a merge commit of main and topic, as in a merged-results pipeline."""
    git(forked, "checkout", "-q", "--detach", "main")
    git(forked, "merge", "-q", "--no-ff", "-m", "made by GitLab", "topic")
    git(forked, "branch", "made")
    return forked
