from dataclasses import replace

import pytest

from perfci.core.model.basics import Reason, Suite, Verdict
from perfci.core.model.compiled import Identity, KernelBinary, LaunchIdentity, Static, StaticCase, StaticOp
from perfci.core.model.place import OFFLINE
from perfci.core.model.run import Plan, PlannedBase, PlannedOp
from perfci.core.wording import sentence
from tests.decision_examples import BASE, judged, run

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
    told = "2 cases compile for sm_90: 2 kernels, at most 64 registers and 8 B of spills a thread."
    assert sentence(row.reasons[0]) == told


def test_a_kernel_that_does_not_compile_is_an_error_of_its_case_alone():
    broken, fine = _rows([_case(failure=BOOM), _case(_binary(), case=CASES[1])])

    assert (broken.case, broken.verdict, broken.reasons) == (CASES[0], Verdict.ERROR, (BOOM,))
    assert (fine.case, fine.verdict, fine.reasons[0].facts["cases"]) == (None, Verdict.PASS, 1)


def test_a_call_that_cannot_be_captured_is_inconclusive_and_says_why():
    row = _row(_case(unknown=BOOM))

    assert (row.verdict, _kinds(row)) == (Verdict.INCONCLUSIVE, ["identity_unknown", "boom"])


def test_kernels_of_a_target_without_registers_are_said_to_have_none_told_rather_than_nought():
    fresh = _row(_case(_binary(registers=None, spill_bytes=None, instructions=None)))
    same = _row(_case(_binary(registers=None)), same=True)

    assert (_kinds(fresh), _kinds(same)) == (["compiled_alone"], ["compiled_alone_unchanged"])
    assert "no tool here reports" in sentence(fresh.reasons[0])


def test_figures_that_no_tool_gives_are_said_to_be_missing():
    lacking = Reason("static_tool_missing", {"tools": "cuobjdump", "figures": "registers"})
    row = _row(_case(_binary(registers=None, instructions=None)), unavailable=lacking)

    assert (row.verdict, _kinds(row)) == (Verdict.PASS, ["compiled", "static_tool_missing"])


def _planned(code="old", **traits):
    """A kernel of an NPU, whose compiler plans its on-chip memory."""
    usual = {"ub_bytes": 65536, "barriers": 8, "double_buffers": 2, "unbuffered": 0}
    bare = {"registers": None, "spill_bytes": None, "instructions": None, "occupancy": None, "warps": None}
    return _binary(code=code, **bare, shared_bytes=traits.get("ub_bytes", 65536), traits=usual | traits)


def test_a_plan_of_on_chip_memory_is_told_with_what_was_not_asked():
    told = Reason("npu_to_hivm", {"compiler": "ascendnpu-ir 1.2.0", "target": "sm_90"})
    row = _row(_case(_planned()), unavailable=told)
    same = _row(_case(_planned()), same=True, unavailable=told)

    assert (_kinds(row), _kinds(same)) == (
        ["compiled_on_chip", "npu_to_hivm"],
        ["compiled_on_chip_unchanged", "npu_to_hivm"],
    )
    assert "at most 64.0 KiB in a vector core's memory (UB) and 8 barriers" in sentence(row.reasons[0])


def test_a_kernel_that_lost_all_its_double_buffers_is_worse_and_one_that_lost_some_is_not():
    lost = _row(_case(_planned("new", double_buffers=0)), _case(_planned()))
    fewer = _row(_case(_planned("new", double_buffers=1)), _case(_planned()))

    assert (lost.verdict, lost.reasons[0].facts["option"]) == (Verdict.REGRESSED, "double_buffers")
    assert fewer.verdict is Verdict.PASS
    assert "2 double buffers" in sentence(next(reason for reason in fewer.reasons if reason.kind == "compiled_changed"))


@pytest.mark.parametrize(("limit", "traits"), [("barriers", {"barriers": 9}), ("shared_memory", {"l1_bytes": 4096})])
def test_more_barriers_and_more_on_chip_memory_are_limited_if_somebody_wrote_a_limit(limit, traits):
    free = _row(_case(_planned("new", **traits)), _case(_planned()))
    held = _row(_case(_planned("new", **traits)), _case(_planned()), {limit: 0.0})

    assert (free.verdict, held.verdict) == (Verdict.PASS, Verdict.REGRESSED)
    assert held.reasons[0].facts["option"] == limit


def test_a_new_kernel_that_fits_only_without_double_buffering_says_so():
    row = _row(_case(_planned(double_buffers=0, unbuffered=1)))

    assert (row.verdict, _kinds(row)) == (Verdict.PASS, ["compiled_unbuffered"])


# --- against the base -------------------------------------------------------------------------------------------------


def test_the_same_files_are_unchanged_without_the_base_being_compiled():
    row = _row(_case(_binary()), same=True)

    assert (row.verdict, _kinds(row)) == (Verdict.UNCHANGED, ["compiled_unchanged"])


def test_the_same_files_whose_launches_were_not_seen_are_not_said_to_launch_the_same():
    (row,) = _rows([_case(unknown=BOOM), _case(_binary(), case=CASES[1])], same=True)

    assert (row.verdict, _kinds(row)) == (Verdict.UNCHANGED, ["compiled_same_files"])
    assert sentence(row.reasons[0]).startswith("2 cases have the files of the base. Not all of their launches")


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


def _filtered():
    op = PlannedOp("op", (), CASES, base=PlannedBase())
    return Plan((op,), 1, 1.0, OFFLINE, (Suite.PERFORMANCE,), filter="rows=1", base=BASE)


