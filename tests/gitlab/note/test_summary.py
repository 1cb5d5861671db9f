import pytest

from perfci.gitlab.note.body import Links, Shown
from perfci.gitlab.note.summary import LIMIT, summarise

UPLOAD = "/uploads/0123456789abcdef0123456789abcdef/duels-softmax.png"


def test_without_the_variable_nothing_is_written(examples):
    assert summarise(*examples.small(), Links(), {}) is None


def test_the_summary_is_the_note_without_its_pictures(examples, tmp_path):
    file = tmp_path / "summary.md"

    assert (
        summarise(*examples.small(), Links(pictures=(Shown(UPLOAD, "softmax"),)), {"GITHUB_STEP_SUMMARY": str(file)})
        is None
    )
    assert "## perfci: FAILS" in file.read_text(encoding="utf-8")
    assert "/uploads/" not in file.read_text(encoding="utf-8")


def test_it_is_appended_to_what_is_there(examples, tmp_path):
    file = tmp_path / "summary.md"
    file.write_text("# Before\n", encoding="utf-8")

    assert summarise(*examples.small(), Links(), {"GITHUB_STEP_SUMMARY": str(file)}) is None
    assert file.read_text(encoding="utf-8").startswith("# Before\n\n<!-- perfci:note:check -->\n")


def test_it_takes_only_the_room_that_is_left(examples, tmp_path):
    file = tmp_path / "summary.md"
    file.write_bytes(b"x" * (LIMIT - 4_000))

    assert summarise(*examples.full(), Links(), {"GITHUB_STEP_SUMMARY": str(file)}) is None
    assert LIMIT - 4_000 < file.stat().st_size <= LIMIT


def test_a_full_summary_is_left_alone_and_said(examples, tmp_path):
    file = tmp_path / "summary.md"
    file.write_bytes(b"x" * LIMIT)

    reason = summarise(*examples.small(), Links(), {"GITHUB_STEP_SUMMARY": str(file)})

    assert reason.kind == "step_summary_full"
    assert file.stat().st_size == LIMIT


@pytest.mark.parametrize("place", ["", "missing/summary.md"])
def test_a_place_that_cannot_be_written_is_a_reason(examples, tmp_path, place):
    reason = summarise(*examples.small(), Links(), {"GITHUB_STEP_SUMMARY": str(tmp_path / place)})

    assert reason.kind == "step_summary_unwritable"
    assert reason.facts["path"] == str(tmp_path / place)
