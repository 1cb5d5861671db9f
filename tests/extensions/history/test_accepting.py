"""What becomes a baseline over many nights, and what never does without a person's word."""

from dataclasses import replace

import pytest

from perfci import store
from perfci.core.model import OpRun, PerformanceCase, Plan, PlannedOp, Run, Verdict
from perfci.core.wording import sentence
from perfci.extensions.common.history import read_history
from perfci.extensions.history.changepoints import index_cases
from perfci.runs.accept_runs import AcceptOptions, accept_runs
from perfci.runs.decide import decide
from tests.decision_examples import again, blocks, check, environment

CASE = "rows=1,dtype=float16"
KEY = "nvidia-h200"


def run_of(number, kernel=1.0, *, cases=(CASE,), confirmed=True, plan=None, **surroundings):
    """A night's run: a first look, and the two processes that confirm what it sees."""
    timed = again(kernel, seed=number) if confirmed else blocks(kernel, seed=number)
    measured = OpRun("relu", (check(),), tuple(PerformanceCase(case, blocks=timed) for case in cases))
    planned = plan or PlannedOp("relu", ("rows=4096,dtype=float16",), cases)
    now = environment(commit=f"{number:040x}", **surroundings)
    plan = Plan((planned,), 1, 1.0, "cuda")
    return Run(
        f"run{number:03}", f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z", "0", "x", now, plan, (measured,)
    )


def accept(settings, *runs, **wishes):
    (answer,) = accept_runs(runs, settings, (), AcceptOptions(**wishes))
    for reason in (*answer.refused, *answer.said):
        assert sentence(reason)
    return answer


def kinds(answer):
    return [reason.kind for reason in answer.refused]


def history(settings):
    return read_history(settings.baselines, KEY, "relu")


def baseline(settings):
    return store.read_baseline(store.baseline_path(settings.baselines, KEY, "relu"))


@pytest.fixture
def nights(settings):
    """Three accepted nights."""
    for number in range(3):
        assert accept(settings, run_of(number)).accepted == (CASE,)
    return settings


def verdicts(run, settings):
    return {row.verdict for row in decide(run, settings).rows if row.case == CASE}


def test_each_accepted_night_leaves_one_line(nights):
    assert [run.run for run in history(nights).runs] == ["run000", "run001", "run002"]


def test_accepting_a_run_twice_changes_no_byte(nights):
    before = {path: path.read_bytes() for path in nights.baselines.rglob("*") if path.is_file()}

    accept(nights, run_of(2))

    assert {path: path.read_bytes() for path in nights.baselines.rglob("*") if path.is_file()} == before


def test_a_step_that_nobody_accepted_is_still_red_after_fifty_nights(nights):
    for number in range(3, 53):
        run = run_of(number, 1.06)
        assert verdicts(run, nights) == {Verdict.REGRESSED}
        assert kinds(accept(nights, run)) == ["accept_slower"]

    assert len(history(nights).runs) == 3
    assert {run.id for run in baseline(nights).runs} == {"run002"}


def test_a_creep_of_small_steps_takes_the_baseline_along_by_no_more_than_is_promised_to_be_seen(nights):
    """0.1 % a night, each night accepted as the bot does it: for 50 us kernels 2 % is always detected."""
    slowest = 1.0
    for number in range(3, 80):
        creep = 1.001 ** (number - 2)
        if accept(nights, run_of(number, creep)).accepted:
            slowest = creep

    assert 1.01 < slowest < 1.03


def test_a_loss_that_came_with_a_new_driver_is_not_taken_over_in_silence(nights):
    answer = accept(nights, run_of(5, 1.06, driver="590"))

    assert kinds(answer) in (["accept_lost_elsewhere"], ["accept_slower"])
    assert history(nights).runs[-1].run == "run002"


