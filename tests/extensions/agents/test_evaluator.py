"""`perfci.extensions.agents.evaluator.evaluate` as the evaluator of a search over kernels, on the fake device."""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from perfci.core.errors import UsageError
from perfci.extensions.agents.evaluator import evaluate
from perfci.extensions.agents.logbook import read_logbook
from tests.flow.conftest import quick_topic
from tests.git_repositories import alone, begin_topic, git

SPEED = "US_PER_MEGABYTE = 320.0"


@pytest.fixture
def search(project, monkeypatch, tmp_path):
    """A function that has a candidate judged, with a file that differs from scale's kernel in this text."""
    alone(monkeypatch, tmp_path)
    begin_topic(project.root)
    text = project.op_file("scale", "triton").read_text()

    def judge(before=SPEED, after=SPEED, name="candidate.py"):
        assert before in text
        (tmp_path / name).write_text(text.replace(before, after))
        return evaluate(tmp_path / name, "scale", project.root, device="fake")

    judge.project = project
    return judge


@pytest.fixture(scope="module")
def faster(tmp_path_factory):
    """A project of which a faster candidate was judged, and what was found."""
    folder = tmp_path_factory.mktemp("faster")
    with quick_topic(folder) as (root, path):
        (folder / "candidate.py").write_text(path.read_text().replace(SPEED, "US_PER_MEGABYTE = 300.0"))
        path.write_text(path.read_text() + "\n# not committed\n")
        return root, evaluate(folder / "candidate.py", "scale", root, device="fake")


def rounds(root):
    return read_logbook(root / "kernels" / "scale").rounds


def test_the_first_program_is_as_fast_as_the_start(search):
    assert search().metrics == {"combined_score": 1.0, "correct": 1.0, "kept": 0.0}


def test_a_faster_candidate_scores_by_how_much_faster_it_is_and_is_a_round_of_the_logbook(faster):
    root, result = faster

    assert result.metrics["combined_score"] == pytest.approx(1.064, abs=0.004)
    assert result.metrics["kept"] == 1.0
    assert result.metrics["gain_low"] > 0.05
    assert result.metrics["speedup"] == pytest.approx(1.6, abs=0.02)
    kept = rounds(root)[0]
    assert json.loads(result.artifacts["round"])["commit"] == kept.commit
    assert "300.0" in git(root, "show", f"{kept.commit}:kernels/scale/scale_triton.py")


def test_noise_is_no_gain_and_what_is_slower_scores_less_than_the_best(faster, monkeypatch, tmp_path):
    alone(monkeypatch, tmp_path)
    root, best = faster
    text = (root / "kernels" / "scale" / "scale_triton.py").read_text()

    def score(us):
        (tmp_path / "candidate.py").write_text(text.replace(SPEED, f"US_PER_MEGABYTE = {us}"))
        metrics = evaluate(tmp_path / "candidate.py", "scale", root, device="fake").metrics
        return metrics["kept"], metrics["combined_score"] / best.metrics["combined_score"]

    assert score(299.8) == (0.0, pytest.approx(1.0, rel=1e-5))
    slower = score(310.0)
    assert slower < (0.0, 0.99)
    assert score(310.0) == pytest.approx(slower, rel=1e-5)  # the same files, not timed again


@pytest.mark.parametrize(
    ("before", "after", "verdict", "said"),
    [
        ("x.dtype.type(factor)", "x.dtype.type(factor + 1)", "wrong", "checks failed"),
        ("def scale", "def (", "error", "SyntaxError"),
        ("fake.work(", "raise MemoryError('too large')\n    fake.work(", "error", "too large"),
    ],
)
def test_a_candidate_without_the_right_answer_scores_nothing_and_is_told_why(search, before, after, verdict, said):
    match = search(before, after)

    assert match.metrics == {"combined_score": 0.0, "correct": 0.0, "kept": 0.0}
    assert match.artifacts["verdict"] == verdict
    assert said in match.artifacts["reasons"]


def test_the_work_tree_stays_as_it_is(faster):
    root, _ = faster

    text = (root / "kernels" / "scale" / "scale_triton.py").read_text()
    assert SPEED in text and text.endswith("\n# not committed\n")
    status = git(root, "status", "--porcelain", "--untracked-files=all").split("\n")
    assert [line.split()[-1] for line in status] == [
        "kernels/scale/scale_triton.py", "kernels/scale/optimization.jsonl",
    ]  # fmt: skip


def test_candidates_that_come_at_once_are_judged_one_after_the_other(search):
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(search, after=f"US_PER_MEGABYTE = {us}", name=f"{us}.py") for us in (330.0, 340.0)]
        scores = [future.result().metrics["combined_score"] for future in asked]

    assert [round_.number for round_ in rounds(search.project.root)] == [1, 2]
    assert 1.0 > scores[0] > scores[1]


def test_a_project_may_lie_in_a_folder_of_its_repository(project, monkeypatch, tmp_path):
    alone(monkeypatch, tmp_path)
    inner = tmp_path / "repository" / "inner"
    inner.parent.mkdir()
    project.root.rename(inner)
    begin_topic(inner.parent)
    text = (inner / "kernels/scale/scale_triton.py").read_text()
    (tmp_path / "candidate.py").write_text(text.replace(SPEED, "US_PER_MEGABYTE = 330.0"))

    result = evaluate(tmp_path / "candidate.py", "scale", inner, device="fake")

    assert (result.metrics["correct"], result.artifacts["verdict"]) == (1.0, "slower")


def test_all_that_a_search_is_told_is_of_the_types_that_it_takes(faster):
    _, result = faster

    assert {type(value) for value in result.metrics.values()} == {float}
    assert {type(value) for value in result.artifacts.values()} == {str}


def test_what_is_no_fault_of_the_candidate_is_raised(search, tmp_path):
    with pytest.raises(UsageError):
        evaluate(tmp_path / "candidate.py", "scael", search.project.root, device="fake")


def test_the_evaluator_of_the_guide_gives_a_search_what_it_takes(search, monkeypatch):
    @dataclass
    class EvaluationResult:
        metrics: dict
        artifacts: dict

    module = ModuleType("openevolve.evaluation_result")
    module.EvaluationResult = EvaluationResult
    monkeypatch.setitem(sys.modules, "openevolve", ModuleType("openevolve"))
    monkeypatch.setitem(sys.modules, "openevolve.evaluation_result", module)
    guide = (Path(__file__).parents[3] / "docs" / "agents.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n# evaluator.py\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    here = f'op="scale", device="fake", project={str(search.project.root)!r}'
    names = {}
    exec(code.replace('op="softmax", project="/home/you/kernels"', here), names)

    result = names["evaluate"](search.project.op_file("scale", "triton"))

    assert result.metrics["combined_score"] == 1.0
    assert result.artifacts["verdict"] == "refused"
