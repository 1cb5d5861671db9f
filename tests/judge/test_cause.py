"""What is named as the cause of slower cases, and as the pattern of wrong answers, from records alone."""

import pytest

from perfci.core.model.basics import Reason, Suite, Verdict
from perfci.core.model.compiled import Identity
from perfci.core.model.measured import AccuracyCase, BaseArm, CompiledKernel, PerformanceCase
from perfci.core.wording import sentence
from perfci.device.arrays import Damage
from perfci.judge.accuracy import find_pattern
from perfci.judge.cause import describe_choices, find_causes
from tests.decision_examples import duel_plan, duelled, judged, run


def case(name, before=None, now=None, *, same=False, changes=()):
    """A case with a kernel that was compiled from `before` to `now`, dictionaries of CompiledKernel's fields."""
    compiled = [(CompiledKernel("k", **one),) if one else () for one in (before, now)]
    return PerformanceCase(name, compiled=compiled[1], base=BaseArm(same=same, compiled=compiled[0], changes=changes))


STAGES = {"stages": 4, "shared_bytes": 2048}, {"stages": 3, "shared_bytes": 1024}
SAME = {"same": True}


def test_what_slower_cases_share_and_others_lack_is_the_cause():
    slow = [case("n=1", *STAGES), case("n=2", *STAGES)]

    causes = find_causes(slow, [case("n=3", **SAME), case("n=4", {"stages": 5}, {"stages": 4})])

    assert {name: sentence(why) for name, why in causes.items()} == dict.fromkeys(
        ("n=1", "n=2"),
        "The likely cause is that num_stages went from 4 to 3: all of these cases have it, and none that kept its "
        "time.",
    )


@pytest.mark.parametrize("calm", [[], [case("n=3", *STAGES)], [PerformanceCase("n=3")]])
def test_what_nothing_speaks_for_is_called_a_coincidence(calm):
    (why,) = find_causes([case("n=1", *STAGES)], calm).values()

    assert (why.kind, why.facts["name"]) == ("cause_with", "num_stages")


def test_what_only_some_of_the_cases_have_is_no_cause_of_the_others():
    tiles = case("n=2", {"constants": "BLOCK=64"}, {"constants": "BLOCK=128"})

    causes = find_causes([case("n=1", *STAGES), tiles], [case("n=3", **SAME)])

    assert [why.facts["name"] for why in causes.values()] == ["num_stages", "BLOCK"]


def test_a_new_grid_follows_from_the_tiles_and_a_register_count_from_all_else():
    grid = Reason("launch_changed", {"what": "grid", "before": "(8,)", "after": "(4,)", "kernel": "k"})
    before, now = {"registers": 32, "constants": "BLOCK=64"}, {"registers": 64, "constants": "BLOCK=128"}

    (tiles,) = find_causes([case("n=1", before, now, changes=(grid,))], [case("n=3", **SAME)]).values()
    (alone,) = find_causes([case("n=1", {"registers": 32}, {"registers": 64})], [case("n=3", **SAME)]).values()

    assert (tiles.facts["name"], tiles.facts["more"]) == ("BLOCK", "")
    assert (alone.kind, alone.facts["name"]) == ("cause_with", "registers of a thread")


def test_what_has_other_values_in_each_case_is_one_cause_all_the_same():
    """A grid follows the size of a case, and so do tiles that are chosen by it."""
    slow = [case(f"n={n}", same=False, changes=(
        Reason("launch_changed", {"what": "grid", "before": f"({n},)", "after": f"({n // 2},)", "kernel": "k"}),
    )) for n in (8, 16, 32, 64)]  # fmt: skip

    causes = find_causes(slow, [case("n=3", **SAME)])

    assert len(causes) == 4
    (why,) = set(map(sentence, causes.values()))
    assert "the grid went from (8,) / (16,) / (32,) / ... to (4,) / (8,) / (16,) / ...:" in why


def test_a_case_that_kept_its_time_with_the_same_change_speaks_against_all_that_it_is_one_of():
    slow = [case(f"n={n}", {"constants": f"BLOCK={n}"}, {"constants": f"BLOCK={2 * n}"}) for n in (64, 128)]

    causes = find_causes(slow, [case("n=3", {"constants": "BLOCK=128"}, {"constants": "BLOCK=256"})])

    assert {why.kind for why in causes.values()} == {"cause_with"}


def test_registers_that_begin_to_spill_are_a_cause():
    spills = {"registers": 255, "spills": 0}, {"registers": 255, "spills": 64}

    (why,) = find_causes([case("n=1", *spills)], [case("n=3", **SAME)]).values()

    assert (why.kind, why.facts["before"], why.facts["after"]) == ("cause_since", "0 B", "64 B")


