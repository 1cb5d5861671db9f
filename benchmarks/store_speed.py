"""How long a store takes for 1,000 runs of 1,000 made-up cases. Aims: copied in 120 s, any trend in a second.

50 ops of 20 cases, accepted 1,000 times, go to PostgreSQL (if there is one here) and to Parquet files. `again` is a
copy when nothing is new, `one more` when each op has one more run. A trend is one case over all runs, by its id and by
a glob; `an op` is all its cases. The slowest of several is given.

The site over each store compares with a release in the middle of the runs.

Run: python benchmarks/store_speed.py [OPS RUNS CASES]
"""

import contextlib
import dataclasses
import functools
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from perfci.core import settings
from perfci.extensions.history import site
from perfci.extensions.history.archive import import_project
from perfci.extensions.history.database import open_store
from perfci.extensions.history.heat import Release
from perfci.store import layout
from perfci.store.history import history_path
from tests import postgres
from tests import site_histories as histories

DEVICE = "nvidia-h200"


def main(ops: int = 50, runs: int = 1000, cases: int = 20) -> None:
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as closing:
        root = Path(place).resolve()
        newest = {}
        for op, found in histories.many(ops, runs, cases):
            histories.project(root, {(DEVICE, op): found})
            newest[op] = found[-1]
        where = settings.load(root)
        stored = sum(path.stat().st_size for path in root.rglob("*.jsonl"))
        print(f"{runs} runs of {ops * cases} cases in {ops} ops, {stored / 1e6:.0f} MB of lines", flush=True)
        if server := postgres.start():
            closing.callback(postgres.end, server)
        urls = {"Parquet": f"parquet:{root}/store"} | ({"PostgreSQL": server.url()} if server else {})
        for name, url in urls.items():
            with open_store(url) as store:
                copied, cpu = timed(lambda: import_project(store, where, (), 0))
                again, _ = timed(lambda: import_project(store, where, (), 0))
                print(f"{name}: copied in {copied:.1f} s ({cpu:.1f} s of CPU here), again {again:.1f} s", flush=True)
                case = newest[f"op_{ops // 2:03}"].cases[cases // 2].case
                for what, pattern in (("one case", case), ("a glob", f"{case[:-3]}*"), ("an op", None)):
                    asked = [*newest][:: max(ops // 5, 1)]
                    took = [timed(functools.partial(read, store, op, pattern, runs))[0] for op in asked]
                    print(f"{name}: {what} {max(took):.2f} s", flush=True)
                print_site(store, name, where, runs)
        for op, run in newest.items():
            with history_path(where.baselines, DEVICE, op).open("a") as file:
                file.write(layout.line(dataclasses.replace(run, run="one-more")))
        for name, url in urls.items():
            with open_store(url) as store:
                print(f"{name}: one more {timed(lambda: import_project(store, where, (), 0))[0]:.1f} s", flush=True)
        files = sum(path.stat().st_size for path in (root / "store").rglob("*.parquet"))
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{files / 1e6:.0f} MB of Parquet; most memory {most / 1024:.0f} MiB")


def read(store, op: str, pattern: str | None, runs: int) -> None:
    history = store.read_history(DEVICE, op, pattern)
    assert len(history.runs) == runs
    assert all(run.cases for run in history.runs)


def print_site(store, name: str, where, runs: int) -> None:
    release = Release("middle", frozenset(histories.commit(number) for number in range(runs // 2)))
    ask, asked = type(store).ask, []

    def count(self, statement, **values):
        rows = ask(self, statement, **values)
        asked.append(len(rows) if "FROM cases" in statement else 0)
        return rows

    type(store).ask = count
    out = where.root / f"site-{name}"
    took, cpu = timed(lambda: site.build(where.baselines, where.root, out, kept=store, release=release))
    type(store).ask = ask
    text = f"{len(asked)} statements, {sum(asked)} of the case records"
    print(f"{name}: site {took:.1f} s ({cpu:.1f} s of CPU here), {text}", flush=True)


def timed(work) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
