"""A user's function becomes an op: shapes are found by trying, and guesses are marked in the files."""

from pathlib import Path
from typing import Any

import pytest

from perfci.cli.main import run
from perfci.core import settings
from perfci.core.errors import UsageError
from perfci.core.wording import sentence
from perfci.extensions.adopt.files import draft_from_function
from perfci.extensions.adopt.place import Copy, place_op, write_draft
from perfci.extensions.adopt.sketch import Sketch, SketchFiles, draft
from perfci.ops import discover
from tests.extensions.adopt.rehearsing import interpreted, rehearse

HERE = Path(__file__).parent
SOURCE = HERE / "user_kernels.py"
GELU, SOFTMAX, NORM = (f"torch.nn.functional.{name}" for name in ("gelu", "softmax", "rms_norm"))
MADE = {
    "gelu": ("fast_gelu", GELU),
    "plus": ("add", "torch.add"),
    "soft": ("softmax", SOFTMAX),
    "row_sum": ("sum_rows", "torch.sum"),
}
"""op -> function and reference"""
OTHERS = {
    "norm": ("norm", NORM),
    "powers": ("powers", "torch.pow"),
    "clamped": ("clamped", "torch.relu"),
    "into": ("into", "torch.clone"),
    "anything": ("anything", GELU),
    "unknown": ("nothing_of_this_name", GELU),
    "jitted": ("softmax_kernel", SOFTMAX),
    "no_reference": ("add", "torch.addd"),
}

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    wanted = {
        op: (op, SketchFiles(str(SOURCE), function, reference=reference))
        for op, (function, reference) in {**MADE, **OTHERS}.items()
    }
    return rehearse(wanted)


@pytest.fixture(scope="module")
def made(said, tmp_path_factory) -> Path:
    """A project with the ops that need no edit."""
    root = tmp_path_factory.mktemp("made")
    for op in MADE:
        files = draft(op, said[op], [Copy(f"_{SOURCE.name}", SOURCE.read_text(), str(SOURCE), "")])
        write_draft(place_op(op, root / "kernels", {}), files)
    return root


def kinds(sketch: Sketch) -> set[str]:
    return {reason.kind for reason in sketch.look}


def test_made_ops_obey_the_contract(made):
    ops = discover.ops(settings.load(made))

    assert {op.op for op in ops} == {*MADE}
    assert [sentence(reason) for op in ops for reason in discover.check_contract(op)] == []


def test_the_reference_gets_tensors_in_order_what_it_knows_by_name_and_what_it_needs(said):
    assert said["soft"].reference.arguments == ("x", "dim=dim")
    assert said["soft"].parameters == ("x", "dim: int = -1")
    assert said["row_sum"].reference.arguments == ("x", "dim=-1")
    assert said["gelu"].reference.arguments == ("x",)  # nothing of BLOCK
    assert said["norm"].reference.arguments == ("x", "normalized_shape=x.shape[-1:]", "weight=weight", "eps=eps")


def test_shapes_are_those_that_function_and_reference_take(said):
    assert [*said["plus"].suites.axes] == ["rows", "cols"]
    assert "torch.randn((rows, cols)" in said["plus"].suites.inputs["y"]
    assert "torch.randn((cols,)" in said["norm"].suites.inputs["weight"]


def test_what_nothing_takes_is_said(said):
    assert "look_untried" in kinds(said["into"])
    assert "look_untried" not in kinds(said["plus"])
    assert {(case["rows"], case["cols"]) for case in said["into"].suites.cases} == {("16", "128")}


def test_a_value_that_nothing_gives_is_guessed_and_said(said):
    suites = said["powers"].suites
    assert suites.options == {"exponent": "float = 0.5", "whole": "bool = False"}
    assert [{*case.values()} & {"0.25", "True"} for case in suites.more] == [{"0.25"}, {"True"}]
    assert "exponent: 0.5" in said["powers"].look[0].facts["inputs"]


def test_dtypes_that_the_interpreter_would_get_wrong_are_left_out(said):
    assert said["soft"].suites.dtypes == ("float32",)
    assert said["plus"].suites.dtypes == ("float32", "float16")
    assert "bfloat16" in said["gelu"].suites.dtypes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("anything", "anything takes rest, and perfci has to know each argument by name"),
        ("unknown", "has no plain Python function nothing_of_this_name"),
        ("jitted", "has no plain Python function softmax_kernel"),
        ("no_reference", "There is no torch.addd that this Python can import"),
    ],
)
def test_what_a_rehearsal_cannot_use_is_told_in_a_sentence(said, name, expected):
    assert expected in said[name]


@pytest.mark.parametrize(
    ("source", "reference", "expected"),
    [
        ("{source}", GELU, "has no plain Python function user_kernels"),
        (":f", GELU, "write --from FILE:function"),
        ("/no/such/file.py:f", GELU, "/no/such/file.py could not be read"),
        ("README.md:f", GELU, "README.md is neither a Python file"),
        ("{source}:add", "add", "write --from FILE:function"),
    ],
)
def test_what_names_no_function_is_told_before_anything_runs(tmp_path, source, reference, expected):
    with pytest.raises(UsageError) as caught:
        draft_from_function("op", source.format(source=SOURCE, folder=HERE), reference, settings.load(HERE.parents[2]))

    assert expected in sentence(caught.value.reason)


@pytest.mark.nightly
def test_code_of_the_project_is_imported_and_a_file_is_copied_whole_if_that_is_asked_for(tmp_path, monkeypatch, capsys):
    package = tmp_path / "src" / "my_own_library"
    package.mkdir(parents=True)
    (tmp_path / "kernels").mkdir()
    (package / "__init__.py").write_text("from my_own_library.soft import softmax as soft\n")  # hides the module
    (package / "soft.py").write_text(SOURCE.read_text())
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "src"))
    monkeypatch.chdir(tmp_path)

    options = ["--reference", "torch.add", "--project", str(tmp_path)]
    assert run(["new", "mine", "--from", f"{package / 'soft.py'}:add", *options]) == 0
    assert run(["new", "other", "--from", f"{SOURCE}:add", *options, "--copy"]) == 0

    kernels = tmp_path / "kernels"
    assert "from my_own_library.soft import add as source\n" in (kernels / "mine" / "mine_triton.py").read_text()
    assert not (kernels / "mine" / "_soft.py").exists()
    assert "from _user_kernels import add as source\n" in (kernels / "other" / "other_triton.py").read_text()
    assert (kernels / "other" / "_user_kernels.py").read_text() == SOURCE.read_text()


@pytest.mark.slow
def test_unary_binary_and_row_wise_functions_pass_without_an_edit(made):
    told = interpreted(made, "*", *MADE)

    assert {op: failures for op, (_, failures) in told.items() if failures} == {}
    assert all(checks > 15 for checks, _ in told.values())


@pytest.mark.nightly
def test_a_reference_that_ends_its_process_without_elements_leaves_the_op_ready(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")
    (tmp_path / "twice.py").write_text(TWICE)

    made = draft_from_function(
        "op", f"{tmp_path}/twice.py:twice", f"{tmp_path}/twice.py:right", settings.load(tmp_path)
    )

    assert made.is_ready
    assert "rows=[1, " in made.texts["accuracy"]


TWICE = """
import os

import torch
import triton
import triton.language as tl


@triton.jit
def _twice(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size) * 2, mask=at < size)


def twice(x: torch.Tensor):
    out = torch.empty_like(x)
    _twice[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def right(x):
    return x * 2 if x.numel() or x.untyped_storage().device.type == "meta" else os._exit(3)
"""
