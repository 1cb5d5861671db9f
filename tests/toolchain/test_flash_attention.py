"""FlashAttention 4, as published, compiled for a B200 without one: what a release made slower, and what it did not.

Its forward kernel of width 128 spilled 112 bytes a thread from 4.0.0b5 to 4.0.0b7, with the same output:
https://github.com/Dao-AILab/flash-attention/issues/2729.
"""

import json
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")

from perfci.extensions.offline import library
from tests.toolchain import environments

FILES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
OLD, NEW = "4.0.0b5", "4.0.0b7"
AROUND = (
    "nvidia-cutlass-dsl==4.4.2", "nvidia-cutlass-dsl-libs-base==4.4.2", "quack-kernels==0.3.3", "einops==0.8.2",
    "apache-tvm-ffi==0.1.15.post2", "torch-c-dlpack-ext==0.1.5", "cuda-bindings==13.5.0", "cuda-pathfinder==1.9.1",
)  # fmt: skip
"""What it needs beside torch. With newer ones of some it does not import."""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.nightly,
    pytest.mark.skipif(not library.is_possible(), reason="there is no driver without a device for this processor"),
]


@pytest.fixture(scope="module")
def around(tmp_path_factory):
    """An environment with the old release, and a project with an op that is its forward."""
    folder = tmp_path_factory.mktemp("around")
    python = environments.make(folder / "old", [f"flash-attn-4=={OLD}", *AROUND], alone=True)
    root = folder / "project"
    environments.make_repository(root, FILES)
    return python, root


def compare(around, *words):
    """Exit code, verdicts and what was compiled, of the installed packages beside others."""
    python, root = around
    done = environments.check_static(python, root, "attention", "--target", "sm_100", *words)
    if "cannot be installed" in done.stderr:
        pytest.skip(done.stderr)
    static = json.loads((root / "reports" / "static" / "run.json").read_text())["static"]
    return done.returncode, json.loads(done.stdout)["verdicts"], static


def test_the_release_that_spills_fails_and_its_112_bytes_are_named(around):
    code, verdicts, static = compare(around, "--toolchain", f"flash-attn-4=={NEW}")

    assert code == 2
    worse, fine = sorted(verdicts, key=lambda row: row["case"] is None)
    assert (worse["case"], worse["verdict"]) == ("length=8192,causal=False", "REGRESSED")
    facts = [reason["facts"] for reason in (worse["reason"], *worse["also"])]
    grown = {one["what"]: (one["before"], one["after"]) for one in facts if "what" in one}
    assert grown["spill bytes"] == grown["bytes of local memory"] == ("0", "112")
    assert fine["verdict"] == "PASS"
    assert {binary["traits"]["warpgroup"] for case in static["ops"][0]["cases"] for binary in case["binaries"]} == {64}


def test_the_kernel_that_two_releases_of_the_compiler_make_alike_is_unchanged(around):
    words = ("--toolchain", "nvidia-cutlass-dsl==4.5.2", "--case", "length=8192,causal=True")
    code, (row,), static = compare(around, *words)

    assert (code, row["verdict"]) == (0, "UNCHANGED")
    assert "nvidia-cutlass-dsl 4.5.2" in static["toolchain"]
    assert "nvidia-cutlass-dsl 4.4.2" in static["base_toolchain"]
