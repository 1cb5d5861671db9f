"""Every way to be wrong, found on numpy arrays with suites of a few lines."""

import math
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from perfci.core.model import CompiledKernel, Reason
from perfci.core.wording import sentence
from perfci.device.arrays import Damage
from perfci.device.fake import FakeDevice, FakeSpec
from perfci.device.seam import LateError, NotInterpretedError
from perfci.measure.verify import (
    FIXED_SEEDS,
    LEAK_CALLS,
    Check,
    checks,
    verify,
    verify_answers,
    verify_memory,
    verify_rejections,
)
from perfci.ops.spec import LAYOUTS, VALUES, Accuracy, case_id, grid

CASES = grid(rows=[3, 8], cols=[4], dtype=["float32"])
WIDE = {"rows": 3, "cols": 40, "dtype": "float32"}


def describe(error):
    return {"error": type(error).__name__, "message": str(error), "file": "op.py", "line": 1}


def double(x):
    out = np.empty(x.shape, x.dtype)
    np.multiply(x, 2, out=out)
    return out


def make_inputs(rows, cols, dtype, device, seed):
    return {"x": np.random.default_rng(seed).normal(size=(rows, cols)).astype(dtype)}


def suite(kernel=double, reference=lambda x: x * 2, **fields):
    return Accuracy(kernel, reference, **{"make_inputs": make_inputs, "cases": CASES, **fields})


def check(values="normal", layout="contiguous", params=CASES[0], seed=0):
    return Check(params, values, layout, seed, fresh=False)


@pytest.fixture
def device():
    return FakeDevice(FakeSpec(), 1)


def failure(device, kernel, given=None, **fields):
    result = verify(suite(kernel, **fields), device, given or check(), describe)
    assert result.failure is not None
    assert "{" not in sentence(result.failure)
    return result


# --- what is not the kernel's work --------------------------------------------------------------------------------


class Watching(FakeDevice):
    """A fake device that sees launches, of the named kernels."""

    launched = ()

    def record_kernels(self):
        return nullcontext({name: CompiledKernel(name) for name in self.launched})


def test_a_right_answer_without_a_launch_is_unchecked():
    device = Watching(FakeSpec(), 1)

    assert verify(suite(), device, check(), describe).unchecked.kind == "launches_nothing"

    device.launched = ("double",)
    assert verify(suite(), device, check(), describe).unchecked is None


def test_an_empty_case_needs_no_launch():
    given = check(params={"rows": 0, "cols": 4, "dtype": "float32"})

    assert verify(suite(), Watching(FakeSpec(), 1), given, describe).unchecked is None


def test_an_answer_of_nothing_but_zeros_from_an_empty_input_needs_no_launch():
    def attend(queries, keys):
        return np.zeros_like(queries)

    def no_keys(rows, cols, dtype, device, seed):
        queries = make_inputs(rows, cols, dtype, device, seed)["x"]
        return {"queries": queries, "keys": queries[:0]}

    op = suite(attend, attend, make_inputs=no_keys)

    assert verify(op, Watching(FakeSpec(), 1), check("zeros"), describe).unchecked is None


def test_a_wrong_answer_is_wrong_without_a_launch_too():
    wrong = suite(reference=lambda x: x * 3)

    assert verify(wrong, Watching(FakeSpec(), 1), check(), describe).failure.kind == "wrong_values"


# --- arguments that a kernel writes into ------------------------------------------------------------------------------


def double_in_place(x):
    x *= 2
    return x


def test_a_kernel_may_write_into_what_it_says_that_it_writes_into(device):
    assert failure(device, double_in_place, reference=double).failure.kind == "input_changed"

    checked = verify(suite(double_in_place, double_in_place, mutates=("x",)), device, check(), describe)
    assert checked.failure is None and checked.errors is not None


def test_a_kernel_that_returns_nothing_is_judged_by_what_it_wrote(device):
    def write(x, factor=2):
        x *= factor

    def triple(x):
        write(x, 3)

    assert verify(suite(write, double_in_place, mutates=("x",)), device, check(), describe).failure is None
    assert failure(device, triple, reference=write, mutates=("x",)).failure.kind == "wrong_values"


