"""Proposals pushed to a real repository by git."""

import json
import os
import re
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.core import settings
from perfci.core.errors import PerfciError, StoredFileError, UsageError
from perfci.core.model import Baseline, BaselineBlock, BaselineCase, BaselineRun, Device, Environment
from perfci.core.wording import sentence
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun, Spread
from perfci.extensions.history import commits
from perfci.extensions.history.proposal import compare_earned
from perfci.extensions.history.propose import TRAILER, Fate, ProposalOptions, propose
from perfci.git import command
from perfci.thresholds.earned import EarnedFile
from tests.git_repositories import start
from tests.hostile_repository import make_hostile
from tests.remote_repository import RemoteRepository
from tests.stored_examples import append_history, write_baseline
from tests.thresholds.earned_examples import HERE, KEY, THERE, earned, kept

pytestmark = pytest.mark.slow

TOKEN = "glpat-Secret_of-the-tests.42"
URL = "https://gitlab.example.com/team/kernels"
PATH = "baselines/fake-one/softmax.json"
HISTORY = "baselines/fake-one/softmax.history.jsonl"
LIMITS = f"thresholds/{KEY}/softmax.json"
NIGHT = "perfci/nightly"
ENVIRONMENT = Environment(
    Device("fake", "Fake One", "fake-one"), "virtual", "3.11.7", {}, "host", "Linux", commit="c" * 40
)


def make_limits(folder, tau):
    return kept(folder / "limits", earned(value=tau, after=tau)).content


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """main has a README among the baselines, and thresholds of softmax."""
    for name in [name for name in os.environ if name.startswith("PERFCI_")]:
        monkeypatch.delenv(name)
    repository = RemoteRepository(tmp_path / "repository.git", monkeypatch)
    repository.put(
        {"baselines/README.md": b"Numbers.\n", LIMITS: make_limits(tmp_path, 0.01), "kernels/x.py": b"pass\n"}
    )
    yield repository
    repository.close()


class Job:
    """The job without a token: a work tree of main with what it changed in it."""

    def __init__(self, root, remote):
        self.root, self.remote = root, remote
        root.mkdir()
        self.check_out()

    def check_out(self, branch="main"):
        """Starts again with what the branch has."""
        for path in (PATH, HISTORY):
            (self.root / path).unlink(missing_ok=True)
        self.base = self.remote.tip(branch)
        for path in self.remote.git("ls-tree", "-r", "--name-only", self.base).splitlines():
            place = self.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(self.remote.show(path, self.base))

    def accept(self, us=10.0, day=1, cases=("rows=1", "rows=2")):
        created = f"2026-01-0{day}T00:00:00Z"
        runs = (BaselineRun(f"run-{created}", created, ENVIRONMENT),)
        blocks = tuple(BaselineBlock(runs[0].id, us, 2 * us, 0.7) for _ in range(4))
        baseline = Baseline("softmax", "fake-one", "virtual", runs, tuple(BaselineCase(case, blocks) for case in cases))
        return write_baseline(baseline, self.root / "baselines").read_bytes()

    def note(self, day=1):
        created = f"2026-01-0{day}T00:00:00Z"
        line = HistoryRun(f"run-{created}", created, ENVIRONMENT, (HistoryCase("rows=1", 4, Spread(9.0, 9.0, 9.0)),))
        append_history(self.root / "baselines", "fake-one", "softmax", line)
        return (self.root / HISTORY).read_bytes()

    def tighten(self, tau=0.0075):
        (self.root / LIMITS).write_bytes(make_limits(self.root.parent, tau))


@pytest.fixture
def job(tmp_path, remote):
    return Job(tmp_path / "job", remote)


@pytest.fixture
def environ(job):
    return {"PERFCI_PUSH_TOKEN": TOKEN, "CI_PROJECT_URL": job.remote.url, "CI_DEFAULT_BRANCH": "main"}


@pytest.fixture
def send(job, environ):
    """Propose what the job left."""

    def send(prefix="", **options):
        wanted = ProposalOptions(**{"base": job.base} | options)
        inner = settings.at(job.root / prefix)
        return propose(job.root / prefix, inner, wanted, environ, prefix)

    return send


def kinds(done):
    return [problem.kind for problem in done.problems]


# --- the merge request ------------------------------------------------------------------------------------------------


