"""What the interpreter sees of a launch's accesses: races between programs."""

import pytest
import torch
import triton
import triton.language as tl
from torch.overrides import TorchFunctionMode

from perfci.device import open_device
from perfci.extensions.interpreter import races as races_of_launches


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


@triton.jit
def copy_shifted(x_ptr, out_ptr, size, shift, block: tl.constexpr):
    place = tl.arange(0, block)
    x = tl.load(x_ptr + place + shift, mask=place < size)
    tl.store(out_ptr + place, tl.where(place + shift < size, x, 0), mask=place < size)


@triton.jit
def copy_by_table(table_ptr, out_ptr, block: tl.constexpr):
    place = tl.arange(0, block)
    source = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + place, tl.load(source + place))


@pytest.mark.parametrize(("shift", "outside"), [(0, 0), (3, 3), (-2, 2)])
def test_a_load_beside_the_launchs_tensors_shows_though_nothing_depends_on_it(shift, outside):
    cpu = open_device("cpu", seed=1)
    given = cpu.arrays.place({"x": torch.arange(8.0)}, "contiguous")["x"]

    with cpu.arrays.watch_allocations("nan"):
        out = torch.empty(8)
    with cpu.watch_races() as races:
        copy_shifted[(1,)](given, out, 8, shift, 8)

    assert sum(race.addresses for race in races) == outside


