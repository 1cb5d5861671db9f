"""rms_norm over the last dimension in cuTile: whole rows up to a limit, wider ones walked, few wide ones shared."""

import cuda.tile as ct
import torch

import _launch

ELEMENTS = 4096
"""Of a tile of short rows."""
WHOLE_ROW = 16384
"""Columns; wider rows are walked."""
CHUNK = 8192
"""Columns of a wide row at a time."""
MOST_PARTS = 64
"""Most blocks that share one row."""
SHARING = 2
"""Blocks a processor for shared rows: some compute while others wait for memory."""


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6, stats: bool = False
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Returns x / sqrt(mean(x**2) + eps) * weight over the last dimension, contiguous, of x's shape and dtype.

    Arguments, answers and errors are those of rms_norm_triton.py.
    """
    _launch.check_rms_norm(x, weight, eps, stats)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rstd = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device) if stats else None
    if out.numel():
        _launched(x, weight, out, rstd, float(eps))
    return out if rstd is None else (out, rstd)


def _launched(
    x: torch.Tensor, weight: torch.Tensor | None, out: torch.Tensor, rstd: torch.Tensor | None, eps: float
) -> None:
    rows, cols, row_stride, col_stride = _launch.as_rows("rms_norm", x)
    given, written = x.as_strided((rows, cols), (row_stride, col_stride)), out.view(rows, cols)
    # What is not there is neither read nor written; something has to stand in its place.
    tensors = (
        given, written if weight is None else weight.view(1, cols), written,
        written if rstd is None else rstd.view(rows, 1), cols, eps, weight is not None, rstd is not None,
    )  # fmt: skip
    width, limits = _launch.power_of_two(cols), _launch.limits(x.device)
    with _launch.on(x.device):
        stream = torch.cuda.current_stream(x.device)
        if width <= WHOLE_ROW:
            height = max(ELEMENTS // width, 1)
            ct.launch(stream, (_launch.tiles(rows, height),), _rows_kernel, (*tensors, height, width))
            return
        chunks = _launch.tiles(cols, CHUNK)
        wanted = min(_launch.tiles(limits.processors * SHARING, rows), MOST_PARTS, chunks)
        if rows > limits.processors or wanted == 1:
            ct.launch(stream, (rows,), _long_rows_kernel, (*tensors, CHUNK))
            return
        each = _launch.tiles(chunks, wanted)
        parts = _launch.tiles(chunks, each)  # none is empty
        sums = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
        ct.launch(stream, (rows * parts,), _parts_kernel, (given, sums, each, CHUNK))
        ct.launch(stream, (rows * chunks,), _join_kernel, (*tensors, sums, _launch.power_of_two(parts), CHUNK))


@ct.function
def _root(squares, cols, eps):
    return ct.rsqrt(squares / ct.astype(cols, ct.float32) + eps)


@ct.function
def _write(value, weight, out, rstd, row, chunk, WEIGHTED, COLS):
    """One chunk of some rows, from their values and 1 / root."""
    answer = value * rstd
    if WEIGHTED:
        scale = ct.load(weight, (0, chunk), (1, COLS), padding_mode=ct.PaddingMode.ZERO)
        answer = answer * ct.astype(scale, ct.float32)
    ct.store(out, (row, chunk), ct.astype(answer, out.dtype))


@ct.function
def _read(x, row, chunk, ROWS, COLS):
    return ct.astype(ct.load(x, (row, chunk), (ROWS, COLS), padding_mode=ct.PaddingMode.ZERO), ct.float32)


@ct.kernel
def _rows_kernel(
    x: ct.IndexedWithInt64, weight: ct.IndexedWithInt64, out: ct.IndexedWithInt64, rstd_out: ct.IndexedWithInt64,
    cols: int, eps: float, WEIGHTED: ct.Constant[bool], STATS: ct.Constant[bool],
    ROWS: ct.Constant[int], COLS: ct.Constant[int],
):  # fmt: skip
    """Whole rows at once: each element is read once and written once."""
    row = ct.bid(0)
    value = _read(x, row, 0, ROWS, COLS)
    rstd = _root(ct.sum(value * value, 1, keepdims=True), cols, eps)
    _write(value, weight, out, rstd, row, 0, WEIGHTED, COLS)
    if STATS:
        ct.store(rstd_out, (row, 0), ct.astype(rstd, rstd_out.dtype))


@ct.kernel
def _long_rows_kernel(
    x: ct.IndexedWithInt64, weight: ct.IndexedWithInt64, out: ct.IndexedWithInt64, rstd_out: ct.IndexedWithInt64,
    cols: int, eps: float, WEIGHTED: ct.Constant[bool], STATS: ct.Constant[bool], COLS: ct.Constant[int],
):  # fmt: skip
    """One row: once for the squares, then again to write, from L2."""
    row = ct.bid(0)
    chunks = ct.num_tiles(x, 1, (1, COLS))
    squares = ct.full((1, COLS), 0.0, ct.float32)
    for chunk in range(chunks):
        value = _read(x, row, chunk, 1, COLS)
        squares = squares + value * value
    rstd = _root(ct.sum(squares, 1, keepdims=True), cols, eps)
    if STATS:
        ct.store(rstd_out, (row, 0), ct.astype(rstd, rstd_out.dtype))
    for chunk in range(chunks):
        _write(_read(x, row, chunk, 1, COLS), weight, out, rstd, row, chunk, WEIGHTED, COLS)


@ct.kernel
def _parts_kernel(x: ct.IndexedWithInt64, sums, each: int, COLS: ct.Constant[int]):
    """The sum of the squares of one part of a row, of `each` chunks."""
    parts = ct.num_tiles(sums, 1, (1, 1))
    row, part = ct.bid(0) // parts, ct.bid(0) % parts
    squares = ct.full((1, COLS), 0.0, ct.float32)
    for chunk in range(part * each, ct.minimum((part + 1) * each, ct.num_tiles(x, 1, (1, COLS)))):
        value = _read(x, row, chunk, 1, COLS)
        squares = squares + value * value
    ct.store(sums, (row, part), ct.sum(squares, 1, keepdims=True))


@ct.kernel
def _join_kernel(
    x: ct.IndexedWithInt64, weight: ct.IndexedWithInt64, out: ct.IndexedWithInt64, rstd_out: ct.IndexedWithInt64,
    cols: int, eps: float, WEIGHTED: ct.Constant[bool], STATS: ct.Constant[bool], sums,
    PARTS: ct.Constant[int], COLS: ct.Constant[int],
):  # fmt: skip
    """One chunk of a row, from the sums of all parts of the row."""
    chunks = ct.num_tiles(x, 1, (1, COLS))
    row, chunk = ct.bid(0) // chunks, ct.bid(0) % chunks
    squares = ct.load(sums, (row, 0), (1, PARTS), padding_mode=ct.PaddingMode.ZERO)
    rstd = _root(ct.sum(squares, 1, keepdims=True), cols, eps)
    if STATS and chunk == 0:
        ct.store(rstd_out, (row, 0), ct.astype(rstd, rstd_out.dtype))
    _write(_read(x, row, chunk, 1, COLS), weight, out, rstd, row, chunk, WEIGHTED, COLS)
