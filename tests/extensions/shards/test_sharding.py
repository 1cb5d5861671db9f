"""One check over several runners, on the fake device: plan, shards, merge."""

import importlib
import json
import time

import pytest

from perfci import store
from perfci.extensions.shards.plans import read_plan
from perfci.store.launches import read_launches
from tests.closed_schemas import faults
from tests.git_repositories import begin_topic, commit_all, git


class Sharded:
    """A project on the branch topic, and the commands on it."""

    def __init__(self, project):
        self.project = project
        self.root = project.root
        self.file = self.root / "reports" / "plan.json"

    def slow_down(self, op="scale", us=328.0):
        self.project.edit(op, "triton", "US_PER_MEGABYTE = 320.0", f"US_PER_MEGABYTE = {us}")

    def plan(self, *arguments):
        given = ("--device", "fake", "--seed", "7", "--out", str(self.file))
        return self.project.perfci("ci", "plan", *given, "--shards", "2", *arguments)

    def shard(self, index, count=2, *arguments):
        return self.project.perfci("check", "--plan", str(self.file), "--shard", f"{index}/{count}", *arguments)

    def merge(self, *arguments):
        given = not arguments or arguments[0].startswith("--")
        runs = (*([str(self.root / "reports" / "shards")] if given else []), *arguments)
        return self.project.perfci("ci", "merge", *runs, "--plan", str(self.file), "--format", "json")

    @property
    def stored(self):
        return read_plan(self.file)[0]

    def shard_run(self, index):
        return store.read_run(self.root / "reports" / "shards" / str(index))


@pytest.fixture
def topic(project):
    begin_topic(project.root)
    return Sharded(project)


def told(answer):
    """Every verdict with its reasons and numbers, but for what belongs to a shard or a moment."""
    keys = ("verdict", "gate", "change", "kernel_us", "base_us", "p_adjusted", "duel")
    return {place: {key: row[key] for key in keys} for place, row in answer.rows.items()}


@pytest.mark.slow
def test_shards_come_to_the_verdicts_of_one_run_with_the_same_seed(topic):
    """One op much slower, one a little faster, one unchanged; the order of ops does not matter to the fake device."""
    topic.slow_down("scale", 328.0)
    topic.slow_down("relu", 319.2)
    commit_all(topic.root)
    topic.project.check("--suite", "performance")
    # As it was stored, with six significant digits.
    whole = topic.project.perfci("compare", str(topic.root / "reports"), "--format", "json")

    assert topic.plan("--suite", "performance").code == 0
    plan = topic.stored
    assert {op.op: op.shard for op in plan.ops} == {"relu": 1, "row_sum": 0, "scale": 2}
    assert [topic.shard(index).code for index in (1, 2)] == [0, 0]
    answer = topic.merge("--suite", "performance")

    assert (whole.code, answer.code) == (2, 2), answer.err
    assert told(answer) == told(whole)
    assert answer.verdicts("scale") == {"REGRESSED"} and answer.verdicts("row_sum") == {"UNCHANGED"}
    run = topic.project.run_record()
    assert (run.missing, run.shard, run.plan.family) == ((), None, plan.family)
    _everything_lies_where_a_check_would_have_put_it(topic, answer)


