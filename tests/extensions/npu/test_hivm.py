"""What Ascend's compiler writes, as recorded from ascendnpu-ir 1.2.0 and triton-ascend 3.2.0, and what is read."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from perfci.core.errors import DeviceError
from perfci.core.wording import sentence
from perfci.extensions.common.targets import target_named
from perfci.extensions.npu import hivm

COMPILED = Path(__file__).parent / "compiled"  # HIVM of kernels of this repository, without paths

OVERFLOW = """
loc("kernel.mlir":1:1): loc("kernel.mlir":2:3): [NOTE] Ub overflow detected; automatically set enable-code-motion to \
false and retrying compilation.
[NOTE] Ub overflow detected; automatically set enable-auto-multi-buffer to false and retrying compilation.
[NOTE] Due to Ub overflow, automatically set enable-code-motion to false, set enable-auto-multi-buffer to false; \
compilation still failed.
loc("kernel.mlir":1:1): error: Failed to run BiShengHIR pipeline

loc("/project/kernels/_norm_backward.py":110:0): error: ub overflow, requires 1704704 bits while 1572864 bits \
available! (possible reason: tiling basic block is too large or block number is more than what user expect due to \
multi-buffer feature is enabled and some ops need extra local buffer.)
[ERROR] Failed to run BiShengIR pipeline
"""
CRASH = """
[hivm-bind-sub-block] revert _keys_kernel_mix_aiv: tile-and-slice preparation failed
bishengir-compile-a5: /usr1/BiSheng/npuir-a5/third-party/llvm-project/mlir/lib/IR/PatternMatch.cpp:135: virtual void \
mlir::RewriterBase::replaceOp(mlir::Operation *, mlir::ValueRange): Assertion `op->getNumResults() == \
newValues.size() && "incorrect # of replacement values"' failed.
PLEASE submit a bug report to https://github.com/llvm/llvm-project/issues/ and include the crash backtrace.
"""
UNBUFFERED = """
loc("kernel.mlir":1:1): loc("kernel.mlir":2:3): [NOTE] Ub overflow detected; automatically set enable-code-motion to \
false and retrying compilation.
[NOTE] Due to Ub overflow, automatically set enable-code-motion to false, set enable-auto-multi-buffer to false; \
compilation then succeeded.
"""
LESS_MOTION = "[NOTE] Due to Ub overflow, automatically set enable-code-motion to false; compilation then succeeded."


def test_of_an_overflow_the_memory_the_excess_and_the_line_are_told():
    error = hivm.explain(OVERFLOW, 1, "bishengir-compile")

    facts = error.reason.facts
    assert error.reason.kind == "npu_overflows"
    assert (facts["memory"], facts["required"], facts["available"]) == ("UB", 213088, 196608)
    assert (facts["more"], facts["file"], facts["line"]) == (213088 - 196608, "_norm_backward.py", 110)


def test_an_assertion_of_the_compilers_is_told_as_it_is():
    error = hivm.explain(CRASH, -6, "bishengir-compile-a5")

    assert error.reason.kind == "npu_not_lowered"
    assert error.reason.facts["message"].startswith("Assertion `op->getNumResults() == newValues.size()")
    assert error.reason.facts["line"] is None


@pytest.mark.parametrize("code", [-9, -15])
def test_a_compiler_that_is_ended_from_outside_says_nothing_about_the_kernel(code):
    with pytest.raises(DeviceError) as caught:
        hivm.explain("[hivm-bind-sub-block] revert _k_mix_aiv\n", code, "bishengir-compile")

    assert caught.value.reason.kind == "npu_compiler_stopped"


def test_double_buffering_is_given_up_only_if_the_compiler_got_through_without_it():
    assert hivm.GIVEN_UP.search(UNBUFFERED)
    assert not hivm.GIVEN_UP.search(OVERFLOW)
    assert not hivm.GIVEN_UP.search(LESS_MOTION)


