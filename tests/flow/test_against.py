"""Changes in real git repositories, checked against their base on the fake device."""

import json
import math
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfci import store
from perfci.core.wording import sentence
from perfci.store import launches
from tests.git_repositories import commit_all, git
from tests.processes import NAME, runs_there
from tests.typed import parse

OPS = ("relu", "row_sum", "scale")
SPEED = "US_PER_MEGABYTE = 320.0"


@pytest.fixture
def repository(project):
    """The project, committed on main."""
    git(project.root, "init", "-q", "-b", "main")
    (project.root / ".gitignore").write_text("reports/\n__pycache__/\n")
    commit_all(project.root)
    return project


@pytest.fixture
def topic(repository):
    """On a branch that differs in nothing yet."""
    git(repository.root, "checkout", "-q", "-b", "topic")
    return repository


def on_main(project, change):
    """Make a change on main, and let the branch start from there."""
    git(project.root, "checkout", "-q", "main")
    change()
    commit_all(project.root)
    git(project.root, "checkout", "-q", "-B", "topic")


def logs(project):
    return {path.stem for path in (project.root / "reports" / "logs").glob("*")}


def op_run(project, op):
    return next(one for one in project.run_record().ops if one.op == op)


def planned(project, op):
    return next(one for one in project.run_record().plan.ops if one.op == op)


def case_of(project, op, rows):
    return next(case for case in op_run(project, op).performance if case.case.startswith(f"rows={rows},"))


def verdict(answer, op, rows):
    """Verdict, and the kinds of its reasons."""
    row = next(row for (name, suite, case), row in answer.rows.items()
               if name == op and suite == "performance" and case and case.startswith(f"rows={rows},"))  # fmt: skip
    return row["verdict"], [row["reason"]["kind"], *(also["kind"] for also in row["also"])]


def said(answer):
    """Every verdict with the kinds of its reasons."""
    return {
        key: (row["verdict"], row["reason"]["kind"], [also["kind"] for also in row["also"]])
        for key, row in answer.rows.items()
    }


def notes(answer):
    return [note["kind"] for note in json.loads(answer.out)["notes"]]


def make_slower(project, op="scale", us=328.0):
    """Two and a half per cent slower; 1 % is allowed at this length."""
    project.edit(op, "triton", SPEED, f"US_PER_MEGABYTE = {us}")


# --- one changed op of three ------------------------------------------------------------------------------------------


def test_one_changed_op_is_duelled_and_regressed_and_the_others_cost_nothing(topic, tmp_path):
    make_slower(topic)
    commit_all(topic.root)

    answer = topic.check()

    assert answer.code == 2
    assert answer.verdicts("relu") == answer.verdicts("row_sum") == {"UNCHANGED"}
    for rows in (256, 512):
        assert verdict(answer, "scale", rows)[0] == "REGRESSED"
        assert verdict(answer, "scale", rows)[1][:2] == ["duel_slower", "operations_changed"]
    # No worker ran for the others, of either revision.
    assert logs(topic) == {"describe", "describe-base", "scale", "scale-base"}
    assert notes(answer)[0] == "compared_with"
    _the_record_holds_the_whole_duel(topic)
    _the_next_step_shows_what_changed(topic)
    _the_run_is_judged_and_shown_later_and_elsewhere(topic, answer, tmp_path)


def _the_record_holds_the_whole_duel(project):
    run = project.run_record()
    assert (run.plan.base.how, run.plan.base.name) == ("merge_base", "main")
    assert run.plan.base.commit == git(project.root, "rev-parse", "main")
    assert (run.plan.skip_unchanged, run.plan.duel_family, run.environment.dirty) == (True, 2, False)
    assert [planned(project, op).base.same for op in OPS] == [True, True, False]
    assert planned(project, "scale").base.changed == ("kernels/scale/scale_triton.py",)
    for case in op_run(project, "scale").performance:
        _was_duelled_to_the_end(case)
        assert all(block.arms.keys() == {"kernel", "reference", "base"} for block in case.blocks)
        assert all(abs(block.shifts["kernel/base"] - math.log(1.0235)) < 0.01 for block in case.blocks)
        assert (case.base.same, case.base.duelled, case.base.failure) == (False, True, None)
        assert case.base.identity.operations != case.identity.operations
    kept = launches.read_launches(project.root / "reports").rows
    blocks = sum(len(case.blocks) for case in op_run(project, "scale").performance)
    assert len(kept) == 3 * blocks and {row.arm for row in kept} == {"kernel", "reference", "base"}


