"""broadcast in cuTile: one row, written to every row of the output. Only the row is read."""

import cuda.tile as ct
import torch

import _launch

ELEMENTS = 8192
"""Of a tile."""
WIDTH = 1024
"""Columns of a tile, at most."""


def broadcast(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor of x's shape and dtype with `bias` as each of its rows: out[p, d] = bias[d].

    Arguments, answers and errors are those of broadcast_triton.py.
    """
    _launch.check_broadcast(x, bias)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    cols = x.shape[-1]
    rows = out.numel() // cols
    width = min(_launch.power_of_two(cols), WIDTH)
    height = ELEMENTS // width
    grid = (_launch.tiles(rows, height) * _launch.tiles(cols, width),)
    with _launch.on(x.device):
        stream = torch.cuda.current_stream(x.device)
        ct.launch(stream, grid, _broadcast_kernel, (bias, out.view(rows, cols), height, width))
    return out


@ct.kernel
def _broadcast_kernel(
    bias: ct.IndexedWithInt64, out: ct.IndexedWithInt64, ROWS: ct.Constant[int], COLS: ct.Constant[int]
):
    along = ct.num_tiles(out, 1, (ROWS, COLS))
    row, col = ct.bid(0) // along, ct.bid(0) % along
    value = ct.astype(ct.load(bias, (col,), (COLS,), padding_mode=ct.PaddingMode.ZERO), out.dtype)
    ct.store(out, (row, col), ct.broadcast_to(ct.expand_dims(value, 0), (ROWS, COLS)))
