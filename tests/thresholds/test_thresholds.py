import os
from dataclasses import replace
from datetime import date

import pytest

from perfci.core.errors import StoredFileError
from perfci.core.model import Expected
from perfci.core.wording import catalogue, sentence
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.read import load
from perfci.thresholds.write import suggest_expected


def _load(folder, ops=None, **files):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return load(folder, ops)


def _error(folder, ops=None, **files):
    with pytest.raises(StoredFileError) as caught:
        _load(folder, ops, **files)
    reason = caught.value.reason
    assert reason.kind in catalogue()
    return reason, sentence(reason)


def test_the_committed_defaults_are_the_built_in_ones(pytestconfig):
    folder = pytestconfig.rootpath / "thresholds"

    assert (folder / "default.yaml").is_file()
    assert load(folder).default == CaseThresholds()


def test_values_fall_through_from_default_to_op_to_case(tmp_path):
    thresholds = _load(
        tmp_path,
        default="margin: 3 %\nrsd: 4 %\n",
        softmax="speedup: 1.2\ncases:\n  dtype=float32:\n    margin: 5%\n  cols=7:\n    margin: 8 %\n",
    )

    assert thresholds.for_case("matmul", "rows=1").margin == 0.03
    assert thresholds.for_case("softmax", "cols=8,dtype=float16") == CaseThresholds(margin=0.03, rsd=0.04, speedup=1.2)
    assert thresholds.for_case("softmax", "cols=8,dtype=float32").margin == 0.05
    assert thresholds.for_case("softmax", "cols=7,dtype=float32").margin == 0.08


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("margin: 2 %\nmargni: 3 %\n", 2, "did you mean margin?"),
        (
            "xyzzy: 3 %\n",
            1,
            "Use one of these: access_width, alpha, asynchronous_copies, bandwidth_share, barriers, clip_ratio",
        ),
        ("margin: 2\n", 1, "margin is 2, but has to be a percentage"),
        ("margin: 100 %\n", 1, "below 100 %"),
        ("margin: [2 %]\n", 1, "a list or a mapping"),
        ("margin:\n", 1, "margin is nothing"),
        ("alpha: 0 %\n", 1, "above 0 %"),
        ("alpha: 60 %\n", 1, "up to 50 %"),
        ("speedup: fast\n", 1, "speedup is fast"),
        ("speedup: 0\n", 1, "a number above 0"),
        ("span_floor_us: -1\n", 1, "zero or more"),
        ("rsd: 5 %\nrsd: 6 %\n", 2, "a second time"),
        ("floor_us:\n  activty: 0.1\n", 2, "did you mean activity?"),
        ("floor_us: 0.1\n", 1, "a mapping"),
        ("tau:\n  3: 1 %\n", 1, "begin at length 0"),
        ("tau:\n  0: 1 %\n  long: 2 %\n", 1, "kernel lengths in microseconds"),
        ("tau:\n  0: 1\n", 2, "has to be a percentage"),
        ("tau:\n  0: 0 %\n", 2, "a percentage above 0 % and below 100 %, such as 1 %"),
        ("tau:\n  0: 1 %\n  .inf: 1 %\n", 1, "kernel lengths in microseconds"),
        ("spill_bytes: 5 %\n", 1, "a number, zero or more"),
        ("bandwidth_share: 0.8\n", 1, "a percentage above 0 % and up to 140 %"),
        ("bandwidth_share: 141 %\n", 1, "up to 140 %"),
        ("compile_s: 20 %\n", 1, "a number above 0"),
        ("max_abs: 1 %\n", 1, "a number, zero or more, up to 1000000000, such as 1e-3"),
        ("max_abs: '1e-3'\n", 1, "such as 1e-3"),
        ("rmse: 1e999\n", 1, "zero or more"),
        ("- margin\n", 1, "a mapping"),
        ("cases:\n  rows=1:\n    margin: 3 %\n", 1, "belongs in <op>.yaml"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_remedy(tmp_path, text, line, words):
    reason, words_found = _error(tmp_path, default=text)

    assert reason.facts["file"] == str(tmp_path / "default.yaml")
    assert reason.facts["line"] == line
    assert words in words_found


def test_a_file_of_an_unknown_op_is_an_error_with_a_guess(tmp_path):
    assert "did you mean softmax?" in _error(tmp_path, ops=["softmax"], softmx="margin: 2 %\n")[1]
    (tmp_path / "softmx.yaml").unlink()
    assert "no op zebra: rename or delete" in _error(tmp_path, ops=["matmul"], zebra="margin: 2 %\n")[1]


def test_a_floor_that_a_file_leaves_out_is_the_one_of_the_file_above(tmp_path):
    thresholds = _load(
        tmp_path,
        default="floor_us:\n  activity: 0.3\n  event: 0.8\n",
        softmax="floor_us:\n  event: 0.9\ncases:\n  rows=1:\n    floor_us:\n      virtual: 0.4\n",
    )

    assert thresholds.for_case("softmax", "rows=1").floor_us == {"activity": 0.3, "event": 0.9, "virtual": 0.4}
    assert thresholds.for_case("softmax", "rows=2").floor_us == {"activity": 0.3, "event": 0.9, "virtual": 0.0}


# --- against a base ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("us", "timer", "allowed"),
    [
        (100.0, "activity", 0.01),
        (100.0, "event", 0.01),
        (40.0, "event", 0.0125),
        (12.0, "activity", 0.015),
        (4.0, "activity", 0.025),
        (2.0, "activity", 0.05),
        (2.0, "event", 0.25),
        (2.0, "virtual", 0.05),
        (0.4, "event", 1.25),
        (2.0, None, 0.25),
    ],
)
def test_allowed_is_tau_or_what_the_timer_cannot_tell(us, timer, allowed):
    assert CaseThresholds().allowed(us, timer) == pytest.approx(allowed)


