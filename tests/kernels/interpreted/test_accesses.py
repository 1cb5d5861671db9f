"""What the interpreter sees of a launch's accesses: races between programs."""

import pytest
import torch
import triton
import triton.language as tl

from perfci.device import open_device


@triton.jit
def store_own_columns(out_ptr, step, block: tl.constexpr):
    """Each program stores its number into `step` of the columns; a smaller step makes neighbours meet."""
    program, col = tl.program_id(0), tl.arange(0, block)
    start = program * step
    # A condition on a scalar makes the interpreter hold the mask as integers.
    tl.store(out_ptr + col, program + 1 + col * 0, mask=(col >= start) & (col < start + 4) & (program < 2))


@pytest.mark.parametrize(("step", "shared"), [(4, 0), (3, 1), (2, 2)])
def test_a_mask_made_with_a_scalar_chooses_the_addresses_that_it_lets_through(step, shared):
    out = torch.zeros(8, dtype=torch.int32)

    with open_device("cpu", seed=1).watch_races() as races:
        store_own_columns[(2,)](out, step, 8)

    assert sum(race.addresses for race in races) == shared
