"""From two revisions to the culprit between them, with workers that are functions and a real repository."""

import dataclasses
import math
import random
import re
from collections import Counter

import pytest

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model.basics import Reason
from perfci.core.model.measured import AccuracyCase, ArmBlock, BaseArm, Block, OpRun, PerformanceCase, Summary
from perfci.core.model.run import PlannedOp
from perfci.core.settings import load
from perfci.extensions.history.bisect import Audience, Rating, bisect_op
from perfci.extensions.history.revisions import BisectOptions
from perfci.runs import beside, experiment
from perfci.runs.describe import Described
from perfci.runs.plan import Request
from tests.git_repositories import git
from tests.runs.stand_ins import DEVICE, FILES
from tests.story import tell

CASES = ("rows=1", "rows=2")
KERNEL = "kernels/relu/relu_triton.py"
BROKEN = Reason("import_failed", {"suite": "relu_accuracy.py", "error": "ImportError"})
WRONG = Reason("wrong_values", {})


def kernel(us=50.0, *marks, rows2=None):
    """A kernel's text for the stand-ins: its time, that of the second case, and its fault."""
    body = "".join(f"# {mark}\n" for mark in marks)
    return f"US = {us}\nROWS2 = {rows2 or us}\n{body}{FILES['triton'].format(op='relu')}"


def start(us=50.0):
    """All files of the first commit."""
    parts = {f"kernels/relu/relu_{part}.py": text.format(op="relu") for part, text in FILES.items()}
    return {**parts, KERNEL: kernel(us), ".gitignore": "reports/\n"}


def note(number):
    return (f"notes {number}", {"notes": f"{number}\n"})


class Workers:
    """Replaces workers: answers by the kernel's text in each revision, with a little noise."""

    def __init__(self):
        self.tried = []
        """(commit, against, cases) of every first process"""
        self.processes = Counter()
        """commit -> processes, later ones included"""
        self.device = DEVICE

    def describe(self, bench, request):
        return Described(self.device, (self._planned(bench.settings),))

    def describe_sources(self, bench, request, *sources):
        return [Described(self.device, (self._planned(source.settings),)) for source in sources]

    def recorder(self, bench, request, run, tree, *_):
        return Recorder(self, bench, request, run, tree)

    def _planned(self, settings):
        text = text_of(settings)
        if "broken" in text:
            return PlannedOp("relu", failure=BROKEN)
        signature = ("x", "y") if "other signature" in text else ("x",)
        return PlannedOp("relu", ("rows=0",), CASES, signature=signature)


class Recorder:
    def __init__(self, workers, bench, request, run, tree):
        self.workers, self.bench, self.request, self.run, self.tree = workers, bench, request, run, tree
        self.commit, self.against = folder_of(bench.settings), folder_of(tree.settings) if tree else None

    def record(self, cases=None):
        self.workers.tried.append((self.commit, self.against, cases))
        return self._answered(cases or CASES, 1)

    def record_again(self, needs):
        assert self.run.ops[0].performance
        return self._answered([need.case for need in needs], 1 + max(need.processes for need in needs))

    def _answered(self, cases, processes):
        self.workers.processes[self.commit] = max(self.workers.processes[self.commit], processes)
        environment = dataclasses.replace(self.run.environment, device=self.workers.device, timer="virtual")
        op = self._op_run(cases, processes)
        if self.run.ops:
            known = {case.case: case for case in self.run.ops[0].performance}
            op = dataclasses.replace(
                op, performance=tuple({**known, **{case.case: case for case in op.performance}}.values())
            )
        self.run = dataclasses.replace(self.run, ops=(op,), environment=environment)
        return self.run

    def _op_run(self, cases, processes):
        text, failure = text_of(self.bench.settings), self.run.plan.ops[0].failure
        if failure:
            return OpRun("relu", failure=failure)
        if "crash" in text:
            return OpRun("relu", failure=Reason("worker_died", {"op": "relu"}))
        check = AccuracyCase("rows=0", "normal", "contiguous", 0, failure=WRONG if "wrong" in text else None)
        if "wrong" in text or "performance" not in self.request.suites:
            return OpRun("relu", accuracy=(check,))
        if self.run.plan.device == "cpu":
            return OpRun("relu", accuracy=(check,), unmeasured=Reason("no_accelerator"))
        return OpRun("relu", accuracy=(check,), performance=tuple(self._case(case, processes) for case in cases))

    def _case(self, case, processes):
        if self.tree is None:
            return PerformanceCase(case)
        now, before = (times(settings)[case] for settings in (self.bench.settings, self.tree.settings))
        if "other inputs" in text_of(self.bench.settings):
            return PerformanceCase(case, base=BaseArm(failure=Reason("base_inputs_differ", {"case": case})))
        if now == before:
            return PerformanceCase(case, base=BaseArm(same=True))
        blocks = []
        for process in range(processes):
            # The same answer every time.
            noise = random.Random(f"{self.commit}/{self.against}/{case}/{process}")
            bias = noise.gauss(0, 0.0005)
            blocks += [block(now, before, bias + noise.gauss(0, 0.002), process, index) for index in range(12)]
        return PerformanceCase(case, blocks=tuple(blocks), base=BaseArm(same=False, duelled=True))


