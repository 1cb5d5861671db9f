"""Timed outputs are compared with the float64 reference, with the reference's error as the measure."""

import numpy as np
import pytest

from perfci.device.numpy_arrays import NumpyArrays
from perfci.measure.outputs import wrong_output
from perfci.ops.spec import Performance

INPUTS = {"x": np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)}


def double(x):
    return 2 * x


def found(output, reference=double):
    suite = Performance(double, reference, lambda device, seed: INPUTS, [{"n": 1}])
    return wrong_output(suite, NumpyArrays(), {"n": 1}, INPUTS, output)


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (3 * INPUTS["x"], "timed_output_wrong"),
        (np.full_like(INPUTS["x"], np.nan), "timed_output_wrong"),
        (double(**INPUTS)[:2], "wrong_shape"),
        (double(**INPUTS).astype(np.float16), "wrong_dtype"),
        ((double(**INPUTS), double(**INPUTS)), "wrong_count"),
    ],
)
def test_a_wrong_output_is_named(output, kind):
    assert found(output).kind == kind


def test_an_output_may_be_somewhat_more_wrong_than_the_reference_where_the_input_is_badly_conditioned():
    x = np.full((4, 64), 1e4 / 7, np.float32)
    x[0] += np.linspace(0, 1, 64, dtype=np.float32)

    def center(x):
        return x - np.cumsum(x, axis=1)[:, -1:] / 64  # one number after the other, in the dtype of x

    suite = Performance(center, center, lambda device, seed: {"x": x}, [{"n": 1}])
    usual = np.abs(center(x) - center(x.astype(np.float64))).max()
    assert 1e-5 < usual < 0.005
    for error, kind in ((3 * usual, None), (20 * usual, "timed_output_wrong")):
        off = center(x.astype(np.float64))
        off[0, 5] += error
        wrong = wrong_output(suite, NumpyArrays(), {"n": 1}, {"x": x}, off.astype(np.float32))
        assert (wrong and wrong.kind) == kind


@pytest.mark.parametrize(
    ("tolerance", "at_once"),
    [(None, ["float64"]), ({"float32": (0.0, 0.0)}, ["float32"])],
    ids=["within a tolerance", "exact"],
)
def test_of_a_later_output_the_reference_is_asked_once_unless_the_output_differs(tolerance, at_once):
    calls, dtypes = [], []

    def reference(x):
        calls.append(x.dtype.name)
        return 2 * x

    suite = Performance(double, reference, lambda device, seed: INPUTS, [{"n": 1}], tolerance=tolerance)

    def look(output):
        calls.clear()
        return wrong_output(suite, NumpyArrays(), {"n": 1}, INPUTS, output, dtypes=dtypes)

    right = double(**INPUTS)
    assert look(right) is None
    assert calls == ["float64", "float32"]
    assert look(right) is None
    assert calls == at_once
    assert look(right.astype(np.float16)).kind == "wrong_dtype"
    assert look(right[:2]).kind == "wrong_shape"
    assert look(3 * INPUTS["x"]).kind == "timed_output_wrong"
    assert sorted(calls) == ["float32", "float64"]


def test_the_bits_of_an_answer_that_counts_as_right_need_no_reference():
    calls, dtypes, errors = [], [], []

    def reference(x):
        calls.append(x.dtype.name)
        return 2 * x

    def look(output, right, **others):
        calls.clear()
        suite = Performance(double, reference, lambda device, seed: INPUTS, [{"n": 1}])
        return wrong_output(suite, NumpyArrays(), {"n": 1}, INPUTS, output, dtypes=dtypes, right=[right], **others)

    answer = double(**INPUTS)
    assert look(answer, answer) is None
    assert calls == ["float64", "float32"]  # what it gives is not yet known
    assert look(answer, answer.copy()) is None
    assert calls == []
    assert look(answer, np.nextafter(answer, 9)) is None
    assert calls == ["float64"]
    assert look(3 * INPUTS["x"], answer).kind == "timed_output_wrong"
    assert look(answer.astype(np.float16), answer.astype(np.float16)).kind == "wrong_dtype"
    assert look(answer, answer, errors=errors) is None
    assert calls == ["float64"]
    assert len(errors) == 1