def test_a_second_kernel_is_named():
    counted = Reason("launches_changed", {"before": "k", "after": "k, zero", "count": 1, "now": 2})

    (why,) = find_causes([case("n=1", changes=(counted,))], [case("n=3", **SAME)]).values()

    assert why.facts == {"name": "the number of launches a call", "before": "1", "after": "2", "more": ""}


@pytest.mark.parametrize(("after", "named"), [("aten.zeros([4])", ["aten.zeros"]), ("aten.empty([4])", [])])
def test_another_operation_of_torch_is_a_cause_and_other_arguments_of_it_are_none(after, named):
    """Most arguments are sizes, which differ from case to case."""
    changed = Reason("operations_changed", {"before": "aten.empty([2])", "after": after, "count": 1, "now": 1})

    causes = find_causes([case("n=1", changes=(changed,))], [case("n=3", **SAME)])

    assert [why.facts["after"] for why in causes.values()] == named


def test_a_case_without_a_base_has_no_cause():
    assert find_causes([PerformanceCase("n=1"), case("n=2")], [case("n=3", **SAME)]) == {}


def test_slower_cases_of_a_run_have_their_cause_as_their_last_reason():
    slow, calm = case("n=1", *STAGES), case("n=2", {"stages": 5}, {"stages": 4})
    cases = [
        PerformanceCase(cases.case, blocks=duelled(*change), compiled=cases.compiled,
                        base=BaseArm(same=False, duelled=True, compiled=cases.base.compiled))
        for cases, change in ((slow, (0.05, 0.05)), (calm, (0.0,)))
    ]  # fmt: skip

    judgements = judged(run(*cases, planned=duel_plan("n=1", "n=2")))

    rows = {row.case: row for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    assert rows["n=1"].verdict is Verdict.REGRESSED
    assert rows["n=1"].reasons[-1].kind == "cause_since"
    assert not any(reason.kind.startswith("cause") for reason in rows["n=2"].reasons)


def checks(broken, *, rows=(64,), cols=(1, 127, 128, 1000, 1024), dtypes=("float32", "bfloat16"), **wrong):
    """Checks of a grid. broken: which are wrong, by (n, dtype, values, layout). wrong: (m, n) -> facts of a failure."""
    made = []
    for m, n, dtype in ((m, n, dtype) for m in rows for n in cols for dtype in dtypes):
        for values, layout in (("normal", "contiguous"), ("nan", "contiguous"), ("normal", "strided")):
            facts = {"count": m * n, "size": m * n, "index": f"({m // 3}, {n // 3})"}
            facts |= {name: make(m, n) for name, make in wrong.items()}
            failure = Reason("wrong_values", facts) if broken(n, dtype, values, layout) else None
            made.append(AccuracyCase(f"m={m},n={n},dtype={dtype}", values, layout, 1, failure=failure))
    return made


def tail(n):
    return n % 128 or 1


@pytest.mark.parametrize(
    ("broken", "wrong", "told"),
    [
        (lambda n, *_: n == 1000, {"left_out": lambda m, n: "n", "left": lambda m, n: tail(n)},
         "op answers as if the end of n were left out, up to 104 elements: check the mask and the grid."),
        (lambda *_: True, {}, "op is wrong for every size and dtype: check the formula."),
        (lambda n, dtype, *_: dtype == "bfloat16", {},
         "op is wrong for bfloat16 alone: check the casts, and the dtype that it sums in."),
        (lambda n, *_: n == 1000, {"index": lambda m, n: f"(3, {n - 2})", "count": lambda m, n: m * tail(n)},
         "op is wrong only in the last block along n: check the mask, and for an end that is one off."),
        (lambda n, *_: n in {128, 1024}, {"index": lambda m, n: f"(3, {n - 1})", "count": lambda m, n: m},
         "op is wrong only in the last block along n: check the mask, and for an end that is one off."),
        (lambda n, *_: n % 128, {},
         "op is wrong only for sizes that fill no whole block (n=1, 127, 1000): check the mask."),
        (lambda n, *_: n >= 1000, {},
         "op is wrong only from n=1000 on: check what does not fit one block, and the later turns of loops."),
        (lambda n, *_: n < 128, {}, "op is wrong only up to n=127: check what fills no block."),
        (lambda n, dtype, values, layout: layout == "strided", {},
         "op is wrong only for inputs that are strided: check the strides."),
        (lambda n, dtype, values, layout: values == "nan", {},
         "op is wrong only for values of the kind nan: check what the formula does at its limits."),
    ],
)  # fmt: skip
def test_the_pattern_of_wrong_answers_is_named(broken, wrong, told):
    assert sentence(find_pattern("op", checks(broken, **wrong))) == told


def test_the_last_rows_are_told_from_the_last_columns():
    wrong = {"index": lambda m, n: f"({m - 1}, 3)", "count": lambda m, n: n * (m % 32)}

    pattern = find_pattern("op", checks(lambda *_: True, rows=(100, 33), cols=(64, 128), **wrong))

    assert (pattern.kind, pattern.facts["name"]) == ("pattern_end", "m")


def test_a_parameter_that_has_several_numbers_hides_no_other_one():
    wrong = [Reason("wrong_values", {"count": 3, "size": 600, "index": "(0, 2, 99)"}),
             Reason("wrong_values", {"count": 7, "size": 3300, "index": "(4, 99)"})]  # fmt: skip
    cases = [f"rows={rows},n=100" for rows in ("(2;3)", "33", "1")]

    pattern = find_pattern("op", [AccuracyCase(case, "normal", "contiguous", 1, failure=failure)
                          for case, failure in zip(cases, [*wrong, None], strict=True)])  # fmt: skip

    assert (pattern.kind, pattern.facts["name"]) == ("pattern_end", "n")


def test_answers_that_lack_the_end_of_an_axis_are_told_if_all_that_can_tell_say_so():
    """A case of one column, and one of as many rows as columns, cannot."""

    def find(*cols, **other):
        left_out = {n: "n" for n in cols if n not in {1, 64}} | {int(n[1:]): name for n, name in other.items()}
        wrong = {"left_out": lambda m, n: left_out.get(n, ""), "left": lambda m, n: 1}
        return find_pattern("op", checks(lambda *_: True, cols=cols, **wrong))

    lacking = find(1, 31, 64)
    assert (lacking.kind, lacking.facts["name"], lacking.facts["most"]) == ("pattern_left_out", "n", 1)
    assert find(31, 33, n33="").kind == "pattern_everywhere"
    assert find(31, 33, n33="m").kind == "pattern_everywhere"


@pytest.mark.parametrize(
    ("cols", "dtypes", "told"),
    [
        ((31,), ("float32",), "op is wrong at m=64,n=31,dtype=float32, the only case that was checked:"),
        ((31, 64), ("float32",), "op is wrong in all of its 2 cases: check the formula."),
        ((31,), ("float32", "float16"), "op is wrong in all of its 2 cases: check the formula."),
    ],
)
def test_every_size_and_dtype_is_said_of_several_of_both_alone(cols, dtypes, told):
    pattern = find_pattern("op", checks(lambda *_: True, cols=cols, dtypes=dtypes))

    assert sentence(pattern).startswith(told)


@pytest.mark.parametrize("kind", ["wrong_type", "wrong_dtype", "input_changed", "output_reused"])
def test_what_is_no_matter_of_values_blames_no_formula(kind):
    made = [AccuracyCase(f"n={n},dtype={dtype}", "normal", "contiguous", 0, failure=Reason(kind))
            for n in (1, 2) for dtype in ("float16", "float32")]  # fmt: skip

    assert find_pattern("op", made) is None


def test_damaged_guard_zones_are_told_before_the_races_that_they_cause_with_the_farthest():
    kinds = ("race", "used_outside", "not_written", "wrong_values")
    made = [AccuracyCase("n=1", "normal", "contiguous", at, failure=Reason(kind)) for at, kind in enumerate(kinds)]
    damaged = [
        AccuracyCase("n=2", "normal", "contiguous", far, failure=Reason("wrote_outside", Damage(1, after=far).facts))
        for far in (1, 3, 2)
    ]

    told = "op writes outside its arrays, up to 3 elements past the end: check the mask, the strides and the grid."
    assert sentence(find_pattern("op", [*made, *damaged])) == told
    assert find_pattern("op", made[:2]).kind == "pattern_strays"


@pytest.mark.parametrize("kind", ["race", "differs_from_itself"])
def test_answers_that_differ_from_launch_to_launch_are_a_race_whatever_else_is_wrong(kind):
    raced = AccuracyCase("m=1,n=1,dtype=float32", "normal", "contiguous", 1, failure=Reason(kind))

    assert find_pattern("op", [raced, *checks(lambda *_: True)]).kind == "pattern_race"


def test_what_was_never_written_is_no_race_though_it_differs_too():
    kinds = ("differs_from_itself", "not_written", "wrong_values")
    made = [AccuracyCase("n=1", "normal", "contiguous", at, failure=Reason(kind)) for at, kind in enumerate(kinds)]

    assert find_pattern("op", made).kind == "pattern_unwritten"


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("wrong_values", {"left_out": "n", "left": "some"}),
        ("wrong_values", {"size": 1, "count": 1, "index": "9" * 5000}),
        ("wrote_outside", {"far": "far away"}),
    ],
)
def test_facts_that_an_op_has_made_up_raise_nothing(kind, facts):
    cases = [f"n={size}" for size in (31, 33, "9" * 5000)]
    made = [AccuracyCase(case, "normal", "contiguous", 1, failure=Reason(kind, facts)) for case in cases]

    assert sentence(find_pattern("op", made))


