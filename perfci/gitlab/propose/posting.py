"""One commit on a branch, and one merge request: written through GitLab's interface, never by force.

Every round reads the branches anew, works out what is still to be written, and writes it in one commit that holds for
each file the last commit that was seen to change it, so that GitLab refuses it where somebody came first. Then, and
where an answer was lost, the next round begins.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from perfci.core.model import Fact, Reason
from perfci.core.settings import Settings
from perfci.core.wording import caused
from perfci.gitlab import api
from perfci.gitlab.api import WAITS_S, Answer
from perfci.gitlab.propose import body, files, merging
from perfci.gitlab.propose.body import MARKER, Proposal
from perfci.gitlab.propose.files import File, Kind
from perfci.gitlab.propose.merging import Step
from perfci.gitlab.propose.place import MERGE_REQUEST, PUSH, Target, is_branch
from perfci.gitlab.propose.repository import Repository, fail
from perfci.gitlab.propose.tightening import Moved

DIGITS = 8
"""Of the target's commit in the name of a branch that takes another one's place."""

_RACED = frozenset({400, 409})
"""Statuses of a commit that somebody came before; and of one that is refused for good, which a second try tells."""


class State(StrEnum):
    """What became of it."""

    NOTHING = "nothing"
    """nothing is to be proposed"""
    PROPOSED = "proposed"
    PUSHED = "pushed"
    CONFLICTS = "conflicts"
    """nothing was written"""
    DRY = "dry-run"


@dataclass(frozen=True)
class Proposed:
    """What became of a proposal."""

    state: State
    branch: str | None = None
    commit: str | None = None
    """that is new; None where the branch had it all"""
    merge_request: int | None = None
    url: str | None = None
    created: bool = False
    """the merge request is new"""
    proposal: Proposal | None = None
    problems: tuple[Reason, ...] = ()
    compared: str | None = None
    """commit of the clone that a dry run without a token was compared with"""


@dataclass(frozen=True)
class _Plan:
    """What one round is to write."""

    branch: str
    steps: tuple[Step, ...]
    tip: str | None = None
    """where the branch stands; None where it is not there"""
    start: str | None = None
    """the commit that a new branch is to start from"""
    before: tuple[tuple[str, bytes], ...] = ()
    """path -> content on the branch that gets the files in the end"""

    @property
    def conflicts(self) -> tuple[Reason, ...]:
        return tuple(step.conflict for step in self.steps if step.conflict)

    @property
    def writes(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.content is not None)


@dataclass
class _Poster:
    """One proposal on its way."""

    repository: Repository
    target: Target
    into: str
    folders: tuple[str, ...]
    changed: tuple[File, ...]
    base: Mapping[str, str]
    """path -> blob as the other job found it"""
    title: str | None


def propose(
    source: Path,
    settings: Settings,
    target: Target,
    prefix: str = "",
    *,
    title: str | None = None,
    dry_run: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Proposed:
    """Propose what lies in the folders of baselines and thresholds below `source`, where it is not as at `target.base`.

    `prefix` is the project's place in its repository. Raises UsageError and StoredFileError for files that are not to
    be proposed, PerfciError where the server refuses, and MissingPackageError without python-gitlab.
    """
    where = files.folders(settings, prefix)
    found = files.read(source, settings, prefix)
    repository = Repository(api.connect(target, _worded(target), sleep))
    default = repository.default_branch()
    into = target.target or default
    if into is None or not is_branch(into):
        fail(Reason("propose_no_target", {"project": target.project}))
    if not repository.has(target.base):
        fail(Reason("propose_base_unknown", {"commit": target.base[:12], "project": target.project}))
    base = repository.blobs(where.values(), target.base)
    changed = differing(found, base, target.base)
    if not changed:
        return Proposed(State.NOTHING)
    moved, looser = thresholds_moved(repository, where["thresholds"], base, changed, found)
    if looser:
        return Proposed(State.CONFLICTS, problems=looser)
    poster = _Poster(repository, target, into, tuple(where.values()), changed, base, title)
    return _posted(poster, moved, dry_run=dry_run)


def _worded(target: Target) -> api.Worded:
    def worded(kind: str, facts: Mapping[str, Fact]) -> Reason:
        return Reason(f"propose_{kind}", {**facts, "project": target.project})

    return worded


def differing(found: Sequence[File], base: Mapping[str, str], commit: str) -> tuple[File, ...]:
    """The files that are not as at a commit, each one that perfci can read. Raises as `files.check` does."""
    changed = tuple(file for file in found if file.blob(commit) != base.get(file.path))
    files.check(changed)
    return changed


class Blobs(Protocol):
    """Where the content of files is kept."""

    def content(self, blob: str) -> bytes:
        """The content of a blob."""


def thresholds_moved(
    repository: Blobs, folder: str, base: Mapping[str, str], changed: Sequence[File], found: Sequence[File]
) -> tuple[tuple[Moved, ...], tuple[Reason, ...]]:
    """How the thresholds move, and a reason for each that is not tightened: that is for people to do."""
    mine = {file.path: file.content for file in changed if file.kind is Kind.THRESHOLDS and not file.device}
    earned = [file for file in changed if file.kind is Kind.THRESHOLDS and file.device]
    if not mine and not earned:
        return (), ()
    paths = [path for path in base if _is_written(path, folder)] if mine else []
    before = {path: repository.content(base[path]) for path in paths}
    moved = (
        *(merging.tightened(before, {**before, **mine}, _cases(found)) if mine else ()),
        *(each for file in earned for each in merging.earned(file, _at_base(repository, base, file))),
    )
    looser = tuple(
        Reason("propose_looser", {"op": each.op, "key": each.key, "case": each.case or "-", "folder": folder})
        for each in moved
        if each.looser
    )
    return moved, looser


def _is_written(path: str, folder: str) -> bool:
    """Whether a path is that of thresholds that people write."""
    return path.endswith(".yaml") and path.rpartition("/")[0] == folder


def _at_base(repository: Blobs, base: Mapping[str, str], file: File) -> bytes | None:
    return repository.content(base[file.path]) if file.path in base else None


def _cases(found: Iterable[File]) -> Mapping[str, tuple[str, ...]]:
    """Op -> the cases that its baselines know."""
    cases: dict[str, dict[str, None]] = {}
    for file in found:
        known = merging.baseline(file, file.content) if file.kind is Kind.BASELINE else None
        if known:
            cases.setdefault(file.op, {}).update(dict.fromkeys(case.case for case in known.cases))
    return {op: tuple(ids) for op, ids in cases.items()}


# --- rounds -----------------------------------------------------------------------------------------------------------


def _posted(poster: _Poster, moved: Sequence[Moved], *, dry_run: bool) -> Proposed:
    plan, last = _plan(poster), None
    for pause in (*WAITS_S, None):
        told = body.proposal([step.file for step in plan.steps], dict(plan.before), moved)
        if plan.conflicts:
            return Proposed(State.CONFLICTS, plan.branch, proposal=told, problems=plan.conflicts)
        if dry_run:
            return Proposed(State.DRY, plan.branch, proposal=told)
        if not plan.steps:
            return Proposed(State.NOTHING, proposal=told)
        answer = _commit(poster, plan, told) if plan.writes else None
        if answer is None or answer.failure is None:
            return _finished(poster, plan, told, answer)
        last, plan = plan, _again(poster, plan, last, answer, pause)
    raise AssertionError("the last round ends in an answer")


def _again(poster: _Poster, plan: _Plan, last: _Plan | None, answer: Answer, pause: float | None) -> _Plan:
    """The next round's plan, where there is to be one. Raises PerfciError where the answer stands."""
    refused = answer.status in _RACED and plan == last
    hopeless = answer.status not in _RACED and not answer.unclear
    if answer.failure and (refused or hopeless or pause is None or not poster.repository.server.pause(pause)):
        fail(answer.failure)
    return _plan(poster)


