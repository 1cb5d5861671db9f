"""Records that the device loses: their blocks are measured again, and missing ones are neither wrong nor an error."""

import pytest

from tests.flow.test_against import SPEED, case_of, commit_all, on_main, repository, topic, verdict

__all__ = ["repository", "topic"]


def plant(project, **spec):
    lines = "".join(f"{key} = {value}\n" for key, value in spec.items())
    (project.root / "pyproject.toml").write_text(f"[tool.perfci.fake]\n{lines}")


@pytest.mark.parametrize(
    "loss",
    [{"lost_launches": 0.002}, pytest.param({"lost_flushes": 0.002}, marks=pytest.mark.nightly)],
    ids=["launches", "flushes"],
)
def test_a_few_lost_records_change_no_verdict_and_no_number_of_blocks(topic, loss):
    topic.edit("scale", "triton", SPEED, "US_PER_MEGABYTE = 320.8")
    commit_all(topic.root)
    plant(topic, **loss)

    answer = topic.check("scale")

    assert (answer.code, verdict(answer, "scale", 256)[0], verdict(answer, "scale", 512)[0]) == (0, "PASS", "PASS")
    for rows in (256, 512):
        assert sorted(block.index for block in case_of(topic, "scale", rows).blocks) == [0, 1, 2, 3]


@pytest.mark.parametrize("loss", [{"lost_launches": 0.2}, {"lost_flushes": 0.2}], ids=["launches", "flushes"])
def test_records_that_are_lost_all_the_time_leave_cases_inconclusive_and_say_what_to_do(project, loss):
    plant(project, **loss)

    answer = project.check("relu")

    assert answer.code == 3
    assert {verdict(answer, "relu", rows)[0] for rows in (256, 512)} == {"INCONCLUSIVE"}
    assert "records_lost" in answer.out
    assert "--timer event" in answer.out
    assert "PASS" in answer.verdicts("relu")  # its accuracy


def test_a_device_that_records_no_launch_at_all_is_told_as_one_that_launches_nothing(project):
    plant(project, lost_launches=1.0)

    answer = project.check("relu")

    assert (answer.code, verdict(answer, "relu", 256)) == (2, ("WRONG", ["nothing_launched"]))


def test_a_base_that_launches_nothing_leaves_the_case_to_the_stored_baseline(topic):
    work = "fake.work(2.0 + US_PER_MEGABYTE * x.nbytes / 1e6)"
    sound = topic.op_file("scale", "triton").read_text()
    on_main(topic, lambda: topic.edit("scale", "triton", work, "pass"))
    topic.op_file("scale", "triton").write_text(sound)
    commit_all(topic.root)

    answer = topic.check("scale")

    assert answer.code == 3
    assert verdict(answer, "scale", 256) == ("INCONCLUSIVE", ["base_idle", "new_case"])
    assert [sorted(block.arms) for block in case_of(topic, "scale", 256).blocks] == [["kernel", "reference"]] * 8
