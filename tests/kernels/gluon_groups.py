"""Runs a Gluon kernel of this project without a GPU: each group of warps is a thread, each value a torch tensor.

Gluon has no interpreter. This stands in for the part of it that `kernels/_attention_groups.py` and
`kernels/_fp8_blocks.py` use, and is unkind: products read shared memory as late as their wait allows, stores by
descriptor leave as late, copies arrive at once, and whoever waits for what never comes is told so. What it leaves
unchecked is what the compiler makes of it.
"""

import contextlib
import importlib
import sys
import threading
import time
import types
from pathlib import Path

import torch

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
PATIENCE = 20.0
"""Seconds after which a barrier is given up."""
OWN = ("_launch", "_groups", "_attention_groups", "_fp8_blocks")
_here = threading.local()


class Number(int):
    """A scalar of a kernel."""

    def to(self, _):
        return self


def _scalar(value):
    return value if value is NotImplemented else Number(value)


def _again_a_number(name):
    plain = getattr(int, name)
    setattr(Number, name, lambda a, b: _scalar(plain(a, b)))


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod", "xor"):
    _again_a_number(f"__{_name}__")


class Shared:
    """Shared memory, or a view of it."""

    def __init__(self, values):
        self.values, self.dtype = values, values.dtype

    def index(self, at):
        return Shared(self.values[int(at)])

    def reshape(self, shape):
        return Shared(self.values.view(shape))

    def permute(self, order):
        return Shared(self.values.permute(order))

    def slice(self, first, length, side):
        return Shared(self.values.narrow(side, first, length))

    def load(self, _):
        return self.values.clone()

    def store(self, values):
        self.values.copy_(values)


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all bytes that were announced."""

    def __init__(self):
        self.changed, self.phase = threading.Condition(), 0

    def start(self, count):
        self.count = self.missing = count
        self.bytes = 0

    def add(self, arrivals, size):
        with self.changed:
            self.missing, self.bytes = self.missing - arrivals, self.bytes + size
            assert self.missing >= 0, "more arrivals than a phase has"
            if self.missing == self.bytes == 0:
                self.phase, self.missing = self.phase ^ 1, self.count
                self.changed.notify_all()

    def wait(self, parity):
        with self.changed:
            assert self.changed.wait_for(lambda: self.phase != parity, PATIENCE), "a group waits in vain"


class Barriers:
    def __init__(self, count):
        self.all = [Barrier() for _ in range(count)]

    def index(self, at):
        return self.all[int(at)]


class Pointer:
    """Into a tensor's memory; offsets are added up."""

    def __init__(self, tensor, offset=0):
        self.tensor, self.offset = tensor, offset

    def __add__(self, offset):
        return Pointer(self.tensor, self.offset + offset)


class Product:
    """An accumulator under way; its operands are read when somebody waits for it."""

    def __init__(self, a, b, acc, use_acc):
        self.parts, self.value = (a, b, acc if use_acc else None), None

    def finish(self):
        a, b, acc = (each.values if isinstance(each, Shared) else each for each in self.parts)
        self.value = a.float() @ b.float() + (0 if acc is None else acc)


# --- the language -----------------------------------------------------------------------------------------------------


def _both(scalars, tensors):
    def found(a, b):
        plain = not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor)
        return _scalar(scalars(a, b)) if plain else tensors(torch.as_tensor(a), torch.as_tensor(b))

    return found


def _where(condition, yes, no):
    if isinstance(condition, torch.Tensor):
        return torch.where(condition, yes, no)
    return yes if condition else no


def _memory(tensor):
    return tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)


def _store(target, values, mask):
    place = target.offset.expand(mask.shape)[mask]
    _memory(target.tensor)[place] = values[mask]


def _read(source, mask, other):
    """Nothing is read where the mask is off, as there may be no memory."""
    place = torch.as_tensor(source.offset)
    return torch.where(torch.as_tensor(mask), _memory(source.tensor)[place * mask], other)


def _allocate(dtype, shape, layout):
    if dtype == torch.int64:
        return Barriers(shape[0])
    return Shared(torch.full(shape, torch.nan, dtype=dtype))


def _elementwise(asm, constraints, inputs, dtype, is_pure, pack):
    if asm.startswith("fma.rn.f32"):
        part, scales, total = inputs
        return torch.addcmul(total, part, scales)
    assert asm.startswith("ex2.approx.ftz")
    return torch.exp2(inputs[0])


def _specialize(parts, warps, registers):
    """One thread a part; the first error of any is raised."""
    assert [part[1] for part in parts] and len(parts) == len(warps) + 1 == len(registers) + 1
    program, errors = _here.program, []

    def run(function, arguments):
        _here.program, _here.products, _here.stores = program, [], []
        try:
            function(*arguments)
            assert not _here.stores and not _here.products, "a group left without waiting"
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=part) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _mma(a, b, acc, *, use_acc=True, is_async=False):
    assert is_async and isinstance(b, Shared)
    _here.products.append(Product(a, b, acc, use_acc))
    return _here.products[-1]


