"""A proposal by git alone: one commit on a branch in a temporary clone, one push, GitLab's push options.

Never by force, and never over files that people changed meanwhile. The token goes to git through environment variables
only, so that no process list, file or message shows it.
"""

import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from perfci.core.errors import PerfciError, UsageError
from perfci.core.files import read_regular
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.core.temporary import temporary_folder
from perfci.extensions.common.variables import CERTIFICATES, HOST, find_invalid, read_token
from perfci.extensions.history.proposal import (
    ROWS,
    Proposal,
    ProposedFile,
    describe_changes,
    list_changed,
    write_description,
)
from perfci.git import command
from perfci.git.base import PROPOSALS
from perfci.git.repository import SETTINGS, find_repository
from perfci.report.data import pick
from perfci.report.text import plain
from perfci.store import HISTORY_ENDING
from perfci.store.files import write_atomically

TOKENS = ("PERFCI_PUSH_TOKEN", "PERFCI_GITLAB_TOKEN")
"""The first that is set is used. Merge requests' pipelines must know the note's token, but need not know the first."""

TRAILER = "Perfci-Proposal"
"""Begins the last line of perfci's commits, followed by the commit whose run they come from."""

ATTEMPTS = 5  # pushes, each after the branches were fetched again
LIMIT_S = 600.0  # for a fetch or a push
MOST_DESCRIPTION = 60_000  # bytes of a push option: one packet of git's protocol

_ATTRIBUTES = f"*.json -merge\n*{HISTORY_ENDING} merge=union\n"
"""How git merges: a file of numbers as a whole, since two halves of different runs fit nowhere. Histories by line."""

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCH = re.compile(r"(?!.*(?:\.\.|//|/\.|\.lock$|[/.]$))[A-Za-z0-9_][A-Za-z0-9._+/-]{0,199}")
_URL = re.compile(rf"{HOST}(?:/[A-Za-z0-9._~-]+)+")
_REQUEST = re.compile(r"https?://\S+/-/merge_requests/([1-9][0-9]*)")
_REFUSED_OPTION = re.compile(r"Error encountered with push options? (.+)")
_RACED = re.compile(r"\[rejected\]|\[remote rejected\].*(?:cannot lock ref|failed to update ref)")


@dataclass(frozen=True)
class ProposalOptions:
    """The request of the user."""

    branch: str = PROPOSALS  # of the merge request
    base: str | None = None  # commit that the other job began with. None for $CI_COMMIT_SHA
    dry_run: bool = False


@dataclass(frozen=True)
class Remote:
    """The repository that gets the proposal. The token shows in no text of it."""

    url: str
    token: str = field(default="", repr=False)
    certificates: str | None = None  # file of certificates to trust, if they are not the system's
    here: Path | None = None  # git directory on this machine that has all objects. Nothing is fetched then

    @property
    def secret(self) -> str:
        """The header of a request."""
        return base64.b64encode(f"perfci:{self.token}".encode()).decode()


class Fate(StrEnum):
    """The outcome of a proposal."""

    NOTHING = "nothing"
    PROPOSED = "proposed"
    CONFLICTS = "conflicts"  # nothing was written
    DRY = "dry-run"


@dataclass(frozen=True)
class Proposed:
    """The result of a proposal."""

    state: Fate
    branch: str | None = None
    commit: str | None = None  # None if the branch had it all
    merge_request: int | None = None
    url: str | None = None
    proposal: Proposal | None = None
    problems: tuple[Reason, ...] = ()


