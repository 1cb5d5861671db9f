"""softmax over the last dimension in cuTile: rows taken whole up to a limit, walked twice in chunks beyond it."""

import math

import cuda.tile as ct
import torch

import _launch

ELEMENTS = 4096
"""Of a tile of short rows."""
WHOLE_ROW = 16384
"""Columns; wider rows are walked."""
CHUNK = 8192
"""Columns of a wide row at a time."""
LOG2_E = math.log2(math.e)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Returns exp(x) / sum(exp(x)) over the last dimension, contiguous, of x's shape and dtype.

    Arguments, answers and errors are those of softmax_triton.py.
    """
    _launch.check_softmax(x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    rows, cols, row_stride, col_stride = _launch.as_rows("softmax", x)
    given, written = x.as_strided((rows, cols), (row_stride, col_stride)), out.view(rows, cols)
    width = _launch.power_of_two(cols)
    with _launch.on(x.device):
        stream = torch.cuda.current_stream(x.device)
        if width > WHOLE_ROW:
            ct.launch(stream, (rows,), _long_rows_kernel, (given, written, CHUNK))
        else:
            height = max(ELEMENTS // width, 1)
            ct.launch(stream, (_launch.tiles(rows, height),), _rows_kernel, (given, written, height, width))
    return out


@ct.kernel
def _rows_kernel(x: ct.IndexedWithInt64, out: ct.IndexedWithInt64, ROWS: ct.Constant[int], COLS: ct.Constant[int]):
    """Whole rows at once: each element is read once and written once."""
    place = (ct.bid(0), 0)
    value = ct.astype(ct.load(x, place, (ROWS, COLS), padding_mode=ct.PaddingMode.NEG_INF), ct.float32)
    power = ct.exp2((value - ct.max(value, 1, keepdims=True)) * LOG2_E)
    ct.store(out, place, ct.astype(power * (1.0 / ct.sum(power, 1, keepdims=True)), out.dtype))


@ct.kernel
def _long_rows_kernel(x: ct.IndexedWithInt64, out: ct.IndexedWithInt64, COLS: ct.Constant[int]):
    """One row: once for maximum and sum together, then again to write, from L2 (online softmax, Milakov, 2018)."""
    row = ct.bid(0)
    chunks = ct.num_tiles(x, 1, (1, COLS))
    top = ct.full((1, 1), -math.inf, ct.float32)
    total = ct.full((1, 1), 0.0, ct.float32)
    for chunk in range(chunks):
        value = ct.astype(ct.load(x, (row, chunk), (1, COLS), padding_mode=ct.PaddingMode.NEG_INF), ct.float32)
        next_top = ct.maximum(top, ct.max(value, 1, keepdims=True))
        shift = ct.where(next_top == -math.inf, 0.0, next_top)  # -inf - -inf would be NaN
        power = ct.exp2((value - shift) * LOG2_E)
        total = total * ct.exp2((top - shift) * LOG2_E) + ct.sum(power, 1, keepdims=True)
        top = next_top
    shift = ct.where(top == -math.inf, 0.0, top)
    scale = 1.0 / total
    for chunk in range(chunks):
        value = ct.astype(ct.load(x, (row, chunk), (1, COLS), padding_mode=ct.PaddingMode.NEG_INF), ct.float32)
        ct.store(out, (row, chunk), ct.astype(ct.exp2((value - shift) * LOG2_E) * scale, out.dtype))