GATES = (
    "registers", "instructions", "shared_memory", "occupancy", "spill_bytes", "peak_memory",
    "bandwidth_share", "compile_s", "mean_abs", "rmse", "p99_abs", "max_abs",
)  # fmt: skip


def test_every_gate_can_be_set_for_all_for_an_op_and_for_a_case(tmp_path):
    thresholds = _load(
        tmp_path,
        default="registers: 10 %\nspill_bytes: 8\n",
        softmax="instructions: 5 %\nshared_memory: 0 %\noccupancy: 20 %\n"
        "bandwidth_share: 80.5 %\ncompile_s: 20\nmean_abs: 1e-4\nrmse: 0.0002\np99_abs: 1.5e-3\n"
        "cases:\n  rows=1:\n    registers: 0 %\n    peak_memory: 3 %\n    max_abs: 0\n",
    )

    limits = thresholds.for_case("softmax", "rows=1")

    assert [getattr(limits, gate) for gate in GATES] == [
        *(0.0, 0.05, 0.0, 0.2, 8.0, 0.03),
        *(pytest.approx(0.805), 20.0, 1e-4, 2e-4, 1.5e-3, 0.0),
    ]
    assert thresholds.for_case("softmax", "rows=2").max_abs is None
    assert thresholds.for_case("softmax", "rows=2").registers == 0.1
    assert thresholds.for_case("matmul", "rows=1").instructions is None


@pytest.mark.parametrize(
    ("files", "layers", "origin"),
    [
        ({}, {}, "default"),
        ({"default": "max_abs: 1e-3\n"}, {}, "default"),
        ({"default": "max_abs: 1e-3\n", "op": "rmse: 1\n"}, {}, "default"),
        ({"default": "max_abs: 1e-3\n", "op": "max_abs: 1e-4\n"}, {}, "op"),
        ({"default": "max_abs: 1e-3\n", "op": "cases:\n  rows=1:\n    max_abs: 1e-3\n"}, {}, "op"),
        ({"default": "max_abs: 1e-3\n", "op": "cases:\n  rows=2:\n    max_abs: 1e-3\n"}, {}, "default"),
        ({"default": "max_abs: 1e-3\n"}, {"earned": {"op": {"rows=1": {"max_abs": 1e-5}}}}, "nvidia-h200/op.json"),
        ({"op": "max_abs: 1e-6\n"}, {"earned": {"op": {"rows=1": {"max_abs": 1e-5}}}}, "op"),
        ({"default": "max_abs: 1e-3\n"}, {"commanded": {"max_abs": 1.0}}, "--threshold"),
    ],
)
def test_where_a_value_comes_from_is_known(tmp_path, files, layers, origin):
    origin_found = replace(_load(tmp_path, **files), folder="thresholds", **layers).origin(
        "op", "rows=1", "max_abs", "nvidia-h200"
    )

    assert origin_found == (
        origin if origin.startswith("--") else f"thresholds/{origin}{'' if '.' in origin else '.yaml'}"
    )


def test_an_allowed_slow_down_lowers_every_target_of_speed_and_no_other_limit():
    limits = CaseThresholds(speedup=1.5, bandwidth_share=0.9, compile_s=2.0, max_abs=0.1, peak_memory=0.1)

    widen = limits.widen(0.5)

    assert (widen.speedup, widen.bandwidth_share) == (1.0, pytest.approx(0.6))
    assert (widen.compile_s, widen.max_abs, widen.peak_memory) == (2.0, 0.1, 0.1)
    assert CaseThresholds().widen(0.5).bandwidth_share is None


# --- slow-downs that were agreed on -----------------------------------------------------------------------------------

