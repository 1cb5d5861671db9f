"""`perfci history`: tables for people, JSON for programs, and a picture."""

import dataclasses
import json

import pytest

from perfci.cli.main import run
from perfci.core.model import ErrorStats, Extent
from perfci.extensions.common.accepted_runs import HistoryStored
from perfci.extensions.common.history import history_path
from tests.history_examples import CASE, accepted, figures
from tests.stored_examples import append_history

KEY = "nvidia-h200"


@pytest.fixture
def nights(root):
    """Four runs of softmax: a new driver, then a loss that was accepted."""
    keep(
        root,
        accepted(0, figures(kernel_us=10.0)),
        accepted(1, figures(kernel_us=10.2), driver="590"),
        accepted(2, figures(kernel_us=11.0), driver="590", why="float32 sums, see !42"),
        accepted(3, figures(kernel_us=10.9), driver="590", uuid="GPU-2"),
    )
    return root


def keep(root, *runs, op="softmax", key=KEY):
    for kept in runs:
        append_history(root / "baselines", key, op, kept)


@pytest.fixture
def ask(capsys):
    def asked(*arguments):
        capsys.readouterr()
        code = run(["history", *arguments])
        seen = capsys.readouterr()
        return code, seen.out, " ".join(seen.err.split())

    return asked


def test_a_case_is_shown_run_by_run_with_its_marks(nights, ask):
    code, out, _ = ask()

    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    assert lines[0] == "softmax on nvidia-h200: 4 accepted runs, 2026-01-01 to 2026-01-04"
    assert "2026-01-01 aaaaaaaaaa 10.0 us 2.0 % - - 1.49x GPU-1" in lines
    assert "environment: device.driver 580.1 -> 590" in lines
    assert "a loss was accepted: float32 sums, see !42" in lines
    assert "2026-01-03 aaaaaaaaaa 11.0 us 2.0 % +7.8 % +10.0 % 1.49x GPU-1" in lines
    assert "2026-01-04 aaaaaaaaaa 10.9 us 2.0 % -0.9 % +9.0 % 1.49x GPU-2" in lines


def one(text):
    return " ".join(text.split())


def test_the_newest_runs_alone_can_be_asked_for(nights, ask):
    _, out, _ = ask("--last", "1")

    assert "... 3 earlier runs: --last 4" in one(out)
    assert "10.9 us" in out
    assert "11.0 us" not in out


def test_many_cases_have_a_line_each(root, ask):
    cases = [f"rows={number},cols=1024,dtype=float16,layout=contiguous" for number in range(9)]
    keep(root, accepted(0, *map(figures, cases)), accepted(1, *(figures(case, 11.0) for case in cases)))

    _, out, _ = ask()

    assert sum("11.0 us" in line for line in out.splitlines()) == 9
    _, detailed, _ = ask("--case", "rows=3,*")
    assert detailed.count("10.0 us") == detailed.count("11.0 us") == 1


def test_a_project_without_any_history_says_how_to_get_one(root, ask):
    code, out, _ = ask()

    assert code == 0
    assert "`perfci accept` stores the first ones" in one(out)
    assert ask("--format", "json")[:2] == (0, "[]\n")


def test_what_no_history_has_is_named(nights, ask):
    for arguments, said in (
        (["softmin"], "softmax"),
        (["--device-key", "nvidia-a100"], KEY),
        (["--case", "rows=7"], "rows=7"),
    ):
        code, _, err = ask(*arguments)
        assert code == 1
        assert said in err


def test_a_damaged_line_is_said_and_exits_3(nights, ask):
    path = history_path(nights / "baselines", KEY, "softmax")
    path.write_text("{\n" + path.read_text())

    code, out, _ = ask()

    assert code == 3
    assert "softmax.history.jsonl, line 1, is damaged" in one(out)
    assert "10.9 us" in out


def test_every_device_has_its_own_part(nights, ask):
    keep(nights, accepted(0, key="nvidia-a100"), key="nvidia-a100")

    _, out, _ = ask()

    assert "softmax on nvidia-a100: 1 accepted run, 2026-01-01" in one(out)
    assert "softmax on nvidia-h200: 4 accepted runs" in one(out)
    assert KEY not in ask("--device", "nvidia-a100")[1]


def test_programs_get_every_point(nights, ask):
    _, out, _ = ask("--format", "json")

    (answer,) = json.loads(out)
    (case,) = answer["cases"]
    assert (answer["op"], answer["device"], answer["runs"], case["case"]) == ("softmax", KEY, 4, CASE)
    assert [point["kernel_us"]["median_us"] for point in case["points"]] == [10.0, 10.2, 11.0, 10.9]
    assert [point["epoch"] for point in case["points"]] == [None, None, "float32 sums, see !42", None]
    assert case["points"][1]["moved"] == [
        {"field": "device.driver", "before": "580.1", "after": "590", "bearing": "moves"}
    ]
    assert len(json.loads(ask("--format", "json", "--last", "2")[1])[0]["cases"][0]["points"]) == 2


