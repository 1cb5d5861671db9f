"""One note in a merge request, or one comment on a pull request, found again by its marker and its author.

If it cannot be posted, that changes no verdict. The token goes to one server only: redirects are not followed.
"""

import functools
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any

from perfci.core.files import append_regular
from perfci.core.model import Fact, Judgements, Reason, Run
from perfci.extensions.common.variables import CERTIFICATES, HOST, find_invalid, read_token
from perfci.extensions.note.text import KEY, LIMIT, Links, Records, compose, marker
from perfci.report.text import plain

_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_GITLAB = re.compile(rf"{HOST}(?:/[A-Za-z0-9._~-]+)*/api/v4/?")
_GITHUB = re.compile(rf"{HOST}(?:/api/v3)?/?")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*/(?!\.{1,2}$)[A-Za-z0-9._-]+")
_PULL_REQUEST = re.compile(r"refs/pull/([1-9][0-9]{0,17})/merge")


@dataclass(frozen=True)
class Server:
    """How a server is asked for the few things that a note needs."""

    name: str
    token: str  # variable that holds the token
    certificates: str  # variable that names the certificates to trust
    notes: str  # path of a merge request's notes, behind the address of the interface
    note: str  # path of one of them
    order: str  # lists the oldest first
    update: str  # verb that changes a note
    limit: int  # most bytes of a note
    refused: str  # kind of the reason


GITLAB = Server(
    "GitLab", "PERFCI_GITLAB_TOKEN", CERTIFICATES,
    "/projects/{project}/merge_requests/{number}/notes", "/projects/{project}/merge_requests/{number}/notes/{note}",
    "&sort=asc&order_by=created_at", "PUT", LIMIT, "note_refused",
)  # fmt: skip
GITHUB = Server(
    "GitHub", "PERFCI_GITHUB_TOKEN", "SSL_CERT_FILE",
    "/repos/{project}/issues/{number}/comments", "/repos/{project}/issues/comments/{note}",
    "", "PATCH", 65_000, "comment_refused",  # GitHub takes 65,536 characters
)  # fmt: skip


@dataclass(frozen=True)
class NoteTarget:
    """A merge request, and who writes to it. The token shows in no text of it."""

    server: Server
    api: str  # address of the REST interface, without a slash at the end
    token: str = field(repr=False)
    project: str  # that the merge request belongs to: for a fork's the project that it goes into
    number: int  # the merge request's within the project
    certificates: str | None = None  # file of certificates to trust, if they are not the system's


def find_target(environ: Mapping[str, str]) -> NoteTarget | Reason:
    """From the pipeline's variables, each validated: a job can be started with any. The reason if there is none."""
    server = GITHUB if environ.get("GITHUB_ACTIONS") else GITLAB
    missing = "comment_no_token" if server is GITHUB else "note_no_token"
    token = read_token(environ, server.token, missing=missing)
    if isinstance(token, Reason):
        return token
    return _find_pull_request(environ, token) if server is GITHUB else _find_merge_request(environ, token)


def _find_merge_request(environ: Mapping[str, str], token: str) -> NoteTarget | Reason:
    if not environ.get("CI_MERGE_REQUEST_IID"):
        return Reason("note_no_merge_request")
    # The pipeline's project is the fork, if the merge request comes from one.
    name = "CI_MERGE_REQUEST_PROJECT_ID" if environ.get("CI_MERGE_REQUEST_PROJECT_ID") else "CI_PROJECT_ID"
    patterns = {"CI_MERGE_REQUEST_IID": _NUMBER, name: _NUMBER, "CI_API_V4_URL": _GITLAB}
    if invalid := find_invalid(environ, patterns):
        return Reason("note_variable_invalid", {**invalid, "server": GITLAB.name})
    number, project, api = (environ[variable] for variable in patterns)
    return NoteTarget(GITLAB, api.rstrip("/"), token, project, int(number), environ.get(GITLAB.certificates) or None)


def _find_pull_request(environ: Mapping[str, str], token: str) -> NoteTarget | Reason:
    if not (pull_request := _PULL_REQUEST.fullmatch(environ.get("GITHUB_REF", ""))):
        return Reason("comment_no_pull_request")
    if invalid := find_invalid(environ, {"GITHUB_REPOSITORY": _REPOSITORY, "GITHUB_API_URL": _GITHUB}):
        return Reason("note_variable_invalid", {**invalid, "server": GITHUB.name})
    return NoteTarget(
        GITHUB, environ["GITHUB_API_URL"].rstrip("/"), token, environ["GITHUB_REPOSITORY"], int(pull_request[1])
    )


TIMEOUT_S = 15.0  # for a connection, and between two pieces of an answer
WAITS_S = (1.0, 2.0, 4.0, 8.0)  # before each further attempt, unless the server asks for longer
LONGEST_S = 60.0  # longest wait that a server may ask for
MOST_PAGES = 200  # pages of 100 notes that are looked through
SUMMARY_LIMIT = 1_048_576  # bytes of a step's summary on GitHub, which shows none of a longer one


@dataclass(frozen=True)
class Posted:
    """What became of a note."""

    note: int | None = None  # its number. None if there is none
    created: bool = False  # it is new, else it was updated in place, or was the same already
    problems: tuple[Reason, ...] = ()  # warnings. They change no verdict


class NoteError(Exception):
    """A call that failed."""

    def __init__(self, reason: Reason, *, again: bool = False, after_s: float = 0.0) -> None:
        """again: another attempt may succeed. after_s: how long the server asks to wait before it."""
        super().__init__(reason.kind)
        self.reason, self.again, self.after_s = reason, again, after_s


