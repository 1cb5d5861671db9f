from dataclasses import replace

from perfci.report.site import cases, drawings, trend
from perfci.report.site.trend import State


def rows(op):
    return cases.rows(op, drawings.order(op.kept.runs))


def commands(row):
    return [command for _, command in row.detail.commands]


def test_the_case_that_lost_most_stands_first_and_accuracy_last(softmax):
    found = rows(softmax)

    assert [row.state for row in found][:1] == [State.SLOWER]
    assert [row.state for row in found][-5:] == [State.GONE, *[State.ACCURACY] * 4]
    steady = [row.cells[1].number for row in found if row.state is State.STEADY]
    assert steady == sorted(steady, reverse=True)


def test_numbers_stand_beside_their_texts(softmax):
    first = rows(softmax)[0]

    assert first.cells[0].html.source.endswith(" us")
    assert first.cells[1].html.source == f"{100 * first.cells[1].number:+.1f} %"
    assert first.cells[4].number == 60


def test_a_change_too_small_to_be_written_has_no_minus(softmax):
    assert cases.changed(-0.0004).html.source == "+0.0 %"
    assert cases.changed(None).html.source == "-"


def test_every_run_has_its_line_of_numbers(softmax):
    first = rows(softmax)[0]
    columns = {column.name: column.texts or column.values for column in first.detail.blocks}

    assert {len(values) for values in columns.values()} == {60}
    assert {"run", "date, UTC", "commit", "kernel, us", "25 %", "75 %", "reference, us", "speedup"} <= columns.keys()
    assert {"share of the copy bandwidth, %", "compile time, s", "peak memory, MiB", "RSD, %"} <= columns.keys()
    assert {"99th percentile of the error, 1e-4", "greatest error, 1e-4"} <= columns.keys()
    assert columns["mark"][24] == "B: environment"


def test_a_run_that_was_not_accepted_is_a_gap_that_is_named(softmax):
    row = next(row for row in rows(softmax) if "cols=512" in row.key)
    columns = {column.name: column.texts or column.values for column in row.detail.blocks}

    assert columns["kernel, us"][11] is None
    assert columns["mark"][12] == "not accepted"
    assert "3 runs could say nothing about it and were not accepted." in row.detail.why


def test_a_slower_case_says_how_to_find_the_change(softmax, histories):
    first, *others = rows(softmax)
    good, bad = (histories.commit(number)[:12] for number in (0, 59))

    assert f"perfci bisect --op softmax --case rows=4096,cols=32768,dtype=float16 {good} {bad}" in commands(first)
    assert not [command for row in others for command in commands(row) if "bisect" in command]


def test_the_past_begins_with_the_last_epoch(softmax, histories):
    row = next(row for row in rows(softmax) if "rows=131072" in row.key)

    assert f"--against {histories.commit(40)[:12]} --duel all" in commands(row)[1]


def test_commits_that_are_none_are_never_typed(histories):
    runs = histories.steady(count=6)
    odd = [replace(one, environment=replace(one.environment, commit="$(rm -rf /)")) for one in runs]
    dirty = [replace(one, environment=replace(one.environment, dirty=True)) for one in runs]

    for each in (odd, dirty):
        (row, *_) = rows(trend.op(histories.kept(each)))
        assert not [command for command in commands(row) if "--against" in command]


def test_names_are_quoted_for_a_shell(histories):
    runs = histories.steady({"n=1; rm -rf /": (5.0, 7.0, 100, None)}, count=5)
    (row,) = rows(trend.op(histories.kept(runs, op="a b")))

    assert commands(row)[0] == "perfci check 'a b' --case 'n=1; rm -rf /'"


def test_marks_say_what_and_why(softmax):
    found = {row[0]: row for row in cases.marks(softmax)}

    assert found["A"][4:] == (
        "another board",
        "device.uuid GPU-bac0b368-7024-3052-1f41-3f1046457119 -> GPU-1d0b2a77-91f0-4c3e-8d52-0a6c7d0e9a4b",
        "a board that is measured on first",
    )
    assert found["B"][5:] == ("device.driver 580.65.06 -> 590.12.01", "New driver on all runners")
    assert found["C"][4:] == (
        "epoch", "rows=131072,cols=1024,dtype=bfloat16", "float32 accumulation for bfloat16, agreed in !412",
    )  # fmt: skip
    assert found["D"][5] == "packages.torch 2.11.0 -> 2.13.0; packages.triton 3.6.0 -> 3.7.1"


def test_every_run_tells_what_surrounded_it(softmax):
    found = cases.surroundings(softmax)

    assert found[30][:2] == ("31", "2026-04-01 02:21")
    assert found[31][3:] == ("5", "1", "3f1046457119", "590.12.01", "2.11.0", "3.6.0")
