"""Sizes, dtypes and values of somebody's tests become cases, and a baseline beside a kernel its reference."""

import re
from pathlib import Path
from typing import Any

import pytest

from perfci.cli.main import run
from perfci.core import settings
from perfci.core.errors import UsageError
from perfci.core.wording import sentence
from perfci.extensions.adopt.place import Copy, place_op, write_draft
from perfci.extensions.adopt.sketch import Sketch, draft
from perfci.ops import discover
from perfci.ops.fingerprint.tree import Tree
from tests.extensions.adopt.rehearsing import (
    CUBES,
    HARNESS,
    KERNEL,
    accuracy,
    interpreted,
    of_file,
    rehearse,
    sketch,
    unpack,
)

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
RIGHT = {"broadcast": "broadcast_v1", "softmax": "softmax_v2", "swiglu": "swiglu_v3", "matmul": "matmul_v1"}

EMBEDDING = "import torch\n\ndef op(ids, table):\n    return table[ids]\n"
PYTEST = """
@pytest.mark.parametrize("rows, cols", [(3, 5), pytest.param(7, 11)])
def test_more(rows, cols):
    op(torch.ones(rows, cols))
"""
SCALARS = """
for power in (2, 3):
    x = torch.randn(5, 70)
    op(x, 1e-5, power=power)
    reference(x, 1e-5, power)
"""
INDEXED = "op(torch.randint(0, 50, (7,)), torch.randn(50, 20))"
REFUSED = """
    try:
        op(torch.randn(3, 4))
    except AssertionError:
        pass
    N"""
GEMS = """
import pytest
import torch
import absent_gems
from .op_v1_test_op_shapes import SHAPES, to_reference
from absent_gems.testing import assert_equal

@pytest.mark.op
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16] if absent_gems.bf16 else [torch.float16])
def test_accuracy_op(shape, dtype):
    inp = torch.randn(shape, dtype=dtype, device=absent_gems.device)
    wanted = torch.op(to_reference(inp))
    with absent_gems.use_gems():
        res = torch.op(inp)
    assert_equal(res, wanted)

class TestMore:
    pass
"""
SHAPES = """
import absent_gems
import os
os.remove("/no/such/file")
QUICK = absent_gems.mode == "quick"
SHAPES = [(2, 3)] if QUICK else [(1,), (32, 20), (4, 3, 15)]

def to_reference(x):
    return x.to("cpu")
"""
REPORT = """
import torch, triton
from op_v1_triton import op

sizes = triton.testing.Benchmark(
    x_names=["rows"], x_vals=[2**i for i in range(10, 13)], line_arg="kind", line_vals=["ours", "it"], args={"cols": 64}
)

@triton.testing.perf_report([sizes])
def bench(rows, cols, kind):
    x = torch.rand(rows, cols, device="cuda", dtype=torch.bfloat16)
    if kind == "ours":
        return triton.testing.do_bench(lambda: op(x))
"""
MADE = ("cubes", "skipping", "adding")
"""A right sketch; one whose kernel leaves program_id * BLOCK out; one whose baseline adds what the kernel copies."""