def test_an_in_place_kernel_that_writes_elsewhere_is_wrong(device):
    kept = failure(device, double, reference=double_in_place, mutates=("x",))

    assert kept.failure.kind == "wrong_count"


# --- what passes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_right_kernel_passes_with_all_values_and_layouts(device, values, layout, dtype):
    given = check(values, layout, {"rows": 5, "cols": 7, "dtype": dtype}, seed=3)

    result = verify(suite(), device, given, describe)

    assert result.failure is None and not result.raised and result.unchecked is None
    assert (result.case, result.values, result.layout, result.seed) == (given.case, values, layout, 3)
    assert result.errors is not None and result.reference_errors is not None


def exponential(x):
    return np.exp2((x * np.float32(1.4426950408889634)).astype(np.float32)).astype(np.float32)


@pytest.mark.parametrize(("error", "passes"), [(0.0, True), (2e-5, False)])
def test_what_rounding_an_input_does_to_the_answer_is_no_fault_of_the_kernel(device, error, passes):
    tried = suite(lambda x: exponential(x) * np.float32(1 + error), lambda x: np.exp(x))  # noqa: PLW0108 - by name

    result = verify(tried, device, check("cancellation", params=WIDE), describe)

    assert (result.failure is None) is passes


def test_an_answer_that_jumps_has_to_be_on_the_side_of_the_input_all_the_same(device):
    def floor(x):
        return np.floor(x)

    result = verify(suite(lambda x: np.ceil(x) - 1, floor), device, check("ones"), describe)

    assert result.failure is not None


# --- what is wrong ----------------------------------------------------------------------------------------------------

_kept = {}


def keeps_its_output(x):
    out = _kept.setdefault(x.shape, np.zeros(x.shape, x.dtype))
    np.multiply(x, 2, out=out)
    return out


def leaves_a_row_unwritten(x):
    out = np.empty(x.shape, x.dtype)
    np.multiply(x[1:], 2, out=out[1:])
    return out


def changes_its_input(x):
    out = double(x)
    x[0, 0] += 1
    return out


class Flaky:
    calls = 0

    def __call__(self, x):
        self.calls += 1
        out = double(x)
        out[1, 2] += self.calls
        return out


FORMS = {
    "wrong_count": (lambda x: (double(x), double(x)), {"got": 2, "expected": 1}),
    "wrong_type": (lambda x: 3.0, {"got": "float"}),
    "wrong_shape": (lambda x: double(x)[:, :2], {"got": "(3, 2)", "expected": "(3, 4)"}),
    "wrong_dtype": (lambda x: double(x).astype(np.float64), {"got": "float64", "expected": "float32"}),
    "input_changed": (changes_its_input, {"inputs": "x"}),
    "output_reused": (keeps_its_output, {}),
    "output_aliases_input": (lambda x: x, {}),
    "not_written": (leaves_a_row_unwritten, {"count": 4, "index": "(0, 0)"}),
    "differs_from_itself": (Flaky(), {"count": 1, "index": "(1, 2)"}),
}


@pytest.mark.parametrize("kind", FORMS)
def test_each_way_to_be_wrong_has_its_reason_and_numbers(device, kind):
    kernel, facts = FORMS[kind]
    fields = {"reference": lambda x: x.copy()} if kind == "output_aliases_input" else {}

    result = failure(device, kernel, **fields)

    assert result.failure.kind == kind
    assert dict(result.failure.facts) == {"case": "rows=3,cols=4,dtype=float32", **facts}
    assert not result.raised


@pytest.mark.parametrize("kernel", [lambda x: x, lambda x: x.copy()])
def test_a_kernel_may_give_an_input_itself_where_the_reference_does_as_torchs_contiguous(device, kernel):
    assert verify(suite(kernel, reference=lambda x: x), device, check(), describe).failure is None


