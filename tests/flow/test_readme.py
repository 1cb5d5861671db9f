"""What the README promises is what happens."""

import re
from pathlib import Path

import pytest

from perfci.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("README.md", "perfci demo"),
        pytest.param("README.zh-CN.md", "perfci demo --lang zh", marks=pytest.mark.nightly),
    ],
)
def test_the_demo_prints_what_the_readme_shows(page, command, capsys, tmp_path, monkeypatch):
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = text.split(f"$ {command}\n")[1].split("```")[0]

    for name, value in {"COLUMNS": "104", "TTY_COMPATIBLE": "1", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)

    code = run([*command.split()[1:], "--keep", str(tmp_path / "demo")])

    assert code == 2
    out = "\n".join(_scrubbed(line) for line in capsys.readouterr().out.splitlines())
    for part in shown.strip().split("\n...\n"):
        _, found, out = out.partition("\n".join(_scrubbed(line) for line in part.splitlines()))
        assert found, part


def test_the_readme_fits_on_one_screen_and_is_the_same_in_both_languages():
    english, chinese = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))
    commands = [re.findall(r"^(?:perfci|make|pip) [^#\n]*", text, re.MULTILINE) for text in (english, chinese)]

    assert len(english.splitlines()) < 70
    assert [line.strip() for line in commands[0]] == [line.strip() for line in commands[1]]


@pytest.mark.parametrize("target", ["check", "test"])
def test_the_two_commands_are_targets_of_the_makefile(target):
    assert f"make {target}" in README
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def _scrubbed(line: str) -> str:
    """Numbers, paths and padding differ from run to run; words do not."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line)
    line = re.sub(r"/\S+", "PATH", line)
    # Changes of two cases that are not the same are a range.
    return re.sub(r"N (to|到) N", "N", " ".join(re.sub(r"[-+]?\d[\d.]*(e[-+]\d+)?", "N", line).split()))
