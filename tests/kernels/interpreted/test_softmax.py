import pytest
import torch

OP = "softmax"
INF, NAN = float("inf"), float("nan")
SHORT, LONG = 100, 20011
"""Columns of rows that are held whole, and of rows that are walked in chunks."""


def test_agrees_with_the_reference_in_float64(case, suite, agrees):
    agrees(suite.make_inputs(**case, device="cpu", seed=7))


def test_says_what_is_wrong_with_its_arguments(reject, module):
    with pytest.raises((TypeError, ValueError), match=r"softmax: .* (but|no single row stride)"):
        module.softmax(**reject("cpu"))


@pytest.mark.parametrize("cols", [SHORT, LONG])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_with_infinity_and_nan_come_out_as_in_torch(cols, dtype, agrees):
    x = torch.randn(8, cols, dtype=dtype)
    x[0, 7] = NAN
    x[1, -1] = INF
    x[2] = -INF
    x[3, :-1] = -INF
    x[4, ::2] = -INF
    x[5, 0] = -INF
    x[6, -1], x[6, 0] = NAN, -INF

    got = agrees({"x": x})

    assert got[:3].isnan().all() and not got[3:6].isnan().any() and got[6].isnan().all()
    assert got[3, -1] == 1


@pytest.mark.parametrize("cols", [SHORT, LONG])
def test_the_largest_values_do_not_overflow(cols, agrees):
    agrees({"x": torch.full((2, cols), 65504.0, dtype=torch.float16)})
    agrees({"x": 3e38 * torch.linspace(-1, 1, cols)[None]})


@pytest.mark.parametrize("cols", [SHORT, LONG])
def test_a_maximum_that_grows_from_chunk_to_chunk_rescales_the_sum(cols, agrees):
    agrees({"x": torch.linspace(-80, 80, cols).expand(2, cols)})
    agrees({"x": torch.linspace(80, -80, cols).expand(2, cols)})


@pytest.fixture
def way(request, module, monkeypatch):
    """How rows are cut: whole, kept or loaded anew for each pass, or walked."""
    import _rows

    whole = request.param in {"whole", "again"}
    tile = _rows.Tile(2, 4096, 4, 1, 0, 0, 1, again=request.param == "again")
    monkeypatch.setattr(module, "choose_tile", lambda *_: tile if whole else _rows.Tile(1, 512, 4, 1, 1, 128, 1))
    return request.param


EVERY_WAY = pytest.mark.parametrize("way", ["whole", "again", "walked"], indirect=True)


@EVERY_WAY
@pytest.mark.parametrize("rows", [4, 5])
@pytest.mark.parametrize("cols", [1, 511, 1536, 2500, 4096])
def test_every_way_of_cutting_rows_gives_the_same(way, rows, cols, agrees):
    """Columns 1536 and 4096 fill chunks and tiles."""
    x = 9 * torch.randn((rows, 2 * cols), generator=torch.Generator().manual_seed(cols))

    agrees({"x": x[:, :cols]})
    agrees({"x": x[:, ::2]})


@EVERY_WAY
@pytest.mark.parametrize("cols", [2500, 4096])
def test_every_way_of_cutting_rows_minds_infinity_and_nan(way, cols, agrees):
    x = torch.randn(8, cols)
    x[0, 7] = NAN
    x[1, -1] = INF
    x[2] = -INF
    x[3, :-1] = -INF
    x[4, : cols // 2] = -INF
    x[5, cols // 2 :] = -INF
    x[6, -1], x[6, 0] = NAN, -INF

    got = agrees({"x": x})

    assert got.isnan().all(dim=-1).tolist() == [True, True, True, False, False, False, True, False]
    assert not got[[3, 4, 5, 7]].isnan().any()


def test_rows_are_never_shared_by_programs(module, only):
    assert all(module.choose_tile(rows, 10**6, 4, only()).parts == 1 for rows in (1, 10))


@pytest.mark.parametrize("cols", [SHORT, 8192, 8193, LONG])
def test_long_rows_and_no_others_are_walked_in_chunks(cols, module, only):
    limits = only(processors=1)

    assert bool(module.choose_tile(3, cols, 4, limits).lanes) == (cols > limits.tile_elements)


def test_the_accuracy_suite_has_rows_beyond_one_tile_of_every_device(suite, module):
    import _launch

    longest = max(case["cols"] for case in suite.cases)
    for key in _launch._keys():
        limits = _launch.Limits(**_launch._read(key))
        assert module.choose_tile(2, longest, 2, limits).lanes


def test_rows_loaded_ahead_fit_into_shared_memory(module, only):
    limits = only(tile_elements=32768, shared_bytes=100_000)
    tile = module.choose_tile(64, 32768, 4, limits)

    assert (tile.stages - 1) * tile.cols * 4 <= limits.shared_bytes
    assert not tile.lanes


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[..., ::2],
        lambda x: x[:1, 0].expand(6, -1),
        lambda x: x[0].t(),
        lambda x: x[1:2, ::2],
        lambda x: x[0, 0].expand(3, -1),
    ],
)
def test_takes_every_view_whose_rows_lie_evenly(view, agrees):
    agrees({"x": view(torch.randn(4, 5, 40))})


@EVERY_WAY
def test_offsets_reach_beyond_32_bits(way, module):
    far = 2**29 + 64  # itself within 32 bits
    x = torch.empty(4 * far + 8, dtype=torch.float16).as_strided((5, 8), (far, 1))  # 4 GiB, five pages of it touched
    x.copy_(torch.arange(40.0).view(5, 8) % 5)

    torch.testing.assert_close(module.softmax(x), torch.softmax(x.float(), -1).half())


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (5, 1025), (100, 3), (2, LONG)])
def test_writes_its_output_fully_and_nothing_beside_it(rows, cols, guarded, outputs, agrees):
    agrees({"x": guarded(torch.randn(rows, cols))})

    assert all((buffer == -1).sum() == 128 for buffer in outputs[:1])


@pytest.mark.parametrize("cols", [70, LONG])
@pytest.mark.parametrize("fields", [{"programs": 2}, {"grid": (3, 1, 1)}])
def test_few_programs_still_do_every_row(cols, fields, only, agrees):
    only(**fields)

    agrees({"x": torch.randn(130 if cols == 70 else 7, cols)})


def test_one_program_a_processor_walks_all_rows(module, only, agrees, monkeypatch):
    limits = only(processors=2)
    chosen = module.choose_tile(9, 64, 4, limits)._replace(rows=1, stages=2, programs=1)
    monkeypatch.setattr(module, "choose_tile", lambda *_: chosen)

    agrees({"x": torch.randn(9, 64)})


def test_launches_nothing_for_an_empty_input(module, monkeypatch):
    monkeypatch.setattr(module, "_rows_kernel", None)

    assert module.softmax(torch.zeros(0, 8)).shape == (0, 8)
    assert module.softmax(torch.zeros(3, 0)).shape == (3, 0)