def test_the_least_case_that_an_extension_adds_does_not_hide_the_pattern_of_the_others():
    wrong = Reason("wrong_values", {"left_out": "n", "left": 1})
    cases = [AccuracyCase(f"n={size}", "normal", "contiguous", 1, failure=wrong) for size in (31, 33)]
    least = AccuracyCase("n=1", "normal", "contiguous", 1, failure=Reason("least_wrong", {}))

    assert find_pattern("op", [*cases, least]) == find_pattern("op", cases)
    assert find_pattern("op", cases).kind == "pattern_left_out"


def test_what_is_right_or_raises_or_is_wrong_at_random_has_no_pattern():
    raised = AccuracyCase("n=1", "normal", "contiguous", 1, failure=Reason("kernel_raised"), raised=True)

    assert find_pattern("op", [*checks(lambda *_: False), raised]) is None
    assert find_pattern("op", checks(lambda n, dtype, *_: (n, dtype) in {(127, "float32"), (1024, "bfloat16")})) is None


def test_cases_without_elements_and_refused_inputs_do_not_count_as_right():
    empty = AccuracyCase("m=0,n=8,dtype=float32", "normal", "contiguous", 1)
    refused = AccuracyCase("rejects=an integer", "normal", "contiguous", 1)

    assert find_pattern("op", [*checks(lambda *_: True), empty, refused]).kind == "pattern_everywhere"


