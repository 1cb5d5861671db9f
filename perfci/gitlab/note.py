"""One note in a merge request, found again by its marker and its author. The same text as a step's summary on GitHub.

A note that cannot be posted is a `Reason` to warn with, and changes no verdict. The token goes to one server only:
redirects are not followed.
"""

from __future__ import annotations

import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from perfci.core.model import Fact, Judgements, Reason, Run
from perfci.gitlab.note_text import KEY, LIMIT, Links, compose, marker
from perfci.report.text import plain

TOKEN = "PERFCI_GITLAB_TOKEN"

TIMEOUT_S = 15.0
"""For a connection, and between two pieces of an answer."""

WAITS_S = (1.0, 2.0, 4.0, 8.0)
"""Before each further attempt, unless the server asks for longer."""

LONGEST_S = 60.0
"""Longest wait that a server may ask for."""

MOST_PAGES = 200
"""Pages of 100 notes that are looked through."""

SUMMARY_LIMIT = 1_048_576
"""Bytes of a step's summary on GitHub, which shows none of a longer one."""

_API = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9._~-]+)*/api/v4/?")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_TOKEN = re.compile(r"[!-~]{8,512}")


@dataclass(frozen=True)
class NoteTarget:
    """A merge request, and who writes to it. The token shows in no text of it."""

    api: str
    """address of GitLab's REST interface, without a slash at the end"""
    token: str = field(repr=False)
    project: int
    """that the merge request belongs to: for a fork's the project that it goes into"""
    merge_request: int
    """number within the project"""
    certificates: str | None = None
    """file of certificates to trust, if they are not the system's"""

    @property
    def notes(self) -> str:
        """Path of the merge request's notes."""
        return f"/projects/{self.project}/merge_requests/{self.merge_request}/notes"


@dataclass(frozen=True)
class Posted:
    """What became of a note."""

    note: int | None = None
    """its number. None if there is none"""
    created: bool = False
    """it is new, else it was updated in place, or was the same already"""
    problems: tuple[Reason, ...] = ()
    """warnings. They change no verdict"""


class NoteError(Exception):
    """A call that failed."""

    def __init__(self, reason: Reason, *, status: int | None = None, unclear: bool = False) -> None:
        """unclear: whether the server did it is unknown."""
        super().__init__(reason.kind)
        self.reason, self.status, self.unclear = reason, status, unclear


def find_target(environ: Mapping[str, str]) -> NoteTarget | Reason:
    """From the variables of a merge request's pipeline, each validated, since a job can be started with any.

    The merge request's own project counts, not the pipeline's, which for a fork is the fork.
    """
    token = environ.get(TOKEN, "").strip()
    if not token:
        return Reason("note_no_token")
    if not _TOKEN.fullmatch(token):
        return Reason("note_token_malformed")
    if not environ.get("CI_MERGE_REQUEST_IID"):
        return Reason("note_no_merge_request")
    name = "CI_MERGE_REQUEST_PROJECT_ID" if environ.get("CI_MERGE_REQUEST_PROJECT_ID") else "CI_PROJECT_ID"
    for each, pattern in (("CI_MERGE_REQUEST_IID", _NUMBER), (name, _NUMBER), ("CI_API_V4_URL", _API)):
        found = environ.get(each, "")
        if not pattern.fullmatch(found) or not _has_port(found):
            return Reason("note_variable_invalid", {"name": each, "found": plain(found, 80)})
    number, project, api = (environ[each] for each in ("CI_MERGE_REQUEST_IID", name, "CI_API_V4_URL"))
    certificates = environ.get("CI_SERVER_TLS_CA_FILE") or None
    return NoteTarget(api.rstrip("/"), token, int(project), int(number), certificates)


def _has_port(url: str) -> bool:
    try:
        return (urlsplit(url).port or 0) >= 0
    except ValueError:
        return False


def post(
    run: Run,
    judgements: Judgements,
    target: NoteTarget,
    links: Links,
    *,
    key: str = KEY,
    sleep: Callable[[float], None] = time.sleep,
) -> Posted:
    """Create the merge request's note, or update it in place. What fails is a problem of the result.

    Only a note that the token's own user wrote is ever changed, whoever else's holds the marker.
    """
    server = _Server(target, sleep)
    body = compose(run, judgements, links, LIMIT, key)
    try:
        return _write(server, body, key)
    except NoteError as error:
        return Posted(problems=(error.reason,))


def _write(server: _Server, body: str, key: str) -> Posted:
    found = _find(server, key)
    if found is not None:
        if found["body"].replace("\r\n", "\n").strip() == body.strip():
            return Posted(found["id"])
        try:
            server.ask("PUT", f"{server.target.notes}/{found['id']}", {"body": body})
        except NoteError as error:
            if error.status != 404:
                raise
            # Deleted since it was found: write a new one.
        else:
            return Posted(found["id"])
    try:
        made = server.ask("POST", server.target.notes, {"body": body}, repeat_unclear=False)
    except NoteError as error:
        # If the answer was lost, the note may be there. It is looked for, so that none is written twice.
        if not error.unclear or not server.wait():
            raise
        return replace(_write(server, body, key), created=True)
    return Posted(made["id"] if isinstance(made, dict) and isinstance(made.get("id"), int) else None, created=True)


