"""The rules of a chain's file, and a worker that checks one."""

import sys

import pytest

from perfci.core.errors import ContractError
from perfci.core.wording import sentence
from perfci.device import open_device
from perfci.extensions.lab.chains.records import ChainMeasured, conclude
from perfci.extensions.lab.chains.task import ChainPlanned, CheckChain, check, load_chain
from perfci.worker.protocol import Doing, OpDone
from tests.worker.task_examples import make_task

FILE = """
import numpy as np
import perfci


def make_inputs(rows, device, seed):
    return {"x": np.random.default_rng(seed).normal(size=rows).astype(np.float32)}


def double(x):
    return x + x


def half(y):
    return y / 2


chain = perfci.Chain(
    make_inputs=make_inputs,
    stages=(perfci.Stage("double", double, double), perfci.Stage("half", half, half, takes={"y": "double"})),
    cases=perfci.grid(rows=[4, 8]),
)
"""


@pytest.fixture
def load(tmp_path):
    """Loads the chain with one text in the place of another."""
    folder = tmp_path / "kernels" / "_chains"
    folder.mkdir(parents=True)

    def loaded(before="", after=""):
        assert before in FILE
        (folder / "halves_chain.py").write_text(FILE.replace(before, after, 1) if before else FILE)
        return load_chain("halves", folder, folder.parent)

    yield loaded
    sys.modules.pop("halves_chain", None)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("chain = perfci", "other = perfci", "halves_chain.py has no Chain named chain"),
        ("import numpy", "import no_such_thing", "halves_chain.py does not import"),
        ("stages=(perfci", "stages=() and (perfci", "Give at least one perfci.Stage"),
        ('perfci.Stage("double", double, double)', "double", "has no attribute 'name'"),
        ('"double", double, double', '"double it", double, double', "called double it, half. Give"),
        ('perfci.Stage("half"', 'perfci.Stage("double"', "called double, double. Give"),
        ('"double", double, double', '"double", double, 3', "3 is not a callable object"),
        ('"double", double, double', '"double", double, half', "takes (x) and its reference (y)"),
        ('takes={"y": "double"}', 'takes={"z": "double"}', "does not fit its kernel(y)"),
        ("cases=perfci.grid(rows=[4, 8])", "cases=()", "has no cases"),
        ("rows=[4, 8]", "rows=[4, 4]", "two cases with the id rows=4"),
        ("rows=[4, 8]", "columns=[4]", "make_inputs(rows, device, seed) cannot be called"),
        ("cases=perfci", "tolerance={'float32': '1'}, cases=perfci", "tolerance is {'float32': '1'}"),
        ("cases=perfci", "accelerator_cases=perfci.grid(rows=[8]), cases=perfci", "two cases with the id rows=8"),
    ],
)
def test_whatever_a_file_does_wrong_is_told_with_its_name(load, before, after, told):
    with pytest.raises(ContractError) as error:
        load(before, after)
    assert told in sentence(error.value.reason)


def heard(chain, **fields):
    messages = []
    task = make_task(CheckChain, ("halves",), ".", seed=7, **fields)
    check(task, messages.append, open_device("fake", seed=1), chain)
    return messages


def test_a_worker_tells_its_cases_then_each_stage_and_each_case(load):
    planned, *others, done = heard(load())

    assert planned == ChainPlanned(("rows=4", "rows=8"))
    assert done == OpDone()
    cases = [m for m in others if isinstance(m, ChainMeasured)]
    assert [conclude(case, planned.tolerance, {}).verdict for case in cases] == ["PASS", "PASS"]
    steps = [(m.stage, m.case) for m in others if isinstance(m, Doing)]
    assert steps[:3] == [("inputs and references", "rows=4"), ("stage double", "rows=4"), ("stage half", "rows=4")]
