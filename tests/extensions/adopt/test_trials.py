"""How a function is called is found by calls in Triton's interpreter. What these do not confirm is not ready."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from perfci.extensions.adopt.sketch import Sketch, SketchFiles, draft
from tests.extensions.adopt.rehearsing import Rehearsals, rehearse

SOURCE = Path(__file__).parent / "tried_kernels.py"
READY = {
    "scaled": "scaled_reference",
    "double_into": "double_reference",
    "double_here": "double_reference",
    "double_and_sizes": "double_reference",
    "double_for_cuda": "double_reference",
    "hidden_names": "double_reference",
    "double_by_name": "double_reference",
    "twice": "double_reference",
    "polynomial": "polynomial_reference",
    "logarithm": "torch.log",
    "halves": "halves_reference",
    "picked": "picked_reference",
    "mean_double": "mean_reference",
    "centred": "centred_reference",
    "put": "put_reference",
    "put_lanes": "put_reference",
    "put_columns": "put_columns_reference",
    "accumulate": "accumulate_reference",
    "keep": "keep_reference",
    "largest": "largest_reference",
    "paired": "paired_reference",
    "registered": "registered_reference",
    "cast": "cast_reference",
    "masked": "masked_reference",
    "state_times": "state_times_reference",
    "spread_nan": "spread_nan_reference",
    "double_after": "double_reference",
    "gated": "gated_reference",
    "to_float8": "to_float8_reference",
    "tiled": "tiled_reference",
    "where_positive": "where_positive_reference",
    "rows_of": "rows_of_reference",
    "doubled_rows": "doubled_rows_reference",
    "sum_pieces": "sum_pieces_reference",
    "rise": "rise_reference",
    "DoubledInto": "double_out_reference",
    "scale_halves": "scale_halves_reference",
    "store_rows": "store_rows_reference",
    "double_source": "double_source_reference",
    "double_whole": "double_whole_reference",
    "count_up": "count_up_reference",
    "double_by_place": "double_reference",
    "double_singly": "double_reference",
    "double_wide": "double_reference",
    "scaled_over": "scaled_over_reference",
    "scaled_by_number": "scaled_by_number_reference",
    "double_colours": "double_reference",
    "add_words": "add_words_reference",
    "add_bytes": "add_bytes_reference",
}
"""function -> reference"""
DAILY = {
    *("DoubledInto", "accumulate", "count_up", "double_and_sizes", "double_for_cuda", "double_here", "double_into"),
    *("double_source", "double_whole", "halves", "largest", "logarithm", "mean_double", "picked", "rise", "scaled"),
    *("spread_nan", "where_positive"),
}
"""Those of which other tests of the day ask more: each takes a second."""
NIGHTLY = pytest.mark.nightly

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    pairs = {**{f"op_{name}": (name, reference) for name, reference in READY.items()}, "wrong": ("scaled", "triple")}
    pairs["kept"] = "kept", "kept_reference"
    pairs["numbers"] = "double_and_sizes", "double_numbers"
    pairs["powers"] = "double_powers", "double_reference"
    pairs["copied"] = "copied", "torch.clone"
    pairs["unpack"] = "unpack", "unpack_reference"
    pairs["double_rows"] = "double_rows", "double_rows_reference"
    pairs["larger_blocks"] = "double_in_larger_blocks", "double_reference"
    pairs["count"] = "count", "count_reference"
    pairs["chained"] = "attend", "attend_reference"
    pairs["off_in_halves"] = "double_less_in_halves", "double_reference"
    pairs["random"] = "double_some", "double_some_reference"
    pairs["slow"] = "slow", "double_reference"
    pairs["other"] = "double_and_sizes", "triple"
    pairs["step_off"] = "round_up", "round_down_reference"
    pairs["rounds"] = "grow", "grow_reference"
    pairs["first_alone"] = "double_first", "double_reference"
    pairs["few_places"] = "pick_few", "pick_few_reference"
    sides = {
        op: SketchFiles(str(SOURCE), name, None, reference, None if reference.startswith("torch.") else str(SOURCE))
        for op, (name, reference) in pairs.items()
    }
    for op, name in {"op_back": "Doubled", "no_gradient": "double_and_sizes"}.items():
        sides[op] = SketchFiles(str(SOURCE), name, None, "double_reference", str(SOURCE), backward=True)
    sides["op_shifted"] = SketchFiles(str(SOURCE), "Shifted", None, "shifted_reference", str(SOURCE), backward=True)
    sides["op_weighted"] = SketchFiles(str(SOURCE), "Weighted", None, "weighted_reference", str(SOURCE), backward=True)
    sides["ends_early"] = SketchFiles(
        str(SOURCE), "DoubledUnlessOnes", None, "double_reference", str(SOURCE), backward=True
    )
    for op, backward in {"op_weighed": False, "weighed_back": True}.items():
        sides[op] = SketchFiles(str(SOURCE), "Weighed", None, "weighed_reference", str(SOURCE), backward=backward)
    sides |= {op: SketchFiles(str(SOURCE), op) for op in ("cat", "cumsum", "logical_not", "neg")}
    sides["amax"] = SketchFiles(str(SOURCE), "amax")
    sides["repeat"] = SketchFiles(str(SOURCE), "repeat")
    sides["named"] = SketchFiles(str(SOURCE), "rms_norm")
    wanted = {op: (op, files) for op, files in sides.items()}
    return Rehearsals(wanted, hopeless=("count", "other", "random", "slow", "step_off", "wrong"))


def kinds(sketch: Sketch) -> set[str]:
    return {reason.kind for reason in sketch.look}


def written(sketch: Sketch, side: str) -> str:
    """One of the op's files."""
    return draft("op", sketch, []).texts[side]


