"""`perfci.backends` and `perfci.get_kernel`, as a program that uses ops calls them."""

import sys

import pytest

import perfci
from perfci.core.errors import ContractError, UsageError
from tests.ops.test_discover import write_op

SHARED = "import {shared}\n\n\ndef {op}(x, bias):\n    return x + {shared}.MORE\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Two ops with a module that they share; names of modules that no other test imports."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "cuda", None)  # not installed, on a developer's machine too
    before = {*sys.modules}
    kernels = tmp_path / "kernels"
    folder = write_op(kernels, "shifted", triton=SHARED.format(op="shifted", shared="_shifts"))
    (kernels / "_shifts.py").write_text("MORE = 1\n")
    for backend, text in {
        "cuda": SHARED.format(op="shifted", shared="_shifts") + "    # the same\n",
        "tilelang": "import tilelang.language as T\n",
        "cutedsl": "import cuda.bindings.driver\n",  # as Liger's begin
        "torch": "def shift(x, bias):\n    return x\n",
        "helion": "import shifted_helper\n",
    }.items():
        (folder / f"shifted_{backend}.py").write_text(text)
    yield tmp_path
    for name in {*sys.modules} - before:
        del sys.modules[name]


def test_the_first_backend_of_an_op_is_the_one_that_is_got_without_a_name(project):
    assert perfci.backends("shifted", project) == ("triton", "cuda", "tilelang", "cutedsl", "helion", "torch")
    assert perfci.get_kernel("shifted", project=project)(1, 0) == 2
    assert perfci.get_kernel("shifted", "cuda", project).__module__ == "shifted_cuda"
    assert not [place for place in sys.path if place.startswith(str(project))]


@pytest.mark.parametrize(
    ("op", "backend", "kind", "said"),
    [
        ("shiftd", None, "op_misspelt", {"guess": "shifted"}),
        ("shifted", "cute", "backend_unknown", {"known": "triton, cuda, tilelang, cutedsl, helion, torch"}),
        ("shifted", "tilelang", "backend_lacks_package", {"package": "tilelang"}),
        ("shifted", "cutedsl", "backend_lacks_package", {"package": "nvidia-cutlass-dsl"}),
    ],
)
def test_what_is_not_there_is_an_error_that_says_what_is(project, op, backend, kind, said):
    with pytest.raises(UsageError) as caught:
        perfci.get_kernel(op, backend, project)

    assert caught.value.reason.kind == kind
    assert said.items() <= caught.value.reason.facts.items()


@pytest.mark.parametrize(("backend", "kind"), [("torch", "backend_lacks_function"), ("helion", "import_failed")])
def test_a_file_without_the_function_or_that_does_not_import_breaks_the_contract(project, backend, kind):
    with pytest.raises(ContractError) as caught:
        perfci.get_kernel("shifted", backend, project)

    assert caught.value.reason.kind == kind


def test_a_module_of_the_same_name_from_elsewhere_is_not_taken_for_the_kernel(project, tmp_path):
    perfci.get_kernel("shifted", project=project)
    other = write_op(tmp_path / "other" / "kernels", "shifted")

    with pytest.raises(UsageError) as caught:
        perfci.get_kernel("shifted", project=tmp_path / "other")

    assert caught.value.reason.kind == "kernel_hidden"
    assert str(other) in caught.value.reason.facts["file"]
