from dataclasses import replace

import pytest

from perfci.core.model import (
    Identity,
    KernelBinary,
    LaunchIdentity,
    Plan,
    PlannedBase,
    PlannedOp,
    Reason,
    Static,
    StaticCase,
    StaticOp,
    Suite,
    Verdict,
)
from perfci.core.wording import sentence
from perfci.judge import judge
from perfci.judge.static import OFFLINE
from perfci.thresholds.limits import CaseThresholds, OpThresholds, Thresholds
from tests.decision_examples import BASE, blocks, judged, plan, run

BOOM = Reason("boom", {"what": "it broke"})
CASES = ("rows=1", "rows=2")


def _binary(name="_k", code="old", **figures):
    usual = {
        "registers": 40,
        "spill_bytes": 0,
        "shared_bytes": 1024,
        "instructions": 200,
        "occupancy": 0.75,
        "warps": 4,
    }
    return KernelBinary(name, code, **(usual | figures))


def _case(*binaries, case=CASES[0], unknown=None, failure=None):
    launches = tuple(LaunchIdentity(one.name, one.artefact, (8,)) for one in binaries)
    return StaticCase(case, Identity(launches=launches, inputs="digest", unknown=unknown), binaries, failure)


def _run(head, base=(), *, same=False, planned=None, **options):
    """A run that only compiles: one op's cases, and the base's where they differ."""
    ops = (StaticOp("op", "sm_90", tuple(head), **options),)
    base_ops = base if isinstance(base, StaticOp) else StaticOp("op", "sm_90", tuple(base))
    static = Static(("sm_90",), "triton 3.7.1", ops, (base_ops,) if base else ())
    known = PlannedBase(same=same) if base or same else None
    only = Plan((PlannedOp("op", (), CASES, base=known),), 1, 1.0, OFFLINE, (Suite.PERFORMANCE,), base=known and BASE)
    return replace(run(planned=planned or only), ops=(), static=static)


def _rows(head, base=(), limits=None, **options):
    return judged(_run(head, base, **options), **(limits or {})).rows


def _row(head, base=(), limits=None, **options):
    (row,) = _rows([head], [base] if isinstance(base, StaticCase) else base, limits, **options)
    return row


def _kinds(row):
    return [reason.kind for reason in row.reasons]


# --- without a base ---------------------------------------------------------------------------------------------------


def test_cases_that_compile_are_one_row_with_what_the_compiler_made():
    (row,) = _rows([_case(_binary()), _case(_binary(code="new", registers=64, spill_bytes=8), case=CASES[1])])

    assert (row.suite, row.case, row.target, row.verdict) == (Suite.COMPILED, None, "sm_90", Verdict.PASS)
    assert sentence(row.reasons[0]) == "2 cases compile for sm_90: 2 kernels, at most 64 registers, 1 with spills."


def test_a_kernel_that_does_not_compile_is_an_error_of_its_case_alone():
    broken, fine = _rows([_case(failure=BOOM), _case(_binary(), case=CASES[1])])

    assert (broken.case, broken.verdict, broken.reasons) == (CASES[0], Verdict.ERROR, (BOOM,))
    assert (fine.case, fine.verdict, fine.reasons[0].facts["cases"]) == (None, Verdict.PASS, 1)


def test_an_op_that_does_not_import_is_one_error():
    (row,) = _rows([], failure=BOOM)

    assert (row.case, row.verdict, row.reasons) == (None, Verdict.ERROR, (BOOM,))


def test_a_call_that_cannot_be_captured_is_inconclusive_and_says_why():
    row = _row(_case(unknown=BOOM))

    assert (row.verdict, _kinds(row)) == (Verdict.INCONCLUSIVE, ["identity_unknown", "boom"])


def test_kernels_of_a_target_without_registers_are_said_to_have_none_told_rather_than_nought():
    fresh = _row(_case(_binary(registers=None, spill_bytes=None, instructions=None)))
    same = _row(_case(_binary(registers=None)), same=True)

    assert (_kinds(fresh), _kinds(same)) == (["compiled_alone"], ["compiled_alone_unchanged"])
    assert "no tool here reports" in sentence(fresh.reasons[0])


