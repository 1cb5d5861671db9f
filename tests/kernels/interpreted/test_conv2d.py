import conv2d_steps
import pytest
import torch
from conv2d import conv2d_boxes, conv2d_depthwise, conv2d_tensors
from conv2d_baseline import conv2d as reference
from conv2d_baseline import make_inputs

from tests import triton_versions

pytestmark = pytest.mark.nightly
OP = "conv2d"
ROOM = {torch.float32: (1.3e-6, 2e-5), torch.float16: (1e-3, 2e-4), torch.bfloat16: (8e-3, 1.6e-3)}


def inputs(images=2, channels=8, size=(6, 7), outputs=10, taps=3, dtype=torch.float16, **how):
    return make_inputs(images, channels, size, outputs, taps, dtype, "cpu", 5, **how)


def wide(made):
    return {name: value.double() if torch.is_tensor(value) else value for name, value in made.items()}


def check(module, made):
    got, wanted = module.conv2d(**made), reference(**wide(made))
    rtol, atol = ROOM[made["x"].dtype]
    assert got.dtype == made["x"].dtype
    torch.testing.assert_close(got.double(), wanted, rtol=rtol, atol=atol)
    return got


@pytest.fixture
def paths(module, monkeypatch):
    """Names of the ways that calls took."""
    seen = []
    for of, name in ((module, "by_box"), (module, "by_pointers"), (module, "depthwise"), (conv2d_depthwise, "_swept")):
        usual = getattr(of, name)
        monkeypatch.setattr(of, name, lambda *given, usual=usual, name=name: seen.append(name) or usual(*given))
    return seen


@triton_versions.needs_descriptors
@pytest.mark.parametrize(
    ("how", "path"),
    [
        ({"channels": 32}, "by_box"),
        ({"channels": 32, "dilation": 2, "padding": 3}, "by_box"),
        ({"channels": 32, "last": False}, "by_box"),
        ({"channels": 32, "taps": 1, "stride": 2}, "by_box"),
        ({"channels": 32, "stride": 2, "size": (6, 8)}, "by_box"),
        ({"channels": 32, "stride": (1, 3), "size": (7, 6)}, "by_box"),
        ({"channels": 32, "stride": (3, 1), "size": (6, 7), "last": False}, "by_box"),
        ({"channels": 32, "taps": 1, "stride": 2, "padding": 1, "size": (6, 8)}, "by_box"),
        ({"channels": 32, "stride": 2, "size": (6, 7)}, "by_pointers"),
        ({"channels": 32, "stride": (2, 1), "size": (7, 6)}, "by_pointers"),
        ({"channels": 32, "stride": 4, "size": (6, 6)}, "by_pointers"),
        ({"channels": 40}, "by_pointers"),
        ({"channels": 32, "dtype": torch.float32}, "by_pointers"),
    ],
)
def test_descriptors_copy_whole_runs_of_channels_where_strides_divide_the_sides(how, path, module, paths):
    check(module, inputs(**{"last": True, **how}))

    assert paths == [path]


DEPTHWISE = {"channels": 4, "outputs": 4, "groups": 4, "last": True}


@pytest.mark.parametrize(
    ("how", "swept"),
    [
        ({}, triton_versions.TUPLES),
        ({"dtype": torch.float32, "stride": (2, 1), "padding": (2, 5)}, triton_versions.TUPLES),
        ({"taps": 7, "padding": 3}, triton_versions.TUPLES),
        ({"last": False}, False),
        ({"outputs": 8}, False),
        ({"dilation": (1, 2)}, False),
        ({"padding": (3, 0)}, False),
        ({"taps": (8, 3), "padding": (4, 1)}, False),
        ({"taps": (3, 8), "padding": (1, 4)}, False),
        ({"stride": 3}, False),
    ],
)
def test_strips_are_swept_where_a_thread_can_hold_what_they_need(how, swept, module, paths):
    check(module, inputs(**DEPTHWISE | how))

    assert paths == (["depthwise", "_swept"] if swept else ["depthwise"])


@triton_versions.needs_descriptors
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"taps": 1, "padding": 0},
        {"last": False},
        {"outputs": 9},
        {"dilation": (1, 2)},
        {"stride": 2, "size": (6, 8)},
        {"stride": (3, 2), "size": (6, 8), "last": False},
    ],
)
def test_descriptors_and_pointers_give_the_same(how, module, monkeypatch, paths):
    import _tma

    made = inputs(**{"channels": 32, "last": True, "padding": 1, "bias": True, "activation": "relu", **how})
    by_descriptor = module.conv2d(**made)
    monkeypatch.setattr(_tma, "available", lambda *_: False)

    torch.testing.assert_close(module.conv2d(**made), by_descriptor, rtol=1e-3, atol=2e-4)
    assert paths == ["by_box", "by_pointers"]


def test_launches_nothing_for_no_images(module, monkeypatch):
    monkeypatch.setattr(module, "_conv_kernel", None)
    monkeypatch.setattr(conv2d_boxes, "_box_kernel", None)
    monkeypatch.setattr(conv2d_tensors, "_pack_kernel", None)
    for name in ("_depthwise_kernel", "_sweep_kernel"):
        monkeypatch.setattr(conv2d_depthwise, name, None)

    assert module.conv2d(**inputs(images=0)).shape == (0, 10, 4, 5)


@triton_versions.needs_descriptors
@pytest.mark.parametrize("variant", conv2d_steps.VARIANTS)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        {"padding": 1},
        {"taps": 1},
        {"taps": 1, "stride": 2},
        {"dilation": (1, 2), "padding": (0, 2)},
        {"stride": 2, "size": (6, 8)},
    ],
)
def test_every_variant_gives_the_references_answer(how, last, variant):
    made = inputs(channels=32, last=last, bias=True, activation="relu", **how)

    got = conv2d_steps.conv2d_step(variant=variant, **made)

    torch.testing.assert_close(got.double(), reference(**wide(made)), rtol=1e-3, atol=3e-4)
    assert got.is_contiguous() == (not last)
