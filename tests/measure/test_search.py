"""Faults that a suite does not see, found on other values and sizes, and in comparison with the base's kernel."""

import numpy as np
import pytest

from perfci.core.wording import sentence
from perfci.device.fake import FakeDevice, FakeSpec
from perfci.measure.search import SHARE, is_too_large, plan_search, read_constants, search
from perfci.measure.verify import Check, checks, verify
from perfci.ops.spec import SEARCHED, VALUES, Accuracy, grid

SEED = 4711
BLOCK = 128  # a literal of this file: sizes around it are tried


def describe(error):
    return {"error": type(error).__name__, "message": str(error), "file": "op.py", "line": 1}


@pytest.fixture
def device():
    return FakeDevice(FakeSpec(), 1)


def suite(kernel, reference=None, **fields):
    """A suite as `perfci new` writes it."""
    usual = {
        "make_inputs": make_inputs,
        "cases": grid(rows=[1, 13], cols=[1, 127, 128], dtype=["float32", "float16"]),
        "probe_cases": grid(rows=[5], cols=[31], dtype=["float32", "float16"]),
        "layouts": ("contiguous",),
    }
    return Accuracy(kernel, reference or kernel, **{**usual, **fields})


def make_inputs(rows, cols, dtype, device, seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, cols)).astype(dtype), "target": rng.integers(0, cols, rows)}


