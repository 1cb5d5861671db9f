"""A bare repository in the place of GitLab's, reached by HTTP: it takes push options, and keeps them."""

import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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

    def __init__(self, folder: Path, monkeypatch, path: str = "/team/kernels") -> None:
        self.folder = folder
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
        for name in (
            "receive.advertisePushOptions",
            "uploadpack.allowFilter",
            "uploadpack.allowAnySHA1InWant",
            "http.receivepack",
        ):
            self.git("config", name, "true")
        hook = folder / "hooks" / "pre-receive"
        hook.write_text(HOOK)
        hook.chmod(0o755)
        self.tokens: set[str] = set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, f"{path}.git"))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        self.url = f"http://127.0.0.1:{self.server.server_port}{path}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

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


def _handler(remote: RemoteRepository, path: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            place, _, query = self.path.removeprefix(path).partition("?")
            remote.tokens.add(self.headers.get("Authorization", ""))
            variables = {
                **os.environ,
                "GIT_PROJECT_ROOT": str(remote.folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "PATH_INFO": place,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "REMOTE_USER": "perfci",
                "REMOTE_ADDR": "127.0.0.1",
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            }
            given = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            done = subprocess.run(["git", "http-backend"], input=given, capture_output=True, check=True, env=variables)
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            lines = [line.partition(": ")[::2] for line in head.decode().splitlines()]
            fields = dict(lines)
            self.send_response(int(fields.pop("Status", "200 OK").split()[0]))
            for name, value in fields.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler
