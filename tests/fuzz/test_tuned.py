"""Tuned files of ops: configs, or an error that names the file."""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz import mutations

pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parents[2]
FILES = [path for path in sorted((ROOT / "kernels").glob("*/tuned/*.json")) if path.name != "space.json"]
TUNED = [path.read_bytes() for path in FILES]


@pytest.fixture(scope="module")
def launch():
    spec = importlib.util.spec_from_file_location("_launch_under_test", ROOT / "kernels" / "_launch.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@given(data=st.data())
@example(data=b"\xff")
@example(data=b"[" * 100_000)
@example(data=b'{"configs": "abc"}')
@example(data=b'{"configs": [1]}')
@example(data=b"null")
def test_a_tuned_file_reads_or_is_named(launch, data):
    if not isinstance(data, bytes):
        anything = mutations.ANYTHING.map(lambda tree: json.dumps({"configs": tree}).encode())
        data = data.draw(st.binary(max_size=40) | anything | mutations.mutated(data.draw(st.sampled_from(TUNED))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "nvidia-h200.json")
        path.write_bytes(data)
        rules = read(launch, Path(folder))
        assert path.read_bytes() == data
        if isinstance(rules, str):
            assert str(path) in rules
        else:
            assert all(isinstance(config, dict) for config in rules)


def read(launch, folder: Path) -> tuple | str:
    try:
        return launch.tuned(folder, "nvidia-h200")
    except ValueError as error:
        return str(error)


def test_the_projects_own_tuned_files_read(launch):
    assert TUNED
    for path in FILES:
        assert launch.tuned(path.parent, path.stem)
