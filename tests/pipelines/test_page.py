"""docs/gitlab.md describes what the component has."""

import os
import re

import pytest
import yaml

from perfci.extensions.setup import hosts
from tests.pipelines.conftest import COMPONENT, ROOT

PAGE = ROOT / "docs" / "gitlab.md"
START, END = "<!-- inputs -->\n", "<!-- end of inputs -->"
INPUTS = hosts.list_inputs()


def table() -> str:
    rows = (f"| `{name}` | {shown(given)} | {given['description'].rstrip('.')} |\n" for name, given in INPUTS.items())
    return "| input | default | what |\n| --- | --- | --- |\n" + "".join(rows)


def shown(each) -> str:
    value = each["default"]
    told = yaml.safe_dump(value, default_flow_style=True).split("\n")[0] if isinstance(value, list) else str(value)
    default = f"`{told.lower() if isinstance(value, bool) else told}`" if value != "" else ""
    others = [f"`{option}`" for option in each.get("options", []) if option != value]
    return f"{default}, or {', '.join(others)}" if others else default


def test_the_table_of_inputs_is_the_components():
    """PERFCI_UPDATE_GOLDEN=1 writes it again; read it in the diff."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    shown, _, after = rest.partition(END)

    if os.environ.get("PERFCI_UPDATE_GOLDEN"):
        shown = table()
        PAGE.write_text(before + START + shown + END + after, encoding="utf-8")

    assert shown == table(), "run this test with PERFCI_UPDATE_GOLDEN=1, and read the diff"


def test_the_table_of_jobs_names_them_all():
    jobs = {name for name in yaml.safe_load(hosts.fill_jobs({})) if not name.startswith(".")}

    assert set(re.findall(r"^\| `(perfci-\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == jobs


def examples() -> list[str]:
    return re.findall(r"^```yaml\n(include:.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", examples())
def test_every_example_includes_the_component_with_inputs_that_it_has(text):
    for included in yaml.safe_load(text)["include"]:
        place = included.get("file") or f"/templates/{included['component'].rsplit('/', 1)[1].split('@')[0]}.yml"
        assert (ROOT / place.lstrip("/")).samefile(COMPONENT)
        assert included["inputs"].keys() <= INPUTS.keys()
        for name, value in included["inputs"].items():
            assert "regex" not in INPUTS[name] or re.search(INPUTS[name]["regex"], value)


def test_the_shortest_way_takes_five_lines():
    assert len(examples()[0].splitlines()) <= 5


def test_the_environments_of_tokens_are_those_of_the_jobs():
    jobs = yaml.safe_load(hosts.fill_jobs({}))
    named = {job["environment"]["name"] for job in jobs.values() if "environment" in job}

    assert set(re.findall(r"\| `(perfci/\w+)` \|", PAGE.read_text(encoding="utf-8"))) == named