def test_what_was_renamed_is_one_history(nights, ask):
    keep(nights, accepted(4, figures("m=1"), renamed={"m=1": CASE}))

    _, out, _ = ask("--format", "json")

    assert [(case["case"], len(case["points"])) for case in json.loads(out)[0]["cases"]] == [("m=1", 5)]


def test_foreign_text_reaches_no_terminal(root, ask):
    keep(root, accepted(0, figures("\x1b[31mred")), accepted(1, figures("\x1b[31mred"), why="\x1b]0;x\x07why"))

    assert "\x1b" not in ask()[1]
    assert "\x1b" not in ask("--format", "json")[1]


# --- what is stored in low precision ----------------------------------------------------------------------------------

WAYS = [
    f"stored={tensor},m=8,scaling={mode},dtype=float8_e4m3fn" for mode in ("tensor", "row", "group") for tensor in "ab"
]


def tensor(case, p99=0.02, **fields):
    ends = Extent(0.5, 1.0, 2.0)
    return HistoryStored(case, ErrorStats(64, p99_abs=p99, mean_rel=0.025), amax=ends, scale=ends, **fields)


def storing(number, *stored, **fields):
    return dataclasses.replace(accepted(number, **fields), stored=stored)


@pytest.fixture
def crept(root):
    """Three runs of an op that stores six tensors, of which one grows and clips more and more."""
    first, *others = WAYS
    for number in range(3):
        grown = tensor(first, 0.02 + 0.001 * number, clip_ratio=0.0015 * number, divergence=0.012 * number)
        keep(root, storing(number, grown, *map(tensor, others), driver="590" if number else "580.1"), op="fp8")
    return root


def lines(text):
    return [one(line) for line in text.splitlines()]


def test_many_stored_tensors_have_a_line_each_below_the_cases(crept, ask):
    code, out, _ = ask()

    told = lines(out)
    at = told.index("Stored in low precision:")
    assert code == 0
    assert at > told.index("2026-01-03 aaaaaaaaaa 10.0 us 2.0 % 0.0 % 0.0 % 1.49x GPU-1")
    assert told[at + 1] == "tensor runs p99 abs clipped divergence change first"
    assert told[at + 2] == "a,m=8,scaling=tensor,dtype=float8_e4m3fn 3 0.0220 0.30 % 0.0240 +4.8 % +10.0 %"
    assert told[at + 3] == "b,m=8,scaling=tensor,dtype=float8_e4m3fn 3 0.0200 0 % 0 0.0 % 0.0 %"
    assert len(told) == at + 2 + len(WAYS) + 1
    assert told[-1].startswith("Every run of these: --case 'stored=*'")


def test_stored_tensors_are_chosen_and_shown_run_by_run_as_cases_are(crept, ask):
    code, out, _ = ask("--case", "stored=a,scaling=tensor,*")

    told = lines(out)
    assert code == 0
    assert WAYS[0] in told
    assert "date commit p99 abs mean rel clipped divergence change since first board" in told
    assert told[-4:] == [
        "2026-01-01 aaaaaaaaaa 0.0200 2.5 % 0 % 0 - - GPU-1",
        "environment: device.driver 580.1 -> 590",
        "2026-01-02 aaaaaaaaaa 0.0210 2.5 % 0.15 % 0.0120 +5.0 % +5.0 % GPU-1",
        "2026-01-03 aaaaaaaaaa 0.0220 2.5 % 0.30 % 0.0240 +4.8 % +10.0 % GPU-1",
    ]
    assert "10.0 us" not in out
    assert ask("--case", "stored=*")[1].count("date ") == len(WAYS)


def test_programs_get_every_point_of_what_is_stored(crept, ask):
    (answer,) = json.loads(ask("--format", "json", "--last", "2")[1])

    assert [case["case"] for case in answer["stored"]] == WAYS
    before, newest = answer["stored"][0]["points"]
    assert newest["errors"]["p99_abs"] == 0.022
    assert (newest["clip_ratio"], newest["divergence"], newest["extreme"]) == (0.003, 0.024, 0)
    assert newest["amax"] == newest["scale"] == {"least": 0.5, "median": 1.0, "most": 2.0}
    assert newest["since_first"] == pytest.approx(0.1)
    assert before["moved"] == [{"field": "device.driver", "before": "580.1", "after": "590", "bearing": "moves"}]
    (chosen,) = json.loads(ask("--format", "json", "--case", "stored=a,scaling=row,*")[1])
    assert (chosen["cases"], [case["case"] for case in chosen["stored"]]) == ([], [WAYS[2]])
