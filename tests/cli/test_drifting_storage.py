"""`perfci history --drift` tells what storage in low precision lost bit by bit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from perfci.cli.main import run
from perfci.store.history import append_history
from tests.git_repositories import alone, start
from tests.history_examples import accepted
from tests.storage_examples import changed, line, sound

KEY = "nvidia-h200"
TENSOR = sound()[0]


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    """A project whose op has 20 accepted runs, the p99 of its tensor growing by so much a run."""
    alone(monkeypatch, tmp_path)
    folder = start(tmp_path / "project")
    (folder / "pyproject.toml").write_text("[tool.perfci]\n")
    monkeypatch.chdir(folder)

    def asked(growth, *arguments):
        for number in range(20):
            made = line(number, [changed(TENSOR, p99=(1 + growth) ** number)])
            append_history(folder / "baselines", KEY, "quantised", replace(accepted(number), stored=made.stored))
        capsys.readouterr()
        code = run(["history", "--drift", *arguments])
        return code, capsys.readouterr().out

    return asked


def test_what_crept_is_told_with_the_tensor_and_warns(ask):
    code, out = ask(0.02)

    assert code == 3
    text = " ".join(out.split())
    assert f"quantised at {TENSOR.case} has drifted: its stored_p99 is +" in text
    assert "`perfci history --op quantised`" in text


def test_steady_storage_is_no_word(ask):
    code, out = ask(0.0)

    assert code == 0
    assert "stored=" not in out


def test_programs_get_the_figure_with_its_numbers(ask):
    code, out = ask(0.02, "--format", "json", "--case", TENSOR.case)

    assert code == 3
    ((found,),) = (each["stored"] for each in json.loads(out))
    assert (found["case"], found["figure"], found["said"]["kind"]) == (TENSOR.case, "stored_p99", "stored_crept")
    assert found["change"] == pytest.approx(1.02**12.5 - 1, rel=0.01)
    assert len(found["recent"]) == 5 and len(found["anchor"]) == 10