class PassingForCuda(TorchFunctionMode):
    """Tensors pass for those of a GPU, as what `perfci new` brings in sees them."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        asked = getattr(getattr(func, "__self__", None), "__name__", "")
        return torch.device("cuda", 0) if asked == "device" else func(*args, **(kwargs or {}))


def test_a_load_beside_tensors_shows_where_they_pass_for_those_of_another_device():
    cpu = open_device("cpu", seed=1)
    given = cpu.arrays.place({"x": torch.arange(8.0), "out": torch.zeros(8)}, "contiguous")

    with cpu.watch_races() as races, PassingForCuda():
        copy_shifted[(1,)](given["x"], given["out"], 8, 3, 8)

    assert [(race.kind, race.addresses) for race in races] == [("access outside", 3)]


@triton.jit
def add_up(x_ptr, out_ptr, size, shift, block: tl.constexpr):
    place = tl.arange(0, block)
    x = tl.load(x_ptr + place, mask=place < size + shift, other=0.0)
    tl.atomic_add(out_ptr + place // 4, tl.where(place < size, x, 0.0), mask=place < size + 4 * shift)


@pytest.mark.parametrize(("shift", "outside"), [(0, 0), (1, 2), (4, 8)])
def test_a_launch_with_atomics_is_watched_for_what_it_uses_outside(shift, outside):
    cpu = open_device("cpu", seed=1)
    given = cpu.arrays.place({"x": torch.arange(8.0), "out": torch.zeros(2)}, "contiguous")
    with cpu.watch_races() as races:
        add_up[(2,)](given["x"], given["out"], 8, shift, 32)

    assert given["out"].tolist() == [2 * 6.0, 2 * 22.0]
    assert [(race.kind, race.addresses) for race in races] == [("access outside", outside)] * bool(outside)


def test_an_atomic_outside_shows_too():
    cpu = open_device("cpu", seed=1)
    given = cpu.arrays.place({"out": torch.zeros(1)}, "contiguous")
    with cpu.watch_races() as races:
        add_up[(1,)](torch.ones(8), given["out"], 8, 0, 8)

    assert [(race.kind, race.addresses) for race in races] == [("access outside", 1)]


@triton.jit
def ask_again(flag_ptr, x_ptr, turns):
    for _ in range(turns):
        tl.atomic_add(flag_ptr, 0)
    tl.load(x_ptr + 4)


def test_a_program_that_asks_for_a_flag_again_and_again_takes_no_room_from_what_follows(monkeypatch):
    cpu = open_device("cpu", seed=1)
    given = cpu.arrays.place({"flag": torch.zeros(1, dtype=torch.int32), "x": torch.zeros(4)}, "contiguous")
    monkeypatch.setattr(races_of_launches, "MOST_ACCESSES", 4)
    with cpu.watch_races() as races:
        ask_again[(1,)](given["flag"], given["x"], 20)

    assert [race.kind for race in races] == ["access outside"]


@triton.jit
def hand_on(flag_ptr, out_ptr, is_volatile: tl.constexpr):
    program = tl.program_id(0)
    if program == 0:
        tl.store(out_ptr, tl.load(flag_ptr + 1, volatile=is_volatile))
    tl.store(flag_ptr + program, 1)


@pytest.mark.parametrize("is_volatile", [False, True])
def test_a_launch_whose_programs_wait_for_each_other_by_volatile_loads_is_left_alone(is_volatile):
    with open_device("cpu", seed=1).watch_races() as races:
        hand_on[(2,)](torch.zeros(2, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), is_volatile)

    assert len(races) == (not is_volatile)


@triton.jit
def copy_box(x_ptr, out_ptr, rows, cols, block: tl.constexpr):
    box = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [block, block])
    at = tl.arange(0, block)
    tl.store(out_ptr + at[:, None] * block + at[None, :], box.load([0, 0]))


def test_a_load_by_a_descriptor_is_watched_as_others_are():
    x, out = torch.arange(12.0).reshape(3, 4), torch.empty(4, 4)
    with open_device("cpu", seed=1).watch_races() as races:
        copy_box[(1,)](x, out, 3, 4, 4)

    assert out[:3].equal(x)
    assert list(races) == []


def test_a_view_may_read_what_lies_beside_it_in_its_own_tensor():
    cpu = open_device("cpu", seed=1)
    given = cpu.arrays.place({"x": torch.arange(12.0)}, "contiguous")["x"]

    with cpu.watch_races() as races:
        copy_shifted[(1,)](given[2:10], torch.zeros(8), 8, 2, 8)

    assert list(races) == []


def test_addresses_that_a_tensor_holds_are_no_strays():
    source, out = torch.arange(8.0), torch.zeros(8)

    with open_device("cpu", seed=1).watch_races() as races:
        copy_by_table[(1,)](torch.tensor([source.data_ptr()]), out, 8)

    assert list(races) == []
    assert out.tolist() == source.tolist()


@triton.jit
def copy_from(address, out_ptr, block: tl.constexpr):
    place = tl.arange(0, block)
    tl.store(out_ptr + place, tl.load(address.to(tl.pointer_type(tl.float32)) + place))


def test_an_address_given_as_a_number_is_no_stray_unless_no_memory_is_there():
    source, out = torch.arange(8.0), torch.zeros(8)
    with open_device("cpu", seed=1).watch_races() as races:
        copy_from[(1,)](source.data_ptr(), out, 8)
    assert list(races) == []
    assert out.tolist() == source.tolist()

    with open_device("cpu", seed=1).watch_races() as races:
        copy_by_table[(1,)](torch.tensor([1 << 50]), out, 8)
    assert [race.addresses for race in races] == [8]


@triton.jit
def scale_far(x_ptr, out_ptr, far, block: tl.constexpr):
    place = tl.arange(0, block)
    x = tl.load(x_ptr + place.to(tl.int64) * far)
    tl.store(out_ptr + place.to(tl.int64) * far, x)
    tl.atomic_add(out_ptr + place.to(tl.int64) * far, x)
    tl.atomic_cas(out_ptr + far, 1.0, 2.0)


def test_a_wild_address_is_named_and_not_used_also_where_no_one_watches():
    x, out, far = torch.ones(4), torch.zeros(4), 1 << 40
    with open_device("cpu", seed=1).watch_races() as races:
        scale_far[(2,)](x, out, far, 4)
    scale_far[(1,)](x, out, far, 4)

    assert out.tolist() == [2.0, 0.0, 0.0, 0.0]  # each program stores 1 and adds 1
    [race] = races
    line = scale_far.fn.__code__.co_firstlineno + 3
    told = {"verb": "reads", "far": 4 * (far - 3), "side": "past the end", "tensor": "x_ptr", "line": line}
    assert race.facts == told | {"file": "tests/kernels/interpreted/test_accesses.py"}


@triton.jit
def copy_on(x_ptr, out_ptr, turns):
    for turn in range(turns):
        tl.store(out_ptr + turn, tl.load(x_ptr + turn))


def test_a_launch_that_goes_on_outside_of_its_tensors_ends():
    x, out = torch.ones(4), torch.zeros(4)
    with open_device("cpu", seed=1).watch_races() as races:
        copy_on[(1,)](x, out, 1 << 30)

    assert out.tolist() == [1.0] * 4
    assert [race.kind for race in races] == ["access outside"]
    with pytest.raises(Exception, match="power of 2"):
        make_block[(1,)](out, 3)


@triton.jit
def add_table(x_ptr, table_ptr, out_ptr, size, block: tl.constexpr):
    place = tl.arange(0, block)
    source = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    x = tl.load(x_ptr + place, mask=place < size, other=0.0)
    tl.store(out_ptr + place, x + tl.load(source + place, mask=place < 8), mask=place < 8)


@pytest.mark.parametrize(("size", "outside"), [(8, 0), (10, 2)])
def test_the_guards_of_a_launchs_tensors_are_strays_though_another_holds_addresses(size, outside):
    cpu = open_device("cpu", seed=1)
    given = cpu.arrays.place({"x": torch.arange(8.0)}, "contiguous")["x"]
    source = torch.arange(8.0)

    with cpu.watch_races() as races:
        add_table[(1,)](given, torch.tensor([source.data_ptr()]), torch.zeros(8), size, 16)

    assert sum(race.addresses for race in races) == outside


@triton.jit
def make_block(out_ptr, size: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.zeros((size,), tl.float32), 0))


def test_a_size_that_triton_refuses_is_refused_again():
    open_device("cpu", seed=1)
    for _ in range(2):
        with pytest.raises(Exception, match="power of 2"):
            make_block[(1,)](torch.zeros(1), 3)
