"""Fingerprints of a work tree and of revisions beside it."""

from pathlib import Path

import pytest

from perfci.git.checkout import materialise
from perfci.ops.fingerprint.tree import Fingerprint, Tree
from tests.git_repositories import commit_all, git, start

TRITON = "kernels/softmax/softmax_triton.py"


@pytest.fixture
def project(tmp_path) -> Path:
    """A project in a folder of a repository, committed."""
    folder = start(tmp_path / "repository") / "gpu"
    for name, text in {
        TRITON: "import _launch\n",
        "kernels/_launch.py": "",
        "kernels/_devices/Größe 1.json": "{}",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    commit_all(folder)
    return folder


def of_base(project: Path, name: str, into: Path) -> Fingerprint:
    root = materialise(project, name, into)
    assert isinstance(root, Path)
    return Tree(root, root / "kernels").fingerprint("softmax")


def of_work_tree(project: Path) -> Fingerprint:
    return Tree(project, project / "kernels").fingerprint("softmax")


def test_a_clean_work_tree_is_the_same_as_its_commit(project, tmp_path):
    head, base = of_work_tree(project), of_base(project, "HEAD", tmp_path / "base")

    assert head.same_as(base)
    assert head.files.keys() == {TRITON, "kernels/_launch.py", "kernels/_devices/Größe 1.json"}
    assert head.changed_files(base) == ()


def test_a_dirty_work_tree_is_taken_as_it_is(project, tmp_path):
    (project / "kernels/_launch.py").write_text("changed = True\n")
    (project / "kernels/softmax/untracked.json").write_text("{}")

    head, base = of_work_tree(project), of_base(project, "HEAD", tmp_path / "base")

    assert not head.same_as(base)
    assert head.changed_files(base) == ("kernels/_launch.py", "kernels/softmax/untracked.json")


def test_a_commit_beside_the_op_leaves_it_the_same(project, tmp_path):
    old = git(project, "rev-parse", "HEAD")
    (project / "kernels/matmul").mkdir()
    (project / "kernels/matmul/matmul_triton.py").write_text("import _launch\n")
    (project / "README.md").write_text("Another word.")
    commit_all(project)

    assert of_work_tree(project).same_as(of_base(project, old, tmp_path / "base"))


def test_an_opaque_base_is_never_the_same(project, tmp_path):
    (project / "kernels/_launch.py").write_text("exec(open('x').read())\n")
    commit_all(project)

    head, base = of_work_tree(project), of_base(project, "HEAD", tmp_path / "base")

    assert head.digest == base.digest
    assert not head.same_as(base)
