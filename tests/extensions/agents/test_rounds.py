"""Rounds of optimising an op in real repositories, on the fake device: judged, refused, stored and shown."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from perfci import store
from perfci.core import locks
from perfci.core.wording import sentence
from perfci.extensions.agents.logbook import FILE, read_logbook
from tests.closed_schemas import faults
from tests.flow.conftest import quick_topic
from tests.git_repositories import begin_topic, commit_all, git
from tests.program import call

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[3] / "docs" / "rounds.md"
SPEED = "US_PER_MEGABYTE = 320.0"


@pytest.fixture
def kernel(project):
    """The project on a topic branch, with a kernel of scale that can be tried."""
    begin_topic(project.root)
    return project


@pytest.fixture(scope="module")
def first_round(tmp_path_factory):
    """A project with a kernel of scale that takes 300 us a megabyte instead of 320, which was tried and kept."""
    with quick_topic(tmp_path_factory.mktemp("first_round")) as (root, path):
        path.write_text(path.read_text().replace(SPEED, "US_PER_MEGABYTE = 300.0"))
        words = ("scale", "--why", "one pass less", "--expect", "+5%", "--device", "fake", "--seed", "7")
        assert call("try", *words, "--project", str(root)).code == 0
    return root


@pytest.fixture
def kept(first_round, project):
    """A project with that round as its first."""
    shutil.rmtree(project.root)
    shutil.copytree(first_round, project.root)
    return project


def attempt(project, us=None, *arguments, why="fewer bytes"):
    """Change how long scale takes, and try that. Returns the command's answer."""
    if us is not None:
        path = project.op_file("scale", "triton")
        path.write_text(re.sub(r"US_PER_MEGABYTE = [\d.]+", f"US_PER_MEGABYTE = {us}", path.read_text()))
    return project.perfci("try", "scale", "--why", why, "--device", "fake", "--seed", "7", *arguments)


def rounds(project, op="scale"):
    return read_logbook(project.root / "kernels" / op).rounds


def last(project):
    return rounds(project)[-1]


def kinds(round_):
    return [reason.kind for reason in round_.reasons]


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_a_faster_kernel_is_kept_and_the_next_round_is_compared_with_it(kept):
    second = attempt(kept, 290.0)

    assert second.code == 0
    one, two = rounds(kept)
    assert [round_.verdict for round_ in (one, two)] == ["kept", "kept"]
    assert (one.number, one.best, one.against, one.start) == (1, 0, one.start, git(kept.root, "rev-parse", "HEAD"))
    assert (two.number, two.best, two.against, two.start) == (2, 1, one.commit, one.start)
    assert (one.expected, two.expected, one.kinds, one.files) == (
        0.05, None, ("tuning",), ("kernels/scale/scale_triton.py",),
    )  # fmt: skip
    # 320 to 300, and 300 to 290, but for a fixed part of 2 us.
    assert one.gain.value == pytest.approx(0.064, abs=0.004) and one.gain.low > 0.05
    assert two.gain.value == pytest.approx(0.033, abs=0.003)
    assert (one.total, two.total.value) == (one.gain, pytest.approx(0.099, abs=0.004))
    assert all(case.start and case.best and case.us and case.reference_us for case in two.cases)
    assert [round_.place for round_ in (one, two)] == [1, 2]
    assert two.gain.confidence > one.gain.confidence > 0.95  # wider, as there were more tries


def test_what_a_round_tried_is_a_commit_that_differs_in_the_kernel_alone(kept):
    head, round_ = git(kept.root, "rev-parse", "topic"), last(kept)

    assert git(kept.root, "rev-parse", "refs/perfci/rounds/scale/1") == round_.commit
    assert git(kept.root, "diff", "--name-only", head, round_.commit) == "kernels/scale/scale_triton.py"
    assert git(kept.root, "log", "-1", "--format=%s", round_.commit) == "scale, round 1: one pass less"
    assert "300.0" in git(kept.root, "show", f"{round_.commit}:kernels/scale/scale_triton.py")
    # Neither HEAD nor the index has changed, and the work tree only by the logbook.
    assert git(kept.root, "rev-parse", "HEAD") == head == git(kept.root, "rev-parse", "main")
    assert git(kept.root, "status", "--porcelain").split("\n") == [
        "M kernels/scale/scale_triton.py", f"?? kernels/scale/{FILE}",
    ]  # fmt: skip


