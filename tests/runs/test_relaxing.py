"""A threshold loosened for a time: what is written, and what is refused with nothing written."""

from __future__ import annotations

from datetime import date

import pytest

from perfci.core.errors import UsageError
from perfci.core.wording import catalogue
from perfci.runs.relaxing import relax
from perfci.store.history import append_history
from perfci.thresholds.read import load
from tests.history_examples import CASE, accepted
from tests.thresholds.earned_examples import KEY, earned, kept

DAY = date(2026, 12, 1)


@pytest.fixture
def project(settings):
    """relu with one accepted run, and a value that it has earned."""
    settings.thresholds.mkdir(exist_ok=True)
    (settings.thresholds / "relu.yaml").write_text("# ours\nspeedup: 1.2\n")
    append_history(settings.baselines, KEY, "relu", accepted(0))
    file = kept(settings.thresholds, earned("tau", 0.004, CASE))
    file.path.rename(file.path.with_name("relu.json"))
    return settings


def options(key="tau", **others):
    return {"key": key, "op": "relu", "why": "noisy", "until": "2027-01-31", "to": "3 %"} | others


def entries(project):
    return load(project.thresholds).ops["relu"].relaxed


def test_an_entry_is_written_and_nothing_else_changes(project):
    entry, replaced = relax(project, **options(case=f"{CASE}", device=KEY, why="noisy\n since  driver 590"), day=DAY)

    assert (project.thresholds / "relu.yaml").read_text().startswith("# ours\nspeedup: 1.2\nrelaxed:\n")
    assert entries(project) == (entry,)
    assert (entry.why, entry.to, entry.line, replaced) == ("noisy since driver 590", 0.03, 4, False)


def test_an_entry_again_takes_the_place_of_the_first(project):
    relax(project, **options(), day=DAY)
    _, replaced = relax(project, **options(to="5 %"), day=DAY)

    assert replaced
    assert [each.to for each in entries(project)] == [0.05]


def test_without_a_value_it_goes_back_to_what_people_wrote(project):
    assert relax(project, **options(to=None), day=DAY)[0].to is None


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (options("tua"), "relax_key"),
        (options("alpha"), "relax_key"),
        (options(op="rleu"), "relax_op"),
        (options(op="../x"), "relax_op"),
        (options(case="rows"), "relax_case"),
        (options(case="rows=99"), "relax_case"),
        (options(device="nvidia-h20"), "relax_device"),
        (options(why=" "), "relax_why"),
        (options(why="x" * 301), "relax_why"),
        (options(until="soon"), "relax_until"),
        (options(until="2026-11-30"), "relax_until"),
        (options(until="2027-12-31"), "relax_until"),
        (options(until="2027-02-30"), "relax_until"),
        (options(until="20270131"), "relax_until"),
        (options(to="3"), "relax_value"),
        (options(to="nan"), "relax_value"),
        (options(to="-3 %"), "relax_value"),
        (options(to="{a: b}"), "relax_value"),
    ],
)
def test_what_will_not_do_is_refused_by_name_with_nothing_written(project, asked, kind):
    before = (project.thresholds / "relu.yaml").read_bytes()

    with pytest.raises(UsageError) as caught:
        relax(project, **asked, day=DAY)

    assert caught.value.reason.kind == kind
    assert kind in catalogue()
    assert "{" not in str(caught.value).replace("{a: b}", "")
    assert (project.thresholds / "relu.yaml").read_bytes() == before
