"""Merge requests that bring other suites, references and settings: what their base has judges them."""

import json
import shutil

import pytest

from perfci.core.model import Reason
from perfci.runs import looks
from perfci.worker.tasks import Measure
from tests.flow.test_cheats import HONEST, write
from tests.git_repositories import begin_topic, commit_all, git

SPEED = "US_PER_MEGABYTE = 320.0"


@pytest.fixture
def topic(project):
    """On a branch that differs in nothing yet."""
    begin_topic(project.root)
    return project


def check(project, *arguments):
    commit_all(project.root)
    return project.check("scale", *arguments)


def verdicts(answer, suite="performance"):
    return {row["verdict"] for (_, of, _), row in answer.rows.items() if of == suite}


def kinds(answer, suite, case=None):
    """Kinds of the reasons for a row."""
    row = answer.rows["scale", suite, case]
    return [row["reason"]["kind"], *(also["kind"] for also in row["also"])]


def weaker(project):
    """What of the op's suites asks for less, as the run has it."""
    (op,) = project.run_record().ops
    return {reason.facts["what"] for reason in op.change.weaker}


def notes(answer):
    return [note["kind"] for note in json.loads(answer.out)["notes"]]


def test_inputs_of_zeros_hide_no_wrong_kernel(topic):
    topic.edit("scale", "triton", "x.dtype.type(factor)", "x.dtype.type(7.0)")
    topic.edit("scale", "baseline", "np.resize(some, (rows, cols))", "np.zeros((rows, cols), dtype)")
    topic.edit("scale", "accuracy", "    kernel=kernel,", '    kernel=kernel,\n    values=("zeros",),')

    answer = check(topic)

    assert answer.code == 2
    assert answer.rows["scale", "accuracy", None]["verdict"] == "WRONG"
    assert {"values", "inputs"} <= weaker(topic)
    assert any(check.of_base and check.failure for op in topic.run_record().ops for check in op.accuracy)


@pytest.mark.nightly
def test_a_parameter_that_nobody_needs_ends_no_duel(topic):
    for part in ("triton", "baseline"):
        topic.edit("scale", part, "def scale(x, factor)", "def scale(x, factor, spare=2)")
    topic.edit("scale", "performance", "def reference(x, factor)", "def reference(x, factor, spare=2)")
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 328.0")

    answer = check(topic)

    assert (answer.code, verdicts(answer)) == (2, {"REGRESSED"})
    assert kinds(answer, "suites") == ["change_lacks_files", "proof_signature"]
    lacking = answer.rows["scale", "suites", None]["reason"]["facts"]
    assert (lacking["kind"], lacking["files"]) == ("interface", "scale_accuracy.py")


def test_a_slower_reference_and_more_bytes_weaken_a_suite_and_time_no_kernel(topic):
    topic.edit("scale", "performance", "480.0", "960.0")
    topic.edit("scale", "performance", "2 * rows", "8 * rows")

    answer = check(topic)

    assert (answer.code, answer.rows["scale", "suites", None]["verdict"]) == (2, "WEAKENED")
    assert weaker(topic) == {"reference", "numbers"}
    (op,) = topic.run_record().ops
    assert {case.bytes_moved for case in op.performance} == {2 * rows * 128 * 4 for rows in (256, 512)}


@pytest.mark.nightly
def test_the_bases_own_folders_are_its_rules(topic, monkeypatch):
    """The change moves its thresholds and its ops elsewhere."""
    monkeypatch.setenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")
    git(topic.root, "update-ref", "refs/remotes/origin/main", "main")
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 328.0")
    settings = topic.root / "pyproject.toml"
    settings.write_text('[tool.perfci]\nthresholds = "limits"\nkernels = "ops"\n' + settings.read_text())
    (topic.root / "limits").mkdir()
    (topic.root / "limits" / "scale.yaml").write_text("tau:\n  0: 50 %\n")
    shutil.move(topic.root / "kernels", topic.root / "ops")

    answer = check(topic)

    assert (answer.code, verdicts(answer)) == (2, {"REGRESSED"})
    assert notes(answer)[0] == "rules_changed"


def test_a_merge_request_whose_base_is_not_there_is_no_green_one(topic, monkeypatch):
    monkeypatch.setenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")

    answer = topic.check("scale")

    assert answer.code == 3
    assert kinds(answer, "accuracy")[0] == "merge_without_base"