def _plan(poster: _Poster) -> _Plan:
    if poster.target.to == MERGE_REQUEST:
        return _for_request(poster)
    branch = poster.into if poster.target.to == PUSH else poster.target.to
    tip = poster.repository.tip(branch)
    if tip is None and branch == poster.into:
        fail(Reason("propose_no_branch", {"branch": branch, "project": poster.target.project}))
    start = poster.target.base if tip is None else None
    steps = _steps(poster, poster.changed, tip or poster.target.base, branch)
    return _Plan(branch, steps, tip, start, _before(steps))


def _steps(poster: _Poster, changed: Iterable[File], commit: str, branch: str) -> tuple[Step, ...]:
    """What is to be done on a branch with each file; those that it has already are left out."""
    steps = []
    for file in changed:
        base = poster.base.get(file.path)
        there = poster.repository.file(file.path, commit, (base, file.blob(poster.target.base)))
        steps.append(merging.step(file, base, there, branch))
    return tuple(step for step in steps if step.conflict or step.content is not None)


def _before(steps: Iterable[Step]) -> tuple[tuple[str, bytes], ...]:
    return tuple((step.file.path, step.there.content) for step in steps if step.there)


def _for_request(poster: _Poster) -> _Plan:
    """The steps on the merge request's branch, of what its target lacks; a new branch starts at the target's tip."""
    repository = poster.repository
    top = repository.tip(poster.into)
    if top is None:
        fail(Reason("propose_no_branch", {"branch": poster.into, "project": poster.target.project}))
    wanted = _steps(poster, poster.changed, top, poster.into)
    branch = _open_branch(poster) or poster.target.branch
    if not wanted or any(step.conflict for step in wanted):
        return _Plan(branch, wanted, before=_before(wanted))
    tip = repository.tip(branch)
    if tip and _parted(poster, wanted, top, tip):
        # Brought up to date it could not be merged: what it changes was changed on the target since. By force it is
        # never written anew, so another branch takes its place.
        branch = f"{poster.target.branch}.{top[:DIGITS]}"
        tip = repository.tip(branch)
    if tip is None:
        return _Plan(branch, wanted, None, top, _before(wanted))
    return _Plan(branch, _onto(poster, wanted, tip, branch), tip, None, _before(wanted))


