"""KernelGen's sketches become ops: right ones pass, one that mixes up two is WRONG, nothing is lost in silence."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.core import settings
from perfci.core.errors import UsageError
from perfci.core.wording import sentence
from perfci.ops import discover
from perfci.scaffold import kernelgen

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SAMPLES = HERE / "kernelgen_samples"
RIGHT = ("broadcast", "softmax", "swiglu", "matmul")
MIXED_UP = "broadcast_bias"
"""Its kernel adds x and bias, its baseline broadcasts bias; its test never notices, as its x is zeros."""
OPS = (*RIGHT, MIXED_UP)
SOME = "*=[13]3,*=10[02]*"
"""Cases that are neither large nor empty, and the probes."""


@pytest.fixture(scope="module")
def drafts():
    return {op: kernelgen.convert(op, SAMPLES, None) for op in OPS}


@pytest.fixture(scope="module")
def converted(tmp_path_factory) -> Path:
    """A project with all samples as ops."""
    root = tmp_path_factory.mktemp("converted")
    (root / "kernels").mkdir()
    for op in OPS:
        assert run(["new", op, "--from-kernelgen", str(SAMPLES), "--project", str(root)]) == 0
    return root


def left(draft, kind: str) -> list[dict]:
    return [dict(reason.facts) for reason in draft.left if reason.kind == kind]


def lines_of(name: str, *parts: str) -> list[int]:
    """Lines of a sample that hold a text."""
    text = (SAMPLES / name).read_text().splitlines()
    return [number for number, line in enumerate(text, start=1) if any(part in line for part in parts)]


# --- what is made


def test_converted_ops_obey_the_contract(converted):
    ops = discover.ops(settings.load(converted))

    assert {op.op for op in ops} == set(OPS)
    assert [sentence(reason) for op in ops for reason in discover.check_contract(op)] == []


def test_no_converted_file_names_a_device_prints_or_runs_on_import(converted):
    for path in (converted / "kernels").rglob("*_triton.py"):
        tree = ast.parse(path.read_text())
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == "cuda"]
        assert not [
            node for node in tree.body if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        ]
        assert "print(" not in path.read_text()


def test_sizes_and_dtypes_of_the_tests_are_cases(drafts):
    assert "perfci.grid(P=[4096], D=[1024], dtype=[torch.float16])" in drafts["broadcast"].texts["performance"]
    assert (
        "perfci.grid(n_rows=[128], n_cols=[256], dtype=[torch.float32, torch.float16])"
        in (drafts["softmax"].texts["accuracy"])
    )
    assert "n_rows=[4096], n_cols=[1024, 2048, 3072, 4096]" in drafts["softmax"].texts["performance"]
    assert "tokens=[2048, 8192], hidden=[11008], dtype=[torch.bfloat16]" in drafts["swiglu"].texts["performance"]
    assert "perfci.grid(M=[100], K=[72], N=[60], dtype=[torch.float16])" in drafts["matmul"].texts["accuracy"]
    assert "perfci.grid(rows=[8192], cols=[4096], dtype=[torch.float32])" in drafts[MIXED_UP].texts["performance"]


def test_inputs_are_made_as_the_tests_make_them(drafts):
    def made(op):
        return drafts[op].texts["baseline"].split("def make_inputs")[1]

    assert '"bias": torch.randn((D,), generator=generator, dtype=dtype, device=device)' in made("broadcast")
    assert "device=device) * 2.0," in made("softmax")
    assert '"up": torch.rand((tokens, hidden), generator=generator, dtype=dtype, device=device) - 0.5' in made("swiglu")
    assert '"x": torch.zeros((rows, cols), dtype=dtype, device=device)' in made(MIXED_UP)


def test_matrix_products_say_that_they_are(drafts):
    assert "uses_dot=True" in drafts["matmul"].texts["accuracy"]
    assert "reduces=lambda M, K, N, dtype: K" in drafts["matmul"].texts["accuracy"]
    assert "flops=lambda M, K, N, dtype: 2 * M * K * N" in drafts["matmul"].texts["performance"]
    assert "(M * K + K * N + M * N) * dtype.itemsize" in drafts["matmul"].texts["performance"]


def test_the_kernel_that_the_wrapper_hid_has_a_name_of_its_own(drafts):
    tree = ast.parse(drafts["broadcast"].texts["triton"])
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]

    assert names == ["_broadcast_kernel", "broadcast"]
    assert "_broadcast_kernel[grid](" in drafts["broadcast"].texts["triton"]
    assert left(drafts["broadcast"], "left_shadowed")[0]["line"] in lines_of("broadcast_v1_triton.py", "def broadcast(")


def test_the_reference_takes_the_kernels_names(drafts):
    assert (
        "def matmul(a: torch.Tensor, b: torch.Tensor):\n    return _matmul_of_sketch(a, b)"
        in (drafts["matmul"].texts["baseline"])
    )
    assert "_sketch = Model()" in drafts["swiglu"].texts["baseline"]


# --- what is not carried over


def test_what_was_not_carried_over_has_its_file_its_line_and_its_reason(drafts):
    draft = drafts["broadcast"]
    accuracy, performance = (f"broadcast_v1_test_relu_{part}.py" for part in ("accuracy", "performance"))

    def at(kind, file):
        facts = next(each for each in left(draft, kind) if each["file"] == file)
        return [int(line) for line in str(facts.get("lines", facts.get("line"))).split(", ")]

    assert at("left_prints", accuracy) == lines_of(accuracy, "print(")
    assert at("left_prints", performance) == lines_of(performance, "print(")
    assert set(at("left_timing", performance)) >= set(lines_of(performance, "time.time()", "synchronize"))
    assert at("left_seconds_as_ms", performance) == lines_of(performance, "triton_time:.4f} ms")
    assert at("left_speedup", performance) == lines_of(performance, "assert speedup")
    assert at("left_tolerance", accuracy) == lines_of(accuracy, "allclose")
    assert at("left_large", accuracy) == lines_of(accuracy, "out = broadcast(")
    assert at("left_seeds", accuracy) == lines_of(accuracy, "manual_seed")
    assert at("left_multiple_of", "broadcast_v1_triton.py") == lines_of("broadcast_v1_triton.py", "lane = ")
    assert at("left_cuda_check", "broadcast_v1_triton.py") == lines_of("broadcast_v1_triton.py", "is_cuda")
    assert left(draft, "left_word")[0]["word"] == "relu"


def test_a_target_is_proposed_as_a_line_of_the_thresholds(drafts):
    reason = next(reason for reason in drafts["broadcast"].left if reason.kind == "left_speedup")

    assert "thresholds/broadcast.yaml as `speedup: 1.5`" in sentence(reason)
    assert left(drafts["swiglu"], "left_speedup")[0]["target"] == "1.3"


def test_assertions_that_were_not_understood_are_told_word_by_word(drafts):
    assert [each["what"] for each in left(drafts["softmax"], "left_assertion")] == [
        "min((s for _, s in results)) >= 1.1"
    ]
    assert left(drafts["softmax"], "left_time_limit")[0]["what"] == "ms < 1.0"


def test_plots_rates_helpers_and_other_versions_are_told(drafts):
    assert left(drafts["softmax"], "left_plots")
    assert left(drafts["softmax"], "left_rates")
    assert left(drafts["softmax"], "left_versions")[0]["others"] == "v1"
    assert left(drafts["swiglu"], "left_get_inputs")
    assert left(drafts["matmul"], "left_plots")


def test_every_statement_of_a_test_is_accounted_for(drafts):
    """Each line of the tests is a case, a check, or in the list; this one's lines are sorted by hand."""
    file = "softmax_v2_test_softmax_performance.py"
    told = [
        facts for facts in map(dict, (reason.facts for reason in drafts["softmax"].left)) if facts.get("file") == file
    ]
    lines = {int(line) for facts in told for line in str(facts.get("lines", facts.get("line"))).split(", ")}

    silent = lines_of(file, "import ", "def ", "for N", "x = ", "results = []", "__main__", "    test_performance()")
    text = (SAMPLES / file).read_text().splitlines()
    full = {number for number, line in enumerate(text, start=1) if line.strip()}
    assert full - lines - set(silent) == set()


