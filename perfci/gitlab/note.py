"""One note in a merge request, found again by its marker and its author. The same text as a step's summary on GitHub.

If it cannot be posted, that changes no verdict. The token goes to one server only: redirects are not followed.
"""

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

from perfci.core.model import Fact, Judgements, Reason, Run
from perfci.gitlab.note_text import HOST, KEY, LIMIT, Links, Records, compose, marker
from perfci.report.text import plain

TOKEN = "PERFCI_GITLAB_TOKEN"
TIMEOUT_S = 15.0  # for a connection, and between two pieces of an answer
WAITS_S = (1.0, 2.0, 4.0, 8.0)  # before each further attempt, unless the server asks for longer
LONGEST_S = 60.0  # longest wait that a server may ask for
MOST_PAGES = 200  # pages of 100 notes that are looked through
SUMMARY_LIMIT = 1_048_576  # bytes of a step's summary on GitHub, which shows none of a longer one

_API = re.compile(rf"{HOST}(?:/[A-Za-z0-9._~-]+)*/api/v4/?")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_TOKEN = re.compile(r"[!-~]{8,512}")


@dataclass(frozen=True)
class NoteTarget:
    """A merge request, and who writes to it. The token shows in no text of it."""

    api: str  # address of GitLab's REST interface, without a slash at the end
    token: str = field(repr=False)
    project: int  # that the merge request belongs to: for a fork's the project that it goes into
    merge_request: int  # number within the project
    certificates: str | None = None  # file of certificates to trust, if they are not the system's


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


def find_target(environ: Mapping[str, str]) -> NoteTarget | Reason:
    """From the variables of a merge request's pipeline, each validated: a job can be started with any."""
    token = environ.get(TOKEN, "").strip()
    if not token:
        return Reason("note_no_token")
    if not _TOKEN.fullmatch(token):
        return Reason("token_malformed", {"name": TOKEN})
    if not environ.get("CI_MERGE_REQUEST_IID"):
        return Reason("note_no_merge_request")
    # The pipeline's own project is the fork, if the merge request comes from one.
    name = "CI_MERGE_REQUEST_PROJECT_ID" if environ.get("CI_MERGE_REQUEST_PROJECT_ID") else "CI_PROJECT_ID"
    for each, pattern in (("CI_MERGE_REQUEST_IID", _NUMBER), (name, _NUMBER), ("CI_API_V4_URL", _API)):
        found = environ.get(each, "")
        if not pattern.fullmatch(found):
            return Reason("note_variable_invalid", {"name": each, "found": plain(found, 80)})
    number, project, api = (environ[each] for each in ("CI_MERGE_REQUEST_IID", name, "CI_API_V4_URL"))
    certificates = environ.get("CI_SERVER_TLS_CA_FILE") or None
    return NoteTarget(api.rstrip("/"), token, int(project), int(number), certificates)


def post(
    run: Run, judgements: Judgements, target: NoteTarget, links: Links, *, key: str = KEY, records: Records = ()
) -> Posted:
    """Create the merge request's note, or update the token's own user's. What fails is a problem of the result."""
    body = compose(run, judgements, links, LIMIT, key, records)
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
    notes = f"/projects/{target.project}/merge_requests/{target.merge_request}/notes"
    try:
        found = _find_note(target, notes, key)
        if found is None:
            return Posted(_ask(target, "POST", notes, {"body": body})["id"], created=True)
        if found["body"].replace("\r\n", "\n").strip() != body.strip():
            _ask(target, "PUT", f"{notes}/{found['id']}", {"body": body})
        return Posted(found["id"])
    except (KeyError, TypeError, AttributeError):
        raise NoteError(Reason("note_failed", {"api": target.api, "why": "its answer is not GitLab's"})) from None


def _find_note(target: NoteTarget, notes: str, key: str) -> dict[str, Any] | None:
    """The oldest note by the token's own user with the marker in its first line."""
    user = _ask(target, "GET", "/user")["id"]
    for page in range(1, MOST_PAGES + 1):
        listed = _ask(target, "GET", f"{notes}?per_page=100&page={page}&sort=asc&order_by=created_at")
        for note in listed:
            own = note["author"]["id"] == user and not note["system"]
            if own and note["body"].split("\n", 1)[0].strip() == marker(key):
                return dict(note)
        if not listed:
            break
    return None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> None:
        """The token would go along, so the redirect is an error."""


def _ask(target: NoteTarget, verb: str, path: str, data: Mapping[str, str] | None = None) -> Any:
    """The data of the server's answer. Raises NoteError."""

    def clean(words: object) -> str:
        return plain(str(words).replace(target.token, "***"), 160) or "-"

    headers = {"PRIVATE-TOKEN": target.token, "Content-Type": "application/json", "User-Agent": "perfci"}
    body = json.dumps(data).encode() if data else None
    request = urllib.request.Request(target.api + path, body, headers, method=verb)
    try:
        context = ssl.create_default_context(cafile=target.certificates)
        opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        status, after = refusal.code, refusal.headers.get("Retry-After", "")
        try:
            found = json.load(refusal)
            words = found.get("message") or found.get("error")
        except (OSError, HTTPException, ValueError, AttributeError):
            words = None
        facts: dict[str, Fact] = {"status": status, "told": clean(words or refusal.reason)}
        facts |= {"api": target.api, "project": target.project}
        # A note that was deleted since it was found is written anew.
        again = status == 429 or status >= 500 or (verb == "PUT" and status == 404)
        after_s = float(after) if after.isascii() and after.isdigit() else 0.0
        raise NoteError(Reason("note_refused", facts), again=again, after_s=after_s) from None
    except (OSError, HTTPException, ValueError) as failure:
        why = clean(failure) if str(failure) else type(failure).__name__
        raise NoteError(Reason("note_failed", {"api": target.api, "why": why}), again=True) from None


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
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"\n{text}" if taken else text)
    except OSError as error:
        return Reason("step_summary_unwritable", {"path": name, "why": error.strerror or str(error)})
    return None
