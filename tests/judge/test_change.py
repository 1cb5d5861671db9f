"""What a change did to an op's suites and files, from its record alone."""

from dataclasses import replace

import pytest

from perfci.core.model.basics import Reason
from perfci.core.model.measured import AccuracyCase, OpRun, SuiteChange
from perfci.core.model.place import Device, Environment
from perfci.core.model.run import Base, Expected, Plan, PlannedBase, PlannedOp, Run
from perfci.judge.change import find_kind, judge_change, list_weaker, take_own

FEWER = Reason("weaker_fewer", {"what": "cases", "suite": "accuracy", "count": 3, "of": 4, "names": "rows=1"})
DIFFER = Reason("answers_differ", {"case": "rows=1", "values": "normal", "count": 1, "size": 2})
FORMED = Reason("answers_formed", {"case": "rows=1", "before": "float32[1]", "after": "float64[1]"})
ALL = tuple(f"kernels/gelu/gelu_{part}.py" for part in ("accuracy", "baseline", "performance", "triton"))


def op(*changed, signature=("x",), **base):
    known = PlannedBase(changed=changed or ("kernels/gelu/gelu_triton.py",), signature=("x",), **base)
    return PlannedOp("gelu", ("rows=1",), signature=signature, base=known)


def ran(*, weaker=(), differs=(), wrong=False):
    of_base = AccuracyCase("rows=1", "normal", "contiguous", 0, of_base=True)
    failed = replace(of_base, failure=Reason("wrong_values", {"case": "rows=1"}))
    own = AccuracyCase("rows=1", "normal", "contiguous", 0)
    return OpRun("gelu", (failed if wrong else of_base, own), change=SuiteChange(weaker, differs))


def a_run(planned, found, *entries, how="merge_base"):
    base = Base("a" * 40, how, "origin/main", expected=entries)
    where = Environment(Device("cpu", "CPU", "cpu"), None, "3.12", {}, "host", "Linux")
    plan = Plan((planned,), 1, 1.0, "cpu", base=base)
    return Run("id", "2026-06-01T00:00:00Z", "1", "", where, plan, (found,))


def row(planned, found, *entries, how="merge_base"):
    return judge_change(a_run(planned, found, *entries, how=how), planned, found)


def declared(weaker="cases", until="2026-07-01", *, added=True):
    return Expected("gelu", "*", 0.0, "agreed", until, "thresholds/gelu.yaml", 2, added, weaker)


@pytest.mark.parametrize(
    ("planned", "found", "kind", "missing"),
    [
        (op(), ran(), "tuning", 0),
        (op("kernels/_rows.py"), ran(), "shared", 0),
        (op("kernels/gelu/gelu_accuracy.py"), ran(), "suites", 0),
        (op(signature=("x", "y=2")), ran(), "interface", 3),
        (op(), ran(differs=(FORMED,), wrong=True), "interface", 3),
        (op(), ran(differs=(DIFFER,), wrong=True), "logic", 3),
        (op(*ALL), ran(differs=(DIFFER,), wrong=True), "logic", 0),
        (op(*ALL, signature=("x", "y=2")), ran(differs=(DIFFER,), wrong=True), "logic", 0),
        (op(*ALL), ran(wrong=True), "tuning", 0),  # both references say that it is wrong
    ],
)
def test_evidence_tells_kinds_of_change_apart(planned, found, kind, missing):
    seen = find_kind(planned, found)

    assert (seen.name, len(seen.missing)) == (kind, missing)


def test_nothing_is_known_of_an_op_that_nobody_compared():
    assert find_kind(op(same=True), ran()) is None
    assert find_kind(op(), OpRun("gelu")) is None
    assert find_kind(PlannedOp("gelu"), ran()) is None
    assert row(op(), OpRun("gelu")) is None


def test_what_got_weaker_fails_until_the_change_itself_declares_it():
    answer = ran(weaker=(FEWER,))

    plain = row(op(), answer)
    assert (plain.verdict, [reason.kind for reason in plain.reasons]) == ("WEAKENED", ["weakened", "weaker_fewer"])
    assert row(op(), answer, declared()).verdict == "EXPECTED"
    for entry in (declared("values"), declared(until="2026-05-31"), declared(added=False)):
        assert row(op(), answer, entry).verdict == "WEAKENED"
    assert row(op(), answer, how="baseline") is None


def test_a_reference_of_other_answers_is_weaker_if_the_kernel_agrees_with_the_bases():
    found = ran(differs=(DIFFER,))
    (weaker,) = list_weaker(a_run(op(), found), op(), found)

    assert (weaker.kind, weaker.facts["what"], weaker.facts["op"]) == ("weaker_answers", "answers", "gelu")
    found = ran(differs=(DIFFER,), wrong=True)
    assert list_weaker(a_run(op(), found), op(), found) == ()


@pytest.mark.parametrize("found", [ran(), OpRun("gelu")])
def test_cases_that_only_the_bases_process_describes_fail_whatever_the_changes_processes_say(found):
    planned = op(performance=("rows=2", "rows=3"))

    lost = row(planned, found)
    assert (lost.verdict, lost.reasons[1].facts["names"]) == ("WEAKENED", "rows=2; rows=3")
    assert row(planned, found, declared()).verdict == "EXPECTED"
    assert row(planned, found, how="release") is None


def test_files_that_a_kind_of_change_takes_are_listed_with_the_baseline_first():
    lacking = row(op("kernels/gelu/gelu_triton.py"), ran(differs=(DIFFER,), wrong=True), declared("answers"))

    assert (lacking.verdict, lacking.reasons[0].kind) == ("WEAKENED", "change_lacks_files")
    assert lacking.reasons[0].facts["files"] == "gelu_baseline.py, gelu_accuracy.py, gelu_performance.py"


def test_a_change_of_logic_is_judged_by_its_own_suites_and_warns():
    answer = ran(differs=(DIFFER,), wrong=True)

    assert row(op(*ALL), answer).verdict == "INCONCLUSIVE"
    assert row(op(*ALL), answer, declared("answers")).verdict == "EXPECTED"
    assert [check.of_base for check in take_own(op(*ALL), answer).accuracy] == [False]
    assert take_own(op(), answer) is answer


def test_another_signature_alone_excuses_no_wrong_answer():
    answer = ran(wrong=True)

    assert take_own(op(*ALL, signature=("x", "y=2")), answer) is answer
    assert row(op(*ALL, signature=("x", "y=2")), answer) is None
    assert row(op(*ALL, signature=("x", "y=2")), ran(differs=(DIFFER,), wrong=True)).verdict == "INCONCLUSIVE"
