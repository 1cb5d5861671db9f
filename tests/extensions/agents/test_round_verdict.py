"""The verdict of a round, and what it changed, from records alone."""

from dataclasses import replace

import pytest

from perfci.core.model import AccuracyCase, BaseArm, CompiledKernel, Interval, PerformanceCase, Reason
from perfci.extensions.agents.logbook import Round, RoundVerdict
from perfci.extensions.agents.round_verdict import find_confidence, judge_round, may_be_kept, read_kind
from perfci.judge.cause import list_changes
from tests.decision_examples import assert_worded, duel_plan, duelled, judged, run

BLANK = Round("op", 3, "fewer bytes", RoundVerdict.ERROR, "2026-01-01T00:00:00Z", "a" * 40, best=1, place=2)
DUELLED = BaseArm(same=False, duelled=True)
FASTER, SLOWER, EQUAL, DOUBTFUL = (-0.03, -0.03), (0.03, 0.03), (0.0,), (0.0104,) * 4


def timed(name, *changes, base=DUELLED, **more):
    return PerformanceCase(name, blocks=duelled(*changes) if changes else (), base=base, **more)


def judge(*cases, blank=BLANK, **options):
    """A round of these cases. Each of its reasons has its sentence."""
    made = run(*cases, planned=duel_plan(*(case.case for case in cases)), **options)
    round_ = judge_round(blank, made, judged(made))
    for reason in round_.reasons:
        assert_worded(reason)
    return round_


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ((FASTER, FASTER), "kept"),
        ((FASTER, EQUAL), "kept"),
        ((EQUAL, EQUAL), "equal"),
        ((EQUAL, SLOWER), "slower"),
        ((FASTER, SLOWER), "mixed"),
        ((FASTER, DOUBTFUL), "mixed"),
        ((EQUAL, DOUBTFUL), "equal"),
    ],
)
def test_every_case_has_a_say_in_the_verdict(changes, verdict):
    round_ = judge(*(timed(f"n={at}", *shifts) for at, shifts in enumerate(changes)))

    assert round_.verdict == verdict
    assert round_.reasons[0].kind == f"round_{verdict}"


@pytest.mark.parametrize(
    ("changes", "verdict"), [((0.03, 0.0), "slower"), ((-0.03, 0.03), "mixed"), ((0.0095, 0.0095), "equal")]
)
def test_a_round_that_one_process_shows_not_to_be_kept_needs_no_other(changes, verdict):
    cases = [timed(f"n={at}", shifts) for at, shifts in enumerate(changes)]
    made = run(*cases, planned=duel_plan(*(case.case for case in cases)))

    assert judged(made).needs
    assert not may_be_kept(judged(made))
    round_ = judge(*cases)
    assert round_.verdict == verdict
    assert [reason.kind for reason in round_.reasons] == ["round_unpromising"]


@pytest.mark.parametrize(("changes", "open_"), [((-0.03, 0.0), True), ((-0.03, 0.0095), True), ((0.0, 0.0), False)])
def test_a_round_that_looks_faster_gets_more_processes(changes, open_):
    cases = [timed(f"n={at}", shifts) for at, shifts in enumerate(changes)]
    made = run(*cases, planned=duel_plan(*(case.case for case in cases)))

    assert may_be_kept(judged(made)) == open_


def test_gains_are_how_much_faster_and_their_intervals_are_widened_for_the_rounds_so_far():
    early, late = (judge(timed("n=1", *FASTER), blank=replace(BLANK, place=place)) for place in (1, 5))

    assert early.gain.value == pytest.approx(1 / 0.97 - 1, abs=1e-3)
    assert early.gain.low < early.gain.value < early.gain.high
    assert late.gain.low < early.gain.low and late.gain.high > early.gain.high
    assert (early.gain.confidence, late.gain.confidence) == (find_confidence(1), find_confidence(5))


