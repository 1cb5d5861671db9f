import itertools
import math

import pytest
import torch
from attention import attention_parts

pytestmark = pytest.mark.nightly
OP = "attention"
NOTHING = (None, None)
TOLERANCES = {torch.float32: (1.3e-6, 3e-6), torch.float16: (2e-3, 2e-3), torch.bfloat16: (1.6e-2, 1.6e-2)}


def normal(*shape, dtype=torch.float32, seed=5):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def tensors(heads=2, key_heads=1, queries=20, keys=30, width=16, batch=1, dtype=torch.float32):
    shapes = (heads, queries), (key_heads, keys), (key_heads, keys)
    return [normal(batch, *shape, width, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]


def dense(q, k, v, mask=None, causal=False, window=NOTHING):
    """The definition, query by query in float64."""
    out = []
    if mask is not None and mask.ndim == 2:
        mask = mask[:, None, None]
    if mask is not None:
        mask = mask.expand(*q.shape[:3], k.shape[2])
    added = None if mask is None or mask.dtype == torch.bool else mask
    mask = mask if added is None else added > -math.inf
    for b, head, i in itertools.product(*map(range, q.shape[:3])):
        place = i + k.shape[2] - q.shape[2]
        left, right = (math.inf if side is None else side for side in window)
        right = 0 if causal else right
        seen = [
            j for j in range(k.shape[2]) if place - left <= j <= place + right and (mask is None or mask[b, head, i, j])
        ]
        own = head // (q.shape[1] // k.shape[1])
        scores = k[b, own, seen].double() @ q[b, head, i].double() / math.sqrt(q.shape[3])
        scores = scores if added is None else scores + added[b, head, i, seen].double()
        out.append(torch.softmax(scores, 0) @ v[b, own, seen].double())
    return torch.stack(out).view(q.shape)


@pytest.fixture
def small_blocks(module, monkeypatch):
    """Blocks of 16, so that small shapes have tiles of every kind: seen in whole, in part, not at all."""
    import attention_backward_triton as backward
    from attention_backward import attention_backward_triton as imported

    monkeypatch.setattr(module, "choose_config", lambda *_: module.Config(16, 16, 4, 1))
    monkeypatch.setattr(module, "choose_split", lambda *_: None)
    for each in (backward, imported):
        config = each.Config(16, 16, 4, 1)
        monkeypatch.setattr(each, "choose_configs", lambda *_, of=each, config=config: of.Configs(config, config))


@pytest.fixture
def small_parts(module, monkeypatch):
    """Keys split into parts of 16 or a few more, whatever the shape; gives how many there were, call by call."""
    counts, split, real = [], module.Config(16, 16, 4, 1, 9), attention_parts.parts
    monkeypatch.setattr(attention_parts, "LEAST_KEYS", 16)
    monkeypatch.setattr(module, "choose_split", lambda *_: split)
    monkeypatch.setattr(attention_parts, "parts", lambda *given: counts.append(real(*given).count) or real(*given))
    return counts


def gradients(function, tensors, grad, **how):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    out = function(*leaves, **how)
    return [out, *torch.autograd.grad(out, leaves, grad.to(out.dtype))]


def close(got, wanted, dtype=torch.float32):
    rtol, atol = TOLERANCES[dtype]
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one, other.to(dtype), rtol=rtol, atol=atol)


MASKS = {
    "of all heads": lambda shape: normal(1, 1, *shape[2:], seed=7) > -0.5,
    "of each head": lambda shape: normal(*shape, seed=7) > -0.5,
    "of each head, for all queries": lambda shape: normal(2, shape[1], 1, shape[3], seed=7) > -0.5,
    "of keys, with four dimensions": lambda shape: normal(2, 1, 1, shape[3], seed=7) > -0.5,
    "added": lambda shape: normal(*shape, seed=7).masked_fill(normal(*shape, seed=8) > 0.5, -math.inf),
    "added by distance": lambda shape: -torch.arange(float(shape[3])).abs().expand(1, shape[1], shape[2], -1) / 9,
    "added, transposed": lambda shape: normal(2, 1, shape[3], shape[2], seed=7).mT,
}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("kind", MASKS)
def test_masks_of_places_hide_them_or_are_added_to_their_scores(kind, split, module, request):
    request.getfixturevalue("small_parts" if split else "small_blocks")
    qkv = tensors(4, 2, queries=5 if split else 21, keys=50, batch=2)
    shape = (2, 4, qkv[0].shape[2], 50)
    mask, grad = MASKS[kind](shape), normal(*qkv[0].shape, seed=9)
    hiding = {"mask": mask, "causal": True, "window": (30, None)}

    got = gradients(module.attention, qkv, grad, **hiding)

    close(got, gradients(dense, [tensor.double() for tensor in qkv], grad, **hiding))


