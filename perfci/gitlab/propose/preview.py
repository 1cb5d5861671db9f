"""What would be proposed, told from the clone alone: for whoever has no token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import PerfciError
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.git import command
from perfci.gitlab.propose import body, files
from perfci.gitlab.propose.place import MERGE_REQUEST, PUSH, Wishes
from perfci.gitlab.propose.posting import Proposed, State, differing, thresholds_moved


@dataclass(frozen=True)
class _Clone:
    """A repository on this machine."""

    folder: Path

    def blobs(self, folders: Iterable[str], commit: str) -> dict[str, str]:
        """Path -> blob of all files below these folders."""
        listed = self._output("ls-tree", "-r", "-z", "--full-tree", commit, "--", *folders).decode(errors="replace")
        entries = (entry.partition("\t") for entry in listed.split("\0") if entry)
        return {path: about.split()[2] for about, _, path in entries}

    def content(self, blob: str) -> bytes:
        """The content of a blob."""
        return self._output("cat-file", "blob", blob)

    def _output(self, *arguments: str) -> bytes:
        done = command.run(self.folder, *arguments)
        if isinstance(done, Reason):
            raise PerfciError(done.kind, **done.facts)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip()
            raise PerfciError("git_failed", folder=str(self.folder), why=why)
        return done.stdout


def preview(source: Path, settings: Settings, wishes: Wishes, base: str, prefix: str = "") -> Proposed:
    """What a proposal would hold, against a commit of the clone; whether the branch has moved on since is not known.

    Raises as `posting.propose` does, and PerfciError for a commit that the clone lacks.
    """
    commit = command.commit_id(settings.root, base)
    if commit is None:
        raise PerfciError("propose_no_commit", commit=base, folder=str(settings.root))
    clone = _Clone(settings.root)
    where = files.folders(settings, prefix)
    found = files.read(source, settings, prefix)
    known = clone.blobs(where.values(), commit)
    changed = differing(found, known, commit)
    if not changed:
        return Proposed(State.NOTHING, compared=commit)
    moved, looser = thresholds_moved(clone, where["thresholds"], known, changed, found)
    if looser:
        return Proposed(State.CONFLICTS, problems=looser, compared=commit)
    before = {file.path: clone.content(known[file.path]) for file in changed if file.path in known}
    branch = wishes.branch if wishes.to == MERGE_REQUEST else wishes.target if wishes.to == PUSH else wishes.to
    return Proposed(State.DRY, branch, proposal=body.proposal(changed, before, moved), compared=commit)