def test_an_equal_and_a_slower_kernel_are_not_kept_and_the_way_back_is_shown(kept):
    equal = attempt(kept, 300.5)
    slower = attempt(kept, 312.0)

    assert (equal.code, slower.code) == (3, 3)
    assert [round_.verdict for round_ in rounds(kept)] == ["kept", "equal", "slower"]
    assert [round_.best for round_ in rounds(kept)] == [0, 1, 1]
    assert kinds(last(kept)) == ["round_unpromising"]  # one process was enough
    command = next(line.strip() for line in slower.out.splitlines() if "git restore" in line)
    git(kept.root, *shlex.split(command)[1:])
    assert "300.0" in kept.op_file("scale", "triton").read_text()


@pytest.mark.nightly
def test_a_case_that_is_as_in_the_best_round_has_its_times(kept):
    kept.edit("scale", "triton", "x.nbytes / 1e6", "x.nbytes / 1e6 * (0.9 if len(x) == 256 else 1.0)")
    attempt(kept)

    one, two = rounds(kept)
    assert two.cases[1].us == one.cases[1].us and two.cases[0].us < one.cases[0].us
    assert two.speedup > one.speedup


def test_a_wrong_kernel_and_one_that_raises_are_stored_and_never_kept(kernel):
    kernel.edit("scale", "triton", "x.dtype.type(factor)", "x.dtype.type(factor + 1)")
    wrong = attempt(kernel, 100.0)
    kernel.edit("scale", "triton", "x.dtype.type(factor + 1)", "x.dtype.type(1 / 0)")
    raised = attempt(kernel)

    assert (wrong.code, raised.code) == (2, 2)
    assert [(round_.verdict, round_.place, bool(round_.commit)) for round_ in rounds(kernel)] == [
        ("wrong", 1, True), ("error", 2, True),
    ]  # fmt: skip
    assert all(case.us is None for round_ in rounds(kernel) for case in round_.cases)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import numpy", "import nunpy\nimport numpy"),
        ("def scale(x, factor):", "def scale(x, factor:"),
        ("out = np", "fake.crash()\n    out = np"),
        pytest.param("def scale(x, factor)", "def scale(x, factor, more)", marks=pytest.mark.nightly),
    ],
)
def test_a_kernel_that_cannot_be_called_is_an_error_with_its_reason(kernel, before, after):
    kernel.edit("scale", "triton", before, after)

    assert attempt(kernel).code == 2
    round_ = last(kernel)
    assert round_.verdict == "error"
    assert round_.reasons and " - " not in sentence(round_.reasons[0])


@pytest.mark.nightly
def test_a_target_that_is_out_of_reach_changes_nothing_and_costs_no_further_process(kernel):
    (kernel.root / "thresholds").mkdir()
    (kernel.root / "thresholds" / "scale.yaml").write_text("speedup: 9\nbandwidth_share: 90 %\ncompile_s: 0.000001\n")
    commit_all(kernel.root)
    attempt(kernel, 300.0)
    first = processes(kernel)
    attempt(kernel, 300.5)

    assert [round_.verdict for round_ in rounds(kernel)] == ["kept", "equal"]
    assert (first, processes(kernel)) == ({0, 1}, {0})  # as few as the duel's rule allows


def processes(project):
    run = store.read_run(project.root / "reports" / "rounds")
    return {block.process for op in run.ops for case in op.performance for block in case.blocks}


# --- what is no round -------------------------------------------------------------------------------------------------


def test_a_round_without_a_change_is_refused_and_takes_none_of_the_budget(kernel):
    answer = attempt(kernel)

    assert answer.code == 2
    assert (last(kernel).verdict, kinds(last(kernel)), last(kernel).place) == ("refused", ["round_unchanged"], 0)
    assert not (kernel.root / "reports" / "rounds" / "run.json").exists()  # nothing was measured
    attempt(kernel, 330.0)
    assert (last(kernel).number, last(kernel).place) == (2, 1)


def test_a_change_of_the_suites_or_the_reference_is_refused_even_if_it_is_committed(kept):
    parts = ("accuracy", "performance", "baseline")
    for part in parts:
        path = kept.op_file("scale", part)
        sound = path.read_text()
        path.write_text(f"{sound}\n# easier\n")
        assert attempt(kept, 290.0).code == 2
        path.write_text(sound)
    path.write_text(f"{sound}\n# easier\n")
    commit_all(kept.root)
    assert attempt(kept, 290.0).code == 2

    for round_, part in zip(rounds(kept)[1:], (*parts, "baseline"), strict=True):
        assert (round_.verdict, kinds(round_), round_.commit) == ("refused", ["round_outside"], None)
        assert f"scale_{part}.py" in sentence(round_.reasons[0])
    # Anyone who agrees with the other suites begins anew.
    attempt(kept, 310.0, "--against", "HEAD")
    assert (last(kept).best, last(kept).place) == (0, 1)


