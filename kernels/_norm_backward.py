"""Gradients of layer_norm and rms_norm: of x row by row, of weight and bias as sums over all rows.

With y = (x - mean) * rstd and g = grad * weight the gradient of x is rstd * (g - y * mean(g * y) - mean(g)). The last
term is that of layer_norm alone. The gradient of the weight is the sum of grad * y over rows, that of the bias the sum
of grad. Each program adds up its rows, and one more kernel adds up the programs, always in one order and without
atomics: two calls give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

import _launch
import _rows

TOTAL = 4096
"""Values that a program of the last kernel adds up at a time."""


def check(op: str, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, **stats: torch.Tensor) -> None:
    """Raises TypeError or ValueError for arguments that the ops do not take. `stats` has one number for each row."""
    given = {"grad": grad, "x": x} if weight is None else {"grad": grad, "x": x, "weight": weight}
    _launch.check_tensors(op, **given, **stats)
    _launch.check_same_dtype(op, **given)
    if x.ndim == 0:
        raise ValueError(f"{op}: x is 0-dimensional, but needs at least one dimension")
    if grad.shape != x.shape:
        raise ValueError(f"{op}: grad has shape {tuple(grad.shape)}, but x of shape {tuple(x.shape)} needs the same")
    if weight is not None:
        _launch.check_bias(op, x, weight, "weight")
    for name, each in stats.items():
        if each.dtype != torch.float32:
            raise TypeError(f"{op}: {name} has dtype {each.dtype}, but has to be float32")
        if each.shape != (needed := (*x.shape[:-1], 1)):
            raise ValueError(
                f"{op}: {name} has shape {tuple(each.shape)}, but x of shape {tuple(x.shape)} needs {needed}"
            )


def gradients(
    op: str, choose_tile: Callable[..., _rows.Tile], grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor | None,
    rstd: torch.Tensor, weight: torch.Tensor | None, bias: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Returns the gradients of x, of the weight if there is one, and of the bias if asked for; all contiguous."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    made = [torch.empty(x.shape[-1:], dtype=x.dtype, device=x.device) for _ in range((weight is not None) + bias)]
    limits, cols = _launch.limits(x.device), x.shape[-1]
    with _launch.on(x.device):
        if not out.numel():
            sums = torch.empty((len(made), 0, cols), dtype=torch.float32, device=x.device)  # of no rows
        else:
            rows, _, *strides = _launch.as_rows(op, x)
            moments = (mean, 0 if mean is None else _step(op, mean, "mean"), rstd, _step(op, rstd, "rstd"))
            vector = (weight, 0 if weight is None else weight.stride(0))
            tensors = (grad, *_launch.as_rows(op, grad, "grad")[2:], x, *strides, *moments, *vector)
            tile = choose_tile(rows, cols, x.element_size(), limits)
            sums = (_long_rows if tile.lanes else _whole_rows)(tensors, out, len(made), bias, rows, cols, tile, limits)
        if made and cols:
            # Wider rows have fewer programs, each with more columns of them.
            width = min(max(_launch.power_of_two(_launch.tiles(cols, 4 * limits.processors)), 8), TOTAL)
            _total_kernel[_launch.grid(_launch.tiles(cols, width), 1, limits)](
                sums, made[0], made[-1], sums.shape[1], cols, BOTH=len(made) == 2,
                PROGRAMS=TOTAL // width, COLS=width, num_warps=4,
            )  # fmt: skip
    return (out, *made)


def _step(op: str, stats: torch.Tensor, name: str) -> int:
    """Returns the elements from the number of one row to that of the next."""
    return _launch.as_rows(op, stats, name)[2]


def _whole_rows(tensors, out, kinds, bias, rows, cols, tile, limits) -> torch.Tensor | None:
    """Rows that fit in a tile, read once. Returns the sums of each program: (kinds, programs, columns), if any."""
    tile = tile if kinds else tile._replace(programs=0, stages=1)  # only sums are a reason to have few
    (programs,) = _rows.programs(_launch.tiles(rows, tile.rows), tile, limits)
    sums = torch.empty((kinds, programs, cols), dtype=torch.float32, device=out.device) if kinds else None
    _rows_kernel[(programs,)](
        *tensors, out, sums, rows, cols, BIAS=bias, ROWS=tile.rows, COLS=tile.cols, EVEN=_rows.even(rows, cols, tile),
        AGAIN=tile.again, STAGES=tile.stages, **tile.options,
    )  # fmt: skip
    return sums


def _long_rows(tensors, out, kinds, bias, rows, cols, tile, limits) -> torch.Tensor | None:
    """Longer rows, read twice: for their means, then by chunks of columns, which slices of the rows share.

    Returns the sums of each slice: (kinds, slices, columns), if any.
    """
    chunks = _launch.tiles(cols, tile.cols)
    slices = min(_launch.tiles(limits.processors * max(tile.programs, 1), chunks), rows)
    empty = torch.empty((2, rows, tile.parts), dtype=torch.float32, device=out.device)
    sums = torch.empty((kinds, slices, cols), dtype=torch.float32, device=out.device) if kinds else None
    shape = {"COLS": tile.cols, "EVEN": cols % tile.cols == 0, "STAGES": tile.stages, **tile.options}
    _means_kernel[_launch.grid(rows * tile.parts, 1, limits)](
        *tensors, empty, rows, cols, tile.parts, _rows.span(cols, tile) // tile.cols, **shape
    )
    _chunks_kernel[_launch.grid(chunks * slices, 1, limits)](
        *tensors, empty, out, sums, rows, cols, tile.parts, slices,
        BIAS=bias, PARTS=_launch.power_of_two(tile.parts), **shape,
    )  # fmt: skip
    return sums


@triton.jit(do_not_specialize=["rows"])
def _rows_kernel(
    grad_ptr, grad_stride, grad_step, x_ptr, x_stride, x_step, mean_ptr, mean_stride, rstd_ptr, rstd_stride,
    weight_ptr, weight_step, out_ptr, sums_ptr, rows, cols, BIAS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    EVEN: tl.constexpr, AGAIN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Whole rows at once: each element is read once and written once. Strides are of rows, steps of columns.

    EVEN: tiles are full. AGAIN: grad and x are not kept for the second pass but loaded again, from L1. Its loads have
    different hints, as the compiler would merge equal ones.
    """
    tiles = tl.cdiv(tl.cdiv(rows, ROWS) - tl.program_id(0), tl.num_programs(0))
    near = tl.arange(0, COLS)
    col = near[None, :].to(tl.int64)
    some = None if EVEN else col < cols
    of_weight = tl.zeros([ROWS, COLS], dtype=tl.float32)
    of_bias = tl.zeros([ROWS, COLS], dtype=tl.float32)
    for index in tl.range(0, tiles, num_stages=STAGES):
        # 64 bits, as x may have more than 2**31 elements
        row = (tl.program_id(0) + index * tl.num_programs(0)).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
        inside = None if EVEN else row < rows
        mask = None if EVEN else (row < rows) & (col < cols)
        mean, rstd = _moments(mean_ptr + row * mean_stride if mean_ptr is not None else None,
                              rstd_ptr + row * rstd_stride, inside)  # fmt: skip
        weight_at = weight_ptr + col * weight_step if weight_ptr is not None else None
        grad_at, x_at = grad_ptr + row * grad_stride + col * grad_step, x_ptr + row * x_stride + col * x_step
        grad, y, g = _loaded(grad_at, x_at, mean, rstd, weight_at, mask, some, "evict_last" if AGAIN else "")
        along = tl.sum(g * y, axis=1)[:, None] / cols
        level = tl.sum(g, axis=1)[:, None] / cols if mean_ptr is not None else 0.0
        if AGAIN:
            grad, y, g = _loaded(grad_at, x_at, mean, rstd, weight_at, mask, some, "evict_first")
        of_weight += grad * y
        of_bias += grad
        out = (g - y * along - level) * rstd
        tl.store(out_ptr + row * cols + col, out.to(out_ptr.dtype.element_ty), mask=mask)
    own = sums_ptr + tl.program_id(0).to(tl.int64) * cols + near if sums_ptr is not None else None
    kind = tl.num_programs(0).to(tl.int64) * cols
    _store_sums(own, kind, tl.sum(of_weight, axis=0), tl.sum(of_bias, axis=0), near < cols, weight_ptr, BIAS)