def _everything_lies_where_a_check_would_have_put_it(topic, answer):
    reports = topic.root / "reports"
    assert all((reports / name).exists() for name in ("run.json", "report.md", "junit.xml", "metrics.txt"))
    rows = read_launches(reports).rows
    assert {row.op for row in rows} == {"relu", "scale"}
    for name, path in (("plan", topic.file), ("run", reports / "run.json"), ("run", reports / "shards/1/run.json")):
        assert faults(json.loads(path.read_text(encoding="utf-8")), f"{name}.schema.json") == []
    again = topic.project.perfci("compare", str(reports), "--format", "json")
    assert (again.code, told(again)) == (2, told(answer))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("elsewhere", "verdicts"),
    [
        # tests/flow/test_devices.py has a slow-down that both boards see.
        pytest.param(400.0, {"REGRESSED"}, marks=pytest.mark.nightly),
        (320.4, {"INCONCLUSIVE"}),
    ],
)
def test_what_one_board_alone_found_slower_fails_only_if_another_one_agrees(topic, monkeypatch, elsewhere, verdicts):
    here = f"import os\nUS_PER_MEGABYTE = {elsewhere} if os.environ.get('FAKE_VISIBLE_DEVICES') == '1' else 400.0"
    topic.project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", here)
    commit_all(topic.root)
    topic.plan("--shards", "1", "--suite", "performance")
    topic.shard(1, 1)
    given = ("check", "--plan", str(topic.file), "--confirm", str(topic.file.with_name("shards")), "--device", "fake")
    alone = topic.merge("--suite", "performance")
    before = topic.shard_run(1)

    same = topic.project.perfci(*given)
    assert (same.code, "FAKE-0" in same.out, topic.shard_run(1)) == (0, True, before), same.err
    monkeypatch.setenv("PERFCI_BOARD", "1")
    other = topic.project.perfci(*given)
    folders = (str(topic.file.with_name(name)) for name in ("confirmed", "shards"))
    both = topic.merge(*folders, "--suite", "performance")

    assert other.code == 0 and "looked at again" in other.out, other.out
    assert (alone.code, alone.verdicts("scale")) == (2, {"REGRESSED"})
    assert (both.code, both.verdicts("scale")) == (2 if elsewhere == 400.0 else 3, verdicts), both.out
    (scale,) = topic.project.run_record().ops[-1:]
    for case in scale.performance:
        assert {(block.board, block.process > 0) for block in case.blocks} == {(None, False), ("FAKE-1", True)}
    rows = {(row.case, row.process) for row in read_launches(topic.root / "reports").rows}
    assert len(rows) == sum(len({block.process for block in case.blocks}) for case in scale.performance)
    assert topic.shard_run(1) == before


def test_what_no_file_changed_is_planned_without_a_worker_and_its_shards_end_at_once(topic, monkeypatch):
    def started(*arguments):
        raise AssertionError("a worker was started")

    for name in ("describe", "looks"):
        monkeypatch.setattr(importlib.import_module(f"perfci.runs.{name}"), "working", started)

    assert topic.plan("--device", "cuda").code == 0
    began = time.monotonic()
    codes = [topic.shard(index).code for index in (1, 2)]
    took = time.monotonic() - began
    answer = topic.merge()

    assert codes == [0, 0] and took < 30
    run = topic.shard_run(1)
    assert (run.ops, run.plan.ops, run.shard.done, run.shard.count) == ((), (), True, 2)
    assert answer.code == 0
    assert {verdict for op in ("relu", "row_sum", "scale") for verdict in answer.verdicts(op)} == {"UNCHANGED"}


def forge(**changes):
    """Another value in the plan itself, by name."""
    return lambda stored: stored["plan"].update(changes)


def forge_op(**changes):
    def write(stored):
        op = next(op for op in stored["plan"]["ops"] if op["op"] == "scale")
        op.update({**changes, "base": {**op["base"], **changes.get("base", {})}})

    return write


def say_unchanged(stored):
    """All that a plan has of an op that is the base's."""
    forge_op(base={"same": True, "changed": []})(stored)
    stored["plan"]["duel_family"] = 0
    next(op for op in stored["ops"] if op["op"] == "scale").update(shard=0, files="")


def leave_out(stored):
    for ops in (stored["ops"], stored["plan"]["ops"]):
        ops[:] = [op for op in ops if op["op"] != "scale"]


def compare_with_itself(stored):
    stored["plan"]["base"].update(commit=stored["commit"], how="asked", name="HEAD")


def give_other_files(stored):
    next(op for op in stored["ops"] if op["op"] == "scale").update(files="0" * 64)


FORGERIES = {
    "unchanged": (say_unchanged, "same"),
    "left out": (leave_out, "relu, row_sum, scale"),
    "the base is the change": (compare_with_itself, "plan.base.commit"),
    "no base": (forge(base=None, duel="none"), "plan.base"),
    "nothing timed": (forge(device="cpu"), "plan.device"),
    "no duel": (forge(duel="none"), "plan.duel"),
    "accuracy alone": (forge(suites=["accuracy"]), "plan.suites"),
    "some cases": (forge(filter="rows=1"), "plan.filter"),
    "other thresholds": (forge(thresholds={"tau": "50 %"}), "plan.thresholds"),
    "a larger family": (lambda stored: stored.update(family=900), "family"),
    "more duels": (forge(duel_family=900), "plan.duel_family"),
    "no cases": (forge_op(accuracy=[], performance=[], base={"performance": []}), "plan"),
    "other files": (give_other_files, "files"),
    "rules of its own": (lambda stored: stored["plan"]["base"].update(changed_rules=[]), "plan.base.changed_rules"),
    "another commit": (lambda stored: stored.update(commit="0" * 40), "commit"),
}


