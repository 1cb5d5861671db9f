"""Plans for several runners and their shards, with workers that are functions."""

from dataclasses import replace

import pytest

from perfci import store
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import PlannedOp
from perfci.extensions.shards.joined import merge_shards, run_shards
from perfci.extensions.shards.part import ShardPart, check_shard
from perfci.extensions.shards.plans import plan_shards
from perfci.runs.plan import Request
from perfci.store.launches import read_launches
from tests.runs.stand_ins import CASES

DIGEST = "a" * 64


@pytest.fixture
def plan(workers, heard):
    """Plan a project for two shards."""

    def planned(settings, shards=2, last=None, every=False, **request):
        wanted = Request(**{"seed": 7, "device": "fake"} | request)
        return plan_shards(settings, wanted, heard.append, shards, last, every=every)

    return planned


@pytest.fixture
def check(heard):
    """Measures a shard into its folder."""

    def checked(settings, sharded, index, count=2, **part):
        where = replace(settings, reports=settings.reports / "shards" / str(index))
        return check_shard(where, ShardPart(sharded, DIGEST, index, count, **part), "perfci check", heard.append)[0]

    return checked


def merged(settings, sharded, *runs):
    parts = [(run, settings.reports / "shards" / str(run.shard.index)) for run in runs]
    with store.claim_reports(settings.reports):  # as `ci merge` does
        return merge_shards(settings, sharded, DIGEST, parts, "perfci ci merge")


def refused(call, *arguments, **named):
    with pytest.raises(UsageError) as refusal:
        call(*arguments, **named)
    return refusal.value


def test_each_shard_measures_its_own_ops_by_the_families_of_all(plan, check, settings, workers):
    sharded = plan(settings)
    runs = [check(settings, sharded, index) for index in (1, 2)]

    assert [[op.op for op in run.ops] for run in runs] == [["relu"], ["scale"]]
    assert [(run.plan.family, run.plan.seed) for run in runs] == [(4, 7), (4, 7)]
    assert all(run.shard.done and store.read_run(settings.reports / "shards" / str(run.shard.index)) for run in runs)
    whole, judgements = merged(settings, sharded, *runs)
    assert [op.op for op in whole.ops] == ["relu", "scale"] and whole.plan == sharded.plan
    assert {row.op for row in judgements.rows} == {"relu", "scale"}
    assert {row.op for row in read_launches(settings.reports).rows} == {"relu", "scale"}
    assert store.read_run(settings.reports).id == whole.id


def test_of_two_masters_that_merge_at_once_one_is_refused_and_later_ones_agree(plan, check, settings, tmp_path):
    sharded = plan(settings)
    runs = [check(settings, sharded, index) for index in (1, 2)]

    with store.claim_reports(settings.reports), pytest.raises(StoredFileError) as refusal:
        merged(settings, sharded, *runs)
    first, second = (merged(settings, sharded, *runs)[1] for _ in range(2))

    assert refusal.value.reason.kind == "reports_taken"
    assert first == second


def test_a_shard_with_other_cases_than_planned_is_refused(plan, check, settings, workers):
    sharded = plan(settings)
    workers.planned["relu"] = PlannedOp("relu", ("rows=0",), (*CASES, "rows=3"))

    error = refused(check, settings, sharded, 1)

    assert (error.reason.kind, "rows=3" in str(error), "relu" in str(error)) == ("shard_differs", True, True)


def test_two_that_write_the_same_reports_are_refused_before_anything_is_measured(plan, settings):
    sharded = plan(settings)
    begun = []
    with store.claim_reports(settings.reports), pytest.raises(StoredFileError):
        run_shards(settings, sharded, None, "perfci check", lambda *given: begun.append(given))

    assert begun == [] and not (settings.reports / "plan.json").exists()
