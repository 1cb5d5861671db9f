"""Example runs by path, the stand-in of GitLab, and variables as its merge request pipelines have them."""

import importlib.util
import sys
from pathlib import Path

import pytest

from perfci.core import wording

TESTS = Path(__file__).parents[2]
TOKEN = "glpat-Secret_of-the-tests.42"


def load(name: str, path: Path):
    """A helper module by its path, since tests are no package; the same module for every test."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def examples():
    return load("perfci_example_runs", TESTS / "example_runs.py")


@pytest.fixture(scope="session")
def reader():
    return load("perfci_gitlab_markdown", TESTS / "gitlab" / "note" / "gitlab_markdown.py")


@pytest.fixture(autouse=True)
def sentences(examples, monkeypatch):
    """The examples' own catalogue beside the real one."""
    both = {**wording.catalogue(), **examples.SENTENCES}
    monkeypatch.setattr(wording, "catalogue", lambda language="en": both)


@pytest.fixture
def gitlab(monkeypatch):
    """A server on this machine that holds one project with one merge request."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    server = load("perfci_gitlab_server", TESTS / "gitlab" / "note" / "gitlab_server.py").GitLab(TOKEN)
    yield server
    server.close()


@pytest.fixture
def elsewhere(gitlab):
    """Another server, which is to hear of nothing."""
    server = sys.modules["perfci_gitlab_server"].GitLab("another token")
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
        "CI_JOB_URL": "https://gitlab.example.com/team/kernels/-/jobs/11",
        "CI_PIPELINE_URL": "https://gitlab.example.com/team/kernels/-/pipelines/5",
    }
