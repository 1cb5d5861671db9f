"""An op checks the function that ships, by importing its file. A check says so if a copy's original has changed."""

import json
import re
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.core import settings
from perfci.ops import discover
from perfci.ops.fingerprint.tree import Tree
from tests.git_repositories import begin_topic, git

KERNEL = re.search(
    r"```python\n# \S+\n(.*?)```",
    (Path(__file__).resolve().parents[2] / "docs" / "try.md").read_text(encoding="utf-8"),
    re.DOTALL,
)[1]
RIGHT, WRONG = "mask=at < size)\n\n", "mask=at < size - 1)\n\n"
SILU = "torch.nn.functional.silu"


@pytest.fixture
def stranger(tmp_path, monkeypatch) -> Path:
    """A repository of a user's, which nothing is installed from, and perfci called from its root."""
    root = tmp_path / "theirs"
    (root / "kernels").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    monkeypatch.chdir(root)
    return root


def write(path: Path, text: str = KERNEL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def check_silu() -> int:
    return run(["check", "silu", "--device", "cpu", "--suite", "accuracy", "--case", "*rows=16,cols=128*float32"])


# --- a function that is imported --------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "others", "below"),
    [
        ("src/mylib/silu.py", ["src/mylib/__init__.py"], "."),
        # tests/extensions/adopt/test_import_names.py has all layouts.
        pytest.param("mylib/silu.py", [], ".", marks=pytest.mark.nightly),
        pytest.param("mylib/silu.py", ["mylib/__init__.py"], "mylib", marks=pytest.mark.nightly),
        pytest.param("silu.py", [], "kernels", marks=pytest.mark.nightly),
    ],
)
def test_breaking_the_function_that_ships_is_wrong(stranger, monkeypatch, capsys, file, others, below):
    source = write(stranger / file)
    for name in others:
        write(stranger / name, "")
    monkeypatch.chdir(stranger / below)

    assert run(["new", "silu", "--from", f"{source}:silu", "--reference", SILU]) == 0, capsys.readouterr().err
    assert run(["check", "silu", "--device", "cpu", "--suite", "accuracy", "--case", "*rows=16,cols=128*"]) == 0
    write(source, KERNEL.replace(RIGHT, WRONG))
    capsys.readouterr()

    assert run(["check", "silu", "--device", "cpu", "--suite", "accuracy", "--case", "*rows=16,cols=128*"]) == 2
    assert "WRONG" in capsys.readouterr().out
    assert not list((stranger / "kernels").rglob("_*silu*"))


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
def test_a_reference_of_the_project_is_imported_too(stranger, capsys):
    write(stranger / "mylib" / "silu.py")
    write(stranger / "mylib" / "plain.py", "import torch\n\n\ndef silu(x):\n    return torch.nn.functional.silu(x)\n")

    assert run(["new", "silu", "--from", "mylib/silu.py:silu", "--reference", "mylib/plain.py:silu"]) == 0
    assert "from mylib.plain import silu as source\n" in (stranger / "kernels/silu/silu_baseline.py").read_text()
    assert "copy" not in capsys.readouterr().out


@pytest.mark.torch
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"import absent_of_mine\n{KERNEL}", "silu.py needs absent_of_mine, which this Python has not installed"),
        pytest.param(
            KERNEL.replace("_silu", "silu"),
            "silu.py: silu hides the Triton kernel of the same name",
            marks=pytest.mark.nightly,
        ),
        pytest.param("def silu(x:\n", "silu.py, line 1: Python cannot read this", marks=pytest.mark.nightly),
    ],
)
def test_what_raises_where_it_ships_is_told_and_nothing_is_written(stranger, capsys, text, expected):
    write(stranger / "mylib" / "silu.py", text)

    assert run(["new", "silu", "--from", "mylib/silu.py:silu", "--reference", SILU]) == 1
    assert expected in capsys.readouterr().err
    assert list((stranger / "kernels").iterdir()) == []


def test_what_raises_in_the_function_that_ships_is_told_by_its_line_there(project):
    write(project.root / "lib" / "gates.py", "def halve(x):\n    raise ValueError('not so')\n")
    text = project.op_file("scale", "triton").read_text()
    text = text.replace("import numpy as np\n", "import numpy as np\nfrom lib.gates import halve\n")
    project.op_file("scale", "triton").write_text(text.replace("    return out", "    return halve(out)"))

    answer = project.check("scale")

    assert answer.code == 2
    assert "not so (lib/gates.py, line 2)" in answer.out


# --- a copy -----------------------------------------------------------------------------------------------------------


