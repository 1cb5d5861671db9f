"""The flush of Ascend devices, compiled by nobody here: its sizes, and how it is launched."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys

import pytest

if "CI" not in os.environ:  # where a missing package is a failure
    pytest.importorskip("torch")
    pytest.importorskip("triton")

from perfci.device import flush, npu_flush
from perfci.device.npu_flush import LEAST_BYTES, NpuFlush, flush_bytes, interprets

pytestmark = pytest.mark.torch

MIB = 1 << 20


class Kernel:
    """Stands in for the jitted function."""

    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        def launch(source, sink, steps, block):
            self.launches.append((grid, source.numel(), sink.numel(), steps, block))

        return launch


@pytest.fixture
def kernel(monkeypatch):
    made = Kernel()
    monkeypatch.setattr(npu_flush, "perfci_l2_flush", made)
    monkeypatch.setattr(npu_flush, "interprets", lambda: False)
    return made


def test_its_kernel_has_the_name_by_which_records_are_split():
    assert npu_flush.perfci_l2_flush.fn.__name__ == flush.NAME
    assert not interprets()


@pytest.mark.parametrize(("l2", "least"), [(None, 192), (0, 192), (32 * MIB, 192), (96 * MIB, 192), (192 * MIB, 384)])
def test_it_reads_twice_the_cache_and_no_less_than_192_mib(l2, least):
    assert flush_bytes(l2) == least * MIB


@pytest.mark.parametrize("cores", [40, 48, 50, 1, None])
def test_every_core_reads_the_same_and_together_all_of_the_buffer(kernel, cores):
    NpuFlush(None, cores, "meta")()
    ((programs,), elements, sinks, steps, block), = kernel.launches  # fmt: skip

    assert programs == sinks == (cores or 40)
    assert programs * steps * block == elements
    assert LEAST_BYTES <= 4 * elements < LEAST_BYTES + 4 * programs * block


def test_a_mark_is_the_same_kernel_and_reads_a_block_of_it(kernel):
    NpuFlush(None, 48, "meta").mark()

    assert kernel.launches[0][0] == (1,)
    assert kernel.launches[0][3] == 1


def test_where_kernels_are_interpreted_there_is_no_cache_to_flush(monkeypatch):
    monkeypatch.setattr(npu_flush, "interprets", lambda: True)

    assert NpuFlush(192 * MIB, 48, "cpu")._source.numel() == 8192


CHECK = """
import torch
from perfci.device.npu_flush import interprets, perfci_l2_flush
source, sink = torch.rand(4 * 256), torch.empty(2)
perfci_l2_flush[(2,)](source, sink, 2, 256)
assert interprets()
assert torch.allclose(sink, source.view(2, -1).sum(1), rtol=1e-5), sink
"""


@pytest.mark.slow
def test_it_reads_each_element_once_and_stores_their_sum_so_that_no_compiler_leaves_the_reading_out():
    variables = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", CHECK], env=variables, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_its_examples_hold():
    assert doctest.testmod(npu_flush) == (0, 1)