def _the_next_step_shows_what_changed(project):
    shown = project.perfci("compare", str(project.root / "reports"), "--project", str(project.root)).out
    command, bisect = re.findall(r"^Next: (.*)$", shown, re.MULTILINE)
    done = subprocess.run(shlex.split(command), cwd=project.root, capture_output=True, text=True, check=True)
    changed = [line for line in done.stdout.splitlines() if line[:1] in "-+" and line[:3] not in ("---", "+++")]
    assert changed == [f"-{SPEED}", f"+{SPEED.replace('320', '328')}"]
    assert planned(project, "scale").base.lines == ("+++ kernels/scale/scale_triton.py", *changed)
    assert all(f"  {line}" in shown for line in changed)
    parse(bisect)


def _was_duelled_to_the_end(case):
    """All blocks of as many processes as a verdict against the change takes."""
    processes = sorted({block.process for block in case.blocks})
    assert processes in ([0, 1], [0, 1, 2, 3])
    assert [sum(block.process == i for block in case.blocks) for i in processes] == [12] * len(processes)


def _the_run_is_judged_and_shown_later_and_elsewhere(project, answer, tmp_path):
    again = project.perfci("compare", str(project.root / "reports"), "--format", "json")
    assert (again.code, said(again)) == (answer.code, said(answer))
    # Without git, without the base's files.
    away = tmp_path / "away"
    shutil.copytree(project.root, away, ignore=shutil.ignore_patterns(".git"))
    project.root = away
    for command in ("compare", "report", "show"):
        done = project.perfci(command, str(away / "reports"))
        assert done.code == (2 if command == "compare" else 0), done.err
    assert "REGRESSED" in (away / "reports" / "report.md").read_text()


def test_a_change_of_nothing_costs_no_device_time(topic):
    (topic.root / "README.md").write_text("Words.\n")
    commit_all(topic.root)

    answer = topic.check()

    assert answer.code == 0
    assert {verdict for op in OPS for verdict in answer.verdicts(op)} == {"UNCHANGED"}
    assert logs(topic) == {"describe"}
    assert all(op.performance == op.accuracy == () for op in topic.run_record().ops)
    assert launches.read_launches(topic.root / "reports").rows == ()
    assert {row["reason"]["kind"] for row in answer.rows.values()} == {"unchanged_files"}


def test_a_change_that_changes_no_work_is_captured_and_not_timed(topic):
    topic.edit("scale", "triton", "def scale(x, factor):", "def scale(x, factor):\n    # Said in other words.")

    answer = topic.check("scale")

    assert answer.code == 0
    assert verdict(answer, "scale", 256) == ("UNCHANGED", ["unchanged_work"])
    assert (case_of(topic, "scale", 256).blocks, case_of(topic, "scale", 256).base.same) == ((), True)
    assert "PASS" in answer.verdicts("scale")  # the accuracy was checked


def test_uncommitted_changes_count_and_a_faster_kernel_is_improved(topic):
    make_slower(topic, us=304.0)

    answer = topic.check("scale")

    assert answer.code == 0
    assert verdict(answer, "scale", 256)[0] == "IMPROVED"
    assert topic.run_record().environment.dirty
    # Neither the work tree nor git was touched.
    assert git(topic.root, "status", "--porcelain") == "M kernels/scale/scale_triton.py"
    assert git(topic.root, "worktree", "list").count("\n") == 0


# --- differences between the revisions --------------------------------------------------------------------------------