def test_the_plan_of_a_product_on_a_910b_is_read():
    plan = hivm.read_plan((COMPILED / "matmul_910b2.mlir").read_text())

    # Two tiles of 32x64 and 64x32 in bfloat16, both twice; 64x64 sums in float32.
    assert plan == {"l1_bytes": 4 * 4096, "l0c_bytes": 16384, "barriers": 1, "double_buffers": 2, "unbuffered": 0}


def test_the_plan_of_a_950_is_read_whose_numbers_and_selections_are_llvms():
    plan = hivm.read_plan((COMPILED / "broadcast_950.mlir").read_text())

    assert plan == {"ub_bytes": 33280, "barriers": 2, "double_buffers": 1, "unbuffered": 0}


def test_numbers_of_one_function_are_not_those_of_the_next():
    text = """
  func.func @k_mix_aic() {
    %0 = llvm.mlir.constant(8192 : i64) : i64
  }
  func.func @k_mix_aiv() {
    %0 = llvm.mlir.constant(0 : i64) : i64
    %1 = hivm.hir.pointer_cast(%0) : memref<1x128xf32, #hivm.address_space<ub>>
  }
"""
    assert hivm.read_plan(text)["ub_bytes"] == 512


# --- in triton-ascend's compiler --------------------------------------------------------------------------------------


def _parse_linalg_metadata(linalg, metadata):
    metadata["name"] = "k aiv"
    return linalg.replace(', mix_mode = "aiv"', ""), metadata


class Compiler:
    """triton-ascend's, whose last stage needs CANN."""

    def add_stages(self, stages, options):
        stages["ttir"] = lambda module, metadata: f"{module} as ttir"
        stages["ttadapter"] = lambda module, metadata: f'{module}, mix_mode = "aiv"'
        stages["npubin"] = self.refuse

    def refuse(self, module, metadata):
        raise OSError("ASCEND_HOME_PATH is not set")


def test_a_stage_of_its_own_gives_what_the_real_compiler_plans_and_the_binary_what_it_was_given(monkeypatch):
    compiler, given = type("Compiler", (Compiler,), {}), []
    monkeypatch.setattr(hivm, "lower", lambda *given_now: given.extend(given_now) or "planned")
    hivm.install_stages(compiler, "Ascend910B2", "npubin")
    stages, value, metadata = {}, "module", {}
    compiler().add_stages(stages, SimpleNamespace())
    for stage in stages.values():
        value = stage(value, metadata)

    assert list(stages) == ["ttir", "ttadapter", "hivm", "npubin"]
    assert given == ["module as ttir", {"name": "k aiv"}, "Ascend910B2"]
    # HIVM of one kernel may differ from call to call. What it is made of is compared: the input, flags and compiler.
    assert value.startswith(b"module as ttir\n// Ascend910B2 ascendnpu-ir")
    assert b"planned" not in value


def test_a_refusal_is_told_with_the_tile_that_would_fit():
    refused = hivm.explain(OVERFLOW, 1, "bishengir-compile").reason
    facts = refused.facts | {
        "kernel": "_rows_kernel",
        "target": "ascend910b2",
        "tile": "COLS",
        "size": 8192,
        "fits": 4096,
    }
    told = sentence(type(refused)("npu_overflows", facts | {"cause": "tile_fits"}))

    assert "does not fit ascend910b2: it needs 208 KiB of UB, 16.1 KiB more than the 192 KiB" in told
    assert "_norm_backward.py, line 110" in told
    assert "With COLS 4096 in place of 8192 it fits" in told


@pytest.mark.parametrize(
    ("name", "board", "cores", "unified"),
    [("ascend910b2", "Ascend910B2", 48, 192), ("ascend910_93", "Ascend910_9382", 48, 192),
     ("ascend950", "Ascend950PR_9589", 64, 248)],
)  # fmt: skip
def test_targets_have_what_the_compiler_has_of_their_chips(name, board, cores, unified):
    target = target_named(name)

    assert (target.arch, target.processors, target.shared_block) == (board, cores, unified << 10)
