"""Sides and integers that depend on each other, as calls show them."""

from itertools import pairwise

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def torch_without_npu(monkeypatch):
    """A name that torch has once it keeps, and torch.compile then looks for torch.npu in the tests that follow."""
    pytest.importorskip("torch")
    monkeypatch.setattr("perfci.extensions.adopt.rehearsal.dry_torch.name_npu", lambda: None)


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


def test_a_scale_for_each_block_has_as_many_sides_as_blocks() -> None:
    torch = pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.axes import Form
    from perfci.extensions.adopt.rehearsal.dry_torch import DryTorch
    from perfci.extensions.adopt.rehearsal.relations import settle

    def scale(x: "torch.Tensor", s: "torch.Tensor", block_size: int = 64) -> "torch.Tensor":
        assert len(s) == -(-len(x) // block_size)
        return x * s.repeat_interleave(block_size)[: len(x)]

    shapes = {"x": "(size,)", "s": "(s_size,)"}
    inputs = {
        name: f"torch.randn({shape}, generator=generator, dtype=dtype, device=device)" for name, shape in shapes.items()
    }
    going = DryTorch("cuda")
    with going.going():
        form = next(settle(Form(scale, scale, going, ("size", "s_size"), shapes, inputs, "float32")))
    assert form.shapes == {"x": "(size,)", "s": "(-(-size // 64),)"}


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
