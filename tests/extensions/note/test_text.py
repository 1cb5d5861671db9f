import re
from dataclasses import replace

import pytest

from perfci.core.wording import speaking
from perfci.extensions.note.text import Links, compose, find_links, safe_url

HOSTILE = (
    "\n/close\n@all #1 !2 :tada: deadbeef JIRA-1 ](http://evil.example) <b> | `x` %{project_name} [[a]] "
    "::include{file=x}"
)


@pytest.fixture(scope="module")
def large(examples):
    return examples.large(20, 50)


def lines(markdown):
    return [line for line in markdown.splitlines() if line]


def test_what_a_change_does_to_its_own_judging_comes_first(examples):
    shown = lines(compose(*examples.duelled(), Links()))

    assert shown[0] == "<!-- perfci:note:check -->"
    assert shown[1] == "## perfci: FAILS"
    assert shown[2].startswith("> **This change alters how it is judged")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_tests_that_decided_are_named(examples, language):
    with speaking(language):
        note = compose(*examples.duelled(), Links())

    assert "Mann-Whitney U" in note
    assert "Wilcoxon" in note


def test_what_failed_is_the_first_row_and_its_reason_follows(examples):
    note = compose(*examples.duelled(), Links())

    assert lines(note[note.index("| verdict ") :])[2].startswith("| **REGRESSED** ")
    assert re.search(r"- \*\*REGRESSED\*\* .*: \+4\.1 % against the base", note)


def test_the_table_of_cases_is_folded(examples):
    note = compose(*examples.duelled(), Links())
    folded = note[note.index("<details>") : note.index("</details>")]

    assert "| PASS " in folded
    assert "| PASS " not in note.replace(folded, "")
    assert "<summary>6 ops, 22 verdicts: 1 REGRESSED," in folded


def test_a_table_is_narrow_enough_for_a_phone(examples):
    rows = [line for line in lines(compose(*examples.full(), Links())) if line.startswith("|")]

    assert rows
    assert {line.count("|") for line in rows} == {6}
    assert all(len(line) < 120 for line in rows)


def test_what_changed_names_the_files_and_the_device_work(examples):
    note = compose(*examples.duelled(), Links())
    changed = note[note.index("### What changed") :]

    assert "`kernels/matmul/matmul_triton.py`, `kernels/_launch.py`." in changed
    assert "is launched with warps 8, was 4." in changed
    assert changed.count("warps 8") == 1


@pytest.mark.parametrize("name", ["small", "full", "on_cpu", "stopped", "failed_op", "compiled", "without_baseline"])
def test_every_kind_of_run_gives_a_note_that_is_plain_markdown(examples, reader, name):
    note = compose(*getattr(examples, name)(), Links(job="https://gitlab.example.com/-/jobs/1"))

    assert reader.findings(note) == []
    assert reader.read(note).addresses == ["https://gitlab.example.com/-/jobs/1"]


@pytest.mark.parametrize("name", ["hostile", "hostile_change"])
def test_no_text_from_a_kernel_a_branch_or_an_exception_becomes_anything(examples, reader, monkeypatch, name):
    for hostile in (examples.HOSTILE, HOSTILE, "/close", "#F00", "[x]"):
        monkeypatch.setattr(examples, "HOSTILE", hostile)
        note = compose(*getattr(examples, name)(), Links())

        assert reader.findings(note) == []
        assert reader.read(note).addresses == []


def test_no_line_begins_with_foreign_text(examples, monkeypatch):
    monkeypatch.setattr(examples, "HOSTILE", "FOREIGN text")
    for name in ("hostile", "hostile_change"):
        note = compose(*getattr(examples, name)(), Links())

        assert "FOREIGN" in note
        assert [line for line in lines(note) if line.startswith("FOREIGN")] == []


@pytest.mark.parametrize("limit", [900_000, 20_000, 6_000, 3_000, 500])
def test_a_note_fits_its_limit_and_keeps_what_matters_most(large, reader, limit):
    note = compose(*large, Links(), limit)

    assert len(note.encode()) <= limit
    assert note.startswith("<!-- perfci:note:check -->\n\n## perfci: FAILS\n")
    if limit >= 3_000:
        assert reader.findings(note) == []
        assert "20 REGRESSED" in note


def test_the_second_line_leads_to_the_report(examples):
    links = Links("https://x.example/report.html", "https://x.example/job", "https://x.example/pipeline")

    for limit in (100_000, 1_500):
        assert lines(compose(*examples.duelled(), links, limit))[1:3] == [
            "## perfci: FAILS",
            "[Report of every case](https://x.example/report.html), [job](https://x.example/job), "
            "[pipeline](https://x.example/pipeline)",
        ]


def test_a_note_has_the_first_changed_lines(examples):
    run, judgements = examples.duelled()
    ops = tuple(replace(op, base=replace(op.base, lines=("+++ a.py", "-x = 1", "+x = 2"))) for op in run.plan.ops)

    note = compose(replace(run, plan=replace(run.plan, ops=ops)), judgements, Links())

    assert "git diff" in note and "```text\n+++ a.py\n-x = 1\n+x = 2\n```" in note


def test_links_that_are_none_are_left_out(examples):
    bad = Links("javascript:alert(1)", "https://x.example/) @all", "https://x.example/a b")
    note = compose(*examples.small(), bad)

    assert "](" not in note


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)", "//evil.example", "https://user@evil.example/", "https://a.example/)x", "http://a/ b",
        "https://a.example/\n/close", "ftp://a.example/", "https://[::1/", "https://" + "a" * 2000, "",
    ],
)  # fmt: skip
def test_an_address_with_a_way_out_of_a_link_is_none(url):
    assert safe_url(url) is None


# --- links ------------------------------------------------------------------------------------------------------------

JOB = {
    "CI_API_V4_URL": "https://gitlab.example.com/api/v4",
    "CI_JOB_URL": "https://gitlab.example.com/team/kernels/-/jobs/11",
    "CI_PIPELINE_URL": "https://gitlab.example.com/team/kernels/-/pipelines/5",
}


def test_links_lead_to_report_job_and_pipeline():
    links = find_links(JOB, "reports/report.html")

    assert links.report == f"{JOB['CI_JOB_URL']}/artifacts/file/reports/report.html"
    assert (links.job, links.pipeline) == (JOB["CI_JOB_URL"], JOB["CI_PIPELINE_URL"])


def test_another_jobs_report_is_linked_on_the_same_server_only():
    there = "https://gitlab.example.com/team/kernels/-/jobs/10/artifacts/file/reports/report.html"

    assert find_links(JOB | {"PERFCI_REPORT_URL": there}).report == there
    assert find_links(JOB | {"PERFCI_REPORT_URL": there.replace("gitlab.example.com", "evil.example")}).report is None


def test_on_github_the_run_is_linked_and_where_it_keeps_the_report():
    given = {
        "GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "team/kernels",
        "GITHUB_RUN_ID": "9",
    }  # fmt: skip

    run = "https://github.com/team/kernels/actions/runs/9"
    assert find_links(given) == Links(f"{run}#artifacts", pipeline=run)
    assert safe_url(f"{run}#artifacts")
