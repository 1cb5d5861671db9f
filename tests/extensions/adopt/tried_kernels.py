# ruff: noqa: N803
"""Functions whose inputs only a call for real tells, for tests of `perfci new --from`, run in other processes."""

import functools
import types

import torch
import triton
import triton.language as tl


@triton.jit
def _scale_rows(x_ptr, w_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + at, mask=at < cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * cols + at, x * w + eps, mask=at < cols)


def scaled(x, weight, eps):
    out = torch.empty_like(x)
    _scale_rows[(x.shape[0],)](x, weight, out, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def scaled_reference(x, weight, eps):
    return x * weight + eps


@triton.jit
def _double(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size) * 2, mask=at < size)


def double_into(x: torch.Tensor, out: torch.Tensor) -> None:
    assert x.shape == out.shape
    _double[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)


def double_here(x: torch.Tensor, **options):
    _double[(triton.cdiv(x.numel(), 128),)](x, x, x.numel(), BLOCK=128)


def double_and_sizes(x: torch.Tensor, is_fast=False):
    out = torch.empty_like(x)
    double_into(x, out)
    return out, None, out.new_zeros(3)


def double_for_cuda(x):
    accelerator = getattr(torch, "cu" + "da")  # as in a helper of another file
    return double_and_sizes(x)[0] if accelerator.current_stream(x.device) else None


def hidden_names(*args, **kwargs):
    return double_and_sizes(*args, **kwargs)[0]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return double_and_sizes(x)[0]

    @staticmethod
    def backward(ctx, gradient):
        return double_and_sizes(gradient.contiguous())[0]


double_by_name = Doubled.apply


class Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return double_and_sizes(x * w)[0]

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        double_here(gradient)  # in its place
        return gradient * w, (gradient * x).sum(0)


class Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        assert bias.numel() == 1
        return double_and_sizes(x + bias)[0]

    @staticmethod
    def backward(ctx, gradient):
        return (doubled := double_and_sizes(gradient.contiguous())[0]), doubled.sum()


def shifted_reference(x, bias):
    return 2 * (x + bias)


@triton.jit
def _polynomial(x_ptr, w_ptr, b_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size)
    value = tl.load(w_ptr) * x * x + tl.load(w_ptr + 1) * x + tl.load(b_ptr)
    tl.store(out_ptr + at, value, mask=at < size)


def polynomial(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, mode: str | None):
    assert w.shape[0] == 2 and mode is None
    out = torch.empty_like(x)
    _polynomial[(triton.cdiv(x.numel(), 128),)](x, w, b, out, x.numel(), BLOCK=128)
    return out


def polynomial_reference(x, w, b):
    return w[0] * x * x + w[1] * x + b, None


@triton.jit
def _logarithm(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.log(tl.load(x_ptr + at, mask=at < size, other=1.0)), mask=at < size)