def test_figures_that_no_tool_gives_are_said_to_be_missing():
    row = _row(_case(_binary(registers=None, instructions=None)), unavailable=BOOM)

    assert (row.verdict, _kinds(row)) == (Verdict.PASS, ["compiled", "boom"])


def test_a_run_that_only_compiles_has_no_rows_about_what_it_does_not_time():
    assert {row.suite for row in _rows([_case(_binary())])} == {Suite.COMPILED}
    assert {row.suite for row in _rows([_case(_binary())], same=True)} == {Suite.COMPILED}


def test_a_run_that_measures_and_compiles_has_both():
    static = Static(("sm_90",), "triton 3.7.1", (StaticOp("op", "sm_90", (_case(_binary()),)),))

    rows = judged(replace(run(blocks(), planned=plan()), static=static)).rows

    assert [row.suite for row in rows] == [Suite.ACCURACY, Suite.PERFORMANCE, Suite.COMPILED]


# --- against the base -------------------------------------------------------------------------------------------------


def test_the_same_files_are_unchanged_without_the_base_being_compiled():
    row = _row(_case(_binary()), same=True)

    assert (row.verdict, _kinds(row)) == (Verdict.UNCHANGED, ["compiled_unchanged"])


def test_files_that_differ_but_do_the_same_are_unchanged():
    row = _row(_case(_binary()), _case(_binary()))

    assert (row.verdict, _kinds(row)) == (Verdict.UNCHANGED, ["compiled_unchanged"])


def test_the_same_files_do_not_excuse_a_kernel_that_does_not_compile():
    assert _row(_case(failure=BOOM), same=True).verdict is Verdict.ERROR


def test_a_kernel_that_changed_passes_with_figures_and_changes():
    row = _row(_case(_binary(code="new", registers=48)), _case(_binary()))

    assert (row.verdict, _kinds(row)) == (Verdict.PASS, ["compiled_changed", "code_changed"])
    assert sentence(row.reasons[0]) == (
        "The compiled kernel changed from _k: 40 registers, 0 B spilled, 1024 B shared, 200 instructions, "
        "occupancy 75 % to _k: 48 registers, 0 B spilled, 1024 B shared, 200 instructions, occupancy 75 %."
    )


def test_other_code_with_the_same_figures_is_told_by_its_instructions_of_each_class():
    head, base = _binary(code="new", mix={"memory": 12, "integer": 8}), _binary(mix={"memory": 10, "integer": 8})

    row = _row(_case(head), _case(base))

    assert (row.verdict, _kinds(row)) == (Verdict.PASS, ["compiled_mix_changed", "code_changed"])
    assert (row.reasons[0].facts["before"], row.reasons[0].facts["after"]) == ("old", "new")
    assert row.reasons[0].facts["mix"] == "memory 10 -> 12"


def test_nothing_is_told_of_figures_that_did_not_change():
    head, base = _case(_binary()), _case(_binary())
    launched = replace(head.identity, launches=(replace(head.identity.launches[0], grid=(16,)),))

    assert _kinds(_row(replace(head, identity=launched), base)) == ["launch_changed"]
    assert _kinds(_row(_case(_binary(code="new")), base)) == ["code_changed"]


def test_kernels_whose_code_is_the_same_are_left_out_of_what_changed():
    same = _binary("_same", "same")

    row = _row(_case(same, _binary(code="new", registers=48)), _case(same, _binary()))

    assert "_same" not in sentence(row.reasons[0])


def test_changed_and_unchanged_cases_of_an_op_are_told_apart():
    head = [_case(_binary(code="new")), _case(_binary(), case=CASES[1])]
    base = [_case(_binary()), _case(_binary(), case=CASES[1])]

    changed, fine = _rows(head, base)

    assert (changed.case, changed.verdict) == (CASES[0], Verdict.PASS)
    assert (fine.case, fine.verdict, fine.reasons[0].facts["cases"]) == (None, Verdict.UNCHANGED, 1)


