import functools
from dataclasses import replace

import pytest
from PIL import Image

from perfci.core.model import Baseline, BaselineBlock, BaselineCase, Judgements, Limits, OpRun, Verdict
from perfci.report import figures, frame, plots
from perfci.store.launches import LaunchRow


@pytest.fixture(scope="module")
def drawn(examples, tmp_path_factory):
    """The pictures of an example by op, and the images by file name, drawn once."""

    @functools.cache
    def draw(name):
        folder = tmp_path_factory.mktemp(name)
        pictures = plots.write(*getattr(examples, name)(), folder).ops
        return pictures, {file.name: loaded(file) for file in folder.glob("*.png")}

    return draw


def loaded(file):
    assert file.stat().st_size < 80_000
    with Image.open(file) as image:
        image.load()
    return image


def test_each_timed_op_gets_its_speedups_and_its_block_medians(drawn):
    _, images = drawn("full")

    assert sorted(images) == [
        "blocks-broadcast.png",
        "blocks-matmul.png",
        "blocks-softmax-1.png",
        "blocks-softmax-2.png",
        "sizes-broadcast.png",
        "sizes-softmax.png",
        "speedup-broadcast.png",
        "speedup-matmul.png",
        "speedup-softmax.png",
    ]


def test_each_op_with_duels_gets_a_picture_of_them(drawn):
    pictures, images = drawn("duelled")

    assert [name for name in sorted(images) if name.startswith("duels")] == [
        "duels-bias_relu.png",
        "duels-matmul.png",
        "duels-softmax.png",
    ]
    assert [picture.alt for picture in pictures["softmax"].duels] == ["Duels of softmax"]
    assert pictures["gelu"].duels == ()


def test_the_picture_of_duels_has_a_panel_a_duelled_case(drawn):
    _, images = drawn("duelled")

    one, two, six = (images[f"duels-{op}.png"].height for op in ("bias_relu", "matmul", "softmax"))
    assert six - two == pytest.approx(4 * (two - one), abs=2)


def test_pictures_are_900_pixels_wide(drawn):
    _, images = drawn("full")

    assert {image.width for image in (*images.values(), *drawn("duelled")[1].values())} == {900}
    assert all(image.height >= 150 for image in images.values())


def test_pictures_are_not_empty(drawn):
    _, images = drawn("full")

    assert all(len(image.convert("RGB").getcolors(10_000)) > 20 for image in images.values())


def test_pictures_carry_neither_date_nor_version(drawn):
    _, images = drawn("small")

    assert all(set(image.info) <= {"dpi"} for image in images.values())


def test_twelve_cases_are_split_into_even_figures(drawn):
    pictures, images = drawn("full")

    first, second = (images[picture.file] for picture in pictures["softmax"].traces)
    assert first.size == second.size
    assert [picture.alt for picture in pictures["softmax"].traces] == [
        "Block medians of softmax (1 of 2)",
        "Block medians of softmax (2 of 2)",
    ]


def test_a_run_with_nothing_timed_has_no_pictures(drawn):
    pictures, images = drawn("on_cpu")

    assert images == {}
    assert pictures["softmax"].speedups == ()


def test_missing_arms_and_long_names_are_drawn(drawn):
    pictures, images = drawn("long_names")

    assert sorted(images) == ["blocks-attention.png", "speedup-attention.png"]
    assert pictures["attention"].traced == 4


def test_hostile_names_are_drawn_as_plain_text(drawn):
    _, images = drawn("hostile")

    assert len(images) == 2


def test_of_many_cases_the_gravest_are_traced(examples, tmp_path):
    run, judgements = examples.large(ops=1, cases=plots.MANY_CASES + 1)

    pictures = plots.write(run, judgements, tmp_path).ops["op0"]

    assert pictures.traced == plots.MOST_TRACES_OF_MANY
    assert len(pictures.traces) == 1
    assert len(pictures.speedups) == 4
    assert len(pictures.undrawn) == plots.MANY_CASES + 1 - plots.MOST_TRACES_OF_MANY


def test_ops_whose_names_make_one_file_name_do_not_overwrite_each_other(examples, tmp_path):
    run, judgements = examples.small()
    twin = examples.run([run.ops[0], examples.OpRun("soft-max", performance=run.ops[0].performance),
                         examples.OpRun("soft.max", performance=run.ops[0].performance)])  # fmt: skip

    plots.write(twin, judgements, tmp_path)

    assert len(list(tmp_path.glob("blocks-*.png"))) == 3


def changed(examples, case, change, verdict=Verdict.PASS):
    seen = examples.comparison("softmax", examples.performance_case(case, 10.0), change)
    return examples.judgement("softmax", case, verdict, examples.reason("example_same", change=change), seen)


