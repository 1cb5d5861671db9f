"""Which chains a project has."""

import json

import numpy as np
import pytest

from perfci.core.codec import encode
from perfci.core.errors import UsageError
from perfci.core.model import Device, Reason
from perfci.core.wording import sentence
from perfci.extensions.lab.chains.flow import Chains
from perfci.extensions.lab.chains.records import (
    ChainCase,
    ChainResult,
    Error,
    Output,
    StageMeasured,
    find_chains,
    judge,
    judge_finiteness,
    select_chains,
)
from perfci.extensions.lab.commands.chain import get_exit_code, show_chains, to_json
from perfci.report.data import write_plain
from tests.cli.rendering import lines_of


@pytest.fixture
def kernels(tmp_path):
    folder = tmp_path / "_chains"
    folder.mkdir()
    for name in ("block_chain.py", "alone_chain.py", "_helper_chain.py", "shared.py"):
        (folder / name).write_text("")
    return tmp_path


def test_a_chain_is_a_file_of_the_folder_by_its_ending(kernels):
    assert [*find_chains(kernels)] == ["alone", "block"]
    assert len(select_chains(kernels, ())) == 2
    assert [path.name for path in select_chains(kernels, ["block"]).values()] == ["block_chain.py"]


def test_an_unknown_name_is_refused_with_the_nearest_and_a_project_without_chains_with_their_place(kernels, tmp_path):
    with pytest.raises(UsageError, match="the nearest is block"):
        select_chains(kernels, ["blok"])
    with pytest.raises(UsageError, match=r"docs/chains\.md"):
        select_chains(tmp_path / "empty", ())


WHERE = {"chain": "block", "case": "rows=2"}
NAN, INF = np.nan, np.inf
LINE = ((), (0,), (1,))
"""Reads of three stages one behind the other."""


def chain(so_far, usual, reads=LINE, largest=1.0, measure="l2"):
    """Stages called a, b, c with these errors."""
    stages = []
    for name, mine, theirs, read in zip("abc", so_far, usual, reads, strict=True):
        two = [Error(**{"l2": 0.0, "max_abs": 0.0, measure: error}) for error in (mine, theirs)]
        stages.append(StageMeasured(name, read, two[1], (Output(name, "float16", 2.0**-10, largest, *two),)))
    return stages


def test_a_whole_within_twice_pytorchs_own_error_passes_beyond_the_tolerance():
    assert judge(chain((1e-3, 5e-3, 9e-3), (1e-3, 3e-3, 5e-3)), None, WHERE)[2] == ()
    assert judge(chain((1e-3, 5e-3, 1.1e-2), (1e-3, 3e-3, 5e-3)), None, WHERE)[2]


@pytest.mark.parametrize(
    ("so_far", "usual", "blamed"),
    [
        ((8e-2, 8e-2, 8e-2), (1e-3, 1e-3, 1e-3), "a"),
        ((1e-3, 8e-2, 8e-2), (1e-3, 1e-3, 1e-3), "b"),
        ((1e-3, 2e-3, 8e-2), (1e-3, 2e-3, 4e-3), "c"),
        # PyTorch's grows as much in b, so that c is to blame, which grows less.
        ((1e-4, 1e-2, 5e-2), (1e-4, 1e-2, 1e-2), "c"),
        # c only loses a lead over PyTorch that a and b had.
        ((1e-6, 1e-4, 2e-3), (1e-3, 1e-5, 1e-4), "b"),
    ],
)
def test_the_stage_that_grows_most_beyond_pytorchs_is_blamed(so_far, usual, blamed):
    (reason,) = judge(chain(so_far, usual), {"float16": 0.0}, WHERE)[2]

    assert (reason.kind, reason.facts["stage"]) == ("chain_too_far", blamed)
    assert reason.facts["after"] == so_far["abc".index(blamed)]


def test_only_a_stage_that_leads_to_the_wrong_output_is_blamed():
    stages = chain((1e-4, 5e-1, 5e-3), (1e-4, 5e-1, 1e-4), reads=((), (), (0,)))

    (reason,) = judge(stages, None, WHERE)[2]
    assert (reason.facts["name"], reason.facts["stage"]) == ("c", "c")


def test_a_single_element_far_off_fails_though_the_mean_does_not_show_it():
    stages = chain((1e-3, 9.0, 9.0), (1e-3, 1e-3, 1e-3), largest=100.0, measure="max_abs")

    (reason,) = judge(stages, None, WHERE)[2]
    assert (reason.kind, reason.facts["stage"]) == ("chain_too_far_at", "b")
    assert reason.facts["limit"] == pytest.approx(0.1), "1e-3 of the largest magnitude"


# --- NaN and infinities


def values(got, exact, rounded=None, usual=None):
    lists = (got, exact, exact if rounded is None else rounded, exact if usual is None else usual)
    return tuple(np.array(values, dtype=np.float64) for values in lists)


def test_a_nan_that_only_the_kernels_have_is_introduced():
    reason, note = judge_finiteness(values([1.0, NAN], [1.0, 2.0]), WHERE, "float16")

    assert (reason.kind, note) == ("chain_not_finite", None)
    assert (reason.facts["count"], reason.facts["index"], reason.facts["got"]) == (1, "(1,)", "nan")


@pytest.mark.parametrize(
    "both", [values([INF, 1.0], [7e4, 1.0], usual=[INF, 1.0]), values([INF], [7e4], rounded=[INF], usual=[6.5e4])]
)
def test_an_infinity_that_pytorch_has_too_or_that_the_exact_answer_rounds_to_is_the_formats(both):
    fault, note = judge_finiteness(both, WHERE, "float16")

    assert (fault, note.kind, note.facts["expected"]) == (None, "chain_overflow", "7e+04")


def test_a_nan_that_a_kernel_loses_is_found_unless_it_was_wrong_or_pytorch_loses_it_too():
    def fault(*args, **kwargs):
        reason, note = judge_finiteness(values(*args, **kwargs), WHERE, "float16")
        assert note is None
        return reason and reason.kind

    assert fault([0.0], [NAN]) == fault([-INF], [INF]) == "chain_swallowed"
    assert fault([0.0], [NAN], usual=[0.0]) is None
    assert fault([NAN, INF], [NAN, INF]) is None


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

    assert told[:3] == ["Chains on Fake One, seed 7; errors are relative L2 ones", "", "block: 1 case (1 WRONG)"]
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