@pytest.mark.nightly
def test_what_can_be_compared_is_and_the_rest_is_said(topic):
    """An op is new, one is gone, one takes another argument, one has another case and lacks another."""
    topic.copy_op("scale", "twice")
    shutil.rmtree(topic.root / "kernels" / "relu")
    for part in ("triton", "baseline"):
        topic.edit("row_sum", part, "def row_sum(x)", "def row_sum(x, axis)")
    topic.edit("row_sum", "baseline", "(rows, cols))}", '(rows, cols)), "axis": 1}')
    topic.edit("row_sum", "performance", "def reference(x)", "def reference(x, axis)")
    topic.edit("row_sum", "performance", "return row_sum(x)", "return row_sum(x, axis)")
    topic.edit("scale", "performance", "rows=[256, 512]", "rows=[512, 768]")
    commit_all(topic.root)

    answer = topic.check()

    assert answer.code == 2
    assert answer.rows["scale", "suites", None]["verdict"] == "WEAKENED"  # it has lost a case
    assert answer.rows["relu", "performance", None]["reason"]["kind"] == "op_removed"
    assert verdict(answer, "twice", 256)[0] == verdict(answer, "row_sum", 256)[0] == "NEW"
    assert verdict(answer, "scale", 256) == ("REMOVED", ["removed_since_base"])
    assert verdict(answer, "scale", 512) == ("UNCHANGED", ["unchanged_work"])
    assert verdict(answer, "scale", 768)[0] == "NEW"
    assert {"base_lacks_op", "base_signature"} <= set(notes(answer))
    # Only the change's suites confirm that these are right.
    for op, kind in (("twice", "base_lacks_op"), ("row_sum", "base_signature")):
        row = answer.rows[op, "accuracy", None]
        assert (row["verdict"], row["reason"]["kind"]) == ("INCONCLUSIVE", kind)
    assert case_of(topic, "scale", 768).base is None
    assert {block.process for block in case_of(topic, "scale", 768).blocks} == {0}


def test_a_projects_first_ops_have_a_base_without_a_kernels_folder(project):
    git(project.root, "init", "-q", "-b", "main")
    (project.root / ".gitignore").write_text("reports/\n__pycache__/\nkernels/\n")
    commit_all(project.root)
    git(project.root, "checkout", "-q", "-b", "topic")
    (project.root / ".gitignore").write_text("reports/\n__pycache__/\n")
    commit_all(project.root)

    answer = project.check("scale", "--suite", "accuracy")

    assert said(answer) == {("scale", "accuracy", None): ("INCONCLUSIVE", "base_lacks_op", ["accuracy_passed"])}


@pytest.mark.parametrize(
    ("us", "expected", "says"),
    [
        ("448.0", "REGRESSED", True),
        pytest.param("384.0", "PASS", True, marks=pytest.mark.nightly),
        pytest.param("320.0", "UNCHANGED", True, marks=pytest.mark.nightly),
        pytest.param("448.0", "REGRESSED", False, marks=pytest.mark.nightly),
    ],
)
def test_an_op_and_its_cases_under_other_names_are_duelled_with_what_they_were(topic, us, expected, says):
    """By the thresholds of the old names: a pattern that fits the new id of a case alone loosens nothing.

    says: what the op was called before, which its reference shows too.
    """

    def limit():
        (topic.root / "thresholds").mkdir()
        of_case = "cases:\n  cols=*32: {tau: {0: 90 %}}\n"
        (topic.root / "thresholds" / "scale.yaml").write_text(f"tau: {{0: 30 %}}\n{of_case}")

    on_main(topic, limit)
    topic.copy_op("scale", "doubled")
    shutil.rmtree(topic.root / "kernels" / "scale")
    git(topic.root, "mv", "thresholds/scale.yaml", "thresholds/doubled.yaml")
    topic.edit("doubled", "triton", SPEED, f"US_PER_MEGABYTE = {us}")
    topic.edit("doubled", "performance", "rows=[256, 512], cols=[128]", "cols=[128], rows=[256, 512]")
    names = 'renamed={f"cols=128,rows={n},dtype=float32": f"rows={n},cols=128,dtype=float32"'
    names = f'renamed_from="scale",\n    {names}' if says else names
    topic.edit("doubled", "performance", "    bytes_moved", f"    {names} for n in (256, 512)}},\n    bytes_moved")
    commit_all(topic.root)

    answer = topic.check()

    assert answer.verdicts("doubled") == {"PASS", expected}
    assert {row["op"] for row in answer.rows.values()} == {"doubled", "relu", "row_sum"}
    assert "op_renamed" in notes(answer)
    assert not {"base_lacks_op", "weaker_unknown"} & set(notes(answer))


