"""Head, base and configurations that compute the same formula, by the bits that their calls give in fpsan's ring."""

import functools
from contextlib import contextmanager

import numpy as np
import pytest

from perfci.core.wording import sentence
from perfci.device.fake import FakeDevice, FakeSpec
from perfci.extensions.beyond.configurations import Configuration, Pin
from perfci.extensions.beyond.formula import Trace, compare_formulas, read_traces, trace_calls
from perfci.extensions.beyond.sanitize import compiles_in, surround
from perfci.ops.spec import Accuracy, grid
from perfci.worker.tasks import WorkerEnvironment

TILE = [4]


def make_inputs(rows, device, seed):
    return {"x": np.random.default_rng(seed).integers(-9, 9, (rows, 4)).astype("float32")}


@contextmanager
def tiled(size):
    kept, TILE[0] = TILE[0], size
    try:
        yield
    finally:
        TILE[0] = kept


def trace(kernel, *sizes):
    suite = Accuracy(kernel, lambda x: x.sum(0), make_inputs, grid(rows=[3, 5]))
    configurations = [Configuration(f"TILE: {size}", (Pin(functools.partial(tiled, size)),)) for size in sizes]
    device = FakeDevice(FakeSpec(), 1)
    return list(trace_calls(suite, device, suite.cases, configurations))


def total(x):
    """A sum by tiles, in integers: in fpsan's ring sums are exact as well."""
    return sum(x[at : at + TILE[0]].sum(0) for at in range(0, len(x), TILE[0]))


def forgets(x):
    """With tiles of 2 it leaves out what fills no whole one."""
    return total(x[: len(x) - (len(x) % 2 if TILE[0] == 2 else 0)])


def kinds(*arguments):
    return [(note.kind, note.facts) for note in compare_formulas("sum", *arguments)]


def test_one_formula_gives_equal_bits_in_all_configurations_and_to_the_base():
    differences = kinds(trace(total, 1, 2), trace(lambda x: x[::-1].sum(0)))

    assert [kind for kind, _ in differences] == ["formula_of_all", "formula_same"]
    assert (differences[0][1]["count"], differences[1][1]["cases"]) == (2, 2)


def test_a_configuration_that_leaves_something_out_is_named_with_its_case():
    ((kind, facts),) = kinds(trace(forgets, 1, 2), None)

    assert (kind, facts["configuration"], facts["case"]) == ("formula_of_configuration", "TILE: 2", "rows=5")


def test_another_formula_than_the_bases_is_counted_by_cases():
    ((kind, facts),) = kinds(trace(lambda x: x.sum(0) + (len(x) > 4)), trace(total))

    assert (kind, facts["count"], facts["cases"], facts["case"]) == ("formula_differs", 1, 2, "rows=5")


def test_calls_that_raise_or_give_other_bits_the_second_time_show_nothing():
    calls = []

    def unsteady(x):
        calls.append(x)
        return x.sum(0) + len(calls)

    (note,) = compare_formulas("sum", trace(unsteady), None)

    assert sentence(note).startswith("Triton's fpsan showed nothing of sum")


def test_cases_with_other_inputs_are_not_compared():
    head = [Trace("rows=3", "", "one", "same")]

    assert kinds(head, [Trace("rows=3", "", "other", "same")]) == [("formula_unknown", {"op": "sum"})]


def test_traces_come_through_a_workers_notes():
    traces = trace(total, 2)

    assert read_traces([one.spell() for one in traces]) == traces


def test_a_worker_whose_kernels_are_traced_has_fpsan_compiled_in(tmp_path):
    around = WorkerEnvironment({}, tmp_path, tmp_path / "log", 1.0)

    assert surround(around, "fpsan").environment == {
        "TRITON_INSTRUMENTATION_MODE": "fpsan",
        "TRITON_FPSAN_HOMOMORPHIC_CASTS": "1",
    }


def test_a_triton_without_fpsan_is_not_asked(monkeypatch):
    pytest.importorskip("triton")

    assert compiles_in("no such mode") is False