def test_changed_files_become_one_commit_and_one_merge_request(remote, job, send):
    remote.answer(f"View merge request for {NIGHT}:\n  {URL}/-/merge_requests/5\n")
    accepted, noted = job.accept(), job.note()
    job.tighten()

    done = send()

    assert (done.state, done.branch, done.problems) == (Fate.PROPOSED, NIGHT, ())
    assert (done.merge_request, done.url) == (5, f"{URL}/-/merge_requests/5")
    assert remote.git("rev-parse", f"{NIGHT}^") == remote.tip()
    assert remote.git("diff", "--name-only", "main", NIGHT).splitlines() == [HISTORY, PATH, LIMITS]
    assert (remote.show(PATH, NIGHT), remote.show(HISTORY, NIGHT)) == (accepted, noted)
    assert remote.git("log", "-1", "--format=%B", NIGHT).strip().endswith(f"{TRAILER}: {job.base}")
    *options, description = remote.options()
    assert options == [
        "merge_request.create",
        "merge_request.target=main",
        "merge_request.title=perfci: baselines of 2 cases, thresholds tightened: 1",
        "merge_request.remove_source_branch",
    ]
    squeezed = re.sub(" +", " ", description)
    assert r"\n| `softmax` | `rows=1` | `fake-one` | 10.0 us |\n" in squeezed
    assert "| `tau` | 1 % | 0.75 % |" in squeezed


def test_a_second_night_adds_to_the_branch_and_keeps_both_lines_of_history(remote, job, send):
    job.accept()
    job.note()
    send()
    job.check_out()
    newer = job.accept(9.0, day=2)
    job.note(day=2)

    done = send()

    assert (done.state, remote.show(PATH, NIGHT)) == (Fate.PROPOSED, newer)
    assert remote.show(HISTORY, NIGHT).count(b"\n") == 2
    assert len(remote.log(NIGHT)) == len(remote.log()) + 2


def test_a_file_that_somebody_changed_on_the_target_is_named_and_nothing_is_written(remote, job, send):
    remote.put({PATH: job.accept(10.0)})
    job.check_out()
    remote.put({PATH: job.accept(11.0, day=2)})
    job.accept(9.0, day=3)

    done = send()

    assert (done.state, kinds(done)) == (Fate.CONFLICTS, ["propose_conflict"])
    shown = sentence(done.problems[0])
    assert PATH in shown and "main" in shown and remote.tip()[:10] in shown
    assert remote.tip(NIGHT) is None


def test_a_reviewers_edit_on_perfcis_branch_is_not_overwritten(remote, job, send):
    job.accept()
    send()
    edited = remote.put({PATH: job.accept(12.0)}, NIGHT)
    job.accept(9.0, day=2)

    assert kinds(send()) == ["propose_branch_edited"]
    assert remote.tip(NIGHT) == edited


def test_foreign_names_become_no_markup_and_no_line(remote, job, send):
    job.accept(cases=("rows=1|<b>", "note=@all", "x=![y](http://evil.invalid)", "a=b\\n/close"))

    send()

    description = remote.options()[-1]
    lines = description.split("\\n")
    shown = re.sub("`[^`]*`", "", "\n".join(lines))  # within code GitLab looks for nothing
    assert [text for text in ("<b>", "@all", "](", "evil.invalid") if text in shown] == []
    assert not [line for line in lines if line.startswith("/")]


# --- dry runs and the command -----------------------------------------------------------------------------------------


def test_a_dry_run_needs_no_token_and_pushes_nothing(remote, job, tmp_path, capsys):
    remote.git("clone", "--quiet", str(remote.folder), str(tmp_path / "clone"))
    command = ["accept", "--propose", "--artifacts", str(job.root), "--project", str(tmp_path / "clone"), "--dry-run"]

    assert run(command) == 0
    assert "Nothing to propose" in capsys.readouterr().out
    job.accept()
    assert run(command) == 0
    assert PATH in capsys.readouterr().out
    assert run([*command, "--against", "0" * 40]) == 1
    assert "--against" in capsys.readouterr().err
    job.tighten(0.09)
    assert run(command) == 1
    assert "would be loosened" in capsys.readouterr().err
    assert remote.tip(NIGHT) is None


