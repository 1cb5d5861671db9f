"""`perfci history --store`: copied to a real PostgreSQL or to Parquet files, and asked there."""

import contextlib
import dataclasses
import importlib
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.core import codec, settings
from perfci.extensions.common.accepted_runs import HistoryCase
from perfci.extensions.common.history import KEPT, history_path
from tests import postgres
from tests.history_examples import CASE, OTHER, accepted, figures
from tests.stored_examples import append_history

psycopg = pytest.importorskip("psycopg")
pytest.importorskip("duckdb")
database = importlib.import_module("perfci.extensions.history.database")

KEY = "nvidia-h200"
STORED = Path(__file__).parents[2] / "stored" / "format-1" / "reports"


@pytest.fixture(scope="module")
def server():
    start = postgres.start()
    if start is None:
        pytest.skip("no PostgreSQL here: Debian has it as postgresql")
    yield start
    postgres.end(start)


@contextlib.contextmanager
def connect(url):
    """A connection to a server. Its statements act at once."""
    with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
        yield connection


@pytest.fixture
def postgresql(server):
    """The URL of a database without tables."""
    with connect(server.url()) as connection:
        connection.execute("DROP DATABASE IF EXISTS history WITH (FORCE)")
        connection.execute("CREATE DATABASE history")
    return server.url("history")


@pytest.fixture(params=["postgresql", "parquet"])
def url(request, root):
    """Of a store of either kind, empty."""
    return request.getfixturevalue("postgresql") if request.param == "postgresql" else "parquet:kept"


@pytest.fixture
def ask(capsys):
    def asked(*arguments):
        capsys.readouterr()
        code = run(["history", *map(str, arguments)])
        seen = capsys.readouterr()
        return code, seen.out, " ".join(seen.err.split())

    return asked


def keep(root, *runs, op="softmax"):
    for kept in runs:
        append_history(root / "baselines", KEY, op, kept)


def rows(url, text):
    """What a statement gives in a store."""
    with database.open_store(url) as store:
        return store.ask(text)


def times(answer, case=CASE):
    """Kernel times of a case, run by run, of a JSON answer about one op."""
    (op,) = json.loads(answer)
    return [
        point["kernel_us"]["median_us"]
        for case_points in op["cases"]
        if case_points["case"] == case
        for point in case_points["points"]
    ]


def test_a_store_answers_as_git_does(root, url, ask):
    keep(
        root,
        accepted(0, figures(kernel_us=10.0), figures(OTHER)),
        accepted(1, figures(kernel_us=11.0), figures(OTHER), driver="590", why="float32 sums, see !42"),
        accepted(2, figures(kernel_us=10.9), driver="590", uuid="GPU-2"),
    )

    for view in ([], ["--case", CASE], ["--drift"], ["--boards"], ["softmax", "--last", "1"]):
        expected = ask(*view, "--format", "json")
        assert ask(*view, "--format", "json", "--store", url) == expected


def test_copying_again_changes_nothing_and_says_what_was_new(root, url, ask):
    keep(root, accepted(0), accepted(1))
    assert ask("--store", url)[1].startswith("Copied: 2; there before: 0.")
    before = rows(url, "SELECT * FROM cases ORDER BY run")

    keep(root, accepted(2))

    assert ask("--store", url)[1].startswith("Copied: 1; there before: 2.")
    assert ask("--store", url)[1].startswith("Copied: 0; there before: 3.")
    assert rows(url, "SELECT * FROM cases WHERE run <> 'run2' ORDER BY run") == before


def test_a_line_that_has_more_cases_than_before_is_taken_anew_in_its_place(root, url, ask):
    keep(root, accepted(0), accepted(1))
    ask("--store", url)

    keep(root, accepted(0, figures(OTHER, 20.0)))

    assert "Copied: 1; there before: 1." in ask("--store", url)[1]
    _, out, _ = ask("--store", url, "--format", "json")
    assert [point["run"] for point in json.loads(out)[0]["cases"][0]["points"]] == ["run0", "run1"]
    assert times(out, OTHER) == [20.0]


