"""The promise about stored files: schemas that hold, files of every format since the first that are still read."""

import dataclasses
import enum
import gzip
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path

import jsonschema
import pytest

from perfci import store
from perfci.core.codec import encode
from perfci.core.model import FORMAT, Baseline, Run
from perfci.extensions.agents.logbook import FILE, Round, append_round
from perfci.extensions.agents.profile_records import Profile
from perfci.extensions.common.accepted_runs import HistoryRun
from perfci.extensions.common.history import history_path
from perfci.extensions.shards.plans import ShardPlan, write_plan
from perfci.report import data
from perfci.store import files
from perfci.store.launches import LaunchRow, append_launches, read_launches
from tests import example_runs
from tests.closed_schemas import PUBLISHED, faults, published
from tests.schemas import UNITS
from tests.stored_examples import append_history, write_baseline

STORED = Path(__file__).parents[1] / "stored"

FROZEN = {
    "format-1/baselines/fake-one/scale.json": "0949c80bb4684afcefa3156f20188c5f9f9c8a8b57cb929624ec9623cd9637d5",
    "format-1/reports/launches.jsonl.gz": "ba44d17e5233c3b28def161d57a7dfaa8dfd995a9defafc075711958df6d39ed",
    "format-1/reports/run.json": "c71e3bb0c2810c97bf12dee5089e48748ed0d6a9bb80e799f9f31a3faf02fbad",
    "format-1/static/run.json": "5d3712a712325db4b6f962ac3c8a10559a0b76a054ce04a425b71b7b656b73df",
}
"""Files as an earlier perfci wrote them. They stay as they are for ever: a new format gets a separate folder."""


def sample(kind: typing.Any) -> typing.Any:
    """A record with something in every field."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return sample(inner[0])
    if origin in {types.UnionType, typing.Union}:
        return sample(next(kind for kind in inner if kind is not type(None)))
    if origin is typing.Literal:
        return inner[-1]
    if origin is tuple:
        return (sample(inner[0]),)
    if origin is not None and issubclass(origin, Mapping):
        return {"name": sample(inner[1])}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        given = {field.name: sample(hints[field.name]) for field in dataclasses.fields(kind)}
        return kind(**given | ({"format": FORMAT} if "format" in given else {}))
    if issubclass(kind, enum.Enum):
        return list(kind)[-1]
    return {str: "text", bool: True, int: 3, float: 2.5}[kind]


def documents(record: typing.Any, tmp_path: Path) -> typing.Any:
    if isinstance(record, LaunchRow):
        append_launches(tmp_path, record.op, record.case, record.process, record.block, {record.arm: record.us})
        return json.loads(gzip.decompress((tmp_path / "launches.jsonl.gz").read_bytes()))
    if isinstance(record, HistoryRun):
        append_history(tmp_path, record.environment.device.key, "op", record)
        return json.loads(history_path(tmp_path, record.environment.device.key, "op").read_text(encoding="utf-8"))
    if isinstance(record, Round):
        append_round(tmp_path, record)
        return json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    if isinstance(record, Profile):
        return json.loads(files.encode(record, tmp_path / "op.json"))
    if isinstance(record, ShardPlan):
        return json.loads(write_plan(record, tmp_path / "plan.json").read_text(encoding="utf-8"))
    path = store.write_run(record, tmp_path) if isinstance(record, Run) else write_baseline(record, tmp_path)
    return json.loads(path.read_text(encoding="utf-8"))


RECORDS = {
    "run.schema.json": Run,
    "baseline.schema.json": Baseline,
    "history.schema.json": HistoryRun,
    "launches.schema.json": LaunchRow,
    "plan.schema.json": ShardPlan,
    "round.schema.json": Round,
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_with_every_field_is_written_as_its_schema_says(name, tmp_path):
    document = documents(sample(RECORDS[name]), tmp_path)

    assert faults(document, name) == []
    written, named = keys(document), {field for kind in published(name)["$defs"].values() for field in properties(kind)}
    assert named <= written, "every field that the schema names is written"


def keys(value: typing.Any) -> set[str]:
    if isinstance(value, list):
        return {key for item in value for key in keys(item)}
    return set(value) | keys(list(value.values())) if isinstance(value, dict) else set()


def properties(definition: dict[str, typing.Any]) -> set[str]:
    return set(definition.get("properties", {}))


@pytest.mark.parametrize(
    "example", ["small", "full", "duelled", "compiled", "on_cpu", "stopped", "failed_op", "hostile"]
)
def test_runs_of_every_sort_and_their_answers_fit_the_schemas(example, tmp_path):
    run, judgements = getattr(example_runs, example)()

    assert faults(documents(run, tmp_path), "run.schema.json") == []
    assert faults(json.loads(encode(data.to_json(judgements, run))), "answer.schema.json") == []
    assert faults(json.loads(encode(data.to_json(judgements))), "answer.schema.json") == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_schema_is_valid_and_says_what_it_is_about(name):
    schema = published(name)

    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:perfci:schema:{name.partition('.')[0]}:{FORMAT}"
    assert schema["title"].startswith("perfci")
    assert all(definition["description"] for definition in schema["$defs"].values())


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_schema_names_the_unit_of_every_field_that_has_one(name):
    for definition in published(name)["$defs"].values():
        for field, told in definition.get("properties", {}).items():
            unit = next((unit for ending, unit in UNITS.items() if field.endswith(ending)), "")
            assert unit in told.get("description", "")


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_field_of_a_later_perfci_fits_the_published_schema_and_not_the_closed_one(name):
    if name in RECORDS:
        document = json.loads(encode(sample(RECORDS[name])))
    else:
        document = json.loads(encode(data.to_json(*reversed(example_runs.small()))))
    document["colour"] = "blue"

    assert faults(document, name, closed=False) == []
    assert len(faults(document, name)) == 1


# --- files of earlier formats -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FROZEN)
def test_a_file_that_an_earlier_perfci_wrote_is_kept_as_it_was(name):
    assert hashlib.sha256((STORED / name).read_bytes()).hexdigest() == FROZEN[name]


def test_every_kept_file_is_known_and_every_format_has_some():
    kept = {path.relative_to(STORED).as_posix() for path in STORED.rglob("*") if path.is_file()}

    assert kept == FROZEN.keys()
    assert {path.name for path in STORED.iterdir()} == {f"format-{number}" for number in range(1, FORMAT + 1)}


def test_launches_of_format_1_are_read_though_their_lines_name_no_format():
    launches = read_launches(STORED / "format-1" / "reports")

    assert launches.note is None
    assert {row.format for row in launches.rows} == {1}
    assert {row.arm for row in launches.rows} == {"kernel", "reference", "base"}
    assert len(launches.rows) == 2 * 24 * 3
    assert all(len(row.us) >= 25 for row in launches.rows)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("reports/run.json", "run.schema.json"),
        ("static/run.json", "run.schema.json"),
        ("baselines/fake-one/scale.json", "baseline.schema.json"),
    ],
)
def test_files_of_format_1_fit_the_schema_of_today(path, name):
    document = json.loads((STORED / "format-1" / path).read_text(encoding="utf-8"))

    assert faults(document, name, closed=False) == []
