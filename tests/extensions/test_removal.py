"""An extension is removed by deleting its folder and its line, and the gate works without it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perfci
from perfci.core.errors import UsageError
from perfci.core.extensions import NAMES, POINTS, Extension, read_extensions
from tests.runs.stand_ins import write_ops
from tests.thresholds.earned_examples import earned, kept

PACKAGE = Path(perfci.__file__).parent
STORED = Path(__file__).parents[1] / "stored/format-1/reports/run.json"


def without(names, folder: Path) -> Path:
    """Returns a folder with perfci as it is without these extensions."""
    shutil.copytree(PACKAGE, folder / "perfci")  # what is compiled too, as each file keeps its time
    register = folder / "perfci/core/extensions.py"
    lines = register.read_text().splitlines(keepends=True)
    kept = [line for line in lines if line.strip() not in {f'"{name}",' for name in names}]
    assert len(lines) - len(kept) == len(names)
    register.write_text("".join(kept))
    for name in names:
        shutil.rmtree(folder / "perfci/extensions" / name)
    return folder


def run(place: Path, *arguments: str, where: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(place)!r}); from perfci.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=where, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(place)},
    )  # fmt: skip


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [NAMES, *(pytest.param((name,), marks=pytest.mark.nightly) for name in NAMES)],  # `make lint` has who imports whom
    ids="+".join,
)
def test_the_demo_is_judged_as_ever_without_an_extension(names, tmp_path):
    place = without(names, tmp_path / "place")

    demo = run(place, "demo", "--keep", str(tmp_path / "demo"), where=tmp_path)

    assert demo.returncode in {0, 2}, demo.stderr
    assert "row_sum answers as if the end of cols were left out" in demo.stdout
    assert "REGRESSED" in demo.stdout
    assert run(place, "--help", where=tmp_path).returncode == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """perfci without the extensions that the options below need."""
    return without({*NEEDED, "lowprec"}, tmp_path_factory.mktemp("place"))


APPLIED = """
from perfci.core import settings
from perfci.runs.effective_thresholds import in_force
from tests.thresholds.earned_examples import CASE, HERE
from pathlib import Path
limits = in_force(settings.load(Path()), HERE, "2026-11-28T00:00:00Z").limits
print(limits.for_case("softmax", CASE).tau, limits.for_case("softmax", "rows=8").tau)
"""


def test_what_was_earned_is_read_and_applied_without_the_ratchet(place, tmp_path):
    project = tmp_path / "project"
    write_ops(project, ["softmax"])
    (project / "thresholds").mkdir()
    (project / "thresholds/softmax.yaml").write_text("tau:\n  0: 2 %\n")
    kept(project / "thresholds", earned(value=0.0075))
    tests = Path(__file__).parents[2]

    def read(perfci: Path) -> str:
        path = os.pathsep.join(map(str, (perfci, tests)))
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.check_output([sys.executable, "-c", APPLIED], cwd=project, text=True, env=environment)

    assert read(place) == "((0.0, 0.0075),) ((0.0, 0.02),)\n" == read(PACKAGE.parent)
    command = run(place, "thresholds", "show", where=project)
    assert (command.returncode, "There is no command thresholds" in command.stderr) == (1, True)


def test_a_group_that_extensions_fill_stays_a_group_if_they_leave_one_command_or_none(place, tmp_path):
    alone = run(place, "ci", "nothing", where=tmp_path)
    empty = run(without(("note", "shards"), tmp_path / "empty"), "ci", "--help", where=tmp_path)

    assert "There is no command nothing: name one of note." in alone.stderr
    assert (empty.returncode, "What pipelines call" in empty.stdout) == (0, True), empty.stderr


@pytest.mark.nightly  # the demo above goes the same way on the fake device
@pytest.mark.torch
def test_the_first_op_of_this_repository_passes_without_any_extension(tmp_path):
    place = without(NAMES, tmp_path / "place")
    for name in ("kernels", "thresholds"):
        shutil.copytree(PACKAGE.parent / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")

    done = run(place, "check", "--op", "broadcast", "--device", "cpu", "--case", "rows=*", where=tmp_path)

    assert (done.returncode, done.stderr.count("Error")) == (0, 0), done.stdout + done.stderr
    assert "PASS     broadcast accuracy" in done.stdout


def test_an_extension_provides_at_points_that_the_gate_has():
    assert {point for extension in read_extensions().values() for point in extension.provides} <= POINTS.keys()
    with pytest.raises(ValueError, match="no such point: nowhere"):
        Extension(provides={"nowhere": ()})


NEEDED = {
    "history": [
        "check --against-release",
        "accept RUN --environment",
        "accept --propose",
        "accept RUN --why=a --slower",
        "check --retry=RUN",
    ],
    "shards": ["check --shard=1/2 --plan=RUN", "check --devices=all"],
    "lab": ["check --toolchain=triton==3.7.0", "doctor --selftest", "check relu --watch"],
    "offline": ["static --coverage"],
    "beyond": ["check --thorough", "check --sanitize"],
    "ray": ["check --device=fake --on=ray"],
}
"""extension -> commands, the last word of which needs it"""

ONE_BY_ONE = """
import contextlib, io, json, sys
from perfci.cli.main import run
answers = []
for words in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()):
        code = run(words)
    answers.append((code, err.getvalue()))