def test_what_the_bases_suites_need_when_they_are_called_leaves_the_change_unjudged(topic):
    git(topic.root, "checkout", "-q", "main")
    (topic.root / "kernels" / "scale" / "scale_numbers.py").write_text("FACTOR = 0.5\n")
    topic.edit("scale", "baseline", "    rng =", "    from scale_numbers import FACTOR\n\n    rng =")
    commit_all(topic.root)
    git(topic.root, "checkout", "-q", "-B", "topic")
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 320.8")

    answer = check(topic)

    assert answer.code == 3
    assert kinds(answer, "accuracy")[0] == "judged_by_own_late"
    assert verdicts(answer) == {"PASS"}  # in two processes


# --- what got weaker --------------------------------------------------------------------------------------------------

LOOSE = """    kernel=kernel,
    tolerance={"float32": (1e9, 1e9)},
    tolerance_reason="trust me",
    layouts=("contiguous",),
    deterministic=False,"""


def loosen(project):
    project.edit("scale", "accuracy", "    kernel=kernel,", LOOSE)
    project.edit("scale", "accuracy", "rows=[1, 7, 64]", "rows=[1, 7]")
    project.edit("scale", "performance", "rows=[256, 512]", "rows=[256]")


def test_fewer_cases_a_larger_tolerance_and_lost_flags_fail_and_are_said_first(topic):
    loosen(topic)

    answer = check(topic)

    assert (answer.code, answer.rows["scale", "suites", None]["verdict"]) == (2, "WEAKENED")
    assert weaker(topic) == {"cases", "layouts", "tolerance", "flags"}
    first = [note for note in notes(answer) if note.startswith("weaker")]
    assert first == notes(answer)[: len(first)] and "change_suites" in notes(answer)
    report = (topic.root / "reports" / "report.md").read_text()
    assert report.index("the accuracy suite lost cases: 1 of 3") < report.index("The gate fails")
    shown = topic.perfci("compare", str(topic.root / "reports")).out
    assert shown.index("the tolerance of float32") < shown.index("WEAKENED")
    # Judged later and from the record alone it is the same.
    assert topic.perfci("compare", str(topic.root / "reports")).code == 2


@pytest.mark.nightly
def test_what_is_declared_with_a_reason_is_taken_until_its_day(topic):
    loosen(topic)
    limits = topic.root / "thresholds" / "scale.yaml"
    limits.parent.mkdir()
    entries = [
        f'  - {{weaker: {what}, why: "agreed with everybody", until: 2099-01-31}}'
        for what in ("cases", "layouts", "tolerance", "flags")
    ]
    limits.write_text("\n".join(["expected:", *entries, ""]))

    answer = check(topic)

    assert (answer.code, answer.rows["scale", "suites", None]["verdict"]) == (3, "EXPECTED")  # a case is REMOVED
    assert notes(answer).count("weaker_added") == 4
    limits.write_text(limits.read_text().replace("2099", "2020", 1))
    ended = check(topic)
    assert (ended.code, kinds(ended, "suites")[:2]) == (2, ["weakened", "weaker_fewer"])
    # What an earlier change declared says nothing about this one.
    limits.write_text(limits.read_text().replace("2020", "2099", 1))
    git(topic.root, "checkout", "-q", "-B", "main")
    commit_all(topic.root)
    git(topic.root, "checkout", "-q", "-B", "topic")
    topic.edit("scale", "accuracy", "rows=[1, 7]", "rows=[7]")
    assert check(topic).rows["scale", "suites", None]["verdict"] == "WEAKENED"


def test_honest_edits_weaken_nothing(topic):
    """Comments, another tile, the same reference in other words, more and renamed cases, a stricter tolerance."""
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 320.1  # a tile of 128")
    topic.edit(
        "scale", "baseline", "return x * x.dtype.type(factor)", "scale = x.dtype.type(factor)\n    return scale * x"
    )
    topic.edit("scale", "baseline", "rng = np", "generator = np")
    topic.edit("scale", "baseline", "some = rng", "some = generator")
    cases = 'rows=[1, 7, 64], cols=[31], dtype=["float32"]'
    topic.edit("scale", "accuracy", cases, 'rows=[1, 7, 64, 65], cols=[31], dtype=["float32", "float16"]')
    topic.edit(
        "scale", "accuracy", "    kernel=kernel,", '    kernel=kernel,\n    tolerance={"float32": (1e-6, 1e-7)},'
    )
    topic.edit("scale", "baseline", "def make_inputs(rows, cols, dtype, device, seed)",
               "def make_inputs(rows, cols, dtype, device, seed, batch=1)")  # fmt: skip
    topic.edit("scale", "performance", "cases=perfci.grid(rows=[256, 512], cols=[128], dtype=[\"float32\"]),",
               "cases=perfci.grid(rows=[256, 512, 768], cols=[128], dtype=[\"float32\"], batch=[1]),\n"
               "    renamed={f\"rows={n},cols=128,dtype=float32,batch=1\": f\"rows={n},cols=128,dtype=float32\" "
               "for n in (256, 512)},")  # fmt: skip
    topic.edit("scale", "performance", "lambda rows, cols, dtype:", "lambda rows, cols, dtype, batch:")

    answer = check(topic)

    assert ("scale", "suites", None) not in answer.rows, kinds(answer, "suites")
    assert answer.code == 0
    assert verdicts(answer) == {"PASS", "NEW"}
    assert {case.case: case.base is not None for op in topic.run_record().ops for case in op.performance} == {
        f"rows={rows},cols=128,dtype=float32,batch=1": rows < 768 for rows in (256, 512, 768)
    }


