"""Several devices of a host side by side, on the fake device: the same verdicts, in less time."""

import signal
import time

import pytest

from perfci import store
from perfci.store.launches import read_launches
from tests.flow.conftest import QUICK
from tests.git_repositories import begin_topic
from tests.processes import NAME, runs_there

OPS = ("relu", "row_sum", "scale")


@pytest.fixture
def boards(project):
    """The project on a host with two boards."""
    (project.root / "pyproject.toml").write_text(f"{QUICK}devices = 2\n")


def boards_of(run):
    return {op.op: {block.board for case in op.performance for block in case.blocks} for op in run.ops}


def test_on_several_boards_that_the_project_names_the_verdicts_are_those_of_one(project, boards):
    path = project.root / "pyproject.toml"
    path.write_text('[tool.perfci]\ndevices = "all"\n' + path.read_text())

    project.check("--devices", "one", "--suite", "performance")
    boards_of_one = boards_of(project.run_record())
    # As it was stored, with six significant digits.
    one = project.perfci("compare", str(project.root / "reports"), "--format", "json")
    several = project.check("--suite", "performance")

    assert set.union(*boards_of_one.values()) == {None}  # the command line has the last word
    assert (several.code, several.rows) == (one.code, one.rows)
    run = project.run_record()
    assert {board for boards in boards_of(run).values() for board in boards} == {"FAKE-0", "FAKE-1"}
    assert (run.environment.device.uuid, run.environment.device.key) == (None, "fake-one")
    assert "FAKE-0, FAKE-1" in (project.root / "reports" / "report.md").read_text()
    launches = read_launches(project.root / "reports")
    assert (launches.note, {row.op for row in launches.rows}) == (None, set(OPS))


@pytest.mark.nightly
def test_what_one_board_suspects_is_looked_at_on_another_too(project, boards):
    begin_topic(project.root)
    project.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 400.0")

    answer = project.check("--devices", "all", "--suite", "performance", "scale")

    assert (answer.code, answer.verdicts("scale")) == (2, {"REGRESSED"}), answer.out
    run = project.run_record()
    (scale,) = (op for op in run.ops if op.op == "scale")
    for case in scale.performance:
        # A run of one board, as no other op has work, does not repeat its name.
        assert {block.board or run.environment.device.uuid for block in case.blocks} == {"FAKE-0", "FAKE-1"}


@pytest.mark.nightly
def test_a_sick_board_gets_no_work_and_says_so_until_people_clear_it(project, boards):
    project.plant_sick("FAKE-1")

    answer = project.check("--devices", "all", "--suite", "performance", "relu", "scale")
    run = project.run_record()

    assert {board for boards in boards_of(run).values() for board in boards} <= {None, "FAKE-0"}
    assert [board.visible for board in run.plan.boards] == ["0"]
    assert (run.plan.put_aside, "boards_put_aside" in answer.out) == (("FAKE-1",), True)
    planned = project.perfci("ci", "plan", "--device", "fake", "--out", str(project.root / "plan.json"))
    assert "FAKE-1" in planned.out
    told = project.perfci("history", "--boards")
    assert (told.code, "put aside" in told.out, "perfci check relu" in " ".join(told.out.split())) == (3, True, True)

    path = project.root / "pyproject.toml"
    path.write_text('[tool.perfci]\ncleared = ["fake-1"]\n' + path.read_text())
    assert (
        "FAKE-1" not in project.perfci("ci", "plan", "--device", "fake", "--out", str(project.root / "plan.json")).out
    )


@pytest.mark.nightly
@pytest.mark.slow
def test_a_signal_ends_the_workers_of_all_boards_which_run_at_once(project, boards, monkeypatch):
    """Each op hangs: one after the other, the second would not begin."""
    monkeypatch.setenv("PERFCI_WRITABLE", str(project.root))
    for op in ("relu", "scale"):
        pid = f"open({str(project.root)!r} + '/pid-{op}', 'w').write({NAME}); fake.hang(); "
        project.edit(op, "triton", "fake.work(", f"{pid}fake.work(")
    process = project.start("check", "--device", "fake", "--devices", "0,1", "relu", "scale")
    files = [project.root / f"pid-{op}" for op in ("relu", "scale")]
    until = time.monotonic() + 60
    while time.monotonic() < until and not all(file.exists() and file.read_text() for file in files):
        time.sleep(0.05)

    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)

    assert process.returncode == 143, out + err
    run = store.read_run(project.root / "reports")
    assert (run.stopped, [op.op for op in run.ops]) == ("SIGTERM", ["relu", "scale"])
    assert not any(runs_there(file.read_text()) for file in files)