def test_a_write_outside_is_told_before_what_it_does_to_other_elements(device, monkeypatch):
    """On a GPU the neighbour's element differs from call to call, and both are one fault."""
    seen = []

    @contextmanager
    def watch(filler):
        seen.append(filler)
        yield SimpleNamespace(find_damage=lambda: Damage(1, after=len(seen)))

    monkeypatch.setattr(device.arrays, "watch_allocations", watch)

    reason = failure(device, Flaky()).failure

    assert (reason.kind, reason.facts["far"], reason.facts["side"]) == ("wrote_outside", 2, "past the end")


def draw_normal(rows, cols, dtype, device, seed):
    return {"x": np.random.default_rng(seed).standard_normal((rows, cols)).astype(dtype)}


@pytest.mark.parametrize(
    ("kernel", "reference", "found"),
    [
        (lambda x: x[:, :-1].sum(axis=1), lambda x: x.sum(axis=1), {"left_out": "cols", "left": 1}),
        (lambda x: x[:, :128].sum(axis=1), lambda x: x.sum(axis=1), {"left_out": "cols", "left": 2}),
        (lambda x: x * 0 + x[:-1].sum(axis=0), lambda x: x * 0 + x.sum(axis=0), {"left_out": "rows", "left": 1}),
        (lambda x: 2 * x.sum(axis=1), lambda x: x.sum(axis=1), {"left_out": ""}),
        (lambda x: x[:, 1:].sum(axis=1), lambda x: x.sum(axis=1), {"left_out": ""}),
    ],
    ids=["last column", "last block", "last row", "formula", "first column"],
)
def test_an_answer_without_the_last_inputs_says_along_which_axis(device, kernel, reference, found):
    """Every element of such an answer is wrong, so that its places say nothing."""
    params = {"rows": 5, "cols": 130, "dtype": "float32"}
    given = suite(kernel, reference, make_inputs=draw_normal, cases=(params,))

    facts = verify(given, device, check(params=params, seed=0), describe).failure.facts

    assert {name: facts[name] for name in ("left_out", "left") if name in facts} == found
    assert "left_out" not in verify(given, device, check(params=params, seed=1), describe).failure.facts


@pytest.mark.parametrize("values", ["nan", "inf"])
def test_nan_and_infinities_must_come_through(device, values):
    result = failure(device, lambda x: np.nan_to_num(double(x)), check(values, params=CASES[1]))

    assert result.failure.kind == "not_finite"


def test_an_overflow_that_float64_rounded_to_the_dtype_has_too_is_right(device):
    params = {"rows": 3, "cols": 4, "dtype": "float16"}

    def exact(x):
        with np.errstate(over="ignore"):
            return (x.astype(np.float64) * 16).astype(x.dtype)

    result = verify(suite(exact, exact), device, check("large", params=params), describe)

    assert result.failure is None


def test_wrong_values_name_the_worst_element_and_what_is_allowed(device):
    def kernel(x):
        out = double(x)
        out[0, 1] += 0.25
        out[2, 3] += 0.5
        return out

    reason = failure(device, kernel).failure

    assert reason.kind == "wrong_values"
    assert (reason.facts["count"], reason.facts["size"], reason.facts["index"]) == (2, 12, "(2, 3)")
    assert reason.facts["got"] - reason.facts["expected"] == pytest.approx(0.5, rel=1e-6)
    assert reason.facts["error"] == pytest.approx(0.5, rel=1e-6)
    assert (reason.facts["rtol"], reason.facts["atol"]) == (1.3e-6, 1e-5)


# --- how close is close enough ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("terms", "passes"), [(1, False), (99, False), (101, True)])
def test_atol_is_wider_by_the_square_root_of_the_terms_of_a_sum(device, terms, passes):
    """Ones in, so that a term has size 1; off by ten times float32's atol of 1e-5 and its rtol of 1.3e-6 * 0."""

    def zero(x):
        return x * 0

    def kernel(x):
        return np.full(x.shape, 1e-4, x.dtype)

    result = verify(suite(kernel, zero, reduces=lambda **params: terms), device, check("ones"), describe)

    assert (result.failure is None) is passes
    assert result.atol == pytest.approx(1e-5 * math.sqrt(terms))