def test_a_case_that_the_base_lacks_compiles_and_that_is_all():
    row = _row(_case(_binary()), [_case(_binary(), case=CASES[0] + "0")], planned=_filtered())

    assert (row.verdict, _kinds(row)) == (Verdict.PASS, ["compiled"])


def _filtered():
    op = PlannedOp("op", (), CASES, base=PlannedBase())
    return Plan((op,), 1, 1.0, OFFLINE, (Suite.PERFORMANCE,), filter="rows=1", base=BASE)


def test_a_case_that_only_the_base_has_is_removed_unless_a_filter_left_it_out():
    base = [_case(_binary()), _case(_binary(), case="rows=9")]

    rows = _rows([_case(_binary())], base)

    assert [(row.case, row.verdict) for row in rows] == [(None, Verdict.UNCHANGED), ("rows=9", Verdict.REMOVED)]
    assert len(_rows([_case(_binary())], base, planned=_filtered())) == 1


def test_a_run_that_measures_leaves_removed_cases_to_what_it_measures():
    base = [_case(_binary()), _case(_binary(), case="rows=9")]
    measuring = replace(_run([_case(_binary())], base), plan=plan())

    assert Verdict.REMOVED not in {row.verdict for row in judged(measuring).rows if row.suite is Suite.COMPILED}


def test_a_base_that_does_not_compile_is_said_and_fails_nothing():
    why = Reason("compile_failed", {"kernel": "_k", "target": "sm_90", "message": "no", "file": "k.py", "line": 3})

    row = _row(_case(_binary()), _case(failure=why))

    assert (row.verdict, _kinds(row)) == (Verdict.PASS, ["base_uncompiled"])
    assert "_k does not compile for sm_90" in sentence(row.reasons[0])


def test_a_base_that_does_not_import_is_said_and_fails_nothing():
    why = Reason("import_failed", {"suite": "op", "error": "E", "message": "no", "file": "op.py", "line": 3})

    row = _row(_case(_binary()), StaticOp("op", "sm_90", failure=why))

    assert (row.verdict, _kinds(row)) == (Verdict.PASS, ["compiled", "base_uncompiled"])
    assert "op does not import" in sentence(row.reasons[1])


def test_each_target_is_held_against_its_own():
    static = _run([_case(_binary())], [_case(_binary())]).static
    other = StaticOp("op", "gfx942", (_case(_binary(code="new")),))
    static = replace(
        static, ops=(*static.ops, other), base_ops=(*static.base_ops, replace(static.base_ops[0], target="gfx942"))
    )

    rows = judged(replace(_run([_case(_binary())], [_case(_binary())]), static=static)).rows

    assert [(row.target, row.verdict) for row in rows] == [("sm_90", Verdict.UNCHANGED), ("gfx942", Verdict.PASS)]


# --- gates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "allowed", "before", "within", "beyond"),
    [
        ("registers", 0.1, 40, 44, 45),
        ("registers", 0.0, 40, 40, 41),
        ("instructions", 0.1, 200, 220, 221),
        ("shared_memory", 0.0, 1024, 1024, 1025),
        ("shared_memory", 0.5, 0, 0, 16),
        ("occupancy", 0.25, 0.75, 0.5625, 0.5),
        ("occupancy", 0.0, 0.75, 1.0, 0.7),
        ("spill_bytes", 0.0, 0, 0, 4),
        ("spill_bytes", 8.0, 4, 12, 13),
    ],
)
def test_each_figure_can_be_gated_and_is_not_otherwise(gate, allowed, before, within, beyond):
    field = {"shared_memory": "shared_bytes"}.get(gate, gate)

    def verdict(now, **limits):
        return _row(_case(_binary(code="new", **{field: now})), _case(_binary(**{field: before})), limits)

    assert verdict(beyond).verdict is Verdict.PASS
    assert verdict(within, **{gate: allowed}).verdict is Verdict.PASS
    failed = verdict(beyond, **{gate: allowed})
    assert (failed.verdict, failed.reasons[0].kind) == (Verdict.REGRESSED, "compiled_grew")
    assert failed.reasons[0].facts["option"] == gate


