"""docs/grafana.json: a dashboard that Grafana reads. Its queries answer over a store's tables."""

import json
import re
from pathlib import Path

import pytest

from perfci.cli.main import run
from tests import postgres
from tests.site_histories import project, softmax

sdk = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
psycopg = pytest.importorskip("psycopg")
encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")

ROOT = Path(__file__).parents[3]
BOARD = json.loads((ROOT / "docs" / "grafana.json").read_text(encoding="utf-8"))
PANELS = {panel["title"]: panel for panel in BOARD["panels"]}
CHOSEN = (("nvidia-h200", "softmax"), ("fake-one", "scale"))  # of a history, and of a run with blocks


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Asks a query as Grafana does for a device and an op, with all cases and years of time."""
    server = postgres.start()
    if server is None:
        pytest.skip("no PostgreSQL here: Debian has it as postgresql")
    root = project(tmp_path_factory.mktemp("project"), {CHOSEN[0]: softmax()})
    (root / "pyproject.toml").write_text("[tool.perfci]\n")
    night = ROOT / "tests" / "stored" / "format-1" / "reports"
    assert run(["history", "--store", server.url(), "--run", str(night), "--project", str(root)]) == 0
    with psycopg.connect(server.url(), autocommit=True, row_factory=psycopg.rows.dict_row) as connection:
        connection.execute("UPDATE verdicts SET gate = 'fails' WHERE op = 'scale'")

        def asked(query, device, op):
            text = re.sub(r"\$__timeFilter\(([^)]*)\)", r"\1 BETWEEN '2020-01-01' AND '2100-01-01'", query)
            text = text.replace("${device}", device).replace("${op}", op)
            text = text.replace("${case:sqlstring}", "SELECT case_id FROM cases")
            assert "$" not in text
            return connection.execute(text).fetchall()

        yield asked
    postgres.end(server)


def lost(before, after):
    """Paths of what is not in a copy, or otherwise."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [f"{name}.{path}" for name in before for path in lost(before[name], after.get(name))]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [f"{at}.{path}" for at, pair in enumerate(zip(before, after, strict=True)) for path in lost(*pair)]
    return [] if before == after else [f"{before!r} became {after!r}"]


def test_grafanas_own_model_of_a_dashboard_reads_all_of_it():
    read = sdk.Dashboard.from_json(json.loads(json.dumps(BOARD)))

    assert lost(BOARD, json.loads(json.dumps(read, cls=encoder.JSONEncoder))) == []


def test_panels_have_places_of_their_own():
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"]) == len(PANELS)
    taken = []
    for place in (panel["gridPos"] for panel in BOARD["panels"]):
        assert place["x"] + place["w"] <= 24
        taken += [
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
    assert len(taken) == len(set(taken))


@pytest.mark.parametrize("title", PANELS)
def test_every_panel_has_an_answer_in_the_columns_that_its_kind_needs(ask, title):
    panel = PANELS[title]
    (target,) = panel["targets"]

    rows = [row for chosen in CHOSEN for row in ask(target["rawSql"], *chosen)]

    assert rows
    if panel["type"] == "timeseries":
        assert target["format"] == "time_series"
        names = list(rows[0])
        assert names[:2] == ["time", "metric"]
        assert all(row["time"].tzinfo for row in rows)
        assert all(row[names[2]] is None or float(row[names[2]]) >= 0 for row in rows)


def test_every_choice_has_values(ask):
    queries = {
        variable["name"]: variable["query"] for variable in BOARD["templating"]["list"] if variable["type"] == "query"
    }

    values = {name: {next(iter(row.values())) for row in ask(query, *CHOSEN[0])} for name, query in queries.items()}

    assert values["device"] == {"nvidia-h200", "fake-one"}
    assert values["op"] == {"softmax"}
    assert len(values["case"]) >= 6