def test_another_file_that_the_op_imports_is_refused_and_one_that_ops_share_is_a_part_of_the_round(kernel):
    (kernel.root / "lib.py").write_text("FACTOR = 1.0\n")
    (kernel.root / "kernels" / "_shared.py").write_text("FACTOR = 1.0\n")
    kernel.edit("scale", "triton", "import numpy", "import lib\nimport _shared\nimport numpy")
    kernel.edit("scale", "triton", "x.nbytes / 1e6", "x.nbytes / 1e6 * lib.FACTOR * _shared.FACTOR")
    commit_all(kernel.root)

    for path in (kernel.root / "lib.py", kernel.root / "kernels" / "_shared.py"):
        path.write_text("FACTOR = 1.1\n")
        attempt(kernel)
        path.write_text("FACTOR = 1.0\n")

    assert [round_.verdict for round_ in rounds(kernel)] == ["refused", "slower"]
    assert [round_.files for round_ in rounds(kernel)] == [("lib.py",), ("kernels/_shared.py",)]


@pytest.mark.nightly
def test_the_same_files_get_no_second_chance(kernel):
    attempt(kernel, 330.0)
    attempt(kernel, 340.0)

    assert attempt(kernel, 330.0).code == 2
    assert kinds(last(kernel)) == ["round_repeated"]
    assert last(kernel).reasons[0].facts["number"] == 1


@pytest.mark.nightly
def test_a_spent_budget_is_said_and_can_be_raised(kernel):
    settings = "[tool.perfci]\nrounds = 1\n[tool.perfci.fake]\nlaunch_noise = 0.004\n"
    (kernel.root / "pyproject.toml").write_text(settings)
    attempt(kernel, 330.0)

    spent = attempt(kernel, 340.0)

    assert spent.code == 1 and "rounds of scale" in spent.err and "tool.perfci" in spent.err
    assert len(rounds(kernel)) == 1
    (kernel.root / "pyproject.toml").write_text(settings.replace("1", "2", 1))
    attempt(kernel, 340.0)
    assert [(round_.verdict, round_.place) for round_ in rounds(kernel)] == [("slower", 1), ("slower", 2)]


def test_a_second_round_waits_for_the_first_and_is_told_of_it(kernel):
    (kernel.root / "pyproject.toml").write_text("[tool.perfci]\nlock_wait_s = 0.1\n")
    folder = kernel.root / "reports" / "rounds"
    handle = locks.open_lock(folder / ".lock")
    assert locks.take(handle)
    locks.sign(handle)

    try:
        answer = attempt(kernel, 300.0)
    finally:
        os.close(handle)

    assert answer.code == 1 and f"process {os.getpid()}" in " ".join(answer.err.split())
    assert not (kernel.root / "kernels" / "scale" / FILE).exists()


@pytest.mark.nightly
def test_a_device_that_another_run_holds_is_an_error_that_costs_no_round(kernel, tmp_path):
    (kernel.root / "pyproject.toml").write_text(
        f"[tool.perfci]\nlock_wait_s = 0.1\nlock_folder = '{tmp_path}'\n[tool.perfci.fake]\nlocked = true\n"
    )
    handle = locks.open_lock(locks.find_lock("FAKE-0", tmp_path))
    assert locks.take(handle)
    locks.sign(handle)

    try:
        busy = attempt(kernel, 330.0)
    finally:
        os.close(handle)

    assert busy.code == 2
    assert (last(kernel).verdict, kinds(last(kernel))) == ("error", ["device_taken"])
    assert attempt(kernel).code == 3  # not refused as tried before
    # It counts for the correction, as does whatever was tried, but not for the budget.
    assert [round_.place for round_ in rounds(kernel)] == [1, 2]


def test_an_op_that_the_start_does_not_have_is_refused(kernel):
    kernel.copy_op("scale", "twice")

    answer = kernel.perfci("try", "twice", "--why", "new", "--device", "fake")

    assert answer.code == 2
    assert kinds(rounds(kernel, "twice")[-1]) == ["base_lacks_op"]


def test_a_project_without_a_repository_is_told_so(project):
    answer = attempt(project, 300.0)

    assert answer.code == 1 and "git" in answer.err


@pytest.mark.parametrize("gain", ["fast", "20", "-5%", "1e3%"])
def test_an_expected_gain_is_a_percentage(kernel, gain):
    assert attempt(kernel, 300.0, f"--expect={gain}").code == 1


