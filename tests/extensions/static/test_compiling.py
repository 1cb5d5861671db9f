"""Kernels compiled without a device: what is taken from the cache, and what is not."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfci import store
from perfci.cli.main import run
from perfci.extensions.offline.backends import find_compiler
from perfci.extensions.static.compiling import describe_toolchain, is_compiled, list_installed, list_moving
from perfci.ops.backends import Interpreter
from tests import static_ops
from tests.git_repositories import begin_topic, commit_all

FUSION = "TRITON_DEFAULT_FP_FUSION"
FUSED = static_ops.edited(static_ops.SCALE, ("x * 2.0", "x * 2.0 + 1.0"))


def test_variables_that_move_a_number_are_those_that_are_recorded_and_are_no_folders():
    given = {FUSION: "0", "TRITON_CACHE_DIR": "/x", "TRITON_API_TOKEN": "x", "OMP_NUM_THREADS": "1", "HOME": "/"}

    assert list_moving(given) == {FUSION: "0"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """One op whose kernel the compiler may fuse, and a cache that no one else fills."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "work"
    root.mkdir()
    (root / "pyproject.toml").write_text("[tool.perfci]\n")
    static_ops.write(root / "kernels", "scale", FUSED)
    begin_topic(root)
    return root


def compiled(project: Path, *options: str) -> tuple[set[str], set[str]]:
    """Binaries of the project's op, and of its base's."""
    assert run(["static", "--target", "sm_90", "--project", str(project), *options]) in {0, 2}
    static = store.read_run(project / "reports" / "static").static
    return tuple(
        {binary.artefact for op in ops for case in op.cases for binary in case.binaries}
        for ops in (static.ops, static.base_ops)
    )


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
def test_what_the_environment_decides_is_not_taken_from_another_environments_cache(project, monkeypatch, tmp_path):
    monkeypatch.setenv(FUSION, "1")
    fused, _ = compiled(project)
    monkeypatch.setenv(FUSION, "0")
    parted, _ = compiled(project)
    files = sorted((tmp_path / "cache").rglob("*.json"))

    assert len(fused) == len(parted) == 1 and fused != parted
    assert compiled(project)[0] == parted and sorted((tmp_path / "cache").rglob("*.json")) == files


@pytest.mark.nightly  # tests/flow/test_against.py duels one under another name
@pytest.mark.torch
def test_an_op_under_another_name_is_held_against_the_op_that_it_was(project):
    (project / "kernels" / "scale").rename(project / "kernels" / "double")
    for file in (project / "kernels" / "double").glob("*.py"):
        text = file.read_text().replace("scale", "double").replace("* 2.0 + 1.0", "* 2.0 + 3.0")
        file.with_name(file.name.replace("scale", "double")).write_text(text)
        file.unlink()

    ours, others = compiled(project)
    static = store.read_run(project / "reports" / "static").static

    assert len(ours) == len(others) == 1 and ours != others
    assert {op.op for op in static.base_ops} == {"double"}