def test_a_case_that_only_the_base_has_is_removed_unless_a_filter_left_it_out():
    base = [_case(_binary()), _case(_binary(), case="rows=9")]

    rows = _rows([_case(_binary())], base)

    assert [(row.case, row.verdict) for row in rows] == [(None, Verdict.UNCHANGED), ("rows=9", Verdict.REMOVED)]
    assert len(_rows([_case(_binary())], base, planned=_filtered())) == 1


def test_a_base_that_does_not_compile_is_said_and_fails_nothing():
    why = Reason("compile_failed", {"kernel": "_k", "target": "sm_90", "message": "no", "file": "k.py", "line": 3})

    row = _row(_case(_binary()), _case(failure=why))

    assert (row.verdict, _kinds(row)) == (Verdict.PASS, ["base_uncompiled"])
    assert "_k does not compile for sm_90" in sentence(row.reasons[0])


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
        ("spill_bytes", 8.0, 4, 12, 13),
        ("local_bytes", 8.0, 4, 12, 13),
        ("asynchronous", 0.5, 8, 4, 3),
        ("tensor", 0.5, 8, 4, 3),
        ("warpgroup", 0.5, 8, 4, 3),
    ],
)
def test_each_figure_can_be_gated_and_is_not_otherwise(gate, allowed, before, within, beyond):
    traits = {"asynchronous": "asynchronous_copies", "tensor": "tensor_instructions"}
    traits |= {"warpgroup": "warpgroup_instructions"}
    field = {"shared_memory": "shared_bytes"}.get(gate, gate)

    def binary(value, **more):
        return _binary(**more, **({"traits": {trait: value}} if trait in traits else {field: value}))

    def verdict(now, **limits):
        return _row(_case(binary(now, code="new")), _case(binary(before)), limits)

    gate = traits.get(trait := gate, gate)

    assert verdict(beyond).verdict is Verdict.PASS
    assert verdict(within, **{gate: allowed}).verdict is Verdict.PASS
    failed = verdict(beyond, **{gate: allowed})
    assert (failed.verdict, failed.reasons[0].kind) == (Verdict.REGRESSED, "compiled_grew")
    assert failed.reasons[0].facts["option"] == gate


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


def test_a_gate_that_cannot_look_says_so():
    row = _row(_case(_binary(code="new", instructions=None)), _case(_binary()), {"instructions": 0.1})

    assert (row.verdict, _kinds(row)) == (Verdict.INCONCLUSIVE, ["compiled_unseen", "compiled_changed", "code_changed"])
    assert "there is no figure for instructions" in sentence(row.reasons[0])


def test_a_call_that_was_captured_in_part_is_gated_by_what_was_seen():
    partly = _case(_binary(code="new", registers=80), unknown=BOOM)

    grown, not_gated = (_row(partly, _case(_binary()), limits) for limits in ({"registers": 0.1}, {}))

    assert (grown.verdict, _kinds(grown)) == (Verdict.REGRESSED, ["compiled_grew", "boom"])
    assert (not_gated.verdict, _kinds(not_gated)) == (Verdict.INCONCLUSIVE, ["identity_unknown", "boom"])


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"spill_bytes": 0}, {"spill_bytes": 4}),
        ({"local_bytes": 0}, {"local_bytes": 4}),
        ({"occupancy": 0.75}, {"occupancy": 0.375}),
        ({"traits": {"double": 0}}, {"traits": {"double": 1}}),
        ({"traits": {"tensor": 8}}, {"traits": {"tensor": 0}}),
        ({"traits": {"tensor": 8, "warpgroup": 8}}, {"traits": {"tensor": 16, "warpgroup": 0}}),
    ],
)
def test_what_is_nearly_never_meant_fails_without_any_key(before, now):
    row = _row(_case(_binary(code="new", **now)), _case(_binary(**before)))

    assert (row.verdict, row.reasons[0].kind) == (Verdict.REGRESSED, "compiled_grew")
    assert _row(_case(_binary(code="new", **before)), _case(_binary(**now))).verdict is Verdict.PASS


def test_more_of_what_the_base_has_fails_only_beyond_a_key():
    for few, more in (
        ({"spill_bytes": 8}, {"spill_bytes": 16}),
        ({"traits": {"double": 8}}, {"traits": {"double": 16}}),
    ):
        assert _row(_case(_binary(code="new", **more)), _case(_binary(**few))).verdict is Verdict.PASS


@pytest.mark.parametrize("tuned", [{"warps": 8}, {"stages": 4}, {"arguments": {"BLOCK": "128", "x": "#0 float16[8]"}}])
def test_an_occupancy_that_another_configuration_halves_is_meant(tuned):
    def case(occupancy, code, **launch):
        case = _case(_binary(code=code, occupancy=occupancy))
        usual = {"warps": 4, "stages": 2, "arguments": {"BLOCK": "64", "x": "#1 float16[8]"}}
        launches = (replace(case.identity.launches[0], **(usual | launch)),)
        return replace(case, identity=replace(case.identity, launches=launches))

    assert _row(case(0.25, "new", **tuned), case(0.75, "old")).verdict is Verdict.PASS
    assert _row(case(0.25, "new"), case(0.75, "old")).verdict is Verdict.REGRESSED
    assert _row(case(0.25, "new", **tuned), case(0.75, "old"), {"occupancy": 0.5}).verdict is Verdict.REGRESSED


def test_a_figure_that_nobody_limits_may_be_missing():
    row = _row(_case(_binary(code="new", spill_bytes=None)), _case(_binary()))

    assert row.verdict is Verdict.PASS
