"""Stand-ins of GitLab and GitHub, and variables as their pipelines of merge requests have them."""

import pytest

from tests.extensions.common.conftest import reader
from tests.gitlab.github_server import GitHub
from tests.gitlab.gitlab_server import GitLab

__all__ = ["TOKEN", "elsewhere", "environ", "reader", "server"]

TOKEN = "glpat-Secret_of-the-tests.42"


@pytest.fixture(params=["gitlab", "github"])
def server(request, monkeypatch):
    """A server on this machine with one project and one merge request."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    made = {"gitlab": GitLab, "github": GitHub}[request.param](TOKEN)
    yield made
    made.close()


@pytest.fixture
def elsewhere(server):
    """Another server, which gets no request."""
    made = type(server)("another token")
    yield made
    made.close()


@pytest.fixture
def environ(server):
    return environ_of(server.api)[type(server)]


def environ_of(api):
    return {
        GitLab: {
            "PERFCI_GITLAB_TOKEN": TOKEN,
            "CI_API_V4_URL": api,
            "CI_PROJECT_ID": "7",
            "CI_MERGE_REQUEST_PROJECT_ID": "7",
            "CI_MERGE_REQUEST_IID": "3",
        },
        GitHub: {
            "GITHUB_ACTIONS": "true",
            "PERFCI_GITHUB_TOKEN": TOKEN,
            "GITHUB_API_URL": api,
            "GITHUB_REPOSITORY": "team/kernels",
            "GITHUB_REF": "refs/pull/3/merge",
        },
    }
