"""What a runner of GitHub's reads out of a log, kept from being read out of what perfci prints."""

import doctest
import sys

import pytest

from perfci.cli import workflow
from perfci.cli.main import run
from perfci.cli.workflow import guard_output, make_harmless


def test_what_the_docstrings_show():
    assert doctest.testmod(workflow).failed == 0


@pytest.mark.parametrize(
    "line",
    [
        "::error::x",
        "  \u2003::add-mask::x",
        "a\r::set-output name=x::y",
        "a\n\t::stop-commands::x",
        "see ##[add-mask]x",
        "###[group]x",
        "##vso[task.setvariable variable=x]y",
        "::::error::",
    ],
)
def test_a_command_is_none_any_more_and_can_still_be_read(line):
    shown = make_harmless(line)

    assert not any(part.strip().startswith("::") for part in shown.splitlines())
    assert "##[" not in shown and "##vso[" not in shown
    assert shown.replace(" ", "") == line.replace(" ", "")


@pytest.mark.parametrize(
    "line", ["std::vector ::x", "rows=1::2", "## heading", "#[x]", ":: ".strip()[:1], "http://x/#1"]
)
def test_other_lines_stay_as_they_are(line):
    assert make_harmless(line) == line


@pytest.mark.parametrize("variable", ["GITHUB_ACTIONS", "TF_BUILD"])
def test_a_command_in_pieces_is_none_either(variable, capsys):
    with guard_output({variable: "true"}):
        for piece in ("a\n:", ":err", "or::x", "\n", "#", "#[x]\n", "rest"):
            sys.stdout.write(piece)
        print("##[x]", file=sys.stderr)

    seen = capsys.readouterr()
    assert seen.out == "a\n: :error::x\n# #[x]\nrest"
    assert seen.err == "# #[x]\n"


def test_a_command_of_perfcis_is_guarded(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (tmp_path / "kernels").mkdir()

    assert run(["show", str(tmp_path / "##[add-mask]x"), "--project", str(tmp_path)]) == 1

    told = capsys.readouterr().err
    assert "# #[add-mask]x" in told and "##[" not in told
