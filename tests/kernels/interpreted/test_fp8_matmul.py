"""Indices, masks and scales only: the interpreter multiplies in float32, and no tensor core is at work."""

import importlib
from pathlib import Path

import _quant
import fp8_matmul_baseline as baseline
import pytest
import torch
from fp8_matmul_accuracy import accuracy

import perfci
from tests import triton_versions

pytestmark = pytest.mark.nightly
OP = "fp8_matmul"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
MODES = {"tensor": ("tensor", "tensor"), "row": ("row", "column"), "block": ("group", "block")}
# The interpreter truncates to bfloat16.
ROOM = {torch.float32: (1e-5, 1e-5), torch.float16: (1e-3, 1e-3), torch.bfloat16: (2**-7, 1e-3)}


def inputs(m, n, k, scaling="row", dtype=E4M3, out_dtype=torch.float32, **others):
    return baseline.make_inputs(m, n, k, scaling, dtype, out_dtype, "cpu", 5, **others)


def exact(made, scaling):
    a, b = ((made[name], made[f"scale_{name}"]) for name in "ab")
    if scaling not in MODES:
        of_k = len(made["b"])
        sizes = {-(-of_k // size): size for size in (4, 8, 16, 32, 64)}  # groups along k -> channels of each
        of_a, of_b = (torch.arange(of_k) // sizes[scale.shape[side]] for (_, scale), side in ((a, 1), (b, 0)))
        return (a[0].double() * a[1].double()[:, of_a]) @ (b[0].double() * b[1].double()[of_b])
    wide = [_quant.dequantize(*of, mode, dtype=torch.float64) for of, mode in zip((a, b), MODES[scaling], strict=True)]
    return wide[0] @ wide[1]


def check(module, made, scaling):
    got = module.fp8_matmul(**made)
    rtol, atol = ROOM[made["out_dtype"]]
    assert got.is_contiguous() and got.dtype == made["out_dtype"]
    wanted = exact(made, scaling)
    torch.testing.assert_close(got.double(), wanted, rtol=rtol, atol=atol * max(made["a"].shape[1], 1) ** 0.5)
    return got


@pytest.mark.parametrize("case", accuracy.cases, ids=perfci.case_id)
def test_the_reference_is_the_dequantised_product(case, suite):
    made = suite.make_inputs(**case, device="cpu", seed=7)
    wide = {name: value.float().double() if torch.is_tensor(value) else value for name, value in made.items()}
    got = baseline.fp8_matmul(**wide)

    assert got.dtype is torch.float64
    torch.testing.assert_close(got, exact(made, case["scaling"]), rtol=1e-12, atol=1e-9)


def test_a_device_without_float8_is_refused(module, only):
    only(float8=False, key="nvidia-a100")

    with pytest.raises(ValueError, match="nvidia-a100 has no tensor cores for float8"):
        module.fp8_matmul(**inputs(16, 16, 16))


@triton_versions.needs_descriptors
@pytest.mark.parametrize(
    ("edit", "tma"),
    [
        (lambda a, b: (a, b), True),
        (lambda a, b: (a, b.contiguous()), False),
        (lambda a, b: (a.t().contiguous().t(), b), False),
        (lambda a, b: (a[:, :47], b[:47]), True),
        (lambda a, b: (a[:, 1:], b[1:]), False),
        (lambda a, b: (a, b[:, :30]), False),
    ],
)
def test_descriptors_are_used_exactly_where_both_lie_along_k(edit, tma, module, monkeypatch):
    seen = []
    usual = module.choose_config
    monkeypatch.setattr(module, "choose_config", lambda *given: seen.append(given[-1]) or usual(*given))
    made = inputs(20, 32, 48, "tensor")
    a, b = edit(made["a"], made["b"])

    check(module, made | {"a": a, "b": b}, "tensor")
    assert seen == [tma]


@triton_versions.needs_descriptors
@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize(
    ("scaling", "block_n", "block_k"), [("row", 64, 32), ("row", 256, 128), ("block", 64, 32), ("block", 128, 128)]
)
def test_tiles_of_every_size_cover_the_product(scaling, block_n, block_k, split, module, only, monkeypatch):
    only(processors=2)
    config = module.Config(32, block_n, block_k, 2, 4, 2, persistent=True, tma=True, split=split)
    monkeypatch.setattr(module, "choose_config", lambda *_: config)

    check(module, inputs(70, 400, 272, scaling), scaling)


@triton_versions.needs_descriptors
def test_a_tile_wider_than_a_block_of_scales_is_refused(module, monkeypatch):
    config = module.Config(32, 256, 128, 2, 4, 2, persistent=True, tma=True)
    monkeypatch.setattr(module, "choose_config", lambda *_: config)

    with pytest.raises(Exception, match="columns of a tile are of one block"):
        check(module, inputs(70, 400, 272, "block"), "block")


@pytest.mark.parametrize(
    ("out_dtype", "kind"), [(torch.bfloat16, "fast"), (torch.float16, "precise"), (torch.float32, "precise")]
)
def test_only_bfloat16_leaves_the_whole_sum_to_tensor_cores(out_dtype, kind, module, monkeypatch):
    seen = []
    usual = module.choose_config
    monkeypatch.setattr(module, "choose_config", lambda *given: seen.append(given[3]) or usual(*given))

    module.fp8_matmul(**inputs(16, 16, 16, out_dtype=out_dtype))

    assert seen == [kind]


def test_the_table_beside_float16_has_what_each_way_costs_and_errs(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "benchmarks"))
    table = importlib.import_module("fp8_table")

    rows = {name: cells for name, *cells in table.rows(16, 16, 128, loud=True, device="cpu")}

    assert list(rows) == [
        "float16",
        "tensor",
        "row",
        "block",
        *(f"groups of {size}" for size in (64, 32, 16, 8, 4)),
        "auto: 32 and 64",
    ]
    memory = {name: float(cells[3]) for name, cells in rows.items()}
    errors = {name: float(cells[4].removesuffix("%")) for name, cells in rows.items()}
    assert memory["tensor"] == 0.5 < memory["auto: 32 and 64"] < memory["groups of 32"] < memory["groups of 4"] == 1
    assert (
        errors["float16"]
        < errors["groups of 4"]
        < errors["auto: 32 and 64"]
        < errors["groups of 64"]
        < errors["tensor"]
    )


def test_operands_may_have_groups_of_different_sizes_and_others_are_refused(module):
    left, right = torch.randn(5, 40), torch.randn(7, 40)
    a, b = (_quant.quantize(x, E4M3, "group", group=size) for x, size in ((left, 4), (right, 16)))
    exact = _quant.dequantize(*a[:2], "group", 4) @ _quant.dequantize(*b[:2], "group", 16).t()

    got = module.fp8_matmul(a.values, b.values.t(), a.scale, b.scale.t(), torch.float32)
    torch.testing.assert_close(got, exact, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="for groups of 4 to 64"):
        module.fp8_matmul(a.values, b.values.t(), a.scale, _quant.quantize(right, E4M3, "group", group=2).scale.t())
