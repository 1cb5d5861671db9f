"""Shared memory that is filled before a call is checked."""

import ctypes
import struct
import subprocess
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from perfci.device.tensors import TorchArrays  # noqa: E402
from perfci.extensions.common import binaries, cubins  # noqa: E402
from perfci.extensions.driver import shared_memory  # noqa: E402

pytestmark = pytest.mark.torch


class Cuda:
    """The driver, with one function."""

    def __init__(self, status: int = 0) -> None:
        self.status, self.launches = status, []

    def cuModuleLoadData(self, *_):  # noqa: N802
        return self.status

    def cuModuleGetFunction(self, *_):  # noqa: N802
        return 0

    def cuFuncSetAttribute(self, *_):  # noqa: N802
        return 0

    def cuLaunchKernelEx(self, config, _function, places, _extra):  # noqa: N802
        config = ctypes.cast(config, ctypes.POINTER(cubins.Config)).contents
        values = [struct.unpack("<I", ctypes.string_at(places[at], 4))[0] for at in (0, 1)]
        self.launches.append((config.grid[0], config.block[0], config.shared, *values))
        return 0


@pytest.fixture
def load(monkeypatch):
    """A GPU with such a driver."""

    def load(cuda: Cuda) -> None:
        monkeypatch.setattr(shared_memory.ctypes, "CDLL", lambda _: cuda)

    properties = SimpleNamespace(shared_memory_per_block_optin=232448, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    shared_memory._prepare.cache_clear()
    yield load
    shared_memory._prepare.cache_clear()


def test_all_that_a_block_may_have_is_filled_on_every_processor_before_a_checked_call(load):
    cuda = Cuda()
    load(cuda)
    for filler in ("nan", "other"):
        with TorchArrays("cuda").watch_allocations(filler):
            pass
    blocks = 4 * 132
    assert cuda.launches == [(blocks, 1024, 232448, 232448, word) for word in (0xFFFFFFFF, 0x7F7F7F7F)]


def test_without_the_kernel_a_call_is_checked_all_the_same(load):
    cuda = Cuda(status=218)
    load(cuda)
    with TorchArrays("cuda").watch_allocations("nan"):
        pass
    with TorchArrays("cpu").watch_allocations("nan"):
        pass
    assert not cuda.launches


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
def test_it_is_written_word_by_word_to_its_end(tmp_path, target):
    source, made = tmp_path / "a.ptx", tmp_path / "a.cubin"
    source.write_bytes(shared_memory.PTX)
    command = [binaries.tool("ptxas"), f"--gpu-name={target}", f"--output-file={made}", str(source)]
    subprocess.run(command, check=True)
    code = cubins.disassemble(made.read_bytes(), "spoil")
    assert "STS" in code
    assert [size for _, size in cubins.list_parameters(made.read_bytes(), "spoil")] == [4, 4]


@pytest.mark.cuda
def test_a_kernel_finds_it_in_its_shared_memory():
    kernel = torch.cuda._compile_kernel(
        'extern "C" __global__ void reads(unsigned* out) { __shared__ volatile unsigned room[1024];'
        " out[threadIdx.x] = room[threadIdx.x]; }",
        "reads",
    )
    out = torch.zeros(1024, dtype=torch.int32, device="cuda")
    for filler, word in (("nan", -1), ("other", 0x7F7F7F7F)):
        with TorchArrays("cuda").watch_allocations(filler):
            kernel((1, 1, 1), (1024, 1, 1), (out,))
        assert out.cpu().eq(word).all()
