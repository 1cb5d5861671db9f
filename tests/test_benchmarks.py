"""The benchmark of perfci's verdicts judges like perfci, plants what it claims, and runs as a whole."""

import itertools
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from perfci.core.model import ArmBlock, Base, BaseArm, Block, PerformanceCase, Plan, PlannedOp, Verdict
from perfci.judge import judge
from perfci.statistics import duel_rule, exact
from perfci.statistics.duel_rule import Ruling
from perfci.thresholds.limits import Thresholds
from tests import decision_examples
from tests.benchmark_modules import imported

# Scripts of the project's authors: a change of benchmarks/ and each night run these.
pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]
MODULES = ("cells", "duels", "peers", "resampling", "screen_on_traces", "side_by_side", "simulation", "tables")


@pytest.fixture(scope="module")
def bench(pytestconfig):
    with imported(pytestconfig.rootpath / "benchmarks", *MODULES, "tails", "turns", "verdicts") as modules:
        yield modules


@pytest.fixture(scope="module")
def recorded(bench):
    return bench.cells.recordings("own")


# --- duels ------------------------------------------------------------------------------------------------------------


def _duels(bench, recorded, effects, bias=0.0):
    rng, launches = np.random.default_rng(1), itertools.cycle(recorded)
    return [bench.resampling.draw(next(launches), rng, effect, bias, 0.5) for effect in effects]


def _judged(duels, outcomes):
    """Verdicts of the whole product, given the blocks that each duel used."""
    cases = tuple(f"n={number}" for number in range(len(duels)))
    plan = Plan(
        (PlannedOp("op", (decision_examples.CASE,), cases),),
        1,
        1.0,
        "cuda",
        base=Base("0" * 40, "asked", "main"),
        duel_family=len(duels),
    )
    timed = [
        PerformanceCase(case, blocks=_blocks(duel, ended), base=BaseArm(same=False, duelled=True))
        for case, duel, ended in zip(cases, duels, outcomes, strict=True)
    ]
    run = decision_examples.run(*timed, planned=plan)
    judgements = judge(run, {}, Thresholds())
    verdicts = {row.case: row.verdict for row in judgements.rows}
    return [verdicts[case] for case in cases]


def _blocks(duel, ended):
    first = min(ended.blocks, duel_rule.BLOCKS)
    counts = [first, *[duel_rule.BLOCKS] * (ended.processes - 1)]
    if hasattr(duel, "blocks"):
        whole = [block for process, count in enumerate(counts) for block in duel.blocks(process, count)]
        return tuple(replace(block, arms=block.arms | {"reference": block.arms["base"]}) for block in whole)
    base = ArmBlock(exact.summary([duel.base_us]))
    return tuple(
        Block(
            index,
            process,
            0.0,
            {"kernel": ArmBlock(exact.summary([duel.base_us * math.exp(shift)])), "base": base, "reference": base},
            {"kernel/base": shift},
        )
        for process, count in enumerate(counts)
        for index, shift in enumerate(duel.shifts(process, count))
    )


VERDICTS = {
    Ruling.CLEARED: Verdict.PASS,
    Ruling.SLOWER: Verdict.REGRESSED,
    Ruling.FASTER: Verdict.IMPROVED,
    Ruling.UNDECIDED: Verdict.INCONCLUSIVE,
}


@pytest.mark.parametrize("bias", [0.0, 0.012])
def test_a_run_of_duels_ends_as_the_judge_would_end_it(bench, recorded, bias):
    duels = _duels(bench, recorded, [0.0, 0.01, 0.02, 0.03, -0.03, 0.05, 0.1] * 6, bias)

    outcomes = bench.duels.play(duels)

    answers = [outcome.answer for outcome in outcomes]
    assert _judged(duels, outcomes) == [VERDICTS[answer] for answer in answers]
    assert {Ruling.CLEARED, Ruling.SLOWER, Ruling.FASTER} <= set(answers)


def test_a_run_of_duels_with_tails_ends_as_the_judge_would_end_it(bench, recorded):
    rng, plants = np.random.default_rng(4), [bench.tails.NOTHING, *bench.tails.PLANTS]
    drawn = [(bench.resampling.draw(recorded[n % len(recorded)], rng), plants[n % len(plants)]) for n in range(36)]
    duels = [bench.tails.Planted(duel, plant, (n,)) for n, (duel, plant) in enumerate(drawn)]

    outcomes = bench.duels.play(duels, tails=True)

    verdicts = [bench.tails.verdict(outcome) for outcome in outcomes]
    assert _judged(duels, outcomes) == verdicts
    assert {Verdict.PASS, Verdict.TAIL, Verdict.INCONCLUSIVE, Verdict.REGRESSED} <= set(verdicts)


