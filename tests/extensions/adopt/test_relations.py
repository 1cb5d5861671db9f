"""Sides and integers that depend on each other, as calls show them."""

import inspect
from collections import deque
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def torch_is_installed():
    pytest.importorskip("torch")


def test_offsets_end_where_the_axis_that_they_cut_ends() -> None:
    torch = pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.axes import Form
    from perfci.extensions.adopt.rehearsal.dry_torch import DryTorch
    from perfci.extensions.adopt.rehearsal.relations import WHOLE, settle

    def multiply(x: "torch.Tensor", offsets: "torch.Tensor", w: "torch.Tensor") -> "torch.Tensor":
        assert offsets[0] == 0
        assert offsets[-1] == len(x)
        return torch.cat([x[a:b] @ w[i] for i, (a, b) in enumerate(pairwise(offsets.tolist()))])

    shapes = {"x": "(rows, cols)", "offsets": "(size,)", "w": "(batch, w_rows, w_cols)"}
    dense = "torch.randn({}, generator=generator, dtype=dtype, device=device)"
    inputs = {name: dense.format(shape) for name, shape in shapes.items()}
    inputs["offsets"] = WHOLE.format(shape="(size,)", dtype="torch.int64")
    axes = ("rows", "cols", "size", "batch", "w_rows", "w_cols")
    going = DryTorch("cuda")
    with going.going():
        form = next(settle(Form(multiply, multiply, going, axes, shapes, inputs, "float32")))
    assert form.shapes["x"] == "(rows, cols)"
    assert form.shapes["w"].endswith("cols, w_cols)")
    assert "linspace(0, rows, " in form.inputs["offsets"]


def test_a_call_that_asks_for_too_much_memory_is_refused() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("resource")
    from perfci.extensions.adopt.rehearsal.trial import try_call

    def spread(x: "torch.Tensor") -> "torch.Tensor":
        return torch.zeros(x.numel() << 31).sum() + x

    trial = try_call(spread, spread, {"x": torch.ones(2)}, 3.0)
    assert "memory" in (trial.problem or "")
    assert try_call(torch.neg, torch.neg, {"x": torch.ones(2)}, 3.0).agrees


def test_a_form_in_which_every_side_is_a_number_is_none() -> None:
    """An eighth of 16: no axis is left for which cases could have sizes."""
    torch = pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.axes import Form
    from perfci.extensions.adopt.rehearsal.dry_torch import DryTorch
    from perfci.extensions.adopt.rehearsal.relations import settle

    def double(x: "torch.Tensor") -> "torch.Tensor":
        assert len(x) == 2
        return 2 * x

    inputs = {"x": "torch.randn((size,), generator=generator, dtype=dtype, device=device)"}
    going = DryTorch("cuda")
    with going.going():
        assert not [*settle(Form(double, double, going, ("size",), {"x": "(size,)"}, inputs, "float32"))]


def test_an_axis_of_a_side_that_is_a_sum_stays_one() -> None:
    torch = pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.axes import Form
    from perfci.extensions.adopt.rehearsal.dry_torch import DryTorch
    from perfci.extensions.adopt.rehearsal.relations import settle

    def double(x: "torch.Tensor") -> "torch.Tensor":
        return 2 * x

    going, shapes = DryTorch("cuda"), {"x": "(16 * rows + 1, cols)"}
    inputs = {"x": f"torch.randn({shapes['x']}, generator=generator, dtype=dtype, device=device)"}
    with going.going():
        found = next(settle(Form(double, double, going, ("rows", "cols"), shapes, inputs, "float32")))
    assert (found.axes, found.shapes) == (("rows", "cols"), shapes)


def test_sides_that_no_time_is_left_to_take_apart_are_no_form() -> None:
    torch = pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.axes import Form
    from perfci.extensions.adopt.rehearsal.dry_torch import DryTorch
    from perfci.extensions.adopt.rehearsal.relations import settle

    going = DryTorch("cuda")

    def multiply(x: "torch.Tensor", w: "torch.Tensor") -> "torch.Tensor":
        going.until = 0.0
        return x @ w

    shapes = {"x": "(rows, cols)", "w": "(w_rows, w_cols)"}
    inputs = {
        name: f"torch.randn({shape}, generator=generator, dtype=dtype, device=device)" for name, shape in shapes.items()
    }
    with going.going():
        assert not [
            *settle(Form(multiply, multiply, going, ("rows", "cols", "w_rows", "w_cols"), shapes, inputs, "float32"))
        ]


