"""Cases of chains on numpy arrays, with planted faults."""

import numpy as np
import pytest

from perfci.core.model import Reason
from perfci.core.wording import sentence
from perfci.device import open_device
from perfci.device.numpy_arrays import NumpyArrays
from perfci.extensions.lab.chains.records import Chain, Stage, conclude
from perfci.extensions.lab.chains.runs import Setting, StageError, check_case, name_outputs, take_arguments
from perfci.ops.spec import grid

CASE = {"rows": 16, "dtype": "float16"}


def make_inputs(rows, dtype, device, seed):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(rows, 8)).astype(dtype),
        "w": (rng.normal(size=(8, 8)) / 3).astype(dtype),
        "scale": 2.0,
    }


def norm(x):
    wide = x.astype(np.float64)
    return (wide / np.sqrt((wide**2).mean(-1, keepdims=True))).astype(x.dtype)


def product(norm, w):
    return (norm.astype(np.float64) @ w.astype(np.float64)).astype(norm.dtype)


def total(x, product, scale):
    return x + product * x.dtype.type(scale)


REFERENCES = {"norm": norm, "product": product, "total": total}


def check(kernels=None, references=REFERENCES, inputs=make_inputs, params=CASE, told=None, **fields):
    """A chain of these stages, some of with kernels that are replaced."""
    stages = [Stage(name, (kernels or {}).get(name, reference), reference) for name, reference in references.items()]
    chain = Chain(inputs, stages, grid(rows=[16], dtype=["float16"]), **fields)
    describe = lambda error: {"error": type(error).__name__, "message": str(error), "file": "f.py", "line": 3}  # noqa: E731
    told = [] if told is None else told
    device = open_device("fake", seed=1)
    measured = check_case(Setting("block", chain, device, describe, lambda *step: told.append(step)), params, 7)
    return conclude(measured, chain.tolerance, {"chain": "block", "case": measured.case})


def only(case) -> Reason:
    (reason,) = case.failures
    sentence(reason)
    return reason


def test_kernels_like_the_references_pass_with_the_same_errors():
    case = check()

    assert case.verdict == "PASS"
    assert [stage.stage for stage in case.stages] == ["norm", "product", "total"]
    for stage in case.stages:
        assert stage.so_far == stage.usual
        assert 0 < stage.so_far.l2 < 1e-3
    assert case.whole == case.stages[-1].so_far
    assert case.whole.l2 < case.limit.l2


def test_errors_are_held_against_float64_from_the_same_rounded_inputs():
    case = check()
    inputs = make_inputs(**CASE, device="fake", seed=7)
    x, w = inputs["x"].astype(np.float64), inputs["w"].astype(np.float64)
    exact = product(norm(x), w)
    so_far = product(norm(inputs["x"]), inputs["w"]).astype(np.float64)

    stage = case.stages[1]
    assert stage.so_far.l2 == pytest.approx(np.linalg.norm(so_far - exact) / np.linalg.norm(exact))
    assert stage.so_far.max_abs == pytest.approx(np.abs(so_far - exact).max())


def test_an_error_planted_in_the_second_stage_is_named():
    case = check({"product": lambda norm, w: product(norm, w) * norm.dtype.type(1.05)})

    reason = only(case)
    assert case.verdict == "WRONG"
    assert (reason.kind, reason.facts["stage"]) == ("chain_too_far", "product")
    assert reason.facts["error"] > reason.facts["limit"]
    first, second, third = (stage.so_far.l2 for stage in case.stages)
    assert second / first > 20 > 5 > third / second