def _onto(poster: _Poster, wanted: Sequence[Step], tip: str, branch: str) -> tuple[Step, ...]:
    """The same on a branch that is there; a step with nothing to write stays, for it tells what is proposed."""
    steps = []
    for each in wanted:
        file = replace(each.file, content=each.content or b"")
        known = each.there.blob if each.there else None
        base = poster.base.get(file.path)
        there = poster.repository.file(file.path, tip, (base, known, file.blob(poster.target.base)))
        step = merging.step(file, known if there and there.blob == known else base, there, branch)
        edited = step.conflict and step.conflict.kind == "propose_conflict"
        why = Reason("propose_branch_edited", step.conflict.facts) if step.conflict and edited else step.conflict
        steps.append(replace(step, conflict=why))
    return tuple(steps)


def _parted(poster: _Poster, wanted: Sequence[Step], top: str, tip: str) -> bool:
    """Whether the branch and its target changed one file each in their own way since they parted."""
    common = poster.repository.common(top, tip)
    if common is None:
        return True
    if common == top:
        return False
    ours = {step.file.path: files.blob_id(step.content or b"", top) for step in wanted}
    before, target, branch = (poster.repository.blobs(poster.folders, each) for each in (common, top, tip))
    after = {**branch, **ours}
    return any(
        target.get(path) != before.get(path) and after.get(path) not in {target.get(path), before.get(path)}
        for path in {*before, *target, *after}
    )


def _commit(poster: _Poster, plan: _Plan, told: Proposal) -> Answer:
    heading = body.title(poster.title, told)
    data: dict[str, Any] = {
        "branch": plan.branch,
        "commit_message": body.message(heading, poster.target.base),
        "actions": [_action(step) for step in plan.writes],
    }
    if plan.start:
        data["start_sha"] = plan.start
    path = f"{poster.repository.address}/repository/commits"
    return poster.repository.server.ask("post", path, data=data, repeat_unclear=False)


def _action(step: Step) -> dict[str, str]:
    action = {
        "action": "update" if step.there else "create",
        "file_path": step.file.path,
        "content": base64.b64encode(step.content or b"").decode("ascii"),
        "encoding": "base64",
    }
    return {**action, "last_commit_id": step.there.commit} if step.there else action


def _finished(poster: _Poster, plan: _Plan, told: Proposal, answer: Answer | None) -> Proposed:
    """After the commit, or where there was none to be made."""
    made = answer.data.get("id") if answer and isinstance(answer.data, dict) else None
    commit = made if isinstance(made, str) else None
    if poster.target.to != MERGE_REQUEST:
        return Proposed(State.PUSHED if plan.writes else State.NOTHING, plan.branch, commit, proposal=told)
    return replace(_request(poster, plan.branch, told), branch=plan.branch, commit=commit, proposal=told)


