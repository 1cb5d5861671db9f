from dataclasses import replace

import pytest

from perfci.core.model import Again, AgainCase, BaseArm, PlannedBase, PlannedOp, Reason, Suite, SuiteChange, Verdict
from perfci.core.wording import sentence
from perfci.judge import judge
from perfci.judge.speed import identity_counts
from perfci.thresholds.limits import Thresholds
from tests.decision_examples import BASE, CASE, against, baseline, check, duel_plan, duelled, judged, run

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
    assert "not those of origin/main, whose thresholds and baselines judged it" in sentence(notes[0])
    assert "1 (thresholds/softmax.yaml)" in sentence(notes[0])
    assert "triton 3.7 -> 3.8" in sentence(notes[1])


def test_backends_that_cannot_run_here_are_one_note_and_no_other_is_about_them():
    backends = {"softmax@cuda": "CUDA C++", "softmax@cutile": "cuTile"}
    lent = PlannedBase(op="softmax", lent=True)
    ops = tuple(
        PlannedOp(op, failure=Reason("backend_needs_device", {"op": op, "backend": title, "device": "cpu"}), base=lent)
        for op, title in backends.items()
    )
    planned = duel_plan(base=BASE, base_note=None)

    notes = _notes(planned=replace(planned, ops=(*planned.ops, *ops)))

    (note,) = [note for note in notes if "softmax@cuda" in sentence(note)]
    assert note.kind == "backend_unchecked"
    assert "softmax@cuda, softmax@cutile cannot run here, on cpu: check CUDA C++, cuTile on a GPU" in sentence(note)


def test_a_merge_request_that_edits_stored_baselines_is_told_so_before_all_else():
    files = ("baselines/h200/op.json", "thresholds/op.yaml")
    base = replace(BASE, changed_rules=files, changed_baselines=files[:1])

    edited = _notes(planned=duel_plan(base=base))
    proposed = _notes(planned=duel_plan(base=replace(base, proposed_on="perfci/nightly")))
    asked = _notes(planned=duel_plan(base=replace(base, how="asked")))

    assert _kinds(edited)[:2] == ["baselines_edited", "rules_changed"]
    assert "only the nightly job" in sentence(edited[0]) and files[0] in sentence(edited[0])
    # Anybody can give a branch that name, so it is reported there too.
    assert _kinds(proposed)[:2] == ["baselines_proposed", "rules_changed"]
    assert "perfci/nightly" in sentence(proposed[0])
    assert _kinds(asked)[0] == "rules_differ"


def _again(*cases):
    planned = duel_plan(base=replace(BASE, how="again"))
    return replace(planned, filter="*", again=Again("r1", tuple(AgainCase("op", *case) for case in cases)))


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
        assert f"perfci bisect op --case {CASE} --against aaaaaaaaaaaa" in sentence(kinds["slower_since"])


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
    judgements = judged(run(against(duelled(0.03, 0.03)), planned=planned))

    row = next(row for row in judgements.rows if row.case == CASE)
    told = next(reason for reason in row.reasons if reason.kind == kind)
    assert row.verdict is Verdict.REGRESSED
    assert words in sentence(told) and "+3.0 %" in sentence(told)
    assert f"perfci bisect op --case {CASE} --against aaaaaaaaaaaa" in sentence(told)
    assert [note.kind for note in judgements.notes[:2]] == ["compared_release", "boom"]


def test_a_case_with_the_files_of_its_own_commit_is_unchanged_although_its_op_is_not():
    held = AgainCase("op", CASE, "a" * 40, same=True)
    planned = replace(_again(), again=Again("", (held,), "v1"), skip_unchanged=True)
    (row,) = [row for row in judged(run(planned=planned)).rows if row.case == CASE]

    assert (row.verdict, row.reasons[0].kind) == (Verdict.UNCHANGED, "unchanged_files")


def test_an_op_that_is_timed_with_another_cache_than_before_is_named():
    planned = duel_plan()
    (op,) = planned.ops
    warm = replace(planned, ops=(replace(op, cache="warm"),))
    both = replace(planned, ops=(replace(op, cache="warm", base=replace(op.base, cache="warm")),))

    (note, *_) = _notes(planned=warm)

    assert note == Reason("cache_changed", {"op": "op", "cache": "warm", "before": "cold", "base": "origin/main"})
    assert "both revisions were timed with a cold L2 cache" in sentence(note)
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


def test_another_interpreter_of_the_base_is_named_and_makes_pins_no_matter():
    base = replace(BASE, python="/opt/old/bin/python", changed_pins=("uv.lock: triton 3.7 -> 3.8",))

    notes = _notes(planned=duel_plan(base=base))

    assert _kinds(notes) == ["compared_with_python"]
    assert "/opt/old/bin/python" in sentence(notes[0])


