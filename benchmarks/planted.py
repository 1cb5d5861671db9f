"""Faults planted in kernels: what people and generators get wrong, each as an exact edit of one of the op's files.

`before` stands in the file as often as `times` says, so that a kernel that changes takes its faults with it
(tests/kernels/interpreted/test_faults.py holds them to that).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One planted fault."""

    op: str
    kind: str
    name: str
    before: str
    after: str
    case: str | None = None
    """Cases that show it, tried first where the first finding is all that is asked for."""
    values: str | None = None
    """the same of the kinds of values"""
    file: str | None = None
    """Below kernels/; the op's own `_triton` file where None."""
    times: int = 1
    only: str | None = None
    """"interpreted" or "compiled": what runs the fault's place, or shows it; both where None."""

    @property
    def path(self) -> str:
        """Below kernels/."""
        return self.file or f"{self.op}/{self.op}_triton.py"

    def planted(self, text: str) -> str:
        """The file's text with the fault. Raises ValueError where the text is not the one it was written for."""
        if text.count(self.before) != self.times:
            found = text.count(self.before)
            raise ValueError(f"{self.op}, {self.name}: {self.path} has {self.before!r} {found} times, not {self.times}")
        return text.replace(self.before, self.after)


_EMPTY = "    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)\n"
_TOTAL = 'total = tl.dot(a, b, total, input_precision="ieee")'
_SHARED = "_attention.py"

