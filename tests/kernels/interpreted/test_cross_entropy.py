import pytest
import torch
from cross_entropy_baseline import cross_entropy as reference

OP = "cross_entropy"
CLASSES = 2500
INF, NAN = float("inf"), float("nan")
REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


@pytest.fixture
def way(request, module, monkeypatch):
    """How rows are cut: whole, walked by one program each, or shared by several."""
    import _rows

    def choose(rows, cols, *_):
        chunks = -(-cols // 512)
        parts = {"walked": 1, "shared": -(-chunks // 2)}
        if request.param == "whole":
            return _rows.Tile(2, 4096, 4, 1, 0, 0, 1)
        return _rows.Tile(1, 512, 4, 1, 2, 128, parts[request.param])

    monkeypatch.setattr(module, "choose_tile", choose)
    return request.param


EVERY_WAY = pytest.mark.parametrize("way", ["whole", "walked", "shared"], indirect=True)


def logits(rows, classes=CLASSES, seed=3, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, classes, (rows,), generator=generator)
    return 3 * torch.randn(rows, classes, generator=generator, dtype=dtype), target


def right(module, x, target, by=reference, **options):
    got = module.cross_entropy(x, target, **options)
    exact = by(x.double(), target, **options)
    rtol = {torch.float32: 1.3e-6, torch.float16: 1e-3, torch.bfloat16: 1.6e-2}[x.dtype]
    torch.testing.assert_close(got, exact.to(x.dtype), rtol=rtol, atol=1e-5, equal_nan=True)
    return got


def test_agrees_with_the_reference_in_float64(case, suite, module):
    inputs = suite.make_inputs(**case, device="cpu", seed=7)

    right(module, by=suite.reference, **inputs)


def test_says_what_is_wrong_with_its_arguments(reject, module):
    with pytest.raises((TypeError, ValueError), match=r"cross_entropy: .* but"):
        module.cross_entropy(**reject("cpu"))


@EVERY_WAY
@REDUCTIONS
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_every_way_of_cutting_rows_gives_the_same(way, reduction, smoothing, module):
    x, target = logits(5)
    target[1] = target[3] = 17

    right(module, x, target, reduction=reduction, label_smoothing=smoothing, ignore_index=17)


@EVERY_WAY
@pytest.mark.parametrize("classes", [1, 129, 512, 641])
def test_rows_begin_and_end_anywhere_among_vectors(way, classes, module):
    x, target = logits(4, classes)
    buffer = torch.full((4 * classes + 3,), INF)
    shifted = buffer[3:].view(4, classes).copy_(x)

    right(module, x, target, reduction="none")
    right(module, shifted, target, reduction="none")
    right(module, torch.cat([x, x], 1)[:, ::2], target, reduction="none", label_smoothing=0.1)


@EVERY_WAY
def test_what_lies_beside_a_row_counts_for_nothing(way, module, guarded):
    x, target = logits(3, 1001)

    assert not right(module, guarded(x), target, reduction="none", label_smoothing=0.1).isnan().any()


@EVERY_WAY
def test_rows_with_infinity_and_nan_come_out_as_in_torch(way, module):
    x, target = logits(7)
    x[0, 7], x[1, -1], x[2], x[3, :-1], x[4, ::2], x[5, target[5]] = NAN, INF, -INF, -INF, -INF, -INF

    got = right(module, x, target, reduction="none")

    assert got[:3].isnan().all() and got[5] == INF and got[6].isfinite()


@EVERY_WAY
def test_the_largest_logits_do_not_overflow(way, module):
    x = torch.full((2, CLASSES), 3e38)
    target = torch.tensor([0, 5])

    right(module, x, target, reduction="none", label_smoothing=0.2)
    right(module, 3e38 * torch.linspace(-1, 1, CLASSES).expand(2, -1), torch.tensor([CLASSES - 1] * 2))


@EVERY_WAY
def test_large_logits_that_differ_little_keep_their_difference(way, module):
    x = 1e5 + logits(2)[0]

    right(module, x, torch.tensor([3, CLASSES - 1]), reduction="none")


@EVERY_WAY
@pytest.mark.parametrize("wrong", [-1, CLASSES])
def test_a_target_that_is_no_class_gives_nan_and_reads_nothing(wrong, way, module):
    x, target = logits(3)
    target[1] = wrong

    assert module.cross_entropy(x, target, reduction="none").isnan().tolist() == [False, True, False]
    assert module.cross_entropy(x, target).isnan()


@EVERY_WAY
def test_ignored_rows_are_not_even_looked_at(way, module):
    x, target = logits(4)
    x[1], target[1] = NAN, -100

    got = right(module, x, target)

    assert got.isfinite() and module.cross_entropy(x, target, reduction="none")[1] == 0


@EVERY_WAY
@REDUCTIONS
def test_where_every_row_is_ignored_the_mean_is_nan_and_the_rest_is_0(way, reduction, module):
    x, _ = logits(3)

    right(module, x, torch.full((3,), -100), reduction=reduction)


@EVERY_WAY
def test_offsets_reach_beyond_32_bits(way, module):
    far = 2**29 + 64  # itself within 32 bits
    x = torch.empty(4 * far + 8, dtype=torch.float16).as_strided((5, 8), (far, 1))  # 4 GiB, five pages of it touched
    x.copy_(torch.arange(40.0).view(5, 8) % 7)
    target = torch.tensor([0, 1, 2, 3, 7])

    torch.testing.assert_close(
        module.cross_entropy(x, target, reduction="none"), reference(x.float(), target, reduction="none").half()
    )


@EVERY_WAY
@pytest.mark.parametrize("fields", [{"programs": 2}, {"grid": (3, 1, 1)}])
def test_few_programs_still_do_every_row(way, fields, only, module):
    only(**fields)

    right(module, *logits(9, 600))


@EVERY_WAY
def test_writes_its_output_fully_and_nothing_beside_it(way, module, outputs):
    x, target = logits(5)

    assert not module.cross_entropy(x, target, reduction="none").isnan().any()
    assert not module.cross_entropy(x, target).isnan()
    assert all((buffer == -1).sum() == 128 for buffer in outputs)


def test_more_partial_sums_than_one_step_are_added_up(module, monkeypatch):
    import _rows

    monkeypatch.setattr(module, "STEP", 4)
    monkeypatch.setattr(module, "choose_tile", lambda *_: _rows.Tile(1, 4, 4, 1, 0, 0, 1))
    x, target = logits(21, 3)

    right(module, x, target)


def test_the_accuracy_suite_walks_rows_on_every_device(suite, module):
    import _launch

    longest = max(case["cols"] for case in suite.cases)
    for key in _launch._keys():
        assert module.choose_tile(2, longest, 2, _launch.Limits(**_launch._read(key))).lanes


def test_takes_targets_of_any_stride(module):
    x, target = logits(6)

    right(module, x, target.repeat_interleave(2)[::2])
    right(module, x, target[:1].expand(6))


def test_launches_nothing_for_no_rows(module, monkeypatch):
    monkeypatch.setattr(module, "_rows_kernel", None)
    x, target = torch.zeros(0, 8), torch.zeros(0, dtype=torch.int64)

    assert module.cross_entropy(x, target).isnan()
    assert module.cross_entropy(x, target, reduction="sum") == 0
    assert module.cross_entropy(x, target, reduction="none").shape == (0,)