ENTRY = '{case: "rows=4096,*", up_to: 6 %, why: "float32 accumulation, see !42", until: 2027-01-31}'


def _listed(*entries):
    return "expected:\n" + "".join(f"  - {entry}\n" for entry in entries)


def _with(**fields):
    """An entry with these fields replaced; None leaves one out."""
    written = {"case": '"rows=1"', "up_to": "6 %", "why": '"agreed"', "until": "2027-01-31"} | fields
    return "{" + ", ".join(f"{key}: {text}" for key, text in written.items() if text is not None) + "}"


def test_an_entry_is_read_with_the_place_where_it_stands(tmp_path):
    folder = tmp_path / "thresholds"
    folder.mkdir()
    (folder / "softmax.yaml").write_text(f"rsd: 6 %\n{_listed(ENTRY)}")

    (entry,) = load(folder, root=tmp_path).expected("softmax", "rows=4096,cols=7")

    assert entry == Expected("softmax", "rows=4096,*", 0.06, "float32 accumulation, see !42", "2027-01-31")
    assert (entry.file, entry.line, entry.added) == ("thresholds/softmax.yaml", 3, False)


def test_an_entry_is_about_the_cases_that_its_pattern_fits_and_no_others(tmp_path):
    thresholds = _load(tmp_path, softmax=_listed(ENTRY, _with(case="dtype=float32"), _with(case='"*"')))

    def found(case):
        return [entry.case for entry in thresholds.expected("softmax", case)]

    assert found("rows=4096,dtype=float32") == ["rows=4096,*", "dtype=float32", "*"]
    assert found("rows=1,dtype=float16") == ["*"]
    assert thresholds.expected("matmul", "rows=4096,cols=1") == ()
    assert len(thresholds.expected("softmax")) == 3


def test_an_entry_declares_what_of_a_suite_asks_for_less_and_allows_no_slow_down(tmp_path):
    thresholds = _load(
        tmp_path, softmax=_listed('{weaker: tolerance, why: "sums in float16", until: 2027-01-31}', ENTRY)
    )

    assert [entry.weaker for entry in thresholds.expected("softmax")] == ["tolerance", None]
    assert [entry.up_to for entry in thresholds.expected("softmax", "rows=4096,cols=1")] == [0.06]


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ('{weaker: speed, why: "x", until: 2027-01-31}', "what got weaker, one of accelerator cases, answers"),
        ("{weaker: cases, until: 2027-01-31}", "lacks why"),
        ('{weaker: cases, up_to: 6 %, why: "x", until: 2027-01-31}', "up_to"),
        (_with(case=None), "lacks case"),
        (_with(case="rows"), "a pattern for case ids"),
        (_with(up_to="0 %"), "a percentage above 0 % and up to 1000 %"),
        (_with(why='""'), "a reason in quotes"),
        (_with(until="2027-02-30"), "a date such as 2027-01-31"),
        (_with(untill="2027-01-31"), "did you mean until"),
        ("rows=1", "an entry such as {case"),
    ],
)
def test_a_mistake_in_an_entry_is_named_with_its_line(tmp_path, entry, wanted):
    reason, told = _error(tmp_path, softmax=f"rsd: 6 %\n{_listed(entry)}")

    assert reason.facts["line"] == 3
    assert wanted in told


@pytest.mark.parametrize(
    "value", ["[]", f"[{ENTRY}]", "6 %", "yes", "{case: a=1}", "2027-01-31", "\n  rows=1:\n    up_to: 6 %"]
)
def test_expected_is_a_list_with_an_entry_a_line(tmp_path, value):
    reason, told = _error(tmp_path, softmax=f"rsd: 6 %\nexpected: {value}\n")

    assert reason.facts["line"] == 2
    assert (
        "has to be a list with an entry a line, such as - {case: ..., up_to: 6 %, why: ..., until: 2027-01-31}" in told
    )


def test_a_change_brings_its_own_entries_and_nothing_else(tmp_path):
    base, change = (tmp_path / name for name in ("base", "change"))
    for folder in (base, change):
        folder.mkdir()
    kept, gone, asked = _with(case="a=1"), _with(case="b=1"), _with(case="c=1")
    ours = _load(base, softmax=_listed(kept, gone) + "rsd: 6 %\n")
    theirs = _load(change, softmax="tau:\n  0: 50 %\nrsd: 7 %\n" + _listed(asked, kept), matmul=_listed(asked))
    entries = [entry for op in ("matmul", "softmax") for entry in theirs.expected(op)]

    changed = ours.with_change(entries)

    assert changed.for_case("softmax", "c=1") == CaseThresholds(rsd=0.06)
    assert [entry.case for entry in changed.ops["softmax"].expected] == ["c=1", "a=1"]
    assert [entry.case for entry in changed.ops["softmax"].dropped] == ["b=1"]
    assert [entry.line for entry in changed.expected("softmax", "a=1")] == [6]
    assert changed.expected("softmax", "b=1")[0].case == "b=1"
    assert changed.expected("matmul", "c=1")
    assert changed.default == ours.default


