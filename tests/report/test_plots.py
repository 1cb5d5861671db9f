import functools

import pytest
from PIL import Image

from perfci.model import Interval
from perfci.report import figures, plots


@pytest.fixture(scope="module")
def drawn(examples, tmp_path_factory):
    """The pictures of an example by op, and the images by file name, drawn once."""

    @functools.cache
    def draw(name):
        folder = tmp_path_factory.mktemp(name)
        pictures = plots.write(*getattr(examples, name)(), folder)
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


def test_a_long_case_keeps_its_name_and_loses_first_what_is_allowed_then_the_interval():
    def found(case):
        style = figures.style()
        with style:
            drawn = figures.duels([figures.Duel(case, None, ((0.01,) * 4,), 0.015, Interval(0.01, 0.0, 0.02))], "t")
        return [text.get_text() for text in drawn.axes[0].texts]

    assert found("n=1") == ["n=1", "+1.0 % (+0.0 % to +2.0 %), 1.5 % allowed"]
    assert found("n=" + "1" * 60) == ["n=" + "1" * 60, "+1.0 % (+0.0 % to +2.0 %)"]
    assert found("n=" + "1" * 85) == ["n=" + "1" * 85, "+1.0 %"]
    name, change = found("n=" + "1" * 200)
    assert change == "+1.0 %"
    assert "..." in name


def test_the_picture_of_duels_shades_what_is_allowed():
    with figures.style():
        drawn = figures.duels([figures.Duel("n=1", None, ((0.0,) * 4,), 0.015, Interval(0.0, 0.0, 0.0))], "t")

    heights = sorted(patch.get_height() for patch in drawn.axes[0].patches)
    assert heights == pytest.approx([1.5, 3.0])


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

    pictures = plots.write(run, judgements, tmp_path)["op0"]

    assert pictures.traced == plots.MOST_TRACES_OF_MANY
    assert len(pictures.traces) == 1
    assert len(pictures.speedups) == 4


def test_ops_whose_names_make_one_file_name_do_not_overwrite_each_other(examples, tmp_path):
    run, judgements = examples.small()
    twin = examples.run([run.ops[0], examples.OpRun("soft-max", performance=run.ops[0].performance),
                         examples.OpRun("soft.max", performance=run.ops[0].performance)])  # fmt: skip

    plots.write(twin, judgements, tmp_path)

    assert len(list(tmp_path.glob("blocks-*.png"))) == 3


def test_long_case_ids_take_two_lines_broken_at_a_comma():
    label = figures.label("batch=16,heads=32,sequence=4096,head_dim=128,causal=True,dtype=bfloat16")

    assert label == "batch=16,heads=32,sequence=4096,\nhead_dim=128,causal=True,dtype=bfloat16"
    assert all(len(line) <= figures.LABEL for line in figures.label("x" * 500).split("\n"))
