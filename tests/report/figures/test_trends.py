from dataclasses import replace

from perfci.core.model import ErrorStats, HistoryStored
from perfci.report.figures import save, style
from perfci.report.figures.trends import StoredTrend, Trend, stored_trends, trends
from perfci.store.past.series import series, stored_series
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


def stored(*errors, **surroundings):
    """Runs of one stored tensor with these p99; the last one with other surroundings."""
    runs = [accepted(number) for number in range(len(errors) - 1)] + [accepted(len(errors) - 1, **surroundings)]
    tensors = [(HistoryStored("stored=a,m=8", ErrorStats(8, p99_abs=p99)),) for p99 in errors]
    kept = [replace(run, stored=tensor) for run, tensor in zip(runs, tensors, strict=True)]
    return stored_trends([StoredTrend(one.case, one) for one in stored_series(kept)], "title")


def test_a_stored_tensor_has_a_panel_with_its_p99_over_the_runs():
    sheet = stored(0.02, 0.021, 0.03, driver="590")
    (panel,) = sheet.panels

    assert panel.points("p99")[0].ys == (0.02, 0.021, 0.03)
    assert [line.xs for line in panel.lines("environment")] == [(1.5, 1.5)]
    assert [name for name, _ in sheet.legend] == ["99th percentile of the error", "environment changed"]


def test_errors_of_nothing_and_unknown_ones_can_be_drawn(tmp_path):
    with style():
        save(stored(0.0, None), tmp_path / "one.png")

    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
