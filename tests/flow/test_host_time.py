"""Changes that keep the host longer, on the fake device. Its calls claim how long they do: no clock decides."""

import pytest

from perfci.core.wording import sentence
from tests.flow import test_against as against
from tests.git_repositories import commit_all

pytestmark = pytest.mark.slow

repository, topic = against.repository, against.topic

CACHED = "import functools\n\n\n@functools.cache\ndef limits():\n    fake.keep_host(25.0)\n\n\n"
"""What a wrapper asks the device for: once."""


def edit(project, before, after, op="scale"):
    project.edit(op, "triton", before, after)
    commit_all(project.root)


def keep_host(project, us):
    """The wrapper keeps the host longer. Its device work stays the same."""
    edit(project, "    fake.work(", f"    fake.keep_host({us})\n    fake.work(")


@pytest.mark.parametrize("us", [pytest.param(30.0, marks=pytest.mark.nightly), 5.0])
def test_a_wrapper_that_keeps_the_host_longer_is_regressed_though_its_device_work_is_the_same(topic, us):
    keep_host(topic, us)

    answer = topic.check()

    assert answer.code == 2
    for rows in (256, 512):
        assert against.verdict(answer, "scale", rows) == ("REGRESSED", ["duel_host_slower", "unchanged_work"])
    case = against.case_of(topic, "scale", 256)
    assert not case.blocks
    assert {block.process for block in case.host} == {0, 1}
    # No worker ran for the others.
    assert against.logs(topic) == {"describe", "describe-base", "scale", "scale-base"}


def test_a_cache_that_is_lost_is_found(topic):
    def cache():
        topic.edit("scale", "triton", "US_PER_MEGABYTE = ", f"{CACHED}US_PER_MEGABYTE = ")
        topic.edit("scale", "triton", "    fake.work(", "    limits()\n    fake.work(")

    against.on_main(topic, cache)
    edit(topic, "@functools.cache\n", "")

    assert against.verdict(topic.check(), "scale", 256)[1][0] == "duel_host_slower"


def test_a_base_that_ends_its_process_in_a_turn_leaves_the_host_uncompared_and_says_so(topic):
    """It counts its calls, which nothing but turns makes so many of in one process."""
    counting = (
        "\nCALLS = []\n\n\ndef scale(x, factor):\n    CALLS.append(1)\n    if len(CALLS) > 60:\n        fake.crash()\n"
    )
    against.on_main(topic, lambda: topic.edit("scale", "triton", "\ndef scale(x, factor):\n", counting))
    edit(topic, "    if len(CALLS) > 60:\n        fake.crash()\n", "")

    verdict, kinds = against.verdict(topic.check("--suite", "performance"), "scale", 256)

    assert (verdict, kinds) == ("UNCHANGED", ["unchanged_work", "unhosted"])
    assert "SIGSEGV" in sentence(against.case_of(topic, "scale", 256).unhosted)


def test_without_a_base_the_run_shows_how_long_a_call_keeps_the_host(project):
    project.edit("scale", "triton", "    fake.work(", "    fake.keep_host(95)\n    fake.work(")
    project.check("scale")

    shown = project.perfci("show", str(project.root / "reports"), "--op", "scale").out

    assert "Host time: many calls in a row" in shown
    assert "### scale: host time" in (project.root / "reports" / "report.md").read_text()
