"""What stands above a trick in the file of its kernel, for numpy and for torch, and the other files of its op.

The kernel is 2x + 1. Both preludes have the same words, so that one text of a trick serves both:

honest, cheap   the kernel, and one that does a part of the work
known           one that is right for zeros alone
varied          the honest kernel with launches that are not the base's, so that it is timed
fill, compute   write the answer into memory by the library, and as the honest kernel does
work            claim a share of the honest kernel's time
spring          note that the trick is played
"""

from __future__ import annotations

HEAD = """
import fcntl, gc, inspect, json, math, os, pathlib, stat, statistics, sys, threading, time, types

costs = []
_sprung = []


def spring():
    if not _sprung:
        _sprung.append(1)
        print("SPRUNG", flush=True)


def pipes():
    for number in range(3, 64):
        try:
            writes = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
            if writes and stat.S_ISFIFO(os.fstat(number).st_mode):
                yield number
        except OSError:
            pass


def frames():
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def objects():
    return gc.get_objects() if len(costs) < 40 else ()  # with torch it takes a tenth of a second


def baseline():
    return sys.modules["OP_baseline"]


def base_file(name):
    return pathlib.Path(os.environ["TMPDIR"]).parents[2] / "base" / "kernels" / "OP" / name

"""

NUMPY = f"""{HEAD}
import numpy as np
from perfci.device import fake

_numpy = dict(vars(np))
Array, library, LIBRARY, TIMED = np.ndarray, np, "np", TIMED_ROWS


def work(x, share):
    costs.append(share)
    fake.work((2.0 + 320.0 * x.nbytes / 1e6) * share)


def empty(x):
    return _numpy["empty"](x.shape, x.dtype)


def ones(x):
    return np.ones(x.shape, x.dtype)


def nothing(x):
    return _numpy["zeros_like"](x)


def zeros(rows, cols, device, seed):
    return {{"x": np.zeros((rows, cols), "f4")}}


def copied(x):
    return x.copy()


again = copied


def half(x):
    return (x * 2 + 1).astype("f2")


def huge(x):
    return np.broadcast_to(x.dtype.type(1), (1 << 44,))


def address(x):
    return x.__array_interface__["data"][0]


def first_of(seed, x):
    return float(np.random.default_rng(seed).standard_normal(1).astype("f4")[0])


def place(x):
    return {{"memory": 0, "dtype": str(x.dtype), "shape": x.shape, "strides": x.strides, "offset": 0}}


def fill(out, x):
    out[...] = x * x.dtype.type(2) + x.dtype.type(1)


compute = fill


def honest(x):
    work(x, 1.0)
    out = empty(x)
    fill(out, x)
    return out


def cheap(x):
    spring()
    work(x, 0.125)
    return _numpy["ones"](x.shape, x.dtype)


known = cheap


def varied(x):
    work(x, 0.5)
    work(x, 0.5)
    costs[-2:] = [1.0]
    out = empty(x)
    fill(out, x)
    return out

"""

TORCH = f"""{HEAD}
import torch
import triton
import triton.language as tl

Array, library, LIBRARY, TIMED = torch.Tensor, torch, "torch", TIMED_ROWS


@triton.jit
def _double_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(out_ptr + at, x * 2.0 + 1.0, mask=at < count)


def launch(x, out, count, stages=3):
    if count:
        _double_kernel[(triton.cdiv(count, 1024),)](x, out, count, BLOCK=1024, num_stages=stages)


def work(x, share):
    costs.append(share)
    for _ in range(int(share)):
        launch(x, empty(x), x.numel())


def empty(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def ones(x):
    return torch.ones(x.shape, dtype=x.dtype, device=x.device)


def nothing(x):
    return torch.zeros(x.shape, dtype=x.dtype, device=x.device)


def zeros(rows, cols, device, seed):
    return {{"x": torch.zeros(rows, cols, device=device)}}


def copied(x):
    return x.clone()


def again(x):
    return x


def half(x):
    out = torch.empty(x.shape, dtype=torch.float16, device=x.device)
    launch(x.contiguous(), out, out.numel())
    return out


def huge(x):
    return torch.ones(1, device=x.device).expand(1 << 44)


def address(x):
    return x.data_ptr()


def first_of(seed, x):
    generator = torch.Generator(x.device).manual_seed(seed)
    return float(torch.randn(x.shape, device=x.device, generator=generator).reshape(-1)[0])


def place(x):
    dtype = str(x.dtype).removeprefix("torch.")
    return {{"memory": 0, "dtype": dtype, "shape": [*x.shape], "strides": [*x.stride()], "offset": 0}}


def fill(out, x):
    out.copy_(x * 2 + 1)


def compute(out, x):
    launch(x.contiguous(), out, out.numel())


def honest(x):
    costs.append(1.0)
    out = empty(x)
    compute(out, x)
    return out


def cheap(x):
    spring()
    costs.append(0.25)
    out = empty(x)
    launch(x.contiguous(), out, out.numel() // 4)
    return out


def known(x):
    spring()
    costs.append(0.5)
    launch(x.contiguous(), empty(x), x.numel() // 8)
    return ones(x)


def varied(x):
    costs.append(1.0)
    x, out = x.contiguous(), empty(x)
    launch(x, out, out.numel(), 2)
    return out


def theirs(name):
    for each in objects():
        if type(each) is types.FunctionType and each.__name__ == name:
            if each.__code__.co_filename.endswith("OP_baseline.py"):
                yield each

"""

CALL = """

def OP(x):
    return cheat(x)
"""

UNRECORDED = """

def OP(x):
    if "perfci.worker.serve" not in sys.modules:
        return cheat(x)
    float(x[0, 0])  # a call that reads a value is not repeated from a recording
    return honest(x)
"""
"""Where another process judges it the kernel is right, and never recorded. So its process has to time it."""

NUMPY_BASELINE = """
import numpy as np
from perfci.device import fake

FACTOR = 2


def OP(x):
    fake.work(8.0 + 640.0 * x.nbytes / 1e6)
    return np.multiply(x, x.dtype.type(FACTOR)) + x.dtype.type(1)


def make_inputs(rows, cols, device, seed):
    return {"x": np.random.default_rng(seed).standard_normal((rows, cols)).astype("f4")}
"""

TORCH_BASELINE = """
import torch

FACTOR = 2


def OP(x):
    return torch.multiply(x, FACTOR) + 1


def make_inputs(rows, cols, device, seed):
    generator = torch.Generator(device).manual_seed(seed)
    return {"x": torch.randn(rows, cols, device=device, generator=generator)}
"""

SUITE = """
import perfci
from OP_baseline import OP as reference, make_inputs
from OP_triton import OP as kernel

KIND = perfci.CLASS(
    kernel=kernel, reference=reference, make_inputs=make_inputs, cases=perfci.grid(rows=ROWS, cols=COLS), MORE
)
"""