def test_what_is_drawn_of_many_is_what_fails_then_what_changed_most(examples):
    changes = {"n=1": 0.001, "n=2": -0.05, "n=3": 0.02, "n=4": 0.004}
    op = OpRun("softmax", performance=tuple(examples.performance_case(case, 10.0) for case in changes))
    rows = [changed(examples, case, change) for case, change in changes.items()]
    rows[3] = changed(examples, "n=4", 0.004, Verdict.REGRESSED)
    judged = {(row.op, row.case): row for row in rows}

    assert plots.worth_drawing(op, judged, 3) == ["n=4", "n=2", "n=3"]
    assert plots.worth_drawing(op, judged, 4) == list(changes)


# --- launches ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def sheets(monkeypatch):
    """What was drawn, by file name."""
    found = {}
    monkeypatch.setattr(figures, "save", lambda sheet, file: found.setdefault(file.name, sheet))
    return found


@pytest.fixture
def launched(examples):
    """A run with raw launches of its first case, and a baseline with four blocks of it."""
    run, judgements = examples.small()
    case = run.ops[0].performance[0].case
    rows = [LaunchRow("softmax", case, 0, b, "kernel", (5.0 + b / 10, 5.2)) for b in range(8)]
    rows += [LaunchRow("softmax", case, 0, b, "reference", (8.0, 8.1)) for b in range(8)]
    blocks = tuple(BaselineBlock("r", us, 8.0, -0.4) for us in (4.9, 5.0, 5.0, 5.1))
    stored = Baseline("softmax", "nvidia-h200", "activity", (), (BaselineCase(case, blocks),))
    return run, judgements, frame.launches(rows), stored


def test_the_baselines_block_medians_stand_beside_the_launches(launched, sheets, tmp_path):
    run, judgements, raw, stored = launched

    gallery = plots.write(run, judgements, tmp_path, raw, baselines={"softmax": stored})

    first = sheets["launches-softmax.png"].panels[0]
    assert {line.xs[0] for line in first.lines("kernel")} == {5.0}
    assert {line.xs[0] for line in first.lines("baseline")} == {4.9}
    assert gallery.ops["softmax"].stored


@pytest.mark.parametrize("changes", [{"timer": "event"}, {"device": "nvidia-h100"}])
def test_a_baseline_of_another_timer_or_device_does_not_stand_beside_them(launched, sheets, tmp_path, changes):
    run, judgements, raw, stored = launched

    gallery = plots.write(run, judgements, tmp_path, raw, baselines={"softmax": replace(stored, **changes)})

    assert not sheets["launches-softmax.png"].panels[0].lines("baseline")
    assert not gallery.ops["softmax"].stored


def test_without_launches_their_distribution_is_not_drawn(examples, sheets, tmp_path):
    plots.write(*examples.small(), tmp_path)

    assert "launches-softmax.png" not in sheets


# --- the roofline -----------------------------------------------------------------------------------------------------


def products(examples, count):
    """Runs of matmul with declared bytes and operations, one case an op."""
    case = replace(examples.performance_case("m=1,dtype=float16", 10.0), bytes_moved=10**7, flops=10**9)
    ops = [OpRun(f"op{index}", performance=(case,)) for index in range(count)]
    return examples.run(ops), Judgements(())


def test_a_few_ops_share_one_roofline(examples, sheets, tmp_path):
    gallery = plots.write(*products(examples, plots.ROOFLINE_OPS), tmp_path)

    assert gallery.roofline.file == "roofline.png"
    assert len(sheets["roofline.png"].panels[0].points()) == plots.ROOFLINE_OPS
    assert gallery.ops["op0"].roofline is None


def test_many_ops_have_a_roofline_each(examples, sheets, tmp_path):
    gallery = plots.write(*products(examples, plots.ROOFLINE_OPS + 1), tmp_path)

    assert gallery.roofline is None
    assert gallery.ops["op6"].roofline.file == "roofline-op6.png"
    assert len(sheets["roofline-op6.png"].panels[0].points()) == 1


def test_without_operations_or_measured_limits_there_is_no_roofline(examples, sheets, tmp_path):
    run, judgements = products(examples, 1)

    plots.write(replace(run, limits=Limits()), judgements, tmp_path)
    plots.write(*examples.small(), tmp_path)

    assert "roofline.png" not in sheets


def test_a_case_whose_time_says_nothing_is_in_no_plot_of_times(examples, sheets, tmp_path):
    cases = tuple(
        replace(examples.performance_case(f"n={n},dtype=float16", 10.0 * n), bytes_moved=n * 10**7, flops=n * 10**9)
        for n in (1, 2, 4, 8)
    )
    suspect = examples.judgement("mm", cases[3].case, Verdict.SUSPECT, examples.reason("example_same"))

    plots.write(examples.run([OpRun("mm", performance=cases)]), Judgements((suspect,)), tmp_path)

    (points,) = sheets["sizes-mm.png"].panels[0].points("kernel")
    assert points.xs == (1e7, 2e7, 4e7)
    assert sum(len(each.xs) for each in sheets["roofline.png"].panels[0].points()) == 3
