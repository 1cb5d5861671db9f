"""Every way in which what an op declares of storage in low precision can break the contract."""

from __future__ import annotations

import sys

import pytest

from perfci.core.errors import ContractError
from perfci.core.wording import sentence
from tests.worker.test_load import OpFolder

DECLARED = """
def stored(rows, scaling, device, seed):
    return {{}}


quantised = perfci.Quantised(store=stored, cases=perfci.grid(rows=[1, 2], scaling=["tensor"]))
accuracy = perfci.Accuracy({op}, reference, make_inputs, cases=[{{'rows': 1}}], quantised=quantised)
"""


@pytest.fixture
def op(tmp_path):
    made = OpFolder(tmp_path, "keeps")
    made.path("accuracy").write_text(made.path("accuracy").read_text() + DECLARED.format(op="keeps"))
    before = set(sys.modules)
    yield made
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("quantised = perfci.Quantised(", "quantised = dict(", "suite_broken"),
        ("store=stored, ", "store=3, ", "suite_broken"),
        ("cases=perfci.grid(rows=[1, 2], scaling=[\"tensor\"])", "cases=7", "suite_broken"),
        ("cases=perfci.grid(rows=[1, 2], scaling=[\"tensor\"])", "cases=[3]", "suite_broken"),
        ("scaling=[\"tensor\"]", "scaling=[]", "no_cases"),
        ("rows=[1, 2]", "rows=[1, 1]", "case_twice"),
        ("store=stored, ", "store=stored, mode='how', ", "quantised_mode"),
        ("def stored(rows, scaling", "def stored(scaling", "quantised_mismatch"),
        ("def stored(rows, scaling, device, seed)", "def stored(rows, scaling, device)", "quantised_mismatch"),
    ],
)  # fmt: skip
def test_each_breach_is_told_with_the_file(op, before, after, kind):
    text = op.path("accuracy").read_text()
    assert before in text
    op.path("accuracy").write_text(text.replace(before, after))

    with pytest.raises(ContractError) as error:
        op.load()

    assert error.value.reason.kind == kind
    assert "keeps_accuracy.py" in sentence(error.value.reason)