print(json.dumps(answers))
"""


def run_all(place: Path, commands: list[str], where: Path) -> list[tuple[int, str]]:
    """Exit codes and standard errors of commands in one process. RUN: the stored run."""
    words = [command.replace("RUN", str(STORED)).split() for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(place)!r})\n{ONE_BY_ONE}"],
        cwd=where, input=json.dumps(words), capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(place)},
    )  # fmt: skip
    return json.loads(done.stdout)


def test_an_option_of_an_extension_that_was_removed_names_what_is_missing(place, tmp_path):
    write_ops(tmp_path, ["relu"])
    asked = [(extension, command) for extension, commands in NEEDED.items() for command in commands]

    answers = run_all(place, [command for _, command in asked], tmp_path)

    for (extension, command), (code, err) in zip(asked, answers, strict=True):
        option = command.split()[-1].partition("=")[0]
        assert code == 1
        assert re.search(f"This perfci lacks the extension {extension}, which {option}(, or cluster .*)? needs?:", err)


def test_pages_need_the_extension_that_draws_and_a_report_of_markdown_does_not(tmp_path):
    place = without(("pictures",), tmp_path / "place")
    write_ops(tmp_path, ["relu"])
    shutil.copytree(STORED.parents[1] / "baselines", tmp_path / "baselines")
    needing = {"check --html": "report.html", "report RUN --to html --out x": "report.html",
               "report --to site": "--to site"}  # fmt: skip

    *refused, written = run_all(place, [*needing, "report RUN --out out"], tmp_path)

    for needed_by, (code, err) in zip(needing.values(), refused, strict=True):
        assert (code, f"lacks the extension pictures, which {needed_by} needs:" in err) == (1, True), err
    assert (written[0], (tmp_path / "out/report.md").exists()) == (0, True), written


def test_a_run_cannot_be_loaded_without_the_extension_that_does_it_and_a_sentence_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("perfci.core.extensions.provided", lambda point: iter(()))

    with pytest.raises(UsageError, match=r"perfci\.load"):
        perfci.load(tmp_path)


@pytest.mark.nightly
def test_an_op_that_declares_stored_tensors_is_refused_without_the_extension_that_checks_them(place, tmp_path):
    (tmp_path / "kernels").mkdir()
    assert run(place, "new", "scale", "--fake", where=tmp_path).returncode == 0
    suite = tmp_path / "kernels/scale/scale_accuracy.py"
    text, field = suite.read_text(), "    make_inputs=make_inputs,\n"
    assert field in text
    suite.write_text(
        text.replace(field, f'{field}    quantised=perfci.Quantised(lambda **_: {{}}, [{{"scaling": "row"}}]),\n')
    )

    done = run(place, "list", "--device", "fake", where=tmp_path)

    assert done.returncode == 1
    assert "lacks the extension lowprec, which perfci.Quantised needs" in " ".join(done.stdout.split())
