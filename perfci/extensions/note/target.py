"""Where a note goes: a merge request of GitLab or a pull request of GitHub, by the variables of its pipeline."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from perfci.core.model import Reason
from perfci.extensions.common.variables import CERTIFICATES, HOST, find_invalid, read_token
from perfci.extensions.note.text import LIMIT

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
