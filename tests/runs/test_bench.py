"""What a worker runs in: its device, its folder, its modules."""

import dataclasses
import os
import sys
from pathlib import Path

import pytest

import perfci
from perfci.runs.bench import WorkerPlace, make_environment, open_bench


@pytest.fixture
def bench(settings):
    with open_bench(settings, print) as bench:
        yield bench


def variables(bench, **place):
    return make_environment(bench, WorkerPlace(**({"name": "relu", "device": "cuda"} | place))).environment


# --- devices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "devices", "seen"),
    [
        (None, 1, [None] * 4),
        (None, 2, ["0", "1", "0", "1"]),
        (None, 3, ["0", "1", "2", "0"]),
        ("5,7", 2, ["5", "7", "5", "7"]),
        ("GPU-aa,GPU-bb,GPU-cc", 3, ["GPU-aa", "GPU-bb", "GPU-cc", "GPU-aa"]),
        ("0,1,-1", 2, ["0", "1", "0", "1"]),
        ("3", 1, ["3"] * 4),
        ("", 0, [""] * 4),
    ],
)
def test_processes_take_turns_on_the_devices_that_may_be_used(bench, monkeypatch, given, devices, seen):
    if given is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)

    visible = [variables(bench, process=i, devices=devices).get("CUDA_VISIBLE_DEVICES") for i in range(4)]

    assert visible == seen


# --- folders and modules ----------------------------------------------------------------------------------------------


def test_a_worker_runs_in_the_project_it_works_on_and_its_log_lies_in_the_reports(bench, settings, tmp_path):
    ours = make_environment(bench, WorkerPlace("relu", "fake"))
    base = make_environment(bench, WorkerPlace("relu-base", "fake", tmp_path / "base"))

    assert (ours.folder, base.folder) == (settings.root, tmp_path / "base")
    assert base.log == settings.reports / "logs" / "relu-base.log"
    assert base.shown_from == settings.root
    assert (ours.python, base.python) == (sys.executable, sys.executable)


def test_the_search_path_leads_a_worker_of_the_base_to_the_bases_modules(bench, settings, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(settings.root / "src"), "/opt/library", "relative"]))

    lent, *ours = variables(bench)["PYTHONPATH"].split(os.pathsep)
    _, *base = variables(bench, root=tmp_path / "base")["PYTHONPATH"].split(os.pathsep)

    assert (Path(lent) / "perfci").resolve() == Path(perfci.__file__).parent
    assert ours == base == ["src", "/opt/library", "relative"]  # from where a worker starts


def test_another_interpreter_is_lent_perfci_and_nothing_that_was_added_for_this_one(
    bench, settings, monkeypatch, tmp_path
):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(settings.root / "src"), "/opt/torch-of-another-version"]))
    monkeypatch.setenv("PYTHONHOME", "/opt/python")

    around = make_environment(bench, WorkerPlace("relu-base", "fake", tmp_path / "base", "/opt/old/bin/python"))

    lent, own = around.environment["PYTHONPATH"].split(os.pathsep)
    assert (around.folder / own) == tmp_path / "base" / "src"
    assert (Path(lent) / "perfci").resolve() == Path(perfci.__file__).parent
    assert [path.name for path in Path(lent).iterdir()] == ["perfci"]
    assert around.python == "/opt/old/bin/python"
    assert "PYTHONHOME" not in around.environment


def test_a_benchs_folder_goes_when_it_is_closed(settings):
    with open_bench(settings, print) as bench:
        (bench.folder / "kept").mkdir()
        folder = bench.folder
        assert dataclasses.replace(bench).settings == settings

    assert not folder.exists()
