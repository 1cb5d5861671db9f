import math
import re
from dataclasses import replace

import pytest

from perfci.core.model import Again, AgainCase, DuelWhat, OpRun, PlannedBase, PlannedOp, Reason, Suite, Verdict
from perfci.core.wording import sentence, speaking
from perfci.judge.duel import identity_counts
from perfci.judge.notes import MOST_FILES
from tests.decision_examples import (
    BASE,
    CASE,
    again,
    against,
    baseline,
    blocks,
    check,
    duel_plan,
    duelled,
    judged,
    plan,
    run,
)

BOOM = Reason("boom", {"what": "it broke"})


def _notes(*timed, planned=None, stored=None, **options):
    return judged(run(*timed, planned=planned or duel_plan(), **options), stored).notes


def _kinds(notes):
    return [note.kind for note in notes]


# --- the base ---------------------------------------------------------------------------------------------------------


def test_what_a_change_does_to_its_own_judging_comes_first():
    base = replace(BASE, changed_rules=("thresholds/softmax.yaml",), changed_pins=("uv.lock: triton 3.7 -> 3.8",))
    planned = duel_plan(base=base, base_note=None)

    notes = _notes(against(duelled(0.0, count=4)), planned=planned, op={"notes": (BOOM,)}, stopped="SIGINT")

    assert _kinds(notes) == ["rules_changed", "pins_changed", "compared_with", "run_stopped", "how_duelled"]
    assert "not those of origin/main, by which it was judged" in sentence(notes[0])
    assert "1 (thresholds/softmax.yaml)" in sentence(notes[0])
    assert "triton 3.7 -> 3.8" in sentence(notes[1])


def test_how_the_base_was_found_is_said_in_words_of_the_language():
    planned = [duel_plan(base=replace(BASE, how=how)) for how in ("asked", "first_parent", "merge_base", "baseline")]

    assert "named by --against" in sentence(_notes(planned=planned[0])[-1])
    with speaking("zh"):
        told = [sentence(note) for each in planned for note in _notes(planned=each) if note.kind == "compared_with"]
    assert len(set(told)) == len(planned)
    assert not any(re.search("asked|parent|merge|baseline", text) for text in told)


def test_a_merge_request_that_edits_stored_baselines_is_told_so_before_all_else():
    files = ("baselines/h200/op.json", "thresholds/op.yaml")
    base = replace(BASE, changed_rules=files, changed_baselines=files[:1])

    edited = _notes(planned=duel_plan(base=base))
    proposed = _notes(planned=duel_plan(base=replace(base, proposed_on="perfci/nightly")))
    asked = _notes(planned=duel_plan(base=replace(base, how="asked")))

    assert _kinds(edited)[:2] == ["baselines_edited", "rules_changed"]
    assert "only the nightly job" in sentence(edited[0]) and files[0] in sentence(edited[0])
    # Anybody can give a branch that name, so that it is said there too.
    assert _kinds(proposed)[:2] == ["baselines_proposed", "rules_changed"]
    assert "perfci/nightly" in sentence(proposed[0])
    assert _kinds(asked)[0] == "rules_differ"


def _again(*cases):
    planned = duel_plan(base=replace(BASE, how="again"))
    return replace(planned, filter="*", again=Again("r1", tuple(AgainCase("op", *each) for each in cases)))


def test_cases_duelled_again_are_told_with_their_commits():
    (note, *_) = _notes(against(duelled(0.0, count=4)), planned=_again((CASE, "a" * 40)))

    assert note.kind == "compared_again"
    assert "aaaaaaaaaa" in sentence(note) and "r1" in sentence(note)


@pytest.mark.parametrize(("shift", "told"), [(0.03, True), (0.0, False)])
def test_only_a_slow_down_names_the_commits_between_which_it_came(shift, told):
    timed = against(duelled(shift, shift))
    row = next(row for row in judged(run(timed, planned=_again((CASE, "a" * 40)))).rows if row.case == CASE)

    assert (row.verdict is Verdict.REGRESSED) == told
    kinds = {reason.kind: reason for reason in row.reasons}
    assert ("slower_since" in kinds) == told
    if told:
        assert f"perfci bisect --op op --case {CASE} aaaaaaaaaaaa" in sentence(kinds["slower_since"])