def _find(server: _Server, key: str) -> dict[str, Any] | None:
    """The oldest note by the token's own user with the marker in its first line."""
    user = server.ask("GET", "/user")
    if not isinstance(user, dict) or not isinstance(user.get("id"), int):
        raise NoteError(Reason("note_failed", {"api": server.target.api, "why": "its answer is not GitLab's"}))
    for page in range(1, MOST_PAGES + 1):
        listed = server.ask("GET", f"{server.target.notes}?per_page=100&page={page}&sort=asc&order_by=created_at")
        for note in _own_notes(listed, user["id"]):
            if note["body"].split("\n", 1)[0].strip() == marker(key):
                return note
        if not isinstance(listed, list) or not listed:
            break
    return None


def _own_notes(listed: Any, user: int) -> Iterator[dict[str, Any]]:
    for note in listed if isinstance(listed, list) else ():
        author = note.get("author") if isinstance(note, dict) else None
        own = isinstance(author, dict) and author.get("id") == user and not note.get("system")
        if own and isinstance(note.get("id"), int) and isinstance(note.get("body"), str):
            yield note


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> None:
        """The token would go along, so the redirect is an error."""


@dataclass
class _Server:
    """GitLab's REST interface, bounded in time."""

    target: NoteTarget
    sleep: Callable[[float], None]
    waits: list[float] = field(default_factory=lambda: list(WAITS_S))
    """that are left, for the whole note"""

    def wait(self, least: float = 0.0) -> bool:
        """Wait before another attempt. False, at once, if there is none left or the server asks for too long."""
        if not self.waits or least > LONGEST_S:
            return False
        self.sleep(max(self.waits.pop(0), least))
        return True

    def ask(self, verb: str, path: str, data: Mapping[str, str] | None = None, *, repeat_unclear: bool = True) -> Any:
        """The answer's data, after retries. Raises NoteError."""
        while True:
            least = 0.0
            try:
                return self._ask_once(verb, path, data)
            except urllib.error.HTTPError as answer:
                error, least = self._refuse(answer)
                if answer.code != 429 and answer.code < 500:
                    raise error from None
            except (OSError, HTTPException, ValueError) as failure:
                error = NoteError(self._fail(failure), unclear=True)
            if (error.unclear and not repeat_unclear) or not self.wait(least):
                raise error

    def _ask_once(self, verb: str, path: str, data: Mapping[str, str] | None) -> Any:
        context = ssl.create_default_context(cafile=self.target.certificates)
        opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
        headers = {"PRIVATE-TOKEN": self.target.token, "Content-Type": "application/json", "User-Agent": "perfci"}
        body = json.dumps(data).encode() if data else None
        request = urllib.request.Request(self.target.api + path, body, headers, method=verb)
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)

    def _refuse(self, answer: urllib.error.HTTPError) -> tuple[NoteError, float]:
        """The error of a refusal, and how long the server asks to wait."""
        try:
            found = json.load(answer)
            told = found.get("message") or found.get("error") if isinstance(found, dict) else None
        except (OSError, HTTPException, ValueError):
            told = None
        words = plain(str(told or answer.reason).replace(self.target.token, "***"), 160) or "-"
        after = answer.headers.get("Retry-After", "")
        kind = "note_token_refused" if answer.code == 401 else "note_refused"
        facts: dict[str, Fact] = {
            "status": answer.code,
            "told": words,
            "api": self.target.api,
            "project": self.target.project,
        }
        error = NoteError(Reason(kind, facts), status=answer.code, unclear=answer.code >= 500)
        return error, float(after) if after.isascii() and after.isdigit() else 0.0

    def _fail(self, failure: Exception) -> Reason:
        words = plain(str(failure).replace(self.target.token, "***"), 160) or type(failure).__name__
        return Reason("note_failed", {"api": self.target.api, "why": words})


def append_summary(run: Run, judgements: Judgements, links: Links, environ: Mapping[str, str]) -> Reason | None:
    """Append the note's text to the file that GITHUB_STEP_SUMMARY names, if it is set. Returns why that failed."""
    name = environ.get("GITHUB_STEP_SUMMARY", "")
    if not name:
        return None
    path = Path(name)
    try:
        taken = path.stat().st_size if path.exists() else 0
        room = SUMMARY_LIMIT - taken - 2
        if room < 2000:
            return Reason("step_summary_full", {"path": name, "taken": taken})
        text = compose(run, judgements, links, limit=room)
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"\n{text}" if taken else text)
    except OSError as error:
        return Reason("step_summary_unwritable", {"path": name, "why": error.strerror or str(error)})
    return None
