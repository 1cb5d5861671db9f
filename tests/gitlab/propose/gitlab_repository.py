"""GitLab's interface to a real git repository: branches, trees, files, commits and merge requests of project 7.

It behaves as GitLab's Commits API does: an update with `last_commit_id` is refused where the file was changed
since, a file that is there cannot be created, a branch that is there cannot be started anew, nothing is ever forced.
"""

import base64
import json
import os
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

from tests.gitlab.note.gitlab_server import OTHER, OWN, GitLab

PROJECT = "/api/v4/projects/7"


class Repository(GitLab):
    """The server with a bare repository behind it."""

    def __init__(self, token: str, folder: Path) -> None:
        super().__init__(token)
        self.folder = folder
        self.default_branch = "main"
        self.protected = set()
        self.requests: list[dict] = []
        self.before_commit = []
        """done once each, right before a commit is looked at: somebody who comes first"""
        self.git("init", "-q", "--bare", "-b", "main", str(folder), here=False)

    def git(self, *arguments, here=True, given=None, **variables) -> str:
        where = ("-C", str(self.folder)) if here else ()
        done = subprocess.run(
            ["git", *where, *arguments], check=True, capture_output=True, input=given, env={**os.environ, **variables}
        )
        return done.stdout.decode().rstrip("\n")

    # --- what tests do themselves -------------------------------------------------------------------------------------

    def tip(self, branch="main") -> str | None:
        found = self.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")
        return found or None

    def show(self, path, branch="main") -> bytes | None:
        if not self.git("ls-tree", branch, path):
            return None
        done = subprocess.run(
            ["git", "-C", str(self.folder), "cat-file", "blob", f"{branch}:{path}"], check=True, capture_output=True
        )
        return done.stdout

    def put(self, files, branch="main", start=None, message="by hand") -> str:
        """Commit files (None: removed) on a branch; its new tip."""
        parent = self.tip(branch) or start
        index = {"GIT_INDEX_FILE": str(self.folder / "index.tests")}
        self.git("read-tree", *([parent] if parent else ["--empty"]), **index)
        for path, content in files.items():
            if content is None:
                self.git("update-index", "--force-remove", path, **index)
            else:
                blob = self.git("hash-object", "-w", "--stdin", given=content)
                self.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", **index)
        tree = self.git("write-tree", **index)
        made = self.git("commit-tree", tree, *(["-p", parent] if parent else []), given=message.encode())
        self.git("update-ref", f"refs/heads/{branch}", made, self.tip(branch) or "0" * 40)
        return made

    def log(self, branch="main") -> list[str]:
        return self.git("log", "--format=%s", branch).splitlines()

    # --- the interface ------------------------------------------------------------------------------------------------

    def answer(self, call):
        if call.headers.get("private-token") != self.token:
            return 401, {}, {"message": "401 Unauthorized"}
        for verb, pattern, found in (
            ("GET", "", self._project),
            ("GET", "/repository/branches/([^/]+)", self._branch),
            ("GET", "/repository/commits/([^/]+)", self._show),
            ("GET", "/repository/merge_base", self._merge_base),
            ("GET", "/repository/tree", self._tree),
            ("GET", "/repository/blobs/([0-9a-f]+)", self._blob),
            ("GET", "/repository/files/([^/]+)", self._file),
            ("POST", "/repository/commits", self._commit),
            ("GET", "/merge_requests", self._list_requests),
            ("POST", "/merge_requests", self._open),
            ("PUT", r"/merge_requests/(\d+)", self._change),
        ):
            fits = re.fullmatch(PROJECT + pattern, call.path)
            if call.verb == verb and fits:
                return found(call, *map(unquote, fits.groups()))
        return super().answer(call)

    def _project(self, call):
        return 200, {}, {"id": 7, "default_branch": self.default_branch}

    def _branch(self, call, name):
        tip = self.tip(name)
        return (200, {}, {"name": name, "commit": {"id": tip}}) if tip else _missing("Branch")

    def _show(self, call, commit):
        try:
            found = self.git("rev-parse", "--verify", f"{commit}^{{commit}}")
        except subprocess.CalledProcessError:
            return _missing("Commit")
        return 200, {}, {"id": found, "message": self.git("log", "-1", "--format=%B", found)}

    def _merge_base(self, call):
        one, other = call.query["refs[]"]
        try:
            return 200, {}, {"id": self.git("merge-base", one, other)}
        except subprocess.CalledProcessError:
            return _missing("Merge Base")

    def _tree(self, call):
        path, ref = call.query["path"][0], call.query["ref"][0]
        if not self.git("ls-tree", ref, path):
            return _missing("Tree")
        lines = self.git("ls-tree", "-r", "-t", ref, f"{path}/").splitlines()
        found = []
        for line in lines:
            mode, kind, blob, name = re.split(r"[ \t]", line, maxsplit=3)
            found.append({"id": blob, "name": Path(name).name, "type": kind, "path": name, "mode": mode})
        return self._paged(call, found)

    def _paged(self, call, found):
        size = min(int(call.query.get("per_page", ["20"])[0]), self.per_page_limit)
        page = int(call.query.get("page", ["1"])[0])
        more = page * size < len(found)
        return 200, {"X-Next-Page": str(page + 1) if more else ""}, found[(page - 1) * size : page * size]

    def _blob(self, call, blob):
        content = subprocess.run(
            ["git", "-C", str(self.folder), "cat-file", "blob", blob], check=True, capture_output=True
        ).stdout
        return 200, {}, {"size": len(content), "encoding": "base64", "content": base64.b64encode(content).decode()}

    def _file(self, call, path):
        ref = call.query["ref"][0]
        content = self.show(path, ref)
        if content is None:
            return _missing("File")
        return 200, {}, {
            "file_path": path,
            "encoding": "base64",
            "content": base64.b64encode(content).decode(),
            "blob_id": self.git("rev-parse", f"{ref}:{path}"),
            "last_commit_id": self._last(path, ref),
        }  # fmt: skip

    def _last(self, path, ref):
        return self.git("log", "-1", "--format=%H", ref, "--", path)

    def _commit(self, call):
        while self.before_commit:
            self.before_commit.pop(0)()
        asked = json.loads(call.body)
        branch, start = asked["branch"], asked.get("start_sha")
        assert not asked.get("force"), "nothing is ever forced"
        if branch in self.protected:
            return 403, {}, {"message": "403 Forbidden - You are not allowed to push into this branch"}
        if start and self.tip(branch):
            told = f"A branch called '{branch}' already exists. Switch to that branch in order to make changes"
            return 400, {}, {"message": told}
        if not start and not self.tip(branch):
            return 400, {}, {"message": "You can only create or edit files when you are on a branch"}
        files = {}
        for action in asked["actions"]:
            path, now = action["file_path"], self.show(action["file_path"], start or branch)
            if action["action"] == "create" and now is not None:
                return 400, {}, {"message": "A file with this name already exists"}
            if action["action"] == "update" and now is None:
                return 400, {}, {"message": "A file with this name doesn't exist"}
            if now is not None and action["last_commit_id"] != self._last(path, start or branch):
                return 400, {}, {"message": "The file has changed since you started editing it."}
            files[path] = base64.b64decode(action["content"])
        made = self.put(files, branch, start, asked["commit_message"])
        return 201, {}, {"id": made}

    def _list_requests(self, call):
        state, into = call.query["state"][0], call.query["target_branch"][0]
        assert call.query["scope"] == ["all"]
        found = [each for each in self.requests if each["state"] == state and each["target_branch"] == into]
        return self._paged(call, found[::-1])

    def add_request(self, source, description="", author=OTHER, **more):
        number = 1 + len(self.requests)
        url = f"https://gitlab.example.com/team/kernels/-/merge_requests/{number}"
        request = {
            "iid": number, "source_branch": source, "target_branch": "main", "title": "t", "description": description,
            "author": {"id": author}, "state": "opened", "source_project_id": 7, "web_url": url, **more,
        }  # fmt: skip
        self.requests.append(request)
        return request

    def _open(self, call):
        asked = json.loads(call.body)
        pair = asked["source_branch"], asked["target_branch"]
        for each in self.requests:
            same = (each["source_branch"], each["target_branch"]) == pair and each["source_project_id"] == 7
            if each["state"] == "opened" and same:
                told = f"Another open merge request already exists for this source branch: !{each['iid']}"
                return 409, {}, {"message": [told]}
        if not self.tip(asked["source_branch"]):
            return 409, {}, {"message": ["Source branch does not exist"]}
        made = self.add_request(asked["source_branch"], asked["description"], OWN)
        made.update(title=asked["title"], target_branch=asked["target_branch"])
        return 201, {}, made

    def _change(self, call, number):
        request = self.requests[int(number) - 1]
        asked = json.loads(call.body)
        if asked.pop("state_event", None) == "close":
            request["state"] = "closed"
        request.update(asked)
        return 200, {}, request

    @property
    def opened(self):
        return [each for each in self.requests if each["state"] == "opened"]


def _missing(what):
    return 404, {}, {"message": f"404 {what} Not Found"}