def propose(
    source: Path, settings: Settings, options: ProposalOptions, environ: Mapping[str, str], prefix: str = ""
) -> Proposed:
    """Propose the files below `source` that differ from the base's. prefix: the project's path in its repository.

    Raises UsageError and StoredFileError for files that cannot be proposed, PerfciError if git or the server refuses.
    """
    base = options.base or environ.get("CI_COMMIT_SHA", "")
    target = environ.get("CI_DEFAULT_BRANCH")
    if options.dry_run:
        commit = command.parse_commit(settings.root, base or "HEAD")
        repository = find_repository(settings.root)
        if commit is None or isinstance(repository, Reason):
            raise PerfciError("propose_no_commit", commit=base or "HEAD", folder=str(settings.root))
        base, target, remote = commit, target or "HEAD", Remote(repository.top.as_uri(), here=repository.common)
    else:
        remote = find_remote(environ)
    if not _COMMIT.fullmatch(base):
        raise PerfciError("propose_no_base", found=plain(base, 80) or "-")
    if target is None:
        raise PerfciError("propose_no_target")
    for name in (options.branch, target):
        if not _BRANCH.fullmatch(name):
            raise PerfciError("propose_branch_invalid", branch=plain(name, 80))
    folders = {}
    for name, folder in (("baselines", settings.baselines), ("thresholds", settings.thresholds)):
        if not folder.is_relative_to(settings.root):
            raise UsageError("propose_outside", folder=str(folder), name=name)
        folders[name] = folder.relative_to(settings.root).as_posix()

    with temporary_folder("propose") as place:
        clone = _TemporaryClone(place, remote)
        clone.prepare(base, [f"/{prefix}{folder}/" for folder in folders.values()])
        changed = list_changed(source, clone.folder, folders, prefix)
        if not changed:
            return Proposed(Fate.NOTHING)
        proposal = describe_changes(changed)
        looser = [one for one in proposal.thresholds if one.looser]
        if looser:  # only people loosen
            told = (pick(one, "op key case", folder=folders["thresholds"]) for one in looser)
            return Proposed(Fate.CONFLICTS, problems=tuple(Reason("propose_looser", facts) for facts in told))
        proposer = _Proposer(clone, options, base, target, changed, proposal)
        for _ in range(ATTEMPTS):
            if done := proposer.attempt():
                return done
    raise PerfciError("propose_raced")


def find_remote(environ: Mapping[str, str]) -> Remote:
    """From GitLab's variables. Raises PerfciError if one is missing or malformed."""
    token = read_token(environ, *TOKENS, missing="propose_no_token")
    if isinstance(token, Reason):
        raise PerfciError(token.kind, **token.facts)
    if invalid := find_invalid(environ, {"CI_PROJECT_URL": _URL}):
        raise PerfciError("propose_variable_invalid", **invalid)
    return Remote(f"{environ['CI_PROJECT_URL']}.git", token, environ.get(CERTIFICATES) or None)


def find_prefix(root: Path, environ: Mapping[str, str], repository: Path | None) -> str:
    """The project's path in its repository, with a slash at the end. Empty for the repository's root."""
    checkout = environ.get("CI_PROJECT_DIR")
    for folder in (Path(checkout) if checkout else None, repository):
        if folder and root.is_relative_to(folder.resolve()):
            inner = root.relative_to(folder.resolve()).as_posix()
            return "" if inner == "." else f"{inner}/"
    return ""