@pytest.mark.parametrize(
    ("up_to", "written"),
    [(0.0401, "4.5 %"), (0.045, "4.5 %"), (0.0999, "10 %"), (0.1001, "11 %"), (1.0, "100 %"), (2.31, "240 %")],
)
def test_a_suggested_entry_rounds_up_as_far_as_its_size_asks_for(up_to, written):
    entry = suggest_expected(Thresholds(), "softmax", "rows=1", up_to, date(2026, 5, 1))

    assert f"up_to: {written}, " in entry.line
    assert entry.file == "thresholds/softmax.yaml"


# --- files that are no thresholds -------------------------------------------------------------------------------------


def _bytes_error(folder, data):
    (folder / "default.yaml").write_bytes(data)
    with pytest.raises(StoredFileError) as caught:
        load(folder)
    assert sentence(caught.value.reason)
    return caught.value.reason


@pytest.mark.parametrize(
    ("data", "line", "problem"),
    [
        (b"rsd: 5 %\nmargin: \xff %\n", 2, "it is not UTF-8 text"),
        ("margin: 2 %\n".encode("utf-16"), 1, "it is not UTF-8 text"),
        (b"rsd: 5 %\n\tmargin: 2 %\n", 2, "found character '\\t' that cannot start any token"),
        (b"rsd: 5 %\nmargin: 2 %\x00\n", 2, "the character U+0000 has no place in it"),
        (b"rsd: 5 %\n---\nrsd: 6 %\n", 2, "but found another document"),
        (b"margin: *gone\n", 1, "found undefined alias 'gone'"),
        (b"a: &x 1\nb: &x 2\n", None, None),
        (b"%YAML 3.0\n---\nrsd: 5 %\n", 1, "found incompatible YAML document (version 1.* is required)"),
        (b"[" * 5000, 1, "it is nested too deeply"),
        (b"{a: " * 5000, 1, "it is nested too deeply"),
        (b"<<<<<<< HEAD\nrsd: 5 %\n=======\nrsd: 6 %\n>>>>>>> topic\n", None, None),
        (b"\xef\xbb\xbfmargni: 2 %\n", 1, None),
    ],
    ids=["a byte", "UTF-16", "a tab", "a zero byte", "two documents", "an alias of nothing", "two anchors of a name",
         "another YAML", "lists in lists", "mappings in mappings", "a conflict", "a mark of order"],
)  # fmt: skip
def test_a_file_that_is_no_yaml_is_named_with_its_line(tmp_path, data, line, problem):
    reason = _bytes_error(tmp_path, data)

    assert reason.facts["file"] == str(tmp_path / "default.yaml")
    assert line is None or reason.facts["line"] == line
    if problem:
        assert (reason.kind, reason.facts["problem"]) == ("thresholds_unreadable", problem)


def test_aliases_that_grow_without_end_are_not_followed(tmp_path):
    """Billion laughs: nine lists of nine aliases each."""
    laughs = "a0: &a0 [lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))

    reason, _ = _error(tmp_path, default=laughs)
    assert reason.kind == "threshold_key_unknown"

    for key in ("margin", "tau", "floor_us"):
        text = laughs.replace("a29:", f"{key}:").splitlines()
        known = "\n".join([f"{key}: {text[-1].partition(': ')[2]}"])
        assert _error(tmp_path, default="\n".join([*text[:-1], known]) + "\n")[0].kind == "threshold_key_unknown"


def test_a_file_too_large_to_be_thresholds_is_not_even_parsed(tmp_path):
    with (tmp_path / "default.yaml").open("wb") as file:
        file.truncate(100 << 20)

    with pytest.raises(StoredFileError) as caught:
        load(tmp_path)

    assert caught.value.reason.kind == "file_unreadable"
    assert "1.00 MiB" in sentence(caught.value.reason)


def test_what_is_no_plain_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "default.yaml")

    with pytest.raises(StoredFileError) as caught:
        load(tmp_path)

    assert caught.value.reason.kind == "file_unreadable"


@pytest.mark.parametrize("name", ["softmax.yml", "softmax.YAML", "default.yml"])
def test_a_file_that_would_be_passed_over_in_silence_is_named(tmp_path, name):
    (tmp_path / name).write_text("margin: 2 %\n")

    with pytest.raises(StoredFileError) as caught:
        load(tmp_path)

    assert f"rename it to {name.partition('.')[0]}.yaml" in sentence(caught.value.reason)
