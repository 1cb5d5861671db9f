import pytest

from perfci.cli.main import run
from tests import site_histories as histories


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one history, around the current folder."""
    histories.project(tmp_path, {("nvidia-h200", "softmax"): histories.steady(count=4)})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_site_is_built_beside_the_project(project, capsys):
    assert run(["report", "--to", "site"]) == 0
    assert capsys.readouterr().out == "Site: public/index.html and 1 page.\n"
    assert (project / "public" / "nvidia-h200" / "softmax.html").is_file()


def test_no_history_is_a_warning_and_an_empty_site(project, capsys):
    (project / "baselines" / "nvidia-h200" / "softmax.history.jsonl").unlink()

    assert run(["report", "--to", "site"]) == 3
    assert "There is no history in baselines yet" in capsys.readouterr().out
    assert "There is no history in baselines yet" in (project / "public" / "index.html").read_text("utf-8")


def test_pages_that_are_taken_away_are_named(project, capsys):
    run(["report", "--to", "site"])
    path = project / "baselines" / "nvidia-h200" / "softmax.history.jsonl"
    path.rename(path.with_name("renamed.history.jsonl"))
    capsys.readouterr()

    assert run(["report", "--to", "site"]) == 0
    assert "Taken away, since what it showed is gone: nvidia-h200/softmax.html" in capsys.readouterr().out