def post(
    run: Run, judgements: Judgements, target: NoteTarget, links: Links, *, key: str = KEY, records: Records = ()
) -> Posted:
    """Create the merge request's note, or update the one by the token's user. What fails is a problem of the result."""
    body = compose(run, judgements, links, target.server.limit, key, records)
    waits = list(WAITS_S)
    while True:
        try:
            return _write(target, body, key)
        except NoteError as error:
            # Each attempt looks for the note first. So none is written twice, even if the answer was lost.
            if not error.again or not waits or error.after_s > LONGEST_S:
                return Posted(problems=(error.reason,))
            time.sleep(max(waits.pop(0), error.after_s))


def _write(target: NoteTarget, body: str, key: str) -> Posted:
    place = {"project": target.project, "number": target.number}
    notes = target.server.notes.format(**place)
    try:
        posted = _find_note(target, notes, key)
        if posted is None:
            return Posted(_ask(target, "POST", target.api + notes, {"body": body})["id"], created=True)
        if posted["body"].replace("\r\n", "\n").strip() != body.strip():
            note = target.server.note.format(**place, note=posted["id"])
            _ask(target, target.server.update, target.api + note, {"body": body})
        return Posted(posted["id"])
    except (KeyError, TypeError, AttributeError):
        raise NoteError(_explain_failure(target, f"its answer is not {target.server.name}'s")) from None


def _find_note(target: NoteTarget, notes: str, key: str) -> dict[str, Any] | None:
    """The oldest note by the token's user with the marker in its first line."""
    user = _find_user(target)
    for page in range(1, MOST_PAGES + 1):
        listed = _ask(target, "GET", f"{target.api}{notes}?per_page=100&page={page}{target.server.order}")
        for note in listed:
            if _name_author(target, note) == user and note["body"].split("\n", 1)[0].strip() == marker(key):
                return dict(note)
        if not listed:
            break
    return None


def _find_user(target: NoteTarget) -> object:
    """Who the token stands for."""
    if target.server is GITHUB:  # its REST interface does not show the token of a workflow
        graphql = target.api.removesuffix("/v3") + "/graphql"
        return _ask(target, "POST", graphql, {"query": "{viewer{login}}"})["data"]["viewer"]["login"]
    return _ask(target, "GET", f"{target.api}/user")["id"]


def _name_author(target: NoteTarget, note: Mapping[str, Any]) -> object:
    """None for a note that no user wrote."""
    if target.server is GITHUB:
        return note["user"] and note["user"]["login"]
    return None if note["system"] else note["author"]["id"]


def _explain_failure(target: NoteTarget, why: str) -> Reason:
    return Reason("note_failed", {"api": target.api, "why": why, "variable": target.server.certificates})


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> None:
        """The token would go along, so the redirect is an error."""


@functools.cache
def _make_opener(certificates: str | None) -> urllib.request.OpenerDirector:
    """To read a machine's certificates takes longer than most calls."""
    context = ssl.create_default_context(cafile=certificates)
    return urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))


def _ask(target: NoteTarget, verb: str, url: str, data: Mapping[str, str] | None = None) -> Any:
    """The data of the server's answer. Raises NoteError."""

    def clean(words: object) -> str:
        return plain(str(words).replace(target.token, "***"), 160) or "-"

    headers = {"Content-Type": "application/json", "User-Agent": "perfci"}
    if target.server is GITHUB:
        headers |= {"Authorization": f"Bearer {target.token}", "X-GitHub-Api-Version": "2022-11-28"}
    else:
        headers["PRIVATE-TOKEN"] = target.token
    body = json.dumps(data).encode() if data else None
    request = urllib.request.Request(url, body, headers, method=verb)
    try:
        with _make_opener(target.certificates).open(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        status, after = refusal.code, refusal.headers.get("Retry-After", "")
        try:
            answer = json.load(refusal)
            words = answer.get("message") or answer.get("error")
        except (OSError, HTTPException, ValueError, AttributeError):
            words = None
        facts: dict[str, Fact] = {"status": status, "told": clean(words or refusal.reason)}
        facts |= {"api": target.api, "project": target.project}
        after_s = float(after) if after.isascii() and after.isdigit() else 0.0
        busy = status == 429 or status >= 500 or (status == 403 and after_s > 0)  # the last by GitHub
        # A note that was deleted since it was found is written anew.
        again = busy or (verb == target.server.update and status == 404)
        raise NoteError(Reason(target.server.refused, facts), again=again, after_s=after_s) from None
    except (OSError, HTTPException, ValueError) as failure:
        why = clean(failure) if str(failure) else type(failure).__name__
        raise NoteError(_explain_failure(target, why), again=True) from None


def append_summary(
    run: Run, judgements: Judgements, links: Links, environ: Mapping[str, str], records: Records = ()
) -> Reason | None:
    """Append the note's text to the file that GITHUB_STEP_SUMMARY names, if it is set. Returns why that failed."""
    name = environ.get("GITHUB_STEP_SUMMARY", "")
    if not name:
        return None
    path = Path(name)
    try:
        taken = path.stat().st_size if path.exists() else 0
        text = compose(run, judgements, links, limit=SUMMARY_LIMIT - taken - 2, records=records)
        with append_regular(path) as file:
            file.write((f"\n{text}" if taken else text).encode())
    except OSError as error:
        return Reason("step_summary_unwritable", {"path": name, "why": error.strerror or str(error)})
    return None