@dataclass
class _TemporaryClone:
    """A temporary clone that holds the files of two folders only."""

    folder: Path
    remote: Remote

    def variables(self) -> dict[str, str]:
        """The clone's git directory, and every setting that git gets."""
        config = {**SETTINGS, "user.name": "perfci", "user.email": "perfci@noreply.invalid"}
        if self.remote.token:
            config["http.extraHeader"] = f"Authorization: Basic {self.remote.secret}"
        if self.remote.certificates:
            config["http.sslCAInfo"] = self.remote.certificates
        named = {f"GIT_CONFIG_KEY_{index}": name for index, name in enumerate(config)}
        named |= {f"GIT_CONFIG_VALUE_{index}": value for index, value in enumerate(config.values())}
        places = {"GIT_DIR": str(self.folder / ".git"), "GIT_WORK_TREE": str(self.folder)}
        return {**places, "GIT_CONFIG_COUNT": str(len(config)), **named}

    def run(self, *arguments: str, given: str = "", fails: bool = False) -> tuple[int, str]:
        """Exit code and what git printed, errors last. Raises PerfciError if it fails and that is not expected."""
        done = command.run(self.folder, *arguments, variables=self.variables(), given=given, limit_s=LIMIT_S)
        if isinstance(done, Reason):
            raise PerfciError(done.kind, **done.facts)
        printed = (done.stdout + done.stderr).decode(errors="replace")
        if self.remote.token:
            printed = printed.replace(self.remote.token, "***").replace(self.remote.secret, "***")
        if done.returncode and not fails:
            self.fail(printed)
        return done.returncode, printed

    def fail(self, printed: str) -> None:
        """Raise what git printed as an error."""
        lines = [line for line in printed.splitlines() if line.strip() and not line.startswith("hint:")]
        raise PerfciError("propose_git_failed", url=self.remote.url, why=plain(" ".join(lines), 300) or "-")

    def prepare(self, base: str, folders: Sequence[str]) -> None:
        """Check out these folders of the base."""
        self.run("init", "--quiet", "--template=", f"--object-format={'sha256' if len(base) == 64 else 'sha1'}")
        git_folder = self.folder / ".git"
        if self.remote.here:
            (git_folder / "objects" / "info" / "alternates").write_bytes(
                os.fsencode(self.remote.here / "objects") + b"\n"
            )
            if (shallow := self.remote.here / "shallow").exists():
                (git_folder / "shallow").write_bytes(read_regular(shallow))
        self.run("remote", "add", "origin", self.remote.url)
        self.run("sparse-checkout", "set", "--no-cone", *folders)
        (git_folder / "info").mkdir(exist_ok=True)
        (git_folder / "info" / "attributes").write_text(_ATTRIBUTES, encoding="utf-8", newline="\n")
        self.fetch(base)
        self.check_out(base)

    def check_out(self, commit: str) -> None:
        self.run("checkout", "--quiet", "--detach", "--force", commit)

    def fetch(self, *commits: str) -> None:
        """Bring commits with their history, and files only when they are looked at."""
        missing = [commit for commit in commits if self.run("cat-file", "-e", f"{commit}^{{commit}}", fails=True)[0]]
        if missing:
            self.run("fetch", "--quiet", "--no-tags", "--filter=blob:none", "--update-shallow", "origin", *missing)

    def fetch_branches(self, *branches: str) -> dict[str, str]:
        """Bring branches. Name -> tip, for those that exist."""
        printed = self.run("ls-remote", "origin", *(f"refs/heads/{name}" for name in branches))[1]
        heads = (line.split("\trefs/heads/") for line in printed.splitlines() if "\trefs/heads/" in line)
        tips = {name: commit for commit, name in heads if name in branches}
        self.fetch(*tips.values())
        return tips

    def head(self) -> str:
        """The commit at hand."""
        return self.run("rev-parse", "HEAD")[1].strip()

    def content(self, commit: str, path: str) -> bytes | None:
        """A file of a commit. None if it has none."""
        done = command.run(self.folder, "cat-file", "blob", f"{commit}:{path}", variables=self.variables())
        return done.stdout if not isinstance(done, Reason) and done.returncode == 0 else None