def test_an_answer_that_is_small_beside_atol_may_be_off_by_an_eighth_only_if_a_suite_says_so(device):
    def shrink(x):
        return x * x.dtype.type(3e-5)

    def check_factor(factor, **fields):
        made = suite(lambda x: shrink(x) * np.float32(factor), shrink, **fields)
        return verify(made, device, check(params=WIDE), describe)

    assert check_factor(1.12).failure.kind == "wrong_values"
    assert check_factor(1.12, tolerance={"float32": (1.3e-6, 1e-5)}).failure is None
    assert (check_factor(1.0).failure, check_factor(1.0).unchecked) == (None, None)


def test_in_half_precision_a_small_answer_may_be_off_by_units_of_its_size(device):
    def shrink(x):
        return x * x.dtype.type(4e-3)

    def check_units(units):
        made = suite(lambda x: shrink(x) + x.dtype.type(units * 4e-3 * 2**-10), shrink)
        return verify(made, device, check(params={**WIDE, "dtype": "float16"}), describe)

    assert check_units(2.0).failure is None
    assert check_units(64.0).failure.kind == "wrong_values"


# --- a tolerance that anything passes ---------------------------------------------------------------------------------


def vacuous(device, kernel, atol, given=None, **fields):
    """The check with so large an atol; answers are of a size of about 2."""
    return verify(suite(kernel, tolerance={"float32": (0.0, atol)}, **fields), device, given or check(), describe)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pass_by_an_atol_that_wrong_answers_pass_too_says_nothing(device, layout):
    given = check(layout=layout, params=WIDE)
    right = vacuous(device, double, 1.0, given)
    wrong = vacuous(device, lambda x: double(x) + np.float32(0.9), 1.0, given)

    for result in (right, wrong):
        assert (result.failure, result.unchecked.kind) == (None, "vacuous")
        assert result.unchecked.facts["atol"] == 1.0
        assert result.unchecked.facts["rms"] == pytest.approx(np.sqrt(np.mean(double(made_x(layout)) ** 2)))
        assert "{" not in sentence(result.unchecked)
    assert vacuous(device, double, 0.001, given).unchecked is None


def test_an_answer_whose_terms_all_cancel_is_no_fault_of_a_tolerance(device):
    def cancel(x):
        return np.log(np.exp(x)) - x

    given = check(params={"rows": 8, "cols": 40, "dtype": "float32"})

    result = verify(suite(cancel, cancel), device, given, describe)

    assert result.reference_errors.rmse > 0
    assert (result.failure, result.unchecked) == (None, None)


@pytest.mark.parametrize(
    ("tolerance", "dtype", "broken"),
    [
        ((0.0, 1e9), "float32", "zeros"),
        ((1.5, 0.0), "float32", "zeros"),
        ((0.5, 0.0), "float32", "an answer with one wrong element"),
        ((0.0, 0.05), "float32", "an answer rounded to bfloat16"),
        ((0.0, 0.05), "float16", None),
        ((1e-3, 1e-5), "float16", None),
        ((1.3e-6, 1e-5), "float32", None),
    ],
)
def test_the_first_wrong_answer_that_would_pass_is_named(device, tolerance, dtype, broken):
    given = check(params={"rows": 8, "cols": 40, "dtype": dtype})

    result = verify(suite(tolerance={dtype: tolerance}), device, given, describe)

    assert (result.unchecked.facts["broken"] if result.unchecked else None) == broken


def test_a_reason_excuses_one_element_and_rounding_but_no_answer_of_zeros(device):
    def found(atol):
        return vacuous(device, double, atol, tolerance_reason="weights are stored in bfloat16").unchecked

    assert found(0.5) is None
    assert found(1e9).facts["broken"] == "zeros"


