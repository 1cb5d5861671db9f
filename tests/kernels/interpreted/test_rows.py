"""How ops cut the rows that they reduce."""

import importlib

import _launch
import _rows
import pytest

OPS = {"layer_norm": 3, "rms_norm": 2, "cross_entropy": 1, "softmax": 1}
"""op -> tensors that it loads for each tile"""
SHARING = sorted(OPS.keys() - {"softmax"})
"""Ops that let several programs share a row."""


def h200(**fields):
    return _launch.Limits(**{**_launch._read("nvidia-h200"), **fields})


def chosen(op, rows, cols, itemsize=2, **fields):
    return importlib.import_module(f"{op}_triton").choose_tile(rows, cols, itemsize, h200(**fields))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("rows", [1, 100, 132, 133, 100_000])
def test_every_tile_covers_its_rows_and_fits_the_device(op, itemsize, rows):
    for cols in (1, 3, 128, 1000, 1024, 4097, 32768, 32769, 131072, 10**6):
        tile = chosen(op, rows, cols, itemsize)
        assert tile.rows * tile.cols <= 32768 and tile.warps <= 32
        assert tile.cols >= cols or tile.lanes
        assert (tile.stages - 1) * tile.rows * tile.cols * itemsize * OPS[op] <= 232448
        if tile.lanes:
            assert tile.cols % tile.lanes == 0 and tile.rows == 1
            assert tile.lanes * itemsize == 16 * 32 * tile.warps  # one vector a thread
            assert 0 <= tile.parts * _rows.span(cols, tile) - cols < _rows.span(cols, tile)


@pytest.mark.parametrize("op", SHARING)
def test_rows_are_shared_only_where_processors_would_go_without(op):
    assert chosen(op, 133, 131072).parts == 1 == chosen(op, 16, 1000).parts
    assert chosen(op, 132, 131072).parts >= 2
    assert 132 <= 16 * chosen(op, 16, 1048576).parts <= 8 * 132 + 16
    assert chosen(op, 1, 10**8).parts <= _rows.MOST_PARTS


@pytest.mark.parametrize("sharing", [2, 8])
def test_a_configuration_says_how_many_programs_a_processor_share_rows(sharing, monkeypatch):
    config = {"elements": 1024, "warps": 4, "sharing": sharing}
    monkeypatch.setattr(_launch, "config", lambda *_, **__: config)
    module = importlib.import_module("rms_norm_triton")
    module.choose_tile.cache_clear()

    assert chosen("rms_norm", 33, 65536).parts == 4 * sharing
    module.choose_tile.cache_clear()


@pytest.mark.parametrize("op", OPS)
def test_few_rows_are_not_put_into_one_tile(op):
    assert chosen(op, 132, 64).rows == 1
    assert chosen(op, 10**6, 64).rows >= 16


@pytest.mark.parametrize("op", OPS)
def test_a_device_that_holds_little_walks_sooner(op):
    tile = chosen(op, 1000, 4096, tile_elements=2048, shared_bytes=4096)

    assert tile.lanes and tile.cols <= 2048 and tile.stages == 1


@pytest.mark.parametrize("op", OPS)
def test_a_tuned_file_goes_before_the_ops_own_table(op, monkeypatch):
    module = importlib.import_module(f"{op}_triton")
    config = {"elements": 2048, "warps": 2, "stages": 1, "programs": 3}
    monkeypatch.setattr(_launch, "tuned", lambda folder, key: ({"width_max": 4096, "itemsize": 2, "config": config},))
    module.choose_tile.cache_clear()

    whole, walked, other = (chosen(op, 10**6, *shape) for shape in ((2048, 2), (4096, 2), (4096, 4)))
    module.choose_tile.cache_clear()

    assert (whole.cols, whole.warps, whole.programs, whole.lanes) == (2048, 2, 3, 0)
    assert (whole.again, whole.options) == (False, {"num_warps": 2})
    assert (walked.cols, walked.warps, walked.programs, walked.lanes) == (2048, 2, 3, 512)
    assert other.warps > 2


@pytest.mark.parametrize("op", OPS)
def test_a_bound_on_registers_goes_to_the_compiler(op, monkeypatch):
    module = importlib.import_module(f"{op}_triton")
    config = {"elements": 4096, "warps": 8, "again": True, "max_registers": 32}
    monkeypatch.setattr(_launch, "tuned", lambda *_: ({"config": config},))
    module.choose_tile.cache_clear()

    whole, walked = (chosen(op, 10**6, cols) for cols in (4096, 5000))
    module.choose_tile.cache_clear()

    assert whole.options == walked.options == {"num_warps": 8, "maxnreg": 32}
    assert whole.again and not walked.again


def test_tiles_are_full_where_rows_and_columns_leave_nothing_over():
    tile = _rows.Tile(4, 1024, 4, 1, 0, 0, 1)

    assert [_rows.even(rows, 1024, tile) for rows in (4, 8, 10)] == [True, True, False]
    assert not _rows.even(8, 1000, tile)


def test_a_grid_has_so_many_programs_a_processor_and_no_more_than_tiles():
    tile = _rows.Tile(1, 1024, 4, 1, 3, 0, 1)

    assert [_rows.programs(tiles, tile, h200())[0] for tiles in (10**6, 7)] == [396, 7]
    assert _rows.programs(10**6, tile._replace(programs=0), h200(programs=1000))[0] == 1000