def test_what_a_kernel_truncates_holds_integers(said):
    assert said["op_count_up"].suites.inputs["counts"].startswith("torch.randint(")


@NIGHTLY
def test_integers_of_32_bits_that_are_a_step_off_are_not_ready(said):
    assert not said["step_off"].is_ready
    shares = [note.facts["share"] for note in said["step_off"].look if note.kind == "look_differs"]
    assert shares and min(shares) >= 0.001  # few are not told as 0.0 %


@NIGHTLY
def test_a_case_launches_few_programs(said):
    (case, *_) = said["op_double_singly"].suites.cases
    assert int(case["rows"]) * int(case["cols"]) <= 128


@NIGHTLY
def test_an_output_with_other_strides_than_those_of_torchs_operator_is_named(said):
    (reason,) = [reason for reason in said["neg"].look if reason.kind == "look_strides"]
    assert said["neg"].is_ready
    assert reason.facts["given"] != reason.facts["expected"]
    assert "look_strides" not in kinds(said["cumsum"])


@NIGHTLY
def test_no_case_is_one_in_which_the_function_launches_no_kernel(said):
    sizes = [size for grid in said["op_double_wide"].suites.edges for size in grid["cols"]]
    assert "127" in sizes
    assert "1" not in sizes


@NIGHTLY
def test_a_shape_that_is_an_argument_follows_an_axis(said):
    assert said["op_scaled_over"].suites.inputs["normalized_shape"] == "(cols,)"


def test_integers_that_agree_in_a_small_case_alone_are_not_ready(said):
    assert kinds(said["few_places"]) >= {"look_fails"}


def test_what_rounds_too_much_in_a_case_of_the_suite_alone_is_not_ready(said):
    fails, wrong = said["rounds"].look[:2]
    assert (fails.kind, wrong.kind) == ("look_fails", "wrong_values")
    assert "float16" in wrong.facts["case"]


@pytest.mark.parametrize("name", [name if name in DAILY else pytest.param(name, marks=NIGHTLY) for name in READY])
def test_a_function_that_agrees_with_its_reference_is_ready(said, name):
    assert {reason.kind for reason in said[f"op_{name}"].look} & {"look_integers", "look_refused"} == set()
    assert said[f"op_{name}"].is_ready


def test_a_number_without_annotation_and_a_tensor_of_fewer_axes_are_told_from_tensors(said):
    inputs = said["op_scaled"].suites.inputs
    assert inputs["eps"] == "1e-06"
    assert inputs["weight"].startswith("torch.randn((cols,)")


