"""The benchmark of perfci's verdicts: that it judges as perfci does, plants what it says, and runs as a whole."""

import gzip
import json
import math
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from perfci.core.model import ArmBlock, Base, BaseArm, Block, PerformanceCase, Plan, PlannedOp, Verdict
from perfci.judge import judge
from perfci.statistics import duel_rule, exact
from perfci.statistics.duel_rule import Ruling
from perfci.thresholds.limits import Thresholds
from tests import decision_examples
from tests.benchmark_modules import imported

MODULES = ("cells", "duels", "peers", "resampling", "screen_on_traces", "side_by_side", "simulation", "tables")


@pytest.fixture(scope="module")
def bench(pytestconfig):
    with imported(pytestconfig.rootpath / "benchmarks", *MODULES, "verdicts") as modules:
        yield modules


@pytest.fixture(scope="module")
def own(bench):
    return bench.cells.recordings("own")


# --- duels ------------------------------------------------------------------------------------------------------------


def _duels(bench, own, effects, bias=0.0):
    rng = np.random.default_rng(1)
    return [bench.resampling.draw(own[n % len(own)], rng, effect, bias, 0.5) for n, effect in enumerate(effects)]


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
    found = judge(run, {}, Thresholds())
    verdicts = {row.case: row.verdict for row in found.rows}
    return [verdicts[case] for case in cases]


def _blocks(duel, ended):
    first = min(ended.blocks, duel_rule.SECOND)
    counts = [first, *[duel_rule.BLOCKS] * (ended.processes - 1)]
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
def test_a_run_of_duels_ends_as_the_judge_would_end_it(bench, own, bias):
    duels = _duels(bench, own, [0.0, 0.01, 0.02, 0.03, -0.03, 0.05, 0.1] * 6, bias)

    outcomes = bench.duels.play(duels)

    answers = [outcome.answer for outcome in outcomes]
    assert _judged(duels, outcomes) == [VERDICTS[answer] for answer in answers]
    assert {Ruling.CLEARED, Ruling.SLOWER, Ruling.FASTER} <= set(answers)


def test_a_cleared_duel_costs_four_blocks_and_their_time(bench, own):
    quiet = own[-1]
    duel = bench.resampling.draw(quiet, np.random.default_rng(2))

    (ended,) = bench.duels.play([duel])

    assert (ended.answer, ended.blocks, ended.processes) == (Ruling.CLEARED, 4, 1)
    assert ended.device_ms == pytest.approx(2 * 4 * (8 + 3) * (quiet.base_us + 35) / 1000)


# --- where duels come from --------------------------------------------------------------------------------------------


def test_a_planted_slow_down_is_in_the_launches_and_in_the_shifts(bench, own):
    rng = np.random.default_rng(3)
    for effect, bias in ((0.0, 0.0), (0.02, 0.0), (0.03, 0.015)):
        duel = bench.resampling.draw(own[0], rng, effect, bias, 1.0)
        base, head, _ = duel.launches()
        shifts = [shift for process in range(4) for shift in duel.shifts(process, duel_rule.BLOCKS)]

        found = [exact.launch_shift(slow, fast) for slow, fast in zip(head, base, strict=True)]

        assert found == pytest.approx(shifts)
        assert np.median(shifts) == pytest.approx(math.log1p(effect), abs=0.015)


def test_recorded_blocks_are_cut_to_what_the_product_would_launch(own):
    assert [recording.rounds for recording in own] == [30, 30, 30, 28, 22, 8]
    for recording in own:
        sizes = {arm.size for process in recording.processes for pair in process for arm in (pair.first, pair.second)}
        assert sizes == {recording.rounds}
        assert [len(process) for process in recording.processes] == [10] * 8


def test_shared_buffers_deal_the_launches_of_one_arm_to_two(bench):
    row = next(iter(bench.screen_on_traces.rows("h200-blocks.jsonl.gz")))
    recording = next(found for found in bench.resampling.shared_buffers() if found.case == row["case"])

    pair = recording.processes[0][0]

    recorded = np.multiply(row["ev"]["a1"], 1000)
    assert sorted([*pair.first, *pair.second]) == sorted(recorded[: 2 * pair.first.size])


def test_processes_swap_the_arms_as_the_product_loads_them(bench, own):
    duel = bench.resampling.draw(own[0], np.random.default_rng(4))

    signs = [duel.shifts(process, 1)[0] / duel.pairs[process][0].shift for process in range(4)]

    assert signs in ([1, -1, 1, -1], [-1, 1, -1, 1])


def test_a_simulated_slow_down_is_what_was_planted_and_ticks_are_kept(bench):
    duel = bench.simulation.Simulated(bench.simulation.Trouble(), 5.0, (6,), 0.05)

    shifts = [shift for process in range(4) for shift in duel.shifts(process, 12)]
    base, head = duel.process(0)

    assert np.mean(shifts) == pytest.approx(math.log1p(0.05), abs=0.004)
    assert np.allclose(np.round(base / 0.032), base / 0.032)
    assert head.shape == (12, 30)