@pytest.mark.parametrize(
    ("make", "alike"),
    [(np.zeros, True), (np.ones, True), (lambda shape: np.full(shape, np.nan), True), (np.empty, None)],
)
def test_a_suite_whose_right_answers_are_one_number_says_nothing(device, make, alike):
    def made(rows, cols, dtype, device, seed):
        return {"x": make((0 if alike is None else rows, cols)).astype(dtype)}

    answers = verify_answers(suite(make_inputs=made), device)

    assert (answers.unchecked.kind if answers else None) == ("vacuous_answers" if alike else None)
    assert verify_answers(suite(), device) is None


def made_x(layout):
    x = make_inputs(**WIDE, device="", seed=0)["x"]
    return np.broadcast_to(x[:1], x.shape) if layout == "expanded" else x


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_integers_and_booleans_are_exact(device, dtype):
    def truth(x):
        return (x > 0).astype(dtype)

    def kernel(x):
        out = truth(x)
        out[1, 0] = not out[1, 0]
        return out

    assert verify(suite(truth, truth), device, check(), describe).failure is None
    reason = failure(device, kernel, reference=truth, tolerance={"int32": (1.0, 1.0)}).failure
    assert reason.kind == "wrong_values"
    assert (reason.facts["count"], reason.facts["index"], reason.facts["error"]) == (1, "(1, 0)", 1.0)


@pytest.mark.torch
def test_integers_of_which_torch_knows_no_maximum_are_exact_too():
    torch, params = pytest.importorskip("torch"), {"rows": 3, "dtype": "uint32"}
    from perfci.device import open_device

    def make(rows, **_):
        return {"x": torch.arange(rows).to(torch.uint32)}

    def flip(x):
        return (x.to(torch.int64) ^ 1).to(torch.uint32)

    given = suite(flip, flip, make_inputs=make, cases=(params,))
    assert verify(given, open_device("cpu", seed=0), check(params=params), describe).failure is None


def quantise(x, by=1.0, dtype=np.int8):
    scaled = x * np.asarray(by, x.dtype) * (127 / np.abs(x).max(axis=1, keepdims=True))
    return np.round(scaled).astype(dtype)


def test_a_kernel_that_rounds_to_integers_is_compared_with_the_formula_in_float64(device):
    """In float16 the reference's own answer is off by its rounding."""
    params = {"rows": 8, "cols": 64, "dtype": "float16"}

    def judge(kernel, **fields):
        given = suite(kernel, quantise, make_inputs=draw_normal, cases=(params,), **fields)
        return verify(given, device, check(params=params), describe).failure

    def narrow(x):
        return quantise(x, 1.002)

    def exact(x):
        return quantise(x.astype(np.float64))

    assert judge(exact) is None
    assert judge(quantise) is None
    assert judge(narrow).kind == "wrong_values"
    assert judge(narrow, tolerance={"int8": (0.0, 1.0)}) is None
    assert judge(lambda x: quantise(x, 1.05), tolerance={"int8": (0.0, 1.0)}).kind == "wrong_values"


def test_none_among_outputs_is_no_output_and_nothing_at_all_is_no_answer(device):
    assert (
        verify(suite(lambda x: (double(x), None), lambda x: (double(x), None)), device, check(), describe).failure
        is None
    )
    assert failure(device, lambda x: None).failure.kind == "wrong_count"
    assert failure(device, lambda x: None, reference=lambda x: None).failure.facts["got"] == "NoneType"


def test_an_output_may_lie_in_memory_in_another_order_but_not_with_gaps(device):
    def gapped(x):
        return np.repeat(double(x), 2, axis=1)[:, ::2]

    def like_its_input(x):
        return double(x) if x.flags.c_contiguous else gapped(x)

    assert verify(suite(lambda x: np.asfortranarray(double(x))), device, check(), describe).failure is None
    assert failure(device, gapped).failure.kind == "wrong_strides"
    strided = check(layout="strided")
    assert verify(suite(gapped, reference=like_its_input), device, strided, describe).failure is None
    assert verify(suite(gapped), device, strided, describe).failure.kind == "wrong_strides"


