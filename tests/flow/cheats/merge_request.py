"""A merge request in which each op but one begins to cheat, and all were honest before."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

HONEST = "def cheat(x):\n    spring()\n    return honest(x)\n"
BEST = "the_honest_kernel"  # an op beside the cheats


@dataclass(frozen=True)
class Setting:
    """The files of an op beside its trick, and its sizes."""

    prelude: str
    baseline: str
    suite: str
    call: str  # how the op's function calls the trick
    rows: tuple[int, ...] = (3, 64)  # of the accuracy suite
    timed_rows: tuple[int, ...] = (256,)
    timed_cols: int = 128
    backend: str = "triton"
    list_further: Callable[[str, bool], Mapping[str, str]] = lambda _op, _cheats: {}
    """what there is beside an op's Python, by path below kernels/"""

    def write(self, root: Path, op: str, source: str, *, cheats: bool = False) -> None:
        """Write the folder of one op."""
        folder = root / "kernels" / op
        folder.mkdir(parents=True, exist_ok=True)
        prelude = self.prelude.replace("TIMED_ROWS", str(self.timed_rows[0]))
        files = {self.backend: f"{prelude}{source}{self.call}", "baseline": self.baseline}
        accuracy = {"KIND": "accuracy", "CLASS": "Accuracy", "ROWS": f"{[*self.rows]}", "COLS": "[128]"}
        timed = {"KIND": "performance", "CLASS": "Performance", "ROWS": f"{[*self.timed_rows]}"}
        accuracy["MORE"] = 'values=("normal", "zeros")'
        timed |= {"COLS": f"[{self.timed_cols}]", "MORE": "bytes_moved=lambda rows, cols: 8 * rows * cols"}
        for suite in (accuracy, timed):
            text = self.suite
            for name, value in suite.items():
                text = text.replace(name, value)
            files[suite["KIND"]] = text
        for part, text in files.items():
            (folder / f"{op}_{part}.py").write_text(text.replace("OP_triton", f"{op}_{self.backend}").replace("OP", op))
        for name, text in self.list_further(op, cheats).items():
            (root / "kernels" / name).write_text(text)


def variables(folder: Path) -> dict[str, str]:
    """This process's variables, with git kept to what is below a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PERFCI_WRITABLE"}
    environment |= {
        "GIT_CEILING_DIRECTORIES": str(folder),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    people = [f"GIT_{role}_{part}" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")]
    return environment | dict.fromkeys(people, "tester@example.org")


def begin(root: Path, sources: Mapping[str, str], setting: Setting) -> None:
    """A repository with these sources on the branch `topic`, and honest ones on `main`."""

    def git(*arguments: str) -> None:
        command = ["git", "-C", str(root), *arguments]
        subprocess.run(command, check=True, capture_output=True, env=variables(root.parent))

    root.mkdir()
    (root / "pyproject.toml").write_text("[tool.perfci]\n")
    (root / ".gitignore").write_text("reports/\n__pycache__/\n")
    for op in (BEST, *sources):
        setting.write(root, op, HONEST.replace("    spring()\n", ""))
    git("init", "-q", "-b", "main")
    git("add", "--all")
    git("commit", "-q", "-m", "honest")
    git("checkout", "-q", "-b", "topic")
    shutil.copytree(root / "kernels", root.parent / "base")
    setting.write(root, BEST, HONEST)
    for op, source in sources.items():
        setting.write(root, op, source, cheats=True)
    git("add", "--all")
    git("commit", "-q", "-m", "cheats")