@pytest.mark.parametrize(("name", "told"), [("89abcdef01", "89abcdef01"), ("main", f"main {BASE.commit[:10]}")])
def test_a_base_that_is_named_by_its_commit_is_named_once(name, told):
    commit = BASE.commit if name == "main" else f"{name}{'0' * 30}"

    notes = _notes(planned=duel_plan(base=replace(BASE, name=name, commit=commit)))

    assert sentence(notes[0]).startswith(f"Compared with {told} (")


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


WRONG = check(failure=Reason("not_written", {"case": CASE, "count": 1, "index": "(0,)"}))
UNCHECKED = check(unchecked=Reason("too_large_here", {"case": CASE}))
CRASHED = {"failure": Reason("worker_killed", {"op": "op", "where": "accuracy", "words": "-", "log": "-"})}


@pytest.mark.parametrize(
    ("checks", "op", "told"),
    [
        ((check(),), {}, "Arguments are what they were, and 1 check passed."),
        ((check(), UNCHECKED), {}, "Arguments are what they were, and 1 check passed."),
        ((UNCHECKED,), {}, "Arguments are what they were. Whether answers are was not checked."),
        ((check(), WRONG), {}, None),
        ((), CRASHED, None),
        ((), {"late": Reason("op_late", {})}, None),
    ],
)  # fmt: skip
def test_the_kind_of_a_change_is_told_of_what_passed_only(checks, op, told):
    checked = run(accuracy=checks, planned=_changed("op"), op={"change": SuiteChange(), **op})

    assert _told(checked) == ([f"op: a change of its kernel's file. {told}"] if told else [])


def test_changes_of_one_kind_are_told_in_one_and_of_an_op_without_a_changed_file_nothing_is():
    one = run(accuracy=(check(),), planned=_changed("a", "b", "c", "d"), op={"change": SuiteChange()})
    ops = tuple(replace(one.ops[0], op=op) for op in ("a", "b", "c", "d", "same"))
    same = PlannedOp("same", (CASE,), (CASE,), base=PlannedBase(performance=(CASE,)))
    alike = replace(one, ops=ops, plan=replace(one.plan, ops=(*one.plan.ops, same)))

    assert _told(alike) == [
        "a; b; c; ...: a change of its kernel's file. Arguments are what they were, and 4 checks passed."
    ]


def test_an_op_of_which_only_files_of_others_changed_is_not_said_to_be_tuned():
    one = run(
        accuracy=(check(),), planned=_changed("op", changed="kernels/tiles/tiles.py"), op={"change": SuiteChange()}
    )

    proof = "Arguments are what they were, and 1 check passed."
    assert _told(one) == [f"op: a change of files that it imports from elsewhere. {proof}"]


def test_a_change_after_which_all_is_as_it_was_is_of_no_kind():
    case = against((), BaseArm(same=True))
    timed = replace(_changed("op"), suites=(Suite.PERFORMANCE,))
    same = run(case, accuracy=(), planned=timed, op={"change": SuiteChange()})

    assert _told(same) == []


def _changed(*ops, changed=None):
    bases = {op: PlannedBase(performance=(CASE,), changed=(changed or f"kernels/{op}/{op}_triton.py",)) for op in ops}
    return replace(duel_plan(), ops=tuple(PlannedOp(op, (CASE,), (CASE,), base=base) for op, base in bases.items()))


def _told(checked):
    notes = judge(checked, {}, Thresholds()).notes
    return [sentence(note) for note in notes if note.kind.startswith("change_")]


# --- what the base has and head has not -------------------------------------------------------------------------------


def _based(*cases, **options):
    op = PlannedOp("op", (CASE,), (CASE,), base=PlannedBase(performance=cases))
    return replace(duel_plan(), ops=(op,), **options)


def _removed(judgements):
    return [(row.case, row.reasons[0].kind) for row in judgements.rows if row.verdict is Verdict.REMOVED]


def test_cases_that_base_or_baseline_have_alone_are_removed_each_once():
    stored = baseline(CASE, "rows=1", "rows=2")
    measured = run(against(duelled(0.0, count=4)), planned=_based(CASE, "rows=1", "rows=3"))

    assert _removed(judged(measured, stored)) == [
        ("rows=1", "removed_since_base"),
        ("rows=3", "removed_since_base"),
        ("rows=2", "removed"),
    ]


def test_an_op_that_only_the_base_has_is_removed():
    rows = judged(run(against(duelled(0.0, count=4)), planned=_based(CASE, removed=("gelu",)))).rows

    (row,) = [row for row in rows if row.op == "gelu"]
    assert (row.verdict, row.case, row.suite) == (Verdict.REMOVED, None, Suite.PERFORMANCE)
    assert sentence(row.reasons[0]).startswith("origin/main has the op gelu and the change drops it")