@pytest.mark.nightly
def test_work_that_moves_to_the_import_of_the_kernels_file_is_the_first_calls(topic):
    def limit():
        (topic.root / "thresholds").mkdir()
        (topic.root / "thresholds" / "default.yaml").write_text("compile_s: 0.1\n")

    on_main(topic, limit)
    topic.edit("scale", "triton", SPEED, f"import time; time.sleep(0.2); {SPEED}")
    topic.edit("relu", "triton", SPEED, f"import time; time.sleep(0.2); {SPEED}")
    commit_all(topic.root)

    beside, apart = topic.check("scale"), topic.check("relu", "--duel", "none")

    assert verdict(beside, "scale", 256) == ("TOO_SLOW", ["compile_too_slow", "unchanged_work"])
    assert verdict(apart, "relu", 256) == ("TOO_SLOW", ["compile_too_slow", "new_case"])


@pytest.mark.nightly
def test_a_base_that_is_broken_itself_fails_no_change(topic):
    """On main one op does not import, one is wrong, one raises, and one takes its process with it."""

    def break_all():
        topic.copy_op("relu", "hard")
        topic.edit("relu", "triton", "import numpy as np", "import numpy as np\nraise ImportError('no libdevice')")
        topic.edit("scale", "triton", "x.dtype.type(factor)", "x.dtype.type(factor + (len(x) == 512))")
        topic.edit("row_sum", "triton", "fake.work(", "assert len(x) < 256, 'no stream'\n    fake.work(")
        topic.edit("hard", "triton", "fake.work(", "fake.crash() if len(x) == 512 else None\n    fake.work(")

    healthy = {op: topic.op_file(op, "triton").read_text() for op in OPS}
    on_main(topic, break_all)
    for op, text in healthy.items():
        topic.op_file(op, "triton").write_text(text.replace(SPEED, "US_PER_MEGABYTE = 320.8"))
    topic.edit("hard", "triton", "fake.crash() if len(x) == 512 else None", "pass")
    topic.edit("hard", "triton", SPEED, "US_PER_MEGABYTE = 320.8")
    commit_all(topic.root)

    answer = topic.check()

    assert answer.code == 3, answer.out
    assert answer.rows["relu", "accuracy", None]["reason"]["kind"] == "base_broken"
    assert all("ERROR" not in answer.verdicts(op) for op in (*OPS, "hard"))
    failures = {
        (op.op, case.case.split(",")[0]): case.base.failure
        for op in topic.run_record().ops
        for case in op.performance
        if case.base
    }
    assert "no libdevice" in sentence(planned(topic, "relu").base.failure)
    assert failures["scale", "rows=256"] is None
    assert failures["scale", "rows=512"].kind == "base_wrong"
    assert {failures["row_sum", f"rows={rows}"].facts["message"] for rows in (256, 512)} == {"no stream"}
    # The worker of both died, so that each got a process: head's had nothing to die of.
    assert planned(topic, "hard").base.apart.kind == "died_together"
    assert {failures["hard", f"rows={rows}"].kind for rows in (256, 512)} == {"base_died"}
    assert "SIGSEGV" in sentence(failures["hard", "rows=512"])
    assert verdict(answer, "scale", 512) == ("INCONCLUSIVE", ["base_wrong", "new_case"])
    assert all(len(case.blocks) == 8 for case in op_run(topic, "hard").performance)
    assert verdict(answer, "scale", 256) == ("PASS", ["duel_cleared"]) and case_of(topic, "scale", 256).base.duelled


# --- which base, which rules ------------------------------------------------------------------------------------------


def test_a_merge_request_cannot_loosen_the_rules_by_which_it_is_judged(topic, monkeypatch):
    """In a merged-results pipeline the base is the merge commit's first parent, and main has moved on."""
    make_slower(topic)
    (topic.root / "thresholds").mkdir()
    (topic.root / "thresholds" / "scale.yaml").write_text("tau:\n  0: 50 %\n")
    commit_all(topic.root)
    git(topic.root, "checkout", "-q", "main")
    topic.edit("relu", "triton", SPEED, "US_PER_MEGABYTE = 400.0")
    commit_all(topic.root)
    git(topic.root, "checkout", "-q", "--detach")
    git(topic.root, "merge", "-q", "--no-ff", "-m", "made by GitLab", "topic")
    monkeypatch.setenv("CI_MERGE_REQUEST_EVENT_TYPE", "merged_result")
    monkeypatch.setenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")

    answer = topic.check()

    # What main did meanwhile is no part of the change.
    assert answer.verdicts("relu") == answer.verdicts("row_sum") == {"UNCHANGED"}
    assert verdict(answer, "scale", 256)[0] == "REGRESSED"
    assert topic.run_record().plan.base.how == "first_parent"
    assert (notes(answer)[0], "thresholds/scale.yaml" in answer.out) == ("rules_changed", True)
    # The first look knew them too: with half of it allowed it would have been cleared after four blocks.
    assert sum(block.process == 0 for block in case_of(topic, "scale", 256).blocks) == 12
    later = topic.perfci("compare", str(topic.root / "reports"), "--format", "json")
    assert (later.code, said(later)) == (2, said(answer))