NEEDS_ARGUMENTS = """
class Model:
    def __init__(self, n):
        pass

    def forward(self, x):
        pass
"""


def sketch(folder: Path, op: str = "op", **changes: str) -> Path:
    """A small sketch, right in every way; changes replace whole files by part."""
    parts = {
        "triton": """
            import torch
            import triton
            import triton.language as tl

            @triton.jit
            def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
                at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)

            def op(x):
                y = torch.empty_like(x)
                kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
                return y
            """,
        "baseline": "import torch\n\ndef op(x):\n    return x.clone()\n",
        "test_op_accuracy": """
            import torch
            from op_v1_baseline import op as reference
            from op_v1_triton import op

            def test_accuracy():
                N = 100
                x = torch.randn(N, device="cuda")
                torch.testing.assert_close(op(x), reference(x))
            """,
        "test_op_performance": """
            import torch
            from op_v1_triton import op

            def test_performance():
                N = 4096
                op(torch.randn(N, device="cuda"))
            """,
    }
    folder.mkdir(exist_ok=True)
    for part, text in {**parts, **changes}.items():
        (folder / f"{op}_v1_{part}.py").write_text(textwrap.dedent(text))
    return folder


def test_a_sound_sketch_leaves_next_to_nothing(tmp_path):
    draft = kernelgen.convert("op", sketch(tmp_path), None)

    assert draft.left == ()
    assert "cases=(\n        *perfci.grid(N=[1, 1023, 1024, 1025], dtype=DTYPES),\n" in draft.texts["accuracy"]