@dataclass
class _Proposer:
    """One proposal on its way."""

    clone: _TemporaryClone
    options: ProposalOptions
    base: str
    target: str
    changed: tuple[ProposedFile, ...]
    proposal: Proposal

    def attempt(self) -> Proposed | None:
        """From fetching the branches to pushing. None if another push came first."""
        clone, options = self.clone, self.options
        branch = options.branch
        tips = {self.target: self.base} if options.dry_run else clone.fetch_branches(self.target, branch)
        if self.target not in tips:
            raise PerfciError("propose_no_branch", branch=self.target)
        top = tips[self.target]
        problems = self._find_edited(self.base, top, self.target, "propose_conflict")
        clone.check_out(top)
        if not problems and not self._commit():
            return Proposed(Fate.NOTHING, proposal=self.proposal)
        tip = tips.get(branch)
        if tip and not problems:
            problems = self._find_edited(top, tip, branch, "propose_branch_edited")
        if problems:
            return Proposed(Fate.CONFLICTS, branch, proposal=self.proposal, problems=problems)
        if options.dry_run:
            return Proposed(Fate.DRY, branch, proposal=self.proposal)
        if tip:
            # An open merge request: the target is merged into its branch, and the commit is made there.
            clone.check_out(tip)
            message = f"Merge {self.target}\n\n{TRAILER}: {self.base}\n"
            clone.run("merge", "--quiet", "-X", "theirs", "--no-edit", "-m", message, top)
            self._commit()
            if clone.head() == tip:
                return Proposed(Fate.PROPOSED, branch, proposal=self.proposal)
        return self._push(branch)

    def _find_edited(self, since: str, tip: str, branch: str, kind: str) -> tuple[Reason, ...]:
        """A reason for each proposed file that somebody else changed on the way to `tip`. Histories can be joined."""
        log = ("log", "--no-merges", "--format=%H", "--invert-grep", f"--grep=^{TRAILER}: ", f"{since}..{tip}", "--")
        edited = []
        for file in self.changed:
            there = self.clone.content(tip, file.path)
            if file.is_history or there in {self.clone.content(since, file.path), read_regular(file.after)}:
                continue
            if commits := self.clone.run(*log, file.path)[1].split():
                edited.append(Reason(kind, {"path": file.path, "branch": branch, "commit": commits[0][:10]}))
        return tuple(edited)

    def _commit(self) -> bool:
        """Commit the job's files on HEAD. Returns whether anything changed."""
        for file in self.changed:
            path, content = self.clone.folder / file.path, read_regular(file.after)
            if file.is_history and path.is_file():
                # The lines of both, without those that the job removed.
                ours, old = content.splitlines(True), (self.clone.content(self.base, file.path) or b"").splitlines(True)
                kept = [line for line in read_regular(path).splitlines(True) if line in ours or line not in old]
                content = b"".join(dict.fromkeys((*kept, *ours)))
            write_atomically(path, content)
        self.clone.run("add", "--all", "--force", "--", ".")
        changed = self.clone.run("diff", "--cached", "--quiet", "HEAD", fails=True)[0] != 0
        if changed:
            message = f"{self.proposal.title}\n\n{TRAILER}: {self.base}\n"
            self.clone.run("commit", "--quiet", "--cleanup=verbatim", "--file=-", given=message)
        return changed

    def _push(self, branch: str) -> Proposed | None:
        """Push HEAD. None if another push came first."""
        clone = self.clone
        for rows in (ROWS, ROWS // 4, 0):
            # GitLab reads backslash and n as a line break, which a push option cannot hold. Foreign text must not.
            text = re.sub(r"\\(?=n)", "&#92;", write_description(self.proposal, self.base, rows)).strip()
            description = text.replace("\n", "\\n")
            if len(description.encode()) <= MOST_DESCRIPTION:
                break
        values = "create", f"target={self.target}", f"title={self.proposal.title}", "remove_source_branch"
        arguments = [f"--push-option=merge_request.{value}" for value in (*values, f"description={description}")]
        failed, printed = clone.run("push", *arguments, "origin", f"HEAD:refs/heads/{branch}", fails=True)
        if failed and _RACED.search(printed):
            return None
        if failed:
            clone.fail(printed)
        if refused := _REFUSED_OPTION.search(printed):
            raise PerfciError("propose_request_failed", branch=branch, why=plain(refused[1], 200))
        request = _REQUEST.search(printed)
        number, url = (int(request[1]), request[0]) if request else (None, None)
        return Proposed(Fate.PROPOSED, branch, clone.head(), number, url, self.proposal)
