import json
from pathlib import Path

import pytest

from perfci.core.errors import StoredFileError, UsageError
from perfci.report.site import folder
from perfci.report.site.folder import MARKER, safe_name
from perfci.report.site.kept import OpOnDevice

ODD = ("SoftMax", "softmax ", "../x", "a/b", "", ".", "..", "con", "NUL", "com1", "index", "a" * 200, "n\x00l",
       "\udcff", "x.html", "-x", "soft max", "\u6ce8\u610f", "a\u202eb", "%2e%2e", "a?b#c", "index.html")  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_becomes_one_that_is_safe_everywhere(name):
    found = safe_name(name)

    assert folder._PAGE.fullmatch(f"{found}/{found}.html")
    assert found.rpartition("-")[2] != found


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "nvidia-h200", "rms_norm2"])
def test_a_safe_name_stays(name):
    assert safe_name(name) == name


def test_names_that_differ_by_case_alone_have_two_pages_on_any_disk():
    names = {safe_name(name).lower() for name in ("softmax", "Softmax", "SoftMax", "SOFTMAX")}

    assert len(names) == 4


def test_names_that_are_written_alike_have_two_pages():
    assert len({safe_name(name) for name in ("a b", "a-b", "a/b", "a|b")}) == 4


def test_an_address_is_a_link_below_the_index():
    assert folder.name_page(OpOnDevice("nvidia-h200", "softmax")) == "nvidia-h200/softmax.html"


def test_a_folder_of_others_is_refused_and_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(UsageError, match="did not make"):
        folder.claim(tmp_path, ["d/x.html"])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    path = tmp_path / "public"
    path.write_text("")

    with pytest.raises(UsageError, match="is a file"):
        folder.claim(path, [])


@pytest.mark.parametrize("text", ["", "[]", '{"pages": 3}', '{"pages": [3]}', "{" * 100_000, "{}", "\xff"])
def test_a_damaged_marker_is_refused(tmp_path, text):
    (tmp_path / MARKER).write_bytes(text.encode("latin-1"))

    with pytest.raises(UsageError, match="could not be read"):
        folder.claim(tmp_path, [])


def test_only_its_own_pages_are_taken_away(tmp_path):
    outside = tmp_path / "outside.html"
    outside.write_text("mine")
    site = tmp_path / "public"
    folder.claim(site, ["d/old.html", "d/new.html", "e/old.html"])
    for name in ("d/old.html", "d/new.html", "e/old.html", "d/mine.html"):
        folder.put(site, name, "page")
    marker = json.loads((site / MARKER).read_text())
    (site / MARKER).write_text(json.dumps({"pages": [*marker["pages"], "../outside.html", "/etc/passwd"]}))

    before = folder.claim(site, ["d/new.html"])
    assert folder.finish(site, before, ["d/new.html"]) == ("d/old.html", "e/old.html")
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.html"))
    assert left == ["outside.html", "public/d/mine.html", "public/d/new.html"]
    assert not (site / "e").exists()


def test_a_run_that_died_midway_leaves_nothing_unknown(tmp_path):
    folder.claim(tmp_path, ["d/a.html", "d/b.html"])
    folder.put(tmp_path, "d/a.html", "page")

    before = folder.claim(tmp_path, ["d/c.html"])
    assert folder.finish(tmp_path, before, ["d/c.html"]) == ("d/a.html", "d/b.html")
    assert not (tmp_path / "d" / "a.html").exists()


def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(StoredFileError, match="No space left"):
        folder.claim(tmp_path / "public", [])
