"""Scales that are chosen: group sizes by what they clip, and scales that follow a stream, saved and loaded."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "kernels"))

import _quant  # noqa: E402
import _scaling  # noqa: E402
from _scaling import ScaleState, choose_channels, choose_group, dynamic_scale, load_states, observe, save_states  # noqa: E402

pytestmark = pytest.mark.torch
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def normal(rows=64, cols=1024, seed=3):
    return torch.randn((rows, cols), generator=torch.Generator().manual_seed(seed))


def loud(every=16, size=100.0):
    """Runs of columns that are far larger than the others."""
    x = normal()
    x.unflatten(-1, (-1, every))[:, ::4] *= size
    return x


# --- group size -------------------------------------------------------------------------------------------------------


def test_values_of_one_size_need_one_scale():
    choice = choose_group(normal(), E4M3)

    assert (choice.way.mode, choice.way.scale_bytes, choice.met) == ("tensor", 4, True)
    assert choice.way.clip_ratio < 2e-4
    assert len(choice.tried) == 1


def test_the_way_with_the_least_metadata_that_keeps_the_target_is_chosen():
    # A quarter of each row is loud, in runs of 16: only groups no wider than that are of one size.
    choice = choose_group(loud(), E4M3, candidates=(16, "tensor", 512, 8, 64), target=0.01, reach=2.5)

    assert [(way.mode, way.group) for way in choice.tried] == [
        ("tensor", 128), ("group", 512), ("group", 64), ("group", 16),
    ]  # fmt: skip
    assert all(way.clip_ratio > 0.01 for way in choice.tried[:-1])
    assert choice.met and choice.way.clip_ratio <= 0.01
    assert [way.scale_bytes for way in choice.tried] == [4, 4 * 64 * 2, 4 * 64 * 16, 4 * 64 * 64]


def test_where_none_keeps_the_target_the_one_that_clips_least_is_given_and_said():
    choice = choose_group(loud(), E4M3, candidates=("tensor", 256), target=0.0, reach=1.0)

    assert not choice.met
    assert choice.way.clip_ratio == min(way.clip_ratio for way in choice.tried) > 0
    assert len(choice.tried) == 2


@pytest.mark.parametrize("mode", _quant.MODES)
def test_a_reaching_scale_is_reach_times_the_root_mean_square_of_each_group(mode):
    x = normal(200, 300)
    scale = _scaling.reach_scale(x, E4M3, mode, reach=2.0)

    assert scale.shape == _quant.scale_shape(x.shape, mode) and scale.dtype is torch.float32
    spread = _quant.spread(scale, x.shape, mode).expand(x.shape)[0, 0] * 448
    corner = {"tensor": x, "row": x[:1], "column": x[:, :1], "group": x[:1, :128], "block": x[:128, :128]}[mode]
    torch.testing.assert_close(spread, 2.0 * corner.square().mean().sqrt())


def test_infinities_nan_zeros_and_the_ends_of_float32_do_not_spoil_a_scale():
    x = torch.tensor([[1.0, 1.0, math.nan, math.inf], [0, 0, 0, 0], [3e38, 3e38, 3e38, 3e38], [1e-38, 1e-38, 0, 0]])
    scale = _scaling.reach_scale(x, E4M3, "row", reach=1.0)

    assert scale.isfinite().all() and (scale > 0).all()
    torch.testing.assert_close(scale[:3, 0] * 448, torch.tensor([1.0, 448.0, 3e38]))


@pytest.mark.parametrize(
    "changes",
    [{"candidates": ()}, {"target": -0.1}, {"target": 2}, {"reach": 0}, {"x": torch.ones(0, 8)}, {"reach": math.nan}],
)
def test_a_choice_from_nothing_is_refused_with_what_was_given(changes):
    with pytest.raises(ValueError, match="choose_group: needs values, candidates"):
        choose_group(**({"x": normal(), "dtype": E4M3} | changes))


# --- groups of channels -----------------------------------------------------------------------------------------------


def test_channels_of_one_size_share_scales_by_64():
    channels = choose_channels(normal(), E4M3)

    assert channels.group == 64
    assert channels.errors[64] == pytest.approx(0.025, rel=0.05)
    assert channels.errors[4] == pytest.approx(0.016, rel=0.05)


@pytest.mark.parametrize(("power", "group"), [(12, 64), (15, 32), (18, 8)])
def test_the_more_extreme_a_few_channels_are_the_fewer_share_their_scales(power, group):
    x = normal()
    x[:, 7::128] *= 2.0**power

    channels = choose_channels(x, E4M3)

    assert channels.group == group
    assert list(channels.errors.values()) == sorted(channels.errors.values(), reverse=True), "smaller groups err less"
    stored = _scaling.quantize_channels(x, E4M3)
    assert stored.scale.shape == (64, 1024 // group)
    assert _scaling.channel_error(x, stored, group) == channels.errors[group]


def test_a_group_of_channels_is_chosen_from_what_is_finite_and_not_zero():
    x = normal()
    x[3], x[4, 5], x[:, 8] = math.inf, math.nan, 0.0

    assert choose_channels(x, E4M3).group == 64
    assert choose_channels(torch.zeros(4, 64), E4M3).errors == dict.fromkeys(_scaling.CHANNELS, 0.0)
    with pytest.raises(ValueError, match="choose_channels: groups is empty"):
        choose_channels(x, E4M3, groups=())


# --- dynamic scales ---------------------------------------------------------------------------------------------------


def seen(*amaxes, **fields):
    state = ScaleState("float8_e4m3fn", **fields)
    for amax in amaxes:
        state = observe(state, torch.tensor([amax, -amax / 2])).state
    return state


def test_the_first_tensor_is_the_mean_and_each_later_one_moves_it_by_its_share():
    assert seen(2.0).mean == 2.0
    assert seen(2.0, 4.0, decay=0.9).mean == pytest.approx(0.9 * 2 + 0.1 * 4)
    assert seen(2.0, 4.0, 1.0, decay=0.5).mean == pytest.approx(0.5 * 3 + 0.5 * 1)
    assert seen(*[3.0] * 50).mean == pytest.approx(3.0)
    assert seen(2.0, 4.0).seen == 2


def test_the_scale_leaves_the_margin_above_the_mean():
    state = seen(4.0, margin=1.25)

    assert float(dynamic_scale(state)) == pytest.approx(1.25 * 4 / 448)
    assert float(dynamic_scale(replace(state, dtype="float8_e5m2"))) == pytest.approx(1.25 * 4 / 57344)
    assert float(dynamic_scale(ScaleState("float8_e4m3fn"))) == 1.0
    x = torch.tensor([4.9, -3.0, 0.0])
    assert float(_quant.quantize(x, E4M3, scale=dynamic_scale(state)).clip_ratio) == 0
    assert float(_quant.quantize(x * 1.1, E4M3, scale=dynamic_scale(state)).clip_ratio) == pytest.approx(1 / 3)


def test_ten_times_the_recent_mean_is_a_spike_and_less_is_not():
    state = seen(1.0, 1.0)

    assert observe(state, torch.tensor([9.99])).spiked is False
    scaled = observe(state, torch.tensor([10.0]))
    assert (scaled.spiked, scaled.amax, scaled.state.spikes) == (True, 10.0, 1)


@pytest.mark.parametrize("x", [torch.zeros(4), torch.ones(0), torch.tensor([math.nan, math.inf])])
def test_a_tensor_that_tells_nothing_changes_nothing(x):
    state = seen(2.0)

    assert observe(state, x).state == state


# --- on disk ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    return tmp_path / "scales.json"


STATES = {"layer0.a": seen(1.0, 2.0), "layer0.b": ScaleState("float8_e5m2", decay=0.99)}


def test_states_come_back_as_they_were_and_go_on_alike(file):
    save_states(STATES, file)

    assert load_states(file) == STATES
    again = observe(load_states(file)["layer0.a"], torch.tensor([7.0]))
    assert again == observe(STATES["layer0.a"], torch.tensor([7.0]))


def one(**changes):
    good = json.loads(json.dumps({"format": 1, "states": {"a": vars(seen(1.0))}}))
    good["states"]["a"].update(changes)
    return json.dumps(good)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "cannot be read as saved scales"),
        ('{"format": 1}', "has no saved scales"),
        ('{"format": 2, "states": {}}', "is of format 2, and this reads format 1"),
        ('{"format": 1, "states": {"a": 3}}', "state 'a' has int"),
        (one(mean=-1.0), "mean of state 'a' is -1.0"),
        (one(decay=1.0), "decay of state 'a' is 1.0"),
        (one(spike=0.5), "spike of state 'a' is 0.5"),
        (one(dtype="float32"), "dtype of state 'a' is 'float32'"),
        (one(mean=1).replace('"mean": 1', '"mean": NaN'), "mean of state 'a' is nan"),
    ],
)
def test_a_file_that_is_no_saved_scales_is_told_with_its_name_and_what_is_wrong(file, text, told):
    file.write_bytes(text.encode("latin-1"))

    with pytest.raises(_scaling.StateError, match=told) as error:
        load_states(file)
    assert str(file) in str(error.value)