@NIGHTLY
def test_slots_of_a_cache_of_blocks_are_there_once_each_and_what_has_one_size_has_one_axis(said):
    inputs = said["op_store_rows"].suites.inputs
    assert inputs["x"].startswith("torch.randn((rows, cols), ")
    assert inputs["slots"].startswith("torch.randperm(rows, ")
    assert re.match(r"torch\.randn\(\(\w+, cache_rows, cols\), ", inputs["cache"])


def test_a_dtype_that_is_asserted_and_a_word_that_is_compared_are_given(said):
    sketch = said["op_double_source"]
    assert sketch.suites.dtypes == ("bfloat16",)
    assert sketch.suites.inputs["kind"] == "'twice'"


def test_a_parameter_does_not_hide_the_function_that_is_imported(said):
    texts = draft("op", said["op_double_source"], []).texts
    assert "import double_source as source_\n" in texts["triton"]
    assert "source_(source, kind)" in texts["triton"].replace("_call(", "source_(")


def test_what_is_written_into_holds_whole_numbers_if_the_reference_makes_them(said):
    assert "dtype=torch.int" in said["op_double_whole"].suites.inputs["out"]


@NIGHTLY
def test_packed_numbers_are_in_words_where_a_kernel_takes_a_ninth_bit_and_else_in_bytes(said):
    texts = [said[op].suites.inputs["codes"] for op in ("op_add_words", "op_add_bytes")]
    assert "torch.randint(-(1 << 31), 1 << 31, (rows, cols), generator=generator, dtype=torch.int32" in texts[0]
    assert "torch.randint(0, 256, (rows, cols), generator=generator, dtype=torch.uint8" in texts[1]


@NIGHTLY
def test_a_function_that_gives_its_input_back_without_a_look_at_it_is_not_ready(said):
    assert not said["kept"].is_ready
    assert "look_unread" in {reason.kind for reason in said["kept"].look}


def test_what_a_function_writes_into_is_named_and_the_reference_writes_it_too(said):
    assert "mutates=('out',)," in said["op_double_into"].suites.accuracy
    assert "return out.copy_(source(x))" in written(said["op_double_into"], "baseline")
    assert "mutates=('x',)," in said["op_double_here"].suites.accuracy


def test_what_the_kernel_writes_and_the_reference_returns_is_written_by_both(said):
    assert "    return source(x, state)[0]\n" in written(said["op_accumulate"], "triton")
    assert "    return (made[0], state.copy_(made[1]))[0]\n" in written(said["op_accumulate"], "baseline")


def test_a_tensor_that_is_written_into_and_given_back_is_one_output(said):
    assert "mutates=('out',)," in said["op_DoubledInto"].suites.accuracy
    assert written(said["op_DoubledInto"], "triton").endswith("    source.apply(x, out)\n    return out\n")


def test_outputs_that_the_reference_does_not_give_are_left_out(said):
    assert written(said["op_double_and_sizes"], "triton").endswith("    return source(x, is_fast)[0]\n")


def test_packed_halves_are_one_axis(said):
    assert said["op_halves"].suites.inputs["x"].startswith("torch.randn((rows, 2 * cols)")


def test_labels_are_integers_below_the_axis_that_they_point_into(said):
    assert said["op_picked"].suites.inputs["labels"].startswith("torch.randint(0, cols, (rows,), ")
    assert "look_integers" not in {reason.kind for reason in said["op_picked"].look}


def test_a_function_that_asks_for_a_device_in_a_helper_gets_it(said):
    assert said["op_double_for_cuda"].kernel.device == "cuda"
    assert said["op_double_into"].kernel.device is None


@NIGHTLY
def test_a_tensor_of_a_fixed_size_and_one_of_a_single_number_are_told_from_rows(said):
    inputs = said["op_polynomial"].suites.inputs
    assert inputs["w"].startswith("torch.randn((2,)")
    assert inputs["b"].startswith("torch.randn((1,)")
    assert inputs["mode"] == "None"
    assert "return source(x, w, b)[0]\n" in written(said["op_polynomial"], "baseline")


