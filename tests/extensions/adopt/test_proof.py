"""The suite that was written is run before its op is called ready."""

import math
from typing import Any

import pytest

from perfci.core.model import Reason
from perfci.extensions.adopt.sketch import Sketch, SketchFunction, Suites

pytestmark = pytest.mark.torch

GRID = {"rows": ("3",), "cols": ("1", "128", "129")}


def make_suites(**fields: Any) -> Suites:
    return Suites(
        "op", {"rows": "int", "cols": "int"}, {"x": "torch.randn((rows, cols))"}, ("float32", "float16"), **fields
    )


def drop(suites: Suites, **params: Any) -> Suites:
    torch = pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.proof import _drop_case

    return _drop_case(suites, {**params, "dtype": getattr(torch, params["dtype"])})


def test_a_case_is_left_out_of_a_grid_and_the_others_stay():
    suites = drop(make_suites(edges=(GRID,)), rows=3, cols=128, dtype="float32")
    assert suites.edges == ({"rows": ("3",), "cols": ("1", "129")},)
    assert drop(suites, rows=3, cols=129, dtype="float16") == suites  # edges have the first dtype


def test_a_probe_is_left_out_in_one_dtype_alone():
    probe = {"rows": ("3",), "cols": ("5",)}
    assert drop(make_suites(probes=(probe,)), rows=3, cols=5, dtype="float16").probes == (
        {**probe, "dtype": ("torch.float32",)},
    )


def test_a_case_that_is_written_out_is_left_out():
    cases = tuple({"rows": "3", "cols": "5", "dtype": f"torch.{dtype}"} for dtype in ("float32", "float16"))
    assert drop(make_suites(cases=cases), rows=3, cols=5, dtype="float32").cases == cases[1:]


def test_a_suite_with_one_right_answer_or_without_a_check_is_not_ready():
    pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.proof import Proof, _conclude

    side = SketchFunction("module", "source.f", ())
    made = Sketch((), side, side, make_suites())
    alike = Reason("vacuous_answers", {"cases": 1, "value": "0"})
    assert _conclude("op", made, Proof(alike=alike), {})[1][-1] == alike
    assert [reason.kind for reason in _conclude("op", made, Proof(left=3), {})[1]] == ["look_no_cases"]


def test_an_answer_that_no_check_can_compare_is_a_fault_and_ends_nothing(monkeypatch):
    torch = pytest.importorskip("torch")
    import perfci
    from perfci.extensions.adopt.rehearsal import proof

    def compare(*_):
        raise NotImplementedError("no maximum")

    monkeypatch.setattr(proof, "verify", compare)
    suite = perfci.Accuracy(
        kernel=torch.neg, reference=torch.neg, make_inputs=lambda rows, device, seed: {"input": torch.ones(rows)},
        cases=[{"rows": 2}, {"rows": 3}],
    )  # fmt: skip
    made = proof._make_checks(suite, {}, math.inf, lambda _: None, is_usual=True)
    assert [(check.case, reason.facts["message"]) for check, reason in made.usual] == [
        ("rows=2", "no maximum"), ("rows=3", "no maximum"),
    ]  # fmt: skip
    assert not made.is_evidence


def test_one_check_of_each_kind_of_values_is_made_before_further_cases_for_which_a_slow_kernel_leaves_no_time():
    torch = pytest.importorskip("torch")
    import perfci
    from perfci.extensions.adopt.rehearsal import proof

    suite = perfci.Accuracy(
        kernel=torch.neg, reference=torch.neg, values=("normal", "zeros", "nan"),
        make_inputs=lambda rows, device, seed: {"input": torch.ones(rows)}, cases=[{"rows": 2}, {"rows": 3}],
    )  # fmt: skip
    said = list[str]()
    proof._make_checks(suite, {}, math.inf, said.append, is_usual=True)
    assert [one.split(", ")[1] for one in said[:4]] == ["normal", "zeros", "nan", "normal"]


def test_options_are_those_of_the_op_and_not_all_of_torch():
    pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.function import _Called

    found: Any = None
    called = _Called(found, (), ("x: torch.Tensor", "mode: str = 'none'", "eps=1e-05"), ())
    assert called.names == {"x", "mode", "eps"}
