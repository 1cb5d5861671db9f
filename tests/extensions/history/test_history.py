"""Accepting leaves a history, takes over no loss that no one agreed on, and follows what was renamed."""

import json
import re

import pytest

from perfci import store
from perfci.extensions.common.history import read_history
from tests.closed_schemas import faults

KEY = "fake-one"


@pytest.fixture
def scale(project):
    """The project with scale measured and accepted once."""
    project.first_check("scale")
    assert project.accept().code == 0
    return project


def check(project, *arguments):
    return project.check("scale", *arguments)


def accept(project, *arguments):
    return project.perfci("accept", str(project.root / "reports"), *arguments)


def slower(project, by="US_PER_MEGABYTE = 342.4", before="US_PER_MEGABYTE = 320.0"):
    project.edit("scale", "triton", before, by)


def history(project, op="scale"):
    return read_history(project.root / "baselines", KEY, op)


def baseline(project):
    return (project.root / "baselines" / KEY / "scale.json").read_bytes()


def one_line(text):
    return " ".join(text.split())


def test_an_accepted_run_leaves_one_line_that_fits_the_schema(scale):
    accept(scale)

    path = scale.root / "baselines" / KEY / "scale.history.jsonl"
    (line,) = path.read_text().splitlines()
    run = scale.run_record()
    (kept,) = history(scale).runs
    assert faults(json.loads(line), "history.schema.json") == []
    assert (kept.run, kept.created, kept.environment) == (run.id, run.created, run.environment)
    assert [case.case for case in kept.cases] == list(run.plan.ops[0].performance)
    assert kept.accuracy
    assert kept.epoch is None


def test_a_loss_becomes_no_baseline_until_a_person_says_why(scale):
    before = baseline(scale)
    slower(scale)
    assert check(scale).verdicts("scale") == {"REGRESSED", "PASS"}

    refused = accept(scale)

    assert refused.code == 2
    assert "perfci accept --slower --why TEXT" in one_line(refused.out)
    assert baseline(scale) == before
    assert len(history(scale).runs) == 1

    taken = accept(scale, "--slower", "--why", "float32 sums, see !42")

    assert taken.code == 0
    old, new = history(scale).runs
    assert (new.epoch.why, set(new.epoch.cases)) == ("float32 sums, see !42", {case.case for case in old.cases})
    assert check(scale).verdicts("scale") == {"PASS"}
    assert accept(scale).code == 0


def test_an_epoch_can_be_of_one_case_and_leaves_the_others(scale):
    slower(scale)
    check(scale)

    taken = accept(scale, "--slower", "--why", "float32 sums", "--case", "rows=256,*")

    assert taken.code == 0
    (case,) = history(scale).runs[-1].epoch.cases
    assert case.startswith("rows=256")
    assert [len(run.cases) for run in history(scale).runs] == [2, 1]
    again = accept(scale)
    assert again.code == 2
    assert "rows=512" in again.out


@pytest.mark.parametrize("why", ["", "  "])
def test_a_loss_needs_a_reason(scale, why):
    answer = accept(scale, "--slower", "--why", why)

    assert answer.code == 1
    assert "--why" in one_line(answer.err)
    assert accept(scale, "--slower").code == 1


def test_a_damaged_history_stops_accept_before_anything_is_written(scale):
    path = scale.root / "baselines" / KEY / "scale.history.jsonl"
    path.write_text("damage\n" + path.read_text())
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    check(scale)

    answer = accept(scale)

    assert answer.code == 1
    assert "scale.history.jsonl, line 1" in one_line(answer.err)
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before
    shown = scale.perfci("history")
    assert shown.code == 3
    assert "line 1, is damaged" in one_line(shown.out)


# --- names ------------------------------------------------------------------------------------------------------------

OLD = "rows=256,cols=128,dtype=float32"
NEW = "rows=256,cols=128,dtype=float32,kind=plain"
RENAMED = f'    renamed={{"{NEW}": "{OLD}"}},\n'


def rename(project, renamed=RENAMED):
    """The first case gets a parameter more."""
    grid = 'cases=perfci.grid(rows=[256, 512], cols=[128], dtype=["float32"]),\n'
    cases = (
        'cases=[*perfci.grid(rows=[256], cols=[128], dtype=["float32"], kind=["plain"]), '
        '*perfci.grid(rows=[512], cols=[128], dtype=["float32"])],\n'
    )
    project.edit("scale", "performance", grid, cases + renamed)
    project.edit("scale", "performance", "lambda rows, cols, dtype:", "lambda rows, cols, dtype, kind=None:")
    project.edit(
        "scale",
        "baseline",
        "def make_inputs(rows, cols, dtype, device, seed):",
        "def make_inputs(rows, cols, dtype, device, seed, kind=None):",
    )


def verdict(answer, case):
    return answer.rows["scale", "performance", case]["verdict"]


def test_a_renamed_case_that_is_slower_is_seen_and_its_history_goes_on(scale):
    rename(scale)
    slower(scale)
    assert verdict(check(scale), NEW) == "REGRESSED"
    assert accept(scale).code == 2

    accept(scale, "--slower", "--why", "float32 sums")

    first, last = history(scale).runs
    assert first.cases[0].case == last.cases[0].case == NEW
    assert last.renamed == {NEW: OLD}
    assert store.read_baseline(scale.root / "baselines" / KEY / "scale.json").cases[0].case == NEW
    assert check(scale).verdicts("scale") == {"PASS"}


def test_an_op_that_claims_the_name_of_one_that_is_still_there_is_refused(project):
    project.edit("scale", "performance", "    cases=", '    renamed_from="relu",\n    cases=')

    (row,) = check(project).rows.values()

    assert row["verdict"] == "ERROR"
    assert "there still is an op relu" in row["reason"]["sentence"]


def test_a_renamed_op_goes_on_with_baseline_and_history(scale):
    folder = scale.root / "kernels" / "scale"
    for path in list(folder.iterdir()):
        if path.suffix == ".py":
            text = re.sub(r"\bscale(?=\b|_)", "scaled", path.read_text())
            path.with_name(path.name.replace("scale_", "scaled_")).write_text(text)
            path.unlink()
    folder.rename(folder.with_name("scaled"))
    scale.edit("scaled", "performance", "    cases=", '    renamed_from="scale",\n    cases=')

    answer = scale.check("scaled")
    accepted = accept(scale)

    assert answer.verdicts("scaled") == {"PASS"}
    assert accepted.code == 0
    assert len(history(scale, "scaled").runs) == 2
    assert history(scale, "scaled").runs[-1].renamed_from == "scale"
