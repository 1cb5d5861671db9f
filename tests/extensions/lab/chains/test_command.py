"""What `perfci chain` shows, and how it exits."""

import json

import pytest

from perfci.core.codec import encode
from perfci.core.model import Device, Reason
from perfci.core.wording import sentence
from perfci.extensions.lab.chains.flow import Chains
from perfci.extensions.lab.chains.records import ChainCase, ChainResult, Error, Output, StageMeasured
from perfci.extensions.lab.commands.chain import get_exit_code, show_chains, to_json
from perfci.report.data import write_plain
from tests.cli.rendering import lines_of


def stage(name, so_far, usual):
    return StageMeasured(name, usual=usual, outputs=(Output(name, "float16", 0.0, 1.0, so_far, usual),))


STAGES = (
    stage("norm", Error(2e-4, 1e-3), Error(2e-4, 1e-3)),
    stage("product", Error(5.1e-2, 0.1), Error(3e-4, 0.0)),
    StageMeasured("sum", usual=Error(4e-4, 1e-3)),
)
WRONG = Reason("chain_form", {"stage": "product", "chain": "block", "case": "rows=2", "next": "sum"})
OVERFLOW = Reason("chain_overflow", {"stage": "norm", "chain": "block", "case": "rows=2"})
UNSEEN = ChainCase("rows=9", 7, unchecked=Reason("chain_accelerator_case", {"case": "rows=9"}))
GOOD = ChainCase("rows=1", 7, STAGES[:1], whole=Error(2e-4, 1e-3), limit=Error(1e-3, 5e-3), notes=(OVERFLOW,))
BAD = ChainCase("rows=2", 7, STAGES, failures=(WRONG,))


def found(*cases, failure=None, device=True):
    result = ChainResult("block", cases, failure)
    return Chains(Device("fake", "Fake One", "fake-one") if device else None, 7, (result,))


def lines(*cases, **fields):
    return lines_of(show_chains(found(*cases, **fields)))


def test_a_case_has_a_table_with_its_stages_as_rows():
    told = lines(BAD)

    assert told[:3] == [
        "Chains on Fake One, seed 7; errors are relative L2 ones",
        "",
        "block: 1 case (1 WRONG)",
    ]
    assert told[4] == "  WRONG rows=2"
    heading, norm, product, total = (line.split() for line in told[5:9])
    assert " ".join(heading) == "stage so far PyTorch largest so far PyTorch"
    assert norm == ["norm", "2.0e-04", "2.0e-04", "1.0e-03", "1.0e-03"]
    assert product == ["product", "5.1e-02", "3.0e-04", "1.0e-01", "0"]
    assert total == ["sum", "-", "4.0e-04", "-", "1.0e-03"]
    assert told[9] == "    " + sentence(WRONG)
    assert len({len(line) for line in told[5:9]}) == 1, "columns stand below each other"


def test_what_a_chain_names_itself_commands_no_terminal():
    evil = ChainCase("rows=\x1b[31m1", 7, (StageMeasured("a\x1b[2Jb"),))

    assert "\x1b" not in "".join(lines(evil))


@pytest.mark.parametrize(
    ("cases", "failure", "code"),
    [
        ((GOOD,), None, 0),
        ((GOOD, UNSEEN), None, 0),
        ((GOOD, BAD), None, 2),
        ((ChainCase("rows=3", 7, failures=(WRONG,), raised=True),), None, 2),
        ((GOOD,), WRONG, 2),
        ((UNSEEN,), None, 3),
    ],
)
def test_the_exit_code_follows_the_worst_case(cases, failure, code):
    assert get_exit_code(found(*cases, failure=failure)) == code


def test_json_has_every_figure_and_each_reason_with_its_sentence():
    told = json.loads(encode(write_plain(to_json(found(BAD, UNSEEN)))))

    (chain,) = told["chains"]
    bad, unseen = chain["cases"]
    assert (told["device"]["name"], told["seed"], chain["failed"]) == ("Fake One", 7, True)
    assert (bad["verdict"], unseen["verdict"]) == ("WRONG", "UNCHECKED")
    assert bad["stages"][1]["so_far"] == {"l2": 5.1e-2, "max_abs": 0.1}
    assert bad["failures"] == [{"kind": "chain_form", "facts": dict(WRONG.facts), "sentence": sentence(WRONG)}]