def test_nothing_is_copied_unless_it_is_asked_for(stranger, capsys):
    source = write(stranger.parent / "elsewhere" / "silu.py")

    assert run(["new", "silu", "--from", f"{source}:silu", "--reference", SILU]) == 1
    assert "--copy" in capsys.readouterr().err
    assert run(["new", "--from-library", str(source.parent)]) == 1
    assert "--copy" in capsys.readouterr().out
    assert run(["new", "silu", "--from", "mylib.silu:silu", "--reference", SILU, "--copy"]) == 1
    assert "mylib.silu is imported by its name" in capsys.readouterr().err
    assert list((stranger / "kernels").iterdir()) == []


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
def test_the_first_line_says_that_it_is_a_copy_and_a_check_that_its_original_changed(stranger, capsys):
    source = write(stranger / "mylib" / "silu.py")

    assert run(["new", "silu", "--from", "mylib/silu.py:silu", "--reference", SILU, "--copy"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "kernels/silu/_silu.py is a copy of mylib/silu.py, as --copy asks: checks judge the copy."
    assert (stranger / "kernels" / "silu" / "_silu.py").read_bytes() == source.read_bytes()
    assert check_silu() == 0

    write(source, KERNEL.replace(RIGHT, WRONG))
    capsys.readouterr()

    assert check_silu() == 2
    said = "mylib/silu.py has changed since silu got its copy of it, and checks judge the copy, kernels/silu/_silu.py"
    assert said in capsys.readouterr().out
    assert said in (stranger / "reports" / "report.md").read_text().replace("\\", "")
    assert "throttling" not in (stranger / "reports" / "report.md").read_text()


class Copied:
    """The op scale of the demo's project, with a kernel that is a copy of lib/scale.py as it says."""

    def __init__(self, project) -> None:
        self.project, self.original = project, write(project.root / "lib" / "scale.py", "FACTOR = 2\n")
        self.copy = write(project.root / "kernels" / "scale" / "_scale.py", "FACTOR = 2\n")
        self.file = project.op_file("scale", "triton")
        self._text = self.file.read_text()
        self.note("lib/scale.py")

    def note(self, original: str) -> None:
        digest = discover.digest(self.project.root / original)
        self.file.write_text(f'{self._text}\n_COPIED = {{"{original}": "{digest}"}}\n')

    def tell(self) -> str | None:
        """The kind of what a check warns of."""
        where = settings.load(self.project.root)
        moved = discover.find_moved(discover.select_one(where, "scale"), where.root)
        return moved and moved.kind


@pytest.fixture
def copied(project) -> Copied:
    return Copied(project)


@pytest.mark.nightly
def test_a_check_of_a_stale_copy_fails_whichever_suite_runs(copied):
    assert copied.project.check("scale").code == 0
    copied.original.write_text("FACTOR = 3\n")

    for suite in ("both", "accuracy", "performance"):
        answer = copied.project.check("scale", "--suite", suite)
        told = [row for row in json.loads(answer.out)["verdicts"] if row["verdict"] == "ERROR"]
        assert answer.code == 2
        assert [row["reason"]["kind"] for row in told] == ["copy_behind"]
    assert copied.project.check("relu").code == 0


def test_a_copy_of_a_file_that_a_change_breaks_is_not_unchanged(copied):
    begin_topic(copied.project.root)
    copied.original.write_text("FACTOR = 3\n")

    answer = copied.project.check("scale", "--against", "HEAD")

    assert answer.code == 2
    assert {row["verdict"] for row in json.loads(answer.out)["verdicts"]} >= {"ERROR", "UNCHANGED"}


def test_a_kernel_that_is_wrong_stays_wrong_beside_a_stale_copy(copied):
    copied.original.write_text("FACTOR = 3\n")
    copied.project.edit("scale", "triton", "return out", "out += 1; return out")

    assert copied.project.check("scale").code == 2


def test_a_copy_is_no_longer_stale_once_it_was_copied_again_or_its_digest_renewed(copied):
    assert copied.tell() is None
    copied.original.write_text("FACTOR = 3\n")
    assert copied.tell() == "copy_behind"

    copied.copy.write_text("FACTOR = 3\n")
    assert copied.tell() is None

    copied.copy.write_text("FACTOR = 3  # without what a GPU needs\n")
    assert copied.tell() == "copy_behind"
    copied.note("lib/scale.py")
    assert copied.tell() is None


def test_an_original_that_is_gone_is_told_unless_it_lay_outside_of_the_project(copied):
    copied.original.unlink()
    assert copied.tell() == "copy_orphaned"

    outside = write(copied.project.root.parent / "scale.py", "FACTOR = 2\n")
    copied.note("../scale.py")
    assert copied.tell() is None
    outside.write_text("FACTOR = 3\n")
    assert copied.tell() == "copy_behind"
    outside.unlink()
    assert copied.tell() is None


def test_an_op_with_a_copy_counts_as_changed_with_its_original(copied):
    where = settings.load(copied.project.root)
    before = Tree(where.root, where.kernels).fingerprint("scale")
    copied.original.write_text("FACTOR = 3\n")

    assert "lib/scale.py" in before.files
    assert not Tree(where.root, where.kernels).fingerprint("scale").same_as(before)


@pytest.mark.parametrize(
    "text", ["_COPIED = 3", "_COPIED = {'a': open}", "_COPIED = ['lib/scale.py']", "_COPIED = {1: 2}"]
)
def test_what_else_has_the_name_is_passed_over(copied, text):
    copied.file.write_text(copied.file.read_text().partition("_COPIED")[0] + f"{text}\n")

    assert copied.tell() in {None, "copy_orphaned"}
