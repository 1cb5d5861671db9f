"""What of a launch's parameters a kernel reads."""

import subprocess

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from perfci.extensions.common import binaries
from perfci.extensions.common.cubins import blank_unread, count_shared_bytes, list_parameters

pytestmark = pytest.mark.torch

PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry read(.param .align 8 .b8 matrix[24], .param .u64 out, .param .align 8 .b8 list[32], .param .u32 at)
{
  .shared .align 4 .b8 room[512];
  .reg .b32 %r<6>;
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [out];
  ld.param.u32 %r0, [matrix+8];
  ld.param.u8 %r1, [matrix+16];
  mov.u32 %r2, room;
  st.shared.u32 [%r2], %r0;
  ld.shared.u32 %r0, [%r2+64];
  add.u32 %r1, %r1, %r0;
  BODY
  cvta.to.global.u64 %d0, %d0;
  st.global.u32 [%d0], %r1;
  ret;
}
"""
BY_INDEX = "ld.param.u32 %r3, [at]; mov.u64 %d1, list; cvt.u64.u32 %d2, %r3; add.u64 %d1, %d1, %d2; "
BY_INDEX += "ld.param.u32 %r4, [%d1]; add.u32 %r1, %r1, %r4;"
BEHIND_IT = BY_INDEX.replace("[%d1]", "[%d1+-800]")  # whose index is larger than that
BY_ADDRESS = BY_INDEX.replace("list;", "list; cvta.param.u64 %d1, %d1;").replace("ld.param.u32 %r4", "ld.u32 %r4")


def assemble(folder, body: str) -> bytes:
    source, made = folder / "a.ptx", folder / "a.cubin"
    source.write_text(PTX.replace("BODY", body))
    command = [binaries.tool("ptxas"), "--gpu-name=sm_90", f"--output-file={made}", str(source)]
    subprocess.run(command, check=True)
    return made.read_bytes()


def test_padding_that_no_code_reads_is_no_part_of_a_launch(tmp_path):
    image = assemble(tmp_path, "")
    assert list_parameters(image, "read") == [(0, 24), (24, 8), (32, 32), (64, 4)]
    assert count_shared_bytes(image, "read") == 512

    given = [bytes([255] * 24), bytes([255] * 8), bytes([255] * 32), bytes([255] * 4)]
    matrix, *others = blank_unread(image, "read", given)
    assert matrix == (bytes(8) + bytes([255] * 4) + bytes(4)) + (bytes([255] * 4) + bytes(4))  # it reads whole words
    assert others[0] == given[1] and others[2] == given[3]


@pytest.mark.parametrize("body", [BY_INDEX, BEHIND_IT, BY_ADDRESS])
def test_where_code_works_out_what_it_reads_all_counts(tmp_path, body):
    image = assemble(tmp_path, body)
    given = tuple(bytes([255] * size) for _, size in list_parameters(image, "read"))

    assert blank_unread(image, "read", given) == given