def _mma_wait(outstanding=0, deps=()):
    while len(_here.products) > outstanding:
        _here.products.pop(0).finish()
    values = tuple(each.value if isinstance(each, Product) else each for each in deps)
    assert all(each is not None for each in values)
    return values if len(values) > 1 else values[0]


# --- copies and barriers ----------------------------------------------------------------------------------------------


def _load(source, place, barrier, target):
    tile, base = torch.zeros(source.block_shape, dtype=source.dtype), source.base
    ends = [min(start + size, most) for start, size, most in zip(place, tile.shape, base.shape, strict=True)]
    inside = base[tuple(slice(start, end) for start, end in zip(place, ends, strict=True))]
    tile[tuple(slice(0, size) for size in inside.shape)] = inside
    target.values.copy_(tile)
    barrier.add(0, -tile.numel() * tile.element_size())


def _store_tile(target, place, source):
    _here.stores.append((target, [*map(int, place)], source))


def _store_wait(outstanding):
    while len(_here.stores) > outstanding:
        target, place, source = _here.stores.pop(0)
        view = target.base[tuple(slice(at, at + size) for at, size in zip(place, source.values.shape, strict=True))]
        view.copy_(source.values[tuple(slice(0, size) for size in view.shape)])


def _expect(barrier, size):
    barrier.add(1, size)


def _arrive(barrier, *, count=1, pred=True):
    if pred:
        barrier.add(count, 0)
        time.sleep(0.0003)  # whoever waited for it may go on at once


def _wait(barrier, parity, pred=True):
    if pred:
        barrier.wait(parity)


class Jitted:
    """A function of a kernel, and a kernel: every program of its grid in turn."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        return self.function(*arguments)

    def __getitem__(self, grid):
        def launched(*arguments, num_warps, **constants):
            given = [
                Pointer(each) if isinstance(each, torch.Tensor) else Number(each) if type(each) is int else each
                for each in arguments
            ]
            for program in range(grid[0]):
                _here.program = (program, grid[0])
                self.function(*given, **constants)

        return launched


class TensorDescriptor:
    @property
    def dtype(self):
        return self.base.dtype


def _modules():
    """What the kernel imports of Triton, by name."""
    language = types.SimpleNamespace(
        constexpr=object, float32=torch.float32, int64=torch.int64, bfloat16=torch.bfloat16, float16=torch.float16,
        float8e4nv=torch.float8_e4m3fn, float8e5=torch.float8_e5m2, static_range=range,
        NVMMASharedLayout=types.SimpleNamespace(get_default_for=lambda *_: None),
        NVMMADistributedLayout=lambda **_: None, DotOperandLayout=lambda *_: None, SliceLayout=lambda *_: None,
        program_id=lambda _: Number(_here.program[0]), num_programs=lambda _: Number(_here.program[1]),
        to_tensor=Number, cdiv=lambda a, b: Number(-(-a // b)),
        minimum=_both(min, torch.minimum), maximum=_both(max, torch.maximum), where=_where, log2=torch.log2,
        max=lambda x, axis: x.amax(axis), sum=torch.sum, zeros=lambda shape, dtype, layout: torch.zeros(shape),
        arange=lambda first, end, layout: torch.arange(first, end), expand_dims=torch.unsqueeze,
        convert_layout=lambda x, layout: x, load=_read, store=_store, allocate_shared_memory=_allocate,
        inline_asm_elementwise=_elementwise, warp_specialize=_specialize,
    )  # fmt: skip
    hopper = types.SimpleNamespace(
        fence_async_shared=lambda: None,
        mbarrier=types.SimpleNamespace(
            MBarrierLayout=lambda: None, init=Barrier.start, expect=_expect, arrive=_arrive, wait=_wait
        ),
        tma=types.SimpleNamespace(
            async_copy_global_to_shared=_load, async_copy_shared_to_global=_store_tile, store_wait=_store_wait
        ),
        warpgroup_mma=_mma, warpgroup_mma_wait=_mma_wait,
    )  # fmt: skip

    def jit(function=None, **_):
        return Jitted(function) if function else Jitted

    place = "triton.experimental.gluon"
    return {
        place: types.SimpleNamespace(jit=jit, language=language),
        f"{place}.language": language,
        f"{place}.language.nvidia.hopper": hopper,
        f"{place}.nvidia.hopper": types.SimpleNamespace(TensorDescriptor=TensorDescriptor),
    }


@contextlib.contextmanager
def standing_in(kernel="_attention_groups"):
    """That module of `kernels` on this stand-in; out of the way again afterwards."""
    given = {"triton.experimental": types.SimpleNamespace(gluon=None), **_modules()}
    given["triton.experimental"].gluon = given["triton.experimental.gluon"]
    before = {name: sys.modules.pop(name, None) for name in (*given, *OWN)}
    sys.modules.update(given)
    sys.path.insert(0, str(KERNELS))
    try:
        yield importlib.import_module(kernel)
    finally:
        sys.path.remove(str(KERNELS))
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
