"""Ascend's real compiler: kernels of public reports that it refuses, and every kernel of this repository.

It is another Triton, so it gets an environment, which is kept for the next time. Without an index to fetch it from the
tests are skipped.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import static_ops
from tests.benchmark_modules import imported
from tests.extensions.npu.chip.stand_in import cache as cache_folder

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[3]
PUBLISHED = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text("utf-8"))
TARGETS = ("ascend910b2", "ascend950")
CHIPS = (*TARGETS, "ascend910_93")
UNABLE = {"fp8_matmul", "fp8_attention", "allgather_matmul", "matmul_reducescatter"}
"""Ops that these chips cannot compute: without products of float8, or without memory that ranks share"""
LIMIT_S = 1800


@pytest.fixture(scope="module")
def python():
    """The interpreter of an environment with perfci's extra `ascend`."""
    if not (3, 11) <= sys.version_info < (3, 12):
        pytest.skip("triton-ascend 3.2.0 has wheels for Python 3.11 at most, and perfci needs 3.11")
    folder = cache_folder() / "environments" / "ascend"
    with imported(ROOT / "benchmarks", "ascend_interpreter") as benchmarks:
        try:
            made = benchmarks.ascend_interpreter.environment(folder)
        except subprocess.CalledProcessError:
            pytest.skip("no index to fetch triton-ascend and ascendnpu-ir from")
    return made


def compile_project(python, root, *words):
    """What `perfci static` writes as JSON in a project."""
    command = [str(python), "-P", "-m", "perfci", "static", *words, "--format", "json"]
    variables = os.environ | {"PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=root, env=variables, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def verdicts(python, tmp_path_factory):
    """Verdicts of the published kernels, by (op, target): the row of each, an ERROR before any other."""
    root = tmp_path_factory.mktemp("published")
    (root / "pyproject.toml").write_text("[tool.perfci]\n")
    for op, text in PUBLISHED.items():
        static_ops.write(root / "kernels", op, static_ops.HEADER + text, cases='{"n": 1 << 22}')
    rows = compile_project(python, root, "--target", ",".join(TARGETS))["verdicts"]
    return {(row["op"], row["target"]): row for row in sorted(rows, key=lambda row: row["verdict"] == "ERROR")}


@pytest.mark.parametrize(
    ("op", "target", "kind", "facts"),
    [
        # verl#7950: 128 x 256 x 32, which a GPU takes, is too much; with half the rows it fits.
        ("efficient_entropy", "ascend910b2", "npu_overflows", {"memory": "UB", "tile": "M", "size": 128, "fits": 64}),
        # triton-ascend#2246: a 950 keeps a tile of each unrolled pass, which a 910B does not.
        ("static_scan", "ascend950", "npu_overflows", {"memory": "UB", "tile": "BLOCK_N", "fits": 4096}),
        # triton-ascend#302
        ("large_block", "ascend910b2", "npu_overflows", {"memory": "UB", "required": 1 << 18, "fits": 32768}),
        # triton-ascend#2156: the helper that loads from one of two places, in a loop
        ("helper_in_loop", "ascend910b2", "npu_not_lowered", {"stage": "triton-to-linalg", "kernel": "_count_tokens"}),
    ],
)
def test_what_was_published_as_refused_is_refused_with_memory_pass_and_tile(verdicts, op, target, kind, facts):
    row = verdicts[op, target]

    assert (row["verdict"], row["reason"]["kind"]) == ("ERROR", kind)
    assert facts.items() <= row["reason"]["facts"].items()
    assert row["reason"]["facts"]["file"] == f"{op}_triton.py"
    assert row["reason"]["facts"]["compiler"].split()[0] in {"ascendnpu-ir", "triton-ascend"}


@pytest.mark.parametrize(("op", "target"), [("static_scan", "ascend910b2"), *(("flip", target) for target in TARGETS)])
def test_what_these_releases_compile_is_no_error(verdicts, op, target):
    # triton-ascend#1638 was seen with later releases than PyPI has.
    assert verdicts[op, target]["verdict"] == "PASS"
    assert verdicts[op, target]["reason"]["kind"] == "compiled_on_chip"


@pytest.fixture(scope="module")
def repository(python, tmp_path_factory):
    """What `perfci static` says of every op of this repository on three chips."""
    root = tmp_path_factory.mktemp("repository")
    (root / "pyproject.toml").write_text("[tool.perfci]\ntime_limit_s = 1800\n")
    for name in ("kernels", "thresholds"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    return compile_project(python, root, "--target", ",".join(CHIPS))


@pytest.mark.parametrize("target", CHIPS)
def test_every_kernel_of_this_repository_compiles_and_fits(repository, target):
    rows = [row for row in repository["verdicts"] if row["target"] == target and "@" not in row["op"]]
    assert {row["op"] for row in rows} == {path.parent.name for path in ROOT.glob("kernels/*/*_triton.py")}
    wrong = {"PASS": [], "INCONCLUSIVE": []}
    for row in rows:
        wrong["INCONCLUSIVE" if row["op"] in UNABLE else "PASS"].append((row["verdict"], row["reason"]["sentence"]))
    assert [said for verdict, seen in wrong.items() for said in seen if said[0] != verdict] == []

    kernels = {
        (kernel["name"], kernel["artefact"]): kernel["traits"]
        for case in repository["compiled"] if case["target"] == target for kernel in case["kernels"]
    }  # fmt: skip
    assert len(kernels) >= 169
    assert [name for name, traits in kernels.items() if "barriers" not in traits] == []  # which is read of its HIVM
