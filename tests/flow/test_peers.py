"""Peers, end to end on the fake device: timed with --backend all, reported everywhere, judged nowhere."""

import json

import pytest

from perfci.extensions.history import tables
from perfci.extensions.shards.plans import read_plan
from perfci.store.launches import read_launches
from tests.closed_schemas import faults
from tests.git_repositories import commit_all, git

CASES = ("rows=256,cols=128,dtype=float32", "rows=512,cols=128,dtype=float32")
FEW, MANY = CASES

PEERS = """
def peer(us, answer=scale):
    def run(x, factor):
        fake.work(2.0 + us * x.nbytes / 1e6)
        return answer(x, factor)

    return run


def picky(x, factor):
    if len(x) == 256:
        raise NotImplementedError("fewer than 300 rows")
    return peer(336.0)(x, factor)


def raising(x, factor):
    raise RuntimeError("no luck")


def crashing(x, factor):
    fake.crash()


def plus_one(x, factor):
    return scale(x, factor) + 1


performance = """

ALL = """{
    "slow": peer(400.0), "fast": lambda: peer(288.0), "picky": picky, "wrong": peer(240.0, plus_one),
    "raising": raising,
}"""


def declare(project, peers, op="scale"):
    before = PEERS if op == "scale" else "performance = "
    project.edit(op, "performance", "performance = ", before)
    project.edit(op, "performance", "    kernel=kernel,", f"    kernel=kernel,\n    peers={peers},")


def committed(project, branch="topic"):
    """The project on a separate branch, so that it is compared with `main`."""
    git(project.root, "init", "-q", "-b", "main")
    (project.root / ".gitignore").write_text("reports/\n__pycache__/\n")
    commit_all(project.root)
    git(project.root, "checkout", "-q", "-b", branch)


def peers(answer, op="scale", case=FEW):
    return {peer["name"]: peer for peer in answer.rows[op, "performance", case]["peers"]}


def kinds(answer):
    return [note["kind"] for note in json.loads(answer.out)["notes"]]


def test_faster_slower_picky_wrong_and_raising_peers_are_each_told_and_move_no_verdict(project):
    plain = project.check("--suite", "performance")
    declare(project, ALL)
    declare(project, '{"torch.compile": lambda: reference}', "relu")

    answer = project.check("--backend", "all", "--suite", "performance")

    assert (answer.code, plain.code) == (0, 0), answer.err
    assert {place: row["verdict"] for place, row in answer.rows.items()} == {
        place: row["verdict"] for place, row in plain.rows.items()
    }
    assert faults(json.loads(answer.out), "answer.schema.json") == []
    peers_of = {case: peers(answer, case=case) for case in CASES}
    for case in CASES:
        slow, fast = peers_of[case]["slow"], peers_of[case]["fast"]
        assert slow["ratio"]["value"] == pytest.approx(400 / 320, rel=0.02) and not slow["faster"]
        assert fast["ratio"]["value"] == pytest.approx(288 / 320, rel=0.02) and fast["faster"]
        assert fast["ratio"]["low"] < fast["ratio"]["value"] < fast["ratio"]["high"] < 1
        kernel_us = answer.rows["scale", "performance", case]["kernel_us"]
        assert fast["us"] / kernel_us == pytest.approx(fast["ratio"]["value"], rel=0.01)
        assert peers_of[case]["wrong"]["reason"]["kind"] == "peer_wrong" and peers_of[case]["wrong"]["us"] is None
        assert peers_of[case]["raising"]["reason"]["kind"] == "peer_raised"
    assert peers_of[FEW]["picky"]["reason"]["kind"] == "peer_unsupported"
    assert "fewer than 300 rows" in peers_of[FEW]["picky"]["reason"]["sentence"]
    assert peers_of[MANY]["picky"]["ratio"]["value"] == pytest.approx(336 / 320, rel=0.02)
    assert list(peers(answer, "relu")) == ["torch.compile"], "each op has its own"
    assert answer.rows["row_sum", "performance", FEW]["peers"] == []
    assert [kind for kind in kinds(answer) if kind.startswith("peer")] == ["peers_none", "peer_wrong", "peer_raised"]
    _everything_tells_them(project)


def _everything_tells_them(project):
    reports = project.root / "reports"
    assert faults(json.loads((reports / "run.json").read_text()), "run.schema.json") == []
    text = (reports / "report.md").read_text()
    section = text.partition("\n## Side by side\n")[2].partition("\n## ")[0]
    assert "worst 0.9" in section and "picky not timed in 1 case" in section
    assert section.count(", kernel slower**") == 2
    assert "### scale" in section and "torch.compile / kernel" in section
    assert "--backend all" in text[text.index("The same inputs and order of measuring again:") :]
    shown = project.perfci("show", str(reports), "--op", "scale", "--case", FEW).out
    assert "peer fast: " in shown and "does not support" in shown
    _tables_hold_them(project)
    printed = project.perfci("compare", str(reports)).out
    assert "scale: 1.50x the reference (worst 1." in printed and "1.24x slow (worst 1.2" in printed


