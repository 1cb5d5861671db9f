"""Where no form agrees a person corrects one call, and the op follows from it. What a check refuses is not ready."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

from perfci.cli.main import run
from perfci.extensions.adopt.sketch import SketchFiles, draft
from tests.extensions.adopt.rehearsing import Rehearsals

SOURCE = Path(__file__).parent / "corrected_kernels.py"
CALL = """import torch

def test_call():
    unpack(torch.randn(3, 40), torch.randint(0, 1 << 30, (3, 5), dtype=torch.int32), torch.randn(7),
           torch.randint(0, 7, (3,)), factor=0.37)
"""

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("calls")
    (folder / "right.py").write_text(CALL)
    (folder / "none.py").write_text("import torch\n\nunpack = 3\n")
    (folder / "wrong.py").write_text(CALL.replace("(3, 5)", "(3, 6)"))
    pairs = {
        "coarse": ("copy", "copy_reference"),
        "float32": ("copy", "copy_of_float32"),
        "mixed": ("copy", "copy_in_float32"),
        "scaled": ("copy_scaled", "copy_scaled_reference"),
        "apart": ("Copied", "copied_reference"),
        "assembled": ("assemble", "copy_reference"),
    }
    sides = {op: SketchFiles(str(SOURCE), name, None, other, str(SOURCE)) for op, (name, other) in pairs.items()}
    (folder / "sizes.py").write_text("import torch\n\ndef test_call():\n    spread(torch.randn(1), 3, width=5)\n")
    spread = SketchFiles(str(SOURCE), "spread", None, "spread_reference", str(SOURCE), is_call=True)
    sides["sizes"] = dataclasses.replace(spread, tests=(str(folder / "sizes.py"),))
    (folder / "places.py").write_text(
        "import torch\n\ndef test_call():\n    pick(torch.randn(3, 5), torch.randint(0, 3, (7,)))\n"
    )
    pick = SketchFiles(str(SOURCE), "pick", None, "pick_reference", str(SOURCE), is_call=True)
    sides["places"] = dataclasses.replace(pick, tests=(str(folder / "places.py"),))
    for name in ("right", "none", "wrong"):
        unpack = SketchFiles(str(SOURCE), "unpack", None, "unpack_reference", str(SOURCE), is_call=True)
        sides[name] = dataclasses.replace(unpack, tests=(str(folder / f"{name}.py"),))
    return Rehearsals({op: (op, files) for op, files in sides.items()}, hopeless=("wrong",))


def test_sides_integers_and_dtypes_follow_from_a_call(said):
    made = said["right"]

    assert made.is_ready
    inputs = made.suites.inputs
    assert "randn((rows, 8 * cols)" in inputs["x"]
    assert "randint(0, scales_cols, (rows,)" in inputs["place"] or "randint(0, scales_size, (rows,)" in inputs["place"]
    assert "float16" in made.suites.dtypes
    assert made.reference.arguments[-1] == "factor=factor"
    assert made.suites.edges


def test_numbers_that_are_sides_of_an_output_are_sizes(said):
    made = said["sizes"]

    assert made.is_ready
    assert [*made.suites.axes] == ["height", "width"]
    assert len(made.suites.edges) > 1


def test_integers_of_a_call_that_lie_below_a_side_point_anywhere_into_it(said):
    assert said["places"].is_ready
    assert said["places"].suites.inputs["place"].startswith("torch.randint(0, rows, ")


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_a_library_compiles_runs_as_it_is_written():
    torch = pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.sketched import wrap

    seen = []

    @torch.compile
    def double(x):
        seen.append(torch.compiler.is_compiling())
        return x * 2

    assert wrap(double, "cuda")(torch.ones(3)).tolist() == [2, 2, 2]
    assert seen == [False]


def test_a_call_that_does_not_do_is_kept_with_what_it_raised(said):
    made = said["wrong"]

    assert not made.is_ready
    assert "AssertionError: assert codes.shape" in made.look[0].facts["error"]
    assert "unpack(x=torch.randn(" in draft("op", made, []).call


def test_a_file_without_a_call_is_named(said):
    assert "has no call of unpack with a tensor" in said["none"]


def test_an_option_that_a_check_calls_wrong_is_left_out_and_named(said):
    made = said["coarse"]

    assert made.is_ready
    assert [reason.facts["option"] for reason in made.look if reason.kind == "look_option_off"] == ["coarse"]
    assert not any("coarse" in case for case in made.suites.more)


def test_a_tensor_that_is_asked_for_its_number_has_one(said):
    assert said["scaled"].is_ready
    assert "torch.randn(()," in said["scaled"].suites.inputs["factor"]


def test_a_reference_that_takes_no_float64_is_not_ready_and_one_that_mixes_it_is(said):
    assert [reason.kind for reason in said["float32"].look[:1]] == ["look_reference"]
    assert said["mixed"].suites.dtypes == ("float32",)
    assert said["mixed"].is_ready


def test_a_forward_pass_without_a_context_keeps_its_first_argument(said):
    assert said["apart"].parameters[0].startswith("x")
    assert said["apart"].is_ready


def test_what_the_interpreter_cannot_run_is_named(said):
    (reason,) = (reason for reason in said["assembled"].look if reason.kind == "look_uninterpreted")

    assert reason.facts["operation"] == "tl.inline_asm_elementwise"


def test_each_output_sums_over_the_axes_that_it_lacks():
    pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.axes import Form, Outcome
    from perfci.extensions.adopt.rehearsal.cases import _write_reduces

    form = Form(None, None, None, axes=("rows", "cols"), shapes={"x": "(rows, cols)"})
    written = [_write_reduces(form, Outcome((), outputs, ()), "tl.dot(") for outputs in (((3,), (5,)), ((3,),))]

    assert written == ["reduces=lambda cols, rows, **_: max(cols, rows),", "reduces=lambda cols, **_: cols,"]
    packed = Form(None, None, None, axes=("rows", "cols"), shapes={"x": "(rows, 128 * cols)", "w": "(16 * cols, 8)"})
    assert _write_reduces(packed, Outcome((), ((3,),), ()), "tl.dot(") == "reduces=lambda cols, **_: 128 * cols,"


def test_a_call_may_have_tensors_without_axes_beside_others(tmp_path):
    pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal import dry_torch
    from perfci.extensions.adopt.rehearsal.tests import TestReader

    (tmp_path / "call.py").write_text(
        "import torch\n\ndef test_call():\n    scale(torch.randn(3, 5), torch.rand(()))\n"
    )
    going, takes = dry_torch.DryTorch("cuda"), inspect.signature(lambda x, by: x * by)
    with going.going():
        (call,) = TestReader({"scale"}, takes, going).read([tmp_path / "call.py"])
    assert [tensor.shape for tensor in call.tensors.values()] == [(3, 5), ()]


@pytest.mark.nightly
def test_an_op_that_is_not_ready_is_written_anew_from_its_call(tmp_path, monkeypatch, capsys):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "mine.py").write_text(SOURCE.read_text())
    monkeypatch.chdir(tmp_path)
    command = ["new", "unpack", "--from", "mine.py:unpack", "--reference", "mine.py:unpack_reference"]

    assert run(command) == 3
    call = tmp_path / "kernels" / "unpack" / "unpack_call.py"
    out = capsys.readouterr().out
    assert "Next: correct the call in kernels/unpack/unpack_call.py, then `perfci " + " ".join(command) + "`" in out
    assert "# It is not ready" in call.read_text() or "# No shapes were found" in call.read_text()

    call.write_text(CALL)
    assert run(command) == 0
    assert not call.exists()
    assert "8 * cols" in (call.parent / "unpack_baseline.py").read_text()
    assert run(command) == 1  # it is there, and ready
