"""`perfci check --retry` as a command."""

from perfci import store
from perfci.cli.main import run
from perfci.core.model import Device, Environment, Plan, Run


def test_an_answer_is_never_written_over_the_run_that_it_is_about(tmp_path, capsys):
    (tmp_path / "kernels").mkdir()
    reports = tmp_path / "reports"
    reports.mkdir()
    environment = Environment(Device("fake", "Fake One", "fake-one"), "virtual", "3.11", {}, "host", "Linux")
    earlier = Run("r", "2026-01-01T00:00:00Z", "0.1.0", "perfci check", environment, Plan((), 1, 1.0, "fake"))
    store.write_run(earlier, reports)

    assert run(["check", "--retry", str(reports), "--out", str(reports), "--project", str(tmp_path)]) == 1
    assert "--out" in capsys.readouterr().err
    assert store.read_run(reports).id == "r"
