import json

import pytest
import torch

OP = "matmul"


def normal(*shape, dtype=torch.float32, seed=5):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def h200():
    import _launch

    return _launch.Limits(**_launch._read("nvidia-h200"))


def test_agrees_with_the_reference_in_float64(case, suite, agrees):
    agrees(suite.make_inputs(**case, device="cpu", seed=7), terms=case["k"])


def test_says_what_is_wrong_with_its_arguments(reject, module):
    with pytest.raises((TypeError, ValueError), match=r"matmul: .* but"):
        module.matmul(**reject("cpu"))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (normal(70, 33).t(), normal(70, 20)),
        (normal(33, 70), normal(20, 70).t()),
        (normal(70, 33).t(), normal(20, 70).t()),
        (normal(33, 140)[:, ::2], normal(140, 20)[::2]),
        (normal(1, 70).expand(33, 70), normal(70, 1).expand(70, 20)),
        (normal(33, 1).expand(33, 64), normal(64, 20)),
    ],
)
def test_takes_any_strides(a, b, agrees):
    agrees({"a": a, "b": b}, terms=70)


def test_offsets_reach_beyond_32_bits(agrees):
    far = 2**29 + 64  # itself within 32 bits
    a = torch.empty(4 * far + 24, dtype=torch.float16).as_strided((5, 24), (far, 1))  # 4 GiB, five pages of it touched
    a.copy_(normal(5, 24))
    b = normal(24, 9, dtype=torch.float16)

    agrees({"a": a, "b": b}, terms=24)
    agrees({"a": b.t(), "b": a.t()}, terms=24)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_the_tail_of_k_mixes_in_nothing(value, module):
    a, b = torch.ones(3, 33), torch.ones(33, 3)
    a[0, 32] = value

    got = module.matmul(a, b)

    torch.testing.assert_close(got, torch.tensor([[value] * 3, [33.0] * 3, [33.0] * 3]), equal_nan=True)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (65, 64, 32), (64, 65, 32), (64, 64, 33), (130, 5, 70)])
def test_writes_its_output_fully_and_nothing_beside_it(m, n, k, guarded, outputs, agrees):
    agrees({"a": guarded(normal(m, k)), "b": guarded(normal(k, n))}, terms=k)

    assert all((buffer == -1).sum() == 128 for buffer in outputs[:1])


@pytest.mark.parametrize("fields", [{"programs": 2}, {"grid": (3, 1, 1)}])
def test_few_programs_still_do_every_tile(fields, only, agrees):
    only(**fields)

    agrees({"a": normal(200, 40), "b": normal(40, 200)}, terms=40)


def test_one_program_a_processor_walks_all_tiles(module, only, agrees, monkeypatch):
    only(processors=3)
    monkeypatch.setattr(module, "choose_config", lambda *_: module.Config(32, 32, 32, 2, 4, 2, persistent=True))

    agrees({"a": normal(170, 64), "b": normal(64, 100)}, terms=64)


@pytest.mark.parametrize("group", [1, 3, 8])
def test_grouping_visits_every_tile(group, module, agrees, monkeypatch):
    monkeypatch.setattr(module, "choose_config", lambda *_: module.Config(16, 16, 16, group, 4, 2))

    agrees({"a": normal(16 * 7, 16), "b": normal(16, 16 * 3)}, terms=16)


def test_launches_nothing_for_an_empty_product(module, monkeypatch):
    monkeypatch.setattr(module, "_matmul_kernel", None)

    assert module.matmul(torch.zeros(0, 8), torch.zeros(8, 3)).shape == (0, 3)
    assert module.matmul(torch.zeros(3, 8), torch.zeros(8, 0)).shape == (3, 0)


def test_a_sum_of_no_terms_is_zero(module):
    assert torch.equal(module.matmul(torch.zeros(3, 0), torch.zeros(0, 5)), torch.zeros(3, 5))


def test_float32_is_not_rounded_to_tf32(module):
    a = torch.full((16, 16), 1 + 2.0**-20)

    assert torch.equal(module.matmul(a, torch.eye(16)), a)


def test_the_first_tuned_entry_that_holds_the_shape_is_taken(module, tmp_path, monkeypatch):
    import _launch

    entries = [
        {"itemsize": 2, "m_max": 64, "config": dict(module.FALLBACK[2]._asdict(), group_m=1)},
        {"itemsize": 2, "n_max": 128, "k_max": 256, "config": dict(module.FALLBACK[2]._asdict(), group_m=2)},
        {"itemsize": 2, "config": dict(module.FALLBACK[2]._asdict(), group_m=3)},
    ]
    (tmp_path / "nvidia-h200.json").write_text(json.dumps({"configs": entries}))
    monkeypatch.setattr(module, "TUNED", tmp_path)
    module.choose_config.cache_clear()
    shapes = {(64, 4096, 4096): 1, (65 * 16, 128, 256): 2, (2048, 128, 272): 3, (2048, 144, 256): 3}

    chosen = {shape: module.choose_config(*shape, 2, h200()).group_m for shape in shapes}
    module.choose_config.cache_clear()
    _launch.tuned.cache_clear()

    assert chosen == shapes


@pytest.mark.parametrize("itemsize", [2, 4])
def test_the_fallback_serves_untuned_devices_and_shapes_without_vectors(itemsize, module, only):
    fallback = module.FALLBACK[itemsize]

    assert module.choose_config(4096, 4096, 4096, itemsize, only(key="generic")) == fallback
    assert module.choose_config(4096, 4096, 4095, itemsize, h200()) == fallback
    assert module.choose_config(4096, 4098, 4096, itemsize, h200()) == fallback
    assert module.choose_config(4096, 4096, 4096, itemsize, h200()) != fallback


def test_every_committed_config_fits_its_device(module):
    import _launch

    for path in module.TUNED.glob("*.json"):
        limits = _launch.Limits(**_launch._read(path.stem))
        for entry in _launch.tuned(module.TUNED, path.stem):
            config = module.Config(**entry["config"])
            loaded = (config.block_m + config.block_n) * config.block_k * entry["itemsize"]
            assert loaded * config.stages <= limits.shared_bytes
            assert set(entry) <= {"itemsize", "m_max", "n_max", "k_max", "config"}


def test_every_committed_file_has_a_config_for_every_shape(module):
    import _launch

    for path in module.TUNED.glob("*.json"):
        entries = _launch.tuned(module.TUNED, path.stem)
        assert {entry["itemsize"] for entry in entries if set(entry) == {"itemsize", "config"}} == {2, 4}
