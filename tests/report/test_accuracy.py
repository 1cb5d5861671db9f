import math
from dataclasses import replace

import pytest

from perfci.core.model import OpRun, Reason
from perfci.report import accuracy


def table(op):
    table = next(accuracy.make_parts(op)).table
    return [dict(zip(table.columns, (cell.strip("\ue000") for cell in row), strict=True)) for row in table.rows]


def row(*checks):
    return table(OpRun("softmax", checks))[0]


def erring(check, **figures):
    return replace(check, errors=replace(check.errors, **figures))


@pytest.fixture
def check(examples):
    return examples.accuracy_case("n=1,dtype=float16")


def test_errors_are_the_worst_of_a_cases_checks_with_ordinary_values(examples, check):
    large = erring(examples.accuracy_case("n=1,dtype=float16", values="large"), l2=1.0, of_allowed=0.3)

    cells = row(erring(check, l2=2e-4, of_allowed=0.1), erring(check, l2=5e-4, of_allowed=0.2), large)

    assert (cells["L2"], cells["of allowed"], cells["checks"]) == ("5.00e-04", "30.0 % (large)", "3")


def test_every_case_has_its_row_those_nearest_to_what_is_allowed_first(examples):
    checks = [
        erring(examples.accuracy_case(f"n={n},dtype=float16"), of_allowed=share)
        for n, share in ((1, 0.2), (2, 0.9), (3, None), (4, 0.5))
    ]
    timed = examples.performance_case("n=8,dtype=float16", 10.0)
    timed = replace(timed, errors=replace(timed.errors, l2=2e-4, of_allowed=0.7))

    columns = table(OpRun("softmax", tuple(checks), (timed,)))

    assert [column["case"][:3] for column in columns] == ["n=2", "n=8", "n=4", "n=1", "n=3"]
    assert columns[1]["case"].endswith(", timed")
    assert (columns[1]["L2"], columns[1]["of allowed"], columns[-1]["of allowed"]) == ("2.00e-04", "70.0 %", "-")


def test_an_error_that_no_check_measured_has_no_column(check):
    assert "L2" not in row(erring(check, l2=None))
    assert "of allowed" not in row(erring(check, of_allowed=None))
    assert not {"failed", "not checked"} & row(check).keys()
    assert row(check, replace(check, failure=Reason("boom")))["failed"] == "1"


def test_tolerances_that_differ_are_a_range(check):
    cells = row(replace(check, rtol=0.001, atol=1e-5), replace(check, rtol=0.001, atol=4e-5))

    assert cells["tolerance (rtol, atol)"] == "0.001, 1e-05 to 4e-05"


def test_refused_input_is_a_row_of_its_own(examples):
    refused = replace(examples.accuracy_case("rejects=an integer"), errors=None, reference_errors=None)

    assert row(refused)["case"] == "bad input"


# --- precision that was lost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "before", "count", "grown"),
    [
        (3e-4, 1.5e-4, 1000, 2.0),
        (2.9e-4, 2e-4, 1000, 0.0),
        (3e-4, 2e-4, 999, 0.0),  # of few elements it may be chance
        (1e-9, 0.0, 1000, math.inf),
        (0.0, 0.0, 1000, 0.0),
        (None, 1e-4, 1000, 0.0),
        (1e-4, None, 1000, 0.0),
    ],
)
def test_an_l2_error_has_grown_from_half_as_much_more_on(check, now, before, count, grown):
    stats = [replace(check.errors, l2=value, count=count) for value in (now, before)]

    assert accuracy.find_growth(*stats) == pytest.approx(grown)
    assert accuracy.find_growth(stats[0], None) == 0.0


def test_what_passes_less_exact_than_the_bases_kernel_is_a_line_of_the_report(rendered, examples, sentences, tmp_path):
    from perfci import report

    run, judgements = examples.small()
    [op] = run.ops
    [first, second, *rest] = op.accuracy
    lost = replace(erring(first, l2=6e-4, of_allowed=0.4), base_errors=replace(first.errors, l2=2e-4))
    kept = replace(erring(second, l2=2e-4), base_errors=replace(second.errors, l2=2e-4))
    run = replace(run, ops=(replace(op, accuracy=(lost, kept, *rest)),))

    page = report.write(run, judgements, tmp_path).read_text()

    [line] = [line for line in page.splitlines() if "less exact than" in line]
    assert line == (
        f"- `{first.case}` passes, less exact than with the base's kernel on the same inputs: L2 error 6.00e-04, was "
        "2.00e-04; 40.0 % of what is allowed."
    )
    assert "less exact than" not in (rendered("small") / "report.md").read_text()


def test_many_losses_are_counted_and_the_worst_of_each_case_is_told(examples):
    def pair(n, now):
        errors = examples.accuracy_case(f"n={n}").errors
        return f"n={n}", replace(errors, l2=now), replace(errors, l2=1e-4)

    *told, rest = accuracy.describe_losses([*(pair(n, n * 1e-4) for n in range(2, 14)), pair(3, 9e-3)], "before")

    assert "\ue000n=3\ue000" in told[0]
    assert len(told) == accuracy.FAILURES
    assert rest == "Less exact as well: 2 cases."