@pytest.mark.nightly
def test_on_main_everything_is_timed_and_what_did_not_change_cannot_have_regressed(repository):
    assert repository.check().code == 0
    assert repository.accept().code == 0
    # As if the board had run this kernel faster then.
    stored = repository.root / "baselines" / "fake-one" / "scale.json"
    stored.write_text(
        re.sub(r'"kernel_us": ([\d.]+)', lambda m: f'"kernel_us": {float(m[1]) * 0.95}', stored.read_text())
    )
    commit_all(repository.root)
    settings = repository.root / "pyproject.toml"

    drifted = repository.check("scale", "row_sum")
    scale, row_sum = (case_of(repository, op, 256) for op in ("scale", "row_sum"))
    settings.write_text(settings.read_text() + "speed = 0.97\n")
    slower = repository.check("relu")

    base = repository.run_record().plan.base
    assert (base.how, base.commit) == ("baseline", git(repository.root, "rev-parse", "HEAD~1"))
    assert base.changed_rules == () and not repository.run_record().plan.skip_unchanged
    assert (drifted.code, verdict(drifted, "scale", 256)[0]) == (3, "DRIFTED")
    assert verdict(drifted, "scale", 256)[1][:2] == ["drifted_same_work", "time_moved"]
    assert (scale.base.same, scale.base.duelled, {block.process for block in scale.blocks}) == (True, False, {0})
    assert verdict(drifted, "row_sum", 256)[0] == "UNCHANGED" and len(row_sum.blocks) == 8
    assert (slower.code, verdict(slower, "relu", 256)[0]) in {(0, "UNCHANGED"), (3, "DRIFTED")}


# --- options ----------------------------------------------------------------------------------------------------------


def test_nothing_need_be_duelled_and_measuring_alone_takes_no_base(topic):
    make_slower(topic)

    answer = topic.check("--duel", "none", "scale")
    assert (answer.code, verdict(answer, "scale", 256)[0]) == (0, "NEW")
    assert topic.run_record().plan.base is None

    named = topic.check("--duel", "none", "--against", "main", "scale")
    case = case_of(topic, "scale", 256)
    assert (case.base.same, case.base.duelled, len(case.blocks)) == (False, False, 8)
    assert "duel_slower" not in named.out

    assert topic.perfci("check", "--no-judge", "--device", "fake", "scale").code == 0
    assert topic.run_record().plan.base is None
    assert "describe-base" not in logs(topic)


# --- two processes ----------------------------------------------------------------------------------------------------


def import_late(project):
    """The kernel asks a helper when it is called, which one process cannot have twice."""
    (project.root / "kernels" / "scale" / "scale_speed.py").write_text(f"{SPEED}\n")
    project.edit("scale", "triton", SPEED, "")
    project.edit("scale", "triton", "    fake.work(", "    from scale_speed import US_PER_MEGABYTE\n\n    fake.work(")


@pytest.mark.nightly
def test_revisions_that_import_late_take_turns_in_processes_of_their_own(topic):
    on_main(topic, lambda: import_late(topic))
    helper = topic.root / "kernels" / "scale" / "scale_speed.py"
    helper.write_text(helper.read_text().replace("320.0", "328.0"))
    topic.edit("scale", "performance", "rows=[256, 512]", "rows=[256, 768]")
    commit_all(topic.root)

    answer = topic.check()

    assert (answer.code, verdict(answer, "scale", 256)[0]) == (2, "REGRESSED")
    assert verdict(answer, "scale", 768)[0] == "NEW"
    assert logs(topic) == {"describe", "describe-base", "scale", "scale-base", "scale-suites"}
    assert planned(topic, "scale").base.apart.kind == "imports_late"
    assert "imports_late" in notes(answer)
    duelled, new = case_of(topic, "scale", 256), case_of(topic, "scale", 768)
    _was_duelled_to_the_end(duelled)
    assert all(abs(block.shifts["kernel/base"] - math.log(1.0235)) < 0.01 for block in duelled.blocks)
    assert [sorted(block.arms) for block in new.blocks] == [["kernel", "reference"]] * 8
    assert {block.state.foreign_processes for block in duelled.blocks} == {0}