def test_launches_end_by_the_count_of_their_accesses_and_not_by_a_clock() -> None:
    pytest.importorskip("triton")
    import numpy as np

    from perfci.extensions.adopt.rehearsal.trial import _Accesses

    accesses, nothing = _Accesses({}, 1.0), np.zeros(0, np.int64)
    for _ in range(1600):
        accesses.note_launch(nothing, True, reads=True)
    with pytest.raises(TimeoutError):
        deque(accesses.note_launch(nothing, True, reads=True) for _ in range(80))


def test_texts_of_function_and_reference_tell_numbers_and_axes() -> None:
    pytest.importorskip("triton")
    from perfci.extensions.adopt.rehearsal.uses import read_uses
    from tests.extensions.adopt.tried_kernels import spread_rows, spread_rows_reference

    uses = read_uses(spread_rows, inspect.signature(spread_rows), spread_rows_reference)
    assert {name for name, use in uses.items() if use.is_tensor} == {"x", "bounds", "out"}
    assert {name for name, use in uses.items() if use.is_size} == {"longest", "pieces", "turns"}
    assert uses["out"].least == 2
    assert uses["bounds"].is_whole


def test_bytes_of_which_a_kernel_takes_bits_have_all_of_them() -> None:
    pytest.importorskip("triton")
    from perfci.extensions.adopt.rehearsal.search import _list_tensors
    from perfci.extensions.adopt.rehearsal.uses import read_uses
    from tests.extensions.adopt.tried_kernels import read_codes

    uses = read_uses(read_codes, inspect.signature(read_codes))
    assert [name for name, use in uses.items() if use.is_packed] == ["packed"]
    _, first = next(_list_tensors(uses["packed"], is_first=True))
    assert first.dtype == "uint8"
    assert "randint(0, 256, " in (first.text or "")
    assert uses["index"].is_whole


def test_what_a_function_converts_to_floats_has_fractions() -> None:
    pytest.importorskip("triton")
    from perfci.extensions.adopt.rehearsal.uses import read_uses
    from tests.extensions.adopt.tried_kernels import read_between

    assert not read_uses(read_between, inspect.signature(read_between))["place"].is_whole


def test_what_is_multiplied_after_bits_were_taken_is_neither_packed_nor_whole() -> None:
    pytest.importorskip("triton")
    from perfci.extensions.adopt.rehearsal.uses import read_uses
    from tests.extensions.adopt.tried_kernels import scale_codes

    uses = read_uses(scale_codes, inspect.signature(scale_codes))
    assert uses["packed"].is_packed
    assert not uses["scales"].is_packed
    assert not uses["scales"].is_whole


def test_what_is_added_to_a_sum_beside_a_block_pointer_is_no_place_and_a_kernels_docstring_has_axes() -> None:
    pytest.importorskip("triton")
    from perfci.extensions.adopt.rehearsal.uses import read_uses
    from tests.extensions.adopt.tried_kernels import dot_rows

    uses = read_uses(dot_rows, inspect.signature(dot_rows))
    assert not any(use.is_whole for use in uses.values())
    assert (uses["y"].rank, uses["y"].fixed) == (2, {0: 1})


def test_tensors_at_the_same_places_have_as_many_axes() -> None:
    pytest.importorskip("triton")
    from perfci.extensions.adopt.rehearsal.uses import read_uses
    from tests.extensions.adopt.tried_kernels import add_rows

    uses = read_uses(add_rows, inspect.signature(add_rows))
    assert [uses[name].rank for name in ("x", "y", "weight", "bias")] == [3, 3, None, 4]
    assert uses["x"].like == uses["y"].like != uses["weight"].like