def tuned(before, *processes, same=None):
    """A duelled case whose autotuners chose these in its processes, the first one's first; for the base `before`."""
    base = BaseArm(same=same, identity=None if same else Identity(choices=(f"k: BLOCK: {before}",)))
    first, *again = (f"k: BLOCK: {block}" for block in processes)
    others = tuple((text, text if same else f"k: BLOCK: {before}") for text in again)
    return PerformanceCase("n=1", base=base, identity=Identity(choices=(first,)), chosen_again=others)


def test_a_winner_that_flipped_between_processes_is_the_cause():
    why = describe_choices(tuned(64, 64, 128, 64))

    assert sentence(why).startswith(
        "The likely cause is the autotuner: of the kernel another configuration won in 1 of 3 processes, "
        "k: BLOCK: 128 and not k: BLOCK: 64."
    )


def test_choices_that_every_process_kept_are_named():
    assert sentence(describe_choices(tuned(64, 64, 64))) == (
        "Autotuners chose k: BLOCK: 64 for the kernel and k: BLOCK: 64 for the base, the same in all of 2 processes."
    )
    differ = describe_choices(tuned(64, 128, 128))
    assert (differ.kind, differ.facts["kernel"], differ.facts["base"]) == (
        "choice_differs", "k: BLOCK: 128", "k: BLOCK: 64",
    )  # fmt: skip
    assert describe_choices(tuned(64, 32, 32, same=True)).facts["base"] == "k: BLOCK: 32"
    assert describe_choices(PerformanceCase("n=1", identity=Identity())) is None


def test_a_slower_case_has_the_flip_in_the_place_of_another_cause():
    slow = case("n=1", *STAGES)
    timed = PerformanceCase(
        "n=1", blocks=duelled(0.05, 0.05), compiled=slow.compiled, identity=Identity(choices=("k: BLOCK: 64",)),
        base=BaseArm(same=False, duelled=True, compiled=slow.base.compiled),
        chosen_again=(("k: BLOCK: 32", "k: BLOCK: 64"),),
    )  # fmt: skip

    judgements = judged(run(timed, planned=duel_plan("n=1")))

    (row,) = [row for row in judgements.rows if row.suite is Suite.PERFORMANCE]
    kinds = [reason.kind for reason in row.reasons]
    assert kinds[-1] == "choice_flipped"
    assert not any(kind.startswith("cause") for kind in kinds)
