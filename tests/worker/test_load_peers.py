"""Every way in which the peers that a performance suite names can break the contract."""

from __future__ import annotations

import sys

import pytest

from perfci.core.errors import ContractError
from perfci.core.wording import sentence
from tests.worker.test_load import OpFolder

DECLARED = """
from functools import partial


def other(x, more=None):
    return x


def any_of(*, scale=1, **inputs):
    return inputs["x"]


peers = {"torch.compile": lambda: other, "flash": partial(any_of, scale=2), "builtin": max, "other": other}
performance = perfci.Performance(beside, reference, make_inputs, cases=[{'rows': 1}], peers=peers)
"""


@pytest.fixture
def op(tmp_path):
    made = OpFolder(tmp_path, "beside")
    made.path("performance").write_text(made.path("performance").read_text() + DECLARED)
    before = set(sys.modules)
    yield made
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_sound_peers_are_loaded_in_their_order(op):
    assert list(op.load().performance.peers) == ["torch.compile", "flash", "builtin", "other"]


@pytest.mark.parametrize(
    ("before", "after", "kind", "told"),
    [
        ("peers=peers", "peers=[other]", "suite_broken", "has no attribute 'items'"),
        ('"other": other', '"other": 3', "suite_broken", "the peer other is no function"),
        ('"other": other', '"": other', "peer_name", "the name ''"),
        ('"other": other', '" other": other', "peer_name", "' other'"),
        ('"other": other', '"two\\nlines": other', "peer_name", "lines"),
        ('"other": other', '"x" * 41: other', "peer_name", "1 to 40 printable characters"),
        ('"other": other', '"kernel": other', "peer_name", "not kernel, reference or base"),
        ("def other(x, more=None)", "def other(y)", "peer_signature", "takes (y) and the reference (x)"),
        ("def other(x, more=None)", "def other(x, more)", "peer_signature", "takes (x, more)"),
    ],
)
def test_each_breach_is_told_with_the_file(op, before, after, kind, told):
    text = op.path("performance").read_text()
    assert before in text
    op.path("performance").write_text(text.replace(before, after))

    with pytest.raises(ContractError) as error:
        op.load()

    reason = error.value.reason
    assert (reason.kind, reason.facts["file"]) == (kind, "beside_performance.py")
    assert told in sentence(reason)
