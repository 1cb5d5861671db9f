"""What is tried next, and what wins, from what is known alone."""

import math

import pytest

from perfci.core.errors import StoredFileError
from perfci.core.model import Reason
from perfci.extensions.lab.tune.records import (
    FINAL,
    SEARCH,
    SUITE,
    Attempt,
    Choices,
    Regime,
    choose_finalists,
    decide,
    find_next,
    key,
    open_search,
)

LISTS = {"block": (16, 32, 64, 128, 256, 512), "warps": (1, 2, 4, 8, 16), "fast": (False, True)}
TODAY = {"block": 16, "warps": 1, "fast": False}
WRONG = Reason("timed_output_wrong", {})


def grid(lists=LISTS, valid=lambda _: True, seed=7, **fields):
    return Choices(lists, valid, seed, **fields)


def searched(on, cost, attempts=None):
    """A whole search over a function of the configuration; returns everything that was tried."""
    attempts = [Attempt("*", None, shifts={"a": (0.0,)})] if attempts is None else attempts
    while batch := find_next(on, attempts):
        attempts += [Attempt("*", config, shifts={"a": (cost(config),)}) for config in batch]
    return attempts


def bowl(config):
    """Least at 128, 4 and fast."""
    far = abs(math.log2(config["block"] / 128)) + abs(math.log2(config["warps"] / 4))
    return 0.1 * far + (0.0 if config["fast"] else 0.05) - 0.5


def regime(current=TODAY):
    return Regime("*", {}, LISTS, current, ("a",))


def final(config, *shifts, **fields):
    return [Attempt("*", config, SEARCH, {"a": shifts}), Attempt("*", config, FINAL, {"a": shifts}, **fields)]


def test_the_coarse_grid_holds_ends_and_every_second_value_and_all_that_has_no_order():
    points = grid().coarse

    assert {point["block"] for point in points} == {16, 64, 256, 512}
    assert {point["warps"] for point in points} == {1, 4, 16}
    assert len(points) == 4 * 3 * 2


def test_steps_around_the_best_find_what_the_coarse_grid_leaves_out():
    attempts = searched(grid(), bowl)

    assert choose_finalists(grid(), attempts)[0] == {"block": 128, "warps": 4, "fast": True}
    assert len(attempts) < 6 * 5 * 2, "not all is tried"


def test_a_trade_of_two_values_gets_along_a_rule_that_bounds_their_product():
    lists = {"rows": (16, 32, 64, 128, 256), "cols": (16, 32, 64, 128, 256)}
    bounded = grid(lists, lambda config: config["rows"] * config["cols"] <= 4096)

    attempts = searched(
        bounded, lambda config: abs(math.log2(config["rows"] / config["cols"])) - math.log2(config["rows"])
    )

    assert choose_finalists(bounded, attempts)[0] == {"rows": 64, "cols": 64}


def test_what_is_known_is_not_tried_again_and_a_search_that_goes_on_ends_alike():
    whole = searched(grid(), bowl)
    half = whole[: len(whole) // 2]

    again = searched(grid(), bowl, [*half])

    assert {config.key for config in again} == {config.key for config in whole}
    assert len({config.key for config in again}) == len(again)


def test_todays_choice_is_not_a_candidate_but_its_neighbours_are():
    attempts = searched(grid(current=TODAY), lambda config: 0.3)

    tried = {attempt.key for attempt in attempts}
    assert key(TODAY) not in tried
    assert key({**TODAY, "block": 32}) in tried


@pytest.mark.parametrize("shifts", [[-0.005] * 12, [-0.05, 0.06] * 6, [0.1] * 12])
def test_todays_choice_stays_unless_it_is_beaten_beyond_doubt_and_by_enough(shifts):
    choice = decide(grid(current=TODAY), regime(), final({**TODAY, "block": 64}, *shifts))

    assert not choice.changed


@pytest.mark.parametrize("stage", [SEARCH, FINAL, SUITE])
def test_what_is_wrong_in_any_stage_never_wins(stage):
    fast, slow = {**TODAY, "block": 64}, {**TODAY, "block": 32}
    attempts = [*final(fast, *[-0.9] * 12), *final(slow, *[-0.1] * 12), Attempt("*", fast, stage, failure=WRONG)]

    assert decide(grid(current=TODAY), regime(), attempts).config == slow
    assert fast not in choose_finalists(grid(current=TODAY), attempts)


ASKED = {"op": "blur", "device": "fake-one"}
FIRST = Attempt("*", {"block": 16, "tma": True}, shifts={"a": (0.25, -0.5)}, us={"a": 12.5})
SECOND = Attempt("*", {"block": 32}, failure=Reason("tune_raised", {"case": "a", "line": 3}))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tune" / "blur.jsonl"


def kept(path, *records, seed=7):
    state = open_search(path, ASKED, seed, 1)
    for record in records:
        state.add(record)
    return state


def test_what_was_kept_is_read_again(path):
    kept(path, FIRST, SECOND)

    again = open_search(path, ASKED, None, 99)

    assert (again.tried, again.head.seed, again.resumed, again.anew) == ([FIRST, SECOND], 7, True, False)


def test_a_line_that_was_cut_off_is_dropped_and_written_over(path):
    kept(path, FIRST, SECOND)
    path.write_bytes(path.read_bytes()[:-9])

    state = open_search(path, ASKED, None, 99)
    assert state.tried == [FIRST]
    state.add(SECOND)

    assert open_search(path, ASKED, None, 99).tried == [FIRST, SECOND]


@pytest.mark.parametrize(("asked", "seed"), [({**ASKED, "files": "other"}, None), (ASKED, 8)])
def test_another_question_or_seed_starts_anew_and_says_so(path, asked, seed):
    kept(path, FIRST)

    state = open_search(path, asked, seed, 99)

    assert (state.tried, state.anew, state.resumed) == ([], True, False)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda data: b"", 1),
        (lambda data: b"\n" + data, 1),
        (lambda data: data.replace(b'"format":1', b'"format":2'), 1),
        (lambda data: data.replace(b'"stage":"search"', b'"stage":5', 1), 2),
        (lambda data: data + b"<<<<<<< HEAD\n", 4),
        (lambda data: b"\xff\xfe" + data, 1),
    ],
)
def test_a_damaged_file_is_named_with_its_line_and_left_alone(path, change, line):
    kept(path, FIRST, SECOND)
    damaged = change(path.read_bytes())
    path.write_bytes(damaged)

    with pytest.raises(StoredFileError, match=rf"blur\.jsonl is damaged at line {line}: .+ Delete it to search again"):
        open_search(path, ASKED, None, 99)
    assert path.read_bytes() == damaged
