"""A function's file is imported by the name by which the op's worker gets this very file, or it is said why not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.core import settings
from perfci.core.errors import UsageError
from perfci.core.wording import sentence
from perfci.extensions.adopt.files import find_import_name
from perfci.worker.load import import_roots, project_roots


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project without ops, which nothing is installed from."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "project" / "kernels" / "op").mkdir(parents=True)
    return tmp_path / "project"


def write(root: Path, *files: str) -> Path:
    """Empty files; the last is the function's."""
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return path


def find_file(project: Path, module: str) -> str:
    """The file that a Python started as a worker is imports by a name."""
    roots = [*import_roots(project / "kernels" / "op", project / "kernels"), *project_roots(project)]
    code = f"import sys; sys.path[:0] = {roots}; import {module}; print({module}.__file__)"
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=project).stdout.strip()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["mylib/silu.py"], "mylib.silu"),
        (["mylib/__init__.py", "mylib/silu.py"], "mylib.silu"),
        (["mylib/__init__.py", "mylib/ops/__init__.py", "mylib/ops/silu.py"], "mylib.ops.silu"),
        (["mylib/silu.py", "mylib/__init__.py"], "mylib"),
        (["src/mylib/__init__.py", "src/mylib/silu.py"], "mylib.silu"),
        (["src/mylib/silu.py"], "mylib.silu"),
        (["src/silu.py"], "silu"),
        (["src/__init__.py", "src/mylib/__init__.py", "src/mylib/silu.py"], "src.mylib.silu"),
        (["silu/__init__.py", "silu/ops.py", "src/silu/__init__.py", "src/silu/ops.py"], "src.silu.ops"),
        (["silu.py"], "silu"),
        (["silu.py", "src/silu.py"], "src.silu"),
        (["__init__.py", "silu.py"], "silu"),
        (["python/mylib/__init__.py", "python/mylib/silu.py"], "python.mylib.silu"),
        (["kernels/_gates.py"], "_gates"),
        (["op/silu.py"], "op.silu"),  # beside the op's folder of that name
    ],
)
def test_a_file_of_the_project_is_imported_in_every_layout(project, files, expected):
    path = write(project, *files)

    assert find_import_name(path, settings.load(project), "op") == expected
    assert find_file(project, expected) == str(path)


@pytest.mark.parametrize("below", [".", "mylib", "kernels"])
def test_it_is_imported_from_wherever_perfci_is_called(project, below, monkeypatch):
    path = write(project, "mylib/silu.py")
    monkeypatch.chdir(project / below)
    monkeypatch.syspath_prepend(str(Path.cwd()))  # as `python -m perfci` has it, which no worker has

    assert find_import_name(path, settings.load(Path.cwd()), "op") == "mylib.silu"


def test_a_package_that_a_search_path_names_is_imported_from_outside_of_the_project(project, monkeypatch):
    path = write(project.parent / "elsewhere", "theirs/__init__.py", "theirs/silu.py")
    monkeypatch.setenv("PYTHONPATH", str(project.parent / "elsewhere"))

    assert find_import_name(path, settings.load(project), "op") == "theirs.silu"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["../outside/silu.py"], "silu.py lies outside the project"),
        (["my-lib/silu.py"], "as 'my-lib' is no name of a Python module"),
        (["mylib/lambda.py"], "as 'lambda' is no name of a Python module"),
        (["op_triton.py"], "the op's imports of op_triton lead to op_triton.py of the op"),
        (["numpy/silu.py"], "the op's imports of numpy.silu lead to"),  # the installed one, as this has no __init__.py
    ],
)
def test_what_cannot_be_imported_is_said_with_the_option_that_copies_it(project, files, expected):
    path = Path(os.path.normpath(write(project, *files)))

    with pytest.raises(UsageError) as caught:
        find_import_name(path, settings.load(project), "op")

    assert expected in sentence(caught.value.reason)
    assert "--copy" in sentence(caught.value.reason)
