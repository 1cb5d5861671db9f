"""Timing with a warm cache, on the fake device: what it changes, and what it is never compared with."""

import json

import pytest

from tests.git_repositories import commit_all, git

WARM = ("    kernel=kernel,", '    cache="warm",\n    kernel=kernel,')
OP = ("scale",)


@pytest.fixture
def scale(project):
    """The project's op that takes half of its time if the cache is warm."""
    settings = project.root / "pyproject.toml"
    settings.write_text(settings.read_text() + "warm_factor = 0.5\n")
    return project


def performance(answer):
    return [row for (_, suite, case), row in answer.rows.items() if suite == "performance" and case]


@pytest.mark.parametrize("apart", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_change_to_warm_is_named_and_both_revisions_are_timed_cold_as_the_base_asks(scale, apart):
    git(scale.root, "init", "-q", "-b", "main")
    (scale.root / ".gitignore").write_text("reports/\n__pycache__/\n")
    commit_all(scale.root)
    git(scale.root, "checkout", "-q", "-b", "topic")
    scale.edit("scale", "performance", *WARM)
    scale.edit("scale", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 320.8")
    if apart:  # an import made late, which needs a process for each revision
        scale.edit("scale", "triton", "    fake.work", "    import scale_late\n\n    fake.work")
        (scale.op_file("scale", "late")).write_text("")
    commit_all(scale.root)

    answer = scale.check(*OP)

    notes = {note["kind"]: note for note in json.loads(answer.out)["notes"]}
    facts = {"op": "scale", "cache": "warm", "before": "cold", "base": "main"}
    assert notes["cache_changed"]["facts"] == facts
    assert {row["verdict"] for row in performance(answer)} == {"PASS"}
    (op,) = scale.run_record().ops
    assert {case.cache for case in op.performance} == {"cold"}
    for case in op.performance:
        shifts = [block.shifts["kernel/base"] for block in case.blocks]
        assert shifts and all(abs(shift) < 0.02 for shift in shifts)
