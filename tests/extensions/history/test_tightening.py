"""What accepted runs have earned, from histories to files, and back when the environment or the kernel changes."""

import dataclasses
import math
from datetime import date

import numpy as np
import pytest

from perfci.core.errors import UsageError
from perfci.core.wording import sentence
from perfci.extensions.common.history import read_history
from perfci.extensions.history import tightening
from perfci.extensions.history.tightening import refuse_in_pipeline, rescale, tighten
from perfci.runs.effective_thresholds import in_force
from perfci.store.files import write_together
from perfci.thresholds.earned import EarnedFile, read_file, write_earned
from perfci.thresholds.layers import Earned
from tests.history_examples import CASE, OTHER, accepted, figures
from tests.stored_examples import append_history

KEY = "nvidia-h200"
DAY = date(2026, 12, 1)


def runs(count, start=0, *, speedup=1.5, **surroundings):
    """Accepted runs with some noise; no A/A duels, which take long to simulate."""
    rng = np.random.default_rng(start)
    days = []
    for number in range(start, start + count):
        shift = -math.log(speedup) + float(rng.normal(0, 0.002))
        case = dataclasses.replace(figures(kernel_us=100.0), shift=shift, rsd=0.01, peak_bytes=1_000_000)
        days.append(accepted(number, case, **surroundings))
    return days


def keep(settings, *kept, op="relu"):
    for entry in kept:
        append_history(settings.baselines, KEY, op, entry)


def path_of(settings, op="relu"):
    return settings.thresholds / KEY / f"{op}.json"


def earned(settings, op="relu"):
    return {(value.case, value.key): value for value in read_file(path_of(settings, op), op, KEY).values}


@pytest.fixture
def nights(settings):
    """Ten accepted runs of relu. People want its speedup to be 1.2."""
    settings.thresholds.mkdir(exist_ok=True)
    (settings.thresholds / "relu.yaml").write_text("speedup: 1.2  # agreed\n")
    keep(settings, *runs(10))
    return settings


def test_without_a_wish_to_write_nothing_is_written(nights):
    before = sorted(nights.root.rglob("*"))

    (tightened,) = tighten(nights, day=DAY)

    assert {change.key for change in tightened.changes} >= {"speedup", "rsd"}
    assert sorted(nights.root.rglob("*")) == before


def test_what_is_earned_is_written_with_its_record_and_holds(nights):
    (tightened,) = tighten(nights, write=True, day=DAY)

    speedup = earned(nights)[CASE, "speedup"]
    assert 1.2 < speedup.value < 1.5
    assert (speedup.before, speedup.began, speedup.after) == (1.2, 1.2, speedup.value)
    assert (speedup.runs, speedup.date, speedup.first, speedup.last) == (10, "2026-12-01", *ends(nights))
    assert tightened.path == f"thresholds/{KEY}/relu.json"
    where = read_history(nights.baselines, KEY, "relu").runs[-1].environment
    limits = in_force(nights, where, "2026-12-02").limits
    assert limits.for_case("relu", CASE).speedup == speedup.value
    assert limits.for_case("relu", OTHER).speedup == 1.2


def ends(settings):
    runs = read_history(settings.baselines, KEY, "relu").runs
    return runs[0].run, runs[-1].run


def test_each_further_run_goes_on_by_at_most_a_quarter(nights):
    seen = [1.2]
    for number in range(10, 14):
        tighten(nights, write=True, day=DAY)
        record = earned(nights)[CASE, "speedup"]
        assert record.value - seen[-1] <= 0.2501 * (record.bound - seen[-1])
        seen.append(record.value)
        keep(nights, *runs(1, number))

    assert seen == sorted(seen)
    assert len(set(seen)) >= 3
    assert earned(nights)[CASE, "speedup"].began == 1.2


def test_in_another_environment_all_goes_back_to_where_it_began(nights):
    tighten(nights, write=True, day=DAY)
    keep(nights, *runs(1, 10, driver="590"))

    (tightened,) = tighten(nights, write=True, day=DAY)

    assert tightened.changes == ()
    assert {entry.key for entry in tightened.anew} >= {"speedup", "rsd"}
    assert "-> 590" in sentence(tightened.said[0])
    assert earned(nights) == {}
    assert '"driver": "590"' in path_of(nights).read_text()


