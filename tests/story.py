"""A repository with a whole history at once, by git's fast import."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.git_repositories import git

Files = Mapping[str, str | None]
"""Path -> text, or None if a commit deletes it."""


def tell(root: Path, chapters: Sequence[tuple]) -> list[str]:
    """Commit after commit of (title, changed files) or (title, changed files, numbers of its parents); their ids.

    A commit's parent is the one told before it. main is the last, and is checked out.
    """
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    marks = root / ".git" / "story"
    text = "".join(_commit(number, *chapter) for number, chapter in enumerate(chapters))
    command = ["git", "-C", root, "fast-import", "--quiet", "--force", f"--export-marks={marks}"]
    subprocess.run(command, input=text.encode(), check=True, capture_output=True)
    git(root, "reset", "-q", "--hard", "main")
    ids = dict(line.split() for line in marks.read_text().splitlines())
    return [ids[f":{number + 1}"] for number in range(len(chapters))]


def _commit(number: int, title: str, files: Files, parents: Sequence[int] | None = None) -> str:
    before = (parents or [number - 1]) if number else []
    lines = [
        "commit refs/heads/main",
        f"mark :{number + 1}",
        f"author A. Tester <tester@example.org> {1_700_000_000 + 86_400 * number} +0000",
        f"committer A. Tester <tester@example.org> {1_700_000_000 + 86_400 * number} +0000",
        f"data {len(title.encode())}",
        title,
        *(f"{'merge' if at else 'from'} :{parent + 1}" for at, parent in enumerate(before)),
    ]
    return "\n".join([*lines, *(_file(path, text) for path, text in files.items())]) + "\n"


def _file(path: str, text: str | None) -> str:
    return f"D {path}" if text is None else f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}"
