"""docs/try.md, in both languages: anyone who types its commands and does its edits sees what it promises."""

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perfci.worker.warm import NODES
from tests.git_repositories import commit_all, git

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"en": ROOT / "docs" / "try.md", "zh": ROOT / "docs" / "zh" / "try.md"}
EDIT = re.compile(r"`(mask=at < size - 1)`")
CODE = re.compile(r"(?:exit code is|\u9000\u51fa\u7801\u662f) (\d)")
ACCELERATED = any(True for name in NODES for _ in Path("/dev").glob(name))


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@dataclass
class Reader:
    """Somebody who follows a page in a repository, with perfci as a program on the path."""

    page: str
    root: Path
    device: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)

    def type(self, line: str) -> Answer:
        """Types a line into a shell. `perfci check` gets the option --device if one is set."""
        bin_folder = self.root.parent / "bin"
        bin_folder.mkdir(exist_ok=True)
        more = f'case "$1" in check) set -- "$@" --device {self.device};; esac\n' if self.device else ""
        program = bin_folder / "perfci"
        program.write_text(f'#!/bin/sh\n{more}exec "{sys.executable}" -m perfci "$@"\n')
        program.chmod(0o755)
        known = {
            name: value for name, value in os.environ.items() if not name.startswith(("PERFCI", "CI", "GIT", "PY"))
        }
        environment = {**known, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
        environment |= {"GIT_CEILING_DIRECTORIES": str(self.root.parent), "HOME": str(self.root.parent)}
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        answer = Answer(done.returncode, done.stdout, done.stderr)
        self.answers.setdefault(line, answer)
        assert "Traceback" not in answer.err
        return answer

    @property
    def parts(self) -> list[tuple[str, str, str]]:
        """Every block of the page: the prose before it, its language and its text."""
        parts = re.split(r"```(\w+)\n(.*?)```", self.page, flags=re.DOTALL)
        return list(zip(parts[::3], parts[1::3], parts[2::3], strict=False))

    @property
    def commands(self) -> list[str]:
        """The page's calls of perfci, in order."""
        lines = (line for _, kind, text in self.parts if kind == "sh" for line in text.splitlines())
        return [line.split("  #")[0].strip() for line in lines if line.startswith("perfci ")]

    @property
    def shown(self) -> list[str]:
        return [text for _, kind, text in self.parts if kind == "text"]


def begin(page: Path, folder: Path) -> Reader:
    root = folder / "repository"
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    return Reader(page.read_text(encoding="utf-8"), root, "cpu" if ACCELERATED else "")


def shape(text: str) -> str:
    """Without what differs from run to run and from machine to machine."""
    return re.sub(r"\d+", "N", " ".join(text.split()))


@pytest.fixture(scope="module", params=PAGES)
def reader(request, tmp_path_factory) -> Reader:
    """Has followed the page up to the first verdict."""
    reader = begin(PAGES[request.param], tmp_path_factory.mktemp("try"))
    for _, kind, text in reader.parts:
        if kind == "python":
            name, _, kernel = text.partition("\n")
            path = reader.root / name.removeprefix("# ")
            path.parent.mkdir(parents=True)
            path.write_text(kernel, encoding="utf-8")
    for line in reader.commands[1:4]:
        reader.type(line)
    return reader


@pytest.mark.parametrize("name", PAGES)
def test_what_is_installed_is_there(name):
    page = PAGES[name].read_text(encoding="utf-8")
    extras = re.findall(r"pip install 'perfci\[(\w+)\] @", page)

    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*extras} == {"cpu", "cuda"} <= known["optional-dependencies"].keys()
    assert known["requires-python"].startswith(">=3.11") and "Python 3.11" in page


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_the_page_is_run_here(name, tmp_path):
    reader = begin(PAGES[name], tmp_path)

    new = "perfci new silu --from mylib/silu.py:silu --reference torch.nn.functional.silu"
    first = ["perfci demo", "perfci init", new, "perfci check silu"]
    assert reader.commands == [*first, "perfci check --no-judge", "perfci accept"]
    assert len(reader.shown) == 2
    english = begin(PAGES["en"], tmp_path.parent / f"{tmp_path.name}-en")
    for part in (lambda it: it.shown, lambda it: EDIT.findall(it.page), lambda it: CODE.findall(it.page)):
        assert part(reader) == part(english)
    for readme in ("README.md", "README.zh-CN.md"):
        assert all(command in (ROOT / readme).read_text(encoding="utf-8") for command in first)


@pytest.mark.nightly  # tests/flow/test_readme.py has the same demo
@pytest.mark.parametrize("name", PAGES)
def test_the_demo_shows_a_red_gate(name, tmp_path):
    reader = begin(PAGES[name], tmp_path)

    demo = reader.type(reader.commands[0])

    assert demo.code == int(CODE.search(reader.page)[1]) == 2
    assert "planted in scale: 4 % slower" in demo.out
    assert {"REGRESSED", "WRONG"} <= {line.split()[0] for line in demo.out.splitlines() if line.strip()}


