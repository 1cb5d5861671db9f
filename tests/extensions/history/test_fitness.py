"""Whether a release is fit, by what the commands left in the reports folder."""

import dataclasses
import json
from pathlib import Path

import pytest

from perfci import store
from perfci.core import settings
from perfci.core.model import Gate, Reason, Verdict
from perfci.core.model.run import Again
from perfci.extensions.history import fitness
from perfci.extensions.history.release import render_release
from perfci.report.data import keep_answer
from tests.git_repositories import alone, commit_all, start

STORED = Path(__file__).parents[2] / "stored" / "format-1" / "reports"
OPS = ("relu", "row_sum", "scale")
FIT = {Gate.OK, Gate.WARNS}


@pytest.fixture
def where(tmp_path, monkeypatch):
    """A project of three ops and a chain: everything was checked at its commit, and is fine."""
    alone(monkeypatch, tmp_path)
    root = start(tmp_path / "project")
    (root / ".gitignore").write_text("reports/\n")
    for op in OPS:
        (root / "kernels" / op).mkdir(parents=True)
        (root / "kernels" / op / f"{op}_triton.py").write_text("")
    (root / "kernels" / "_chains").mkdir()
    (root / "kernels" / "_chains" / "block_chain.py").write_text("")
    commit = commit_all(root)
    loaded = settings.load(root)
    run = store.read_run(STORED)
    fine = dataclasses.replace(
        run,
        environment=dataclasses.replace(run.environment, commit=commit),
        # Against no base and no baseline every case is NEW.
        plan=dataclasses.replace(run.plan, base=None),
        ops=tuple(
            dataclasses.replace(
                op, performance=tuple(dataclasses.replace(case, base=None) for case in op.performance),
                accuracy=tuple(check for check in op.accuracy if not check.failure),
            )
            for op in run.ops
        ),
    )  # fmt: skip
    store.write_run(fine, loaded.reports)
    empty = dataclasses.replace(fine, ops=(), plan=dataclasses.replace(fine.plan, ops=(), again=Again("", (), "v1.0")))
    store.write_run(empty, loaded.reports / "creep")
    for name, looked in (("soak", OPS), ("chains", ["block"]), ("coverage", OPS)):
        keep_answer(loaded, name, Gate.OK, looked, ["Fine."], {"case": None})
    return loaded


def read(where):
    return fitness.read_fitness(where, [where.reports])[0]


def part(where, name):
    return next(part for part in read(where).parts if part.title.startswith(name))


def test_a_release_of_which_everything_was_looked_at_is_fit(where):
    fit = read(where)

    assert {part.title.partition(",")[0]: part.gate for part in fit.parts} == dict.fromkeys(
        ("Check", "Creep since the last release", "Soak", "Chains", "Coverage of suites"), Gate.OK
    )
    assert (fit.gate, fit.release) == (Gate.OK, "v1.0")


@pytest.mark.parametrize(
    ("name", "file", "command"),
    [
        ("Check", "run.json", "perfci check"),
        ("Creep", "creep/run.json", "perfci check --against-release"),
        ("Soak", "soak/soak.json", "perfci soak"),
        ("Chains", "chains/chains.json", "perfci chain"),
        ("Coverage", "coverage/coverage.json", "perfci static --coverage"),
    ],
)
@pytest.mark.parametrize("damage", ["missing", "torn", "of another tool", "of tomorrow"])
def test_what_nobody_looked_at_or_cannot_be_read_makes_it_unfit(where, name, file, command, damage):
    path = where.reports / file
    if damage == "missing":
        path.unlink()
    else:
        texts = {"torn": path.read_bytes()[:-20], "of another tool": b"[]", "of tomorrow": b'{"format": 99}'}
        path.write_bytes(texts[damage])
    fit = read(where)

    assert fit.gate not in FIT
    assert fit.gravest[0].title.startswith(name)
    assert fit.gravest[0].command == command
    assert "No one looked yet" in fit.gravest[0].said[0] or str(path) in fit.gravest[0].said[0]


def test_what_is_of_another_commit_says_nothing_about_this_one(where):
    (where.root / "kernels" / "relu" / "relu_triton.py").write_text("# other")
    commit_all(where.root)

    assert {part.gate for part in read(where).parts} == {None}
    assert "which is checked out: run it again" in part(where, "Soak").said[0]


def test_what_left_ops_or_cases_out_does_not_count(where):
    keep_answer(where, "soak", Gate.OK, ["relu"], ["Fine."], {})
    keep_answer(where, "coverage", Gate.OK, OPS, ["Fine."], {"case": "x=*"})

    assert (part(where, "Soak").gate, part(where, "Coverage").gate) == (None, None)
    assert "left out 2 of 3 ops: row_sum, scale" in part(where, "Soak").said[0]


def test_what_failed_is_said_first_with_what_to_do(where):
    keep_answer(where, "soak", Gate.FAILS, OPS, ["relu leaks.", "scale leaks."], {})
    fit = read(where)
    page = render_release(fit, "kernels")

    assert (fit.gate, fit.gravest[0].command) == (Gate.FAILS, "perfci soak")
    assert page.index("relu leaks.") < page.index("Parts") < page.index("scale leaks.")


def test_what_could_not_be_checked_on_that_machine_leaves_it_open(where):
    keep_answer(where, "chains", None, ["block"], ["0 cases are right."], {})

    assert part(where, "Chains").gate is None


def test_a_file_of_somebody_else_says_nothing_to_type_and_hides_nothing(where):
    path = where.reports / "soak" / "soak.json"
    kept = json.loads(path.read_text())
    evil = "\u202eevil\x1b[31m"
    more = {"gate": "fails", "said": [evil], "command": "rm -rf /", "created": evil, "table": {"rows": [["x"]]}}
    path.write_text(json.dumps(kept | more))
    page = render_release(read(where), "kernels")

    assert "rm -rf" not in page
    assert not {"\u202e", "\x1b"} & {*page}
    path.write_text(json.dumps(kept | {"said": []}))
    assert read(where).gate is Gate.OK


def test_a_first_release_has_nothing_to_creep_from(where):
    path = where.reports / "creep"
    run = store.read_run(path)
    store.write_run(dataclasses.replace(run, plan=dataclasses.replace(run.plan, again=Again())), path)

    assert part(where, "Creep").gate is Gate.OK


def test_a_check_that_fails_lends_its_head_to_the_page(where):
    run = store.read_run(where.reports)
    broken = dataclasses.replace(run.ops[0], failure=Reason("worker_silent"))
    store.write_run(dataclasses.replace(run, ops=(broken, *run.ops[1:])), where.reports)
    fit, judged = fitness.read_fitness(where, [where.reports])

    assert fit.gravest[0].table.rows[0][0].strip("\ue001") == Verdict.ERROR
    assert fit.gate not in FIT
    assert {row.verdict for row in judged[0][1].rows if row.op == "relu"} >= {Verdict.ERROR}


def test_without_any_report_nothing_is_claimed(tmp_path, where):
    fit = dataclasses.replace(where, reports=tmp_path / "none")

    assert read(fit).parts == ()
    assert read(fit).gate is None
    assert "perfci static --coverage" in render_release(read(fit), "kernels")


def test_an_answer_is_kept_with_its_commit_beside_its_own_numbers(where):
    keep_answer(where, "soak", Gate.FAILS, ["relu"], [Reason("worker_silent")], {"findings": [1]})
    kept = json.loads((where.reports / "soak" / "soak.json").read_text())

    assert (kept["format"], kept["gate"], kept["findings"]) == (1, "fails", [1])
    assert len(kept["commit"]) == 40
