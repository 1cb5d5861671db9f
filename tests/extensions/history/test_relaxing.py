"""A threshold loosened for a time: what is written, and what is refused with nothing written."""

import difflib
from datetime import date

import pytest

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.wording import catalogue, sentence
from perfci.extensions.history.origins import relax, write_relaxed
from perfci.thresholds.layers import Relaxed
from perfci.thresholds.read import load
from tests.history_examples import CASE, accepted
from tests.stored_examples import append_history
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
    assert [entry.to for entry in entries(project)] == [0.05]


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


def refused(call, *arguments, **named):
    with pytest.raises(StoredFileError) as caught:
        call(*arguments, **named)
    assert caught.value.reason.kind in catalogue()
    assert sentence(caught.value.reason)
    return caught.value.reason.kind


def changed(before: bytes, after: bytes) -> list[str]:
    lines = difflib.ndiff(before.decode().splitlines(), after.decode().splitlines())
    return [line for line in lines if line[0] in "+-"]


NOISY = Relaxed("softmax", "tau", 'noisy: "new" driver', "2027-01-31", case="rows=7,*", to=0.03)


def put(tmp_path, content, entry=NOISY):
    path = tmp_path / "softmax.yaml"
    after = write_relaxed(path, content, entry)
    path.write_bytes(after)
    return after, load(tmp_path).ops["softmax"].relaxed


@pytest.mark.parametrize(
    "before",
    [
        None,
        b"",
        b"# nothing yet\n",
        b"speedup: 1.2  # agreed",
        b"speedup: 1.2\r\ncases:\r\n  rows=7:\r\n    rsd: 4 %\r\n",
        b"relaxed:\n# later\nspeedup: 1.2\n",
        b'relaxed:\n    - {key: rsd, why: "x", until: 2027-01-01}  # mine\n\nspeedup: 1.2\n',
        b"\xef\xbb\xbfspeedup: 1.2\n",
    ],
)
def test_an_entry_is_put_in_and_every_other_line_stays(tmp_path, before):
    after, entries = put(tmp_path, before)

    assert [line for line in changed(before or b"", after) if line[0] == "-"] == []
    mine = next(entry for entry in entries if entry.key == "tau")
    assert (mine.to, mine.case, mine.why, mine.until) == (0.03, "rows=7,*", 'noisy: "new" driver', "2027-01-31")


def test_an_entry_of_the_same_key_case_and_device_gives_way(tmp_path):
    first, _ = put(tmp_path, b"speedup: 1.2\n")
    after, entries = put(tmp_path, first, Relaxed("softmax", "tau", "still", "2027-02-28", case="rows=7,*", to=0.04))

    assert [(entry.to, entry.until) for entry in entries] == [(0.04, "2027-02-28")]
    assert len(changed(first, after)) == 2


@pytest.mark.parametrize("before", [b"{speedup: 1.2}\n", b"speedup: 1.2\n...\n"])
def test_a_file_of_another_layout_gets_the_line_named_instead(tmp_path, before):
    assert refused(write_relaxed, tmp_path / "softmax.yaml", before, NOISY) == "relaxed_by_hand"
