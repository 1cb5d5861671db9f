"""The process that workers are forked from begins with the first line of a command."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.core import settings
from perfci.runs.bench import open_bench, warm_up
from perfci.worker import forks, warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux")


@pytest.fixture
def servers(monkeypatch):
    """Processes that fork, without starting any: by their key."""
    monkeypatch.setattr(forks, "_servers", {})
    monkeypatch.setattr(warm, "_early", [])
    started = []

    class Unstarted:
        def __init__(self, command, **options):
            started.append((command, options["env"]))

        def kill(self): ...
        def communicate(self): ...

    monkeypatch.setattr(forks.subprocess, "Popen", Unstarted)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    yield started
    forks.end()


@pytest.fixture
def project(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n", encoding="utf-8")
    return settings.load(tmp_path)


@pytest.mark.parametrize(
    "words", [["check"], ["check", "mm", "--device", "cpu"], ["check", "--device=fake"], ["new", "--from", "cpu.py"]]
)
def test_the_process_that_began_early_is_the_one_that_the_run_needs(servers, project, words):
    warm.begin(words)
    device = next((word for word in ("cpu", "fake") if word in " ".join(words)), "auto")
    with open_bench(project, lambda _: None) as bench:
        warm_up(bench, device)
    assert len(servers) == len(forks._servers) == 1


def test_with_other_variables_the_early_one_ends_and_the_right_one_begins(servers, project, monkeypatch):
    monkeypatch.setenv("KERNEL_MODE", "fast")
    warm.begin(["check"])
    with open_bench(dataclasses.replace(project, environment=("KERNEL_MODE",)), lambda _: None) as bench:
        warm_up(bench, "auto")
    assert [variables.get("KERNEL_MODE") for _, variables in servers] == [None, "fast"]
    assert len(forks._servers) == 1


@pytest.mark.parametrize("words", ["", "show", "new scale", "check --help", "static", "check --device npu"])
def test_commands_without_workers_of_this_machine_begin_nothing(servers, words):
    warm.begin(words.split())
    assert servers == []


def test_a_path_from_the_projects_root_is_not_guessed(servers, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "source")
    warm.begin(["check"])
    assert servers == []


def test_it_begins_before_the_records_the_command_line_and_git_are_imported():
    code = (
        "import sys; sys.argv = ['perfci', 'check']\n"
        "from perfci.worker import warm\n"
        "assert not {'msgspec', 'numpy', 'typer', 'rich', 'yaml', 'perfci.core.model'} & {*sys.modules}, [*sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_a_look_at_a_duel_imports_nothing_in_a_worker_that_was_forked_on_a_gpus_machine():
    program = """
import importlib, sys
from perfci.statistics import duel_rule
from perfci.worker.warm import list_imports
for name in list_imports("cuda", {}):
    if not name.startswith(("torch", "triton", "perfci.")):
        importlib.import_module(name)
before = {*sys.modules}
duel_rule.early([0.0, 0.001, -0.001, 0.002], 0.05)
print(*{*sys.modules} - before)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_what_a_look_at_a_duel_needs_is_imported_once_for_all_workers():
    """On the fake device beside the first worker, on a GPU before it. Where nothing is timed it is not needed."""
    cpu = {"TRITON_INTERPRET": "1"}
    assert "scipy.special" in warm.list_later("fake", {})
    assert "scipy.special" in warm.list_imports("cuda", {})
    assert "scipy.special" not in (*warm.list_imports("cpu", cpu), *warm.list_later("cpu", cpu))