@pytest.mark.parametrize(
    ("since", "touching", "kind", "words"),
    [
        (None, 4, "release_crept", "since the release v1 (aaaaaaaaaaaa), bit by bit: 9 commits of the main line"),
        (None, 1, "release_stepped", "of the 9 commits of the main line since then only one touched files of op"),
        ("agreed", 4, "epoch_crept", "since a loss was accepted at aaaaaaaaaaaa (agreed), bit by bit: 9 commits"),
        ("agreed", 1, "epoch_stepped", "since a loss was accepted at aaaaaaaaaaaa (agreed), and of the 9 commits"),
    ],
)
def test_a_slow_down_since_a_release_is_called_the_sum_of_many_merges_or_the_step_of_one(since, touching, kind, words):
    held = AgainCase("op", CASE, "a" * 40, since=since, commits=9, touching=touching)
    planned = replace(_again(), again=Again("", (held,), "v1", said=(BOOM,)))
    found = judged(run(against(duelled(0.03, 0.03)), planned=planned))

    row = next(row for row in found.rows if row.case == CASE)
    told = next(reason for reason in row.reasons if reason.kind == kind)
    assert row.verdict is Verdict.REGRESSED
    assert words in sentence(told) and "+3.0 %" in sentence(told)
    assert f"perfci bisect --op op --case {CASE} aaaaaaaaaaaa" in sentence(told)
    assert [note.kind for note in found.notes[:2]] == ["compared_release", "boom"]


def test_a_case_with_the_files_of_its_own_commit_is_unchanged_although_its_op_is_not():
    held = AgainCase("op", CASE, "a" * 40, same=True)
    planned = replace(_again(), again=Again("", (held,), "v1"), skip_unchanged=True)
    (row,) = [row for row in judged(run(planned=planned)).rows if row.case == CASE]

    assert (row.verdict, row.reasons[0].kind) == (Verdict.UNCHANGED, "unchanged_files")


def test_a_case_that_could_not_be_duelled_again_stays_inconclusive():
    planned = _again((CASE, "a" * 40, False, BOOM))
    row = next(row for row in judged(run(against(duelled(0.1)), planned=planned)).rows if row.case == CASE)

    assert (row.verdict, row.reasons) == (Verdict.INCONCLUSIVE, (BOOM,))


def test_an_op_that_is_timed_with_another_cache_than_before_is_named():
    planned = duel_plan()
    (op,) = planned.ops
    warm = replace(planned, ops=(replace(op, cache="warm"),))
    both = replace(planned, ops=(replace(op, cache="warm", base=replace(op.base, cache="warm")),))

    (note, *_) = _notes(planned=warm)

    assert note == Reason("cache_changed", {"op": "op", "cache": "warm", "before": "cold", "base": "origin/main"})
    assert "both revisions were timed with a warm L2 cache" in sentence(note)
    assert "cache_changed" not in _kinds(_notes(planned=both)) + _kinds(_notes(planned=planned))


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("first_parent", "rules_changed"),
        ("merge_base", "rules_changed"),
        ("asked", "rules_differ"),
        ("baseline", "rules_differ"),
    ],
)
def test_only_a_merge_request_is_judged_by_its_bases_rules(how, kind):
    planned = duel_plan(base=replace(BASE, how=how, changed_rules=("baselines/a.json",)))

    assert _kinds(_notes(planned=planned))[0] == kind


def test_of_many_files_the_first_are_named_and_all_are_counted():
    rules = tuple(f"thresholds/op{n}.yaml" for n in range(MOST_FILES + 3))

    (note, *_) = _notes(planned=duel_plan(base=replace(BASE, changed_rules=rules)))

    assert note.facts["count"] == MOST_FILES + 3
    assert note.facts["files"] == ", ".join(rules[:MOST_FILES])


def test_the_base_is_named_with_how_it_was_found_and_how_many_cases_were_duelled():
    other = against(duelled(0.0, count=4), case="rows=1")

    (note, *_) = _notes(against(duelled(0.0, count=4)), other, planned=duel_plan(CASE, "rows=1", "rows=2"))

    assert sentence(note) == "Compared with origin/main (0123456789, merge base): 2 cases timed side by side with it."


