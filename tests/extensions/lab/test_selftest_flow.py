"""perfci's self-test on a sound fake device, on a bad one, and without one."""

import json

import pytest

from perfci import store


def selftest(project, *options):
    return project.perfci("doctor", "--selftest", "--op", "relu", "--seed", "7", *options)


def test_on_a_sound_device_all_comes_out_as_it_should(project):
    answer = selftest(project, "--device", "fake", "--format", "json")

    assert answer.code == 0
    told = json.loads(answer.out)
    assert [(trial["name"], trial["checked"], trial["seen"], trial["wanted"]) for trial in told["trials"]] == [
        ("unchanged", 2, 0, 0),
        ("slower", 2, 2, 2),
        ("wrong", 1, 1, 1),
    ]
    assert [(line["case"], line["tau"]) for line in told["noise"]] == [
        ("rows=256,cols=128,dtype=float32", 0.01),
        ("rows=512,cols=128,dtype=float32", 0.01),
    ]
    # Spreads of a device that scatters by 0.1 % a block, and what they let it see.
    assert all(0 < line["noise"]["spread"] < 0.005 for line in told["noise"])
    assert all(0.01 < line["noise"]["smallest"] < 0.02 for line in told["noise"])
    slower = store.read_run(project.root / "reports" / "selftest" / "slower")
    shifts = [block.shifts["kernel/base"] for case in slower.ops[0].performance for block in case.blocks]
    assert all(0.015 < shift < 0.025 for shift in shifts)
    assert not (project.root / "reports" / "run.json").exists()


@pytest.mark.nightly
def test_on_a_noisy_device_it_says_what_was_not_found(project):
    (project.root / "pyproject.toml").write_text("[tool.perfci.fake]\nlaunch_noise = 0.2\n")

    answer = selftest(project, "--device", "fake")

    assert answer.code == 2
    lines = answer.out.splitlines()
    assert any(line.startswith("FAIL") and "planted" in line for line in lines)
    assert any("relu rows=256" in line for line in lines)
    assert "perfci doctor" in lines[-1]


@pytest.mark.nightly
def test_an_op_that_needs_a_process_for_each_revision_is_tried_in_two(project, editable):
    project.edit("relu", "triton", "US_PER_MEGABYTE = 320.0", "from speeds import SPEED as US_PER_MEGABYTE")
    editable(project.root, 320.0)

    answer = selftest(project, "--device", "fake")

    assert answer.code == 0, answer.out
    run = store.read_run(project.root / "reports" / "selftest" / "slower")
    assert run.plan.ops[0].base.apart.kind == "imports_other_code"


@pytest.mark.torch
@pytest.mark.slow
def test_where_nothing_can_be_timed_it_says_so_in_one_sentence(project):
    answer = selftest(project, "--device", "cpu")

    assert (answer.code, answer.out) == (1, "")
    assert answer.err.strip().splitlines()[-1].startswith("perfci: Nothing could be timed here")
