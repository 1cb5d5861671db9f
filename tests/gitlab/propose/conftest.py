"""A real repository behind GitLab's interface, and the folder that another job left."""

from __future__ import annotations

import os

import pytest

from perfci import store
from perfci.core import settings
from perfci.core.model import (
    Baseline,
    BaselineBlock,
    BaselineCase,
    BaselineRun,
    Device,
    Environment,
    HistoryCase,
    HistoryRun,
    Spread,
)
from perfci.gitlab.propose.place import Wishes, target
from perfci.gitlab.propose.posting import propose
from perfci.store.history import append_history
from tests.git_repositories import alone
from tests.gitlab.propose.gitlab_repository import Repository

TOKEN = "glpat-Secret_of-the-tests.42"
PATH = "baselines/fake-one/softmax.json"
HISTORY = "baselines/fake-one/softmax.history.jsonl"
LIMITS = "thresholds/softmax.yaml"
CASES = ("rows=1", "rows=2")


def environment(commit="c" * 40):
    return Environment(Device("fake", "Fake One", "fake-one"), "virtual", "3.11.7", {}, "host", "Linux", commit)


def baseline(us=10.0, created="2026-01-01T00:00:00Z", cases=CASES, op="softmax"):
    run = BaselineRun(f"run-{created}", created, environment())
    blocks = tuple(BaselineBlock(run.id, us, 2 * us, 0.7) for _ in range(4))
    return Baseline(op, "fake-one", "virtual", (run,), tuple(BaselineCase(case, blocks) for case in cases))


def line(created="2026-01-01T00:00:00Z", us=10.0):
    case = HistoryCase("rows=1", 4, Spread(us, us, us))
    return HistoryRun(f"run-{created}", created, environment(), (case,))


@pytest.fixture(autouse=True)
def _own_git(monkeypatch, tmp_path):
    alone(monkeypatch, tmp_path)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    for name in [name for name in os.environ if name.startswith(("CI_", "PERFCI_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def gitlab(tmp_path):
    """main holds a README among the baselines, and thresholds of softmax."""
    server = Repository(TOKEN, tmp_path / "repository.git")
    server.put({"baselines/README.md": b"Numbers.\n", LIMITS: b"margin: 4 %\n", "kernels/x.py": b"pass\n"})
    yield server
    server.close()


class Job:
    """The job without a token: a work tree of main with what it changed in it."""

    def __init__(self, root, gitlab):
        self.root = root
        self.gitlab = gitlab
        self.base = None
        root.mkdir()
        self.check_out()

    def check_out(self, branch="main"):
        """Begin anew with what the branch has."""
        self.base = self.gitlab.tip(branch)
        for path in self.gitlab.git("ls-tree", "-r", "--name-only", self.base).splitlines():
            place = self.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(self.gitlab.show(path, self.base))

    def accept(self, us=10.0, created="2026-01-01T00:00:00Z", **more):
        found = baseline(us, created, **more)
        return store.write_baseline(found, self.root / "baselines").read_bytes()

    def note(self, created="2026-01-01T00:00:00Z", us=10.0):
        append_history(self.root / "baselines", "fake-one", "softmax", line(created, us))
        return (self.root / HISTORY).read_bytes()

    def tighten(self, text="margin: 3 %\n"):
        (self.root / LIMITS).write_text(text)


@pytest.fixture
def job(tmp_path, gitlab):
    return Job(tmp_path / "job", gitlab)


@pytest.fixture
def waits():
    return []


@pytest.fixture
def environ(gitlab, job):
    return {
        "PERFCI_PUSH_TOKEN": TOKEN,
        "CI_API_V4_URL": gitlab.api,
        "CI_PROJECT_ID": "7",
        "CI_DEFAULT_BRANCH": "main",
    }


@pytest.fixture
def send(job, environ, waits):
    """Propose what the job left; waiting takes no time."""

    def sent(dry_run=False, title=None, prefix="", **wishes):
        where = target(Wishes(**{"base": job.base} | wishes), environ)
        assert not hasattr(where, "kind"), where
        own = settings.at(job.root / prefix)
        return propose(job.root / prefix, own, where, prefix, title=title, dry_run=dry_run, sleep=waits.append)

    return sent
