"""The pages beside the kernels are true: suites have what they say, and their formulas give the suites' numbers."""

import importlib.util
import math
import re
import sys
from pathlib import Path

import pytest

from perfci.core.model import PlannedOp
from perfci.extensions.agents.brief import check_words
from perfci.ops.spec import case_id
from perfci.worker.load import import_from, list_signature

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
OPS = sorted(path.name for path in KERNELS.iterdir() if path.is_dir() and not path.name.startswith(("_", ".")))
LONGEST = 22

pytestmark = pytest.mark.torch


def page(op):
    return (KERNELS / op / f"{op}.md").read_text(encoding="utf-8")


def load(op, part):
    """A suite's module, imported as a worker does."""
    folder = KERNELS / op
    with import_from(folder, KERNELS):
        spec = importlib.util.spec_from_file_location(f"{op}_{part}", folder / f"{op}_{part}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def own_modules(monkeypatch):
    """What an op's suites import is forgotten afterwards."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(KERNELS) in str(sys.modules[name].__file__):
            del sys.modules[name]


def formula(op, label):
    """The formula in the page's line of this label, on one line."""
    line = re.search(rf"^- {label}:.*?`([^`]+)`", page(op), re.MULTILINE | re.DOTALL)
    return " ".join(line[1].split())


def names(module, case):
    """The values of the names that formulas use: the case's parameters, and what the page explains in words."""
    known = {"bias": False, "groups": 1, "stride": 1, "padding": 0, "dilation": 1, **case}
    dtype, out_dtype = case["dtype"], case.get("out_dtype")
    known |= {"itemsize": dtype.itemsize, "out_itemsize": out_dtype and out_dtype.itemsize}
    known["q_itemsize"] = known["out_itemsize"] if case.get("parts") == "v" else known["itemsize"]
    if "shape" in case:
        known["elements"] = case["shape"] if isinstance(case["shape"], int) else math.prod(case["shape"])
    if "affine" in case:
        known["vectors"] = {"both": 2, "weight": 1, "bias": 1, "none": 0}[case["affine"]]
        if hasattr(module, "VECTORS"):  # gradients: a weight is read, and has one too
            known["vectors"] += case["affine"] in {"both", "weight"}
            known["sums"] = 3 * (case["affine"] in {"both", "weight"}) + (case["affine"] in {"both", "bias"})
    if "reduction" in case:
        known["losses"] = case["rows"] if case["reduction"] == "none" else 1
    if "taps" in case:
        known["out"] = module.out_size(**case)
        known["read"] = case["size"] if known["stride"] <= case["taps"] else known["out"]
    if "queries" in case:
        heads = {"bool": 1, "added-by-head": case.get("heads")}.get(case.get("mask"), 0)
        places = case.get("batch", 1) * heads * case["queries"] * case["keys"]
        known["mask_bytes"] = places * (1 if case.get("mask") == "bool" else dtype.itemsize)
        known["pairs"] = count_pairs(
            **{key: case[key] for key in ("queries", "keys", "causal", "window") if key in case}
        )
    if "scaling" in case:
        known["scales"] = count_scales(case)
    return known


def count_pairs(queries, keys, causal=False, window=(None, None)):
    left, right = window[0], 0 if causal else window[1]
    places = range(keys - queries, keys)
    first = (0 if left is None else max(place - left, 0) for place in places)
    last = (keys - 1 if right is None else min(place + right, keys - 1) for place in places)
    return sum(max(end - begin + 1, 0) for begin, end in zip(first, last, strict=True))


def count_scales(case):
    if "m" in case:
        if isinstance(case["scaling"], int):
            return -(-case["k"] // case["scaling"]) * (case["m"] + case["n"])
        blocks = -(-case["k"] // 128)
        of_blocks = blocks * case["m"] + blocks * -(-case["n"] // 128)
        return {"tensor": 2, "row": case["m"] + case["n"], "block": of_blocks}[case["scaling"]]
    of_q, of_k = case["batch"] * case["heads"], case["batch"] * case["key_heads"]
    if case["scaling"] == "tensor":
        q, k, v = 1, 1, 1
    elif case["scaling"] == "channel":
        q, k, v = of_q * case["queries"], of_k * case["keys"], of_k * case["width"]
    else:
        q, k, v = of_q * -(-case["queries"] // 128), of_k * -(-case["keys"] // 128), of_k * -(-case["keys"] // 128)
    return v if case.get("parts") == "v" else q + k + v


@pytest.mark.parametrize("op", OPS)
def test_suites_have_what_a_page_says(op):
    accuracy, performance = (getattr(load(op, part), part) for part in ("accuracy", "performance"))
    cases = [tuple(map(case_id, suite.cases)) for suite in (accuracy, performance)]
    planned = PlannedOp(op, *cases, signature=list_signature(performance.kernel))

    assert list(check_words(page(op), planned)) == []


@pytest.mark.parametrize("op", OPS)
def test_a_page_names_every_dtype_of_the_suites(op):
    cases = [case for part in ("accuracy", "performance") for case in getattr(load(op, part), part).cases]
    dtypes = {
        str(case[name]).removeprefix("torch.") for case in cases for name in ("dtype", "out_dtype") if name in case
    }

    assert {dtype for dtype in dtypes if f"`{dtype}`" not in page(op)} == set()


@pytest.mark.parametrize("op", OPS)
def test_a_pages_formula_of_bytes_gives_the_suites_bytes(op):
    module = load(op, "performance")
    suite = module.performance

    for case in suite.cases:
        moved = eval(formula(op, "Bytes"), {}, names(module, case))
        assert moved == suite.bytes_moved(**case), case_id(case)


@pytest.mark.parametrize("op", [op for op in OPS if op not in {"bias_relu", "broadcast", "softmax"}])
def test_a_pages_formula_of_operations_gives_the_suites_operations(op):
    module = load(op, "performance")
    suite = module.performance

    for case in suite.cases:
        text = formula(op, "Operations")
        if op == "cross_entropy":
            text = "rows * (6 * cols + 7)" if case["smoothing"] else text
            assert f"`{text}`" in page(op)
            text = f"{text} + rows * {case['reduction'] != 'none'}"
        if op == "gelu" and case["approximate"] == "tanh":
            text = "9 * elements"
            assert f"`{text}`" in page(op)
        assert eval(text, {}, names(module, case)) == suite.flops(**case), case_id(case)


@pytest.mark.parametrize("op", OPS)
def test_a_page_names_functions_and_files_that_are_there(op):
    files = "\n".join(
        path.read_text(encoding="utf-8") for path in [*KERNELS.glob("_*.py"), *(KERNELS / op).glob("*.py")]
    )
    spans = re.findall(r"`([^`]+)`", page(op))

    assert [span for span in spans if re.fullmatch(r"_\w+\.py", span) and not (KERNELS / span).exists()] == []
    assert [span for span in spans if re.fullmatch(r"_\w+", span) and f"def {span}(" not in files] == []
    assert [span for span in spans if re.fullmatch(r"[A-Z_]{4,}", span) and f"{span} = " not in files] == []


@pytest.mark.parametrize("op", OPS)
def test_a_page_is_short(op):
    assert len(page(op).splitlines()) <= LONGEST
