import json

import pytest

from perfci.core.model import Difference, Suite
from perfci.report import frame
from perfci.report.html import cases


@pytest.fixture(scope="module")
def known(examples):
    run, judgements = examples.duelled()
    return cases.known(run, frame.spreads(frame.blocks(run)), {}), judgements


def row_of(judgements, verdict, op="softmax"):
    return next(
        row for row in judgements.rows
        if str(row.verdict) == verdict and row.op == op and row.suite is Suite.PERFORMANCE and row.case
    )  # fmt: skip


def test_a_regression_tells_its_duel_its_arms_and_what_changed(known):
    found = cases.detail(row_of(known[1], "REGRESSED"), known[0])

    facts = dict(found.facts)
    assert facts["change"].startswith("+4.1 % (")
    assert facts["allowed"] == "1.5 %"
    assert [row[0] for row in found.arms] == ["kernel", "base", "reference"]
    assert any("compiles to other code" in text for text in found.why)


def test_the_commands_repeat_the_case_alone_with_the_same_base_and_seed(known):
    found = cases.detail(row_of(known[1], "REGRESSED"), known[0])

    commands = [command for _, command in found.commands]
    case = "rows=4096,cols=1024,dtype=float16"
    assert f"perfci check softmax --case {case} --seed 20260102 --against 89abcdef0123" in commands
    assert f"perfci show reports/run.json --op softmax --case {case}" in commands
    assert len(commands) == len(set(commands))


def test_a_case_that_was_not_run_has_neither_charts_nor_blocks(known):
    found = cases.detail(row_of(known[1], "UNCHANGED", "broadcast"), known[0])

    assert (found.picture, found.blocks, found.arms) == (None, (), ())
    assert found.commands


def test_the_blocks_numbers_are_given_row_by_row(known):
    found = cases.detail(row_of(known[1], "REGRESSED"), known[0])
    lines = list(cases.across(found.blocks))

    names = [column.name for column in found.blocks]
    assert names[:2] == ["start, s", "process"]
    assert {"kernel, us", "base, us", "reference, us", "SM clock, MHz", "temperature, C"} <= set(names)
    assert len(lines) == 24
    kernel = found.blocks[names.index("kernel, us")]
    assert float(lines[0][names.index("kernel, us")]) == pytest.approx(kernel.values[0], abs=1e-3)


def test_differences_of_the_environment_are_told_field_by_field():
    found = cases.differs([Difference("device.driver", "580", "590"), Difference("host", None, "b")])

    assert found == (("device.driver", "580", "590", "yes"), ("host", "-", "b", "yes"))


def test_a_packed_case_is_plain_data(known):
    found = cases.packed(cases.detail(row_of(known[1], "IMPROVED"), known[0]))

    assert len(json.dumps(found, allow_nan=False)) < 10_000


def test_no_command_ends_where_a_hostile_name_wants_it_to(examples):
    run, judgements = examples.hostile()
    found = cases.detail(judgements.rows[0], cases.known(run, (), {}))

    import shlex

    for _, command in found.commands:
        for line in command.splitlines():
            assert shlex.split(line)[0] == "perfci"