def test_inputs_of_which_one_has_a_layout_of_its_own(device):
    """A kernel that takes one input's stride for another's is right where both are alike."""

    def add(x, y):
        return x + np.lib.stride_tricks.as_strided(y, y.shape, x.strides)

    def make(rows, cols, dtype, device, seed):
        return {name: draw_normal(rows, cols, dtype, device, seed)["x"] for name in "xy"}

    given = suite(add, lambda x, y: x + y, make_inputs=make, cases=CASES, probe_cases=CASES[:1])
    failed = {one.layout for one in checks(given, 7, None) if verify(given, device, one, describe).failure}

    assert {"expanded x", "expanded y"} <= failed
    assert "expanded" not in failed


# --- what raises ------------------------------------------------------------------------------------------------------


def raising(error):
    def function(*args, **kwargs):
        raise error

    return function


@pytest.mark.parametrize(
    ("fields", "kind", "error"),
    [
        ({"kernel": raising(RuntimeError("no stream"))}, "kernel_raised", "RuntimeError"),
        ({"kernel": raising(MemoryError("32 GiB"))}, "out_of_memory", "MemoryError"),
        ({"reference": raising(KeyError("x"))}, "reference_raised", "KeyError"),
        ({"make_inputs": raising(ValueError("rows"))}, "reference_raised", "ValueError"),
        ({"make_inputs": lambda **params: {"y": np.ones(2)}}, "reference_raised", "TypeError"),
    ],
)
def test_an_exception_is_an_error_and_no_wrong_answer(device, fields, kind, error):
    result = verify(suite(**fields), device, check(), describe)

    assert result.raised
    assert (result.failure.kind, result.failure.facts["error"]) == (kind, error)


@pytest.mark.parametrize(("side", "kind"), [("reference", "reference_raised"), ("kernel", "kernel_raised")])
def test_an_error_that_a_launch_raises_later_is_of_the_side_that_launched(device, monkeypatch, side, kind):
    late = []

    def synchronize():
        if late:
            raise RuntimeError("an illegal memory access")

    def launch(x):
        late.append(x)
        return double(x)

    monkeypatch.setattr(device, "synchronize", synchronize)

    assert verify(suite(**{side: launch}), device, check(), describe).failure.kind == kind


@pytest.mark.parametrize(("works", "kind"), [(True, "kernel_raised"), (False, "device_lost")])
def test_an_exception_behind_which_the_device_works_no_more_is_called_that(device, monkeypatch, works, kind):
    monkeypatch.setattr(device, "is_lost", lambda error: not works)

    assert verify(suite(kernel=raising(RuntimeError("address"))), device, check(), describe).failure.kind == kind


# --- which checks are made --------------------------------------------------------------------------------------------


def test_every_case_is_checked_with_fixed_seeds_and_a_fresh_one():
    made = [one for one in checks(suite(probe_cases=()), 4711, None) if one.values == "normal"]

    seeds = {case_id(params): [(one.seed, one.fresh) for one in made if one.params is params] for params in CASES}
    assert set(map(tuple, seeds.values())) == {(*((seed, False) for seed in FIXED_SEEDS), (4711, True))}


def test_the_second_seed_goes_through_the_layouts_by_turns_whatever_cases_are_chosen():
    cases = grid(rows=[1, 2, 3, 4], cols=[8])
    made = list(checks(suite(cases=cases, probe_cases=()), 7, None))
    alone = [one for params in cases for one in checks(suite(cases=cases, probe_cases=()), 7, case_id(params))]
    dense = list(checks(suite(cases=cases, probe_cases=(), layouts=("contiguous",)), 7, None))

    assert [one.layout for one in made if one.seed == 1] == ["strided", "pitched", "strided", "pitched"]
    assert {one.layout for one in made if one.seed != 1} == {"contiguous"}
    assert alone == made
    assert {one.layout for one in dense} == {"contiguous"}


