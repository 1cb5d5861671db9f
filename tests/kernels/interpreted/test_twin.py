"""Every op as small twins of an H200 and of an Ascend 950 launch it: their tiles, and few programs with many of them.

Only the first case is called twice: which program takes which tile is the same the second time.
"""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from perfci.device import open_device
from perfci.measure.verify import checks, verify
from perfci.worker.load import describe_exception
from tests.daily import first_daily
from tests.kernels.interpreted.suites import OPS, suite_of

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
PLAIN = (0, "normal", "contiguous")
WITHOUT_FLOAT8 = {"ascend950"}


@pytest.fixture(params=["nvidia-h200", pytest.param("ascend950", marks=pytest.mark.nightly)])
def twin(request, monkeypatch):
    launch = importlib.import_module("_launch")
    launch.limits.cache_clear()
    monkeypatch.setenv("KERNELS_AS_DEVICE", f"{request.param}/3/7")
    yield request.param, open_device("cpu", seed=1)
    launch.limits.cache_clear()


@pytest.mark.parametrize("op", first_daily(((op,) for op in OPS), kind=lambda _: None, name=str))
def test_an_op_is_right_on_a_small_twin_of_a_device(op, twin):
    chip, device = twin
    suite = suite_of(op)
    # Values, layouts and bfloat16 beside float16 are the same to it: what differs is who takes which tile.
    plain = [check for check in checks(suite, 1, None) if (check.seed, check.values, check.layout) == PLAIN]
    once = {check.case.replace("bfloat16", "float16"): check for check in reversed(plain)}.values()

    suites = [suite, *[replace(suite, kernel=launched_once(suite.kernel))] * len(once)]
    checked = zip(suites, once, strict=False)
    differing = [
        verify(suite, device, check, lambda error: describe_exception(error, KERNELS / op)) for suite, check in checked
    ]

    assert len(differing) == len(once)
    failures = [result.failure for result in differing if result.failure]
    if op.startswith("fp8_") and chip in WITHOUT_FLOAT8:
        assert all("has no tensor cores for float8" in str(failure.facts["message"]) for failure in failures)
        assert failures
        return
    assert failures == []
    assert [result for result in differing if result.unchecked and result.unchecked.kind == "vacuous"] == []


def launched_once(kernel):
    """A kernel of which every second call returns copies of the first one's answer."""
    answers = []

    def call(**inputs):
        if answers:
            return answers.pop()
        answer = kernel(**inputs)
        several = isinstance(answer, tuple)
        copies = tuple(output.clone() for output in (answer if several else (answer,)))
        answers.append(copies if several else copies[0])
        return answer

    return call
