"""A case's page tells the steps that nothing explains."""

from dataclasses import replace

from perfci.core.model import Epoch
from perfci.report.site import cases, trend
from perfci.report.site.kept import Kept, Place
from tests.history_examples import CASE, accepted, figures


def why(*runs):
    (case,) = (op := trend.op(Kept(Place("nvidia-h200", "softmax"), tuple(runs)))).cases
    return " ".join(cases._why(case, op))


def history(size):
    """Quiet runs, each a little different, that take so much more from the 21st on."""
    made = [
        accepted(
            number % 27,
            figures(kernel_us=(10 + 0.001 * (number * 7 % 5)) * (1 + size * (number >= 20)), shift=None),
            commit=f"{number:02}" + "c" * 38,
        )
        for number in range(40)
    ]
    return [replace(each, run=f"run{number}") for number, each in enumerate(made)]


def test_a_step_that_nothing_explains_is_told_with_its_commits():
    assert "Between 19cccccc" in why(*history(0.03)) and "perfci history --drift" in why(*history(0.03))


def test_a_step_that_was_accepted_and_a_steady_case_are_not_told():
    agreed = history(0.03)
    agreed[20] = replace(agreed[20], epoch=Epoch("agreed", (CASE,)))

    assert "perfci history --drift" not in why(*agreed)
    assert "perfci history --drift" not in why(*history(0.0))
