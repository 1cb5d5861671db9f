"""Shared memory of all processors, filled before a call that is checked: what a kernel did not write is no answer.

What a kernel finds there was left by the launch before, which is mostly its own: the values that it would have written.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from ctypes import byref, c_void_p

import torch

from perfci.extensions.driver.launching import PreparedLaunch

WORDS = {"nan": 0xFFFFFFFF}
"""By what fresh memory is filled with. NaN in all formats."""
LARGE = 0x7F7F7F7F  # with any other: 3.4e38 in float32 and bfloat16
_THREADS, _ROUNDS = 1024, 4  # of a block; blocks for each processor, of which one has room at a time
_DYNAMIC = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.extern .shared .align 16 .b8 room[];
.visible .entry spoil(.param .u32 bytes, .param .u32 word)
{
  .reg .pred %done;
  .reg .b32 %at, %bytes, %word, %room, %place;
  ld.param.u32 %bytes, [bytes];
  ld.param.u32 %word, [word];
  mov.u32 %room, room;
  mov.u32 %at, %tid.x;
  shl.b32 %at, %at, 2;
NEXT:
  setp.ge.u32 %done, %at, %bytes;
  @%done bra END;
  add.u32 %place, %room, %at;
  st.volatile.shared.u32 [%place], %word;
  add.u32 %at, %at, 4096;
  bra NEXT;
END:
  ret;
}
"""
"""The driver compiles it for the board."""


def spoil(filler: str) -> None:
    """Fill it, on torch's current stream. Does nothing where the driver does not load or launch the kernel."""
    if launch := _prepare(torch.cuda.current_device(), WORDS.get(filler, LARGE)):
        try:
            launch(torch.cuda.current_stream().cuda_stream)
        except RuntimeError:  # an error of an earlier launch, which the op's call will meet
            return


@functools.cache
def _prepare(device: int, word: int) -> PreparedLaunch | None:
    """The launch on the present device. None if there is none."""
    properties = torch.cuda.get_device_properties(device)
    size, blocks = properties.shared_memory_per_block_optin, _ROUNDS * properties.multi_processor_count
    module, function = c_void_p(), c_void_p()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    failed = (
        cuda.cuModuleLoadData(byref(module), PTX)
        or cuda.cuModuleGetFunction(byref(function), module, b"spoil")
        or cuda.cuFuncSetAttribute(function, _DYNAMIC, size)
    )
    values = [struct.pack("<I", value) for value in (size, word)]
    return None if failed else PreparedLaunch(cuda, function, ((blocks, 1, 1), (_THREADS, 1, 1), size), b"", values)
