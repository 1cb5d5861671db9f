"""An op's process sees the files that its fingerprint counts and no more, so that the same files do the same."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from perfci.core.errors import UsageError
from perfci.core.settings import load
from perfci.ops.discover import select
from perfci.ops.fingerprint.tree import Tree
from perfci.runs.bench import WorkerPlace, list_files, make_environment, open_bench, stamp
from perfci.runs.experiment import Experiment
from perfci.runs.needed import copy_needed, place_needed
from perfci.runs.plan import Request
from perfci.worker.confine import landlock_version
from perfci.worker.process import confined
from tests.flow.conftest import quick_topic
from tests.git_repositories import commit_all, git

landlocked = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")

CHANGES = {
    "kernels/scale/scale.md": "three times slower",
    "kernels/scale/optimization.jsonl": "{}",
    "kernels/scale/__pycache__/scale_data.cpython-311.pyc": "slow",
    "kernels/relu/relu_triton.py": "SLOW = True",
    "README.md": "slow",
    "setup.cfg": "slow",
    ".git/HEAD": "ref: refs/heads/slow",
}
"""Files that a merge request may bring, and that no fingerprint of scale counts."""

TRICKS = (
    "open(folder + '/scale' + '.md').read()",
    "open(folder + '/optimization' + '.jsonl').read()",
    "open(folder + '/__pycache__/scale_data.cpython-311' + '.pyc').read()",
    "open(folder + '/../relu/relu' + '_triton.py').read()",
    "open(folder + '/../../READ' + 'ME.md').read()",
    "open('setup' + '.cfg').read()",
    "open(folder + '/../../.git/' + 'HEAD').read()",
    "sorted(os.listdir(folder + '/../..'))",
    "os.path.getsize(folder + '/../../READ' + 'ME.md')",
    "oct(os.stat(folder + '/scale_triton.py').st_mode)",
)
"""What a kernel could ask that is to be slow after a change of none of its files."""


@pytest.fixture
def project(tmp_path):
    with quick_topic(tmp_path) as (root, _):
        yield root


def ask(root, *questions):
    """What the process of scale gets as an answer, with its root and the real one in the place of names."""
    with open_bench(load(root), print) as bench:
        place = place_needed(bench, bench.settings, list_files(select(bench.settings, ("scale",))))
        around = make_environment(bench, WorkerPlace("scale", "fake", place.root))
        code = """
import json, os, sys
folder, root, *questions = json.loads(sys.argv[1])
def answer(question):
    try:
        return str(eval(question))
    except OSError as error:
        return type(error).__name__
