"""The static task from outside: a worker's messages about ops that it compiles for a target."""

from pathlib import Path

import pytest

from perfci.core.model import Reason
from perfci.core.wording import sentence
from tests import triton_versions
from tests.static_ops import HEADER, SCALE, bodies, compiled, edited, run, write

pytestmark = [pytest.mark.torch, pytest.mark.slow]

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
OPS = {"broadcast": 10, "softmax": 7, "matmul": 8}
"""op -> how many cases it has"""
TARGETS = triton_versions.targets("sm_80", "sm_100", "sm_120", "gfx942")  # tests/kernels compiles them for sm_90

HELPED = edited(SCALE, ("import torch\n", "import torch\nfrom neighbour import FACTOR\n"), ("x * 2.0", "x * FACTOR"))
CASES = '{"n": 4096}, {"n": 100}, {"n": 7}'


@pytest.mark.parametrize(
    ("target", "ops"),
    [("sm_80", ["softmax"]), *(pytest.param(target, [*OPS], marks=pytest.mark.nightly) for target in TARGETS)],
)
def test_every_case_of_the_projects_ops_is_captured_and_compiles(target, ops, tmp_path):
    cases = {op: static["cases"] for op, static in compiled(run(KERNELS, ops, target, tmp_path)).items()}

    assert {op: len(captured) for op, captured in cases.items()} == {op: OPS[op] for op in ops}
    for captured in cases.values():
        for case in captured:
            assert case["failure"] is None
            assert case["identity"]["unknown"] is None
            assert len(case["identity"]["launches"]) == len(case["binaries"]) == 1


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """A worker's messages about sound and broken ops, some of which have modules of the same name."""
    root = tmp_path_factory.mktemp("ops")
    write(root, "sound", SCALE, cases=CASES)
    write(root, "unimportable", "import no_such_module\n")
    write(root, "leaving", "raise SystemExit(3)\n")
    write(root, "without_cases", SCALE, cases="")
    write(
        root, "half_broken", edited(SCALE, ("    n = x.numel()", "    n = x.numel()\n    assert n != 100")), cases=CASES
    )
    write(root, "doubling", HELPED)
    (root / "doubling" / "neighbour.py").write_text("import triton.language as tl\n\nFACTOR = tl.constexpr(2.0)\n")
    write(root, "tripling", HELPED)
    (root / "tripling" / "neighbour.py").write_text("import triton.language as tl\n\nFACTOR = tl.constexpr(3.0)\n")
    write(
        root,
        "late",
        edited(SCALE, ("    out =", "    from late_helper import FACTOR\n    assert FACTOR == 2\n    out =")),
    )
    (root / "late" / "late_helper.py").write_text("FACTOR = 2\n")
    ops = sorted(path.name for path in root.iterdir() if path.is_dir())
    return run(root, ops, "sm_80", tmp_path_factory.mktemp("cache"), TRITON_INTERPRET="1")


@pytest.mark.nightly
def test_every_op_is_answered_whatever_its_neighbours_do(said):
    statics = compiled(said)

    assert [op for op, static in statics.items() if static["failure"]] == ["leaving", "unimportable", "without_cases"]
    assert statics["unimportable"]["failure"]["facts"]["message"] == "No module named 'no_such_module'"
    assert statics["without_cases"]["failure"]["kind"] == "no_cases"
    assert all(static["target"] == "sm_80" for static in statics.values())


def test_one_case_that_cannot_be_captured_costs_no_other(said):
    cases = compiled(said)["half_broken"]["cases"]

    unknown = [case["identity"]["unknown"] for case in cases]
    assert [case["case"] for case in cases] == ["n=4096", "n=100", "n=7"]
    assert (unknown[0], unknown[2]) == (None, None)
    assert unknown[1]["facts"]["case"] == "n=100"
    assert unknown[1]["facts"]["error"] == "AssertionError"


def test_modules_of_the_same_name_are_each_ops_own(said):
    statics = compiled(said)
    doubling, tripling, plain = (statics[op]["cases"][0]["identity"] for op in ("doubling", "tripling", "sound"))

    assert doubling["launches"] == plain["launches"]
    assert tripling["launches"][0]["artefact"] != doubling["launches"][0]["artefact"]


def test_imports_at_call_time_find_the_ops_folder(said):
    assert compiled(said)["late"]["cases"][0]["identity"]["unknown"] is None


TOOLLESS = """
import sys
from perfci.extensions.common import binaries
binaries.tool = lambda name: None
from perfci.extensions.common import binaries
from perfci.worker.child import main
main()
"""

BY_REGISTERS = HEADER + edited(
    SCALE,
    (HEADER, ""),
    (
        "    _scale[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)\n",
        "    kernel = _scale.warmup(x, out, n, BLOCK=256, grid=(1,))\n    kernel._init_handles()\n"
        "    _scale[(kernel.n_regs,)](x, out, n, BLOCK=256)\n",
    ),
)


@pytest.mark.nightly
def test_without_the_disassembler_figures_are_missing_and_said_to_be(tmp_path):
    write(tmp_path, "sound", SCALE)
    write(tmp_path, "by_registers", BY_REGISTERS)
    statics = compiled(run(tmp_path, ["sound", "by_registers"], "sm_90", tmp_path / "cache", program=TOOLLESS))

    missing = statics["sound"]["unavailable"]
    assert sentence(Reason(missing["kind"], missing["facts"])) == (
        "The programs cuobjdump, nvdisasm are not beside Triton, so registers, spills and occupancy and instructions "
        "of compiled kernels are not known: put them on PATH, or install a Triton that bundles them."
    )
    (case,) = statics["sound"]["cases"]
    (binary,) = case["binaries"]
    assert case["identity"]["unknown"] is None
    assert [binary[name] for name in ("registers", "spill_bytes", "instructions", "occupancy")] == [None] * 4
    assert (binary["shared_bytes"], binary["warps"], binary["mix"]) == (0, 4, {})
    # A wrapper that launches by what the compiler made of its kernel cannot be followed then.
    (case,) = statics["by_registers"]["cases"]
    statics = case["identity"]["unknown"]
    assert statics["facts"].get("what") == "registers of a compiled kernel without cuobjdump", statics


@pytest.mark.nightly
def test_a_machine_without_triton_is_told_so(tmp_path):
    write(tmp_path, "sound", SCALE)
    program = "import sys\nsys.modules['triton'] = None\nfrom perfci.worker.child import main\nmain()\n"

    (told,) = bodies(run(tmp_path, ["sound"], "sm_90", tmp_path / "cache", program=program), "StaticOp")
    assert told["failure"]["kind"] == "static_needs_triton"
