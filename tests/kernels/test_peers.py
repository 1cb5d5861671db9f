"""Peers of ops: compiled again for every case, never silently uncompiled; or by one backend of torch."""

import inspect
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
KERNELS = Path(__file__).resolve().parents[2] / "kernels"
sys.path.insert(0, str(KERNELS))

import _peers  # noqa: E402

from perfci.worker.load import load_op  # noqa: E402
from tests.daily import first_daily  # noqa: E402

# torch.compile's modules warn of each other at their first import.
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

COMPILED = (
    "softmax", "softmax_backward", "add_rms_norm", "bias_relu", "broadcast", "cross_entropy", "cross_entropy_backward",
    "gelu", "layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward", "rotary", "vector_add",
)  # fmt: skip


def backend(seen):
    """A compiler that makes nothing of a graph, and counts."""

    def compiling(graph, example_inputs):
        seen.append([tuple(input_.shape) for input_ in example_inputs])
        return graph.forward

    return compiling


def doubled(x, *, times=2):
    return x * times


def test_every_case_is_compiled_once_for_its_own_shape_however_many_there_are():
    seen = []
    make = _peers.compiled(doubled, backend=backend(seen))
    assert seen == [], "nothing is compiled before the first call"

    peers = [make() for _ in range(12)]
    for _ in range(2):
        for rows, peer in enumerate(peers, start=2):
            assert torch.equal(peer(torch.ones(rows, 3)), torch.full((rows, 3), 2.0))

    assert seen == [[(rows, 3)] for rows in range(2, 14)]
    assert torch.equal(doubled(torch.ones(2), times=3), torch.full((2,), 3.0)), "the function itself stays as it is"


def test_what_cannot_be_compiled_whole_raises_instead_of_being_timed_as_it_is():
    def prints(x):
        print(x.sum().item())
        return x * 2

    with pytest.raises(Exception, match=r"(?i)graph break|unsupported|data-dependent"):
        _peers.compiled(prints, backend=backend([]))()(torch.ones(3))


@pytest.mark.parametrize(
    "op", first_daily(((op,) for op in COMPILED), kind=lambda op: op.endswith("_backward"), name=str)
)
def test_the_compiled_reference_gives_what_the_reference_gives(op):
    loaded = load_op(op, KERNELS / op, KERNELS)
    suite = loaded.performance
    assert list(suite.peers) == ["torch.compile"]
    keys = set(suite.cases[0])
    small = [params for params in loaded.accuracy.cases if set(params) == keys and params["dtype"] == torch.float32]

    for params in small[-2:]:
        inputs = suite.make_inputs(**params, device="cpu", seed=1)
        seen = []
        peer = _peers.compiled(suite.reference, backend=backend(seen))()
        answer, wanted = peer(**inputs), suite.reference(**inputs)
        torch.testing.assert_close(answer, wanted, equal_nan=True)
        assert len(seen) == 1, "one graph, with no part left to run as it is"


def attention(q, k, v, causal=False):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def heads():
    return {name: torch.randn(1, 2, 8, 16, generator=torch.Generator().manual_seed(i)) for i, name in enumerate("qkv")}


def test_one_backend_of_attention_is_used_or_the_case_is_not_supported():
    flash, cudnn = (_peers.attending(attention, name) for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION"))

    assert inspect.signature(flash) == inspect.signature(attention)
    torch.testing.assert_close(flash(**heads(), causal=True), attention(**heads(), causal=True))
    with pytest.raises(NotImplementedError, match="no CUDNN_ATTENTION for these inputs"):
        cudnn(**heads())