def test_nothing_accepted_yet_is_no_error_unless_it_was_asked_for(settings):
    assert tighten(settings) == []
    for options, kind in (({"device": "nvidia-b200"}, "history_no_device"), ({"ops": ("relu",)}, "history_no_op")):
        with pytest.raises(UsageError) as caught:
            tighten(settings, **options)
        assert caught.value.reason.kind == kind


# --- files ------------------------------------------------------------------------------------------------------------


def failure(settings):
    (tightened,) = tighten(settings, write=True, day=DAY)
    assert tightened.failure is not None
    assert sentence(tightened.failure)
    return tightened.failure.kind


def test_a_file_that_somebody_changed_meanwhile_is_left_as_it_is(nights, monkeypatch):
    tighten(nights, write=True, day=DAY)
    keep(nights, *runs(1, 10))
    file = path_of(nights)
    work = tightening.write_earned

    def edited_meanwhile(*arguments):
        file.write_text(file.read_text() + "# edited meanwhile\n")
        return work(*arguments)

    monkeypatch.setattr(tightening, "write_earned", edited_meanwhile)

    assert failure(nights) == "thresholds_changed_meanwhile"
    assert file.read_text().endswith("# edited meanwhile\n")


def test_nothing_is_written_through_a_link(nights, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path_of(nights).parent.symlink_to(elsewhere)

    assert failure(nights) == "thresholds_linked"
    assert list(elsewhere.iterdir()) == []


# --- pipelines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({"CI_MERGE_REQUEST_IID": "7"}, "tighten_in_merge_request"),
        ({"CI_PIPELINE_SOURCE": "merge_request_event"}, "tighten_in_merge_request"),
        ({"CI_COMMIT_BRANCH": "topic", "CI_DEFAULT_BRANCH": "main"}, "tighten_off_default"),
        ({"CI_COMMIT_TAG": "v1", "CI_DEFAULT_BRANCH": "main"}, "tighten_off_default"),
    ],
)
def test_pipelines_of_what_nobody_merged_tighten_nothing(variables, kind):
    with pytest.raises(UsageError) as caught:
        refuse_in_pipeline(variables)
    assert caught.value.reason.kind == kind
    assert str(caught.value)


# --- an accepted loss -------------------------------------------------------------------------------------------------


def test_what_was_earned_is_rescaled_by_an_accepted_loss(nights):
    tighten(nights, write=True, day=DAY)
    before = earned(nights)[CASE, "speedup"]
    run = runs(1, 11, speedup=1.5 / 1.03)[0]

    rescaled = rescale(nights, "relu", [(run, {CASE: math.log(1.03)})])
    write_together(rescaled.files)

    after = earned(nights)[CASE, "speedup"]
    assert after.value == pytest.approx(before.value / 1.03, rel=1e-3)
    assert (after.before, after.began, after.rescaled) == (before.value, 1.2, run.run)
    assert [line.kind for line in rescaled.said] == ["earned_rescaled_said"]
    assert earned(nights)[CASE, "rsd"] == dataclasses.replace(earned(nights)[CASE, "rsd"])


def with_target(settings, run, value):
    """A target of relu that runs like this one have earned."""
    path = path_of(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    each = Earned("rows=1,dtype=float16", "speedup", value, began=1.0, after=value, date="2026-01-01")
    path.write_bytes(write_earned(EarnedFile("relu", KEY, path), run.environment, [each]))


def test_accepting_a_loss_rescales_its_target_at_once(settings):
    from tests.extensions.history.test_accepting import accept, run_of

    for number in range(3):
        assert accept(settings, run_of(number)).accepted
    slower = run_of(3, 1.06)
    with_target(settings, slower, 1.2)

    answer = accept(settings, slower, slower="float32 sums, see !42")

    ((_, after),) = earned(settings).items()
    assert after.value == pytest.approx(1.2 / 1.06, rel=0.01)
    assert after.rescaled == slower.id
    assert "earned_rescaled_said" in [line.kind for line in answer.said]


def test_only_cases_that_fit_are_tightened_and_none_that_fits_is_an_error(nights):
    (whole,) = tighten(nights, day=DAY)
    case = whole.changes[0].case

    (some,) = tighten(nights, day=DAY, pattern=case)

    assert {one.case for one in some.changes} == {case}
    with pytest.raises(UsageError, match="--case 'rows=9999'"):
        tighten(nights, day=DAY, pattern="rows=9999")
