"""A user's function becomes an op from its syntax alone; what could not be told is said, and stands in the files."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.core import settings
from perfci.core.errors import UsageError
from perfci.core.wording import sentence
from perfci.ops import discover
from perfci.scaffold import wrapped

HERE = Path(__file__).parent
SOURCE = HERE / "user_kernels.py"
GELU = "torch.nn.functional.gelu"
SOFTMAX = "torch.nn.functional.softmax"


def wrap(function: str, reference: str, op: str = "op", source: Path = SOURCE, project: Path = Path("/nowhere")):
    return wrapped.wrap(op, f"{source}:{function}", reference, project)


def kinds(draft) -> set[str]:
    return {reason.kind for reason in draft.look}


def defined(text: str, name: str) -> str:
    """What stands between the brackets of a definition."""
    found = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return ast.unparse(found.args)


def returned(text: str, name: str) -> str:
    found = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return ast.unparse(found.body[-1])


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("function", "reference"),
    [("fast_gelu", GELU), ("add", "torch.add"), ("softmax", SOFTMAX), ("sum_rows", "torch.sum"), ("rms", "my.norm")],
)
@pytest.mark.parametrize("op", ["add", "softmax", "row_sum", "other"])
def test_every_wrapped_op_obeys_the_contract_whatever_its_name_is_used_for(project, op, function, reference):
    assert run(["new", op, "--from", f"{SOURCE}:{function}", "--reference", reference]) == 0

    (found,) = discover.ops(settings.load(project))
    assert [sentence(reason) for reason in discover.check_contract(found)] == []


def test_the_reference_gets_tensors_in_order_and_what_it_knows_by_name():
    draft = wrap("softmax", SOFTMAX)

    assert defined(draft.texts["baseline"], "op") == "x: torch.Tensor, dim: int=-1"
    assert returned(draft.texts["baseline"], "op") == f"return {SOFTMAX}(x, dim=dim)"


def test_what_a_reference_needs_and_the_op_lacks_is_filled_in_and_said():
    draft = wrap("sum_rows", "torch.sum")

    assert returned(draft.texts["baseline"], "op") == "return torch.sum(x, dim=-1)"
    assert "look_needed" in kinds(draft)


def test_tuning_values_are_no_business_of_the_reference():
    draft = wrap("fast_gelu", GELU)

    assert returned(draft.texts["baseline"], "op") == f"return {GELU}(x)"
    assert "BLOCK" not in draft.texts["baseline"].split("make_inputs")[1]


def test_constants_of_the_file_are_defaults_and_other_expressions_are_to_be_looked_at():
    draft = wrap("rms", "torch.nn.functional.rms_norm")

    assert "eps=1e-06" in defined(draft.texts["baseline"], "op")
    assert "factor=None" in defined(draft.texts["baseline"], "op")
    assert {"look_default", "look_optional_tensor", "look_not_passed"} <= kinds(draft)
    assert '"weight": torch.randn((cols,)' in draft.texts["baseline"]
    assert "LOOK: torch.nn.functional.rms_norm has no argument factor" in draft.texts["baseline"]


def test_a_value_that_nothing_gives_is_guessed_and_stands_in_the_file_and_the_list():
    draft = wrap("powers", "torch.pow")

    assert '"exponent": 0.5,' in draft.texts["baseline"]
    assert '"whole": False,' in draft.texts["baseline"]
    assert "LOOK: exponent got a value" in draft.texts["baseline"]
    assert [reason.facts["name"] for reason in draft.look if reason.kind == "look_value"] == ["exponent", "whole"]


def test_a_reference_of_ones_own_is_imported_and_called_by_the_ops_own_names():
    draft = wrap("softmax", "mylib.reference.softmax")

    assert "import mylib.reference\n" in draft.texts["baseline"]
    assert returned(draft.texts["baseline"], "op") == "return mylib.reference.softmax(x, dim=dim)"
    assert "look_reference" in kinds(draft)


def test_dimensions_have_the_names_that_the_function_gives_them():
    assert "def make_inputs(n_rows: int, n_cols: int, " in wrap("softmax", SOFTMAX).texts["baseline"]


def test_dtypes_that_the_interpreter_would_get_wrong_are_left_out_and_said():
    assert "DTYPES = [torch.float32]\n" in wrap("softmax", SOFTMAX).texts["accuracy"]
    assert "DTYPES = [torch.float32, torch.float16]\n" in wrap("add", "torch.add").texts["accuracy"]
    assert "bfloat16]\n" in wrap("fast_gelu", GELU).texts["accuracy"]
    assert "look_dtypes" in kinds(wrap("softmax", SOFTMAX))
    assert "look_dtypes" not in kinds(wrap("fast_gelu", GELU))


def test_what_fails_away_from_a_gpu_is_named_with_its_line():
    lines = SOURCE.read_text().splitlines()

    found = next(reason for reason in wrap("into", "torch.clone").look if reason.kind == "look_is_cuda")
    assert "is_cuda" in lines[found.facts["line"] - 1]
    assert "look_out" in kinds(wrap("into", "torch.clone"))


def test_a_function_in_importable_code_is_imported_and_any_other_is_copied_whole(tmp_path, monkeypatch):
    package = tmp_path / "src" / "mylib" / "ops"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    source = package / "soft.py"
    source.write_text(SOURCE.read_text())

    copied = wrap("softmax", SOFTMAX, source=source, project=tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    imported = wrap("softmax", SOFTMAX, source=source, project=tmp_path)

    assert copied.texts["triton"].startswith(SOURCE.read_text())
    assert "look_copied" in kinds(copied)
    assert "import mylib.ops.soft as source\n" in imported.texts["triton"]
    assert returned(imported.texts["triton"], "op") == "return source.softmax(x, dim)"
    assert "look_copied" not in kinds(imported)
    # Another module of that name is not this file.
    assert "import mylib" not in wrap("softmax", SOFTMAX, project=HERE).texts["triton"]


def test_a_default_that_is_no_plain_value_is_looked_up_where_it_is_defined(tmp_path, monkeypatch):
    (tmp_path / "norms_of_a_user.py").write_text("TWO = [2]\ndef norm(x, p=TWO[0] + 1):\n    return x.abs()\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    draft = wrap("norm", "torch.norm", source=tmp_path / "norms_of_a_user.py", project=tmp_path)

    assert "p=source.TWO[0] + 1" in draft.texts["triton"]


def test_what_lies_beside_a_copied_file_is_named(tmp_path):
    (tmp_path / "helpers.py").touch()
    (tmp_path / "kernel.py").write_text("import helpers\nfrom . import more\ndef f(x):\n    return x.abs()\n")

    draft = wrap("f", "torch.abs", source=tmp_path / "kernel.py")

    named = [reason.facts["module"] for reason in draft.look if reason.kind == "look_import"]
    assert named == ["helpers", "."]


@pytest.mark.parametrize(
    ("text", "reference", "said"),
    [
        ("{source}:fast_gelo", GELU, "did you mean fast_gelu?"),
        ("{source}:qqqqq", GELU, "its functions are fast_gelu, add"),
        ("{source}:softmax_kernel", SOFTMAX, "and an op is the function that launches it: name softmax."),
        ("{source}", GELU, "write --from FILE:function"),
        ("{source}:", GELU, "write --from FILE:function"),
        ("/no/such/file.py:f", GELU, "/no/such/file.py does not exist"),
        ("{folder}:f", GELU, "could not be read"),
        ("{source}:anything", GELU, "anything takes *rest"),
        ("{source}:named", GELU, "named takes **rest"),
        ("{source}:placed", GELU, "placed takes x by its position only"),
        ("{source}:add", "add", "is no dotted path"),
        ("{source}:add", "torch.nn.functional.softmax()", "is no dotted path"),
        ("{source}:add", None, "name it with --reference"),
    ],
)
def test_what_cannot_be_wrapped_is_told_in_a_sentence(text, reference, said):
    with pytest.raises(UsageError) as caught:
        wrapped.wrap("op", text.format(source=SOURCE, folder=HERE), reference, Path("/nowhere"))

    assert said in sentence(caught.value.reason)


def test_a_syntax_error_is_named_with_its_line(tmp_path):
    (tmp_path / "bad.py").write_text("import torch\n\ndef f(x:\n    return x\n")

    with pytest.raises(UsageError) as caught:
        wrap("f", GELU, source=tmp_path / "bad.py")

    assert "bad.py, line 3" in sentence(caught.value.reason)


def test_a_kernel_that_nothing_launches_asks_for_a_function_that_does(tmp_path):
    (tmp_path / "alone.py").write_text("import triton\n\n@triton.jit\ndef kernel(x_ptr):\n    pass\n")

    with pytest.raises(UsageError) as caught:
        wrap("kernel", GELU, source=tmp_path / "alone.py")

    assert "nothing in this file launches it" in sentence(caught.value.reason)


def test_the_users_file_is_never_run(tmp_path):
    (tmp_path / "alive.py").write_text(f"raise SystemExit\n{SOURCE.read_text()}")

    assert wrap("add", "torch.add", source=tmp_path / "alive.py").texts


@pytest.mark.slow
@pytest.mark.torch
def test_unary_binary_and_row_wise_functions_pass_without_an_edit(project):
    ops = {"gelu": ("fast_gelu", GELU), "add": ("add", "torch.add"), "soft": ("softmax", SOFTMAX)}
    ops |= {"row_sum": ("sum_rows", "torch.sum")}
    for op, (function, reference) in ops.items():
        run(["new", op, "--from", f"{SOURCE}:{function}", "--reference", reference])

    told = interpreted(project, ops)

    assert {op: failures for op, (_, failures) in told.items() if failures} == {}
    assert all(checks > 15 for checks, _ in told.values())


def interpreted(project: Path, ops) -> dict[str, tuple[int, list[str]]]:
    """How many checks each op had in Triton's interpreter, and which failed."""
    where = [str(HERE / "interpreted.py"), str(project / "kernels"), "*=[13]3,*=10[02]*"]
    command = [sys.executable, "-W", "ignore", *where, *ops]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