def test_infinities_of_an_input_are_named_where_they_made_the_answer_differ():
    def odd(x):
        return np.where(np.isinf(x), np.nan, 2 * x)

    inputs = {"x": INPUTS["x"].copy()}
    inputs["x"][1, 2] = np.inf
    suite = Performance(double, double, lambda device, seed: inputs, [{"n": 1}])
    reason = wrong_output(suite, NumpyArrays(), {"n": 1}, inputs, odd(**inputs))

    assert (reason.kind, reason.facts["name"], reason.facts["values"]) == ("timed_inputs_unfinite", "x", 1)
    assert wrong_output(suite, NumpyArrays(), {"n": 1}, inputs, double(**inputs)) is None
    assert wrong_output(suite, NumpyArrays(), {"n": 1}, inputs, 3 * inputs["x"]).kind == "timed_output_wrong"


# --- how exact --------------------------------------------------------------------------------------------------------


def exactness(output, reference=double):
    suite = Performance(double, reference, lambda device, seed: INPUTS, [{"n": 1}])
    errors = []
    assert wrong_output(suite, NumpyArrays(), {"n": 1}, INPUTS, output, errors) is None
    return errors[0]


def test_a_right_output_tells_its_errors_against_float64():
    output = double(**INPUTS)
    output[1, 2] += np.float32(1e-6)
    seen = exactness(output)

    error = abs(float(output[1, 2]) - 2 * float(INPUTS["x"][1, 2]))
    assert (seen.count, seen.max_abs, seen.worst_index) == (12, error, (1, 2))
    assert (seen.p50_abs, seen.mean_abs) == (0.0, pytest.approx(error / 12))
    assert seen.rmse == pytest.approx(error / 12**0.5)
    assert seen.l2 == pytest.approx(error / np.linalg.norm(2 * INPUTS["x"].astype(float)))


def test_of_several_outputs_each_figure_is_the_worst_and_l2_is_of_all_together():
    def twice(x):
        return 2 * x, 64 * x

    output = twice(**INPUTS)
    output[0][0, 1] += np.float32(1e-6)
    seen = exactness(output, twice)

    error = abs(float(output[0][0, 1]) - 2 * float(INPUTS["x"][0, 1]))
    assert (seen.count, seen.max_abs) == (24, error)
    whole = np.concatenate([output.ravel() for output in twice(INPUTS["x"].astype(float))])
    assert seen.l2 == pytest.approx(error / np.linalg.norm(whole))


@pytest.mark.torch
def test_large_outputs_in_torch_have_the_errors_that_the_host_would_find():
    torch = pytest.importorskip("torch")
    from perfci.device.tensors import TorchArrays
    from perfci.measure.closeness import errors_of

    arrays = TorchArrays("cpu")
    inputs = {"x": torch.randn(300, 200, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)}

    def third(x):
        return x / 3

    suite = Performance(third, third, lambda device, seed: inputs, [{"n": 1}])
    errors = []
    assert wrong_output(suite, arrays, {"n": 1}, inputs, third(**inputs), errors) is None
    seen = errors[0]

    whole = errors_of(arrays.host(third(**inputs)), arrays.host(inputs["x"]) / 3).stats
    assert (seen.count, seen.worst_index) == (60_000, whole.worst_index)
    for name in ("max_abs", "mean_abs", "rmse", "l2", "max_rel", "mean_rel"):
        assert getattr(seen, name) == pytest.approx(getattr(whole, name), rel=1e-9)
    assert seen.p99_abs == pytest.approx(whole.p99_abs, rel=0.01)


@pytest.mark.parametrize(("error", "share"), [(0.0, 0.0), (5e-6, 0.5), (2e-5, 2 / 6)])
def test_a_right_output_tells_its_share_of_what_is_allowed(error, share):
    zeros, kept = {"x": np.zeros((3, 4), np.float32)}, []

    def reference(x):  # off by 1e-5 in narrow dtypes
        return 2 * x if x.dtype == np.float64 else 2 * x + np.float32(1e-5)

    suite = Performance(double, reference, lambda device, seed: zeros, [{"n": 1}])
    output = np.zeros((3, 4), np.float32)
    output[1, 2] = error

    assert wrong_output(suite, NumpyArrays(), {"n": 1}, zeros, output, kept) is None
    assert kept[0].of_allowed == pytest.approx(share, rel=1e-3)
