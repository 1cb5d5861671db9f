from __future__ import annotations

from dataclasses import replace

from perfci.core.model import OpRun
from perfci.report.timings import tabulate_seconds
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
