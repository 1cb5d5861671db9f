"""Which pictures an op gets, and their files."""

import functools
from dataclasses import replace

import pytest
from PIL import Image

from perfci.core.model import Comparison, Gate, Interval, Judgements, Limits, OpRun, Reason
from perfci.core.model.decision import PeerFigure
from perfci.extensions.pictures import plots
from perfci.extensions.pictures.device import draw_roofline, draw_sizes
from perfci.extensions.pictures.plots import draw_beside, list_ratios
from perfci.report import frame
from perfci.store.launches import LaunchRow


def write(run, judgements, folder, raw=(), **options):
    spreads = frame.pool_spreads(run)
    return plots.Painter(run, judgements, spreads, folder, raw=raw, **options).draw_all()


@pytest.fixture(scope="module")
def drawn(examples, tmp_path_factory):
    """The gallery of an example, and the names of its files, drawn once."""

    @functools.cache
    def draw(name):
        folder = tmp_path_factory.mktemp(name)
        gallery = write(*getattr(examples, name)(), folder)
        for file in folder.glob("*.png"):
            with Image.open(file) as image:
                assert image.width == 1800
                assert set(image.info) <= {"dpi"}
        return gallery, sorted(file.name for file in folder.glob("*.png"))

    return draw


def test_each_timed_op_gets_one_picture_of_each_kind_and_one_of_each_case_that_fails_or_warns(drawn, examples):
    gallery, files = drawn("full")
    _, judgements = examples.full()
    grave = {row.case for row in judgements.rows if row.op == "softmax" and row.gate is not Gate.OK and row.comparison}

    # broadcast has nothing with blocks that are worth a look.
    assert [name for name in files if "case" not in name] == [
        "blocks-matmul.png", "blocks-softmax.png", "changes-broadcast.png", "changes-matmul.png", "changes-softmax.png",
        "sizes.png",
    ]  # fmt: skip
    assert {picture.case for picture in gallery.ops["softmax"].cases} <= grave
    assert gallery.ops["softmax"].alone == len(gallery.ops["softmax"].cases)


def test_a_run_with_nothing_timed_has_no_pictures(drawn):
    gallery, files = drawn("on_cpu")

    assert (files, gallery.ops["softmax"].pictures) == ([], ())


def test_launches_are_held_against_the_bases_of_the_same_block(examples):
    run, judgements = examples.duelled()
    case = next(case for op in run.ops if op.op == "softmax" for case in op.performance if case.blocks)
    rows = [
        LaunchRow("softmax", case.case, 0, block, arm, tuple(pace * us for us in times))
        for block, pace in ((0, 1.0), (1, 1.3))  # another clock
        for arm, times in (("kernel", (10.4, 10.4, 10.5)), ("base", (9.9, 10.0, 10.1)))
    ]
    rows.append(LaunchRow("softmax", case.case, 0, 2, "kernel", (77.0,)))  # a block without its base

    charts = {chart.case: chart for chart in plots.collect_charts(run, judgements, rows)["softmax"]}

    assert charts[case.case].launches["kernel"] == pytest.approx([4.0, 4.0, 5.0] * 2)
    assert charts[case.case].launches["base"] == pytest.approx([-1.0, 0.0, 1.0] * 2)
    assert charts[case.case].beside_base


def test_of_many_cases_the_gravest_are_chosen(examples):
    charts = plots.collect_charts(*examples.large(ops=1, cases=60), ())["op0"]

    shown = [chart.gate for chart in plots.pick_worst(charts, 12)]
    assert shown == sorted(shown, key=list(Gate).index, reverse=True)
    assert len(shown) == 12
    assert plots.pick_worst(charts, 60) == charts


def test_of_many_ops_the_gravest_get_overviews(examples, monkeypatch):
    monkeypatch.setattr(plots, "OPS", 1)
    run, judgements = examples.large(ops=3, cases=4)
    gallery = write(run, judgements, None)
    shown = [op for op, pictures in gallery.ops.items() if pictures.pictures]

    assert len(shown) == 1
    assert all(picture.png.startswith(b"\x89PNG") for picture in gallery.ops[shown[0]].pictures)


