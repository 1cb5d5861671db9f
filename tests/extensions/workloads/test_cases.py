"""The cases of a workload: few that stand for many, and the case that a call is."""

import pytest

from perfci.core.errors import UsageError
from perfci.extensions.workloads import cases, fits
from perfci.extensions.workloads.fits import TensorForm
from perfci.extensions.workloads.records import Call, Workload, merge_calls, read_workload, write_workload
from perfci.ops.spec import Performance, case_id, grid


def call(rows, us=1.0, dtype="float16", op="softmax"):
    return Call(op, us=us, params=f"rows={rows}, cols=1024, dtype=torch.{dtype}")


def chosen(calls, most=12):
    return [one.case for one in cases.choose(calls, most)]


def test_cases_come_by_the_time_that_they_take():
    calls = [call(8, 5.0), call(16, 1.0), call(8, 5.0), call(32, 7.0)]

    assert chosen(calls) == [f"rows={rows},cols=1024,dtype=float16" for rows in (8, 32, 16)]


def test_like_sizes_are_one_case_which_is_the_one_that_most_time_is_near_to():
    calls = [call(rows, 10.0 if rows == 4100 else 1.0) for rows in range(4090, 4110)] + [call(1), call(2)]

    assert chosen(calls, 2) == ["rows=4100,cols=1024,dtype=float16", "rows=1,cols=1024,dtype=float16"]


def test_cases_of_different_dtypes_are_never_joined_if_there_is_room():
    calls = [call(8), call(8, dtype="bfloat16"), call(4096), call(8192)]

    assert {one.split("dtype=")[1] for one in chosen(calls, 2)} == {"float16", "bfloat16"}


@pytest.fixture
def suite(tmp_path):
    """A performance file that takes its cases from a workload."""
    folder = tmp_path / "kernels" / "softmax"
    folder.mkdir(parents=True)
    calls = (call(8), call(9, op="others/softmax"), call(7, op="gelu"), Call("softmax"))
    write_workload(folder.parent, Workload("llama", calls=calls))
    file = folder / "softmax_performance.py"
    file.write_text("import perfci\ncases = perfci.workload(NAME)\n")
    return file


def run(file, name):
    space = {"NAME": name}
    exec(compile(file.read_text(), str(file), "exec"), space)
    return space["cases"]


@pytest.mark.torch
def test_a_suite_takes_the_cases_of_its_op_with_dtypes_of_torch(suite):
    import torch

    assert run(suite, "llama") == (
        {"rows": 8, "cols": 1024, "dtype": torch.float16},
        {"rows": 9, "cols": 1024, "dtype": torch.float16},
    )


def test_a_workload_that_is_not_there_is_refused_with_those_that_are(suite):
    with pytest.raises(UsageError, match="There are: llama"):
        run(suite, "lama")


def test_a_workload_that_never_calls_the_op_is_refused(suite):
    write_workload(suite.parents[1], Workload("other", calls=(call(8, op="gelu"),)))

    with pytest.raises(UsageError, match="no call of softmax"):
        run(suite, "other")


def test_a_workload_reads_back_as_it_was_written(tmp_path):
    workload = Workload("llama", step_us=5.0, calls=(call(8), Call("softmax", {"x": None, "flag": True, "eps": 1e-6})))

    write_workload(tmp_path, workload)

    assert read_workload(tmp_path, "llama") == workload


def test_calls_that_differ_in_numbers_which_their_case_does_not_have_are_one():
    first, second = (Call("softmax", {"x": None, "seed": seed}, us=2.0, params="rows=8") for seed in (1, 2))
    other = Call("softmax", {"x": None, "seed": 3})

    assert merge_calls([first, second, other, other]) == (
        Call("softmax", {"x": None, "seed": 1}, count=2, us=4.0, params="rows=8"),
        Call("softmax", {"x": None, "seed": 3}, count=2),
    )


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="no name for a workload"):
        write_workload(tmp_path, Workload(name))


# --- the case that a call is ------------------------------------------------------------------------------------------


def norm(x, weight=None, eps=1e-6, stats=False):
    return x


def make_inputs(rows, cols, weighted, dtype, device, seed, *, stats=False):
    import torch

    x = torch.randn(rows, cols, dtype=dtype, device=device)
    return {"x": x, "weight": x[0] if weighted else None, "stats": stats}


def infer(**given):
    import torch

    listed = (*grid(rows=[8, 16], cols=[4, 32], weighted=[True, False], dtype=[torch.float16, torch.float32]),)
    params = fits.Fitter(Performance(norm, norm, make_inputs, listed), torch).infer(given)
    return None if params is None else case_id(params)


def form(*shape, dtype="bfloat16"):
    import torch

    tensor = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    return TensorForm(shape, tensor.stride(), tensor.dtype)


@pytest.mark.torch
def test_sizes_dtypes_and_flags_of_a_call_are_recognised_by_the_suites_cases():
    assert infer(x=form(7, 11), weight=form(11)) == "rows=7,cols=11,weighted=True,dtype=bfloat16"
    assert infer(x=form(7, 11), stats=True) == "rows=7,cols=11,weighted=False,dtype=bfloat16,stats=True"
    assert infer(x=form(2, 7, 11)) == "rows=14,cols=11,weighted=False,dtype=bfloat16"


@pytest.mark.torch
def test_a_call_that_no_case_makes_has_none():
    assert infer(x=form(7, 11), eps=1e-3) is None
    assert infer(x=form(7, 11), weight=form(11, dtype="float32")) is None
    transposed = form(11, 7)._replace(shape=(7, 11), strides=(1, 7))
    assert infer(x=transposed) is None
