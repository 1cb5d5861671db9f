"""A merge request's pipeline from end to end on the fake device: green, red, and with a shard that never came."""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from perfci import store
from tests.git_repositories import commit_all, git
from tests.gitlab.server import Fault
from tests.pipelines.conftest import TOKEN
from tests.remote_repository import RemoteRepository

pytestmark = pytest.mark.slow

SHARDS = ("perfci-check: [1/2]", "perfci-check: [2/2]")
HOSTILE = "topic-$(touch${IFS}pwned)-`touch${IFS}pwned`-';touch${IFS}pwned;'"


def commands(repository):
    """Each perfci command that a job ran, and whether it was given the token."""
    lines = repository.seen.read_text().splitlines()
    matches = (re.search(r"^(?:perfci|python3 .*-m perfci) (?:ci )?(\w+)(.*?)( TOKEN)?$", line) for line in lines)
    modes = {"--retry": "again", "--against-release": "creep", "--propose": "propose"}
    return {
        (next((mode for option, mode in modes.items() if option in match[2].split()), match[1]), bool(match[3]))
        for match in matches
        if match
    }


@pytest.mark.nightly
def test_a_slower_kernel_makes_merge_alone_red_and_the_note_says_so(repository, server):
    demo = repository()
    demo.change("scale", 328.0)
    commit_all(demo.root)
    server.plan("GET /run.json", Fault(body=b"{}"))  # no run, so that it plans without one

    done = demo.run(
        "perfci-note",
        token=TOKEN,
        CI_API_V4_URL=server.api,
        CI_SERVER_URL=server.url,
        CI_PROJECT_ID="7",
        CI_MERGE_REQUEST_IID="3",
        CI_JOB_TOKEN="job-token",
    )

    shards = dict.fromkeys(SHARDS, "PASS")
    assert done.outcomes == {"perfci-plan": "PASS", **shards, "perfci-merge": "FAIL", "perfci-note": "PASS"}, (
        done.output
    )
    assert "2 REGRESSED" in done.log("perfci-merge") and "fails (exit 2)" in done.log("perfci-merge")
    assert "there is nothing for it to measure" in done.log(SHARDS[1])
    _the_report_is_whole(done)
    _the_note_stands(server, done)
    _only_the_note_saw_the_token(demo, done, server)
    assert git(demo.root, "status", "--porcelain", "--ignored") == ""


def _the_report_is_whole(done):
    reports = done.kept("perfci-merge") / "reports"
    run = store.read_run(reports)
    assert run.missing == ()
    suites = ElementTree.parse(reports / "junit.xml").getroot()
    assert int(suites.get("failures", 0)) == 2
    assert {"report.html", "report.md", "metrics.txt", "plan.json"} <= {path.name for path in reports.iterdir()}
    assert not list((reports / "shards").rglob("run.json")), "they are kept once"


def _the_note_stands(server, done):
    (note,) = server.notes
    assert "REGRESSED" in note["body"]
    assert re.search(r"/-/jobs/\d+/artifacts/file/reports/report\.html", note["body"])
    assert TOKEN not in done.output


def _only_the_note_saw_the_token(demo, done, server):
    assert commands(demo) == {("plan", False), ("check", False), ("merge", False), ("note", True)}
    asked = next(call for call in server.calls if call.path.endswith("/run.json"))
    assert asked.path == "/api/v4/projects/7/jobs/artifacts/main/raw/reports/run.json"
    assert (asked.query, asked.headers.get("job-token")) == ({"job": ["perfci-merge"]}, "job-token")
    assert "Planned without the times of an earlier run" in done.log("perfci-plan")


@pytest.mark.nightly  # test_component_file.py has what reaches a job, and the test above the same jobs
def test_a_harmless_change_is_green_and_nothing_foreign_becomes_a_command(repository):
    """Names that a shell would run, and modules that Python would import from the work tree, come to nothing."""
    demo = repository(suffix="-fake", html=False)
    demo.change("scale", 320.4)
    demo.change("relu", 320.4)
    for name in ("perfci", "venv", "gitlab", "yaml", "sitecustomize"):
        (demo.root / f"{name}.py").write_text(f"open({str(demo.root.parent / 'imported')!r}, 'w')\n")
    commit_all(demo.root)
    git(demo.root, "checkout", "-q", "-b", HOSTILE)

    done = demo.run("perfci-note-fake", CI_MERGE_REQUEST_TITLE=HOSTILE, CI_COMMIT_TITLE=HOSTILE)

    shards = {job.replace("check", "check-fake"): "PASS" for job in SHARDS}
    others = dict.fromkeys(("perfci-plan-fake", "perfci-merge-fake", "perfci-note-fake"), "PASS")
    assert done.outcomes == {**others, **shards}, done.output
    assert "-> ok" in done.log("perfci-merge-fake")
    assert "PERFCI_GITLAB_TOKEN" in done.log("perfci-note-fake"), "it says why there is no note"
    assert not (done.kept("perfci-merge-fake") / "reports" / "report.html").exists()
    assert not (demo.root.parent / "imported").exists()
    assert not list(demo.root.parent.rglob("pwned*"))
    assert git(demo.root, "status", "--porcelain", "--ignored") == ""


