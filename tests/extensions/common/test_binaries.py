"""Figures of compiled kernels, compared with those of the assembler, the disassembler and LLVM."""

import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from perfci.extensions.common import binaries
from perfci.extensions.common.binaries import amd_class, find_occupancy, nvidia_class, nvidia_counts, nvidia_usage, tool
from perfci.extensions.common.targets import TARGETS
from tests import triton_versions
from tests.static_ops import HEADER, SCALE, compiled, edited, run, write

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SUMS = (
    HEADER
    + """
@triton.jit
def _sums(x_ptr, out_ptr, SIZE: tl.constexpr):
    offset = tl.arange(0, SIZE)
    total = tl.zeros((SIZE,), tl.float32)
    for turn in range(2):
        x = tl.load(x_ptr + offset + turn * SIZE)
        total += tl.exp(x) * tl.sum(x)
    tl.store(out_ptr + offset, total)


def {op}(x):
    out = torch.empty(2048, device=x.device)
    _sums[(1,)](x, out, SIZE=2048, num_warps=1)
    return out
"""
)
PRODUCT = (
    HEADER
    + """
@triton.jit
def _product(x_ptr, out_ptr, SIDE: tl.constexpr):
    place = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    total = tl.zeros((SIDE, SIDE), tl.float32)
    for turn in range(4):
        x = tl.load(x_ptr + place).to(tl.float16)
        total = tl.dot(x, x, total)
    tl.store(out_ptr + place, total)


def {op}(x):
    out = torch.empty((64, 64), device=x.device)
    _product[(1,)](x, out, SIDE=64)
    return out
"""
)
OPS = {
    "scale": SCALE,
    "sums": SUMS,
    "spilling": edited(SUMS, ("_sums", "_spilling"), ("num_warps=1", "num_warps=1, maxnreg=32")),
    "sines": edited(
        SCALE,
        ("_scale", "_sines"),
        ("x * 2.0", "libdevice.sin(x)"),
        ("language as tl\n", "language as tl\nfrom triton.language.extra import libdevice\n"),
    ),
    "calling": edited(
        SCALE,
        ("_scale", "_calling"),
        ("x * 2.0", "x * _doubled(tl.program_id(0))"),
        ("@triton.jit\n", "@triton.jit(noinline=True)\ndef _doubled(x):\n    return x * x + 2\n\n\n@triton.jit\n"),
    ),
    "product": PRODUCT,
}
KERNELS = {"scale": "_scale", "sums": "_sums", "spilling": "_spilling", "sines": "_sines", "calling": "_calling"}


class Built:
    """What was compiled for one target: figures by op, and the compiler's files in its cache."""

    def __init__(self, folder: Path, target: str, ops: list[str]):
        for op in ops:
            write(folder / "ops", op, OPS[op])
        self.cache = folder / "cache"
        self.ops = compiled(run(folder / "ops", ops, target, self.cache))

    def figures(self, op):
        (case,) = self.ops[op]["cases"]
        assert case["failure"] is None, case["failure"]
        (binary,) = case["binaries"]
        return binary

    def file(self, kernel, kind):
        (path,) = self.cache.glob(f"*/{kernel}.{kind}")
        return path


@pytest.fixture(scope="module")
def hopper(tmp_path_factory):
    return Built(tmp_path_factory.mktemp("hopper"), "sm_90", list(OPS))


@pytest.fixture(scope="module")
def instinct(tmp_path_factory):
    return Built(tmp_path_factory.mktemp("instinct"), "gfx942", ["scale", "sums", "product"])