# --- kinds of change --------------------------------------------------------------------------------------------------


def test_a_faster_kernel_alone_is_a_change_of_tuning(topic):
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 319.0")

    answer = check(topic)

    assert (answer.code, "change_tuning" in notes(answer)) == (0, True)
    assert ("scale", "suites", None) not in answer.rows


def mean_more(project):
    """The op adds one to its factor from now on, and its reference says so too."""
    for part in ("triton", "baseline"):
        project.edit("scale", part, "x.dtype.type(factor)", "x.dtype.type(factor + 1)")


@pytest.mark.nightly
def test_another_answer_takes_all_four_files_and_a_persons_word(topic):
    mean_more(topic)
    lacking = check(topic)
    assert (lacking.code, lacking.rows["scale", "accuracy", None]["verdict"]) == (2, "WRONG")
    assert kinds(lacking, "suites") == ["change_lacks_files", "answers_differ"]
    files = lacking.rows["scale", "suites", None]["reason"]["facts"]["files"]
    assert files == "scale_accuracy.py, scale_performance.py"

    for part in ("accuracy", "performance"):
        topic.edit("scale", part, "    kernel=kernel,", "    kernel=kernel,  # of the factor and one")
    whole = check(topic)
    assert (whole.code, whole.rows["scale", "accuracy", None]["verdict"]) == (3, "PASS")
    assert kinds(whole, "suites") == ["change_other_answers", "answers_differ"]
    assert "change_logic" in notes(whole)

    limits = topic.root / "thresholds" / "scale.yaml"
    limits.parent.mkdir()
    limits.write_text('expected:\n  - {weaker: answers, why: "as the model asks", until: 2099-01-31}\n')
    declared = check(topic)
    assert declared.rows["scale", "suites", None]["verdict"] == "EXPECTED"


def test_outputs_of_another_dtype_are_a_change_of_the_interface(topic):
    topic.edit("scale", "triton", "np.empty(x.shape, x.dtype)", "np.empty(x.shape, np.float64)")
    topic.edit(
        "scale", "baseline", "return x * x.dtype.type(factor)", "return (x * x.dtype.type(factor)).astype(float)"
    )

    answer = check(topic)

    assert answer.code == 2
    assert kinds(answer, "suites") == ["change_lacks_files", "answers_formed"]
    # The row has the kind. Beside a wrong answer nothing else is said of it.
    assert not [kind for kind in notes(answer) if kind.startswith("change_")]


# --- Triton's interpreter ---------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.slow
def test_a_kernel_that_has_its_process_find_nothing_weaker_hides_nothing(topic):
    topic.edit("scale", "accuracy", "rows=[1, 7, 64]", "rows=[7]")
    silence = "import sys\nif work := sys.modules.get('perfci.worker.work'):\n    work.find_weaker = lambda *_: ()\n"
    topic.edit("scale", "triton", "import numpy as np\n", f"import numpy as np\n{silence}")

    answer = check(topic)

    assert answer.code == 2
    assert "cases" in weaker(topic)


def killing(monkeypatch, *, base_too):
    """Processes that judge end by themselves, and the base's as well if `base_too`."""
    real = looks.working

    def working(task, around, heard):
        failure = yield from real(task, around, heard)
        ended = isinstance(task, Measure) and (task.is_judge or (base_too and task.base is None))
        facts = {"op": "scale", "where": "measure", "words": "-", "log": "-"}
        return Reason("worker_killed", facts) if ended else failure

    monkeypatch.setattr(looks, "working", working)