def test_live_duels_are_read_judged_and_tabulated_by_what_was_planted(bench, tmp_path, monkeypatch):
    quiet = [[0.0005 * (-1) ** number for number in range(12)]] * 4
    rows = [
        {"op": "softmax", "case": "a", "timer": "activity", "kernel_us": 60.0, "run": "1", "processes": quiet},
        {"op": "softmax", "case": "b", "timer": "activity", "kernel_us": 60.0, "run": "1", "processes": [quiet[0][:4]]},
        {
            "op": "softmax",
            "case": "a",
            "timer": "activity",
            "kernel_us": 60.0,
            "run": "1",
            "factor": 1.05,
            "processes": [[0.049] * 12] * 2,
        },
        {"op": "softmax", "case": "a", "timer": "activity", "kernel_us": 60.0, "run": "1", "processes": [[0.049] * 12]},
    ]
    with gzip.open(tmp_path / bench.resampling.LIVE, "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
    monkeypatch.setattr(bench.screen_on_traces, "TRACES", tmp_path)

    duels = bench.resampling.live()
    text = bench.verdicts.live_text(duels)

    assert [duel.complete for duel in duels] == [True, False, False, False]
    answers = [bench.duels.play([duel])[0].answer for duel in duels]
    assert answers == [Ruling.CLEARED, Ruling.CLEARED, Ruling.SLOWER, Ruling.OPEN]
    assert "| over 40 us | none | 3 | 0 |" in text
    assert "| over 40 us | 5 % | 1 | 1 | 100 % |" in text
    assert "planted in the 1 that hold all" in text


def test_without_a_recording_there_are_no_live_duels(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench.screen_on_traces, "TRACES", tmp_path)

    assert bench.resampling.live() == []
    assert "None is recorded" in bench.verdicts.live_text([])


# --- other tools ------------------------------------------------------------------------------------------------------


def _pair(bench, factor):
    rng = np.random.default_rng(8)
    chunks = [rng.normal(100, 1, 12) for _ in range(20)]
    return bench.peers.Pair(chunks[:10], [factor * chunk for chunk in chunks[10:]], (1980.0, 1980.0))


def test_rules_without_a_package_tell_slower_from_same(bench):
    pairs = [_pair(bench, factor) for factor in (1.0, 1.2, 0.8)]

    for tool in bench.peers.available(None)[0]:
        assert tool.verdicts(pairs) == ["same", "slower", "faster"]


def test_tools_that_cannot_be_had_are_said_and_left_out(bench, tmp_path, monkeypatch):
    failed = SimpleNamespace(returncode=1, stderr="ERROR: no network\n")
    monkeypatch.setattr(bench.peers.subprocess, "run", lambda *_, **__: failed)

    tools, missing = bench.peers.available(tmp_path)

    assert len(tools) == 3
    assert {(peer.name, peer.why) for peer in missing} == {
        (name, "ERROR: no network") for name in ("asv", "pyperf", "nvbench")
    }


def test_nvbench_hears_of_each_side_the_clock_that_it_ran_at(bench, tmp_path, monkeypatch):
    clocks = []

    def compared(command, **_):
        for file in command[1:3]:
            (state,) = json.loads(file.read_text())["benchmarks"][0]["states"]
            clocks.append(float(state["summaries"][-1]["data"][0]["value"]))
        command[-1].write_text("bulk_rows = [{'state_key': 'Check=0', 'status': 'SAME'}]")

    monkeypatch.setattr(bench.peers.subprocess, "run", compared)
    rows = [{"ev": [0.1] * 120, "nv": {"sm": sm}} for sm in (1980, 1530)]

    question = next(bench.side_by_side._questions(*rows))

    assert bench.peers._compared(tmp_path, [question.pair]) == ["same"]
    assert clocks == [1.98e9, 1.53e9]


@pytest.mark.slow
def test_every_tool_answers_the_same_questions(bench):
    tools, _ = bench.peers.available(None)

    found = bench.side_by_side.settings(1, tools)

    assert [setting.changed[tools[0].name][1] for setting in found] == [96, 288, 6, 6]
    assert found[-1].changed["perfci"] == (0, 6)
    assert all("perfci" not in setting.changed for setting in found[:-1])
    assert found[0].changed["Mann-Whitney on launches"][0] > 48


# --- tables and the whole ---------------------------------------------------------------------------------------------


def test_bounds_are_those_of_clopper_and_pearson(bench):
    assert bench.screen_on_traces.upper_bound(0, 3000) == pytest.approx(1 - 0.05 ** (1 / 3000))
    assert bench.tables.lower_bound(1000, 1000) == pytest.approx(0.05 ** (1 / 1000))
    assert bench.screen_on_traces.upper_bound(5, 5) == 1.0
    assert bench.tables.lower_bound(0, 5) == 0.0


def test_checks_that_share_recorded_blocks_bound_a_rate_as_so_many_disjoint_ones_would(bench):
    quiet = bench.duels.Tally(Counter({Ruling.CLEARED: 10_000}), 50_000, 0.0)
    seen = bench.duels.Tally(Counter({Ruling.SLOWER: 900, Ruling.OPEN: 100}), 24_000, 0.0)

    assert bench.tables.disjoint(quiet, 480, 0.0) == f"at most {100 * (1 - 0.05 ** (1 / 96)):.1f} % (of 96)"
    assert bench.tables.disjoint(seen, 480, 0.02) == f"at least {100 * bench.tables.lower_bound(18, 20):.1f} % (of 20)"


def test_processes_recorded_after_the_bias_was_set_are_counted_apart_and_against_it(bench):
    def duel(run, *medians, changed=False):
        found = [[median] * 6 for median in medians]
        return bench.resampling.Live("op", "a", "activity", 60.0, found, run=run, changed=changed)

    early, late = bench.verdicts.LAST_FOR_BIAS, "20300101T000000Z-000000"
    changed = [duel(late, 0.05, 0.05, 0.05, 0.06, changed=True), duel(late, 0.1, 0.2, changed=True)]

    text = bench.verdicts.strays_text([duel(early, 0.001), duel(late, 0.002, -0.01)], changed)

    assert "| to set BIAS | 1 | 0.10 % | - | 0, 0 % |" in text
    assert "| later | 2 | 1.0 % | - | 1, 50.0 % |" in text
    assert "| later | 4 | 1.0 % | - | 1, 25.0 % |" in text


def test_another_rule_lasts_only_as_long_as_it_is_asked_for(bench):
    with bench.cells.variant("all four processes must agree"):
        assert duel_rule.AGREEING == 4

    assert duel_rule.AGREEING == 3


@pytest.mark.slow
def test_the_whole_benchmark_runs_and_finds_no_false_alarm(bench, tmp_path, monkeypatch, capsys):
    tiny = bench.verdicts.Size(null=10, planted=1, simulated_null=5, simulated=1, pairs=1, neighbour=2)
    monkeypatch.setattr(bench.verdicts, "QUICK", tiny)
    page = tmp_path / "page.md"
    page.write_text(f"{bench.verdicts.MARKS.begin}\n{bench.verdicts.MARKS.end}\n")

    bench.verdicts.main(["--quick", "--workers", "1", "--out", str(page)])

    text = page.read_text()
    assert (tmp_path / "page.png").stat().st_size > 10_000
    assert text.count("### ") == 8
    assert "| unchanged, shared buffers | 60 | 0 | 0 % | at most 4.9 % |" in text
    assert "| perfci | - | - | - | 0 of 6 (0 %) |" in text
    assert "nvbench** is left out" in text
    assert "In short" in capsys.readouterr().out


def test_the_page_holds_the_tables_of_a_full_run(bench, pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "how-good-is-perfci.md").read_text(encoding="utf-8")

    made = page.partition(bench.verdicts.MARKS.begin)[2].partition(bench.verdicts.MARKS.end)[0]

    assert made.count("### ") == 8
    assert f"| unchanged, own buffers | {6 * bench.verdicts.FULL.null:,} | 0 |" in made
    assert "how-good-is-perfci.png" in page
    assert (pytestconfig.rootpath / "docs" / "how-good-is-perfci.png").is_file()


# --- change points ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steps(bench):
    yield __import__("changepoints")
    del sys.modules["changepoints"]


def test_the_runs_of_the_change_points_benchmark_are_drawn_from_every_recorded_case(steps):
    recordings = steps.recordings()

    assert len(recordings) == 6
    assert [each.kernel_us for each in recordings] == sorted(each.kernel_us for each in recordings)
    assert all(len(each.processes) == 8 for each in recordings)
    series = recordings[3].series(np.random.default_rng(1))
    assert series.size == 100
    assert 0.0005 < series.std() < 0.01


@pytest.mark.parametrize("count", [20, 50, 100])
def test_the_thresholds_of_change_points_are_those_of_random_orders(steps, count):
    from perfci.statistics import changepoints

    rng, scores = np.random.default_rng(count), changepoints.normal_scores(count)

    most = steps.greatest(rng.permuted(np.broadcast_to(scores, (20_000, count)), axis=1))

    above = int(np.count_nonzero(most > changepoints.find_threshold(count)))
    assert above <= 22  # 10 expected
    assert np.count_nonzero(most > changepoints.find_threshold(count) - 0.4) > 22


def test_planted_steps_are_found_and_unplanted_ones_are_not(steps):
    from perfci.statistics import changepoints

    steady = steps.recordings()[4]

    assert steps.without_a_step(changepoints.find_cuts, steady, 50).alarmed == 0
    assert steps.with_a_step(changepoints.find_cuts, steady, 0.05, 10).found >= 9
    assert steps.with_a_step(lambda series: (), steady, 0.05, 10).found == 0
    assert max(steps.needed(steady, 0.05, 3)) < 10


def test_every_way_that_is_at_hand_is_compared_and_what_is_missing_is_said(steps, monkeypatch):
    monkeypatch.setattr(steps, "_asv", lambda: (_ for _ in ()).throw(ImportError("asv")))

    found, missing = steps.ways()

    assert [name for name in found if "perfci" in name] and "asv" in missing