def test_late_rounds_need_more_evidence():
    """Twenty-four blocks cannot show anything in a family of so many."""
    slight = timed("n=1", -0.03, -0.03)

    assert judge(slight, blank=replace(BLANK, place=2)).verdict == "kept"
    planned = duel_plan("n=1", family=10**9)
    made = run(slight, planned=planned)
    assert judge_round(BLANK, made, judged(made)).verdict == "equal"


def test_work_that_is_the_same_counts_as_no_gain_at_all():
    round_ = judge(timed("n=1", *FASTER), timed("n=2", base=BaseArm(same=True)))

    assert round_.cases[1].best == Interval(0.0, 0.0, 0.0, find_confidence(2))
    assert round_.verdict == "kept"
    assert round_.gain.value == pytest.approx((1 / 0.97) ** 0.5 - 1, abs=1e-3)


def test_the_first_round_has_its_gain_over_the_start_too():
    first, later = (judge(timed("n=1", *FASTER), blank=replace(BLANK, best=best)) for best in (0, 1))

    assert (first.total, later.total) == (first.gain, None)


def test_a_wrong_answer_comes_before_every_gain():
    wrong = AccuracyCase("rows=4096,dtype=float16", "normal", "contiguous", 3, failure=Reason("boom", {}))

    assert judge(timed("n=1", *FASTER), accuracy=[wrong]).verdict == "wrong"


def test_times_that_cannot_be_the_kernels_are_refused():
    seen = timed("n=1", *FASTER, suspicion=(Reason("boom", {}),))

    round_ = judge(seen, timed("n=2", *FASTER))

    assert (round_.verdict, [reason.kind for reason in round_.reasons]) == ("refused", ["boom"])


@pytest.mark.parametrize(
    "lost",
    [
        timed("n=2", base=BaseArm(failure=Reason("boom", {}))),
        timed("n=2", failure=Reason("boom", {}), raised=True),
        timed("n=2", failure=Reason("records_lost", {"case": "n=2", "count": 3, "launches": 30})),
    ],
)
def test_a_case_that_was_not_duelled_leaves_no_verdict(lost):
    made = run(timed("n=1", *FASTER), lost, planned=duel_plan("n=1", "n=2"))

    from perfci.judge import judge as judge_run
    from perfci.thresholds.limits import Thresholds

    round_ = judge_round(BLANK, made, judge_run(made, {}, Thresholds()))

    assert round_.verdict == "error" and round_.reasons


def test_a_faster_time_that_the_kernels_own_process_reports_is_not_believed():
    round_ = judge(timed("n=1", *FASTER, self_reported=Reason("boom", {})))

    assert round_.verdict == "equal"
    assert "faster_self_reported" in [reason.kind for reason in round_.reasons]


# --- what was changed -------------------------------------------------------------------------------------------------

OLD = CompiledKernel("_copy", registers=32, shared_bytes=0, warps=4, stages=3, constants="BLOCK=1024,LOOP=True")
NEW = CompiledKernel("_copy", registers=48, shared_bytes=0, warps=8, stages=3, constants="BLOCK=2048,LOOP=True")


def changes(*cases):
    return [(change.name, change.was, change.now) for change in list_changes(cases)]


GRID = Reason("launch_changed", {"kernel": "_copy", "what": "grid", "before": "(8, 1, 1)", "after": "(4, 1, 1)"})


def test_changed_parameters_are_named_once_constants_first_and_then_what_the_compiler_made_of_them():
    base = replace(DUELLED, changes=(GRID,), compiled=(OLD,))
    kernels = (NEW, NEW, replace(NEW, constants="BLOCK=4096,LOOP=True"))

    assert changes(*(timed(f"n={at}", base=base, compiled=(kernel,)) for at, kernel in enumerate(kernels))) == [
        ("BLOCK", "1024", "2048"), ("BLOCK", "1024", "4096"), ("warps", "4", "8"), ("registers", "32", "48"),
    ]  # fmt: skip