def test_what_is_mostly_unread_may_have_sides_of_the_first_tensor() -> None:
    pytest.importorskip("triton")
    from perfci.extensions.adopt.rehearsal.axes import Form
    from perfci.extensions.adopt.rehearsal.search import _list_parts
    from perfci.extensions.adopt.rehearsal.trial import Trial

    shapes = {"x": "(rows, heads, 2 * cols)", "cos": "(cos_rows, cos_cols)"}
    form = Form(None, None, None, ("rows", "heads", "cols", "cos_rows", "cos_cols"), shapes, shapes)
    parts = [*_list_parts(form, Trial(unread=("cos",)))]
    assert [part.shapes["cos"] for part in parts] == ["(rows, heads)", "(rows, 2 * cols)", "(heads, 2 * cols)"]
    assert {part.axes for part in parts} == {("rows", "heads", "cols")}


def test_a_case_whose_places_the_reference_refuses_is_left_out() -> None:
    torch = pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.axes import Argument, Call, Form
    from perfci.extensions.adopt.rehearsal.cases import _list_cases
    from perfci.extensions.adopt.rehearsal.dry_torch import DryTorch

    def pick(x: "torch.Tensor", index: "torch.Tensor", dim: int) -> "torch.Tensor":
        return torch.gather(x, dim, index)

    shapes = {"x": "(rows, cols)", "index": "(rows, few)"}
    inputs = {
        "x": "torch.randn((rows, cols), generator=generator, dtype=dtype, device=device)",
        "index": "torch.randn((rows, few), generator=generator, device=device).argsort(0)",
        "dim": "0",
    }
    given = {"x": Argument((10, 5), "float32", None), "index": Argument((10, 2), "int64", None)}
    calls = [Call("accuracy", {**given, "dim": dim}, {}) for dim in (0, 1)]
    form = Form(pick, pick, DryTorch("cuda"), ("rows", "cols", "few"), shapes, inputs, "float32")

    assert [case["dim"] for case in _list_cases(form, ("dim",), calls)] == ["0"]