def test_probes_get_every_kind_of_values_and_layout_by_default_the_last_case_of_each_dtype():
    cases = grid(rows=[1, 9], cols=[4], dtype=["float16", "float32"])
    every_check = list(checks(suite(cases=cases), 5, None))
    probes = every_check[3 * len(cases) :]

    assert {one.case for one in probes} == {"rows=9,cols=4,dtype=float16", "rows=9,cols=4,dtype=float32"}
    for case in {one.case for one in probes}:
        mine = [one for one in probes if one.case == case]
        assert [one.values for one in mine if one.layout == "contiguous"] == [v for v in VALUES if v != "normal"]
        assert [one.layout for one in mine if one.values == "normal"] == [v for v in LAYOUTS if v != "contiguous"]


def test_what_the_interpreter_cannot_run_is_left_unchecked_and_named(device):
    def kernel(x):
        try:
            raise NotInterpretedError("libdevice.byte_perm")
        except AttributeError as error:  # as Triton's interpreter does, once for each function that was called
            raise RuntimeError("not in a kernel") from error

    # On any other device no interpreter can say so.
    assert verify(suite(kernel=kernel), device, check(), describe).failure.kind == "kernel_raised"
    device.info = replace(device.info, kind="cpu")

    result = verify(suite(kernel=kernel), device, check(), describe)

    assert result.failure is None
    assert result.unchecked == Reason("interpreter_lacks", {"case": result.case, "function": "libdevice.byte_perm"})
    # A base that runs there, and one that does not.
    kinds = [verify(suite(kernel=kernel), device, check(), describe, base).unchecked.kind for base in (double, kernel)]
    assert kinds == ["interpreter_lacks_now", "interpreter_lacks"]


def test_a_kernel_that_claims_to_take_too_long_has_failed_where_no_time_was_set(device):
    def kernel(x):
        raise LateError

    device.info = replace(device.info, kind="cpu")

    assert verify(suite(kernel=kernel), device, check(), describe).failure.kind == "kernel_raised"
    assert verify(suite(kernel=kernel), device, check(), describe, bounded=True).unchecked.kind == "search_left"


def test_a_kernel_that_works_in_filled_memory_alone_is_found_by_the_fresh_seed(device):
    def kernel(x):
        out = np.empty(x.shape, x.dtype)
        filled = np.isnan(out).all() or (out == 77).all()
        out[:] = x * 2 if filled else 0
        return out

    failures = {
        one.fresh: verify(suite(kernel=kernel), device, one, describe).failure for one in checks(suite(), 5, None)
    }

    assert failures[True].kind == "differs_from_itself"
    assert failures[False] is None


# --- rejections and leaks ---------------------------------------------------------------------------------------------


def strict(x):
    if x.dtype != np.float32:
        raise TypeError("float32 only")
    if x.ndim != 2:
        raise ValueError("two axes only")
    return double(x)


def wrong_input(*shape, dtype=np.float32):
    return lambda device: {"x": np.ones(shape, dtype)}


@pytest.mark.parametrize(
    ("kernel", "make", "kind"),
    [
        (strict, wrong_input(2, 2, dtype=np.int64), None),
        (strict, wrong_input(2), None),
        (strict, wrong_input(2, 2), "not_rejected"),
        (raising(RuntimeError("launch failed")), wrong_input(2), "rejected_otherwise"),
        (strict, raising(TypeError("no such argument")), "reference_raised"),
        (strict, lambda device: {"y": 1}, "reference_raised"),
    ],
)
def test_inputs_declared_wrong_must_be_refused_by_the_kernel_itself(device, kernel, make, kind):
    (result,) = verify_rejections(suite(kernel, rejects=[("something", make)]), device, describe)

    assert (result.failure.kind if result.failure else None) == kind
    assert result.case == "rejects=something"