@pytest.mark.parametrize(
    ("gate", "allowed", "figures", "words"),
    [
        ("registers", 0.1, {"registers": 60}, "registers went from 40 to 60, and {} allows 10.0 % more"),
        ("occupancy", 0.1, {"occupancy": 0.5}, "occupancy went from 75.0 % to 50.0 %, and {} allows 10.0 % less"),
        ("spill_bytes", 8.0, {"spill_bytes": 16}, "spill bytes went from 0 to 16, and {} allows 8 B more"),
    ],
)
def test_what_grew_is_told_with_the_key_that_allows_more(gate, allowed, figures, words):
    row = _row(_case(_binary(code="new", **figures)), _case(_binary()), {gate: allowed})

    assert words.format(f"{gate} in thresholds/") in sentence(row.reasons[0])
    assert _kinds(row) == ["compiled_grew", "code_changed"]


def test_every_figure_that_grew_is_told():
    grown = _binary(code="new", registers=80, spill_bytes=64, occupancy=0.25)

    row = _row(_case(grown), _case(_binary()), {"registers": 0.1, "spill_bytes": 0.0, "occupancy": 0.1})

    assert [reason.facts.get("option") for reason in row.reasons] == ["registers", "spill_bytes", "occupancy", None]


def test_another_name_does_not_hide_what_grew():
    row = _row(_case(_binary("_renamed", "new", registers=80)), _case(_binary()), {"registers": 0.1})

    assert row.verdict is Verdict.REGRESSED


def test_of_several_kernels_each_is_held_against_its_own():
    head = _case(
        _binary("_a", "a", registers=32), _binary("_b", "new", registers=100), _binary("_b", "b", registers=200)
    )
    base = _case(
        _binary("_b", "b", registers=200), _binary("_a", "a", registers=32), _binary("_b", "old", registers=96)
    )

    assert _row(head, base, {"registers": 0.1}).verdict is Verdict.PASS
    (first, *_) = _row(head, base, {"registers": 0.0}).reasons
    assert (first.facts["kernel"], first.facts["before"], first.facts["after"]) == ("_b", "96", "100")


def test_a_kernel_more_is_no_growth_of_another():
    head = _case(_binary(), _binary("_extra", "extra", registers=255))

    row = _row(head, _case(_binary()), {"registers": 0.0})

    assert (row.verdict, _kinds(row)) == (Verdict.PASS, ["compiled_changed", "launches_changed"])


def test_thresholds_of_a_case_hold_for_that_case():
    limits = Thresholds(
        CaseThresholds(registers=0.0), {"op": OpThresholds(CaseThresholds(), ((CASES[0], {"registers": 1.0}),))}
    )
    found = _run([_case(_binary(code="new", registers=60))], [_case(_binary())])

    assert judge(found, {}, limits).rows[0].verdict is Verdict.PASS
    assert judge(found, {}, replace(limits, ops={})).rows[0].verdict is Verdict.REGRESSED


def test_a_gate_that_cannot_look_says_so():
    row = _row(_case(_binary(code="new", instructions=None)), _case(_binary()), {"instructions": 0.1})

    assert (row.verdict, _kinds(row)) == (Verdict.INCONCLUSIVE, ["compiled_unseen", "compiled_changed", "code_changed"])
    assert "there is no figure for instructions" in sentence(row.reasons[0])


def test_a_gate_need_not_look_at_code_that_is_the_same():
    blind = _binary(instructions=None)
    head = _case(blind, _binary("_b", "new"))

    row = _row(head, _case(blind, _binary("_b", "old")), {"instructions": 0.1})

    assert row.verdict is Verdict.PASS


def test_a_call_that_was_captured_in_part_is_gated_by_what_was_seen():
    partly = _case(_binary(code="new", registers=80), unknown=BOOM)

    grown, not_gated = (_row(partly, _case(_binary()), limits) for limits in ({"registers": 0.1}, {}))

    assert (grown.verdict, _kinds(grown)) == (Verdict.REGRESSED, ["compiled_grew", "boom"])
    assert (not_gated.verdict, _kinds(not_gated)) == (Verdict.INCONCLUSIVE, ["identity_unknown", "boom"])
