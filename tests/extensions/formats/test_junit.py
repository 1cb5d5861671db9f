from dataclasses import replace
from xml.etree import ElementTree

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from perfci import report
from perfci.core.model import AccuracyCase, Judgement, Judgements, OpRun, Plan, PlannedOp, Reason, Run, Suite, Verdict
from perfci.extensions.formats import junit
from perfci.report import frame
from perfci.report.build import make_report
from perfci.report.data import to_json
from perfci.report.sections import Material


@pytest.fixture
def written(examples, tmp_path):
    """The test cases of an example by class and name, as junitparser reads them."""

    def read(name: str) -> dict:
        run, judgements = getattr(examples, name)()
        return parsed(write(run, judgements, tmp_path))

    return read


def write(run, judgements, folder):
    report.write(run, judgements, folder, formats=["junit"])
    return folder / "junit.xml"


def parsed(path) -> dict:
    cases = [case for suite in JUnitXml.fromfile(str(path)) for case in suite]
    assert len({(case.classname, case.name) for case in cases}) == len(cases)
    return {(case.classname, case.name): case for case in cases}


def outcome(case) -> type | None:
    return type(case.result[0]) if case.result else None


def test_each_verdict_has_its_outcome(examples, written):
    _, judgements = examples.full()
    cases = written("full")

    expected = {
        Verdict.REGRESSED: Failure, Verdict.WRONG: Failure, Verdict.TOO_SLOW: Failure, Verdict.ERROR: Error,
        Verdict.INCONCLUSIVE: Skipped, Verdict.REMOVED: Skipped, Verdict.PASS: None, Verdict.NEW: None,
        Verdict.IMPROVED: None,
    }  # fmt: skip
    rows = [row for row in judgements.rows if row.case is not None]
    assert {row.verdict for row in rows} == expected.keys() - {Verdict.ERROR}
    for row in rows:
        assert outcome(cases[f"{row.op}.{row.suite}", row.case]) is expected[row.verdict]
    assert outcome(cases["bias_relu.accuracy", junit.WHOLE]) is Error


def test_a_fine_verdict_that_warns_is_skipped(examples, tmp_path):
    run, judgements = examples.small()
    rows = tuple(
        replace(row, warns=True) if row.verdict is Verdict.PASS and row.case else row for row in judgements.rows
    )
    assert any(row.gate == "warns" for row in rows)

    cases = parsed(write(run, replace(judgements, rows=rows), tmp_path))
    assert [outcome(case) for case in cases.values()].count(Skipped) == 1


def test_the_command_that_repeats_a_case_is_its_output_and_ends_its_failure(written):
    command = "perfci check softmax --case rows=4096,cols=32768,dtype=float16 --seed 20260102"
    case = written("small")["softmax.performance", "rows=4096,cols=32768,dtype=float16"]

    assert case.system_out == command
    assert case.result[0].text.endswith(f"\n{command}")


def test_every_planned_case_is_one_test(examples, written):
    for name in ("small", "full", "duelled", "stopped", "failed_op", "on_cpu"):
        run, _ = getattr(examples, name)()
        cases = written(name)
        planned = {(f"{op.op}.accuracy", case) for op in run.plan.ops for case in op.accuracy}
        planned |= {(f"{op.op}.performance", case) for op in run.plan.ops for case in op.performance}

        assert planned - cases.keys() == set()


def test_wrong_accuracy_cases_are_each_theirs(examples, tmp_path):
    cases = [f"rows={n},dtype=float32" for n in range(9)]
    wrong = examples.reason("example_wrong", max_abs=3.2, atol=0.01, index="(0,)")
    op = OpRun(
        "softmax", tuple(examples.accuracy_case(case, failure=wrong if n > 1 else None) for n, case in enumerate(cases))
    )
    rows = (
        examples.judgement("softmax", None, Verdict.WRONG, wrong, suite=Suite.ACCURACY),
        *(examples.judgement("softmax", case, Verdict.WRONG, wrong, suite=Suite.ACCURACY) for case in cases[2:]),
    )

    parsed_cases = parsed(write(examples.run([op]), Judgements(rows), tmp_path))
    assert [outcome(parsed_cases["softmax.accuracy", case]) for case in cases] == [None, None, *[Failure] * 7]
    assert ("softmax.accuracy", junit.WHOLE) not in parsed_cases


def test_cases_of_an_op_that_broke_are_skipped_beside_its_error(examples, tmp_path):
    broken = examples.reason("example_raised", error="Crash", message="signal 11")
    planned = PlannedOp("softmax", ("n=1",), ("n=2", "n=3"))
    run = examples.run([OpRun("softmax", failure=broken)], plan=Plan((planned,), 1, 1.0, "cuda"))
    rows = (examples.judgement("softmax", None, Verdict.ERROR, broken, suite=Suite.ACCURACY),)

    cases = parsed(write(run, Judgements(rows), tmp_path))
    outcomes = {key: outcome(case) for key, case in cases.items()}
    assert outcomes == {
        ("softmax.accuracy", "n=1"): Skipped,
        ("softmax.performance", "n=2"): Skipped,
        ("softmax.performance", "n=3"): Skipped,
        ("softmax.accuracy", "whole op"): Error,
    }
    assert "signal 11" in cases["softmax.performance", "n=3"].result[0].text


