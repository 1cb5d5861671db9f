"""What a declaration of large cases has to be."""

import sys

import pytest

from perfci.core.errors import ContractError
from perfci.core.wording import sentence
from tests.worker.test_load import OpFolder


@pytest.fixture
def declared(tmp_path):
    made = OpFolder(tmp_path, "wide")
    before = set(sys.modules)

    def load(fields):
        path = made.path("accuracy")
        text = f"accuracy = perfci.Accuracy(wide, reference, make_inputs, cases=[{{'rows': 1}}], {fields})\n"
        path.write_text(path.read_text() + text)
        return made.load().accuracy

    yield load
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(declared, fields):
    with pytest.raises(ContractError) as caught:
        declared(fields)
    return sentence(caught.value.reason)


def test_large_cases_are_read_and_are_none_by_default(declared):
    assert declared("").large_cases == ()
    assert declared("large_cases=[{'rows': 5}]").large_cases == [{"rows": 5}]


@pytest.mark.parametrize(("interpreted", "many"), [("", 1), ("1", 0)])
def test_cases_for_accelerators_join_the_others_where_kernels_are_not_interpreted(
    declared, monkeypatch, interpreted, many
):
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    before = len(declared("").cases)

    cases = declared("accelerator_cases=[{'rows': 5}]").cases

    assert len(cases) == before + many


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("accelerator_cases=[{'columns': 5}]", "columns=5"),
        ("large_cases=7", "has no len()"),
        ("large_cases=[5]", "no attribute 'items'"),
        ("large_cases=[{'columns': 5}]", "columns=5"),
        ("large_cases=[{'rows': 5}, {'rows': 5}]", "rows=5"),
        ("large_cases=[{'rows': 5}], large_part=3", "wide_accuracy.py: the suite cannot be read"),
    ],
)
def test_a_wrong_declaration_is_refused_in_a_sentence(declared, fields, said):
    assert said in refusal(declared, fields)
