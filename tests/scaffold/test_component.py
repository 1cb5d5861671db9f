"""The component's file filled in comes to what GitLab makes of it."""

import json
import re

import pytest
import yaml

from perfci.scaffold import component

PLACE = re.compile(r"\$\[\[ inputs\.(\w+) \]\]")
BODY = component._parts()[1]


def as_gitlab(values):
    """GitLab's way: into the text before it is YAML; texts as they are, other values as JSON."""
    known = {name: each["default"] for name, each in component.inputs().items()} | values
    told = {name: value if isinstance(value, str) else json.dumps(value) for name, value in known.items()}
    return yaml.safe_load(PLACE.sub(lambda found: told[found[1]], BODY))


NASTY = {
    "suffix": "-h200-2",
    "project": "ops/Small Önes: #1 'a' [b]",
    "reports": "ops/Small Önes: #1 'a' [b]/reports",
    "install": "git+https://u:$CI_JOB_TOKEN@example.org/perfci.git@v1 # no comment",
    "tags": ["gpu h200", "yes", "a, b", "1"],
    "shards": 12,
    "budget": 0.5,
    "strict": True,
    "html": False,
    "pipelines": "branches",
    "stage": "null",
    "timeout": "1h 30m",
    "packages": "a>=1,<2 b[c]==3",
    "expiry": "2024-01-01",
    "image": "registry.example.org:5000/a/b@sha256:" + 64 * "0",
    "language": "zh",
}


ODD = {"install": "", "project": "true", "reports": "1e3", "tags": ["@a", "= b", "- c", "...", "é"], "stage": "@"}


@pytest.mark.parametrize("values", [{}, NASTY, ODD])
def test_filled_in_it_means_what_gitlab_makes_of_it(values):
    assert yaml.safe_load(component.fill(values)) == as_gitlab(values)


def test_a_folder_that_an_input_may_not_name_is_filled_in_all_the_same():
    folder = '"Small"\\Ones'
    jobs = yaml.safe_load(component.fill({"project": folder, "reports": f"{folder}/reports"}))

    assert jobs[".perfci"]["variables"]["PERFCI_PROJECT"] == folder
    assert jobs["perfci-merge"]["artifacts"]["paths"] == [f"{folder}/reports/"]


def test_comments_stay_and_no_place_is_left():
    text = component.fill(NASTY)

    assert "$[[" not in text
    assert "# What the kernels compile to, and what of it the change changed: no GPU, no noise." in text.splitlines()


def test_values_are_written_without_quotes_where_that_is_the_same():
    lines = component.fill({"install": "git+https://example.org/perfci.git@v1", "shards": 3}).splitlines()

    assert "    PERFCI: git+https://example.org/perfci.git@v1" in lines
    assert {"  tags: [gpu]", "  parallel: 3", '    PERFCI_SHARDS: "3"', "    expire_in: 90 days"} <= set(lines)


def test_an_input_that_is_none_is_an_error():
    with pytest.raises(KeyError):
        component.fill({"devise": "cuda"})
