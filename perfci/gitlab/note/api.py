"""The note's connection to GitLab: `perfci.gitlab.api`, whose failures say here that the note is not there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from perfci.core.model import Fact, Reason
from perfci.gitlab import api
from perfci.gitlab.api import PATIENCE_S, WAITS_S, Answer
from perfci.gitlab.note.place import Target

__all__ = ["PATIENCE_S", "WAITS_S", "Answer", "Server", "connect"]

Server = api.Server[Target]
"""A connection to the server of a merge request."""


def connect(target: Target, sleep: Callable[[float], None] = time.sleep) -> Server:
    """Nothing is sent yet. Raises MissingPackageError without python-gitlab."""
    where: dict[str, Fact] = {"project": target.project, "merge_request": target.merge_request}

    def worded(kind: str, facts: Mapping[str, Fact]) -> Reason:
        return Reason(f"note_{kind}", {**facts, **where})

    return api.connect(target, worded, sleep)
