"""Which pictures an op gets, and their files."""

import functools
from dataclasses import replace

import pytest
from PIL import Image

from perfci.core.model import Baseline, BaselineBlock, BaselineCase, Gate, Judgements, Limits, OpRun, Verdict
from perfci.report import frame, plots
from perfci.report.charts import style
from perfci.store.launches import LaunchRow


@pytest.fixture(scope="module")
def drawn(examples, tmp_path_factory):
    """The gallery of an example, and the names of its files, drawn once."""

    @functools.cache
    def draw(name):
        folder = tmp_path_factory.mktemp(name)
        gallery = plots.write(*getattr(examples, name)(), folder)
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

    assert [name for name in files if "case" not in name] == [
        "blocks-broadcast.png",
        "blocks-matmul.png",
        "blocks-softmax.png",
        "changes-broadcast.png",
        "changes-matmul.png",
        "changes-softmax.png",
        "sizes-broadcast.png",
        "sizes-softmax.png",
    ]
    assert {picture.case for picture in gallery.ops["softmax"].cases} <= grave
    assert gallery.ops["softmax"].alone == len(gallery.ops["softmax"].cases)


def test_a_run_with_nothing_timed_has_no_pictures(drawn):
    gallery, files = drawn("on_cpu")

    assert (files, gallery.ops["softmax"].pictures) == ([], ())


@pytest.mark.parametrize("name", ["long_names", "hostile", "duelled"])
def test_names_of_any_kind_are_drawn(drawn, name):
    assert drawn(name)[1]


def test_of_many_cases_the_gravest_are_drawn_and_counted(examples, tmp_path):
    run, judgements = examples.large(ops=1, cases=60)
    charts = plots.collect_charts(run, judgements, None, {})["op0"]

    shown = plots.pick_worst(charts, 12)
    assert len(shown) == 12
    assert [chart.gate for chart in shown] == sorted(
        [chart.gate for chart in shown], key=list(Gate).index, reverse=True
    )
    gallery = plots.write(run, judgements, tmp_path)
    assert len(gallery.ops["op0"].cases) <= plots.CASES
    assert len(list(tmp_path.glob("blocks-*.png"))) == 1


def test_few_cases_stay_in_their_order(examples):
    run, judgements = examples.small()
    charts = plots.collect_charts(run, judgements, None, {})["softmax"]

    assert plots.pick_worst(charts, len(charts)) == charts


def test_ops_whose_names_make_one_file_name_do_not_overwrite_each_other(examples, tmp_path):
    run, judgements = examples.small()
    twin = examples.run([run.ops[0], OpRun("soft-max", performance=run.ops[0].performance),
                         OpRun("soft.max", performance=run.ops[0].performance)])  # fmt: skip

    plots.write(twin, judgements, tmp_path)

    assert len(list(tmp_path.glob("blocks-*.png"))) == 3


def test_pictures_of_an_earlier_report_are_gone(examples, tmp_path):
    (tmp_path / "case-old-1.png").write_bytes(b"")
    (tmp_path / "mine.png").write_bytes(b"")

    plots.write(*examples.small(), tmp_path)

    assert not (tmp_path / "case-old-1.png").exists()
    assert (tmp_path / "mine.png").exists()


def test_without_a_folder_the_pictures_are_svg_alone(examples):
    gallery = plots.write(*examples.small(), None, svg=True)

    assert all(picture.svg.startswith("<svg") for picture in gallery.ops["softmax"].pictures)


# --- launches ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def launched(examples):
    """A run with raw launches of its first case, and a baseline with four blocks of it."""
    run, judgements = examples.small()
    case = run.ops[0].performance[0].case
    rows = [LaunchRow("softmax", case, 0, b, "kernel", (5.0 + b / 10, 5.2)) for b in range(8)]
    blocks = tuple(BaselineBlock("r", us, 8.0, -0.4) for us in (4.9, 5.0, 5.0, 5.1))
    stored = Baseline("softmax", "nvidia-h200", "activity", (), (BaselineCase(case, blocks),))
    return run, judgements, frame.tabulate_launches(rows), stored


def test_the_baselines_block_medians_stand_beside_the_launches(launched):
    run, judgements, raw, stored = launched
    first = plots.collect_charts(run, judgements, raw, {"softmax": stored})["softmax"][0]

    assert first.launches["kernel"].min() == 5.0
    assert list(first.stored) == [4.9, 5.0, 5.0, 5.1]


@pytest.mark.parametrize("changes", [{"timer": "event"}, {"device": "nvidia-h100"}])
def test_a_baseline_of_another_timer_or_device_does_not_stand_beside_them(launched, changes):
    run, judgements, raw, stored = launched
    first = plots.collect_charts(run, judgements, raw, {"softmax": replace(stored, **changes)})["softmax"][0]

    assert first.stored is None


def test_without_launches_their_distribution_is_not_drawn(launched, tmp_path):
    run, judgements, raw, _ = launched
    plots.write(run, judgements, tmp_path / "a" if (tmp_path / "a").mkdir() else tmp_path)

    assert not list(tmp_path.glob("launches-*"))
    plots.write(run, judgements, tmp_path, raw)
    assert list(tmp_path.glob("launches-*"))


# --- the roofline -----------------------------------------------------------------------------------------------------


def products(examples, count):
    """Runs of matmul with declared bytes and operations, one case an op."""
    case = replace(examples.performance_case("m=1,dtype=float16", 10.0), bytes_moved=10**7, flops=10**9)
    ops = [OpRun(f"op{index}", performance=(case,)) for index in range(count)]
    return examples.run(ops), Judgements(())


def test_a_few_ops_share_one_roofline(examples, tmp_path):
    gallery = plots.write(*products(examples, 2), tmp_path)

    assert gallery.roofline.file == "roofline.png"
    assert not list(tmp_path.glob("roofline-*"))


def test_many_ops_have_a_roofline_each(examples, tmp_path):
    gallery = plots.write(*products(examples, plots.ROOFLINE_OPS + 1), tmp_path)

    assert gallery.roofline is None
    assert len(list(tmp_path.glob("roofline-*"))) == plots.ROOFLINE_OPS + 1


def test_without_operations_or_measured_limits_there_is_no_roofline(examples, tmp_path):
    run, judgements = products(examples, 1)

    plots.write(replace(run, limits=Limits()), judgements, tmp_path)

    assert not list(tmp_path.glob("roofline*"))


def test_a_case_whose_time_says_nothing_is_in_no_plot_of_times(examples, tmp_path, monkeypatch):
    cases = tuple(
        replace(examples.performance_case(f"n={n},dtype=float16", 10.0 * n), bytes_moved=n * 10**7, flops=n * 10**9)
        for n in (1, 2, 4, 8)
    )
    suspect = examples.judgement("mm", cases[3].case, Verdict.SUSPECT, examples.reason("example_same"))
    found = {}
    monkeypatch.setattr(style, "save_png", lambda figure: found.setdefault(len(found), figure) and b"")
    plots.write(examples.run([OpRun("mm", performance=cases)]), Judgements((suspect,)), tmp_path)

    (sizes,) = [
        figure
        for figure in found.values()
        if figure.axes and figure.axes[0].get_xlabel() in {"bytes moved", "operations"}
    ]
    assert max(max(line.get_xdata()) for line in sizes.axes[0].lines) <= 4e9
