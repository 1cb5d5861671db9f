from perfci.history import series
from perfci.report.figures import save, style
from perfci.report.figures.trends import Trend, trends
from tests.history_examples import CASE, OTHER, accepted, figures

RUNS = (
    accepted(0, figures(kernel_us=10.0, reference_us=20.0), figures(OTHER)),
    accepted(1, figures(kernel_us=10.5, reference_us=21.0), driver="590"),
    accepted(2, figures(kernel_us=12.0, reference_us=20.0), figures(OTHER), driver="590", why="float32 sums"),
)


def drawn(*runs):
    return trends([Trend(one.case, one) for one in series(runs or RUNS)], "title")


def test_every_case_has_a_panel_with_its_medians_over_the_runs():
    first, second = drawn().panels

    assert first.points("kernel")[0].ys == (10.0, 10.5, 12.0)
    assert first.points("kernel")[0].xs == (0.0, 1.0, 2.0)
    assert second.points("kernel")[0].xs == (0.0, 2.0)


def test_the_reference_is_scaled_to_the_kernels_first_run():
    assert drawn().panels[0].lines("reference")[0].ys == (10.0, 10.5, 10.0)


def test_quartiles_stand_at_their_run():
    assert [line.xs[0] for line in drawn().panels[0].lines("quartiles")] == [0.0, 1.0, 2.0]


def test_steps_and_epochs_stand_before_the_run_that_they_came_with():
    panel = drawn().panels[0]

    assert [line.xs for line in panel.lines("environment")] == [(0.5, 0.5)]
    assert [line.xs for line in panel.lines("epoch")] == [(1.5, 1.5)]
    assert {"driver 590", "float32 sums"} <= set(panel.notes())


def test_another_board_is_no_step():
    assert not drawn(accepted(0), accepted(1, uuid="GPU-2")).panels[0].lines("environment")


def test_the_legend_names_what_is_there():
    assert [name for name, _ in drawn(accepted(0)).legend] == ["kernel, with quartiles", "reference, scaled"]
    assert len(drawn().legend) == 4


def test_a_single_run_can_be_drawn(tmp_path):
    with style():
        save(drawn(accepted(0, figures(CASE))), tmp_path / "one.png")

    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_foreign_text_is_drawn_as_letters_that_there_are(tmp_path):
    with style():
        save(drawn(accepted(0), accepted(1, why="\x1b[31m\u0378 why")), tmp_path / "one.png")

    assert (tmp_path / "one.png").stat().st_size > 0