def test_inputs_on_which_the_reference_is_nan_are_made_where_it_is_not(said):
    assert said["op_logarithm"].suites.inputs["x"].startswith("torch.rand((rows, cols)")
    assert "domain=(0.0, None)," in said["op_logarithm"].suites.accuracy


def test_a_size_of_which_the_reference_makes_nan_is_no_case(said):
    assert "0" not in [size for grid in said["op_mean_double"].suites.edges for size in grid["rows"]]
    assert "0" in [size for grid in said["op_scaled"].suites.edges for size in grid["rows"]]


@NIGHTLY
def test_places_that_are_stored_to_are_there_once_each(said):
    assert said["op_put"].suites.inputs["places"].startswith("torch.randperm(rows, ")
    assert said["op_put_lanes"].suites.inputs["places"].startswith("torch.randperm(size, ")
    assert said["op_put_columns"].suites.inputs["places"].endswith(".argsort(0).to(torch.int64)")
    # A row of places that is repeated would be one place.
    (layouts,) = [line for line in said["op_put"].suites.accuracy if line.startswith("layouts")]
    assert "expanded" not in layouts


@NIGHTLY
def test_outputs_of_which_the_values_decide_the_size_are_compared_and_empty_ones_are_left_out(said):
    assert "return source(x)[0]\n" in written(said["op_keep"], "baseline")


def test_places_of_equal_values_are_not_compared_where_they_differ(said):
    assert "look_ties" in {reason.kind for reason in said["op_largest"].look}
    assert "return source(x)[0]\n" in written(said["op_largest"], "triton")
    assert "look_ties" not in {reason.kind for reason in said["op_picked"].look}


@NIGHTLY
def test_complex_numbers_are_compared_as_pairs(said):
    assert "return torch.view_as_real(source(x))\n" in written(said["op_paired"], "triton")


@NIGHTLY
def test_a_function_that_launches_no_kernel_is_not_ready(said):
    assert [reason.kind for reason in said["copied"].look] == ["look_idle_kernel"]
    assert said["repeat"].is_ready  # its first call launches none, and others do


@NIGHTLY
def test_a_function_that_is_not_called_as_torchs_operator_is_compared_with_the_function_of_its_name(said):
    assert said["named"].is_ready
    assert said["named"].reference.call == "torch.nn.functional.rms_norm"
    assert said["named"].reference.arguments[1] == "normalized_shape=x.shape[-1:]"


def test_values_for_which_the_reference_raises_are_left_out(said):
    accuracy = "".join(said["numbers"].suites.accuracy)
    assert said["numbers"].is_ready
    assert '"nan"' not in accuracy and '"inf"' not in accuracy


@NIGHTLY
def test_a_form_in_which_the_values_do_not_depend_on_an_input_is_not_chosen(said):
    inputs = said["op_centred"].suites.inputs
    assert inputs["groups"] != "cols" or "(batch, rows, cols)" in inputs["x"]


@NIGHTLY
def test_no_case_is_a_point_of_two_grids(said):
    grids = said["powers"].suites.edges
    points = [
        tuple(sorted(zip(grid, point, strict=True))) for grid in grids for point in itertools.product(*grid.values())
    ]
    assert len({*points}) == len(points) > 4


def test_a_backward_pass_takes_the_gradient_of_the_output(said):
    assert said["op_back"].is_ready
    assert said["op_back"].suites.inputs["gradient"].startswith("torch.randn((rows, cols)")
    assert "return _call(x, of=(x,), gradient=gradient)\n" in written(said["op_back"], "triton")


@NIGHTLY
def test_a_backward_pass_that_writes_into_the_gradient_gets_a_copy_and_a_weights_gradient_is_a_sum(said):
    assert said["op_weighted"].is_ready
    assert "gradients(source.apply, copies=True)" in written(said["op_weighted"], "triton")
    assert "mutates" not in written(said["op_weighted"], "accuracy")
    assert said["op_weighted"].suites.performance == ("reduces=lambda rows, **_: rows,",)