print(json.dumps(list(map(answer, questions))))
"""
        given = json.dumps([str(place.ops[0].folder), str(root), *questions])
        plain = [sys.executable, "-c", code, given]
        commands = [plain, *([confined(plain, *around.places)] if landlock_version() else [])]
        return [
            json.loads(subprocess.run(command, check=True, capture_output=True, cwd=around.folder).stdout)
            for command in commands
        ]


def test_nothing_that_a_fingerprint_does_not_count_is_seen_even_where_nothing_confines_a_process(project):
    digest = Tree(project, project / "kernels").fingerprint("scale").digest
    before = ask(project, *TRICKS)
    for name, text in CHANGES.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    (project / "kernels" / "scale" / "scale_triton.py").chmod(0o755)

    after = ask(project, *TRICKS)

    assert Tree(project, project / "kernels").fingerprint("scale").digest == digest
    assert after == before
    assert [answer for answers in after for answer in answers[:7]] == ["FileNotFoundError"] * 7 * len(after)


@landlocked
def test_nor_is_the_project_itself_read_by_a_process_that_knows_where_it_is(project):
    (project / ".gitignore").write_text("environment/\n")
    (project / "environment").mkdir()
    (project / "environment" / "library").write_text("installed")
    commit_all(project)
    names = (*CHANGES, "kernels/scale/scale_triton.py")
    questions = [f"open(root + '/{name}').read()" for name in names if (project / name).exists()]
    listings = ["os.listdir(root)", "os.listdir(root + '/kernels')", "os.listdir(folder + '/../../../..')"]

    _, confined_answers = ask(project, *questions, *listings, "open(root + '/environment/library').read()")

    assert confined_answers == ["PermissionError"] * (len(questions) + 3) + ["installed"]


def test_an_op_that_may_need_any_file_has_the_whole_project_and_is_never_proven_unchanged(project):
    kernel = project / "kernels" / "scale" / "scale_triton.py"
    kernel.write_text("import importlib\nimportlib.import_module('perfci.device.' + 'fake')\n" + kernel.read_text())

    with open_bench(load(project), print) as bench:
        place = place_needed(bench, bench.settings, list_files(select(bench.settings, ("scale",))))
        assert (place.root, place.head_root) == (project, None)
    assert Tree(project, project / "kernels").fingerprint("scale").opaque.kind == "imports_unknown"


def test_no_link_leads_this_process_to_what_an_op_could_not_read(project, tmp_path):
    """Its environment, which holds a job's tokens, what git keeps, or a file beside the project."""
    (tmp_path / "outside").write_text("theirs")
    (project / "shared.txt").write_text("ours")
    folder, root = (project / "kernels" / "scale"), project
    targets = {"environ": "/proc/self/environ", "git": root / ".git" / "config", "out": tmp_path / "outside"}
    for name, target in {**targets, "inside": root / "shared.txt"}.items():
        (folder / f"{name}.txt").symlink_to(target)

    with open_bench(load(project), print) as bench:
        copies = place_needed(bench, bench.settings, list_files(select(bench.settings, ("scale",)))).ops[0].folder
        kinds = {name: (copies / f"{name}.txt").is_symlink() for name in (*targets, "inside")}
        inside = (copies / "inside.txt").read_text()

    assert (kinds, inside) == ({**dict.fromkeys(targets, True), "inside": False}, "ours")


def test_a_folder_that_the_code_names_is_needed_whatever_file_of_it_is_meant(project):
    (project / "boards").mkdir()
    (project / "boards" / "fake.json").write_text("{}")
    kernel = project / "kernels" / "scale" / "scale_triton.py"
    kernel.write_text(
        kernel.read_text()
        + "\n\ndef tuned(name):\n    from pathlib import Path\n\n"
        + "    return (Path(__file__).parents[2] / 'boards' / f'{name}.json').read_text()\n"
    )

    assert ask(project, "open('boards/fake.json').read()")[0] == ["{}"]
    assert "boards/fake.json" in Tree(project, project / "kernels").fingerprint("scale").files


def test_a_project_in_a_folder_of_a_repository_hides_all_of_that(project, tmp_path):
    inner = tmp_path / "outer" / "inner"
    inner.parent.mkdir()
    (project / ".git").rename(tmp_path / "history")
    project.rename(inner)
    git(tmp_path / "outer", "init", "-q", "-b", "main")
    (tmp_path / "outer" / "flag").write_text("slow")
    commit_all(tmp_path / "outer")

    for answers in ask(inner, "open(folder + '/../../../fl' + 'ag').read()"):
        assert answers == ["FileNotFoundError"]


@pytest.mark.parametrize("change", ["chmod", "write", "chmod there and back"])
def test_files_that_were_written_for_a_run_and_touched_while_kernels_ran_judge_nothing(project, change):
    """Where neither Landlock nor a filter of calls keeps a kernel from it."""
    with open_bench(load(project), print) as bench:
        experiment = Experiment.find(bench, Request(), "check")
        for settings in (experiment.tree.settings, copy_needed(bench, bench.settings, ("scale",))):
            experiment.seal()
            file = settings.kernels / "scale" / "scale_triton.py"
            mode = file.stat().st_mode
            if change == "write":
                file.write_text("")
            else:
                file.chmod(0)
                file.chmod(mode if change == "chmod there and back" else 0o444)
            with pytest.raises(UsageError) as caught:
                experiment.seal()
            assert caught.value.reason.kind == "copies_edited"
            bench.stamps[settings.root] = stamp(settings.root)
