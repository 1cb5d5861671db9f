"""As GitHub's REST and GraphQL interfaces behave for the comments on pull request 3 of team/kernels."""

import json
import re

from tests.gitlab.server import Call, Server

OWN, OTHER = "github-actions[bot]", "mallory"
"""Users: the token's, and somebody else."""

COMMENTS = "/repos/team/kernels/issues/3/comments"


class GitHub(Server):
    USER, LIST, CREATE, UPDATE = "POST /graphql", "GET /comments", "POST /comments", "PATCH /1000"

    OWN = OWN

    @property
    def api(self) -> str:
        return self.url

    def add(self, body: str, author: str | None = OTHER) -> dict:
        user = {"login": author} if author else None
        self.notes.append({"id": 1000 + len(self.notes), "body": body, "user": user})
        return self.notes[-1]

    def add_of_nobody(self, body: str) -> dict:
        """As of a user who is gone."""
        return self.add(body, None)

    def answer(self, call: Call) -> tuple[int, dict, object]:
        if call.headers.get("authorization") != f"Bearer {self.token}":
            return 401, {}, {"message": "Bad credentials"}
        if (call.verb, call.path) == ("GET", "/user"):
            return 403, {}, {"message": "Resource not accessible by integration"}
        if (call.verb, call.path) == ("POST", "/graphql"):
            assert json.loads(call.body) == {"query": "{viewer{login}}"}
            return 200, {}, {"data": {"viewer": {"login": OWN}}}
        if call.path == COMMENTS:
            return self._list(call) if call.verb == "GET" else self._create(call)
        if (match := re.fullmatch(r"/repos/team/kernels/issues/comments/(\d+)", call.path)) and call.verb == "PATCH":
            return self._update(int(match.group(1)), call)
        return 404, {}, {"message": "Not Found"}

    def _create(self, call: Call) -> tuple[int, dict, object]:
        body = json.loads(call.body)["body"]
        if len(body) > 65_536:
            return 422, {}, {"message": "Validation Failed"}
        return 201, {}, self.add(body, OWN)

    def _update(self, number: int, call: Call) -> tuple[int, dict, object]:
        """With write access to a repository any comment in it can be changed."""
        note = next((note for note in self.notes if note["id"] == number), None)
        if note is None:
            return 404, {}, {"message": "Not Found"}
        note["body"] = json.loads(call.body)["body"]
        return 200, {}, note
