"""What a node writes, and what comes back of it, goes through no link that a merge request has committed."""

from __future__ import annotations

import io
import tarfile

import pytest

from perfci.core.errors import StoredFileError
from perfci.extensions.ray.check import unpack
from perfci.extensions.ray.node import run_command


def pack(root):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(root, ".")
    return packed.getvalue()


@pytest.fixture
def outside(tmp_path):
    """A folder that is not the project's, with a file."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "kept").write_text("kept")
    return folder


def run(project, given=None, kept="reports"):
    return run_command(["--version"], pack(project), given or {}, ".", kept, {}, str(project))


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def test_a_plan_takes_the_place_of_a_link(project, outside):
    (project / "plan.json").symlink_to(outside / "kept")

    code, *_ = run(project, {"plan.json": b"{}"})

    assert (code, (outside / "kept").read_text()) == (0, "kept")


def test_a_file_is_not_written_behind_a_linked_folder(project, outside):
    (project / "reports").symlink_to(outside, target_is_directory=True)

    with pytest.raises(OSError, match="behind a link"):
        run(project, {"reports/kept": b"x"})
    assert (outside / "kept").read_text() == "kept"


@pytest.mark.parametrize("kept", ["reports", "reports/inner"])
def test_nothing_behind_a_link_comes_back_from_a_node(project, outside, kept):
    (outside / "inner").mkdir()
    (project / "reports").symlink_to(outside, target_is_directory=True)

    *_, packed = run(project, kept=kept)

    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.getnames() == []


def test_what_comes_back_takes_the_place_of_links_and_brings_none(project, outside):
    (project / "reports").mkdir()
    (project / "reports" / "run.json").write_text("{}")
    packed = run(project)[-1]
    (project / "reports" / "run.json").unlink()
    (project / "reports" / "run.json").symlink_to(outside / "kept")

    unpack(packed, project / "reports")

    assert (project / "reports" / "run.json").read_text() == "{}"
    assert (outside / "kept").read_text() == "kept"
    (project / "reports" / "link").symlink_to("run.json")
    with pytest.raises(StoredFileError, match="link"):
        unpack(run(project)[-1], project / "reports")