def test_the_command_does_it_all_by_the_jobs_variables(remote, job, environ, monkeypatch, capsys):
    for name, value in {**environ, "CI_COMMIT_SHA": job.base, "CI_PROJECT_DIR": str(job.root)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(job.root.parent)
    job.accept()
    (job.root / "kernels" / "x.py").write_text("raise SystemExit('imported')\n")

    command = ["accept", "--propose", "--artifacts", str(job.root), "--project", str(job.root), "--branch", "bot/x"]
    remote.answer(f"View merge request for bot/x:\n  {URL}/-/merge_requests/5\n")

    first = run(command)
    shown = capsys.readouterr()
    again = run([*command, "--format", "json"])

    assert (first, again, shown.err) == (0, 0, "")
    assert PATH in shown.out and "Merge request !5" in shown.out and f"{URL}/-/merge_requests/5" in shown.out
    answer = json.loads(capsys.readouterr().out)
    assert (answer["state"], answer["cases"][0]["after_us"]) == ("proposed", 10.0)
    assert remote.git("diff", "--name-only", "main", "bot/x") == PATH

    commit = remote.put({PATH: job.accept(11.0, day=2)})
    job.accept(9.0, day=3)
    assert run(command) == 1
    shown = capsys.readouterr()
    assert "Nothing was written" in shown.out and f"was changed on main by commit {commit[:10]}" in shown.err


# --- pushing ----------------------------------------------------------------------------------------------------------


def test_a_refused_push_says_what_the_server_said(remote, job, send):
    remote.answer(f"GitLab: You are not allowed to push code to protected branches with {TOKEN}.\n")
    (remote.folder / "refuse").touch()
    job.accept()

    with pytest.raises(PerfciError) as raised:
        send()

    assert "not allowed to push code" in str(raised.value) and TOKEN not in str(raised.value)


def test_a_push_is_repeated_if_somebody_else_came_first(remote, job, send, monkeypatch):
    theirs = job.note()
    (job.root / HISTORY).unlink()
    job.note(day=2)
    first = [lambda: remote.put({HISTORY: theirs}, NIGHT, remote.tip())]
    run_git = command.run

    def run_later(folder, *arguments, **more):
        if arguments[0] == "push" and first:
            first.pop()()
        return run_git(folder, *arguments, **more)

    monkeypatch.setattr(command, "run", run_later)

    assert send().state is Fate.PROPOSED
    lines = remote.show(HISTORY, NIGHT).decode().splitlines()
    assert sorted(re.search(r"2026-01-0\d", line)[0] for line in lines) == ["2026-01-01", "2026-01-02"]


# --- what is not proposed ---------------------------------------------------------------------------------------------


def test_a_looser_earned_value_is_refused(remote, job, send):
    job.tighten(0.02)

    assert kinds(send()) == ["propose_looser"]
    assert remote.tip(NIGHT) is None


@pytest.mark.parametrize("name", ["baselines/evil.sh", "baselines/README.md", "thresholds/softmax.yaml"])
def test_a_file_that_perfci_does_not_write_is_refused(job, send, name):
    assert send().state is Fate.NOTHING  # an unchanged one is not
    (job.root / name).write_text("Other words.\n")

    with pytest.raises(UsageError) as raised:
        send()

    assert raised.value.reason.kind == "propose_other_file" and name in str(raised.value)


@pytest.mark.parametrize("what", ["file", "folder", "top"])
def test_links_are_not_followed(job, send, tmp_path, what):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "softmax.json").write_text("{}")
    if what == "file":
        (job.root / "baselines" / "fake-one").mkdir()
        (job.root / PATH).symlink_to(secret / "softmax.json")
    elif what == "folder":
        (job.root / "baselines" / "fake-one").symlink_to(secret)
    else:
        (job.root / "baselines" / "README.md").unlink()
        (job.root / "baselines").rmdir()
        (job.root / "baselines").symlink_to(secret)

    with pytest.raises(UsageError) as raised:
        send()

    assert raised.value.reason.kind == "propose_not_regular"


@pytest.mark.parametrize("content", [b"{", b'{"format": 99}', b"\xff\xfe", b""])
def test_a_baseline_that_perfci_cannot_read_is_refused(job, send, content):
    job.accept()
    (job.root / PATH).write_bytes(content)

    with pytest.raises(StoredFileError):
        send()