def test_run_commit_device_and_base_are_properties(examples, tmp_path):
    run, judgements = examples.duelled()
    suites = list(JUnitXml.fromfile(str(write(run, judgements, tmp_path))))

    for suite in suites:
        properties = {one.name: one.value for one in suite.properties()}
        assert properties["perfci.run"] == run.id
        assert properties["perfci.commit"] == run.environment.commit
        assert properties["perfci.device"] == "nvidia-h200"
        assert properties["perfci.base"] == examples.BASE.commit
    assert [suite.name for suite in suites] == ["bias_relu", "broadcast", "gelu", "matmul", "softmax", "layernorm"]


def test_the_time_of_a_case_is_what_its_launches_took(examples, written):
    run, _ = examples.small()
    measured = run.ops[0].performance[1]
    launches = sum(arm.time.launches * arm.time.mean_us for block in measured.blocks for arm in block.arms.values())

    cases = written("small")
    assert cases["softmax.performance", measured.case].time == pytest.approx(0.82 + launches * 1e-6, abs=1e-6)
    assert cases["softmax.accuracy", run.ops[0].accuracy[0].case].time is None


# --- any text ---------------------------------------------------------------------------------------------------------

NASTY = [
    "]]>", "<![CDATA[x]]><failure/>", "&amp;'\"<>&", "\x00\x01\x0b\x1b[31mred", "\ud800 \ufffe", "a\tb\r\nc\x85", "",
]  # fmt: skip


@pytest.mark.parametrize("text", NASTY)
def test_any_text_gives_valid_xml(examples, tmp_path, text):
    failed = Reason("example_raised", {"error": text, "message": f"{text}\n  at line\n{text}"})
    op = OpRun(
        text,
        (AccuracyCase(text, text, text, 1, failure=failed),),
        (replace(examples.performance_case("n=1", 5.0), case=text),),
    )
    rows = (
        Judgement(text, Suite.ACCURACY, text, Verdict.WRONG, (failed,)),
        Judgement(text, Suite.PERFORMANCE, text, Verdict.ERROR, (failed,)),
        Judgement(text, Suite.COMPILED, text, Verdict.SUSPECT, (failed,), target=text),
    )
    run = examples.run([op], examples.environment(commit=text, branch=text), command=text, id=text, created=text)

    path = write(run, Judgements(rows), tmp_path)
    root = ElementTree.fromstring(path.read_bytes())
    assert [len(root.findall(f".//{name}")) for name in ("failure", "error", "skipped")] == [1, 1, 1]
    assert len(parsed(path)) == 3


# --- size -------------------------------------------------------------------------------------------------------------


def many(examples, count: int, message: str) -> tuple[Run, Judgements]:
    cases = tuple(f"n={n}" for n in range(count))
    plan = Plan((PlannedOp("op", (), cases),), 1, 1.0, "cuda")
    slow = examples.reason("example_raised", error="E", message=message)
    rows = tuple(
        examples.judgement("op", case, Verdict.ERROR if n % 10 == 0 else Verdict.PASS, slow)
        for n, case in enumerate(cases)
    )
    return examples.run([], plan=plan), Judgements(rows)


def test_a_long_traceback_keeps_both_ends(examples, tmp_path):
    run, judgements = many(examples, 1, "first line\n" + "  at kernel.py\n" * 5000 + "last line")
    case = parsed(write(run, judgements, tmp_path))["op.performance", "n=0"]

    assert "first line\n  at kernel.py" in case.result[0].text
    assert "last line" in case.result[0].text
    assert len(case.result[0].text) < 5000


def test_the_seed_of_each_op_is_the_reports_and_that_of_its_commands(examples, tmp_path):
    run, judgements = examples.duelled()
    seeds = {op.op: 100 + at for at, op in enumerate(run.ops)}
    run = replace(run, ops=tuple(replace(op, seed=seeds[op.op]) for op in run.ops))

    suites = {suite.name: suite for suite in JUnitXml.fromfile(str(write(run, judgements, tmp_path)))}
    told = dict(make_report(frame_material(run, judgements)).environment.rows)["seed"]

    for op, seed in seeds.items():
        assert ("perfci.seed", str(seed)) in {(one.name, one.value) for one in suites[op].properties()}
        assert f"\ue000{op}\ue000 {seed}" in told
        for case in suites[op]:
            assert f" --seed {seed}" in case.system_out
    assert to_json(judgements, run)["run"]["seed"] is None


def frame_material(run, judgements):
    return Material(run, judgements, frame.pool_spreads(run), frame.find_clocks(run))