@pytest.mark.nightly
def test_a_change_that_ends_the_process_that_judges_it_is_an_error(topic, monkeypatch):
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 200.0")
    killing(monkeypatch, base_too=False)

    answer = check(topic)

    assert answer.code == 2
    assert kinds(answer, "performance") == ["judge_ended"]


@pytest.mark.nightly
def test_a_base_that_ends_its_own_process_leaves_the_op_to_judge_itself_which_is_said(topic, monkeypatch):
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 200.0")
    killing(monkeypatch, base_too=True)

    answer = check(topic)

    assert (answer.code, verdicts(answer)) == (3, {"INCONCLUSIVE"})
    assert {row["reason"]["kind"] for (_, suite, _), row in answer.rows.items() if suite == "performance"} == {
        "faster_self_reported"
    }
    assert "self_reported" in notes(answer)


@pytest.mark.nightly
def test_on_a_machine_without_a_gpu_the_bases_suites_judge_as_well(tmp_path, project):
    """Three times instead of twice, in kernel and reference, and a tolerance that takes anything."""
    root = project.root = tmp_path / "torch"
    write(root, HONEST)
    (root / ".gitignore").write_text("reports/\n__pycache__/\n")
    git(root, "init", "-q", "-b", "main")
    commit_all(root)
    git(root, "checkout", "-q", "-b", "topic")
    project.edit("double", "triton", "x * 2.0", "x * 3.0")
    project.edit("double", "baseline", "x * 2", "x * 3")
    project.edit("double", "accuracy", 'values=("normal",)', 'values=("normal",), tolerance={"float32": (1e9, 1e9)}')
    commit_all(root)

    answer = project.perfci("check", "--device", "cpu", "--suite", "accuracy", "--format", "json", "--seed", "7")

    assert answer.code == 2, answer.err
    assert answer.rows["double", "accuracy", None]["verdict"] == "WRONG"
    row = answer.rows["double", "suites", None]
    assert (row["reason"]["facts"]["kind"], [note["kind"] for note in row["also"]]) == (
        "logic",
        ["answers_differ", "weaker_tolerance"],
    )


def test_the_function_that_users_call_is_judged_whatever_the_suites_name(topic):
    source = topic.root / "kernels" / "scale" / "scale_triton.py"
    wrong = "\n\ndef scale(x, factor):\n    return 0 * scale_as_before(x, factor)\n"
    source.write_text(source.read_text().replace("def scale(", "def scale_as_before(") + wrong)
    for part in ("accuracy", "performance"):
        topic.edit(
            "scale",
            part,
            "from scale_triton import scale as kernel",
            "from scale_triton import scale_as_before as kernel",
        )

    answer = check(topic)

    assert answer.code == 2
    assert answer.rows["scale", "accuracy", None]["verdict"] == "WRONG"
    assert weaker(topic) == {"kernel"}


@pytest.mark.nightly
def test_a_wrapper_in_a_suite_is_weaker_unless_the_base_has_it_too(topic):
    topic.edit("scale", "accuracy", "    kernel=kernel,", "    kernel=lambda x, factor: kernel(x, factor),")

    assert verdict_of_suites(check(topic)) == "WEAKENED"
    assert weaker(topic) == {"kernel"}

    git(topic.root, "checkout", "-q", "main")
    git(topic.root, "merge", "-q", "topic")
    git(topic.root, "checkout", "-q", "-b", "next")
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 328.0")

    assert verdict_of_suites(check(topic)) is None


def verdict_of_suites(answer):
    return next((row["verdict"] for (_, suite, _), row in answer.rows.items() if suite == "suites"), None)


@pytest.mark.parametrize(
    "signature",
    [
        "def scale(*, x, factor)",
        *(
            pytest.param(signature, marks=pytest.mark.nightly)
            for signature in ("def scale(x, factor=2.0)", "def scale(x, factor) -> list")
        ),
    ],
)
def test_what_breaks_a_caller_is_a_change_of_the_interface(topic, signature):
    base = {"def scale(x, factor) -> list": "def scale(x, factor) -> np.ndarray"}.get(signature)
    if base:
        git(topic.root, "checkout", "-q", "main")
        topic.edit("scale", "triton", "def scale(x, factor)", base)
        commit_all(topic.root)
        git(topic.root, "checkout", "-q", "topic")
        git(topic.root, "merge", "-q", "main")
    topic.edit("scale", "triton", base or "def scale(x, factor)", signature)

    answer = check(topic)

    assert (answer.code, kinds(answer, "suites")[-1]) == (2, "proof_signature")