@pytest.mark.nightly
def test_a_base_that_dies_in_the_middle_of_a_round_leaves_the_device_to_head(topic):
    def die():
        import_late(topic)
        dying = (
            "    global calls\n    calls += 1\n    if calls > 60:\n        __import__('os')._exit(3)\n    fake.work("
        )
        topic.edit("scale", "triton", "    fake.work(", dying)
        topic.edit("scale", "triton", "import numpy as np", "import numpy as np\n\ncalls = 0")

    on_main(topic, die)
    topic.edit("scale", "triton", "        __import__('os')._exit(3)\n", "        pass\n")
    helper = topic.root / "kernels" / "scale" / "scale_speed.py"
    helper.write_text(helper.read_text().replace("320.0", "328.0"))
    commit_all(topic.root)

    answer = topic.check("scale", "--suite", "performance")

    assert answer.code in {0, 3}
    for case in op_run(topic, "scale").performance:
        assert case.base.failure.kind == "base_died"
        assert [block.index for block in case.blocks] == [*range(8)]
        # What base had taken by then stays, and what head took alone is not lost.
        assert ["base" in block.arms for block in case.blocks][-1] is False


@pytest.mark.nightly
def test_an_editable_installation_of_the_work_tree_leads_the_judge_to_the_bases_files(topic, editable):
    def use_library():
        editable(topic.root, 320.0)
        topic.edit("scale", "triton", SPEED, "from speeds import SPEED as US_PER_MEGABYTE")

    on_main(topic, use_library)
    editable(topic.root, 328.0)
    commit_all(topic.root)

    answer = topic.check("scale")

    assert (answer.code, verdict(answer, "scale", 256)[0]) == (2, "REGRESSED")
    assert logs(topic) == {"describe", "describe-base", "scale", "scale-base"}


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.slow
def test_revisions_that_register_a_torch_operator_of_one_name_run_their_own_in_two_processes(topic):
    """In one process base would silently run head's code: the operator's work shows whose it was."""

    def define_operator():
        topic.op_file("scale", "triton").write_text(
            "import torch\nfrom perfci.device import fake\n\nUS_PER_MEGABYTE = 320.0\n\n\n"
            "@torch.library.custom_op('perfci_flow::scale', mutates_args=())\n"
            "def _scale(x: torch.Tensor, factor: float) -> torch.Tensor:\n"
            "    fake.work(2.0 + US_PER_MEGABYTE * x.nbytes / 1e6)\n"
            "    return x * factor\n\n\n"
            "def scale(x, factor):\n"
            "    return torch.ops.perfci_flow.scale(torch.from_numpy(x.copy()), factor).numpy()\n"
        )

    on_main(topic, define_operator)
    make_slower(topic, us=320.8)
    commit_all(topic.root)

    answer = topic.check("scale", "--suite", "performance")

    assert (answer.code, verdict(answer, "scale", 256)) == (0, ("PASS", ["duel_cleared"]))
    assert planned(topic, "scale").base.apart is None
    assert logs(topic) == {"describe", "describe-base", "scale", "scale-base"}
    for case in op_run(topic, "scale").performance:
        ours, theirs = (
            float(call.operations[0].removeprefix("work(").split()[0]) for call in (case.identity, case.base.identity)
        )
        assert (ours - 2.0) / (theirs - 2.0) == pytest.approx(320.8 / 320.0, rel=1e-5)