def ptxas(path: Path) -> dict[str, int]:
    """Registers and local memory as the assembler itself counts them."""
    with tempfile.NamedTemporaryFile() as out:
        options = ("-v", "--regAllocOptLevel=2", "--gpu-name=sm_90a")
        command = [tool(triton_versions.ASSEMBLER), *options, path, "-o", out.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    # Functions that the kernel calls come first.
    frame, stores, loads = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", said)[-1]
    registers = re.findall(r"Used (\d+) registers", said)[-1]
    return {"registers": int(registers), "frame": int(frame), "stores": int(stores), "loads": int(loads)}


@pytest.mark.parametrize("op", KERNELS)
def test_registers_and_local_memory_are_what_the_assembler_says(op, hopper):
    said, figures = ptxas(hopper.file(KERNELS[op], "ptx")), hopper.figures(op)

    assert figures["registers"] == said["registers"]
    assert figures["local_bytes"] == said["frame"]
    assert (figures["spill_bytes"] > 0) == (said["stores"] > 0)


def test_spills_are_told_from_local_memory_that_the_kernel_asks_for(hopper):
    spilling, sines, plain = (hopper.figures(op) for op in ("spilling", "sines", "scale"))

    assert spilling["spill_bytes"] == spilling["local_bytes"] > 0
    assert (sines["spill_bytes"], sines["local_bytes"] > 0) == (0, triton_versions.SINES_ON_STACK)
    assert (plain["spill_bytes"], plain["local_bytes"]) == (0, 0)


@pytest.mark.parametrize("op", KERNELS)
def test_instructions_are_those_that_the_disassembler_lists(op, hopper):
    """By another way than perfci's, which disassembles the code of many kernels at once: each cubin by itself."""
    path = hopper.file(KERNELS[op], "cubin")
    said = subprocess.run([tool("nvdisasm"), "-c", path], capture_output=True, text=True, check=True).stdout
    sections = said.split(".section\t.text.")[1:]
    listed = [re.findall(r"/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)", section) for section in sections]
    for opcodes in listed:
        while opcodes[-1] == "NOP":
            opcodes.pop()

    figures = hopper.figures(op)
    assert figures["instructions"] == sum(map(len, listed)) > 10
    assert sum(figures["mix"].values()) == figures["instructions"]


@triton_versions.needs_rocm_linker
@pytest.mark.parametrize("op", ["scale", "sums", "product"])
def test_amds_figures_are_those_that_llvm_notes_in_its_assembly(op, instinct):
    text = instinct.file(f"_{op}", "amdgcn").read_text()
    figures = instinct.figures(op)

    noted = {name: int(value) for name, value in re.findall(r"^; (\w+): (\d+)", text, re.MULTILINE)}
    assert figures["registers"] == noted["TotalNumVgprs"]
    assert figures["local_bytes"] == noted["ScratchSize"]
    alone = find_occupancy(TARGETS["gfx942"], registers=figures["registers"], shared=0, warps=4)
    assert alone == noted["Occupancy"] / 8
    assert figures["mix"]["memory"] > 0
    assert (figures["mix"]["tensor"] > 0) == (op == "product")


def test_a_tool_that_fails_gives_nothing(hopper, monkeypatch):
    cubin = hopper.file("_scale", "cubin").read_bytes()
    monkeypatch.setattr(binaries, "tool", lambda name: "/bin/false")

    assert nvidia_counts([cubin], "SM90a") == [None]
    assert nvidia_usage(cubin, "", "_scale") is None
    assert nvidia_counts([], "SM90a") == []


@pytest.mark.parametrize(
    ("expected", "opcodes"),
    [
        ("memory", "LDG STS LDGSTS ULDC UTMALDG"),
        ("tensor", "HMMA HGMMA UTCHMMA"),
        ("float", "FFMA MUFU HADD2 I2F"),
        ("integer", "IMAD UIADD3 LOP3 ISETP"),
        ("control", "BRA BAR EXIT LDGDEPBAR"),
        ("other", "MOV UMOV SHFL S2R NOT_KNOWN_YET"),
    ],
)
def test_nvidias_opcodes_have_their_class(opcodes, expected):
    assert {nvidia_class(opcode) for opcode in opcodes.split()} == {expected}


@pytest.mark.parametrize(
    ("expected", "opcodes"),
    [
        ("memory", "global_load_dwordx4 buffer_store_short ds_read_b128 s_load_dwordx2 scratch_store_dword"),
        ("tensor", "v_mfma_f32_32x32x8_f16"),
        ("float", "v_fma_f32 v_exp_f32_e32 v_pk_mul_f32 v_cvt_f16_f32_e32 v_cmp_gt_f32_e32"),
        ("integer", "v_add_u32_e32 v_lshlrev_b32_e32 s_and_b64 v_cmp_gt_i64_e32"),
        ("control", "s_cbranch_vccnz s_waitcnt s_endpgm"),
        ("other", "v_mov_b32_e32 v_cndmask_b32_e32 v_accvgpr_read_b32 s_nop"),
    ],
)
def test_amds_opcodes_have_their_class(opcodes, expected):
    assert {amd_class(opcode) for opcode in opcodes.split()} == {expected}


@pytest.mark.parametrize(
    ("backend", "opcodes", "traits"),
    [
        ("cuda", "DADD DFMA.RN F2F.F64.F32 MUFU.RCP64H DMMA.8x8x4", {"double": 5, "tensor": 1}),
        ("cuda", "FADD F2F.F16.F32 I2F.U64 HFMA2", {"double": 0}),
        ("cuda", "HMMA.16816.F32 HGMMA.64x128x16.F32 UTCHMMA.2CTA WARPGROUP.ARRIVE", {"tensor": 3, "warpgroup": 2}),
        ("cuda", "LDGSTS.E.BYPASS.LTC128B.128 UTMALDG.2D", {"asynchronous": 2, "global": 1, "global_bytes": 16}),
        ("cuda", "LDG.E.128 LDG.E.64.CONSTANT STG.E LDG.E.U16 LDG.E.U8", {"global": 5, "global_bytes": 31}),
        ("hip", "v_fma_f64 v_add_f32 v_mfma_f32_16x16x16_f16", {"double": 1, "tensor": 1, "warpgroup": 0}),
        ("hip", "global_load_dwordx4 buffer_store_short global_load_dword", {"global": 3, "global_bytes": 22}),
        ("hip", "buffer_load_dwordx4_lds ds_read_b128", {"asynchronous": 1, "global": 1, "global_bytes": 16}),
    ],
)
def test_instructions_are_counted_by_what_they_do(backend, opcodes, traits):
    found = binaries.count(opcodes.split(), backend).traits

    assert {name: found[name] for name in traits} == traits


def test_a_load_into_shared_memory_is_known_by_the_end_of_its_line():
    lines = ("buffer_load_dword v1, s[0:3], 0 offen lds", "ds_read_b32 v1, v2 ; to lds", "s_endpgm")

    amd_opcodes = binaries.amd_opcodes("".join(f"\t{line}\n" for line in lines))

    assert amd_opcodes == ["buffer_load_dword_lds", "ds_read_b32", "s_endpgm"]
