import itertools

import pytest
import torch

pytestmark = pytest.mark.nightly
OP = "attention_backward"


def test_makes_outputs_that_are_attentions_own(suite):
    from attention_triton import attention_forward

    case = {"batch": 2, "heads": 2, "key_heads": 1, "queries": 9, "keys": 12, "width": 16, "dtype": torch.float32}
    made = suite.make_inputs(**case, device="cpu", seed=7, causal=True, padded=True, dropout=0.3)
    given = {name: value for name, value in made.items() if name not in {"out", "sums", "grad"}}

    for got, wanted in zip(attention_forward(**given), (made["out"], made["sums"]), strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["q", "k", "v", "grad"])
def test_nan_and_infinity_go_where_the_formula_takes_them(name, value, module, suite):
    from attention_triton import attention_forward

    made = suite.make_inputs(1, 2, 1, 9, 20, 16, torch.float32, "cpu", 7)
    made[name][0, 0, 3, 5] = value
    made["out"], made["sums"] = attention_forward(made["q"], made["k"], made["v"])
    wide = {key: value.double() if torch.is_tensor(value) else value for key, value in made.items()}

    for got, wanted in zip(module.attention_backward(**made), suite.reference(**wide), strict=True):
        assert torch.equal(got.isfinite(), wanted.isfinite())
        torch.testing.assert_close(got, wanted.float(), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(("sides", "extras"), [*itertools.product([0, 1, 2], [False, True])])
def test_every_case_finds_configs_that_its_device_can_hold(sides, extras, module):
    import _launch

    for key, (itemsize, width) in itertools.product(
        ("generic", "nvidia-h200"), itertools.product((2, 4), (16, 64, 128, 256))
    ):
        limits = _launch.Limits(**_launch._read(key))
        for config in module.choose_configs(width, itemsize, sides, extras, limits):
            walked = min(config.block_m, config.block_n) * config.stages
            assert 2 * walked * width * itemsize <= limits.shared_bytes