def block(now, before, noise, process, index):
    arms = {name: ArmBlock(Summary(1, *[us] * 8, 0.0, 0)) for name, us in (("kernel", now), ("base", before))}
    return Block(index, process, 0.5, arms, {"kernel/base": math.log(now / before) + noise})


def folder_of(settings):
    """The commit that a tree was written out for."""
    return next(part for part in settings.root.parts if re.fullmatch("[0-9a-f]{40}", part))


def text_of(settings):
    return (settings.kernels / "relu" / "relu_triton.py").read_text()


def times(settings):
    constants = dict(re.findall(r"^(US|ROWS2) = ([\d.]+)$", text_of(settings), re.MULTILINE))
    return {"rows=1": float(constants["US"]), "rows=2": float(constants["ROWS2"])}


@pytest.fixture
def workers(monkeypatch):
    stand_in = Workers()
    monkeypatch.setattr(beside, "describe_ops", stand_in.describe)
    monkeypatch.setattr(beside, "describe_sources", stand_in.describe_sources)
    monkeypatch.setattr(experiment, "Recorder", stand_in.recorder)
    return stand_in


@pytest.fixture
def bisected(tmp_path, workers):
    """Makes a history and searches it; returns the answer, the commits' ids, and the messages of each step."""
    root = tmp_path / "project"

    def run(chapters=None, good=0, bad=-1, **options):
        if chapters is not None:
            run.ids = tell(root, [("start", start()), *chapters])
        ends = [run.ids[end] if isinstance(end, int) else end for end in (good, bad)]
        first_parent = options.pop("first_parent", False)
        op = options.pop("op", "relu")
        request = Request(**({"device": "fake", "seed": 7} | options))
        run.begun, run.told = [], []
        audience = Audience(run.begun.append, lambda *step: run.told.append(step))
        wanted = BisectOptions(op, *ends, request, first_parent)
        run.found = bisect_op(load(root), wanted, "perfci bisect", lambda _: None, audience)
        return run.found

    run.root = root
    return run


def culprits(bisected):
    """Numbers of the commits that are named, or of all suspects."""
    return [tuple(bisected.ids.index(one.id) for one in culprit.suspects) for culprit in bisected.found.culprits]


def sides(bisected):
    return {bisected.ids.index(step.commit): step.side for step in bisected.found.steps}


LONG = [*map(note, range(6)), ("tidy", {KERNEL: kernel(50.0, "tidied")}), *map(note, range(6, 9)),
        ("unroll", {KERNEL: kernel(52.0), "other.txt": "x\n"}), *map(note, range(9, 15)),
        ("rename", {KERNEL: kernel(52.0, "renamed")}), note(15)]  # fmt: skip
UNROLL = 11


# --- speed ------------------------------------------------------------------------------------------------------------


