"""Libraries that ask for a GPU when they are imported become ops without one, and their checks run."""

import textwrap
from pathlib import Path

import pytest

from perfci.cli.main import run
from tests.extensions.adopt.rehearsing import interpreted

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size) * 2, mask=at < size)


def double(x: torch.Tensor):
    out = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out
"""

INITS = {
    "properties": "import torch\nMANY = torch.cuda.get_device_properties(0).multi_processor_count + 1\n",
    "target": "import triton\nARCH = 80 <= triton.runtime.driver.active.get_current_target().arch\n",
    "vendor": """
        import subprocess
        import torch
        assert not hasattr(torch, "npu"), "an Ascend NPU was seen"
        assert subprocess.run(["nvidia-smi"], capture_output=True).returncode == 0
        table = torch.zeros(4, device="cuda")
    """,
    "compiler": "import torch\nimport torch._dynamo.config\nLIMIT = int(torch._dynamo.config.cache_size_limit)\n",
}
"""What a package asks when it is imported."""

pytestmark = pytest.mark.torch


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")
    (tmp_path / "ref.py").write_text("def double(x):\n    return x * 2\n")
    for name, text in INITS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(textwrap.dedent(text))
        (tmp_path / name / "op.py").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_packages_that_ask_for_a_gpu_when_they_are_imported_are_brought_in_and_checked(project):
    for name in INITS:
        assert run(["new", f"of_{name}", "--from", f"{name}.op:double", "--reference", "ref.py:double"]) == 0
        pretends = "_sketched.pretend(" in (project / "kernels" / f"of_{name}" / f"of_{name}_triton.py").read_text()
        assert pretends == (name != "compiler")

    told = interpreted(project, "dtype=float32", *(f"of_{name}" for name in INITS))
    assert all(checks > 10 and failures == [] for checks, failures in told.values())


def test_a_package_that_is_not_installed_is_named_and_no_gpu_is_asked_for(project, capsys):
    (project / "target" / "op.py").write_text("import not_installed_here.parts\n" + KERNEL)

    assert run(["new", "lacking", "--from", "target/op.py:double", "--reference", "ref.py:double"]) == 1
    said = capsys.readouterr().err
    assert "pip install not_installed_here" in said
    assert "without a GPU" not in said
