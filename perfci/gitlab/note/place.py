"""Where the note goes, from GitLab's variables: each is validated, for a job can be started with any."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from perfci.core.model import Reason
from perfci.gitlab.api import Place, is_api, is_number, is_token
from perfci.gitlab.note.body import Links, safe_url
from perfci.report.text import plain

TOKEN = "PERFCI_GITLAB_TOKEN"
REPORT_URL = "PERFCI_REPORT_URL"
"""Set by the job that keeps the report, where that is not the note's own: its address."""

_PATH = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


@dataclass(frozen=True)
class Target(Place):
    """A merge request, and who writes to it."""

    project: int = 0
    """that the merge request belongs to: of a fork's the project that it is to go into"""
    merge_request: int = 0
    """its number within the project"""


def target(environ: Mapping[str, str]) -> Target | Reason:
    """From the variables of a merge request's pipeline; the reason why there is nothing to post to, or nobody to do it.

    The merge request's own project counts, not the pipeline's, which for a fork is the fork.
    """
    token = environ.get(TOKEN, "").strip()
    name = "CI_MERGE_REQUEST_PROJECT_ID" if environ.get("CI_MERGE_REQUEST_PROJECT_ID") else "CI_PROJECT_ID"
    number, project, api = (environ.get(each, "") for each in ("CI_MERGE_REQUEST_IID", name, "CI_API_V4_URL"))
    if problem := _secret(token) or _place(number, name, project, api):
        return problem
    certificates = environ.get("CI_SERVER_TLS_CA_FILE") or None
    return Target(api.rstrip("/"), token, certificates, int(project), int(number))


def _secret(token: str) -> Reason | None:
    """A token that is there and can be one."""
    if not token:
        return Reason("note_no_token")
    return None if is_token(token) else Reason("note_token_malformed")


def _place(number: str, name: str, project: str, api: str) -> Reason | None:
    if not number:
        return Reason("note_no_merge_request")
    if not is_number(number):
        return _invalid("CI_MERGE_REQUEST_IID", number)
    if not is_number(project):
        return _invalid(name, project)
    return None if is_api(api) else _invalid("CI_API_V4_URL", api)


def _invalid(name: str, found: str) -> Reason:
    return Reason("note_variable_invalid", {"name": name, "found": plain(found, 80)})


def links(environ: Mapping[str, str], report: str | None = None) -> Links:
    """Addresses of the report, of this job and of the pipeline; those that are no addresses are left out.

    report: file of the report among this job's artefacts, relative to the project. Another job's comes as
    PERFCI_REPORT_URL, and must be on the same server.
    """
    if environ.get("GITHUB_ACTIONS"):
        server, repository, run = (environ.get(f"GITHUB_{key}", "") for key in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
        return Links(pipeline=safe_url(f"{server}/{repository}/actions/runs/{run}"))
    job, given = safe_url(environ.get("CI_JOB_URL", "")), safe_url(environ.get(REPORT_URL, ""))
    kept = f"{job}/artifacts/file/{report}" if job and report and _relative(report) else None
    ours = given if given and _host(given) in {_host(environ.get(name, "")) for name in _SERVERS} else None
    return Links(ours or kept, job, safe_url(environ.get("CI_PIPELINE_URL", "")))


_SERVERS = ("CI_API_V4_URL", "CI_SERVER_URL", "CI_PAGES_URL")


def _host(url: str) -> str:
    return url.split("://", 1)[-1].split("/", 1)[0].casefold()


def _relative(path: str) -> bool:
    return bool(_PATH.fullmatch(path)) and ".." not in path.split("/")
