"""Sides that follow from others, solved from what function and reference raise."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def torch_is_installed():
    pytest.importorskip("torch")


def solve(function: Callable[..., Any], reference: Callable[..., Any] | None = None, **given: Any) -> Any:
    """The shapes that are found, and what makes the numbers. given: a tensor as its number of axes."""
    from perfci.extensions.adopt.rehearsal.axes import Call, Form
    from perfci.extensions.adopt.rehearsal.dry_torch import Argument, DryTorch
    from perfci.extensions.adopt.rehearsal.solver import Tries, solve

    going = DryTorch("cuda")
    arguments = {
        name: Argument((64,) * len(value), "float32", None) if isinstance(value, list) else value
        for name, value in given.items()
    }
    with going.going():
        start = Form(function, reference or function, going)
        sides = solve(start, Call("", arguments, {}), Tries())
        form = sides and sides.make_form(start)[0]
    return form and (form.shapes, {name: text for name, text in form.inputs.items() if name not in form.shapes})


ONE, TWO, FOUR = [0], [0] * 2, [0] * 4


def test_checks_of_packed_weights_give_multiples_and_a_number() -> None:
    torch = pytest.importorskip("torch")

    def multiply(x: "torch.Tensor", w: "torch.Tensor", scales: "torch.Tensor", group_size: int) -> "torch.Tensor":
        assert x.shape[-1] == 8 * w.shape[0], "8 codes a number"
        assert x.shape[-1] % 16 == 0 and x.shape[-1] % 128 == 0
        if group_size % 128:
            raise ValueError
        return torch.empty(x.shape[0], w.shape[1])

    def reference(x: "torch.Tensor", w: "torch.Tensor", scales: "torch.Tensor", group_size: int) -> "torch.Tensor":
        return x @ (w.repeat_interleave(8, 0) * scales.repeat_interleave(group_size, 0))

    shapes, numbers = solve(multiply, reference, x=TWO, w=TWO, scales=TWO, group_size=64)
    assert shapes == {"x": "(rows, 128 * cols)", "w": "(16 * cols, w_cols)", "scales": "(cols, w_cols)"}
    assert numbers == {"group_size": "128"}


def test_errors_of_torch_give_heads_that_divide_others_and_numbers_of_axes() -> None:
    torch = pytest.importorskip("torch")

    def attend(q: "torch.Tensor", k: "torch.Tensor", heads: int) -> "torch.Tensor":
        batch, rows, _, _ = q.shape
        return torch.empty(batch, heads, rows, k.size(1))

    def reference(q: "torch.Tensor", k: "torch.Tensor", heads: int) -> "torch.Tensor":
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        return q @ k.repeat_interleave(heads // k.shape[1], 1).mT

    shapes, numbers = solve(attend, reference, q=TWO, k=FOUR, heads=64)
    assert shapes == {"q": "(batch, heads, rows * rows_, cols)", "k": "(batch, k_heads, rows, cols)"}
    assert numbers == {"heads": "rows * rows_"}


def test_what_is_flattened_keeps_its_last_sides_and_has_as_many_axes() -> None:
    torch = pytest.importorskip("torch")

    def mix(x: "torch.Tensor", gate: "torch.Tensor", turn: "torch.Tensor") -> "torch.Tensor":
        flat = x.view(-1, x.shape[-2], x.shape[-1])
        weights = gate.view(-1, flat.shape[1])
        mixed = turn.view(-1, flat.shape[1], flat.shape[1]) @ flat
        assert weights.shape[0] == mixed.shape[0]
        return mixed * weights[:, :, None]

    shapes, _ = solve(mix, x=[0] * 3, gate=ONE, turn=TWO)
    assert shapes == {"x": "(batch, rows, cols)", "gate": "(batch, rows)", "turn": "(batch, rows, rows)"}


def test_a_form_with_sides_of_1_is_no_better_than_one_with_axes_of_few_sizes() -> None:
    from perfci.extensions.adopt.rehearsal.axes import Form
    from perfci.extensions.adopt.rehearsal.dry_torch import DryTorch
    from perfci.extensions.adopt.rehearsal.search import Found
    from perfci.extensions.adopt.rehearsal.trial import Trial

    def make(*axes: str, little: dict[str, int]) -> Found:
        form = Form(max, max, DryTorch("cuda"), axes=axes, little=little)
        return Found(form, [], Trial(is_finite=True, picks=(0,), shares=(0.0,), launches=1), dry=True)

    wide, thin = make("rows", "cols", little={"rows": 2, "cols": 4}), make("cols", little={})
    assert not thin.is_better(wide)
    assert make("rows", "cols", little={}).is_better(wide)


def test_a_side_that_is_a_sum_is_given_to_another_tensor() -> None:
    torch = pytest.importorskip("torch")

    def place(x: "torch.Tensor", out: "torch.Tensor", frames: int) -> "torch.Tensor":
        assert x.shape[0] == frames * 16 + 1
        return out.copy_(x)

    shapes, numbers = solve(place, x=TWO, out=TWO, frames=64)
    assert (shapes, numbers) == (dict.fromkeys(("x", "out"), "(16 * rows + 1, cols)"), {"frames": "rows"})


def test_a_tensor_whose_elements_have_to_lie_side_by_side_along_another_axis_is_laid_so() -> None:
    torch = pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.axes import Call, Form
    from perfci.extensions.adopt.rehearsal.dry_torch import Argument, DryTorch
    from perfci.extensions.adopt.rehearsal.solver import Tries, solve

    def convolve(x: "torch.Tensor") -> "torch.Tensor":
        if not (x.stride(1) == 1) & (x.stride(2) > 1):
            raise AssertionError
        return x * 2

    going = DryTorch("cuda")
    with going.going():
        sides = solve(
            start := Form(convolve, convolve, going), Call("", {"x": Argument((64,) * 3, "float32", None)}, {}), Tries()
        )
        text = sides.make_form(start)[0].inputs["x"]
    assert "(batch, rows, cols)" in text and text.endswith(".transpose(1, -1).contiguous().transpose(1, -1)")


def test_uneven_parts_of_a_side_give_a_multiple_and_what_is_unpacked_a_size() -> None:
    torch = pytest.importorskip("torch")

    def gate(x: "torch.Tensor", bias: "torch.Tensor") -> "torch.Tensor":
        left, right = x.chunk(2, -1)
        return left * right + bias

    assert solve(gate, x=TWO, bias=ONE)[0] == {"x": "(rows, 2 * cols)", "bias": "(cols,)"}

    def gray(image: "torch.Tensor") -> "torch.Tensor":
        red, green, blue = image.unbind(1)
        return red + green + blue

    assert solve(gray, image=FOUR)[0] == {"image": "(batch, 3, rows, cols)"}


def test_outputs_of_other_sizes_give_what_they_have_in_common() -> None:
    torch = pytest.importorskip("torch")

    def of_weight(x: "torch.Tensor", w: "torch.Tensor") -> "torch.Tensor":
        return torch.empty(x.shape[0], w.shape[0])

    assert solve(of_weight, lambda x, w: x, x=TWO, w=ONE)[0] == {"x": "(rows, cols)", "w": "(cols,)"}


def test_a_size_that_is_looked_for_in_a_set_is_a_usual_one_and_no_form_has_such_sizes_alone() -> None:
    torch = pytest.importorskip("torch")

    def score(q: "torch.Tensor", k: "torch.Tensor") -> "torch.Tensor":
        if q.shape[-1] not in {16, 32, 64, 128}:
            raise ValueError
        return q @ k.mT

    def whole(x: "torch.Tensor") -> "torch.Tensor":
        if x.shape[0] not in {64}:
            raise ValueError
        return x

    assert solve(score, q=TWO, k=TWO)[0] == {"q": "(rows, 64)", "k": "(k_rows, 64)"}
    assert not solve(whole, x=ONE)


def test_sizes_that_are_looked_for_many_times_over_are_repaired_as_if_it_were_once() -> None:
    pytest.importorskip("torch")
    from perfci.extensions.adopt.rehearsal.axes import Call
    from perfci.extensions.adopt.rehearsal.dry_torch import Argument
    from perfci.extensions.adopt.rehearsal.sizes import Trace
    from perfci.extensions.adopt.rehearsal.solver import _PRIMES, Cause, _list_repairs, begin

    sides = begin(Call("", {"x": Argument((64,) * 6, "float32", None)}, {}))

    def repair(times: int) -> list[Any]:
        trace = Trace()
        trace.notes += [("in", size, 0) for size in (_PRIMES[0], 96)] * times  # 37 + 59, 43 + 53
        return [*itertools.islice(_list_repairs(sides, Cause(trace, ValueError())), 1000)]

    assert [one.key for one in repair(15)] == [one.key for one in repair(1)]


def test_a_call_that_no_sizes_repair_is_not_solved() -> None:
    torch = pytest.importorskip("torch")

    def refuse(x: "torch.Tensor") -> "torch.Tensor":
        raise RuntimeError("not on this device")

    assert solve(refuse, x=TWO) is None


def test_a_tensor_that_a_function_takes_for_a_number_has_no_axes_and_sizes_of_one_set_are_one() -> None:
    def look_up(x, table, weight, bias):
        if len({*table.shape[1:3]}) != 1:
            raise ValueError("table must have shape (N, L, L)")
        return x * weight.item() + bias.item()

    shapes, _ = solve(look_up, x=ONE, table=[0] * 3, weight=ONE, bias=ONE)

    assert shapes == {"x": "(size,)", "table": "(table_batch, table_rows, table_rows)", "weight": "()", "bias": "()"}


def test_groups_have_a_listed_size_rather_than_that_of_all() -> None:
    def scale_groups(x, scales):
        rows, group = x.shape[0], x.shape[0] // scales.shape[0]
        if scales.shape != (rows // group, x.shape[1]) or not (group in [32, 64, 128] or group == rows):
            raise ValueError
        return x * scales.repeat_interleave(group, 0)

    shapes, _ = solve(scale_groups, x=TWO, scales=TWO)

    assert shapes == {"x": "(128 * rows, cols)", "scales": "(rows, cols)"}


def test_a_size_that_is_looked_for_in_a_set_is_one_of_it_whatever_numbers_the_error_names() -> None:
    def attend(q, k, v):
        if not q.shape[-1] == k.shape[-1] == v.shape[-1]:
            raise ValueError
        if k.shape[-1] not in {16, 32, 64, 128}:
            raise ValueError("only 16, 32, 64, 128, 256 and 512")
        return (q @ k.mT).softmax(-1) @ v

    shapes, _ = solve(attend, q=FOUR, k=FOUR, v=FOUR)

    assert {shape.split(", ")[-1] for shape in shapes.values()} == {"64)"}


def test_halves_of_every_second_element_give_an_even_side() -> None:
    torch = pytest.importorskip("torch")

    def turn(x: "torch.Tensor") -> "torch.Tensor":
        return torch.stack([-x[:, 1::2], x[:, ::2]], -1).flatten(-2)

    shapes, _ = solve(turn, x=TWO)
    assert shapes == {"x": "(rows, 2 * cols)"}
