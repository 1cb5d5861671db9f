from dataclasses import dataclass

import pytest

from perfci.core.codec import decode, encode
from perfci.core.model import Plan, PlannedOp, Reason, Suite


def test_a_record_comes_back_equal_with_its_own_types():
    plan = Plan((PlannedOp("relu", ("rows=1",), (), Reason("no_cases", {"file": "a"})),), 7, 0.5, "fake")

    again = decode(encode(plan), Plan)

    assert again == plan
    assert isinstance(again.ops, tuple) and again.suites[0] is Suite.ACCURACY


def test_a_record_is_one_line_whatever_it_says():
    line = encode(Reason("kind", {"text": 'two\nlines \u2028 "quoted" \x00'}))

    assert b"\n" not in line
    assert decode(line, Reason).facts["text"] == 'two\nlines \u2028 "quoted" \x00'


@dataclass(frozen=True)
class Inner:
    size: int


@dataclass(frozen=True)
class Outer:
    inner: tuple[Inner, ...]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"inner":[{"size":"x"}]}', r"\$\.inner\[0\]\.size"),
        ('{"inner":[{}]}', "size"),
        ('{"inner":[', "truncated"),
        ("not json", "malformed"),
        ("", "truncated"),
    ],
)
def test_json_that_does_not_fit_is_a_value_error_that_names_the_place(text, words):
    with pytest.raises(ValueError, match=words):
        decode(text, Outer)
