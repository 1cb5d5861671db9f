"""An intended slow-down on its way through a merge request: red, agreed on, too little, too late."""

import json
import shutil
from datetime import date, timedelta

import pytest

from tests.git_repositories import begin_topic, commit_all, git

pytestmark = pytest.mark.slow

SPEED = "US_PER_MEGABYTE = 320.0"
CASES = ("rows=256,cols=128,dtype=float32", "rows=512,cols=128,dtype=float32")


@pytest.fixture
def topic(project):
    """A branch on which scale is four per cent slower than on main."""
    begin_topic(project.root)
    project.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 333.6")
    commit_all(project.root)
    return project


def check(project):
    return project.check("scale")


def judge_again(project):
    """Judges the stored run again, by the rules of its base and the entries in the work tree."""
    return project.perfci("compare", str(project.root / "reports"), "--format", "json")


def rows(answer):
    rows = [row for row in json.loads(answer.out)["verdicts"] if row["case"] in CASES and row["suite"] == "performance"]
    return {row["case"]: row for row in rows}


def verdicts(answer):
    return {row["verdict"] for row in rows(answer).values()}


def kinds(row):
    return [row["reason"]["kind"], *(also["kind"] for also in row["also"])]


def notes(answer):
    return [note["kind"] for note in json.loads(answer.out)["notes"]]


def thresholds(project):
    return project.root / "thresholds" / "scale.yaml"


def commit(project, text):
    thresholds(project).parent.mkdir(exist_ok=True)
    thresholds(project).write_text(text)
    commit_all(project.root)


def printed(project):
    """The lines that the terminal has for pasting, and those of the report."""
    out = project.perfci("compare", str(project.root / "reports")).out.splitlines()
    start = next(i for i, line in enumerate(out) if line == "expected:")
    lines = out[start : start + 1 + len(CASES)]
    page = (project.root / "reports" / "report.md").read_text()
    assert "\n".join(lines) in page
    assert "Add this to thresholds/scale.yaml" in " ".join(out)
    return lines


def dated(text, day):
    return text.replace(text.split("until: ")[1][:10], day.isoformat())


def test_a_slow_down_is_accepted_inside_its_own_merge_request(topic, tmp_path):
    red = check(topic)

    assert (red.code, verdicts(red)) == (2, {"REGRESSED"})
    lines = printed(topic)
    day = date.fromisoformat(topic.run_record().created[:10])
    assert all(f"until: {day + timedelta(days=90)}}}" in line for line in lines[1:])
    assert {row["suggested"]["line"] for row in rows(red).values()} == set(lines[1:])

    # The same run, judged again with the lines in the work tree.
    thresholds(topic).parent.mkdir(exist_ok=True)
    thresholds(topic).write_text("\n".join(lines) + "\n")
    tried = judge_again(topic)
    assert (tried.code, verdicts(tried)) == (0, {"EXPECTED"})

    commit(topic, "rsd: 6 %\n" + "\n".join(lines).replace("say why, and where it was agreed on", "see !42") + "\n")
    green = check(topic)
    assert (green.code, verdicts(green)) == (0, {"EXPECTED"})
    _it_is_announced_first_and_told_with_its_place(topic, green)
    _the_stored_run_is_judged_alike_without_git_and_without_the_entry(topic, green, tmp_path)
    _it_ends(topic, "\n".join(lines), day)


def _it_is_announced_first_and_told_with_its_place(topic, green):
    assert notes(green)[:3] == ["rules_changed", "expected_added", "expected_added"]
    base = topic.run_record().plan.base
    assert [(entry.case, entry.line, entry.added) for entry in base.expected] == [
        (case, 3 + index, True) for index, case in enumerate(CASES)
    ]
    for row in rows(green).values():
        assert kinds(row)[:2] == ["expected_of_base", "duel_slower"]
        assert (row["expected"]["file"], row["expected"]["why"]) == ("thresholds/scale.yaml", "see !42")
    page = (topic.root / "reports" / "report.md").read_text()
    assert page.partition("## Verdicts")[0].count("This change adds an expected slow-down") == 2
    assert page.count("is expected: see") == 2 and "Up to 4.5 % are allowed until" in page
    told = topic.perfci("compare", str(topic.root / "reports")).out
    assert told.index("This change adds an expected slow-down") < told.index("EXPECTED")
    assert "2 EXPECTED" in told.splitlines()[-1] and "(exit 0)" in told.splitlines()[-1]


def _the_stored_run_is_judged_alike_without_git_and_without_the_entry(topic, green, tmp_path):
    away = tmp_path / "away"
    shutil.copytree(topic.root, away, ignore=shutil.ignore_patterns(".git", "thresholds"))
    elsewhere = topic.perfci("compare", str(away / "reports"), "--format", "json", "--project", str(away))
    git(topic.root, "checkout", "-q", "main")
    on_main = judge_again(topic)
    git(topic.root, "checkout", "-q", "topic")

    for answer in (elsewhere, on_main):
        assert (answer.code, verdicts(answer)) == (0, {"EXPECTED"})
        assert "expected_added" in notes(answer)


def _it_ends(topic, text, day):
    """An entry that is too narrow, one just expired, one long expired, each asked of the same kernel."""
    thresholds(topic).write_text(text.replace(text.split("up_to: ")[1].split(",")[0], "1.1 %") + "\n")
    narrow = judge_again(topic)
    assert (narrow.code, verdicts(narrow)) == (2, {"REGRESSED"})
    assert all(kinds(row)[:2] == ["duel_slower", "expected_exceeded"] for row in rows(narrow).values())

    thresholds(topic).write_text(dated(text, day - timedelta(days=40)) + "\n")
    late = judge_again(topic)
    assert (late.code, verdicts(late)) == (2, {"REGRESSED"})
    assert all(kinds(row)[1] == "expected_ended" for row in rows(late).values())

    commit(topic, dated(text, day - timedelta(days=2)) + "\n")
    overdue = check(topic)
    assert (overdue.code, verdicts(overdue)) == (3, {"EXPECTED"})
    assert all(kinds(row)[1] == "expected_overdue" for row in rows(overdue).values())
    assert "with warnings (exit code 3): 2 EXPECTED" in (topic.root / "reports" / "report.md").read_text()


def test_once_it_is_merged_the_entry_is_not_needed_any_more(topic):
    case = "{case: '*', up_to: 6 %, why: 'see !42', until: 2020-01-01}"
    commit(topic, f"expected:\n  - {case}\n  - {case.replace('*', 'rows=265,*')}\n")
    git(topic.root, "checkout", "-q", "main")
    git(topic.root, "merge", "-q", "--ff-only", "topic")
    git(topic.root, "checkout", "-q", "-b", "later")
    (topic.root / "README.md").write_text("Words.\n")
    commit_all(topic.root)

    answer, filtered = check(topic), topic.check("scale", "--case", "rows=256,*")

    assert (answer.code, filtered.code, verdicts(answer)) == (0, 0, {"UNCHANGED"})
    assert notes(answer)[-2:] == ["expected_unneeded", "expected_fits_nothing"]
    assert "thresholds/scale.yaml, line 2" in answer.out
    assert not [kind for kind in notes(filtered) if kind.startswith("expected_")]