def test_the_culprit_is_named_with_what_it_changed_how_much_and_how_sure_that_is(bisected, workers):
    bisection = bisected(LONG)

    (culprit,) = bisection.culprits
    assert culprits(bisected) == [(UNROLL,)]
    assert (culprit.suspects[0].title, culprit.suspects[0].date) == ("unroll", "2023-11-25")
    assert culprit.files == (KERNEL,)
    assert culprit.confirmed and culprit.sure > 0.999
    assert culprit.own.value == pytest.approx(0.04, abs=0.005)
    assert bisection.first.value == pytest.approx(0.04, abs=0.005)
    assert (bisection.commits, bisection.device, bisection.base_us) == (19, "Fake One", 50.0)
    # All of it was reported during the search.
    (begun,) = bisected.begun
    assert (begun.case, begun.culprits) == (bisection.case, ())
    assert [step for step, _ in bisected.told] == list(bisection.steps)
    assert all(commit.id == step.commit for step, commit in bisected.told)


def test_revisions_whose_files_of_the_op_are_known_are_not_tried_again(bisected, workers):
    bisected(LONG)

    tried = [bisected.ids.index(commit) for commit, _, _ in workers.tried]
    # BAD, the few that touched the op, and the culprit with its parent, but none of the fifteen others.
    assert set(tried) <= {7, UNROLL, 18, 19}
    assert set(sides(bisected)) <= {7, UNROLL, 18, 19}
    # Later ones are timed in the case that is followed.
    beside_good = {cases for _, against, cases in workers.tried if against == bisected.ids[0]}
    assert beside_good == {None, (bisected.found.case,)}


def test_the_work_tree_its_index_and_every_ref_stay_as_they_are(bisected):
    bisected.ids = tell(bisected.root, [("start", start()), *LONG])
    (bisected.root / "notes").write_text("mine\n")
    (bisected.root / "new").write_text("mine\n")
    git(bisected.root, "add", "new")
    before = state(bisected.root)

    bisected()

    assert culprits(bisected) == [(UNROLL,)]
    assert state(bisected.root) == before
    assert not list((bisected.root / ".git").glob("BISECT*"))


def state(root):
    """All that a search must leave alone."""
    asked = (
        "status --porcelain",
        "diff",
        "diff --cached",
        "for-each-ref",
        "rev-parse HEAD",
        "worktree list",
        "stash list",
    )
    return [git(root, *command.split()) for command in asked]


def test_revisions_that_cannot_be_tried_are_skipped_with_their_reason(bisected):
    marks = ["broken", "crash", "wrong", "other signature", "other inputs"]
    failing = [(mark, {KERNEL: kernel(50.0, mark, str(number))}) for number, mark in enumerate(marks)]
    bisection = bisected(
        [note(1), *failing, ("mended", {KERNEL: kernel(50.0, "mended")}), ("slow", {KERNEL: kernel(55.0)}), note(2)]
    )

    assert culprits(bisected) == [(8,)]
    assert {step.reason.kind for step in bisection.steps if step.side is Rating.SKIP} <= {
        "import_failed", "worker_died", "wrong_values", "bisect_ends_apart", "base_inputs_differ",
    }  # fmt: skip


def test_a_culprit_on_a_merged_branch_is_found_there_or_by_first_parent_as_its_merge(bisected):
    story = [
        note(1),
        note(2),
        ("side", {"side": "1\n"}, [1]),
        ("slow on side", {KERNEL: kernel(55.0)}),
        note(4),
        ("merge", {"notes": "2\n", KERNEL: kernel(55.0), "side": "1\n"}, [2, 5]),
        note(6),
    ]

    bisected(story)
    assert culprits(bisected) == [(4,)]
    bisected(None, first_parent=True)
    assert culprits(bisected) == [(6,)]


def test_a_helper_that_the_op_imports_can_be_the_culprit_and_be_renamed(bisected):
    helped = kernel(50.0).replace("def relu", "import _helper\n\n\ndef relu")
    renamed, old, new = helped.replace("_helper", "_aid"), "kernels/_helper.py", "kernels/_aid.py"
    bisection = bisected([
        ("use a helper", {KERNEL: helped, old: "A = 1\n"}),
        note(1),
        ("rename it", {KERNEL: renamed, old: None, new: "A = 1\n"}),
        note(2),
        ("slow", {KERNEL: renamed.replace("50.0", "55.0"), new: "A = 2\n"}),
        note(3),
    ])  # fmt: skip

    assert culprits(bisected) == [(5,)]
    assert {*bisection.culprits[0].files} == {KERNEL, "kernels/_aid.py"}