def test_a_kernel_for_many_rows_gets_a_case_though_it_has_some_thousand_programs() -> None:
    pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.cases import _find_kernels

    def launch(point: dict[str, int], alone: bool) -> SimpleNamespace:
        few = point["rows"] < 1 << 15
        source, programs = ("row", point["rows"]) if few else ("rows", point["rows"] // 16)
        return SimpleNamespace(launches=[SimpleNamespace(source=source)], programs=programs if alone else 0)

    form: Any = SimpleNamespace(
        axes=("rows", "cols"), little={}, sample={}, has_places=False, inputs={}, rehearsal=SimpleNamespace(most_s=1.0),
        try_case=launch, count_elements=lambda point: point["rows"] * point["cols"],
        run=lambda _: SimpleNamespace(agrees=True, seconds=3.0),
    )  # fmt: skip

    assert _find_kernels([form], [{"rows": 3, "cols": 5}], {}, ()) == [{"rows": ("32769",), "cols": ("3",)}]


def test_kernels_for_memory_in_one_piece_of_an_op_with_places_get_cases_with_one_long_axis_and_others_of_one() -> None:
    pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.cases import _find_kernels

    def launch(point: dict[str, int], alone: bool) -> SimpleNamespace:
        sources = ["strided"] if point["rows"] > 1 else ["column", "parts"] if point["cols"] > 4096 else ["column"]
        return SimpleNamespace(launches=[SimpleNamespace(source=one) for one in sources], programs=2 if alone else 0)

    form: Any = SimpleNamespace(
        axes=("rows", "cols"), little={}, sample={}, has_places=True, inputs={}, rehearsal=SimpleNamespace(most_s=1.0),
        try_case=launch, count_elements=lambda point: point["rows"] * point["cols"],
        run=lambda _: SimpleNamespace(agrees=True, seconds=0.5),
    )  # fmt: skip

    found = _find_kernels([form], [{"rows": 3, "cols": 5}], {}, ())

    assert found == [{"rows": ("1",), "cols": (size,)} for size in ("129", "4097")]


def test_a_file_with_a_branch_for_bfloat16_gets_cases_of_it() -> None:
    pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.function import _choose_dtypes

    counts, multiplies = "def count(x):\n    n = tl.zeros([4], tl.int32)", "def multiply(x):\n    y = tl.dot(x, x)"
    assert _choose_dtypes(f"{counts}\n{multiplies}", "") == ("float16", "bfloat16")  # another kernel's integers
    assert _choose_dtypes("maximum(x, y)", "x = x.to(torch.bfloat16)") == ("float32", "float16")
    for branch in (
        "if X.dtype == tl.bfloat16:",
        "acc = f32 if dtype is tl.bfloat16 else dtype",
        "if x.dtype.is_bf16():",
    ):
        assert _choose_dtypes("maximum(x, y)", branch) == ("float32", "float16", "bfloat16")


def test_a_number_that_may_be_left_out_is_an_option_with_none_and_a_fraction_one_with_another() -> None:
    pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.variants import list_options

    def clamp(
        x: float, low: float | None = None, high: float | None = None, by: float = 1.0, mode: str = "one"
    ) -> None: ...

    inputs = {"x": "torch.randn((size,))", "low": "0.5", "high": "None", "by": "2.0"}
    found = SimpleNamespace(texts=("x", "low", "high=high", "by"), form=SimpleNamespace(inputs=inputs))
    listed = [("low", 0.5, None), ("low", 0.5, 0.25), ("by", 2.0, 1.0)]
    text = '_modes = {\n    "one": 1,\n    "two": 2,\n}\n\nassert mode in _modes, f"Invalid mode: {mode}"\n'
    assert [*list_options("", inspect.signature(clamp), found)] == listed  # type: ignore[arg-type]
    modes = [*list_options(text, inspect.signature(clamp), found)]  # type: ignore[arg-type]
    assert modes == [*listed, ("mode", "one", "two")]


def test_of_overloads_that_which_gives_most_of_the_functions_parameters_comes_first() -> None:
    pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.function import _sort_overloads
    from perfci.extensions.adopt.rehearsal.operators import find_operators

    candidates = find_operators("std")
    assert _sort_overloads(candidates, {"x"}) == candidates
    assert _sort_overloads(candidates, {"x", "dim", "correction", "keepdim"})[0].path.endswith("std.correction")


def test_an_option_with_which_both_sides_write_into_an_argument_is_a_case() -> None:
    torch = pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.axes import Form
    from perfci.extensions.adopt.rehearsal.dry_torch import DryTorch
    from perfci.extensions.adopt.rehearsal.variants import add_options
    from perfci.extensions.adopt.sketch import Suites

    def centre(x: "torch.Tensor", mean: "torch.Tensor", training: bool = False) -> "torch.Tensor":
        if training:
            mean.copy_(x.mean(0))
        return x - mean

    made = "torch.randn({}, generator=generator, dtype=dtype, device=device)"
    shapes = {"x": "(rows, cols)", "mean": "(cols,)"}
    inputs = {name: made.format(shape) for name, shape in shapes.items()}
    form = Form(centre, centre, DryTorch("cuda"), ("rows", "cols"), shapes, inputs, "float32")
    found: Any = SimpleNamespace(form=form, trial=form.run(form.small))
    suites = Suites("centre", {"rows": "int", "cols": "int"}, inputs, ("float32",))
    suites, look = add_options("centre", suites, found, [("training", False, True)], found, None)

    assert not look
    assert [case["training"] for case in suites.more] == ["True"]
    assert suites.accuracy == ("mutates=('mean',),",)


def test_samples_of_images_get_sides_of_unlike_lengths() -> None:
    torch = pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.axes import Form
    from perfci.extensions.adopt.rehearsal.dry_torch import DryTorch
    from perfci.extensions.adopt.rehearsal.variants import grow_samples
    from perfci.extensions.adopt.sketch import Suites

    def convolve(x: "torch.Tensor", w: "torch.Tensor") -> "torch.Tensor":
        return torch.conv2d(x, w)

    made = "torch.randn({}, generator=generator, dtype=dtype, device=device)"
    inputs = {"x": made.format("x_shape"), "w": made.format("w_shape")}
    sample = {"x_shape": (1, 1, 4, 4), "w_shape": (1, 1, 4, 4)}
    shapes = {"x": "x_shape", "w": "w_shape"}
    form = Form(convolve, convolve, DryTorch("cuda"), (*sample,), shapes, inputs, "float32", sample=sample)
    suites = grow_samples(Suites("convolve", dict.fromkeys(sample, "tuple[int, ...]"), inputs, ("float32",)), form)

    assert [case["x_shape"] for case in suites.more][:2] == ["(2, 1, 10, 14)", "(2, 1, 14, 10)"]
    assert {case["w_shape"] for case in suites.more[:2]} == {"(1, 1, 4, 4)"}