def test_a_plan_that_is_not_what_the_checkout_gives_is_refused(topic, monkeypatch):
    """It comes from a job that imports ops: one of them could have written it."""
    rules = topic.root / "thresholds" / "relu.yaml"
    rules.parent.mkdir(exist_ok=True)
    rules.write_text("tau: {0: 50 %}\n")
    topic.slow_down()
    commit_all(topic.root)
    git(topic.root, "update-ref", "refs/remotes/origin/main", "main")
    monkeypatch.setenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")
    assert topic.plan().code == 0
    (topic.root / "reports" / "shards").mkdir()
    text = topic.file.read_text()

    honest = topic.merge("--device", "fake")
    answers = {}
    for name, (edit, _) in FORGERIES.items():
        stored = json.loads(text)
        edit(stored)
        topic.file.write_text(json.dumps(stored))
        answers[name] = topic.merge("--device", "fake")

    assert honest.code == 2  # shards are missing
    for name, (_, place) in FORGERIES.items():
        assert answers[name].code == 1 and place in answers[name].err, name


def test_what_a_plan_was_asked_for_is_asked_of_the_merge_too(topic):
    topic.slow_down()
    commit_all(topic.root)
    topic.plan("--op", "scale", "--against", "HEAD~1", "--case", "rows=256*")
    (topic.root / "reports" / "shards").mkdir()

    same = topic.merge("--op", "scale", "--against", "HEAD~1", "--case", "rows=256*")
    other = topic.merge("--op", "scale", "--against", "HEAD~1")

    assert (same.code, other.code) == (2, 1)
    assert "plan.filter" in other.err


def test_all_measures_what_is_unchanged_too(topic):
    topic.plan("--all")

    assert {op.shard for op in topic.stored.ops} == {1, 2}
    assert not topic.stored.plan.skip_unchanged


@pytest.fixture
def planned(topic):
    topic.slow_down()
    commit_all(topic.root)
    topic.plan()
    return topic


def test_a_shard_that_the_plan_does_not_have_is_refused(planned):
    wrong = {"0/2": "no shard 0", "3/2": "no shard 3", "1/3": "2 shards", "/": "--shard 2/3", "a/b": "--shard 2/3"}
    for shard, words in wrong.items():
        answer = planned.project.perfci("check", "--plan", str(planned.file), "--shard", shard)

        assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
        assert words in answer.err


def test_what_the_plan_fixes_cannot_be_given_to_a_shard(planned):
    for option in (
        ("relu",), ("--case", "rows=*"), ("--seed", "0"), ("--budget", "2"), ("--against", "main"),
        ("--duel", "all"), ("--suite", "accuracy"), ("--timer", "event"), ("--base-python", "python3"), ("--html",),
        ("--strict",),
    ):  # fmt: skip
        answer = planned.shard(1, 2, *option)

        assert (answer.code, answer.err.count("\n")) == (1, 1), option
        assert "--plan does not go with" in answer.err


@pytest.mark.nightly
def test_a_shard_with_other_files_or_another_device_is_refused(planned):
    device = planned.shard(1, 2, "--device", "cpu")
    planned.project.edit("scale", "triton", "US_PER_MEGABYTE = 328.0", "US_PER_MEGABYTE = 336.0")
    files = planned.shard(1)

    assert (device.code, "fake" in device.err, "cpu" in device.err) == (1, True, True)
    assert (files.code, "op scale" in files.err) == (1, True)


def test_a_merge_of_nothing_is_red_and_never_writes_over_a_shard(planned):
    (planned.root / "empty").mkdir()
    reports = planned.root / "reports"
    nothing = planned.merge(str(planned.root / "empty"))
    gone = planned.merge(str(planned.root / "no-such-folder"))
    over = planned.project.perfci("ci", "merge", str(reports), "--plan", str(planned.file))

    assert nothing.code == 2
    assert nothing.verdicts("shard 1/2") == nothing.verdicts("shard 2/2") == {"ERROR"}
    assert (gone.code, gone.err.count("\n"), "no-such-folder" in gone.err) == (1, 1, True)
    assert (over.code, "--out" in over.err) == (1, True)
    junit = (reports / "junit.xml").read_text(encoding="utf-8")
    assert "Shard 1/2 with 1 op gave no result" in junit
    assert "Shard 2/2 with 0 ops gave no result" in (reports / "report.md").read_text(encoding="utf-8")