def test_a_small_loss_takes_more_processes_of_every_revision_and_of_the_culprit_beside_its_parent(bisected, workers):
    bisection = bisected(
        [note(1), note(2), ("slow", {KERNEL: kernel(50.4)}), ("tidy", {KERNEL: kernel(50.4001)}), note(3)]
    )

    assert culprits(bisected) == [(3,)]
    assert bisection.culprits[0].confirmed
    assert workers.processes[bisected.ids[3]] == 8
    assert 0.95 < bisection.culprits[0].sure < 0.9999


def test_one_slow_case_of_two_is_followed_and_the_other_left_alone(bisected):
    bisection = bisected([note(1), ("slow", {KERNEL: kernel(50.0, rows2=55.0)}), note(2)])

    assert bisection.case == "rows=2"


# --- nothing to find --------------------------------------------------------------------------------------------------


def test_a_loss_below_what_the_timer_can_tell_is_no_loss(bisected, workers):
    tell(bisected.root, [("start", start()), note(1)])
    (bisected.root / "thresholds").mkdir()
    (bisected.root / "thresholds" / "default.yaml").write_text("floor_us: {virtual: 5.0}\n")
    bisected.ids = tell(bisected.root, [("start", start()), ("slow", {KERNEL: kernel(52.0)})])

    assert bisected().nothing.kind == "bisect_not_slower"


ENDS = {
    "no such revision": ({"good": "v9"}, "revision_unknown"),
    "the same": ({"good": -1}, "bisect_not_ancestor"),
    "swapped": ({"good": -1, "bad": 0}, "bisect_not_ancestor"),
    "no such op": ({"op": "rleu"}, "bisect_end_lacks_op"),
    "no such case": ({"pattern": "rows=9"}, "no_case_fits"),
    "the same files": ({"bad": 1}, "bisect_same_files"),
}


@pytest.mark.parametrize(("options", "kind"), ENDS.values(), ids=ENDS)
def test_ends_that_give_nothing_to_search_are_refused(bisected, monkeypatch, options, kind):
    def no_case(*_, **__):
        raise UsageError("no_case_fits", pattern="rows=9", ops="relu")

    if kind == "no_case_fits":
        monkeypatch.setattr(experiment, "make_plan", no_case)
    with pytest.raises(PerfciError) as caught:
        bisected([note(1), ("slow", {KERNEL: kernel(55.0)})], **options)

    assert caught.value.reason.kind == kind


def test_ends_that_cannot_be_timed_side_by_side_say_why(bisected):
    with pytest.raises(UsageError) as caught:
        bisected([("another interface", {KERNEL: kernel(55.0, "other signature")})])

    assert caught.value.reason.kind == "bisect_ends_apart"
    assert "takes (x)" in str(caught.value)


# --- wrong answers and errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "kind"), [("wrong", "wrong_values"), ("crash", "worker_died"), ("broken", "import_failed")]
)
def test_where_bad_fails_the_first_commit_that_fails_is_found(bisected, mark, kind):
    bisection = bisected(
        [
            note(1),
            note(2),
            ("change", {KERNEL: kernel(90.0, mark)}),
            note(3),
            ("more", {KERNEL: kernel(91.0, mark)}),
            note(4),
        ]
    )

    assert culprits(bisected) == [(3,)]
    assert bisection.failure.kind == kind
    assert bisection.culprits[0].sure is None
    assert bisection.culprits[0].files == (KERNEL,)


def test_a_good_revision_that_fails_too_is_refused(bisected):
    tell(bisected.root, [("start", start())])
    bisected.ids = tell(
        bisected.root,
        [("start", {**start(), KERNEL: kernel(50.0, "wrong")}), ("more", {KERNEL: kernel(51.0, "wrong")})],
    )

    with pytest.raises(UsageError) as caught:
        bisected()
    assert caught.value.reason.kind == "bisect_good_fails"