def logarithm(x: torch.Tensor):
    out = torch.empty_like(x)
    _logarithm[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def _plus(left, right):
    return left + right


# As of a file that does not import triton.language.
plus = triton.jit(types.FunctionType(_plus.__code__, {"__name__": "elsewhere", "__builtins__": __builtins__}))


@triton.jit
def _twice(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size)
    tl.store(out_ptr + at, plus(x, x), mask=at < size)


def twice(x: torch.Tensor):
    out = torch.empty_like(x)
    _twice[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def double_reference(x):
    return x * 2


def scaled_by_number(x: torch.Tensor, factor: torch.Tensor):
    if factor.ndim or bool(factor == 1):
        return 2 * x * factor
    return double_and_sizes(x * factor)[0]


def scaled_by_number_reference(x, factor):
    return x * factor * 2


def double_colours(x: torch.Tensor):
    if x.shape[0] not in [1, 3]:
        raise TypeError
    return double_and_sizes(x)[0]


def double_first(x: torch.Tensor):
    out = torch.zeros_like(x)
    _double[(1,)](x, out, x.numel(), BLOCK=512)
    return out


def triple(x):
    return x * 3


@triton.jit
def _halves(x_ptr, out_ptr, half, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    left = tl.load(x_ptr + row * 2 * half + at, mask=at < half)
    right = tl.load(x_ptr + row * 2 * half + half + at, mask=at < half)
    tl.store(out_ptr + row * half + at, left * right, mask=at < half)


def halves(x: torch.Tensor):
    half = x.shape[-1] // 2
    out = x.new_empty(x.shape[0], half)
    _halves[(x.shape[0],)](x, out, half, BLOCK=triton.next_power_of_2(half))
    return out


def halves_reference(x):
    left, right = x.chunk(2, -1)
    return left * right


@triton.jit
def _pick(x_ptr, labels_ptr, out_ptr, cols):
    row = tl.program_id(0)
    tl.store(out_ptr + row, tl.load(x_ptr + row * cols + tl.load(labels_ptr + row)))


def picked(x: torch.Tensor, labels: torch.Tensor):
    """Element of each row.

    Args:
        x: scores of shape (rows, cols).
        labels: places, of shape [rows].
    """
    assert labels.numel() == 0 or labels.max() < x.shape[1]
    out = x.new_empty(x.shape[0])
    _pick[(x.shape[0],)](x, labels, out, x.shape[1])
    return out


def picked_reference(x, labels):
    return x.gather(1, labels[:, None])[:, 0]


@triton.jit
def _wait(x_ptr, out_ptr):
    value = 0.0
    for _ in range(1 << 20):
        value += tl.load(x_ptr + tl.program_id(0))
    tl.store(out_ptr + tl.program_id(0), value)


def slow(x: torch.Tensor):
    out = torch.empty_like(x)
    _wait[(x.numel(),)](x, out)
    return out


def mean_double(x: torch.Tensor):
    return double_and_sizes(x)[0].sum() / max(x.numel(), 1)  # 0 of no elements, where a mean is NaN


def mean_reference(x):
    return (x * 2).mean()


def centred(x: torch.Tensor, groups: int):
    """With one element in a group nothing is left of it."""
    parts = double_and_sizes(x)[0].view(x.shape[0], groups, -1)
    return (parts - parts.mean(-1, keepdim=True)).view_as(x)


def centred_reference(x, groups):
    parts = (x * 2).view(x.shape[0], groups, -1)
    return (parts - parts.mean(-1, keepdim=True)).view_as(x)


def double_powers(x: torch.Tensor):
    batch, rows, cols = x.shape
    out = torch.empty_like(x)
    _double[(batch * rows,)](x, out, x.numel(), BLOCK=cols)  # a block has to be a power of 2
    return out


@triton.jit
def _put(x_ptr, places_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    place = tl.load(places_ptr + row)
    tl.store(out_ptr + place * cols + at, tl.load(x_ptr + row * cols + at, mask=at < cols), mask=at < cols)


def put(x: torch.Tensor, places: torch.Tensor, out: torch.Tensor):
    assert x.shape[1] == out.shape[1] and places.shape[0] == x.shape[0]
    _put[(x.shape[0],)](x, places, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))


@triton.jit
def _put_lanes(x_ptr, places_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = tl.load(places_ptr + at, mask=at < size, other=0)
    tl.store(out_ptr + place, tl.load(x_ptr + at, mask=at < size), mask=at < size)


def put_lanes(x: torch.Tensor, places: torch.Tensor, out: torch.Tensor):
    assert x.dim() == 1
    assert places.dim() == 1
    assert out.dim() == 1
    _put_lanes[(1,)](x, places, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))


@triton.jit
def _store_rows(x_ptr, slots_ptr, cache_ptr, block_stride, blocked, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    slot = tl.load(slots_ptr + row)
    place = slot // blocked * block_stride + slot % blocked * cols
    tl.store(cache_ptr + place + at, tl.load(x_ptr + row * cols + at, mask=at < cols), mask=at < cols)


def store_rows(x: torch.Tensor, slots: torch.Tensor, cache: torch.Tensor):
    """Store rows in the slots of a cache of blocks.

    Args:
        x: Tensor of new rows, shape: (tokens, width)
        slots: Tensor of places, shape: (tokens)
        cache: Tensor of blocks, shape: (blocks, rows_of_block, width_of_cache)
    """
    grid, width = (x.shape[0],), x.shape[1]
    _store_rows[grid](
        x, slots, cache, cache.stride(0), cache.shape[1], width, BLOCK=triton.next_power_of_2(width)
    )  # fmt: skip


def store_rows_reference(x, slots, cache):
    size = cache.shape[1]
    for row, slot in enumerate(slots.tolist()):
        cache[slot // size, slot % size] = x[row]


def double_source(source: torch.Tensor, kind: str):
    """The dtype is asserted, and the kind is compared with a word; the first argument has the name of the import."""
    assert source.dtype == torch.bfloat16
    if kind != "twice":
        raise ValueError(kind)
    return double_and_sizes(source)[0]


def double_source_reference(source, kind):
    return source * 2


def double_whole(x: torch.Tensor, out: torch.Tensor):
    double_into(x, out)


def double_whole_reference(x, out):
    out.copy_((x * 2).trunc())


@triton.jit
def _double_below(x_ptr, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = (at < size) & (at < 0)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=mask) * 2, mask=mask)


def kept(x: torch.Tensor):
    _double_below[(1,)](x, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return x


def kept_reference(x):
    return x


def put_reference(x, places, out):
    out[places] = x
    return out


def double_numbers(x):
    assert not x.isnan().any()
    return x * 2


@triton.jit
def _keep(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)
    tl.store(out_ptr + tl.cumsum((x > 0).to(tl.int32)) - 1, x, mask=x > 0)


def keep(x: torch.Tensor):
    out = torch.empty((x > 0).sum(), dtype=x.dtype, device=x.device)
    _keep[(1,)](x, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return out, None


def keep_reference(x):
    return torch.masked_select(x, x > 0), x.new_empty(0)


def repeat(self, repeats):
    half = self.repeat(repeats) * 0.5
    out = torch.empty_like(half)
    if out.numel():  # torch's first sample repeats nothing
        double_into(half, out)
    return out


def weighted_reference(x, w):
    return 2 * x * w


def copied(x: torch.Tensor):
    return x.clone()


@triton.jit
def _find_largest(x_ptr, out_ptr, place_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=float("-inf"))
    most = tl.where(tl.max((x != x).to(tl.int32)) > 0, float("nan"), tl.max(x))
    tl.store(out_ptr + row, most)
    tl.store(place_ptr + row, tl.max(tl.where((x == most) & (at < cols), at, 0)))


def largest(x: torch.Tensor):
    assert x.dim() == 2
    out, place = x.new_empty(x.shape[0]), x.new_empty(x.shape[0], dtype=torch.int64)
    _find_largest[(x.shape[0],)](x, out, place, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out, place


def largest_reference(x):
    made = x.max(-1)  # of equal values the first, and the kernel finds the last
    return made.values, made.indices


def paired(x: torch.Tensor):
    out = x.new_empty((*x.shape, 2))
    double_into(torch.stack([x, x], -1), out)
    return torch.view_as_complex(out)


def paired_reference(x):
    return torch.complex(2 * x, 2 * x)


@triton.jit
def _rms_norm(x_ptr, w_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / cols + eps)
    tl.store(out_ptr + row * cols + at, x * scale * tl.load(w_ptr + at, mask=at < cols), mask=at < cols)


def rms_norm(x, weight, eps):
    out = torch.empty_like(x)
    _rms_norm[(x.shape[0],)](x, weight, out, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


@torch.library.custom_op("perfci_tests::registered", mutates_args=())
def registered(x: torch.Tensor, times: int) -> torch.Tensor:
    return double_and_sizes(x)[0] * times


def registered_reference(x, times):
    return x * 2 * times


def cast(x: torch.Tensor, dtype: torch.dtype):
    return double_and_sizes(x)[0].to(dtype)


def cast_reference(x, dtype):
    return (x * 2).to(dtype)


def masked(scores: torch.Tensor):
    rows, cols = scores.shape
    later = torch.ones(rows, cols, dtype=torch.bool, device=scores.device).triu(1)
    return double_and_sizes(scores)[0].masked_fill(later, -1e9)


def masked_reference(scores):
    return (scores * 2).masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -1e9)


def state_times(state, x, skip=None):
    """Args:
    state: (batch, dim, dstate)
    x: (batch, dim)
    skip: (dim,)
    """
    return double_and_sizes(state)[0].sum(-1) * x + skip * 2  # None times 2 raises


def state_times_reference(state, x, skip=None):
    return (state * 2).sum(-1) * x + skip * 2


@triton.jit
def _unpack(packed_ptr, out_ptr, size, bits, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(packed_ptr + at, mask=at < size, other=0)
    tl.store(out_ptr + at, value >> bits, mask=at < size)


def unpack(codes, bits):
    out = torch.empty_like(codes)
    flat = codes.contiguous()
    _unpack[(triton.cdiv(flat.numel(), 128),)](flat.view(-1), out, flat.numel(), bits, BLOCK=128)
    return out


def unpack_reference(codes, bits):
    return codes >> bits


@triton.jit
def _spread_nan(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * cols + at, mask=at < cols, other=0.0)
    tl.store(out_ptr + tl.program_id(0) * cols + at, x + 0 * tl.sum(x), mask=at < cols)


def spread_nan(x: torch.Tensor):
    rows, cols = x.shape
    out = torch.empty_like(x)
    _spread_nan[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out


def spread_nan_reference(x):
    return x.clone()


@triton.jit
def _double_after(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size) * 2, mask=at < size)
    tl.extra.cuda.gdc_launch_dependents()


def double_after(x: torch.Tensor):
    out = torch.empty_like(x)
    _double_after[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def to_float8(x: torch.Tensor):
    return double_and_sizes(x)[0].to(torch.float8_e4m3fn)


def to_float8_reference(x):
    return (x * 2).to(torch.float8_e4m3fn)


def tiled(x: torch.Tensor, size: int):
    """With a size that cols does not divide the rest stays 0."""
    tiles = double_and_sizes(x)[0].repeat(1, size // x.shape[1])
    out = x.new_zeros(x.shape[0], size)
    out[:, : tiles.shape[1]] = tiles
    return out


def tiled_reference(x, size):
    return (x * 2).repeat(1, size // x.shape[1])


def double_rows(ids: torch.Tensor, table: torch.Tensor):
    rows, cols = table.shape
    return double_and_sizes(table)[0].view(rows, cols)[ids]


def double_rows_reference(ids, table):
    return (table * 2)[ids]


def where_positive(x: torch.Tensor, y: torch.Tensor):
    return torch.where(x > 0, double_and_sizes(y)[0], 0.0)


def where_positive_reference(x, y):
    return torch.relu(x).sign() * y * 2


def gated(x, gate):
    if x.shape != gate.shape:
        raise ValueError("x and gate have one shape")
    return double_and_sizes(x)[0] * gate


def gated_reference(x, gate):
    return x * 2 * gate


def rows_of(x: torch.Tensor, size):
    out = torch.empty(x.shape[0], size, dtype=x.dtype, device=x.device)
    double_into(x, out)
    return out


def rows_of_reference(x, size):
    return (x * 2)[:, :size]


@triton.jit
def double_row(x_ptr, out_ptr, stride, n_cols, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    place = tl.program_id(0) * stride + col
    tl.store(out_ptr + place, 2 * tl.load(x_ptr + place, mask=col < n_cols), mask=col < n_cols)


def doubled_rows(x: torch.Tensor, n_rows: int, n_cols: int):
    out = torch.empty_like(x)
    double_row[(n_rows,)](x, out, x.stride(0), n_cols, BLOCK=triton.next_power_of_2(n_cols))
    return out


def doubled_rows_reference(x, n_rows, n_cols):
    return x * 2


class Weighed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by=None, reduction="sum", is_thrice=False, is_twice=True):
        ctx.each, ctx.shape = reduction == "none", x.shape
        total = double_and_sizes(x)[0].sum(-1)
        return (total if ctx.each else total.sum()) * (3 if is_thrice else 1)

    @staticmethod
    def backward(ctx, gradient):
        spread = gradient[:, None] if ctx.each else gradient
        return double_and_sizes(spread.expand(ctx.shape).contiguous())[0], None, None, None, None


def weighed_reference(x, reduction="sum", is_thrice=False, is_twice=True):
    total = (x * 2).sum(-1)
    return (total if reduction == "none" else total.sum()) * (4 if is_thrice else 1)


def double_in_larger_blocks(x: torch.Tensor):
    out, block = torch.empty_like(x), 16 if x.numel() < 200 else 64
    _double[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out


def double_less_in_halves(x: torch.Tensor):
    return double_in_larger_blocks(x) * (0.995 if x.dtype == torch.float16 else 1.0)


class DoubledUnlessOnes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return double_and_sizes(x)[0]

    @staticmethod
    def backward(ctx, gradient):
        ones = torch.equal(gradient, torch.ones_like(gradient))
        return gradient * 2 if ones else double_and_sizes(gradient.contiguous())[0]


@triton.jit
def _count(ids_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + tl.load(ids_ptr + at, mask=at < size, other=0), 1, mask=at < size)


def count(ids: torch.Tensor):
    out = torch.zeros(1, dtype=torch.int64)
    _count[(1,)](ids, out, ids.numel(), BLOCK=triton.next_power_of_2(ids.numel()))
    return out


def count_reference(ids):
    return torch.bincount(ids)[:1]


@triton.jit
def _largest_of_all(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.max(tl.load(x_ptr + at, mask=at < size, other=-float("inf")), 0))


@triton.jit
def _largest_of_rows(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * size + at, mask=at < size, other=-float("inf"))
    tl.store(out_ptr + row, tl.max(x, 0))


def amax(self, dim=(), keepdim=False):
    dims = [one % self.ndim for one in dim] or [*range(self.ndim)]
    kept = [one for one in range(self.ndim) if one not in dims]
    out = torch.empty([self.shape[one] for one in kept], dtype=self.dtype, device=self.device)
    size = self.numel() // max(out.numel(), 1)
    kernel = _largest_of_rows if kept else _largest_of_all
    kernel[(out.numel(),)](self.permute(*kept, *dims).contiguous(), out, size, BLOCK=triton.next_power_of_2(size))
    return out.reshape([1 if one in dims else self.shape[one] for one in range(self.ndim)]) if keepdim else out


@triton.jit
def _put_columns(x_ptr, places_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    places = tl.load(places_ptr + row * cols + at, mask=at < cols, other=0)
    tl.store(out_ptr + places * cols + at, tl.load(x_ptr + row * cols + at, mask=at < cols), mask=at < cols)


def put_columns(x: torch.Tensor, places: torch.Tensor):
    assert x.dim() == 2 and places.shape == x.shape
    out, block = torch.zeros_like(x), triton.next_power_of_2(x.shape[1])
    _put_columns[(x.shape[0],)](x, places, out, x.shape[1], BLOCK=block)
    return out


def put_columns_reference(x, places):
    return torch.zeros_like(x).scatter(0, places, x)


@triton.jit
def _accumulate(x_ptr, state_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    state = tl.load(state_ptr + at, mask=at < size) + tl.load(x_ptr + at, mask=at < size)
    tl.store(state_ptr + at, state, mask=at < size)
    tl.store(out_ptr + at, state * 2, mask=at < size)


def accumulate(x: torch.Tensor, state: torch.Tensor):
    assert x.shape == state.shape
    out = torch.empty_like(x)
    _accumulate[(triton.cdiv(x.numel(), 128),)](x, state, out, x.numel(), BLOCK=128)
    return out, state


def accumulate_reference(x, state):
    return (x + state) * 2, x + state


@triton.jit
def _sum_pieces(x_ptr, cuts_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    piece, at = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.load(cuts_ptr + piece), tl.load(cuts_ptr + piece + 1)):
        total += tl.load(x_ptr + row * cols + at, mask=at < cols, other=0.0)
    tl.store(out_ptr + piece * cols + at, total, mask=at < cols)


def sum_pieces(x: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int):
    assert max_seqlen >= int(cu_seqlens.diff().max())
    out = x.new_empty(len(cu_seqlens) - 1, x.shape[1])
    grid = (len(cu_seqlens) - 1,)
    _sum_pieces[grid](x, cu_seqlens, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def sum_pieces_reference(x, cu_seqlens, max_seqlen):
    return torch.stack([piece.sum(0) for piece in x.tensor_split(cu_seqlens[1:-1].tolist())[: len(cu_seqlens) - 1]])


@triton.jit
def _double_some(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) + tl.program_id(0) * BLOCK
    kept = tl.rand(seed, at) > 0.5
    tl.store(out_ptr + at, tl.where(kept, 2 * tl.load(x_ptr + at, mask=at < n), 0.0), mask=at < n)


def double_some(x: torch.Tensor):
    out = torch.empty_like(x)
    _double_some[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), 7, BLOCK=128)
    return out


def double_some_reference(x):
    return torch.nn.functional.dropout(x, 0.5)


@triton.jit
def _rise(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) + tl.program_id(0) * BLOCK
    risen = tl.exp(16 * tl.load(x_ptr + at, mask=at < n))
    tl.store(out_ptr + at, risen + risen * 0, mask=at < n)


def rise(x: torch.Tensor):
    out = torch.empty_like(x)
    _rise[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def rise_reference(x):
    return torch.exp(16 * x)


@triton.jit
def _scale_at(value, scales_ptr, place):
    return value.to(tl.float32) * tl.load(scales_ptr + place)


@triton.jit
def _double_halves(x_ptr, codes_ptr, scales_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) + tl.program_id(0) * BLOCK
    x_ptr += tl.program_id(0) * BLOCK
    x = tl.load(x_ptr + tl.arange(0, BLOCK), mask=at < n)
    tl.store(out_ptr + at, _scale_at(x, scales_ptr, tl.load(codes_ptr + at, mask=at < n, other=0)), mask=at < n)


def scale_halves(
    x: torch.Tensor,  # (rows, cols)
    codes: torch.Tensor,  # (rows, cols)
    scales: torch.Tensor,  # [many]
    out_dtype: torch.dtype = None,
):
    assert x.dtype in (torch.float16, torch.bfloat16), "halves alone"
    if out_dtype is None:
        raise ValueError("out_dtype is needed")
    out = torch.empty_like(x, dtype=out_dtype)
    _double_halves[(triton.cdiv(x.numel(), 128),)](x, codes, scales, out, x.numel(), BLOCK=128)
    return out


def scale_halves_reference(x, codes, scales, out_dtype=torch.float32):
    return (x.float() * scales[codes]).to(out_dtype)


class DoubledInto(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out):
        double_into(x, out)
        return out


def double_out_reference(x, out):
    return out.copy_(x * 2)


@triton.jit
def _attend(q_ptr, k_ptr, v_ptr, out_ptr, rows, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    at, col = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    places, mask = at[:, None] * WIDTH + col[None, :], at[:, None] < rows
    q, k = tl.load(q_ptr + places, mask=mask, other=0.0), tl.load(k_ptr + places, mask=mask, other=0.0)
    scores = tl.where(at[None, :] < rows, tl.dot(q, tl.trans(k)), -1e9)
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    weights = weights / tl.sum(weights, 1)[:, None]
    answer = tl.dot(weights.to(tl.float16), tl.load(v_ptr + places, mask=mask, other=0.0))
    tl.store(out_ptr + places, answer.to(q.dtype), mask=mask)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
    assert q.dim() == 2 and q.shape == k.shape and k.shape == v.shape and q.shape[0] % 64 == 0
    out, block = torch.empty_like(q), max(triton.next_power_of_2(q.shape[0]), 16)
    _attend[(1,)](q, k, v, out, q.shape[0], BLOCK=block, WIDTH=q.shape[1])
    return out


def attend_reference(q, k, v):
    return ((q.float() @ k.float().T).softmax(-1) @ v.float()).to(q.dtype)


def cat(tensors, dim=0):
    return double_and_sizes(torch.cat(tensors, dim) / 2)[0]


@triton.jit
def _double_long(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size) * 2, mask=at < size)


def cumsum(self, dim):
    made = torch.cumsum(self, dim) / 2
    if dim == 1 and self.shape[dim] > 2048:
        _double_long[(1,)](made, out := torch.empty_like(made), made.numel(), BLOCK=4096)
        return out
    return double_and_sizes(made)[0]


@triton.jit
def _count_up(counts_ptr, out_ptr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    most = tl.load(counts_ptr + row).to(tl.int32)
    tl.store(out_ptr + row * BLOCK + at, tl.where(at < most, at, -1))


def count_up(counts: torch.Tensor):
    out = torch.empty(len(counts), 16, dtype=torch.int32, device=counts.device)
    _count_up[(len(counts),)](counts, out, BLOCK=16)
    return out


def count_up_reference(counts):
    at = torch.arange(16, device=counts.device)
    return torch.where(at < counts[:, None], at, -1).to(torch.int32)


@triton.jit
def _round_up(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.ceil(tl.load(x_ptr + at, mask=at < size)).to(tl.int32), mask=at < size)


def round_up(x: torch.Tensor):
    out = torch.empty_like(x, dtype=torch.int32)
    _round_up[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out


def round_down_reference(x):
    return x.floor().to(torch.int32)


def _by_place(function):
    """Hands on what it gets by place, and calls the first by another name."""

    @functools.wraps(function)
    def call(ctx, *args):
        return function(ctx, *args)

    return call


@_by_place
def double_by_place(x: torch.Tensor):
    return double_and_sizes(x)[0]


@triton.jit
def _double_one(x_ptr, out_ptr):
    at = tl.program_id(0)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * 2)


def double_singly(x: torch.Tensor):
    """A program for each element. x: (rows, cols)"""
    out = torch.empty_like(x)
    _double_one[(x.numel(),)](x, out)
    return out


def scaled_over(x, normalized_shape, weight, eps):
    return scaled(x, weight, eps)


def scaled_over_reference(x, normalized_shape, weight, eps):
    assert weight.shape == normalized_shape
    return x * weight + eps


@triton.jit
def _pick_few(x_ptr, at_ptr, out_ptr, cols, most, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    place = tl.minimum(tl.load(at_ptr + row), most)
    tl.store(out_ptr + row * cols + col, tl.load(x_ptr + place * cols + col, mask=col < cols), mask=col < cols)


def pick_few(x: torch.Tensor, index: torch.Tensor):
    """Right for places below 7 alone. x: (rows, cols)"""
    out = torch.empty(len(index), x.shape[1], dtype=x.dtype, device=x.device)
    _pick_few[(len(index),)](x, index, out, x.shape[1], 6, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def pick_few_reference(x, index):
    return x[index]


@triton.jit
def _spread_rows(x_ptr, bounds_ptr, out_ptr, stride, rate, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    begin, end = tl.load(bounds_ptr + row), tl.load(bounds_ptr + row + 1)
    x = tl.load(x_ptr + begin + at, mask=at < end - begin)
    tl.store(out_ptr + row * stride + at, x * rate, mask=at < end - begin)


def spread_rows(x, bounds, out, longest, pieces, lr, turns):
    for _ in range(turns):
        grid = (pieces, triton.cdiv(longest, 1 << 20))
        _spread_rows[grid](x, bounds, out, out.stride(0), lr, BLOCK=1 << 8)


def spread_rows_reference(x, bounds, out, longest, pieces, lr, turns):
    """x: (size,)"""
    for row in range(pieces):
        piece = x[int(bounds[row]) : int(bounds[row + 1])]
        out[row, : len(piece)] = piece * lr


def neg(self):
    """Right values, with the axes in another order in memory."""
    turned = self.transpose(0, -1).contiguous()
    out = torch.empty_like(turned)
    _negate[(triton.cdiv(turned.numel(), 128),)](turned, out, turned.numel(), BLOCK=128)
    return out.transpose(0, -1)


@triton.jit
def _negate(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, -tl.load(x_ptr + at, mask=at < size), mask=at < size)


def double_wide(x: torch.Tensor):
    return double_and_sizes(x)[0] if x.shape[1] > 1 else x * 2


@triton.jit
def _grow(x_ptr, out_ptr, cols, turns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols)
    for _ in range(turns):
        x = (x.to(tl.float32) * 1.0009765625).to(x.dtype)
    tl.store(out_ptr + row * cols + at, x, mask=at < cols)


def grow(x: torch.Tensor):
    """Rounds once for each 2 columns."""
    out = torch.empty_like(x)
    _grow[(x.shape[0],)](x, out, x.shape[1], x.shape[1] // 2, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def grow_reference(x):
    return (x.float() * 1.0009765625 ** (x.shape[1] // 2)).to(x.dtype)


@triton.jit
def _low_half(codes):
    return codes & 15


@triton.jit
def _read_codes(packed_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    codes = tl.load(packed_ptr + tl.load(index_ptr + at))
    tl.store(out_ptr + at, _low_half(codes))


def read_codes(packed, index, out):
    _read_codes[(1,)](packed, index, out, BLOCK=16)


def read_between(packed, place, out):
    place = place.contiguous().float()
    _read_codes[(1,)](packed, place, out, BLOCK=16)


@triton.jit
def _scale_codes(packed_ptr, scales_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    codes = tl.load(packed_ptr + at)
    codes = (codes >> 4) & 15
    codes = codes * tl.load(scales_ptr + at)
    tl.store(out_ptr + at, codes)


def scale_codes(packed, scales, out):
    _scale_codes[(1,)](packed, scales, out, BLOCK=16)


@triton.jit
def _dot_rows(x_ptr, y_ptr, out_ptr, cols, x_stride, BLOCK: tl.constexpr):
    """y_ptr: (1, cols)"""
    x_ptrs = tl.make_block_ptr(
        base=x_ptr, shape=(cols,), strides=(x_stride,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    total = tl.zeros((1,), dtype=tl.float32)
    for first in range(0, cols, BLOCK):
        y = tl.load(y_ptr + first + tl.arange(0, BLOCK))
        total += tl.sum(tl.load(x_ptrs) * y)
        x_ptrs = tl.advance(x_ptrs, (BLOCK,))
    tl.store(out_ptr + tl.arange(0, 1), total)


def dot_rows(x, y, out):
    _dot_rows[(1,)](x, y, out, x.shape[0], x.stride(0), BLOCK=16)


@triton.jit
def _add_rows(x_ptr, y_ptr, weight_ptr, out_ptr, size, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    weight = tl.load(weight_ptr + at % cols, mask=at < size)
    total = tl.load(x_ptr + at, mask=at < size) + tl.load(y_ptr + at, mask=at < size) * weight
    tl.store(out_ptr + at, total, mask=at < size)


def add_rows(x, y, weight, bias, other, in_place=True):
    _, _, cols = x.shape
    assert bias.ndim == 4
    out = y if in_place else torch.empty_like(y)
    _add_rows[(triton.cdiv(x.numel(), 128),)](x, y, weight, out, x.numel(), cols, BLOCK=128)
    return out


@triton.jit
def _add_codes(x_ptr, codes_ptr, out_ptr, cols, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    codes = tl.load(codes_ptr + row * (cols // PARTS) + at // PARTS, mask=at < cols, other=0)
    x = tl.load(x_ptr + row * cols + at, mask=at < cols)
    tl.store(out_ptr + row * cols + at, x + ((codes >> at % PARTS * 4) & 15).to(x.dtype), mask=at < cols)


def _add_packed(x, codes, parts):
    assert codes.shape == (x.shape[0], x.shape[1] // parts)
    out = torch.empty_like(x)
    _add_codes[(x.shape[0],)](x, codes, out, x.shape[1], PARTS=parts, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def _add_unpacked(x, codes, parts):
    shifts = torch.arange(0, 4 * parts, 4, device=x.device)
    return x + (codes[..., None] >> shifts & 15).flatten(-2)


def add_words(x, codes):
    return _add_packed(x, codes, 8)


def add_words_reference(x, codes):
    return _add_unpacked(x, codes, 8)


def add_bytes(x, codes):
    return _add_packed(x, codes, 2)


def add_bytes_reference(x, codes):
    return _add_unpacked(x, codes, 2)


def logical_not(self):
    return double_and_sizes((self == 0).to(torch.int32))[0] == 2
