"""This repository's softmax in each compiler but Triton, compiled without a device: a comment, and a planted spill."""

import json
import shutil

import pytest

pytest.importorskip("torch")

from perfci.extensions.offline import library
from tests.static_ops import edited
from tests.toolchain import environments

pytestmark = [
    pytest.mark.torch,
    pytest.mark.nightly,
    pytest.mark.skipif(not library.is_possible(), reason="there is no driver without a device for this processor"),
]

PACKAGES = {
    "cuda": ["cuda-bindings>=13", "nvidia-cuda-nvrtc>=13", "nvidia-cuda-runtime>=13"],
    "cutile": ["cuda-tile[tileiras]==1.7.0"],
    "cutedsl": ["nvidia-cutlass-dsl==4.8.1"],
}
PLANTED = {  # file, what gets a comment, and what a spill
    "cuda": ("softmax.cu", ("#include", "// a comment\n#include"),
             ("__launch_bounds__(BLOCK) NAME", "__launch_bounds__(BLOCK, 2048 / BLOCK) NAME")),
    "cutile": ("softmax_cutile.py", ("@ct.kernel\ndef _l", "# a comment\n@ct.kernel\ndef _l"),
               ("@ct.kernel\ndef _l", "@ct.kernel(occupancy=8)\ndef _l")),
    "cutedsl": ("softmax_cutedsl.py", ("@cute.kernel\ndef _l", "# a comment\n@cute.kernel\ndef _l"),
                ("LONG_VALUES = 512, 32", "LONG_VALUES = 512, 128")),
}  # fmt: skip


@pytest.mark.parametrize("backend", PACKAGES)
def test_a_comment_is_unchanged_and_a_planted_spill_fails(tmp_path, backend):
    python = environments.make(tmp_path / "around", PACKAGES[backend])
    root = tmp_path / "project"
    shutil.copytree(environments.ROOT / "kernels", root / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    environments.make_repository(root, {"pyproject.toml": "[tool.perfci]\n"})
    file, comment, spill = PLANTED[backend]
    path = root / "kernels" / "softmax" / file
    before = path.read_text()

    def judge():
        words = (f"softmax@{backend}", "--target", "sm_90", "--against", "HEAD", "--case", "rows=4096,cols=32768*")
        done = environments.check_static(python, root, *words)
        (row,) = json.loads(done.stdout)["verdicts"]
        return done.returncode, row

    path.write_text(edited(before, comment))
    code, row = judge()
    assert (code, row["verdict"]) == (0, "UNCHANGED")

    path.write_text(edited(before, spill))
    code, row = judge()
    assert (code, row["verdict"]) == (2, "REGRESSED")
    facts = row["reason"]["facts"]
    assert (facts["what"], facts["before"]) == ("spill bytes", "0") and int(facts["after"]) > 0
