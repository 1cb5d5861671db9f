"""As GitLab's REST interface behaves for the notes of project 7's !3."""

import json
import re

from tests.gitlab.server import Call, Server

OWN, OTHER = 100, 200
"""Users: the token's, and somebody else."""

NOTES = "/api/v4/projects/7/merge_requests/3/notes"


class GitLab(Server):
    USER, LIST, CREATE, UPDATE = "GET /user", "GET /notes", "POST /notes", "PUT /1000"

    OWN = OWN

    @property
    def api(self) -> str:
        return f"{self.url}/api/v4"

    def add(self, body: str, author: int = OTHER, **more) -> dict:
        note = {"id": 1000 + len(self.notes), "body": body, "author": {"id": author}, "system": False, **more}
        self.notes.append(note)
        return note

    def add_of_nobody(self, body: str) -> dict:
        """As GitLab itself adds notes."""
        return self.add(body, OWN, system=True)

    def answer(self, call: Call) -> tuple[int, dict, object]:
        if call.headers.get("private-token") != self.token:
            return 401, {}, {"message": "401 Unauthorized"}
        if (call.verb, call.path) == ("GET", "/api/v4/user"):
            return 200, {}, {"id": OWN, "username": "project_7_bot"}
        if call.path == NOTES:
            return self._list(call) if call.verb == "GET" else self._create(call)
        if (match := re.fullmatch(f"{NOTES}/(\\d+)", call.path)) and call.verb == "PUT":
            return self._update(int(match.group(1)), call)
        return 404, {}, {"message": "404 Not found"}

    def _create(self, call: Call) -> tuple[int, dict, object]:
        body = json.loads(call.body)["body"]
        if len(body) > 1_000_000:
            return 400, {}, {"message": {"note": ["is too long (maximum is 1000000 characters)"]}}
        return 201, {}, self.add(body, OWN)

    def _update(self, number: int, call: Call) -> tuple[int, dict, object]:
        note = next((note for note in self.notes if note["id"] == number), None)
        if note is None:
            return 404, {}, {"message": "404 Note Not Found"}
        if note["author"]["id"] != OWN:
            return 403, {}, {"message": "403 Forbidden"}
        note["body"] = json.loads(call.body)["body"]
        return 200, {}, note
