"""The first lines by which files of two revisions differ."""

import pytest

from perfci.runs.beside import LARGE_BYTES, LINE_WIDTH, MOST_LINES, list_lines


@pytest.fixture
def sides(tmp_path):
    """Writes a file of both revisions. None: that one lacks it."""

    def write(name, *texts):
        for side, text in zip(("before", "after"), texts, strict=True):
            path = tmp_path / side / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    return write


def differing(tmp_path, *names):
    return list_lines(names, tmp_path / "before", tmp_path / "after")


def test_lines_are_those_of_a_diff_without_what_stayed_the_same(sides, tmp_path):
    name = sides("k/a_triton.py", "one\ntwo\n\nthree\n", "one\n2\n\n\nthree\nfour\n")

    assert differing(tmp_path, name) == ("+++ k/a_triton.py", "-two", "+2", "+four")


def test_kernels_come_before_suites_and_pages(sides, tmp_path):
    names = [sides(f"k/a{end}", "x\n", "y\n") for end in (".md", "_accuracy.py", "_triton.py")]

    assert [line for line in differing(tmp_path, *names) if line.startswith("+++")] == [
        "+++ k/a_triton.py", "+++ k/a.md", "+++ k/a_accuracy.py",
    ]  # fmt: skip


def test_a_new_file_and_one_that_went_have_all_their_lines(sides, tmp_path):
    sides("new.py", None, "a\n")
    sides("old.py", "b\n", None)

    assert differing(tmp_path, "new.py", "old.py") == ("+++ new.py", "+a", "+++ old.py", "-b")


def test_what_is_no_text_or_large_is_left_out_and_long_lines_and_many_are_cut(sides, tmp_path):
    sides("binary", b"\xff\x00", b"\xff\x01")
    sides("large", "a\n", "b\n" * LARGE_BYTES)
    sides("long", "", "x" * 999 + "\n")
    sides("many", "", "line\n" * 99)

    lines = differing(tmp_path, "binary", "large", "long", "many")

    assert lines[0] == "+++ long" and len(lines[1]) == LINE_WIDTH
    assert lines[2:] == ("+++ many", *["+line"] * (MOST_LINES - 3))


def test_links_are_not_followed(sides, tmp_path):
    sides("secret", None, "password\n")
    sides("link", "a\n", None)
    (tmp_path / "after" / "link").symlink_to(tmp_path / "after" / "secret")
    (tmp_path / "after" / "folder").symlink_to(tmp_path / "after")

    assert differing(tmp_path, "link", "folder/secret") == ("+++ link", "-a")
