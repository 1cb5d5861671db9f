import attention_steps
import pytest
import torch
from attention_baseline import attention as reference
from attention_baseline import make_inputs

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("variant", attention_steps.VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_step_gives_the_references_answer(dtype, variant):
    room = {torch.float32: (1.3e-6, 5e-6), torch.float16: (2e-3, 2e-3)}[dtype]  # scores and weights are rounded too

    for sizes, causal in (((1, 2, 1, 33, 70, 20), True), ((2, 1, 1, 70, 40, 16), False)):
        q, k, v = (made := make_inputs(*sizes, dtype, "cpu", 3))["q"], made["k"], made["v"].mT.contiguous().mT
        exact = reference(q.double(), k.double(), v.double(), causal=causal)
        got = attention_steps.attention_step(q, k, v, variant, causal)
        torch.testing.assert_close(got, exact.to(dtype), rtol=room[0], atol=room[1])
        assert not attention_steps.attention_step(q[:0], k[:0], v[:0], variant).numel()


def test_unknown_variants_and_queries_without_keys_are_refused():
    q = torch.zeros(1, 1, 4, 16)

    with pytest.raises(ValueError, match=r"attention_step: variant is 'Flash'.*'kernels', 'fused', 'flash'"):
        attention_steps.attention_step(q, q, q, "Flash")
    with pytest.raises(ValueError, match="4 queries have 3 keys"):
        attention_steps.attention_step(q, q[:, :, :3], q[:, :, :3], "kernels", causal=True)