def test_a_number_has_no_axes_where_its_gradient_has_none(said):
    assert said["op_shifted"].is_ready
    assert said["op_shifted"].suites.inputs["bias"].startswith("torch.randn((), ")


def test_a_function_without_a_backward_pass_is_not_ready(said):
    assert not said["no_gradient"].is_ready
    assert said["no_gradient"].look[0].kind == "look_no_gradient"


@pytest.mark.parametrize("name", ["wrong", pytest.param("other", marks=NIGHTLY)])
def test_values_that_differ_in_every_form_are_not_ready(said, name):
    assert not said[name].is_ready
    assert {"look_differs", "look_untried"} & {reason.kind for reason in said[name].look}


@NIGHTLY
def test_whole_blocks_are_tried_only_where_all_smaller_sizes_raised(tmp_path):
    text = SOURCE.read_text() + NOTED
    (tmp_path / "noted.py").write_text(text)
    sides = {
        name: SketchFiles(str(tmp_path / "noted.py"), name, None, "noted_reference", str(tmp_path / "noted.py"))
        for name in ("noted", "noted_blocks")
    }

    rehearse({name: (name, files) for name, files in sides.items()}, hopeless=("noted",))

    called = {name: {*(tmp_path / name).read_text().split("\n")} for name in sides}
    assert "(3, 5)" in called["noted"] & called["noted_blocks"]
    assert "(128, 64)" not in called["noted"]
    assert "(128, 64)" in called["noted_blocks"]


NOTED = """

def note(name, x):
    import pathlib
    if x.untyped_storage().device.type == "cpu":
        with (pathlib.Path(__file__).parent / name).open("a") as seen:
            print(tuple(x.shape), file=seen)


def noted(x: torch.Tensor):
    assert x.ndim == 2
    note("noted", x)
    return double_and_sizes(x)[0]


def noted_blocks(x: torch.Tensor):
    assert x.ndim == 2
    note("noted_blocks", x)
    assert x.untyped_storage().device.type == "meta" or x.numel() > 1 << 13
    return double_and_sizes(x)[0]


def noted_reference(x):
    return x * 3
"""


@NIGHTLY
def test_launches_that_take_too_long_in_the_interpreter_are_ended(said):
    assert "the launches take more than" in said["slow"].look[0].facts["error"]


@NIGHTLY
def test_sides_have_the_names_of_the_text_and_an_argument_that_the_function_cannot_lack_is_given(said):
    shapes = {name: text.split("(")[2].split(")")[0] for name, text in said["op_state_times"].suites.inputs.items()}
    assert shapes == {"state": "batch, rows, cols", "x": "batch, rows", "skip": "rows,"}


def test_what_a_kernel_shifts_holds_integers(said):
    assert said["unpack"].is_ready
    assert said["unpack"].suites.inputs["codes"].startswith("torch.randint(")


@NIGHTLY
def test_pieces_of_an_axis_are_cut_by_rising_integers_of_which_the_last_is_its_end(said):
    inputs = said["op_sum_pieces"].suites.inputs
    assert inputs["cu_seqlens"].startswith("torch.linspace(0, rows, cu_seqlens_size, device=device)")
    assert inputs["max_seqlen"] == "rows"


@NIGHTLY
def test_a_function_for_halves_is_called_with_halves_and_with_the_dtype_that_it_cannot_lack(said):
    suites = said["op_scale_halves"].suites
    assert {*suites.dtypes} <= {"float16", "bfloat16"}
    assert suites.inputs["codes"].startswith("torch.randint(0, scales_size, (rows, cols), ")
    assert suites.inputs["out_dtype"] == "torch.float32"


def test_a_product_of_rounded_products_states_what_its_rounding_may_be_off(said):
    lines = [line for line in said["chained"].suites.accuracy if line.startswith("tolerance")]
    bounds = eval(lines[0].removeprefix("tolerance=").removesuffix(","))
    assert said["chained"].is_ready and "look_tolerance" in kinds(said["chained"])
    assert 1e-4 < bounds["float16"][1] < 1e-2 and lines[1:]
    assert not [line for line in said["op_scaled"].suites.accuracy if line.startswith("tolerance")]


