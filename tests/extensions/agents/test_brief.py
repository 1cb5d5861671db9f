"""`perfci brief` on the fake device: what an op is, where it stands, and what its page says that its suites lack."""

import json

import pytest

CASE = "rows=256,cols=128,dtype=float32"


def brief(project, op="scale"):
    answer = project.perfci("brief", op, "--device", "fake", "--format", "json")
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def write_page(project, text, op="scale"):
    (project.root / "kernels" / op / f"{op}.md").write_text(text)


def test_a_brief_has_the_page_the_call_and_the_cases_before_anything_was_timed(project):
    write_page(project, "# scale\n\n`scale(x, factor)` returns x times a factor.\n")

    answer = brief(project)

    assert "returns x times a factor" in answer["words"]
    assert answer["call"] == "scale(x, factor)"
    assert answer["source"]["kind"] == "brief_untimed"
    case = next(entry for entry in answer["cases"] if entry["case"] == CASE)
    assert case["bytes_moved"] == 2 * 256 * 128 * 4
    assert case["us"] is None


def test_a_brief_has_the_last_runs_times_with_their_intervals_and_ceilings(project):
    project.first_check()

    answer = brief(project)

    assert answer["source"]["kind"] == "brief_run"
    row = next(
        row for (op, suite, case), row in rows(project).items() if (op, suite, case) == ("scale", "performance", CASE)
    )
    case = next(entry for entry in answer["cases"] if entry["case"] == CASE)
    assert case["us"] == row["kernel_us"]
    assert case["reference_us"] == row["reference_us"]
    assert case["speedup"] == row["speedup"]
    assert case["rates"] == row["rates"]


def rows(project):
    return project.perfci("compare", str(project.root / "reports"), "--format", "json").rows


@pytest.mark.parametrize(
    "text", ["`scale(x)` returns x times a factor.", "It takes `float64`.", "It is timed at `rows=77,cols=128`."]
)
def test_what_the_suites_do_not_have_is_reported(project, text):
    write_page(project, text)

    assert [warning["kind"] for warning in brief(project)["warnings"]] == ["brief_unknown"]
    assert f"> **scale.md has {text.split('`')[1][:5]}" in project.perfci(
        "brief", "scale", "--device", "fake"
    ).out.replace("`", "")


def test_what_the_suites_have_and_what_is_none_of_their_business_is_not_reported(project):
    write_page(
        project, "`scale(x, factor)` in `float32`, at `rows=256,cols=*` and\n`rows=512`, by `num_warps=4` and `x * y`."
    )

    assert brief(project)["warnings"] == []


def test_a_missing_page_is_reported(project):
    (project.root / "kernels/scale/scale.md").unlink(missing_ok=True)

    assert [warning["kind"] for warning in brief(project)["warnings"]] == ["brief_wordless"]


def test_the_page_that_a_new_op_gets_asks_to_be_filled_in(project):
    assert project.perfci("new", "twice", "--fake").code == 0

    [warnings] = brief(project, "twice")["warnings"]
    assert (warnings["kind"], warnings["facts"]["call"]) == ("brief_unknown", "twice(x)")


def test_an_op_that_cannot_be_imported_has_no_brief_but_a_reason(project):
    project.edit("scale", "triton", "import numpy as np", "import numpy as np\nimport not_there")

    answer = project.perfci("brief", "scale", "--device", "fake")

    assert answer.code == 1
    assert "not_there" in answer.err


def test_a_torn_line_of_the_logbook_is_reported_and_the_brief_goes_on(project):
    write_page(project, "`scale(x, factor)` returns x times a factor.")
    (project.root / "kernels/scale/optimization.jsonl").write_text('{"op": "scale", "numb')

    answer = brief(project)

    assert [warning["kind"] for warning in answer["warnings"]] == ["logbook_damaged"]
    assert (answer["rounds"], answer["rounds_left"]) == ([], 5)


def test_a_brief_without_a_run_has_the_times_of_the_stored_baselines(project):
    project.first_check()
    project.accept()
    timed = {case["case"]: case for case in brief(project)["cases"]}
    (project.root / "reports" / "run.json").unlink()

    answer = brief(project)

    assert answer["source"]["kind"] == "brief_baseline"
    assert "fake-one" in answer["source"]["sentence"]
    for case in answer["cases"]:
        before = timed[case["case"]]
        assert case["us"] == pytest.approx(before["us"], rel=0.01)
        assert case["speedup"]["value"] == pytest.approx(before["speedup"]["value"], rel=0.01)
        assert case["rates"]["gbps"] == pytest.approx(before["rates"]["gbps"], rel=0.01)
