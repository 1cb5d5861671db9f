"""`perfci thresholds show|tighten|relax`: tables for people within 100 columns, JSON for programs, exit codes."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from perfci.cli.main import run
from perfci.extensions.history.commands.thresholds import write_chance
from tests.extensions.history.test_tightening import runs
from tests.git_repositories import start
from tests.runs.stand_ins import write_ops
from tests.stored_examples import append_history

KEY = "nvidia-h200"


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = start(tmp_path / "project")
    write_ops(folder)
    (folder / "thresholds").mkdir(exist_ok=True)
    (folder / "thresholds" / "relu.yaml").write_text("speedup: 1.2\n")
    for accepted in runs(10):
        append_history(folder / "baselines", KEY, "relu", accepted)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def ask(capsys):
    def asked(*arguments):
        capsys.readouterr()
        code = run(["thresholds", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return asked


def test_what_would_be_tightened_is_shown_then_written_then_explained(ask, root):
    code, text, _ = ask("tighten")
    assert code == 0
    assert "relu on nvidia-h200" in text
    assert "Nothing was written." in text
    assert not (root / "thresholds" / KEY).exists()

    code, text, _ = ask("tighten", "--write")
    assert code == 0
    assert f"Written: thresholds/{KEY}/relu.json" in text

    code, text, _ = ask("show", "--op", "relu")
    assert code == 0
    assert "began at 1.2, runs 10: run0 .. run9" in text
    assert "thresholds/relu.yaml:1" in text

    code, text, _ = ask("tighten")
    assert "Nothing to tighten" in text


def test_programs_get_every_field(ask, root):
    code, text, _ = ask("tighten", "--write", "--format", "json")
    (file,) = json.loads(text)
    speedup = next(change for change in file["changes"] if change["key"] == "speedup")
    assert (code, file["path"]) == (0, f"thresholds/{KEY}/relu.json")
    assert (speedup["before"], speedup["after"], speedup["began"], speedup["runs"]) == (1.2, speedup["value"], 1.2, 10)
    assert speedup["why"]

    _, text, _ = ask("show", "--op", "relu", "--key", "speedup", "--format", "json")
    (file,) = json.loads(text)
    layers = {value["case"]: value["layer"] for value in file["values"]}
    assert layers == {None: "file", "rows=1": "earned"}
    assert file["values"][1]["earned"]["predicted"] < 0.001


def test_a_threshold_is_relaxed_and_says_how_it_stands(ask, root):
    until = (datetime.now(UTC).date() + timedelta(days=30)).isoformat()
    wishes = ["--op", "relu", "--why", "see !43", "--until", until, "--value", "9 %"]
    code, text, _ = ask("relax", "rsd", *wishes)
    assert code == 0
    assert "rsd of relu is relaxed to 9 %" in text
    assert "thresholds/relu.yaml, line 3" in text

    code, text, _ = ask("relax", "rsd", *wishes, "--format", "json")
    assert (json.loads(text)["replaced"], json.loads(text)["kind"]) == (True, "relaxed_to")


def test_a_refusal_is_one_sentence_and_perfcis_own_failure(ask, root, monkeypatch):
    code, _, error = ask("relax", "tua", "--op", "relu", "--why", "x", "--until", "2026-12-24")
    assert (code, "give one of tau, " in error) == (1, True)

    monkeypatch.setenv("CI_MERGE_REQUEST_IID", "7")
    code, _, error = ask("tighten", "--write")
    assert (code, "merge request" in error) == (1, True)
    assert ask("tighten")[0] == 0


def test_a_file_that_cannot_be_read_fails_the_command_and_is_told_under_its_op(ask, root):
    (root / "thresholds" / KEY).mkdir()
    (root / "thresholds" / KEY / "relu.json").write_text("{")

    code, text, _ = ask("tighten", "--write")

    assert code == 1
    assert "relu.json is not complete JSON" in " ".join(text.split())


@pytest.mark.parametrize(
    ("share", "text"), [(None, "-"), (0.0, "< 0.01 %"), (0.00012, "0.012 %"), (0.0034, "0.34 %"), (0.2, "20.0 %")]
)
def test_a_chance_that_no_simulation_saw_is_told_as_less(share, text):
    assert write_chance(share) == text


def test_a_threshold_that_there_is_not_is_told_with_those_that_there_are_the_nearest_first(root, capsys):
    assert run(["check", "--threshold", "tua=1 %"]) == 1
    assert "There is no threshold tua for --threshold: give one of tau, access_width, alpha," in capsys.readouterr().err

    assert run(["check", "--threshold", "foo=1 %"]) == 1
    assert "give one of access_width, alpha," in capsys.readouterr().err
