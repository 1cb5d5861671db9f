"""Texts of values and functions: equal if only lines, comments and addresses differ."""

import functools
import importlib.util
import sys
from collections import namedtuple
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest

from perfci.device.source import (
    inputs_digest,
    is_own,
    plain_function,
    stable,
)

Pair = namedtuple("Pair", "left right")
Colour = Enum("Colour", "RED GREEN")


class Plain:
    def __init__(self, **attributes):
        vars(self).update(attributes)


@dataclass
class Tile:
    rows: int
    inner: object = None


@pytest.fixture
def module(tmp_path):
    """Imports a source as a separate module, each time from another folder."""
    made = []

    def load(text, name="made_inputs"):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        path = folder / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in set(made):
        sys.modules.pop(name, None)


PLAIN = "def make_inputs(n, device, seed):\n    return {'x': n}\n"


@pytest.mark.parametrize(
    "text",
    [
        "# why\n\n\n" + PLAIN,
        PLAIN.replace("    return", '    """What it makes."""\n    return'),
        PLAIN.replace("{'x': n}", '{ "x":   n }  # the size'),
        PLAIN + "\n\ndef unused():\n    return 3\n",
    ],
)
def test_comments_lines_and_strangers_leave_the_digest(text, module):
    assert inputs_digest(module(PLAIN).make_inputs) == inputs_digest(module(text).make_inputs)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return {'x': n}", "return {'x': n + 1}"),
        ("(n, device, seed)", "(n, device, seed=3)"),
        ("return {'x': n}", "return {'x': SIZE}\n\nSIZE = 4"),
    ],
)
def test_what_the_function_does_changes_the_digest(before, after, module):
    assert inputs_digest(module(PLAIN).make_inputs) != inputs_digest(module(PLAIN.replace(before, after)).make_inputs)


HELPED = """
import helper_of_inputs
LIMIT = {"n": [1, 2]}
class Maker:
    def make(self, n):
        return n
def half(n):
    return n // 2
def make_inputs(n, device, seed):
    return {"x": half(n), "y": LIMIT, "z": Maker().make(n), "w": helper_of_inputs.third(n)}
"""
HELPER = "def third(n):\n    return n // 3\n"


@pytest.mark.parametrize(
    ("text", "helper"),
    [
        (HELPED.replace("n // 2", "n // 4"), HELPER),
        (HELPED.replace("[1, 2]", "[1, 3]"), HELPER),
        (HELPED.replace("        return n", "        return n + 1"), HELPER),
        (HELPED, HELPER.replace("n // 3", "n // 6")),
    ],
)
def test_helpers_constants_classes_and_modules_of_the_project_count(text, helper, module):
    module(HELPER, "helper_of_inputs")
    before = inputs_digest(module(HELPED).make_inputs)
    assert before == inputs_digest(module("# moved\n" + HELPED).make_inputs)

    module(helper, "helper_of_inputs")
    assert inputs_digest(module(text).make_inputs) != before


def test_installed_packages_count_by_name_alone(module):
    text = "import numpy as np\nfrom numpy import zeros\ndef make_inputs(n):\n    return np.ones(n) + zeros(n)\n"

    assert inputs_digest(module(text).make_inputs) == inputs_digest(module(text).make_inputs)
    assert is_own(__file__)
    assert not is_own(np.__file__)
    assert not is_own(functools.__file__)


def test_closures_partials_methods_and_caches_are_seen_through(module):
    text = """
import functools
def bound(step):
    def make_inputs(n):
        return n * step
    return make_inputs
two, three = bound(2), bound(3)
@functools.lru_cache
def cached(n):
    return n
half = functools.partial(lambda n, by: n // by, by=2)
third = functools.partial(lambda n, by: n // by, by=3)
class Maker:
    def make(self, n):
        return n
method = Maker().make
"""
    loaded = module(text)

    digests = [inputs_digest(getattr(loaded, name)) for name in ("two", "three", "half", "third", "cached", "method")]
    assert len(set(digests)) == 6
    again = module(text)
    assert digests == [
        inputs_digest(getattr(again, name)) for name in ("two", "three", "half", "third", "cached", "method")
    ]
    assert plain_function(loaded.cached).__name__ == "cached"
    assert plain_function(3) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (0.1, "0.1"),
        ("a", "'a'"),
        (None, "None"),
        ((1, [2, "b"]), "[1, [2, 'b']]"),
        ({"a": (1,)}, "{'a': [1]}"),
        ({3, 1, 2}, "{1, 2, 3}"),
        (Pair(1, 2), "Pair[1, 2]"),
        (Tile(4, Tile(5)), "Tile{'rows': 4, 'inner': Tile{'rows': 5, 'inner': None}}"),
        (Colour.RED, "<Colour.RED: 1>"),
        (Plain(size=3), "Plain{'size': 3}"),
        (np, "numpy"),
        (Plain, "Plain"),
    ],
)
def test_values_have_stable_texts(value, text):
    assert stable(value) == text


def test_objects_without_a_text_of_their_own_differ_by_what_they_hold():
    assert stable(Plain(inner=Plain(n=1))) == stable(Plain(inner=Plain(n=1))) != stable(Plain(inner=Plain(n=2)))
    assert "0x" not in stable([object(), Plain(f=lambda: 1), functools.partial(print, object())])


def test_the_text_of_a_record_is_of_its_fields_and_not_what_it_prints():
    @dataclass(repr=False)
    class Tile:
        rows: int

        def __repr__(self):
            raise AssertionError

    assert stable(Tile(3)).endswith("Tile{'rows': 3}")


def test_what_answers_to_every_name_is_no_array():
    """A library may have a stand-in for a package that is missing among its globals."""

    class Missing:
        def __getattr__(self, name):
            return self

        def __call__(self):
            return self

        def __repr__(self):
            return "missing"

    assert stable(Missing()) == "missing"