# --- the device -------------------------------------------------------------------------------------------------------


def products(examples, count):
    """Runs of matmul with declared bytes and operations, one case an op."""
    case = replace(examples.performance_case("m=1,dtype=float16", 10.0), bytes_moved=10**7, flops=10**9)
    ops = [OpRun(f"op{index}", performance=(case,)) for index in range(count)]
    return examples.run(ops), Judgements(())


def test_a_few_ops_share_one_roofline(examples, tmp_path):
    gallery = write(*products(examples, 2), tmp_path)

    assert [picture.file for section in gallery.overview for picture in section.pictures] == ["roofline.png"]
    assert not list(tmp_path.glob("roofline-*"))


def test_of_many_ops_the_roofline_has_those_furthest_below_their_ceilings(examples, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "CEILING_OPS", 1)
    drawn = []
    monkeypatch.setattr(plots, "map_forked", lambda function, items: [*map(function, items)])  # in this process
    monkeypatch.setattr(plots, "draw_roofline", lambda found, *rest: drawn.extend(found) or draw_roofline(found, *rest))
    run, judgements = products(examples, 2)
    quick = replace(run.ops[0].performance[0], flops=2 * 10**9)
    write(replace(run, ops=(replace(run.ops[0], performance=(quick,)), run.ops[1])), judgements, tmp_path)

    assert {one.op for one in drawn} == {"op1"}


def test_of_many_ops_those_furthest_below_their_ceilings_are_drawn_against_their_sizes(examples, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "CEILING_OPS", 1)
    drawn = []
    monkeypatch.setattr(plots, "map_forked", lambda function, items: [*map(function, items)])  # in this process
    monkeypatch.setattr(plots, "draw_sizes", lambda found, *rest: drawn.extend(found) or draw_sizes(found, *rest))
    run, judgements = examples.large(ops=2, cases=4)
    slow = tuple(replace(case, bytes_moved=case.bytes_moved // 9 + n) for n, case in enumerate(run.ops[1].performance))
    gallery = write(replace(run, ops=(run.ops[0], replace(run.ops[1], performance=slow))), judgements, tmp_path)

    assert drawn == ["op1"]
    assert "sizes.png" in [picture.file for section in gallery.overview for picture in section.pictures]


def test_without_measured_limits_there_is_no_roofline(examples, tmp_path):
    run, judgements = products(examples, 1)

    write(replace(run, limits=Limits()), judgements, tmp_path)

    assert not list(tmp_path.glob("roofline*"))


@pytest.mark.nightly
def test_what_was_timed_beside_an_ops_kernel_is_drawn_case_by_case(examples, tmp_path):
    run, judgements = examples.full()
    one = PeerFigure("cuda", 12.0, Interval(1.2, 1.18, 1.22)), PeerFigure("cutile", failure=Reason("peer_unsupported"))
    rows = [
        replace(row, comparison=replace(row.comparison, peers=one)) if row.op == "softmax" and row.comparison else row
        for row in judgements.rows
    ]
    seen = [row.comparison for row in rows if row.comparison and row.comparison.peers]

    gallery = write(run, replace(judgements, rows=tuple(rows)), tmp_path)
    ratios = list_ratios(seen)

    assert gallery.ops["softmax"].pictures
    assert [file.name for file in tmp_path.glob("beside*.png")] == ["beside-softmax.png"]
    # One that was not timed has no place in it.
    assert list(ratios) == ["the reference", "cuda"]
    assert ratios["cuda"] == [one[0].ratio] * len(seen)


def test_arms_lie_apart_from_each_other_in_a_cases_row():
    case = Comparison(
        "softmax", "rows=4", speedup=Interval(2.0, 1.9, 2.1), peers=(PeerFigure("a", 1.0, Interval(1.5, 1.4, 1.6)),)
    )

    axes = draw_beside([case], "softmax").axes[0]
    points = {
        float(line.get_xdata()[0]): float(line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1
    }

    assert points.keys() == {2.0, 1.5}
    assert points[2.0] < 0 < points[1.5]
    assert axes.get_xlim()[0] < 1.0 < 2.1 < axes.get_xlim()[1]
