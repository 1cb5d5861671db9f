"""A new op is four files that pass at once; nothing is overwritten, and nothing is left behind half."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.core import settings
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import Reason
from perfci.core.wording import sentence
from perfci.extensions.adopt import files as rehearsals
from perfci.extensions.adopt.place import Draft, place_op, write_draft
from perfci.extensions.adopt.sketch import TEMPLATES
from perfci.extensions.adopt.task import Sketched
from perfci.ops import discover
from perfci.scaffold import new
from perfci.worker.protocol import Doing

PARTS = ("triton", "baseline", "accuracy", "performance")


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """An empty project, and the current folder."""
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def broken(project: Path) -> list[str]:
    """Every way in which the project's ops break the contract."""
    ops = discover.ops(settings.load(project))
    return [sentence(reason) for op in ops for reason in discover.check_contract(op)]


@pytest.mark.parametrize("options", [[], ["--fake"]])
def test_a_new_op_has_the_four_files_and_a_page_and_obeys_the_contract(project, options, capsys):
    assert run(["new", "twice", *options]) == 0

    assert files(project) == sorted(["kernels/twice/twice.md", *(f"kernels/twice/twice_{part}.py" for part in PARTS)])
    assert broken(project) == []
    out = capsys.readouterr().out
    assert all(f"kernels/twice/twice_{part}.py" in out for part in PARTS)
    assert "`perfci check twice" in out


def test_programs_read_which_files_a_new_op_has_and_what_is_left_to_look_at(project, capsys):
    assert run(["new", "twice", "--fake", "--format", "json"]) == 0
    [answer] = json.loads(capsys.readouterr().out)

    assert {Path(path).name for path in answer["files"]} == {"twice.md", *(f"twice_{part}.py" for part in PARTS)}
    assert (answer["op"], answer["look"]) == ("twice", [])


@pytest.mark.parametrize("options", [[], ["--fake"]])
def test_a_new_op_is_as_ruff_would_have_it(project, options):
    run(["new", "twice", *options])

    command = [sys.executable, "-m", "ruff", "--isolated"]
    sides = ["--line-length", "120", "kernels"]
    subprocess.run([*command[:3], "check", "--isolated", "--select", "E,F,W", *sides], cwd=project, check=True)
    subprocess.run([*command[:3], "format", "--isolated", "--check", *sides], cwd=project, check=True)


def test_a_new_op_for_the_fake_device_passes_at_once_and_by_its_path(project, capsys):
    run(["new", "twice", "--fake"])

    assert run(["check", "twice", "--device", "fake"]) == 0
    assert "WRONG" not in capsys.readouterr().out
    path = project / "kernels" / "twice" / "twice_performance.py"
    by_path = [sys.executable, str(path), "--device", "fake"]
    assert subprocess.run(by_path, cwd=project, capture_output=True, check=False).returncode == 0


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.torch
def test_a_new_op_passes_at_once_in_the_interpreter(project, capsys):
    run(["new", "gate/swish"])

    assert run(["check", "swish", "--device", "cpu", "--case", "rows=[13]*,cols=10[02]*,*"]) == 0
    assert "PASS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "kind", "guess"),
    [
        ("soft-max", "new_op_name", "op_soft_max"),
        ("class", "new_op_name", "op_class"),
        ("torch", "new_op_name", "op_torch"),
        ("", "new_folder_name", None),
        ("/flash", "new_folder_name", None),
        ("../flash", "new_folder_name", None),
        ("_private", "new_folder_name", None),
        ("a\\b", "new_folder_name", None),
    ],
)
def test_what_can_be_no_op_is_refused_with_a_name_that_can(tmp_path, name, kind, guess):
    with pytest.raises(UsageError) as caught:
        place_op(name, tmp_path, {})

    assert caught.value.reason.kind == kind
    assert caught.value.reason.facts.get("guess") == guess
    assert guess is None or place_op(guess, tmp_path, {}).op == guess


def test_an_op_that_is_there_already_is_left_alone(project, capsys):
    run(["new", "softmax"])
    before = {name: (project / name).read_bytes() for name in files(project)}

    assert run(["new", "softmax"]) == 1
    assert run(["new", "other/softmax"]) == 1

    said = capsys.readouterr().err
    assert "softmax_triton.py is there already" in said
    assert f"There is an op softmax already, in {project / 'kernels' / 'softmax'}" in said
    assert {name: (project / name).read_bytes() for name in files(project)} == before


@pytest.mark.parametrize(("name", "kind"), [("softmax/fast", "new_op_nested"), ("group", "new_op_nested")])
def test_no_folder_hides_another_op(tmp_path, name, kind):
    folders = {"softmax": tmp_path / "softmax", "inner": tmp_path / "group" / "inner"}

    with pytest.raises(UsageError) as caught:
        place_op(name, tmp_path, folders)

    assert caught.value.reason.kind == kind


def test_one_file_that_is_there_already_keeps_all_four_from_being_written(tmp_path):
    place = place_op("twice", tmp_path, {})
    taken = tmp_path / "twice" / "twice_performance.py"
    taken.parent.mkdir()
    taken.write_text("mine")

    with pytest.raises(StoredFileError):
        new.write(place, new.fill_templates("twice", TEMPLATES / "op"), {})

    assert files(tmp_path) == ["twice/twice_performance.py"]
    assert taken.read_text() == "mine"


@pytest.mark.parametrize(("before", "is_renewed"), [('"""Calls sketches."""\nold = 1\n', True), ("mine = 1\n", False)])
def test_a_file_that_ops_share_is_renewed_unless_it_is_anothers(tmp_path, before, is_renewed):
    shared = '"""Calls sketches."""\nnew = 1\n'
    (tmp_path / "_sketched.py").write_text(before)
    texts = new.fill_templates("twice", TEMPLATES / "op")

    written = write_draft(place_op("twice", tmp_path, {}), Draft(texts, shared={"_sketched.py": shared}))

    assert (tmp_path / "_sketched.py").read_text() == (shared if is_renewed else before)
    assert (tmp_path / "_sketched.py" in written) == is_renewed


def test_outside_a_project_there_is_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert run(["new", "op"]) == 1
    assert "No project" in capsys.readouterr().err


def test_ops_are_told_as_soon_as_they_are_there_and_by_functions_of_their_names(project, monkeypatch):
    told, asked = list[str](), dict[str, str | None]()
    for name in ("first", "second", "refs"):
        (project / f"{name}.py").write_text(f"def {name if name != 'refs' else 'second'}(x):\n    return x\n")

    def work(task, around, hear):
        asked.update({op: files.reference for op, files in task.sketches.items()})
        for op in task.sketches:
            hear(Sketched(op, failure=Reason("from_missing", {"found": op})))
            assert told[-1] == op  # one that hangs or is stopped does not take those before it

    monkeypatch.setattr(rehearsals, "run_worker", work)
    tell = lambda op, _: told.append(op)  # noqa: E731
    rehearsals.draft_from_library(project, settings.load(project), tell, reference="refs.py", copy=True)
    assert asked == {"first": None, "refs": None, "second": "second"}


def test_a_search_says_what_it_does(project, monkeypatch, capsys):
    def work(task, around, hear):
        hear(Doing("rehearsal", "add", "x: (64, 64)"))

    monkeypatch.setattr(rehearsals, "run_worker", work)
    assert rehearsals._rehearse({}, settings.load(project), print) is None
    assert "add: trying how it is called" in capsys.readouterr().err