@pytest.mark.parametrize(
    ("part", "before", "after", "kind"),
    [
        ("triton", "at = tl", "SCALE; at = tl", "left_global"),
        ("triton", "y = torch.empty_like(x)", "print(x); y = torch.empty_like(x)", "left_print"),
        ("triton", "op(x):", "op():\n    x = torch.ones(4, device='cuda')", "left_device"),
        ("baseline", "x.clone()", "x.float()", "left_fixed_dtype"),
        ("baseline", "def op(x):", "def op(x, y=None):", "left_parameters"),
        ("test_op_accuracy", "torch.randn(N, ", "load(N, ", "left_inputs"),
        ("test_op_accuracy", "torch.testing", "N = 7; op(torch.rand(N)); torch.testing", "left_other_inputs"),
        ("test_op_accuracy", "torch.testing", "op(torch.rand(2, 3)); torch.testing", "left_case"),
        ("test_op_accuracy", "op(x), reference(x))", "op(x), 0, rtol=tol(), atol=0)", "left_tolerance_unknown"),
        ("test_op_accuracy", "torch.testing", "assert good(x); torch.testing", "left_assertion"),
        ("test_op_performance", "op(torch", "log.append(1); op(torch", "left_other"),
    ],
)  # fmt: skip
def test_each_fault_of_a_sketch_is_told(tmp_path, part, before, after, kind):
    folder = sketch(tmp_path)
    path = folder / f"op_v1_{part}.py"
    text = path.read_text()
    assert before in text
    path.write_text(f"{'SCALE = 2.0' if kind == 'left_global' else ''}\n{text.replace(before, after)}")

    assert kind in {reason.kind for reason in kernelgen.convert("op", folder, None).left}


def test_what_shares_a_line_with_a_print_stays(tmp_path):
    folder = sketch(tmp_path)
    path = folder / "op_v1_triton.py"
    path.write_text(
        path.read_text().replace("y = torch", "print(x); y = torch").replace("tl\n\n", "tl; print(1)\n\n", 1)
    )

    text = kernelgen.convert("op", folder, None).texts["triton"]

    assert "    pass; y = torch.empty_like(x)\n" in text
    assert "import triton.language as tl; pass\n" in text


def test_stricter_tolerances_hold(tmp_path):
    folder = sketch(tmp_path)
    path = folder / "op_v1_test_op_accuracy.py"
    path.write_text(path.read_text().replace("reference(x))", "reference(x), rtol=0, atol=0)"))

    draft = kernelgen.convert("op", folder, None)

    assert 'tolerance={"float32": (0.0, 0.0)},' in draft.texts["accuracy"]
    assert "carried_tolerance" in {reason.kind for reason in draft.carried}


def test_a_kernel_that_refuses_odd_sizes_gets_the_sketchs_own_alone(tmp_path):
    folder = sketch(tmp_path)
    path = folder / "op_v1_triton.py"
    path.write_text(path.read_text().replace("    y = torch", "    assert x.numel() % 4 == 0\n    y = torch"))

    draft = kernelgen.convert("op", folder, None)

    assert "cases=(\n        *perfci.grid(N=[100], dtype=[torch.float32]),\n    )," in draft.texts["accuracy"]
    assert "look_divides" in {reason.kind for reason in draft.look}


# --- what cannot be converted


def test_the_newest_version_is_taken_unless_another_is_named(tmp_path):
    folder = sketch(tmp_path)
    for path in list(folder.iterdir()):
        shutil.copy(path, folder / path.name.replace("_v1_", "_v12_"))

    told = [left(kernelgen.convert("op", folder, version), "left_versions")[0]["version"] for version in (None, 1)]

    assert told == [12, 1]