def test_a_kernel_that_rounds_to_one_dtype_and_takes_whole_blocks_alone_gets_these(said):
    assert said["chained"].suites.dtypes == ("float16",)
    assert "(64 * rows, cols)" in said["chained"].suites.inputs["q"]


def test_a_tensor_without_axes_is_given_where_others_launch_no_kernel(said):
    suites = said["op_scaled_by_number"].suites
    assert suites.inputs["factor"].startswith("torch.randn((), ")
    assert "zeros" in suites.values and "ones" not in suites.values  # for which it launches none either


def test_a_side_may_always_be_three(said):
    assert said["op_double_colours"].suites.inputs["x"].startswith("torch.randn((3, ")


def test_what_is_right_in_a_small_case_alone_is_not_ready(said):
    assert said["first_alone"].look[0].kind == "look_fails"


def test_sizes_that_blocks_divide_come_before_those_of_which_each_has_a_program(said):
    assert len(said["op_scaled"].suites.edges[0]["cols"]) > 1 == len(said["op_scaled"].suites.edges[0]["rows"])


def test_a_function_that_is_off_in_one_of_the_dtypes_of_its_suites_is_not_ready(said):
    fails, wrong = said["off_in_halves"].look[:2]
    assert fails.kind == "look_fails"
    assert wrong.facts["case"].endswith("dtype=float16")
    assert said["off_in_halves"].suites.dtypes == ("float32", "float16") and not said["off_in_halves"].is_ready


@NIGHTLY
def test_random_numbers_are_named_as_what_differs(said):
    assert [reason.kind for reason in said["random"].look] == ["look_random"]


def test_values_with_which_the_reference_overflows_are_named_and_left_out(said):
    assert "look_overflow" in {reason.kind for reason in said["op_rise"].look}
    assert "large" not in said["op_rise"].suites.values


def test_values_of_which_the_function_gives_other_answers_are_named_and_left_out(said):
    assert not {"nan", "inf"} & {*said["op_spread_nan"].suites.values}
    assert [reason.facts["values"] for reason in said["op_spread_nan"].look if reason.kind == "look_values"] == [
        "nan, inf"
    ]
    assert "look_values" not in {reason.kind for reason in said["op_scaled"].look}
    assert "look_values" in {reason.kind for reason in said["op_where_positive"].look}  # NaN in one of both tensors


@NIGHTLY
def test_integers_point_into_the_axis_that_they_fit_whichever_is_longer(said):
    assert said["double_rows"].is_ready
    assert said["double_rows"].suites.inputs["ids"].startswith("torch.randint(0, table_rows,")


@NIGHTLY
def test_a_shape_that_a_function_refuses_tells_the_axes_of_an_argument(said):
    assert said["op_gated"].suites.inputs["gate"].startswith("torch.randn((rows, cols)")
    assert said["op_rows_of"].suites.inputs["size"] == "cols"
    assert said["op_tiled"].suites.inputs["size"] == "cols"


@NIGHTLY
def test_numbers_that_are_as_large_as_sides_in_the_only_sizes_that_hold_are_these_sides(said):
    inputs = said["op_doubled_rows"].suites.inputs
    assert (inputs["n_rows"], inputs["n_cols"]) == ("rows", "cols")


def test_a_case_lies_past_the_size_from_which_on_a_kernel_has_another_block(said):
    assert ("129",) in [grid["rows"] for grid in said["larger_blocks"].suites.edges]
    assert ("129",) not in [grid["rows"] for grid in said["op_double_here"].suites.edges]
    assert ("129",) in [grid["rows"] for grid in said["larger_blocks"].suites.probes]  # with all values