def test_another_interpreter_of_the_base_is_named_and_makes_pins_no_matter():
    base = replace(BASE, python="/opt/old/bin/python", changed_pins=("uv.lock: triton 3.7 -> 3.8",))

    notes = _notes(planned=duel_plan(base=base))

    assert _kinds(notes) == ["compared_with_python"]
    assert "/opt/old/bin/python" in sentence(notes[0])


@pytest.mark.parametrize(
    ("base", "counts"),
    [
        (None, True),
        (BASE, True),
        (replace(BASE, changed_pins=("a",)), False),
        (replace(BASE, changed_pins=("a",), python="python3"), True),
    ],
)
def test_identity_proves_nothing_where_the_toolchain_changes_and_only_one_is_at_hand(base, counts):
    assert identity_counts(base) is counts


def test_why_there_is_no_base_is_said():
    assert _kinds(_notes(planned=plan(base_note=Reason("nothing_to_duel")))) == ["nothing_to_duel"]


def test_what_keeps_ops_from_their_base_is_said_once():
    lacks = PlannedBase(failure=Reason("base_lacks_op", {"op": "gelu", "base": "origin/main"}))
    late = Reason("imports_late", {"where": "softmax_triton.py, line 3"})
    ops = (
        PlannedOp("a", base=lacks),
        PlannedOp("b", base=lacks),
        PlannedOp("c", base=PlannedBase(apart=late)),
        PlannedOp("d", base=PlannedBase(apart=late)),
        PlannedOp("e", base=PlannedBase(same=True, apart=BOOM)),
    )

    notes = _notes(planned=replace(duel_plan(), ops=ops))

    assert _kinds(notes) == ["compared_with", "base_lacks_op", "imports_late"]


def test_the_rule_that_judged_is_told():
    assert _kinds(_notes(against(duelled(0.0, count=4)), stored=baseline())) == ["compared_with", "how_duelled"]
    assert _kinds(_notes(blocks(), planned=plan(), stored=baseline())) == ["how_judged", "tested_by_screen"]


def _tested(*timed, planned=None, stored=None):
    return {kind for kind in _kinds(_notes(*timed, planned=planned, stored=stored)) if kind.startswith("tested_by")}


def test_only_tests_that_decided_are_named():
    assert _tested(again(1.05), planned=plan(), stored=baseline()) == {"tested_by_screen"}
    assert _tested(against(duelled(0.03, 0.03)), stored=baseline()) == {"tested_by_duel"}
    assert _tested(against(duelled(-0.03, -0.03))) == {"tested_by_duel"}


def test_no_test_is_named_if_the_centre_of_blocks_decided_or_nothing_could():
    assert _tested(against(duelled(0.0, count=4)), stored=baseline()) == set()
    assert _tested(against(duelled(0.0, 0.0))) == set()
    assert _tested(against(duelled(0.02, count=4))) == set()
    assert _tested(blocks(), planned=plan()) == set()
    assert _tested(blocks(1 / 1.05, clock=1.05), planned=plan(), stored=baseline()) == set()


def test_of_what_drifted_both_tests_are_named():
    drifted = against(duelled(0.0, 0.0, 0.0, count=(4, 12, 12), level=1.06))

    assert _tested(drifted, stored=baseline()) == {"tested_by_screen", "tested_by_duel"}


# --- the common shift -------------------------------------------------------------------------------------------------

NAMES = tuple(f"rows={n}" for n in range(4))


def _all_moved(change):
    timed = [against(duelled(change, change, change, change), case=name) for name in NAMES]
    return judged(run(*timed, planned=duel_plan(*NAMES)))


def test_a_shift_that_all_cases_share_is_shown_and_never_subtracted():
    found = _all_moved(0.03)

    assert {row.case: row.verdict for row in found.rows if row.case in NAMES} == dict.fromkeys(NAMES, Verdict.REGRESSED)
    (note,) = [note for note in found.notes if note.kind == "common_shift"]
    assert sentence(note).startswith("All 4 cases timed against the base moved by +3.0 % in the median; nothing is")


