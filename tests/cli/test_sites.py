import importlib.util
import json
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.thresholds.earned import read_file
from perfci.thresholds.layers import Earned
from perfci.thresholds.write import with_earned

spec = importlib.util.spec_from_file_location(
    "perfci_histories_of_cli", Path(__file__).parents[1] / "report" / "site" / "histories.py"
)
histories = importlib.util.module_from_spec(spec)
spec.loader.exec_module(histories)


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


def test_another_folder_and_project_are_named(project, capsys, monkeypatch, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)

    assert run(["report", "--to", "site", "--project", str(project), "--out", "here"]) == 0
    assert (elsewhere / "here" / "index.html").is_file()


def test_no_history_is_a_warning_and_an_empty_site(project, capsys):
    (project / "baselines" / "nvidia-h200" / "softmax.history.jsonl").unlink()

    assert run(["report", "--to", "site"]) == 3
    assert "There is no history in baselines yet" in capsys.readouterr().out
    assert (project / "public" / "index.html").is_file()


def test_a_damaged_history_is_a_warning(project, capsys):
    path = project / "baselines" / "nvidia-h200" / "softmax.history.jsonl"
    path.write_bytes(b"{\n" + path.read_bytes())

    assert run(["report", "--to", "site"]) == 3
    assert "softmax.history.jsonl, line 1, is damaged" in capsys.readouterr().out


def test_a_folder_of_others_is_refused(project, capsys):
    assert run(["report", "--to", "site", "--out", "."]) == 1
    assert "holds files that perfci report --to site did not make" in capsys.readouterr().err


def test_pages_that_are_taken_away_are_named(project, capsys):
    run(["report", "--to", "site"])
    path = project / "baselines" / "nvidia-h200" / "softmax.history.jsonl"
    path.rename(path.with_name("renamed.history.jsonl"))
    capsys.readouterr()

    assert run(["report", "--to", "site"]) == 0
    assert "Taken away, since what it showed is gone: nvidia-h200/softmax.html" in capsys.readouterr().out


def test_programs_get_the_same_as_json(project, capfdbinary):
    assert run(["report", "--to", "site", "--format", "json"]) == 0
    found = json.loads(capfdbinary.readouterr().out)

    assert found == {"index": "public/index.html", "pages": ["nvidia-h200/softmax.html"], "gone": [], "notes": []}


def test_what_was_earned_and_relaxed_is_what_the_site_goes_by(project, capsys):
    (project / "thresholds").mkdir()
    (project / "thresholds" / "softmax.yaml").write_text(
        'relaxed:\n  - {key: rsd, to: 20 %, why: "noisy, see !43", until: 2999-01-01}\n'
    )
    runs = histories.steady(count=4)
    case = runs[0].cases[1].case
    file = read_file(project / "thresholds" / "nvidia-h200" / "softmax.yaml", "softmax", "nvidia-h200")
    file.path.parent.mkdir()
    file.path.write_bytes(with_earned(file, runs[-1].environment, [Earned("softmax", case, "tau", 0.0027)]))

    assert run(["report", "--to", "site"]) == 0
    page = (project / "public" / "nvidia-h200" / "softmax.html").read_text(encoding="utf-8")
    assert "thresholds/nvidia-h200/softmax.yaml allows 0.27 % now, in the place of 1 % that people wrote." in page
    assert "rsd of softmax is relaxed to 20 % until 2999-01-01" in page
    assert "1 (tau)" in page


def test_what_was_earned_elsewhere_has_no_effect_and_is_said(project, capsys):
    runs = histories.steady(count=4, driver="555.1")
    file = read_file(project / "thresholds" / "nvidia-h200" / "softmax.yaml", "softmax", "nvidia-h200")
    file.path.parent.mkdir(parents=True)
    values = [Earned("softmax", runs[0].cases[1].case, "tau", 0.0027)]
    file.path.write_bytes(with_earned(file, runs[-1].environment, values))

    assert run(["report", "--to", "site"]) == 0
    page = (project / "public" / "nvidia-h200" / "softmax.html").read_text(encoding="utf-8")
    assert "allows 0.27 % now" not in page
    assert "has no effect here for softmax" in page


def test_earned_values_that_cannot_be_read_are_said_and_the_site_goes_on(project, capsys):
    path = project / "thresholds" / "nvidia-h200" / "softmax.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("cases: [\n")

    assert run(["report", "--to", "site"]) in {0, 3}
    page = (project / "public" / "nvidia-h200" / "softmax.html").read_text(encoding="utf-8")
    assert "thresholds/nvidia-h200/softmax.yaml" in page