def _tables_hold_them(project):
    stored = tables.read(project.root / "reports", project.root)
    frame = stored.frame()
    fast = frame[frame["arm"] == "peer:fast"]
    assert fast["peer_ratio"].median() == pytest.approx(288 / 320, rel=0.02)
    assert frame[frame["arm"] == "kernel"]["peer_ratio"].isna().all()
    launches = stored.launches()
    assert {"peer:slow", "peer:fast", "peer:torch.compile"} <= set(launches["arm"])


def test_peers_that_nobody_asked_for_are_not_even_made(project):
    declare(project, '{"crash": lambda: fake.crash()}')

    answer = project.check("scale")

    assert (answer.code, answer.verdicts("scale")) == (0, {"NEW", "PASS"})
    (op,) = project.run_record().ops
    assert all(case.peers == () and set(case.blocks[0].arms) == {"kernel", "reference"} for case in op.performance)
    assert "## Side by side" not in (project.root / "reports" / "report.md").read_text()


def test_a_peer_that_kills_the_process_costs_the_op_its_peers_alone(project):
    declare(project, '{"fast": peer(288.0), "crash": crashing}')

    answer = project.check("scale", "--backend", "all")

    assert (answer.code, answer.verdicts("scale")) == (0, {"NEW", "PASS"})
    (op,) = project.run_record().ops
    (note,) = op.notes
    assert (note.kind, note.facts["op"]) == ("peers_given_up", "scale")
    assert "SIGSEGV" in str(note.facts["words"]) + str(note.facts["signal"])
    assert len({(check.case, check.values, check.layout, check.seed) for check in op.accuracy}) == len(op.accuracy)
    assert [len(case.blocks) for case in op.performance] == [8, 8]
    assert {row.arm for row in read_launches(project.root / "reports").rows} == {"kernel", "reference"}
    assert "crash" in (project.root / "reports" / "report.md").read_text()


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_an_unchanged_op_of_a_merge_request_is_timed_beside_its_peers_and_a_slow_one_is_still_found(project, apart):
    declare(project, '{"fast": peer(288.0)}')
    declare(project, '{"torch.compile": lambda: reference}', "relu")
    committed(project)
    project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 332.0")
    if apart:  # an import made late, which needs a process for each revision
        project.edit("scale", "triton", "    fake.work", "    import scale_late\n\n    fake.work")
        project.op_file("scale", "late").write_text("")
    commit_all(project.root)

    answer = project.check("--backend", "all", "scale", "relu", "--suite", "performance")

    assert (answer.code, answer.verdicts("scale"), answer.verdicts("relu")) == (2, {"REGRESSED"}, {"UNCHANGED"})
    assert peers(answer)["fast"]["ratio"]["value"] == pytest.approx(288 / 332, rel=0.02)
    assert peers(answer, "relu")["torch.compile"]["ratio"]["value"] == pytest.approx(1.5, rel=0.02)
    ops = {op.op: op for op in project.run_record().ops}
    for case in ops["scale"].performance:
        timed = {block.process: "peer:fast" in block.arms for block in case.blocks}
        assert timed == {0: True, 1: False}, "a later look is about the base alone"
        assert sum(block.process == 0 for block in case.blocks) >= 6


@pytest.mark.slow
def test_shards_take_peers_from_the_plan_and_are_merged_with_them(project):
    declare(project, '{"fast": peer(288.0)}')
    declare(project, '{"torch.compile": lambda: reference}', "relu")
    committed(project)
    git(project.root, "commit", "-q", "--allow-empty", "-m", "nothing changed")
    plan = str(project.root / "reports" / "plan.json")
    asked = ("--op", "scale", "--op", "relu", "--suite", "performance", "--seed", "7")
    made = project.perfci("ci", "plan", "--device", "fake", "--out", plan, "--shards", "2", "--backend", "all", *asked)
    assert made.code == 0, made.err
    assert {op.shard for op in read_plan(project.root / "reports" / "plan.json")[0].ops} == {1, 2}

    refused = project.perfci("check", "--plan", plan, "--shard", "1/2", "--backend", "all")
    codes = [project.perfci("check", "--plan", plan, "--shard", f"{index}/2").code for index in (1, 2)]
    shards, again = str(project.root / "reports" / "shards"), (*asked[:6], "--device", "fake", "--backend", "all")
    answer = project.perfci("ci", "merge", shards, "--plan", plan, "--format", "json", *again)

    assert refused.code == 1 and "--backend" in refused.err
    assert (codes, answer.code) == ([0, 0], 0), answer.err
    assert peers(answer)["fast"]["faster"] and not peers(answer, "relu")["torch.compile"]["faster"]
    text = (project.root / "reports" / "report.md").read_text()
    assert "fast / kernel" in text and "torch.compile / kernel" in text