@pytest.mark.torch
@pytest.mark.nightly
def test_a_library_that_one_process_cannot_have_twice_leaves_the_suites_as_strict_as_the_bases(topic):
    """It registers an operator, and only the kernel needs it."""
    library = topic.root / "scaling.py"

    def move_into_library():
        library.write_text(
            "import torch\n\n\n@torch.library.custom_op('perfci_flow::library_scale', mutates_args=())\n"
            "def scale(x: torch.Tensor, factor: float) -> torch.Tensor:\n    return x * factor\n"
        )
        topic.edit("scale", "triton", SPEED, f"import scaling\n\n{SPEED}")

    on_main(topic, move_into_library)
    library.write_text(library.read_text().replace("x * factor", "factor * x"))
    commit_all(topic.root)

    answer = topic.check("scale", "--suite", "accuracy")

    assert (answer.code, planned(topic, "scale").base.changed) == (0, ("scaling.py",))
    assert "weaker_unknown" not in notes(answer)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_signal_in_the_middle_of_a_duel_keeps_what_was_measured_and_leaves_nobody_behind(topic, monkeypatch):
    """relu is duelled in one process, scale in two, of which the base hangs at its second case."""
    monkeypatch.setenv("PERFCI_WRITABLE", str(topic.root))
    pids = topic.root / "pids"

    def hang():
        import_late(topic)
        topic.edit("scale", "triton", "    fake.work(", "    fake.hang() if len(x) == 512 else None\n    fake.work(")

    on_main(topic, hang)
    note = f"open({str(pids)!r}, 'a').write({NAME} + '\\n')\n"
    topic.edit("scale", "triton", "    fake.hang() if len(x) == 512 else None\n", "")
    topic.edit("scale", "triton", "import numpy as np", f"{note}import numpy as np")
    make_slower(topic, "relu")
    process = topic.start("check", "--device", "fake", "--seed", "7", "relu", "scale")
    reports, deadline = topic.root / "reports", time.monotonic() + 60
    while time.monotonic() < deadline and not _hangs(reports / "logs" / "scale-base.log", topic):
        time.sleep(0.1)

    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)

    assert process.returncode == 130, out + err
    assert time.monotonic() - began < 15
    run = store.read_run(reports)
    assert run.stopped == "SIGINT"
    relu = next(op for op in run.ops if op.op == "relu")
    assert all(len(case.blocks) == 12 and case.base.duelled for case in relu.performance)
    assert not [pid for pid in pids.read_text().split() if runs_there(pid)]
    judged = topic.perfci("compare", str(reports), "--format", "json")
    assert (judged.code, verdict(judged, "relu", 256)[0]) == (3, "INCONCLUSIVE")


def _hangs(log, project):
    """The base's worker runs, and relu is done."""
    reports = project.root / "reports"
    done = (reports / "run.json").exists() and any(op.op == "relu" for op in store.read_run(reports).ops)
    return done and log.exists() and _older_than(log, 1.0)


def _older_than(path, seconds):
    return time.time() - path.stat().st_mtime > seconds


# --- another interpreter ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_python(tmp_path_factory):
    """A second interpreter, with what is installed here and without perfci."""
    folder = tmp_path_factory.mktemp("other")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    place = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (Path(place.stdout.strip()) / "here.pth").write_text("".join(f"{path}\n" for path in installed))
    return str(python)


@pytest.mark.nightly
def test_a_toolchain_that_makes_the_kernel_slower_is_seen(topic, other_python):
    """On main the kernel is slow in this interpreter alone, so that here the change of toolchain is to blame."""
    on_main(
        topic,
        lambda: topic.edit(
            "scale",
            "triton",
            SPEED,
            f"import sys\nUS_PER_MEGABYTE = 320.0 if sys.prefix in {other_python!r} else 328.0",
        ),
    )

    answer = topic.check("scale", "--base-python", other_python)

    assert (answer.code, verdict(answer, "scale", 256)[0]) == (2, "REGRESSED")
    assert verdict(answer, "scale", 256)[1][:2] == ["duel_slower", "toolchain_differs"]


# --- cheats and noise -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_an_unchanged_project_on_a_bad_device_raises_no_alarm(topic, seed):
    (topic.root / "pyproject.toml").write_text(
        "[tool.perfci.fake]\nprocess_noise = 0.01\ndrift_per_block = 0.0005\nblock_noise = 0.01\nspike_share = 0.05\n"
    )

    ops = ("relu", "row_sum")
    answer = topic.perfci("check", "--device", "fake", "--format", "json", "--duel", "all", "--seed", str(seed), *ops)

    seen = {row["verdict"] for row in answer.rows.values()}
    assert seen <= {"PASS", "UNCHANGED", "INCONCLUSIVE"}
    assert "control_failed" not in answer.out
    assert "UNCHANGED" in seen and topic.run_record().plan.duel_family == 4
