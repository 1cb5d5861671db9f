"""The advice of a profile in the report of a check."""

import pytest

WORK = "fake.work(2.0 + US_PER_MEGABYTE * x.nbytes / 1e6)"


def read_report(project):
    project.perfci("check", "relu", "--device", "fake")
    return (project.root / "reports" / "report.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_report_has_the_advice_of_a_profile_until_the_kernel_is_edited(project):
    project.edit("relu", "triton", WORK, "fake.work(100.0, stall_barrier=0.6)")
    assert "What holds it back" not in read_report(project)
    project.perfci("profile", "relu", "--device", "fake")

    report = read_report(project)
    _, _, section = report.partition("What holds it back")
    lines = [line for line in section.splitlines() if line.startswith("- `fewer_warps`: ")]

    assert len(lines) == 1 and "times as fast. In 2 of 2 cases." in lines[0]
    assert "By a profile of 20" in section and "Fake One" in section
    project.edit("relu", "triton", "stall_barrier=0.6", "stall_barrier=0.7")
    assert "What holds it back" not in read_report(project)


@pytest.mark.slow
def test_a_profile_that_cannot_be_read_leaves_the_report_without_advice(project):
    project.perfci("profile", "relu", "--device", "fake")
    (project.root / "reports" / "profiles" / "relu.json").write_text("{")

    assert "What holds it back" not in read_report(project)
