"""`perfci accept --propose` as a command: options, words, exit codes."""

import os

import pytest

from perfci.cli.main import run
from perfci.core.model import Reason
from perfci.extensions.history.commands import propose as proposing
from perfci.extensions.history.proposal import MovedCase, Proposal
from perfci.extensions.history.propose import Fate, ProposalOptions, Proposed

TOLD = Proposal((MovedCase("relu", "h200", "rows=1", 10.0, 9.0),), 3, (), 2, ("baselines/h200/relu.json",))


@pytest.fixture(autouse=True)
def _variables(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("CI_", "PERFCI_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def job(monkeypatch, tmp_path):
    """A job's folder and variables, and no checkout."""
    given = {
        "PERFCI_PUSH_TOKEN": "glpat-Secret_of-the-tests.42",
        "CI_API_V4_URL": "https://gitlab.example.com/api/v4",
        "CI_PROJECT_ID": "7",
        "CI_COMMIT_SHA": "c" * 40,
        "CI_DEFAULT_BRANCH": "trunk",
        "GIT_CEILING_DIRECTORIES": str(tmp_path.parent),
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def becomes(monkeypatch):
    """The outcome of a proposal; keeps the arguments of the call."""
    asked = []

    def planned(done):
        def propose(*told, **more):
            asked.append((told, more))
            return done

        monkeypatch.setattr(proposing, "propose", propose)
        return asked

    return planned


def test_all_options_reach_the_proposal_without_a_checkout(job, becomes, capsys):
    url = "https://gitlab.example.com/team/-/merge_requests/5"
    asked = becomes(Proposed(Fate.PROPOSED, "bot/x", "d" * 40, 5, url, TOLD))

    code = run(["accept", "--propose", "--artifacts", str(job), "--project", str(job), "--branch", "bot/x"])

    (source, settings, options, environ, prefix), _ = asked[0]
    assert (code, source, prefix, environ["CI_PROJECT_ID"]) == (0, job, "", "7")
    assert settings.baselines == job / "baselines"
    assert options == ProposalOptions(branch="bot/x")
    shown = capsys.readouterr().out
    assert "Merge request !5" in shown and url in shown and "dddddddddddd" in shown
    assert "baselines/h200/relu.json" in shown


def test_conflicts_are_sentences_of_their_own_and_fail_the_job(job, becomes, capsys):
    facts = {"path": "baselines/h200/relu.json\x1b[31m", "branch": "trunk", "commit": "abc"}
    becomes(Proposed(Fate.CONFLICTS, "trunk", proposal=TOLD, problems=(Reason("propose_conflict", facts),) * 2))

    code = run(["accept", "--propose", "--project", str(job)])

    seen = capsys.readouterr()
    assert code == 1 and "Nothing was written" in seen.out
    assert seen.err.count("was changed on trunk by commit abc") == 2 and "\x1b" not in seen.err
