from perfci.gitlab.propose.files import File, Kind, blob_id
from perfci.gitlab.propose.merging import There, step
from perfci.store import layout
from tests.gitlab.propose.conftest import HISTORY, LIMITS, line

LIKE = "0" * 40


def file(content, path=HISTORY, kind=Kind.HISTORY):
    return File(path, None, kind, "softmax", "fake-one" if kind is not Kind.THRESHOLDS else "", content)


def there(content, own=False):
    return There(blob_id(content, LIKE), content, "e" * 40, own)


def lines(*runs):
    return b"".join(layout.line(run).encode() for run in runs)


def test_blobs_have_gits_own_ids():
    assert blob_id(b"", LIKE) == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert len(blob_id(b"", "0" * 64)) == 64


def test_lines_of_both_are_kept_each_once():
    first, second, third = (line(f"2026-01-0{day}T00:00:00Z") for day in (1, 2, 3))
    theirs = lines(first, second)

    found = step(file(lines(first, third)), blob_id(lines(first), LIKE), there(theirs), "main")

    assert found.content == theirs + lines(third)


def test_two_lines_that_say_otherwise_of_one_run_are_a_conflict():
    found = step(file(lines(line())), None, there(lines(line(us=11.0))), "main")

    assert (found.content, found.conflict.kind) == (None, "propose_history_differs")


def test_a_history_that_cannot_be_read_on_the_branch_is_a_conflict():
    assert step(file(lines(line())), None, there(b"{\n"), "main").conflict.kind == "propose_history_differs"


def test_a_file_that_was_removed_meanwhile_does_not_come_back():
    assert step(file(lines(line())), "b" * 40, None, "main").conflict.kind == "propose_removed"


def test_perfcis_own_older_thresholds_are_only_ever_replaced_by_tighter_ones():
    def kind(before, after):
        found = step(file(after, LIMITS, Kind.THRESHOLDS), None, there(before, own=True), "main")
        return found.conflict and found.conflict.kind

    assert kind(b"margin: 3 %\n", b"margin: 2 %\n") is None
    assert kind(b"margin: 2 %\n", b"margin: 3 %\n") == "propose_conflict"
