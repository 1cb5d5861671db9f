"""Which language the commands speak."""

import pytest

from perfci.cli import language
from perfci.cli.main import run


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with settings that ask for Chinese."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.perfci]\nlanguage = "zh"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(language.VARIABLE, raising=False)
    return tmp_path


def told(arguments, capsys):
    """Returns the sentence of a failing command."""
    assert run(arguments) == 1
    return capsys.readouterr().err


GONE = ["show", "gone.json"]


def test_the_projects_settings_choose_the_language(project, capsys):
    assert not told(GONE, capsys).isascii()


def test_the_option_beats_the_settings(project, capsys):
    assert told([*GONE, "--lang", "en"], capsys).isascii()


def test_the_variable_beats_the_settings(project, monkeypatch, capsys):
    monkeypatch.setenv(language.VARIABLE, "en")

    assert told(GONE, capsys).isascii()


def test_an_unknown_language_in_the_variable_is_met_with_the_known_ones(project, monkeypatch, capsys):
    monkeypatch.setenv(language.VARIABLE, "tlh")

    message = told(GONE, capsys)
    assert "PERFCI_LANG" in message
    assert "en, zh" in message
