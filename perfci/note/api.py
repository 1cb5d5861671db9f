"""The note's connection to GitLab: `perfci.gitlab_api`, whose failures say here that the note is not there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from perfci import gitlab_api
from perfci.gitlab_api import PATIENCE_S, WAITS_S, Answer
from perfci.model import Fact, Reason
from perfci.note.place import Target

__all__ = ["PATIENCE_S", "WAITS_S", "Answer", "Server", "connect"]

Server = gitlab_api.Server[Target]
"""A connection to the server of a merge request."""


def connect(target: Target, sleep: Callable[[float], None] = time.sleep) -> Server:
    """Nothing is sent yet. Raises MissingPackageError without python-gitlab."""
    where: dict[str, Fact] = {"project": target.project, "merge_request": target.merge_request}

    def worded(kind: str, facts: Mapping[str, Fact]) -> Reason:
        return Reason(f"note_{kind}", {**facts, **where})

    return gitlab_api.connect(target, worded, sleep)
