"""docs/try.md: its kernel and its commands lead to a first verdict in an empty repository, and breaking it is found."""

import re
from pathlib import Path

import pytest

from perfci.cli.main import run
from tests.git_repositories import git

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "try.md").read_text(encoding="utf-8")
KERNEL = re.search(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository that holds nothing but the page's kernel, on a machine without a GPU."""
    path = tmp_path / KERNEL[1]
    path.parent.mkdir()
    path.write_text(KERNEL[2], encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_three_commands_lead_to_a_first_verdict_and_a_broken_mask_is_wrong(repository, capsys):
    block = next(block for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "perfci new" in block)
    commands = [line.split()[1:] for line in block.splitlines()]

    assert [words[0] for words in commands] == ["init", "new", "check"]
    for words in commands:
        assert run([*words, *(["--device", "cpu"] if words[0] == "check" else [])]) == 0, capsys.readouterr().err
    right, wrong = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert shape(right) in shape(capsys.readouterr().out)

    found = list((repository / "kernels" / "silu").glob("_*silu*.py")) or [repository / KERNEL[1]]
    text = found[0].read_text(encoding="utf-8")
    last = "tl.store(out_ptr + at, (x * tl.sigmoid(x)).to(out_ptr.dtype.element_ty), mask=at < size"
    assert last in text
    found[0].write_text(text.replace(last, f"{last} - 1"), encoding="utf-8")

    assert run(["check", "silu", "--device", "cpu"]) == 2
    assert shape(wrong) in shape(capsys.readouterr().out)


def shape(text: str) -> str:
    """Without what differs from run to run and from machine to machine."""
    return re.sub(r"\d+", "N", re.sub(r", commit \w+", "", " ".join(text.split())))