@pytest.mark.parametrize(("grows", "leaks"), [(0, False), (4096, True)])
def test_memory_that_calls_leave_behind_is_a_leak(device, monkeypatch, grows, leaks):
    held = []

    def kernel(x):
        held.append(grows)
        return double(x)

    monkeypatch.setattr(device.arrays, "memory_in_use", lambda: 1000 + sum(held))

    result = verify_memory(suite(kernel), device, 1)

    assert (result.failure is not None) is leaks
    if leaks:
        assert result.failure.facts["bytes"] == LEAK_CALLS * 4096


# --- how near a right answer is to what is allowed --------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_a_check_that_passes_tells_its_share_of_what_is_allowed(device, share):
    large = suite(lambda x: double(x) if not share else double(x) + np.float32(share * 1e-5), tolerance=None)
    result = verify(large, device, check(values="zeros"), describe)

    assert result.failure is None
    assert result.errors.of_allowed == pytest.approx(share, abs=1e-3)


def test_of_several_outputs_the_one_nearest_to_what_is_allowed_counts(device):
    def both(x):
        return double(x), double(x) + np.float32(6e-6)

    result = verify(suite(both, lambda x: (x * 2, x * 2)), device, check(values="zeros"), describe)

    assert result.errors.of_allowed == pytest.approx(0.6, abs=1e-3)


def test_a_check_that_fails_has_no_share(device):
    assert verify(suite(lambda x: x * 3), device, check(), describe).errors.of_allowed is None


def test_what_the_bases_kernel_errs_by_is_kept_of_a_fresh_seed(device):
    given = Check(WIDE, "normal", "contiguous", 5, fresh=True)

    def coarse(x):
        return (2 * x.astype(np.float64) * (1 + 2.0**-21)).astype(x.dtype)

    result = verify(suite(double), device, given, describe, coarse)

    assert result.failure is None
    assert result.errors.l2 == 0.0
    assert result.base_errors.l2 == pytest.approx(2.0**-21, rel=0.05)
    assert verify(suite(double), device, check(), describe, coarse).base_errors is None


@pytest.mark.torch
def test_a_reference_may_give_numbers_of_8_bits_of_its_own():
    torch = pytest.importorskip("torch")
    from perfci.device import open_device

    def make(rows, cols, dtype, device, seed):
        generator = torch.Generator(device).manual_seed(seed)
        return {"x": torch.randn(rows, cols, generator=generator, dtype=torch.float32, device=device)}

    def narrow(x):
        return x.to(torch.float8_e4m3fn)

    given = Check({**CASES[0], "dtype": "float32"}, "confident", "contiguous", 0, fresh=False)
    result = verify(suite(narrow, narrow, make_inputs=make), open_device("cpu", seed=0), given, describe)
    assert result.failure is None


def test_an_error_that_the_reference_has_with_other_inputs_is_no_fault_in_a_narrow_dtype(device):
    def make(rows, cols, dtype, device, seed):
        return {"x": np.full((rows, cols), 1.99 if seed else 1.0, dtype)}

    def kernel_off_by(steps):
        return lambda x: x + np.float16(steps * 2.0**-10)

    narrow = {
        "reference": lambda x: (x.astype(np.float64) * 1.0002).astype(x.dtype),
        "make_inputs": make,
        "cases": grid(rows=[3], cols=[4], dtype=["float16"]),
        "tolerance": {"float16": (0.0, 0.0)},
    }
    given = check(params=narrow["cases"][0])

    assert verify(suite(kernel_off_by(1), **narrow), device, given, describe).failure is None
    assert failure(device, kernel_off_by(2), given, **narrow).failure.kind == "wrong_values"


@pytest.mark.parametrize(("kernel", "kind"), [(np.nan_to_num, None), (lambda x: x.copy(), "not_finite")])
def test_a_dtypes_largest_number_is_not_taken_for_an_infinity(device, kernel, kind):
    def make(rows, cols, dtype, device, seed):
        return {"x": np.full((rows, cols), np.inf, dtype)}

    found = verify(suite(kernel, np.nan_to_num, make_inputs=make), device, check(), describe).failure

    assert (found.kind if found else None) == kind
