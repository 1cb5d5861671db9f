"""What `perfci bisect` shows."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from perfci.cli.exits import Exit
from perfci.cli.output import print_parts
from perfci.core.codec import encode
from perfci.core.model import Interval, Reason
from perfci.extensions.common.strays import SAME, Shown
from perfci.extensions.history.bisect import Bisection, Culprit, Leg, Rating
from perfci.extensions.history.commands import bisect as bisects
from perfci.extensions.history.commits import Commit
from perfci.report.data import write_plain

CASE, OTHER = "rows=1", "rows=2"
CHANGE = Interval(0.04, 0.036, 0.044)
SEEN = Shown(((0.04,) * 12,))


def commit(number, title="a change", author="A. Tester"):
    return Commit(f"{number:x}" * 40, ("0" * 40,), author, "2026-11-21", title)


CULPRIT = Culprit(
    (commit(5, "unroll"),), 0.04, 0.9987, CHANGE, True, ("kernels/relu/relu_triton.py", "kernels/relu/table.bin")
)
FOUND = Bisection(
    op="relu",
    good=commit(1),
    bad=commit(9),
    commits=20,
    seed=7,
    device="Fake One",
    case=CASE,
    first=CHANGE,
    base_us=50.0,
    steps=(Leg("5" * 40, Rating.BAD, 0.001, SEEN, Interval(0.04, 0.036, 0.044)),),
    culprits=(CULPRIT,),
)
WRONG = Reason("accuracy_missing", {"missing": 2, "cases": 3})


def text(parts, width=120, terminal=False):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False)
    print_parts(parts, console)
    return out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_the_culprit_stands_with_how_sure_it_is_and_what_to_do(terminal):
    first, lines = (
        text(part(FOUND), terminal=terminal, width=160).splitlines()
        for part in (bisects.show_ends, bisects.show_bisection)
    )

    assert first[0] == "relu from 1111111111 to 9999999999: 20 commits, on Fake One, seed 7"
    assert "+4.0 % (+3.6 % .. +4.4 %) at rows=1, which is followed" in first[1]
    assert lines == [
        "",
        "The culprit is 5555555555: +4.0 %",
        "  5555555555 unroll",
        "  by A. Tester, 2026-11-21",
        "  kernels/relu/relu_triton.py",
        "  kernels/relu/table.bin",
        "  sure to at least 99.87 %; revisions tried: 1",
        "  beside its parent: +4.0 % (+3.6 % .. +4.4 %)",
        "  Look at it:",
        "    git show 5555555555",
        "    git worktree add ../perfci-5555555555 5555555555",
        "    perfci check relu --against 0000000000 --project ../perfci-5555555555",
    ]


def test_a_revision_stands_in_one_line_with_its_change_and_what_is_to_be_said():
    same = Leg("2" * 40, Rating.GOOD, 0.0, SAME, Interval(0, 0, 0), Reason("bisect_same_as", {"commit": "1111111111"}))
    skip = Leg("3" * 40, Rating.SKIP, reason=Reason("bisect_no_case", {"case": CASE}))

    steps = {5: FOUND.steps[0], 2: same, 3: skip}
    lines = text([part for number, step in steps.items() for part in bisects.show_step(step, commit(number))])

    assert lines.splitlines() == [
        "  bad   +4.1 % (+3.7 % .. +4.5 %)     5555555555 a change",
        "  good                                2222222222 a change",
        "        Its files of the op are those of 1111111111, so it was not timed again.",
        "  skip                                3333333333 a change",
        "        This revision has no case rows=1.",
    ]


def test_words_of_strangers_reach_no_terminal():
    evil = commit(5, "\x1b[31mred\x07 \u202ereversed\nsecond line" + "x" * 300, "\x1b]0;title\x07me")
    bisection = replace(
        FOUND,
        device="\x1b[2J",
        case="rows=\x1b[1m",
        culprits=(replace(CULPRIT, suspects=(evil,), files=("a\x1b[31m\n",)),),
    )

    shown = (
        text(bisects.show_ends(bisection))
        + text(bisects.show_bisection(bisection))
        + text(bisects.show_step(FOUND.steps[0], evil))
    )

    assert not {mark for mark in shown if not mark.isprintable()} - {"\n"}
    assert max(map(len, shown.splitlines())) < 200


def test_an_unconfirmed_culprit_is_not_called_one():
    said = Reason("bisect_unconfirmed", {"commit": "5555555555", "change": 0.001, "searched": 0.04})
    bisection = replace(FOUND, culprits=(replace(CULPRIT, sure=None, confirmed=False, said=(said,)),))

    shown = text(bisects.show_bisection(bisection))

    assert "Not confirmed: 5555555555" in shown and "The culprit is" not in shown
    assert "sure to" not in shown
    assert "+0.1 %, while the search found +4.0 %" in shown


def test_a_failure_is_shown_in_the_place_of_times():
    culprit = Culprit((commit(5),), 0.0, None)
    bisection = replace(FOUND, case=None, first=None, failure=WRONG, culprits=(culprit,))

    shown = text(bisects.show_bisection(bisection))

    assert "It failed first with 5555555555" in shown
    assert "every revision was given the same inputs, of seed 7" in shown
    assert "sure to" not in shown


def test_where_there_is_nothing_to_find_that_is_all_that_is_said():
    facts = {
        "case": CASE,
        "change": 0.001,
        "low": -0.002,
        "high": 0.004,
        "cases": 2,
        "blocks": 48,
        "processes": 4,
        "least": 0.002,
    }
    bisection = replace(FOUND, steps=(), culprits=(), nothing=Reason("bisect_not_slower", facts))

    lines = text(bisects.show_bisection(bisection)).splitlines()

    assert lines[1].startswith("BAD is not slower than GOOD beyond doubt,")
    assert not any("culprit" in line for line in lines)


EXITS = {
    "one culprit": (FOUND, Exit.OK),
    "nothing to find": (replace(FOUND, culprits=()), Exit.WARNINGS),
    "a range": (replace(FOUND, culprits=(Culprit((commit(5), commit(6)), 0.04, 0.99),)), Exit.WARNINGS),
    "not confirmed": (replace(FOUND, culprits=(replace(CULPRIT, confirmed=False),)), Exit.WARNINGS),
    "two, of which one is a range": (
        replace(FOUND, culprits=(CULPRIT, Culprit((commit(5), commit(6)), 0.04, 0.99))),
        Exit.WARNINGS,
    ),
}


@pytest.mark.parametrize(("found", "code"), EXITS.values(), ids=EXITS)
def test_the_exit_code_says_whether_there_is_one_commit_to_look_at(found, code):
    assert bisects.get_exit_code(found) == code


def test_json_holds_everything_for_programs():
    skip = Leg("3" * 40, Rating.SKIP, reason=Reason("bisect_no_case", {"case": CASE}))
    answer = json.loads(encode(write_plain(bisects.to_json(replace(FOUND, steps=(*FOUND.steps, skip))))))

    (culprit,) = answer["culprits"]
    assert culprit["suspects"][0]["commit"] == "5" * 40
    assert (culprit["sure"], culprit["confirmed"]) == (0.9987, True)
    assert culprit["files"][0] == {"name": "kernels/relu/relu_triton.py"}
    assert [step["verdict"] for step in answer["steps"]] == ["bad", "skip"]
    assert answer["steps"][0]["change"]["value"] == pytest.approx(0.0408, abs=1e-4)
    assert answer["steps"][1]["reason"]["sentence"] == "This revision has no case rows=1."
    assert (answer["case"], answer["good_us"], answer["nothing"]) == (CASE, 50.0, None)
