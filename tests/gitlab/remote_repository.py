"""A bare repository in the place of GitLab's: it takes push options, and keeps them."""

import os
import subprocess
from pathlib import Path

HOOK = """#!/bin/sh
i=0
while [ "$i" -lt "${GIT_PUSH_OPTION_COUNT:-0}" ]; do
  eval "printf '%s\\n' \\"\\$GIT_PUSH_OPTION_$i\\""
  i=$((i + 1))
done > pushed-options
[ ! -f answer ] || cat answer >&2
[ ! -f refuse ]
"""


class RemoteRepository:
    """What git reaches at `url` is the repository in `folder`."""

    def __init__(self, folder: Path, monkeypatch, url: str) -> None:
        self.folder = folder
        config = folder.parent / "gitconfig"
        config.write_text(f'[url "{folder.as_uri()}"]\n\tinsteadOf = {url}\n')
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
        for name in ("receive.advertisePushOptions", "uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
            self.git("config", name, "true")
        hook = folder / "hooks" / "pre-receive"
        hook.write_text(HOOK)
        hook.chmod(0o755)

    def git(self, *arguments: str, **variables: str) -> str:
        command = ["git", "-C", str(self.folder), *arguments]
        done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, **variables})
        return done.stdout.decode().rstrip("\n")

    def answer(self, text: str) -> None:
        """Makes the server answer this on every push."""
        (self.folder / "answer").write_text(text)

    def options(self) -> list[str]:
        """Push options of the last push."""
        path = self.folder / "pushed-options"
        return path.read_text().splitlines() if path.is_file() else []

    def tip(self, branch: str = "main") -> str | None:
        return self.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}") or None

    def log(self, branch: str = "main") -> list[str]:
        return self.git("log", "--format=%s", branch).splitlines()

    def show(self, path: str, branch: str = "main") -> bytes | None:
        if not self.git("ls-tree", branch, path):
            return None
        command = ["git", "-C", str(self.folder), "cat-file", "blob", f"{branch}:{path}"]
        return subprocess.run(command, check=True, capture_output=True).stdout

    def put(self, files: dict, branch: str = "main", start: str | None = None, message: str = "by hand") -> str:
        """Commit files (None: removed) on a branch; returns its new tip."""
        parent = self.tip(branch) or start
        index = {"GIT_INDEX_FILE": str(self.folder / "index.tests")}
        self.git("read-tree", *([parent] if parent else ["--empty"]), **index)
        for path, content in files.items():
            if content is None:
                self.git(
                    "update-index",
                    "--force-remove",
                    path,
                    GIT_DIR=str(self.folder),
                    GIT_WORK_TREE=str(self.folder),
                    **index,
                )
                continue
            file = self.folder / "content.tests"
            file.write_bytes(content)
            blob = self.git("hash-object", "-w", str(file))
            self.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", **index)
        tree = self.git("write-tree", **index)
        made = self.git("commit-tree", tree, "-m", message, *(["-p", parent] if parent else []))
        self.git("update-ref", f"refs/heads/{branch}", made)
        return made
