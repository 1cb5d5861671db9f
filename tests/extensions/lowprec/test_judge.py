"""Verdicts about what is stored in low precision: limits, likely causes, advice."""

from dataclasses import replace

import pytest

from perfci.core.model import OpRun, Suite, Verdict
from perfci.core.wording import catalogue, sentence
from perfci.extensions.lowprec import checks as storage
from perfci.extensions.lowprec.advice import AdviceCause
from perfci.ops.spec import is_stored
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import Thresholds
from tests.decision_examples import CASE, check, judged, plan, run
from tests.extensions.lowprec.storage_examples import changed, clipped, sound

LIMITS = Thresholds()


def rows(op, limits=LIMITS):
    return {row.case: row for row in storage.judge_stored(op, "nvidia-h200", limits)}


def case(name, judged):
    return next(row for row in judged if name in row.case)


def test_by_default_three_hundredths_of_error_and_two_per_cent_of_clipping_are_allowed():
    limits = CaseThresholds()

    assert (limits.stored_p99, limits.clip_ratio, limits.divergence) == (0.03, 0.02, None)
    base = sound()[0]
    for worse in (replace(base, clip_ratio=0.0201), changed(base, p99=0.0301 / base.errors.p99_abs)):
        (row,) = rows(OpRun("op", stored=(worse,))).values()
        assert (row.verdict, row.suite) == (Verdict.WRONG, Suite.ACCURACY)
    for fine in (replace(base, clip_ratio=0.02), changed(base, p99=0.03 / base.errors.p99_abs), base):
        assert rows(OpRun("op", stored=(fine,))) == {}


def test_the_figure_that_is_furthest_beyond_is_told_and_the_others_counted():
    base = changed(sound()[0], p99=2 * 0.03 / sound()[0].errors.p99_abs, clip_ratio=0.2)
    (row,) = rows(OpRun("op", stored=(base,))).values()
    facts = row.reasons[0].facts

    assert (facts["figure"], facts["beyond"], facts["shown"], facts["allowed"]) == ("clip_ratio", 2, "20.0 %", "2.0 %")


def test_every_cause_has_a_sentence_with_the_cause_in_it():
    words = {
        AdviceCause.CHANNELS: "few channels of extreme scale", AdviceCause.SCALE_SMALL: "the scale is too small",
        AdviceCause.SCALE_LARGE: "the scale is too large", AdviceCause.TAIL: "the tail drifts while the mean is steady",
        AdviceCause.MOVED: "all errors grew", AdviceCause.COARSE: "itself is too coarse",
        AdviceCause.UNKNOWN: "Nothing that was recorded",
    }  # fmt: skip

    assert words.keys() == set(AdviceCause)
    for cause, text in words.items():
        assert text in catalogue()[f"stored_beyond_{cause}"]


def test_advice_names_the_way_that_was_measured_to_keep_the_limits():
    row = case("stored=a,scaling=tensor,dtype=float8_e4m3fn", rows(clipped()).values())
    (advised,) = row.reasons[1:]

    assert advised.kind == "stored_advice_to"
    assert "scaling=row,dtype=float8_e4m3fn would keep these limits" in sentence(advised)


def test_where_nothing_measured_is_good_enough_the_least_is_named():
    limits = Thresholds(CaseThresholds(stored_p99=1e-6))
    judgements = rows(OpRun("op", stored=sound()), limits)

    assert {row.reasons[1].kind for row in judgements.values()} == {"stored_advice_none"}


# --- the op as a whole ------------------------------------------------------------------------------------------------


def whole(op, *checks):
    planned = plan(accuracy=(CASE,) if checks else ())
    planned = replace(planned, ops=(replace(planned.ops[0], stored=("stored=*,scaling=tensor",)),))
    measured = run(planned=planned, accuracy=checks, op={"stored": op.stored})
    return [row for row in judged(measured).rows if row.suite is Suite.ACCURACY]


@pytest.mark.parametrize("checks", [(), (check(),)])
def test_an_op_beyond_its_limits_is_wrong_as_a_whole_first(checks):
    first, *others = whole(clipped(), *checks)

    assert (first.case, first.verdict, first.reasons[0].kind) == (None, Verdict.WRONG, "accuracy_beyond_limits")
    assert first.reasons[1].kind.startswith("stored_beyond_")
    assert all(is_stored(row.case) and row.verdict is Verdict.WRONG for row in others)
    assert len(others) == first.reasons[0].facts["cases"]
