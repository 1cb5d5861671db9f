"""What a suite declares of its kernel: a step of integers, dtypes, layouts. What is wrong there is found."""

from pathlib import Path
from typing import Any

import pytest

from perfci.extensions.adopt.place import place_op, write_draft
from perfci.extensions.adopt.sketch import Copy, SketchFiles, draft
from tests.extensions.adopt.rehearsing import Rehearsals, interpreted

HERE = Path(__file__).parent
MADE = {
    "quantise": ("declared_kernels.py", "quantise_reference"),
    "multiply": ("declared_kernels.py", "multiply_reference"),
    "double_in_float32": ("declared_kernels.py", "double_reference"),
    "add": ("strided_kernels.py", "torch.add"),
    "add_alike": ("strided_kernels.py", "torch.add"),
    "add_packed": ("strided_kernels.py", "torch.add"),
    "add_dense": ("strided_kernels.py", "torch.add"),
}
"""function -> its file and its reference"""

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    return Rehearsals(
        {
            name: (
                name,
                SketchFiles(str(HERE / file), name, None, reference, None if "." in reference else str(HERE / file)),
            )
            for name, (file, reference) in MADE.items()
        }
    )


class Told(dict[str, tuple[int, list[str]]]):
    """How many checks an op had, and which failed: of those alone that a test asks for."""

    def __init__(self, said: Rehearsals, root: Path) -> None:
        super().__init__()
        self._said, self._root = said, root

    def __missing__(self, op: str) -> tuple[int, list[str]]:
        file, _ = MADE[op]
        copies = [Copy(f"_{file}", (HERE / file).read_text(), file, "")]
        write_draft(place_op(op, self._root / "kernels", {}), draft(op, self._said[op], copies))
        self |= interpreted(self._root, "*", op)
        return self[op]


@pytest.fixture(scope="module")
def told(said, tmp_path_factory) -> Told:
    return Told(said, tmp_path_factory.mktemp("declared"))


@pytest.mark.nightly
def test_a_kernel_that_rounds_to_integers_may_be_a_step_off(said, told):
    assert 'tolerance={"int8": (0.0, 1.0)},' in said["quantise"].suites.accuracy
    assert [failure for failure in told["quantise"][1] if "rows=0" not in failure] == []


def test_a_product_of_integers_is_checked_with_integers(said, told):
    assert said["multiply"].suites.dtypes == ("int8",)
    assert said["multiply"].suites.inputs["scale"].endswith("dtype=torch.float32, device=device) / 128")
    assert said["multiply"].is_ready
    assert told["multiply"][1] == []


def test_a_dtype_in_which_the_reference_answers_in_another_is_left_out(said, told):
    assert said["double_in_float32"].suites.dtypes == ("float32",)
    assert told["double_in_float32"][1] == []


@pytest.mark.nightly
def test_layouts_are_those_that_a_function_with_strides_takes(said, told):
    lines = {op: [line for line in said[op].suites.accuracy if "layouts" in line] for op in MADE}

    assert lines["add"] == []
    assert lines["add_packed"] == ['layouts=("contiguous", "expanded", "pitched"),']
    assert lines["quantise"] == ['layouts=("contiguous",),']
    assert told["add"][1] == told["add_packed"][1] == []


@pytest.mark.nightly
def test_layouts_of_which_a_trial_gives_wrong_values_are_left_out_and_named(said, told):
    (layouts,) = [line for line in said["add_dense"].suites.accuracy if line.startswith("layouts")]
    (look,) = [reason for reason in said["add_dense"].look if reason.kind == "look_layouts"]

    assert layouts == 'layouts=("contiguous", "expanded", "pitched"),'
    assert look.facts["layouts"] == "strided"
    assert told["add_dense"][1] == []


@pytest.mark.nightly
def test_an_input_that_is_read_by_the_strides_of_another_is_found(said, told):
    assert [reason.kind for reason in said["add_alike"].look][:1] == ["look_fails"]
    assert {failure.split(" ", 3)[1] for failure in told["add_alike"][1]} == {"normal"}
