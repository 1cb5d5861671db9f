"""Changes that keep the host longer, on the fake device, whose calls claim how long they do: no clock decides."""

from __future__ import annotations

import os

import pytest

from tests.flow.test_against import case_of, logs, make_slower, repository, topic, verdict  # noqa: F401
from tests.git_repositories import alone, commit_all


@pytest.fixture(autouse=True)
def _own_git(monkeypatch, tmp_path):
    alone(monkeypatch, tmp_path)
    for name in [name for name in os.environ if name.startswith(("CI_MERGE_REQUEST_", "CI_COMMIT_", "CI_DEFAULT_"))]:
        monkeypatch.delenv(name)


def keep_host(project, us, op="scale"):
    """The wrapper keeps the host longer. Its device work stays the same."""
    project.edit(op, "triton", "    fake.work(", f"    fake.keep_host({us})\n    fake.work(")


@pytest.mark.parametrize("us", [30.0, 5.0])
def test_a_wrapper_that_keeps_the_host_longer_is_regressed_though_its_device_work_is_the_same(topic, us):  # noqa: F811
    keep_host(topic, us)
    commit_all(topic.root)

    answer = topic.check()

    assert answer.code == 2
    found = verdict(answer, "scale", 256)
    assert found[0] == "REGRESSED"
    assert found[1] == ["duel_host_slower", "unchanged_work"]
