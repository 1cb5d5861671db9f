"""What people write: thresholds, pyproject.toml, ops, requirements. It reads, or a sentence names the place."""

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfci.core import settings
from perfci.core.errors import PerfciError
from perfci.core.model import Reason
from perfci.core.wording import sentence
from perfci.ops import discover
from perfci.ops.fingerprint import source
from perfci.ops.fingerprint.pins import pins_changed
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.read import load
from tests.fuzz import mutations

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
KEYS = (*(field.name for field in dataclasses.fields(CaseThresholds)), "cases", "expected")
SCALARS = (
    "2 %",
    "99.9%",
    "0 %",
    "-1 %",
    "1e999",
    "0.5",
    "-3",
    ".inf",
    ".nan",
    "1_000",
    "0x10",
    "1:30:00",
    "yes",
    "null",
    "2020-02-30",
    "!!timestamp 2020-99-99",
    "!!int x",
    "!!float ''",
    "!!binary =",
    "!foo bar",
    "!!python/none x",
    "&a [*a]",
    "*a",
    "<<",
    "? [1]",
    "٣ %",
    "9" * 5000,
    "'\\x00'",
    "|\n  a",
    "{}",
    "[]",
    "\ufeff",
    "\u202e",
    "!!bool x",
    "!!null 1",
    "!!set {a}",
    "!!omap [a]",
    "!!pairs [a]",
    "@",
    "`",
    "%TAG ! x",
    "--- a\n--- b",
)


def saved(folder: str, name: str, data: bytes) -> Path:
    path = Path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def outcome(read: Callable[[], T]) -> T | Reason:
    try:
        return read()
    except PerfciError as error:
        return error.reason


def _flow(table: dict[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in table.items()) + "}"


yaml_texts = st.lists(
    st.tuples(
        st.sampled_from([*KEYS, "tau: 0", "expected", "<<", "!!str a", "[a]", "? a", "'*'"]),
        st.sampled_from(SCALARS) | st.text(max_size=8),
    ),
    max_size=5,
).map(lambda lines: "\n".join(f"{key}: {value}" for key, value in lines).encode("utf-8", "surrogatepass"))
nested = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.dictionaries(st.sampled_from([*KEYS, "0", "40", "dtype=float32"]), inner, max_size=3).map(_flow),
)


@given(data=st.one_of(st.binary(max_size=100), yaml_texts, nested.map(lambda text: text.encode()), st.data()))
@example(data=b"[" * 2_000)
@example(data=b"margin: " + b"{a: " * 1_000)
@example(data=b"a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a]\nc: [*b, *b, *b, *b, *b]")
def test_thresholds_read_or_name_their_file(data):
    if not isinstance(data, bytes):
        data = data.draw(mutations.mutated((ROOT / "thresholds" / "default.yaml").read_bytes()))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("default.yaml", "softmax.yaml"):
            path = saved(folder, name, data)
            result = outcome(lambda: load(Path(folder)))
            if isinstance(result, Reason):
                assert path.name in sentence(result)
            else:
                limits = result.for_case("softmax", "rows=1,dtype=float32")
                assert 0 < limits.allowed(10.0, "activity") < 1e308
            assert path.read_bytes() == data
            path.unlink()


VALUES = (
    "true",
    "1",
    "-1",
    "0",
    "1.5",
    "inf",
    "-inf",
    "nan",
    "9" * 400,
    "1e400",
    '""',
    '"a\\u0000b"',
    '"../.."',
    '"/"',
    "[]",
    '["a"]',
    "[1]",
    "{}",
    "{a = 1}",
    "2020-01-01",
    '"\\u001b[31m"',
    "'x'",
    '"' + "a" * 5000 + '"',
    "[[[[1]]]]",
    '["CI_JOB_TOKEN"]',
    '["sm_90", "nonsense"]',
    "[" * 5000,
)
tables = st.lists(
    st.tuples(st.sampled_from([*settings.KEYS, "kernel", "a.b", '"\\u001b"', "fake.noise"]), st.sampled_from(VALUES)),
    max_size=4,
).map(lambda rows: "[tool.perfci]\n" + "\n".join(f"{key} = {value}" for key, value in rows))


@given(data=st.one_of(st.binary(max_size=80), tables.map(str.encode), st.data()))
@example(data=b"a = " + b"[" * 20_000)
@example(data=b"tool = 1")
@example(data=b"[tool]\nperfci = 1")
@example(data=b"[[tool.perfci]]")
def test_a_pyproject_reads_or_is_named(data):
    if not isinstance(data, bytes):
        data = data.draw(mutations.mutated((ROOT / "pyproject.toml").read_bytes()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        path = saved(name, "pyproject.toml", data)
        (folder / "kernels").mkdir()
        result = outcome(lambda: settings.load(folder))
        if isinstance(result, Reason):
            assert str(path) in sentence(result)
        else:
            assert result.kernels.is_absolute() and 0 < result.time_limit_s < 1e9
        assert path.read_bytes() == data


SOURCES = [path.read_bytes() for path in sorted((ROOT / "kernels" / "softmax").glob("*.py"))]
CHAIN = b"if x:\n pass\n" + b"elif x:\n pass\n" * 3_000
DEEP = (
    CHAIN,
    b"x = " + b"(" * 5_000,
    b"x = " + b"-" * 50_000 + b"1",
    b"x = " + b"1+" * 20_000 + b"1",
    b"x = " + b"9" * 5_000,
    b"x = a" + b".b" * 20_000,
    b"\x00",
    b"# coding: nonsense\n",
    b"\xff\xfe",
    b"\xef\xbb\xbfx = 1",
    b"x = '\\d'",
    b"x = 1is 2",
    b"\x0cdef f(): pass",
    b"def softmax(x, /, *y, z, **w): pass",
    b"match x:\n case 1: pass",
)


def op_of(folder: str, data: bytes) -> discover.OpFolder:
    for part in ("triton", "baseline", "accuracy", "performance"):
        saved(folder, f"kernels/softmax/softmax_{part}.py", data)
    (op,) = discover.ops(settings.load(Path(folder)))
    return op


def looked_at(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        op = op_of(folder, data)
        for reason in discover.check_contract(op):
            assert folder in sentence(reason)
        assert op.files[0].read_bytes() == data


@pytest.mark.parametrize("data", DEEP, ids=range(len(DEEP)))
def test_source_of_any_shape_breaks_the_contract_in_words(data):
    looked_at(data)
    assert source.read(data) == source.read(data)


@given(data=st.data())
def test_mutated_source_breaks_the_contract_in_words(data):
    looked_at(data.draw(mutations.mutated(data.draw(st.sampled_from(SOURCES)))))


LISTS = ("requirements.txt", "pyproject.toml", "uv.lock", "poetry.lock", ".gitlab-ci.yml", "environment.yml")


@given(name=st.sampled_from(LISTS), data=st.data())
@example(name="uv.lock", data=b"package = 1")
@example(name="uv.lock", data=b"package = [1]")
@example(name="uv.lock", data=b"a = " + b"[" * 20_000)
@example(name="pyproject.toml", data=b"project = 1\ntool = [1]")
def test_lists_of_requirements_of_any_bytes_change_nothing_but_what_they_pin(name, data):
    if not isinstance(data, bytes):
        whole = (ROOT / "pyproject.toml").read_bytes() + (ROOT / "requirements" / "cpu.txt").read_bytes()
        data = data.draw(st.binary(max_size=60) | mutations.mutated(whole))
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
        saved(here, name, data)
        assert all(isinstance(change, str) for change in pins_changed(Path(here), Path(there)))