# --- tables and the whole ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_whole_benchmark_runs_and_finds_no_false_alarm(bench, tmp_path, monkeypatch, capsys):
    tiny = bench.verdicts.Size(null=10, planted=1, simulated_null=5, simulated=1, pairs=1, neighbour=2)
    monkeypatch.setattr(bench.verdicts, "QUICK", tiny)
    page = tmp_path / "page.md"
    page.write_text(f"{bench.verdicts.MARKS.begin}\n{bench.verdicts.MARKS.end}\n")

    bench.verdicts.main(["--quick", "--workers", "1", "--out", str(page)])

    text = page.read_text()
    assert (tmp_path / "page.png").stat().st_size > 10_000
    assert text.count("### ") == 5
    assert "| unchanged, shared buffers | 60 | 0 | 0 % | at most 4.9 % |" in text
    assert "| perfci | - | - | - | 0 of 6 (0 %) |" in text
    assert "nvbench** is left out" in text
    printed = capsys.readouterr().out
    assert [title in printed for title in ("In short", *bench.verdicts.DETAILS)] == [True] * 5


def test_the_page_holds_the_tables_of_a_full_run(bench, pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "how-good-is-perfci.md").read_text(encoding="utf-8")

    made = page.partition(bench.verdicts.MARKS.begin)[2].partition(bench.verdicts.MARKS.end)[0]

    assert made.count("### ") == 5
    assert f"| unchanged, own buffers | {6 * bench.verdicts.FULL.null:,} | 0 |" in made
    assert "how-good-is-perfci.png" in page
    assert (pytestconfig.rootpath / "docs" / "how-good-is-perfci.png").is_file()


def test_the_benchmark_of_tails_runs_and_fills_its_part_of_the_page(bench, pytestconfig):
    cells = [
        bench.tails.Cell("own", number, plant, 1)
        for number in range(6)
        for plant in (bench.tails.NOTHING, *bench.tails.PLANTS)
    ]
    found = {
        replace(cell, tails=tails): bench.tails.played(replace(cell, tails=tails))
        for cell in cells
        for tails in (True, False)
    }

    unchanged, power = bench.tails.unchanged_text(found), bench.tails.power_text(found, "own")

    assert "| Arms with buffers of their own | 6 | 0 |" in unchanged
    assert power.count("\n") == 1 + len(bench.tails.PLANTS)
    page = (pytestconfig.rootpath / "docs" / "how-good-is-perfci.md").read_text(encoding="utf-8")
    made = page.partition(bench.tails.MARKS.begin)[2].partition(bench.tails.MARKS.end)[0]
    assert power.splitlines()[0] in made


# --- change points ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steps(bench):
    yield __import__("changepoints")
    sys.modules.pop("changepoints", None)


@pytest.mark.parametrize("count", [20, 50, 100])
def test_the_thresholds_of_change_points_are_those_of_random_orders(steps, count):
    from perfci.extensions.history import changepoints

    rng, scores = np.random.default_rng(count), changepoints.normal_scores(count)

    most = steps.greatest(rng.permuted(np.broadcast_to(scores, (20_000, count)), axis=1))

    above = int(np.count_nonzero(most > changepoints.find_threshold(count)))
    assert above <= 22  # 10 expected
    assert np.count_nonzero(most > changepoints.find_threshold(count) - 0.4) > 22


def test_planted_steps_are_found_and_unplanted_ones_are_not(steps):
    from perfci.extensions.history import changepoints

    steady = steps.recordings()[4]

    assert steps.without_a_step(changepoints.find_cuts, steady, 50).alarmed == 0
    assert steps.with_a_step(changepoints.find_cuts, steady, 0.05, 10).found >= 9
    assert steps.with_a_step(lambda series: (), steady, 0.05, 10).found == 0
    assert max(steps.needed(steady, 0.05, 3)) < 10


# --- two processes ----------------------------------------------------------------------------------------------------


def test_processes_that_hand_over_the_device_by_round_see_one_clock_and_by_block_two(bench):
    spreads = {}
    for take in (bench.turns.by_round, bench.turns.by_block):
        for recording in bench.turns.record_cases(take):
            shifts = [pair.shift for process in recording.processes for pair in process]
            spreads.setdefault(recording.case, []).append(np.std(shifts))

    rounds, blocks = spreads["matmul_2048x2048x4096_bf16"]
    assert rounds < 0.005 and blocks > 0.05
    assert all(rounds < 1.1 * blocks for rounds, blocks in spreads.values())


