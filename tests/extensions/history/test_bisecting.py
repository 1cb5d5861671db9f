"""A culprit found on the fake device, with real workers, as the guide shows it."""

import json
import re
import shlex
from pathlib import Path

import pytest

from perfci.cli.main import run
from tests.git_repositories import git
from tests.story import tell

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "bisecting.md").read_text(encoding="utf-8")
KERNEL = "kernels/scale/scale_triton.py"
SPEED = "US_PER_MEGABYTE = 320.0"


def files_of(project):
    """The demo's project, with what git is not to see."""
    files = {
        str(path.relative_to(project.root)): path.read_text() for path in project.root.rglob("*") if path.is_file()
    }
    return {**files, ".gitignore": "reports/\n__pycache__/\n"}


def notes(number):
    return (f"Notes, part {number}", {"notes.md": f"{number}\n"})


def history(project):
    """The guide's: eight commits after v1."""
    files = files_of(project)
    text = files[KERNEL]
    tidy = text.replace('"""scale for', '"""The kernel scale for')
    slow = tidy.replace(SPEED, "US_PER_MEGABYTE = 336.0")
    ids = tell(
        project.root,
        [
            ("Three kernels", files),
            notes(1),
            ("scale: say what the module is", {KERNEL: tidy}),
            ("scale: one loop for all layouts", {KERNEL: slow, "notes.md": "2\n"}),
            notes(3),
            notes(4),
            ("scale: share the launch code", {KERNEL: f"import scale_launch\n{slow}"}),
            notes(5),
            ("scale: bring the launch code too", {KERNEL: f"{slow}\n# microseconds\n"}),
        ],
    )
    git(project.root, "tag", "v1", ids[0])
    return ids


@pytest.mark.nightly  # test_bisect.py searches the same way
def test_the_guide_shows_what_happens(project, capsys, monkeypatch):
    history(project)
    monkeypatch.chdir(project.root)
    (transcript,) = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)
    command, _, shown = transcript.removeprefix("$ ").partition("\n")
    capsys.readouterr()

    assert run([*shlex.split(command)[1:]]) == 0
    out = capsys.readouterr().out

    assert _numbered(out) == _numbered(shown)
    assert git(project.root, "status", "--porcelain") == ""


def _numbered(text):
    """Lines with commits numbered by appearance, since the demo's files may change, and their ids with them."""
    names: dict[str, str] = {}
    return re.sub(
        r"\b[0-9a-f]{10}\b", lambda match: names.setdefault(match[0], f"commit {len(names)}"), text
    ).splitlines()


@pytest.mark.nightly
@pytest.mark.slow
def test_what_is_installed_from_the_work_tree_is_each_revisions_own(project, editable):
    """An editable installation leads every import to the work tree, with a code that is none of the revisions'."""
    editable(project.root, 336.0)
    project.edit("scale", "triton", SPEED, "from speeds import SPEED as US_PER_MEGABYTE")
    files = files_of(project)
    ids = tell(
        project.root,
        [
            ("start", {**files, "lib/speeds.py": "SPEED = 320.0\n"}),
            ("slow", {"lib/speeds.py": "SPEED = 344.0\n"}),
            ("notes", {"notes.md": "1\n"}),
        ],
    )
    (project.root / "lib" / "speeds.py").write_text("SPEED = 720.0\n")

    answer = project.perfci(
        "bisect", "scale", "--against", ids[0], "--bad", ids[2], "--device", "fake", "--seed", "7", "--format", "json"
    )
    told = json.loads(answer.out)

    assert told["culprits"][0]["suspects"][0]["commit"] == ids[1], answer.err
    assert told["change"]["value"] == pytest.approx(0.073, abs=0.01)
    assert [load["name"] for load in told["culprits"][0]["files"]] == ["lib/speeds.py"]
