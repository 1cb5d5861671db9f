import math
import random
import shlex
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from perfci.core.model.baseline import Baseline, BaselineBlock, BaselineCase
from perfci.core.model.basics import Reason, Suite, Verdict
from perfci.core.model.decision import Judgement, Judgements
from perfci.core.model.measured import OpRun
from perfci.extensions.formats import metrics


def samples(text: str) -> dict:
    """Every sample by name and labels, as an OpenMetrics parser reads them."""
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, *sorted(sample.labels.items())
            assert key not in values
            values[key] = sample.value
    return values


def widget(text: str) -> dict[str, str]:
    """The same as GitLab reads it: comments cut off at #, then a line's first two words as a shell splits them."""
    lines = (shlex.split(line.split("#", 1)[0]) for line in text.splitlines())
    return {words[0]: words[1] for words in lines if len(words) > 1}


def stored(op: str, times: dict[str, tuple[float, float]], **changes) -> Baseline:
    """Kernel and reference time of each case in one block."""
    cases = tuple(
        BaselineCase(case, (BaselineBlock("r", kernel, reference, math.log(kernel / reference)),))
        for case, (kernel, reference) in times.items()
    )
    return Baseline(**({"op": op, "device": "nvidia-h200", "timer": "activity", "runs": (), "cases": cases} | changes))


CASES = ("n=1", "n=2")
BASELINES = {"softmax": stored("softmax", {"n=1": (10.0, 20.0), "n=2": (100.0, 800.0)})}


@pytest.fixture
def measured(examples):
    """A run of two cases, timed with some noise, with a verdict and a change each."""

    def make(seed: int = 1, verdict: Verdict = Verdict.PASS, change: float = 0.001):
        rng = random.Random(seed)
        timed = [examples.performance_case(case, 10.0 * (1 + rng.gauss(0, 0.004)), seed=seed) for case in CASES]
        seen = [examples.comparison("softmax", case, change, speedup=1.9 + rng.gauss(0, 0.01)) for case in timed]
        rows = [
            examples.judgement("softmax", case.case, verdict, examples.reason("example_new"), one)
            for case, one in zip(timed, seen, strict=True)
        ]
        return examples.run([OpRun("softmax", performance=tuple(timed))]), Judgements(tuple(rows))

    return make


def test_the_file_ends_as_openmetrics_ends_and_is_read_by_its_parser(examples, tmp_path):
    for name in ("small", "full", "duelled", "compiled", "on_cpu", "stopped", "failed_op"):
        run, judgements = getattr(examples, name)()
        text = metrics.make_text(run, judgements)

        assert text.endswith("\n# EOF\n")
        assert samples(text)
        assert len(widget(text)) == len(samples(text))


def test_an_ops_speedup_is_the_geometric_mean_of_its_cases(measured):
    figures = samples(metrics.make_text(*measured(), BASELINES))

    key = ("perfci_speedup_ratio", ("device", "nvidia-h200"), ("op", "softmax"))
    assert figures[key] == pytest.approx(math.sqrt(2.0 * 8.0))


@pytest.mark.parametrize("verdict", sorted(metrics.MOVED))
def test_a_case_that_moved_is_shown_with_what_was_measured(measured, verdict):
    run, judgements = measured(verdict=verdict, change=0.0412)
    text = metrics.make_text(run, judgements, BASELINES)
    figures = samples(text)

    labels = (("case", "n=1"), ("device", "nvidia-h200"), ("op", "softmax"))
    assert figures["perfci_change_ratio", *labels] == pytest.approx(0.041)
    assert figures["perfci_kernel_microseconds", *labels] == pytest.approx(
        judgements.rows[0].comparison.kernel_us, rel=0.01
    )
    assert figures["perfci_speedup_ratio", *labels[1:]] == pytest.approx(1.9, rel=0.02)
    assert "perfci_change_ratio{op=softmax,case=n=1,device=nvidia-h200}" in widget(text)


def test_every_count_that_is_not_fine_is_always_there(examples):
    fine = samples(metrics.make_text(examples.run([]), Judgements(())))
    full = samples(metrics.make_text(*examples.full()))

    counted = {key for key in fine if key[0] == "perfci_verdicts"}
    assert counted == {key for key in full if key[0] == "perfci_verdicts"}
    assert len(counted) == 12
    assert full["perfci_verdicts", ("verdict", "REGRESSED")] == 1
    assert full["perfci_verdicts", ("verdict", "WRONG")] == 2
    assert all(value == 0 for key, value in fine.items() if key in counted)


def test_a_wrong_op_has_no_speedup_but_its_error(examples, measured):
    run, judgements = measured()
    check = examples.accuracy_case("n=7,dtype=float32")
    wrong = Judgement("softmax", Suite.ACCURACY, check.case, Verdict.WRONG, (Reason("example_new"),))
    run = replace(run, ops=(replace(run.ops[0], accuracy=(check, check)),))

    text = metrics.make_text(run, replace(judgements, rows=(wrong, *judgements.rows)), BASELINES)
    assert "perfci_speedup_ratio" not in text
    assert samples(text)["perfci_error_max", ("case", check.case), ("device", "nvidia-h200"), ("op", "softmax")] == (
        pytest.approx(check.errors.max_abs, rel=0.01)
    )


def slower(examples, op: str, cases) -> Judgements:
    """Each case REGRESSED."""
    seen = examples.comparison(op, examples.performance_case("n=1", 5.0), 0.05)
    why = examples.reason("example_new")
    return Judgements(tuple(examples.judgement(op, case, Verdict.REGRESSED, why, seen) for case in cases))


@pytest.mark.parametrize("foreign", ['a"b', "a\\", "a\nb", "a#b", "'", "}", '"} 1\nx 2', "\x00\ud800", "x" * 5000])
def test_any_label_is_read_alike_by_the_parser_and_by_gitlab(examples, foreign):
    text = metrics.make_text(examples.run([]), slower(examples, foreign, [foreign]))

    assert len([key for key in samples(text) if key[0] == "perfci_change_ratio"]) == 1
    assert len([name for name in widget(text) if name.startswith("perfci_change_ratio{")]) == 1
    assert len(text.splitlines()) == len(samples(text)) + text.count("\n# ") + 1
