from dataclasses import replace

import pytest

from perfci.core.model import Identity, LaunchIdentity, Reason
from perfci.core.wording import sentence
from perfci.ops import identity
from perfci.ops.identity import MOST_CHANGES, DuelPlan

LAUNCH = LaunchIdentity("_k", "0123456789", (64, 1, 1), 4, 3, {"x": "#0 float16[8](1)@16", "n": "8", "BLOCK": "128"})
CALL = Identity(("aten.empty_like.default(#0)",), (LAUNCH,), "inputs", ("BLOCK: 128",))
BOOM = Reason("captured_opaque", {"what": "a graph", "file": "k.py", "line": 3})


def _changed(**fields):
    """The message if the call's one launch differs."""
    return _told(replace(CALL, launches=(replace(LAUNCH, **fields),)))


def _told(after, before=CALL):
    assert identity.same_work(before, after) is False
    return [sentence(reason) for reason in identity.list_changes(before, after)]


def test_two_calls_that_do_the_same_are_the_same_and_nothing_differs():
    twin = replace(CALL, launches=(replace(LAUNCH, arguments=dict(reversed(LAUNCH.arguments.items()))),))

    assert identity.same_work(CALL, twin) is True
    assert identity.list_changes(CALL, twin) == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"grid": (32, 1, 1)}, "_k is launched with grid (32, 1, 1), was (64, 1, 1)."),
        ({"warps": 8}, "_k is launched with warps 8, was 4."),
        ({"stages": None}, "_k is launched with stages -, was 3."),
        ({"kernel": "_other"}, "The kernel _k is now called _other."),
        (
            {"artefact": "ab" * 9},
            "_k compiles to other code: 01234567 became abababab; `perfci static` shows the figures.",
        ),
        ({"arguments": {"x": LAUNCH.arguments["x"], "BLOCK": "128"}}, "_k is given n none, was 8."),
        ({"arguments": {**LAUNCH.arguments, "m": "1"}}, "_k is given m 1, was none."),
    ],
)
def test_each_thing_about_a_launch_that_differs_is_named(fields, words):
    assert _changed(**fields) == [words]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"inputs": "others"}, "inputs_changed"),
        ({"choices": ("BLOCK: 256",)}, "choices_changed"),
        ({"operations": ("aten.clone",)}, "operations_changed"),
        ({"operations": ()}, "operations_counted"),
        ({"launches": ()}, "launches_changed"),
    ],
)
def test_each_other_part_of_a_call_that_differs_is_named(fields, kind):
    (reason,) = identity.list_changes(CALL, replace(CALL, **fields))

    assert reason.kind == kind
    assert identity.same_work(CALL, replace(CALL, **fields)) is False
    assert "{" not in sentence(reason)


def test_changes_are_told_in_the_order_in_which_a_call_goes():
    after = replace(
        CALL,
        inputs="others",
        choices=(),
        operations=("aten.clone",),
        launches=(replace(LAUNCH, warps=8, artefact="f"),),
    )

    assert [reason.kind for reason in identity.list_changes(CALL, after)] == [
        "inputs_changed", "choices_changed", "operations_changed", "launch_changed", "code_changed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "was", "now"),
    [
        (("a", "b", "c"), ("a", "x", "c"), "b", "x"),
        (("a",), ("a", "b"), "nothing", "b"),
        (("a", "b"), ("a",), "b", "nothing"),
    ],
)
def test_of_operations_the_first_place_is_named_where_the_two_part(before, after, was, now):
    (reason,) = identity.list_changes(Identity(before), Identity(after))

    assert (reason.facts["before"], reason.facts["after"]) == (was, now)
    assert (reason.facts["count"], reason.facts["now"]) == (len(before), len(after))


def test_launches_more_or_fewer_are_counted_and_named():
    after = replace(CALL, launches=(LAUNCH, replace(LAUNCH, kernel="_tail")))

    assert _told(after) == ["The kernels launched are _k, _tail (2 launches) and were _k (1)."]


def test_what_could_not_be_captured_is_neither_the_same_nor_another():
    blind = replace(CALL, unknown=BOOM)

    for before, after in ((blind, CALL), (CALL, blind), (blind, blind)):
        assert identity.same_work(before, after) is None
        assert identity.list_changes(before, after) == (BOOM,)


@pytest.mark.parametrize(
    ("plan", "after", "same"),
    [
        ({"same_files": True}, replace(CALL, unknown=BOOM), True),
        ({}, replace(CALL, unknown=BOOM), None),
        ({"same_files": True, "by_identity": False}, replace(CALL, unknown=BOOM), None),
        ({"same_files": True}, replace(CALL, choices=("4 warps",)), False),
    ],
    ids=["of the same files", "of other files", "by another toolchain", "captured, and another"],
)
def test_what_could_not_be_captured_is_the_same_where_the_files_and_the_toolchain_are(plan, after, same):
    assert DuelPlan(("rows=1",), **plan).compare("rows=1", CALL, after, None).same is same


def test_the_first_changes_are_named_and_the_others_counted():
    arguments = {f"a{n}": "1" for n in range(MOST_CHANGES + 5)}
    before, after = (
        Identity(launches=(replace(LAUNCH, arguments=dict.fromkeys(arguments, value)),)) for value in ("1", "2")
    )

    *named, last = identity.list_changes(before, after)

    assert [reason.facts["name"] for reason in named] == list(arguments)[:MOST_CHANGES]
    assert sentence(last) == "More differences that are not named here: 5."
