from dataclasses import replace

import pytest

from perfci.core.model import OpRun
from perfci.report import frame
from perfci.report.build import make_report, tabulate_seconds
from perfci.report.sections import Material
from tests import example_runs

SPENT = {"start": 4.5, "accuracy": 4.5, "prepare": 2.0, "measure": 1.25, "later": 16.0}


def test_each_op_and_each_step_of_the_run_has_a_row_in_the_order_of_the_run():
    run = example_runs.run([OpRun("matmul", spent_s=SPENT), OpRun("softmax")])
    run = replace(run, spent_s={"judge": 0.5, "base": 0.0, "describe": 5.0})

    table = tabulate_seconds(run, 1.5)

    assert [row[:2] for row in table.rows] == [
        ("describing the ops", "5.00 s"),
        ("matmul", "28.2 s"),
        ("judging", "500 ms"),
        ("report", "1.50 s"),
    ]
    assert table.rows[1][2:] == ("4.50 s", "4.50 s", "2.00 s", "1.25 s", "16.0 s")


def test_runs_that_did_not_note_their_seconds_have_no_table():
    assert tabulate_seconds(example_runs.run([OpRun("softmax")])).rows == ()


def test_a_run_took_its_workers_time_and_that_of_the_steps_around_them(examples):
    run, judgements = examples.small()
    run = replace(run, wall_s=0.759, spent_s={"base": 1.2, "describe": 2.5, "compile": 7.3, "judge": 0.1})

    on_gpu, on_cpu = run, replace(run, plan=replace(run.plan, device="cpu"))

    assert on_cpu.took_s == pytest.approx(11.859)
    assert on_gpu.took_s == pytest.approx(4.559)  # which compiles in its workers' time
    assert replace(run, wall_s=None, spent_s={}).took_s is None
    material = Material(on_cpu, judgements, frame.pool_spreads(run), frame.find_clocks(run))
    assert dict(make_report(material).ran.rows)["started"].endswith("took 11.9 s")
