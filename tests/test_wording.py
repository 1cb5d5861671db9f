from importlib import resources
from string import Formatter

import pytest
import yaml

from perfci.model import Reason
from perfci.wording import catalogue, sentence

KINDS = sorted(catalogue())
FORMATS = {"", "us", "%", "+%", "size", "n"}
CODE = ("make_inputs", "torch ", "[tool.perfci")  # names of code keep their spelling where a sentence starts with one


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that comes twice, which YAML would let the later win."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        assert len(keys) == len(set(keys)), sorted(key for key in keys if keys.count(key) > 1)
        return super().construct_mapping(node, deep)


def test_no_kind_comes_twice():
    text = resources.files("perfci.wording").joinpath("en.yaml").read_text(encoding="utf-8")

    assert sorted(yaml.load(text, _StrictLoader)) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_a_sentence_with_known_formats(kind):
    template = catalogue()[kind]
    fields = [(name, spec) for _, name, spec, _ in Formatter().parse(template) if name is not None]

    assert template[0].isupper() or template.startswith(("{", *CODE)), template
    assert template.endswith((".", "?", "}")), template  # the last: what somebody else said stands at the end
    assert all(name.isidentifier() and spec in FORMATS for name, spec in fields)


@pytest.mark.parametrize("kind", KINDS)
def test_each_can_be_worded_without_any_fact(kind):
    assert "{" not in sentence(Reason(kind))


@pytest.mark.parametrize(
    ("template", "facts", "expected"),
    [
        ("{case} is slower", {"case": "rows=1"}, "rows=1 is slower"),
        ("{change:+%} slower", {"change": 0.0413}, "+4.1 % slower"),
        ("{share:%} of it", {"share": 0.5}, "50.0 % of it"),
        ("{time:us} a launch", {"time": 4.93}, "4.93 us a launch"),
        ("{room:size} free", {"room": 1 << 28}, "256 MiB free"),
        ("{error:n} off", {"error": 0.0123456}, "0.0123 off"),
        ("{gone} and {time:us}", {}, "- and -"),
        ("{gone}", {"gone": None}, "-"),
    ],
)
def test_facts_are_written_as_their_format_says(monkeypatch, template, facts, expected):
    monkeypatch.setattr("perfci.wording.catalogue", lambda language: {"kind": template})

    assert sentence(Reason("kind", facts)) == expected


def test_an_unknown_kind_is_shown_with_its_facts():
    assert sentence(Reason("no_such_kind", {"a": 1, "b": None})) == "no_such_kind: a=1, b=None"


def test_braces_in_a_fact_are_left_alone():
    assert "{x} is" in sentence(Reason("op_unknown", {"op": "{x} is", "known": "y"}))