def test_a_nan_introduced_in_the_third_stage_is_located():
    def wrong(x, product, scale):
        out = total(x, product, scale)
        out[5, 1] = np.nan
        return out

    case = check({"total": wrong})
    reason = only(case)
    assert (reason.kind, reason.facts["stage"]) == ("chain_not_finite", "total")
    assert (reason.facts["index"], reason.facts["count"]) == ("(5, 1)", 1)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_an_overflow_that_the_reference_has_too_is_the_formats_and_fails_nothing():
    def large(**case):
        return {**make_inputs(**case), "scale": 60000.0}

    case = check(inputs=large)
    assert case.verdict == "PASS"
    (note,) = case.notes
    assert (note.kind, note.facts["stage"], note.facts["dtype"]) == ("chain_overflow", "total", "float16")


@pytest.mark.parametrize(
    ("change", "told"),
    [(lambda out: out[:, :4], "(16, 4) float16"), (lambda out: out.astype(np.float32), "(16, 8) float32")],
)
def test_a_wrong_shape_or_dtype_names_the_stage_and_the_one_that_takes_it(change, told):
    case = check({"product": lambda norm, w: change(product(norm, w))})

    facts = only(case).facts
    assert only(case).kind == "chain_form"
    assert (facts["stage"], facts["next"], facts["got"]) == ("product", "total", told)
    assert facts["expected"] == "(16, 8) float16"
    assert (case.verdict, case.whole) == ("WRONG", None)
    assert case.stages[1].so_far is None
    assert case.stages[2].so_far is None


def test_a_stage_that_changes_what_it_reads_is_told():
    def wrong(x, product, scale):
        out = total(x, product, scale)
        product += 1
        return out

    reason = only(check({"total": wrong}))
    assert (reason.kind, reason.facts["names"]) == ("chain_state_changed", "product")


def test_an_error_raised_by_a_stage_is_an_error_that_names_it_and_what_it_was_given():
    def broken(x, product, scale):
        raise ValueError("inner sides differ")

    case = check({"total": broken})
    reason = only(case)
    assert case.verdict == "ERROR"
    where = [reason.facts[name] for name in ("stage", "case")]
    assert (reason.kind, *where) == ("chain_kernel_raised", "total", "rows=16,dtype=float16")
    assert reason.facts["given"] == "x=x (16, 8) float16, product=product (16, 8) float16, scale=scale 2.0"


def test_a_mapping_gives_several_tensors_to_later_stages():
    references = {"split": lambda x: {"left": x[:, :4], "right": x[:, 4:]}, "both": lambda left, right: left * right}

    case = check(references=references)
    assert case.verdict == "PASS"
    assert case.stages[0].so_far.l2 == 0.0


def test_what_a_stage_takes_is_not_spoilt_by_references_that_work_in_place():
    def in_place(x):
        x *= 2
        return x

    references = {**REFERENCES, "total": lambda norm, product: in_place(norm) + product}
    kernels = {"total": lambda norm, product: norm * norm.dtype.type(2) + product}
    assert check(kernels, references).verdict == "PASS"


ARRAYS = NumpyArrays()
WHERE = {"chain": "block", "case": "rows=2"}
X, W = np.ones((2, 3), np.float32), np.ones((3, 4), np.float16)


def stage(function, name="out", **fields):
    return Stage(name, function, function, **fields)


@pytest.mark.parametrize("fields", [{}, {"takes": {"x": "x", "w": "weight"}}])
def test_a_name_that_is_nowhere_is_told_with_those_that_are_there(fields):
    first = stage(lambda x, w: x, **fields)

    with pytest.raises(StageError) as error:
        take_arguments(first, first.kernel, {"x": X}, WHERE)
    assert error.value.reason.kind == "chain_name_missing"
    assert error.value.reason.facts["known"] == "x"


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (None, "NoneType"),
        ((X, X), "tuple"),
        ({}, "{}"),
        ({"q": X, "k": 3}, "{q: ndarray, k: int}"),
        ({"a b": X}, "{a b: ndarray}"),
    ],
)
def test_anything_but_tensors_with_names_is_refused(output, told):
    with pytest.raises(StageError) as error:
        name_outputs(stage(len), output, ARRAYS, WHERE)
    assert error.value.reason.facts["got"] == told