@triton.jit(do_not_specialize=["rows", "parts", "chunks"])
def _means_kernel(
    grad_ptr, grad_stride, grad_step, x_ptr, x_stride, x_step, mean_ptr, mean_stride, rstd_ptr, rstd_stride,
    weight_ptr, weight_step, found_ptr, rows, cols, parts, chunks,
    COLS: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sums of g * y and of g of each part of each row, a part being so many chunks."""
    for index in range(tl.program_id(0), rows * parts, tl.num_programs(0)):
        row = tl.cast(index // parts, tl.int64)
        first = index % parts * chunks * COLS
        mean, rstd = _moments(mean_ptr + row * mean_stride if mean_ptr is not None else None,
                              rstd_ptr + row * rstd_stride, None)  # fmt: skip
        along = tl.zeros([COLS], dtype=tl.float32)
        level = tl.zeros([COLS], dtype=tl.float32)
        for start in tl.range(first, tl.minimum(first + chunks * COLS, cols), COLS, num_stages=STAGES):
            col = tl.cast(start, tl.int64) + tl.arange(0, COLS)
            mask = None if EVEN else col < cols
            weight_at = weight_ptr + col * weight_step if weight_ptr is not None else None
            _, y, g = _loaded(grad_ptr + row * grad_stride + col * grad_step, x_ptr + row * x_stride + col * x_step,
                              mean, rstd, weight_at, mask, mask, "")  # fmt: skip
            along += g * y
            level += g
        tl.store(found_ptr + index, tl.sum(along, axis=0))
        tl.store(found_ptr + rows * parts + index, tl.sum(level, axis=0))


@triton.jit(do_not_specialize=["rows", "parts", "slices"])
def _chunks_kernel(
    grad_ptr, grad_stride, grad_step, x_ptr, x_stride, x_step, mean_ptr, mean_stride, rstd_ptr, rstd_stride,
    weight_ptr, weight_step, found_ptr, out_ptr, sums_ptr, rows, cols, parts, slices,
    BIAS: tl.constexpr, PARTS: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A chunk of columns of every so manieth row: x's gradient, and the sums of the slice."""
    part = tl.arange(0, PARTS)
    for index in range(tl.program_id(0), tl.cdiv(cols, COLS) * slices, tl.num_programs(0)):
        col = (index // slices).to(tl.int64) * COLS + tl.arange(0, COLS)
        mask = None if EVEN else col < cols
        weight_at = weight_ptr + col * weight_step if weight_ptr is not None else None
        of_weight = tl.zeros([COLS], dtype=tl.float32)
        of_bias = tl.zeros([COLS], dtype=tl.float32)
        for place in tl.range(index % slices, rows, slices, num_stages=STAGES):
            row = tl.cast(place, tl.int64)
            part_ptr = found_ptr + row * parts + part
            along = tl.sum(tl.load(part_ptr, mask=part < parts, other=0.0), axis=0) / cols
            level = 0.0
            if mean_ptr is not None:
                level = tl.sum(tl.load(part_ptr + rows * parts, mask=part < parts, other=0.0), axis=0) / cols
            mean, rstd = _moments(mean_ptr + row * mean_stride if mean_ptr is not None else None,
                                  rstd_ptr + row * rstd_stride, None)  # fmt: skip
            grad, y, g = _loaded(grad_ptr + row * grad_stride + col * grad_step, x_ptr + row * x_stride + col * x_step,
                                 mean, rstd, weight_at, mask, mask, "evict_first")  # fmt: skip
            of_weight += grad * y
            of_bias += grad
            out = (g - y * along - level) * rstd
            tl.store(out_ptr + row * cols + col, out.to(out_ptr.dtype.element_ty), mask=mask)
        own = sums_ptr + (index % slices).to(tl.int64) * cols + col if sums_ptr is not None else None
        _store_sums(own, slices.to(tl.int64) * cols, of_weight, of_bias, col < cols, weight_ptr, BIAS)


@triton.jit(do_not_specialize=["programs"])
def _total_kernel(
    sums_ptr, first_ptr, last_ptr, programs, cols,
    BOTH: tl.constexpr, PROGRAMS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Adds up what all programs found: into one gradient, or those of weight and bias."""
    for index in range(tl.program_id(0), tl.cdiv(cols, COLS), tl.num_programs(0)):
        col = index * COLS + tl.arange(0, COLS)
        some = (col < cols)[None, :]
        first = tl.zeros([PROGRAMS, COLS], dtype=tl.float32)
        last = tl.zeros([PROGRAMS, COLS], dtype=tl.float32)
        for start in range(0, programs, PROGRAMS):
            program = start + tl.arange(0, PROGRAMS)[:, None]
            place = sums_ptr + program.to(tl.int64) * cols + col[None, :]
            mask = (program < programs) & some
            first += tl.load(place, mask=mask, other=0.0)
            if BOTH:
                last += tl.load(place + tl.cast(programs, tl.int64) * cols, mask=mask, other=0.0)
        tl.store(first_ptr + col, tl.sum(first, axis=0).to(first_ptr.dtype.element_ty), mask=col < cols)
        if BOTH:
            tl.store(last_ptr + col, tl.sum(last, axis=0).to(last_ptr.dtype.element_ty), mask=col < cols)


@triton.jit
def _moments(mean_at, rstd_at, mask):
    """Mean, 0 without one, and rstd of rows."""
    other = None if mask is None else 0.0
    mean = tl.load(mean_at, mask, other) if mean_at is not None else 0.0
    return mean, tl.load(rstd_at, mask, other)


@triton.jit
def _loaded(grad_at, x_at, mean, rstd, weight_at, mask, some, HINT: tl.constexpr):
    """Returns grad, y and g = grad * weight, all 0 where masked. HINT: how long grad and x stay in the caches."""
    other = None if mask is None else 0.0
    grad = tl.load(grad_at, mask, other, eviction_policy=HINT).to(tl.float32)
    y = (tl.load(x_at, mask, other, eviction_policy=HINT).to(tl.float32) - mean) * rstd
    if mask is not None:
        y = tl.where(mask, y, 0.0)  # a mean or an rstd may be infinite
    g = grad
    if weight_at is not None:
        g *= tl.load(weight_at, some, None if some is None else 0.0, eviction_policy="evict_last").to(tl.float32)
    return grad, y, g


@triton.jit
def _store_sums(own, kind, of_weight, of_bias, mask, weight_ptr, BIAS: tl.constexpr):
    """Stores a program's sums, those for the bias `kind` elements behind those for the weight if there are both."""
    if own is not None:
        if weight_ptr is not None:
            tl.store(own, of_weight, mask=mask)
            own += kind
        if BIAS:
            tl.store(own, of_bias, mask=mask)
