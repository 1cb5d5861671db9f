"""A `.git` that a kernel could write, which configures whatever git can run."""

import shutil
from pathlib import Path

from tests.git_repositories import commit, commit_all, git, start

HOOKS = ("post-index-change", "post-checkout", "pre-commit", "reference-transaction", "post-commit", "pre-auto-gc")


def arm(directory: Path, mark: Path) -> None:
    """Let everything that git can run from a git directory leave a mark."""
    program = mark.parent / f"{mark.name}.sh"
    program.write_text(f"#!/bin/sh\necho $0 $* >> {mark}\ncat\n")
    program.chmod(0o755)
    names = ("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "core.gitProxy")
    names += ("diff.external", "diff.evil.textconv", "diff.evil.command", "merge.evil.driver", "gpg.program")
    names += ("filter.evil.clean", "filter.evil.smudge", "filter.lfs.clean", "filter.lfs.smudge", "sequence.editor")
    names += ("credential.helper", "uploadpack.packObjectsHook", "core.alternateRefsCommand", "pager.status")
    names += ("remote.origin.uploadpack", "trailer.x.command", "interactive.diffFilter", "man.viewer")
    config = "".join(f"[{name.rpartition('.')[0].replace('.', ' ' + chr(34), 1)}"
                     f"{chr(34) if name.count('.') > 1 else ''}]\n\t{name.rpartition('.')[2]} = {program}\n"
                     for name in names)  # fmt: skip
    included = mark.parent / f"{mark.name}.config"
    included.write_text(f"[core]\n\tfsmonitor = {program}\n\thooksPath = {mark.parent}\n")
    with (directory / "config").open("a") as file:
        file.write(
            f'{config}[filter "lfs"]\n\tprocess = {program}\n\trequired = true\n[include]\n\tpath = {included}\n'
        )
        file.write(f"[log]\n\tshowSignature = true\n[alias]\n\tstatus = !{program}\n\tlog = !{program}\n")
        file.write("[status]\n\tsubmoduleSummary = true\n[extensions]\n\tpartialClone = origin\n")
        file.write(f'[remote "origin"]\n\turl = ext::{program} x\n\tpromisor = true\n')
    (directory / "hooks").mkdir(exist_ok=True)
    for name in HOOKS:
        shutil.copy(program, directory / "hooks" / name)
        shutil.copy(program, mark.parent / name)
    (directory / "info").mkdir(exist_ok=True)
    (directory / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil\n")


def make_hostile(repository: Path, tmp_path: Path) -> Path:
    """A merge request with kernels that wrote whatever they like into `.git`, and into a submodule's."""
    inner = start(tmp_path / "inner")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner.as_uri(), "module")
    (repository / ".gitattributes").write_text("*.py filter=evil diff=evil\n*.bin filter=lfs\n")
    (repository / "a.py").write_text("a")
    (repository / "pyproject.toml").write_text("[tool.perfci]\n")
    (repository / "baselines").mkdir()
    (repository / "baselines" / "README.md").write_text("Numbers.\n")
    commit_all(repository)
    git(repository, "tag", "v1")
    git(repository, "checkout", "-q", "-b", "topic")
    commit(repository, "b", "a.py")
    (repository / "a.py").write_text("changed")
    (repository / "module" / "file").write_text("changed")
    mark = tmp_path / "mark"
    arm(repository / ".git", mark)
    arm(repository / ".git" / "modules" / "module", mark)
    return repository