@np.errstate(invalid="ignore")
def probabilities(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def gradient(x, target):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    answer = probabilities(x.astype(wide))
    answer[np.arange(len(x)), target] -= 1
    return answer.astype(x.dtype)


def gradient_that_loses_its_class(x, target):
    """1 is subtracted from a probability that was rounded to the output's dtype: a Liger release did so."""
    astype = probabilities(x.astype(np.float32)).astype(x.dtype)
    astype[np.arange(len(x)), target] -= x.dtype.type(1)
    return astype


def find(tried, device, base=None, pattern=None):
    planned = plan_search(tried, SEED, pattern, duel=base is not None)
    results = [search(tried, device, check, describe, base) for check in planned]
    return [result for result in results if result]


def are_right(tried, device):
    return all(verify(tried, device, check, describe).failure is None for check in checks(tried, SEED, None))


def test_a_gradient_that_loses_its_true_class_passes_its_suite_and_is_found_on_confident_rows(device):
    tried = suite(gradient_that_loses_its_class, gradient)
    assert are_right(tried, device)

    alone, beside_base = find(tried, device), find(tried, device, gradient)

    for failed, kind in ((alone, "less_exact"), (beside_base, "wrong_values")):
        assert [(result.values, result.case, result.seed) for result in failed if result.values == "confident"] == [
            ("confident", "rows=5,cols=31,dtype=float16", SEED)
        ]
        assert failed[0].failure.kind == kind
    assert find(suite(gradient), device) == find(suite(gradient), device, gradient) == []


def test_a_suite_with_peaked_rows_finds_it_by_itself(device):
    peaked = {"values": (*VALUES, "peaked")}

    assert not are_right(suite(gradient_that_loses_its_class, gradient, **peaked), device)
    assert are_right(suite(gradient, **peaked), device)


def test_a_fault_that_the_base_has_too_is_not_the_changes(device):
    tried = suite(gradient_that_loses_its_class, gradient)

    assert find(tried, device, gradient_that_loses_its_class) == []


def coarse(x, target):
    """Exact in double precision alone."""
    wide = x.dtype if x.dtype == np.float64 else np.float16
    return (np.exp(x.astype(wide)) * 3 + 1).astype(x.dtype)


def test_a_kernel_as_it_was_is_not_found_on_values_that_its_reference_fails_on_too(device):
    tried = suite(lambda x, target: coarse(x, target) * x.dtype.type(1.001), coarse)

    assert find(tried, device, tried.kernel) == []


def softmax(x, target):
    wide = np.float64 if x.dtype == np.float64 else np.float32
    return probabilities(x.astype(wide)).astype(x.dtype)


@np.errstate(invalid="ignore")
def softmax_by_powers_of_two(x, target):
    powers = np.exp2((x - x.max(axis=-1, keepdims=True)).astype(np.float32) * np.float32(1.4426950408889634))
    total = np.add.reduce(powers[:, ::-1], axis=1, keepdims=True)
    return (powers * (np.float32(1) / total)).astype(x.dtype)


def softmax_in_half(x, target):
    return probabilities(x.astype(np.float16)).astype(x.dtype)


def test_an_error_that_grew_beyond_rounding_is_wrong_within_the_tolerance_and_doubtful_by_an_owners_word(device):
    wide = {"float32": (1e-2, 1e-2)}
    given = Check({"rows": 13, "cols": 128, "dtype": "float32"}, "normal", "contiguous", SEED, fresh=True)

    def compare(kernel, **fields):
        return verify(suite(kernel, softmax, tolerance=wide, **fields), device, given, describe, softmax)

    wrong, doubtful = compare(softmax_in_half), compare(softmax_in_half, tolerance_reason="half is enough")

    assert wrong.failure.kind == doubtful.unchecked.kind == "less_exact"
    assert wrong.failure.facts["value"] > 100 * wrong.failure.facts["other"]
    assert "{" not in sentence(wrong.failure)
    assert doubtful.failure is None
    assert compare(softmax_by_powers_of_two).failure is None


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("values", SEARCHED)
def test_sums_in_another_order_and_powers_of_two_have_not_grown(device, values, dtype):
    for seed in range(20):
        params = {"rows": 7, "cols": 61, "dtype": dtype}
        given = Check(params, values, "contiguous", seed, fresh=True, constants=(0.5, 20.0))

        check = verify(suite(softmax_by_powers_of_two, softmax), device, given, describe, softmax)

        assert check.failure is None, sentence(check.failure)


def scaled_by_sums(x, target, change=lambda terms: terms):
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    terms = wide * np.roll(wide, 1, axis=-1) * np.roll(wide, 2, axis=-1)
    return (wide * change(terms).sum(axis=-1, keepdims=True)).astype(x.dtype)


def scaled_by_sums_in_another_order(x, target):
    return scaled_by_sums(x, target, lambda terms: terms[:, np.random.default_rng(1).permutation(terms.shape[1])])


def scaled_by_sums_of_short_products(x, target):
    """Ten bits of each product, as tf32 has."""
    return scaled_by_sums(x, target, lambda terms: (terms.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32))


def test_a_sum_whose_terms_cancel_may_be_exact_in_one_order_by_chance_and_short_products_are_found(device):
    params = {"rows": 33, "cols": 100, "dtype": "float32"}
    failed = {scaled_by_sums_in_another_order: 0, scaled_by_sums_of_short_products: 0}

    for seed in range(60):
        given = Check(params, "constants", "contiguous", seed, fresh=True, constants=(3.3, 7.7, 100.1))
        for kernel in failed:
            failed[kernel] += verify(suite(kernel, scaled_by_sums), device, given, describe, None).failure is not None

    assert [*failed.values()] == [0, 60]


def test_a_size_beside_a_block_is_tried(device):
    def double(x):
        return x * 2

    def without_last_column(x):
        answer = x * 2
        if x.shape[1] == BLOCK + 1:
            answer[:, -1] = 0
        return answer

    def made(rows, cols, dtype, device, seed):
        return {"x": make_inputs(rows, cols, dtype, device, seed)["x"]}

    tried = suite(without_last_column, double, make_inputs=made)
    assert are_right(tried, device)

    answer = find(tried, device, pattern="*")

    assert {(check.values, check.failure.kind) for check in answer} == {("edges", "less_exact")}
    assert all("cols=129" in check.case for check in answer)


def test_a_size_that_makes_the_answer_alone_too_large_is_not_tried(device):
    """An offset that moves a diagonal: what is given has its square."""
    offsets = []

    def move(x, offset):
        offsets.append(offset)
        assert offset <= 4096
        return np.zeros((offset, offset), x.dtype) + x[0]

    def made(offset, dtype, device, seed):
        return {"x": np.random.default_rng(seed).standard_normal(2).astype(dtype), "offset": offset}

    tried = suite(move, make_inputs=made, cases=grid(offset=[1, 2], dtype=["float32"]), probe_cases=())
    check = Check({"offset": 1 << 14, "dtype": "float32"}, "edges", "contiguous", SEED, fresh=True)

    assert search(tried, device, check, describe, None) is None
    assert max(offsets) == 4096


def test_a_search_costs_a_share_of_the_suite_and_the_seed_repeats_it():
    tried = suite(softmax)

    planned = plan_search(tried, SEED, None, duel=True)

    assert len(planned) == len(list(checks(tried, SEED, None))) // SHARE
    assert planned == plan_search(tried, SEED, None, duel=True)
    assert planned != plan_search(tried, SEED + 1, None, duel=True)
    assert {check.values for check in plan_search(tried, SEED, "*", duel=True)} == set(SEARCHED) - set(VALUES)


def test_what_a_suite_leaves_out_is_searched_beside_a_base_only():
    tried = suite(softmax, values=("normal", "zeros"))

    def kinds(duel):
        return {check.values for check in plan_search(tried, SEED, "*", duel=duel)}

    assert kinds(duel=True) == set(SEARCHED)
    assert kinds(duel=False) == {"ties", "sorted", "repeated", "edges"}
    assert {check.values for check in plan_search(suite(softmax, values=["normal"]), SEED, "*", duel=True)} == {"edges"}


def test_constants_are_the_numbers_in_the_kernels_file():
    assert {BLOCK, 1.4426950408889634} <= set(read_constants(softmax))
    assert read_constants(len) == ()


def test_literals_are_read_where_a_thin_file_imports_its_kernel_from(tmp_path, device):
    """An op that `perfci new` wrote calls a function of a library. Numbers that the function does not use are none."""
    package = tmp_path / "lib"
    package.mkdir()
    (package / "limits.py").write_text(
        "from enum import IntEnum\nLIMIT = 65536\nOTHER = 333\n\n\nclass Memory(IntEnum):\n    H100 = 120000\n"
    )
    (package / "gates.py").write_text(
        "import torch\nfrom .limits import LIMIT, Memory\nSTEP = 48\n\n\n"
        "def _double(x):\n    return x * STEP if Memory.H100 else x\n\n\n"
        "def gate(x):\n    return _double(x) if len(x) > LIMIT else x\n\n\ndef other(x):\n    return x * 77\n"
    )
    thin = tmp_path / "kernels" / "gate" / "gate_triton.py"
    thin.parent.mkdir(parents=True)
    thin.write_text("from lib.gates import gate as source\n\n\ndef gate(x):\n    return source(x)\n")

    def wrong(x):
        out = x * 2
        out.reshape(-1)[65536:] += 1
        return out

    wrong.source_file = str(thin)
    assert read_constants(wrong) == (48.0, 65536.0)
    cases = tuple({"rows": rows, "cols": 9, "dtype": "float32"} for rows in (3, 5, 8))
    given = Accuracy(kernel=wrong, reference=lambda x: x * 2, make_inputs=make_x, cases=cases, probe_cases=cases[:1])
    planned = plan_search(given, 1, None, duel=False)
    failures = [verify(given, device, check, describe).failure for check in planned]

    assert {failure.kind for failure in failures if failure} == {"less_exact"}


def test_of_a_large_library_the_files_near_the_kernel_are_read_for_literals(tmp_path):
    for number in range(150):
        text = f"from far{number + 1} import step\n\n\ndef more(x):\n    return step(x) + {1000 + number}\n"
        (tmp_path / f"far{number}.py").write_text(f"{text}\n\nstep = more\n")
    thin = tmp_path / "kernels" / "gate" / "gate_triton.py"
    thin.parent.mkdir(parents=True)
    thin.write_text("from far0 import step\n\n\ndef gate(x):\n    return step(x) * 48\n")

    def gate(x):
        return x

    gate.source_file = str(thin)
    read = read_constants(gate)
    assert {48.0, 1000.0} <= {*read}
    assert max(read) < 1149.0


def make_x(rows, cols, dtype, device, seed):
    return {"x": np.random.default_rng(seed).standard_normal((rows, cols)).astype(dtype)}


def test_several_axes_are_long_at_once_and_all_but_one_are_whole_blocks():
    cases = (*grid(a=[2], b=[31, 32, 33], c=[3], axis=[0]), *grid(a=[2], b=[3], c=[1, 64, 65, 1 << 17], axis=[-1]))
    tried = Accuracy(
        probabilities, probabilities, make_inputs, cases=cases, probe_cases=grid(a=[2], b=[5], c=[7], axis=[0])
    )

    long = [check for check in plan_search(tried, SEED, "*", duel=False) if check.params["b"] > 5 < check.params["c"]]

    assert {(check.params["a"], check.params["b"], check.params["c"]) for check in long} >= {
        (2, 33, 65), (2, 32, 65), (2, 33, 64), (2, 32, 64)
    }  # fmt: skip
    assert {(check.params["axis"], check.values) for check in long} == {(0, "edges")}


def test_the_number_of_an_axis_is_no_length():
    def make(rows, cols, axis, dtype, device, seed):
        return {"x": make_x(rows, cols, dtype, device, seed)["x"], "axis": axis}

    def total(x, axis):
        return x.sum(axis)

    cases = grid(rows=[3, 40], cols=[40], axis=[0, 1, 2], dtype=["float32"])
    tried = Accuracy(total, total, make, cases=cases, probe_cases=grid(rows=[3], cols=[5], axis=[2], dtype=["float32"]))

    planned = plan_search(tried, SEED, "*", duel=False)

    assert {check.params["axis"] for check in planned} == {2}
    assert {BLOCK + 1, 3} <= {check.params["rows"] for check in planned}


def test_a_name_that_a_branch_lacks_refuses_no_input(device):
    def double(x, target):
        if x.shape[1] == BLOCK + 1:
            answer = x * 2
        return answer

    tried, params = suite(double, lambda x, target: x * 2), {"rows": 5, "cols": 31, "dtype": "float32"}
    given = Check(params, "edges", "contiguous", SEED, fresh=True)

    assert search(tried, device, given, describe, None).failure.kind == "kernel_raised"
    tried = suite(lambda x, target: 1 // 0, lambda x, target: x * 2)
    assert search(tried, device, given, describe, None) is None


def test_a_case_is_too_large_for_what_the_reference_gives_though_its_inputs_are_small(device):
    def spread_rows(x, target):
        return np.einsum("ij,jk->ijk", x, np.eye(x.shape[1], dtype=x.dtype))

    params = {"rows": 512, "cols": 1024, "dtype": "float32"}

    assert is_too_large(suite(spread_rows), device, params)
    assert not is_too_large(suite(lambda x, target: x), device, params)
