import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "adding-an-op.md"
CHECK = """
import sys
sys.path[:0] = ["kernels", "kernels/silu"]
import torch
from silu_accuracy import accuracy
from silu_performance import performance

for case in (*accuracy.cases, *accuracy.probe_cases):
    inputs = accuracy.make_inputs(**case, device="cpu", seed=1)
    exact = accuracy.reference(**{name: value.double() for name, value in inputs.items()})
    torch.testing.assert_close(accuracy.kernel(**inputs), exact.to(case["dtype"]))
for name, make in accuracy.rejects:
    try:
        accuracy.kernel(**make("cpu"))
    except (TypeError, ValueError):
        continue
    raise AssertionError(name)
assert {performance.bytes_moved(**case) for case in performance.cases} == {2**26, 2**29}
print(len(accuracy.cases))
"""


def files():
    """The guide's Python blocks by the path in their first line."""
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return dict(blocks)


@pytest.fixture
def project(tmp_path):
    """A project with the guide's op alone."""
    for path, text in files().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "kernels" / "_launch.py", tmp_path / "kernels")
    shutil.copytree(ROOT / "kernels" / "_devices", tmp_path / "kernels" / "_devices")
    return tmp_path


def test_the_guide_shows_the_four_files():
    assert set(files()) == {
        f"kernels/silu/silu_{part}.py" for part in ("triton", "baseline", "accuracy", "performance")
    }


@pytest.mark.nightly
@pytest.mark.torch
def test_the_guides_op_is_right(project):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}

    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", CHECK],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "36\n"), done.stderr