def test_a_store_keeps_what_git_forgets(root, url, ask):
    keep(root, *(accepted(n, figures(kernel_us=10.0 + n), created="2026-01-01T00:00:00Z") for n in range(KEPT)))
    ask("--store", url)
    keep(root, *(accepted(KEPT + n, figures(kernel_us=200.0), created="2026-01-01T00:00:00Z") for n in range(2)))

    _, out, _ = ask("--store", url, "--format", "json")

    assert len(times(ask("--format", "json")[1])) == KEPT
    assert times(out) == [*(10.0 + n for n in range(KEPT)), 200.0, 200.0]


def test_what_was_renamed_is_one_trend(root, url, ask):
    keep(root, accepted(0, figures(kernel_us=9.0)), op="softmin")
    keep(root, accepted(1, figures(kernel_us=10.0), renamed_from="softmin"))
    keep(root, accepted(2, figures("m=1", 11.0), figures(OTHER), renamed={"m=1": CASE}))

    _, out, _ = ask("softmax", "--case", "m=1", "--store", url, "--format", "json")

    assert times(out, "m=1") == [9.0, 10.0, 11.0]


def test_verdicts_and_blocks_of_a_run_are_copied_and_blocks_of_old_runs_leave(root, url, ask):
    for number in range(3):
        shutil.copytree(STORED, root / "reports", dirs_exist_ok=True)
        path = root / "reports" / "run.json"
        text = json.loads(path.read_text())
        path.write_text(json.dumps(text | {"id": f"night{number}"}))
        for _ in range(2):
            assert "blocks: 144." in ask("--store", url, "--blocks", "2")[1]

    counts = rows(url, "SELECT run, count(*), min(median_us) FROM blocks GROUP BY run ORDER BY run")
    assert [(name, count) for name, count, _ in counts] == [("night1", 144), ("night2", 144)]
    assert all(least > 0 for _, _, least in counts)
    verdicts = rows(url, "SELECT run, count(*) FROM verdicts GROUP BY run ORDER BY run")
    assert verdicts == [(f"night{number}", verdicts[0][1]) for number in range(3)]
    assert {gate for (gate,) in rows(url, "SELECT DISTINCT gate FROM verdicts")} <= {"ok", "warns", "fails"}
    assert ask("--store", url, "--format", "json")[:2] == (0, "[]\n")  # nothing was accepted


def test_a_run_takes_its_place_when_it_is_accepted(root, url, ask):
    stored = json.loads((STORED / "run.json").read_text())
    shutil.copytree(STORED, root / "reports")
    op, key = stored["ops"][0]["op"], stored["environment"]["device"]["key"]
    ask("--store", url)
    here = accepted(0, created=stored["created"], key=key)
    for case_points in (here, dataclasses.replace(here, run=stored["id"])):
        append_history(root / "baselines", key, op, case_points)

    ask("--store", url)

    order = rows(url, f"SELECT run FROM runs WHERE op = '{op}' AND accepted ORDER BY position")
    assert order == [("run0",), (stored["id"],)]


# --- the site over a store --------------------------------------------------------------------------------------------


def pages(folder):
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(folder.rglob("*.html"))}


def test_the_site_over_a_store_is_the_one_over_git(root, url, ask):
    keep(root, *(accepted(n, figures(kernel_us=10.0 + n), figures(OTHER)) for n in range(4)))
    keep(root, accepted(0), accepted(1), op="relu")
    ask("--store", url)

    assert run(["report", "--to", "site", "--out", "of-git"]) == 0
    assert run(["report", "--to", "site", "--out", "of-store", "--store", url]) == 0
    assert pages(root / "of-store") == pages(root / "of-git")


def test_only_the_figures_of_the_newest_runs_are_read(root, url, ask):
    keep(root, *(accepted(n, created="2026-01-01T00:00:00Z") for n in range(6)))
    ask("--store", url)

    with database.open_store(url) as store:
        history = store.read_history(KEY, "softmax", newest=2)

    assert [len(run.cases) for run in history.runs] == [0, 0, 0, 0, 1, 1]


