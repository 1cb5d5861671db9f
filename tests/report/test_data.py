import json

import pytest

from perfci.core.codec import encode
from perfci.report import data


def test_every_verdict_is_there_with_its_reason_and_numbers(examples):
    run, judgements = examples.small()

    answer = data.to_json(judgements, run)

    row = answer["verdicts"][-1]
    assert (row["verdict"], row["gate"], row["case"]) == ("REGRESSED", "fails", "rows=4096,cols=32768,dtype=float16")
    assert row["reason"]["kind"] == "example_slower"
    assert row["reason"]["facts"] == {"change": 0.041, "margin": 0.02}
    assert row["reason"]["sentence"].startswith("It is 4.1 % slower")
    assert row["change"]["value"] == 0.041
    assert row["kernel_us"] == judgements.rows[-1].comparison.kernel_us


def test_what_is_not_known_is_null(examples):
    _, judgements = examples.full()

    row = next(row for row in data.to_json(judgements)["verdicts"] if row["verdict"] == "REMOVED")

    assert (row["change"], row["speedup"], row["kernel_us"]) == (None, None, None)


def test_the_counts_and_the_gate_agree_with_the_summary(examples):
    run, judgements = examples.full()

    answer = data.to_json(judgements, run)

    assert answer["exit_code"] == 2
    # a case of an op with an accuracy that is wrong has its verdict, and counts with its op's
    assert (sum(answer["counts"].values()), len(answer["verdicts"])) == (25, 26)
    assert answer["run"]["seed"] == run.plan.seed


def test_a_duel_is_there_with_ratios_where_the_record_holds_logarithms(examples):
    run, judgements = examples.duelled()

    answer = data.to_json(judgements, run)

    row = next(row for row in answer["verdicts"] if row["verdict"] == "REGRESSED")
    assert answer["run"]["base"] == run.plan.base.commit
    assert row["duel"]["allowed"] == pytest.approx(0.015)
    assert (row["duel"]["blocks"], row["duel"]["processes"]) == (24, 2)
    assert row["change"]["value"] == pytest.approx(0.041, abs=0.002)
    assert all(change == pytest.approx(0.041, abs=0.003) for change in row["duel"]["by_process"])


def test_a_verdict_about_compiled_kernels_names_its_target(examples):
    run, judgements = examples.compiled()

    targets = {row["target"] for row in data.to_json(judgements, run)["verdicts"]}

    assert targets == {"sm_90", "gfx942"}


@pytest.mark.parametrize("name", ["hostile", "duelled", "compiled"])
def test_it_is_plain_json(examples, name):
    run, judgements = getattr(examples, name)()

    answer = data.to_json(judgements, run)

    assert json.loads(encode(answer)) == answer


def test_every_arm_has_its_figures_and_the_kernel_its_rates(examples):
    run, judgements = examples.small()
    case = run.ops[0].performance[0]

    row = next(row for row in data.to_json(judgements, run)["verdicts"] if row["case"] == case.case)

    assert [arm["arm"] for arm in row["arms"]] == ["kernel", "reference", "host"]
    kernel = row["arms"][0]
    assert kernel["p50_us"] == pytest.approx(row["kernel_us"], rel=1e-3)
    assert kernel["launches"] == sum(block.arms["kernel"].time.launches for block in case.blocks)
    assert row["rates"]["gbps"] == pytest.approx(case.bytes_moved / kernel["p50_us"] / 1e3)
    assert row["rates"]["of_copy"] == pytest.approx(row["rates"]["gbps"] / run.limits.copy_gbps)
    assert data.to_json(judgements)["verdicts"][-1]["arms"] == []