def test_the_common_shift_is_the_median_of_the_cases():
    timed = [against(duelled(change), case=name) for change, name in zip((0.0, 0.01, 0.02, 0.5), NAMES, strict=True)]

    (note,) = [one for one in judged(run(*timed, planned=duel_plan(*NAMES))).notes if one.kind == "common_shift"]

    assert note.facts["change"] == pytest.approx(math.sqrt(1.01 * 1.02) - 1, abs=0.001)


def test_two_cases_have_nothing_in_common_yet():
    timed = [against(duelled(0.03), case=name) for name in NAMES[:2]]

    assert "common_shift" not in _kinds(judged(run(*timed, planned=duel_plan(*NAMES))).notes)


# --- what the base has and head has not -------------------------------------------------------------------------------


def _based(*cases, **options):
    op = PlannedOp("op", (CASE,), (CASE,), base=PlannedBase(performance=cases))
    return replace(duel_plan(), ops=(op,), **options)


def _removed(found):
    return [(row.case, row.reasons[0].kind) for row in found.rows if row.verdict is Verdict.REMOVED]


def test_cases_that_base_or_baseline_have_alone_are_removed_each_once():
    stored = baseline(CASE, "rows=1", "rows=2")
    measured = run(against(duelled(0.0, count=4)), planned=_based(CASE, "rows=1", "rows=3"))

    assert _removed(judged(measured, stored)) == [
        ("rows=1", "removed_since_base"),
        ("rows=3", "removed_since_base"),
        ("rows=2", "removed"),
    ]


@pytest.mark.parametrize("op", [{"unmeasured": BOOM}, {"failure": BOOM}])
def test_a_case_that_the_base_has_is_missed_on_a_machine_that_cannot_time_it_too(op):
    assert _removed(judged(run(planned=_based(CASE, "rows=1"), op=op))) == [("rows=1", "removed_since_base")]


def test_a_filter_or_an_op_that_does_not_load_removes_nothing():
    assert (
        _removed(judged(run(against(duelled(0.0, count=4)), planned=_based(CASE, "rows=1", filter="rows=4096*")))) == []
    )
    broken = replace(_based(CASE, "rows=1"), ops=(PlannedOp("op", failure=BOOM),))
    assert _removed(judged(replace(run(planned=broken), ops=()))) == []


def test_an_op_that_only_the_base_has_is_removed():
    rows = judged(run(against(duelled(0.0, count=4)), planned=_based(CASE, removed=("gelu",)))).rows

    (row,) = [row for row in rows if row.op == "gelu"]
    assert (row.verdict, row.case, row.suite) == (Verdict.REMOVED, None, Suite.PERFORMANCE)
    assert sentence(row.reasons[0]).startswith("origin/main has the op gelu and the change drops it")


def test_a_case_that_neither_base_nor_baseline_knows_is_new():
    other = "rows=1"
    timed = (against(duelled(0.0, count=4)), replace(against(blocks(), case=other), base=None))
    planned = replace(_based(CASE), ops=(replace(_based(CASE).ops[0], performance=(CASE, other)),))

    rows = {row.case: row.verdict for row in judged(run(*timed, planned=planned)).rows if row.case}

    assert rows == {CASE: Verdict.PASS, other: Verdict.NEW}


def test_ops_are_judged_apart_from_each_other():
    fine, slower = duel_plan().ops[0], replace(duel_plan().ops[0], op="slower")
    measured = run(against(duelled(0.0, count=4)), planned=replace(duel_plan(), ops=(fine, slower), duel_family=2))
    late = OpRun("slower", (check(),), (against(duelled(0.03, 0.03)),))

    rows = judged(replace(measured, ops=(*measured.ops, late))).rows

    assert [(row.op, row.verdict) for row in rows if row.case] == [("op", Verdict.PASS), ("slower", Verdict.REGRESSED)]


def test_without_a_base_or_duels_nothing_is_said_of_them():
    notes = _notes(again(1.0), planned=plan(duel=DuelWhat.NONE), stored=baseline())

    assert _kinds(notes) == ["how_judged", "tested_by_screen"]
