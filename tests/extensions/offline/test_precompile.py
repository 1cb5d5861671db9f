"""Kernels that are compiled without the device that they are for: what its workers would compile is in their cache."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from perfci.core.model import Device
from perfci.device.source import digest
from perfci.extensions.offline import claims
from perfci.extensions.offline.precompile import list_checked, order_calls
from perfci.extensions.offline.task import Precompile
from perfci.ops.spec import Accuracy
from perfci.worker.tasks import OpFiles, Place

TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

ROOT = Path(__file__).resolve().parents[3]

COMPILE = TEXTS["compile"]


def precompile(cache: Path, part: tuple[int, int] = (0, 1)) -> set[str]:
    """The performance cases that were compiled for a board, behind others."""
    given = [str(ROOT), *map(str, part)]
    variables = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, *given], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def binaries(cache: Path) -> set[str]:
    return {path.parent.name for path in cache.glob("*/*.cubin")}


@pytest.mark.nightly
def test_every_layout_of_every_case_is_compiled(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    assert precompile(tmp_path)
    assert binaries(tmp_path)


@pytest.mark.parametrize(("behind", "order"), [(False, "becfad"), (True, "be")])
def test_a_worker_helps_with_the_shares_of_the_others_unless_the_machine_has_other_work(behind, order) -> None:
    board = Device("cuda", "NVIDIA H200", "nvidia-h200")
    place = Place((OpFiles("relu", ROOT),), ROOT)
    task = Precompile(place=place, board=board, target="sm_90", part=(1, 3), behind=behind)

    assert "".join(order_calls("abcdef", task)) == order


def test_of_a_base_what_has_fresh_values_is_compiled_as_no_more_is_called() -> None:
    cases = [{"n": 1}, {"n": 2}]
    suite = Accuracy(abs, abs, lambda n, device, seed: {"x": n}, cases, layouts=("contiguous", "strided"))
    task = Precompile(place=Place((), Path(), Path()), board=Device("cuda", "A board", "a-board"), target="sm_90")
    layouts = [
        {layout for *_, layout in list_checked(replace(task, of_base=of_base), SimpleNamespace(accuracy=suite))}
        for of_base in (False, True)
    ]
    assert layouts == [{"contiguous", "strided"}, {"contiguous"}]


@pytest.mark.nightly
def test_a_part_compiles_its_share_and_the_parts_together_all(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    first, second = (precompile(tmp_path / "parts", (index, 2)) for index in (0, 1))
    whole = precompile(tmp_path / "whole")
    assert first
    assert second
    assert first.isdisjoint(second)
    assert first | second == whole
    assert binaries(tmp_path / "parts") == binaries(tmp_path / "whole")


def test_a_kernel_that_another_process_compiles_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, store = {"old": "kernel"}, SimpleNamespace()
    store.look_up = lambda _, key: kept.get(key)
    monkeypatch.setitem(sys.modules, "compiler", SimpleNamespace(store=store))
    monkeypatch.setattr(claims, "_claims", claims._Claims())
    claims.watch("compiler:store.look_up")
    assert store.look_up(store, "new") is None  # nothing is claimed by a process that compiles alone

    claims.share(tmp_path)
    (tmp_path / digest("theirs")).touch()
    assert store.look_up(store, "theirs") is None
    claims.leave()
    with pytest.raises(claims.LeftError):
        store.look_up(store, "theirs")
    assert store.look_up(store, "new") is None
    assert (tmp_path / digest("new")).exists()
    assert store.look_up(store, "old") == "kernel"


def test_the_code_by_which_triton_launches_each_kernel_is_built_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from perfci.extensions.offline.compiling import build_launchers

    built: list[object] = []
    driver = SimpleNamespace(CudaUtils=lambda: built.append("utils"), CudaLauncher=lambda *given: built.append(given))
    monkeypatch.setattr("triton.backends.nvidia.driver", driver)
    build_launchers([SimpleNamespace(src="source", metadata="options")])
    assert built == ["utils", ("source", "options")]

    driver.CudaUtils = raising  # no compiler, or no driver
    build_launchers([SimpleNamespace(src="source", metadata="options")])
    assert len(built) == 2


def raising() -> None:
    raise RuntimeError("Failed to find C compiler")


def test_a_board_that_perfci_does_not_know_has_nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    boards = {"GPU-1": (9, 0), "GPU-2": (3, 5)}

    def ask(uuid: str | None) -> SimpleNamespace:
        return SimpleNamespace(capability=lambda: boards.get(uuid or ""))

    monkeypatch.setattr("perfci.extensions.offline.task.NvmlBoard", ask)
    found = [Precompile.find_target(Device("cuda", "A board", "a-board", f"GPU-{number}")) for number in (1, 2, 3)]
    assert found == ["sm_90", None, None]
