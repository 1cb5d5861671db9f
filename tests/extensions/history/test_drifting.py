"""`perfci history --drift` and `--boards`: sentences for people, JSON for programs, exit codes for jobs."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from perfci.cli.main import run
from perfci.core.model import Baseline, BaselineBlock, BaselineCase, BaselineRun, Step, StepSide
from perfci.extensions.common.accepted_runs import BoardCounts
from tests.extensions.lowprec.storage_examples import changed, line, sound
from tests.history_examples import CASE, OTHER, accepted, environment, figures
from tests.stored_examples import append_history, write_baseline

KEY = "nvidia-h200"


@pytest.fixture
def ask(capsys):
    def asked(*arguments):
        capsys.readouterr()
        code = run([*arguments])
        seen = capsys.readouterr()
        return code, " ".join(seen.out.split()), " ".join(seen.err.split())

    return asked


def runs(count=40, at=30, size=0.0, boards=("GPU-1",), drivers=None):
    rng, made = np.random.default_rng(1), []
    for number in range(count):
        us = 100 * math.exp(rng.normal(0, 0.003)) * (1 + size * (number >= at))
        one = figures(kernel_us=us, reference_us=150.0, shift=math.log(us / 150.0))
        made.append(
            replace(
                accepted(number % 27, one, figures(OTHER, 50 * math.exp(rng.normal(0, 0.003)))),
                run=f"run{number}",
                created=f"2026-{1 + number // 28:02}-{1 + number % 28:02}T00:00:00Z",
                environment=environment(
                    commit=f"{number:040x}",
                    uuid=boards[number % len(boards)],
                    driver="590" if drivers and number >= drivers else "580.1",
                ),
            )
        )
    return made


def keep(root, made, op="softmax"):
    folder = root / "baselines" / KEY
    folder.mkdir(parents=True, exist_ok=True)
    for accepted_run in made:
        append_history(root / "baselines", KEY, op, accepted_run)


def test_steady_cases_are_counted_and_nothing_else_is_said(root, ask):
    keep(root, runs())
    code, out, _ = ask("history", "--drift")

    assert code == 0
    assert "Cases: 2; steps: 0, for the worse and unexplained: 0." in out


def test_a_step_is_told_with_its_commits_and_the_command_that_finds_it(root, ask):
    keep(root, runs(size=0.03))
    code, out, _ = ask("history", "--drift")

    assert code == 3 and ask("history", "--drift", "--strict")[0] == 2
    assert f"perfci bisect softmax --case {CASE} --against {29:040x}"[:-28] in out
    assert "perfci accept --slower --why TEXT" in out


def test_a_new_driver_is_told_and_fails_nothing(root, ask):
    keep(root, runs(size=0.03, drivers=30))
    code, out, _ = ask("history", "--drift", "--case", CASE)

    assert code == 0 and ask("history", "--drift", "--strict")[0] == 0
    assert "environment: device.driver 580.1 -> 590" in out


def test_what_people_said_of_a_new_environment_stands_beside_it(root, ask):
    made = runs(drivers=30)
    keep(root, made)
    side = StepSide(("run29",), ()), StepSide(("run30",), ())
    step = Step("2026-02-03T00:00:00Z", "the driver that fixes ECC", *side, (), ())
    source = (BaselineRun("run30", made[30].created, made[30].environment),)
    cases = (BaselineCase(CASE, (BaselineBlock("run30", 10.0, 15.0, -0.4),)),)
    write_baseline(Baseline("softmax", KEY, "activity", source, cases, (step,)), root / "baselines")

    assert "environment: device.driver 580.1 -> 590 (the driver that fixes ECC)" in ask("history", "--drift")[1]


def test_programs_get_every_case_with_its_steps(root, ask):
    keep(root, runs(size=0.03))
    code, out, _ = ask("history", "--drift", "--format", "json")

    (history,) = json.loads(out)
    (step,) = history["cases"][0]["changes"]
    assert code == 3
    assert (history["op"], history["device"], history["runs"]) == ("softmax", KEY, 40)
    assert (step["cause"], step["unexplained"], step["after"]["run"]) == ("kernel", True, "run30")
    assert step["size"]["low"] < 0.03 < step["size"]["high"]
    assert history["cases"][1]["changes"] == []
    assert step["said"]["sentence"]


def test_few_runs_are_said_and_a_case_or_op_that_is_not_there_is_a_usage_error(root, ask):
    keep(root, runs(count=1))

    code, out, _ = ask("history", "--drift")
    assert code == 0 and "Too few runs for steps (20): 2." in out
    assert ask("history", "--drift", "--case", "none=1")[0] == ask("history", "--drift", "none")[0] == 1
    assert (
        ask("history", "--drift", "--device-key", "none")[0]
        == ask("history", "--boards", "--device-key", "none")[0]
        == 1
    )


# --- storage in low precision -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("growth", "code"), [(0.02, 3), (0.0, 0)])
def test_a_stored_tensor_whose_errors_grow_is_named(root, ask, growth, code):
    tensor = sound()[0]
    stored = [line(number, [changed(tensor, p99=(1 + growth) ** number)]).stored for number in range(24)]
    keep(root, [replace(accepted(number), stored=tensors) for number, tensors in enumerate(stored)], "quantised")

    got, out, _ = ask("history", "--drift", "--case", tensor.case)
    assert got == code
    assert (f"quantised at {tensor.case}: its stored_p99 became +" in out) == bool(growth)
    (history,) = json.loads(ask("history", "--drift", "--format", "json")[1])
    assert {step["figure"] for step in history["stored"]} == ({"stored_p99"} if growth else set())


# --- boards -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def uneven(root):
    """Three boards, of which GPU-2 leaves much open."""
    made = runs(count=45, boards=("GPU-1", "GPU-2", "GPU-3"))
    keep(
        root,
        [
            replace(run, boards=(BoardCounts(uuid := run.environment.device.uuid, 10, 4 * (uuid == "GPU-2")),))
            for run in made
        ],
    )
    return root


def test_a_board_outside_is_named_and_warns(uneven, ask):
    code, out, _ = ask("history", "--boards")

    assert code == 3
    assert "Boards of nvidia-h200: 3" in out and "GPU-2 15 40.0 %" in out
    assert "Board GPU-2 of nvidia-h200 leaves 40.0 % of its cases INCONCLUSIVE" in out


def test_a_quarantined_board_is_marked_and_no_longer_warns(uneven, ask):
    (uneven / "pyproject.toml").write_text('[tool.perfci]\nquarantine = ["gpu-2"]\n')
    code, out, _ = ask("history", "--boards")

    assert code == 0 and "quarantined" in out
