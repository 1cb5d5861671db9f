"""What fuzzing found once, each as small as it gets."""

import dataclasses
import typing
from collections.abc import Iterator

import pytest

from perfci import report, store
from perfci.cli import output
from perfci.cli.main import run as command
from perfci.core.errors import StoredFileError
from perfci.core.model import Base, Baseline, Reason, Run
from perfci.judge import judge
from perfci.report import build, markdown
from perfci.thresholds.limits import Thresholds
from tests.store.test_store import a_baseline, a_run
from tests.stored_examples import write_baseline

UNBOUNDED = {"format", "found", "count"}
"""A version is only compared; errors of kernels may be as large as a float can be."""
ERRORS = {"max_abs", "mean_abs", "max_rel", "mean_rel", "p50_abs", "p90_abs", "p99_abs", "rmse", "l2", "rtol", "atol"}


def records(kind: typing.Any, seen: set[type]) -> Iterator[tuple[type, str, typing.Any]]:
    """Every field of a record and of those below it, with its type."""
    for arg in typing.get_args(kind):
        yield from records(arg, seen)
    if dataclasses.is_dataclass(kind) and kind not in seen:
        seen.add(kind)
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            yield kind, name, hint
            yield from records(hint, seen)


def is_bare(hint: typing.Any) -> bool:
    """Returns True if it has a number without bounds."""
    if typing.get_origin(hint) is typing.Annotated:
        return False
    return hint in (int, float) or any(is_bare(arg) for arg in typing.get_args(hint))


@pytest.mark.parametrize("kind", [Run, Baseline])
def test_every_stored_number_has_its_bounds(kind):
    """Otherwise logarithms, ratios and widths of its values would not be finite: see perfci/core/model/basics.py."""
    hints = records(kind, set())

    bare = {f"{owner.__name__}.{name}" for owner, name, hint in hints if owner is not Reason and is_bare(hint)}
    assert {field for field in bare if field.split(".")[1] not in UNBOUNDED | ERRORS} == set()


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ('"median_us": 10.0', '"median_us": 0.0', "time.median_us"),
        ('"median_us": 10.0', '"median_us": -1', "time.median_us"),
        ('"median_us": 10.0', '"median_us": 1e300', "time.median_us"),
        ('"kernel/reference": -0.182322', '"kernel/reference": 1e9', "shifts[...]"),
        ('"launches": 30', '"launches": -1', "time.launches"),
        ('"seed": 7', f'"seed": {"9" * 400}', "seed"),
    ],
)
def test_a_number_beyond_its_bounds_is_refused_with_its_place(before, after, place, tmp_path):
    path = store.write_run(a_run(), tmp_path)
    path.write_text(path.read_text().replace(before, after, 1))

    with pytest.raises(StoredFileError) as caught:
        store.read_run(path)

    assert caught.value.reason.kind in {"file_unexpected", "file_damaged"}
    assert caught.value.reason.kind == "file_damaged" or caught.value.reason.facts["place"].endswith(place)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", ".hidden", "", "a/b", "a\0b", "a" * 300])
def test_no_name_out_of_a_run_leads_out_of_the_baselines_folder(name, tmp_path):
    for changed in ({"op": name}, {"device": name}):
        with pytest.raises(StoredFileError) as caught:
            write_baseline(dataclasses.replace(a_baseline(), **changed), tmp_path / "baselines")
        assert caught.value.reason.kind == "baseline_name"
    assert list(tmp_path.iterdir()) == []


def test_an_error_names_a_file_without_its_escapes(tmp_path, capsys):
    path = tmp_path / "\x1b[31mred\u202e.json"
    path.write_text("{")
    (tmp_path / "kernels").mkdir()

    assert command(["show", str(path), "--project", str(tmp_path)]) == 1

    told = capsys.readouterr().err
    assert "red.json" in told and "\x1b" not in told and "\u202e" not in told


def test_json_on_a_terminal_holds_no_escape_and_says_the_same(capsysbinary):
    output.print_json({"case": "\x1b\x9b31m\u202e\ufeff数"})

    told = capsysbinary.readouterr().out
    assert told == b'{"case":"\\u001b\\u009b31m\\u202e\\ufeff\xe6\x95\xb0"}\n'


def test_how_a_base_was_found_is_escaped_in_the_report():
    assert "](" not in markdown.write(build._describe_base(Base("0" * 40, "[x](http://evil)", "main"))).replace(
        "\\](", ""
    )


def test_values_that_no_setting_can_have_are_refused_by_name(tmp_path):
    from perfci.core import settings
    from perfci.core.errors import UsageError

    (tmp_path / "kernels").mkdir()
    for line in ("time_limit_s = inf", "time_limit_s = nan", f"time_limit_s = {'9' * 400}", 'kernels = "a\\u0000b"'):
        (tmp_path / "pyproject.toml").write_text(f"[tool.perfci]\n{line}\n")
        with pytest.raises(UsageError) as caught:
            settings.load(tmp_path)
        assert caught.value.reason.kind == "setting_type"


def test_blocks_without_arms_are_not_drawn(tmp_path):
    run = a_run()
    (op,) = run.ops
    cases = tuple(
        dataclasses.replace(case, blocks=tuple(dataclasses.replace(block, arms={}, shifts={}) for block in case.blocks))
        for case in op.performance
    )
    bare = dataclasses.replace(run, ops=(dataclasses.replace(op, performance=cases),))

    limits = Thresholds()
    assert report.write(bare, judge(bare, {}, limits), tmp_path).exists()
