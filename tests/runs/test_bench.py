"""What a worker runs in: its device, its folder, its modules."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import perfci
from perfci.runs.bench import Place, inside, opened, surroundings
from perfci.worker.parent import run_worker
from perfci.worker.protocol import Job, Ready


@pytest.fixture
def bench(settings):
    with opened(settings, print) as found:
        yield found


def variables(bench, **place):
    return surroundings(bench, Place(**({"name": "relu", "device": "cuda"} | place))).environment


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

    found = [variables(bench, process=i, devices=devices).get("CUDA_VISIBLE_DEVICES") for i in range(4)]

    assert found == seen


def test_only_the_variable_of_the_devices_kind_is_set(bench, monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)

    npu = variables(bench, device="npu", process=1, devices=2)
    cpu = variables(bench, device="cpu", process=1, devices=2)

    assert npu["ASCEND_RT_VISIBLE_DEVICES"] == "1" and "CUDA_VISIBLE_DEVICES" not in npu
    assert "CUDA_VISIBLE_DEVICES" not in cpu


# --- folders and modules ----------------------------------------------------------------------------------------------


def test_a_worker_runs_in_the_project_it_works_on_and_its_log_lies_in_the_reports(bench, settings, tmp_path):
    ours = surroundings(bench, Place("relu", "fake"))
    base = surroundings(bench, Place("relu-base", "fake", tmp_path / "base"))

    assert (ours.folder, base.folder) == (settings.root, tmp_path / "base")
    assert base.log == settings.reports / "logs" / "relu-base.log"
    assert base.shown_from == settings.root
    assert (ours.python, base.python) == (sys.executable, sys.executable)


def test_the_search_path_leads_a_worker_of_the_base_to_the_bases_modules(bench, settings, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(settings.root / "src"), "/opt/library", "relative"]))

    lent, *ours = variables(bench)["PYTHONPATH"].split(os.pathsep)
    _, *base = variables(bench, root=tmp_path / "base")["PYTHONPATH"].split(os.pathsep)

    assert (Path(lent) / "perfci").resolve() == Path(perfci.__file__).parent
    assert ours == [str(settings.root / "src"), "/opt/library", "relative"]
    assert base == [str(tmp_path / "base" / "src"), "/opt/library", "relative"]


def test_another_interpreter_is_lent_perfci_and_nothing_that_was_added_for_this_one(
    bench, settings, monkeypatch, tmp_path
):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(settings.root / "src"), "/opt/torch-of-another-version"]))
    monkeypatch.setenv("PYTHONHOME", "/opt/python")

    around = surroundings(bench, Place("relu-base", "fake", tmp_path / "base", "/opt/old/bin/python"))

    lent, own = around.environment["PYTHONPATH"].split(os.pathsep)
    assert own == str(tmp_path / "base" / "src")
    assert (Path(lent) / "perfci").resolve() == Path(perfci.__file__).parent
    assert [path.name for path in Path(lent).iterdir()] == ["perfci"]
    assert around.python == "/opt/old/bin/python"
    assert "PYTHONHOME" not in around.environment


def test_without_a_search_path_there_is_perfci_alone(bench, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)

    assert [path.name for path in Path(variables(bench)["PYTHONPATH"]).iterdir()] == ["perfci"]


def test_a_worker_runs_this_perfci_whatever_lies_in_its_folder(bench, tmp_path):
    (tmp_path / "perfci").mkdir()
    (tmp_path / "perfci" / "__init__.py").write_text("raise ImportError('the perfci of another revision')")
    job = Job(task="describe", ops=(), shared_folder=str(tmp_path), device="fake", seed=1, root=str(tmp_path))
    heard = []

    failure = run_worker(job, surroundings(bench, Place("describe-base", "fake", tmp_path)), heard.append)

    assert failure is None
    assert any(isinstance(message, Ready) for message in heard)


def test_the_lent_package_is_perfci_for_whoever_imports_it(bench):
    around = surroundings(bench, Place("relu-base", "fake", python=sys.executable))
    code = "import perfci, perfci.worker.child as child; print(perfci.__version__, child.__name__)"

    done = subprocess.run(
        [sys.executable, "-c", code], env=dict(around.environment), capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == [perfci.__version__, "perfci.worker.child"]


def test_workers_may_be_started_from_several_threads_at_once(bench, monkeypatch):
    link, met = Path.symlink_to, threading.Barrier(2)

    def linked(path, *args, **kwargs):  # whoever makes a link here waits until the other is about to make it too
        met.wait(timeout=60)
        link(path, *args, **kwargs)

    monkeypatch.setattr(Path, "symlink_to", linked)

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda name: variables(bench, name=name)["PYTHONPATH"], ("relu", "softmax"))

    assert first == second


def test_a_place_is_the_same_below_another_root_and_one_outside_stays(tmp_path):
    assert inside(tmp_path / "a" / "b", tmp_path / "a", Path("/other")) == Path("/other/b")
    assert inside(Path("/elsewhere"), tmp_path, Path("/other")) == Path("/elsewhere")


def test_a_benchs_folder_goes_when_it_is_closed(settings):
    with opened(settings, print) as bench:
        (bench.folder / "kept").mkdir()
        folder = bench.folder
        assert dataclasses.replace(bench).settings is settings

    assert not folder.exists()
