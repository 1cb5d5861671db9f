from perfci.core.model import Verdict
from perfci.report.html import table


def test_every_performance_case_has_a_line_of_its_own(examples):
    _, judgements = examples.duelled()
    found = table.lines(judgements)

    unchanged = [
        line for line in found if line.verdict == "UNCHANGED" and line.op == "broadcast" and "rows" in line.key
    ]
    assert len(unchanged) == 3


def test_what_fails_comes_first(examples):
    _, judgements = examples.full()
    gates = [line.gate for line in table.lines(judgements)]

    assert gates == sorted(gates, key=["fails", "warns", "ok"].index)
    assert gates[0] == "fails"


def test_accuracy_is_gathered_as_in_the_other_reports(examples):
    _, judgements = examples.full()
    keys = [line.key for line in table.lines(judgements)]

    assert "softmax/accuracy" in keys


def test_only_long_suites_are_folded_and_never_what_is_told_aloud(examples):
    few, many = (table.lines(examples.large(1, count)[1]) for count in (30, 60))

    assert not any(line.folded for line in few)
    assert sum(line.folded for line in many) == 59 - table.OPEN
    assert not any(line.folded for line in many if line.gate == "fails")


def test_numbers_stand_beside_their_texts(examples):
    _, judgements = examples.small()
    line = next(line for line in table.lines(judgements) if line.verdict == "REGRESSED")

    assert line.numbers[:2] == (0.041, 1.1)
    assert line.cells[2].source == "+4.1 % <small>+3.5 % to +4.7 %</small>"


def test_chips_count_the_lines(examples):
    _, judgements = examples.small()

    assert [(chip.verdict, chip.count) for chip in table.chips(table.lines(judgements))] == [
        ("REGRESSED", 1),
        ("PASS", 2),
    ]


def test_an_op_is_as_bad_as_its_worst_line(examples):
    _, judgements = examples.full()

    assert table.ops(table.lines(judgements)) == {
        "bias_relu": "fails", "broadcast": "ok", "matmul": "fails", "softmax": "fails",
    }  # fmt: skip


def test_a_case_id_may_go_on_in_the_next_line(examples):
    _, judgements = examples.small()
    line = next(line for line in table.lines(judgements) if line.verdict == str(Verdict.REGRESSED))

    assert line.cells[1].source == "<code>rows=4096,<wbr>cols=32768,<wbr>dtype=float16</code>"
