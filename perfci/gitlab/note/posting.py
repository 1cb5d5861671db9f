"""One note in a merge request: found again by its marker and its author, its pictures uploaded once."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfci.core.model import Fact, Judgements, Reason, Run
from perfci.core.wording import say
from perfci.gitlab.note.api import WAITS_S, Answer, Server, connect
from perfci.gitlab.note.body import KEY, LIMIT, Links, Shown, compose, marker, safe_upload
from perfci.gitlab.note.pictures import Picture
from perfci.gitlab.note.place import Target

PER_PAGE = 100

MOST_PAGES = 200
"""Pages of notes that are looked through."""

DIGITS = 16
"""Of a picture's SHA-256: by them a picture is known again."""

_HELD = re.compile(r"^<!-- perfci:pictures((?: [0-9a-f]{16}=[^\s<>]{1,300})*) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Posted:
    """What became of a note."""

    note: int | None = None
    """its number; None where there is none"""
    created: bool = False
    """it is new; else it was updated in place, or was already so"""
    uploaded: int = 0
    """pictures"""
    problems: tuple[Reason, ...] = ()
    """to warn of; they change no verdict"""


@dataclass(frozen=True)
class _Found:
    """perfci's own note as it stands."""

    note: int | None = None
    body: str = ""
    pictures: Mapping[str, str] = field(default_factory=dict)
    """digest -> address"""


def post(
    run: Run,
    judgements: Judgements,
    target: Target,
    links: Links,
    pictures: Sequence[Picture] = (),
    *,
    key: str = KEY,
    sleep: Callable[[float], None] = time.sleep,
) -> Posted:
    """Create the merge request's note, or update it in place; whatever fails is told as a problem.

    Only a note that the token's own user wrote is ever changed, whoever else's holds the marker. Raises
    MissingPackageError without python-gitlab.
    """
    server = connect(target, sleep)
    found = _find(server, key)
    if isinstance(found, Reason):
        return Posted(problems=(found,))
    held, uploaded, problem = _upload(server, pictures, found.pictures)
    shown = tuple(Shown(held[digest], picture.op) for picture, digest in _digests(pictures) if digest in held)
    body = _body(run, judgements, replace(links, pictures=(*links.pictures, *shown)), key, held)
    posted = _write(server, found, body, key)
    return replace(posted, uploaded=uploaded, problems=(*posted.problems, *([problem] if problem else [])))


def _body(run: Run, judgements: Judgements, links: Links, key: str, held: Mapping[str, str]) -> str:
    """The text, below its marker the pictures that it has."""
    kept = "".join(f" {digest}={url}" for digest, url in sorted(held.items()))
    line = f"<!-- perfci:pictures{kept} -->\n"
    text = compose(run, judgements, links, LIMIT - len(line), key)
    first, rest = text.split("\n", 1)
    return f"{first}\n{line}{rest}"


# --- finding ----------------------------------------------------------------------------------------------------------


def _find(server: Server, key: str) -> _Found | Reason:
    """The oldest note with the marker in its first line by the token's own user; an empty one where there is none."""
    user = server.ask("get", "/user")
    if user.failure:
        return user.failure
    own = user.data.get("id") if isinstance(user.data, dict) else None
    if not isinstance(own, int):
        return Reason("note_answer_unreadable", {"api": server.place.api})
    for page in _pages(server):
        if page.failure:
            return page.failure
        for each in page.data if isinstance(page.data, list) else ():
            if found := _own(each, own, key):
                return found
    return _Found()


def _pages(server: Server) -> Iterator[Answer]:
    """The notes, the oldest first; the next page by GitLab's header, or where one is full and there is none."""
    page: int | None = 1
    for _ in range(MOST_PAGES):
        if page is None:
            return
        query: dict[str, str | int] = {"per_page": PER_PAGE, "page": page, "sort": "asc", "order_by": "created_at"}
        answer = server.ask("get", _notes(server), query=query)
        yield answer
        full = isinstance(answer.data, list) and len(answer.data) >= PER_PAGE
        page = answer.next_page or (page + 1 if full else None)


def _notes(server: Server) -> str:
    return f"/projects/{server.place.project}/merge_requests/{server.place.merge_request}/notes"


def _own(note: Any, user: int, key: str) -> _Found | None:
    """A note of ours; None for any other."""
    if not isinstance(note, dict) or note.get("system"):
        return None
    author, number, body = note.get("author"), note.get("id"), note.get("body")
    if not (isinstance(author, dict) and author.get("id") == user and isinstance(number, int)):
        return None
    if not isinstance(body, str) or body.split("\n", 1)[0].strip() != marker(key):
        return None
    return _Found(number, body, _held(body))


def _held(body: str) -> dict[str, str]:
    """The pictures that a note has, by digest; others than uploads are not believed."""
    found = _HELD.search(body.replace("\r\n", "\n"))
    pairs = (pair.split("=", 1) for pair in found.group(1).split()) if found else ()
    return {digest: url for digest, url in pairs if safe_upload(url)}


# --- pictures ---------------------------------------------------------------------------------------------------------


def _digests(pictures: Sequence[Picture]) -> list[tuple[Picture, str]]:
    """Each picture that can be read with its digest."""
    found = []
    for picture in pictures:
        try:
            found.append((picture, hashlib.sha256(picture.path.read_bytes()).hexdigest()[:DIGITS]))
        except OSError:
            continue
    return found


def _upload(
    server: Server, pictures: Sequence[Picture], known: Mapping[str, str]
) -> tuple[dict[str, str], int, Reason | None]:
    """Addresses by digest of what the note is to show, how many are new, and why one of them could not be had."""
    held: dict[str, str] = {}
    uploaded = 0
    for picture, digest in _digests(pictures):
        url = known.get(digest) or held.get(digest)
        if url is None:
            answer = _send(server, picture)
            if answer.failure:
                return held, uploaded, _lacking(server, picture, answer.failure)
            url, uploaded = answer.data, uploaded + 1
        held[digest] = url
    return held, uploaded, None


def _lacking(server: Server, picture: Picture, failure: Reason) -> Reason:
    """That a picture could not be uploaded; the note itself is written all the same."""
    why = failure.facts.get("told") or failure.facts.get("why") or say("no proper answer")
    facts: dict[str, Fact] = {"name": picture.path.name, "api": server.place.api, "why": why}
    return Reason("note_picture_failed", {**facts, "status": failure.facts.get("status")})


def _send(server: Server, picture: Picture) -> Answer:
    """The address of an uploaded picture."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", picture.path.name)
    file = (name, picture.path.read_bytes(), "image/png")
    answer = server.ask("post", f"/projects/{server.place.project}/uploads", file=file)
    if answer.failure:
        return answer
    url = answer.data.get("url") if isinstance(answer.data, dict) else None
    if not isinstance(url, str) or not safe_upload(url):
        return Answer(failure=Reason("note_answer_unreadable", {"api": server.place.api}))
    return replace(answer, data=url)


# --- writing ----------------------------------------------------------------------------------------------------------


def _write(server: Server, found: _Found, body: str, key: str) -> Posted:
    if found.note is None:
        return _create(server, body, key)
    if found.body.replace("\r\n", "\n").strip() == body.strip():
        return Posted(found.note)
    answer = server.ask("put", f"{_notes(server)}/{found.note}", data={"body": body})
    if answer.status == 404:  # deleted since it was found
        return _create(server, body, key)
    return Posted(found.note, problems=(answer.failure,) if answer.failure else ())


def _create(server: Server, body: str, key: str) -> Posted:
    """A new note; where the server broke off it is looked for first, so that none is written twice."""
    for pause in (*WAITS_S, None):
        answer = server.ask("post", _notes(server), data={"body": body}, repeat_unclear=False)
        if pause is None or not answer.unclear or not server.pause(pause):
            break
        found = _find(server, key)
        if isinstance(found, Reason):
            return Posted(problems=(found,))
        if found.note is not None:
            return replace(_write(server, found, body, key), created=True)
    if answer.failure:
        return Posted(problems=(answer.failure,))
    number = answer.data.get("id") if isinstance(answer.data, dict) else None
    return Posted(number if isinstance(number, int) else None, created=True)
