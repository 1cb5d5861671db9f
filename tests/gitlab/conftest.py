"""Example runs, the stand-in of GitLab, and variables as its merge request pipelines have them."""

import pytest

from perfci.core import wording
from tests import example_runs
from tests.gitlab import gitlab_markdown
from tests.gitlab.gitlab_server import GitLab

TOKEN = "glpat-Secret_of-the-tests.42"


@pytest.fixture(scope="session")
def examples():
    return example_runs


@pytest.fixture(scope="session")
def reader():
    return gitlab_markdown


@pytest.fixture(autouse=True)
def sentences(examples, monkeypatch):
    """The examples' own catalogue beside the real one."""
    both = {**wording.catalogue(), **examples.SENTENCES}
    monkeypatch.setattr(wording, "catalogue", lambda language="en": both)


@pytest.fixture
def gitlab(monkeypatch):
    """A server on this machine with one project and one merge request."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    server = GitLab(TOKEN)
    yield server
    server.close()


@pytest.fixture
def elsewhere(gitlab):
    """Another server, which gets no request."""
    server = GitLab("another token")
    yield server
    server.close()


@pytest.fixture
def environ(gitlab):
    return {
        "PERFCI_GITLAB_TOKEN": TOKEN,
        "CI_API_V4_URL": gitlab.api,
        "CI_PROJECT_ID": "7",
        "CI_MERGE_REQUEST_PROJECT_ID": "7",
        "CI_MERGE_REQUEST_IID": "3",
    }