@pytest.mark.parametrize("lowest", [-math.inf, torch.finfo(torch.float32).min])
def test_a_query_whose_scores_are_all_hidden_or_lowest_gives_what_pytorch_gives(lowest, module):
    qkv, mask = tensors(), torch.zeros(1, 1, 20, 30)
    mask[:, :, 3] = lowest
    usual = torch.nn.functional.scaled_dot_product_attention(*qkv, attn_mask=mask, enable_gqa=True)

    out, *given = gradients(module.attention, qkv, normal(1, 2, 20, 16, seed=9), mask=mask)

    torch.testing.assert_close(out, usual, rtol=1e-5, atol=1e-5)
    assert bool(out[:, :, 3].any()) == (lowest != -math.inf)
    assert all(gradient.isfinite().all() for gradient in given) and not given[0][:, :, 3].any()


def test_a_mask_that_needs_a_gradient_is_refused(module):
    with pytest.raises(ValueError, match="Detach it"):
        module.attention(*tensors(), mask=torch.zeros(1, 1, 20, 30, requires_grad=True))


def test_descriptors_and_pointers_give_the_same(module, monkeypatch):
    import _tma

    if _tma.TensorDescriptor is None:
        pytest.skip("Triton before 3.4 has no tensor descriptors")
    qkv, grad = tensors(width=20, queries=40, keys=50), normal(1, 2, 40, 20, seed=9)
    how = {"causal": True, "window": (9, None), "dropout": 0.2, "seed": 3}
    used = []
    described = module._attention.described
    monkeypatch.setattr(module._attention, "described", lambda *given: used.append(1) or described(*given))

    by_descriptor = gradients(module.attention, qkv, grad, **how)
    assert used
    monkeypatch.setattr(_tma, "available", lambda *_: False)
    used.clear()
    by_pointer = gradients(module.attention, qkv, grad, **how)

    assert not used
    assert all(torch.equal(one, other) for one, other in zip(by_descriptor, by_pointer, strict=True))


@pytest.mark.parametrize("split", [False, True])
def test_sums_are_base_2_logarithms_of_what_each_query_adds_up(split, module, request):
    q, k, v = tensors(queries=9, keys=6)
    request.getfixturevalue("small_parts" if split else "small_blocks")
    out, sums = module.attention_forward(q, k, v, causal=True, scale=0.3)

    scores = (q @ k.transpose(-1, -2) * 0.3).double()
    hidden = torch.ones(9, 6).triu(6 - 9 + 1).bool()
    wanted = torch.logsumexp(scores.masked_fill(hidden, -math.inf), -1) / math.log(2)
    torch.testing.assert_close(sums, wanted.float())
    assert sums[0, 0, :3].tolist() == [-math.inf] * 3
    assert not out[:, :, :3].any()
    assert out[:, :, 3:].all()


def uniform(keys, module, **how):
    """What each query's weights are multiplied by: scores of 0, and an identity for v; and dv for such a gradient."""
    q, k, v = torch.zeros(1, 2, 64, keys), torch.zeros(1, 2, keys, keys), torch.eye(keys).expand(1, 2, keys, keys)
    v = v.clone().requires_grad_()
    out = module.attention(q, k, v, **how)
    grad = torch.zeros(1, 2, 64, keys)
    grad[..., 0] = 1 + torch.arange(64)  # dv's first column adds up each key's weights, told apart by the query
    (dv,) = torch.autograd.grad(out, v, grad)
    return out.detach() * keys, dv[..., 0] * keys