TEST, SPEED = "test_op_accuracy", "test_op_performance"
VARIANTS: dict[str, tuple[list[tuple[str, str, str]], dict[str, str]]] = {
    "plain": ([], {}),
    "cubes": ([], CUBES),
    "skipping": ([("triton", "tl.program_id(1) * BLOCK_N + ", "")], CUBES),
    "adding": ([("baseline", "bias.expand(x.shape).contiguous()", "x + bias")], CUBES),
    "harness": ([], HARNESS),
    "gems": ([], {"test_op_accuracy": GEMS, "test_op_shapes": SHAPES, "test_op_performance": REPORT}),
    "scalars": (
        [("triton", "op(x):", "op(x, eps, *, power=2, mode='a'):"), ("baseline", "op(x)", "op(x, eps, power)")],
        {TEST: accuracy(SCALARS)},
    ),
    "indices": (
        [("triton", "op(x):", "op(ids, table):\n    x = table[ids]")],
        {"baseline": EMBEDDING, TEST: accuracy(INDEXED), SPEED: ""},
    ),
    "multiples": ([("triton", "    y = torch", "    assert x.numel() % 4 == 0\n    y = torch")], {}),
    "ends": ([(TEST, "torch.testing", "absurd(); len(3); op(torch.randn(3)); torch.testing")], {}),
    "pytest": ([], {TEST: accuracy("pass", "import pytest") + PYTEST}),
    "refusing": ([("triton", "    y = torch", "    assert x.dim() == 1\n    y = torch"), (TEST, "    N", REFUSED)], {}),
    "on_import": ([(TEST, "def test_accuracy():", "if True:")], {}),
    "raises": ([("triton", "import torch\n", "import torch\nraise KeyError('gone')\n")], {}),
    "silent": ([], {TEST: accuracy("pass"), SPEED: "def test_it():\n    raise ValueError('no GPU')\n"}),
    "star": ([("triton", "op(x):", "op(x, *all):")], {}),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> dict[str, Any]:
    """Rehearsals of the samples, and of sketches with something special."""
    root = tmp_path_factory.mktemp("sketches")
    samples = unpack("suites", root / "samples")
    wanted = {op: (op, of_file(samples / f"{stem}_triton.py")) for op, stem in RIGHT.items()}
    for name, (edits, parts) in VARIANTS.items():
        wanted[name] = name, of_file(sketch(root / name, *edits, **parts) / "op_v1_triton.py")
    return {**rehearse(wanted), "root": root}


def cases(sketch: Sketch, part: str) -> list[str]:
    chosen = sketch.suites.cases if part == "accuracy" else sketch.suites.speed
    return [",".join(f"{name}={value}" for name, value in case.items()).replace("torch.", "") for case in chosen]


# --- what is found out

pytestmark = pytest.mark.torch


def test_sizes_and_dtypes_of_the_tests_are_cases(said):
    assert cases(said["broadcast"], "performance")[-1] == "P=4096,D=1024,dtype=float16"
    assert cases(said["softmax"], "accuracy") == [
        "n_rows=128,n_cols=256,dtype=float32",
        "n_rows=128,n_cols=256,dtype=float16",
    ]
    assert "n_rows=4096,n_cols=3072,dtype=float16" in cases(said["softmax"], "performance")
    assert "tokens=8192,hidden=11008,dtype=bfloat16" in cases(said["swiglu"], "performance")
    assert "M=100,K=72,N=60,dtype=float16" in cases(said["matmul"], "accuracy")
    assert "M=3072,K=3072,N=3072,dtype=float16" in cases(said["matmul"], "performance")


def test_sides_of_cubes_belong_together_as_kernel_and_baseline_take_them(said):
    sketch = said["cubes"]

    assert sketch.suites.inputs["bias"].startswith("torch.randn((cols,)")
    assert [*sketch.suites.axes] == ["batch", "rows", "cols"]
    assert cases(sketch, "performance") == [f"batch={n},rows={n},cols={n},dtype=float32" for n in (512, 1024, 2048)]


def test_a_hidden_kernel_and_the_wanted_device_are_noted(said):
    assert (said["cubes"].kernel.hides, said["cubes"].kernel.device) == (True, "npu")
    assert (said["broadcast"].kernel.hides, said["broadcast"].kernel.device) == (True, "cuda")
    assert (said["softmax"].kernel.hides, said["softmax"].kernel.device) == (False, None)


def test_edges_go_past_two_blocks_of_every_axis_that_the_grid_walks(said):
    batch, rows, cols = said["cubes"].suites.edges
    assert (batch["batch"], batch["cols"]) == (("0", "1", "15", "16", "17", "33"), ("3",))
    assert rows["rows"][-1] == "33"
    assert cols["cols"] == ("1", "63", "64", "65", "129")


def test_an_axis_that_a_loop_walks_ends_around_a_block_that_the_kernel_got(said):
    m, k, n = said["matmul"].suites.edges
    assert (m["M"][-1], k["K"], n["N"][-1]) == ("129", ("1", "31", "32", "33", "65"), "129")


def test_inputs_are_made_as_the_tests_make_them(said):
    assert said["softmax"].suites.inputs["x"].endswith("dtype=dtype, device=device) * 2.0")
    assert said["swiglu"].suites.inputs["up"].startswith("torch.rand((tokens, hidden), ")
    assert said["swiglu"].suites.inputs["up"].endswith(" - 0.5")


def test_a_harness_that_is_not_installed_is_stood_in_for(said):
    sketch = said["harness"]

    assert [*sketch.suites.axes] == ["shape"]
    assert "shape=(2, 4, 8, 16),dtype=float16" in cases(sketch, "accuracy")
    assert cases(sketch, "performance") == ["shape=(1048576,),dtype=float32"]
    assert sketch.suites.edges[0]["shape"][:5] == ("(0,)", "(1,)", "(63,)", "(64,)", "(65,)")


def test_tests_may_call_torch_import_their_sizes_and_report_benchmarks(said):
    shapes = [
        f"shape={shape},dtype={dtype}"
        for shape in ("(1,)", "(32, 20)", "(4, 3, 15)")
        for dtype in ("float16", "bfloat16")
    ]

    assert sorted(cases(said["gems"], "accuracy")) == sorted(shapes)
    assert cases(said["gems"], "performance") == [f"shape=({rows}, 64),dtype=bfloat16" for rows in (1024, 2048, 4096)]


def test_the_reference_gets_what_the_kernel_gets(said):
    assert said["scalars"].reference.arguments == ("x", "eps", "power")
    assert said["swiglu"].reference.call == "source.Model()"


def test_values_that_change_are_parameters_and_others_are_not(said):
    sketch = said["scalars"]

    assert sketch.parameters == ("x", "eps", "*", "power=2", "mode='a'")
    assert cases(sketch, "accuracy") == [f"rows=5,cols=70,power={power},dtype=float32" for power in (2, 3)]
    assert sketch.suites.inputs["eps"] == "1e-05"
    assert "mode" not in sketch.suites.inputs


def test_inputs_that_the_kernel_refuses_are_no_cases(said):
    assert cases(said["refusing"], "accuracy") == ["N=100,dtype=float32"]


def test_tests_have_all_their_parameters_and_what_they_do_with_results_ends_nothing(said):
    assert cases(said["pytest"], "accuracy") == ["shape=(3, 5),dtype=float32", "shape=(7, 11),dtype=float32"]
    assert cases(said["ends"], "accuracy") == ["size=3,dtype=float32", "size=100,dtype=float32"]
    assert cases(said["on_import"], "accuracy") == ["N=100,dtype=float32"]


def test_sizes_are_guessed_if_no_test_calls_the_op(said):
    assert [reason.kind for reason in said["silent"].look] == ["look_guessed"]


def test_integers_are_drawn_as_the_test_draws_them(said):
    assert said["indices"].suites.inputs["ids"].startswith("torch.randint(0, 50, (size,), ")


def test_a_side_that_has_to_be_divided_is_a_multiple(said):
    assert said["multiples"].suites.inputs["x"].startswith("torch.randn((4 * N,), ")


# --- what cannot be converted


@pytest.mark.parametrize(
    ("name", "said_of_it"),
    [
        ("raises", "op_v1_triton.py cannot be imported: KeyError: 'gone' (op_v1_triton.py, line 2)"),
        ("star", "op takes all, and perfci has to know each argument by name"),
    ],
)  # fmt: skip
def test_what_says_too_little_is_told_in_a_sentence(said, name, said_of_it):
    assert said_of_it in said[name]


def test_a_file_with_several_functions_has_to_name_one(tmp_path):
    kernel = KERNEL.replace("def op(x):", "def first(x):") + "\ndef second(x):\n    return x\n"
    folder = sketch(tmp_path, triton=kernel)

    with pytest.raises(UsageError) as caught:
        of_file(folder / "op_v1_triton.py")

    assert "Its functions are first, second" in sentence(caught.value.reason)


# --- the files


@pytest.fixture(scope="module")
def converted(said, tmp_path_factory) -> Path:
    """A project with ops of the samples, and of wrong and right variants of the cubes."""
    root = tmp_path_factory.mktemp("converted")
    for op in (*RIGHT, *MADE):
        place = f"samples/{RIGHT[op]}_triton.py" if op in RIGHT else f"{op}/op_v1_triton.py"
        kernel = said["root"] / place
        baseline = kernel.with_name(kernel.name.replace("_triton", "_baseline"))
        copies = [Copy(f"_{path.name}", path.read_text(), str(path), "") for path in (kernel, baseline)]
        write_draft(place_op(op, root / "kernels", {}), draft(op, said[op], copies))
    return root


def test_converted_ops_obey_the_contract_and_their_sources_are_known(converted):
    settings_of_copy = settings.load(converted)

    ops = discover.ops(settings_of_copy)
    assert {op.op for op in ops} == {*RIGHT, *MADE}
    assert [sentence(reason) for op in ops for reason in discover.check_contract(op)] == []
    prints = {op.op: Tree(settings_of_copy.root, settings_of_copy.kernels).fingerprint(op.op) for op in ops}
    assert {op: print_.opaque for op, print_ in prints.items() if print_.opaque} == {}
    assert any(str(name).endswith("_op_v1_triton.py") for name in prints["cubes"].files)


@pytest.mark.slow
@pytest.mark.nightly
def test_right_sketches_pass_and_wrong_ones_do_not(converted):
    told = interpreted(converted, "*=10[02]*", *RIGHT)
    told |= interpreted(converted, "*", *MADE)

    assert {op: told[op][1] for op in (*RIGHT, "cubes")} == {op: [] for op in (*RIGHT, "cubes")}
    assert all(told[op][0] > 1 for op in RIGHT)
    assert {text.split(",")[2].split("=")[1] for text in told["skipping"][1]} == {"65", "100", "129"}  # past a block
    assert told["adding"][1][0].split(" ")[2] == "wrong_values"


# --- the command


def test_the_guide_shows_what_the_command_prints(tmp_path, monkeypatch, capsys):
    guide = (ROOT / "docs" / "bringing-operators.md").read_text(encoding="utf-8")
    shown = re.search(r"```text\n\$ perfci (.+?)\n(.*?)```", guide, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels").mkdir()
    unpack("suites", tmp_path / "sketches")

    assert run(shown[1].split()) == 0

    assert capsys.readouterr().out == shown[2]
    assert not list(tmp_path.rglob("*.png"))  # which a test draws


@pytest.mark.cuda
@pytest.mark.parametrize("device", ["npu", "cuda"])
def test_a_sketch_for_either_kind_of_device_passes_on_cuda(device, tmp_path, monkeypatch, capsys):
    small = {part: text.replace("(2048, 2048, 2048)", "(64, 64, 64)") for part, text in CUBES.items()}
    texts = {part: text.replace("npu", device) for part, text in small.items()}
    folder = sketch(tmp_path / "sketch", **texts)
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path)

    assert run(["new", "op", "--from", str(folder / "op_v1_triton.py"), "--copy"]) == 0
    assert run(["check", "op", "--device", "cuda"]) == 0

    assert "PASS" in capsys.readouterr().out
