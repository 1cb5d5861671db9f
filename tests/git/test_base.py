"""What the files at hand are compared with, in real repositories and clones."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from perfci.core.model import Base, Reason
from perfci.core.wording import catalogue, sentence
from perfci.git import base as git_base
from perfci.git.base import How
from tests.git_repositories import clone, commit, git, told

resolve = told(git_base.resolve)


def base(commit: str, how: str, name: str) -> Base:
    return Base(commit, How(how), name)


def refused(answer: object, kind: str) -> Reason:
    """A reason of this kind with a sentence that has all its facts."""
    assert isinstance(answer, Reason), answer
    assert answer.kind == kind
    assert "-" not in (said := sentence(answer)).split(), said
    assert kind in catalogue()
    return answer


def obey(folder: Path, reason: Reason) -> None:
    """Run the command that a reason's sentence gives, as its reader would."""
    assert str(reason.facts["command"]) in sentence(reason)
    subprocess.run(str(reason.facts["command"]), shell=True, cwd=folder, check=True, capture_output=True)


# --- the base: asked for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["main", "v1", "v1-signed", "HEAD~1", "refs/heads/main", "main^{commit}", ":/first"])
def test_any_revision_can_be_asked_for(repository, name):
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "v1")
    git(repository, "tag", "-a", "-m", "with a note", "v1-signed")
    git(repository, "checkout", "-q", "-b", "topic")
    commit(repository, "topic")

    assert resolve(repository, name, {}) == base(first, "asked", name)


@pytest.mark.parametrize(("asked", "shown"), [("main", "origin/main"), ("main~1", "origin/main~1")])
def test_a_branch_that_only_the_remote_has_is_found(forked, asked, shown):
    here = clone(forked, "-b", "topic")

    assert resolve(here, asked, {}) == base(git(forked, "rev-parse", asked), "asked", shown)


def test_a_branch_comes_before_a_tag_of_its_name(forked):
    branch = git(forked, "rev-parse", "main")
    here = clone(forked, "-b", "topic")
    for folder in (forked, here):
        git(folder, "tag", "main", git(folder, "rev-parse", "topic"))
        git(folder, "tag", "origin/main", git(folder, "rev-parse", "topic"))

    assert resolve(forked, "main", {}) == base(branch, "asked", "main")
    assert resolve(here, "main", {}) == base(branch, "asked", "origin/main")
    assert resolve(here, "origin/main", {}) == base(branch, "asked", "origin/main")


@pytest.mark.parametrize("name", ["nowhere", "", "..", "main..topic", "^main", "HEAD:nowhere", "1" * 40, "a b", "x\0y"])
def test_a_revision_that_does_not_exist_is_said(forked, name):
    refused(resolve(forked, name, {}), "revision_unknown")


@pytest.mark.parametrize("option", ["--all", "-h", "--git-dir", "--output=here", "--show-toplevel", "--"])
def test_an_option_is_no_revision(repository, option):
    refused(resolve(repository, option, {}), "revision_unknown")
    assert sorted(path.name for path in repository.iterdir()) == [".git", "file"]


@pytest.mark.parametrize("name", ["HEAD:file", "HEAD^{tree}", "blob"])
def test_what_is_no_commit_is_refused(repository, name):
    git(repository, "tag", "-a", "-m", "a tag of a file", "blob", "HEAD:file")

    refused(resolve(repository, name, {}), "revision_unknown")