def test_dropout_goes_by_place_and_seed_whatever_the_blocks(module, monkeypatch):
    def stays(seed):
        return uniform(64, module, dropout=0.4, seed=seed)[0] > 0

    first = stays(2**40 + 1)
    for other in (1, 2**40 + 2):
        assert 0.4 < (first == stays(other)).float().mean() < 0.6
    assert not torch.equal(first[:, 0], first[:, 1])
    monkeypatch.setattr(module, "choose_config", lambda *_: module.Config(16, 16, 4, 1))
    assert torch.equal(first, stays(2**40 + 1))


def test_both_kernels_drop_the_same_weights_and_add_up_the_same(module, small_parts, monkeypatch):
    q, k = torch.zeros(2, 6, 3, 64), torch.zeros(2, 2, 64, 64)
    v = torch.eye(64).expand(2, 2, 64, 64)
    how = {"dropout": 0.4, "seed": 2**40 + 1, "causal": True}

    split, sums = module.attention_forward(q, k, v, **how)
    monkeypatch.setattr(module, "choose_split", lambda *_: None)
    whole, wanted = module.attention_forward(q, k, v, **how)

    assert small_parts == [2]
    assert 0.5 < (whole > 0).float().mean() < 0.7
    assert torch.equal(split > 0, whole > 0)
    torch.testing.assert_close(split, whole)
    torch.testing.assert_close(sums, wanted)


@pytest.mark.parametrize("how", [{"mask": torch.arange(200)[None] // 30 == 3}, {"window": (60, None), "causal": True}],
                         ids=["mask", "window"])  # fmt: skip
def test_parts_in_which_nobody_sees_a_key_are_not_walked(how, module, small_parts):
    """Their keys and values are NaN, which nothing that loads them gets rid of."""
    q, k, v = tensors(3, 1, queries=2, keys=200)
    wanted = dense(q, k, v, **how)
    first, last = (90, 120) if "mask" in how else (138, 200)
    for tensor in (k, v):
        tensor[:, :, : first // 16 * 16] = tensor[:, :, -(-last // 16) * 16 :] = math.nan

    close([module.attention(q, k, v, **how)], [wanted])
    assert small_parts == [7 if "mask" in how else 3]


@pytest.mark.parametrize("split", [False, True])
def test_scores_far_beyond_what_float32_counts_stay_exact(split, module, request):
    request.getfixturevalue("small_parts" if split else "small_blocks")
    q, k, v = tensors(3, 1, queries=2, keys=100)
    k[:, :, 5] *= 4
    k[:, :, 77] = k[:, :, 5]  # two keys with the same largest score, in two parts
    q[...] = 2.0**20 * k[:, :, 5:6]

    out, sums = module.attention_forward(q, k, v)

    scores = (q @ k.transpose(-1, -2)).double() / 4
    assert scores.max() > 2**24
    close([out], [((v[:, :, 5:6] + v[:, :, 77:78]) / 2).expand_as(q)])
    torch.testing.assert_close(sums, (torch.logsumexp(scores, -1) / math.log(2)).float())


@pytest.mark.parametrize("queries", [1, 17, 5000])
@pytest.mark.parametrize(("sides", "extras"), [*itertools.product([0, 1, 2], [0, 1, 2])])
def test_every_case_finds_a_config_that_its_device_can_hold(queries, sides, extras, module):
    import _launch

    for key, (itemsize, width) in itertools.product(
        ("generic", "nvidia-h200"), itertools.product((2, 4), (16, 64, 128, 256))
    ):
        limits = _launch.Limits(**_launch._read(key))
        config = module.choose_config(queries, width, itemsize, sides, extras, limits)
        split = module.choose_split(min(queries, 16), width, itemsize, limits)
        assert split.fill > 0 == config.fill
        for choice in (config, split):
            rows = choice.block_m + 2 * choice.block_n * choice.stages
            assert rows * width * itemsize <= limits.shared_bytes
