"""A kernel that sometimes takes three times as long, checked against its base, and every format's words for it."""

import json

import pytest

from perfci.core import wording
from perfci.core.model import Reason
from tests.closed_schemas import faults
from tests.git_repositories import begin_topic, commit_all, git

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(project):
    """A branch on which every 50th call of scale takes three times as long as on main."""
    (project.root / "pyproject.toml").unlink()  # a share of launches takes many of them
    begin_topic(project.root)
    project.edit("scale", "triton", "import numpy as np", "import itertools\n\nimport numpy as np")
    project.edit("scale", "triton", "320.0", "320.3\ncalls = itertools.count(1)")
    project.edit("scale", "triton", "work(2.0", "work((1 if next(calls) % 40 else 3) * (2.0")
    project.edit("scale", "triton", "/ 1e6)", "/ 1e6))")
    commit_all(project.root)
    return project


@pytest.mark.nightly
def test_every_format_says_what_takes_longer_and_how_often(topic):
    answer = topic.check("scale")

    rows = [row for (_, suite, case), row in answer.rows.items() if suite == "performance" and case]
    assert answer.code == 3
    assert {row["verdict"] for row in rows} == {"TAIL"}
    assert faults(json.loads(answer.out), "answer.schema.json") == []
    for row in rows:
        assert row["tail"]["share"] == pytest.approx(1 / 40, rel=0.6)
        assert row["tail"]["times"] == pytest.approx(3.0, rel=0.03)
        assert row["tail"]["mean"] == pytest.approx(0.05, abs=0.02)
        arms = {arm["arm"]: arm for arm in row["arms"]}
        assert arms["kernel"]["p99_us"] == pytest.approx(3 * arms["kernel"]["p50_us"], rel=0.03)
        assert arms["base"]["p99_us"] == pytest.approx(1.5 * arms["base"]["p50_us"], rel=0.35)
        assert arms["kernel"]["launches"] == arms["base"]["launches"] >= 24 * 8

    reports = str(topic.root / "reports")
    topic.perfci("report", reports, "--to", "md,html,junit")
    table = topic.root / "blocks.csv"
    topic.perfci("report", reports, "--to", "csv", "--out", str(table))
    for name in ("report.md", "report.html", "junit.xml"):
        text = (topic.root / "reports" / name).read_text(encoding="utf-8")
        assert "TAIL" in text
        assert "times the base" in text
    header = table.read_text(encoding="utf-8").splitlines()[0].split(",")
    assert {"p90_us", "p99_us", "mean_us", "rsd"} <= set(header)
    shown = topic.perfci("show", reports, "--op", "scale").out
    assert "TAIL" in shown
    assert "p99" in shown
    with wording.speaking("zh"):
        chinese = wording.sentence(Reason("tail_slower", rows[0]["reason"]["facts"]))
    assert "倍" in chinese


@pytest.mark.nightly  # tests/judge/test_tail.py has the rule
def test_a_tail_fails_where_the_base_says_so(topic):
    git(topic.root, "checkout", "-q", "main")
    path = topic.root / "thresholds" / "scale.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("tail: fails\n", encoding="utf-8")
    commit_all(topic.root)
    git(topic.root, "checkout", "-q", "topic")
    git(topic.root, "rebase", "-q", "main")

    answer = topic.check("scale")

    assert answer.code == 2
    assert {row["gate"] for (_, suite, case), row in answer.rows.items() if suite == "performance" and case} == {
        "fails"
    }