def test_what_two_processes_could_not_have_seen_does_not_pass(bench):
    """Twice tau planted into a matmul with a clock that differs from block to block."""
    recording = next(r for r in bench.turns.record_cases(bench.turns.by_block) if "matmul_2048" in r.case)
    rng, passed = np.random.default_rng(1), {}
    duels = [bench.resampling.draw(recording, rng, 0.02) for _ in range(60)]
    for apart in (False, True):
        ends = [ended.answer for duel in duels for ended in bench.duels.play([duel], family=30, apart=apart)]
        passed[apart] = ends.count(Ruling.CLEARED)

    assert passed == {False: 0, True: 0}


def test_the_benchmark_of_rounds_runs_as_a_whole_and_its_page_holds_what_is_promised(bench, tmp_path, pytestconfig):
    root = pytestconfig.rootpath
    page = tmp_path / "rounds.md"
    page.write_text((root / "docs" / "rounds.md").read_text(encoding="utf-8"), encoding="utf-8")
    with (
        imported(root / "benchmarks", "rounds") as modules,
        mock.patch.object(sys, "argv", ["", "--quick", "--out", str(page)]),
    ):
        modules.rounds.main()
        begin, end = modules.rounds.MARKS.begin, modules.rounds.MARKS.end

    for text in (page.read_text(encoding="utf-8"), (root / "docs" / "rounds.md").read_text(encoding="utf-8")):
        rows = [line.split(" | ") for line in text.split(begin)[1].split(end)[0].splitlines() if " of " in line]
        kept = [(int(row[1].replace(",", "")), int(row[2])) for row in rows if len(row) == 7 and row[2].isdecimal()]
        assert len(kept) == 3
        assert all(1000 * count <= checks for checks, count in kept)


def test_shards_of_the_benchmark_of_merging_are_joined(pytestconfig, capsys):
    with imported(pytestconfig.rootpath / "benchmarks", "speed") as modules:
        modules.speed.time_merging(3, 4)

    assert "12 verdicts" in capsys.readouterr().out


def test_a_plan_that_knows_an_earlier_run_keeps_the_workers_of_a_fleet_busy(pytestconfig):
    with imported(pytestconfig.rootpath / "benchmarks", "speed", "fleet") as modules:
        simulate = modules.fleet.simulate(10_000, 16, 5)

    assert min(use for _, use in simulate["one earlier run"]) > modules.fleet.AIM_USE - 0.02
    assert max(span for span, _ in simulate["one earlier run"]) < 1.1 * modules.fleet.AIM_S


def test_the_benchmark_of_sick_boards_finds_the_slow_ones(pytestconfig):
    rng = np.random.default_rng(1)
    with imported(pytestconfig.rootpath / "benchmarks", "boards") as modules:
        healthy, slow = ([modules.boards.simulate(0.006, by, rng) for _ in range(10)] for by in (0.0, 0.12))

    assert not any(board.sick for boards in healthy for board in boards)
    assert all([board.sick for board in boards] == [True, False, False, False] for boards in slow)


def test_losses_in_noise_are_planted_as_large_as_they_are_named(pytestconfig):
    """In the mean of all launches of four processes, but for those that a coarse timer rounds."""
    with imported(pytestconfig.rootpath / "benchmarks", *MODULES, "tails", "clearing") as modules:
        clearing = modules.clearing
        for name in ("launches in two modes 25 % apart", "0.9 tau, and 0.9 tau by 5 % of the launches",
                     "4 tau from the 7th block of a process on", "8 tau in one of four processes"):  # fmt: skip
            row, gains = clearing.ROWS[name], []
            for number in range(40):
                duels = [clearing.Noisy(row, loss, (1, number)) for loss in (0.0, row.loss)]
                same, slower = ([duel.process(process) for process in range(4)] for duel in duels)
                means = [np.mean([head.mean() / base.mean() for base, head in arms]) for arms in (same, slower)]
                gains.append(means[1] / means[0] - 1)
            assert np.mean(gains) == pytest.approx(0.01 * row.loss, rel=0.15), name
        table = clearing.run(3, 1, "8 tau in one")
    assert table.splitlines()[2].startswith("| 8 tau in one of four processes | ")


# --- beside other tools -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def beside(pytestconfig):
    with imported(pytestconfig.rootpath / "benchmarks", *MODULES, "speed", "answer_time", "beside") as modules:
        yield modules.beside


def _performance(case, verdict, change=None):
    interval = change and {"value": change, "low": change, "high": change}
    return {"suite": "performance", "case": case, "verdict": verdict, "change": interval, "sentence": "-"}


