"""A throw-away project on the fake device, and perfci run on it."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from perfci import store
from perfci.cli.demo import write_project
from perfci.cli.main import run
from perfci.core.model import Run
from tests.extensions.history.test_boards import fleet
from tests.git_repositories import alone, begin_topic
from tests.program import COMMAND
from tests.stored_examples import append_history

# As each test waits for its launches, they are few, and vary so little that few blocks tell.
QUICK = "[tool.perfci.fake]\nlaunch_noise = 0.001\nspike_share = 0.0\nmost_rounds = 8\n"


def write_quick(root: Path) -> None:
    """The demo's project with quick checks: one number of columns will do where accuracy is not what is tested."""
    write_project(root)
    (root / "pyproject.toml").write_text(QUICK)
    for suite in root.glob("kernels/*/*_accuracy.py"):
        suite.write_text(suite.read_text().replace("cols=[1, 31, 128]", "cols=[31]"))


@contextlib.contextmanager
def quick_topic(folder):
    """A demo project in a folder, on a branch, with quick checks: its root and the kernel of scale."""
    root = folder / "project"
    write_quick(root)
    with pytest.MonkeyPatch.context() as patched:
        alone(patched, folder)
        begin_topic(root)
        yield root, root / "kernels" / "scale" / "scale_triton.py"


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> dict[tuple[str, str, str | None], dict]:
        """Rows of a JSON answer by op, suite and case."""
        return {(row["op"], row["suite"], row["case"]): row for row in json.loads(self.out)["verdicts"]}

    def verdicts(self, op: str) -> set[str]:
        """All verdicts about one op."""
        return {row["verdict"] for (name, _, _), row in self.rows.items() if name == op}


def find_boards(run: Run) -> set[str | None]:
    """The boards that a run's blocks were measured on."""
    here = run.environment.device.uuid
    return {block.board or here for op in run.ops for case in op.performance for block in case.blocks}


@dataclass(frozen=True)
class Measured:
    """What checks found of projects that nothing was measured in before, for the tests that only begin with it."""

    folder: Path
    answers: dict[str, Answer] = field(default_factory=dict)


class Project:
    """A project folder with three sound ops."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str], measured: Measured | None = None) -> None:
        self.root = root
        self._capsys = capsys
        self._measured = measured

    def op_file(self, op: str, part: str) -> Path:
        return self.root / "kernels" / op / f"{op}_{part}.py"

    def edit(self, op: str, part: str, before: str, after: str) -> None:
        """Replace text in one of an op's files; the text must be there."""
        path = self.op_file(op, part)
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))

    def copy_op(self, op: str, name: str) -> None:
        """The same op under another name."""
        source, target = (self.root / "kernels" / folder for folder in (op, name))
        target.mkdir()
        for path in source.glob("*.py"):
            (target / path.name.replace(op, name)).write_text(path.read_text().replace(op, name))

    def perfci(self, *arguments: str) -> Answer:
        """Runs a command in this process, on the fake device if it takes one."""
        self._capsys.readouterr()
        code = run([*arguments, "--project", str(self.root)])
        seen = self._capsys.readouterr()
        return Answer(code, seen.out, seen.err)

    def check(self, *arguments: str) -> Answer:
        """`perfci check` on the fake device, answered in JSON."""
        return self.perfci("check", "--device", "fake", "--format", "json", "--seed", "7", *arguments)

    def first_check(self, *arguments: str) -> Answer:
        """The same as the first step of a test about something else: once for all tests with the very same files."""
        reports = self.root / "reports"
        assert not reports.exists()
        key = self._content(arguments)
        kept = self._measured.folder / key
        if key not in self._measured.answers:
            self._measured.answers[key] = self.check(*arguments)
            shutil.copytree(reports, kept)
        else:
            shutil.copytree(kept, reports)
        return self._measured.answers[key]

    def _content(self, arguments: tuple[str, ...]) -> str:
        """A name for a command and every file of the project."""
        files = sorted(path for path in self.root.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
        held = [(str(path.relative_to(self.root)), path.read_bytes()) for path in files]
        return hashlib.sha256(repr((arguments, held)).encode()).hexdigest()

    def accept(self) -> Answer:
        return self.perfci("accept", str(self.root / "reports"))

    def run_record(self) -> Run:
        return store.read_run(self.root / "reports")

    def plant_sick(self, sick: str) -> None:
        """Nights in the history of relu on three boards, of which one is slow, and is the last of each night."""
        boards = dict.fromkeys(("FAKE-0", "FAKE-1", "FAKE-2"), 0.0)
        del boards[sick]
        for night in fleet(4, {**boards, sick: 0.1}):
            place = replace(night.environment, device=replace(night.environment.device, key="fake-one"))
            append_history(self.root / "baselines", "fake-one", "relu", replace(night, environment=place))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command as a separate process, for signals."""
        return subprocess.Popen(
            [*COMMAND, *arguments, "--project", str(self.root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return Measured(tmp_path_factory.mktemp("measured"))


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str], measured: Measured) -> Project:
    root = tmp_path / "project"
    write_quick(root)
    return Project(root, capsys, measured)


@pytest.fixture
def editable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a project's module `speeds` like an editable installation: a hook finds it from anywhere.

    Gives a function that writes the module, with a number in it.
    """
    hook = tmp_path / "hook"
    hook.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(hook))

    def install(root: Path, speed: float) -> None:
        place = root / "lib" / "speeds.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"SPEED = {speed}\n")
        (hook / "sitecustomize.py").write_text(
            "import importlib.util, sys\n"
            "class Editable:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name == 'speeds':\n"
            f"            return importlib.util.spec_from_file_location(name, {str(place)!r})\n"
            "sys.meta_path.insert(0, Editable())\n"
        )

    return install
