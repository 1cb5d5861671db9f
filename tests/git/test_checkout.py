"""A revision's files, written beside the work tree."""

import hashlib
import shutil
import stat
from pathlib import Path

import pytest

from perfci.core.model import Reason
from perfci.git.checkout import materialise
from tests.git_repositories import clone, commit_all, git, told


def files(folder: Path) -> dict[str, str]:
    """Every file's name and text; for a link, its target."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {
        str(path.relative_to(folder)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in paths
    }


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below a folder with its times, so that nothing can be made there and taken away unseen."""
    paths = (folder, *folder.rglob("*"))
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_mode, _content(path)) for path in paths}


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() and not path.is_symlink() else b""


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_the_files_are_the_commits_whatever_the_work_tree_holds(repository, tmp_path):
    write(repository, {"kernels/softmax/a.py": "old", "gone.py": "was here"})
    old = commit_all(repository)
    (repository / "gone.py").unlink()
    write(repository, {"kernels/softmax/a.py": "new"})
    commit_all(repository)
    write(repository, {"kernels/softmax/a.py": "dirty", "untracked.py": "mine", "staged.py": "staged"})
    git(repository, "add", "staged.py")

    root = materialise(repository, old, tmp_path / "base")

    assert root == tmp_path / "base"
    assert files(root) == {"file": "first", "kernels/softmax/a.py": "old", "gone.py": "was here"}


def test_work_tree_index_and_git_folder_stay_as_they_are(repository, tmp_path):
    write(repository, {"a.py": "dirty", "staged.py": "staged"})
    git(repository, "add", "staged.py")
    for setting in ("core.splitIndex", "core.untrackedCache", "index.sparse"):
        git(repository, "config", setting, "true")
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    before = state(repository)

    assert materialise(repository, "HEAD", tmp_path / "base") == tmp_path / "base"
    assert state(repository) == before
    assert not (tmp_path / "hooked").exists()
    assert files(tmp_path / "base") == {"file": "first"}


def test_of_a_project_inside_the_repository_only_the_project_is_written(repository, tmp_path):
    write(repository, {"gpu/kernels/a.py": "a", "gpu2/b.py": "b", "web/index.html": "c"})
    commit_all(repository)

    root = materialise(repository / "gpu", "HEAD", tmp_path / "base")

    assert root == tmp_path / "base" / "gpu"
    assert files(tmp_path / "base") == {"gpu/kernels/a.py": "a"}


NAMES = ["with space", "two\nlines", "Größe.py", "tab\there", '"quoted"', "-option", "back\\slash", ":(glob)*", "ends "]


@pytest.mark.parametrize("name", NAMES)
def test_odd_file_names_are_written(repository, tmp_path, name):
    write(repository, {f"inner {name}/{name}": "odd"})
    commit_all(repository)

    root = materialise(repository, "HEAD", tmp_path / "base")

    assert isinstance(root, Path)
    assert files(root)[f"inner {name}/{name}"] == "odd"


def test_links_and_executable_files_stay_what_they_are(repository, tmp_path):
    write(repository, {"run.sh": "#!/bin/sh", "plain.py": "x"})
    (repository / "run.sh").chmod(0o755)
    (repository / "link.py").symlink_to("plain.py")
    (repository / "dangling").symlink_to("nowhere")
    commit_all(repository)

    root = materialise(repository, "HEAD", tmp_path / "base")

    assert isinstance(root, Path)
    assert (root / "run.sh").stat().st_mode & stat.S_IXUSR
    assert not (root / "plain.py").stat().st_mode & stat.S_IXUSR
    assert (root / "link.py").readlink() == Path("plain.py")
    assert (root / "dangling").readlink() == Path("nowhere")


def test_submodules_are_left_out(forked, repository, tmp_path):
    inner = clone(forked, "-b", "topic")
    shutil.move(inner, repository / "module")
    git(repository, "-c", "advice.addEmbeddedRepo=false", "add", "module")
    git(repository, "commit", "-q", "-m", "a submodule")

    root = materialise(repository, "HEAD", tmp_path / "base")

    assert isinstance(root, Path)
    assert git(repository, "ls-files", "--stage", "module").startswith("160000")
    assert not (root / "module").exists()


def store_large(repository: Path, content: bytes) -> str:
    """What Git LFS keeps of a file; its pointer."""
    digest = hashlib.sha256(content).hexdigest()
    kept = repository / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content)
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n"


@pytest.mark.parametrize(("kept", "expected"), [(b"content", "content"), (b"forged", "pointer"), (None, "pointer")])
def test_a_large_file_is_what_its_pointer_stands_for_or_stays_a_pointer(repository, tmp_path, kept, expected):
    pointer = store_large(repository, b"content")
    write(repository, {".gitattributes": "*.bin filter=lfs\n", "weights.bin": pointer, "a.py": "a"})
    commit_all(repository)
    git(repository, "config", "filter.lfs.smudge", f"touch {tmp_path}/ran")
    git(repository, "config", "filter.lfs.required", "true")
    (path,) = repository.glob(".git/lfs/objects/*/*/*")
    path.unlink() if kept is None else path.write_bytes(kept)

    root = materialise(repository, "HEAD", tmp_path / "base")

    assert isinstance(root, Path)
    assert files(root)["weights.bin"] == {"content": "content", "pointer": pointer}[expected]
    assert files(root)["a.py"] == "a"
    assert not (tmp_path / "ran").exists()


def test_a_revision_before_the_project_began_is_said(repository, tmp_path):
    first = git(repository, "rev-parse", "HEAD")
    write(repository, {"gpu/a.py": "a"})
    commit_all(repository)

    reason = told(materialise)(repository / "gpu", first, tmp_path / "base")

    assert reason == Reason("project_not_in_revision", {"folder": "gpu/", "revision": first[:10]})