def test_a_database_that_goes_away_leaves_the_old_index_and_the_next_build_goes_on(
    root, server, postgresql, ask, capsys, monkeypatch
):
    for op in ("add", "mul"):
        keep(root, accepted(0), accepted(1), op=op)
    ask("--store", postgresql)
    read = database.HistoryStore.read_history

    def stop_at_the_second(store, device, op, *rest, **more):
        if op == "mul":
            server.stop()
        return read(store, device, op, *rest, **more)

    monkeypatch.setattr(database.HistoryStore, "read_history", stop_at_the_second)
    code = run(["report", "--to", "site", "--store", postgresql])
    err = " ".join(capsys.readouterr().err.split())
    monkeypatch.undo()
    monkeypatch.chdir(root)
    server.start()

    assert code == 1
    assert "run the same command again" in err
    assert [*pages(root / "public")] == [f"{KEY}/add.html"]
    assert run(["report", "--to", "site", "--store", postgresql]) == 0
    assert {f"{KEY}/mul.html", "index.html"} < pages(root / "public").keys()


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_database_that_goes_away_in_the_middle_is_filled_by_the_next_copy(root, server, postgresql, ask, monkeypatch):
    for op in ("add", "mul", "softmax"):
        keep(root, accepted(0), accepted(1), op=op)
    replace = database.HistoryStore.replace

    def stop_at_the_second(store, table, device, op, *rest):
        if (table, op) == ("runs", "mul"):  # its cases are written
            server.stop()
        replace(store, table, device, op, *rest)

    monkeypatch.setattr(database.HistoryStore, "replace", stop_at_the_second)
    code, out, err = ask("--store", postgresql)
    monkeypatch.undo()
    monkeypatch.chdir(root)
    server.start()

    assert (code, out) == (1, "")
    assert "run the same command again" in err
    assert rows(postgresql, "SELECT DISTINCT op FROM cases") == [("add",)]
    assert ask("--store", postgresql)[1].startswith("Copied: 4; there before: 2.")
    counts = rows(postgresql, "SELECT op, count(*), count(DISTINCT run) FROM cases GROUP BY op ORDER BY op")
    assert counts == [(op, 2, 2) for op in ("add", "mul", "softmax")]


def test_parquet_files_that_were_half_written_are_filled_by_the_next_copy(root, ask, monkeypatch):
    keep(root, accepted(0), accepted(1))
    replace = database.HistoryStore.replace

    def fail_at_runs(store, table, *rest):
        if table == "runs":
            raise OSError(28, "No space left on device")
        replace(store, table, *rest)

    monkeypatch.setattr(database.HistoryStore, "replace", fail_at_runs)
    code, _, err = ask("--store", "parquet:kept")
    monkeypatch.setattr(database.HistoryStore, "replace", replace)

    assert code == 1
    assert "No space left on device" in err
    assert ask("--store", "parquet:kept")[1].startswith("Copied: 2; there before: 0.")
    assert rows("parquet:kept", "SELECT count(*) FROM cases") == [(2,)]


def test_a_server_that_is_not_there_is_said_without_its_password(root, ask):
    keep(root, accepted(0))

    code, _, err = ask("--store", f"postgresql://perfci:geheim@/history?host={root}/nowhere")

    assert code == 1
    assert f"postgresql://perfci@{root}/nowhere/history" in err
    assert "geheim" not in err


def test_a_schema_of_tomorrow_is_left_alone(root, postgresql, ask):
    keep(root, accepted(0))
    ask("--store", postgresql)
    with connect(postgresql) as connection:
        connection.execute("UPDATE store_format SET format = 9999")
    keep(root, accepted(1))

    code, _, err = ask("--store", postgresql)

    assert code == 1
    assert "9999" in err
    assert "update perfci" in err
    with connect(postgresql) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)


def test_parquet_files_of_tomorrow_are_left_alone(root, ask):
    keep(root, accepted(0))
    ask("--store", "parquet:kept")
    (root / "kept" / database.HEAD).write_text('{"format": 99}')

    code, _, err = ask("--store", "parquet:kept")

    assert code == 1
    assert "99" in err
    assert "store.json" in err