# --- what is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_logbook_fits_its_schema_and_is_the_answer_of_the_command(kernel):
    answer = attempt(kernel, 300.0, "--format", "json", "--expect", "4 %")

    (line,) = (kernel.root / "kernels" / "scale" / FILE).read_text(encoding="utf-8").splitlines()
    assert faults(json.loads(line), "round.schema.json") == []
    told, stored = json.loads(answer.out), json.loads(line)
    assert (told["verdict"], told["commit"], told["expected"]) == ("kept", stored["commit"], 0.04)
    assert told["reasons"][0]["sentence"].startswith("Faster than the best so far by +6.")


def test_a_history_by_rounds_has_a_table_and_each_round_with_its_commit(kept):
    attempt(kept, 312.0, "--expect", "+1%")
    attempt(kept)

    answer = kept.perfci("brief", "scale", "--rounds")

    assert answer.code == 0
    verdicts = ["kept", "slower", "refused"]
    assert [line.split()[3] for line in answer.out.splitlines() if re.match(r"\| \d ", line)] == verdicts
    assert "1 of 3 rounds" in answer.out
    assert answer.out.count("git show") == 2  # a refused round has no commit
    loads = json.loads(kept.perfci("brief", "scale", "--rounds", "--format", "json").out)
    assert [load["verdict"] for load in loads["ops"][0]["rounds"]] == verdicts


def test_ops_without_rounds_are_left_out_unless_they_are_named(kernel):
    attempt(kernel)  # refused, since nothing has changed
    every, named = (kernel.perfci("brief", *names, "--rounds") for names in ((), ("relu",)))

    assert "scale" in every.out and "relu" not in every.out
    assert named.code == 0 and "No round was tried yet" in named.out


def test_a_check_does_not_take_the_logbook_for_a_change_of_the_op(kernel):
    attempt(kernel)  # refused, since nothing has changed
    assert len(rounds(kernel)) == 1
    kernel.perfci("check", "scale", "--device", "fake", "--against", "HEAD", "--format", "json")

    (planned,) = kernel.run_record().plan.ops
    assert planned.base.same


@pytest.mark.nightly
def test_a_merge_requests_note_has_the_rounds_of_a_kernel_that_is_the_best_of_them(kernel):
    attempt(kernel, 300.0, why="<script> fewer | bytes")
    kernel.perfci("check", "scale", "--device", "fake", "--suite", "accuracy")
    note = kernel.perfci("ci", "note", str(kernel.root / "reports"), "--dry-run").out
    table = note[note.index("scale, round by round") :].split("</details>")[0]

    assert [line.split()[3] for line in table.splitlines() if line.startswith("| 1 ")] == ["kept"]
    assert "<script>" not in table
    attempt(kernel, 312.0)  # a worse kernel is in the work tree now
    assert "round by round" not in kernel.perfci("ci", "note", str(kernel.root / "reports"), "--dry-run").out


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.nightly  # the tests above take the same commands
def test_the_commands_of_the_page_do_what_it_says(kernel):
    text = GUIDE.read_text(encoding="utf-8")
    shown = re.findall(r"^\$ perfci (.*)$", text, re.MULTILINE)
    assert len(shown) > 3
    speeds = iter((300.0, 300.5, 290.0))
    for command in shown:
        words = shlex.split(command)
        if words[0] == "try":
            us = next(speeds)
            path = kernel.op_file("scale", "triton")
            path.write_text(re.sub(r"US_PER_MEGABYTE = [\d.]+", f"US_PER_MEGABYTE = {us}", path.read_text()))
        answer = kernel.perfci(*words)
        block = text.split(f"$ perfci {command}\n")[1].split("```")[0].split("\n$ ")[0]
        for line in filter(None, map(str.strip, block.splitlines())):
            assert _plain(line) in _plain(answer.out), (command, line, answer.out)


def _plain(text):
    """Without what differs from run to run: digits of commits and of times, and widths of columns."""
    return re.sub(r"[ -]+", " ", re.sub(r"\b[0-9a-f]{10}\b|[+-]?\d+(\.\d+)?", "#", text))


@pytest.mark.nightly
def test_a_round_that_is_shown_in_part_is_judged_and_kept_as_a_whole(kept):
    answer = attempt(kept, 290.0, "--case", "rows=256,*", "--format", "json")

    assert [one["case"] for one in json.loads(answer.out)["cases"]] == ["rows=256,cols=128,dtype=float32"]
    assert len(last(kept).cases) == 2