def test_a_loss_is_accepted_with_a_reason_and_nothing_is_red_after(nights):
    answer = accept(nights, run_of(5, 1.06), slower="float32 sums")

    assert answer.accepted == (CASE,)
    assert history(nights).runs[-1].epoch.why == "float32 sums"
    assert verdicts(run_of(6, 1.06), nights) == {Verdict.PASS}
    assert accept(nights, run_of(6, 1.06)).accepted == (CASE,)
    assert verdicts(run_of(7, 1.13), nights) == {Verdict.REGRESSED}


# --- entries under `expected` -----------------------------------------------------------------------------------------


@pytest.fixture
def expecting(nights):
    nights.thresholds.mkdir(exist_ok=True)
    entry = f'{{case: "{CASE}", up_to: 8 %, why: "float32 sums", until: 2027-01-31}}'
    (nights.thresholds / "relu.yaml").write_text(f"expected:\n  - {entry}\n")
    return nights


def test_an_expected_loss_is_accepted_as_an_epoch_for_its_entrys_reason(expecting):
    run = run_of(3, 1.06)
    assert verdicts(run, expecting) == {Verdict.EXPECTED}

    assert accept(expecting, run).accepted == (CASE,)
    assert history(expecting).runs[-1].epoch.why == "float32 sums"
    assert history(expecting).runs[-1].epoch.cases == (CASE,)


def test_an_entry_is_used_up_by_the_loss_that_it_was_for(expecting):
    accept(expecting, run_of(3, 1.06))
    accept(expecting, run_of(4, 1.06))

    answer = accept(expecting, run_of(5, 1.12))

    assert kinds(answer) == ["accept_entry_spent"]
    assert answer.refused[0].facts["run"] == "run003"
    assert accept(expecting, run_of(5, 1.12), slower="more of it").accepted == (CASE,)


# --- what else --------------------------------------------------------------------------------------------------------


def test_a_run_with_uncommitted_changes_leaves_no_line_and_says_so(nights):
    answer = accept(nights, run_of(4, dirty=True), dirty=True)

    assert answer.accepted == (CASE,)
    assert [reason.kind for reason in answer.said] == ["accept_dirty_unkept"]
    assert len(history(nights).runs) == 3


def test_a_renamed_case_keeps_what_its_old_name_was_held_against(nights):
    plan = PlannedOp("relu", ("rows=4096,dtype=float16",), ("m=1",), renamed={"m=1": CASE})

    assert kinds(accept(nights, run_of(4, 1.06, cases=("m=1",), plan=plan))) == ["accept_slower"]
    assert accept(nights, run_of(5, cases=("m=1",), plan=plan)).accepted == ("m=1",)
    assert [case.case for case in baseline(nights).cases] == ["m=1"]
    assert [run.cases[0].case for run in history(nights).runs] == ["m=1"] * 4


@pytest.mark.parametrize("way", ["chosen", "filtered", "refused"])
def test_a_line_of_some_cases_names_those_whose_baselines_stay(settings, way):
    other = "rows=2,dtype=float16"
    accept(settings, run_of(0, cases=(CASE, other)))
    if way == "chosen":
        accept(settings, run_of(1, cases=(CASE, other)), pattern=CASE)
    elif way == "filtered":
        part = run_of(1)
        accept(settings, replace(part, plan=replace(part.plan, filter=CASE)))
    else:
        part = run_of(1, cases=(CASE, other))
        slow = PerformanceCase(other, blocks=again(1.1, seed=1))
        [op] = part.ops
        accept(settings, replace(part, ops=(replace(op, performance=(op.performance[0], slow)),)))

    first, last = history(settings).runs

    assert (first.kept, last.kept) == ((), (other,))
    assert [case.case for case in last.cases] == [CASE]
    assert set(index_cases((first, last))) == {CASE, other}


def test_a_case_that_was_taken_out_is_not_named_any_more(settings):
    accept(settings, run_of(0, cases=(CASE, "rows=2,dtype=float16")))
    accept(settings, run_of(1))

    assert history(settings).runs[-1].known == (CASE,)
