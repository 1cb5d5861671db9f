"""Ops that reduce rows: softmax, layer_norm, rms_norm and cross_entropy; and how they cut the rows."""

import _launch
import _rows
import pytest
import torch

from tests.kernels.interpreted.suites import module_of, suite_of, widen

pytestmark = pytest.mark.nightly
OPS = {"layer_norm": 3, "rms_norm": 2, "cross_entropy": 1, "softmax": 1}
"""op -> tensors that it loads for each tile"""
SHARING = sorted(OPS.keys() - {"softmax"})
"""Ops that let several programs share a row."""
WAYS = {
    "whole": lambda chunks: _rows.Tile(2, 4096, 4, 1, 0, 0, 1),
    "again": lambda chunks: _rows.Tile(2, 4096, 4, 1, 0, 0, 1, again=True),
    "walked": lambda chunks: _rows.Tile(1, 512, 4, 1, 2, 128, 1),
    "shared": lambda chunks: _rows.Tile(1, 512, 4, 1, 2, 128, -(-chunks // 2)),
}
"""How rows are cut: kept whole, loaded again for each pass, walked by one program each, or shared by several."""
COLS = 2500
ROUNDING = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1.6e-2}


def inputs_of(op, x):
    generator = torch.Generator().manual_seed(x.shape[-1])
    if op == "cross_entropy":
        return {"x": x, "target": torch.arange(len(x)) % x.shape[-1], "reduction": "none"}
    weights = {"layer_norm": ("weight", "bias"), "rms_norm": ("weight",)}.get(op, ())
    made = {name: torch.randn(x.shape[-1:], generator=generator).to(x.dtype) for name in weights}
    return {"x": x, **made, **({"stats": True} if weights else {})}


def check(op, x, **changes):
    """The kernel's outputs, which are near the reference's in float64."""
    suite, inputs = suite_of(op), inputs_of(op, x) | changes
    answers = suite.kernel(**inputs), suite.reference(**widen(inputs))
    outputs = [answer if isinstance(answer, tuple) else (answer,) for answer in answers]
    for got, exact in zip(*outputs, strict=True):
        rtol = ROUNDING[got.dtype]
        torch.testing.assert_close(got, exact.to(got.dtype), rtol=rtol, atol=2e-5, equal_nan=True)
    return outputs[0][0]


def cut_by(way, op, monkeypatch):
    monkeypatch.setattr(module_of(op), "choose_tile", lambda rows, cols, *_: WAYS[way](-(-cols // 512)))


@pytest.fixture(params=[(op, way) for op in OPS for way in WAYS if op in SHARING or way != "shared"], ids="-".join)
def op(request, monkeypatch):
    """An op that cuts rows in one of the ways."""
    op, way = request.param
    cut_by(way, op, monkeypatch)
    return op


@pytest.mark.parametrize("cols", [1, 511, 1536, COLS, 4096])
def test_every_way_of_cutting_rows_gives_the_same(op, cols):
    """Columns 1536 and 4096 fill chunks and tiles."""
    x = 3 * torch.randn((5, 2 * cols), generator=torch.Generator().manual_seed(cols))

    check(op, x[:, :cols])
    check(op, x[:4, ::2])


# --- softmax ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softmax", "cross_entropy"])
def test_the_accuracy_suite_has_rows_beyond_one_tile_of_every_device(name):
    suite = suite_of(name)
    longest = max(case["cols"] for case in suite.cases)
    for key in _launch._keys():
        assert module_of(name).choose_tile(2, longest, 2, _launch.Limits(**_launch._read(key))).lanes


# --- norms ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


def test_a_mean_far_from_zero_costs_layer_norm_no_digits_of_the_spread(way, monkeypatch):
    cut_by(way, "layer_norm", monkeypatch)
    spread = torch.randn(2, COLS, generator=torch.Generator().manual_seed(1))
    x = (1e4 + spread.round(decimals=1)).float()  # what float32 holds of it exactly is a few digits

    _, mean, rstd = module_of("layer_norm").layer_norm(x, stats=True)

    torch.testing.assert_close(mean.double(), x.double().mean(-1, keepdim=True), rtol=5e-7, atol=0)
    exact = torch.rsqrt(x.double().var(-1, correction=0, keepdim=True) + 1e-5)
    torch.testing.assert_close(rstd.double(), exact, rtol=1e-4, atol=0)  # float32 holds the mean to 1e-3


def test_equal_elements_give_layer_norms_bias_exactly_and_the_largest_have_a_mean(way, monkeypatch):
    cut_by(way, "layer_norm", monkeypatch)
    layer_norm, bias = module_of("layer_norm").layer_norm, torch.randn(COLS)

    for value in (1.0, -2.0, 0.0):
        assert torch.equal(layer_norm(torch.full((2, COLS), value), None, bias), bias.expand(2, -1))
    answer, mean, _ = layer_norm(torch.full((1, COLS), 3e38), stats=True)
    torch.testing.assert_close(mean, torch.full((1, 1), 3e38))
    assert not answer.isnan().any()


@pytest.mark.parametrize("eps", [0.0, 1e-6, 0.5])
def test_eps_is_added_to_the_mean_of_the_squares_of_rms_norm(way, eps, monkeypatch):
    cut_by(way, "rms_norm", monkeypatch)
    _, rstd = module_of("rms_norm").rms_norm(torch.full((2, COLS), 0.001), None, eps, stats=True)

    torch.testing.assert_close(rstd, torch.full((2, 1), (1e-6 + eps) ** -0.5))


# --- how rows are cut -------------------------------------------------------------------------------------------------


def h200(**fields):
    return _launch.Limits(**{**_launch._read("nvidia-h200"), **fields})


def chosen(op, rows, cols, itemsize=2, **fields):
    return module_of(op).choose_tile(rows, cols, itemsize, h200(**fields))


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("rows", [1, 132, 133, 100_000])
def test_every_tile_covers_its_rows_and_fits_the_device(name, itemsize, rows):
    for cols in (1, 3, 128, 1000, 1024, 4097, 32768, 32769, 131072, 10**6):
        tile = chosen(name, rows, cols, itemsize)
        assert tile.rows * tile.cols <= 32768 and tile.warps <= 32
        assert tile.cols >= cols or tile.lanes
        assert (tile.stages - 1) * tile.rows * tile.cols * itemsize * OPS[name] <= 232448
        if tile.lanes:
            assert tile.cols % tile.lanes == 0 and tile.rows == 1
            assert tile.lanes * itemsize == 16 * 32 * tile.warps  # one vector a thread
            assert 0 <= tile.parts * _rows.span(cols, tile) - cols < _rows.span(cols, tile)


@pytest.mark.parametrize("name", SHARING)
def test_rows_are_shared_only_if_processors_would_go_without(name):
    assert chosen(name, 133, 131072).parts == 1 == chosen(name, 16, 1000).parts
    assert chosen(name, 132, 131072).parts >= 2
    assert 132 <= 16 * chosen(name, 16, 1048576).parts <= 8 * 132 + 16
    assert chosen(name, 1, 10**8).parts <= _rows.MOST_PARTS
    assert all(chosen("softmax", rows, 10**6).parts == 1 for rows in (1, 10))


@pytest.mark.parametrize("name", OPS)
def test_few_rows_are_not_put_into_one_tile_and_a_small_device_walks_sooner(name):
    assert chosen(name, 132, 64).rows == 1
    assert chosen(name, 10**6, 64).rows >= 16
    tile = chosen(name, 1000, 4096, tile_elements=2048, shared_bytes=4096)
    assert tile.lanes and tile.cols <= 2048 and tile.stages == 1


@pytest.mark.parametrize("name", OPS)
def test_a_tuned_file_goes_before_the_ops_own_table(name, monkeypatch):
    module = module_of(name)
    config = {"elements": 2048, "warps": 2, "stages": 1, "programs": 3, "max_registers": 32}
    monkeypatch.setattr(_launch, "tuned", lambda folder, key: ({"width_max": 4096, "itemsize": 2, "config": config},))
    module.choose_tile.cache_clear()

    whole, walked, other = (chosen(name, 10**6, *shape) for shape in ((2048, 2), (4096, 2), (4096, 4)))
    module.choose_tile.cache_clear()

    assert (whole.cols, whole.warps, whole.programs, whole.lanes) == (2048, 2, 3, 0)
    assert (whole.again, whole.options) == (False, {"num_warps": 2, "maxnreg": 32})
    assert (walked.cols, walked.warps, walked.programs, walked.lanes) == (2048, 2, 3, 512)
    assert other.warps > 2


def test_a_grid_has_so_many_programs_a_processor_and_no_more_than_tiles():
    tile = _rows.Tile(1, 1024, 4, 1, 3, 0, 1)

    assert [_rows.programs(tiles, tile, h200())[0] for tiles in (10**6, 7)] == [396, 7]
    assert _rows.programs(10**6, tile._replace(programs=0), h200(programs=1000))[0] == 1000
    assert [_rows.even(rows, 1024, tile._replace(rows=4)) for rows in (4, 8, 10)] == [True, True, False]