# --- the base: merge requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["merged_result", "merge_train"])
@pytest.mark.parametrize(("target", "shown"), [("main", "origin/main"), (None, "HEAD^1")])
def test_on_a_made_merge_commit_the_base_is_its_first_parent(merged, event, target, shown):
    variables = {"CI_MERGE_REQUEST_EVENT_TYPE": event}
    variables |= {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": target} if target else {}

    expected = base(git(merged, "rev-parse", "main"), "first_parent", shown)
    assert resolve(merged, None, variables) == expected


def test_on_a_detached_pipeline_the_base_is_the_merge_base_with_the_target(forked):
    here = clone(forked, "-b", "topic")
    git(here, "checkout", "-q", "--detach")
    variables = {"CI_MERGE_REQUEST_EVENT_TYPE": "detached", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}

    expected = base(git(forked, "rev-parse", "fork"), "merge_base", "origin/main")
    assert resolve(here, None, variables) == expected


def test_without_the_target_the_merge_base_that_gitlab_names_will_do(forked):
    fork = git(forked, "rev-parse", "fork")
    here = clone(forked, "--single-branch", "-b", "topic")
    variables = {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main", "CI_MERGE_REQUEST_DIFF_BASE_SHA": fork}

    assert resolve(here, None, variables) == base(fork, "merge_base", "origin/main")


# --- the base: shallow clones -----------------------------------------------------------------------------------------


def test_a_shallow_clone_without_the_first_parent_is_mended_by_the_command(merged):
    here = clone(merged, "--depth=1", "-b", "made")
    variables = {"CI_MERGE_REQUEST_EVENT_TYPE": "merged_result"}
    reason = refused(resolve(here, None, variables), "history_cut")

    obey(here, reason)

    expected = base(git(merged, "rev-parse", "main"), "first_parent", "HEAD^1")
    assert resolve(here, None, variables) == expected


TARGET = {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
BRANCH = {"CI_DEFAULT_BRANCH": "main", "CI_COMMIT_BRANCH": "topic"}


@pytest.mark.parametrize(
    ("lacks", "how", "variables", "kind"),
    [
        ("the target", "--single-branch", TARGET, "target_not_fetched"),
        ("the target and history", "--depth=1", TARGET, "target_not_fetched"),
        ("history", "--depth=1", TARGET, "history_cut"),
        ("the default branch", "--single-branch", BRANCH, "target_not_fetched"),
    ],
)
def test_what_a_clone_lacks_to_find_the_merge_base_is_brought_by_the_command(forked, lacks, how, variables, kind):
    here = clone(forked, how, "-b", "topic")
    if lacks == "history":
        git(here, "fetch", "-q", "--depth=1", "origin", "main:refs/remotes/origin/main")
    if variables is BRANCH:
        git(here, "checkout", "-q", "--detach")
    reason = refused(resolve(here, None, variables), kind)

    obey(here, reason)

    expected = base(git(forked, "rev-parse", "fork"), "merge_base", "origin/main")
    assert resolve(here, None, variables) == expected


@pytest.mark.parametrize("asked", ["HEAD~1", "fork", "abbreviated", "whole"])
def test_what_is_asked_of_a_shallow_clone_is_brought_by_the_command(forked, asked):
    fork = git(forked, "rev-parse", "fork")
    here = clone(forked, "--depth=1", "--no-tags", "-b", "topic")
    asked = {"abbreviated": fork[:9], "whole": fork}.get(asked, asked)
    kind = "revision_unknown" if asked == "fork" else "history_cut"
    reason = refused(resolve(here, asked, {}), kind)

    obey(here, reason)

    assert resolve(here, asked, {}) == base(fork, "asked", asked)


# --- the base: elsewhere ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detached", [False, True])
def test_on_a_branch_the_base_is_where_it_left_the_default_branch(forked, detached):
    git(forked, "checkout", "-q", "main")
    here = clone(forked, "-b", "topic")
    if detached:
        git(here, "checkout", "-q", "--detach")

    expected = base(git(forked, "rev-parse", "fork"), "merge_base", "origin/main")
    assert resolve(here, None, {}) == expected


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("detached", [False, True])
def test_on_the_default_branch_the_base_is_the_baselines_commit(repository, behind, detached):
    first = git(repository, "rev-parse", "HEAD")
    commit(repository, "second")
    commit(repository, "third")
    here = clone(repository)
    if behind:
        git(here, "reset", "-q", "--hard", "HEAD~1")
    if detached:
        git(here, "checkout", "-q", "--detach")

    assert resolve(here, None, {}, first) == base(first, "baseline", first[:10])


# --- no answer at all -------------------------------------------------------------------------------------------------


def test_a_repository_of_another_user_is_refused_with_the_command_that_trusts_it(repository, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    reason = refused(resolve(repository, None, {}), "git_unowned")

    assert f"safe.directory {shlex.quote(str(repository.resolve()))}" in sentence(reason)
    config = tmp_path / "gitconfig"
    config.write_text(f"[safe]\n\tdirectory = {repository.resolve()}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    assert not isinstance(resolve(repository, "HEAD", {}), Reason)
    config.write_text(f"[safe]\n\tdirectory = {repository.resolve()}\n\tdirectory =\n")
    refused(resolve(repository, None, {}), "git_unowned")