@pytest.mark.torch
@pytest.mark.nightly  # the first test has another environment too
def test_an_interpreter_that_is_a_script_shows_what_a_variable_changes_and_leaves_nothing_behind(
    project, monkeypatch, tmp_path
):
    """As docs/versions.md has it for the fusion of Triton 3.10."""
    script = tmp_path / "fused"
    script.write_text(f'#!/bin/sh\n{FUSION}=1 exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv(FUSION, "0")

    parted, fused = compiled(project, "--against", "HEAD", "--base-python", str(script))

    assert len(fused) == len(parted) == 1 and fused != parted
    assert compiled(project)[0] == parted


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
def test_what_a_call_missed_is_looked_for_again(project, tmp_path):
    """A header, say, is named by neither files nor packages. Its absence was kept, and told for good."""
    kernel, header = project / "kernels" / "scale" / "scale_triton.py", tmp_path / "header.h"
    missing = f"    import os\n    if not os.path.exists({str(header)!r}):\n        raise RuntimeError('no headers')\n"
    head, line, tail = kernel.read_text().partition("    out = ")
    kernel.write_text(f"{head}{missing}{line}{tail}")

    assert run(["static", "--target", "sm_90", "--project", str(project)]) in {0, 2, 3}
    (op,) = store.read_run(project / "reports" / "static").static.ops
    header.touch()

    assert {case.identity.unknown.facts["message"] for case in op.cases} == {"no headers"}
    assert len(compiled(project)[0]) == 1


MEDDLES = """
import sys

def launch_nothing(call, real=sys.modules["perfci.extensions.offline.compiling"].compile_call):
    return real(call if call.func.__name__ == "bound_inputs" else lambda: None)

sys.modules["perfci.extensions.offline.compiling"].compile_call = launch_nothing
"""


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
def test_an_op_that_meddles_with_its_process_is_alone_in_what_it_says_and_in_what_is_kept(project, tmp_path):
    alone_there, _ = compiled(project)
    (kept,) = (tmp_path / "cache").rglob("*.json")
    before = kept.read_bytes()
    kept.unlink()
    static_ops.write(project / "kernels", "aaa", static_ops.SCALE)
    kernel = project / "kernels" / "aaa" / "aaa_triton.py"
    kernel.write_text(kernel.read_text() + MEDDLES)

    assert run(["static", "--target", "sm_90", "--project", str(project)]) in {0, 1, 2, 3}
    statics = {op.op: op for op in store.read_run(project / "reports" / "static").static.ops}

    assert not any(case.binaries for case in statics["aaa"].cases)
    assert {binary.artefact for case in statics["scale"].cases for binary in case.binaries} == alone_there
    assert before in [path.read_bytes() for path in (tmp_path / "cache").rglob("*.json")]


def test_installed_packages_are_known_by_their_folders_and_an_egg_by_its_metadata(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (tmp_path / "wheel-1.0.dist-info").mkdir()
    (tmp_path / "egg.egg-info").write_text("Name: egg\nVersion: 2.0\n")

    assert list_installed.__wrapped__() == "egg.egg-info 2.0, wheel-1.0.dist-info"


def test_kernels_of_nvidias_languages_are_not_compiled_for_chips_of_others():
    triton, cuda = SimpleNamespace(backend="triton"), SimpleNamespace(backend="cuda")

    assert is_compiled(triton, ("ascend910b2",))
    assert not is_compiled(cuda, ("ascend910b2", "gfx942"))
    assert is_compiled(cuda, ("ascend910b2", "sm_90")) == (find_compiler("cuda") is not None)


def test_the_toolchain_is_that_of_the_interpreter_that_compiles():
    there = Interpreter("/there/python", {"torch": "2.0", "triton": "3.0", "cuda-tile": "1.0"}, frozenset())
    cutile, triton = SimpleNamespace(backend="cutile"), SimpleNamespace(backend="triton")

    assert describe_toolchain([cutile], others={"cutile": there}) == "triton 3.0, torch 2.0, cuda-tile 1.0"
    both = describe_toolchain([cutile, triton], others={"cutile": there})
    assert "cuda-tile 1.0" in both and "torch 2.0" not in both  # Triton's kernels compile here


@pytest.mark.torch
@pytest.mark.slow
def test_of_ops_with_the_bases_files_a_check_without_a_device_compiles_nothing(project, capsys):
    assert run(["check", "--device", "cpu", "--project", str(project), "--against", "HEAD"]) == 0

    assert store.read_run(project / "reports").static.ops == ()
    assert "UNCHANGED  scale" in capsys.readouterr().out


@pytest.mark.torch
@pytest.mark.slow
def test_of_a_library_whose_package_imports_all_kernels_only_ops_that_reach_the_change_are_taken(project):
    for name, text in {"__init__": "from . import one, other\n", "one": "LIMIT = 4\n", "other": "LIMIT = 8\n"}.items():
        (project / "lib").mkdir(exist_ok=True)
        (project / "lib" / f"{name}.py").write_text(text)
    kernel = project / "kernels" / "scale" / "scale_triton.py"
    kernel.write_text(kernel.read_text().replace("import torch\n", "import torch\nfrom lib.one import LIMIT\n", 1))
    commit_all(project)

    (project / "lib" / "other.py").write_text("LIMIT = 16\n")
    assert compiled(project, "--changed", "--against", "HEAD") == (set(), set())
    (project / "lib" / "one.py").write_text("LIMIT = 32\n")
    ours, others = compiled(project, "--changed", "--against", "HEAD")
    assert len(ours) == len(others) == 1


def test_a_changed_op_that_cannot_be_compiled_is_named_and_one_that_stayed_is_not(project, capsys):
    kernel = project / "kernels" / "scale" / "scale_cuda.py"
    kernel.write_text("def scale(x):\n    return x\n")
    commit_all(project)
    command = ["static", "--target", "gfx942", "--project", str(project), "--changed", "--against", "HEAD"]

    assert (run(command), "scale@cuda" in capsys.readouterr().out) == (0, False)
    kernel.write_text("def scale(x):\n    return x + 0\n")
    assert (run(command), "Unchecked: scale@cuda" in capsys.readouterr().out) == (0, True)


@pytest.mark.parametrize(("named", "known"), [("ascend", True), ("ascent", False)])
def test_the_settings_name_an_interpreter_for_npus_beside_those_of_backends(project, capsys, named, known):
    with (project / "pyproject.toml").open("a") as file:
        file.write(f'\n[tool.perfci.backends.{named}]\npython = "/nowhere/python"\n')
    code = run(["static", "--target", "sm_90" if not known else "ascend910b2", "--project", str(project)])

    told = capsys.readouterr()
    assert (code == 1) == (not known)
    assert ("/nowhere/python" if known else "backends.ascent") in told.out + told.err