def test_a_grid_is_named_if_nothing_else_changed():
    base = replace(DUELLED, changes=(GRID,), compiled=(OLD,))

    assert changes(timed("n=1", base=base, compiled=(OLD,))) == [("grid", "(8, 1, 1)", "(4, 1, 1)")]


def test_a_kernel_or_a_constant_that_only_one_of_both_has_shows_nothing():
    base = replace(DUELLED, compiled=(OLD,))
    bare = replace(OLD, constants="BLOCK=1024,LOOP=None", stages=None)

    assert changes(timed("n=1", base=base, compiled=(replace(OLD, name="_fused"),))) == []
    assert changes(timed("n=1", base=base, compiled=(bare,))) == []


def test_the_kind_of_change_is_what_files_and_runs_show_together():
    base = replace(DUELLED, compiled=(OLD,))
    tuned = timed("n=1", *FASTER, base=base, compiled=(NEW,))
    plain = timed("n=1", *FASTER)

    assert judge(plain).kinds == ("tuning",)
    assert judge(plain, blank=replace(BLANK, kinds=("logic",))).kinds == ("logic",)
    assert judge(tuned, blank=replace(BLANK, kinds=("logic",))).kinds == ("tuning", "logic")


KERNEL = "@jit\ndef _copy(x):\n    y = load(x, 1)\n    store(x, y)\n"
WRAPPER = "\ndef copy(x):\n    _copy[4](x, num_warps=4)\n"


@pytest.mark.parametrize(
    ("name", "before", "now", "kind"),
    [
        ("x_triton.py", KERNEL + WRAPPER, KERNEL + WRAPPER.replace("4", "8"), "tuning"),
        ("x_triton.py", KERNEL + WRAPPER, KERNEL.replace("1", "2") + WRAPPER, "tuning"),
        ("x_triton.py", KERNEL + WRAPPER, KERNEL.replace("store(x, y)", "store(x, y + y)") + WRAPPER, "logic"),
        ("x_triton.py", KERNEL + WRAPPER, KERNEL + WRAPPER.replace("4)", "4, num_stages=2)"), None),
        ("x_triton.py", KERNEL, "def broken(", None),
        ("x_triton.py", None, KERNEL, "logic"),
        ("nvidia-h200.json", "{}", '{"warps": 8}', "tuning"),
    ],
)
def test_files_tell_numbers_from_another_way_to_compute(tmp_path, name, before, now, kind):
    paths = [tmp_path / side / name for side in ("before", "now")]
    for path, text in zip(paths, (before, now), strict=True):
        path.parent.mkdir()
        if text is not None:
            path.write_text(text)

    assert read_kind(*paths) == kind


def test_a_kernel_that_is_faster_and_holds_more_memory_than_is_allowed_is_not_kept():
    heavy = timed("n=1", *FASTER, base=replace(DUELLED, peak_bytes=1000), peak_bytes=2000)
    made = run(heavy, planned=duel_plan("n=1"))

    assert judge_round(BLANK, made, judged(made, peak_memory=0.1)).verdict == "mixed"
    assert judge_round(BLANK, made, judged(made)).verdict == "kept"


def test_a_kernel_that_is_launched_twice_is_compared_launch_by_launch():
    last = replace(OLD, constants="BLOCK=64,LOOP=True")
    base = replace(DUELLED, compiled=(OLD, last))

    differences = changes(timed("n=1", base=base, compiled=(OLD, replace(last, warps=2))))

    assert differences == [("warps", "4", "2")]


@pytest.mark.parametrize("cases", [(), (timed("n=1", base=BaseArm(same=True)),)])
def test_a_machine_that_cannot_time_says_why_whatever_the_work(cases):
    made = run(*cases, planned=duel_plan("n=1"), op={"unmeasured": Reason("no_accelerator", {})})

    round_ = judge_round(BLANK, made, judged(made))

    assert (round_.verdict, [reason.kind for reason in round_.reasons]) == ("error", ["no_accelerator"])
