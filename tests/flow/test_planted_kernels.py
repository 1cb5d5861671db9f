"""Kernels of this repository with a mistake planted: each must be WRONG, and the untouched ones right."""

import json
import shutil
from pathlib import Path

import pytest

from perfci.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.torch, pytest.mark.slow]

PLANTED = {
    "mask one short": ("broadcast", "(col < cols)[None, :]", "(col < cols - 1)[None, :]"),
    "stale output": (
        "bias_relu",
        "    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)\n",
        "    out = _KEPT.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype, device=x.device))\n",
    ),
}
"""benchmarks/planted.py has many more; these go all the way to a verdict."""

RACE = """
@triton.jit
def _column_sums(x_ptr, out_ptr, rows, cols, COLS: tl.constexpr):
    col = tl.arange(0, COLS)
    x = tl.load(x_ptr + tl.program_id(0) * cols + col, mask=col < cols, other=0.0)
    so_far = tl.load(out_ptr + col, mask=col < cols, other=0.0)
    tl.store(out_ptr + col, so_far + x, mask=col < cols)
"""


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def copied(op: str, tmp_path: Path) -> Path:
    """A project with one op of this repository and the common modules of ops."""
    kernels = tmp_path / "project" / "kernels"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "kernels" / op, kernels / op, ignore=ignore)
    shutil.copytree(ROOT / "kernels" / "_devices", kernels / "_devices")
    for shared in (ROOT / "kernels").glob("_*.py"):
        shutil.copy(shared, kernels)
    return tmp_path / "project"


def check(project: Path, capsys, *options: str) -> tuple[int, list[dict]]:
    capsys.readouterr()
    arguments = ["check", "--suite", "accuracy", "--device", device(), "--format", "json", "--project", str(project)]
    code = run([*arguments, *options])
    return code, json.loads(capsys.readouterr().out)["verdicts"]


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_wrong(mistake, tmp_path, capsys):
    op, before, after = PLANTED[mistake]
    project = copied(op, tmp_path)
    path = project / "kernels" / op / f"{op}_triton.py"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after).replace("@triton.jit", "_KEPT = {}\n\n\n@triton.jit", 1))

    code, verdicts = check(project, capsys)

    assert code == 2
    assert {row["verdict"] for row in verdicts} == {"WRONG"}, verdicts


def test_a_sum_without_atomics_is_a_race_that_the_interpreter_shows_too(tmp_path, capsys):
    project = tmp_path / "project"
    write_column_sums(project, RACE)

    code, verdicts = check(project, capsys)

    assert code == 2
    assert "WRONG" in {row["verdict"] for row in verdicts}


def write_column_sums(project: Path, kernel: str) -> None:
    folder = project / "kernels" / "column_sums"
    folder.mkdir(parents=True)
    (folder / "column_sums_triton.py").write_text(
        "import torch\nimport triton\nimport triton.language as tl\n\n"
        f"{kernel}\n\n"
        "def column_sums(x):\n"
        "    out = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)\n"
        "    _column_sums[(x.shape[0],)](x, out, x.shape[0], x.shape[1], COLS=triton.next_power_of_2(x.shape[1]))\n"
        "    return out\n"
    )
    (folder / "column_sums_baseline.py").write_text(
        "import torch\n\n\ndef column_sums(x):\n    return x.sum(0)\n\n\n"
        "def make_inputs(rows, cols, device, seed):\n"
        "    generator = torch.Generator(device).manual_seed(seed)\n"
        '    return {"x": torch.randn(rows, cols, device=device, generator=generator)}\n'
    )
    for suite, kind in (("accuracy", "Accuracy"), ("performance", "Performance")):
        extra = ', values=("normal",), layouts=("contiguous",), reduces=lambda rows, cols: rows, deterministic=False'
        (folder / f"column_sums_{suite}.py").write_text(
            "import perfci\n"
            "from column_sums_baseline import column_sums as reference\n"
            "from column_sums_baseline import make_inputs\n"
            "from column_sums_triton import column_sums as kernel\n\n"
            f"{suite} = perfci.{kind}(kernel=kernel, reference=reference, make_inputs=make_inputs, "
            f"cases=perfci.grid(rows=[2000 if {device()!r} == 'cuda' else 16], cols=[50])"
            f"{extra if suite == 'accuracy' else ''})\n"
        )


@pytest.mark.nightly
def test_a_performance_suite_that_cannot_run_is_an_error_without_a_device_too(tmp_path, capsys):
    if device() == "cuda":
        pytest.skip("a GPU runs the suite itself")
    project = copied("broadcast", tmp_path)
    path = project / "kernels" / "broadcast" / "broadcast_performance.py"
    text = path.read_text()
    assert "bytes_moved=lambda" in text
    path.write_text(
        text.replace("bytes_moved=lambda", "flops=lambda rows, cols, dtype: 1 // 0,\n    bytes_moved=lambda", 1)
    )

    code = run(["check", "--device", "cpu", "--case", "rows=1*", "--format", "json", "--project", str(project)])

    assert code == 2
    assert "ZeroDivisionError" in capsys.readouterr().out
