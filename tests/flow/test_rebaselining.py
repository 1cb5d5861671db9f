"""A runner gets another driver: from the first stale check to the step in the baselines."""

import itertools
import re
import shlex
from pathlib import Path

import pytest

from perfci import store
from perfci.cli.main import run
from tests.flow.test_readme import _scrubbed

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "rebaselining.md").read_text(encoding="utf-8")
PARTS = re.findall(r"```(toml|text)\n(.*?)```", GUIDE, re.DOTALL)


def driven(project, driver, **planted):
    lines = [f"{key} = {value}" for key, value in planted.items()]
    text = "\n".join(["[tool.perfci.fake]", f'driver = "{driver}"', *lines])
    (project.root / "pyproject.toml").write_text(f"{text}\n")


def step_of(project, op):
    return store.read_baseline(store.baseline_path(project.root / "baselines", "fake-one", op)).steps


@pytest.mark.slow
def test_a_step_of_several_ops_is_recorded_whole_or_not_at_all(project, monkeypatch):
    driven(project, "580")
    assert project.check("relu", "scale").code == 0
    assert project.accept().code == 0
    driven(project, "590", kernel_speed=0.95)
    project.check("relu", "scale")
    folder = project.root / "baselines" / "fake-one"
    step = ("accept", "--environment", str(project.root / "reports"), "--include", "relu", "--include", "scale")
    step += ("--write", "--why", "driver 590")

    def content():
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    before, damaged = content(), folder / "scale.json"
    damaged.write_text("{")
    unread = project.perfci(*step)
    damaged.write_bytes(before["scale.json"])

    assert unread.code == 1
    assert "Nothing was written." in unread.out
    assert content() == before

    calls = itertools.count(1)

    def fail(*given):
        if next(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(*given)

    real = Path.replace
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        full = project.perfci(*step)

    assert full.code == 1
    assert "No space left on device" in full.err
    assert content() == before
    assert project.perfci(*step).code == 0
    assert len(step_of(project, "relu")) == len(step_of(project, "scale")) == 1


@pytest.mark.slow
def test_the_guide_shows_what_happens(project, capsys, monkeypatch):
    for name, value in {"COLUMNS": "104", "TTY_COMPATIBLE": "1", "NO_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project.root)
    told = 0
    for kind, body in PARTS:
        if kind == "toml":
            Path("pyproject.toml").write_text(body)
            continue
        for part in body.split("$ ")[1:]:
            command, _, shown = part.partition("\n")
            assert _said(capsys, command) == [_scrubbed(line) for line in shown.splitlines()], command
            told += 1

    assert told == 5


def _said(capsys, command):
    """Returns the output of a command of the guide, with the noise's seed of the guide."""
    _, *arguments = shlex.split(command)
    seed = ["--seed", "7" if "--no-judge" in arguments else "8"] if arguments[0] == "check" else []
    capsys.readouterr()
    run([*arguments, *seed])
    return [_scrubbed(line) for line in capsys.readouterr().out.splitlines()]
