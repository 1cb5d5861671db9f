"""A repository as GitLab's interface shows it: commits, branches, the files of two folders. Read only.

Raises PerfciError where the server does not answer, or refuses.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote

from perfci.core.errors import PerfciError
from perfci.core.model import Reason
from perfci.gitlab import api
from perfci.gitlab.api import Answer
from perfci.gitlab.propose.body import is_own
from perfci.gitlab.propose.merging import There
from perfci.gitlab.propose.place import Target

PER_PAGE = 100

MOST_PAGES = 400

Server = api.Server[Target]


def fail(reason: Reason) -> NoReturn:
    """Nothing can be proposed: raises the reason as an error."""
    raise PerfciError(reason.kind, **reason.facts)


@dataclass
class Repository:
    """What is asked of one project."""

    server: Server

    @property
    def address(self) -> str:
        """The project's place in the interface."""
        return f"/projects/{self.server.place.project}"

    def default_branch(self) -> str | None:
        """As the project says; None for an empty one."""
        found = _dictionary(self, self.ask(self.address)).get("default_branch")
        return found if isinstance(found, str) else None

    def user(self) -> int | None:
        """Whose token this is."""
        found = _dictionary(self, self.ask("/user")).get("id")
        return found if isinstance(found, int) else None

    def tip(self, branch: str) -> str | None:
        """The commit that a branch stands at; None where there is no such branch."""
        answer = self.ask(f"{self.address}/repository/branches/{quote(branch, safe='')}", missing=True)
        return None if answer is None else _text(self, _dictionary(self, answer).get("commit"), "id")

    def has(self, commit: str) -> bool:
        """Whether the repository has a commit."""
        return self.ask(f"{self.address}/repository/commits/{commit}", missing=True) is not None

    def common(self, one: str, other: str) -> str | None:
        """The merge base of two commits; None where they have nothing in common."""
        query = {"refs[]": [one, other]}
        answer = self.ask(f"{self.address}/repository/merge_base", query, missing=True)
        return None if answer is None else _text(self, answer, "id")

    def blobs(self, folders: Iterable[str], commit: str) -> dict[str, str]:
        """Path -> blob of all files below these folders; a folder that is not there has none."""
        found: dict[str, str] = {}
        for folder in folders:
            query = {"path": folder, "ref": commit, "recursive": "true"}
            for each in self.pages(f"{self.address}/repository/tree", query):
                if isinstance(each, dict) and each.get("type") == "blob":
                    found[_text(self, each, "path")] = _text(self, each, "id")
        return found

    def content(self, blob: str) -> bytes:
        """The content of a blob."""
        return self._decoded(self.ask(f"{self.address}/repository/blobs/{blob}"))

    def file(self, path: str, commit: str, known: Iterable[str | None] = ()) -> There | None:
        """A file as of a commit; who wrote it last is looked up where its blob is none of the known ones."""
        address = f"{self.address}/repository/files/{quote(path, safe='')}"
        answer = self.ask(address, {"ref": commit}, missing=True)
        if answer is None:
            return None
        blob, last = (_text(self, answer, key) for key in ("blob_id", "last_commit_id"))
        return There(blob, self._decoded(answer), last, blob not in {*known} and self._is_own(last))

    def _is_own(self, commit: str) -> bool:
        found = _dictionary(self, self.ask(f"{self.address}/repository/commits/{commit}")).get("message")
        return isinstance(found, str) and is_own(found)

    def _decoded(self, answer: object) -> bytes:
        try:
            return base64.b64decode(_text(self, answer, "content"), validate=False)
        except (binascii.Error, ValueError):
            self.unreadable()

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(self, path: str, query: Mapping[str, Any] | None = None, *, missing: bool = False) -> Any:
        """What the server answers; with `missing`, None for a 404."""
        answer = self.server.ask("get", path, query=query)
        if missing and answer.status == 404:
            return None
        return self.data(answer)

    def pages(self, path: str, query: Mapping[str, Any]) -> Iterable[Any]:
        """The items of a list, page by page; none where there is no such list."""
        page: int | None = 1
        for _ in range(MOST_PAGES):
            if page is None:
                return
            answer = self.server.ask("get", path, query={**query, "per_page": PER_PAGE, "page": page})
            if answer.status == 404:
                return
            items = self.data(answer)
            if not isinstance(items, list):
                self.unreadable()
            yield from items
            page = answer.next_page or (page + 1 if len(items) >= PER_PAGE else None)
        fail(Reason("propose_too_many", {"folder": path, "most": MOST_PAGES * PER_PAGE}))

    def data(self, answer: Answer) -> Any:
        """An answer's data. Raises PerfciError where there is none."""
        if answer.failure:
            fail(answer.failure)
        return answer.data

    def unreadable(self) -> NoReturn:
        """The server speaks, but not as GitLab does."""
        fail(Reason("propose_answer_unreadable", {"api": self.server.place.api}))


def _dictionary(repository: Repository, found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else repository.unreadable()


def _text(repository: Repository, found: object, key: str) -> str:
    value = _dictionary(repository, found).get(key)
    return value if isinstance(value, str) else repository.unreadable()
