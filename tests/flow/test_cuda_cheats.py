"""The tricks, faults and slow-downs that benchmarks/cheats.py and planted_backends.py play on a GPU."""

import builtins
import symtable
import sys
from pathlib import Path

import pytest

from tests.benchmark_modules import imported

KERNELS = Path(__file__).parents[2] / "kernels"


@pytest.fixture
def benchmarks(pytestconfig, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    with imported(pytestconfig.rootpath / "benchmarks", "cheats", "planted_backends") as modules:
        yield modules


@pytest.mark.parametrize("backend", ["cuda", "cutile", "cutedsl", "tilelang"])
def test_every_planted_edit_is_of_a_text_that_the_kernels_have(benchmarks, backend):
    planted = benchmarks.planted_backends
    for change in planted.list_changes(planted.KINDS, planted.PERCENT, backend):
        assert set(change.edits) <= set(planted.KEPT[backend])
        assert change.kind == "faults" or set(change.edits) == set(planted.KEPT[backend])
        for edits in change.edits.values():
            for edit in edits:
                text = (KERNELS / edit.file).read_text()
                assert edit.make(text) != text
                if edit.file.endswith(".py"):
                    compile(edit.make(text), edit.file, "exec")


def test_the_sixty_tricks_have_all_words_in_cuda_too(benchmarks):
    """A name that the prelude lacks would be an error of the kernel's, and the trick would never be played."""
    cheats = benchmarks.cheats
    prelude = cheats.setting("cuda", "cuda", unrecorded=False, host=True).prelude
    tricks = cheats.choose("cuda", "cuda", (), host=True)

    assert len(tricks) == 60
    for name, trick in tricks.items():
        table = symtable.symtable(f"{prelude}{trick.source}", name, "exec")
        defined = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
        assert list_globals(table) - defined - set(vars(builtins)) <= {"TIMED_ROWS", "__file__"}, name


def list_globals(table):
    """Names that a module or what is inside takes from the module."""
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return names.union(*map(list_globals, table.get_children()))


@pytest.mark.slow
@pytest.mark.torch
def test_every_trick_compiles_for_an_h200(benchmarks, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("cuda.bindings")
    monkeypatch.syspath_prepend(str(KERNELS))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "compiled"))
    import _cuda

    try:
        _cuda.nvrtc.nvrtcVersion()
    except RuntimeError as error:
        pytest.skip(str(error))
    tricks = benchmarks.cheats.on_cuda
    for op, trick in (tricks.FAIR | tricks.TRICKS).items():
        path = tmp_path / f"{op}.cu"
        path.write_text(tricks.list_files(op, cheats=True)[f"{op}/{op}.cu"])
        options = ("--define-macro=WORK=8", *(["--relocatable-device-code=true"] if trick.linked else []))
        assert _cuda.compile_for(path, "sm_90", options).startswith(b"\x7fELF")
        compile(tricks.PRELUDE.replace("TIMED_ROWS", "4096") + trick.source, op, "exec")