# --- the merge request ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Request:
    """An open merge request."""

    number: int
    branch: str
    own: bool
    """perfci's, by its marker and its author"""
    title: str
    description: str
    url: str | None


def _open_branch(poster: _Poster) -> str | None:
    """The branch of perfci's own newest open merge request: the one asked for, or one that took its place."""
    name = poster.target.branch
    known = [each for each in _requests(poster) if each.own and _succeeds(each.branch, name)]
    return max(known, key=lambda each: each.number).branch if known else None


def _succeeds(branch: str, name: str) -> bool:
    """Whether it is the branch of this name, or one that took its place: not one that other jobs were given."""
    return bool(re.fullmatch(rf"{re.escape(name)}(\.[0-9a-f]{{{DIGITS}}})?", branch))


def _requests(poster: _Poster) -> list[_Request]:
    """All open merge requests into the target."""
    repository = poster.repository
    user = repository.user()
    query = {"state": "opened", "target_branch": poster.into, "scope": "all"}
    listed = repository.pages(f"{repository.address}/merge_requests", query)
    found = (_read(each, user, poster.target.project) for each in listed)
    return [each for each in found if each is not None]


def _read(found: Any, user: int | None, project: int) -> _Request | None:
    if not isinstance(found, dict) or not isinstance(found.get("iid"), int):
        return None
    author = found.get("author")
    description = str(found.get("description") or "").replace("\r\n", "\n")
    marked = description.split("\n", 1)[0].strip() == MARKER
    by = author.get("id") if isinstance(author, dict) else None
    here = found.get("source_project_id") == project
    url = found.get("web_url")
    return _Request(
        found["iid"],
        str(found.get("source_branch")) if here else "",
        own=marked and here and by is not None and by == user,
        title=str(found.get("title") or ""),
        description=description,
        url=url if isinstance(url, str) else None,
    )


def _request(poster: _Poster, branch: str, told: Proposal) -> Proposed:
    """Open the branch's merge request, or bring perfci's own up to date; those whose place it takes are closed."""
    heading, text = body.title(poster.title, told), body.description(told, poster.target.base)
    for pause in (*WAITS_S, None):
        known = _requests(poster)
        mine = next((each for each in known if each.branch == branch), None)
        if mine is not None:
            _update(poster, mine, heading, text)
            _close(poster, known, branch)
            return Proposed(State.PROPOSED, merge_request=mine.number, url=mine.url)
        answer = _create(poster, branch, heading, text)
        if answer.failure is None:
            _close(poster, known, branch)
            found = _read(answer.data, None, poster.target.project)
            if found is None:
                poster.repository.unreadable()
            return Proposed(State.PROPOSED, merge_request=found.number, url=found.url, created=True)
        raced = answer.status == 409 or answer.unclear
        if not raced or pause is None or not poster.repository.server.pause(pause):
            _without_request(answer, branch)
    raise AssertionError("the last round ends in an answer")


def _create(poster: _Poster, branch: str, heading: str, text: str) -> Answer:
    data = {
        "source_branch": branch,
        "target_branch": poster.into,
        "title": heading,
        "description": text,
        "remove_source_branch": True,
    }
    path = f"{poster.repository.address}/merge_requests"
    return poster.repository.server.ask("post", path, data=data, repeat_unclear=False)


def _update(poster: _Poster, mine: _Request, heading: str, text: str) -> None:
    """Somebody else's merge request from the same branch is left as it is."""
    same = mine.title == heading and mine.description.strip() == text.strip()
    if mine.own and not same:
        _put(poster, mine, {"title": heading, "description": text})


def _close(poster: _Poster, known: Iterable[_Request], branch: str) -> None:
    for each in known:
        if each.own and each.branch != branch and _succeeds(each.branch, poster.target.branch):
            _put(poster, each, {"state_event": "close"})


def _put(poster: _Poster, mine: _Request, data: Mapping[str, str]) -> None:
    path = f"{poster.repository.address}/merge_requests/{mine.number}"
    answer = poster.repository.server.ask("put", path, data=data)
    if answer.failure:
        _without_request(answer, mine.branch)


def _without_request(answer: Answer, branch: str) -> None:
    assert answer.failure is not None
    fail(caused("propose_request_failed", answer.failure, branch=branch))