FAULTS = (
    # --- broadcast, bias_relu ---
    Fault("broadcast", "mask", "mask one short", "(col < cols)[None, :]", "(col < cols - 1)[None, :]"),
    Fault("broadcast", "mask", "mask one too far", "(col < cols)[None, :]", "(col <= cols)[None, :]"),
    Fault(
        "broadcast",
        "stride",
        "stride of bias ignored",
        "bias_ptr + col * bias_stride",
        "bias_ptr + col",
        case="rows=33,cols=100",
    ),
    Fault(
        "broadcast",
        "race",
        "every program writes the first rows",
        "tl.program_id(0).to(tl.int64) * ROWS, rows, step",
        "tl.program_id(0).to(tl.int64) * 0, rows, step * rows",
        case="rows=13,cols=1023",
    ),
    Fault(
        "broadcast",
        "device",
        "output elsewhere",
        "        )\n    return out\n",
        "        )\n    return out.to('meta')\n",
    ),
    Fault("broadcast", "cheat", "output is the input's memory", _EMPTY, "    out = x.contiguous()\n"),
    Fault("bias_relu", "mask", "row mask one too far", "(row < rows)[:, None]", "(row <= rows)[:, None]"),
    Fault(
        "bias_relu",
        "special values",
        "NaN swallowed",
        "tl.where(y < 0, 0.0, y)",
        "tl.where(y > 0, y, 0.0)",
        values="nan",
    ),
    Fault(
        "bias_relu",
        "accumulator",
        "sum in the input's dtype",
        "x.to(tl.float32) + bias[None, :]",
        "(x + bias[None, :].to(x.dtype)).to(tl.float16).to(tl.float32)",
        case="rows=257,cols=129,dtype=float32",
    ),
    Fault(
        "bias_relu",
        "stale output",
        "output kept between calls",
        _EMPTY,
        "    out = choose_tile.__dict__.setdefault((x.shape, x.dtype), torch.empty_like(x.contiguous()))\n",
    ),
    Fault(
        "bias_relu",
        "stride",
        "rows taken for contiguous",
        "row[:, None] * row_stride",
        "row[:, None] * cols",
        case="rows=33,cols=100",
    ),
    # --- softmax ---
    Fault(
        "softmax",
        "missing maximum",
        "no maximum subtracted",
        "tl.exp(x - tl.max(x, axis=1)[:, None])",
        "tl.exp(x)",
        values="large",
    ),
    Fault(
        "softmax",
        "mask",
        "columns beyond the row are zeros",
        'x = tl.load(source, mask=mask, other=-float("inf"))',
        "x = tl.load(source, mask=mask, other=0.0)",
    ),
    Fault(
        "softmax",
        "rescaling",
        "sum not rescaled when the maximum grows",
        "total * tl.exp(top - shift) +",
        "total +",
        case="cols=40009",
    ),
    Fault(
        "softmax",
        "special values",
        "a chunk of -inf alone gives NaN",
        'shift = tl.where(new_top == -float("inf"), 0.0, new_top)',
        "shift = new_top",
        case="hidden=*",
    ),
    Fault(
        "softmax",
        "stride",
        "column stride ignored",
        "row[:, None] * row_stride + col[None, :].to(tl.int64) * col_stride",
        "row[:, None] * row_stride + col[None, :].to(tl.int64)",
        case="rows=33,cols=100",
    ),
    Fault(
        "softmax",
        "accumulator",
        "power rounded to half",
        "power = tl.exp(x - tl.max(x, axis=1)[:, None])",
        "power = tl.exp(x - tl.max(x, axis=1)[:, None]).to(tl.float16).to(tl.float32)",
        case="rows=131,cols=61,dtype=float32",
    ),
    # --- matmul ---
    Fault(
        "matmul",
        "accumulator",
        "sum in half precision",
        _TOTAL,
        'total = (total + tl.dot(a, b, input_precision="ieee")).to(out_ptr.dtype.element_ty).to(tl.float32)',
        case="k=101,dtype=float16",
    ),
    Fault(
        "matmul",
        "mask",
        "last values along k left out",
        "inside = inner < k - start",
        "inside = inner < k - start - 1",
        case="k=101,dtype=float32",
    ),
    Fault(
        "matmul",
        "mask",
        "values beyond k taken along",
        "inside = inner < k - start",
        "inside = inner < k - start + 1",
        case="k=101,dtype=float32",
    ),
    Fault(
        "matmul",
        "stride",
        "b taken for row-major",
        "inner[:, None] * b_row + col[None, :] * b_col",
        "inner[:, None] * n + col[None, :]",
        case="m=33,n=48,k=65",
    ),
    Fault(
        "matmul",
        "stale output",
        "sums of one tile begin the next",
        "    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)\n    for start in",
        "    total = tl.full((BLOCK_M, BLOCK_N), 1e-3, dtype=tl.float32)\n    for start in",
    ),
    Fault(
        "matmul",
        "epilogue",
        "bias of the first columns for all",
        "bias_ptr + col * bias_step",
        "bias_ptr + (col % 16) * bias_step",
        case="bias=True",
    ),
    Fault(
        "matmul",
        "epilogue",
        "gelu by the wrong constant",
        "0.7071067811865476",
        "0.7978845608028654",
        case="activation=gelu",
    ),
    Fault(
        "matmul",
        "special values",
        "NaN swallowed by ReLU",
        "tl.where(total < 0, 0.0, total)",
        "tl.where(total > 0, total, 0.0)",
        values="nan",
    ),
    Fault(
        "matmul",
        "special values",
        "NaN swallowed by a maximum",
        "tl.where(total < 0, 0.0, total)",
        "tl.maximum(total, 0.0)",
        values="nan",
        only="compiled",
    ),
    # --- fp8_matmul ---
    Fault(
        "fp8_matmul",
        "scale",
        "scale of the block before",
        "inner // 128, row, first_col",
        "tl.maximum(inner // 128 - 1, 0), row, first_col",
        case="k=144,scaling=block",
        times=2,
    ),
    Fault(
        "fp8_matmul",
        "scale",
        "scales of a forgotten",
        "total = total * of_a[:, None] * of_b[None, :]",
        "total = total * of_b[None, :]",
    ),
    Fault(
        "fp8_matmul",
        "scale",
        "scale of the first column for all",
        "of_b = tl.load(scale_b + col * scale_b_col, mask=col < n, other=0.0)",
        "of_b = tl.load(scale_b + col * 0, mask=col < n, other=0.0)",
        case="scaling=row",
    ),
    Fault(
        "fp8_matmul",
        "mask",
        "last values along k left out",
        "(inside < k - inner)[None, :]",
        "(inside < k - inner - 1)[None, :]",
        case="k=101",
    ),
    Fault(
        "fp8_matmul",
        "special values",
        "NaN and infinity as numbers",
        "    if values.dtype == tl.float8e5:",
        "    if values.dtype == values.dtype:\n        return wide\n    if values.dtype == tl.float8e5:",
        values="nan",
        only="interpreted",
    ),
    # --- attention ---
    Fault(
        "attention",
        "causal edge",
        "a query sees one key too many",
        "found = found & (key <= place + right)",
        "found = found & (key <= place + right + 1)",
        case="queries=33,keys=31,causal=True",
        file=_SHARED,
    ),
    Fault(
        "attention",
        "causal edge",
        "the last query beside the first key",
        "place = first + keys - queries + tl.arange(0, BLOCK_M)",
        "place = first + tl.arange(0, BLOCK_M)",
        case="queries=33,keys=31,causal=True",
    ),
    Fault(
        "attention",
        "window edge",
        "window one key short on the left",
        "found = found & (key >= place - left)",
        "found = found & (key > place - left)",
        file=_SHARED,
        case="window=*",
    ),
    Fault("attention", "missing maximum", "no maximum subtracted", "shift = raised\n", "shift = raised * 0.0\n"),
    Fault(
        "attention",
        "rescaling",
        "output not rescaled when the maximum grows",
        "acc * fade[:, None], input",
        "acc, input",
    ),
    Fault(
        "attention",
        "mask",
        "padding mask ignored",
        "visible = visible & (tl.load(row",
        "visible = visible | (tl.load(row",
        case="padded=True",
    ),
    Fault(
        "attention",
        "mask",
        "a query that sees nothing gives NaN",
        "share = tl.where(total == 0.0, 1.0, total)",
        "share = total",
        case="queries=33,keys=31,causal=True",
    ),
    Fault(
        "attention",
        "grouped heads",
        "key heads in turn, not in groups",
        "batch, head // group, place, queries",
        "batch, head % (heads // group), place, queries",
        case="key_heads=2",
    ),
    Fault(
        "attention",
        "dropout",
        "kept weights not scaled up",
        "        acc = acc * upscale\n",
        "        acc = acc * 1.0\n",
        case="dropout=*",
    ),
    Fault(
        "attention",
        "dropout",
        "other mask than the definition's",
        "quad = first_col // 4",
        "quad = first_col // 8",
        file=_SHARED,
        case="dropout=*",
    ),
    Fault(
        "attention",
        "accumulator",
        "sum of exponentials in half",
        "total = total * fade + tl.sum(p, 1)",
        "total = (total * fade + tl.sum(p, 1)).to(tl.float16).to(tl.float32)",
    ),
    Fault(
        "attention",
        "rescaling",
        "parts put together without their maxima",
        "weight = tl.exp2((tile_top - shift[None, :]) * scale)",
        "weight = tl.where(inside, 1.0, 0.0)",
        case="keys=600",
    ),
    Fault(
        "attention",
        "mask",
        "the last part, shorter than the others, left out",
        "return Parts(_launch.tiles(keys, size), size)",
        "return Parts(max(keys // size, 1), size)",
        case="keys=600",
    ),
    Fault(
        "attention",
        "mask",
        "a last tile that the mask shows in part not walked",
        "return first // STEP * STEP, last",
        "return first // STEP * STEP, last // STEP * STEP",
        file=_SHARED,
        case="keys=600,*,padded=True",
    ),
    Fault(
        "attention",
        "dropout",
        "heads of a group drop the same weights",
        "which * group + row // queries, batch",
        "which * group, batch",
        case="keys=530",
    ),
    # --- attention_backward ---
    Fault(
        "attention_backward",
        "dropout",
        "mask not that of forward",
        "kept(threshold, seed, which, m, first, BLOCK_M, BLOCK_N)",
        "kept(threshold, seed + 1, which, m, first, BLOCK_M, BLOCK_N)",
        case="dropout=*",
    ),
    Fault(
        "attention_backward",
        "dropout",
        "dropped weights in dq",
        "dp = tl.where(kept(threshold, seed, which, first, n, BLOCK_M, BLOCK_N), dp * upscale, 0.0)",
        "dp = dp * upscale",
        case="dropout=*",
    ),
    Fault(
        "attention_backward",
        "gradient",
        "sum(out * grad) not taken off in dq",
        "ds = p * (dp - taken[:, None])",
        "ds = p * dp",
    ),
    Fault("attention_backward", "gradient", "scale left out of dk", "dk * scale, batch", "dk, batch"),
    Fault(
        "attention_backward", "grouped heads", "only the first head of a group", "tl.range(0, group)", "tl.range(0, 1)"
    ),
    Fault(
        "attention_backward",
        "causal edge",
        "hidden keys get gradients",
        "visible = seen((row + keys - queries)[None, :], key[:, None], left, right, keys, LEFT, RIGHT)",
        "visible = seen((row + keys - queries + 1)[None, :], key[:, None], left, right, keys, LEFT, RIGHT)",
        case="queries=33,keys=31,causal=True",
    ),
    Fault(
        "attention_backward",
        "formula",
        "natural exponentials in dq",
        "p = tl.exp2(s * scale2 - log[:, None])",
        "p = tl.exp(s * scale2 - log[:, None])",
    ),
    # --- vector_add, gelu ---
    Fault("vector_add", "mask", "last element left out", "mask=at < size)", "mask=at < size - 1)"),
    Fault(
        "vector_add",
        "stride",
        "y read with x's strides",
        "y_ptr + row[:, None] * y_row_stride + col[None, :] * y_col_stride",
        "y_ptr + row[:, None] * x_row_stride + col[None, :] * x_col_stride",
        case="transposed=True",
    ),
    Fault(
        "vector_add",
        "accumulator",
        "sum in half precision",
        "total = x.to(tl.float32) + y.to(tl.float32)",
        "total = (x.to(tl.float16) + y.to(tl.float16)).to(tl.float32)",
        case="transposed=True",
    ),
    Fault("gelu", "formula", "tanh's cubic term left out", "- 0.1029432396 * x * x", "- 0.0 * x * x"),
    Fault("gelu", "formula", "a coefficient of the polynomial with three digits", "- 1.1511046886444092", "- 1.15"),
    Fault(
        "gelu",
        "special values",
        "the left tail cut off",
        "y = x * tl.where(x < 0, tail, 1.0 - tail)",
        "y = tl.where(x < -3, 0.0, x * tl.where(x < 0, tail, 1.0 - tail))",
        case="shape=1023,approximate=none",
    ),
    Fault(
        "gelu",
        "stride",
        "columns taken for neighbours",
        "row[:, None] * row_stride + col[None, :] * col_stride",
        "row[:, None] * row_stride + col[None, :]",
        case="shape=(33;100)",
    ),
    # --- layer_norm, rms_norm ---
    Fault(
        "layer_norm",
        "formula",
        "variance about 0",
        "apart = tl.where((col < cols)[None, :], x - mean[:, None], 0.0)",
        "apart = tl.where((col < cols)[None, :], x, 0.0)",
    ),
    Fault(
        "layer_norm",
        "mask",
        "columns beyond the row count in the variance",
        "apart = tl.where((col < cols)[None, :], x - mean[:, None], 0.0)",
        "apart = x - mean[:, None]",
    ),
    Fault(
        "layer_norm",
        "formula",
        "parts of a row joined without their means' spread",
        "tl.sum(squares + counts * apart * apart, axis=0)",
        "tl.sum(squares, axis=0)",
        case="cols=40009",
    ),
    Fault(
        "layer_norm",
        "formula",
        "eps beside the root",
        "rstd = tl.rsqrt(tl.sum(apart * apart, axis=1) / cols + eps)",
        "rstd = 1.0 / (tl.sqrt(tl.sum(apart * apart, axis=1) / cols) + eps)",
    ),
    Fault(
        "layer_norm",
        "stale output",
        "statistics of the first row for all",
        "tl.store(mean_ptr + row, mean, mask=row < rows)",
        "tl.store(mean_ptr + row * 0, mean, mask=row < rows)",
        case="rows=13,cols=1",
    ),
    Fault(
        "rms_norm",
        "formula",
        "sum in the place of the mean",
        "rstd = tl.rsqrt(tl.sum(x * x, axis=1) / cols + eps)",
        "rstd = tl.rsqrt(tl.sum(x * x, axis=1) + eps)",
    ),
    Fault(
        "rms_norm",
        "mask",
        "a lane's last column left out",
        "mask=col < cols, other=0.0).to(tl.float32)\n        square",
        "mask=col < cols - 1, other=0.0).to(tl.float32)\n        square",
        case="cols=40009",
    ),
    Fault(
        "rms_norm",
        "stride",
        "weight taken for contiguous",
        "weight_ptr + col.to(tl.int64) * weight_stride",
        "weight_ptr + col",
        case="rows=33,cols=100",
    ),
    Fault(
        "rms_norm",
        "accumulator",
        "squares in half precision",
        "square += tl.sum(x * x, axis=0)",
        "square += tl.sum((x * x).to(tl.float16), axis=0).to(tl.float32)",
        case="cols=40009",
    ),
    # --- cross_entropy ---
    Fault(
        "cross_entropy",
        "missing maximum",
        "no maximum subtracted",
        "top = tl.maximum(tl.max(x, axis=1), LEAST)",
        "top = tl.maximum(tl.max(x, axis=1) * 0.0, LEAST)",
        case="cols=60",
        values="large",
    ),
    Fault(
        "cross_entropy",
        "rescaling",
        "sum not rescaled when the maximum grows",
        "total = total * tl.exp(top - new) +",
        "total = total +",
        case="cols=20011",
    ),
    Fault(
        "cross_entropy",
        "mask",
        "ignored rows count in the mean",
        "counts += keep.to(tl.float32)",
        "counts += (row < rows).to(tl.float32)",
        case="reduction=mean",
        times=2,
    ),
    Fault(
        "cross_entropy",
        "formula",
        "smoothing over all but the mean",
        "smoothing * (top - base - above)",
        "smoothing * (top - above)",
        case="cols=61,smoothing=0.1",
    ),
    Fault(
        "cross_entropy",
        "stride",
        "the target's logit by the wrong stride",
        "row * row_stride + label * col_stride",
        "row * row_stride + label",
        case="rows=33,cols=100",
    ),
    Fault(
        "cross_entropy",
        "special values",
        "a target below 0 taken for a class",
        "inside = (label >= 0) & (label < cols)",
        "inside = label < cols",
        case="*strays*",
    ),
    # --- conv2d ---
    Fault(
        "conv2d",
        "special values",
        "NaN swallowed by a maximum",
        "tl.where(total < 0, 0.0, total)",
        "tl.maximum(total, 0.0)",
        values="nan",
        only="compiled",
    ),
    Fault(
        "conv2d",
        "padding edge",
        "one row of padding too far",
        "return (row >= 0) & (row < high)",
        "return (row >= 0) & (row <= high)",
        case="taps=(2;3)",
    ),
    Fault(
        "conv2d",
        "padding edge",
        "padding wraps to the row above",
        "(col >= 0) & (col < wide)",
        "(col < wide)",
        case="taps=(2;3)",
    ),
    Fault(
        "conv2d",
        "stride",
        "strides of height and width exchanged",
        "row_at = place // out_wide * stride_high - pad_high",
        "row_at = place // out_wide * stride_wide - pad_high",
        case="stride=(2;1)",
        times=2,
    ),
    Fault(
        "conv2d",
        "dilation",
        "dilation ignored along the width",
        "right = tap % TAPS_WIDE * apart_wide",
        "right = tap % TAPS_WIDE",
        case="dilation=(1;2)",
        times=3,
    ),
    Fault(
        "conv2d",
        "special values",
        "NaN swallowed by ReLU",
        "tl.where(total < 0, 0.0, total)",
        "tl.where(total > 0, total, 0.0)",
        values="nan",
    ),
    Fault(
        "conv2d",
        "epilogue",
        "bias added twice",
        "total += tl.load(bias + col * bias_step, mask=col < outputs, other=0.0).to(tl.float32)[None, :]",
        "total += 2 * tl.load(bias + col * bias_step, mask=col < outputs, other=0.0).to(tl.float32)[None, :]",
        case="bias=True",
    ),
    Fault(
        "conv2d",
        "stride",
        "places before the edge truncated, not floored",
        "return (place % STEP + STEP) % STEP",
        "return place % STEP",
        case="channels=32,stride=2",
    ),
    Fault(
        "conv2d",
        "stride",
        "row and column of a stride exchanged",
        "[image, row_at, row_in, col_at, col_in * NEXT + channel]",
        "[image, row_at, col_in, col_at, row_in * NEXT + channel]",
        case="channels=32,stride=2",
    ),
    Fault(
        "conv2d",
        "epilogue",
        "both halves of a tile at the first one's place",
        "image + BOX_N - HALF_N, high + BOX_H - HALF_H, wide + BOX_W - HALF_W, col,",
        "image, high, wide, col,",
        case="channels=64,last=False",
    ),
    Fault(
        "conv2d",
        "channels",
        "each channel's multiplier forgotten",
        "(col // TIMES * x_c)",
        "(col % TIMES * x_c)",
        case="groups=*",
    ),
    # --- fp8_attention ---
    Fault(
        "fp8_attention",
        "scale",
        "scale of the group before",
        "k_scales + (n // 128)",
        "k_scales + tl.maximum(n // 128 - 1, 0)",
        case="keys=270,scaling=group",
    ),
    Fault("fp8_attention", "scale", "v's scale left out", "acc = acc * tl.load(scale_v)", "acc = acc * 1.0"),
    Fault(
        "fp8_attention",
        "causal edge",
        "queries beside the first keys",
        "place = first + keys - queries + tl.arange(0, BLOCK_M)",
        "place = first + tl.arange(0, BLOCK_M)",
        case="keys=270,scaling=tensor",
    ),
    Fault(
        "fp8_attention",
        "rescaling",
        "output not rescaled when the maximum grows",
        "acc * fade[:, None], input",
        "acc, input",
        case="keys=270,scaling=tensor",
    ),
    Fault(
        "fp8_attention",
        "mask",
        "a query that sees nothing gives NaN",
        "total = tl.where(total == 0.0, 1.0, total)",
        "total = total * 1.0",
        case="queries=150,keys=140",
    ),
)