@pytest.mark.parametrize(
    ("op", "version", "said"),
    [
        ("softmax", 1, "Version 1 of softmax in {folder} lacks _baseline, _accuracy, _performance: an op is made"),
        ("softmax", 1, "of all four files; --version 2 has them."),
        ("softmax", 7, "has no version 7 of softmax: take --version with one of 1, 2."),
        ("softmaks", None, "has no files of an op softmaks: did you mean softmax?"),
        ("quux", None, "it has broadcast, broadcast_bias, matmul, softmax, swiglu, and OP has to be one of these."),
    ],
)  # fmt: skip
def test_what_the_folder_has_not_is_told(op, version, said):
    with pytest.raises(UsageError) as caught:
        kernelgen.convert(op, SAMPLES, version)

    assert said.format(folder=SAMPLES) in sentence(caught.value.reason)


def test_half_a_sketch_is_told(tmp_path):
    folder = sketch(tmp_path)
    (folder / "op_v1_baseline.py").unlink()

    with pytest.raises(UsageError) as caught:
        kernelgen.convert("op", folder, None)

    assert "lacks _baseline: an op is made of all four files, so add" in sentence(caught.value.reason)


@pytest.mark.parametrize("name", ["empty", "missing", "file.py"])
def test_a_folder_without_sketches_is_told(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.py").touch()

    with pytest.raises(UsageError) as caught:
        kernelgen.convert("op", tmp_path / name, None)

    assert str(tmp_path / name) in sentence(caught.value.reason)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"triton": "def op(x:\n"}, "op_v1_triton.py, line 1: Python cannot read this"),
        ({"test_op_accuracy": "x = (\n"}, "op_v1_test_op_accuracy.py, line 1: Python cannot read this"),
        ({"triton": "def op(x):\n    return x\n"}, "has no function that launches a Triton kernel"),
        ({"baseline": "def a(x):\n    return x\ndef b(x):\n    return x\n"}, "(it has a, b): call it op."),
        (
            {"baseline": NEEDS_ARGUMENTS},
            "Model needs arguments to be made",
        ),
    ],
)
def test_files_that_cannot_be_read_or_say_too_little_are_told(tmp_path, changes, said):
    folder = sketch(tmp_path, **changes)
    if "baseline" in changes:
        path = folder / "op_v1_test_op_accuracy.py"
        path.write_text(path.read_text().replace("from op_v1_baseline import op as reference", "reference = None"))

    with pytest.raises(UsageError) as caught:
        kernelgen.convert("op", folder, None)

    assert said in sentence(caught.value.reason)


def test_a_sketch_is_never_run(tmp_path):
    folder = sketch(tmp_path)
    for path in folder.iterdir():
        path.write_text(f"raise SystemExit\n{path.read_text()}")

    assert kernelgen.convert("op", folder, None).texts


# --- the check


@pytest.mark.slow
@pytest.mark.torch
def test_right_sketches_pass_and_one_that_mixes_up_broadcast_with_an_addition_does_not(converted):
    where = [str(HERE / "interpreted.py"), str(converted / "kernels"), SOME]
    command = [sys.executable, "-W", "ignore", *where, *OPS]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr

    told = json.loads(done.stdout.splitlines()[-1])
    assert {op: told[op][1] for op in RIGHT} == {op: [] for op in RIGHT}
    assert all(told[op][0] > 5 for op in RIGHT)
    assert "rows=33,cols=100,dtype=float32 ones wrong_values" in told[MIXED_UP][1][0]


@pytest.mark.slow
@pytest.mark.torch
def test_a_check_says_so(converted, capsys):
    arguments = ["--device", "cpu", "--suite", "accuracy", "--project", str(converted), "--case", SOME]

    assert run(["check", *arguments, "--op", "broadcast", "--op", MIXED_UP]) == 2

    out = capsys.readouterr().out
    assert re.search(r"PASS +broadcast accuracy", out)
    assert re.search(r"WRONG +broadcast_bias accuracy", out)


# --- the guide


def test_the_guide_shows_what_the_command_prints(tmp_path, monkeypatch, capsys):
    guide = (ROOT / "docs" / "kernelgen.md").read_text(encoding="utf-8")
    shown = re.search(r"```text\n\$ perfci (.+?)\n(.*?)```", guide, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels").mkdir()
    shutil.copytree(SAMPLES, tmp_path / "sketches")

    assert run(shown[1].split()) == 0

    assert capsys.readouterr().out == shown[2]
