"""Groups on virtual clocks: what is planted is found, and unchanged kernels are not called slower."""

import json

import pytest

from perfci.extensions.ranks.virtual import play
from tests.extensions.ranks.talking import PLANTED, make_project, plant
from tests.program import call


def ranks(folder, *arguments):
    done = call("ranks", "--device", "fake", "--format", "json", *arguments, "--project", str(folder))
    assert done.out, done.err
    return done.code, json.loads(done.out)


def list_timed(said):
    return [case for op in said["ops"] for case in op["timed"]]


# --- the clocks -------------------------------------------------------------------------------------------------------


def test_a_message_is_hidden_behind_work_and_what_is_left_of_it_is_waited_for():
    hidden = [[("send", 8e6, 1), ("work", 60, 0), ("wait", 0, 0), ("work", 60, 0)], [("work", 60, 0), ("wait", 0, 0)]]
    shown = [[("send", 40e6, 1), ("work", 60, 0), ("wait", 0, 0), ("work", 60, 0)], [("work", 60, 0), ("wait", 0, 0)]]

    assert play(hidden, 400.0, [1.0, 1.0]) == [120.0, 60.0]
    assert play(shown, 400.0, [1.0, 1.0]) == [120.0, 101.0]


def test_messages_of_one_link_go_one_behind_the_other_and_other_links_at_once():
    one_link = [[("send", 4e6, 1), ("send", 4e6, 1)], [("wait", 0, 0)], [("wait", 0, 0)]]
    two_links = [[("send", 4e6, 1), ("send", 4e6, 2)], [("wait", 0, 0)], [("wait", 0, 0)]]

    assert play(one_link, 400.0, [1.0] * 3) == [21.0, 21.0, 0.0]
    assert play(two_links, 400.0, [1.0] * 3) == [11.0, 11.0, 11.0]


def test_a_second_wait_is_for_what_is_sent_behind_the_first():
    first = [("send", 4e6, 1), ("wait", 0, 0), ("work", 100, 0), ("send", 4e6, 1)]
    second = [("wait", 0, 0), ("work", 1, 0), ("wait", 0, 0), ("work", 1, 0)]

    assert play([first, second], 400.0, [1.0, 1.0]) == [111.0, 112.0]


def test_a_rank_that_is_slower_keeps_those_waiting_that_need_what_it_sends():
    step = [("work", 50, 0), ("send", 4e6, 1), ("wait", 0, 0)]
    other = [("work", 50, 0), ("send", 4e6, 0), ("wait", 0, 0)]

    assert play([step, other], 400.0, [1.0, 2.0]) == [111.0, 111.0]


# --- the whole --------------------------------------------------------------------------------------------------------


SLOWER = {"one rank": {-1, 1}, "a hidden message": set()}  # series, if not all
SENT = {"twice the message": [32.0], "a hidden message": [20.0]}  # megabytes where the base sends 16


SELDOM = {"all ranks", "a hidden message"}  # test_command.py plants both as well


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in SELDOM)) for name in PLANTED]
)
def test_what_is_planted_in_a_group_is_found(name, tmp_path):
    plant(make_project(tmp_path), name)
    code, said = ranks(tmp_path, "--size", "2", "--case", "m=64*", "--seed", "1")
    (case,) = list_timed(said)

    assert (code, case["verdict"]) == (2, "REGRESSED")
    slower = {series["rank"] for series in case["series"] if series["ruling"] == "slower"}
    assert slower == SLOWER.get(name, {-1, 0, 1})
    more = [reason for reason in case["reasons"] if reason["kind"] == "ranks_sends_more"]
    assert [reason["facts"]["sent"] for reason in more] == SENT.get(name, [])


@pytest.mark.nightly
def test_none_of_sixty_unchanged_cases_is_called_slower(tmp_path):
    project = make_project(tmp_path)
    path = project / "kernels" / "talk" / "talk_performance.py"
    path.write_text(path.read_text().replace("m=[64, 128]", f"m={[*range(64, 244, 6)]}"))
    code, said = ranks(project, "--duel", "all", "--against", "HEAD", "--seed", "2")

    assert [case["verdict"] for case in list_timed(said)] == ["PASS"] * 60
    assert code == 0


def test_a_larger_group_is_planned_for_and_its_messages_are_counted(tmp_path):
    code, said = ranks(make_project(tmp_path), "--size", "8", "--case", "m=64*", "--duel", "none", "--seed", "3")
    (case,) = list_timed(said)

    assert code == 0
    assert (len(case["ranks_us"]), said["ops"][0]["ready"]["boards"][7]) == (8, "FAKE-7")
    assert case["sent_bytes"] == pytest.approx(case["counted_bytes"], rel=1e-6)
    assert case["hidden"] == pytest.approx(1.0, abs=0.1)


def test_work_that_is_the_same_on_every_rank_is_not_timed_again(tmp_path):
    project = make_project(tmp_path)
    path = project / "kernels" / "talk" / "talk_triton.py"
    path.write_text(path.read_text() + "\n# A remark.\n")
    code, said = ranks(project, "--size", "2", "--case", "m=64*", "--against", "HEAD", "--seed", "4")
    (case,) = list_timed(said)

    assert (code, case["verdict"], case["reasons"][0]["kind"]) == (0, "UNCHANGED", "ranks_same_work")