def test_a_wrong_clock_moves_no_run_and_is_said_once(root, url, ask):
    keep(
        root,
        accepted(0, figures(kernel_us=10.0)),
        accepted(1, figures(kernel_us=11.0), created="2099-01-01T00:00:00Z"),
        accepted(2, figures(kernel_us=12.0), created="1970-01-01T00:00:00Z"),
        accepted(3, figures(kernel_us=13.0), created="yesterday"),
        accepted(4, figures(kernel_us=14.0)),
    )

    code, out, _ = ask("--store", url)

    assert code == 3
    assert "wrong for 3 runs of softmax" in " ".join(out.split())
    code, out, _ = ask("--store", url, "--format", "json")
    assert code == 0
    assert times(out) == [10.0, 11.0, 12.0, 13.0, 14.0]


def test_two_copies_at_once_write_each_run_once(root, url, ask):
    for op in ("add", "mul", "softmax"):
        keep(root, *(accepted(n) for n in range(5)), op=op)
    where = settings.load(root)
    with database.open_store(url) as one, database.open_store(url) as other, ThreadPoolExecutor(2) as both:
        written = [*both.map(lambda store: database.import_project(store, where, (), 0).new, (one, other))]

    assert sum(written) == 15
    counts = rows(url, "SELECT op, count(*), count(DISTINCT run), max(position) FROM runs GROUP BY op ORDER BY op")
    assert counts == [(op, 5, 5, 4) for op in ("add", "mul", "softmax")]
    assert rows(url, "SELECT count(*) FROM cases") == [(15,)]


def test_a_torn_parquet_file_is_named(root, ask, capsys):
    keep(root, accepted(0))
    ask("--store", "parquet:kept")
    path = root / "kept" / "cases" / KEY / "softmax.parquet"
    path.write_bytes(path.read_bytes()[:-40])

    for command in (["history"], ["report", "--to", "site"]):
        assert run([*command, "--store", "parquet:kept"]) == 1
        err = " ".join(capsys.readouterr().err.split())
        assert "softmax.parquet" in err
        assert "Traceback" not in err


def test_a_damaged_line_is_said_and_the_others_are_copied(root, url, ask):
    keep(root, accepted(0))
    path = history_path(root / "baselines", KEY, "softmax")
    path.write_text("{\n" + path.read_text())

    code, out, _ = ask("--store", url)

    assert code == 3
    assert "line 1, is damaged" in " ".join(out.split())
    assert out.startswith("Copied: 1;")


def test_foreign_text_is_no_part_of_a_statement(root, url, ask):
    hostile = "x='; DROP TABLE runs; --%(a)s:b\0\\"
    keep(root, accepted(0, figures(hostile)), dataclasses.replace(accepted(1, figures(hostile)), run="'; %s :c"))

    assert ask("--store", url)[0] == 0
    assert ask("--store", url)[1].startswith("Copied: 0; there before: 2.")
    _, out, _ = ask("--store", url, "--format", "json")
    assert len(times(out, hostile)) == 2


@pytest.mark.parametrize("bad", ["mysql://x/geheim", "parquet:", "kept", "postgresql://perfci:geheim@[half"])
def test_what_is_no_store_is_refused(root, ask, bad):
    code, _, err = ask("--store", bad)

    assert code == 1
    assert "parquet:FOLDER" in err
    assert "geheim" not in err


def test_without_the_packages_of_a_store_the_command_that_installs_them_is_said(root, ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "perfci.extensions.history.database", None)

    code, _, err = ask("--store", "parquet:kept")

    assert code == 1
    assert "pip install 'perfci[store]'" in err


def test_a_user_who_may_only_read_builds_the_site(root, postgresql, ask):
    keep(root, accepted(0), accepted(1))
    ask("--store", postgresql)
    with connect(postgresql) as connection:
        connection.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")

    assert run(["report", "--to", "site", "--store", postgresql.replace("perfci@", "reader@")]) == 0

    with connect(postgresql) as connection:
        connection.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_figures_are_kept_whole(root, url, ask):
    one = figures(errors=None, null=((0.001, -0.002), (0.0005,)), bytes_moved=1 << 40)
    keep(root, accepted(0, one))
    ask("--store", url)

    ((kept,),) = rows(url, "SELECT figures FROM cases")
    assert codec.decode(kept, HistoryCase) == one