@pytest.mark.nightly
def test_a_shard_that_never_came_is_red_and_not_a_shorter_report(repository):
    demo = repository()
    demo.change("scale", 320.4)
    demo.change("relu", 320.4)
    commit_all(demo.root)
    demo.broken("--shard 2/2")

    done = demo.run("perfci-merge")

    expected = {"perfci-plan": "PASS", SHARDS[0]: "PASS", SHARDS[1]: "FAIL", "perfci-merge": "FAIL"}
    assert done.outcomes == expected, done.output
    assert re.search(r"ERROR +shard 2/2", done.log("perfci-merge"))
    assert "fails (exit 2)" in done.log("perfci-merge")


@pytest.mark.nightly
def test_nightly_the_default_branch_is_measured_whole_and_its_baselines_are_proposed(repository, tmp_path, monkeypatch):
    demo = repository()
    git(demo.root, "checkout", "-q", "main")
    server = RemoteRepository(tmp_path / "gitlab.git", monkeypatch, "/kernels/demo")
    server.git("fetch", "-q", str(demo.root), "main:main")

    done = demo.run(
        "perfci-propose",
        token=TOKEN,
        CI_PIPELINE_SOURCE="schedule",
        CI_PROJECT_URL=server.url,
        CI_COMMIT_SHA=git(demo.root, "rev-parse", "HEAD"),
    )

    after = ("perfci-plan", *SHARDS, "perfci-merge", "perfci-again", "perfci-creep", "perfci-accept", "perfci-propose")
    assert done.outcomes == dict.fromkeys(after, "PASS"), done.output
    assert "3 of 3 ops are measured" in done.log("perfci-plan")
    assert "merge_request.target=main" in server.options()
    proposed = server.git("diff", "--name-only", "main", "perfci/nightly").splitlines()
    assert {f"baselines/fake-one/{op}.json" for op in ("relu", "row_sum", "scale")} <= set(proposed)
    assert all(path.startswith("baselines/fake-one/") for path in proposed)
    given = dict(commands(demo))
    assert [name for name, seen in given.items() if seen] == ["propose"]
    assert {"again", "creep", "accept"} <= given.keys()
    assert "there is no release to compare with" in " ".join(done.log("perfci-creep").split())
    assert TOKEN not in done.output
    assert git(demo.root, "status", "--porcelain", "--ignored") == ""
    server.close()


@pytest.mark.nightly
def test_nightly_chains_and_soak_run_even_if_what_is_timed_failed(repository):
    demo = repository()
    git(demo.root, "checkout", "-q", "main")
    demo.broken("--against-release")

    done = demo.run("perfci-chain", "perfci-soak", CI_PIPELINE_SOURCE="schedule")

    assert done.outcomes["perfci-creep"] == "FAIL", done.output
    assert (done.outcomes["perfci-chain"], done.outcomes["perfci-soak"]) == ("PASS", "PASS"), done.output
    assert "There are no chains in" in " ".join(done.log("perfci-chain").split())
    soaked = json.loads((done.kept("perfci-soak") / "reports" / "soak" / "soak.json").read_text())
    assert {finding["op"] for finding in soaked["findings"]} == {"relu", "row_sum", "scale"}


@pytest.mark.parametrize(
    ("inputs", "named"),
    [({"suffix": "; touch x"}, "suffix"), ({"device": "tpu"}, "device"), ({"install": 'a" b'}, "install")],
)
def test_an_input_that_is_none_makes_no_pipeline(repository, inputs, named):
    done = repository(**inputs).run("perfci-merge")

    assert done.outcomes == {}
    assert f"{named} input" in done.output.replace("`", "")