def _figures(beside):
    names = [beside.name_case(case) for case in beside.CASES]
    accuracy = {"suite": "accuracy", "case": None, "verdict": "PASS", "change": None, "sentence": "109 checks passed."}
    same = [accuracy, *(_performance(name, "PASS") for name in names)]
    changed = beside.name_case(beside.SLOWER)
    slower = [_performance(name, *(("REGRESSED", 0.026) if name == changed else ("UNCHANGED",))) for name in names]
    ours = {"seconds": [20.0, 12.0], "answers": [same, same], "slower_seconds": 15.0, "slower": [accuracy, *slower]}
    first, again = ([{"us": [100.0 * by, 200.0], "inputs": 0} for _ in names] for by in (1.0, 1.01))
    again[3]["us"][0] = 105.0
    tool = {"seconds": [10.0, 8.0], "answers": [first, again]}
    tools = {
        "do_bench": tool | {"turns": [[100.0, 102.0, 101.0], [103.0, 104.0, 102.5]]},
        "tritonbench": tool | {"turns": [[100.0, 100.1, 100.0], [102.5, 102.6, 102.5]]},
        "nvbench": {"failed": "ModuleNotFoundError: No module named 'cuda'"},
    }
    board = "NVIDIA H200, GPU-1, torch 2.11.0, Triton 3.6.0"
    return {"board": board, "machine": "16 cores", "planted": 0.025, "tools": tools, "perfci": ours}


def test_tables_beside_other_tools_say_which_of_them_shows_the_slower_case(beside, tmp_path, monkeypatch, capsys):
    kept, page = tmp_path / "beside.json", tmp_path / "page.md"
    kept.write_text(json.dumps(_figures(beside)))
    page.write_text(f"{beside.MARKS.begin}\n{beside.MARKS.end}\n")
    monkeypatch.setattr(sys, "argv", ["", "--read", str(kept), "--page", str(page)])

    beside.main()

    text = page.read_text()
    assert text.split(beside.MARKS.begin)[1].split(beside.MARKS.end)[0].strip() == capsys.readouterr().out.strip()
    assert "GPU-1" not in text
    assert "| `triton.testing.do_bench` | 10.0 s | 8.0 s | 2.0 and 1.5 |" in text
    assert (
        "up to 5.0 % apart, 1 of 10 by 2.5 % or more | +2.0 % beside 2.0 % between 3 processes of the kernel: not seen"
        in text
    )
    assert "+2.5 % beside 0.1 % between 3 processes of the kernel: seen" in text
    assert "10 PASS; 10 PASS | REGRESSED +2.6 %; the others 9 UNCHANGED |" in text
    assert "nvbench (cuda-bench) did not run: ModuleNotFoundError" in text


def test_the_case_that_is_made_slower_beside_other_tools_still_answers_right(beside, tmp_path):
    """Its kernel in Triton's interpreter, on a smaller case, which writes two rows again."""
    project = beside.write_project(tmp_path / "project")
    beside.plant(project, (72, 48, "bfloat16"))
    script = (
        "import torch, broadcast_triton as op, broadcast_baseline as baseline\n"
        "again, write = [], op._broadcast_kernel\n"
        "class Launched:\n"
        "    def __getitem__(self, grid):\n"
        "        return lambda *given, **named: [again.append(named['AGAIN']), write[grid](*given, **named)]\n"
        "op._broadcast_kernel = Launched()\n"
        "for rows in (72, 73):\n"
        "    inputs = baseline.make_inputs(rows, 48, torch.bfloat16, 'cpu', 0)\n"
        "    assert torch.equal(op.broadcast(**inputs), baseline.broadcast(**inputs))\n"
        "print(again)"
    )
    folders = os.pathsep.join(str(project / "kernels" / name) for name in ("", "broadcast"))
    variables = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": folders}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=variables)

    assert done.stdout.strip() == "[2, 0]", done.stderr


def test_a_tool_that_cannot_run_says_why_and_ends_no_other(beside, tmp_path, monkeypatch):
    """Each in processes of its own, without a GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    beside.write_project(tmp_path / "project")

    answers, _ = beside.ask(tmp_path, list(beside.TOOLS), beside.CASES[:1], ["project", "project"], turns=1)

    assert list(answers) == ["alternated", *beside.TOOLS]
    reasons = [answers.pop("alternated")["failed"], *(one["failed"] for turn in answers.values() for one in turn[0])]
    assert len(reasons) == 1 + 2 * len(beside.TOOLS)
    assert not [reason for reason in reasons if "Error" not in reason]


def test_tools_are_given_the_cases_of_the_op(beside):
    listed = ["list", beside.OP, "--format", "json", "--device", "cpu", "--project", str(ROOT)]
    done = subprocess.run([sys.executable, "-m", "perfci", *listed], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout)[0]["performance"] == [beside.name_case(case) for case in beside.CASES]