@pytest.mark.torch
@pytest.mark.nightly  # tests/extensions/adopt and tests/extensions/setup take the same commands in one process
def test_three_commands_lead_to_a_first_verdict(reader):
    init, new, check = (reader.answers[line] for line in reader.commands[1:4])

    assert (init.code, new.code, check.code) == (0, 0, 0)
    listed = {line.split()[0] for line in init.out.splitlines() if "new" in line.split()[1:2]}
    assert {"pyproject.toml", "thresholds/default.yaml", ".gitignore"} <= listed
    assert all((reader.root / name).is_file() for name in listed)
    files = sorted(path.name for path in (reader.root / "kernels" / "silu").iterdir())
    assert files == ["silu.md", *(f"silu_{part}.py" for part in ("accuracy", "baseline", "performance", "triton"))]
    assert "from mylib.silu import silu" in (reader.root / "kernels" / "silu" / "silu_triton.py").read_text()
    assert "The inputs are guessed" in new.out
    assert shape(reader.shown[0]) in shape(check.out)
    assert (reader.root / "reports" / "report.md").is_file()


@pytest.mark.torch
@pytest.mark.nightly  # tests/flow/test_what_ships.py breaks the function that ships in the same way
def test_what_the_page_has_broken_is_wrong_until_it_is_repaired(reader):
    told = next(prose for prose, _, _ in reader.parts if EDIT.search(prose))
    path, edit = reader.root / re.search(r"`(\S+\.py)`", told)[1], EDIT.search(told)[1]
    before = path.read_text(encoding="utf-8")
    last = re.findall(r"^.*mask=at < size\b.*$", before, re.MULTILINE)[-1]
    assert last.strip().startswith("tl.store")
    path.write_text(before.replace(last, last.replace("mask=at < size", edit)), encoding="utf-8")

    wrong = reader.type(reader.commands[3])
    again = reader.type(re.search(r"^Next: (.*)$", wrong.out, re.MULTILINE)[1])
    path.write_text(before, encoding="utf-8")
    right = reader.type(reader.commands[3])

    assert (wrong.code, again.code, right.code) == (2, 2, 0)
    assert shape(reader.shown[1]) in shape(wrong.out)
    assert "WRONG" in again.out


@pytest.mark.torch
@pytest.mark.nightly
def test_the_answer_is_chinese_if_that_is_asked_for(reader):
    if "--lang zh" not in reader.page:
        assert reader.page.startswith("# Try it")
        return
    answer = reader.type(f"{reader.commands[3]} --lang zh")

    assert answer.code == 0
    assert re.search("[\u4e00-\u9fff]", answer.out)


# --- on a GPU ---------------------------------------------------------------------------------------------------------


def follow_baselines(reader: Reader, op: str) -> None:
    """The last two commands, and what the page says of checks before and after them."""
    measure, accept = reader.commands[4:]
    first = reader.type(f"perfci check {op}")
    commit_all(reader.root)
    assert (first.code, "NEW" in first.out) == (0, True)
    assert [reader.type(line).code for line in (measure, accept)] == [0, 0]
    commit_all(reader.root)
    later = reader.type(f"perfci check {op}")
    assert (later.code, "NEW" in later.out) == (0, False), later.out
    git(reader.root, "checkout", "-q", "-b", "topic")
    kernel = reader.root / "kernels" / op / f"{op}_triton.py"
    kernel.write_text(kernel.read_text() + "\n# changed\n")
    assert "base" in reader.type(f"perfci check {op}").out


@pytest.mark.nightly  # tests/flow/test_check.py and test_against.py take the same steps in one process
@pytest.mark.parametrize("name", PAGES)
def test_numbers_become_a_baseline_and_a_branch_is_held_against_its_base(name, tmp_path):
    reader = begin(PAGES[name], tmp_path)
    reader.device = "fake"
    for line in ("perfci init", "perfci new silu --fake"):
        assert reader.type(line).code == 0

    follow_baselines(reader, "silu")


@pytest.mark.cuda
def test_on_a_gpu_the_kernel_of_the_page_gets_a_baseline(tmp_path):
    reader = begin(PAGES["en"], tmp_path)
    reader.device = "cuda"
    (reader.root / "mylib").mkdir()
    name, _, kernel = next(text for _, kind, text in reader.parts if kind == "python").partition("\n")
    (reader.root / name.removeprefix("# ")).write_text(kernel, encoding="utf-8")
    for line in reader.commands[1:3]:
        assert reader.type(line).code == 0

    follow_baselines(reader, "silu")