@NIGHTLY
def test_each_kernel_that_an_argument_chooses_gets_all_values_and_a_case_without_elements(said):
    probes, edges = said["amax"].suites.probes, said["amax"].suites.edges
    assert len({probe["dim"] for probe in probes}) == len(probes[:-1]) == 2  # the last is of few numbers
    assert "masked" in said["amax"].suites.values  # as for all that take a maximum
    sizes = {"rows": probes[0]["rows"], "cols": probes[0]["cols"]}
    dims = {grid["dim"] for grid in (*probes[:-1], *edges) if sizes.items() <= grid.items()}
    assert {(case["dim"],) for case in said["amax"].suites.cases} <= dims
    # Of the first dim the edges of an axis have one already.
    assert edges[0]["dim"] not in [grid["dim"] for grid in edges if ("0",) in [grid["rows"], grid["cols"]]]


@NIGHTLY
def test_few_numbers_are_summed_in_the_least_exact_dtype_with_all_values(said):
    assert said["named"].suites.probes[1:] == ({"rows": ("3",), "cols": ("5",), "dtype": ("*DTYPES[-1:]",)},)
    assert not said["op_cast"].suites.probes[1:]  # which sums nothing


@NIGHTLY
def test_each_value_of_an_option_for_which_both_agree_is_a_case_and_another_is_named(said):
    suites, (note,) = said["op_weighed"].suites, [one for one in said["op_weighed"].look if one.kind == "look_option"]

    assert [case.get("reduction", case.get("is_twice")) for case in suites.more] == ["'none'", "False"]
    assert suites.options == {"reduction": "str = 'sum'", "is_twice": "bool = True"}
    assert (note.facts["option"], note.facts["value"]) == ("is_thrice", "True")
    assert '"reduction": reduction' in written(said["op_weighed"], "baseline")


@NIGHTLY
def test_the_gradient_has_the_shape_of_the_output_that_an_option_makes(said):
    suites = said["weighed_back"].suites

    assert suites.more[0]["reduction"] == "'none'"
    assert "torch.randn({'none': (rows,)}.get(reduction, ())" in suites.inputs["gradient"]


@NIGHTLY
def test_an_operator_of_torch_gets_long_and_short_integers_and_inputs_of_two_dtypes_if_it_takes_them(said):
    of = {op: [{*case.items()} for case in said[op].suites.more] for op in ("amax", "cat")}

    for dtype in ("torch.int64", "torch.int16"):
        assert any(("dtype", dtype) in case for case in of["amax"])
    assert "1 << 40" in said["amax"].suites.inputs["self"]
    assert any({("dtype", "torch.float16"), ("second", "torch.float32")} <= case for case in of["cat"])
    assert any("dtype=second or dtype" in text for text in said["cat"].suites.inputs.values())


@NIGHTLY
def test_an_operator_of_torch_gets_a_case_for_each_axis_that_its_samples_leave_out(said):
    suites = said["cumsum"].suites

    assert {case["dim"] for case in suites.cases} == {"0", "1"} and "batch" in suites.axes
    assert "2" in {case["dim"] for case in suites.more}


@NIGHTLY
def test_a_kernel_that_long_axes_of_one_argument_alone_launch_gets_a_case(said):
    points = [point for grid in said["cumsum"].suites.edges for point in itertools.product(*grid.values())]
    axes = [*said["cumsum"].suites.edges[0]]

    assert {"rows": "4097", "dim": "1"}.items() <= set().union(
        *(dict(zip(axes, point, strict=True)).items() for point in points if "4097" in point)
    )


@NIGHTLY
def test_an_operator_that_tells_zeros_apart_gets_some(said):
    """Of normal numbers it gives one truth, which says nothing of a kernel."""
    suites = said["logical_not"].suites

    assert "torch.randint(-1, 2, (size,), generator=generator, device=device).to(dtype)" in suites.inputs["self"]
    assert "torch.int64" in {case["dtype"] for case in suites.more}


@NIGHTLY
def test_a_backward_pass_that_compares_tensors_gets_cases_around_its_blocks(said):
    assert said["ends_early"].is_ready
    assert said["ends_early"].suites.edges


@NIGHTLY
def test_a_kernel_that_adds_atomically_outside_of_its_tensors_does_not_end_the_rehearsal(said):
    assert "reaches beyond its tensors" in said["count"].look[0].facts["error"]