def test_a_file_that_is_too_large_is_refused_before_it_is_read(job, send, monkeypatch):
    monkeypatch.setattr("perfci.extensions.history.proposal.MOST_BYTES", 100)
    job.accept()

    with pytest.raises(UsageError) as raised:
        send()
    assert raised.value.reason.kind == "propose_too_large"


def test_a_project_in_a_folder_of_its_repository_stays_there(remote, job, send):
    remote.put({f"sub/{LIMITS}": make_limits(job.root.parent, 0.01)})
    job.check_out()
    (job.root / "sub" / LIMITS).write_bytes(tighter := make_limits(job.root.parent, 0.0075))

    done = send(prefix="sub/")

    assert done.proposal.files == (f"sub/{LIMITS}",)
    assert remote.show(f"sub/{LIMITS}", NIGHT) == tighter


# --- project and user -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"PERFCI_PUSH_TOKEN": ""}, "propose_no_token"),
        ({"PERFCI_PUSH_TOKEN": "two words and more"}, "token_malformed"),
        ({"CI_PROJECT_URL": ""}, "propose_variable_invalid"),
        ({"CI_PROJECT_URL": "ext::sh -c x"}, "propose_variable_invalid"),
        ({"CI_PROJECT_URL": "https://gitlab.example.com@evil.example/x"}, "propose_variable_invalid"),
        ({"CI_COMMIT_SHA": "abc123"}, "propose_no_base"),
        ({"CI_DEFAULT_BRANCH": "a b"}, "propose_branch_invalid"),
        ({"CI_DEFAULT_BRANCH": "production"}, "propose_no_branch"),
        ({"CI_COMMIT_SHA": "d" * 40}, "propose_git_failed"),
    ],
)
def test_a_missing_or_malformed_variable_is_named(job, environ, changed, expected):
    job.accept()

    with pytest.raises(PerfciError) as raised:
        propose(job.root, settings.at(job.root), ProposalOptions(), {**environ, "CI_COMMIT_SHA": job.base, **changed})
    assert raised.value.reason.kind == expected


def test_the_token_is_in_no_argument_and_no_file(remote, job, send, monkeypatch, tmp_path):
    seen = []
    run_git = command.run

    def spy(folder, *arguments, **more):
        seen.extend(arguments)
        done = run_git(folder, *arguments, **more)
        seen.extend(path.read_text(errors="replace") for path in folder.glob(".git/config"))
        return done

    monkeypatch.setattr(command, "run", spy)
    job.accept()
    send()

    assert not [text for text in seen if TOKEN in text or "Basic" in text]


def test_nothing_that_a_git_directory_configures_is_run(tmp_path):
    hostile = make_hostile(start(tmp_path / "repository"), tmp_path)

    done = propose(hostile, settings.at(hostile), ProposalOptions(dry_run=True), {})
    assert commits.describe(hostile, "HEAD").title == "b"
    assert commits.list_changes(hostile, "HEAD") == ("a.py",)
    assert commits.count_between(hostile, "main", "HEAD", ["a.py"]) == 1
    assert commits.find_last_release(hostile).name == "v1"

    assert done.state is Fate.NOTHING
    assert not (tmp_path / "mark").exists(), (tmp_path / "mark").read_text()


def values(*entries, environment=HERE):
    return EarnedFile("softmax", KEY, Path("softmax.json"), entries, environment)


@pytest.mark.parametrize(
    ("before", "after", "loose"),
    [
        ([], [earned(value=0.005)], False),
        ([earned(value=0.0075)], [earned(value=0.006)], False),
        ([earned(value=0.006)], [earned(value=0.0075)], True),
        ([earned(value=0.006)], [], True),
        ([earned("speedup", 1.3)], [earned("speedup", 1.2)], True),
        ([earned("speedup", 1.3)], [earned("speedup", 1.2, rescaled="run025")], False),
        ([earned("speedup", 1.3, rescaled="run025")], [earned("speedup", 1.2, rescaled="run025")], True),
    ],
)
def test_an_earned_value_is_loosened_by_an_accepted_loss_alone(before, after, loose):
    (difference,) = compare_earned(values(*before), values(*after))

    assert difference.looser is loose


def test_in_another_environment_earned_values_begin_anew():
    differences = list(compare_earned(values(earned(value=0.006)), values(environment=THERE)))

    assert [(difference.key, difference.after, difference.looser) for difference in differences] == [
        ("tau", None, False)
    ]
